"""Square tables in a text: a line of labels, then a row for each, whatever stands around them.

Promises: no fault here, a line that is no part of a table is skipped; linear in the text.
Called by ``finding``; what the cells mean is for ``nvidia`` and ``rocm``.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

_FIRST = re.compile(
    r"(?<![\w.\[/:-])GPU[0-9]{1,4}(?![:\[_]|(?!GPU[0-9]|NIC[0-9]|mlx[0-9])[A-Za-z])"
)
_GPU = re.compile(r"GPU([0-9]{1,4})")
_NIC = re.compile(r"(?!(?:NV|GPU)[0-9]+$)(?=\S*[0-9_])[A-Za-z][\w.:-]*")
_COLUMN = re.compile(r"(?:CPU|NUMA|Memory|GPU)\s*(?:NUMA\s*)?(?:Affinity|ID)", re.IGNORECASE)
_LABELS_TOGETHER = re.compile(r"(?<=[0-9])(?=GPU[0-9]|NIC[0-9]|mlx[0-9])")
_PATH = r"(?:X|NV[0-9]{1,3}|PIX|PXB|PSB|PHB|NODE|SYS|SOC)"
_PEER = r"(?:OK|NS|CNS|GNS|TNS|U|DR)"
_CELL = re.compile(rf"{_PATH}|{_PEER}|XGMI|PCIE|PCIe|[0-9]{{1,4}}|N/A|True|False|[0-9]+-[0-9]+")
_PATHS_TOGETHER = re.compile(rf"{_PATH}{{2,}}")
_PATH_AND_MORE = re.compile(r"(X|PIX|PXB|PSB|PHB|NODE|SYS|SOC)([0-9].*)")
_HEADING = re.compile(
    # Looked for once in every run of = and blanks, not at each of its characters.
    r"(?:^|(?<![ \t=])(?=[ \t=]*==))[ \t=]*([A-Za-z][A-Za-z ]*[A-Za-z])[ \t=]*$"
)
TITLES = (
    "weight between two gpus",
    "hops between two gpus",
    "link type between two gpus",
    "link accessibility between two gpus",
    "bandwidth between two gpus",
    "bandwidth",
    "numa nodes",
    "rocm system management interface",
    "end of rocm smi log",
)
"""Headings of rocm-smi."""


@dataclass(frozen=True, slots=True)
class Token:
    """A word of a line; ``column`` counts from 1."""

    text: str
    column: int


@dataclass(frozen=True, slots=True)
class Row:
    """``cells``: words after the label, as many as there are columns of labels or fewer.

    ``rest``: words after those. ``line`` counts from 1.
    """

    label: Token
    line: int
    cells: tuple[Token, ...]
    rest: tuple[Token, ...]


@dataclass(slots=True)
class Table:
    """``gpus`` and ``others``: labels of the columns in order; ``columns``: titles after them.

    ``heading``: rocm-smi's title above, lower case, "" without one. ``end``: its last line.
    """

    line: int
    column: int
    labels: tuple[str, ...]
    columns: tuple[str, ...]
    heading: str
    rows: dict[str, Row] = field(default_factory=dict)
    repeated: list[Row] = field(default_factory=list)
    end: int = 0

    @property
    def gpus(self) -> tuple[str, ...]:
        """Labels of the GPU columns, as printed."""
        return tuple(label for label in self.labels if _GPU.fullmatch(label))

    @property
    def others(self) -> tuple[str, ...]:
        """Labels of the other columns: NICs."""
        return tuple(label for label in self.labels if not _GPU.fullmatch(label))


def gpu_number(label: str) -> int:
    """3 of ``GPU3``."""
    return int(label[3:])


def tables(lines: list[str]) -> list[Table]:
    """Every table that has a row, in order, and labels that rows must have followed.

    Labels alone are those of a matrix if other columns are named too, or if there is no table.
    """
    found: list[Table] = []
    heading = ""
    for number, line in enumerate(lines, 1):
        if not line or line.isspace():
            continue
        title = _title(line)
        if title is not None:
            heading = title
            continue
        if "GPU" not in line and not (found and found[-1].others):
            continue
        table = _header(line, number, heading)
        if table is not None and not (found and _cut_row(found[-1], table)):
            found.append(table)
            heading = ""
        elif found:
            _take(found[-1], line, number)
    return [table for table in found if table.rows or table.columns] or found[:1]


def _title(line: str) -> str | None:
    matched = _HEADING.search(line.rstrip())
    title = " ".join(matched[1].lower().split()) if matched else None
    return title if title in TITLES else None


def _header(line: str, number: int, heading: str) -> Table | None:
    """A line of labels, perhaps behind a prompt and before titles of other columns."""
    first = _FIRST.search(line)
    if first is None:
        return None
    tail = line[first.start() :]
    titles = list(_COLUMN.finditer(tail))
    cut = titles[0].start() if titles else len(tail)
    labels = _LABELS_TOGETHER.sub(" ", tail[:cut]).split()
    if not labels or not all(_GPU.fullmatch(label) or _NIC.fullmatch(label) for label in labels):
        return None
    if any(_CELL.fullmatch(piece.text) for label in labels for piece in _apart(Token(label, 1))):
        return None  # a row whose cells run together
    if titles and _COLUMN.sub("", tail[cut:]).strip():
        return None
    columns = tuple(" ".join(title[0].lower().split()) for title in titles)
    return Table(number, first.start() + 1, tuple(labels), columns, heading)


def _cut_row(table: Table, header: Table) -> bool:
    """Whether what looks like a header is the label of a row whose cells are cut off."""
    alone = len(header.labels) == 1 and not header.columns
    return alone and len(table.labels) > 1 and bool(table.rows) and not table.heading


def _take(table: Table, line: str, number: int) -> None:
    """Add the line's row to the table, if it is one."""
    words = [Token(word[0], word.start() + 1) for word in re.finditer(r"\S+", line)]
    labels = frozenset(table.labels)
    start = next((i for i, word in enumerate(words) if word.text in labels), None)
    if start is None:
        return
    cells = tuple(piece for word in words[start + 1 :] for piece in _apart(word))
    width = len(table.labels)
    known = sum(1 for cell in cells[:width] if _CELL.fullmatch(cell.text))
    # Behind other words, such as the prefix of a log, only a row that is whole is taken for one.
    if known == 0 or (start > 0 and known < width):
        return
    row = Row(words[start], number, cells[:width], cells[width:])
    if row.label.text in table.rows:
        if known == width:
            table.repeated.append(row)
        return
    table.rows[row.label.text] = row
    table.end = number


def _apart(word: Token) -> list[Token]:
    """Words that run together, taken apart: ``NV12NV12``, ``SYS0-31``, ``0N/A``."""
    text = word.text
    if _PATHS_TOGETHER.fullmatch(text):
        return [
            Token(part[0], word.column + part.start()) for part in re.finditer(_PATH, text)
        ]  # fmt: skip
    if (both := _PATH_AND_MORE.fullmatch(text)) is not None:
        return [Token(both[1], word.column), *_apart(Token(both[2], word.column + both.start(2)))]
    end = len(text)
    while end > 3 and text.endswith("N/A", 0, end):
        end -= 3
    unknown = [Token("N/A", word.column + at) for at in range(end, len(text), 3)]
    return [Token(text[:end], word.column), *unknown]
