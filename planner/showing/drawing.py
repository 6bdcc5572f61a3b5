"""Tables on a terminal, drawn by rich: long cells fold inside their column.

Promises: no markup is ever interpreted; only ``planner.console`` calls this, and only for a terminal.
"""

from __future__ import annotations

import io

from rich.console import Console as RichConsole
from rich.table import Table as RichTable
from rich.text import Text

from planner.showing.table import Table
from planner.showing.text import safe
from planner.showing.text import width as text_width

_LEAST_FOLD = 16
"""A folding column gets at least so much room."""

_RICH_STYLES = {
    "good": "green",
    "busy": "cyan",
    "warn": "yellow",
    "bad": "red",
    "dim": "dim",
    "head": "bold",
}


def draw(table: Table, *, width: int, color: bool) -> str:
    """The table as text for a terminal of ``width`` columns, with colour codes if ``color``.

    Optional columns go first where it is too narrow; if that does not help, lines run over.
    """
    fitting = _fitting(table, width)
    if fitting is None:
        return table.plain(color=color)
    drawn = RichTable(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        show_header=not table.headless,
    )
    for column in fitting.columns:
        drawn.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=not column.fold,
        )
    for row in fitting.rows:
        drawn.add_row(
            *(Text(cell.text, style=_RICH_STYLES.get(cell.style or "", "")) for cell in row)
        )
    buffer = io.StringIO()
    console = RichConsole(
        file=buffer,
        width=width,
        force_terminal=color,
        no_color=not color,
        color_system="standard" if color else None,
        markup=False,
        highlight=False,
        emoji=False,
        legacy_windows=False,
    )
    console.print(drawn)
    for note in table.notes:
        console.print(Text(safe(note)))
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join([*lines, ""])


def _fitting(table: Table, width: int) -> Table | None:
    """The table less as many optional columns as it takes; None if it cannot fit."""
    if _least_width(table) <= width:
        return table
    less = table.of_columns([c for c, column in enumerate(table.columns) if not column.optional])
    return less if _least_width(less) <= width else None


def _least_width(table: Table) -> int:
    """Columns of a terminal needed when folding columns are squeezed."""
    needed = 0
    for c, column in enumerate(table.columns):
        texts = [row[c].text for row in table.rows] + ([] if table.headless else [column.title])
        longest = max((text_width(text) for text in texts), default=0)
        needed += min(longest, _LEAST_FOLD) if column.fold else longest
    return needed + 2 * (len(table.columns) - 1)
