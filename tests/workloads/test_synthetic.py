"""Synthetic requests: long enough, all different, the same everywhere."""

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from farm.workloads import synthetic
from farm.workloads.items import digest
from farm.workloads.synthetic import SyntheticWorkload

STYLES = ("repetitive", "varied")


def workload(**settings):
    return SyntheticWorkload(kind="synthetic", **settings)


def learn_by_heart(texts, vocab_size):
    """The tokenizer that needs the fewest tokens for these very texts."""
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.train_from_iterator(texts, trainers.BpeTrainer(vocab_size=vocab_size, show_progress=False))
    return tokenizer


@pytest.mark.parametrize("style", STYLES)
def test_the_published_shape(style):
    items = synthetic.items(workload(text=style))
    assert [item.item_id for item in items] == [f"synthetic-{n:04d}" for n in range(8)]
    for item in items:
        assert item.exact_tokens == 32768
        assert item.sampling == {"temperature": 0.0, "ignore_eos": True, "max_new_tokens": 2048}
        assert item.messages is None
        assert item.gold is None


@pytest.mark.parametrize("style", STYLES)
@pytest.mark.parametrize("tokens", [8, 100, 4096, 32768])
def test_any_tokenizer_gets_enough_tokens_and_not_far_too_many(style, tokens):
    texts = [item.text for item in synthetic.items(workload(text=style, input_tokens=tokens, requests=2))]
    tokenizer = learn_by_heart(texts, 50_000)
    for text in texts:
        assert len(tokenizer.encode(text).ids) >= tokens
        assert len(text) < 10 * tokens + 2000


@pytest.mark.parametrize("style", STYLES)
def test_no_two_requests_begin_alike(style):
    # 400 requests are more than there are opening words, so that openings of two words occur.
    items = synthetic.items(workload(text=style, input_tokens=64, requests=400))
    texts = [item.text for item in items]
    tokenizer = learn_by_heart(texts, 1000)
    beginnings = {tuple(tokenizer.encode(text).ids[:8]) for text in texts}
    assert len(beginnings) == 400
    assert len({text.split()[0] for text in texts[:200]}) == 200


def test_workloads_of_one_sweep_share_no_text():
    specs = [
        workload(text=style, input_tokens=n, seed=s, requests=1) for style in STYLES for n in (64, 512) for s in (1, 2)
    ]
    assert len({synthetic.items(spec)[0].text.partition(".")[2][:100] for spec in specs}) == len(specs)


def test_repetitive_repeats_and_varied_does_not():
    def longest_period_share(text):
        words = text.split()
        runs = [tuple(words[i : i + 10]) for i in range(len(words) - 10)]
        return len(set(runs)) / len(runs)

    for item in synthetic.items(workload(requests=2)):
        assert longest_period_share(item.text) < 0.01
    for item in synthetic.items(workload(text="varied", requests=2)):
        assert longest_period_share(item.text) > 0.999


def test_a_request_does_not_depend_on_how_many_there_are():
    assert synthetic.items(workload(requests=9))[:2] == synthetic.items(workload(requests=2))


@pytest.mark.parametrize(("style", "expected"), [("repetitive", "4cf8867b89710275"), ("varied", "adb02866a9c3abfd")])
def test_the_same_text_on_every_machine_and_python(style, expected):
    assert digest(synthetic.items(workload(text=style, input_tokens=512, requests=4)))[:16] == expected
