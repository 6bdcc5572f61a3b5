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

    ``fold``: its texts may be of several lines, those of the last column below their rows.
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

    def drawn(self, *, color: bool) -> str:
        return paint(self.text, STYLES[self.style] if color and self.style else "")


def paint(text: str, code: str) -> str:
    """The text in a style, an SGR code; as it is without one."""
    return f"\x1b[{code}m{text}\x1b[0m" if code and text else text


def columns_of(titles: str) -> tuple[Column, ...]:
    """Columns of ``TIER|>GAP?|NODES~``: ``>`` right, ``?`` droppable, ``~`` fold."""
    return tuple(
        Column(title.strip(">~?"), title.startswith(">"), "~" in title, "?" in title)
        for title in titles.split("|")
    )


def row_of(*cells: Cell | str) -> tuple[Cell, ...]:
    """A row of cells; text alone is one without a style."""
    return tuple(one if isinstance(one, Cell) else Cell(one) for one in cells)


def pairs(rows: Iterable[tuple[str, Cell | str]]) -> Table:
    """A table without titles: what, and how."""
    return Table(columns_of("|~"), tuple(row_of(Cell(what, "dim"), how) for what, how in rows))


@dataclass(frozen=True, slots=True)
class Table:
    """``rows[r][c]``: one cell per column.

    ``below``: by row, what is said of it on the next line, such as why a gang waits.
    ``notes``: lines below the table.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    below: Mapping[int, Cell] = field(default_factory=dict, hash=False)

    @property
    def headless(self) -> bool:
        """Whether no column has a title."""
        return not any(column.title for column in self.columns)

    def without_empty_columns(self) -> Table:
        """The table without columns in which every cell is empty or ``-``."""
        empty = ("", "-")
        places = range(len(self.columns))
        return self.of_columns(
            [c for c in places if any(r[c].text not in empty for r in self.rows)]
        )

    def of_columns(self, keep: Sequence[int]) -> Table:
        """The table with these columns."""
        columns = tuple(self.columns[c] for c in keep)
        return replace(
            self, columns=columns, rows=tuple(tuple(row[c] for c in keep) for row in self.rows)
        )

    def with_below(self, title: str) -> Table:
        """The table with what is said below its rows as its last column."""
        rows = tuple((*row, self.below.get(r, Cell(""))) for r, row in enumerate(self.rows))
        return replace(self, columns=(*self.columns, Column(title, fold=True)), rows=rows, below={})

    def reworded(self, words: Callable[[str], str]) -> Table:
        """The table with ``words`` applied to every text in it."""

        def cell(one: Cell) -> Cell:
            return Cell(words(one.text), one.style)

        return Table(
            tuple(replace(column, title=words(column.title)) for column in self.columns),
            tuple(tuple(map(cell, row)) for row in self.rows),
            tuple(map(words, self.notes)),
            {r: cell(one) for r, one in self.below.items()},
        )

    def widths(self) -> list[int]:
        """The width of each column, including its title."""
        return [
            max([text_width(column.title), *(text_width(row[c].text) for row in self.rows)])
            for c, column in enumerate(self.columns)
        ]


_INDENT = "    "
"""Before what stands below a row."""

_APART = "  "

_LEAST_TEXT = 16
"""Columns that a text at the end of a row has, or fewer if it is shorter, before others are left out."""


def draw(table: Table, *, width: int | None = None, color: bool = False) -> str:
    """The table as text, columns two spaces apart, for a terminal of ``width`` columns; None: of any.

    If it is too narrow, droppable columns go, the last first. A text of a last column that folds stands
    below its row if it still has no room. Nothing else is cut or broken: lines run over.
    """
    table = _narrowed(table, width)
    widths = table.widths()
    titles = [Cell(column.title, "head") for column in table.columns]
    lines = [] if table.headless else _row(table, titles, widths, width, color=color)
    for r, row in enumerate(table.rows):
        lines += _row(table, row, widths, width, color=color)
        if r in table.below:
            lines += _indented(table.below[r], width, color=color)
    lines += [line for note in table.notes for line in wrapped(safe(note), width)]
    return "\n".join([*lines, ""])


def _narrowed(table: Table, width: int | None) -> Table:
    """The table without the columns that must go."""
    for c in reversed([c for c, column in enumerate(table.columns) if column.droppable]):
        widths = table.widths()
        last = min(widths[-1], _LEAST_TEXT) if table.columns[-1].fold else widths[-1]
        if width is None or _start(widths) + last <= width:
            break
        table = table.of_columns([n for n in range(len(table.columns)) if n != c])
    return table


def _start(widths: Sequence[int]) -> int:
    """Columns before the last cell of a row."""
    return sum(widths[:-1]) + len(_APART) * (len(widths) - 1)


def _row(
    table: Table, row: Sequence[Cell], widths: Sequence[int], width: int | None, *, color: bool
) -> list[str]:
    """The line of a row: cells padded to ``widths``, no trailing blanks; below, a last text without room."""
    parts = []
    for column, cell, columns in zip(table.columns, row, widths, strict=True):
        blank, text = " " * (columns - text_width(cell.text)), cell.drawn(color=color)
        parts.append(blank + text if column.right else text + blank)
    fits = width is None or _start(widths) + text_width(row[-1].text) <= width
    if fits or not table.columns[-1].fold:
        return [_APART.join(parts).rstrip()]
    above = _APART.join(parts[:-1]).rstrip()
    return [*([above] if above else []), *_indented(row[-1], width, color=color)]


def _indented(said: Cell, width: int | None, *, color: bool) -> list[str]:
    """The lines of what stands below a row."""
    room = None if width is None else width - len(_INDENT)
    lines = (Cell(line, said.style) for line in wrapped(said.text, room) if line)
    return [_INDENT + line.drawn(color=color) for line in lines]


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
