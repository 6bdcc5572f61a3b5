"""Bounds of every tier that follow from the queue and from the tiers before it, without a solver.

They hold for plans that keep the earlier tiers as required. An engine's bound is never worse than these.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from itertools import accumulate

import numpy as np
from numpy.typing import NDArray

from models.gpu_shares import part_of
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.queue import QueueShares
from models.instance.solution import placed
from models.instance.speed import FULL_SPEED
from models.queues.queue_shares import fair_units, queue_of, stated_shares, within_guarantee
from models.rates.gang_bandwidth import FULL_SHARE
from models.tiers import MAINS, Tier
from models.values.leftover import suspects
from models.values.tier_values import CONDITIONS, PLACEMENT_VALUES, most_speed, standing_value

UNLIMITED = 1 << 60

Amounts = NDArray[np.int64]

Values = Sequence[tuple[Tier, int]]
"""Of some tiers."""


@dataclass(slots=True)
class _Sums:
    """What the gangs of one priority come to. ``idle``: of their weight, what no GPU has to be there for.

    ``staying``: weight of those that run in every plan. ``growth``: GPUs of elastic ones above ``min``;
    ``idle_growth``: what of that no GPU has to be there for; ``growth_pods``: pods that count nothing above
    ``min``.
    """

    weight: int = 0
    idle: int = 0
    staying: int = 0
    growth: int = 0
    idle_growth: int = 0
    growth_pods: int = 0

    def add(self, gang: Gang, weight: int, unit: int, *, stays: bool) -> None:
        self.weight += weight
        self.idle += _idle(gang, weight, unit)
        if stays:
            self.staying += weight
        if gang.elastic:
            more = [(role, role.max - role.min) for role in gang.roles]
            self.growth += sum(pods * role.units for role, pods in more)
            self.idle_growth += sum(pods * (r.units - _taken(r, unit)) for r, pods in more)
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
        self._least: dict[tuple[str, int], tuple[Amounts, Amounts, NDArray[np.bool_]]] = {}
        self._besides: dict[tuple[str, int, int], int] = {}
        self._rooms: dict[int, Amounts] = {}
        self._pods: dict[tuple[int, int], int] = {}
        self._spread: dict[int, int] = {}
        self._largest: Counter[int] | None = None
        for index, gang in enumerate(instance.gangs):
            if gang.hold is None or gang.running:
                self._by_priority.setdefault(gang.priority, []).append(index)

    @cached_property
    def _sums(self) -> dict[int, _Sums]:
        """By priority, from high to low."""
        gangs, incomplete = self._instance.gangs, self._instance.incomplete
        unit = self._instance.gpu_unit
        found: dict[int, _Sums] = {}
        for priority in sorted(self._by_priority, reverse=True):
            found[priority] = _Sums()
            for index in self._by_priority[priority]:
                gang = gangs[index]
                stays = gang.running and not gang.preemptible and index not in incomplete
                found[priority].add(gang, self._weights[index], unit, stays=stays)
            for weight, idle in self._without_room(self._by_priority[priority]):
                found[priority].weight -= weight
                found[priority].idle -= idle
        return found

    def _without_room(self, gangs: Sequence[int]) -> Iterator[tuple[int, int]]:
        """What of these, without whole GPUs, has to wait: weight, and what of it no GPU has to be there for.

        Of one resource there is too little for all of them. Each counts for the resource of which it needs
        the largest part; those that are worth most for what they need go first.
        """
        instance, needs = self._instance, dict[str, list[tuple[int, int, int]]]()
        for index in gangs:
            gang = instance.gangs[index]
            if gang.running or any(role.gpus for role in gang.roles):
                continue
            asked = Counter[str]()
            for role in gang.roles:
                for name, amount in role.requests:
                    asked[name] += role.min * amount
            parts = (
                (Fraction(n, max(1, self._there[r])), r)
                for r, n in asked.items()
                if r in self._there
            )
            _, scarce = max(parts, default=(0, None))
            if scarce is not None and asked[scarce]:
                weight = self._weights[index]
                idle = _idle(gang, weight, instance.gpu_unit)
                needs.setdefault(scarce, []).append((weight, idle, asked[scarce]))
        for name, own in needs.items():
            most = self._there[name]
            weight, idle, _ = map(sum, zip(*own, strict=True))
            yield (
                weight - _Worths((worth, amount) for worth, _, amount in own).most(most),
                idle - _Worths((worth, amount) for _, worth, amount in own).most(most),
            )

    @cached_property
    def _there(self) -> dict[str, int]:
        """Of each resource, what nodes that take pods have together; none that some node does not limit."""
        instance = self._instance
        nodes = [dict(n.allocatable) for n in instance.cluster.nodes if instance.schedulable(n)]
        names = set[str]().union(*nodes)
        limited = (name for name in names if all(name in amounts for amounts in nodes))
        return {name: sum(max(0, amounts[name]) for amounts in nodes) for name in limited}

    @cached_property
    def _idle(self) -> int:
        """What no GPU has to be there for."""
        return sum(own.idle + own.idle_growth for own in self._sums.values())

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

    def bound(self, tier: Tier, kept: Values = (), bounds: Values = ()) -> int:
        """``kept``: what plans have at least (a minimised tier: at most) of each earlier tier.

        ``bounds``: what they have at most of each earlier tier.
        """
        if tier.sense == "min":
            return self._least_span(kept) if tier.family == "span" else 0
        if tier.row.subject == "cluster":
            return self._cluster(tier)
        if tier.row.subject == "growth":
            return self._growth(tier, kept)
        admitted, own = self._admitted(kept, bounds), tier.priority or 0
        if tier.family in BESIDE and self._all_stay(tier.priority, kept):
            each = admitted if tier.priority is None else (own,)
            return sum(self._beside(tier.family, one, admitted.get(one, 0)) for one in each)
        if tier.family in ("waiting", "aged-waiting"):
            admitted = {own: max(0, admitted.get(own, 0) - self._own(tier).staying)}
        elif tier.family in ("guarantee", "goodput"):
            admitted = {own: admitted.get(own, 0)}
        elif tier.family in ("admission", "fair"):
            return admitted.get(own, 0) if tier.family == "admission" else self._fairness(tier)
        elif tier.priority is not None:  # kept, aged
            admitted = {own: UNLIMITED}
        return sum(
            self._worths(tier.family, priority).most(gpus) for priority, gpus in admitted.items()
        )

    def _all_stay(self, priority: int | None, kept: Values) -> bool:
        """Whether plans that keep these tiers keep all running pods of this priority and above."""
        least = {t.priority: value for t, value in kept if t.family == "kept"}
        return all(
            one not in self._unseen and (least.get(one, -1) >= own or one not in self._losing)
            for one, own in self._standing.items()
            if priority is None or one >= priority
        )

    @cached_property
    def _unseen(self) -> set[int]:
        """Priorities of which a running gang without GPUs may be stopped: no tier says that it is kept."""
        return {
            g.priority
            for g in self._instance.gangs
            if g.running and g.preemptible and not _holds(g)
        }

    @cached_property
    def _standing(self) -> Counter[int]:
        """GPUs of the running gangs of each priority."""
        found = Counter[int]()
        for index, gang in enumerate(self._instance.gangs):
            if gang.running:
                found[gang.priority] += _running_gpus(self._instance, index, 0)
        return found

    @cached_property
    def _losing(self) -> set[int]:
        """Priorities of which a running gang may lose pods."""
        may_lose = CONDITIONS["may_lose_gpus"]
        return {g.priority for g in self._instance.gangs if may_lose(self._instance, g)}

    def _beside(self, family: str, priority: int, admitted: int) -> int:
        """The most of a tier where all gangs that run whole at this priority or above stay."""
        key = (family, priority, admitted)
        if key not in self._besides:
            instance, worth, weights = self._instance, _WORTHS[family], self._weights
            own, incomplete = self._by_priority.get(priority, ()), instance.incomplete
            stay = {i for i in own if instance.gangs[i].running and i not in incomplete}
            rest = max(0, admitted - sum(weights[i] for i in stay))
            others = (i for i in own if i not in stay and weights[i] <= rest and self._has_room(i))
            counts = _COUNTED.get(family) is not False
            known = sum(worth(instance, i, weights[i]) for i in stay) if counts else 0
            more = _Worths((worth(instance, i, weights[i]), weights[i]) for i in others)
            self._besides[key] = known + more.most(rest)
        return self._besides[key]

    def _has_room(self, index: int) -> bool:
        """Whether nodes have room for each role of a gang, beside those that stay."""
        gang = self._instance.gangs[index]
        roles = () if gang.running else gang.roles
        return all(self._pods_at(gang.priority, r.gpus) >= r.min for r in roles if r.gpus)

    def _pods_at(self, priority: int, gpus: int) -> int:
        """Pods of so many GPUs that nodes have room for."""
        if (priority, gpus) not in self._pods:
            self._pods[priority, gpus] = int((self._room_at(priority) // gpus).sum())
        return self._pods[priority, gpus]

    def _room_at(self, priority: int) -> Amounts:
        """GPUs of each node that are free, or held by gangs that may leave for this priority."""
        if priority not in self._rooms:
            node, gpus, of, firm = self._held
            stays = firm | (of >= priority)
            held = np.bincount(node[stays], weights=gpus[stays], minlength=len(self._on_nodes))
            room = np.array(self._on_nodes, np.int64) - held.astype(np.int64)
            self._rooms[priority] = np.where(self._open, np.maximum(room, 0), 0)
        return self._rooms[priority]

    @cached_property
    def _held(self) -> tuple[Amounts, Amounts, Amounts, NDArray[np.bool_]]:
        """Of each pod with GPUs that does not move: node, GPUs, priority, whether it must stay."""
        found = [
            (pod.node, gang.roles[pod.role].gpus, gang.priority, not gang.preemptible)
            for gang in self._instance.gangs
            if gang.running and not gang.movable
            for pod in gang.pods
            if pod.node is not None and gang.roles[pod.role].gpus
        ]
        table = np.array(found, np.int64).reshape(-1, 4)
        return table[:, 0], table[:, 1], table[:, 2], table[:, 3].astype(np.bool_)

    @cached_property
    def _open(self) -> NDArray[np.bool_]:
        """Nodes that take pods."""
        instance = self._instance
        return np.array([instance.schedulable(n) for n in instance.cluster.nodes], np.bool_)

    def _cluster(self, tier: Tier) -> int:
        """Where every GPU that the tier counts is free."""
        nodes = self._instance.cluster.nodes
        if tier.family == "suspect":
            return sum(nodes[n].gpus for n in suspects(self._instance))
        return 2 * sum(node.gpus for node in nodes)

    def _fairness(self, tier: Tier) -> int:
        """Where every gang has all pods that it may have."""
        known = stated_shares(self._instance)
        if self._largest is None:
            self._largest = _largest_fair(self._instance, known)
        return known.fairness(tier.rank or 0, self._largest)

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

    def _admitted(self, kept: Values, bounds: Values) -> dict[int, int]:
        """The most weight that gangs of each priority may have together."""
        known = {t.priority: value for t, value in bounds if t.family == "admission"}
        least = {t.priority: _least_gpus(t, value) for t, value in kept if t.family in MAINS}
        found, left = {}, self._capacity
        for priority, own in self._sums.items():
            most = min(own.weight, left + own.idle)
            found[priority] = max(0, min(most, known.get(priority, most)))
            left -= max(0, least.get(priority, 0) - own.idle)
        return found

    def _own(self, tier: Tier) -> _Sums:
        """The sums of the gangs of the tier's priority."""
        return self._sums.get(tier.priority or 0, _Sums())

    def _least_span(self, kept: Values) -> int:
        """What the gangs span at least that run in every plan which keeps the earlier tiers."""
        found = 0
        for tier, value in kept:
            if tier.family in MAINS and tier.priority is not None:
                worths, spans, whole = self._spans(tier.family, tier.priority)
                runs = worths > int(worths.sum()) - value
                if self._all_stay(tier.priority, kept):
                    runs |= whole
                found += int(spans[runs].sum())
        return found

    def _spans(self, family: str, priority: int) -> tuple[Amounts, Amounts, NDArray[np.bool_]]:
        """What each gang of a priority adds to a tier at most and spans at least; whether it runs whole."""
        if (family, priority) not in self._least:
            instance, gangs = self._instance, self._by_priority.get(priority, ())
            worths = [_WORTHS[family](instance, i, self._weights[i]) for i in gangs]
            spans = [self._span_at_least(instance.gangs[i]) for i in gangs]
            whole = [instance.gangs[i].running and i not in instance.incomplete for i in gangs]
            self._least[family, priority] = (
                np.array(worths, np.int64),
                np.array(spans, np.int64),
                np.array(whole, np.bool_),
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

    def _growth(self, tier: Tier, kept: Values) -> int:
        if tier.family == "growth-pods":
            return self._own(tier).growth_pods
        used = sum(value for t, value in kept if t.family == "growth")
        used += sum(_least_gpus(t, value) for t, value in kept)
        return max(0, min(self._own(tier).growth, self._capacity + self._idle - used))


def _largest_fair(instance: Instance, known: QueueShares) -> Counter[int]:
    """What gangs in queues count in fair shares where each has as many pods as it may have."""
    found = Counter(known.outside.fair)
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


def _holds(gang: Gang) -> bool:
    """Whether a gang that runs holds GPUs, or parts that count."""
    return any(gang.roles[pod.role].units for pod in gang.running_pods)


def _taken(role: Role, unit: int) -> int:
    """What a pod of the role takes at least of GPUs, of which no more is taken than there is.

    Of parts those count that are fractions: their memory. Of others the memory depends on the GPU.
    """
    taken = unit * role.gpus
    for resource, amount in role.requests if unit > 1 else ():
        part = part_of(resource)
        taken += 0 if part is None else amount * part.permille
    return taken


def _idle(gang: Gang, weight: int, unit: int) -> int:
    """What of the weight of a gang no GPU has to be there for: all of that of one without GPUs."""
    return weight - sum(role.min * _taken(role, unit) for role in gang.roles)


def _running_gpus(instance: Instance, index: int, _weight: int) -> int:
    gang = instance.gangs[index]
    return gang.units_of(pod for pod in gang.pods if pod.node is not None)


def _goodput(instance: Instance, index: int, weight: int) -> int:
    """A gang that runs whole counts at most its speed before the plan."""
    most = most_speed(instance, index)
    return weight * (FULL_SPEED if most is None else most)


def _preference(instance: Instance, index: int, _weight: int) -> int:
    gang, value = instance.gangs[index], standing_value(instance, index)
    if value is None:
        return gang.most_preference
    return PLACEMENT_VALUES["preference"](instance, gang, placed(gang, gang.running_pods), value)


def _bandwidth(instance: Instance, index: int, weight: int) -> int:
    gang, value = instance.gangs[index], standing_value(instance, index)
    if value is not None:
        return PLACEMENT_VALUES["bandwidth"](instance, gang, (), value)
    several = sum(role.max * role.gpus for role in gang.roles) > 1
    return gang.weight * weight * FULL_SHARE if several and gang.pattern != "none" else 0


def _waited(instance: Instance, index: int, weight: int) -> int:
    return weight * instance.age(instance.gangs[index])


def _aged(instance: Instance, index: int, weight: int) -> int:
    speed = FULL_SPEED if instance.by_speed else 1
    return weight * speed if instance.aged(instance.gangs[index]) else 0


_WORTHS: dict[str, Callable[[Instance, int, int], int]] = {
    "guarantee": lambda instance, i, weight: weight * within_guarantee(instance, instance.gangs[i]),
    "kept": _running_gpus,
    "aged": _aged,
    "goodput": _goodput,
    "admission": lambda _instance, _index, weight: weight,
    "waiting": _waited,
    "aged-waiting": lambda instance, i, weight: (
        _aged(instance, i, weight) * instance.age(instance.gangs[i])
    ),
    "preference": _preference,
    "bandwidth": _bandwidth,
}
"""What a gang of a weight adds to a tier at most."""

BESIDE = ("goodput", "waiting", "preference", "bandwidth")
"""Families whose bound counts who runs on one by one, and of the others those that have room beside them."""

_COUNTED = {"kept": True, "aged": False, "waiting": False, "aged-waiting": False}
"""Of families for which only gangs count that run now, or that do not, which."""
