"""Tables: data, and their one form as text, fitted to a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

from planner.show.text import width as text_width
from planner.untrusted_text import safe

Style = Literal["good", "busy", "warn", "bad", "dim", "head"]

STYLES: Mapping[Style, str] = {
    "good": "32",
    "busy": "36",
    "warn": "33",
    "bad": "31",
    "dim": "2",
    "head": "1",
}
"""Style name to SGR code. Colour only repeats what the text says."""


@dataclass(frozen=True, slots=True)
class Column:
    """``right``: align numbers. ``droppable``: left out of a terminal that is too narrow, the last first.

    ``fold``: of the last column alone: its texts wrap, or stand below their rows.
    """

    title: str
    right: bool = False
    fold: bool = False
    droppable: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. Control characters in ``text`` are escaped."""

    text: str
    style: Style | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", safe(self.text))


def columns_of(titles: str) -> tuple[Column, ...]:
    """Columns of ``TIER|>GAP?|NODES~``: ``>`` right, ``?`` droppable, ``~`` fold."""
    return tuple(
        Column(
            title.strip(">~?"),
            right=title.startswith(">"),
            fold="~" in title,
            droppable="?" in title,
        )
        for title in titles.split("|")
    )


def row_of(*cells: Cell | str) -> tuple[Cell, ...]:
    """A row of cells; text alone is one without a style."""
    return tuple(one if isinstance(one, Cell) else Cell(one) for one in cells)


def pairs(rows: Iterable[tuple[str, Cell | str]], style: Style = "dim") -> Table:
    """A table without titles: what, in that style, and how."""
    cells = tuple(row_of(Cell(what, style), how) for what, how in rows)
    return Table(columns_of("what|how~"), cells, headless=True)


@dataclass(frozen=True, slots=True)
class Table:
    """``rows[r][c]``: one cell per column. ``headless``: no titles.

    ``below``: by row, what is said of it on the next line, such as why a gang waits.
    ``notes``: lines below the table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    headless: bool = False
    below: Mapping[int, Cell] = field(default_factory=dict, hash=False)

    def without_empty_columns(self) -> Table:
        """The table without columns in which every cell is empty or ``-``."""
        empty = ("", "-")
        places = range(len(self.columns))
        return self.of_columns(
            [c for c in places if any(r[c].text not in empty for r in self.rows)]
        )

    def of_columns(self, keep: Sequence[int]) -> Table:
        """The table with these columns."""
        return replace(
            self,
            columns=tuple(self.columns[c] for c in keep),
            rows=tuple(tuple(row[c] for c in keep) for row in self.rows),
            headless=self.headless or not keep,
        )

    def with_below(self, title: str) -> Table:
        """The table with what is said below its rows as its last column."""
        rows = tuple((*row, self.below.get(r, Cell(""))) for r, row in enumerate(self.rows))
        return replace(self, columns=(*self.columns, Column(title, fold=True)), rows=rows, below={})

    def reworded(self, words: Callable[[str], str]) -> Table:
        """The table with ``words`` applied to every text in it."""

        def cell(one: Cell) -> Cell:
            return Cell(words(one.text), one.style)

        return replace(
            self,
            columns=tuple(replace(column, title=words(column.title)) for column in self.columns),
            rows=tuple(tuple(map(cell, row)) for row in self.rows),
            notes=tuple(map(words, self.notes)),
            below={r: cell(one) for r, one in self.below.items()},
        )

    def widths(self) -> list[int]:
        """The width of each column, including its title if printed."""
        titles = () if self.headless else (tuple(Cell(column.title) for column in self.columns),)
        every = (*titles, *self.rows)
        return [
            max((text_width(row[c].text) for row in every), default=0)
            for c in range(len(self.columns))
        ]


_INDENT = "    "
"""Before what stands below a row."""

_APART = "  "

_LEAST_TEXT = 16
"""Columns that a text at the end of a row has, or fewer if it is shorter, before others are left out."""


def draw(table: Table, *, width: int | None = None, color: bool = False) -> str:
    """The table as text, columns two spaces apart, for a terminal of ``width`` columns; None: of any.

    If it is too narrow, droppable columns go, the last first. A text in the last column that still has no
    room there stands below its row, between words. Nothing else is cut or broken: lines run over.
    """
    if width is not None:
        table = _narrowed(table, width)
    widths = table.widths()
    lines = []
    if table.columns and not table.headless:
        titles = [Cell(column.title, "head") for column in table.columns]
        if width is not None and _start(widths) + text_width(titles[-1].text) > width:
            titles[-1] = Cell("")
        lines.append(_line(table, titles, widths, color=color))
    for r, row in enumerate(table.rows if table.columns else ()):
        lines += _row(table, row, widths, width, color=color)
        if r in table.below:
            lines += _indented(table.below[r], width, color=color)
    lines += [line for note in table.notes for line in wrapped(safe(note), width)]
    return "\n".join([*lines, ""])


def _narrowed(table: Table, width: int) -> Table:
    """The table without the columns that must go."""

    def too_wide() -> bool:
        widths = table.widths()
        last = min(widths[-1], _LEAST_TEXT) if table.columns[-1].fold else widths[-1]
        return _start(widths) + last > width

    droppable = [c for c, column in enumerate(table.columns) if column.droppable]
    while droppable and too_wide():
        c = droppable.pop()
        table = table.of_columns([n for n in range(len(table.columns)) if n != c])
    return table


def _start(widths: Sequence[int]) -> int:
    """Columns before the last cell of a row."""
    return sum(widths[:-1]) + len(_APART) * (len(widths) - 1)


def _row(
    table: Table, row: Sequence[Cell], widths: Sequence[int], width: int | None, *, color: bool
) -> list[str]:
    """The line of a row, and more of them if its last text wraps, or stands below it."""
    if width is None or not table.columns[-1].fold:
        return [_line(table, row, widths, color=color)]
    *cells, last = row
    start = _start(widths)
    room = width - start
    longest = max(map(text_width, last.text.split()), default=0)
    if longest and (longest > room or (room < width // 2 and text_width(last.text) > room)):
        above = _line(table, [*cells, Cell("")], widths, color=color)
        return [above, *_indented(last, width, color=color)]
    first, *more = (Cell(line, last.style) for line in wrapped(last.text, room))
    rest = (" " * start + _styled(one, color=color) for one in more)
    return [_line(table, [*cells, first], widths, color=color), *rest]


def _indented(said: Cell, width: int | None, *, color: bool) -> list[str]:
    """The lines of what stands below a row."""
    room = None if width is None else width - len(_INDENT)
    lines = (Cell(line, said.style) for line in wrapped(said.text, room))
    return [_INDENT + _styled(line, color=color) for line in lines]


def _line(table: Table, row: Sequence[Cell], widths: Sequence[int], *, color: bool) -> str:
    """One line: cells padded to ``widths``, no trailing blanks."""
    parts = []
    for column, cell, columns in zip(table.columns, row, widths, strict=True):
        blank, text = " " * (columns - text_width(cell.text)), _styled(cell, color=color)
        parts.append(blank + text if column.right else text + blank)
    return _APART.join(parts).rstrip()


def _styled(cell: Cell, *, color: bool) -> str:
    if not color or cell.style is None or not cell.text:
        return cell.text
    return f"\x1b[{STYLES[cell.style]}m{cell.text}\x1b[0m"


def wrapped(text: str, columns: int | None) -> list[str]:
    """Lines of at most ``columns`` columns. Longer words break after commas alone: no name is broken."""
    if columns is None or text_width(text) <= columns:
        return [text]
    lines = [""]
    for word in text.split():
        parts = [word] if text_width(word) <= columns else re.findall(r"[^,]+,?|,", word)
        for place, part in enumerate(parts):
            joined = f"{lines[-1]} {part}" if lines[-1] and not place else lines[-1] + part
            if not lines[-1] or text_width(joined) <= columns:
                lines[-1] = joined
            else:
                lines.append(part)
    return lines
