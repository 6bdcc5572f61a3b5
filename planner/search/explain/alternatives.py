"""Why a gang has its place and not the next best: the plan with the gang in another domain, tier by tier.

Everything else stays as planned. In a domain the best of the places that greedy finds counts.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

from models.documents.answers import OtherPlace, PlaceReasons, WhyTier
from models.documents.reason import ReasonFields
from models.instance.solution import Reason
from models.program.base_state import outcome
from models.program.linear_program import Question
from models.rules.demands import Demand
from models.tiers import Tier, larger_is_better
from models.values.tier_values import Evaluation, tiers_of
from planner.search.explain.rule_reasons import without_joint_rules
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.explain.world import World
from planner.search.free_space import FreeSpace, Pods
from planner.search.improve.rearranging import ways
from planner.search.start.greedy import demand_like

MAX_CANDIDATES = 48
"""Domains that are tried, those with most free GPUs first."""

MAX_SHOWN = 5
"""Domains that are compared in the answer, the best first."""


def alternatives(world: World, late: Question) -> PlaceReasons | None:
    """The other domains for a gang that has pods after the plan; None for one that has none."""
    pods = world.decisions[world.gang].pods
    if not pods:
        return None
    return _Comparing(world, pods, late).run()


class _Comparing:
    def __init__(self, world: World, pods: Pods, late: Question) -> None:
        self._world, self._late = world, late
        self._instance = instance = world.instance
        self._nodes = frozenset(pod.node for pod in pods)
        self._tiers = tiers_of(instance)
        self._here = Evaluation(instance, world.decisions).vector()
        self._space = FreeSpace(instance, world.decisions)
        self._space.set(world.gang, ())
        self._demand = demand_like(self._space, world.gang, pods)
        self._level, self._domains = self._of_the_gang()

    def _of_the_gang(self) -> tuple[int, frozenset[int]]:
        """The narrowest level at which it is in one domain, or else the narrowest that is counted."""
        cluster = self._instance.cluster
        for level in range(cluster.node_level, -1, -1):
            used = frozenset(cluster.domain_of[level][n] for n in self._nodes)
            if len(used) == 1:
                return level, used
        counted = [*cluster.counted_levels, cluster.node_level]
        level = counted[-2] if len(counted) > 1 else cluster.node_level
        return level, frozenset(cluster.domain_of[level][n] for n in self._nodes)

    def run(self) -> PlaceReasons:
        found = []
        for name, nodes in islice(self._candidates(), MAX_CANDIDATES):
            if self._late():
                break
            found.append(self._compared(name, nodes))
        found.sort(key=lambda one: (not one[0], [-value for value in one[0]], one[1].domain))
        cluster = self._instance.cluster
        names = sorted("/".join(cluster.domains[self._level][d].path) for d in self._domains)
        return PlaceReasons.model_construct(
            level=cluster.level_name(self._level),
            domain=", ".join(names),
            tried=len(found),
            others=tuple(other for _, other in found[:MAX_SHOWN]),
        )

    def _candidates(self) -> Iterator[tuple[str, frozenset[int]]]:
        """Other domains of the level; of a gang in several, all nodes without one of these."""
        cluster, free = self._instance.cluster, self._space.arrays.free
        domains = cluster.domains[self._level]
        if len(self._domains) > 1:
            every = frozenset(range(len(cluster.nodes)))
            for d in sorted(self._domains):
                yield f"without {'/'.join(domains[d].path)}", every.difference(domains[d].nodes)
            return
        suited = self._demand.nodes
        rest = [
            (-int(sum(free[n] for n in domain.nodes)), d)
            for d, domain in enumerate(domains)
            if d not in self._domains and not suited.isdisjoint(domain.nodes)
        ]
        for _, d in sorted(rest):
            yield "/".join(domains[d].path), frozenset(domains[d].nodes)

    def _compared(self, name: str, nodes: frozenset[int]) -> tuple[tuple[int, ...], OtherPlace]:
        """The gang there, and the values of the tiers, larger where better; none where it has no place."""
        demand = self._demand.within(nodes)
        best, there = tuple[int, ...](), tuple[int, ...]()
        for pods in ways(self._space, demand):
            decisions = list(self._world.decisions)
            decisions[self._world.gang] = outcome(self._instance, self._world.gang, pods)
            values = Evaluation(self._instance, decisions).vector()
            worth = larger_is_better(self._tiers, values)
            if not best or worth > best:
                best, there = worth, values
            if self._late():
                break
        if not best:
            why = self._why_not(demand)
            code, fields = (None, ReasonFields()) if why is None else (why.code, why.fields)
            not_there = OtherPlace.model_construct
            return (), not_there(domain=name, possible=False, code=code, fields=fields)
        tier = first_difference(self._tiers, self._here, there)
        return best, OtherPlace.model_construct(domain=name, possible=True, tier=tier)

    def _why_not(self, demand: Demand) -> Reason | None:
        """What a count says against the domain; None if the rules do."""
        if any(not role.nodes for role in demand.roles):
            return Reason.of("Selector")
        counts = FreeCounts(without_joint_rules(self._instance), self._space.arrays)
        short = shortage(counts, demand)
        return None if short is None else short.reason(short.code)


def first_difference(
    tiers: Sequence[Tier], here: Sequence[int], there: Sequence[int]
) -> WhyTier | None:
    """The first tier in which two plans differ, with its values; None if they are equally good."""
    for tier, old, new in zip(tiers, here, there, strict=True):
        if old != new:
            return WhyTier(name=tier.name, sense=tier.sense, here=old, there=new)
    return None
