"""The GPUs of cells that find no place in a tiny cluster, by trying every way of claiming: rule 2.17.

Promises: every cell by itself, in every place and in none; own code; hopeless for more than a few cells.
Called by the exhaustive planner's queues.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from exhaustive_pins import pinned_to
from exhaustive_prices import ours, usable

from models.hardware import slug
from models.instance.instance import Instance

Nameless = int | None
"""A queue by its number; None: no queue."""


@dataclass(frozen=True)
class Wanted:
    """One cell: where it may be, and by how much its absence is felt."""

    queue: int
    model: str
    places: tuple[Mapping[int, int], ...]
    weight: int


class CellPlaces:
    """``parents``: of every queue."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.nodes = instance.cluster.nodes
        self.parents = [queue.parent for queue in instance.queues]
        self.pinned = {
            (n, q): node.gpus for n, node in enumerate(self.nodes) for q in pinned_to(instance, n)
        }
        self.cells = [
            self._wanted(number, cell.level, cell.gpus, cell.model or self._usual())
            for number, queue in enumerate(instance.queues)
            for cell in queue.cells
            for _ in range(cell.count)
        ]
        self._known: dict[object, dict[str, int]] = {}

    def gpus(self, queue: int) -> int:
        """GPUs of all cells of a queue."""
        pinned = sum(gpus for (_, q), gpus in self.pinned.items() if q == queue)
        return pinned + sum(cell.weight for cell in self.cells if cell.queue == queue)

    def _usual(self) -> str:
        """The GPU model of which there are most."""
        installed: Counter[str] = Counter()
        for node in self.nodes:
            if node.model:
                installed[slug(node.model.gpu)] += node.gpus
        return min(installed, key=lambda name: (-installed[name], name), default="")

    def _wanted(self, queue: int, level: int | None, gpus: int | None, model: str) -> Wanted:
        """A cell with its places: GPUs claimed on each of their nodes."""
        alike = [
            n
            for n, node in enumerate(self.nodes)
            if node.model and slug(node.model.gpu) == model and ours(self.instance, node)
        ]
        if gpus is not None:
            return Wanted(queue, model, tuple({n: gpus} for n in alike), gpus)
        assert level is not None
        if level == len(self.instance.cluster.levels):
            groups = [[n] for n in alike]
        else:
            named = [n for n in alike if None not in self.nodes[n].domains[: level + 1]]
            paths = sorted({self.nodes[n].domains[: level + 1] for n in named}, key=str)
            groups = [[n for n in named if self.nodes[n].domains[: level + 1] == p] for p in paths]
        places = tuple({n: self.nodes[n].gpus for n in group} for group in groups)
        return Wanted(queue, model, places, min((sum(p.values()) for p in places), default=0))

    def left_out(self, firm: Mapping[tuple[int, Nameless], int]) -> dict[str, int]:
        """S by model; ``firm``: GPUs of firm pods by node and by the queue that their gang names."""
        key = frozenset(firm.items())
        if key not in self._known:
            models = sorted({cell.model for cell in self.cells})
            self._known[key] = {
                model: self._least(
                    [c for c in self.cells if c.model == model], firm, self.pinned, -1
                )
                for model in models
            }
        return self._known[key]

    def _least(
        self,
        cells: Sequence[Wanted],
        firm: Mapping[tuple[int, Nameless], int],
        claims: Mapping[tuple[int, int], int],
        last: int,
    ) -> int:
        """``last``: the place of the cell before; of two alike the first one takes the first place."""
        if not cells:
            return 0
        cell, rest = cells[0], cells[1:]
        alike = bool(rest) and rest[0] == cell
        best = cell.weight * (1 + sum(one == cell for one in rest))
        best += self._least([one for one in rest if one != cell], firm, claims, -1)
        for number, place in enumerate(cell.places):
            if number < last:
                continue
            after = dict(claims)
            for n, gpus in place.items():
                after[n, cell.queue] = after.get((n, cell.queue), 0) + gpus
            if all(self._load(n, firm, after) <= self._healthy(n) for n in place):
                best = min(best, self._least(rest, firm, after, number if alike else -1))
            if best == 0:
                break
        return best

    def _healthy(self, n: int) -> int:
        node = self.nodes[n]
        good = node.healthy.bit_count() - node.unknown_unhealthy
        return max(0, good) if usable(self.instance, node) else 0

    def _load(
        self,
        n: int,
        firm: Mapping[tuple[int, Nameless], int],
        claims: Mapping[tuple[int, int], int],
    ) -> int:
        """What is promised on a node: of a queue the larger of its claims and all that is in it."""

        def inside(queue: Nameless) -> int:
            below = [q for q, parent in enumerate(self.parents) if parent == queue]
            held = firm.get((n, queue), 0) + sum(map(inside, below))
            return held if queue is None else max(held, claims.get((n, queue), 0))

        return inside(None)
