"""Line charts as plain data: where lines, ticks and labels stand. The template draws them as SVG."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

WIDTH, HEIGHT = 620, 260
LEFT, RIGHT, TOP, BOTTOM = 62, 26, 10, 40
"""Pixels: of a chart, and around its lines."""

COLOURS = 7
"""Of lines."""

DASHES = ("", "8 4", "2 3", "10 3 2 3")
"""Of lines: where two are equal, the gaps of the upper one show the other."""

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One line. ``points``: (x, y), by x."""

    name: str
    points: Sequence[Point]


@dataclass(frozen=True, slots=True)
class Line:
    """``style``: of its colour. ``label``: its name, and a figure that says more."""

    label: str
    path: str
    style: int
    dash: str


@dataclass(frozen=True, slots=True)
class Chart:
    """``across`` and ``up``: (pixel, text) of the ticks of the axes."""

    title: str
    said: str
    lines: tuple[Line, ...]
    across: tuple[tuple[float, str], ...]
    up: tuple[tuple[float, str], ...]
    x_name: str


def chart(
    title: str,
    x_name: str,
    series: Sequence[Series],
    *,
    x_text: Callable[[float], str],
    y_text: Callable[[float], str],
    summary: Callable[[Series], str],
    steps: bool = True,
    log: bool = False,
    y_most: float | None = None,
) -> Chart | None:
    """The chart, None without points. ``steps``: a value holds until the next point. ``log``: of x.

    ``summary``: a figure of a line, for its label and for those who cannot see it.
    """
    drawn = [one for one in series if one.points]
    if not drawn:
        return None
    xs = [x for one in drawn for x, _ in one.points]
    x_low, x_high = min(xs), max(xs)
    if log:
        x_low, x_high = max(1.0, x_low), max(10.0, x_high)
    y_ticks = _ticks(0.0, y_most or max(y for one in drawn for _, y in one.points) or 1.0, 4)
    y_high = y_most or y_ticks[-1]
    scale = math.log10 if log else float
    wide = (scale(x_high) - scale(x_low)) or 1.0

    def across(x: float) -> float:
        part = (scale(max(x, x_low)) - scale(x_low)) / wide
        return round(LEFT + part * (WIDTH - LEFT - RIGHT), 1)

    def up(y: float) -> float:
        return round(TOP + (1 - y / y_high) * (HEIGHT - TOP - BOTTOM), 1)

    lines = tuple(
        Line(
            f"{one.name}: {summary(one)}",
            _path([(across(x), up(y)) for x, y in one.points], steps=steps),
            number % COLOURS,
            DASHES[number % len(DASHES)],
        )
        for number, one in enumerate(drawn)
    )
    ticks = _decades(x_low, x_high) if log else [x for x in _times(x_low, x_high) if x >= x_low]
    return Chart(
        title,
        f"{title}. {'; '.join(line.label for line in lines)}",
        lines,
        tuple((across(x), x_text(x)) for x in ticks),
        tuple((up(y), y_text(y)) for y in y_ticks if y <= y_high),
        x_name,
    )


def _path(points: Sequence[Point], *, steps: bool) -> str:
    """SVG path; points of one pixel column that change nothing are left out."""
    (x, y), *rest = points
    parts = [f"M{x:g} {y:g}"]
    for right, next_y in rest:
        if next_y == y and right != rest[-1][0]:
            continue
        parts.append(f"H{right:g}V{next_y:g}" if steps else f"L{right:g} {next_y:g}")
        y = next_y
    return "".join(parts)


def _ticks(low: float, high: float, about: int) -> list[float]:
    """Round numbers from below ``low`` to above ``high``."""
    raw = (high - low) / about
    power = 10.0 ** math.floor(math.log10(raw))
    step = next(power * factor for factor in (1, 2, 2.5, 5, 10) if power * factor >= raw * 0.999)
    count = math.ceil((high - low) / step - 1e-9)
    return [low + step * n for n in range(count + 1)]


_UNITS = (60, 300, 900, 1800, 3600, 7200, 14400, 21600, 43200, 86400, 172800, 604800, 2592000)
"""Seconds between ticks of a time axis."""


def _times(low: float, high: float) -> list[float]:
    step = next((unit for unit in _UNITS if (high - low) / unit <= 8), _UNITS[-1])
    while (high - low) / step > 8:
        step *= 2
    first = math.ceil(low / step)
    return [float(step * n) for n in range(first, math.floor(high / step) + 1)]


_LOG_TICKS = (1, 10, 60, 600, 3600, 36_000, 259_200, 2_592_000, 25_920_000)
"""Seconds of ticks of a logarithmic axis: 1 s to 10 months."""


def _decades(low: float, high: float) -> list[float]:
    return [float(tick) for tick in _LOG_TICKS if low <= tick <= high]
