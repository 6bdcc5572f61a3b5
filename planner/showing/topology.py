"""A server model for people: what it is, its link matrix, and what every set of its GPUs reaches.

Promises: pure tables from a ServerModel, no terminal; rates are MB/s, rounded down.
Called by the verb ``topo``.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterator
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from models.bandwidth import TableRow, UnknownRate, switched_MBps, table
from models.bandwidth.inside import link_count
from models.bandwidth.symmetry import signatures
from planner.showing.recognised import rate_note, reading_facts
from planner.showing.table import Cell, Column, Table
from planner.showing.text import number

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from planner.reading.matrices import Reading

MOST_SETS = 256
"""Most sets of one size that are listed: of a mesh of 16 GPUs only the pairs and the large sets."""

MOST_SHAPES = 2
"""Most sets of one size above 8 GPUs that may be linked differently: of a made-up mesh of 16 GPUs
one set can take ten seconds to price."""


def topology_text(model: ServerModel, reading: Reading | None = None) -> str:
    """Everything about the model, as plain text: facts, link matrix, bandwidth table."""
    return "\n".join(part.plain() for part in topology_tables(model, reading))


def topology_tables(model: ServerModel, reading: Reading | None = None) -> list[Table]:
    """Facts, link matrix, bandwidth table. ``reading``: of a model read from a tool's output."""
    parts = [facts(model, reading), links(model, reading), bandwidths(model, reading)]
    return [part for part in parts if part is not None]


def facts(model: ServerModel, reading: Reading | None = None) -> Table:
    """Name and value of what the model states."""
    linked = model.fabric != "pcie" and (reading is None or model.matrix is not None)
    link = "not known" if model.link_MBps is None else f"{number(model.link_MBps)} MB/s a link"
    known = reading is None or reading.known.gpu is not None
    rows = [
        ("server model", model.name),
        *(() if reading is None else reading_facts(reading)),
        ("also", ", ".join(model.aliases)),
        ("vendor", model.vendor),
        ("GPUs", f"{model.gpus} x {model.gpu}" if known else f"{model.gpus}, model not known"),
        ("fabric", _fabric(model) if linked or model.fabric == "pcie" else ""),
        (_link(model), link if linked else ""),
        ("PCIe", _pcie(model, () if reading is None else reading.assumed)),
        ("NICs", _nic_summary(model)),
        ("NVLink domain", _domain(model)),
        *(("source", source) for source in model.sources),
        ("confidence", model.confidence),
    ]
    shown = tuple((Cell(name, "dim"), Cell(value)) for name, value in rows if value)
    return Table((Column("fact"), Column("value", fold=True)), shown, headless=True)


def _pcie(model: ServerModel, assumed: tuple[str, ...]) -> str:
    switch = f"{number(model.pcie_MBps)} MB/s under one switch"
    sockets = f"{number(model.sys_MBps)} MB/s between sockets"
    if "pcieMBps" in assumed and "sysMBps" in assumed:
        return f"taken to be {switch}, {sockets}"
    return f"{switch}{' (assumed)' if 'pcieMBps' in assumed else ''}, {sockets}"


def _link(model: ServerModel) -> str:
    """What the vendor calls the links that the matrix writes NVn."""
    return {"AMD": "xGMI", "Intel": "RoCE"}.get(model.vendor or "", "NVLink")


def _fabric(model: ServerModel) -> str:
    link = _link(model)
    words = {
        "nvswitch": f"{link} through a switch: any set of GPUs reaches the full rate",
        "direct": f"{link} from GPU to GPU, no switch: which GPUs are chosen matters",
        "bridges": f"{link} bridges between some GPUs: which GPUs are chosen matters",
        "pcie": "PCIe only",
    }
    return words[model.fabric]


def _nic_summary(model: ServerModel) -> str:
    """``8 x 400 Gb/s`` by speed, fastest first."""
    speeds: dict[int | None, int] = {}
    for nic in model.nics:
        speeds[nic.megabits] = speeds.get(nic.megabits, 0) + 1
    ordered = sorted(speeds.items(), key=lambda item: -(item[0] or 0))
    return ", ".join(f"{count} x {_gigabits(speed)}" for speed, count in ordered) or "none"


def _gigabits(megabits: int | None) -> str:
    if megabits is None:
        return "unknown speed"
    whole, rest = divmod(megabits, 1000)
    return f"{whole}.{rest:03d}".rstrip("0").rstrip(".") + " Gb/s"


def _domain(model: ServerModel) -> str:
    if model.nvlink_domain_nodes == 1:
        return ""
    gpus = model.gpus * model.nvlink_domain_nodes
    return f"{model.nvlink_domain_nodes} such servers, {gpus} GPUs, share one NVLink fabric"


def links(model: ServerModel, reading: Reading | None = None) -> Table | None:
    """The link matrix with the NUMA node, CPUs, PCIe switch and near NICs of every GPU.

    Where the matrix is not known, NUMA nodes alone if a tool told them, otherwise None; behind a
    switch without one, every pair has all links.
    """
    matrix = model.matrix
    cpus = None if reading is None else reading.topology.cpus
    if matrix is None and reading is not None:
        matrix = ((),) * model.gpus
    if matrix is None:
        if not model.switched or model.gpus > MOST_COLUMNS:
            return None
        pair = f"NV{model.links_per_gpu}"
        gpus = range(model.gpus)
        matrix = tuple(tuple("X" if a == b else pair for b in gpus) for a in gpus)
    rows = tuple(
        (
            Cell(f"GPU{g}", "head"),
            *(Cell(cell, None if cell.startswith("NV") else "dim") for cell in row),
            Cell(_group(model.numa, g)),
            Cell((cpus[g] if cpus is not None else None) or ""),
            Cell(_group(model.pcie_switch, g)),
            Cell(_near(model, g)),
        )
        for g, row in enumerate(matrix)
    )
    columns = (f"GPU{g}" for g in range(len(matrix[0])))
    names = ("", *columns, "NUMA", "CPUs", "switch", "near NICs")
    return Table(tuple(Column(name) for name in names), rows).without_empty_columns()


MOST_COLUMNS = 32
"""Most GPUs whose matrix is drawn where it says the same for every pair."""


def _group(groups: tuple[int | None, ...] | None, gpu: int) -> str:
    group = None if groups is None else groups[gpu]
    return "" if group is None else str(group)


def _near(model: ServerModel, gpu: int) -> str:
    """The NICs near a GPU by name; ``all`` if that is every one."""
    near = [nic.name for nic in model.nics if nic.gpus is None or gpu in nic.gpus]
    return "all" if len(near) == len(model.nics) > 1 else " ".join(near)


def bandwidths(model: ServerModel, reading: Reading | None = None) -> Table:
    """One row for the sets of one size that reach the same: inside, and over several servers."""
    sizes = [k for k in range(1, model.gpus + 1) if model.switched or _few(model, k)]
    try:
        rows = tuple(_row(row, mesh=model.fabric != "pcie") for row in table(model, sizes))
    except UnknownRate as unknown:
        why = None if reading is None else rate_note(reading)
        notes = (f"no bandwidth table: {unknown}", *([why] if why else []))
        return Table((), (), notes, headless=True)
    names = ("GPUs", "inside", "rings", "chains", "sets", "such as", "NICs", "several servers")
    columns = tuple(Column(name, right=name != "such as") for name in names)
    return Table(columns, rows, tuple(_notes(model, sizes))).without_empty_columns()


def _few(model: ServerModel, size: int) -> bool:
    if comb(model.gpus, size) > MOST_SETS:
        return False
    return size <= 8 or len(_shapes(model, size)) <= MOST_SHAPES


def _shapes(model: ServerModel, size: int) -> set[Hashable]:
    """What tells apart how the sets of one size are linked; empty without a matrix."""
    if model.matrix is None:
        return set()
    links = [[link_count(cell) for cell in row] for row in model.matrix]
    return {
        tuple(sorted(signatures([[links[a][b] for b in chosen] for a in chosen])))
        for chosen in combinations(range(model.gpus), size)
    }


def _notes(model: ServerModel, sizes: list[int]) -> Iterator[str]:
    yield "MB/s, one direction, rounded down; `inside` among these GPUs of one server, `NICs` out of it."
    yield "`several servers`: so many GPUs on each of two or more, nothing between them oversubscribed."
    left = [k for k in range(1, model.gpus + 1) if k not in sizes]
    if left:
        sizes_left = f"{left[0]} to {left[-1]}" if len(left) > 1 else str(left[0])
        yield f"Not listed: sets of {sizes_left} GPUs, too many of each size."
    if model.nvlink_domain_nodes > 1:
        yield f"Within one NVLink domain: {_floored(switched_MBps(model))} on any of its servers."
    if any(nic.megabits is None for nic in model.nics):
        yield "The speed of a NIC is not known: give nodes of this model their own `nics`."


def _row(row: TableRow, *, mesh: bool) -> tuple[Cell, ...]:
    return tuple(
        Cell(text)
        for text in (
            str(row.gpus),
            "unlimited" if row.inside is None else _floored(row.inside),
            str(row.rings) if mesh and row.rings is not None else "-",
            str(row.chains) if mesh and row.chains is not None else "-",
            number(row.subsets),
            _indices(row.example),
            "-" if row.out is None else _range(*row.out),
            "-" if row.out is None else _range(*(_least(row.inside, out) for out in row.out)),
        )
    )


def _least(inside: Fraction | None, out: Fraction) -> Fraction:
    return out if inside is None else min(inside, out)


def _floored(rate: Fraction) -> str:
    return number(math.floor(rate))


def _range(least: Fraction, most: Fraction) -> str:
    """``12,500`` or ``12,500-25,000``."""
    low, high = _floored(least), _floored(most)
    return low if low == high else f"{low}-{high}"


def _indices(gpus: tuple[int, ...]) -> str:
    """``0,3``; a long run from 0 as ``0-15``."""
    if len(gpus) > 8 and gpus == tuple(range(len(gpus))):
        return f"0-{gpus[-1]}"
    return ",".join(map(str, gpus))
