"""The pure parts: tokenizer, prefix cache, arguments, faults, schedules, the table of answers."""

from __future__ import annotations

import itertools
import json
import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from farm.engines.emulated import answers, draws, tokenizer
from farm.engines.emulated.answers import Answers
from farm.engines.emulated.arguments import resolve, setup_of
from farm.engines.emulated.faults import Faults, faults_from
from farm.engines.emulated.model import Setup, Speculation
from farm.engines.emulated.prefix_cache import PrefixCache
from farm.engines.emulated.schedule import Demand, chunk_ends, schedule
from farm.engines.emulated.shapes import VOCABULARY
from farm.types import Item

MODEL = ("--model-path", "/nowhere")


# ---- tokenizer


@given(st.text())
def test_text_survives_the_tokenizer(text):
    ids = tokenizer.encode(text)
    assert all(0 <= token < VOCABULARY for token in ids)
    assert tokenizer.decode(ids) == text


def test_english_comes_to_a_plausible_number_of_tokens():
    text = "Janet sells the remaining eggs at the farmers' market every day for 2 dollars. How much does she earn?"
    assert 1.0 < len(tokenizer.encode(text)) / len(text.split()) < 2.0


def test_special_tokens_are_single_and_can_be_left_out():
    ids = tokenizer.encode("<think>\nyes</think>")
    assert ids[0] == tokenizer.THINK_START
    assert ids[-1] == tokenizer.THINK_END
    assert tokenizer.decode([*ids, tokenizer.END], skip_special=True) == "<think>\nyes</think>"


def test_a_chat_prompt_ends_in_a_think_section_that_is_open_or_empty():
    messages = [{"role": "user", "content": "Why?"}]
    assert tokenizer.decode(tokenizer.encode_chat(messages, thinking=True)).endswith("ASSISTANT</role><think>\n")
    assert tokenizer.decode(tokenizer.encode_chat(messages, thinking=False)).endswith("</think>\n\n")


def test_an_unknown_id_reads_as_a_replacement_character():
    assert tokenizer.decode([VOCABULARY + 5]) == "\ufffd"


# ---- prefix cache


def test_only_whole_pages_are_matched_and_never_the_last_token():
    cache = PrefixCache(64, 100_000)
    ids = list(range(130))
    assert cache.match(ids) == 0
    cache.insert(ids)
    assert cache.match(ids) == 128
    assert cache.match(ids[:128]) == 64
    assert cache.match([*ids[:100], 7, *ids[101:]]) == 64
    assert cache.match(ids[1:]) == 0
    cache.clear()
    assert cache.match(ids) == 0


def test_a_full_cache_forgets_and_a_disabled_one_never_learns():
    cache = PrefixCache(64, 128)
    first, second = [1] * 130, [2] * 130
    cache.insert(first)
    cache.insert(second)
    assert cache.match(first) == 0
    assert cache.match(second) == 128
    disabled = PrefixCache(64, 0)
    disabled.insert(first)
    assert disabled.match(first) == 0


# ---- arguments


def test_arguments_are_resolved_as_sglang_resolves_them():
    args = resolve([*MODEL, "--speculative-algorithm", "NEXTN", "--api-key=123", "--cuda-graph-bs-decode", "1", "2"])
    assert args.speculative_algorithm == "EAGLE"
    assert [args.speculative_num_steps, args.speculative_eagle_topk, args.speculative_num_draft_tokens] == [3, 1, 4]
    assert args.speculative_draft_model_path == "/nowhere"
    assert args.moe_runner_backend == "flashinfer_mxfp4"
    assert args.cuda_graph_bs_decode == [1, 2]
    assert args.api_key == "123"


@pytest.mark.parametrize(
    ("argv", "named"),
    [
        ([], "--model-path"),
        (["stray", *MODEL], "stray"),
        ([*MODEL, "--moe-runner-backend", "triton"], "triton"),
        ([*MODEL, "--speculative-algorithm", "DSPARK"], "DSPARK"),
        ([*MODEL, "--emulation-speed", "0"], "--emulation-speed"),
        ([*MODEL, "--emulation-chunk-gap-ms", "0"], "--emulation-chunk-gap-ms"),
        ([*MODEL, "--page-size", "big"], "--page-size"),
    ],
)
def test_what_cannot_be_emulated_is_refused_by_name(argv, named):
    with pytest.raises(ValueError, match=named):
        resolve(argv)


def test_the_setup_follows_from_arguments_and_environment():
    args = resolve([*MODEL, "--moe-runner-backend", "humming", "--speculative-algorithm", "NEXTN"])
    assert setup_of(args, {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}) == Setup("humming", True, Speculation(3, 4))
    assert setup_of(resolve(MODEL), {}) == Setup()


# ---- faults


def test_faults_act_on_the_launches_and_nodes_they_name():
    faults = json.dumps([{"crash_after": 5, "launches": [0]}, {"slow_clock": 0.5, "nodes": ["spark-2"]}])

    def on(launch: str, node: str) -> Faults:
        return faults_from(
            {"FARM_EMULATION_FAULTS": faults, "FARM_EMULATION_LAUNCH": launch, "FARM_EMULATION_NODE": node}
        )

    assert on("0", "spark-1") == Faults(crash_after=5)
    assert on("1", "spark-1") == Faults()
    assert on("1", "spark-2") == Faults(slow_clock=0.5)
    assert on("0", "spark-2") == Faults(crash_after=5, slow_clock=0.5)


@pytest.mark.parametrize("text", ["{", '{"crash_afer": 1}', '{"slow_clock": 0}', '[{"crash_after": -1}]', "3"])
def test_a_fault_that_does_not_exist_is_refused(text):
    with pytest.raises(ValueError):  # noqa: PT011 - the message is pydantic's or json's
        faults_from({"FARM_EMULATION_FAULTS": text})


# ---- schedules


def demand(**changes) -> Demand:
    digest = bytes(range(32))
    values = {
        "digest": digest,
        "question": draws.question_of(digest),
        "prompt_tokens": 700,
        "cached_tokens": 0,
        "predictability": 0.0,
        "limit": 32_768,
        "seed": 1,
    }
    return Demand(**values | changes)


@pytest.mark.parametrize("setup", [Setup(), Setup("humming", True, Speculation())], ids=["plain", "nextn"])
def test_a_schedule_is_consistent_and_repeatable(setup):
    answer = schedule(demand(), setup)
    assert answer == schedule(demand(), setup)
    assert answer.tokens[0] == 1
    assert answer.tokens[-1] == len(answer.ids)
    assert all(a < b for a, b in itertools.pairwise(answer.times_s))
    assert all(a < b for a, b in itertools.pairwise(answer.tokens))
    assert answer.ids[-1] == tokenizer.END
    if setup.speculation:
        assert answer.verify_rounds == len(answer.times_s) - 1
        emitted = 1 + answer.verify_rounds + answer.accepted
        assert len(answer.ids) <= emitted < len(answer.ids) + setup.speculation.rows
        assert answer.accept_histogram is not None


def test_sampling_noise_is_small_against_the_difference_between_questions():
    def lengths(question: float, seed: int) -> int:
        asked = draws.Question(question, hard=False, guessing=0.0)
        return len(schedule(demand(question=asked, seed=seed), Setup()).ids)

    same = [lengths(0.5, seed) for seed in range(20)]
    assert len(set(same)) > 5
    assert max(same) < lengths(0.95, 1)
    greedy = {len(schedule(demand(seed=seed, sampled=False), Setup()).ids) for seed in range(5)}
    assert len(greedy) == 1


def test_the_limit_cuts_and_ignore_eos_fills_it():
    cut = schedule(demand(limit=10), Setup())
    assert (cut.finish, len(cut.ids)) == ("length", 10)
    filled = schedule(demand(limit=3000, ignore_eos=True), Setup())
    assert (filled.finish, len(filled.ids)) == ("length", 3000)
    assert tokenizer.END not in filled.ids


def test_a_think_section_that_the_prompt_opened_is_closed_before_the_answer():
    text = tokenizer.decode(schedule(demand(gold="42", open_think=True), Setup()).ids, skip_special=False)
    thought, _, said = text.partition("</think>")
    assert thought
    assert said.startswith("\n\n")
    assert "#### 42" in said


def test_a_slow_machine_takes_longer_for_the_same_answer():
    usual, slow = schedule(demand(), Setup()), schedule(demand(), Setup(), slowdown=2)
    assert slow.ids == usual.ids
    assert slow.latency_s == pytest.approx(2 * usual.latency_s)


def test_failing_drafts_give_one_token_a_round():
    answer = schedule(demand(), Setup("humming", True, Speculation()), drafts_fail=True)
    assert answer.verify_rounds == len(answer.ids) - 1
    assert answer.accepted == 0
    assert answer.accept_histogram == [answer.verify_rounds]


@given(
    st.lists(st.floats(min_value=1e-6, max_value=1), min_size=1, max_size=60),
    st.floats(min_value=1e-6, max_value=2),
)
def test_chunks_cover_every_arrival_once_and_keep_their_distance(gaps, shortest):
    times = list(itertools.accumulate(gaps))
    ends = chunk_ends(times, shortest)
    assert ends[-1] == len(times) - 1
    assert all(a < b for a, b in itertools.pairwise(ends))
    starts = [0, *(end + 1 for end in ends[:-1])]
    assert all(times[b] - times[a] >= shortest for a, b in itertools.pairwise(starts))


def test_repetition_is_told_from_prose():
    rng = random.Random(3)
    prose = [rng.randrange(1000) for _ in range(2000)]
    assert draws.predictability_of(prose) < 0.01
    assert draws.predictability_of(prose[:50] * 40) > 0.95
    assert draws.predictability_of([1, 2]) == 0.0


# ---- answers


def test_the_table_tells_the_right_answer_by_the_prompt_alone(tmp_path):
    items = [
        Item(item_id="a", sampling={}, messages=[{"role": "user", "content": "2 + 2?"}], gold="4"),
        Item(item_id="b", sampling={}, text="The capital of France", exact_tokens=3, gold="Paris"),
        Item(item_id="c", sampling={}, text="ungraded"),
    ]
    table = tmp_path / "answers.jsonl"
    answers.write_answers(items, table)
    known = Answers.read(table)

    def gold(ids: list[int]) -> str | None:
        return known.look_up(answers.prompt_digest(ids))[1]

    assert gold(tokenizer.encode_chat([{"role": "user", "content": "2 + 2?"}], thinking=True)) == "4"
    assert gold(tokenizer.encode("The capital of France")[:3]) == "Paris"
    assert gold(tokenizer.encode("ungraded")) is None


def test_a_broken_table_names_the_line(tmp_path):
    table = tmp_path / "answers.jsonl"
    table.write_text('{"prompt_sha256": "00", "gold": "1"}\n{"gold": "2"}\n')
    with pytest.raises(ValueError, match=r"answers\.jsonl:2"):
        Answers.read(table)


def test_wrong_answers_are_never_the_right_one():
    hard = draws.Question(0.5, hard=True, guessing=0.0)
    seen = set()
    for seed in range(200):
        text = tokenizer.decode(
            schedule(demand(question=hard, gold="1,234", seed=seed), Setup()).ids, skip_special=True
        )
        seen.add(text.rpartition("#### ")[2])
    assert "1,234" in seen
    assert "1234" not in seen
    assert len(seen) > 2
