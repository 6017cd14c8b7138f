"""The plots, by the text in their SVG: every label is readable, whatever the range of the values and the names."""

from __future__ import annotations

import base64
import math
import re
from dataclasses import dataclass
from functools import cache
from xml.etree import ElementTree

import numpy as np
import pandas as pd
import pytest
from compare_sweeps import Truth, sweep
from matplotlib.font_manager import FontProperties
from matplotlib.textpath import text_to_path

from farm.compare import compare
from farm.compare.model import Estimate
from farm.report import html as report
from farm.report import plots

PAIR = {"baseline": Truth(), "nextn": Truth(0.02)}
TWO = ["baseline", "humming+fp8-head+nextn"]
NINE = ["baseline", "humming", "fp8-head", "nextn", "humming+fp8-head", "humming+nextn", "fp8-head+nextn", "eagle3",
        "humming+fp8-head+nextn"]  # fmt: skip
# As long as a specification allows and differing at the end alone; and what a folder of results may hold.
LONG = [f"{'qwen3-30b-a3b_humming-w4a16-fp8-head-nextn-steps-3-topk-1-drafts-4':-<78}-{end}" for end in "ab"]
ODD = ["_hidden_", "<b>&amp;</b> $x^2$ a_b", "$\\frac{1}$ `c`", "x" * 80, "not\uffffxml", "W" * 40]
DECADES = [0.02, 0.3, 1, 4]
FIGURES = ["latency", "lengths", "tpot"]
SVG = "{http://www.w3.org/2000/svg}"


@dataclass(frozen=True)
class Box:
    text: str
    left: float
    top: float
    right: float
    bottom: float

    def overlaps(self, other: Box) -> bool:
        return (
            self.left < other.right and other.left < self.right and self.top < other.bottom and other.top < self.bottom
        )


@cache
def extent(text, bold):
    """Width and height of a text of size 1 in the font that is named first, and how far it reaches below its line."""
    font = FontProperties(family="DejaVu Sans", size=100, weight="bold" if bold else "normal")
    return [length / 100 for length in text_to_path.get_text_width_height_descent(text, font, ismath=False)]


def box(element):
    """Where a text stands."""
    text, style = "".join(element.itertext()), element.get("style")
    size = float(re.search(r"font-size: ([\d.]+)px", style)[1])
    width, height, descent = (size * length for length in extent(text, "font-weight: 700" in style))
    anchored = re.search(r"text-anchor: (\w+)", style)
    start = -width * {"start": 0.0, "middle": 0.5, "end": 1.0}[anchored[1] if anchored else "start"]
    calls = {
        name: [float(number) for number in inside.split()]
        for name, inside in re.findall(r"(\w+)\(([^)]*)\)", element.get("transform"))
    }
    x, y = calls["translate"] if "translate" in calls else (float(element.get("x")), float(element.get("y")))
    turned = math.radians(calls.get("rotate", [0])[0])
    corners = [
        (x + dx * math.cos(turned) - dy * math.sin(turned), y + dx * math.sin(turned) + dy * math.cos(turned))
        for dx in (start, start + width)
        for dy in (descent - height, descent)
    ]
    across, down = zip(*corners, strict=True)
    return Box(text, min(across), min(down), max(across), max(down))


class Picture:
    """The texts of an SVG, and for each of its panels its frame and the labels on the ticks of its two axes."""

    def __init__(self, svg):
        root = ElementTree.fromstring(svg)
        self.left, self.top, self.width, self.height = map(float, root.get("viewBox").split())
        self.texts = [box(element) for element in root.iter(f"{SVG}text")]
        self.words = [text.text for text in self.texts]
        panels = [group for group in root.iter(f"{SVG}g") if group.get("id", "").startswith("axes_")]
        self.panels = [frame(panel) for panel in panels]
        self.ticks = [
            [
                " ".join("".join(tick.itertext()).split())
                for tick in axis
                if tick.get("id").startswith(("xtick", "ytick"))
            ]
            for panel in panels
            for axis in panel.iterfind(f"{SVG}g")
            if axis.get("id").startswith("matplotlib.axis")
        ]
        self.ticks = [[label for label in labels if label] for labels in self.ticks]

    def check(self, *, fewest=2):
        assert not [word for word in self.words if "mathdefault" in word]
        assert any(self.ticks)
        for labels in self.ticks:
            assert len(labels) == len(set(labels)), labels
            numbers = [label for label in labels if re.fullmatch(r"[\d.\N{MINUS SIGN}]+", label)]
            assert not numbers or len(numbers) >= fewest, labels
        for place, one in enumerate(self.texts):
            assert self.left <= one.left, one
            assert one.right <= self.left + self.width, one
            assert self.top <= one.top, one
            assert one.bottom <= self.top + self.height, one
            assert not [other for other in self.texts[place + 1 :] if one.overlaps(other)], one
        assert min(panel.right - panel.left for panel in self.panels) > self.width / 5
        assert min(panel.bottom - panel.top for panel in self.panels) > 50


def frame(panel):
    corners = [float(number) for number in re.findall(r"[\d.]+", panel.find(f"{SVG}g/{SVG}path").get("d"))]
    return Box("", min(corners[::2]), min(corners[1::2]), max(corners[::2]), max(corners[1::2]))


def answers(variants, decades=1.0, items=60, nodes=1):
    """What the report gives to the plots: a sweep whose figures span so many decades."""
    records = sweep({name: Truth() for name in variants}, items, nodes=nodes)
    rank = np.random.default_rng(1).permutation(len(records)) / max(len(records) - 1, 1)
    records["completion_tokens"] = np.maximum(np.round(300 * 10 ** (decades * (rank - 0.5))), 2).astype(np.int64)
    return records.assign(latency_s=8.21 * 10 ** (decades * rank), request_tpot_ms=26.4 * 10 ** (decades * rank))


def draw(figure, frame, variants, mark=""):
    if figure == "tpot":
        return plots.tpot_along_time(frame, plots.nodes_to_draw(frame), variants, mark)
    column, label = {"latency": ("latency_s", "seconds"), "lengths": ("completion_tokens", "completion tokens")}[figure]
    return plots.ecdf(frame, variants, column, label, mark)


def contrasts(names, decades):
    """Every name over the next, with ratios from 1 to so many decades; the second has no interval."""

    def ratio(power, shift, place):
        ends = [10 ** (power * end) - shift for end in (0.9, 1.1)]
        return Estimate(value=10**power - shift, ci=None if place == 1 else ends)

    measured = compare(sweep({"baseline": Truth(), "nextn": Truth()}, 2)).workloads["gsm8k"].contrasts[0]
    return [
        measured.model_copy(
            update={
                "variant": name,
                "against": names[(place + 1) % len(names)],
                "throughput_ratio": ratio(decades * (place + 1) / len(names), 0, place),
                "mean_latency_change": ratio(-decades * (place + 1) / len(names), 1, place),
            }
        )
        for place, name in enumerate(names)
    ]


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize("decades", DECADES)
def test_ticks_are_readable_over_any_range(figure, decades):
    frame = answers(TWO, decades)
    picture = Picture(draw(figure, frame, TWO))
    picture.check()
    assert set(TWO) <= set(picture.words)


@pytest.mark.parametrize(("count", "decades"), [(1, 0), (1, 0.3), *((8, decades) for decades in DECADES)])
def test_ratios_are_readable_over_any_range(count, decades):
    picture = Picture(plots.forest(contrasts(NINE[:count], decades), "PARTIAL"))
    picture.check()
    assert picture.words.count("PARTIAL") == 1


@pytest.mark.parametrize("figure", FIGURES)
@pytest.mark.parametrize(("decades", "items"), [(1, 1), (0, 60), (1e-7, 60)])
def test_a_single_value_has_an_axis_around_it(figure, decades, items):
    frame = answers(["baseline"], decades, items)
    picture = Picture(draw(figure, frame, ["baseline"]))
    picture.check()
    column = {"latency": "latency_s", "lengths": "completion_tokens", "tpot": "request_tpot_ms"}[figure]
    labels = picture.ticks[1 if figure == "tpot" else 0]
    assert min(map(float, labels)) < frame[column].mean() < max(map(float, labels))
    assert max(map(len, labels)) <= 5


@pytest.mark.parametrize("figure", FIGURES)
def test_nine_variants_on_eight_nodes_are_told_apart_by_a_legend_beside_the_data(figure):
    frame = answers(NINE, 0.3, 24, nodes=8)
    svg = draw(figure, frame, NINE, "EMULATED | PARTIAL")
    looks = r'style="([^"]*(?:fill-opacity: 0.6|stroke-width: 1.6)[^"]*)"'
    assert len(set(re.findall(looks, svg))) == 9
    picture = Picture(svg)
    picture.check()
    assert "EMULATED | PARTIAL" in picture.words
    legend = [text for text in picture.texts if text.text in NINE]
    assert sorted(text.text for text in legend) == sorted(NINE)
    assert min(text.top for text in legend) > max(panel.bottom for panel in picture.panels)
    assert len(picture.panels) == (8 if figure == "tpot" else 1)


def test_of_more_nodes_than_a_page_holds_the_slowest_are_drawn_and_the_report_says_how_many():
    records = sweep(PAIR, 60, nodes=12)
    slow = {"node-11": 1.3, "node-4": 1.2, "node-9": 1.1}
    factor = records["node"].map(slow).fillna(1.0)
    for name in ("decode_s", "latency_s"):
        records[name] *= factor
    page = report.render(compare(records), records)
    assert "8 of 12 nodes, the slowest first" in page
    image = re.findall(r'alt="Time per token[^"]*" src="data:image/svg\+xml;base64,([^"]*)"', page)[0]
    picture = Picture(base64.b64decode(image).decode())
    assert len(picture.panels) == 8
    titles = sorted((text.top, text.text) for text in picture.texts if text.text.startswith("node-"))
    assert [title for _, title in titles[:3]] == list(slow)
    assert "the slowest first" not in report.render(compare(sweep(PAIR, 20, nodes=8)), sweep(PAIR, 20, nodes=8))


@pytest.mark.parametrize("names", [LONG, ODD])
@pytest.mark.parametrize("figure", [*FIGURES, "drafts", "ratios"])
def test_names_are_shown_whole_and_leave_room_for_the_data(figure, names):
    if figure == "drafts":
        svg = plots.accepted_drafts({name: [5, 3, 2, 1] for name in names}, names, "")
    elif figure == "ratios":
        svg = plots.forest(contrasts(names, 0.3), "PARTIAL")
    else:
        frame = answers(names, 0.3)
        svg = draw(figure, frame.assign(node=frame["node"] + names[0]), names)
    picture = Picture(svg)
    picture.check()
    shown = "".join(picture.words).replace(" ", "")
    for name in names:
        assert name.replace("\uffff", "").replace(" ", "") in shown
    assert "\N{HORIZONTAL ELLIPSIS}" not in shown


@pytest.mark.parametrize(("drafts", "variants"), [(1, NINE[:1]), (2, NINE[:1]), (4, NINE), (64, NINE[:2])])
def test_accepted_drafts_are_counted_in_whole_numbers(drafts, variants):
    picture = Picture(plots.accepted_drafts({name: [1] * drafts for name in variants}, variants, ""))
    picture.check(fewest=min(drafts, 2))
    assert all(label.isdigit() and int(label) < drafts for label in picture.ticks[0])


def test_every_picture_of_a_report_is_readable():
    one = sweep({"baseline": Truth(), ODD[1]: Truth(accept_length=2.5, round_cost=2.0)}, 30, nodes=2)
    two = sweep({"baseline": Truth(), ODD[0]: Truth(0.02)}, 20, workload="short").assign(completion_tokens=7)
    records = pd.concat([one, two], ignore_index=True)
    records["accept_histogram"] = [[1, 2, 3] if rounds > 0 else None for rounds in records["verify_rounds"]]
    page = report.render(compare(records), records)
    images = re.findall(r'src="data:image/svg\+xml;base64,([^"]*)"', page)
    assert len(images) == 5 + 4
    for image in images:
        Picture(base64.b64decode(image).decode()).check()
