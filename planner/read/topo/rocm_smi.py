"""``rocm-smi --showtopo``: weights, link types and NUMA nodes; hops say nothing more.

xGMI links become ``NV1``, because the tool does not print their number; other pairs become
``NODE`` or ``SYS``.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field

from planner.errors import Fault, InputError
from planner.read.topo.topology import Table, Topology, check_symmetric, read_table

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

ONE_HOP = 15
"""Weight of one xGMI link; a path over two weighs 30. Hops do not distinguish them: both are 1."""

ONE_SOCKET = 40
"""Weight of PCIe up to the processor and down again; between two processors it is 52 or more."""


@dataclass(slots=True)
class _Output:
    """What one run prints. ``nodes``: NUMA node by (Node or Affinity, GPU)."""

    line: int
    tables: dict[str, Table] = field(default_factory=dict)
    nodes: dict[tuple[str, int], int] = field(default_factory=dict)


def is_output(lines: Sequence[str]) -> bool:
    """Whether a line is a heading or a NUMA line of the tool."""
    return any(
        _NUMA.fullmatch(line)
        or ((found := _HEADING.fullmatch(line)) is not None and found[1] in _KNOWN)
        for line in lines
    )


def read(file: str, lines: Sequence[str]) -> Iterator[Topology]:
    """Every server in the lines: a table or a NUMA node that repeats begins the next one.

    Raises InputError.
    """
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
            table = read_table(file, lines, number, *_KNOWN[heading])
            if table is not None:
                if not outputs or heading in outputs[-1].tables:
                    outputs.append(_Output(number))
                outputs[-1].tables[heading] = table
                heading = ""
    for output in outputs:
        yield _topology(file, output)


def _topology(file: str, output: _Output) -> Topology:
    for title in (TYPE, WEIGHT):
        if title not in output.tables:
            what = f"the output is cut off: the table `{title}` is missing"
            raise InputError(Fault(what, _ALL, file, output.line, 1))
    kind = output.tables[TYPE]
    gpus = kind.gpus
    for table in output.tables.values():
        check_symmetric(table, str.upper)
        if table.labels != gpus:
            what = f"{len(table.labels)} columns in this table, {len(gpus)} GPUs in `{TYPE}`"
            raise table.fault(what, _ALL)
    nodes = tuple(_node(output, g) for g in range(len(gpus)))
    return Topology(
        tool="rocm-smi --showtopo",
        file=file,
        line=kind.line,
        matrix=tuple(
            tuple(_path(output.tables, nodes, a, b) for b in range(len(gpus)))
            for a in range(len(gpus))
        ),
        counted=False,
        numa=None
        if all(node is None for node in nodes)
        else tuple(None if node is None else (node,) for node in nodes),
    )


def _node(output: _Output, gpu: int) -> int | None:
    """The NUMA node of a GPU; the tool prints -1 where it does not know."""
    found = (output.nodes.get((kind, gpu), -1) for kind in ("Node", "Affinity"))
    return next((node for node in found if node >= 0), None)


def _path(tables: dict[str, Table], nodes: Sequence[int | None], a: int, b: int) -> str:
    """The name of the path between two GPUs in nvidia-smi's words."""
    if a == b:
        return "X"
    weight = int(tables[WEIGHT].cells[f"GPU{a}"][b].text)
    if tables[TYPE].cells[f"GPU{a}"][b].text.upper() == "XGMI":
        # Over other GPUs no rate is promised: planned as the slowest path.
        return "NV1" if weight < 2 * ONE_HOP else "SYS"
    here, there = nodes[a], nodes[b]
    apart = here is not None and there is not None and here != there
    return "SYS" if apart or weight > ONE_SOCKET else "NODE"
