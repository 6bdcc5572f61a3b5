"""Text in lines of a given width, broken between words.

Promises: pure; nothing is lost but the blanks at a break; no line is wider than asked.
Used for tables and talk on a terminal.

A table as data: columns, rows, notes; and its plain form, aligned, never wrapped or cut.

Promises: pure; cells are made harmless on the way in. ``planner.show.table`` draws the same
tables on a terminal.

Tables on a terminal: long cells fold inside their column, or hang below their row.

Promises: no line is wider than the terminal where that is possible, nothing is cut, and a name is
broken only if it fits no line. Only ``planner.show.console`` calls this, and only for a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.show.text import width
from planner.show.text import width as text_width
from planner.untrusted_text import safe


def wrapped(text: str, columns: int) -> list[str]:
    """Lines of at most ``columns`` (2 or more); a longer word breaks after , or / if it can."""
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


def breaks_words(text: str, columns: int) -> bool:
    """Whether a word is wider than ``columns``."""
    return any(width(word) > columns for word in text.split())


def _pieces(word: str, columns: int) -> list[str]:
    """The word cut into pieces that fit, the last one perhaps short."""
    pieces = []
    while width(word) > columns:
        fit = _prefix(word, columns)
        cut = max(word.rfind(mark, 0, fit) for mark in ",/") + 1 or fit
        pieces.append(word[:cut])
        word = word[cut:]
    return [*pieces, word]


def _prefix(word: str, columns: int) -> int:
    """Characters of the word that fit; at least one."""
    used = 0
    for place, char in enumerate(word):
        used += width(char)
        if used > columns:
            return max(place, 1)
    return len(word)


STYLES = {
    "good": "32",
    "busy": "36",
    "warn": "33",
    "bad": "31",
    "dim": "2",
    "head": "1",
}
"""Style name to SGR code; colour only repeats what the words say."""


@dataclass(frozen=True, slots=True)
class Column:
    """``right``: numbers. ``fold``: long cells may go on in the next line on a terminal.

    ``optional``: left out on a terminal that is too narrow for it.
    """

    title: str
    right: bool = False
    fold: bool = False
    optional: bool = False


@dataclass(frozen=True, slots=True)
class Cell:
    """One cell; ``text`` is made harmless here, whoever made it."""

    text: str
    style: str | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "text", safe(self.text))


@dataclass(frozen=True, slots=True)
class Table:
    """``rows[r][c]``: as many cells as columns. ``notes``: lines below, about rows left out.

    ``headless``: the titles are not printed.
    """

    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]
    notes: tuple[str, ...] = ()
    headless: bool = False

    def without_empty_columns(self) -> Table:
        """The same table less the columns whose every cell is empty or ``-``."""
        return self.of_columns(
            [
                c
                for c in range(len(self.columns))
                if any(row[c].text not in ("", "-") for row in self.rows)
            ]
        )

    def of_columns(self, keep: list[int]) -> Table:
        """The same table with these columns."""
        return Table(
            tuple(self.columns[c] for c in keep),
            tuple(tuple(row[c] for c in keep) for row in self.rows),
            self.notes,
            self.headless,
        )

    def plain(self, *, color: bool = False) -> str:
        """Columns two spaces apart, no trailing blanks, one line a row whatever its length."""
        head = () if self.headless else (tuple(Cell(c.title, "head") for c in self.columns),)
        body = (*head, *self.rows)
        widths = self.widths()
        lines = [self.line(cells, widths, color=color) for cells in body]
        return "\n".join([*lines, *(safe(note) for note in self.notes), ""])

    def widths(self) -> list[int]:
        """The widest cell of each column, its title included where it is printed."""
        return [
            max(
                (
                    *(width(row[c].text) for row in self.rows),
                    0 if self.headless else width(column.title),
                ),
                default=0,
            )
            for c, column in enumerate(self.columns)
        ]

    def line(self, cells: tuple[Cell, ...], widths: list[int], *, color: bool) -> str:
        """One line: a cell a column, padded to ``widths``, no trailing blanks."""
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
    """The cell's text, in its colour if ``color``."""
    if not color or cell.style is None or not cell.text:
        return cell.text
    return f"\x1b[{STYLES[cell.style]}m{cell.text}\x1b[0m"


_LEAST_FOLD = 16
"""A folding column gets at least so much room; before the last one also that of its longest word."""

_MOST_FOLDED = 2
"""A cell of the last column that would take more lines hangs below its row instead."""

_HANGING = 4
"""Blanks before what hangs."""

_APART = 2


def draw(table: Table, *, width: int, color: bool) -> str:
    """The table as text for a terminal of ``width`` columns, with colour codes if ``color``.

    Optional columns go first where it is too narrow; if that does not help, lines run over.
    """
    fitting = _fitting(table, width)
    if fitting is None:
        return table.plain(color=color)
    widths = _widths(fitting, width)
    lines: list[str] = []
    if not table.headless:
        titles = tuple(Cell(column.title, "head") for column in fitting.columns)
        titles = titles if widths[-1] else (*titles[:-1], Cell(""))
        lines += _folded(fitting, titles, widths, color=color)
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
    return bool(text) and (
        not columns or breaks_words(text, columns) or len(wrapped(text, columns)) > _MOST_FOLDED
    )


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
    """The table less as many optional columns as it takes; None if it cannot fit."""
    if _needed(_least(table, width)) <= width:
        return table
    less = table.of_columns([c for c, column in enumerate(table.columns) if not column.optional])
    least = _least(less, width)
    hanging = less.columns[-1].fold and len(less.columns) > 1
    return less if _needed(least[:-1] if hanging else least) <= width else None


def _needed(widths: list[int]) -> int:
    """Columns of a terminal that columns of these widths take."""
    return sum(widths) + _APART * (len(widths) - 1)


def _least(table: Table, width: int) -> list[int]:
    """The least width of each column: of a folding one that is not the last, its longest word that fits."""
    widths = table.widths()
    last = len(widths) - 1
    fixed = [widths[c] for c, column in enumerate(table.columns) if not column.fold]
    for c, column in enumerate(table.columns):
        if column.fold:
            words = (text_width(word) for row in table.rows for word in row[c].text.split())
            longest = max(words, default=0)
            fits = c != last and _needed([*fixed, longest]) <= width
            widths[c] = max(longest if fits else 0, min(widths[c], _LEAST_FOLD))
    return widths


def _widths(table: Table, width: int) -> list[int]:
    """Columns of a terminal for each column; folding ones share what the others leave.

    0 for the last one: too little is left, so all of it hangs.
    """
    widths, least = table.widths(), _least(table, width)
    folding = [c for c, column in enumerate(table.columns) if column.fold]
    left = width - _APART * (len(widths) - 1) - sum(widths) + sum(widths[c] for c in folding)
    if folding and left < sum(least[c] for c in folding):
        left += _APART
        widths[folding.pop()] = 0
    folding.sort(key=lambda c: (widths[c], c))
    for place, c in enumerate(folding):  # the shortest first: what it does not need is shared
        others = sum(least[other] for other in folding[place + 1 :])
        share = min(max(left // (len(folding) - place), least[c]), left - others)
        widths[c] = min(widths[c], share)
        left -= widths[c]
    return widths
