"""Tables on a terminal: long cells fold inside their column, or hang below their row.

Promises: no line is wider than the terminal where that is possible, nothing is cut, and a name is
broken only if it fits no line. Only ``planner.console`` calls this, and only for a terminal.
"""

from __future__ import annotations

from planner.showing.table import Cell, Table, styled
from planner.showing.text import safe
from planner.showing.text import width as text_width
from planner.showing.wrapping import breaks_words, wrapped

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
