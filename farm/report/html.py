"""One self-contained HTML file: the first screen, all figures, the plots, and the answers that flipped.

What is shown is put together here; how it stands on the page is for `report.html.jinja`, which escapes every value.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final, NamedTuple

import numpy as np
import pandas as pd
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup

from farm.compare.decision import against_baseline, picked_or_nearest
from farm.compare.metrics import checked
from farm.compare.model import Comparison, Contrast, EffectEstimate, VariantFigures
from farm.compare.warnings import EXCLUDE
from farm.compare.words import change, change_parts, p_value, percent, points, ratio, ratio_parts
from farm.report import cells, flips, plots
from farm.report.columns import VARIANT_COLUMNS, Variant
from farm.text import one_line, plain

_BEHIND_ACCURACY: Final = ("correct", "graded")
_BESIDE_BASELINE: Final = 5


class Table(NamedTuple):
    """A table whose first `words` columns are words; what follows a line break in a cell is in small print."""

    heads: Sequence[str]
    rows: Sequence[Sequence[str]]
    words: int = 1


class Plot(NamedTuple):
    """A plot, and what its reader must know of what it leaves out."""

    title: str
    svg: str
    note: str = ""


class Card(NamedTuple):
    """One of the figures that carry the decision."""

    what: str
    figure: str
    sure: str


class Flipped(NamedTuple):
    """The answers that one side only has right: how many, and the first of them."""

    variant: str
    against: str
    total: int
    listed: Sequence[flips.Flip]


@dataclass(frozen=True)
class Workload:
    """All that the report shows of one workload."""

    name: str
    title: str
    cards_about: str
    cards: Sequence[Card]
    forest: Plot | None
    first: Table
    figures: Sequence[Table]
    definitions: Mapping[str, str]
    contrasts: Table
    accuracy: Sequence[str]
    effects: Table
    plots: Sequence[Plot]
    flips: Sequence[Flipped]


def render(
    comparison: Comparison,
    records: pd.DataFrame,
    items: pd.DataFrame | None = None,
    texts: flips.Texts | None = None,
) -> str:
    """The report. `texts` fetches output texts by item id where the records do not hold them."""
    answers = _answers(records, comparison.slow_records)
    fetch = texts or _texts_of(records)
    return _TEMPLATES.get_template("report.html.jinja").render(
        title=cells.header(comparison),
        advice=cells.texts(comparison.advice),
        why=cells.texts(comparison.why),
        warnings=cells.texts(comparison.warnings),
        published=Table(
            ("workload", "variant", "figure", "measured", "published"), cells.published_rows(comparison), words=3
        ),
        workloads=[_workload(comparison, name, answers, items, fetch) for name in comparison.workloads],
    )


def _shown(value: Any) -> Any:
    """What a template puts out: text without control characters; what it has escaped itself stays."""
    return value if isinstance(value, Markup) else plain(str(value))


_TEMPLATES: Final = Environment(
    loader=PackageLoader("farm.report", "."),
    autoescape=True,
    finalize=_shown,
    undefined=StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)
_TEMPLATES.filters["base64"] = lambda text: base64.b64encode(text.encode()).decode()


def _answers(records: pd.DataFrame, slow_records: str) -> pd.DataFrame:
    frame = checked(records)
    for name in ("answer", "gold"):
        frame[name] = records[name].to_numpy() if name in records.columns else None
    left_out = frame["slow_state"].to_numpy() if slow_records == EXCLUDE else np.zeros(len(frame), dtype=bool)
    answers: pd.DataFrame = frame[frame["ok"].to_numpy() & ~left_out]
    steps = answers["steps"].where(answers["steps"] > 0)
    return answers.assign(request_tpot_ms=1000 * answers["decode_s"] / steps)


def _texts_of(records: pd.DataFrame) -> flips.Texts:
    def fetch(item_ids: Iterable[str]) -> pd.DataFrame:
        columns = ["workload", "variant", "item_id", "repeat", "output_text"]
        if "output_text" not in records.columns:
            return pd.DataFrame(columns=columns)
        return records.loc[records["item_id"].isin(list(item_ids)).to_numpy(), columns]

    return fetch


def _workload(
    comparison: Comparison, name: str, answers: pd.DataFrame, items: pd.DataFrame | None, texts: flips.Texts
) -> Workload:
    workload = comparison.workloads[name]
    own = answers[(answers["workload"] == name).to_numpy()]
    paired = [one for one in workload.contrasts if one.pairs]
    mark = cells.mark(comparison)
    columns = _columns(workload.variants)
    about, cards = _cards(comparison, name) if paired else ("", [])
    return Workload(
        name=name,
        title=cells.workload_title(comparison, name),
        cards_about=about,
        cards=cards,
        forest=Plot("Ratios with their 95 % intervals", plots.forest(paired, mark)) if paired else None,
        first=_first_table(comparison, name),
        figures=_figures(workload.variants, comparison.baseline, columns),
        definitions={column.heading: column.definition for column in columns},
        contrasts=_contrasts(workload.contrasts),
        accuracy=[
            f"{cells.accuracy_line(c)}; Holm {p_value(c.accuracy.mcnemar_mid_p_holm)}."
            for c in workload.contrasts
            if c.accuracy
        ],
        effects=_effects(workload.effects),
        plots=_plots(workload.variants, own, mark),
        flips=_flips(workload.contrasts, name, answers, items, texts),
    )


def _cards(comparison: Comparison, name: str) -> tuple[str, list[Card]]:
    """Speed, latency and accuracy of the variant that the decision is about, and which contrast they are of."""
    contrasts = against_baseline(comparison, name)
    if not contrasts:
        return "", []
    chosen = picked_or_nearest(comparison, name)
    found = next(one for one in contrasts if one.variant == chosen)
    cards = [
        Card("decode throughput", *ratio_parts(found.throughput_ratio)),
        Card("mean latency", *change_parts(found.mean_latency_change)),
    ]
    if found.accuracy:
        cards.append(Card("accuracy", found.accuracy.verdict, points(found.accuracy)))
    return f"{found.variant} over {found.against}, {found.pairs:,} paired items; 95 % intervals in brackets", cards


def _first_table(comparison: Comparison, name: str) -> Table:
    rows = [
        [f"{one_line(f'{cell.figure} {cell.note}')}\n{one_line(cell.sure)}" for cell in row]
        for row in cells.rows(comparison, name)
    ]
    return Table(cells.heads(comparison, name), rows)


def _columns(variants: Mapping[str, VariantFigures]) -> list[Variant]:
    watched = any(one.energy_answers or one.sm_clock_mhz is not None for one in variants.values())
    known = [column for column in VARIANT_COLUMNS if watched or not column.telemetry]
    return [column for column in known if column.key not in _BEHIND_ACCURACY]


def _figures(variants: Mapping[str, VariantFigures], baseline: str, columns: Iterable[Variant]) -> list[Table]:
    """The variants side by side, as many as a page's width holds, the baseline in each table."""
    others = [name for name in variants if name != baseline]
    tables = []
    for first in range(0, max(len(others), 1), _BESIDE_BASELINE):
        names = [name for name in (baseline, *others[first : first + _BESIDE_BASELINE]) if name in variants]
        rows = [
            [column.heading, *(f"{column.text(variants[name])}\n{column.range_text(variants[name])}" for name in names)]
            for column in columns
        ]
        tables.append(Table(["", *names], rows))
    return tables


def _contrasts(contrasts: Sequence[Contrast]) -> Table:
    rows = []
    for c in contrasts:
        parts = c.latency_parts
        shares = (parts.ttft, parts.output_length, parts.per_token) if parts else (None, None, None)
        rows.append(
            [
                f"{one_line(c.variant)}\nover {one_line(c.against)}",
                f"{c.pairs:,}",
                "\n".join(ratio_parts(c.throughput_ratio)),
                f"{p_value(c.throughput_p)}\nHolm {p_value(c.throughput_p_holm)}",
                "\n".join(ratio_parts(c.per_request_throughput_ratio)),
                "\n".join(change_parts(c.mean_latency_change)),
                *(percent(part) for part in shares),
            ]
        )
    heads = ("contrast", "pairs", "throughput", "p", "throughput, mean of requests", "mean latency", "of it TTFT",
             "output length", "time per token")  # fmt: skip
    return Table(heads, rows)


def _effects(effects: Sequence[EffectEstimate]) -> Table:
    rows = [
        [f"{e.name}, {e.kind}", ratio(e.throughput_ratio), p_value(e.throughput_p_holm),
         change(e.mean_latency_change)]
        for e in effects
    ]  # fmt: skip
    return Table(("effect", "throughput", "p (Holm)", "mean latency"), rows)


def _plots(figures: Mapping[str, VariantFigures], answers: pd.DataFrame, mark: str) -> list[Plot]:
    variants = list(figures)
    out = []
    if len(answers):
        latency = plots.ecdf(answers, variants, "latency_s", "seconds", mark)
        out.append(Plot("Latency: share of answers within it", latency))
        tokens = plots.ecdf(answers, variants, "completion_tokens", "completion tokens", mark)
        out.append(Plot("Output lengths: share of answers within them", tokens))
    drafts = {name: one.accept_histogram for name, one in figures.items() if one.accept_histogram}
    if drafts:
        out.append(Plot("Accepted drafts", plots.accepted_drafts(drafts, variants, mark)))
    timed = answers["node"].notna().to_numpy() & answers["request_tpot_ms"].notna().to_numpy()
    if "started_at" in answers.columns and timed.any():
        nodes, known = plots.nodes_to_draw(answers[timed]), answers.loc[timed, "node"].nunique()
        note = f"{len(nodes)} of {known} nodes, the slowest first" if len(nodes) < known else ""
        along = plots.tpot_along_time(answers[timed], nodes, variants, mark)
        out.append(Plot("Time per token along the sweep", along, note))
    return out


def _flips(
    contrasts: Iterable[Contrast],
    name: str,
    answers: pd.DataFrame,
    items: pd.DataFrame | None,
    texts: flips.Texts,
) -> list[Flipped]:
    out = []
    for contrast in contrasts:
        if contrast.accuracy and "baseline" in contrast.kinds:
            found = flips.find(answers, name, contrast.variant, contrast.against)
            listed = flips.describe(found, contrast, name, items, texts(found["item_id"].head(flips.MOST)))
            if listed:
                out.append(Flipped(contrast.variant, contrast.against, len(found), listed))
    return out
