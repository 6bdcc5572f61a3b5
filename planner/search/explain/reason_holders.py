"""The gangs that would have to go so that a waiting gang starts: a new plan without them starts it.

Of all sets the one whose highest priority is the lowest, then with the fewest GPUs: a node with a notebook of
one GPU before a node of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import combinations, islice, takewhile
from operator import attrgetter

import numpy as np

from models.documents.reason import MAX_NAMED
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.linear_program import Question
from models.rules.demands import Demand, RoleDemand
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.explain.world import Replan, World, named, needed_away, placed
from planner.search.free_arrays import IntArray, as_array, sums
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import missing_demand

MAX_TRIED = 8
"""Places in which it is tried to place the gang, the cheapest first."""

MAX_REMOVED = 64
"""Gangs that are taken away in one place; where more are in the way nobody is named."""

MAX_ASKED = 6
"""Sets of gangs without which a new plan is made, the cheapest first."""

MAX_FEW = 200
"""Gangs, and pairs of them, of which it is tried whether they alone are enough."""

ROUNDS = 3
"""Times that others start in the room that was made, so that more has to be."""


class ReasonHolders:
    """Looks for them once a kind of gang and place in the queue.

    Nobody is named once it is ``late``: some might be needless.
    """

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], replan: Replan, late: Question
    ) -> None:
        self._instance, self._decisions = instance, tuple(decisions)
        self._replan, self._late = replan, late
        self._after = _Places(instance, decisions, late)
        self._known: dict[object, tuple[int, ...]] = {}

    def of(self, gang: int, kind: object) -> list[dict[str, object]]:
        """As fields of a reason, those who lose most first; none where none are known, or too many."""
        gangs = self._instance.gangs
        key = (kind, gangs[gang].priority)
        if key not in self._known:
            self._known[key] = self.cheapest(gang)
        return [named(gangs[i], gpus=int(self._after.sizes[i])) for i in self._known[key]]

    def cheapest(self, gang: int, most: int = MAX_NAMED) -> tuple[int, ...]:
        """Indices of gangs, at most so many."""
        gone: tuple[int, ...] = ()
        places = self._after
        for _ in range(ROUNDS):
            state: Sequence[GangDecision] | None = None
            for found, beside in self._candidates(gang, places, gone):
                new = self._new_plan(gang, found)
                if self._late() or len(found) > most:
                    return ()
                if new is None and not beside:
                    continue  # nothing says that it starts
                if new is None or new[gang].pods:
                    return self._after.ordered(self._reduced(gang, found))
                if state is None:
                    gone, state = found, new
            if state is None:
                return ()
            world = World(self._instance, tuple(state), gang).without(gone)
            places = _Places(world.instance, world.decisions, self._late)
        return ()

    def _new_plan(self, gang: int, gone: Sequence[int]) -> Sequence[GangDecision] | None:
        return self._replan.decide(World(self._instance, self._decisions, gang).without(gone))

    def _candidates(
        self, gang: int, places: _Places, gone: tuple[int, ...]
    ) -> Iterator[tuple[tuple[int, ...], bool]]:
        """Sets of gangs that make room for it, the cheapest first; whether that is room beside the plan.

        ``gone``: before, in whose room others started.
        """
        known = set(places.candidates(gang))
        if not known and self._replan.searches > 0:
            known = set(places.few(gang))
        sets = {tuple(sorted((*gone, *one))) for one in known}
        placed = (one for one in sets if all(self._decisions[i].pods for i in one))
        for one in islice(sorted(placed, key=self._after.cost), MAX_ASKED):
            yield one, not gone

    def _reduced(self, gang: int, gone: tuple[int, ...]) -> tuple[int, ...]:
        """Without those of them that may stay."""
        left = gone
        for index in self._after.ordered(gone) if len(gone) > 1 else ():
            fewer = tuple(i for i in left if i != index)
            new = self._new_plan(gang, fewer) if len(left) > 1 else None
            if new is not None and new[gang].pods:
                left = fewer
        return left


@dataclass
class _Places:
    """Where a gang could be if others were not: beside what everybody has in a plan."""

    _instance: Instance
    _decisions: Sequence[GangDecision]
    _late: Question

    @cached_property
    def _space(self) -> FreeSpace:
        return FreeSpace(self._instance, self._decisions)

    def cost(self, gone: Iterable[int]) -> tuple[int, int]:
        """What it costs to take these gangs away: the highest priority, then GPUs."""
        gangs = self._instance.gangs
        return max(gangs[i].priority for i in gone), sum(int(self.sizes[i]) for i in gone)

    def ordered(self, gone: Iterable[int]) -> tuple[int, ...]:
        """Those who lose most first."""
        gangs = self._instance.gangs
        return tuple(sorted(gone, key=lambda i: (-gangs[i].priority, -self.sizes[i], i)))

    def candidates(self, gang: int) -> Iterator[tuple[int, ...]]:
        """Sets of gangs without all of which it finds a place here, and without fewer not."""
        demand = missing_demand(self._space, gang)
        short = shortage(FreeCounts.of(self._space), demand) if demand.possible else None
        level = None if short is None else short.level
        roles = [one for one in demand.gpu_roles if short is None or short.role in (None, one.role)]
        role = max(roles, key=lambda one: one.gpus, default=None)
        if role is None or not demand.possible:
            return
        for inside, gone in islice(self._emptied(demand, role, level), MAX_TRIED):
            every = self._instance.gangs[gang].required is not None
            own = (
                replace(one, nodes=one.nodes & inside) if one is role else one
                for one in demand.roles
            )
            wanted = demand.on_gpus(inside) if every else replace(demand, roles=tuple(own))
            found = self._needed(wanted, gone)
            if self._late():
                return
            if found:
                yield found

    def few(self, gang: int) -> Iterator[tuple[int, ...]]:
        """Single gangs, and pairs, that make room here."""
        demand = missing_demand(self._space, gang)
        # On any node: others may lack the room, or its queue.
        there = [i for i, one in enumerate(self._decisions) if one.pods and i != gang]
        pairs = islice(combinations(there, 2), MAX_FEW**2)
        cheap = islice(sorted([*((i,) for i in there), *pairs], key=self.cost), MAX_FEW)
        tried = takewhile(lambda _: not self._late(), cheap)
        yield from islice((one for one in tried if self._makes_room(one, demand)), MAX_ASKED)

    def _makes_room(self, gone: Iterable[int], demand: Demand) -> bool:
        mark = self._space.mark()
        for index in gone:
            self._space.set(index, ())
        fits = placed(self._space, demand) is not None
        self._space.undo(mark)
        return fits

    def _emptied(
        self, demand: Demand, role: RoleDemand, level: int | None
    ) -> Iterator[tuple[frozenset[int], list[int]]]:
        """(nodes, gangs there that would have to go), the cheapest first.

        In each domain nodes are emptied in order of the highest priority on them and the GPUs that their
        gangs lose for each pod that gets room, until all pods have some.
        """
        nodes = np.fromiter(sorted(role.nodes), np.int64, len(role.nodes))
        room, tree = FreeCounts.of(self._space).free[nodes] // role.gpus, self._space.arrays.tree
        gained = self._idle[nodes] // role.gpus - room
        worth = self._lost[nodes] / np.maximum(gained, 1)
        order = np.lexsort((nodes, worth, self._highest[nodes]))
        of = np.zeros(len(nodes), np.int64)
        if level is not None:
            of = tree.domain_of[level][nodes]
        needed = -(-demand.gpus // role.gpus) if level is not None else role.count
        found = []
        for domain in np.unique(of).tolist():
            inside = order[of[order] == domain]
            lacking = min(needed, role.count) - int(room[inside].sum())
            giving = inside[gained[inside] > 0]
            count = int(np.searchsorted(np.cumsum(gained[giving]), lacking)) + 1
            if lacking <= 0 or count > len(giving):
                continue
            gone = self._on_nodes(nodes[giving[:count]].tolist())
            if 0 < len(gone) <= MAX_REMOVED:
                found.append((self.cost(gone), domain, gone))
        for _, domain, gone in sorted(found):
            if level is None:
                yield tree.everywhere, gone
            else:
                yield frozenset(tree.nodes(level, domain).tolist()), gone

    def _needed(self, demand: Demand, gone: Sequence[int]) -> tuple[int, ...]:
        """Of these gangs those that must go so that a place is found, those that lose most put back first."""
        space, mark = self._space, self._space.mark()
        for index in gone:
            space.set(index, ())
        found = needed_away(space, demand, self.ordered(gone), self._decisions, self._late)
        space.undo(mark)
        return found

    @cached_property
    def _idle(self) -> IntArray:
        """GPUs of every node that would be free if no gang had any."""
        return FreeCounts.without_pods(self._instance).free

    @cached_property
    def _pods(self) -> tuple[IntArray, ...]:
        """The gang, the node and the GPUs of every pod with GPUs after the plan."""
        gangs = zip(self._instance.gangs, self._decisions, strict=True)
        found = [
            (i, pod.node, gpus)
            for i, (gang, one) in enumerate(gangs)
            for pod in one.pods
            if (gpus := gang.roles[pod.role].gpus)
        ]
        return tuple(np.array(found, np.int64).reshape(-1, 3).T)

    @cached_property
    def sizes(self) -> IntArray:
        """GPUs of every gang after the plan."""
        gang, _, gpus = self._pods
        return sums(gang, gpus, len(self._decisions))

    @cached_property
    def _seats(self) -> tuple[IntArray, IntArray]:
        """(node, gang) of all that have GPUs there, by node."""
        gang, node, _ = self._pods
        found = np.unique(node * len(self._decisions) + gang)
        return found // len(self._decisions), found % len(self._decisions)

    def _on_nodes(self, nodes: Iterable[int]) -> list[int]:
        """Gangs with GPUs on these nodes after the plan."""
        node, gang = self._seats
        first, last = (np.searchsorted(node, [*nodes], side) for side in ("left", "right"))
        return sorted({i for a, b in zip(first, last, strict=True) for i in gang[a:b].tolist()})

    @cached_property
    def _lost(self) -> IntArray:
        """GPUs of the gangs on every node, wherever they are: they restart whole."""
        node, gang = self._seats
        return sums(node, self.sizes[gang], len(self._instance.cluster.nodes))

    @cached_property
    def _highest(self) -> IntArray:
        """The highest priority on every node."""
        node, gang = self._seats
        found = np.full(len(self._instance.cluster.nodes), -(1 << 62), np.int64)
        np.maximum.at(found, node, as_array(self._instance.of_gangs(_priority))[gang])
        return found


_priority = attrgetter("priority")
