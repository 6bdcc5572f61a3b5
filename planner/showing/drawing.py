"""Tables on a terminal, drawn by rich: long cells fold inside their column.

Promises: no markup is ever interpreted; only ``planner.console`` calls this, and only for a terminal.
"""

from __future__ import annotations

import io

from rich.console import Console as RichConsole
from rich.padding import Padding
from rich.table import Table as RichTable
from rich.text import Text

from planner.showing.table import Table
from planner.showing.text import safe

_RICH_STYLES = {
    "good": "green",
    "busy": "cyan",
    "warn": "yellow",
    "bad": "red",
    "dim": "dim",
    "head": "bold",
}


def draw(table: Table, *, width: int, color: bool) -> str:
    """The table as text for a terminal of ``width`` columns, with colour codes if ``color``."""
    drawn = RichTable(
        box=None,
        pad_edge=False,
        padding=(0, 2, 0, 0),
        header_style="bold",
        show_header=not table.headless,
    )
    for column in table.columns:
        drawn.add_column(
            Text(column.title),
            justify="right" if column.right else "left",
            overflow="fold",
            no_wrap=column.right,
        )
    for row in table.rows:
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
        console.print(Padding(Text(safe(note)), 0))
    lines = [line.rstrip() for line in buffer.getvalue().splitlines()]
    return "\n".join([*lines, ""])
