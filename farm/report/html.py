"""One self-contained HTML file: the first screen, all figures, the plots, and the answers that flipped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from farm.compare.caveats import EXCLUDE
from farm.compare.metrics import checked
from farm.compare.model import (
    Comparison,
    Contrast,
    EffectEstimate,
    VariantFigures,
    WorkloadComparison,
)
from farm.compare.words import change, change_parts, p_value, percent, ratio, ratio_parts
from farm.report import cells, flips, plots
from farm.report.columns import VARIANT_COLUMNS, Variant
from farm.text import for_html, one_line

_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; max-width: 62rem; margin: 1.5rem auto;
  padding: 0 1rem; }
table { border-collapse: collapse; margin: .6rem 0 1rem; font-size: 13px; }
th, td { border-bottom: 1px solid #bbb; padding: .25rem .55rem; text-align: right; vertical-align: top; }
.w { text-align: left; }
td { white-space: nowrap; }
small { color: #444; }
.mark { border: 2px solid #000; background: #ffe08a; padding: .4rem .7rem; font-weight: bold; }
.do li { font-weight: 600; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; border: 1px solid #ccc; padding: .5rem;
  max-height: 24rem; overflow: auto; }
img { max-width: 100%; min-width: 36rem; height: auto; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; }
@media print { pre { max-height: none; } h2 { break-before: page; } table, img { break-inside: avoid; } }
"""


def render(
    comparison: Comparison,
    records: pd.DataFrame,
    items: pd.DataFrame | None = None,
    texts: flips.Texts | None = None,
) -> str:
    """The report. `texts` fetches output texts by item id where the records do not hold them."""
    answers = _answers(records, comparison.slow_records)
    title = cells.header(comparison)
    body = [f"<h1>{for_html(title)}</h1>", _mark(comparison)]
    for name in comparison.workloads:
        body.append(_first_table(comparison, name))
    body += [
        _section("What to do", comparison.advice, "do"),
        _section("Why", comparison.why),
        _section("Warnings", comparison.warnings),
        _published(comparison),
    ]
    for name in comparison.workloads:
        body.append(_workload(comparison, name, answers))
        body.append(_flips(comparison, name, answers, items, texts or _texts_of(records)))
    return (
        f'<!doctype html>\n<html lang="en"><head><meta charset="utf-8"><title>{for_html(title)}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">\n'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>\n<body>\n'
        + "\n".join(part for part in body if part)
        + "\n</body></html>\n"
    )


def _answers(records: pd.DataFrame, slow_records: str) -> pd.DataFrame:
    frame = checked(records)
    for name in ("answer", "gold"):
        frame[name] = records[name].to_numpy() if name in records.columns else None
    left_out = frame["slow_state"].to_numpy() if slow_records == EXCLUDE else np.zeros(len(frame), dtype=bool)
    answers: pd.DataFrame = frame[frame["ok"].to_numpy() & ~left_out]
    many = (answers["completion_tokens"] > 1).to_numpy()
    steps = np.where(many, answers["completion_tokens"] - 1, np.nan)
    return answers.assign(request_tpot_ms=1000 * answers["decode_s"] / steps)


def _texts_of(records: pd.DataFrame) -> flips.Texts:
    def fetch(item_ids: Iterable[str]) -> pd.DataFrame:
        columns = ["workload", "variant", "item_id", "repeat", "output_text"]
        if "output_text" not in records.columns:
            return pd.DataFrame(columns=columns)
        return records.loc[records["item_id"].isin(list(item_ids)).to_numpy(), columns]

    return fetch


def _mark(comparison: Comparison) -> str:
    mark = cells.mark(comparison)
    return f'<p class="mark">{for_html(mark)}</p>' if mark else ""


def _section(title: str, lines: Sequence[str], style: str = "") -> str:
    if not lines:
        return ""
    listed = "".join(f"<li>{for_html(line)}</li>" for line in lines)
    return f'<h3>{title}</h3><ul class="{style}">{listed}</ul>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Cells are escaped; what follows a line break is in small print. The first `words` columns are words."""
    kinds = ["w" if place < words else "n" for place in range(len(heads))]
    top = "".join(f'<th class="{kind}">{for_html(head)}</th>' for kind, head in zip(kinds, heads, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f"<table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table>"


def _cell(text: str) -> str:
    first, _, rest = text.partition("\n")
    return for_html(first) + (f"<br><small>{for_html(rest)}</small>" if rest else "")


def _first_table(comparison: Comparison, name: str) -> str:
    rows = [
        [f"{one_line(f'{cell.figure} {cell.note}')}\n{one_line(cell.sure)}" for cell in row]
        for row in cells.rows(comparison, name)
    ]
    return f"<h3>{for_html(cells.workload_title(comparison, name))}</h3>" + _table(cells.heads(comparison, name), rows)


def _published(comparison: Comparison) -> str:
    rows = cells.published_rows(comparison)
    if not rows:
        return ""
    heads = ("workload", "variant", "figure", "measured", "published")
    return "<h3>Published figures beside the measured ones</h3>" + _table(heads, rows, words=3)


def _workload(comparison: Comparison, name: str, answers: pd.DataFrame) -> str:
    workload = comparison.workloads[name]
    own = answers[(answers["workload"] == name).to_numpy()]
    parts = [
        f"<h2>{for_html(cells.workload_title(comparison, name))}</h2>",
        "<h3>Figures, each with its 95 % interval</h3>",
        _figures(workload.variants),
        "<h3>Contrasts</h3>",
        _contrasts(workload.contrasts),
        _effects(workload.effects),
        *_plots(workload, own, cells.mark(comparison)),
    ]
    return "\n".join(part for part in parts if part)


def _figures(variants: Mapping[str, VariantFigures]) -> str:
    watched = any(one.energy_answers or one.sm_clock_mhz is not None for one in variants.values())
    known = [column for column in VARIANT_COLUMNS if watched or not column.telemetry]
    shown = [column for column in known if column.key not in _BEHIND_ACCURACY]
    rows = [
        [column.heading, *(f"{column.text(one)}\n{column.range_text(one)}" for one in variants.values())]
        for column in shown
    ]
    return _table(["", *variants], rows) + _definitions(shown)


def _definitions(columns: Iterable[Variant]) -> str:
    told = {column.heading: column.definition for column in columns}
    listed = "".join(f"<dt>{for_html(name)}</dt><dd>{for_html(text)}</dd>" for name, text in told.items())
    return f"<details><summary>what each figure is</summary><dl>{listed}</dl></details>"


_BEHIND_ACCURACY: Final = ("correct", "graded")


def _contrasts(contrasts: Sequence[Contrast]) -> str:
    rows, lines = [], []
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
        if c.accuracy:
            lines.append(f"{cells.accuracy_line(c)}; Holm {p_value(c.accuracy.mcnemar_mid_p_holm)}.")
    heads = ("contrast", "pairs", "throughput", "p", "throughput, mean of requests", "mean latency", "of it TTFT",
             "output length", "time per token")  # fmt: skip
    return _table(heads, rows) + _section("Accuracy, paired", lines)


def _effects(effects: Sequence[EffectEstimate]) -> str:
    if not effects:
        return ""
    rows = [
        [f"{e.name}, {e.kind}", ratio(e.throughput_ratio), p_value(e.throughput_p_holm),
         change(e.mean_latency_change)]
        for e in effects
    ]  # fmt: skip
    heads = ("effect", "throughput", "p (Holm)", "mean latency")
    return "<h3>Main effects and interactions (an interaction of 1 means: they multiply)</h3>" + _table(heads, rows)


def _plots(workload: WorkloadComparison, answers: pd.DataFrame, mark: str) -> list[str]:
    variants = list(workload.variants)
    paired = [c for c in workload.contrasts if c.pairs]
    out = []
    if paired:
        out.append(_image("Ratios with their 95 % intervals", plots.forest(paired, mark)))
    if len(answers):
        out.append(
            _image("Latency: share of answers within it", plots.ecdf(answers, variants, "latency_s", "seconds", mark))
        )
        tokens = plots.ecdf(answers, variants, "completion_tokens", "completion tokens", mark)
        out.append(_image("Output lengths: share of answers within them", tokens))
    drafts = {name: one.accept_histogram for name, one in workload.variants.items() if one.accept_histogram}
    if drafts:
        out.append(_image("Accepted drafts", plots.accepted_drafts(drafts, variants, mark)))
    timed = answers["node"].notna().to_numpy() & answers["request_tpot_ms"].notna().to_numpy()
    if "started_at" in answers.columns and timed.any():
        out.append(_image("Time per token along the sweep", plots.tpot_along_time(answers[timed], variants, mark)))
    return out


def _image(title: str, svg: str) -> str:
    data = base64.b64encode(svg.encode()).decode()
    return f'<h3>{for_html(title)}</h3><img alt="{for_html(title)}" src="data:image/svg+xml;base64,{data}">'


def _flips(
    comparison: Comparison,
    name: str,
    answers: pd.DataFrame,
    items: pd.DataFrame | None,
    texts: flips.Texts,
) -> str:
    graded = [c for c in comparison.workloads[name].contrasts if c.accuracy and "baseline" in c.kinds]
    out = []
    for contrast in graded:
        found = flips.find(answers, name, contrast.variant, contrast.against)
        listed = flips.describe(found, contrast, name, items, texts(found["item_id"].head(flips.MOST)))
        if listed:
            shown = f"{len(listed)} of {len(found)}" if len(found) > len(listed) else f"{len(listed)}"
            head = f"Answers that flipped, {contrast.variant} over {contrast.against}: {shown}"
            out.append(f"<h3>{for_html(head)}</h3>" + "".join(_flip(one) for one in listed))
    return "\n".join(out)


def _flip(flip: flips.Flip) -> str:
    repeat = f", repeat {flip.repeat}" if flip.repeat else ""
    told = "; ".join(f"{name}: {answer or 'no answer'}" for name, answer in flip.answers.items())
    head = f"{flip.item_id}{repeat}: {flip.right} is right, expected {flip.gold or 'not recorded'}; {told}"
    question = f"<p>{for_html(flip.question)}</p>" if flip.question else ""
    sides = "".join(
        f"<div><b>{for_html(name)}</b><pre>{for_html(output)}</pre></div>" for name, output in flip.outputs.items()
    )
    full = f'<details><summary>both outputs in full</summary><div class="pair">{sides}</div></details>'
    return f"<h4>{for_html(head)}</h4>{question}{full}"
