"""What running and placed gangs may give up for a gang of some priority, and what it costs.

Rule 2.7: stop and shrink for a strictly higher priority, move what is movable, nothing that a hold or
``resizeAfter`` forbids. Costs compare as the tiers do.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field

from models.gang import Gang
from models.instance import Instance
from models.occupancy import PODS
from planner.search.free_space import Counts, FreeSpace, Pods, counts_of

DIGIT = 64
"""Bits of one tier in a cost: more than any sum of GPUs x seconds needs."""

MAX_SHRINKS = 16
"""Smaller sizes that are offered for a role, the nearest first."""


@dataclass(slots=True)
class Freed:
    """GPUs and resources that a concession frees on one node."""

    gpus: int = 0
    resources: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Concession:
    """One way in which a gang can give up space. ``left``: the pods it keeps in place.

    ``freed``: by node. ``must_restart``: its other pods need another place. ``moving``: GPUs of a
    running gang that moves, else None.
    """

    gang: int
    left: Pods
    cost: int
    freed: dict[int, Freed]
    must_restart: bool = False
    moving: int | None = None


class Prices:
    """Costs as one integer, a digit per tier: priorities from the highest, then disruption."""

    def __init__(self, instance: Instance) -> None:
        ordered = sorted({gang.priority for gang in instance.gangs})
        self._instance = instance
        self._rank = {priority: rank for rank, priority in enumerate(ordered)}

    def of(self, gang: Gang, *, kept: int, admitted: int, disturbed: int, pods: int) -> int:
        """The cost of GPUs no longer kept, weight no longer admitted, GPUs and pods disturbed."""
        rank = self._rank[gang.priority]
        disruption = disturbed * self._instance.disruption_cost(gang) if disturbed else 0
        lost = (kept << DIGIT * (2 * rank + 3)) + (admitted << DIGIT * (2 * rank + 2))
        return lost + (disruption << DIGIT) + pods


class Reclaimable:
    """``options[v]``: what gang v may give up, cheapest first. ``gangs_on[n]``: gangs that may on node n."""

    def __init__(self, space: FreeSpace, prices: Prices, priority: int, aged: bool) -> None:  # noqa: FBT001  # a band
        self.options: dict[int, tuple[Concession, ...]] = {}
        self.gangs_on: list[dict[int, None]] = [{} for _ in space.by_node]
        self._gpus = [0] * len(space.by_node)
        self._gpus_without_moves = [0] * len(space.by_node)
        self._space = space
        self._priority = priority
        self._aged = aged
        self._prices = prices
        self.refresh(range(len(space.pods)))

    def gpus(self, *, with_moves: bool) -> Sequence[int]:
        """Reclaimable GPUs of every node; without moves only those of gangs that need no other place."""
        return self._gpus if with_moves else self._gpus_without_moves

    def refresh(self, gangs: Iterable[int]) -> None:
        """Update the options of gangs whose pods have changed."""
        for gang in gangs:
            self._add(gang, -1)
            self.options.pop(gang, None)
            found = tuple(sorted(self._concessions(gang), key=lambda c: c.cost))
            if found:
                self.options[gang] = found
                self._add(gang, 1)

    def _add(self, gang: int, sign: int) -> None:
        """Add or remove the GPUs a gang may give up on every node."""
        reclaimable: dict[int, int] = {}
        without_moves: dict[int, int] = {}
        for concession in self.options.get(gang, ()):
            for n, freed in concession.freed.items():
                reclaimable[n] = max(reclaimable.get(n, 0), freed.gpus)
                if not concession.must_restart:
                    without_moves[n] = max(without_moves.get(n, 0), freed.gpus)
        for n, gpus in reclaimable.items():
            self._gpus[n] += sign * gpus
            self._gpus_without_moves[n] += sign * without_moves.get(n, 0)
            if sign > 0:
                self.gangs_on[n][gang] = None
            else:
                self.gangs_on[n].pop(gang, None)

    def _concessions(self, index: int) -> Iterator[Concession]:
        space, instance = self._space, self._space.instance
        gang, pods, original = instance.gangs[index], space.pods[index], space.original[index]
        if not pods:
            return
        outranked = gang.priority < self._priority
        complete = index not in instance.incomplete
        if not original or (not complete and pods != original):
            yield self._concession(index, original, kept=False, admitted=0, must_restart=True)
            if outranked or (
                gang.priority == self._priority and self._aged and not instance.aged(gang)
            ):
                yield self._concession(index, original, kept=False, admitted=gang.weight_gpus)
            return
        if any(pod not in original for pod in pods):
            return  # it has already moved, grown or given up pods
        if outranked and gang.preemptible:
            yield self._concession(
                index, (), kept=True, admitted=gang.weight_gpus if complete else 0
            )
        if not complete:
            return
        if outranked and (gang.preemptible or gang.movable) and not instance.size_held(gang):
            for left in shrinks(gang, pods):
                yield self._concession(index, left, kept=True, admitted=0)
        if gang.movable and gang.hold is None and pods == original:
            yield self._concession(index, (), kept=False, admitted=0, must_restart=True)

    def _concession(
        self, index: int, left: Pods, *, kept: bool, admitted: int, must_restart: bool = False
    ) -> Concession:
        gang, original = self._space.instance.gangs[index], self._space.original[index]
        removed = [pod for pod in self._space.pods[index] if pod not in left]
        freed: dict[int, Freed] = {}
        gpus = 0
        for pod in removed:
            role, space_freed = gang.roles[pod.role], freed.setdefault(pod.node, Freed())
            gpus += role.gpus
            space_freed.gpus += role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                space_freed.resources[resource] = space_freed.resources.get(resource, 0) + amount
        disturbed = bool(original) and left != original
        cost = self._prices.of(
            gang,
            kept=gpus if kept else 0,
            admitted=admitted,
            disturbed=gpus if disturbed else 0,
            pods=len(removed),
        )
        return Concession(
            index, left, cost, freed, must_restart, gpus if must_restart and disturbed else None
        )


def shrinks(gang: Gang, pods: Pods) -> Iterator[Pods]:
    """The pods that remain at smaller allowed sizes: one role at a time, then all roles."""
    now = counts_of(gang, pods)
    least = tuple(role.min if role.elastic else n for role, n in zip(gang.roles, now, strict=True))
    offered: dict[Counts, None] = {}
    for number, role in enumerate(gang.roles):
        smaller = [count for count in role.allowed_counts() if count < now[number]]
        for count in smaller[::-1][:MAX_SHRINKS]:
            offered[(*now[:number], count, *now[number + 1 :])] = None
    if least != now:
        offered[least] = None
    for counts in offered:
        yield tuple(
            pod for pod in pods if pod.index < gang.roles[pod.role].first_index + counts[pod.role]
        )
