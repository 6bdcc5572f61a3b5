"""Which gangs should give way so that one gang fits within a scope: chosen together with its places.

Promises: a trial that may also count on room others would give; of every choice of a domain (role,
slice) it takes the one that costs least, and room is opened where a pod gained costs least. Nothing is
taken from the ground. What it finds is a proposal, put to the test by ``reclaiming``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand
from planner.search.free_space import Ground
from planner.search.reclaimable import Concession, Freed, Yields
from planner.search.trial import Options, Trial


@dataclass(frozen=True, slots=True)
class Allowance:
    """How much may still move, None for no limit; ``barred``: gangs that found no other place.

    ``none``: nobody may be put elsewhere at all.
    """

    gangs: int | None
    gpus: int | None
    barred: frozenset[int] = frozenset()
    none: bool = False

    def permits(self, gang: int, moving: Sequence[int]) -> bool:
        """Whether the gang may go elsewhere. ``moving``: GPUs of each running gang that would move."""
        if self.none or gang in self.barred:
            return False
        if self.gangs is not None and len(moving) > self.gangs:
            return False
        return self.gpus is None or sum(moving) <= self.gpus


NOTHING = Freed()


class Opening(Trial):
    """``given``: what each gang gives so far. ``cost``: of all of it; at ``limit`` a trial ends."""

    def __init__(
        self,
        ground: Ground,
        demand: Demand,
        yields: Yields,
        allowance: Allowance,
        limit: int | None = None,
    ) -> None:
        super().__init__(ground, demand)
        self.given: dict[int, Concession] = {}
        self.cost = 0
        self.limit = limit
        self._yields = yields
        self._allowance = allowance
        self._gpus: dict[int, int] = {}
        self._resources: dict[int, dict[str, int]] = {}
        self._journal: list[tuple[int, Concession | None]] = []

    def free(self, n: int) -> int:
        return max(0, self.ground.plots[n].raw + self._gpus.get(n, 0))

    def fits(self, n: int, role: RoleDemand, gpus: int, used: dict[str, int]) -> bool:
        if gpus + role.gpus > self.free(n):
            return False
        left, extra = self.ground.plots[n].left, self._resources.get(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            need = used.get(resource, 0) + amount
            if amount and resource in left and need > left[resource] + extra.get(resource, 0):
                return False
        return True

    def opened(self, n: int) -> bool:
        return self._gpus.get(n, 0) > 0 or any(self._resources.get(n, {}).values())

    def mark(self) -> object:
        return (super().mark(), len(self._journal))

    def undo(self, mark: object) -> None:
        assert isinstance(mark, tuple)
        super().undo(mark[0])
        while len(self._journal) > mark[1]:
            gang, before = self._journal.pop()
            self._swap(gang, before)

    def first(self, options: Options, attempt: Callable[[list[int]], bool]) -> bool:
        """Put pods down in the node list that costs least, the first of equals."""
        before, limit = self.cost, self.limit
        best: list[int] | None = None
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

    def open(self, role: RoleDemand, count: int, nodes: list[int]) -> bool:
        """Let gangs give way, the cheapest room first, until so many pods fit on these nodes."""
        room = {n: self.capacity(n, role, count) for n in nodes}
        total = sum(room.values())
        if total >= count:
            return True
        if sum(self._most(n, role, count) for n in nodes) < count:
            return False
        while total < count:
            bundle = self._best(role, room, count, count - total)
            if bundle is None or (self.limit is not None and self.cost >= self.limit):
                return False
            self._accept(bundle)
            for n in _touched(bundle, room):
                room[n] = self.capacity(n, role, count)
            total = sum(room.values())
        return self.limit is None or self.cost < self.limit

    def _most(self, n: int, role: RoleDemand, count: int) -> int:
        """Pods for which the GPUs of the node would do if everybody gave all."""
        if not role.gpus:
            return count
        most = self._yields.firm if self._allowance.none else self._yields.most
        room = self.ground.plots[n].raw + most[n] - self.gpus.get(n, 0)
        return min(count, max(0, room // role.gpus))

    def _best(
        self, role: RoleDemand, room: dict[int, int], count: int, lacking: int
    ) -> tuple[Concession, ...] | None:
        """Of the ways to make room for one more pod on a node the one with the least cost a pod gained."""
        best: tuple[int, int, tuple[Concession, ...]] | None = None
        seen: set[tuple[int, ...]] = set()
        for n, now in room.items():
            if now >= count or not self._yields.at[n] or self._most(n, role, count) <= now:
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
            gained = min(gained, lacking)
            if gained > 0 and (best is None or cost * best[1] < best[0] * gained):
                best = (cost, gained, bundle)
        return None if best is None else best[2]

    def _bundle(self, n: int, role: RoleDemand, pods: int) -> tuple[Concession, ...] | None:
        """Concessions that make room for so many pods of the role on the node, each of them needed."""
        chosen: dict[int, Concession] = {}
        while short := self._short(n, role, pods, chosen):
            options = [
                (self._step(concession, chosen), -use, concession.gang, concession)
                for gang in self._yields.at[n]
                for concession in self._yields.options[gang]
                if (use := self._use(n, concession, chosen, short)) > 0
                and self._may(concession, chosen)
            ]
            if not options:
                return None
            best = options[0]
            for option in options[1:]:
                ours, theirs = option[0] * -best[1], best[0] * -option[1]
                if (ours, option[:3]) < (theirs, best[:3]):
                    best = option
            chosen[best[2]] = best[3]
        for gang in sorted(chosen, key=lambda g: (-chosen[g].cost, g)):
            concession = chosen.pop(gang)
            if self._short(n, role, pods, chosen):
                chosen[gang] = concession
        return tuple(chosen[gang] for gang in sorted(chosen))

    def _short(
        self, n: int, role: RoleDemand, pods: int, chosen: dict[int, Concession]
    ) -> tuple[str, int] | None:
        """What lacks first for so many pods: ("", GPUs) or (resource, amount); None where all fits."""
        more = [(c.freed.get(n, NOTHING), self._now(g, n)) for g, c in chosen.items()]
        gpus = self.ground.plots[n].raw + self._gpus.get(n, 0)
        gpus += sum(new.gpus - old.gpus for new, old in more)
        lacking = self.gpus.get(n, 0) + role.gpus * pods - gpus
        if role.gpus and lacking > 0:
            return ("", lacking)
        left, extra = self.ground.plots[n].left, self._resources.get(n, {})
        used = self.used.get(n, {})
        for resource, amount in ((PODS, 1), *role.requests):
            if not amount or resource not in left:
                continue
            room = left[resource] + extra.get(resource, 0)
            room += sum(
                new.resources.get(resource, 0) - old.resources.get(resource, 0) for new, old in more
            )
            lacking = used.get(resource, 0) + amount * pods - room
            if lacking > 0:
                return (resource, lacking)
        return None

    def _use(
        self, n: int, concession: Concession, chosen: dict[int, Concession], short: tuple[str, int]
    ) -> int:
        """How much of what lacks a concession gives beyond what its gang gives by now."""
        resource, lacking = short
        before = chosen.get(concession.gang)
        old = self._now(concession.gang, n) if before is None else before.freed.get(n, NOTHING)
        new = concession.freed.get(n, NOTHING)
        if not resource:
            return min(lacking, new.gpus - old.gpus)
        return min(lacking, new.resources.get(resource, 0) - old.resources.get(resource, 0))

    def _step(self, concession: Concession, chosen: dict[int, Concession]) -> int:
        """What it costs beyond what the gang gives by now."""
        before = chosen.get(concession.gang) or self.given.get(concession.gang)
        return concession.cost - (0 if before is None else before.cost)

    def _may(self, concession: Concession, chosen: dict[int, Concession]) -> bool:
        if not concession.again:
            return True
        all_given = {**self.given, **chosen, concession.gang: concession}
        moving = [given.moving for given in all_given.values() if given.moving is not None]
        return self._allowance.permits(concession.gang, moving)

    def _now(self, gang: int, n: int) -> Freed:
        concession = self.given.get(gang)
        return NOTHING if concession is None else concession.freed.get(n, NOTHING)

    def _accept(self, bundle: Iterable[Concession]) -> None:
        for concession in bundle:
            self._journal.append((concession.gang, self.given.get(concession.gang)))
            self._swap(concession.gang, concession)

    def _swap(self, gang: int, new: Concession | None) -> None:
        """The gang gives this instead of what it gave."""
        old = self.given.pop(gang, None)
        for concession, sign in ((old, -1), (new, 1)):
            if concession is None:
                continue
            self.cost += sign * concession.cost
            for n, freed in concession.freed.items():
                self._gpus[n] = self._gpus.get(n, 0) + sign * freed.gpus
                room = self._resources.setdefault(n, {})
                for resource, amount in freed.resources.items():
                    room[resource] = room.get(resource, 0) + sign * amount
        if new is not None:
            self.given[gang] = new


def _touched(bundle: Iterable[Concession], nodes: dict[int, int]) -> list[int]:
    return sorted({n for concession in bundle for n in concession.freed if n in nodes})
