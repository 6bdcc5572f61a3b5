"""Figures as text: lines for the terminal, and the Markdown of benchmarks/README.md.

Promises: pure functions of the figures that ``benchmarks.measure`` prints.
Called by ``benchmarks.run``; the page with plots is ``benchmarks.page``.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.verdict import OURS, Figures, best_baseline, better_baselines

BEGIN = "<!-- figures: written by python -m benchmarks --readme -->"
END = "<!-- end of figures -->"
COLUMNS = {
    "goodput": ("kept", "aged", "goodput", "admission"),
    "waiting": ("aged-waiting", "waiting"),
    "disruption": ("disruption",),
    "preference": ("preference",),
    "bandwidth": ("bandwidth",),
    "growth": ("growth",),
    "span": ("span",),
    "stranded": ("stranded",),
    "stability": ("stability",),
}
"""Columns of the table and the tier families each stands for."""

MILESTONES = {"first_s": "first plan", "near_s": "within 1 %", "proof_s": "proven"}
"""Figures that are seconds, in words. Span and stranded are near within 5 %."""


def lines(figures: Figures) -> Iterator[str]:
    """The figures of one case for a terminal."""
    if "failed" in figures:
        yield f"{figures['case']}: failed: {figures['failed']}"
        return
    yield f"{figures['case']}: {figures['instance']}"
    plans = figures["plans"]
    violations = sum(len(plan["violations"]) for plan in plans.values())
    yield (
        f"  {figures['outcome']}, stopped by {figures['stopped_by']}, {figures['solve_s']:.1f} s,"
        f" {figures['peak_mib']} MiB, {violations} violations"
    )
    yield "  " + ", ".join(f"{what} {_seconds(figures[key])}" for key, what in MILESTONES.items())
    rows = [("tier", "value", "best", "bound", "gap", "proof", "s")]
    for tier in collapsed(figures["tiers"]):
        seconds = "-" if tier["s"] is None else f"{tier['s']:.2f}"
        numbers = (f"{tier[key]:,}" for key in ("value", "best", "bound"))
        rows.append((tier["name"], *numbers, percent(tier["gap"]), tier["proof"] or "-", seconds))
    widths = [max(len(row[column]) for row in rows) for column in range(7)]
    for row in rows:
        cells = [row[0].ljust(widths[0])]
        cells += [cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True)]
        yield "  " + "  ".join(cells).rstrip()
    best, better = best_baseline(figures), better_baselines(figures)
    if best is not None:
        yield f"  best baseline {best}; better than ours: {', '.join(better) or 'none'}"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f} s"


def collapsed(tiers: list[dict[str, Any]], most: int = 20) -> list[dict[str, Any]]:
    """The tiers; where there are hundreds, one row a family: sums, the largest gap, the last second."""
    if len(tiers) <= most:
        return tiers
    families: dict[str, list[dict[str, Any]]] = {}
    for tier in tiers:
        families.setdefault(tier["name"].split("/")[0], []).append(tier)
    return [_together(family, members) for family, members in families.items()]


def _together(family: str, members: list[dict[str, Any]]) -> dict[str, Any]:
    proofs = {tier["proof"] for tier in members}
    weakest = next((proof for proof in (None, "numerical", "exact") if proof in proofs), None)
    seconds = [tier["s"] for tier in members if tier["s"] is not None]
    near = [tier["near_s"] for tier in members]
    return {
        "name": family if len(members) == 1 else f"{family} ({len(members)} tiers)",
        **{key: sum(tier[key] for tier in members) for key in ("value", "best", "bound")},
        "gap": max(tier["gap"] for tier in members),
        "proof": weakest,
        "s": max(seconds, default=None),
        "near_s": None if None in near else max(second for second in near if second is not None),
    }


def percent(gap: float) -> str:
    """A gap in percent: 0 only where it is 0; above 1000 % the number says nothing."""
    if gap == 0:
        return "0"
    if gap > 10:
        return "> 1000%"
    return f"{gap:.0%}" if gap > 1 else f"{gap:.2%}"


def markdown(
    figures: dict[str, Figures], startup: dict[str, float], missed: list[str]
) -> Iterator[str]:
    """The whole report: gaps and times, the comparison, start-up, and what misses its limit."""
    if figures:
        yield from _search_table(figures)
        yield ""
        yield from _comparison_table(figures)
        yield ""
    if startup:
        yield "| command | s |"
        yield "|---|---|"
        yield from (f"| `gangplan {name}` | {seconds:.3f} |" for name, seconds in startup.items())
        yield ""
    if missed:
        yield "Figures that miss expected.yaml:"
        yield ""
        yield from (f"- {text}" for text in missed)
    else:
        yield "Every figure is within expected.yaml."


def _search_table(figures: dict[str, Figures]) -> Iterator[str]:
    """One row a case with its largest gap by tier family."""
    columns = ("case", "outcome", "s", "MiB", *MILESTONES.values(), *COLUMNS)
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for case, found in figures.items():
        if "failed" in found:
            yield f"| {case} | failed |" + " |" * (len(columns) - 2)
            continue
        cells = [case, found["outcome"], f"{found['solve_s']:.1f}", str(found["peak_mib"])]
        cells += [_seconds(found[key]).removesuffix(" s") for key in MILESTONES]
        cells += [_largest(found["tiers"], families) for families in COLUMNS.values()]
        yield "| " + " | ".join(cells) + " |"


def _comparison_table(figures: dict[str, Figures]) -> Iterator[str]:
    """Two rows a case: ours and the best baseline."""
    columns = ("case", "plan", "effective GPUs by priority", "GPU x GB/s", "span", "stranded", "s")
    yield "| " + " | ".join(columns) + " |"
    yield "|---" * len(columns) + "|"
    for case, found in figures.items():
        for name in (OURS, best_baseline(found)) if "plans" in found else ():
            if name is None:
                continue
            plan = found["plans"][name]
            cells = [case, name, effective(plan), f"{plan['gpu_GBps']:,}"]
            cells += [
                "-" if plan[key] is None else f"{plan[key]:,}" for key in ("span", "stranded")
            ]
            yield "| " + " | ".join([*cells, f"{plan['s']:.1f}"]) + " |"


def effective(plan: dict[str, Any], most: int = 6) -> str:
    """Effective GPUs, the highest priority first; of very many priorities the sum."""
    gpus = list(plan["effective"].values())
    return " / ".join(f"{n:,}" for n in gpus) if len(gpus) <= most else f"{sum(gpus):,} in all"


def machine_line(stamp: dict[str, Any]) -> str:
    """The machine and the program in one sentence."""
    return (
        f"{stamp['cores']} cores, {stamp['machine']}, Python {stamp['python']}, OR-Tools {stamp['ortools']},"
        f" numpy {stamp['numpy']}, commit {stamp['commit']}, {stamp['date']}. Seeds are those of"
        " benchmarks/instances.py. Gaps are the largest of the tier family."
    )


def _largest(tiers: list[dict[str, Any]], families: tuple[str, ...]) -> str:
    """The largest gap among the tiers of these families; a dash where the case has none of them."""
    gaps = [tier["gap"] for tier in tiers if tier["name"].split("/")[0] in families]
    return percent(max(gaps)) if gaps else "-"


def into_readme(readme: Path, rows: list[str]) -> None:
    """Put the rows between the markers of the file. Raises ValueError if it has none."""
    before, _, rest = readme.read_text(encoding="utf-8").partition(BEGIN)
    _, end, after = rest.partition(END)
    if not end:
        raise ValueError(f"{readme}: no figures between {BEGIN} and {END}")
    text = "\n".join((before + BEGIN, "", *rows, "", END + after))
    readme.write_text(text, encoding="utf-8")
