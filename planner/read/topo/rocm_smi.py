"""``rocm-smi --showtopo`` and ``--showtoponuma``: weights, link types, hops and NUMA nodes.

Promises: a ``Topology`` in the contract's names, or InputError: xGMI links become ``NV1`` (their
number is printed by ``--shownodesbw`` alone), other pairs ``NODE`` or ``SYS``. Called by ``finding``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

from planner.errors import Fault, InputError
from planner.read.topo.text_tables import (
    Cells,
    Table,
    check_symmetric,
    gpu_number,
    ordered_gpus,
    square,
)
from planner.read.topo.topology import MOST_GPUS, Topology, runs

WEIGHT = "weight between two gpus"
HOPS = "hops between two gpus"
TYPE = "link type between two gpus"
ACCESS = "link accessibility between two gpus"
BANDWIDTH = "bandwidth between two gpus"
KINDS = {WEIGHT: WEIGHT, HOPS: HOPS, TYPE: TYPE, ACCESS: ACCESS, BANDWIDTH: BANDWIDTH}
KINDS["bandwidth"] = BANDWIDTH
"""What the headings of tables mean."""

_NUMA = re.compile(
    r"(?:^|\s)GPU\s*(?:\[\s*)?([0-9]{1,4})\s*(?:\]\s*)?:\s*\(Topology\)"
    r"\s*Numa (Node|Affinity):?\s*(-?[0-9]{1,4})$",
    re.IGNORECASE,
)
_NUMBER = re.compile(r"[0-9]{1,6}")
_RANGE = re.compile(r"(?:[0-9]{1,9}-)?([0-9]{1,9})|N/A")
_ALL = "`rocm-smi --showtopo` prints all of it"

ONE_HOP = 15
"""Weight of one xGMI link; a path over two of them weighs 30. Hops do not tell: they are 1 for both."""

ONE_SOCKET = 40
"""Weight of PCIe up to the processor and down again; between two processors it is 52 or more."""


@dataclass(slots=True)
class Machine:
    """What one run, or several on one machine, printed. ``nodes[gpu]``: its NUMA node."""

    line: int
    tables: dict[str, Table] = field(default_factory=dict)
    nodes: dict[int, int | None] = field(default_factory=dict)
    affinities: dict[int, int | None] = field(default_factory=dict)

    @property
    def gpus(self) -> frozenset[int]:
        """Numbers of its GPUs: those of its tables, or else those whose NUMA node is told."""
        told = {gpu_number(label) for table in self.tables.values() for label in table.gpus}
        return frozenset(told or self.nodes.keys() | self.affinities.keys())

    @property
    def heading(self) -> str | None:
        """The first of its tables that tells links."""
        return next((kind for kind in (TYPE, WEIGHT, HOPS) if kind in self.tables), None)


def machines(tables: Sequence[Table], lines: Sequence[str]) -> list[Machine]:
    """Tables and NUMA blocks by machine: what a machine has already begins the next one."""
    starts = {table.line: table for table in tables}
    found: list[Machine] = []
    block: Machine | None = None
    for number, line in enumerate(lines, 1):
        table = starts.get(number)
        told = None if table is not None else _numa_line(line)
        if block is not None and (table is not None or (told and _has_node(block, told))):
            _join(found, block)
            block = None
        if table is not None:
            _join(found, Machine(number, {KINDS[table.heading]: table}))
        elif told is not None:
            block = block or Machine(number)
            _nodes(block, told)[int(told[1])] = int(told[3]) if int(told[3]) >= 0 else None
    if block is not None:
        _join(found, block)
    return [machine for machine in found if machine.heading or machine.nodes or machine.affinities]


def _nodes(machine: Machine, told: re.Match[str]) -> dict[int, int | None]:
    return machine.nodes if told[2].lower() == "node" else machine.affinities


def _has_node(machine: Machine, told: re.Match[str]) -> bool:
    return int(told[1]) in _nodes(machine, told)


def _join(found: list[Machine], piece: Machine) -> None:
    """Add a table or a NUMA block to the last machine, or as a machine of its own."""
    last = found[-1] if found else None
    if (
        last is None
        or last.tables.keys() & piece.tables.keys()
        or last.nodes.keys() & piece.nodes.keys()
        or last.affinities.keys() & piece.affinities.keys()
        or (last.tables and piece.tables and last.gpus != piece.gpus)
        or (last.tables and not piece.gpus <= last.gpus)
        or (piece.tables and not last.gpus <= piece.gpus)
    ):
        found.append(piece)
        return
    last.tables.update(piece.tables)
    last.nodes.update(piece.nodes)
    last.affinities.update(piece.affinities)


def tells_nodes(line: str) -> bool:
    """Whether it is a line of the NUMA block."""
    return _numa_line(line) is not None


def _numa_line(line: str) -> re.Match[str] | None:
    return _NUMA.search(line.rstrip()) if "opology" in line else None


def read_machine(machine: Machine, file: str) -> Topology:
    """The topology of one machine. Raises InputError where a table is missing, cut or odd."""
    if machine.heading is None:
        return _only_nodes(machine, file)
    table = machine.tables[machine.heading]
    gpus = ordered_gpus(table, file)
    cells = {
        kind: _cells(machine.tables[kind], gpus, file, kind)
        for kind in (TYPE, WEIGHT, HOPS, BANDWIDTH)
        if kind in machine.tables
    }
    _check_enough(machine, cells, gpus, file)
    numbers = tuple(gpu_number(label) for label in gpus)
    nodes = tuple(_node(machine, number) for number in numbers)
    links = _link_counts(cells, gpus)
    paths = _Paths(gpus, cells, dict(zip(gpus, nodes, strict=True)), links)
    return Topology(
        tool="rocm-smi --showtopo",
        file=file,
        line=table.line,
        numbers=numbers,
        matrix=tuple(tuple(paths.name(a, b) for b in gpus) for a in gpus),
        counted=links is not None,
        numa=_affinity(nodes),
    )


def _only_nodes(machine: Machine, file: str) -> Topology:
    numbers = tuple(sorted(machine.nodes.keys() | machine.affinities.keys()))
    if len(numbers) > MOST_GPUS:
        what = f"{len(numbers)} GPUs in one server, more than {MOST_GPUS}"
        raise InputError(Fault(what, "one output shows one server", file, machine.line, 1))
    _check_contiguous(numbers, machine, file)
    nodes = tuple(_node(machine, number) for number in numbers)
    return Topology(
        tool="rocm-smi --showtoponuma",
        file=file,
        line=machine.line,
        numbers=numbers,
        matrix=None,
        counted=False,
        numa=_affinity(nodes),
    )


def _check_contiguous(numbers: tuple[int, ...], machine: Machine, file: str) -> None:
    missing = tuple(sorted(set(range(max(numbers) + 1)) - set(numbers)))
    if missing:
        what = f"the NUMA nodes are cut off: those of GPU {runs(missing)} are missing"
        raise InputError(Fault(what, "save all that rocm-smi prints", file, machine.line, 1))


def _node(machine: Machine, gpu: int) -> int | None:
    node = machine.nodes.get(gpu)
    return machine.affinities.get(gpu) if node is None else node


def _affinity(nodes: Sequence[int | None]) -> tuple[tuple[int, ...] | None, ...] | None:
    if all(node is None for node in nodes):
        return None
    return tuple(None if node is None else (node,) for node in nodes)


def _cells(table: Table, gpus: Sequence[str], file: str, kind: str) -> Cells:
    if set(table.labels) != set(gpus):
        what = f"{len(table.labels)} GPUs in this table, {len(gpus)} in another of the same server"
        raise InputError(Fault(what, _ALL, file, table.line, table.column))
    known: Callable[[str], bool] = {
        TYPE: lambda text: text.upper() in ("XGMI", "PCIE", "0", "N/A"),
        BANDWIDTH: lambda text: bool(_RANGE.fullmatch(text)),
    }.get(kind, lambda text: bool(_NUMBER.fullmatch(text)))
    hints = {TYPE: "rocm-smi's link types: XGMI, PCIE", BANDWIDTH: "rocm-smi prints 50000-200000"}
    cells = square(table, gpus, file, known, hints.get(kind, "rocm-smi prints numbers here"))
    check_symmetric(cells, table, file, str.upper)
    return cells


def _check_enough(
    machine: Machine, cells: dict[str, Cells], gpus: Sequence[str], file: str
) -> None:
    """Link types, and weights where they alone tell which GPUs are linked directly."""
    table = machine.tables[machine.heading or TYPE]
    place = (file, table.line, table.column)
    if TYPE not in cells:
        what = "the output is cut off: the table `Link Type between two GPUs` is missing"
        raise InputError(Fault(what, _ALL, *place))
    linked = any(_is_xgmi(cells, a, b) for a, b in combinations(gpus, 2))
    if linked and len(gpus) > 2 and WEIGHT not in cells:
        what = "the output is cut off: the table `Weight between two GPUs` is missing"
        hint = f"it alone tells linked GPUs from those linked through another; {_ALL}"
        raise InputError(Fault(what, hint, *place))


def _is_xgmi(cells: dict[str, Cells], a: str, b: str) -> bool:
    return cells[TYPE][a][b].text.upper() == "XGMI"


def _direct(cells: dict[str, Cells], a: str, b: str) -> bool:
    return _is_xgmi(cells, a, b) and (
        WEIGHT not in cells or int(cells[WEIGHT][a][b].text) < 2 * ONE_HOP
    )


def _link_counts(cells: dict[str, Cells], gpus: Sequence[str]) -> dict[frozenset[str], int] | None:
    """Links of each linked pair by the bandwidth table, in units of its slowest link."""
    if BANDWIDTH not in cells:
        return None
    most = {}
    for a, b in combinations(gpus, 2):
        if _direct(cells, a, b):
            told = _RANGE.fullmatch(cells[BANDWIDTH][a][b].text)
            most[frozenset((a, b))] = int((told[1] if told else None) or 0)
    least = min(most.values(), default=0)
    if not least or any(rate % least or rate // least > 16 for rate in most.values()):
        return None
    return {pair: rate // least for pair, rate in most.items()}


@dataclass(frozen=True, slots=True)
class _Paths:
    gpus: Sequence[str]
    cells: dict[str, Cells]
    nodes: dict[str, int | None]
    links: dict[frozenset[str], int] | None

    def name(self, a: str, b: str) -> str:
        """The contract's name of the path between two GPUs."""
        if a == b:
            return "X"
        if _direct(self.cells, a, b):
            return f"NV{1 if self.links is None else self.links[frozenset((a, b))]}"
        return "NODE" if self._one_socket(a, b) else "SYS"

    def _one_socket(self, a: str, b: str) -> bool:
        """Whether both hang on one processor; where nothing tells, they do not: the slower path."""
        if _is_xgmi(self.cells, a, b):
            return False  # over other GPUs, which nobody promises: planned as the slowest path
        here, there = self.nodes[a], self.nodes[b]
        if here is not None and there is not None and here != there:
            return False
        if WEIGHT in self.cells:
            return int(self.cells[WEIGHT][a][b].text) <= ONE_SOCKET
        if HOPS in self.cells:
            return int(self.cells[HOPS][a][b].text) <= 2
        return here is not None and here == there
