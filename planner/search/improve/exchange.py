"""Gangs that come change places, so that each one that is stopped is stopped for one that may take its place.

A program that counts slots says who stops and who comes, not who comes in whose place (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Sequence
from itertools import product
from operator import le

from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.demand_builder import remaining_demand
from models.program.linear_program import Question
from models.rules.giving_way import claim, released, takes, unjustified, unjustified_victims
from planner.search.free_space import FreeSpace, counts_of
from planner.search.start.greedy import place, value_with

MAX_PARTNERS = 40
"""Gangs with which one changes places by way of trial."""


def justified(
    instance: Instance, decisions: Sequence[GangDecision], ended: Question
) -> tuple[GangDecision, ...]:
    """The plan in which gangs that come have changed places, where that justifies who stops.

    One that comes where another was stopped that it may not stop changes places with one of as many pods,
    of the same sizes before others. Neither is slower afterwards. Once it is ``ended`` no more are exchanged.
    """
    found = list(decisions)
    if unjustified_victims(instance, decisions):
        for gang, decision in _Exchange(instance, decisions, ended).run():
            found[gang] = decision
    return tuple(found)


class _Exchange:
    """A plan in which gangs change places.

    ``_cleared``, ``_victims``: nodes on which each gang gives up room, and the other way round. ``_alike``:
    gangs that come, by the number of pods that do.
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
        space = self._space
        self._alike: dict[int, list[int]] = {}
        for g, pods in enumerate(space.pods):
            if pods is not space.original[g]:
                self._alike.setdefault(len(space.new_pods(g)), []).append(g)

    def run(self) -> Iterator[tuple[int, GangDecision]]:
        """The gangs that change nodes, with their decisions from then on."""
        arrivals = self._arrivals({n for nodes in self._cleared.values() for n in nodes})
        for victim in unjustified(self._instance, self._cleared, arrivals):
            for gang in self._exchanged(victim):
                yield gang, self._space.decision(gang)

    def _exchanged(self, victim: int) -> Collection[int]:
        """The gangs that change places so that this one stops for one of them, none if that failed."""
        for worse, n in product((False, True), sorted(self._cleared[victim])):
            for pair in self._pairs(victim, n):
                if self._ended():
                    return ()
                nodes = {n, *(pod.node for g in pair for pod in self._space.new_pods(g))}
                wrong, mark = self._wrong(nodes), self._space.mark()
                changed, still = self._exchange(*pair, worse=worse), self._wrong(nodes)
                if changed and victim not in still and still <= wrong:
                    return pair
                self._space.undo(mark)
        return ()

    def _wrong(self, nodes: Iterable[int]) -> set[int]:
        """The gangs that give up room on one of these nodes, or on others, for none that may take it."""
        victims = {victim for n in nodes for victim in self._victims.get(n, ())}
        near = {victim: self._cleared[victim] for victim in victims}
        left = set[int]().union(*near.values())
        return {*unjustified(self._instance, near, self._arrivals(left))}

    def _exchange(self, own: int, other: int, *, worse: bool) -> bool:
        """Two gangs change places; False if one has none there, or is slower.

        ``worse``: whether a gang may be in more domains than before.
        """
        space, gangs = self._space, self._instance.gangs
        before = {gang: space.pods[gang] for gang in (own, other)}
        new = {gang: space.new_pods(gang) for gang in before}
        values = {gang: value_with(space, gang, pods) for gang, pods in before.items()}
        for gang, pods in before.items():
            space.set(gang, (pod for pod in pods if pod not in new[gang]))
        for gang, there in ((own, new[other]), (other, new[own])):
            kept, counts = space.pods[gang], counts_of(gangs[gang], before[gang])
            demand = remaining_demand(self._instance, gang, counts, kept)
            placed = place(space, demand.within(frozenset(pod.node for pod in there)))
            if placed is None:
                return False
            space.set(gang, (*kept, *placed))
        for gang, old in values.items():
            now = value_with(space, gang, space.pods[gang])
            if now.speed < old.speed or not (worse or all(map(le, now.domains, old.domains))):
                return False
        return True

    def _pairs(self, victim: int, n: int) -> Iterator[tuple[int, int]]:
        """A gang that came to this node, and one like it that may take the place of the victim."""
        for own in sorted({gang for gang, _ in self._arrivals((n,))}):
            sizes = self._sizes(own)
            like = [
                other
                for other in self._alike[len(sizes)]
                if other != own and takes(self._instance, claim(self._instance, other), victim, n)
            ]
            like.sort(key=lambda other: self._sizes(other) != sizes)
            yield from ((own, other) for other in like[:MAX_PARTNERS])

    def _sizes(self, gang: int) -> tuple[int, ...]:
        """GPUs of each pod that comes."""
        roles = self._instance.gangs[gang].roles
        return tuple(sorted(roles[pod.role].gpus for pod in self._space.new_pods(gang)))

    def _arrivals(self, nodes: Iterable[int]) -> Iterator[tuple[int, PodPlacement]]:
        """(gang, pod) of pods that came to these nodes."""
        for n in nodes:
            for (gang, _, _), (pod, stays) in self._space.by_node[n].tenants.items():
                if not stays:
                    yield gang, pod
