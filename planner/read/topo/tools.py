"""Output of ``nvidia-smi topo -m`` and ``rocm-smi --showtopo``: square tables of GPUs and NICs, in lines.

Every nvidia-smi since 2015: with and without NUMA columns, NICs by name or by legend, ``SOC`` for ``SYS``.
Of rocm-smi weights, link types and NUMA nodes (hops say nothing more): xGMI links become ``NV1``, because it
does not print their number; other pairs become ``NODE`` or ``SYS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal, NamedTuple

from models.units import shown
from planner.errors import Fault, InputError

Tool = Literal["nvidia-smi topo -m", "rocm-smi --showtopo"]

VENDORS: dict[Tool, str] = {"nvidia-smi topo -m": "NVIDIA", "rocm-smi --showtopo": "AMD"}


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
        return len(self.matrix)

    @property
    def vendor(self) -> str:
        """Vendor of the GPUs, as in the catalogue."""
        return VENDORS[self.tool]


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


MAX_GPUS = 64
"""Most GPUs of one server; the tools have not been seen to print more than 16."""

MAX_NICS = 256
"""Most NIC columns; the largest known server has 32."""

MAX_CHARACTERS = 16_384
"""Longest line that can be a row: 64 GPUs and 256 NICs take 2,600 characters."""

MAX_NUMBERS = 16_384
"""Most NUMA nodes that one list may name, each time it names one."""

ONE_HOP = 15
"""rocm-smi's weight of one xGMI link; a path over two weighs 30. Hops do not distinguish them: both are 1."""

ONE_SOCKET = 40
"""Weight of PCIe up to the processor and down again; between two processors it is 52 or more."""

_WHOLE = "save it without a terminal that cuts or wraps lines: nvidia-smi topo -m > FILE"

_ESCAPE = re.compile(r"\x1b\[[0-9;]*m")
_GPU = re.compile(r"GPU[0-9]{1,4}")
_NIC = re.compile(r"(?!(?:NV|GPU)[0-9]+$)(?=\S*[0-9_])[A-Za-z][\w.-]*")
_NAME = r"(?:CPU Affinity|Memory Affinity|NUMA Affinity|GPU NUMA ID)"
_TITLE = re.compile(rf"(?<=[ \t]){_NAME}")
_TITLES = re.compile(rf"(?:{_NAME}(?:[ \t]+|$))*")
_AFFINITY = re.compile(r"[0-9][0-9,-]*|N/A")


def read(file: str, text: str) -> Iterator[Topology]:
    """Every topology in a tool's output, in order. Raises InputError for one that is broken."""
    # without colours and underlines; a line too long for a table becomes empty
    lines = [
        _ESCAPE.sub(lambda found: " " * len(found[0]), line.rstrip("\r"))
        if len(line.rstrip("\r")) <= MAX_CHARACTERS
        else ""
        for line in text.split("\n")
    ]
    yield from (_read_rocm if any(map(_of_rocm, lines)) else _read_nvidia)(file, lines)


# ---- tables


class Cell(NamedTuple):
    """A word, and its place; ``column`` counts from 1."""

    text: str
    line: int
    column: int


@dataclass(slots=True)
class Table:
    """A square table. ``rows``: of its first labels, those of all GPUs at least.

    ``titles``: columns after the square, whose words are in ``rest`` by row.
    """

    file: str
    place: Cell
    labels: tuple[str, ...]
    titles: tuple[str, ...]
    rows: list[Sequence[Cell]] = field(default_factory=list)
    rest: list[Sequence[str]] = field(default_factory=list)

    @property
    def gpus(self) -> int:
        return sum(1 for label in self.labels if _GPU.fullmatch(label))

    def fault(self, what: str, hint: str, cell: Cell | None = None) -> InputError:
        """An error at a cell, or at the labels of the table."""
        cell = cell or self.place
        return InputError(Fault(what, hint, self.file, cell.line, cell.column))


def _read_table(
    file: str, lines: Sequence[str], number: int, known: Callable[[str], object], hint: str
) -> Table | None:
    """The table whose labels are in line ``number`` (from 1); None if they are not there.

    ``known``: whether the tool prints such a cell; ``hint``: which it prints. Raises InputError for
    rows that are missing or cut off and for a cell that is not known.
    """
    line = lines[number - 1]
    if not line.lstrip().startswith("GPU0"):
        return None
    first = _TITLE.search(line)
    end = len(line) if first is None else first.start()
    labels = tuple(line[:end].split())
    if not all(_GPU.fullmatch(label) or _NIC.fullmatch(label) for label in labels):
        return None
    if labels[0] != "GPU0" or _TITLES.fullmatch(line, end) is None:
        return None
    place = Cell("", number, len(line) - len(line.lstrip()) + 1)
    table = Table(file, place, labels, tuple(_TITLE.findall(line, end)))
    _check_labels(table)
    for label in labels:
        words = _words(lines, number + len(table.rows))
        if not words or words[0].text != label:
            if len(table.rows) >= table.gpus:
                break  # rows of NICs repeat what their columns say
            raise table.fault(f"the matrix is cut off: the row of {label} is missing", _WHOLE)
        _check_row(table, words, known, hint)
        table.rows.append(words[1 : len(labels) + 1])
        table.rest.append([word.text for word in words[len(labels) + 1 :]])
    words = _words(lines, number + len(table.rows))
    if len(words) > 1 and _GPU.fullmatch(words[0].text) and known(words[1].text):
        raise table.fault(f"the matrix is cut off: {words[0].text} has no column", _WHOLE)
    return table


def _words(lines: Sequence[str], at: int) -> list[Cell]:
    line = lines[at] if at < len(lines) else ""
    return [Cell(word[0], at + 1, word.start() + 1) for word in re.finditer(r"\S+", line)]


def _check_labels(table: Table) -> None:
    gpus, nics = table.labels[: table.gpus], table.labels[table.gpus :]
    if len(gpus) > MAX_GPUS or len(nics) > MAX_NICS:
        what = f"{len(gpus)} GPUs and {len(nics)} NICs in one server"
        raise table.fault(what, f"the most is {MAX_GPUS} GPUs and {MAX_NICS} NICs")
    if gpus != tuple(f"GPU{g}" for g in range(len(gpus))):
        columns = " ".join(label for label in table.labels if _GPU.fullmatch(label))
        raise table.fault(f"the columns {columns} are not GPU0, GPU1, ... in order", _WHOLE)
    for label in [label for label in nics if nics.count(label) > 1][:1]:
        raise table.fault(f"two columns are labelled {label}", _WHOLE)


def _check_row(
    table: Table, words: Sequence[Cell], known: Callable[[str], object], hint: str
) -> None:
    label, cells = words[0], words[1 : len(table.labels) + 1]
    bad = next((i for i, cell in enumerate(cells) if not known(cell.text)), len(cells))
    if bad < len(cells) and not _AFFINITY.fullmatch(cells[bad].text):
        cell = cells[bad]
        what = f"{shown(cell.text)} between {label.text} and {table.labels[bad]} is no path"
        raise table.fault(what, hint, cell)
    if bad < len(table.labels):
        what = f"the row of {label.text} is cut off: {bad} of {len(table.labels)} cells"
        raise table.fault(what, _WHOLE, label)
    for cell in words[len(table.labels) + 1 :][:1]:
        if known(cell.text) and not _AFFINITY.fullmatch(cell.text):
            what = f"the row of {label.text} has more cells than there are columns, {len(cells)}"
            raise table.fault(what, _WHOLE, cell)


def _check_symmetric(table: Table, meaning: Callable[[str], str]) -> None:
    """Raise InputError for two cells that differ from their mirror image.

    ``meaning``: the name of a path, of which a tool may print several forms.
    """
    for a, b in combinations(range(len(table.rows)), 2):
        there, back = table.rows[a][b], table.rows[b][a]
        if meaning(there.text) != meaning(back.text):
            here, other = table.labels[a], table.labels[b]
            what = (
                f"the matrix is not symmetric: {here} to {other} is {shown(there.text)}, {other} to"
                f" {here} is {shown(back.text)}"
            )
            hint = "a path has one name in both directions: save the output again"
            raise table.fault(what, hint, there)


# ---- nvidia-smi topo -m

_PATH = re.compile(r"X|NV[1-9][0-9]{0,2}|PIX|PXB|PSB|PHB|NODE|SYS|SOC")
_PATHS = "nvidia-smi's names: X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS"
# SOC: SYS before driver 375. PSB: the switch on a board of two GPUs (K80).
_NAMES = {"SOC": "SYS", "PSB": "PIX"}
_NIC_LEGEND = re.compile(r"[ \t]*(NIC[0-9]{1,3})\s*[:=]\s*([\w.-]{1,64})[ \t]*")
_LIST = re.compile(r"[0-9]{1,5}(?:-[0-9]{1,5})?(?:,[0-9]{1,5}(?:-[0-9]{1,5})?)*")
_WITHOUT_LINKS = (
    "NVLinks may be left out: the legend has none, as `nvidia-smi topo -mp` prints it;"
    " `nvidia-smi topo -m` prints them"
)


def _read_nvidia(file: str, lines: Sequence[str]) -> Iterator[Topology]:
    numbers = range(1, len(lines) + 1)
    found = (_read_table(file, lines, number, _PATH.fullmatch, _PATHS) for number in numbers)
    tables = [table for table in found if table is not None]
    ends = [*(table.place.line - 1 for table in tables), len(lines)]
    for table, end in zip(tables, ends[1:], strict=True):
        yield _of_nvidia(table, lines[table.place.line : end])


def _of_nvidia(table: Table, after: Sequence[str]) -> Topology:
    """The topology of one table; ``after``: the lines below its labels."""
    gpus = range(table.gpus)
    for a in gpus:
        for b, cell in enumerate(table.rows[a]):
            if (cell.text == "X") != (a == b):
                what = f"{shown(cell.text)} between {table.labels[a]} and {table.labels[b]}"
                hint = "X is on the diagonal and nowhere else: is a column missing?"
                raise table.fault(what, hint, cell)
    _check_symmetric(table, _name)
    matrix = tuple(tuple(_name(cell.text) for cell in table.rows[g][: len(gpus)]) for g in gpus)
    words = [
        dict(zip(table.titles, rest, strict=True))
        if len(rest) == len(table.titles)
        else {}  # a column is empty, or two run together: which one is not known
        for rest in table.rest[: len(gpus)]
    ]
    cpus = [row.get("CPU Affinity") for row in words]
    numa = tuple(_numbers(row.get("NUMA Affinity", "")) for row in words)
    own = [_numbers(row.get("GPU NUMA ID", "")) for row in words]
    # A legend since 2016 explains NODE, and NV# wherever links may be printed.
    linked = any(cell.startswith("NV") for row in matrix for cell in row)
    legend = {line.split("=")[0].strip() for line in after if "=" in line}
    hidden = not linked and "NODE" in legend and "NV#" not in legend
    return Topology(
        tool="nvidia-smi topo -m",
        file=table.file,
        line=table.place.line,
        matrix=matrix,
        nics=_nics(table, after),
        numa=numa if any(numa) else None,
        own_numa=tuple(node[0] if node else None for node in own) if any(own) else None,
        cpus=tuple(one if one and _LIST.fullmatch(one) else None for one in cpus)
        if any(cpus)
        else None,
        remarks=(_WITHOUT_LINKS,) * hidden,
    )


def _name(text: str) -> str:
    return _NAMES.get(text, text)


def _nics(table: Table, after: Sequence[str]) -> tuple[NicPaths, ...]:
    names: dict[str, str] = {}
    for line in after:
        if (entry := _NIC_LEGEND.fullmatch(line)) is not None:
            names.setdefault(entry[1], entry[2])
    labels = table.labels[table.gpus :]
    found = [names.get(label, label) for label in labels]
    if len(set(found)) < len(found):
        found = list(labels)  # the legend gives two NICs one name
    return tuple(
        NicPaths(name, tuple(_name(row[at].text) for row in table.rows[: table.gpus]))
        for at, name in enumerate(found, table.gpus)
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


# ---- rocm-smi --showtopo

WEIGHT = "Weight between two GPUs"
TYPE = "Link Type between two GPUs"

_HEADING = re.compile(r"[ \t]*=+ ([A-Za-z][A-Za-z ]*) =+[ \t]*")
_NUMA = re.compile(
    r"[ \t]*GPU\[([0-9]{1,4})\]\s*: \(Topology\) Numa (Node|Affinity): (-?[0-9]{1,4})\s*"
)
_NUMBER = re.compile(r"[0-9]{1,6}")
_KNOWN: dict[str, tuple[Callable[[str], object], str]] = {
    TYPE: (lambda text: text.upper() in ("XGMI", "PCIE", "0"), "rocm-smi prints XGMI or PCIE here"),
    WEIGHT: (_NUMBER.fullmatch, "rocm-smi prints numbers here"),
}
_ALL = "save all that `rocm-smi --showtopo` prints"


@dataclass(slots=True)
class _Output:
    """What one run prints. ``nodes``: NUMA node by (Node or Affinity, GPU)."""

    line: int
    tables: dict[str, Table] = field(default_factory=dict)
    nodes: dict[tuple[str, int], int] = field(default_factory=dict)


def _of_rocm(line: str) -> bool:
    heading = _HEADING.fullmatch(line)
    return _NUMA.fullmatch(line) is not None or (heading is not None and heading[1] in _KNOWN)


def _read_rocm(file: str, lines: Sequence[str]) -> Iterator[Topology]:
    """Every server in the lines: a table or a NUMA node that repeats begins the next one."""
    outputs: list[_Output] = []
    heading = ""
    for number, line in enumerate(lines, 1):
        if (title := _HEADING.fullmatch(line)) is not None:
            heading = title[1]
        elif (numa := _NUMA.fullmatch(line)) is not None:
            key = (numa[2], int(numa[1]))
            if not outputs or key in outputs[-1].nodes:
                outputs.append(_Output(number))
            outputs[-1].nodes[key] = int(numa[3])
        elif heading in _KNOWN:
            table = _read_table(file, lines, number, *_KNOWN[heading])
            if table is not None:
                if not outputs or heading in outputs[-1].tables:
                    outputs.append(_Output(number))
                outputs[-1].tables[heading] = table
                heading = ""
    for output in outputs:
        yield _of_run(file, output)


def _of_run(file: str, output: _Output) -> Topology:
    for title in (TYPE, WEIGHT):
        if title not in output.tables:
            what = f"the output is cut off: the table `{title}` is missing"
            raise InputError(Fault(what, _ALL, file, output.line, 1))
    kind = output.tables[TYPE]
    gpus = range(kind.gpus)
    for table in output.tables.values():
        _check_symmetric(table, str.upper)
        if table.labels != kind.labels[: len(gpus)]:
            what = f"{len(table.labels)} columns in this table, {len(gpus)} GPUs in `{TYPE}`"
            raise table.fault(what, _ALL)
    nodes = [_node(output, g) for g in gpus]
    return Topology(
        tool="rocm-smi --showtopo",
        file=file,
        line=kind.place.line,
        matrix=tuple(tuple(_path(output.tables, nodes, a, b) for b in gpus) for a in gpus),
        counted=False,
        numa=None
        if all(node is None for node in nodes)
        else tuple(None if node is None else (node,) for node in nodes),
    )


def _node(output: _Output, gpu: int) -> int | None:
    found = (output.nodes.get((kind, gpu), -1) for kind in ("Node", "Affinity"))
    return next((node for node in found if node >= 0), None)


def _path(tables: dict[str, Table], nodes: Sequence[int | None], a: int, b: int) -> str:
    if a == b:
        return "X"
    weight = int(tables[WEIGHT].rows[a][b].text)
    if tables[TYPE].rows[a][b].text.upper() == "XGMI":
        # Over other GPUs no rate is promised: planned as the slowest path.
        return "NV1" if weight < 2 * ONE_HOP else "SYS"
    here, there = nodes[a], nodes[b]
    apart = here is not None and there is not None and here != there
    return "SYS" if apart or weight > ONE_SOCKET else "NODE"
