"""The comparison of a sweep, as the runs show it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from farm.errors import InputError
from farm.tracking.results import Results


@dataclass(frozen=True)
class Views:
    """What is shown of the figures.

    Attributes:
        figures: the comparison, or in its layout the figures of each variant alone when there is nothing to compare.
        comparison: the comparison, where there is one.
        table: it as markdown, or the sentence that says why there is none.
        report: it as HTML.
    """

    figures: dict[str, Any]
    comparison: dict[str, Any] | None
    table: str
    report: str | None


def make_views(results: Results, *, with_report: bool) -> Views:
    """Compare what is there so far."""
    # Imported here because statistics and plots take time to load, and bad input should not wait for them.
    from farm.compare import compare
    from farm.report import html as report
    from farm.report import markdown

    try:
        comparison = compare(results.records, results.sweep, results.engines, results.items)
    except InputError as error:
        return Views(_figures_alone(results), None, f"No comparison: {error}", None)
    html = report.render(comparison, results.records, results.items) if with_report else None
    return Views(comparison, comparison, markdown.render(comparison), html)


def _figures_alone(results: Results) -> dict[str, Any]:
    """The figures of each variant, in the layout of a comparison without contrasts."""
    from farm.compare.figures import variant_figures
    from farm.compare.metrics import checked, workload_table
    from farm.compare.sample import sample_workload

    found: dict[str, Any] = {}
    if results.answered.empty:
        return found
    frame = checked(results.records)
    for name in results.sweep["workloads"]:
        table = workload_table(frame, name)
        there = [variant for variant in results.sweep["variants"] if len(table.of(variant))]
        if not there:
            continue  # interrupted before the workload's first answer
        sample = sample_workload(table, there, [])
        found[name] = {"variants": {variant: variant_figures(sample, variant, results.records) for variant in there}}
    return {"baseline": results.sweep.get("baseline"), "workloads": found}
