"""Input that cannot be compared: one clear sentence on standard error, and exit status 2."""

from __future__ import annotations

import json

import numpy as np
import pytest
from compare_sweeps import Truth, sweep

from farm.compare.metrics import checked
from farm.errors import InputError

PAIR = {"baseline": Truth(), "nextn": Truth(step_s=0.02)}


def good():
    return sweep(PAIR, 6)


def changed(column, value):
    records = good()
    records.loc[2, column] = value
    return records


def only(variant):
    records = good()
    return records[records["variant"] == variant]


def disjoint():
    records = good()
    return records.assign(item_id=records["variant"] + records["item_id"])


@pytest.mark.parametrize(
    ("records", "message"),
    [
        (good().iloc[:0], "empty"),
        (only("nextn"), "one variant only (nextn)"),
        (disjoint(), "No item was answered under baseline and another variant"),
        (good().drop(columns=["ttft_s", "latency_s"]), "lack the required column(s) ttft_s, latency_s"),
        (changed("latency_s", np.nan), "latency_s is nan in baseline / gsm8k / q000002 / repeat 0"),
        (changed("ttft_s", -0.5), "ttft_s is -0.5 in baseline / gsm8k / q000002"),
        (changed("latency_s", np.inf), "latency_s is inf"),
        (changed("completion_tokens", -1), "completion_tokens is -1"),
        (changed("cached_tokens", -3), "cached_tokens is -3 in baseline / gsm8k / q000002 / repeat 0"),
        (changed("decode_s", 1e6), "decode_s is 1e+06 in baseline / gsm8k / q000002"),
        (
            good().assign(verify_rounds=2, draft_tokens_proposed=6, draft_tokens_accepted=7),
            "draft_tokens_accepted is 7 in baseline / gsm8k / q000000",
        ),
        (
            changed("item_id", "q000003"),
            "1 cell(s) are answered more than once, the first is baseline / gsm8k / q000003",
        ),
        (changed("item_id", None), "item_id is missing in 1 rows"),
    ],
)
def test_records_that_cannot_be_compared(run, write, records, message):
    status, output, error = run("--results", write(records))
    assert status == 2
    assert output == ""
    assert message in error
    assert len(error.splitlines()) == 1


def test_decode_that_ends_before_it_began(run, write):
    records = changed("latency_s", 0.001).drop(columns="decode_s")
    status, _, error = run("--results", write(records))
    assert (status, "decode_s is -" in error) == (2, True)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (("--baseline", "fast"), "The baseline fast has no record in this sweep; the variants are baseline, nextn"),
        (("--margin-pp", "0"), "must be above 0 and below 100"),
        (("abc",), "leave SWEEP_ID and --tracking-uri out"),
        (("--output", "/nowhere/report.html"), "cannot be written"),
    ],
)
def test_options_that_fit_nothing(run, write, options, message):
    status, _, error = run("--results", write(good()), *options)
    assert (status, message in error) == (2, True)


def test_folder_without_records(run, tmp_path):
    status, _, error = run("--results", tmp_path)
    assert (status, "holds no requests.parquet" in error) == (2, True)


def test_a_whole_id_is_that_sweep_and_no_later_run_of_it(run, write):
    write(good(), {"sweep_id": "ee55-0123456789.1"}, "home/results/ee55-0123456789.1")
    status, _, error = run("ee55-0123456789")
    assert (status, "no sweep ee55-0123456789 under" in error) == (2, True)
    assert "ee55-0123456789.1" in run("ee55-0123456789.1")[1]


def test_a_sweep_with_a_journal_and_no_table_says_how_to_write_it(run, tmp_path):
    folder = tmp_path / "home" / "results" / "dd44"
    folder.mkdir(parents=True)
    (folder / "journal.sqlite").write_bytes(b"")
    for arguments in (["dd44"], ["--results", folder]):
        status, _, error = run(*arguments)
        assert (status, "farm.tracking sync dd44" in error) == (2, True)


def test_file_that_is_no_table(run, tmp_path):
    (tmp_path / "requests.parquet").write_text("not a table")
    status, _, error = run("--results", tmp_path)
    assert (status, "not a readable Parquet table" in error) == (2, True)


@pytest.mark.parametrize(("text", "message"), [("{", "Invalid JSON"), ("[]", "should be an object")])
def test_sweep_description_that_is_broken(run, write, text, message):
    folder = write(good())
    (folder / "sweep.json").write_text(text)
    status, _, error = run("--results", folder)
    assert (status, message in error) == (2, True)


def test_no_sweep_yet(run):
    status, _, error = run()
    assert (status, "There is no sweep yet under" in error) == (2, True)


def test_sweep_that_nobody_knows(run):
    status, _, error = run("abc123")
    assert (status, "There is no sweep abc123 under" in error) == (2, True)


def test_tracking_server_that_does_not_answer(run):
    status, _, error = run("abc123", "--tracking-uri", "http://127.0.0.1:9")
    assert (status, "The tracking server http://127.0.0.1:9 cannot be used" in error) == (2, True)


def test_tracking_database_that_is_not_there_is_not_created(run, tmp_path):
    database = tmp_path / "absent" / "mlflow.db"
    status, _, error = run("abc123", "--tracking-uri", f"sqlite:///{database}")
    assert (status, f"there is no file {database}" in error) == (2, True)
    assert not database.parent.exists()


def test_sweep_id_that_is_an_expression(run):
    status, _, error = run("x' OR '1", "--tracking-uri", "http://127.0.0.1:9")
    assert (status, "is no sweep id" in error) == (2, True)


def test_newest_sweep_and_unique_prefix(run, write, tmp_path):
    write(good(), {"sweep_id": "aa11", "name": "first"}, "home/results/aa11")
    write(good(), {"sweep_id": "ab22", "name": "second"}, "home/results/ab22")
    assert "Sweep first (aa11)" in run("aa")[1]
    assert "Sweep second (ab22)" in run()[1]
    status, _, error = run("a")
    assert (status, "a fits several sweeps: aa11, ab22" in error) == (2, True)


def test_sweep_from_a_tracking_server(run, write, tmp_path):
    import mlflow

    folder = write(good(), {"sweep_id": "cc33", "name": "tracked"})
    uri = f"sqlite:///{tmp_path}/mlflow.db"
    client = mlflow.MlflowClient(uri)
    experiment = client.create_experiment("farm", artifact_location=str(tmp_path / "artifacts"))
    parent = client.create_run(experiment, tags={"farm.sweep_id": "cc33"})
    client.create_run(experiment, tags={"farm.sweep_id": "cc33", "mlflow.parentRunId": parent.info.run_id})
    for name in ("requests.parquet", "sweep.json"):
        client.log_artifact(parent.info.run_id, str(folder / name))
    status, output, _ = run("cc3", "--tracking-uri", uri, "--format", "json")
    assert status == 0
    assert json.loads(output)["sweep"]["name"] == "tracked"
    assert run("zz", "--tracking-uri", uri)[0] == 2


def test_fractional_repeats_and_text_for_numbers_are_refused():
    with pytest.raises(InputError, match="repeat is 0.5 in baseline / gsm8k / q000000"):
        checked(good().assign(repeat=0.5))
    with pytest.raises(InputError, match="latency_s holds text, '1.5' for one"):
        checked(good().assign(latency_s="1.5"))
