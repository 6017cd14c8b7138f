"""The gate's check, the catalogue's rules and a node's needs, without an engine."""

import copy
import json
import subprocess
import sys

import pytest

from farm.engines.nvml import Gpu
from farm.engines.sglang.evidence import Probe, ProcessEvidence, mismatches, read_processes
from farm.engines.sglang.requirements import (
    check_needs,
    missing_draft_layer,
    missing_drafter,
    missing_memory,
    missing_packages,
    wrong_architecture,
)
from farm.engines.sglang.server_info import ServerInfo
from farm.spec.optimisations import (
    CATALOGUE,
    FACTORIAL,
    LADDER,
    Needs,
    catalogue_optimisations,
    compose,
    expected_state,
)

FULL = compose(catalogue_optimisations("humming+fp8-head+nextn"))
SEEN = expected_state(FULL.args, FULL.env)
FP8 = {"class": "ParallelLMHead", "method": "Fp8HeadMethod", "dtype": "float8_e4m3fn", "fp32_output": False}
BF16 = {"class": "ParallelLMHead", "method": "UnquantizedEmbeddingMethod", "dtype": "bfloat16", "fp32_output": False}
EXPERTS = [{"class": "FusedMoE", "method": "Mxfp4HummingMoEMethod", "backend": "humming", "layers": 40}]
PROCESSES = [
    {"pid": 1, "models": [], "speculation": None},
    {
        "pid": 2,
        "models": [
            {"role": "target", "class": "M", "lm_head": FP8, "shares_target_head": None, "moe": EXPERTS},
            {"role": "draft", "class": "MNextN", "lm_head": FP8, "shares_target_head": True, "moe": EXPERTS},
        ],
        "speculation": {"algorithm": "EAGLE", "steps": 3, "draft_tokens": 4},
    },
]
INFO = {
    "moe_runner_backend": "humming",
    "enable_fp32_lm_head": False,
    "speculative_algorithm": "EAGLE",
    "speculative_num_steps": 3,
    "speculative_num_draft_tokens": 4,
}
PROBE = Probe(requested=64, tokens=64, rounds=22, round_s=0.01)


def wrong(expected, processes, info, probe):
    """Why this is not what is expected, from what stands in files and replies."""
    written = [ProcessEvidence.model_validate(process) for process in processes]
    return mismatches(expected, written, None if info is None else ServerInfo.model_validate(info), probe)


def changed(path, value):
    """The evidence of the scheduler with one entry replaced."""
    processes = copy.deepcopy(PROCESSES)
    place = processes[1]
    for key in path[:-1]:
        place = place[key]
    place[path[-1]] = value
    return processes


def test_what_was_asked_for_passes():
    assert wrong(SEEN, PROCESSES, INFO, PROBE) == []


@pytest.mark.parametrize(
    ("path", "value", "reason"),
    [
        (("models", 0, "moe", 0, "backend"), "triton", "experts run on triton"),
        (("models", 0, "moe"), [*EXPERTS, EXPERTS[0] | {"backend": "marlin"}], "experts run on humming, marlin"),
        (("models", 0, "moe"), [], "in no MoE layer"),
        (("models", 0, "lm_head"), BF16, "an FP8 LM head is asked for and the LM head is bfloat16"),
        # The tensor alone is not enough: BF16 arithmetic over FP8 bytes.
        (("models", 0, "lm_head"), FP8 | {"method": "UnquantizedEmbeddingMethod"}, "an FP8 LM head is asked for"),
        (("models", 1, "shares_target_head"), False, "MNextN does not share the target's LM head"),
        (("speculation", "steps"), 1, "3 draft steps are asked for and 1 run"),
        (("speculation", "draft_tokens"), 2, "4 draft tokens are asked for and 2 run"),
        (("models",), [], "no process wrote evidence of a model"),
    ],
)
def test_each_mismatch_in_the_processes_is_told(path, value, reason):
    assert reason in "; ".join(wrong(SEEN, changed(path, value), INFO, PROBE))


@pytest.mark.parametrize(
    ("info", "reason"),
    [
        ({"moe_runner_backend": "triton"}, "resolved triton"),
        ({"speculative_algorithm": None}, "resolved none"),
        ({"speculative_num_draft_tokens": 3}, "4 draft tokens are asked for and 3 run"),
    ],
)
def test_each_mismatch_in_server_info_is_told(info, reason):
    assert reason in "; ".join(wrong(SEEN, PROCESSES, INFO | info, PROBE))


@pytest.mark.parametrize(
    ("probe", "reason"),
    [
        (Probe(64, 60, 22, 0.01), "asked for 64 tokens and got 60"),
        (Probe(64, 64, None, 0.01), "without verify rounds"),
        (Probe(64, 64, 63, 0.01), "accept length 1.02"),
        (Probe(64, 64, 22, 0.0), "cannot be"),
        (Probe(64, 64, 22, float("nan")), "cannot be"),
    ],
)
def test_each_mismatch_in_the_probe_is_told(probe, reason):
    assert reason in "; ".join(wrong(SEEN, PROCESSES, INFO, probe))


def test_settings_that_nobody_asked_for_are_told():
    plain = expected_state({}, {})
    reasons = "; ".join(wrong(plain, PROCESSES, INFO, PROBE))
    for reason in ("no FP8 LM head is asked for", "a draft worker runs", "resolved EAGLE", "answered in verify rounds"):
        assert reason in reasons
    wants_fp32 = expected_state({"enable-fp32-lm-head": True}, {})
    assert "an LM head with FP32 output is asked for" in "; ".join(wrong(wants_fp32, PROCESSES, None, None))


def test_without_the_plugin_the_resolved_arguments_must_do():
    baseline = compose(["baseline"])
    info = {"moe_runner_backend": "flashinfer_mxfp4", "enable_fp32_lm_head": True, "speculative_algorithm": None}
    assert wrong(expected_state(baseline.args, baseline.env), [], info, Probe(64, 64, None, 0.01)) == []
    nextn = compose(["baseline", "nextn"])
    spec = info | {"speculative_algorithm": "EAGLE"}
    assert wrong(expected_state(nextn.args, nextn.env), [], spec, PROBE) == []
    assert "install-plugin.sh" in "; ".join(wrong(SEEN, [], INFO, PROBE))


def test_unreadable_evidence_is_no_evidence(tmp_path):
    (tmp_path / "1.json").write_text("{")
    (tmp_path / "2.json").write_text("[]")
    (tmp_path / "3.json").write_text(json.dumps(PROCESSES[1]))
    assert [one.model_dump(by_alias=True, mode="json", exclude_unset=True) for one in read_processes(tmp_path)] == [
        PROCESSES[1]
    ]
    assert read_processes(tmp_path / "none") == []


@pytest.mark.parametrize("variant", sorted({*LADDER, *FACTORIAL}))
def test_what_every_shipped_variant_must_show(variant):
    settings = compose(catalogue_optimisations(variant))
    expected = expected_state(settings.args, settings.env)
    assert expected.moe_backend == ("humming" if "humming" in variant else "flashinfer_mxfp4")
    assert expected.head == ("fp8" if "fp8-head" in variant else "fp32-output")
    assert expected.speculation == ("NEXTN" if "nextn" in variant else None)
    assert expected.shared_head == ("fp8-head" in variant and "nextn" in variant)


SPARK = Gpu("NVIDIA GB10", (12, 1), None, None)
H200 = Gpu("NVIDIA H200", (9, 0), 140.4, 139.9)


def test_packages_and_architecture_are_named():
    needs = {name: CATALOGUE[name].needs for name in ("baseline", "humming", "fp8-head")}
    (missing,) = missing_packages(needs, {"flashinfer-python": "0.7.2"})
    assert "'humming' needs humming-kernels" in missing
    assert wrong_architecture(needs, SPARK) == wrong_architecture(needs, H200) == []
    old = Gpu("NVIDIA A100", (8, 0), 80.0, 80.0)
    reasons = wrong_architecture(needs, old)
    assert len(reasons) == 2
    assert "'fp8-head' needs compute capability 8.9 and NVIDIA A100 has 8.0" in reasons[1]
    assert wrong_architecture(needs, None) == []


def test_memory_of_a_unified_pool_is_the_hosts():
    args = {"mem-fraction-static": 0.68}
    assert missing_memory(args, SPARK, 121.0, 102.0) == []
    (reason,) = missing_memory(args, SPARK, 121.0, 80.0)
    assert "80.0 GiB of memory are free and --mem-fraction-static 0.68 needs 85.0" in reason
    assert missing_memory({}, SPARK, 121.0, 1.0) == []
    assert missing_memory(args, H200, 128.0, 1.0) == []
    assert "needs 95.5" in missing_memory(args, Gpu("H200", (9, 0), 140.4, 50.0), 128.0, 100.0)[0]


def test_drafts_need_a_draft_model(tmp_path):
    assert missing_draft_layer({"num_nextn_predict_layers": 1}, "m") == []
    assert missing_draft_layer({"text_config": {"mtp_num_hidden_layers": 1}}, "m") == []
    assert missing_draft_layer(None, "m") == []
    assert "m has none" in missing_draft_layer({"num_nextn_predict_layers": 0}, "m")[0]
    assert missing_drafter({"speculative-draft-model-path": "org/drafter"}) == []
    assert "no config.json" in missing_drafter({"speculative-draft-model-path": str(tmp_path)})[0]


def test_needs_are_checked_in_the_engines_environment(tmp_path):
    (tmp_path / "config.json").write_text("{}")
    needs = {"mine": Needs(package="no-such-package", draft_layer=True), "other": Needs(package="pytest")}
    missing = check_needs(needs, {}, python=sys.executable, model_path=str(tmp_path), device="cpu")
    assert len(missing) == 2
    assert "'mine' needs no-such-package" in missing[0]


def test_the_plugin_imports_nothing_of_the_farm_that_an_engine_lacks():
    code = "import sys, farm.sglang_plugin, farm.sglang_plugin.caches, farm.sglang_plugin.evidence; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"ray", "mlflow", "pandas", "pydantic", "numpy", "aiohttp", "torch", "farm.spec"}
    assert not heavy & set(loaded)
