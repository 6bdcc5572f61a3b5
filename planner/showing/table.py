"""A table as data: columns, rows, notes; and its plain form, aligned, never wrapped or cut.

Promises: pure; cells are made harmless on the way in. ``planner.showing.drawing`` draws the same
tables on a terminal.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.showing.text import safe, width

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
