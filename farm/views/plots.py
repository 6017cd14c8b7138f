"""The plots of the report, as SVG. Colours of Okabe & Ito (2008), which the colour-blind can tell apart; line styles,
markers and hatches repeat the distinction for print without colour."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from typing import Any, Final

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import FuncFormatter

from farm.views.safe import one_line

_COLOURS: Final = ("#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9")
_LINES: Final = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES: Final = ("", "//", "..", "xx", "\\\\", "++", "oo")
_WIDTH: Final = 7.6
_MOST_POINTS: Final = 1500
_MOST_NODES: Final = 8
_PLAIN_TICKS: Final = FuncFormatter(lambda value, _: f"{value:g}")
_STYLE: Final = {
    "text.parse_math": False,  # names are text, a dollar sign in them is no formula
    "svg.fonttype": "path",
    "svg.hashsalt": "farm",
    "font.size": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
}


def _drawn(height: float, mark: str, draw: Callable[[Figure], None]) -> str:
    with mpl.rc_context(_STYLE):
        figure = Figure(figsize=(_WIDTH, height), layout="constrained")
        draw(figure)
        if mark:
            figure.suptitle(one_line(mark), x=0.99, ha="right", fontsize=9, fontweight="bold", color="#D55E00")
        out = io.StringIO()
        figure.savefig(out, format="svg", metadata={"Date": None})
    return out.getvalue()


def _name(text: str, most: int = 40) -> str:
    line = one_line(text)
    return line if len(line) <= most else line[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def forest(contrasts: Sequence[dict[str, Any]], mark: str) -> str:
    """Ratios with their intervals: decode throughput (above 1 is faster) and mean latency (below 1 is faster)."""
    names = [f"{_name(c['variant'])}\nover {_name(c['against'])}" for c in contrasts]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, key, shift, title in (
            (panels[0], "throughput_ratio", 0.0, "decode throughput, ratio"),
            (panels[1], "mean_latency_change", 1.0, "mean latency, ratio"),
        ):
            axes.axvline(1.0, color="#666666", linewidth=1)
            for place, contrast in enumerate(contrasts):
                _whisker(axes, place, contrast[key], shift)
            axes.set_title(f"{title} [95 %]", loc="left")
            axes.set_yticks(range(len(names)), names)
        panels[0].set_ylim(len(contrasts) - 0.4, -0.7)

    return _drawn(0.9 + 0.5 * len(contrasts), mark, draw)


def _whisker(axes: Any, place: int, estimate: dict[str, Any], shift: float) -> None:
    if estimate["value"] is None:
        return
    value = estimate["value"] + shift
    low, high = estimate["ci"] or (None, None)
    if low is not None and high is not None:
        axes.plot([low + shift, high + shift], [place, place], color="#000000", linewidth=1.5)
    axes.plot([value], [place], "s", color="#0072B2", markersize=6)
    axes.annotate(f"{value:.2f}", (value, place), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)


def ecdf(answers: pd.DataFrame, variants: Sequence[str], column: str, label: str, mark: str) -> str:
    """Share of answers at or below each value, one line for each variant."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, variant in enumerate(variants):
            values = np.sort(answers.loc[(answers["variant"] == variant).to_numpy(), column].to_numpy(dtype=np.float64))
            if len(values):
                shares = np.linspace(0, 1, min(len(values), _MOST_POINTS))
                axes.plot(np.maximum(np.quantile(values, shares), 1e-3), shares, label=_name(variant), **_line(place))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_PLAIN_TICKS)
        axes.set_xlabel(label)
        axes.set_ylabel("share of answers")
        axes.legend(frameon=False)

    return _drawn(3.0, mark, draw)


def _line(place: int) -> dict[str, Any]:
    style = place % len(_COLOURS)
    return {"color": _COLOURS[style], "linestyle": _LINES[style], "linewidth": 1.6}


def lengths(answers: pd.DataFrame, variants: Sequence[str], mark: str) -> str:
    """Output lengths: share of answers by completion tokens, in equal steps of the logarithm."""
    top = max(float(answers["completion_tokens"].max()), 2.0)
    edges = np.geomspace(1, top * 1.001, 41)

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        for place, variant in enumerate(variants):
            values = answers.loc[(answers["variant"] == variant).to_numpy(), "completion_tokens"].to_numpy()
            if len(values):
                counts = np.histogram(np.maximum(values, 1), bins=edges)[0]
                axes.stairs(counts / len(values), edges, label=_name(variant), **_line(place))
        axes.set_xscale("log")
        axes.xaxis.set_major_formatter(_PLAIN_TICKS)
        axes.set_xlabel("completion tokens")
        axes.set_ylabel("share of answers")
        axes.legend(frameon=False)

    return _drawn(2.8, mark, draw)


def accepted_drafts(histograms: dict[str, list[int]], mark: str) -> str:
    """Share of verify rounds by number of accepted drafts, one group of bars for each speculating variant."""

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        width = 0.8 / len(histograms)
        for place, (variant, rounds) in enumerate(histograms.items()):
            shares = np.asarray(rounds, dtype=np.float64) / max(sum(rounds), 1)
            style = (place + 1) % len(_COLOURS)
            axes.bar(
                np.arange(len(rounds)) + (place - (len(histograms) - 1) / 2) * width,
                shares,
                width,
                label=_name(variant),
                color=_COLOURS[style],
                edgecolor="white",
                hatch=_HATCHES[style],
            )
        axes.set_xticks(range(max(len(rounds) for rounds in histograms.values())))
        axes.set_xlabel("drafts accepted in a verify round")
        axes.set_ylabel("share of rounds")
        axes.legend(frameon=False)

    return _drawn(2.6, mark, draw)


def tpot_along_time(answers: pd.DataFrame, variants: Sequence[str], mark: str) -> str:
    """Each answer's time per token by the time it was asked, one panel for each node."""
    nodes = sorted(answers["node"].unique())[:_MOST_NODES]
    start = answers["started_at"].min()

    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(nodes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, node in zip(panels, nodes, strict=True):
            own = answers[(answers["node"] == node).to_numpy()]
            for place, variant in enumerate(variants):
                points = _thinned(own[(own["variant"] == variant).to_numpy()])
                style = place % len(_COLOURS)
                hours = (points["started_at"] - start).dt.total_seconds() / 3600
                axes.plot(hours, points["request_tpot_ms"], _MARKERS[style], color=_COLOURS[style], markersize=2.5,
                          alpha=0.6, label=_name(variant))  # fmt: skip
            axes.set_title(_name(node), loc="left")
            axes.set_ylabel("ms per token")
        panels[-1].set_xlabel("hours since the first request")
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside lower center", frameon=False,
                      markerscale=2.5, ncols=2)  # fmt: skip

    return _drawn(1.3 + 1.7 * len(nodes), mark, draw)


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    return points.iloc[:: max(1, -(-len(points) // _MOST_POINTS))]
