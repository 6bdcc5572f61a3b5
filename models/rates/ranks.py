"""Which rank every pod gets: pods of a role are alike, so that the ranks are dealt to places (section 3).

Exact where there are few different orders; else never worse than ranks in the order of indices. The same
pods always get the same ranks, so that the search values what the plan states.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations
from math import factorial

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.instance.solution import PodPlacement
from models.rates.gang_bandwidth import ServerSet
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import (
    EXPERT,
    TENSOR,
    GroupRates,
    Kind,
    Order,
    Place,
    role_kinds,
)

MAX_ORDERS = 120
"""Up to so many different orders of a role's pods are all priced."""

EFFORT = 10_000
"""Ranks looked at while the pods of one role are exchanged."""

MOST_RANKS = 100_000
"""Ranks of a role, each once for every kind of group it is in, beyond which ranks stay consecutive."""

Key = tuple[int, int]
"""Role and index of a pod."""

Worth = tuple[int, int, Fraction, tuple[int, ...]]
"""Less is better: tensor and expert groups split, B (negative), pairs of neighbours apart a level, widest
first, and whether the first pod has another rank than 0."""


def has_ranks(gang: Gang, role: Role) -> bool:
    """Whether the plan deals ranks to the role's pods."""
    if not role.gpus:
        return False
    return role.parallelism is not None or gang.ordered or (gang.by_rank and not gang.parallel)


def placed_kinds(
    gang: Gang, number: int, own: Sequence[PodPlacement], sets: Mapping[int, ServerSet]
) -> tuple[Kind, ...] | None:
    """The kinds of groups of a role on these pods, None if its ranks do not matter to its bandwidth.

    Nor do they where pods hold other GPUs than they ask for, or together more than a server has: there is
    not one GPU for each rank. ``own``: the role's pods. ``sets``: its GPUs a node.
    """
    role = gang.roles[number]
    whole = all(pod.gpus is None or pod.gpus.bit_count() == role.gpus for pod in own)
    if not whole or sum(chosen.count for chosen in sets.values()) != len(own) * role.gpus:
        return None
    return role_kinds(gang, role, len(own))


@dataclass(frozen=True, slots=True)
class Dealt:
    """``pods``: of one role, by rank. ``rates``: what its groups get, None where ranks do not decide it."""

    pods: tuple[PodPlacement, ...]
    gpus: int
    rates: GroupRates | None
    order: tuple[int, ...]

    @property
    def ranks(self) -> dict[Key, int]:
        """Rank of the first GPU of every pod."""
        return {(pod.role, pod.index): place * self.gpus for place, pod in enumerate(self.pods)}


def deal(
    cluster: Cluster,
    gang: Gang,
    number: int,
    pods: Sequence[PodPlacement],
    sets: Mapping[int, ServerSet],
) -> Dealt:
    """The ranks of the pods of role ``number``. ``pods``: all of the gang; ``sets``: the role's GPUs a node.

    Where a rate is not known that its bandwidth needs, ranks are consecutive.
    """
    role = gang.roles[number]
    own = sorted((pod for pod in pods if pod.role == number), key=lambda pod: pod.index)
    kinds = placed_kinds(gang, number, own, sets) or ()
    places = [Place.of(pod.node, pod.gpus) for pod in own]
    rates = GroupRates(cluster, places, sets, kinds, role.gpus, joined=gang.nvlink_across_nodes)
    dealing = _Dealing(cluster, rates, _fixed(gang, number, own))
    try:
        order = dealing.best()
    except UnknownRate:
        order = dealing.start
    return Dealt(tuple(own[i] for i in order), role.gpus, rates if kinds else None, order)


def _fixed(gang: Gang, number: int, own: Sequence[PodPlacement]) -> dict[int, int]:
    """Position by rank -> pod of ``own``, of pods that keep their place and rank."""
    standing = {p.index: p for p in gang.running_pods if p.role == number}
    gpus, found = gang.roles[number].gpus, dict[int, int]()
    for place, pod in enumerate(own):
        known = standing.get(pod.index)
        if known is None or (known.node, known.gpus) != (pod.node, pod.gpus):
            continue
        rank = place * gpus if known.rank is None else known.rank
        if rank % gpus or rank >= gpus * len(own) or rank // gpus in found:
            return {place: place for place in range(len(own))}
        found[rank // gpus] = place
    return found


class _Dealing:
    """One role: the order of its places. ``fixed``: place by position."""

    def __init__(self, cluster: Cluster, rates: GroupRates, fixed: Mapping[int, int]) -> None:
        self._rates, self._fixed = rates, fixed
        count = len(rates.places)
        taken = set(fixed.values())
        self._open = [position for position in range(count) if position not in fixed]
        self._free = [place for place in range(count) if place not in taken]
        nodes = [place.node for place in rates.places]
        self._domains = [tuple(of[n] for n in nodes) for of in cluster.domain_of]
        self._alike = self._classes()

    def best(self) -> tuple[int, ...]:
        """Index of the place of every position."""
        start = self.start
        if len(set(self._alike.values())) < 2 or self._rates.cost() > MOST_RANKS:
            return start
        best = self._worth(start), start
        if self._orders() <= MAX_ORDERS:
            for free in self._different():
                best = min(best, self._priced(free), key=_worth)
            return best[1]
        tries = max(2, EFFORT // max(1, self._rates.cost() + len(start)))
        for free in self._starts()[:tries]:
            best = min(best, self._priced(free), key=_worth)
            tries -= 1
        return self._exchanged(best, tries)[1]

    @property
    def start(self) -> tuple[int, ...]:
        """Consecutive ranks."""
        return self._order(self._free)

    def _order(self, free: Sequence[int]) -> tuple[int, ...]:
        order = dict(self._fixed) | dict(zip(self._open, free, strict=True))
        return tuple(order[position] for position in range(len(order)))

    def _priced(self, free: Sequence[int]) -> tuple[Worth, tuple[int, ...]]:
        order = self._order(free)
        return self._worth(order), order

    def _worth(self, order: Order) -> Worth:
        rates = self._rates
        apart = tuple(
            sum(of[a] != of[b] for a, b in zip(order, order[1:], strict=False))
            for of in self._domains
        )
        # launchers expect the store of the first rank in the first pod
        apart = (*apart, int(order[0] != 0))
        if not rates.kinds:
            return 0, 0, Fraction(0), apart
        return (
            rates.split(TENSOR, order),
            rates.split(EXPERT, order),
            -rates.bandwidth(order),
            apart,
        )

    def _classes(self) -> dict[int, object]:
        """Free places that may be exchanged without any effect have the same class."""
        pods = Counter(self._rates.units)
        found: dict[int, object] = {}
        for place in self._free:
            unit = self._rates.units[place]
            own = self._rates.place_class(place)
            if pods[unit] > 1:
                found[place] = (unit, self._rates.places[place].node, own)
            else:
                around = tuple(of[place] for of in self._domains[:-1])
                found[place] = (around, own, self._rates.unit_class(place))
        return found

    def _orders(self) -> int:
        """Number of different orders of the free places, or more than MAX_ORDERS if there are many."""
        counts = Counter(self._alike.values())
        if len(self._free) > MAX_ORDERS:
            return MAX_ORDERS + 1
        number = factorial(len(self._free))
        for count in counts.values():
            number //= factorial(count)
        return number

    def _different(self) -> Iterator[list[int]]:
        """Every different order of the free places."""
        members: dict[object, list[int]] = {}
        for place in self._free:
            members.setdefault(self._alike[place], []).append(place)
        found: list[int] = []

        def extend() -> Iterator[list[int]]:
            if len(found) == len(self._free):
                yield list(found)
                return
            for own in list(members.values()):
                if own:
                    found.append(own.pop(0))
                    yield from extend()
                    own.insert(0, found.pop())

        yield from extend()

    def _starts(self) -> list[list[int]]:
        """By domain; and the same with whole blocks of groups first, what domains have left over last."""
        by_path = sorted(
            self._free, key=lambda place: (*(of[place] for of in self._domains), place)
        )
        gpus = self._rates.gpus
        sizes = {kind.size * kind.stride // gpus for kind in self._rates.kinds}
        found = [by_path]
        for size in sorted(sizes - {0, 1}, reverse=True):
            for of in self._domains:
                members: dict[int, list[int]] = {}
                for place in by_path:
                    members.setdefault(of[place], []).append(place)
                whole = [p for own in members.values() for p in own[: len(own) // size * size]]
                rest = [p for own in members.values() for p in own[len(own) // size * size :]]
                if rest and whole:
                    found.append([*whole, *rest])
        return found

    def _exchanged(
        self, best: tuple[Worth, tuple[int, ...]], tries: int
    ) -> tuple[Worth, tuple[int, ...]]:
        """Exchange pods two by two as long as it helps and tries are left."""
        better = True
        while better:
            better = False
            for a, b in combinations(self._open, 2):
                order = list(best[1])
                if self._alike[order[a]] == self._alike[order[b]]:
                    continue
                if tries <= 0:
                    return best
                tries -= 1
                order[a], order[b] = order[b], order[a]
                worth = self._worth(order)
                if worth < best[0]:
                    best, better = (worth, tuple(order)), True
        return best


def _worth(found: tuple[Worth, tuple[int, ...]]) -> Worth:
    return found[0]
