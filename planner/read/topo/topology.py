"""The topology that one server's tool prints: links, NUMA nodes, CPUs and NICs.

Also the square tables both tools print, and what follows from the paths in them. No GPU model
and no rate is derived here.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple

from models.units import shown
from planner.errors import Fault, InputError

Tool = Literal["nvidia-smi topo -m", "rocm-smi --showtopo"]

VENDORS: dict[Tool, str] = {"nvidia-smi topo -m": "NVIDIA", "rocm-smi --showtopo": "AMD"}

MAX_GPUS = 64
"""Most GPUs of one server; the tools have not been seen to print more than 16."""

MAX_NICS = 256
"""Most NIC columns; the largest known server has 32."""

MAX_CHARACTERS = 16_384
"""Longest line that can be a row: 64 GPUs and 256 NICs take 2,600 characters."""


@dataclass(frozen=True, slots=True)
class NicPaths:
    """One NIC. ``paths[g]``: name of the path between it and GPU g (``PIX`` ... ``SYS``)."""

    name: str
    paths: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Topology:
    """One server as printed; every tuple has one entry a GPU.

    ``matrix``: names of paths (``X`` on the diagonal, ``NVn`` = n links, old ``SOC`` is ``SYS``).
    ``counted``: False where the tool does not print the number of links, written ``NV1``.
    ``numa``: NUMA nodes of its affinity, ascending. ``own_numa``: NUMA node of the GPU's own memory
    (Grace). ``cpus``: CPU affinity as printed. None where a value is not known.
    """

    tool: Tool
    file: str
    line: int
    matrix: tuple[tuple[str, ...], ...]
    counted: bool = True
    nics: tuple[NicPaths, ...] = ()
    numa: tuple[tuple[int, ...] | None, ...] | None = None
    own_numa: tuple[int | None, ...] | None = None
    cpus: tuple[str | None, ...] | None = None
    remarks: tuple[str, ...] = ()

    @property
    def gpus(self) -> int:
        """Number of GPUs."""
        return len(self.matrix)

    @property
    def vendor(self) -> str:
        """Vendor of the GPUs, as in the catalogue."""
        return VENDORS[self.tool]


class Cell(NamedTuple):
    """A word of a line; ``column`` counts from 1."""

    text: str
    column: int


@dataclass(slots=True)
class Table:
    """A square table. ``titles``: columns after the square, whose words are in ``rest`` by row."""

    file: str
    line: int
    column: int
    labels: tuple[str, ...]
    titles: tuple[str, ...]
    cells: dict[str, tuple[Cell, ...]] = field(default_factory=dict)
    rest: dict[str, tuple[str, ...]] = field(default_factory=dict)
    lines: dict[str, int] = field(default_factory=dict)

    @property
    def gpus(self) -> tuple[str, ...]:
        """Labels of the GPU columns."""
        return tuple(label for label in self.labels if _GPU.fullmatch(label))

    @property
    def nics(self) -> tuple[str, ...]:
        """Labels of the other columns."""
        return self.labels[len(self.gpus) :]

    def text(self, row: str, column: str) -> str:
        """The cell of two labels."""
        return self.cells[row][self.labels.index(column)].text

    def fault(self, what: str, hint: str) -> InputError:
        """An error at the labels of the table."""
        return InputError(Fault(what, hint, self.file, self.line, self.column))


WHOLE_HINT = "save it without a terminal that cuts or wraps lines: nvidia-smi topo -m > FILE"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NIC = re.compile(r"(?!(?:NV|GPU)[0-9]+$)(?=\S*[0-9_])[A-Za-z][\w.-]*")
_NAME = r"(?:CPU Affinity|Memory Affinity|NUMA Affinity|GPU NUMA ID)"
_TITLE = re.compile(rf"(?<=[ \t]){_NAME}")
_TITLES = re.compile(rf"(?:{_NAME}(?:[ \t]+|$))*")
_AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")


def plain_lines(text: str) -> list[str]:
    """The lines without colours and underlines; a line too long for a table becomes empty."""
    lines = [line.rstrip("\r") for line in text.split("\n")]
    return [
        _ESCAPE.sub(lambda found: " " * len(found[0]), line) if len(line) <= MAX_CHARACTERS else ""
        for line in lines
    ]


def table_labels(line: str) -> tuple[tuple[str, ...], tuple[str, ...]] | None:
    """Labels and titles of the line above a table; None for any other line."""
    if not line.lstrip().startswith("GPU0"):
        return None
    first = _TITLE.search(line)
    end = len(line) if first is None else first.start()
    labels = tuple(line[:end].split())
    if not all(_GPU.fullmatch(label) or _NIC.fullmatch(label) for label in labels):
        return None
    if labels[0] != "GPU0" or _TITLES.fullmatch(line, end) is None:
        return None
    return labels, tuple(_TITLE.findall(line, end))


def read_table(
    file: str, lines: Sequence[str], number: int, known: Callable[[str], object], hint: str
) -> Table | None:
    """The table whose labels are in line ``number`` (from 1); None if they are not there.

    ``known``: whether the tool prints such a cell; ``hint``: which it prints. Raises InputError for
    rows that are missing or cut off and for a cell that is not known.
    """
    header = table_labels(lines[number - 1])
    if header is None:
        return None
    line = lines[number - 1]
    table = Table(file, number, len(line) - len(line.lstrip()) + 1, *header)
    _check_labels(table)
    at = number
    for label in table.labels:
        words = _words(lines, at)
        if not words or words[0].text != label:
            if label not in table.gpus:
                break  # rows of NICs repeat what their columns say
            what = f"the matrix is cut off: the row of {label} is missing"
            raise table.fault(what, WHOLE_HINT)
        at += 1
        _check_row(table, words, at, known, hint)
        width = len(table.labels) + 1
        table.cells[label] = tuple(words[1:width])
        table.rest[label] = tuple(word.text for word in words[width:])
        table.lines[label] = at
    words = _words(lines, at)
    if len(words) > 1 and _GPU.fullmatch(words[0].text) and known(words[1].text):
        raise table.fault(f"the matrix is cut off: {words[0].text} has no column", WHOLE_HINT)
    return table


def _words(lines: Sequence[str], at: int) -> list[Cell]:
    line = lines[at] if at < len(lines) else ""
    return [Cell(word[0], word.start() + 1) for word in re.finditer(r"\S+", line)]


def _check_labels(table: Table) -> None:
    gpus = table.gpus
    if len(gpus) > MAX_GPUS or len(table.nics) > MAX_NICS:
        what = f"{len(gpus)} GPUs and {len(table.nics)} NICs in one server"
        raise table.fault(what, f"the most is {MAX_GPUS} GPUs and {MAX_NICS} NICs")
    if table.labels[: len(gpus)] != tuple(f"GPU{g}" for g in range(len(gpus))):
        what = f"the columns {' '.join(gpus)} are not GPU0, GPU1, ... in order"
        raise table.fault(what, WHOLE_HINT)
    twice = [label for label in table.nics if table.nics.count(label) > 1]
    if twice:
        raise table.fault(f"two columns are labelled {twice[0]}", WHOLE_HINT)


def _check_row(
    table: Table, words: Sequence[Cell], line: int, known: Callable[[str], object], hint: str
) -> None:
    label, cells = words[0], words[1 : len(table.labels) + 1]
    bad = next((i for i, cell in enumerate(cells) if not known(cell.text)), len(cells))
    if bad < len(cells) and not _AFFINITY.fullmatch(cells[bad].text):
        cell = cells[bad]
        what = f"{shown(cell.text)} between {label.text} and {table.labels[bad]} is no path"
        raise InputError(Fault(what, hint, table.file, line, cell.column))
    if bad < len(table.labels):
        what = f"the row of {label.text} is cut off: {bad} of {len(table.labels)} cells"
        raise InputError(Fault(what, WHOLE_HINT, table.file, line, label.column))
    rest = words[len(table.labels) + 1 :]
    if rest and known(rest[0].text) and not _AFFINITY.fullmatch(rest[0].text):
        what = f"the row of {label.text} has more cells than there are columns, {len(cells)}"
        raise InputError(Fault(what, WHOLE_HINT, table.file, line, rest[0].column))


def check_symmetric(table: Table, meaning: Callable[[str], str]) -> None:
    """Raise InputError for two cells that differ from their mirror image.

    ``meaning``: the name of a path, of which a tool may print several forms.
    """
    for a, b in combinations(table.labels, 2):
        if a not in table.cells or b not in table.cells:
            continue
        there, back = table.text(a, b), table.text(b, a)
        if meaning(there) != meaning(back):
            what = (
                f"the matrix is not symmetric: {a} to {b} is {shown(there)}, {b} to {a} is"
                f" {shown(back)}"
            )
            cell = table.cells[a][table.labels.index(b)]
            hint = "a path has one name in both directions: save the output again"
            raise InputError(Fault(what, hint, table.file, table.lines[a], cell.column))


_BEST_FIRST = ("PIX", "PXB", "PHB", "NODE")


def near_gpus(topology: Topology) -> tuple[tuple[int, ...] | None, ...]:
    """Of each NIC, the GPUs it is near; None: all of them.

    A NIC is near the GPUs it shares a PCIe switch with (PIX, PXB), a closer pairing first: PXB does
    not count where both the GPU has a PIX NIC and the NIC a PIX GPU (as on a DGX-2). A NIC behind
    no such switch is near the GPUs it has its best path to, but never over SYS: contract, section
    3.2, counts a NIC of the other socket by half. A GPU with memory of its own NUMA node (Grace)
    is reached over C2C, so SYS says nothing about it.
    """
    own = topology.own_numa
    coherent = own is not None and None not in own
    paired = {
        g for g in range(topology.gpus) if any(nic.paths[g] == "PIX" for nic in topology.nics)
    }
    return tuple(_near(nic, paired, coherent=coherent) for nic in topology.nics)


def _near(nic: NicPaths, paired: set[int], *, coherent: bool) -> tuple[int, ...] | None:
    best = next((path for path in _BEST_FIRST if path in nic.paths), None)
    if best is None:
        return None if coherent else ()
    near = tuple(
        g
        for g, path in enumerate(nic.paths)
        if path == best or (best == "PIX" and path == "PXB" and g not in paired)
    )
    return None if len(near) == len(nic.paths) else near


def switch_groups(topology: Topology) -> tuple[int | None, ...] | None:
    """PCIe switch of each GPU, numbered by first GPU; None for a GPU that shares none.

    GPUs are under one switch if they read PIX to each other or to the same NIC. None if no two do.
    """
    group = list(range(topology.gpus))
    joined = [
        (a, b)
        for a, b in combinations(range(topology.gpus), 2)
        if topology.matrix[a][b] == "PIX"
        or any(nic.paths[a] == nic.paths[b] == "PIX" for nic in topology.nics)
    ]
    if not joined:
        return None
    for a, b in joined:
        old, new = max(group[a], group[b]), min(group[a], group[b])
        group = [new if g == old else g for g in group]
    shared = [g for g in dict.fromkeys(group) if group.count(g) > 1]
    return tuple(shared.index(g) if g in shared else None for g in group)


def numa_ids(topology: Topology) -> tuple[int | None, ...] | None:
    """NUMA node of each GPU; of an affinity to several, the lowest where that distinguishes GPUs.

    ``0,3-9`` and ``1,19-25`` (Grace: a processor and GPU memories) are nodes 0 and 1; ``0-1`` for
    every GPU (a virtual machine) says nothing: None.
    """
    if topology.numa is None:
        return None
    own = topology.own_numa or (None,) * topology.gpus
    sets = {frozenset(nodes) for nodes in topology.numa if nodes is not None}
    apart = len(sets) > 1 and all(not a & b for a, b in combinations(sorted(sets, key=sorted), 2))
    ids = tuple(
        nodes[0] if nodes is not None and (len(nodes) == 1 or apart or own[g] is not None) else None
        for g, nodes in enumerate(topology.numa)
    )
    return ids if any(node is not None for node in ids) else None
