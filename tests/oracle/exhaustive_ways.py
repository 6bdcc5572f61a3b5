"""What each way to go on with a gang of a tiny instance is worth, whatever the other gangs do.

Promises: every option with every spread; of those that ask the same of the cluster, the best.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from effort import Effort
from exhaustive_beside import spots
from exhaustive_counts import counted, pod_counts
from exhaustive_leftover import LEFTOVER, WHOLE_OR_FREE, leftover
from exhaustive_options import Key, Option, options
from exhaustive_pods import keeps_pod_rules
from exhaustive_prices import usable
from exhaustive_queues import Part, arrived, promises
from exhaustive_reserving import Reserving
from exhaustive_speeds import relative_speed, speed
from exhaustive_spreads import Spread, Spreading
from exhaustive_values import (
    MINIMISED,
    earnings,
    performance,
    speed_limits,
    stability_value,
    standing,
    tier_names,
)

from models.instance.instance import Instance
from models.instance.solution import PodPlacement

Left = tuple[int, int]
"""GPUs free on a node, and those of them that have their share of it."""

Vector = tuple[int, ...]
"""One entry a tier, larger is better. Vectors compare like plans, and so do their sums."""


def summed(*vectors: Vector) -> Vector:
    return tuple(map(sum, zip(*vectors, strict=True)))


@dataclass(frozen=True)
class Way:
    """One option and one spread. ``value``: what it adds to every sum whichever GPUs it gets; ``most``:
    with the ideal bandwidth. ``relative``: speed of its slowest GPU; ``gpus``: asked in all. ``part``: what
    it adds for the rules and tiers about queues, and where it stands for gangs that should be near it.
    """

    option: Option
    spread: Spread
    value: Vector
    most: Vector
    relative: int
    part: Part

    @cached_property
    def gpus(self) -> int:
        return sum(self.spread.gpus)

    @property
    def idle(self) -> bool:
        """Whether it can always be taken: nothing is placed, and nobody has to come."""
        return not self.option.new and not self.option.excuse


class Scale:
    """The tiers of one instance as entries of a vector."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.names = tier_names(instance)
        self.zero: Vector = (0,) * len(self.names)
        self.usable = tuple(usable(instance, node) for node in instance.cluster.nodes)
        self._before = speed_limits(instance)
        self._left: dict[tuple[Left, ...], Vector] = {}
        self._performance: dict[tuple[int, int | None, int], Vector] = {}

    def vector(self, values: Mapping[str, int]) -> Vector:
        """Values by tier; absent counts 0."""
        return tuple(
            -values.get(name, 0) if name in MINIMISED else values.get(name, 0)
            for name in self.names
        )

    def room(self, counts: Sequence[Left]) -> Vector:
        """What so many GPUs left free, a node, are worth in the end."""
        left = tuple(n if ours else (0, 0) for n, ours in zip(counts, self.usable, strict=True))
        if left not in self._left:
            free, useful = zip(*left, strict=True)
            tiers = [tier for tier in LEFTOVER if tier in self.names]
            values = {tier: leftover(self.instance, tier, free, useful) for tier in tiers}
            self._left[left] = self.vector(values)
        return self._left[left]

    def ceiling(self, counts: Sequence[Left]) -> Vector:
        """No plan that leaves no more than so many GPUs is worth more for what it leaves.

        Whole pieces and free GPUs only become fewer, and nothing is the least that can be stranded.
        """
        after = zip(self.names, self.room(counts), strict=True)
        return tuple(value if name in WHOLE_OR_FREE else 0 for name, value in after)

    def performance(self, g: int, share: int | None, relative: int) -> Vector:
        """What gang g adds if it is admitted and its GPUs have this share and this relative speed."""
        key = (g, share, relative)
        if key not in self._performance:
            gang, before = self.instance.gangs[g], self._before[g]
            after = speed(gang, share, relative)
            permille = after if before is None else min(before, after)
            self._performance[key] = self.vector(performance(self.instance, gang, share, permille))
        return self._performance[key]


class Ways:
    """``of[g]``: the ways of gang g by the pods that stay in them, the one that changes nothing first;
    ``most[g]``: by the pods that stay, the most any way may add.
    """

    def __init__(
        self,
        scale: Scale,
        spreading: Spreading,
        immovable: frozenset[int],
        reserving: Reserving,
        away: frozenset[tuple[int, int, int]] = frozenset(),
    ) -> None:
        self.scale = scale
        self.effort = Effort()
        self.promises = promises(scale.instance)
        self.spreading = spreading
        self.reserving = reserving
        self.away = away
        instance = scale.instance
        self.of = [self._ways(g, immovable=g in immovable) for g in range(len(instance.gangs))]
        self.most = [
            {stays: max(way.most for way in ways) for stays, ways in of.items()} for of in self.of
        ]

    def _ways(self, g: int, *, immovable: bool) -> dict[tuple[Key, ...], list[Way]]:
        instance = self.scale.instance
        found: dict[tuple[Key, ...], dict[object, Way]] = {}
        for option in options(instance, instance.gangs[g], immovable=immovable):
            if option.moved and self._too_many(g):
                continue
            for spread in self.spreading.of(g, option):
                self.effort.one()
                if self.away and not self.away.isdisjoint(self._there(g, option, spread)):
                    continue
                stays = self.staying(g, option.stays)
                if not keeps_pod_rules(instance, g, stays, spread.pods):
                    continue
                if not self.reserving.may_come(g, spread.pods):
                    continue
                way = self._way(g, option, spread)
                rest = (option.excuse, option.moved, option.bound, option.admitted, way.part)
                key = (spread.gpus, spread.needs, spread.arrivals, spread.served, rest)
                same = found.setdefault(option.stays, {})
                if key not in same or way.value > same[key].value:
                    same[key] = way
        return {stays: list(ways.values()) for stays, ways in found.items()}

    def _there(self, g: int, option: Option, spread: Spread) -> set[tuple[int, int, int]]:
        """(gang, role, node) of its pods."""
        stays = {(g, pod.role, pod.node) for pod in self.staying(g, option.stays)}
        return stays | {(g, role, n) for role, _, n in spread.pods}

    def _too_many(self, g: int) -> bool:
        """Whether the gang is alone more than may move."""
        limits = self.scale.instance.policy.moves
        return limits is not None and (
            limits.max_gangs == 0
            or (limits.max_gpus is not None and self.standing_gpus(g) > limits.max_gpus)
        )

    def standing_gpus(self, g: int) -> int:
        """What the move of the gang counts against the limit of GPUs."""
        gang = self.scale.instance.gangs[g]
        return counted(gang, (pod.role for pod in standing(gang)))

    def _way(self, g: int, option: Option, spread: Spread) -> Way:
        instance = self.scale.instance
        gang = instance.gangs[g]
        stand = {(p.role, p.index): p.node for p in standing(gang)}
        pods = [*((r, i, stand[r, i]) for r, i in option.stays), *spread.pods]
        values = {
            f"kept/{gang.priority}": option.kept,
            "disruption": option.disruption,
            "stability": stability_value(gang, pods),
            **(earnings(instance, gang, pods) if option.admitted else {}),
        }
        value = self.scale.vector(values)
        relative = relative_speed(instance, gang, {n for r, _, n in pods if gang.roles[r].gpus})
        most = summed(value, self.scale.performance(g, 1000, relative))
        part = self._part(g, option, spread)
        if option.admitted:
            part |= spots(instance, g, pods)
        return Way(option, spread, value, most if option.admitted else value, relative, part)

    def _part(self, g: int, option: Option, spread: Spread) -> Part:
        """What the gang adds for the rules and tiers about queues."""
        gang = self.scale.instance.gangs[g]
        pods = [(r, n, pod_counts(gang.roles[r]), 0) for r, _, n in spread.pods]
        for pod in self.staying(g, option.stays):
            gpus = pod_counts(gang.roles[pod.role])
            pods.append((pod.role, pod.node, gpus, self.promises.odd(pod.node, gpus, pod.gpus)))
        come = arrived(gang, spread.pods)
        return self.promises.part(g, pods, come)

    def staying(self, g: int, stays: tuple[Key, ...]) -> tuple[PodPlacement, ...]:
        """The pods of a gang that stay."""
        gang = self.scale.instance.gangs[g]
        return tuple(pod for pod in standing(gang) if (pod.role, pod.index) in stays)
