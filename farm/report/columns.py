"""The cells of the comparison table, and the header line, the same in every view."""

from __future__ import annotations

from typing import Any, Final, NamedTuple

from farm.compare.words import change_parts, number, p_value, points, ratio_parts, signed

COLUMNS: Final = (
    "variant",
    "answers",
    "TPOT ms",
    "tokens/s",
    "TTFT s",
    "mean latency s",
    "accept length",
    "accuracy, pp",
)
ENERGY: Final = "J/token"


def header(comparison: dict[str, Any]) -> str:
    """One line: which sweep, its label in capitals, whole or partial."""
    sweep = comparison["sweep"]
    parts = [f"Sweep {sweep['name'] or sweep['sweep_id'] or 'without a name'}"]
    if sweep["name"] and sweep["sweep_id"]:
        parts[0] += f" ({sweep['sweep_id']})"
    if sweep["label"]:
        parts.append(sweep["label"].upper())
    whole = f"{sweep['cells_answered']:,} of {sweep['cells_planned']:,} cells"
    parts.append(f"complete, {whole}" if sweep["complete"] else f"PARTIAL: {whole}")
    parts.append(f"baseline {comparison['baseline']}")
    return " | ".join(parts)


def mark(comparison: dict[str, Any]) -> str:
    """What every table and plot of a labelled or partial sweep carries; empty for a whole one of a real model."""
    sweep = comparison["sweep"]
    marks = [sweep["label"].upper()] if sweep["label"] else []
    return " | ".join(marks if sweep["complete"] else [*marks, "PARTIAL"])


def workload_title(comparison: dict[str, Any], name: str) -> str:
    """Name, what it is, how many items, and the mark."""
    workload, marked = comparison["workloads"][name], mark(comparison)
    title = name if workload["title"] == name else f"{name}: {workload['title']}"
    return f"{title}, {workload['items']:,} items" + (f" [{marked}]" if marked else "")


def columns(comparison: dict[str, Any], name: str) -> list[str]:
    """Heads of the table of a workload: energy has a column only where some variant's is known."""
    return [*COLUMNS, *([ENERGY] if _has_energy(comparison["workloads"][name]) else [])]


def _has_energy(workload: dict[str, Any]) -> bool:
    return any(figures["energy_j_per_token"] for figures in workload["variants"].values())


class Cell(NamedTuple):
    """A figure, what the contrast with the baseline makes of it, and how sure that is."""

    figure: str
    note: str = ""
    sure: str = ""


def rows(comparison: dict[str, Any], name: str) -> list[list[Cell]]:
    """One row for each variant, in the order of `columns`."""
    workload = comparison["workloads"][name]
    contrasts = {c["variant"]: c for c in workload["contrasts"] if c["against"] == comparison["baseline"]}
    with_energy = _has_energy(workload)
    return [
        _row(variant, figures, contrasts.get(variant))
        + ([_energy(figures, contrasts.get(variant))] if with_energy else [])
        for variant, figures in workload["variants"].items()
    ]


def _row(variant: str, figures: dict[str, Any], contrast: dict[str, Any] | None) -> list[Cell]:
    speed, latency = number(figures["decode_tokens_per_s"]["value"]), number(figures["latency_s"]["mean"])
    against: dict[str, Any] = contrast or {"throughput_ratio": None, "mean_latency_change": None, "accuracy": None}
    return [
        Cell(variant),
        Cell(f"{figures['requests']:,}", sure=_losses(figures)),
        Cell(number(figures["tpot_ms"]["value"])),
        Cell(speed, *ratio_parts(against["throughput_ratio"])),
        Cell(number(figures["ttft_s"]["mean"], 3)),
        Cell(latency, *change_parts(against["mean_latency_change"])),
        Cell(number(figures["accept_length"])),
        _accuracy(figures["accuracy"], against["accuracy"]),
    ]


def _energy(figures: dict[str, Any], contrast: dict[str, Any] | None) -> Cell:
    energy = figures["energy_j_per_token"]
    if energy is None:
        return Cell("-")
    return Cell(number(energy["value"]), *ratio_parts((contrast or {}).get("energy_per_token_ratio")))


def _losses(figures: dict[str, Any]) -> str:
    parts = [f"{figures[name]:,} {word}" for name, word in (("errors", "err"), ("truncated", "cut")) if figures[name]]
    return ", ".join(parts)


def _accuracy(accuracy: dict[str, Any] | None, contrast: dict[str, Any] | None) -> Cell:
    share = "-" if accuracy is None else f"{100 * accuracy['value']:.2f} %"
    if contrast is None:
        return Cell(share)
    return Cell(share, signed(contrast["difference_pp"], 2), contrast["verdict"])


def accuracy_line(contrast: dict[str, Any]) -> str:
    """The accuracy contrast in one sentence with all its tests."""
    a = contrast["accuracy"]
    return (
        f"{contrast['variant']} against {contrast['against']}: {points(a)}, {a['verdict']}; "
        f"both right {a['both']:,}, only {contrast['against']} {a['only_against']:,}, only {contrast['variant']} "
        f"{a['only_variant']:,}, neither {a['neither']:,}; McNemar exact {p_value(a['mcnemar_exact_p'])}, mid-"
        f"{p_value(a['mcnemar_mid_p'])}; equivalence within {a['margin_pp']:g} pp {p_value(a['tost_p'])}; "
        f"{a['questions']:,} questions can show {a['detectable_pp']:.1f} pp"
    )


def published_rows(comparison: dict[str, Any]) -> list[list[str]]:
    """Published figures beside the measured ones: workload, variant, figure, measured, published."""
    return [
        [row["workload"], row["variant"], row["figure"], f"{row['measured']:.4g}", f"{row['published']:.4g}"]
        for row in comparison.get("published") or []
    ]
