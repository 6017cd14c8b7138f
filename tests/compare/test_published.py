"""The published figures, reproduced through the command line."""

from __future__ import annotations

import json

import pyarrow.parquet as pq
import pytest
from compare_sweeps import LADDER, PAIRING, as_parquet_table, published_sweep

from farm.cli.compare import main


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    path = tmp_path_factory.mktemp("published")
    pq.write_table(as_parquet_table(published_sweep()), path / "requests.parquet")
    return path


@pytest.fixture(scope="module")
def found(folder):
    """What the command writes as JSON, with the published figures beside it."""
    output = folder / "comparison.json"
    assert main(["--results", str(folder), "--format", "json", "--published", "--output", str(output)]) == 0
    return json.loads(output.read_text())


@pytest.fixture
def contrast(found):
    (contrast,) = found["workloads"]["gsm8k"]["contrasts"]
    return contrast


def test_published_accuracy_pairing(contrast):
    accuracy = contrast["accuracy"]
    assert {name: accuracy[name] for name in PAIRING} == PAIRING
    assert accuracy["mcnemar_exact_p"] == 1.0
    assert accuracy["mcnemar_mid_p"] == pytest.approx(0.851, abs=5e-4)
    assert accuracy["difference_pp"] == pytest.approx(-0.076, abs=5e-4)
    assert accuracy["ci"] == pytest.approx([-0.85, 0.70], abs=5e-3)
    assert accuracy["tost_p"] == pytest.approx(0.0095, abs=5e-5)
    assert accuracy["detectable_pp"] == pytest.approx(1.1, abs=0.05)
    assert accuracy["verdict"] == "equivalent"


def test_half_a_point_is_not_shown(run, folder):
    _, output, _ = run("--results", folder, "--format", "json", "--margin-pp", "0.5")
    accuracy = json.loads(output)["workloads"]["gsm8k"]["contrasts"][0]["accuracy"]
    assert accuracy["tost_p"] == pytest.approx(0.14, abs=5e-3)
    assert accuracy["verdict"] == "inconclusive"


def test_published_totals_give_the_headline(found, contrast):
    figures = found["workloads"]["gsm8k"]["variants"]
    assert figures["baseline"]["tpot_ms"]["value"] == pytest.approx(26.45, abs=5e-3)
    assert figures[LADDER[-1]]["tpot_ms"]["value"] == pytest.approx(18.56, abs=5e-3)
    assert 100 * (contrast["throughput_ratio"]["value"] - 1) == pytest.approx(42.5, abs=0.05)
    assert 100 * contrast["mean_latency_change"]["value"] == pytest.approx(-24.5, abs=0.05)
    parts = contrast["latency_parts"]
    assert sum(parts[name] for name in ("ttft", "output_length", "per_token", "other")) == pytest.approx(parts["total"])
    assert parts["total"] == pytest.approx(contrast["mean_latency_change"]["value"])
    assert parts["per_token"] == pytest.approx(-0.304, abs=1e-3)
    assert parts["output_length"] == pytest.approx(0.0594, abs=1e-3)


def test_first_screen_decides_and_explains(run, folder):
    status, output, _ = run("--results", folder, "--published")
    flat = " ".join(output.split())
    assert status == 0
    assert f"gsm8k: deploy {LADDER[-1]}." in flat
    assert "equivalent within 1 pp (p 0.0095)" in flat
    assert "+42.5 % tokens/s becomes −24.5 % mean latency: time per token −30.4 %, output length +5.9 %" in flat
    assert "Published figures beside the measured ones" in flat
    assert max(len(line) for line in output.splitlines()) <= 100


def test_published_figures_stand_beside_the_measured(found):
    gain = next(row for row in found["published"] if row["figure"] == "throughput_gain_pct")
    assert gain["published"] == 42.5
    assert gain["measured"] == pytest.approx(42.5, abs=0.05)
