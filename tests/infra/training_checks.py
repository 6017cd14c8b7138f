"""The training code computes what an engine computes. Needs torch: run in the engine's environment."""

import json
import multiprocessing
from pathlib import Path

import numpy as np
import pytest
import torch
from demo_model import checkpoint, corpus
from demo_model.corpus import make_rows
from demo_model.masks import document_mask, pass_masks
from demo_model.network import Experts, KeysValues, NextN, Trunk, initialise
from demo_model.runner import OutOfTimeError, Settings, train_demo_model
from demo_model.shape import TINY, hf_config, shape_of
from demo_model.tokenizer import load_tokenizer
from demo_model.training import Batch, draft_logits, learning_rate

from farm.builtin import demo


@pytest.fixture
def tiny():
    generator = torch.Generator().manual_seed(3)
    trunk, nextn = Trunk(TINY).eval(), NextN(TINY).eval()
    initialise(trunk, TINY.layers, generator)
    initialise(nextn, 1, generator)
    return trunk, nextn


def causal(length):
    return torch.ones(length, length, dtype=torch.bool).tril()[None, None]


def test_config_round_trip():
    assert shape_of(hf_config(TINY, pad_id=0, end_id=1)) == TINY


@torch.no_grad()
def test_checkpoint_round_trip(tiny, tmp_path):
    trunk, nextn = tiny
    checkpoint.round_to_bf16(trunk, nextn)
    checkpoint.save(tmp_path, trunk, nextn, pad_id=0, end_id=1)
    again, _ = checkpoint.load(tmp_path)
    tokens = torch.arange(20)[None]
    assert torch.equal(trunk(tokens, causal(20)), again(tokens, causal(20)))


@torch.no_grad()
def test_packed_documents_do_not_see_each_other(tiny):
    trunk, _ = tiny
    first, second = torch.randint(0, 800, (1, 9)), torch.randint(0, 800, (1, 7))
    packed = trunk(torch.cat([first, second], 1), document_mask(torch.tensor([[1] * 9 + [2] * 7])))
    assert torch.allclose(packed[:, :9], trunk(first, causal(9)), atol=1e-4)
    # Rotary positions are relative: a document reads the same wherever it stands in its row.
    assert torch.allclose(packed[:, 9:], trunk(second, causal(7)), atol=1e-4)


def test_router_chooses_the_active_experts_with_weights_that_sum_to_one():
    experts = Experts(TINY).eval()
    initialise(experts, 1, torch.Generator().manual_seed(1))
    weights = experts.route(torch.randn(50, TINY.hidden))
    assert ((weights > 0).sum(-1) == TINY.active_experts).all()
    assert torch.allclose(weights.sum(-1), torch.ones(50))


def test_balancing_makes_a_neglected_expert_more_likely():
    experts = Experts(TINY)
    experts.load.copy_(torch.tensor([0.9, 0.5, 0.4, 0.2]))
    experts.balance(0.1)
    assert experts.expert_bias.tolist() == pytest.approx([-0.1, 0.0, 0.1, 0.1])


@torch.no_grad()
def test_parallel_draft_passes_equal_drafting_step_by_step(tiny):
    """As an engine does: keys of confirmed slots come from the trunk, later ones from the draft itself."""
    trunk, nextn = tiny
    length, passes, known = 14, 3, 9
    tokens = torch.randint(0, 800, (1, length), generator=torch.Generator().manual_seed(4))
    features = trunk.features(tokens, causal(length))
    document = torch.ones(1, length, dtype=torch.uint8)
    together = draft_logits(trunk, nextn, Batch(tokens, document, document.bool()), features, passes)

    # `known` tokens are confirmed: slots 0 to known - 2 have the trunk's features; the rest is drafted one by one.
    slots = known - 1
    current, steps = features[:, :slots], []
    for k in range(passes):
        count = slots + k
        embedded = trunk.word_embeddings(tokens[:, 1 : count + 1])
        out, _ = nextn(embedded, current, trunk.rotary, causal(count))
        steps.append(trunk.lm_head(out)[:, -1])
        current = torch.cat([current, out[:, -1:]], 1)
    for k in range(passes):
        assert torch.allclose(together[k][:, slots - 1 + k], steps[k], atol=1e-4)


def test_pass_masks_show_each_slot_once():
    masks = pass_masks(causal(6), 3)
    for k, mask in enumerate(masks, start=1):
        per_slot = mask.view(1, 1, 6, k, 6).sum(3)
        # From the slot where a pass can begin, every earlier slot is visible through exactly one pass.
        for s in range(k - 1, 6):
            assert per_slot[0, 0, s].tolist() == [1] * (s + 1) + [0] * (5 - s)


def test_keys_and_values_have_the_kv_heads(tiny):
    trunk, nextn = tiny
    x = torch.randn(2, 5, TINY.hidden)
    _, own = nextn(x, x, trunk.rotary, causal(5))
    assert isinstance(own, KeysValues)
    assert own.keys.shape == own.values.shape == (2, TINY.kv_heads, 5, TINY.head_dim)


def test_rows_are_reproducible_and_score_completions_only():
    folder = demo.model_path()
    rows, again = (make_rows(folder, 7, 8, 512) for _ in range(2))
    assert np.array_equal(rows.tokens, again.tokens)
    assert not (rows.scored & (rows.document == 0)).any()
    assert 0.4 < rows.scored.mean() < 0.9
    assert (rows.document > 0).mean() > 0.8
    tokenizer = load_tokenizer(folder)
    first = rows.tokens[0][rows.document[0] == 1]
    text = tokenizer.decode(first.tolist(), skip_special_tokens=False)
    assert text.startswith("<|user|>")
    assert text.endswith("<|end|>")


def test_learning_rate_warms_up_and_decays():
    rates = [learning_rate(step, 1000, 1.0) for step in range(1000)]
    assert rates[0] < 0.02
    assert max(rates) == pytest.approx(1.0)
    assert rates[-1] == pytest.approx(0.02, abs=1e-3)


def settings(out: Path, **changes) -> Settings:
    base = {
        "out": out,
        "shape": TINY,
        "device": "cpu",
        "seed": 1,
        "rows": 2,
        "length": 384,
        "trunk_steps": 3,
        "nextn_steps": 2,
        "trunk_peak": 1e-3,
        "nextn_peak": 1e-3,
        "workers": 1,
        "limit_s": 600.0,
        "save_every_s": 0.0,
        "evaluated": 1,
    }
    return Settings(**{**base, **changes})


def test_an_interrupted_run_goes_on_to_the_same_model(tmp_path, monkeypatch):
    # Forked workers have their imports already; spawned ones take seconds each to get them.
    monkeypatch.setattr(corpus, "get_context", lambda _: multiprocessing.get_context("fork"))
    for name in ("whole", "halves"):
        (tmp_path / name / "model").mkdir(parents=True)
        for file in ("tokenizer.json", "tokenizer_config.json"):
            (tmp_path / name / "model" / file).write_bytes((demo.model_path() / file).read_bytes())
    train_demo_model(settings(tmp_path / "whole"))
    with pytest.raises(OutOfTimeError):
        train_demo_model(settings(tmp_path / "halves", limit_s=0.0))
    train_demo_model(settings(tmp_path / "halves"))
    weights = [(tmp_path / name / "model" / checkpoint.WEIGHTS).read_bytes() for name in ("whole", "halves")]
    assert weights[0] == weights[1]
    logged = [json.loads(line) for line in (tmp_path / "halves" / "log.jsonl").read_text().splitlines()]
    assert "accuracy" in logged[-1]["report"]
