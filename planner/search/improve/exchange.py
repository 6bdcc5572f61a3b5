"""Exchange of nodes, so that each gang that is stopped is stopped for one that may take its place.

A program that counts slots says who stops and who comes, not who comes in whose place (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from operator import le

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.demand_builder import remaining_demand
from models.program.linear_program import Question
from models.rules.giving_way import claim, released, takes, unjustified
from planner.search.free_space import FreeSpace, counts_of
from planner.search.start.greedy import place, value_with

MAX_PARTNERS = 40
"""Nodes with which one is exchanged by way of trial, the nearest first."""


def justified(
    instance: Instance, decisions: Sequence[GangDecision], ended: Question
) -> tuple[GangDecision, ...]:
    """The plan in which gangs that came to nodes have exchanged them, where that justifies who stops.

    Whoever came to a node that was cleared goes to one to which a gang came that may clear it, and the
    other way round. No gang is slower afterwards. Once it is ``ended`` no more are exchanged.
    """
    cleared = released(instance, decisions)
    space, found = FreeSpace(instance, decisions), list(decisions)
    for victim in unjustified(instance, cleared, _arrivals(space, _all(cleared))):
        for gang in () if ended() else _exchanged(space, cleared, victim):
            found[gang] = space.decision(gang)
    return tuple(found)


def _exchanged(
    space: FreeSpace, cleared: Mapping[int, Collection[int]], victim: int
) -> Collection[int]:
    """Exchange a node that this gang leaves; the gangs whose pods changed nodes, none if that failed."""
    for worse, n in product((False, True), sorted(cleared[victim])):
        for m in islice(_partners(space, victim, n), MAX_PARTNERS):
            near = {v: nodes for v, nodes in cleared.items() if n in nodes or m in nodes}
            wrong = unjustified(space.instance, near, _arrivals(space, _all(near)))
            mark, gangs = space.mark(), _exchange(space, n, m, worse=worse)
            still = unjustified(space.instance, near, _arrivals(space, _all(near)))
            if gangs and victim not in still and {*still} <= {*wrong}:
                return gangs
            space.undo(mark)
    return ()


def _exchange(space: FreeSpace, n: int, m: int, *, worse: bool) -> Collection[int]:
    """Whoever came to one of two nodes goes to the other; none if somebody has no place, or is slower.

    ``worse``: whether a gang may be in more domains than before.
    """
    going = {gang: m for gang, _ in _arrivals(space, (n,))}
    coming = {gang: n for gang, _ in _arrivals(space, (m,))}
    if not coming or going.keys() & coming.keys():
        return ()
    target = {**going, **coming}
    before = {gang: space.pods[gang] for gang in target}
    values = {gang: value_with(space, gang, pods) for gang, pods in before.items()}
    for gang, pods in before.items():
        space.set(gang, (pod for pod in pods if pod.node not in {n, m} - {target[gang]}))
    for gang, to in target.items():
        kept, counts = space.pods[gang], counts_of(space.instance.gangs[gang], before[gang])
        demand = remaining_demand(space.instance, gang, counts, kept).within(frozenset({to}))
        placed = place(space, demand)
        if placed is None:
            return ()
        space.set(gang, (*kept, *placed))
    for gang, old in values.items():
        new = value_with(space, gang, space.pods[gang])
        if new.speed < old.speed or not (worse or all(map(le, new.domains, old.domains))):
            return ()
    return target


def _partners(space: FreeSpace, victim: int, n: int) -> Iterator[int]:
    """Nodes of the same kind to which a gang came that may take the place of one, the nearest first."""
    instance, cluster = space.instance, space.instance.cluster
    kind = cluster.nodes[n].model
    found = {
        pod.node
        for gang, pods in enumerate(space.pods)
        if pods is not space.original[gang] and takes(instance, claim(instance, gang), victim, n)
        for pod in pods
        if pod.node != n and cluster.nodes[pod.node].model == kind
    }

    def distance(m: int) -> tuple[int, int]:
        return sum(of[m] != of[n] for of in cluster.domain_of), m

    yield from (m for m in sorted(found, key=distance) if next(_arrivals(space, (m,)), None))


def _arrivals(space: FreeSpace, nodes: Iterable[int]) -> Iterator[tuple[int, PodPlacement]]:
    """(gang, pod) of pods that came to these nodes."""
    for n in nodes:
        for (gang, _, _), (pod, stays) in space.by_node[n].tenants.items():
            if not stays:
                yield gang, pod


def _all(nodes: Mapping[int, Collection[int]]) -> set[int]:
    return set[int]().union(*nodes.values())
