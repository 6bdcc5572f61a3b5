"""The tables of a Capacity document."""

from __future__ import annotations

from collections.abc import Sequence

from models.documents.capacity import (
    CapacityDocument,
    CapacityLargest,
    CapacityOfPart,
    CapacityShape,
)
from models.units import plural
from planner.show.table import Cell, Column, Table, columns_of, row_of
from planner.show.text import number

ANYWHERE = "ANYWHERE"


def facts(found: CapacityDocument) -> list[str]:
    """What was counted, in one line."""
    cluster = found.cluster
    usable = f"{number(cluster.nodes)} usable {'node' if cluster.nodes == 1 else 'nodes'}"
    line = f"{cluster.name}: {usable} with {plural(cluster.gpus, 'GPU')}; {number(cluster.before)} free"
    return [
        line if cluster.after is None else f"{line} now, {number(cluster.after)} after the plan"
    ]


def tables(found: CapacityDocument, *, wide: bool) -> list[Table]:
    """What is printed. ``wide``: with every domain that has room, and no column left out."""
    parts = (shapes(found, wide=wide), largest(found, wide=wide), *([domains(found)] * wide))
    return [one for one in parts if one.rows]


def shapes(found: CapacityDocument, *, wide: bool = False) -> Table:
    """A row for each shape: how many gangs could start together if each stays in one domain of a level.

    Nothing in the columns of levels wider than the one that the shape asks for.
    """
    levels = _levels(found)
    columns = (
        Column("GANGS OF"),
        Column("GPUS", right=True, droppable=not wide),
        Column(ANYWHERE, right=True),
        *(Column(level.upper(), right=True) for level in levels),
    )
    rows = [
        (
            Cell(shape.shape, "head"),
            Cell(number(shape.pods * shape.gpus), "dim"),
            *_counts(shape, levels),
        )
        for shape in found.status.shapes
    ]
    return Table(
        columns,
        tuple(rows),
        (
            "the number of gangs that could start together; below a level, each within one domain of it",
        ),
    )


def _counts(shape: CapacityShape, levels: Sequence[str]) -> list[Cell]:
    whole = [_cell(shape.before, shape.after)] if shape.level is None else [Cell("")]
    first = 0 if shape.level is None else levels.index(shape.level)
    together = [row for row in shape.levels if row.domain is None]
    return [
        *whole,
        *(
            _cell(row.before, row.after) if position >= first else Cell("")
            for position, row in enumerate(together)
        ),
    ]


def largest(found: CapacityDocument, *, wide: bool = False) -> Table:
    """A row for each size of pods, and each part: how many one gang could have in a domain of a level."""
    levels = _levels(found)
    columns = (
        Column("PODS OF"),
        Column(ANYWHERE, right=True),
        *(Column(level.upper(), right=True) for level in levels),
        *(Column(f"WHICH {level.upper()}", fold=wide, droppable=not wide) for level in levels),
    )
    by_size: dict[str, list[CapacityLargest | CapacityOfPart]] = {}
    for row in found.status.largest:
        by_size.setdefault(plural(row.gpus, "GPU"), []).append(row)
    for part in found.status.parts:
        by_size.setdefault(f"part {part.part}", []).append(part)
    rows = [
        (
            Cell(size, "head"),
            *(_cell(one.before, one.after) for one in own),
            *(Cell(one.domain or "-", "dim") for one in own[1:]),
        )
        for size, own in by_size.items()
    ]
    return Table(
        columns,
        tuple(rows),
        ("the most pods that one gang could have; below a level, within one domain of it",),
    )


def domains(found: CapacityDocument) -> Table:
    """A row for each domain with room for a gang, and how many of each shape it has room for."""
    room: dict[tuple[str, str], list[str]] = {}
    for shape in found.status.shapes:
        for row in shape.levels:
            if row.domain is not None and (row.before or row.after):
                count = _cell(row.before, row.after).text
                room.setdefault((row.level, row.domain), []).append(f"{shape.shape}: {count}")
    order = {level: position for position, level in enumerate(_levels(found))}
    rows = tuple(
        row_of(level, Cell(domain, "head"), ", ".join(room[level, domain]))
        for level, domain in sorted(room, key=lambda key: (order[key[0]], key[1]))
    )
    return Table(columns_of("LEVEL|DOMAIN|GANGS~"), rows)


def _levels(found: CapacityDocument) -> list[str]:
    """The levels, widest first, node last."""
    shapes = found.status.shapes
    return [row.level for row in shapes[0].levels if row.domain is None] if shapes else []


def _cell(before: int, after: int | None) -> Cell:
    """``12``, or ``12 -> 8`` with a plan."""
    last = before if after is None else after
    text = number(before) if after in (None, before) else f"{number(before)} -> {number(after)}"
    return Cell(text, None if last else "bad")
