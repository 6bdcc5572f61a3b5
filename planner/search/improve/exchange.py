"""Exchange of nodes, so that each gang that is stopped is stopped for one that may take its place.

A program that counts slots says who stops and who comes, not who comes in whose place (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from itertools import islice, product
from operator import le

import numpy as np

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.demand_builder import remaining_demand
from models.program.linear_program import Question
from models.rules.giving_way import claim, released, takes, unjustified, unjustified_victims
from models.values.tier_values import GangValue
from planner.search.free_space import FreeSpace, counts_of
from planner.search.start.greedy import place, value_with

MAX_PARTNERS = 40
"""Nodes, and gangs, with which one is exchanged by way of trial."""

MAX_EXCHANGES = 1000
"""Exchanges that are tried at most for a plan."""

Target = Mapping[int, frozenset[int]]
"""By gang, the nodes to which its pods go that came to those of others."""


def justified(
    instance: Instance, decisions: Sequence[GangDecision], ended: Question
) -> tuple[GangDecision, ...]:
    """The plan in which gangs that came to nodes have exchanged them, where that justifies who stops.

    Whoever came where one was stopped that they may not stop changes places with those on another node, or
    with a gang of as many pods. No gang is slower afterwards. Once it is ``ended`` no more are exchanged.
    """
    found = list(decisions)
    if unjustified_victims(instance, decisions):
        for gang, decision in _Exchange(instance, decisions, ended).run():
            found[gang] = decision
    return tuple(found)


class _Exchange:
    """A plan in which nodes are exchanged.

    ``_cleared``, ``_victims``: nodes on which each gang gives up room, and the other way round. ``_filled``:
    nodes to which gangs came; ``_alike``: those gangs, by the number of pods that did.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], ended: Question
    ) -> None:
        self._instance, self._ended = instance, ended
        self._space = space = FreeSpace(instance, decisions)
        self._cleared = released(instance, decisions)
        nodes = len(instance.cluster.nodes)
        self._domains = np.array(instance.cluster.domain_of).reshape(-1, nodes)
        self._victims: dict[int, list[int]] = {}
        self._left = MAX_EXCHANGES
        self._values: dict[tuple[int, Sequence[PodPlacement]], GangValue] = {}
        for victim, own in self._cleared.items():
            for n in own:
                self._victims.setdefault(n, []).append(victim)
        self._alike, self._filled = dict[int, list[int]](), set[int]()
        for g, pods in enumerate(space.pods):
            if pods is not space.original[g]:
                self._alike.setdefault(len(space.new_pods(g)), []).append(g)
                self._filled.update(pod.node for pod in space.new_pods(g))

    def run(self) -> Iterator[tuple[int, GangDecision]]:
        """The gangs that change nodes, with their decisions from then on."""
        arrivals = self._arrivals({n for nodes in self._cleared.values() for n in nodes})
        for victim in unjustified(self._instance, self._cleared, arrivals):
            if self._left < 0 or self._ended():
                return
            for gang in self._exchanged(victim):
                yield gang, self._space.decision(gang)

    def _exchanged(self, victim: int) -> Collection[int]:
        """The gangs that change nodes so that this one stops for one of them, none if that failed."""
        for worse, n in product((False, True), sorted(self._cleared[victim])):
            for target in self._ways(victim, n):
                self._left -= 1
                if self._left < 0 or self._ended():
                    return ()
                nodes = frozenset({n}).union(*target.values())
                wrong, mark = self._wrong(nodes), self._space.mark()
                changed, still = self._exchange(target, nodes, worse=worse), self._wrong(nodes)
                if changed and victim not in still and still <= wrong:
                    self._filled |= nodes
                    return target
                self._space.undo(mark)
        return ()

    def _wrong(self, nodes: Iterable[int]) -> set[int]:
        """The gangs that give up room on one of these nodes, or on others, for none that may take it."""
        victims = {victim for n in nodes for victim in self._victims.get(n, ())}
        near = {victim: self._cleared[victim] for victim in victims}
        left = set[int]().union(*near.values())
        return {*unjustified(self._instance, near, self._arrivals(left))}

    def _exchange(self, target: Target, nodes: frozenset[int], *, worse: bool) -> bool:
        """Pods that came to these nodes go to those of their gang; False if one has no place, or is slower.

        ``worse``: whether a gang may be in more domains than before.
        """
        space, leaving = self._space, {*self._arrivals(nodes)}
        before = {gang: space.pods[gang] for gang in target}
        values = {gang: self._value(gang, pods) for gang, pods in before.items()}
        for gang, pods in before.items():
            space.set(gang, (pod for pod in pods if (gang, pod) not in leaving))
        for gang, to in target.items():
            kept, counts = space.pods[gang], counts_of(self._instance.gangs[gang], before[gang])
            placed = place(space, remaining_demand(self._instance, gang, counts, kept).within(to))
            if placed is None:
                return False
            space.set(gang, (*kept, *placed))
        for gang, old in values.items():
            new = self._value(gang, space.pods[gang])
            if new.speed < old.speed or not (worse or all(map(le, new.domains, old.domains))):
                return False
        return True

    def _value(self, gang: int, pods: tuple[PodPlacement, ...]) -> GangValue:
        """What a gang has with these pods; once, since it takes long for groups of GPUs."""
        if (gang, pods) not in self._values:
            self._values[gang, pods] = value_with(self._space, gang, pods)
        return self._values[gang, pods]

    def _ways(self, victim: int, n: int) -> Iterator[Target]:
        """Exchanges with the nearest nodes, or gangs like one here, so that the victim is stopped for one."""
        here, new = {gang for gang, _ in self._arrivals((n,))}, self._space.new_pods
        others = np.array(sorted(self._filled - {n}), dtype=np.int64)
        distance = (self._domains[:, others] != self._domains[:, [n]]).sum(axis=0)
        exchanged = (
            {g: frozenset({m if g in here else n}) for g in sorted(here | there)}
            for m in others[np.argsort(distance, kind="stable")].tolist()
            if here.isdisjoint(there := {gang for gang, _ in self._arrivals((m,))})
            and next(self._takers(there, victim, n), None) is not None
        )
        yield from islice(exchanged, MAX_PARTNERS)
        for own in sorted(here):
            for other in islice(self._takers(self._alike[len(new(own))], victim, n), MAX_PARTNERS):
                mine, theirs = ({pod.node for pod in new(g)} for g in (own, other))
                yield {own: frozenset(theirs), other: frozenset(mine)}

    def _takers(self, gangs: Iterable[int], victim: int, n: int) -> Iterator[int]:
        """Those that may take the place of a gang on a node."""
        instance = self._instance
        return (g for g in gangs if takes(instance, claim(instance, g), victim, n))

    def _arrivals(self, nodes: Iterable[int]) -> Iterator[tuple[int, PodPlacement]]:
        """(gang, pod) of pods that came to these nodes."""
        for n in nodes:
            for (gang, _, _), (pod, stays) in self._space.by_node[n].tenants.items():
                if not stays:
                    yield gang, pod
