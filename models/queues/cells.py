"""Rule 2.17: there stays a place for the cells of every queue, whatever gangs run that cannot be stopped.

Cells claim GPUs of nodes, next to firm pods: those of ``Gang.firm``. Each GPU model is
looked at by itself. Arrays have a row for each queue with cells of the model, and a column for each
selected node of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.queue import Cell, Queue, path_of
from models.queues.pins import pinned_nodes
from models.queues.queue_shares import cell_model, model_of_nodes

IntArray = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class CellKind:
    """Equal cells of one queue. ``row``: of the queue; ``level`` None: ``gpus`` of one node each.

    ``weight``: GPUs that a cell counts.
    """

    row: int
    level: int | None
    gpus: int
    count: int
    weight: int


class ModelCells:
    """The cells of one GPU model; constant.

    ``kinds``: wide levels first, then many GPUs first; queues before those below them. ``parents``: the row
    of the nearest queue above with cells, -1 for none; always smaller. ``row_of``: by queue, that of itself
    or of the nearest such queue above. ``usable``: healthy GPUs of each column, 0 if the node is out.
    ``pinned``: GPUs that pinned cells claim, whatever stands there, [row, column].
    """

    def __init__(self, instance: Instance, model: str, cells: Sequence[Sequence[Cell]]) -> None:
        cluster = instance.cluster
        self.model = model
        self.nodes = tuple(
            n
            for n, name in enumerate(model_of_nodes(instance))
            if name == model and instance.ours(cluster.nodes[n])
        )
        self.column_of = {n: column for column, n in enumerate(self.nodes)}
        nodes = [cluster.nodes[n] for n in self.nodes]
        self.installed = np.array([node.gpus for node in nodes], dtype=np.int64)
        self.usable = np.array(
            [node.healthy_gpus if instance.schedulable(node) else 0 for node in nodes],
            dtype=np.int64,
        )
        pins = {
            q: [self.column_of[n] for n in sorted(own & self.column_of.keys())]
            for q, own in pinned_nodes(instance).items()
        }
        self.names, self.parents, self.row_of = _rows(instance, cells, pins)
        self.pinned = np.zeros((len(self.names), len(self.nodes)), dtype=np.int64)
        for q, columns in pins.items():
            if columns:
                self.pinned[self.row_of[instance.queues[q].name], columns] = self.installed[columns]
        levels = sorted({cell.level for own in cells for cell in own if cell.level is not None})
        self.domain_of = {level: self._domains(instance, level) for level in levels}
        self.kinds = tuple(self._kinds(instance, cells))

    def _domains(self, instance: Instance, level: int) -> IntArray:
        """The domain of each column at a level, -1 where it has none with a name."""
        cluster = instance.cluster

        def named(n: int) -> bool:
            return level == cluster.node_level or None not in cluster.nodes[n].domains[: level + 1]

        of = cluster.domain_of[level]
        return np.array([of[n] if named(n) else -1 for n in self.nodes], dtype=np.int64)

    def _kinds(self, instance: Instance, cells: Sequence[Sequence[Cell]]) -> Iterator[CellKind]:
        counts = Counter[tuple[int, int, str]]()
        inside = instance.cluster.node_level + 1
        for queue, own in zip(instance.queues, cells, strict=True):
            for cell in own:
                level = inside if cell.level is None else cell.level
                counts[level, -(cell.gpus or 0), queue.name] += cell.count
        rows = {name: row for row, name in enumerate(self.names)}
        keys = sorted(counts, key=lambda key: (key[0], key[1], rows[key[2]]))
        for level, gpus, name in keys:
            weight = -gpus if gpus else self.fewest(level)
            if weight:
                count = counts[level, gpus, name]
                yield CellKind(rows[name], None if gpus else level, -gpus, count, weight)

    def fewest(self, level: int) -> int:
        """The fewest GPUs that a domain of a level has on the nodes; 0 if there is none."""
        of = self.domain_of[level]
        named = of >= 0
        sums = np.bincount(of[named], weights=self.installed[named])
        return int(min(sums[sums > 0], default=0))

    def row(self, gang: Gang) -> int:
        """The row that firm pods of a gang count for, -1 for none."""
        return -1 if gang.queue is None else self.row_of.get(gang.queue, -1)


def _rows(
    instance: Instance, cells: Sequence[Sequence[Cell]], pins: Mapping[int, Sequence[int]]
) -> tuple[tuple[str, ...], tuple[int, ...], dict[str, int]]:
    """Names and parents of the rows, and the row of every queue."""
    queues = instance.queues

    own = (q for q in range(len(queues)) if cells[q] or pins.get(q))
    order = sorted(own, key=lambda q: (len(path_of(queues, q)), q))
    row_of = {q: row for row, q in enumerate(order)}

    def nearest(q: int | None) -> int:
        return next((row_of[a] for a in path_of(queues, q) if a in row_of), -1)

    return (
        tuple(queues[q].name for q in order),
        tuple(nearest(queues[q].parent) for q in order),
        {queue.name: nearest(q) for q, queue in enumerate(queues)},
    )


@once
def cells_by_model(instance: Instance) -> tuple[ModelCells, ...]:
    """The GPU models of which queues have cells, by name."""
    by_model: dict[str, list[list[Cell]]] = {}
    for q, queue in enumerate(instance.queues):
        for cell in queue.cells:
            name = cell_model(instance, cell) or ""
            own = by_model.setdefault(name, [[] for _ in instance.queues])
            own[q].append(cell)
    found = (ModelCells(instance, name, by_model[name]) for name in sorted(by_model))
    return tuple(one for one in found if one.kinds)


def without_cells(queues: Sequence[Queue]) -> tuple[Queue, ...]:
    """The queues without cells, but for pinned ones; for an instance whose ``shares`` are known already."""
    return tuple(replace(queue, cells=()) if queue.cells else queue for queue in queues)


def without_places(queues: Sequence[Queue]) -> tuple[Queue, ...]:
    """The queues without cells, and open to others where they are pinned."""
    return tuple(
        replace(one, pins=tuple(replace(pin, lax=True) for pin in one.pins)) if one.pins else one
        for one in without_cells(queues)
    )
