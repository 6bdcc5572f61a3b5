"""Bounds of every tier that follow from the queue and from the tiers before it, without a solver.

They hold for plans that keep the earlier tiers as required. An engine's bound is never worse than these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from models.gpu_shares import part_of
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import standing_of
from models.instance.speed import FULL_SPEED
from models.queues.queue_shares import fair_units, queue_of, stated_shares, within_guarantee
from models.rates.gang_bandwidth import FULL_SHARE
from models.tiers import MAINS, Tier
from models.values.leftover import suspects
from models.values.tier_values import PLACEMENT_VALUES, most_speed, standing_value

Amounts = NDArray[np.int64]

Values = Sequence[tuple[Tier, int]]
"""Of some tiers."""


@dataclass(slots=True)
class _Sums:
    """What the gangs of one priority come to. ``idle``: of their weight, what no GPU has to be there for.

    ``growth``: GPUs of elastic ones above ``min``; ``growth_pods``: pods that count nothing above ``min``.
    """

    weight: int = 0
    idle: int = 0
    growth: int = 0
    growth_pods: int = 0

    def add(self, gang: Gang, weight: int, unit: int) -> None:
        self.weight += weight
        self.idle += weight - sum(role.min * _taken(role, unit) for role in gang.roles)
        if gang.elastic:
            self.growth += sum((role.max - role.min) * role.units for role in gang.roles)
        self.growth_pods += sum(role.max - role.min for role in gang.roles if not role.units)


class ImpliedBounds:
    """Bounds for plans of one instance.

    What depends on the gangs alone is summed once, so that a bound takes as long as there are priorities.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._weights = [gang.weight_gpus for gang in instance.gangs]
        self._by_priority: dict[int, list[int]] = {}
        self._known: dict[tuple[str, int], _Worths] = {}
        self._least: dict[tuple[str, int], tuple[Amounts, Amounts]] = {}
        self._spread: dict[int, int] = {}
        self._largest: Counter[int] | None = None
        for index, gang in enumerate(instance.gangs):
            if gang.hold is None or gang.running:
                self._by_priority.setdefault(gang.priority, []).append(index)

    @cached_property
    def _sums(self) -> dict[int, _Sums]:
        """By priority, from high to low."""
        gangs, unit = self._instance.gangs, self._instance.gpu_unit
        found: dict[int, _Sums] = {}
        for priority in sorted(self._by_priority, reverse=True):
            found[priority] = _Sums()
            for index in self._by_priority[priority]:
                found[priority].add(gangs[index], self._weights[index], unit)
        return found

    @cached_property
    def _capacity(self) -> int:
        """What pods may have of GPUs: those of nodes that may be used, and what is held elsewhere."""
        unit = self._instance.gpu_unit
        return sum(self._amounts(unit, lambda role: _taken(role, unit)))

    @cached_property
    def _on_nodes(self) -> list[int]:
        """GPUs that pods may have of each node."""
        return self._amounts(1, lambda role: role.gpus)

    def _amounts(self, unit: int, taken: Callable[[Role], int]) -> list[int]:
        """By node, what is there or held. ``taken``: by a pod of a role."""
        instance = self._instance
        held = [0] * len(instance.cluster.nodes)
        for gang in instance.gangs:
            for pod in gang.pods:
                if pod.node is not None:
                    held[pod.node] += taken(gang.roles[pod.role])
        return [
            max(unit * node.gpus, held[n]) if instance.schedulable(node) else held[n]
            for n, node in enumerate(instance.cluster.nodes)
        ]

    @cached_property
    def _largest_domains(self) -> list[int]:
        """The most GPUs that pods may have in one domain of each level, the nodes last."""
        of_levels = self._instance.cluster.domain_of
        sums = (np.bincount(of, weights=self._on_nodes) for of in of_levels)
        return [int(found.max(initial=0)) for found in sums]

    def bound(self, tier: Tier, kept: Values = ()) -> int:
        """``kept``: what plans have at least (a minimised tier: at most) of each earlier tier."""
        if tier.sense == "min":
            return self._least_span(kept) if tier.family == "span" else 0
        if tier.row.subject == "cluster":
            return self._cluster(tier)
        if tier.row.subject == "growth":
            own = self._sums.get(tier.priority or 0, _Sums())
            return own.growth_pods if tier.family == "growth-pods" else own.growth
        if tier.family == "fair":
            known = stated_shares(self._instance)
            if self._largest is None:
                self._largest = _largest_fair(self._instance)
            return known.fairness(tier.rank or 0, self._largest)
        if tier.family in ("kept", "aged"):
            return self._worths(tier.family, tier.priority or 0).total
        admitted = self._admitted(kept)
        each = admitted if tier.priority is None else (tier.priority,)
        return sum(self._worths(tier.family, one).most(admitted.get(one, 0)) for one in each)

    def _cluster(self, tier: Tier) -> int:
        """Where every GPU that the tier counts is free."""
        nodes = self._instance.cluster.nodes
        if tier.family == "suspect":
            return sum(nodes[n].gpus for n in suspects(self._instance))
        return 2 * sum(node.gpus for node in nodes)

    def _worths(self, family: str, priority: int) -> _Worths:
        """What the gangs of a priority add to a tier at most."""
        if (family, priority) not in self._known:
            instance, worth, weights = self._instance, _WORTHS[family], self._weights
            runs = _COUNTED.get(family)
            self._known[family, priority] = _Worths(
                (worth(instance, index, weights[index]), weights[index])
                for index in self._by_priority.get(priority or 0, ())
                if runs is None or instance.gangs[index].running is runs
            )
        return self._known[family, priority]

    def _admitted(self, kept: Values) -> dict[int, int]:
        """The most weight that gangs of each priority may have together."""
        least = {t.priority: _least_gpus(t, value) for t, value in kept if t.family in MAINS}
        found, left = {}, self._capacity
        for priority, own in self._sums.items():
            found[priority] = max(0, min(own.weight, left + own.idle))
            left -= max(0, least.get(priority, 0) - own.idle)
        return found

    def _least_span(self, kept: Values) -> int:
        """What the gangs span at least that run in every plan which keeps the earlier tiers."""
        found = 0
        for tier, value in kept:
            if tier.family in MAINS and tier.priority is not None:
                worths, spans = self._spans(tier.family, tier.priority)
                found += int(spans[worths > int(worths.sum()) - value].sum())
        return found

    def _spans(self, family: str, priority: int) -> tuple[Amounts, Amounts]:
        """What each gang of a priority adds to a tier at most and spans at least."""
        if (family, priority) not in self._least:
            instance, gangs = self._instance, self._by_priority.get(priority, ())
            worths = [_WORTHS[family](instance, i, self._weights[i]) for i in gangs]
            spans = [self._span_at_least(instance.gangs[i]) for i in gangs]
            self._least[family, priority] = (
                np.array(worths, np.int64),
                np.array(spans, np.int64),
            )
        return self._least[family, priority]

    def _span_at_least(self, gang: Gang) -> int:
        """What a gang spans that runs: as it stands if it cannot move, else by the largest domains."""
        if gang.stands:
            nodes = {pod.node for pod in gang.running_pods if pod.node is not None}
            of_levels = self._instance.cluster.domain_of
            return gang.weight_gpus * self._beyond(len({of[n] for n in nodes}) for of in of_levels)
        gpus = sum(role.min * role.gpus for role in gang.roles)
        if gpus not in self._spread:
            used = (-(-gpus // max(1, most)) for most in self._largest_domains)
            self._spread[gpus] = self._beyond(used)
        return gang.weight_gpus * self._spread[gpus]

    def _beyond(self, used: Iterable[int]) -> int:
        """What domains count beyond the first of each level."""
        weights = self._instance.cluster.span_weights
        return sum((n - 1) * weight for n, weight in zip(used, weights, strict=True) if n > 1)


def _largest_fair(instance: Instance) -> Counter[int]:
    """What gangs in queues count in fair shares where each has as many pods as it may have."""
    found = Counter[int]()
    for gang, queue in zip(instance.gangs, queue_of(instance), strict=True):
        if queue is not None and (gang.hold is None or gang.running):
            found[queue] += sum(fair_units(instance, queue, role) * role.max for role in gang.roles)
    return found


class _Worths:
    """(worth, weight) of gangs, the most worth for its weight first, summed up.

    Gangs of equal worth and weight are one step: it is divided as they are one after another.
    """

    def __init__(self, worths: Iterable[tuple[int, int]]) -> None:
        useful = Counter((worth, weight) for worth, weight in worths if worth > 0)
        ordered = sorted(useful.items(), key=lambda one: Fraction(-one[0][0], one[0][1]))
        self._worth = list(accumulate((one[0] * gangs for one, gangs in ordered), initial=0))
        self._weight = list(accumulate((one[1] * gangs for one, gangs in ordered), initial=0))

    @property
    def total(self) -> int:
        """All of it."""
        return self._worth[-1]

    def most(self, weight: int) -> int:
        """The most worth within a weight, the last gang in part (fractional knapsack)."""
        whole = bisect_right(self._weight, weight) - 1
        if whole < 0 or whole + 1 == len(self._weight):
            return self._worth[whole] if whole >= 0 else 0
        part = weight - self._weight[whole]
        worth = self._worth[whole + 1] - self._worth[whole]
        return self._worth[whole] + part * worth // (self._weight[whole + 1] - self._weight[whole])


def _least_gpus(tier: Tier, value: int) -> int:
    """GPUs at ``min`` (or 1) of the admitted gangs of a priority, at least, where a tier has a value."""
    if tier.family == "goodput":
        return -(-value // FULL_SPEED)
    return value if tier.family == "admission" else 0


def _taken(role: Role, unit: int) -> int:
    """What a pod of the role takes at least of GPUs, of which no more is taken than there is.

    Of parts those count that are fractions: their memory. Of others the memory depends on the GPU.
    """
    taken = unit * role.gpus
    for resource, amount in role.requests if unit > 1 else ():
        part = part_of(resource)
        taken += 0 if part is None else amount * part.permille
    return taken


def _goodput(instance: Instance, index: int, weight: int) -> int:
    """A gang that runs whole counts at most its speed before the plan."""
    most = most_speed(instance, index)
    return weight * (FULL_SPEED if most is None else most)


def _preference(instance: Instance, index: int, weight: int) -> int:
    gang, value = instance.gangs[index], standing_value(instance, index)
    near = weight if gang.near is not None else 0
    if value is None:
        return gang.most_preference + near
    return PLACEMENT_VALUES["preference"](instance, gang, standing_of(gang), value) + near


def _bandwidth(instance: Instance, index: int, weight: int) -> int:
    gang, value = instance.gangs[index], standing_value(instance, index)
    if value is not None:
        return PLACEMENT_VALUES["bandwidth"](instance, gang, (), value)
    several = sum(role.max * role.gpus for role in gang.roles) > 1
    return gang.weight * weight * FULL_SHARE if several and gang.pattern != "none" else 0


def _aged(instance: Instance, index: int, weight: int) -> int:
    speed = FULL_SPEED if instance.by_speed else 1
    return weight * speed if instance.aged(instance.gangs[index]) else 0


_WORTHS: dict[str, Callable[[Instance, int, int], int]] = {
    "guarantee": lambda instance, i, weight: weight * within_guarantee(instance, instance.gangs[i]),
    "kept": lambda instance, i, _weight: instance.gangs[i].units_of(instance.gangs[i].running_pods),
    "aged": _aged,
    "goodput": _goodput,
    "admission": lambda _instance, _index, weight: weight,
    "waiting": lambda instance, i, weight: weight * instance.age(instance.gangs[i]),
    "aged-waiting": lambda instance, i, weight: (
        _aged(instance, i, weight) * instance.age(instance.gangs[i])
    ),
    "preference": _preference,
    "bandwidth": _bandwidth,
}
"""What a gang of a weight adds to a tier at most."""

_COUNTED = {"kept": True, "aged": False, "waiting": False, "aged-waiting": False}
"""Of families for which only gangs count that run now, or that do not, which."""
