"""Tables: data, a plain form that is never cut, and a form folded to fit a terminal."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Literal

from planner.show.text import width
from planner.show.text import width as text_width
from planner.untrusted_text import safe


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most ``columns`` columns (2 or more); longer words break after , or / if possible."""
    if width(text) <= columns:
        return [" ".join(text.split())]
    lines: list[str] = []
    line = ""
    for word in text.split():
        if line and width(line) + 1 + width(word) <= columns:
            line += f" {word}"
            continue
        if line:
            lines.append(line)
        *full, line = _pieces(word, columns)
        lines += full
    return [*lines, line] if line else lines or [""]


def _pieces(word: str, columns: int) -> list[str]:
    """The word in pieces that fit."""
    pieces = []
    while width(word) > columns:
        fit = _prefix(word, columns)
        cut = max(word.rfind(mark, 0, fit) for mark in ",/") + 1 or fit
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


def _prefix(word: str, columns: int) -> int:
    """Number of characters of the word that fit, at least one."""
    used = 0
    for place, char in enumerate(word):
        used += width(char)
        if used > columns:
            return max(place, 1)
    return len(word)


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
    """``right``: align numbers. ``fold``: long cells may wrap on a terminal.

    ``optional``: left out on a terminal that is too narrow. ``droppable``: left out next, from the
    right, before a name is broken or a line runs over.
    """

    title: str
    right: bool = False
    fold: bool = False
    optional: bool = False
    droppable: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell. Control characters in ``text`` are escaped."""

    text: str
    style: Style | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", safe(self.text))


def columns_of(titles: str) -> tuple[Column, ...]:
    """Columns of ``TIER~|>GAP?|NODES??``: ``>`` right, ``~`` fold, ``?`` droppable, ``??`` optional."""
    return tuple(
        Column(
            title.strip(">~?"),
            right=title.startswith(">"),
            fold="~" in title,
            optional=title.endswith("??"),
            droppable=title.endswith("?") and not title.endswith("??"),
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
    """``rows[r][c]``: one cell per column. ``notes``: lines below the table. ``headless``: no titles."""

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    headless: bool = False

    def without_empty_columns(self) -> Table:
        """The table without columns in which every cell is empty or ``-``."""
        return self.of_columns(
            [
                c
                for c in range(len(self.columns))
                if any(row[c].text not in ("", "-") for row in self.rows)
            ]
        )

    def of_columns(self, keep: list[int]) -> Table:
        """The table with these columns."""
        return Table(
            tuple(self.columns[c] for c in keep),
            tuple(tuple(row[c] for c in keep) for row in self.rows),
            self.notes,
            self.headless or not keep,
        )

    def reworded(self, words: Callable[[str], str]) -> Table:
        """The table with ``words`` applied to every text in it."""
        return Table(
            tuple(replace(column, title=words(column.title)) for column in self.columns),
            tuple(tuple(Cell(words(cell.text), cell.style) for cell in row) for row in self.rows),
            tuple(map(words, self.notes)),
            self.headless,
        )

    def fits(self, width: int | None) -> bool:
        """Whether every row has room in one line; None: there is room for all."""
        narrowest = replace(self, columns=tuple(map(_with_broken_title, self.columns)))
        return width is None or _needed(narrowest.widths()) <= width

    def plain(self, *, color: bool = False) -> str:
        """Columns two spaces apart, one line per row."""
        head = () if self.headless else (tuple(Cell(c.title, "head") for c in self.columns),)
        body = (*head, *self.rows)
        widths = self.widths()
        lines = [self.line(cells, widths, color=color) for cells in body]
        return "\n".join([*lines, *(safe(note) for note in self.notes), ""])

    def widths(self) -> list[int]:
        """The width of each column, including its title if printed."""
        return [
            max(
                (
                    *(width(row[c].text) for row in self.rows),
                    0 if self.headless else max(map(width, column.title.split("\n"))),
                ),
                default=0,
            )
            for c, column in enumerate(self.columns)
        ]

    def line(self, cells: tuple[Cell, ...], widths: list[int], *, color: bool) -> str:
        """One line: cells padded to ``widths``, no trailing blanks."""
        parts = []
        last = len(cells) - 1
        for c, cell in enumerate(cells):
            blank = " " * (widths[c] - width(cell.text))
            text = styled(cell, color=color)
            if self.columns[c].right:
                parts.append(blank + text)
            else:
                parts.append(text if c == last else text + blank)
        return "  ".join(parts).rstrip()


def styled(cell: Cell, *, color: bool) -> str:
    """The text of the cell, coloured if ``color``."""
    if not color or cell.style is None or not cell.text:
        return cell.text
    return f"\x1b[{STYLES[cell.style]}m{cell.text}\x1b[0m"


_LEAST_FOLD = 16
"""Minimum width of a folding column."""

_MAX_FOLDED = 2
"""A last cell that needs more lines than this moves below its row."""

_HANGING = 4
"""Indentation of a cell below its row."""

_APART = 2


def draw(table: Table, *, width: int, color: bool) -> str:
    """The table as text for a terminal of ``width`` columns.

    If it is too narrow, titles such as HYPERNODE-TIER-1 take several lines, optional columns are dropped,
    then droppable ones, then words break. If that does not help, lines run over.
    """
    fitting = _fitting(table, width)
    if fitting is None:
        return table.plain(color=color)
    widths = _widths(fitting, width)
    lines: list[str] = []
    if not table.headless:
        titles = [column.title.split("\n") for column in fitting.columns]
        titles = titles if widths[-1] else [*titles[:-1], [""]]
        most = max(map(len, titles))
        for texts in zip(*(("",) * (most - len(own)) + (*own,) for own in titles), strict=True):
            cells = tuple(Cell(text, "head") for text in texts)
            lines += _folded(fitting, cells, widths, color=color)
    for row in fitting.rows:
        lines += _row(fitting, row, widths, width, color=color)
    lines += [line for note in table.notes for line in wrapped(safe(note), width)]
    return "\n".join([*lines, ""])


def _row(
    table: Table, row: tuple[Cell, ...], widths: list[int], width: int, *, color: bool
) -> list[str]:
    last = row[-1]
    if not table.columns[-1].fold or not _hangs(last.text, widths[-1]):
        return _folded(table, row, widths, color=color)
    above = _folded(table, (*row[:-1], Cell("")), widths, color=color)
    below = wrapped(last.text, width - _HANGING)
    return above + [" " * _HANGING + styled(Cell(line, last.style), color=color) for line in below]


def _hangs(text: str, columns: int) -> bool:
    broken = any(width(word) > columns for word in text.split())
    return bool(text) and (not columns or broken or len(wrapped(text, columns)) > _MAX_FOLDED)


def _folded(table: Table, row: tuple[Cell, ...], widths: list[int], *, color: bool) -> list[str]:
    """The lines of one row, every cell folded inside its column."""
    cells = [
        wrapped(cell.text, widths[c]) if table.columns[c].fold else [cell.text]
        for c, cell in enumerate(row)
    ]
    return [
        table.line(
            tuple(
                Cell(lines[number] if number < len(lines) else "", cell.style)
                for lines, cell in zip(cells, row, strict=True)
            ),
            widths,
            color=color,
        )
        for number in range(max(map(len, cells)))
    ]


def _fitting(table: Table, width: int) -> Table | None:
    """The table without the columns that must go; None if it cannot fit."""
    if _needed(table.widths()) <= width:
        return table
    table = replace(table, columns=tuple(map(_with_broken_title, table.columns)))
    if _fits(table, width, hanging=False, broken=False) and _roomy(table, width):
        return table
    less = table.of_columns([c for c, column in enumerate(table.columns) if not column.optional])
    narrower = [less]
    for c in reversed(range(len(less.columns))):
        if less.columns[c].droppable:
            less = less.of_columns([n for n in range(len(less.columns)) if n != c])
            narrower.append(less)
    ways = ((one, broken) for broken in (False, True) for one in narrower)
    return next(
        (one for one, broken in ways if _fits(one, width, hanging=True, broken=broken)), None
    )


_SHORT_TITLE = 12
"""Width of titles that stay in one line, such as RE-PLANNED."""


def _with_broken_title(column: Column) -> Column:
    """A long title in lines as short as its longest part, broken after hyphens."""
    if text_width(column.title) <= _SHORT_TITLE:
        return column
    parts = re.findall(r"[^-]+-*|-+", column.title)
    most = max(map(text_width, parts), default=0)
    lines = [""]
    for part in parts:
        fits = text_width(lines[-1] + part) <= most
        lines = [*lines[:-1], lines[-1] + part] if fits else [*lines, part]
    return replace(column, title="\n".join(lines))


def _roomy(table: Table, width: int) -> bool:
    """Whether optional columns leave the last one, if it folds, a third of the line or what it needs."""
    if not table.columns[-1].fold or not any(column.optional for column in table.columns):
        return True
    widths = table.widths()
    return width - _needed([*widths[:-1], 0]) >= min(widths[-1], width // 3)


def _fits(table: Table, width: int, *, hanging: bool, broken: bool) -> bool:
    """Whether every line fits.

    ``hanging``: last cells may move below their rows; ``broken``: words before them may break.
    """
    least = _least(table, width)
    hangs = hanging and table.columns[-1].fold and len(table.columns) > 1
    whole = all(least[c] >= longest for c, longest in _longest_words(table) if c != len(least) - 1)
    return (broken or whole) and _needed(least[:-1] if hangs else least) <= width


def _longest_words(table: Table) -> Iterator[tuple[int, int]]:
    """(folding column, width of the longest word in it)."""
    for c, column in enumerate(table.columns):
        if column.fold:
            words = (text_width(word) for row in table.rows for word in row[c].text.split())
            yield c, max(words, default=0)


def _needed(widths: list[int]) -> int:
    """The total width of columns with these widths."""
    return sum(widths) + _APART * (len(widths) - 1)


def _least(table: Table, width: int) -> list[int]:
    """The minimum width of each column: for a folding one its longest word if that fits."""
    widths = table.widths()
    last = len(widths) - 1
    fixed = [widths[c] for c, column in enumerate(table.columns) if not column.fold]
    for c, longest in _longest_words(table):
        fits = c != last and _needed([*fixed, longest]) <= width
        widths[c] = max(longest if fits else 0, min(widths[c], _LEAST_FOLD))
    return widths


def _widths(table: Table, width: int) -> list[int]:
    """The width of each column; folding columns share the remaining width.

    0 for the last one: too little remains, so its cells move below their rows.
    """
    widths, least = table.widths(), _least(table, width)
    folding = [c for c, column in enumerate(table.columns) if column.fold]
    left = width - _APART * (len(widths) - 1) - sum(widths) + sum(widths[c] for c in folding)
    if folding and left < sum(least[c] for c in folding):
        left += _APART
        widths[folding.pop()] = 0
    folding.sort(key=lambda c: (widths[c], c))
    for place, c in enumerate(folding):  # the narrowest first, so that what it leaves is shared
        others = sum(least[other] for other in folding[place + 1 :])
        share = min(max(left // (len(folding) - place), least[c]), left - others)
        widths[c] = min(widths[c], share)
        left -= widths[c]
    return widths
