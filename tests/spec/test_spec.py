"""Loading a sweep: what is right is taken, what is wrong is one sentence with file, field and fix."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from farm.engines.registry import label_of, problem_of
from farm.errors import InputError
from farm.spec.loading import load_sweep

SWEEPS = Path(__file__).parents[2] / "jobs" / "sweeps"

SMALL = {
    "name": "small",
    "model": {"path": "builtin:tiny-bailing-v3"},
    "engine": {"device": "cpu"},
    "variants": [{"name": "plain"}, {"name": "nextn", "parts": ["nextn"]}],
    "workloads": {"s": {"kind": "synthetic", "requests": 2, "input_tokens": 16, "output_tokens": 4}},
}


def load(tmp_path, changes=None, overrides=None, text=None):
    path = tmp_path / "sweep.yaml"
    path.write_text(text if text is not None else yaml.safe_dump(SMALL | (changes or {})))
    return load_sweep(path, overrides, problem_of)


@pytest.mark.parametrize("path", sorted(SWEEPS.glob("*.yaml")), ids=lambda path: path.stem)
def test_shipped_sweeps_load_and_are_named_like_their_files(path):
    assert load_sweep(path).name == path.stem


def test_ladder_is_the_published_one():
    sweep = load_sweep(SWEEPS / "ling-flash-ladder.yaml")
    assert [v.name for v in sweep.variants] == ["baseline", "humming", "humming+fp8-head", "humming+fp8-head+nextn"]
    args = {v.name: sweep.args_of(v) for v in sweep.variants}
    assert args["baseline"]["moe-runner-backend"] == "flashinfer_mxfp4"
    assert args["baseline"]["enable-fp32-lm-head"] is True
    assert args["humming"]["moe-runner-backend"] == "humming"
    assert args["humming"]["enable-fp32-lm-head"] is True
    assert args["humming+fp8-head"]["enable-fp32-lm-head"] is None
    last = sweep.variants[-1]
    assert sweep.args_of(last)["speculative-num-draft-tokens"] == 4
    assert sweep.env_of(last)["SGLANG_ENABLE_FP8_LM_HEAD"] == "1"
    assert sweep.env_of(last)["HUMMING_COMPILER"] == "nvrtc"
    gsm8k = sweep.workloads["gsm8k"]
    assert gsm8k.sampling.model_dump() == {"temperature": 0.6, "top_p": 0.95, "top_k": 29, "max_new_tokens": 32768}
    assert (gsm8k.shots, gsm8k.thinking, gsm8k.questions, gsm8k.seed) == (5, True, None, 42)


def test_factorial_is_every_combination(tmp_path):
    sweep = load(tmp_path, {"variants": "factorial", "engine": {"device": "cuda"}})
    assert len(sweep.variants) == 8
    assert len({(str(sweep.args_of(v)), str(sweep.env_of(v))) for v in sweep.variants}) == 8


@pytest.mark.parametrize(
    ("changes", "needles"),
    [
        ({"modle": 1}, ["modle", "did you mean 'model'"]),
        ({"engine": {"device": "cpu", "concurency": 2}}, ["engine.concurency", "did you mean 'concurrency'"]),
        ({"engine": {"device": "cpu", "concurrency": "many"}}, ["engine.concurrency", "'many'"]),
        ({"engine": {"device": "tpu"}}, ["engine.device", "tpu"]),
        ({"engine": {"device": "cpu", "args": {"port": 3}}}, ["engine.args", "'port'"]),
        ({"engine": {"device": "cpu", "args": {"model_path": "x"}}}, ["model.path"]),
        ({"variants": ["baseline"]}, ["variants", "baseline", "GPU", "engine.device is cpu"]),
        ({"variants": ["humming+nexton"], "engine": {}}, ["variants", "nexton", "did you mean 'nextn'"]),
        ({"variants": ["humming+marlin"], "engine": {}}, ["humming", "marlin", "MoE"]),
        ({"variants": ["nextn+dspark"], "engine": {}}, ["nextn", "dspark", "draft"]),
        ({"variants": "leader"}, ["variants", "leader", "ladder"]),
        ({"variants": []}, ["variants"]),
        ({"variants": [{"name": "a"}, {"name": "a"}]}, ["variants", "'a'", "twice"]),
        ({"variants": [{"name": "../a"}]}, ["variants.0.name"]),
        ({"name": "../../etc"}, ["name"]),
        ({"model": {"path": "builtin:dmeo"}}, ["model.path", "dmeo", "did you mean 'demo'"]),
        ({"baseline": "plane"}, ["baseline", "plane", "plain, nextn"]),
        (
            {"variants": [{"name": "v", "parts": ["fp8-head"], "args": {"enable-fp32-lm-head": True}}]},
            ["variants", "'v'", "fp8-head", "--enable-fp32-lm-head"],
        ),
        (
            {"variants": [{"name": "v", "args": {"speculative-algorithm": "EAGLE"}}]},
            ["'v'", "EAGLE", "--speculative-draft-model-path"],
        ),
        (
            {
                "variants": [
                    {"name": "v", "env": {"SGLANG_ENABLE_FP8_LM_HEAD": "1"}, "args": {"enable-fp32-lm-head": True}}
                ]
            },
            ["'v'", "SGLANG_ENABLE_FP8_LM_HEAD", "--enable-fp32-lm-head"],
        ),
        (
            {"variants": [{"name": "v", "env": {"SGLANG_SIMULATE_ACC_LEN": "3"}}]},
            ["'v'", "SGLANG_SIMULATE_ACC_LEN", "--load-format dummy"],
        ),
        (
            {"variants": [{"name": "v", "parts": ["humming", "marlin"]}], "engine": {}},
            ["'v'", "humming", "marlin", "MoE"],
        ),
        ({"variants": [{"name": "v", "parts": ["nextn", "dspark"]}], "engine": {}}, ["'v'", "nextn", "dspark"]),
        ({"engine": {"kind": "emulated", "args": {"emulation-speed": 0}}}, ["engine.args.emulation-speed", "above 0"]),
        ({"engine": {"kind": "emulate"}}, ["engine.kind", "did you mean 'emulated'", "known are emulated, sglang"]),
        ({"workloads": {}}, ["workloads"]),
        ({"workloads": {"s": {"kind": "syntetic"}}}, ["workloads.s", "syntetic"]),
        ({"workloads": {"s": {"kind": "synthetic", "input_tokens": 0}}}, ["workloads.s.input_tokens", "not 0"]),
        (
            {"workloads": {"synthetic": {"kind": "synthetic", "requests": 10**9}}},
            ["workloads.synthetic.requests", "100000"],
        ),
        ({"workloads": {"gsm8k": {"kind": "gsm8k", "questions": "x"}}}, ["workloads.gsm8k.questions", "'x'"]),
        (
            {"workloads": {"gsm8k": {"kind": "gsm8k", "sampling": {"temprature": 0}}}},
            ["workloads.gsm8k.sampling.temprature", "did you mean 'temperature'"],
        ),
        (
            {"engine": {"device": "cpu", "concurrency": 4}},
            ["workloads.s.prefix_cache", "keep", "disable-radix-cache"],
        ),
    ],
)
def test_wrong_input_is_one_sentence_with_file_field_and_fix(tmp_path, changes, needles):
    with pytest.raises(InputError) as caught:
        load(tmp_path, changes)
    message = str(caught.value)
    assert message.startswith(str(tmp_path / "sweep.yaml"))
    assert "\n" not in message
    for needle in needles:
        assert needle in message


def test_sampling_is_laid_over_the_workloads_own(tmp_path):
    changed = {"workloads": {"g": {"kind": "gsm8k", "sampling": {"max_new_tokens": 512}}}}
    sampling = load(tmp_path, changed).workloads["g"].sampling
    assert sampling.model_dump() == {"temperature": 0.6, "top_p": 0.95, "top_k": 29, "max_new_tokens": 512}


def test_numbers_of_an_environment_are_text(tmp_path):
    assert load(tmp_path, {"engine": {"device": "cpu", "env": {"X": 1}}}).engine.env == {"X": "1"}


def test_a_key_given_twice_is_refused(tmp_path):
    text = "name: a\n" + yaml.safe_dump(SMALL)
    with pytest.raises(InputError, match="'name' is given twice"):
        load(tmp_path, text=text)


@pytest.mark.parametrize(
    ("value", "cause"),
    [
        ("{temperature: 0, temperature: 1}", "'temperature' is given twice"),
        ("{temperature: 0", "is not valid YAML"),
        ("[" * 5000, "is nested too deeply"),
        ("!!python/object:os.system {}", "is not valid YAML"),
    ],
)
def test_an_override_is_read_by_the_rules_of_the_file(tmp_path, value, cause):
    (tmp_path / "s.yaml").write_text(yaml.safe_dump(SMALL))
    with pytest.raises(InputError, match=cause) as caught:
        load_sweep(tmp_path / "s.yaml", [f"workloads.w.sampling={value}"])
    assert str(caught.value).startswith("--set workloads.w.sampling: ")


@pytest.mark.parametrize(
    ("changes", "field"),
    [
        ({"engine": {"args": {"nnodes": 2}}}, r"engine\.args\.nnodes: 2 "),
        ({"engine": {"args": {"nnodes": "2"}, "device": "cpu"}}, r"engine\.args\.nnodes: 2 "),
        ({"engine": {"args": {"tp_size": 2}}}, r"engine\.args\.tp-size: 2 "),
        ({"engine": {"args": {"--tensor-parallel-size": 4}}}, r"engine\.args\.tensor-parallel-size: 4 "),
        ({"engine": {}, "variants": [{"name": "v", "args": {"dp-size": 2}}]}, r"variants: 'v': args\.dp-size: 2 "),
        ({"engine": {"kind": "emulated", "args": {"pp-size": 2}}}, r"engine\.args\.pp-size: 2 "),
    ],
)
def test_what_needs_more_than_a_slot_has_is_refused(tmp_path, changes, field):
    with pytest.raises(InputError, match=f"{field}.* one (node|GPU)"):
        load(tmp_path, changes)


def test_one_of_each_is_what_a_slot_has(tmp_path):
    load(tmp_path, {"engine": {"args": {"nnodes": 1, "tp-size": "1", "dp-size": 1}}})
    load(tmp_path, {"engine": {"device": "cpu", "args": {"tp-size": 2}}})


def test_an_override_replaces_an_argument_however_it_is_written(tmp_path):
    path = tmp_path / "sweep.yaml"
    path.write_text(yaml.safe_dump(SMALL | {"engine": {"device": "cpu", "args": {"page-size": 1}}}))
    assert load_sweep(path, ["engine.args.page_size=16"]).engine.args == {"page-size": 16}


def test_missing_field_says_so(tmp_path):
    with pytest.raises(InputError, match=r"sweep.yaml: model: is missing"):
        load(tmp_path, text=yaml.safe_dump({key: value for key, value in SMALL.items() if key != "model"}))


@pytest.mark.parametrize("text", ["a: [", "- 1", "", "!!python/object/apply:os.system ['true']", "\x00", "a: &a [*a]"])
def test_what_is_no_sweep_is_refused(tmp_path, text):
    with pytest.raises(InputError, match="sweep.yaml"):
        load(tmp_path, text=text)


def test_unreadable_and_oversized_files(tmp_path):
    with pytest.raises(InputError, match="cannot be read"):
        load_sweep(tmp_path / "none.yaml")
    (tmp_path / "big.yaml").write_bytes(b"#" * (2 << 20))
    with pytest.raises(InputError, match="1 MiB"):
        load_sweep(tmp_path / "big.yaml")
    (tmp_path / "latin.yaml").write_bytes(b"name: \xff\xfe")
    with pytest.raises(InputError, match="cannot be read"):
        load_sweep(tmp_path / "latin.yaml")


@given(st.binary(max_size=200))
def test_any_bytes_are_a_sweep_or_an_input_error(tmp_path_factory, content):
    path = tmp_path_factory.mktemp("fuzz") / "sweep.yaml"
    path.write_bytes(content)
    with pytest.raises(InputError):
        load_sweep(path)


def test_overrides_reach_into_the_file(tmp_path):
    sweep = load(tmp_path, overrides=["workloads.s.requests=7", "variants.1.name=spec", "engine.args.page-size=2"])
    assert sweep.workloads["s"].requests == 7
    assert [v.name for v in sweep.variants] == ["plain", "spec"]
    assert sweep.engine.args["page-size"] == 2


@pytest.mark.parametrize(
    "override", ["engine", "=1", "variants.9.name=x", "name.deep=1", "engine..x=1", "name=[", "a.b=1"]
)
def test_wrong_overrides_are_refused(tmp_path, override):
    with pytest.raises(InputError):
        load(tmp_path, overrides=[override])


def test_labels(tmp_path):
    assert label_of(load(tmp_path, {"model": {"path": "inclusionAI/Ling-3.0-flash-fp4"}})) is None
    # A builtin carries its label whatever the sweep says.
    assert label_of(load(tmp_path)) == "dummy-weights"
    assert label_of(load(tmp_path, {"model": {"path": "builtin:demo"}})) == "demo-model"
    assert label_of(load(tmp_path, {"model": {"path": "m", "label": "demo-model"}})) == "demo-model"
    dummy = {"variants": [{"name": "v", "args": {"load_format": "dummy"}}]}
    assert label_of(load(tmp_path, dummy)) == "dummy-weights"
    assert label_of(load(tmp_path, {"engine": {"kind": "emulated", "device": "cpu"}})) == "emulated"


def test_data_files_are_relative_to_the_sweep(tmp_path):
    sweep = load(tmp_path, {"workloads": {"p": {"kind": "prompts", "file": "mine.jsonl"}}})
    assert sweep.workloads["p"].file == str(tmp_path / "mine.jsonl")


def test_in_a_shipped_job_a_file_that_stayed_behind_is_said_to_have(tmp_path, monkeypatch):
    shipped = tmp_path / "runtime_resources" / "working_dir_files" / "_ray_pkg_1"
    shipped.mkdir(parents=True)
    monkeypatch.chdir(shipped)
    sweep = load(shipped, {"workloads": {"p": {"kind": "prompts", "file": "../mine.jsonl"}}})
    for ask in (lambda: load_sweep(tmp_path / "absent.yaml"), sweep.workloads["p"].items):
        with pytest.raises(InputError, match="--working-dir"):
            ask()
