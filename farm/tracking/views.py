"""The comparison of a sweep, as the runs show it."""

from __future__ import annotations

from dataclasses import dataclass

from farm.compare.model import Comparison
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

    figures: Comparison
    comparison: Comparison | None
    table: str
    report: str | None


def make_views(results: Results, *, with_report: bool) -> Views:
    """Compare what is there so far."""
    # Imported here because statistics and plots take time to load, and bad input should not wait for them.
    from farm.compare import compare, figures_alone
    from farm.report import html as report
    from farm.report import markdown

    try:
        comparison = compare(results.records, results.sweep, results.engines, results.items)
    except InputError as error:
        return Views(figures_alone(results.records, results.sweep), None, f"No comparison: {error}", None)
    html = report.render(comparison, results.records, results.items) if with_report else None
    return Views(comparison, comparison, markdown.render(comparison), html)
