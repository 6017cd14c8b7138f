"""The JSON Schema that is checked in is that of the model, and of what the command writes."""

from __future__ import annotations

import copy
import json

import jsonschema
import pandas as pd
import pytest
from compare_sweeps import LADDER, Truth, published_sweep, sweep

from farm.compare import compare
from farm.compare.schema import PATH, schema_text
from farm.report import json_file

SPEC = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)


def validator():
    return jsonschema.Draft202012Validator(json.loads(PATH.read_text(encoding="utf-8")))


def test_the_schema_is_current():
    assert PATH.read_text(encoding="utf-8") == schema_text(), "python -m farm.compare.schema writes it anew"


@pytest.mark.parametrize("published", [(), ("--published",)])
def test_the_commands_output_is_valid(write, run, published):
    sweep_file = {"sweep_id": "s1", "name": "night", "planned_cells": 9000, "failed_variants": {"humming": "no"}}
    status, out, _ = run("--results", write(published_sweep(), sweep_file), "--format", "json", *published)
    assert status == 0
    validator().validate(json.loads(out))


@pytest.mark.parametrize(
    "records",
    [
        sweep({"baseline": Truth(0.03), "a": Truth(0.024), "b": Truth(0.02), "a+b": Truth(0.016)}, 40),
        sweep({LADDER[0]: Truth(), LADDER[3]: SPEC}, 30, nodes=3).assign(energy_j=20.0, sm_clock_mhz=2000.0),
        sweep({"baseline": Truth(), "nextn": SPEC}, 1, graded=False).drop(columns=["engine_id", "verify_rounds"]),
        pd.concat(
            [
                sweep({"baseline": Truth(), "nextn": SPEC}, 30),
                sweep({"baseline": Truth(), "nextn": SPEC}, 8, workload="synthetic", graded=False),
            ]
        ),
    ],
    ids=["factorial", "telemetry", "one item", "two workloads"],
)
def test_every_kind_of_sweep_is_valid(records):
    validator().validate(json.loads(json_file.render(compare(records))))


def test_the_schema_refuses_what_is_not_the_contract():
    whole = json.loads(json_file.render(compare(sweep({"baseline": Truth(), "nextn": SPEC}, 12))))
    without, other = copy.deepcopy(whole), copy.deepcopy(whole)
    del without["workloads"]["gsm8k"]["variants"]["nextn"]["tpot_ms"]["ci"]
    other["workloads"]["gsm8k"]["contrasts"][0]["accuracy"]["verdict"] = "fine"
    for broken in (without, other):
        assert not validator().is_valid(broken)
