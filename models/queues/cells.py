"""Rule 2.17: there stays a place for the cells of every queue, whatever gangs run that cannot be stopped.

Cells claim GPUs of nodes, next to firm pods: those of ``Gang.firm``. Each GPU model is
looked at by itself. Arrays have a row for each queue with cells of the model, and a column for each
selected node of it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import numpy.typing as npt

from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.queue import Cell, Queue, path_of
from models.instance.solution import PodPlacement, standing_of
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


SEARCH_EFFORT = 1 << 17
"""Places tried for single cells, times the size of the arrays, where packing finds too few places."""

RENEWING_EFFORT = 1 << 24
"""The same of finding places anew only to let them follow pods: 12,500 nodes and 20 queues do so 67 times."""

MOST_SEARCHED = 300
"""With more cells, or kinds of them, packing has the last word: a search is as deep as there are cells."""


class Claims:
    """Places of the cells of one GPU model next to firm pods; found anew when pods come to them.

    ``held``, ``claimed``: GPUs of firm pods and of cells, with the pinned ones, [row, column];
    ``strangers``: of firm pods in no queue with cells. ``needed``: the larger of what a queue's cells claim,
    and its pods with what those below need. ``missing``: cells of each kind without a place. ``version``
    changes when places do.
    """

    def __init__(self, cells: ModelCells) -> None:
        self.cells = cells
        shape = (len(cells.names), len(cells.nodes))
        self.held = np.zeros(shape, dtype=np.int64)
        self.strangers = np.zeros(shape[1], dtype=np.int64)
        self.claimed = cells.pinned.copy()
        self.missing = [kind.count for kind in cells.kinds]
        self._inner = np.zeros(shape, dtype=np.int64)
        self._every = np.arange(shape[1])
        self._changed = set[int]()
        self._unchecked = set[int]()
        self._steps = 0
        self.version = 0
        self.needed = np.zeros(shape, dtype=np.int64)
        self.total = np.zeros(shape[1], dtype=np.int64)
        if cells.pinned.any():
            self._recount(self._every)

    def add(self, row: int, column: int, gpus: int) -> None:
        """Firm pods of a row come to a column, or leave it."""
        if row < 0:
            self.strangers[column] += gpus
        else:
            self.held[row, column] += gpus
        self._changed.add(column)

    def lost(self) -> int:
        """GPUs of the cells without a place."""
        kinds = zip(self.cells.kinds, self.missing, strict=True)
        return sum(kind.weight * missing for kind, missing in kinds)

    def keep(self, most: int, *, thorough: bool) -> bool:
        """Whether at most so many GPUs are lost; places are found anew only where pods came to one.

        ``thorough``: packing does not have the last word.
        """
        return (self.lost() <= most and self._hold()) or self.renew(most, thorough=thorough)

    def renew(self, most: int, *, thorough: bool = False) -> bool:
        """Find places anew where pods of the queue are, unless more than so many GPUs would be lost."""
        self._settle()
        claimed, missing, unchecked = self.claimed.copy(), list(self.missing), self._unchecked
        self._unchecked = set()
        self.pack()
        if self.lost() <= most or (thorough and self.search(most)):
            return True
        self.claimed, self.missing, self._unchecked = claimed, missing, unchecked
        self.version += 1
        self._recount(self._every)
        return False

    def _hold(self) -> bool:
        """Whether every place is still one."""
        self._settle()
        columns = np.array(sorted(self._unchecked), dtype=np.int64)
        over = self.total[columns] > self.cells.usable[columns]
        self._unchecked = set(columns[over & self._placed[columns]].tolist())
        return not self._unchecked

    @property
    def _placed(self) -> npt.NDArray[np.bool_]:
        """Columns with a place of a cell that is not pinned."""
        found: npt.NDArray[np.bool_] = np.any(self.claimed > self.cells.pinned, axis=0)
        return found

    def pack(self) -> None:
        """Find places anew: wide cells first, where they take least from others."""
        self._start()
        for number, kind in enumerate(self.cells.kinds):
            left = kind.count
            if kind.level is not None:
                domains = self._domains(kind)[:left]
                left -= len(domains)
                self._claim(
                    kind, np.flatnonzero(np.isin(self.cells.domain_of[kind.level], domains))
                )
            for own in (True, False) if kind.level is None else ():
                columns, most = self._servers(kind, own=own)
                cells = np.clip(left - (np.cumsum(most) - most), 0, most)
                left -= int(cells.sum())
                self._claim(kind, columns[cells > 0], cells[cells > 0])
            self.missing[number] = left

    def _start(self) -> None:
        """Claim nothing but what is pinned."""
        self.claimed[:] = self.cells.pinned
        self._recount(self._every)
        self._changed.clear()
        self._unchecked.clear()
        self.version += 1

    def search(self, most: int) -> bool:
        """Look for places so that at most so many GPUs are lost, with bounded effort; else pack."""
        self._start()
        alone = (kind.weight * max(0, kind.count - self._most(kind)) for kind in self.cells.kinds)
        cells = min(sum(kind.count for kind in self.cells.kinds), int(self.cells.usable.sum()))
        few = cells + len(self.cells.kinds) <= MOST_SEARCHED  # placed one by one
        if sum(alone) <= most and few:
            self._steps = SEARCH_EFFORT // self.claimed.size
            if self._search(0, self.cells.kinds[0].count, 0, most):
                return True
        self.pack()
        return False

    def least(self) -> int:
        """The fewest GPUs of cells without a place."""
        self.pack()
        least = self.lost()
        while least and self.search(least - 1):
            least = self.lost()
        return least

    def _most(self, kind: CellKind) -> int:
        """Places for a kind where nothing is claimed."""
        if kind.level is not None:
            return len(self._domains(kind))
        return int((np.maximum(0, self._beside(kind.row)) // kind.gpus).sum())

    def taken(self, row: int) -> list[int]:
        """Columns with places that firm pods of a row are in the way of if they take all other GPUs there."""
        self._settle()
        firm = self.strangers + self.held.sum(axis=0)
        room = self._beside(row) - (self._inner[row] if row >= 0 else 0)
        full = (self.total > self.cells.usable) | (room + firm < self.cells.usable)
        found: list[int] = np.flatnonzero(full & self._placed).tolist()
        return found

    def unused(self, row: int) -> IntArray:
        """GPUs by column that cells of a queue claim, and neither firm pods in it nor cells below hold."""
        self._settle()
        left: IntArray = np.maximum(0, self.claimed[row] - self._inner[row])
        return left

    def _beside(self, row: int) -> IntArray:
        """What a row may need in all by column; for -1 how much more strangers may hold."""
        slack: IntArray = self.cells.usable - self.total
        return slack if row < 0 else slack + self._free(row)

    def _free(self, row: int) -> IntArray:
        """What a row may need in all by column without any need of others, or of rows above, to grow."""
        found: IntArray = self.needed[row].copy()
        above = self.cells.parents[row]
        while above >= 0:
            found += self.needed[above] - self._inner[above]
            above = self.cells.parents[above]
        return found

    def _fits(self, kind: CellKind) -> IntArray:
        """GPUs that a queue may claim besides its claims, by column."""
        room = np.where(self.total > self.cells.usable, 0, self._beside(kind.row))
        found: IntArray = room - self.claimed[kind.row]
        return found

    def _domains(self, kind: CellKind) -> IntArray:
        """The domains that a cell may claim, those first that take least from others."""
        assert kind.level is not None, "see _servers"
        of, installed = self.cells.domain_of[kind.level], self.cells.installed
        named = np.flatnonzero(of >= 0)
        extra = installed + self.claimed[kind.row] - self._free(kind.row)
        size = np.bincount(of[named])
        good = np.bincount(of[named], weights=(self._fits(kind) >= installed)[named])
        cost = np.bincount(of[named], weights=np.maximum(0, extra)[named])
        found = np.flatnonzero((good == size) & (size > 0))
        order: IntArray = found[np.lexsort((found, cost[found]))]
        return order

    def _servers(self, kind: CellKind, *, own: bool) -> tuple[IntArray, IntArray]:
        """Columns for cells of single GPUs, the best first, and how many each.

        ``own``: where the queue needs the GPUs in any case, with the least waste; else the fullest.
        """
        cells = self._fits(kind) // kind.gpus
        order = self._fits(kind)
        if own:
            there = np.maximum(0, self._free(kind.row) - self.claimed[kind.row])
            cells = np.minimum(cells, -(-there // kind.gpus))
            order = -there % kind.gpus
        here = np.flatnonzero(cells > 0)
        here = here[np.lexsort((here, order[here]))]
        return here, cells[here]

    def _claim(self, kind: CellKind, columns: IntArray, cells: IntArray | int = 1) -> None:
        """Claim GPUs, or with negative numbers of cells release them."""
        row = kind.row
        gpus = self.cells.installed[columns] if kind.level is not None else kind.gpus
        self.claimed[row, columns] += cells * gpus
        while row >= 0:
            needed = np.maximum(self.claimed[row, columns], self._inner[row, columns])
            more = needed - self.needed[row, columns]
            self.needed[row, columns] = needed
            row = self.cells.parents[row]
            if row >= 0:
                self._inner[row, columns] += more
        self.total[columns] += more

    def _search(self, number: int, left: int, first: int, most: int, lost: int = 0) -> bool:
        """Place ``left`` cells of a kind, from a first column on, and later kinds; lose ``most`` at most."""
        kinds = self.cells.kinds
        if number == len(kinds):
            return True
        kind = kinds[number]
        places = list(self._places(kind, first)) if left and self._steps > 0 else []
        for column, columns in places:
            self._steps -= 1
            self._claim(kind, columns, 1)
            if self._search(number, left - 1, column, most, lost):
                return True
            self._claim(kind, columns, -1)
        lost += left * kind.weight
        if lost > most:
            return False
        self.missing[number] = left
        count = kinds[number + 1].count if number + 1 < len(kinds) else 0
        return self._search(number + 1, count, 0, most, lost)

    def _places(self, kind: CellKind, first: int) -> Iterator[tuple[int, IntArray]]:
        """Columns of every place for a cell from a first domain or column on, with that."""
        if kind.level is None:
            for column in self._servers(kind, own=False)[0].tolist():
                if column >= first:
                    yield column, np.array([column])
            return
        for domain in self._domains(kind).tolist():
            if domain >= first:
                yield domain, np.flatnonzero(self.cells.domain_of[kind.level] == domain)

    def _settle(self) -> None:
        """Count changed columns again."""
        self._recount(np.array(sorted(self._changed), dtype=np.int64))
        self._unchecked |= self._changed
        self._changed.clear()

    def _recount(self, columns: IntArray) -> None:
        inner = self.held[:, columns]
        needed = np.empty_like(inner)
        total = self.strangers[columns].copy()
        for row in range(len(inner) - 1, -1, -1):
            needed[row] = np.maximum(self.claimed[row, columns], inner[row])
            above = self.cells.parents[row]
            if above >= 0:
                inner[above] += needed[row]
            else:
                total += needed[row]
        self._inner[:, columns], self.needed[:, columns] = inner, needed
        self.total[columns] = total


class Reach:
    """The places of all cells next to the firm pods of a plan that is built.

    ``refusals``: how often in a row places were not kept.
    """

    def __init__(
        self, instance: Instance, pods: Iterable[tuple[int, Sequence[PodPlacement]]] = ()
    ) -> None:
        self._instance = instance
        self.claims = [Claims(cells) for cells in cells_by_model(instance)]
        self._closed: dict[tuple[int, ...], tuple[tuple[int, ...], frozenset[int]]] = {}
        self._moved = True
        self._renewed = 0
        self.refusals = 0
        for gang, own in pods:
            self.add(gang, own)

    def add(self, gang: int, pods: Iterable[PodPlacement], sign: int = 1) -> None:
        """Pods of a gang come, or with -1 leave."""
        spec = self._instance.gangs[gang]
        for claims in self.claims if spec.firm_on_gpus else ():
            row = claims.cells.row(spec)
            for pod in pods:
                column, gpus = claims.cells.column_of.get(pod.node), spec.roles[pod.role].gpus
                if column is not None and gpus:
                    claims.add(row, column, sign * gpus)
                    self._moved = True

    def allows(self, gang: int, pods: Sequence[PodPlacement]) -> bool:
        """Whether cells keep their places beside these pods too, as far as packing finds."""
        moved = self._moved
        self.add(gang, pods)
        kept = self.keep(thorough=False)
        self.add(gang, pods, -1)
        self._moved = moved
        return kept

    def closed(self, gang: int) -> frozenset[int]:
        """Nodes on which firm pods of a gang may be in the way of the places of others.

        While places stay, fewer may do by now.
        """
        rows = tuple(claims.cells.row(self._instance.gangs[gang]) for claims in self.claims)
        versions = tuple(claims.version for claims in self.claims)
        known = self._closed.get(rows)
        if known is None or known[0] != versions:
            found = set[int]()
            for claims, row in zip(self.claims, rows, strict=True):
                found.update(claims.cells.nodes[column] for column in claims.taken(row))
            known = self._closed[rows] = (versions, frozenset(found))
        return known[1]

    def keep(self, *, thorough: bool = True) -> bool:
        """Whether no more is lost than before the plan. Not ``thorough``: as far as packing finds."""
        allowed = zip(self.claims, allowed_losses(self._instance), strict=True)
        kept = all(one.keep(most, thorough=thorough) for one, most in allowed)
        self.refusals = 0 if kept else self.refusals + 1
        return kept

    def renew(self) -> bool:
        """Let places follow the pods of their queues, as far as cells allow; whether that is worth a look."""
        self._renewed += sum(claims.claimed.size for claims in self.claims) if self._moved else 0
        moved, self._moved = self._moved and self._renewed <= RENEWING_EFFORT, False
        allowed = allowed_losses(self._instance)
        for claims, most in zip(self.claims, allowed, strict=True) if moved else ():
            claims.renew(most)
        return moved

    def pack(self) -> None:
        """Find places for all cells anew."""
        for claims in self.claims:
            claims.pack()

    def lacking(self) -> Iterator[tuple[str, CellKind, int]]:
        """(queue, cells, how many of them) for which no place was found."""
        for claims in self.claims:
            for kind, missing in zip(claims.cells.kinds, claims.missing, strict=True):
                if missing:
                    yield claims.cells.names[kind.row], kind, missing


@once
def allowed_losses(instance: Instance) -> tuple[int, ...]:
    """GPUs of the cells that have no place before the plan, of each model."""
    standing = ((i, standing_of(gang)) for i, gang in enumerate(instance.gangs) if gang.running)
    return tuple(claims.least() for claims in Reach(instance, standing).claims)


def breaks_cells(instance: Instance, pods: Sequence[Sequence[PodPlacement]]) -> bool:
    """Whether pods, of every gang, take more places of cells away than were lost before the plan."""
    return bool(cells_by_model(instance)) and not Reach(instance, enumerate(pods)).keep()
