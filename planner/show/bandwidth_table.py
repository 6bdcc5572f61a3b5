"""The bandwidth table of a server model, or one for every GPU model it may have.

Rates are MB/s, rounded down, or counted in links where the rate of one is not known. Where the GPUs
are known, so is the predicted speed of the example models.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace
from fractions import Fraction
from itertools import combinations
from math import comb
from typing import TYPE_CHECKING

from models.rates.gpu_sets import UnknownRate, signatures
from models.rates.server_bandwidth import TableRow, link_count, switched_MBps, table
from models.step_time import EXAMPLES
from planner.show.table import Cell, Column, Table, columns_of, row_of
from planner.show.text import listed, number

if TYPE_CHECKING:
    from models.hardware import ServerModel
    from models.step_time import Training
    from planner.read.topo.server_model import Candidate

MAX_SETS = 256
"""Most sets of one size that are listed: of a mesh of 16 GPUs only the pairs and the large sets."""

MAX_SHAPES = 2
"""Most sets of one size above 8 GPUs that may be linked differently: of a made-up mesh of 16 GPUs
one set can take ten seconds to price."""

_UNKNOWN_LINK = 10**15
"""MB/s of one link of unknown rate: so much more than any PCIe path that the limiting path of a set of
GPUs is not mistaken."""

_IN_LINKS = _UNKNOWN_LINK // 2
"""From here on a rate is one in links: a chain over single links reaches 0.92 of one or more."""


MAX_WIDTH = 100
"""Widest table with predicted speeds, unless a wide one is asked for."""

_SPEED_TITLES = {"VGG16": "VGG16", "ResNet50": "ResNet"}
"""Column titles of the example models: short, so that the table of a DGX-1 is not too wide."""


def bandwidth_tables(
    model: ServerModel, candidates: Sequence[Candidate], unrated: Sequence[str] = ()
) -> list[tuple[Table, ...]]:
    """For each rate a heading that names the GPUs, and the table; the notes below the last.

    ``model``: without a GPU model. ``unrated``: GPUs it may have too, whose link rate is not known.
    """
    parts: dict[tuple[int | None, Table], list[Candidate]] = {}
    for one in candidates:
        parts.setdefault((one.model.link_MBps, bandwidth_table(one.model)), []).append(one)
    pcie = {model.pcie_MBps, *(one.model.pcie_MBps for one in candidates)}
    shown = [
        (_heading(same, with_pcie=len(pcie) > 1), replace(part, notes=()))
        for (_, part), same in parts.items()
    ]
    notes = list(parts)[-1][1].notes
    if unrated:
        notes = (*notes, f"Its GPUs may be {listed(unrated)} too: their link rate is not known.")
    heading, last = shown.pop()
    return [*shown, (heading, replace(last, notes=notes))]


def _heading(same: Sequence[Candidate], *, with_pcie: bool) -> Table:
    """The GPUs a table is for and its rates, that of PCIe if it matters and some set needs it."""
    gpus = [gpu for one in same for gpu in one.gpus]
    rates = [f"{number(same[0].model.link_MBps)} MB/s a link"]
    pcie = {one.model.pcie_MBps for one in same}
    if with_pcie and len(pcie) == 1 and not all(_all_linked(one.model) for one in same):
        rates.append(f"{number(*pcie)} MB/s under one PCIe switch")
    heading = Cell(f"if its GPUs are {listed(gpus)} ({', '.join(rates)})", "head")
    return Table((Column("heading", fold=True),), ((heading,),), headless=True)


def _all_linked(model: ServerModel) -> bool:
    """Whether every two of its GPUs are linked, so that no set needs PCIe."""
    gpus = range(model.gpus)
    return model.switched or all(
        link_count(model.matrix[a][b]) for a in gpus for b in range(a) if model.matrix is not None
    )


def bandwidth_table(model: ServerModel, *, wide: bool = False) -> Table:
    """One row for the sets of one size that reach the same: inside, and over several servers.

    ``wide``: with predicted speeds, however wide that is.
    """
    sizes = [k for k in range(1, model.gpus + 1) if model.switched or _few(model, k)]
    notes: list[str] = []
    try:
        try:
            rows = table(model, sizes)
        except UnknownRate as unknown:
            rows = table(replace(model, link_MBps=_UNKNOWN_LINK), sizes)
            notes = [f"`links`: multiples of the rate of one link; {unknown}."]
    except UnknownRate as unknown:
        return Table((), (), (f"no bandwidth table: {unknown}",), headless=True)
    columns = columns_of(">GPUs|>inside|>rings|>chains?|>sets|such as|>NICs|>several servers")
    cells = tuple(_row(row, mesh=model.fabric != "pcie", priced=bool(model.nics)) for row in rows)
    shown = Table(columns, cells).without_empty_columns()
    titles = {column.title for column in shown.columns}
    shown = replace(shown, notes=(*_notes(model, sizes, titles), *notes))
    return shown if notes else _with_speeds(shown, model, rows, wide=wide)


def _with_speeds(
    shown: Table, model: ServerModel, rows: Sequence[TableRow], *, wide: bool
) -> Table:
    """The table with the predicted speed of the example models on each set, where sets differ."""
    if model.relative_speed is None or len({row.gpus for row in rows}) == len(rows):
        return shown
    speeds = {
        title: _predicted(EXAMPLES[name].on_speed(model.relative_speed), rows)
        for name, title in _SPEED_TITLES.items()
    }
    columns = tuple(Column(title, right=True, droppable=True) for title in speeds)
    cells = tuple(
        (*row, *(Cell(column[number]) for column in speeds.values()))
        for number, row in enumerate(shown.rows)
    )
    both = Table((*shown.columns, *columns), cells)
    if not wide and sum(both.widths()) + 2 * (len(both.columns) - 1) > MAX_WIDTH:
        note = "-o wide shows the predicted speed of VGG16 and ResNet50."
        return replace(shown, notes=(*shown.notes, note))
    note = (
        "`VGG16`, `ResNet` (ResNet50; not on a narrow terminal): predicted speed of training in one server,"
        " in percent of the best set of that size."
    )
    return replace(both, notes=(*shown.notes, note))


def _predicted(training: Training, rows: Sequence[TableRow]) -> list[str]:
    """For each row the speed in percent of the fastest of its size, rounded down; ``-`` for one GPU."""
    steps = [
        None
        if row.inside is None
        else training.step_s(training.communication_s(row.gpus, row.inside))
        for row in rows
    ]
    best: dict[int, Fraction] = {}
    for row, step in zip(rows, steps, strict=True):
        if step is not None:
            best[row.gpus] = min(step, best.get(row.gpus, step))
    return [
        "-" if step is None else f"{math.floor(100 * best[row.gpus] / step)} %"
        for row, step in zip(rows, steps, strict=True)
    ]


def _few(model: ServerModel, size: int) -> bool:
    if comb(model.gpus, size) > MAX_SETS:
        return False
    return size <= 8 or len(_shapes(model, size)) <= MAX_SHAPES


def _shapes(model: ServerModel, size: int) -> set[Hashable]:
    """Distinct ways in which the sets of one size are linked; empty without a matrix."""
    if model.matrix is None:
        return set()
    links = [[link_count(cell) for cell in row] for row in model.matrix]
    return {
        tuple(sorted(signatures([[links[a][b] for b in chosen] for a in chosen])))
        for chosen in combinations(range(model.gpus), size)
    }


def _notes(model: ServerModel, sizes: list[int], titles: Collection[str]) -> Iterator[str]:
    out = ", `NICs` out of the server" if "NICs" in titles else ""
    yield f"MB/s, one direction, rounded down; `inside` among these GPUs of one server{out}."
    if "several servers" in titles:
        yield (
            "`several servers`: this many GPUs on each of two or more servers, no oversubscription"
            " between them."
        )
    left = [k for k in range(1, model.gpus + 1) if k not in sizes]
    if left:
        sizes_left = f"{left[0]} to {left[-1]}" if len(left) > 1 else str(left[0])
        yield f"Not listed: sets of {sizes_left} GPUs, too many of each size."
    if model.nvlink_domain_nodes > 1 and model.link_MBps is not None:
        yield f"Within one NVLink domain: {_floored(switched_MBps(model))} on any of its servers."
    if not model.nics:
        yield "No NIC is known: give nodes of this model their own `nics`."
    elif any(nic.megabits is None for nic in model.nics):
        yield "The speed of a NIC is not known: give nodes of this model their own `nics`."


def _row(row: TableRow, *, mesh: bool, priced: bool) -> tuple[Cell, ...]:
    """``priced``: the model has NICs, so that what leaves it is known."""
    out = row.out if priced else None
    several = out if row.inside is None or row.inside < _IN_LINKS else None
    return row_of(
        str(row.gpus),
        "unlimited" if row.inside is None else _inside(row.inside),
        str(row.rings) if mesh and row.rings is not None else "-",
        str(row.chains) if mesh and row.chains is not None else "-",
        number(row.subsets),
        _indices(row.example),
        "-" if out is None else _range(*out),
        "-" if several is None else _range(*(_least(row.inside, rate) for rate in several)),
    )


def _inside(rate: Fraction) -> str:
    """MB/s, or ``2.45 links`` where the rate of one is not known."""
    if rate < _IN_LINKS:
        return _floored(rate)
    whole, hundredths = divmod(math.floor(100 * rate / _UNKNOWN_LINK), 100)
    text = f"{whole}.{hundredths:02d}".rstrip("0").rstrip(".")
    return f"{text} {'link' if text == '1' else 'links'}"


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
