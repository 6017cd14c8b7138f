"""What is shown: nothing untrusted gets through, partial and labelled sweeps say so everywhere, 100 columns."""

from __future__ import annotations

import base64
import csv
import io
import re
from html.parser import HTMLParser

import pandas as pd
import pytest
from compare_sweeps import Truth, sweep
from markupsafe import escape
from rich.console import Console

from farm.compare import compare
from farm.report import csv_file, markdown, terminal
from farm.report import html as report
from farm.results.summary import SweepSummary
from farm.text import for_csv, for_markdown, plain

NASTY = '\x1b[31m<script>alert("x")</script>\x1b]0;owned\x07 |`=1+1`\u202e $x^2$ [bold]'
SPEC = Truth(step_s=0.0218, accept_length=2.68, round_cost=2.2)


def nasty_sweep(label=None):
    records = sweep({"baseline": Truth(right=0.96), "nextn": SPEC}, 60, nodes=2)
    records["accept_histogram"] = [[1, 2, 3, 4] if rounds > 0 else None for rounds in records["verify_rounds"]]
    records["correct"] = records["correct"].astype(bool)
    records.loc[3, "correct"] = not records.loc[63, "correct"]
    records["output_text"] = f"{NASTY} the end"
    records["answer"] = NASTY
    records["label"] = label
    records["variant"] = records["variant"].replace("nextn", f"next{NASTY}")
    records["node"] = records["node"] + NASTY
    return records


def items():
    return pd.DataFrame([{"workload": "gsm8k", "item_id": "q000003", "prompt": f"Why? {NASTY}", "gold": "18"}])


class Tags(HTMLParser):
    def __init__(self):
        super().__init__()
        self.seen = set()
        self.text = []

    def handle_starttag(self, tag, attrs):
        self.seen.add(tag)
        self.seen.update(name for name, _ in attrs)

    def handle_data(self, data):
        self.text.append(data)


def test_report_is_whole_and_holds_no_foreign_markup():
    records = nasty_sweep()
    html = report.render(compare(records), records, items())
    page = Tags()
    page.feed(html)
    assert not page.seen & {"script", "iframe", "object", "link", "onload", "onerror"}
    assert "\x1b" not in html
    assert "\u202e" not in html
    assert not re.search(r"""(src|href)=["'](?!data:|#)""", html)
    text = "".join(page.text)
    assert 'Why? <script>alert("x")</script>' in text
    assert text.count("the end") >= 2  # both answers to the question that flipped
    titles = re.findall(r'<img alt="([^"]*)"', html)
    assert titles == [
        "Ratios with their 95 % intervals",
        "Latency: share of answers within it",
        "Output lengths: share of answers within them",
        "Accepted drafts",
        "Time per token along the sweep",
    ]


def test_report_escapes_whoever_named_or_said_it():
    hostile = {name: f"<script>{name}<b>" for name in ("variant", "output", "answer", "question", "error", "name")}
    records = nasty_sweep()
    records["variant"] = records["variant"].replace(f"next{NASTY}", hostile["variant"])
    records["output_text"], records["answer"] = hostile["output"], hostile["answer"]
    asked = items().assign(prompt=hostile["question"])
    reported = {"name": hostile["name"], "failed_variants": {"humming": hostile["error"]}}
    page = report.render(compare(records, SweepSummary.model_validate(reported)), records, asked)
    assert "<script" not in page
    for name in hostile:
        assert f"&lt;script&gt;{name}&lt;b&gt;" in page, name


def test_report_fetches_texts_of_flipped_items_only():
    records = nasty_sweep()
    requested = []

    def texts(item_ids):
        requested.extend(item_ids)
        return records.loc[
            records["item_id"].isin(requested), ["workload", "variant", "item_id", "repeat", "output_text"]
        ]

    html = report.render(compare(records), records.drop(columns="output_text"), None, texts)
    one, two = (own.set_index("item_id")["correct"] for _, own in records.groupby("variant"))
    assert sorted(requested) == sorted(one.index[one != two])
    assert "the end" in html


def test_terminal_shows_names_as_plain_text():
    output = terminal.text(compare(nasty_sweep()), styled=False)
    assert not re.search(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202e]", output)
    assert max(len(line) for line in output.splitlines()) <= 100


def test_terminal_colours_only_for_a_terminal():
    comparison = compare(sweep({"baseline": Truth(), "nextn": SPEC}, 10))
    assert "\x1b[" in terminal.text(comparison, styled=True)
    assert "\x1b[" not in terminal.text(comparison, styled=False)


def test_terminal_renders_on_a_given_console():
    out = io.StringIO()
    terminal.render(compare(sweep({"baseline": Truth(), "nextn": SPEC}, 10)), Console(file=out, width=120))
    assert "What to do" in out.getvalue()


def test_csv_cells_are_no_formulas_and_stay_in_their_cells():
    records = nasty_sweep()
    records["workload"] = '=HYPERLINK("http://x"),"a'
    rows = list(csv.DictReader(io.StringIO(csv_file.render(compare(records)))))
    assert len(rows) == 2
    assert {row["workload"] for row in rows} == {'\'=HYPERLINK("http://x"),"a'}
    fast = next(row for row in rows if row["against"])
    assert float(fast["mean_latency_change"]) < 0
    assert fast["verdict"] in ("equivalent", "better", "worse", "inconclusive")


def test_markdown_table_has_its_columns_whatever_the_names():
    lines = markdown.render(compare(nasty_sweep())).splitlines()
    table = [line for line in lines if line.startswith("|")]
    assert {len(re.findall(r"(?<!\\)\|", line)) for line in table} == {9}
    assert not any("<script" in line for line in lines)


@pytest.mark.parametrize("label", [None, "emulated"])
def test_partial_and_labelled_sweeps_say_so_in_every_view(label):
    records = nasty_sweep(label)
    reported = {
        "sweep_id": "s1",
        "name": "night",
        "planned_cells": 500,
        "failed_variants": {"humming": "out of memory"},
    }
    comparison = compare(records, SweepSummary.model_validate(reported))
    page = report.render(comparison, records)
    expected = "EMULATED | PARTIAL" if label else "PARTIAL"
    assert comparison.sweep.complete is False
    for text in (terminal.text(comparison, styled=False), markdown.render(comparison), page):
        assert text.count("PARTIAL") >= 3
        assert "out of memory" in text
        assert (text.count("EMULATED") >= 3) == (label is not None)
    assert f"[{expected}]" in terminal.text(comparison, styled=False)
    images = [base64.b64decode(data).decode() for data in re.findall(r"base64,([^\"]*)", page)]
    assert len(images) == 5
    assert all(f">{expected}</text>" in image for image in images)
    row = next(csv.DictReader(io.StringIO(csv_file.render(comparison))))
    assert (row["complete"], row["label"]) == ("False", label or "")


def test_whole_sweep_of_a_real_model_carries_no_mark():
    records = sweep({"baseline": Truth(), "nextn": SPEC}, 10)
    text = terminal.text(compare(records, SweepSummary(planned_cells=20)), styled=False)
    assert "complete, 20 of 20 cells" in text
    assert "PARTIAL" not in text


@pytest.mark.parametrize(
    ("raw", "shown"),
    [
        ("a\x1b[2Jb", "ab"),
        ("a\x1b]8;;http://x\x07b", "ab"),
        ("a\x9bb\x00\r\u200bc", "abc"),
        ("keeps\nlines\tand tabs, \u00e9 and \u4e2d", "keeps\nlines\tand tabs, \u00e9 and \u4e2d"),
        ("lone \ud800 surrogate", "lone \ufffd surrogate"),
    ],
)
def test_control_sequences_are_stripped(raw, shown):
    assert plain(raw) == shown


def test_escapes():
    assert for_markdown("a|b\n<i>*c*") == "a\\|b &lt;i>\\*c\\*"
    assert [for_csv(text) for text in ("=1", "+1", "-1", "@x", "1-1")] == ["'=1", "'+1", "'-1", "'@x", "1-1"]


def test_the_first_screen_holds_the_decision_and_the_figures_that_carry_it():
    records = nasty_sweep()
    comparison = compare(records)
    page = report.render(comparison, records)
    found = comparison.workloads["gsm8k"].contrasts[0]
    first, rest = page.split('id="figures"')
    assert escape(plain(comparison.advice[0].text)) in first
    assert f"<b>{found.throughput_ratio.value:.2f}" in first
    assert f"<b>{found.accuracy.verdict}</b>" in first
    assert re.findall(r'<img alt="([^"]*)"', first) == ["Ratios with their 95 % intervals"]
    assert "<table" not in first
    targets = set(re.findall(r' id="([^"]+)"', page))
    assert set(re.findall(r'href="#([^"]+)"', first)) <= targets
    assert escape(plain(comparison.why[0].text)) in rest
