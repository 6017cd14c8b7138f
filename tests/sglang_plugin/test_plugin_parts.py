"""Parts of the plug-in on SGLang's own classes, in the engine's environment, without a server."""

import json
import os
import subprocess

import pytest
from support import REPOSITORY

QUANTISATION = """
from types import SimpleNamespace
import torch
from sglang.srt.layers.vocab_parallel_embedding import ParallelLMHead, VocabParallelEmbedding
from sglang.srt.layers.logits_processor import should_apply_lm_head_quant_method
from farm.sglang_plugin import draft, head as plugin

torch.manual_seed(0)

def new_head(dtype=torch.bfloat16, rows=300):
    made = ParallelLMHead(rows, 64, params_dtype=dtype, enable_tp=False)
    made.weight.data.normal_(0, 0.02)
    made.weight.data[rows:] = 0
    return made

class Model(torch.nn.Module):
    def __init__(self, head, tied=False):
        super().__init__()
        self.config = SimpleNamespace(tie_word_embeddings=tied)
        self.embed_tokens = VocabParallelEmbedding(300, 64, params_dtype=torch.bfloat16, enable_tp=False)
        if tied:
            head.weight = self.embed_tokens.weight
        self.lm_head = head

def runner(model, **server_args):
    return SimpleNamespace(is_draft_worker=False, model=model, server_args=SimpleNamespace(**server_args))

# Quantised once: half the bytes, the same logits within FP8's error, rows of padding zero.
model = Model(new_head())
rows = model.lm_head.weight.shape[0]
wide = model.lm_head.weight.data.float().clone()
plugin.after_load_model(None, runner(model))
head = model.lm_head
assert head.weight.dtype == torch.float8_e4m3fn and plugin.live_bytes(head) == rows * 64 + 4 * rows
assert should_apply_lm_head_quant_method(head, head.quant_method)
x = torch.randn(7, 64)
logits, exact = head.quant_method.apply(head, x, None), x @ wide.T
assert logits.dtype == torch.float32
assert 0 < (logits - exact).norm() / exact.norm() < 0.04
assert (logits[:, 300:] == 0).all()
assert torch.equal(head.quant_method.apply(head, x, torch.ones(rows)), logits + 1)

# A checkpoint that is loaded again is quantised again; the module is the same.
other = torch.randn(300, 64, dtype=torch.bfloat16)
head.weight.weight_loader(head.weight, other)
again, exact = head.quant_method.apply(head, x, None)[:, :300], x @ other.float().T
assert 0 < (again - exact).norm() / exact.norm() < 0.04

def refused(model, reason, **server_args):
    try:
        plugin.after_load_model(None, runner(model, **server_args))
    except plugin.HeadNotQuantisable as error:
        assert reason in str(error), error
    else:
        raise AssertionError(reason)

refused(model, "quantised already")
refused(Model(new_head(torch.float32)), "not BF16 or FP16")
refused(Model(new_head(), tied=True), "tied to its embeddings")
refused(Model(new_head()), "LoRA", enable_lora=True)
refused(Model(torch.nn.Linear(64, 300)), "no ParallelLMHead")
fp32 = Model(new_head())
fp32.logits_processor = torch.nn.Identity()
fp32.logits_processor.use_fp32_lm_head = True
refused(fp32, "exclude each other")

# Drafts: the whole module where the tensor was shared, a head of one's own kept, a tied draft refused.
class Draft(torch.nn.Module):
    def __init__(self, head, tied=False):
        super().__init__()
        self.config, self.lm_head = SimpleNamespace(tie_word_embeddings=tied), head

draft._complete(Draft)
sharing, owning = Draft(new_head()), Draft(new_head())
sharing.lm_head.weight = head.weight
for one in (sharing, owning):
    one.set_lm_head_from_target(head)
assert sharing.lm_head is head and owning.lm_head is not head
try:
    Draft(new_head(), tied=True).set_lm_head_from_target(head)
except RuntimeError as error:
    assert "ties its LM head" in str(error)
else:
    raise AssertionError("a tied draft")
"""
DRAFTS = """
import importlib, pathlib
import sglang.srt.models as models
from farm.sglang_plugin import draft

seen = []
for path in sorted(pathlib.Path(models.__path__[0]).glob("*.py")):
    if not path.stem.endswith(("_nextn", "_mtp")):
        continue
    try:
        module = importlib.import_module(f"sglang.srt.models.{path.stem}")
    except Exception:
        continue  # needs kernels that a CPU lacks
    entries = module.EntryClass if isinstance(module.EntryClass, list) else [module.EntryClass]
    for entry in entries:
        stock = hasattr(entry, "set_lm_head_from_target")
        draft._complete(entry)
        assert callable(entry.set_lm_head_from_target)
        assert stock or entry.set_lm_head_from_target is draft.set_lm_head_from_target
        seen.append(entry.__name__)
assert {"BailingMoeForCausalLMNextN", "Glm4MoeForCausalLMNextN"} <= set(seen), seen
print(len(seen))
"""
# One process for both: SGLang takes it long to import.
BOTH = """
import json, sys, traceback
found = {}
for name, code in json.loads(sys.stdin.read()).items():
    try:
        exec(code, {})
    except Exception:
        found[name] = traceback.format_exc()
print(json.dumps(found))
"""


@pytest.fixture(scope="module")
def failures(cpu_engine):
    """What failed of the parts, by the engine's Python, with the plug-in of this checkout."""
    settings = {"PYTHONPATH": str(REPOSITORY), "SGLANG_USE_CPU_ENGINE": "1", "OMP_NUM_THREADS": "1"}
    parts = json.dumps({"quantisation": QUANTISATION, "drafts": DRAFTS})
    done = subprocess.run(
        [cpu_engine, "-c", BOTH], input=parts, env=os.environ | settings, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def test_quantisation_reloading_and_refusals(failures):
    assert "quantisation" not in failures, failures["quantisation"]


def test_every_draft_class_of_sglang_has_or_gets_the_method(failures):
    """All NEXTN and MTP classes whose module can be imported here hold an `lm_head` that the method can replace."""
    assert "drafts" not in failures, failures["drafts"]
