"""Exchange of nodes, so that each gang that is stopped is stopped for one that may take its place.

A program that counts slots says who stops and who comes, not who comes in whose place (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import islice, product
from operator import le

import numpy as np

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.demand_builder import remaining_demand
from models.program.linear_program import Question
from models.rules.giving_way import claim, released, takes, unjustified, unjustified_victims
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
    found = list(decisions)
    if unjustified_victims(instance, decisions):
        for gang, decision in _Exchange(instance, decisions, ended).run():
            found[gang] = decision
    return tuple(found)


class _Exchange:
    """A plan in which nodes are exchanged.

    ``_cleared``, ``_victims``: nodes on which each gang gives up room, and the other way round. ``_filled``:
    nodes to which gangs came.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], ended: Question
    ) -> None:
        self._instance, self._ended = instance, ended
        self._space = FreeSpace(instance, decisions)
        self._cleared = released(instance, decisions)
        self._victims: dict[int, list[int]] = {}
        for victim, own in self._cleared.items():
            for n in own:
                self._victims.setdefault(n, []).append(victim)
        nodes = instance.cluster.nodes
        kinds = {id(node.model): number for number, node in enumerate(nodes)}
        self._kinds = np.array([kinds[id(node.model)] for node in nodes])
        self._domains = np.array(instance.cluster.domain_of).reshape(-1, len(nodes))
        space = self._space
        changed = (g for g, own in enumerate(space.pods) if own is not space.original[g])
        self._filled = {pod.node for g in changed for pod in space.new_pods(g)}

    def run(self) -> Iterator[tuple[int, GangDecision]]:
        """The gangs that change nodes, with their decisions from then on."""
        arrivals = self._arrivals({n for nodes in self._cleared.values() for n in nodes})
        for victim in unjustified(self._instance, self._cleared, arrivals):
            for gang in self._exchanged(victim):
                yield gang, self._space.decision(gang)

    def _exchanged(self, victim: int) -> Collection[int]:
        """Exchange a node that this gang leaves; the gangs that change nodes, none if that failed."""
        for worse, n in product((False, True), sorted(self._cleared[victim])):
            for m in islice(self._partners(victim, n), MAX_PARTNERS):
                if self._ended():
                    return ()
                wrong, mark = self._wrong(n, m), self._space.mark()
                gangs, still = self._exchange(n, m, worse=worse), self._wrong(n, m)
                if gangs and victim not in still and still <= wrong:
                    self._filled.add(n)
                    return gangs
                self._space.undo(mark)
        return ()

    def _wrong(self, n: int, m: int) -> set[int]:
        """The gangs that give up room on one of two nodes, or on others, for none that may take it."""
        victims = {*self._victims.get(n, ()), *self._victims.get(m, ())}
        near = {victim: self._cleared[victim] for victim in victims}
        nodes = set[int]().union(*near.values())
        return {*unjustified(self._instance, near, self._arrivals(nodes))}

    def _exchange(self, n: int, m: int, *, worse: bool) -> Collection[int]:
        """Whoever came to one of two nodes goes to the other; none if one has no place, or is slower.

        ``worse``: whether a gang may be in more domains than before.
        """
        space, leaving = self._space, {*self._arrivals((n, m))}
        going = {gang: m for gang, pod in leaving if pod.node == n}
        coming = {gang: n for gang, pod in leaving if pod.node == m}
        if not coming or going.keys() & coming.keys():
            return ()
        gangs, free = self._instance.gangs, space.arrays.free
        moved = ((p.node == n, gangs[g].roles[p.role].gpus) for g, p in leaving)
        more = sum(gpus if to_m else -gpus for to_m, gpus in moved)
        if more > free[m] or -more > free[n]:
            return ()
        target = dict(sorted({**going, **coming}.items()))
        before = {gang: space.pods[gang] for gang in target}
        values = {gang: value_with(space, gang, pods) for gang, pods in before.items()}
        for gang, pods in before.items():
            space.set(gang, (pod for pod in pods if (gang, pod) not in leaving))
        for gang, to in target.items():
            kept, counts = space.pods[gang], counts_of(self._instance.gangs[gang], before[gang])
            demand = remaining_demand(self._instance, gang, counts, kept).within(frozenset({to}))
            placed = place(space, demand)
            if placed is None:
                return ()
            space.set(gang, (*kept, *placed))
        for gang, old in values.items():
            new = value_with(space, gang, space.pods[gang])
            if new.speed < old.speed or not (worse or all(map(le, new.domains, old.domains))):
                return ()
        return target

    def _partners(self, victim: int, n: int) -> Iterator[int]:
        """Nodes of the same kind to which a gang came that may take the place of one, the nearest first."""
        others = np.array(sorted(self._filled - {n}), dtype=np.int64)
        others = others[self._kinds[others] == self._kinds[n]]
        distance = (self._domains[:, others] != self._domains[:, [n]]).sum(axis=0)
        for m in others[np.argsort(distance, kind="stable")].tolist():
            came = {gang for gang, _ in self._arrivals((m,))}
            if any(takes(self._instance, claim(self._instance, g), victim, n) for g in came):
                yield m

    def _arrivals(self, nodes: Iterable[int]) -> Iterator[tuple[int, PodPlacement]]:
        """(gang, pod) of pods that came to these nodes."""
        for n in nodes:
            for (gang, _, _), (pod, stays) in self._space.by_node[n].tenants.items():
                if not stays:
                    yield gang, pod
