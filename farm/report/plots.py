"""The plots of the report, as SVG. Colours that the colour-blind can tell apart, of Okabe & Ito (2008) with two of
Tol's "muted" scheme; line styles, markers and hatches repeat the distinction for print without colour.

Text stays text (`svg.fonttype: none`): the viewer's fonts draw it, and tests read it. Its place is reckoned with DejaVu
Sans, which is as wide as any font that is named after it. The report holds the plots as images: nothing in them runs.
"""

from __future__ import annotations

import io
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, Final, TypedDict

import matplotlib as mpl
import numpy as np
import pandas as pd
from matplotlib.figure import Figure
from matplotlib.ticker import AutoLocator, FuncFormatter, LogLocator, MaxNLocator, NullFormatter, ScalarFormatter

from farm.compare.model import Contrast, Estimate
from farm.text import one_line

_COLOURS: Final = (
    "#000000", "#0072B2", "#E69F00", "#009E73", "#D55E00", "#CC79A7", "#56B4E9", "#882255", "#332288",
)  # fmt: skip
# Seven of each beside nine colours: no two of 63 variants share both.
_Dashes = tuple[int, tuple[int, ...]]
_LINES: Final[tuple[str | _Dashes, ...]] = ("-", "--", "-.", ":", (0, (5, 1)), (0, (3, 1, 1, 1)), (0, (1, 1)))
_MARKERS: Final = ("o", "s", "^", "D", "v", "P", "X")
_HATCHES: Final = ("", "//", "..", "xx", "\\\\", "++", "oo")
_WIDTH: Final = 7.6
_LINE_HEIGHT: Final = 0.17
_MOST_STEPS: Final = 400
_MOST_POINTS: Final = 1500
_MOST_NODES: Final = 8
_SMALLEST: Final = 1e-3  # of times: nothing is zero on a logarithmic axis
_STYLE: Final = {
    "text.parse_math": False,  # names are text, a dollar sign in them is no formula
    "axes.formatter.useoffset": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "farm",
    "font.size": 9.0,
    "axes.titlesize": 9.0,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "axes.axisbelow": True,
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


def _name(text: str, width: int = 44) -> str:
    """The name, folded rather than cut before its fifth line: long names often differ at their ends alone."""
    return "\n".join(textwrap.wrap(one_line(text), width, max_lines=5, placeholder="\N{HORIZONTAL ELLIPSIS}"))


def _height(names: Iterable[str]) -> float:
    return _LINE_HEIGHT * max(name.count("\n") + 1 for name in names)


def _scale(axes: Any, which: str, values: Iterable[float], most: int) -> None:
    """Scale the axis `which`, x or y, to the values: logarithmic from a decade on, with about `most` labels."""
    known = np.asarray([value for value in values if np.isfinite(value)])
    low, high = (float(known.min()), float(known.max())) if len(known) else (0.0, 1.0)
    axis = axes.xaxis if which == "x" else axes.yaxis
    if low > 0 and high / low >= 10:
        decades = np.log10(high / low)
        margin = 10 ** (0.04 * decades)
        axes.set(**{f"{which}scale": "log", f"{which}lim": (low / margin, high * margin)})
        steps = next((steps for steps in ((1, 2, 5), (1, 3)) if decades * len(steps) <= most), (1,))
        axis.set_major_locator(LogLocator(subs=steps, numticks=most))
        axis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axis.set_minor_formatter(NullFormatter())
    else:
        # An axis of less than 4 % would need labels of many digits to tell noise apart.
        margin = max(0.05 * (high - low), 0.02 * abs(high) - (high - low) / 2) or 1.0
        axes.set(**{f"{which}lim": (low - margin, high + margin)})
        axis.set_major_locator(AutoLocator())
        axis.set_major_formatter(ScalarFormatter())


def _legend(figure: Figure, handles: Sequence[Any], names: Sequence[str]) -> None:
    # Handles and names are given, because matplotlib leaves out of a legend whatever begins with an underscore.
    figure.legend(handles, names, loc="outside lower center", frameon=False, handlelength=3.2, markerscale=2,
                  ncols=_columns(names))  # fmt: skip


def _columns(names: Sequence[str]) -> int:
    longest = max(len(line) for name in names for line in name.split("\n"))
    return max(1, min(4, len(names), 80 // (longest + 9)))


def _legend_height(names: Sequence[str]) -> float:
    return 0.2 + (_height(names) + 0.05) * -(-len(names) // _columns(names))


def forest(contrasts: Sequence[Contrast], mark: str) -> str:
    """Ratios with their intervals: decode throughput (above 1 is faster) and mean latency (below 1 is faster)."""
    names = [_name(c.variant, 26) + "\n" + _name(f"over {c.against}", 26) for c in contrasts]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(1, 2, sharey=True)
        for axes, estimates, shift, title in (
            (panels[0], [c.throughput_ratio for c in contrasts], 0.0, "decode throughput, ratio"),
            (panels[1], [c.mean_latency_change for c in contrasts], 1.0, "mean latency, ratio"),
        ):
            axes.axvline(1.0, color="#666666", linewidth=1)
            shown = [1.0]
            for number, estimate in enumerate(estimates):
                shown += _whisker(axes, number, estimate, shift)
            _scale(axes, "x", shown, 5)
            axes.set_title(f"{title} [95 %]", loc="left")
            axes.set_yticks(range(len(names)), names)
        panels[0].set_ylim(len(contrasts) - 0.4, -0.7)

    return _drawn(0.9 + max(0.5, _height(names) + 0.1) * len(contrasts), mark, draw)


def _whisker(axes: Any, number: int, estimate: Estimate, shift: float) -> list[float]:
    """Draw the estimate; the values it takes up on the axis."""
    if estimate.value is None:
        return []
    value = estimate.value + shift
    ends = [end + shift for end in estimate.ci or () if end is not None]
    if len(ends) == 2:
        axes.plot(ends, [number, number], color="#000000", linewidth=1.5)
    axes.plot([value], [number], "s", color="#0072B2", markersize=6)
    text = f"{value:.2f}" if 0.1 <= value < 100 else f"{value:.2g}"
    axes.annotate(text, (value, number), xytext=(0, 6), textcoords="offset points", ha="center", fontsize=8)
    return [value, *ends]


def ecdf(answers: pd.DataFrame, variants: Sequence[str], column: str, label: str, mark: str) -> str:
    """Share of answers at or below each value, one line for each variant that has answers."""
    values = {
        variant: np.maximum(answers.loc[(answers["variant"] == variant).to_numpy(), column], _SMALLEST)
        for variant in variants
        if (answers["variant"] == variant).any()
    }
    names = [_name(variant) for variant in values]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        lines = []
        for variant, own in values.items():
            steps = np.quantile(own, np.linspace(0, 1, min(len(own), _MOST_STEPS)))
            lines.append(axes.ecdf(steps, **_line(variants.index(variant))))
        _scale(axes, "x", np.concatenate(list(values.values())), 9)
        axes.set(xlabel=label, ylabel="share of answers", ylim=(0, 1.03))
        _legend(figure, lines, names)

    return _drawn(2.8 + _legend_height(names), mark, draw)


class _Line(TypedDict):
    color: str
    linestyle: str | _Dashes
    linewidth: float


def _line(number: int) -> _Line:
    return {"color": _COLOURS[number % len(_COLOURS)], "linestyle": _LINES[number % len(_LINES)], "linewidth": 1.6}


def accepted_drafts(histograms: Mapping[str, Sequence[int]], variants: Sequence[str], mark: str) -> str:
    """Share of verify rounds by number of accepted drafts, one group of bars for each speculating variant."""
    names = [_name(variant) for variant in histograms]

    def draw(figure: Figure) -> None:
        axes = figure.subplots()
        width = 0.8 / len(histograms)
        bars = []
        for number, (variant, rounds) in enumerate(histograms.items()):
            style = variants.index(variant)
            bars.append(
                axes.bar(
                    np.arange(len(rounds)) + (number - (len(histograms) - 1) / 2) * width,
                    np.asarray(rounds, dtype=np.float64) / max(sum(rounds), 1),
                    width,
                    color=_COLOURS[style % len(_COLOURS)],
                    edgecolor="white",
                    hatch=_HATCHES[style % len(_HATCHES)],
                )
            )
        axes.set_xlim(-0.5, max(len(rounds) for rounds in histograms.values()) - 0.5)
        axes.xaxis.set_major_locator(MaxNLocator(16, integer=True, min_n_ticks=1))
        axes.set(xlabel="drafts accepted in a verify round", ylabel="share of rounds")
        axes.set_ylim(bottom=0)
        _legend(figure, bars, names)

    return _drawn(2.4 + _legend_height(names), mark, draw)


def nodes_to_draw(answers: pd.DataFrame) -> list[str]:
    """All nodes by name; of more than a page holds, the slowest first: those whose answers' times per token are the
    longest beside the median of their variant, so that no node is slow for the variants that it ran."""
    nodes: list[str] = sorted(answers["node"].unique())
    if len(nodes) <= _MOST_NODES:
        return nodes
    times = answers["request_tpot_ms"]
    beside = times / times.groupby(answers["variant"]).transform("median")
    slowest = beside.groupby(answers["node"]).median().sort_values(ascending=False, kind="stable")
    return [str(node) for node in slowest.index[:_MOST_NODES]]


def tpot_along_time(answers: pd.DataFrame, nodes: Sequence[str], variants: Sequence[str], mark: str) -> str:
    """Each answer's time per token by the time it was asked, one panel for each of these nodes."""
    answers = answers[answers["node"].isin(nodes).to_numpy()]
    start = answers["started_at"].min()
    lasted_s = (answers["started_at"].max() - start).total_seconds()
    unit, seconds = ("hours", 3600) if lasted_s >= 2 * 3600 else ("minutes", 60)
    answers = answers.assign(request_tpot_ms=answers["request_tpot_ms"].clip(lower=_SMALLEST))
    names = [_name(variant) for variant in variants]

    def draw(figure: Figure) -> None:
        panels = figure.subplots(len(nodes), 1, sharex=True, sharey=True, squeeze=False)[:, 0]
        for axes, node in zip(panels, nodes, strict=True):
            own = answers[(answers["node"] == node).to_numpy()]
            dots = []
            for number, variant in enumerate(variants):
                points = _thinned(own[(own["variant"] == variant).to_numpy()])
                times = (points["started_at"] - start).dt.total_seconds() / seconds
                dots += axes.plot(times, points["request_tpot_ms"], _MARKERS[number % len(_MARKERS)], markersize=3.5,
                                  color=_COLOURS[number % len(_COLOURS)], alpha=0.6, markeredgewidth=0)  # fmt: skip
            axes.set_title(_name(node, 80), loc="left")
            axes.set_ylabel("ms per token")
        _scale(panels[0], "y", answers["request_tpot_ms"], 5)
        _scale(panels[-1], "x", [0, max(lasted_s, 60) / seconds], 9)
        panels[-1].set_xlabel(f"{unit} since the first request")
        _legend(figure, dots, names)

    return _drawn(0.9 + 1.7 * len(nodes) + _legend_height(names), mark, draw)


def _thinned(points: pd.DataFrame) -> pd.DataFrame:
    return points.iloc[:: max(1, -(-len(points) // _MOST_POINTS))]
