"""A captured text to plain lines: terminal escapes, quote marks and table frames become blanks.

Promises: every line keeps its length, so that columns in messages are those of the file.
Called by ``finding``.

Square tables in a text: a line of labels, then a row for each, whatever stands around them.

Promises: no fault here, a line that is no part of a table is skipped; linear in the text.
Called by ``finding``; what the cells mean is for ``nvidia`` and ``rocm``.

A table to the cells of its GPU rows, or the reason why it is no square matrix.

Promises: the first fault alone, with the place of its row or cell. Called by ``nvidia`` and ``rocm``.

The name of the GPU, where the text beside a matrix tells it, as ``nvidia-smi -L`` does.

Promises: a name or None, never a fault; two different names are none. Called by ``nvidia``.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from models.units import shown
from planner.errors import Fault, InputError
from planner.read.topo.topology import MOST_GPUS, MOST_NICS, runs

MOST_CHARACTERS = 16_384
"""Longest line that can hold a row: 64 GPUs and 256 NICs take 2,600 characters."""

_ESCAPE = re.compile(
    r"\x1b\][^\x07\x1b]*(?:\x07|\x1b\\)?"  # a title for the terminal's window
    r"|(?:\x1b|\x9b|\^\[)\[?[0-9;?]*[ -/]*[@-~]"
    # What is left of an underline where a web page swallowed the escape character itself.
    r"|\[[0-9]{1,3}(?:;[0-9]{1,3})*m|\[m(?=\s|$)"
)
_FRAME = str.maketrans(dict.fromkeys("|>`\u2502\u2503\u00a0\u200b\ufeff\x00", " "))
_COMMENT = re.compile(r"^[\s*]*(?:#+|//|\*|-)(?=\s)")


def clean_lines(text: str) -> list[str]:
    """The lines, each as long as it was; one too long to be of a topology becomes empty."""
    return [_clean(line) for line in text.split("\n")]


def _clean(line: str) -> str:
    line = line.rstrip("\r")
    if len(line) > MOST_CHARACTERS:
        return ""
    if not line or line.isspace():
        return ""
    if "\x1b" in line or "[" in line or "\x9b" in line:
        line = _ESCAPE.sub(lambda found: " " * len(found[0]), line)
    line = line.translate(_FRAME)
    return _COMMENT.sub(lambda found: " " * len(found[0]), line)


def longest_line(text: str) -> tuple[int, int]:
    """Number (from 1) and length of the longest line."""
    return max(
        ((number, len(line)) for number, line in enumerate(text.split("\n"), 1)),
        key=lambda found: found[1],
    )


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


Cells = dict[str, dict[str, Token]]
"""Cells by label of row, then of column."""

_WHOLE = "save all that the command prints, without cutting or wrapping its lines"
_AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")


def ordered_gpus(table: Table, file: str) -> tuple[str, ...]:
    """Labels of the GPUs by number. Raises InputError for too many, and for one that is there twice."""
    place = (file, table.line, table.column)
    twice = [label for label, count in Counter(table.labels).items() if count > 1]
    if twice:
        raise InputError(Fault(f"{twice[0]} heads two columns", _WHOLE, *place))
    if len(table.gpus) > MOST_GPUS:
        what = f"{len(table.gpus)} GPUs in one server, more than {MOST_GPUS}"
        raise InputError(Fault(what, "one matrix shows one server", *place))
    if len(table.others) > MOST_NICS:
        what = f"{len(table.others)} NICs in one server, more than {MOST_NICS}"
        raise InputError(Fault(what, "one matrix shows one server", *place))
    return tuple(sorted(table.gpus, key=lambda label: (gpu_number(label), label)))


def square(
    table: Table, gpus: Sequence[str], file: str, known: Callable[[str], bool], hint: str
) -> Cells:
    """Cells of every row there is; those of the GPUs are whole and known.

    ``known``: whether the tool prints such a cell; ``hint``: what it prints. Raises InputError for
    GPU rows that are missing, cut or doubled, and for a cell in them that is not known.
    """
    _check_rows(table, gpus, file)
    for label in gpus:
        _check_row(table, table.rows[label], file, known, hint)
    return {
        label: dict(zip(table.labels, row.cells, strict=False)) for label, row in table.rows.items()
    }


def _check_rows(table: Table, gpus: Sequence[str], file: str) -> None:
    missing = tuple(gpu_number(label) for label in gpus if label not in table.rows)
    if missing:
        names = ", ".join(f"GPU{part.replace('-', ' to GPU')}" for part in runs(missing).split(","))
        rows = f"the rows of {names} are" if len(missing) > 1 else f"the row of {names} is"
        what = f"the matrix is cut off: {rows} missing"
        raise InputError(Fault(what, _WHOLE, file, table.line, table.column))
    for row in table.repeated:
        first = table.rows[row.label.text]
        if [cell.text for cell in first.cells] != [cell.text for cell in row.cells]:
            what = f"two rows of {row.label.text} that differ, in lines {first.line} and {row.line}"
            hint = "each matrix needs its own line of labels, GPU0 GPU1 ..."
            raise InputError(Fault(what, hint, file, row.line, row.label.column))


def _check_row(table: Table, row: Row, file: str, known: Callable[[str], bool], hint: str) -> None:
    width = len(table.labels)
    good = next((i for i, cell in enumerate(row.cells) if not known(cell.text)), len(row.cells))
    if good < len(row.cells) and not _AFFINITY.fullmatch(row.cells[good].text):
        cell = row.cells[good]
        what = f"{shown(cell.text)} between {row.label.text} and {table.labels[good]} is no path"
        raise InputError(Fault(what, hint, file, row.line, cell.column))
    if good < width:
        what = f"the row of {row.label.text} is cut off: {good} of {width} cells"
        raise InputError(Fault(what, _WHOLE, file, row.line, row.label.column))
    if row.rest and known(row.rest[0].text):
        what = f"the row of {row.label.text} has more cells than there are columns, {width}"
        raise InputError(Fault(what, _WHOLE, file, row.line, row.rest[0].column))


def check_symmetric(
    cells: Cells, table: Table, file: str, meaning: Callable[[str], str] = str
) -> None:
    """Raises InputError with the cells that differ from their mirror image.

    ``meaning``: the name of a path, of which a tool may print several forms.
    """
    differing = [
        (a, b)
        for a, b in combinations(table.labels, 2)
        if (there := cells.get(a, {}).get(b)) is not None
        and (back := cells.get(b, {}).get(a)) is not None
        and meaning(there.text) != meaning(back.text)
    ]
    if not differing:
        return
    a, b = differing[0]
    more = f"; {len(differing) - 1} more pairs differ" if len(differing) > 1 else ""
    what = (
        f"the matrix is not symmetric: {a} to {b} is {shown(cells[a][b].text)},"
        f" {b} to {a} is {shown(cells[b][a].text)}{more}"
    )
    hint = "a path has one name in both directions: save the output again"
    raise InputError(Fault(what, hint, file, table.rows[a].line, cells[a][b].column))


_LISTED = re.compile(r"\s*GPU\s+[0-9][0-9, ]{0,400}:\s*([A-Za-z][\w .+/-]{1,60}?)\s*(?:\(UUID.*)?")


def product(lines: Iterable[str]) -> str | None:
    """``NVIDIA H100 80GB HBM3`` of ``GPU 0: NVIDIA H100 80GB HBM3 (UUID: ...)``."""
    names = {found[1].strip() for line in lines if (found := _LISTED.fullmatch(line)) is not None}
    return names.pop() if len(names) == 1 else None
