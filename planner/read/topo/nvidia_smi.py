"""``nvidia-smi topo -m``: the matrix of GPUs and NICs, the affinity columns and the NIC legend.

Every driver since 2015: with and without NUMA columns, NICs by name or by legend, ``SOC`` for
``SYS``. Lines that are no part of a matrix are skipped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from models.units import shown
from planner.errors import Fault, InputError
from planner.read.topo.topology import NicPaths, Table, Topology, check_symmetric, read_table

_PATH = re.compile(r"X|NV[1-9][0-9]{0,2}|PIX|PXB|PSB|PHB|NODE|SYS|SOC")
_HINT = "nvidia-smi's names: X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS"
# SOC: SYS before driver 375. PSB: the switch on a board of two GPUs (K80).
_NAMES = {"SOC": "SYS", "PSB": "PIX"}
_NIC_LEGEND = re.compile(r"[ \t]*(NIC[0-9]{1,3})\s*[:=]\s*([\w.-]{1,64})[ \t]*")
_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_WITHOUT_LINKS = (
    "NVLinks may be left out: the legend has none, as `nvidia-smi topo -mp` prints it;"
    " `nvidia-smi topo -m` prints them"
)
MAX_NUMBERS = 16_384
"""Most NUMA nodes that one list may name, each time it names one."""


def read(file: str, lines: Sequence[str]) -> Iterator[Topology]:
    """Every matrix in the lines, in order. Raises InputError."""
    tables = [
        table
        for number in range(1, len(lines) + 1)
        if (table := read_table(file, lines, number, _PATH.fullmatch, _HINT)) is not None
    ]
    ends = [*(table.line - 1 for table in tables), len(lines)]
    for table, end in zip(tables, ends[1:], strict=True):
        yield _topology(table, lines[table.line : end])


def _topology(table: Table, after: Sequence[str]) -> Topology:
    """The topology of one table; ``after``: the lines below its labels."""
    for a in table.gpus:
        for b, cell in zip(table.labels, table.cells[a], strict=True):
            if (cell.text == "X") != (a == b):
                what = f"{shown(cell.text)} between {a} and {b}"
                hint = "X is on the diagonal and nowhere else: is a column missing?"
                raise InputError(Fault(what, hint, table.file, table.lines[a], cell.column))
    check_symmetric(table, _name)
    matrix = tuple(tuple(_name(table.text(a, b)) for b in table.gpus) for a in table.gpus)
    words = [
        dict(zip(table.titles, table.rest[gpu], strict=True))
        if len(table.rest[gpu]) == len(table.titles)
        else {}  # a column is empty, or two run together: which one is not known
        for gpu in table.gpus
    ]
    cpus = tuple(row.get("CPU Affinity") for row in words)
    numa = tuple(_numbers(row.get("NUMA Affinity", "")) for row in words)
    own = tuple(_numbers(row.get("GPU NUMA ID", "")) for row in words)
    return Topology(
        tool="nvidia-smi topo -m",
        file=table.file,
        line=table.line,
        matrix=matrix,
        nics=_nics(table, after),
        numa=numa if any(numa) else None,
        own_numa=tuple(node[0] if node else None for node in own) if any(own) else None,
        cpus=tuple(one if one and _LIST.fullmatch(one) else None for one in cpus)
        if any(cpus)
        else None,
        remarks=_remarks(matrix, after),
    )


def _name(text: str) -> str:
    return _NAMES.get(text, text)


def _nics(table: Table, after: Sequence[str]) -> tuple[NicPaths, ...]:
    """NICs in the order of their columns, by the name in the legend."""
    names: dict[str, str] = {}
    for line in after:
        if (entry := _NIC_LEGEND.fullmatch(line)) is not None:
            names.setdefault(entry[1], entry[2])
    found = [names.get(label, label) for label in table.nics]
    if len(set(found)) < len(found):
        found = list(table.nics)  # the legend gives two NICs one name
    return tuple(
        NicPaths(name, tuple(_name(table.text(gpu, label)) for gpu in table.gpus))
        for name, label in zip(found, table.nics, strict=True)
    )


def _numbers(text: str) -> tuple[int, ...] | None:
    """Numbers of ``0``, ``0-1`` or ``0,3-9,11-17``, ascending; None for anything else."""
    if not _LIST.fullmatch(text):
        return None
    found: set[int] = set()
    room = MAX_NUMBERS
    for part in text.split(","):
        low, _, high = part.partition("-")
        named = range(int(low), int(high or low) + 1)
        room -= len(named)
        if not named or room < 0:
            return None
        found.update(named)
    return tuple(sorted(found))


def _remarks(matrix: Sequence[Sequence[str]], after: Sequence[str]) -> tuple[str, ...]:
    """A legend since 2016 explains NODE, and NV# wherever links may be printed."""
    linked = any(cell.startswith("NV") for row in matrix for cell in row)
    legend = {line.split("=")[0].strip() for line in after if "=" in line}
    return (_WITHOUT_LINKS,) if not linked and "NODE" in legend and "NV#" not in legend else ()
