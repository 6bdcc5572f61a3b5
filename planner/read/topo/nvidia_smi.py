"""``nvidia-smi topo -m``: the matrix of GPUs and NICs, affinities and the NIC legend.

Promises: a ``Topology`` as printed, or InputError. Every driver since 2015: with and without NUMA
columns, NICs by name or by legend, ``SOC`` for ``SYS``. Called by ``finding``.
"""

from __future__ import annotations

import re
from collections.abc import Sequence

from models.units import shown
from planner.errors import Fault, InputError
from planner.read.topo.affinities import affinities
from planner.read.topo.text_tables import (
    Cells,
    Table,
    check_symmetric,
    gpu_number,
    ordered_gpus,
    product,
    square,
)
from planner.read.topo.topology import NicPaths, Topology

_PATH = re.compile(r"X|NV[1-9][0-9]{0,2}|PIX|PXB|PSB|PHB|NODE|SYS|SOC")
_HINT = "nvidia-smi's names: X, NV1, NV2, ..., PIX, PXB, PHB, NODE, SYS"
_PEER = frozenset({"OK", "NS", "CNS", "GNS", "TNS", "U", "DR"})
# SOC: SYS before driver 375. PSB: the switch on a board of two GPUs (K80).
_NAMES = {"SOC": "SYS", "PSB": "PIX"}
_LEGEND = re.compile(r"(?:^|\s)(NIC[0-9]{1,3})\s*[:=]\s*([\w.-]{1,64})$")
_MIG = re.compile(r"^[ \t]*MIG\s+[0-9]+g\.|\(UUID: MIG-|\bMIG[0-9]*\s+GPU[0-9]", re.MULTILINE)
_WITHOUT_LINKS = (
    "NVLinks may be left out: the legend has none, as `nvidia-smi topo -mp` prints it;"
    " `nvidia-smi topo -m` prints them"
)


def is_peer_access(table: Table) -> bool:
    """Whether it is the table of ``nvidia-smi topo -p2p``, which names no paths."""
    words = {cell.text for row in table.rows.values() for cell in row.cells}
    return bool(words & _PEER) and words <= _PEER | {"X"}


def read_table(
    table: Table, before: Sequence[str], after: Sequence[str], file: str, *, last: bool
) -> Topology:
    """The topology of one table. Raises InputError.

    ``before``, ``after``: the lines between it and the tables next to it; ``last``: there is none
    after it, so that what stands there is not of another server.
    """
    labels = ordered_gpus(table, file)
    _check_tool(table, file)
    cells = square(table, labels, file, lambda text: bool(_PATH.fullmatch(text)), _HINT)
    _check_diagonal(cells, labels, table, file)
    check_symmetric(cells, table, file, _name)
    matrix = tuple(tuple(_name(cells[a][b].text) for b in labels) for a in labels)
    known = affinities(
        table.columns, [[word.text for word in table.rows[label].rest] for label in labels]
    )
    cpus = tuple(affinity.cpus for affinity in known)
    numa = tuple(affinity.numa for affinity in known)
    own = tuple(affinity.own_numa for affinity in known)
    return Topology(
        tool="nvidia-smi topo -m",
        file=file,
        line=table.line,
        numbers=tuple(gpu_number(label) for label in labels),
        matrix=matrix,
        nics=_nics(table, cells, labels, after),
        numa=numa if any(nodes is not None for nodes in numa) else None,
        own_numa=own if any(node is not None for node in own) else None,
        cpus=cpus if any(cpus) else None,
        product=product(before) or (product(after) if last else None),
        remarks=_remarks(matrix, before, after),
    )


def _name(text: str) -> str:
    return _NAMES.get(text, text)


def _check_tool(table: Table, file: str) -> None:
    """rocm-smi's tables look alike, and say what they tell in a heading alone."""
    words = {cell.text.upper() for row in table.rows.values() for cell in row.cells}
    if words & {"XGMI", "PCIE"} or all(word.isdigit() for word in words):
        what = "a table of rocm-smi without the heading above it, such as Weight between two GPUs"
        hint = "save all that `rocm-smi --showtopo` prints"
        raise InputError(Fault(what, hint, file, table.line, table.column))


def _check_diagonal(cells: Cells, labels: Sequence[str], table: Table, file: str) -> None:
    for a in labels:
        for b, cell in cells[a].items():
            if (cell.text == "X") != (a == b):
                what = f"{shown(cell.text)} between {a} and {b}"
                hint = "X stands on the diagonal and nowhere else: is a column missing?"
                raise InputError(Fault(what, hint, file, table.rows[a].line, cell.column))


def _nics(
    table: Table, cells: Cells, labels: Sequence[str], after: Sequence[str]
) -> tuple[NicPaths, ...]:
    """NICs in the order of their columns, by the name that the legend gives them."""
    names: dict[str, str] = {}
    for line in after:
        if (entry := _LEGEND.search(line.rstrip())) is not None:
            names.setdefault(entry[1], entry[2])
    told = [names.get(label, label) for label in table.others]
    if len(set(told)) < len(told):
        told = list(table.others)  # a legend that names two alike tells nothing
    return tuple(
        NicPaths(name, tuple(_name(cells[gpu][label].text) for gpu in labels))
        for name, label in zip(told, table.others, strict=True)
        if not label.upper().startswith("MIG")
    )


def _remarks(
    matrix: Sequence[Sequence[str]], before: Sequence[str], after: Sequence[str]
) -> tuple[str, ...]:
    linked = any(cell.startswith("NV") for row in matrix for cell in row)
    told, legend = "\n".join(before), "\n".join(after)
    remarks = []
    if _MIG.search(told) is not None:
        remarks.append("MIG slices are listed beside the matrix; the model has the whole GPUs")
    # Legends since 2016 explain NODE, and NV# wherever links may be printed.
    modern = re.search(r"^[ \t]*NODE\s+=", legend, re.MULTILINE) is not None
    asked = re.search(r"topo\s+(?:-mp|--matrix_pci)\b", told) is not None
    without = modern and re.search(r"^[ \t]*NV#\s+=", legend, re.MULTILINE) is None
    if not linked and (asked or without):
        remarks.append(_WITHOUT_LINKS)
    return tuple(remarks)
