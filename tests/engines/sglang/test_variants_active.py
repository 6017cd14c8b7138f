"""Variants on real SGLang: what the plug-in adds works, and the gate refuses what is not really on."""

import asyncio
import json
import os
import subprocess
import urllib.request

import numpy as np
import pytest
from support import REPOSITORY

from farm.builtin.catalogue import builtin_model
from farm.engines.registry import engine_of
from farm.engines.sglang.evidence import mismatches, read_processes
from farm.engines.sglang.gate import evidence_folder, start_proven
from farm.errors import EngineStartError, VariantNotActive
from farm.spec.models import Sweep
from farm.spec.optimisations import expected_state

SWEEP = {
    "name": "variants",
    "model": {"path": "builtin:tiny-bailing-v3"},
    "engine": {
        "device": "cpu",
        "start_timeout_s": 400,
        "request_timeout_s": 120,
        "args": {
            "dtype": "float32",
            "prefill-attention-backend": "intel_amx",
            "decode-attention-backend": "intel_amx",
            "mamba-radix-cache-strategy": "no_buffer",
            "disable-overlap-schedule": True,
            "max-total-tokens": 8192,
            "max-mamba-cache-size": 8,
            "max-running-requests": 2,
            "sleep-on-idle": True,
        },
        "env": {"SGLANG_ROPE_CACHE_FP32": "1", "SGLANG_MAMBA_CONV_DTYPE": "float32", "OMP_NUM_THREADS": "1"},
    },
    "variants": [
        {"name": "fp32-output", "args": {"enable-fp32-lm-head": True}},
        {"name": "fp8-head", "parts": ["fp8-head"]},
        {"name": "fp8-head+nextn", "parts": ["fp8-head", "nextn"]},
    ],
    "workloads": {"w": {"kind": "synthetic"}},
}
VOCAB_SIZE = 1152  # of the tiny model
WITHOUT_PLUGIN = {"SGLANG_PLUGINS": "cpu_reference"}
WITHOUT_SHARED_HEAD = {"FARM_SGLANG_PLUGIN_DISABLE": "shared-draft-head"}
PROMPTS = [[5 + (7 * index + 13 * start) % 1000 for index in range(24)] for start in range(3)]


@pytest.fixture(scope="module")
def loop():
    loop = asyncio.new_event_loop()
    yield loop
    loop.close()


class Starter:
    """Starts engines of the sweep above through the gate."""

    def __init__(self, loop, python, folder):
        self.loop, self.python, self.folder = loop, python, folder
        self.sweep = Sweep.model_validate(SWEEP)

    def expected(self, variant):
        chosen = self.sweep.variant(variant)
        return expected_state(self.sweep.args_of(chosen), self.sweep.env_of(chosen))

    def __call__(self, variant, *, env=None, args=(), expected=None):
        """Start a variant with further environment and flags; the gate checks it as `expected`, or as itself."""
        command = engine_of(self.sweep).command(
            self.sweep,
            self.sweep.variant(variant),
            model_path=str(builtin_model("tiny-bailing-v3")),
            python=str(self.python),
        )
        command = type(command)((*command.argv, *args), command.env | (env or {}))
        log = self.folder / f"{variant}-{len(list(self.folder.glob('*.log')))}.log"
        log.touch()
        opened = start_proven(command, log, self.sweep.engine, expected or self.expected(variant), lambda phase: None)
        engine = self.loop.run_until_complete(opened)
        return engine, engine.facts.evidence


@pytest.fixture(scope="module")
def start(loop, cpu_engine, tmp_path_factory):
    return Starter(loop, cpu_engine, tmp_path_factory.mktemp("engines"))


@pytest.fixture(scope="module")
def stock(loop, start):
    """SGLang without the plug-in, its head BF16 with FP32 output, told to use an FP8 head, which it ignores."""
    engine, evidence = start("fp32-output", env=WITHOUT_PLUGIN | {"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    yield engine, evidence
    loop.run_until_complete(engine.stop())


@pytest.fixture(scope="module")
def quantised(loop, start):
    """FP8 head and NEXTN, with the plug-in."""
    engine, evidence = start("fp8-head+nextn")
    yield engine, evidence
    loop.run_until_complete(engine.stop())


def scheduler(evidence):
    """What the scheduler's process wrote, as JSON."""
    (process,) = [process for process in evidence.processes if process.models]
    return process.model_dump(mode="json", by_alias=True)


def ask(engine, body):
    return post(engine, "/generate", body)


def post(engine, path, body):
    request = urllib.request.Request(
        f"{engine.process.url}{path}",
        json.dumps(body).encode(),
        {"Content-Type": "application/json", "Authorization": f"Bearer {engine.process.api_key}"},
    )
    with urllib.request.urlopen(request, timeout=120) as reply:
        return json.load(reply)


def logits(engine, ids):
    """Centred log-probabilities [positions, vocabulary] after each token of a text: its logits but for a constant."""
    body = {
        "input_ids": ids,
        "sampling_params": {"temperature": 0.0, "max_new_tokens": 1},
        "return_logprob": True,
        "logprob_start_len": 0,
        "top_logprobs_num": VOCAB_SIZE,
    }
    rows = [row for row in ask(engine, body)["meta_info"]["input_top_logprobs"] if row]
    table = np.zeros((len(rows), VOCAB_SIZE))
    for index, row in enumerate(rows):
        for value, token, _ in row:
            table[index, token] = value
    return table - table.mean(axis=1, keepdims=True)


def test_stock_sglang_passes_for_what_it_has_and_not_for_an_fp8_head(start, stock):
    engine, evidence = stock
    assert evidence.source == "server_info"
    reasons = mismatches(start.expected("fp8-head"), evidence.processes, engine.server_info, None)
    assert any("SGLANG_ENABLE_FP8_LM_HEAD" in reason and "install-plugin.sh" in reason for reason in reasons)


def test_speculation_that_is_silently_off_is_told(start, stock):
    engine, evidence = stock
    nextn = expected_state({"speculative-algorithm": "NEXTN", "enable-fp32-lm-head": True}, {})
    assert mismatches(nextn, evidence.processes, engine.server_info, None) == [
        "speculation NEXTN is asked for and the engine resolved none"
    ]


def test_another_moe_backend_than_asked_is_told(start, quantised):
    engine, evidence = quantised
    humming = expected_state({"moe-runner-backend": "humming"}, {"SGLANG_ENABLE_FP8_LM_HEAD": "1"})
    reasons = mismatches(humming, evidence.processes, None, None)
    assert "MoE backend humming is asked for and the experts run on triton" in reasons
    assert "MoE backend humming is asked for and the engine resolved auto" in mismatches(
        humming, [], engine.server_info, None
    )


def test_evidence_is_of_the_live_objects(quantised):
    _, evidence = quantised
    target, draft = scheduler(evidence)["models"]
    head = target["lm_head"]
    rows, columns = head["shape"]
    assert (head["dtype"], head["method"]) == ("float8_e4m3fn", "Fp8HeadMethod")
    # Half of the BF16 head, and an FP32 scale for each row.
    assert head["bytes"] == rows * columns * 2 // 2 + 4 * rows
    assert draft["shares_target_head"] is True
    assert draft["lm_head"] == head
    assert scheduler(evidence)["speculation"]["algorithm"] == "EAGLE"
    assert evidence.probe.accept_length > 1.5
    assert len(evidence.processes) >= 3, "launcher, scheduler and detokenizer"


def test_fp8_logits_agree_with_bf16(stock, quantised):
    """On texts that the BF16 engine wrote itself: at least 95 % of greedy tokens, under 4 % of relative error."""
    errors, agreed = [], []
    for prompt in PROMPTS:
        sampling = {"temperature": 0.0, "max_new_tokens": 64, "ignore_eos": True}
        written = prompt + ask(stock[0], {"input_ids": prompt, "sampling_params": sampling})["output_ids"]
        exact, narrow = logits(stock[0], written), logits(quantised[0], written)
        errors.append(np.linalg.norm(narrow - exact) / np.linalg.norm(exact))
        agreed.append(np.mean(exact.argmax(axis=1) == narrow.argmax(axis=1)))
    print(f"FP8 head, random model: relative error {np.mean(errors):.2%}, greedy agreement {np.mean(agreed):.2%}")
    assert 0 < np.mean(errors) < 0.04
    assert np.mean(agreed) >= 0.95


def test_weights_that_are_loaded_again_are_quantised_again(quantised):
    """A checkpoint arrives as BF16: copied as it is, it would be FP8 bytes without their scales."""
    engine, _ = quantised
    before = logits(engine, PROMPTS[0])
    assert post(engine, "/update_weights_from_disk", {"model_path": str(builtin_model("tiny-bailing-v3"))})["success"]
    assert np.array_equal(logits(engine, PROMPTS[0]), before)


def test_a_reused_prefix_is_seen_in_cached_tokens_and_flushing_prevents_it(loop, quantised):
    """A conversation that goes on: the prompt, its answer, and more. The tiny model's state is kept where one ended."""
    client, run = quantised[0].client, loop.run_until_complete
    greedy = {"temperature": 0.0, "ignore_eos": True}
    talk = [{"role": "user", "content": "A train leaves at noon and " + "another one follows it, " * 40}]
    ids = run(client.tokenize_chat(talk, {}))
    run(client.flush_cache())
    first = run(client.generate(ids, greedy | {"max_new_tokens": 8}))
    assert first.meta["cached_tokens"] == 0
    longer = ids + run(client.tokenize_text(first.text)) + [5, 6, 7]
    assert run(client.generate(longer, greedy | {"max_new_tokens": 48})).meta["cached_tokens"] >= len(ids)
    run(client.flush_cache())
    assert run(client.generate(longer, greedy | {"max_new_tokens": 48})).meta["cached_tokens"] == 0


def test_a_draft_that_does_not_share_the_head_is_refused(start):
    with pytest.raises(VariantNotActive) as caught:
        start("fp8-head+nextn", env=WITHOUT_SHARED_HEAD)
    assert "does not share the target's LM head" in str(caught.value)
    assert "accept length 1.0" in str(caught.value)
    logs = sorted(start.folder.glob("fp8-head+nextn-*.log"))
    assert read_processes(evidence_folder(logs[-1])), "its evidence is kept"


def test_a_failed_start_is_explained_by_the_logs_own_error(start):
    with pytest.raises(EngineStartError, match="context parallel") as caught:
        start("fp8-head", args=("--dcp-size", "3"))
    assert str(start.folder / "fp8-head-") in str(caught.value)


TRAINED = """
import json, torch
from farm.builtin import demo
from demo_model.checkpoint import load
from demo_model.tokenizer import completion_text, load_tokenizer, prompt_text
from farm.sglang_plugin.head import quantise_rows, reference_logits
torch.set_num_threads(1)
trunk, _ = load(demo.model_path())
trunk = trunk.float()
tokenizer = load_tokenizer(demo.model_path())
problems = [json.loads(line) for line in demo.test_path().read_text().splitlines()[:16]]
same = positions = difference = norm = 0
weight = trunk.lm_head.weight.data.bfloat16()
quantised, scale = quantise_rows(weight)
with torch.no_grad():
    for problem in problems:
        start = len(tokenizer.encode(prompt_text(problem["question"], thinking=True)).ids)
        text = prompt_text(problem["question"], thinking=True) + completion_text(problem["answer"], thinking=True)
        tokens = torch.tensor(tokenizer.encode(text).ids)[None]
        width = tokens.shape[1]
        mask = torch.ones(width, width, dtype=torch.bool).tril()[None, None]
        hidden = trunk.features(tokens, mask)[0, start - 1 : -1]
        exact = hidden @ weight.float().T
        narrow = reference_logits(hidden, quantised, scale)
        same += int((exact.argmax(-1) == narrow.argmax(-1)).sum())
        positions += len(hidden)
        difference += float((narrow - exact).square().sum())
        norm += float(exact.square().sum())
print(json.dumps({"agreement": same / positions, "positions": positions, "error": (difference / norm) ** 0.5}))
"""


def test_the_head_of_a_trained_model_agrees_on_99_percent(cpu_engine):
    """The plug-in's own arithmetic over the demo model's hidden states along the worked answers to its problems."""
    done = subprocess.run(
        [cpu_engine, "-c", TRAINED],
        env=os.environ
        | {
            "PYTHONPATH": f"{REPOSITORY}:{REPOSITORY}/infra/demo-model",
            "SGLANG_USE_CPU_ENGINE": "1",
            "HF_HUB_OFFLINE": "1",
        },
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    print(found)
    assert found["positions"] > 400
    assert found["agreement"] >= 0.99
    assert 0 < found["error"] < 0.04
