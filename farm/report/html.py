"""One self-contained HTML file: the first screen, all figures, the plots, and the answers that flipped."""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import numpy as np
import pandas as pd

from farm.compare.decision import against_baseline, picked_or_nearest
from farm.compare.metrics import checked
from farm.compare.model import (
    Comparison,
    Contrast,
    EffectEstimate,
    VariantFigures,
    WorkloadComparison,
)
from farm.compare.warnings import EXCLUDE
from farm.compare.words import change, change_parts, p_value, percent, points, ratio, ratio_parts
from farm.report import cells, flips, plots
from farm.report.columns import VARIANT_COLUMNS, Variant
from farm.text import for_html, one_line

_POLICY: Final = "default-src 'none'; img-src data:; style-src 'unsafe-inline'"
_STYLE: Final = """
body { font: 15px/1.45 system-ui, sans-serif; color: #111; background: #fff; max-width: 62rem; margin: 1.5rem auto;
  padding: 0 1rem; overflow-wrap: anywhere; }
h1 { font-size: 1.05rem; font-weight: 600; margin: 0 0 .4rem; padding-bottom: .4rem; border-bottom: 2px solid #111; }
h2 { font-size: 1.25rem; margin: 2rem 0 .5rem; }
h3 { font-size: 1.02rem; margin: 1.2rem 0 .3rem; }
nav { font-size: 13px; margin: .2rem 0 1rem; }
nav a { margin-right: 1rem; color: #0a5a9c; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; margin: .6rem 0 1rem; font-size: 13px; }
th, td { border-bottom: 1px solid #bbb; padding: .25rem .55rem; text-align: right; vertical-align: top; }
.w { text-align: left; }
td { white-space: nowrap; }
small { color: #444; }
.do { font-size: 1.08rem; padding-left: 1.1rem; }
.cards { display: flex; flex-wrap: wrap; gap: .7rem; margin: .5rem 0; }
.card { flex: 1 1 12rem; border: 1px solid #ccc; border-radius: 6px; padding: .5rem .8rem; }
.card b { display: block; font-size: 1.6rem; line-height: 1.25; }
.card span { color: #444; font-size: 13px; }
pre { white-space: pre-wrap; overflow-wrap: anywhere; background: #f4f4f4; border: 1px solid #ccc; padding: .5rem;
  max-height: 24rem; overflow: auto; }
dt { font-weight: 600; }
img { max-width: 100%; min-width: 36rem; height: auto; }
.pair { display: grid; grid-template-columns: 1fr 1fr; gap: .8rem; }
@media (max-width: 30rem) { .pair { grid-template-columns: 1fr; } body { margin: .8rem auto; } }
@media print { pre { max-height: none; } nav { display: none; } .wide { overflow: visible; } img { min-width: 0; }
  .page { break-before: page; } table, img, .card { break-inside: avoid; } }
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
    names = list(comparison.workloads)
    body = [f"<h1>{for_html(title)}</h1>", _contents(comparison)]
    body.append(_section("What to do", cells.texts(comparison.advice), "do", "do"))
    body += [_in_short(comparison, name) for name in names]
    body.append('<h2 class="page" id="figures">All variants</h2>')
    body += [_first_table(comparison, name) for name in names]
    body += [
        _section("Why", cells.texts(comparison.why), anchor="why"),
        _section("Warnings", cells.texts(comparison.warnings), anchor="warnings"),
        _published(comparison),
    ]
    for index, name in enumerate(names):
        body.append(_workload(comparison, name, answers, f"workload-{index}"))
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
    steps = answers["steps"].where(answers["steps"] > 0)
    return answers.assign(request_tpot_ms=1000 * answers["decode_s"] / steps)


def _texts_of(records: pd.DataFrame) -> flips.Texts:
    def fetch(item_ids: Iterable[str]) -> pd.DataFrame:
        columns = ["workload", "variant", "item_id", "repeat", "output_text"]
        if "output_text" not in records.columns:
            return pd.DataFrame(columns=columns)
        return records.loc[records["item_id"].isin(list(item_ids)).to_numpy(), columns]

    return fetch


def _contents(comparison: Comparison) -> str:
    links = [("do", "What to do"), ("figures", "All variants"), ("why", "Why"), ("warnings", "Warnings")]
    answered = {
        "do": comparison.advice,
        "why": comparison.why,
        "warnings": comparison.warnings,
    }
    links = [(anchor, name) for anchor, name in links if answered.get(anchor, True)]
    links += [(f"workload-{index}", f"{name} in full") for index, name in enumerate(comparison.workloads)]
    return "<nav>" + "".join(f'<a href="#{anchor}">{for_html(name)}</a>' for anchor, name in links) + "</nav>"


def _in_short(comparison: Comparison, name: str) -> str:
    """What carries the decision on one workload: three figures, and the ratios of all contrasts."""
    paired = [one for one in comparison.workloads[name].contrasts if one.pairs]
    if not paired:
        return ""
    return (
        f"<h2>{for_html(cells.workload_title(comparison, name))}</h2>"
        + _cards(comparison, name)
        + _image("Ratios with their 95 % intervals", plots.forest(paired, cells.mark(comparison)))
    )


def _cards(comparison: Comparison, name: str) -> str:
    """Speed, latency and accuracy of the variant that the decision is about."""
    contrasts = against_baseline(comparison, name)
    if not contrasts:
        return ""
    chosen = picked_or_nearest(comparison, name)
    found = next(one for one in contrasts if one.variant == chosen)
    cards = [("decode throughput", *ratio_parts(found.throughput_ratio))]
    cards.append(("mean latency", *change_parts(found.mean_latency_change)))
    if found.accuracy:
        cards.append(("accuracy", found.accuracy.verdict, points(found.accuracy)))
    shown = "".join(
        f'<div class="card"><span>{for_html(what)}</span><b>{for_html(figure or "-")}</b>'
        f"<span>{for_html(sure)}</span></div>"
        for what, figure, sure in cards
    )
    about = f"{found.variant} over {found.against}, {found.pairs:,} paired items; 95 % intervals in brackets"
    return f'<p>{for_html(about)}</p><div class="cards">{shown}</div>'


def _section(title: str, lines: Sequence[str], style: str = "", anchor: str = "") -> str:
    if not lines:
        return ""
    listed = "".join(f"<li>{for_html(line)}</li>" for line in lines)
    index = f' id="{anchor}"' if anchor else ""
    return f'<h3{index}>{title}</h3><ul class="{style}">{listed}</ul>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int = 1) -> str:
    """Cells are escaped; what follows a line break is in small print. The first `words` columns are words."""
    kinds = ["w" if index < words else "n" for index in range(len(heads))]
    top = "".join(f'<th class="{kind}">{for_html(head)}</th>' for kind, head in zip(kinds, heads, strict=True))
    lines = "".join(
        "<tr>"
        + "".join(f'<td class="{kind}">{_cell(cell)}</td>' for kind, cell in zip(kinds, row, strict=True))
        + "</tr>"
        for row in rows
    )
    return f'<div class="wide"><table><thead><tr>{top}</tr></thead><tbody>{lines}</tbody></table></div>'


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


def _workload(comparison: Comparison, name: str, answers: pd.DataFrame, anchor: str) -> str:
    workload = comparison.workloads[name]
    own = answers[(answers["workload"] == name).to_numpy()]
    parts = [
        f'<h2 class="page" id="{anchor}">{for_html(cells.workload_title(comparison, name))}</h2>',
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
    answered = {column.heading: column.definition for column in columns}
    listed = "".join(f"<dt>{for_html(name)}</dt><dd>{for_html(text)}</dd>" for name, text in answered.items())
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
    out = []
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
    image = f'<img alt="{for_html(title)}" src="data:image/svg+xml;base64,{data}">'
    return f'<h3>{for_html(title)}</h3><div class="wide">{image}</div>'


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
    answered = "; ".join(f"{name}: {answer or 'no answer'}" for name, answer in flip.answers.items())
    head = f"{flip.item_id}{repeat}: {flip.right} is right, expected {flip.gold or 'not recorded'}; {answered}"
    question = f"<p>{for_html(flip.question)}</p>" if flip.question else ""
    sides = "".join(
        f"<div><b>{for_html(name)}</b><pre>{for_html(output)}</pre></div>" for name, output in flip.outputs.items()
    )
    full = f'<details><summary>both outputs in full</summary><div class="pair">{sides}</div></details>'
    return f"<h4>{for_html(head)}</h4>{question}{full}"
