"""Choose victims for one gang within a scope, together with the places of its pods.

A trial that also counts on space that others could give up. Of several domains (role, slice) it
takes the cheapest, and it frees space where the cost per pod is lowest. The result is a proposal
that ``reclaim`` tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand
from planner.search.concessions import Concession, Freed, Reclaimable
from planner.search.free_arrays import BoolArray, Capacity, IntArray, as_array
from planner.search.free_space import FreeSpace
from planner.search.trial import Options, Trial


@dataclass(frozen=True, slots=True)
class MoveAllowance:
    """How much may still move, None for no limit. ``barred``: gangs that found no other place.

    ``no_moves``: no gang may be moved.
    """

    gangs: int | None
    gpus: int | None
    barred: frozenset[int] = frozenset()
    no_moves: bool = False

    def permits(self, gang: int, moving: Sequence[int]) -> bool:
        """Whether the gang may move. ``moving``: GPUs of each running gang that would move."""
        if self.no_moves or gang in self.barred:
            return False
        if self.gangs is not None and len(moving) > self.gangs:
            return False
        return self.gpus is None or sum(moving) <= self.gpus


NOTHING = Freed()


class VictimSearch(Trial):
    """``concessions``: of each gang so far. ``cost``: their sum; the trial ends at ``limit``."""

    def __init__(
        self,
        space: FreeSpace,
        demand: Demand,
        reclaimable: Reclaimable,
        allowance: MoveAllowance,
        limit: int | None = None,
    ) -> None:
        super().__init__(space, demand)
        self.concessions: dict[int, Concession] = {}
        self.cost = 0
        self.limit = limit
        self._reclaimable = reclaimable
        self._allowance = allowance
        self._conceded_gpus: dict[int, int] = {}
        self._conceded_resources: dict[int, dict[str, int]] = {}
        self._journal: list[tuple[int, Concession | None]] = []

    def free(self, n: int) -> int:
        return max(0, self.space.by_node[n].raw + self._conceded_gpus.get(n, 0))

    def conceded(self, n: int, resource: str) -> int:
        return self._conceded_resources.get(n, {}).get(resource, 0)

    def usable(self, table: Capacity, scope: IntArray) -> IntArray:
        return scope[table.allowed[scope]]

    def free_of(self, nodes: IntArray) -> IntArray:
        return as_array(self.free(n) for n in nodes.tolist())

    def capacities(self, role: RoleDemand, nodes: IntArray, most: int) -> IntArray:
        return as_array(self.capacity(n, role, most) for n in nodes.tolist())

    def limits(self, role: RoleDemand, nodes: IntArray, most: int) -> IntArray:
        return as_array(self._limit(n, role, most) for n in nodes.tolist())

    def willing(self, nodes: IntArray) -> BoolArray:
        return np.array([not self._has_concessions(n) for n in nodes.tolist()], dtype=np.bool_)

    def _has_concessions(self, n: int) -> bool:
        return self._conceded_gpus.get(n, 0) > 0 or any(
            self._conceded_resources.get(n, {}).values()
        )

    def mark(self) -> object:
        return (super().mark(), len(self._journal))

    def undo(self, mark: object) -> None:
        assert isinstance(mark, tuple)
        super().undo(mark[0])
        while len(self._journal) > mark[1]:
            gang, before = self._journal.pop()
            self._set(gang, before)

    def choose(self, options: Options, attempt: Callable[[IntArray], bool]) -> bool:
        """Place pods on the cheapest node list, the first of equals."""
        before, limit = self.cost, self.limit
        best: IntArray | None = None
        for option in options:
            mark = self.mark()
            if attempt(option):
                if self.cost == before:
                    self.limit = limit
                    return True
                if best is None or self.limit is None or self.cost < self.limit:
                    best, self.limit = option, self.cost
            self.undo(mark)
        self.limit = limit
        return best is not None and attempt(best)

    def make_room(self, role: RoleDemand, count: int, nodes: IntArray) -> bool:
        """Let gangs give up space, cheapest first, until ``count`` pods fit on these nodes."""
        room = {n: self.capacity(n, role, count) for n in nodes.tolist()}
        total = sum(room.values())
        if total >= count:
            return True
        if sum(self._limit(n, role, count) for n in room) < count:
            return False
        while total < count:
            bundle = self._best_bundle(role, room, count, count - total)
            if bundle is None or (self.limit is not None and self.cost >= self.limit):
                return False
            self._accept(bundle)
            for n in _touched(bundle, room):
                room[n] = self.capacity(n, role, count)
            total = sum(room.values())
        return self.limit is None or self.cost < self.limit

    def _limit(self, n: int, role: RoleDemand, count: int) -> int:
        """Number of pods for which the GPUs of the node suffice if every gang gives all it can."""
        if not role.gpus:
            return count
        gpus = self._reclaimable.gpus(with_moves=not self._allowance.no_moves)
        room = self.space.by_node[n].raw + gpus[n] - self.gpus.get(n, 0)
        return min(count, max(0, room // role.gpus))

    def _best_bundle(
        self, role: RoleDemand, room: dict[int, int], count: int, missing: int
    ) -> tuple[Concession, ...] | None:
        """The concessions that free space for one more pod on a node at the lowest cost per pod."""
        best: tuple[int, int, tuple[Concession, ...]] | None = None
        seen: set[tuple[int, ...]] = set()
        for n, now in room.items():
            if (
                now >= count
                or not self._reclaimable.gangs_on[n]
                or self._limit(n, role, count) <= now
            ):
                continue
            bundle = self._bundle(n, role, now + 1)
            if bundle is None:
                continue
            name = tuple(id(concession) for concession in bundle)
            if name in seen:
                continue
            seen.add(name)
            mark, before = self.mark(), self.cost
            self._accept(bundle)
            cost = self.cost - before
            gained = sum(self.capacity(m, role, count) - room[m] for m in _touched(bundle, room))
            self.undo(mark)
            gained = min(gained, missing)
            if gained > 0 and (best is None or cost * best[1] < best[0] * gained):
                best = (cost, gained, bundle)
        return None if best is None else best[2]

    def _bundle(self, n: int, role: RoleDemand, pods: int) -> tuple[Concession, ...] | None:
        """Concessions, each of them needed, that make room for ``pods`` pods of the role on the node."""
        chosen: dict[int, Concession] = {}
        while shortage := self._shortage(n, role, pods, chosen):
            options = [
                (self._step(concession, chosen), -use, concession.gang, concession)
                for gang in self._reclaimable.gangs_on[n]
                for concession in self._reclaimable.options[gang]
                if (use := self._gain(n, concession, chosen, shortage)) > 0
                and self._permits(concession, chosen)
            ]
            if not options:
                return None
            best = options[0]
            for option in options[1:]:
                cost, least = option[0] * -best[1], best[0] * -option[1]
                if (cost, option[:3]) < (least, best[:3]):
                    best = option
            chosen[best[2]] = best[3]
        for gang in sorted(chosen, key=lambda g: (-chosen[g].cost, g)):
            concession = chosen.pop(gang)
            if self._shortage(n, role, pods, chosen):
                chosen[gang] = concession
        return tuple(chosen[gang] for gang in sorted(chosen))

    def _shortage(
        self, n: int, role: RoleDemand, pods: int, chosen: dict[int, Concession]
    ) -> tuple[str, int] | None:
        """The first shortage for ``pods`` pods: ("", GPUs) or (resource, amount); None if all fit."""
        changes = [(c.freed.get(n, NOTHING), self._freed(g, n)) for g, c in chosen.items()]
        gpus = self.space.by_node[n].raw + self._conceded_gpus.get(n, 0)
        gpus += sum(new.gpus - old.gpus for new, old in changes)
        missing = self.gpus.get(n, 0) + role.gpus * pods - gpus
        if role.gpus and missing > 0:
            return ("", missing)
        left, used = self.space.by_node[n].left, self.used.get(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            if not amount or resource not in left:
                continue
            room = left[resource] + self.conceded(n, resource)
            room += sum(
                new.resources.get(resource, 0) - old.resources.get(resource, 0)
                for new, old in changes
            )
            missing = used.get(resource, 0) + amount * pods - room
            if missing > 0:
                return (resource, missing)
        return None

    def _gain(
        self,
        n: int,
        concession: Concession,
        chosen: dict[int, Concession],
        shortage: tuple[str, int],
    ) -> int:
        """How much of the shortage a concession covers beyond what its gang gives already."""
        resource, missing = shortage
        before = chosen.get(concession.gang)
        old = self._freed(concession.gang, n) if before is None else before.freed.get(n, NOTHING)
        new = concession.freed.get(n, NOTHING)
        if not resource:
            return min(missing, new.gpus - old.gpus)
        return min(missing, new.resources.get(resource, 0) - old.resources.get(resource, 0))

    def _step(self, concession: Concession, chosen: dict[int, Concession]) -> int:
        """The cost beyond what the gang gives already."""
        before = chosen.get(concession.gang) or self.concessions.get(concession.gang)
        return concession.cost - (0 if before is None else before.cost)

    def _permits(self, concession: Concession, chosen: dict[int, Concession]) -> bool:
        if not concession.must_restart:
            return True
        all_concessions = {**self.concessions, **chosen, concession.gang: concession}
        moving = [c.moving for c in all_concessions.values() if c.moving is not None]
        return self._allowance.permits(concession.gang, moving)

    def _freed(self, gang: int, n: int) -> Freed:
        concession = self.concessions.get(gang)
        return NOTHING if concession is None else concession.freed.get(n, NOTHING)

    def _accept(self, bundle: Iterable[Concession]) -> None:
        for concession in bundle:
            self._journal.append((concession.gang, self.concessions.get(concession.gang)))
            self._set(concession.gang, concession)

    def _set(self, gang: int, new: Concession | None) -> None:
        """Replace the concession of a gang."""
        old = self.concessions.pop(gang, None)
        for concession, sign in ((old, -1), (new, 1)):
            if concession is None:
                continue
            self.cost += sign * concession.cost
            for n, freed in concession.freed.items():
                self._conceded_gpus[n] = self._conceded_gpus.get(n, 0) + sign * freed.gpus
                room = self._conceded_resources.setdefault(n, {})
                for resource, amount in freed.resources.items():
                    room[resource] = room.get(resource, 0) + sign * amount
        if new is not None:
            self.concessions[gang] = new


def _touched(bundle: Iterable[Concession], nodes: dict[int, int]) -> list[int]:
    return sorted({n for concession in bundle for n in concession.freed if n in nodes})
