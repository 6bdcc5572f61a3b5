"""The tables of a Capacity document."""

from __future__ import annotations

from collections.abc import Sequence

from models.documents.answers import (
    CapacityDocument,
    CapacityLargest,
    CapacityLevel,
    CapacityOfPart,
    CapacityShape,
)
from models.units import plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import change, number

Count = CapacityShape | CapacityLevel | CapacityLargest | CapacityOfPart


def facts(found: CapacityDocument) -> list[str]:
    """What was counted, in one line."""
    cluster = found.cluster
    usable = f"{plural(cluster.nodes, 'usable node')} with {plural(cluster.gpus, 'GPU')}"
    after = "" if cluster.after is None else f" now, {number(cluster.after)} after the plan"
    return [f"{cluster.name}: {usable}; {number(cluster.before)} free{after}"]


def sections(found: CapacityDocument, *, wide: bool) -> list[Table | list[str]]:
    """What is printed. ``wide``: with every domain that has room."""
    tables = [shapes(found), largest(found), *([domains(found)] * wide)]
    notes = [f"note: {note}" for note in found.status.notes]
    return [facts(found), *(one for one in tables if one.rows), notes]


def shapes(found: CapacityDocument) -> Table:
    """A row for each shape: how many gangs could start together if each stays in one domain of a level.

    Nothing in the columns of levels wider than the one that the shape asks for.
    """
    levels = _levels(found)
    rows = []
    for shape in found.status.shapes:
        asked = [shape.level is None, *(level == shape.level for level in levels)].index(True)
        counts: list[Count] = [shape, *(row for row in shape.levels if row.domain is None)]
        cells = (Cell("") if at < asked else _count(one) for at, one in enumerate(counts))
        gpus = Cell(number(shape.pods * shape.gpus), "dim")
        rows.append((Cell(shape.shape, "head"), gpus, *cells))
    columns = columns_of(f"GANGS OF|>GPUS?|{_counted(levels)}")
    note = "gangs that could start together; below a level, each within one domain of it"
    return Table(columns, tuple(rows), (note,))


def largest(found: CapacityDocument) -> Table:
    """A row for each size of pods, and each part: how many one gang could have in a domain of a level."""
    levels = _levels(found)
    by_size: dict[str, list[CapacityLargest | CapacityOfPart]] = {}
    for row in found.status.largest:
        by_size.setdefault(plural(row.gpus, "GPU"), []).append(row)
    for part in found.status.parts:
        by_size.setdefault(f"part {part.part}", []).append(part)
    rows = []
    for size, own in by_size.items():
        where = (Cell(one.domain or "-", "dim") for one in own[1:])
        rows.append((Cell(size, "head"), *map(_count, own), *where))
    which = "".join(f"|WHICH {one.upper()}?" for one in levels)
    note = "the most pods that one gang could have; below a level, within one domain of it"
    return Table(columns_of(f"PODS OF|{_counted(levels)}{which}"), tuple(rows), (note,))


def _counted(levels: Sequence[str]) -> str:
    """Columns of counts for the cluster, and for each level."""
    return "|".join(f">{one.upper()}" for one in ("anywhere", *levels))


def domains(found: CapacityDocument) -> Table:
    """A row for each domain with room for a gang, and how many of each shape it has room for."""
    room: dict[tuple[str, str], list[str]] = {}
    for shape in found.status.shapes:
        for row in shape.levels:
            if row.domain is not None and (row.before or row.after):
                count = _count(row).text
                room.setdefault((row.level, row.domain), []).append(f"{shape.shape}: {count}")
    levels = _levels(found)
    rows = tuple(
        row_of(level, Cell(domain, "head"), ", ".join(room[level, domain]))
        for level, domain in sorted(room, key=lambda key: (levels.index(key[0]), key[1]))
    )
    return Table(columns_of("LEVEL|DOMAIN|GANGS~"), rows)


def _levels(found: CapacityDocument) -> list[str]:
    """The levels, widest first, node last."""
    shapes = found.status.shapes
    return [row.level for row in shapes[0].levels if row.domain is None] if shapes else []


def _count(one: Count) -> Cell:
    """``12``, or ``12 -> 8`` with a plan."""
    after = one.before if one.after is None else one.after
    return Cell(change(map(number, (one.before, after))), None if after else "bad")
