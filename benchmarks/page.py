"""The report as one HTML page that needs nothing else: plots drawn as SVG, styles inside.

Promises: a pure function of the figures that ``benchmarks.measure`` prints.
Called by ``benchmarks.run``.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator
from html import escape

from benchmarks.report import MILESTONES, collapsed, effective, percent
from benchmarks.verdict import OURS, Figures, best_baseline, better_baselines

STYLE = """
:root { --ink: #1c2330; --soft: #66707f; --line: #d9dee6; --paper: #fff;
        --ours: #1769aa; --theirs: #a9b4c2; --bad: #b3261e }
@media (prefers-color-scheme: dark) {
  :root { --ink: #e6e9ee; --soft: #9aa4b2; --line: #333b47; --paper: #14181f;
          --ours: #5aa9e6; --theirs: #56616f; --bad: #ff8a80 }
}
body { font: 15px/1.5 system-ui, sans-serif; color: var(--ink); background: var(--paper);
       margin: 2rem auto; max-width: 72rem; padding: 0 1rem }
h2 { margin-top: 3rem; border-bottom: 1px solid var(--line) }
.soft { color: var(--soft) } .bad { color: var(--bad) }
table { border-collapse: collapse; margin: 1rem 0 }
td, th { padding: .15rem .7rem; text-align: right }
th { border-bottom: 1px solid var(--line); font-weight: 600 }
td:first-child, th:first-child { text-align: left; padding-left: 0 }
.plots { display: flex; flex-wrap: wrap; gap: 1.5rem }
figure { margin: 0 } figcaption { font-weight: 600 }
svg text { fill: var(--ink); font: 12px system-ui, sans-serif } svg .soft { fill: var(--soft) }
.ours { fill: var(--ours) } .theirs { fill: var(--theirs) } .grid { stroke: var(--line) }
"""

PALETTE = ("#1769aa", "#c2571a", "#2e7d32", "#8e24aa")

WIDTH, ROW, LABEL = 500, 20, 140
"""Of a bar chart, pixels: its width, a row's height, the width of the labels."""

Point = tuple[float, float]


def page(
    figures: dict[str, Figures], startup: dict[str, float], missed: list[str], machine: str
) -> str:
    """The whole document."""
    searched = {case: found for case, found in figures.items() if "plans" in found}
    parts = [
        '<!doctype html><html lang="en"><meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        f"<title>gangplan: benchmarks</title><style>{STYLE}</style><h1>gangplan: benchmarks</h1>",
        f'<p class="soft">{escape(machine)}</p>',
        *_verdict(missed),
        *_growth(searched),
        *_overview(searched),
        *_startup(startup),
    ]
    for case, found in figures.items():
        parts += _case(case, found) if "plans" in found else _other(case, found)
    return "\n".join(parts) + "\n</html>\n"


def _verdict(missed: list[str]) -> Iterator[str]:
    if not missed:
        yield "<p>Every figure is within expected.yaml.</p>"
        return
    yield f'<p class="bad">{len(missed)} figures miss expected.yaml:</p><ul>'
    yield from (f"<li>{escape(text)}</li>" for text in missed)
    yield "</ul>"


def _overview(figures: dict[str, Figures]) -> Iterator[str]:
    columns = ("case", "nodes", "outcome", "s", *MILESTONES.values(), "MiB", "best baseline")
    yield "<h2>Cases</h2>"
    rows = []
    for case, found in figures.items():
        times = [_seconds(found[key]) for key in ("solve_s", *MILESTONES)]
        best = best_baseline(found) or "-"
        row = [case, f"{found['nodes']:,}", found["outcome"], *times, f"{found['peak_mib']:,}"]
        rows.append([*row, f"{best}, better than ours" if better_baselines(found) else best])
    yield _table(columns, rows)
    yield '<div class="plots">'
    for key, title in (*MILESTONES.items(), ("peak_mib", "peak MiB")):
        known = [(case, [float(found[key])]) for case, found in figures.items() if found[key]]
        unit = "" if key == "peak_mib" else " s"
        yield _bars(title, known, lambda _, total, unit=unit: f"{total:,.4g}{unit}")
    yield "</div>"


def _startup(startup: dict[str, float]) -> Iterator[str]:
    if startup:
        rows = [[f"gangplan {name}", f"{seconds:.3f}"] for name, seconds in startup.items()]
        yield _table(("command", "s"), rows)


def _other(case: str, found: Figures) -> Iterator[str]:
    yield f"<h2>{escape(case)}</h2>"
    if "failed" in found:
        yield f'<p class="bad">failed: {escape(found["failed"])}</p>'
        return
    rows = [[name, f"{seconds:.2f}"] for name, seconds in found["seconds"].items()]
    yield _table(("way to bind", "s"), rows)


def _case(case: str, found: Figures) -> Iterator[str]:
    """One case: its tiers, and every plan beside ours."""
    yield f"<h2>{escape(case)}</h2>"
    yield f'<p class="soft">{escape(found["instance"])}; seed {found["seed"]};'
    yield f" limit {found['time_limit_s']} s;"
    yield f" measured {escape(found['date'])} at {escape(found['key']['commit'])}</p>"
    rows = [
        [
            tier["name"],
            *(f"{tier[key]:,}" for key in ("value", "bound")),
            percent(tier["gap"]),
            tier["proof"] or "-",
            *(_seconds(tier[key]) for key in ("near_s", "s")),
        ]
        for tier in collapsed(found["tiers"])
    ]
    yield _table(
        ("tier", "value", "bound", "gap", "proof", "within 1 %, s", "last change, s"), rows
    )
    plans = sorted(found["plans"].items(), key=lambda item: item[1]["vector"], reverse=True)
    yield '<p class="soft">Plans from the best to the worst, tier by tier.</p><div class="plots">'
    gpus = [(name, [float(n) for n in plan["effective"].values()]) for name, plan in plans]
    texts = {name: effective(plan) for name, plan in plans}
    yield _bars("effective GPUs, highest priority first", gpus, lambda name, _: texts[name])
    for key, title in (
        ("gpu_GBps", "GPU x GB/s, more is better"),
        ("span", "span, less is better"),
        ("stranded", "stranded permille-GPU, less is better"),
        ("s", "seconds"),
    ):
        known = [(name, [float(plan[key])]) for name, plan in plans if plan[key] is not None]
        digits = 2 if key == "s" else 0
        yield _bars(title, known, lambda _, total, digits=digits: f"{total:,.{digits}f}")
    yield "</div>"


def _seconds(seconds: float | None) -> str:
    return "-" if seconds is None else f"{seconds:.2f}"


def _table(columns: tuple[str, ...], rows: list[list[str]]) -> str:
    head = "".join(f"<th>{escape(column)}</th>" for column in columns)
    body = ("".join(f"<td>{escape(cell)}</td>" for cell in row) for row in rows)
    lines = "\n".join(f"<tr>{cells}</tr>" for cells in body)
    return f"<table><tr>{head}</tr>\n{lines}</table>"


def _bars(
    title: str, rows: list[tuple[str, list[float]]], text: Callable[[str, float], str]
) -> str:
    """One bar a plan, of one part a number, later parts paler; ``text``: what stands behind it."""
    most = max((sum(parts) for _, parts in rows), default=0) or 1
    scale = (WIDTH - LABEL - 120) / most
    drawn = []
    for line, (name, parts) in enumerate(rows):
        top, left = ROW * line, float(LABEL)
        kind = "ours" if name == OURS else "theirs"
        drawn.append(
            f'<text x="{LABEL - 8}" y="{top + 14}" text-anchor="end">{escape(name)}</text>'
        )
        for number, part in enumerate(parts):
            paler = 1 - 0.6 * number / len(parts)
            drawn.append(
                f'<rect class="{kind}" x="{left:.1f}" y="{top + 3}" width="{part * scale:.1f}"'
                f' height="{ROW - 6}" opacity="{paler:.2f}"/>'
            )
            left += part * scale
        value = escape(text(name, sum(parts)))
        drawn.append(f'<text class="soft" x="{left + 6:.1f}" y="{top + 14}">{value}</text>')
    size = f'width="{WIDTH}" height="{ROW * len(rows) + 4}"'
    inside = "\n".join(drawn)
    return f'<figure><figcaption>{escape(title)}</figcaption><svg {size} role="img">{inside}</svg></figure>'


def _growth(figures: dict[str, Figures]) -> Iterator[str]:
    """Seconds against nodes for the cases that differ in size alone."""
    family = [found for case, found in figures.items() if case.startswith("busy-")]
    if len(family) < 2:
        return
    series = {
        name: [(found["nodes"], found[key]) for found in family if found[key]]
        for key, name in {**MILESTONES, "solve_s": "whole search"}.items()
    }
    near = series[MILESTONES["near_s"]]
    yield "<h2>Time against size</h2>"
    yield '<p class="soft">The cases busy-N, N servers. Within 1 %: every tier, span and stranded within 5 %.'
    missing = [f"{found['nodes']:,}" for found in family if not found["near_s"]]
    if missing:
        yield f" Not reached at {', '.join(missing)} nodes."
    yield "</p>"
    if near:
        nodes, seconds = near[0]
        factor = seconds / (nodes * math.log(nodes))
        sizes = [found["nodes"] for found in family]
        series["n log n"] = [(n, factor * n * math.log(n)) for n in sizes]
    yield _curves(series)


def _curves(series: dict[str, list[Point]]) -> str:
    """Lines on two logarithmic axes; a series without points keeps its colour."""
    width, height, left, top, bottom = 720, 360, 60, 12, 40
    every = [point for points in series.values() for point in points]
    x_low, x_high = _decade_range([x for x, _ in every], 2)
    y_low, y_high = _decade_range([y for _, y in every], 10)

    def place(point: Point) -> Point:
        x = (math.log(point[0]) - math.log(x_low)) / (math.log(x_high) - math.log(x_low))
        y = (math.log(point[1]) - math.log(y_low)) / (math.log(y_high) - math.log(y_low))
        return left + x * (width - left - 130), top + (1 - y) * (height - top - bottom)

    drawn = []
    tick = y_low
    while tick <= y_high * 1.01:
        _, y = place((x_low, tick))
        drawn.append(
            f'<line class="grid" x1="{left}" x2="{width - 130}" y1="{y:.1f}" y2="{y:.1f}"/>'
        )
        drawn.append(f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{tick:g} s</text>')
        tick *= 10
    for x_value in sorted({x for x, _ in every}):
        x, _ = place((x_value, y_low))
        drawn.append(
            f'<text x="{x:.1f}" y="{height - bottom + 18}" text-anchor="middle">{x_value:,.0f}</text>'
        )
    for number, (name, points) in enumerate(series.items()):
        if not points:
            continue
        colour = PALETTE[number] if number < len(PALETTE) else "var(--soft)"
        dashes = ' stroke-dasharray="4 4"' if name == "n log n" else ""
        spots = [place(point) for point in sorted(points)]
        line = " ".join(f"{x:.1f},{y:.1f}" for x, y in spots)
        drawn.append(f'<polyline points="{line}" fill="none" stroke="{colour}"{dashes}/>')
        if not dashes:
            drawn += [
                f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3" fill="{colour}"/>' for x, y in spots
            ]
        x, y = width - 120, 16 + 18 * number
        drawn.append(f'<line x1="{x}" x2="{x + 18}" y1="{y}" y2="{y}" stroke="{colour}"{dashes}/>')
        drawn.append(f'<text x="{x + 24}" y="{y + 4}">{escape(name)}</text>')
    inside = "\n".join(drawn)
    return f'<svg width="{width}" height="{height}" role="img" style="overflow: visible">{inside}</svg>'


def _decade_range(values: list[float], base: int) -> Point:
    """Powers of the base around the values."""
    low = math.floor(math.log(min(values), base) + 1e-9)
    high = math.ceil(math.log(max(values), base) - 1e-9)
    return float(base) ** low, float(base) ** max(high, low + 1)
