"""What running and placed gangs may give up for a gang of some priority, and what each costs.

Promises: only what contract 2.7 allows (stop and shrink for a strictly higher priority, move what is
movable, never what a hold or ``resizeAfter`` forbids); costs compare as the tiers do: GPUs kept and
weight admitted, priority by priority from the highest, then disruption. Called by ``opening``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from models.gang import Gang
from models.instance import Instance
from models.occupancy import PODS
from planner.search.free_space import Ground, Pods
from planner.search.trial import Counts, counts_of

DIGIT = 64
"""Bits of one tier in a cost: more than any sum of GPUs x seconds needs."""

MOST_SHRINKS = 16
"""Sizes below its own that a role is offered to shrink to, the next ones first."""


@dataclass(slots=True)
class Freed:
    """What a concession frees on one node: GPUs, and every resource."""

    gpus: int = 0
    resources: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Concession:
    """One thing a gang may do for another. ``left``: the pods it keeps, where they are.

    ``freed``: by node. ``again``: the other pods must find another place. ``moving``: the GPUs of a
    running gang that would thereby move, else None.
    """

    gang: int
    left: Pods
    cost: int
    freed: dict[int, Freed]
    again: bool = False
    moving: int | None = None


class Prices:
    """Costs as one integer: a digit a tier, highest priority first, then harm, then pods disturbed."""

    def __init__(self, instance: Instance) -> None:
        ordered = sorted({gang.priority for gang in instance.gangs})
        self._instance = instance
        self._rank = {priority: rank for rank, priority in enumerate(ordered)}

    def of(self, gang: Gang, *, kept: int, admitted: int, disturbed: int, pods: int) -> int:
        """GPUs no longer kept, weight no longer admitted, GPUs disturbed, pods disturbed."""
        rank = self._rank[gang.priority]
        harm = disturbed * self._instance.harm(gang) if disturbed else 0
        lost = (kept << DIGIT * (2 * rank + 3)) + (admitted << DIGIT * (2 * rank + 2))
        return lost + (harm << DIGIT) + pods


class Yields:
    """``options[v]``: what gang v may give, cheapest first. ``at[n]``: who has any on node n.

    ``most[n]``: GPUs of node n that could be given at all; ``firm[n]``: by gangs that need no other place.
    """

    def __init__(self, ground: Ground, prices: Prices, priority: int, aged: bool) -> None:  # noqa: FBT001  # a band
        self.options: dict[int, tuple[Concession, ...]] = {}
        self.at: list[dict[int, None]] = [{} for _ in ground.plots]
        self.most = [0] * len(ground.plots)
        self.firm = [0] * len(ground.plots)
        self._ground = ground
        self._priority = priority
        self._aged = aged
        self._prices = prices
        self.refresh(range(len(ground.pods)))

    def refresh(self, gangs: Iterable[int]) -> None:
        """Look again at gangs whose pods have changed."""
        for gang in gangs:
            self._tell(gang, -1)
            self.options.pop(gang, None)
            found = tuple(sorted(self._concessions(gang), key=lambda c: c.cost))
            if found:
                self.options[gang] = found
                self._tell(gang, 1)

    def _tell(self, gang: int, sign: int) -> None:
        """Count what the gang may give on every node, or no longer."""
        most: dict[int, int] = {}
        firm: dict[int, int] = {}
        for concession in self.options.get(gang, ()):
            for n, freed in concession.freed.items():
                most[n] = max(most.get(n, 0), freed.gpus)
                if not concession.again:
                    firm[n] = max(firm.get(n, 0), freed.gpus)
        for n, gpus in most.items():
            self.most[n] += sign * gpus
            self.firm[n] += sign * firm.get(n, 0)
            if sign > 0:
                self.at[n][gang] = None
            else:
                self.at[n].pop(gang, None)

    def _concessions(self, index: int) -> Iterator[Concession]:
        ground, instance = self._ground, self._ground.instance
        gang, pods, stood = instance.gangs[index], ground.pods[index], ground.stood[index]
        if not pods:
            return
        lower = gang.priority < self._priority
        whole = index not in instance.incomplete
        if not stood or (not whole and pods != stood):
            yield self._given(index, stood, kept=False, admitted=0, again=True)
            if lower or (
                gang.priority == self._priority and self._aged and not instance.aged(gang)
            ):
                yield self._given(index, stood, kept=False, admitted=gang.weight_gpus)
            return
        if any(pod not in stood for pod in pods):
            return  # moved or grown by now: it has given, or taken, already
        if lower and gang.preemptible:
            yield self._given(index, (), kept=True, admitted=gang.weight_gpus if whole else 0)
        if not whole:
            return
        if lower and (gang.preemptible or gang.movable) and not instance.size_held(gang):
            for left in shrinks(gang, pods):
                yield self._given(index, left, kept=True, admitted=0)
        if gang.movable and gang.hold is None and pods == stood:
            yield self._given(index, (), kept=False, admitted=0, again=True)

    def _given(
        self, index: int, left: Pods, *, kept: bool, admitted: int, again: bool = False
    ) -> Concession:
        gang, stood = self._ground.instance.gangs[index], self._ground.stood[index]
        gone = [pod for pod in self._ground.pods[index] if pod not in left]
        freed: dict[int, Freed] = {}
        gpus = 0
        for pod in gone:
            role, room = gang.roles[pod.role], freed.setdefault(pod.node, Freed())
            gpus += role.gpus
            room.gpus += role.gpus
            for resource, amount in ((PODS, 1), *role.requests):
                room.resources[resource] = room.resources.get(resource, 0) + amount
        stands = bool(stood) and left != stood
        cost = self._prices.of(
            gang,
            kept=gpus if kept else 0,
            admitted=admitted,
            disturbed=gpus if stands else 0,
            pods=len(gone),
        )
        return Concession(index, left, cost, freed, again, gpus if again and stands else None)


def shrinks(gang: Gang, pods: Pods) -> Iterator[Pods]:
    """What is left of a whole gang's pods at smaller allowed sizes: one role at a time, then all of them."""
    now = counts_of(gang, pods)
    least = tuple(role.min if role.elastic else n for role, n in zip(gang.roles, now, strict=True))
    offered: dict[Counts, None] = {}
    for number, role in enumerate(gang.roles):
        smaller = [count for count in role.allowed_counts() if count < now[number]]
        for count in smaller[::-1][:MOST_SHRINKS]:
            offered[(*now[:number], count, *now[number + 1 :])] = None
    if least != now:
        offered[least] = None
    for counts in offered:
        yield tuple(
            pod for pod in pods if pod.index < gang.roles[pod.role].first_index + counts[pod.role]
        )
