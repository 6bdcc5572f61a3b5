"""The gangs whose room a waiting gang needs: without all of them it could start, without fewer not.

Everything else stays as planned. Of the places where it could run that one counts where those who must go
have the lowest priority, then the fewest GPUs: a node with a notebook of one GPU before a node of training.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace
from functools import cached_property
from itertools import islice

import numpy as np

from models.documents.reason import MAX_NAMED
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.interruption import Question
from models.rules.demands import Demand, RoleDemand
from planner.search.explain.shortage import FreeCounts, Shortage, shortage
from planner.search.free_arrays import IntArray, Tree
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import admit

MAX_TRIED = 8
"""Places in which it is tried to place the gang, the cheapest first."""

MAX_REMOVED = 64
"""Gangs that are taken away in one place; where more are in the way nobody is named."""


class ReasonHolders:
    """Looks for them once a kind of gang and place in the queue. ``space``: what the plan leaves.

    Nobody is named once it is ``late``: some might be needless.
    """

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        space: FreeSpace,
        late: Question,
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._space = space
        self._late = late
        self._tree = Tree(instance.cluster)
        self._known: dict[object, tuple[int, ...]] = {}

    def of(self, demand: Demand, kind: object, short: Shortage | None) -> list[dict[str, object]]:
        """As fields of a reason, those who lose most first; none where none are known, or too many."""
        gangs = self._instance.gangs
        key = (kind, gangs[demand.gang].priority) if self._instance.reserved else kind
        if key not in self._known:
            self._known[key] = self.cheapest(demand, short)
        return [
            {
                "gang": "/".join(gangs[i].key),
                "priority": gangs[i].shown_priority,
                "gpus": self._sizes[i],
            }
            for i in self._known[key]
        ]

    def cheapest(
        self, demand: Demand, short: Shortage | None, most: int = MAX_NAMED
    ) -> tuple[int, ...]:
        """Indices of gangs, at most so many. ``short``: by counts on what the plan leaves, if known."""
        role = self._short_role(demand, short)
        if role is None:
            return ()
        level = None if short is None else short.level
        for inside, gone in islice(self._places(demand, role, level), MAX_TRIED):
            every = self._instance.gangs[demand.gang].required is not None
            wanted = demand.on_gpus(inside) if every else _on(demand, role, inside)
            found = self._needed(wanted, gone)
            if self._late():
                return ()
            if 0 < len(found) <= most:
                return found
        return ()

    def _short_role(self, demand: Demand, short: Shortage | None) -> RoleDemand | None:
        """The role that lacks room: that which is named, else that with most GPUs a pod."""
        roles = [one for one in demand.gpu_roles if short is None or short.role in (None, one.role)]
        return max(roles, key=lambda one: one.gpus, default=None)

    def _places(
        self, demand: Demand, role: RoleDemand, level: int | None
    ) -> Iterator[tuple[frozenset[int], list[int]]]:
        """(nodes, gangs there that would have to go), the cheapest first.

        In each domain nodes are emptied in order of the highest priority on them and the GPUs that their
        gangs lose for each pod that gets room, until all pods have some.
        """
        nodes = np.fromiter(sorted(role.nodes), np.int64, len(role.nodes))
        room = FreeCounts.of(self._space).free[nodes] // role.gpus
        gained = self._idle[nodes] // role.gpus - room
        worth = self._lost[nodes] / np.maximum(gained, 1)
        order = np.lexsort((nodes, worth, self._highest[nodes]))
        of = np.zeros(len(nodes), np.int64)
        if level is not None:
            of = self._tree.domain_of[level][nodes]
        needed = -(-demand.gpus // role.gpus) if level is not None else role.count
        found = []
        for domain in np.unique(of).tolist():
            inside = order[of[order] == domain]
            lacking = min(needed, role.count) - int(room[inside].sum())
            giving = inside[gained[inside] > 0]
            count = int(np.searchsorted(np.cumsum(gained[giving]), lacking)) + 1
            if lacking <= 0 or count > len(giving):
                continue
            gone = sorted({i for n in nodes[giving[:count]].tolist() for i in self._on_node[n]})
            if 0 < len(gone) <= MAX_REMOVED:
                gangs = self._instance.gangs
                cost = max(gangs[i].priority for i in gone), sum(self._sizes[i] for i in gone)
                found.append((cost, domain, gone))
        for _, domain, gone in sorted(found):
            if level is None:
                yield self._tree.everywhere, gone
            else:
                yield frozenset(self._tree.nodes(level, domain).tolist()), gone

    def _needed(self, demand: Demand, gone: Sequence[int]) -> tuple[int, ...]:
        """Of these gangs those that must go so that a place is found, those that lose most put back first."""
        space, named = self._space, list[int]()
        mark = space.mark()
        for index in gone:
            space.set(index, ())
        if self._fits(demand):
            named = sorted(
                gone, key=lambda i: (-self._instance.gangs[i].priority, -self._sizes[i], i)
            )
            for index in tuple(named):
                if self._late():
                    break
                before = space.mark()
                space.set(index, self._decisions[index].pods)
                if self._fits(demand):
                    named.remove(index)
                else:
                    space.undo(before)
        space.undo(mark)
        return tuple(named)

    def _fits(self, demand: Demand) -> bool:
        space = self._space
        if shortage(FreeCounts.of(space), demand) is not None:
            return False
        mark = space.mark()
        fits = demand.possible and admit(space, demand)
        space.undo(mark)
        return fits

    @cached_property
    def _idle(self) -> IntArray:
        """GPUs of every node that would be free if no gang had any."""
        return FreeCounts.without_pods(self._instance).free

    @cached_property
    def _on_node(self) -> list[set[int]]:
        """Gangs with GPUs on each node after the plan."""
        found: list[set[int]] = [set() for _ in self._instance.cluster.nodes]
        for i, node in self._holding():
            found[node].add(i)
        return found

    def _holding(self) -> Iterable[tuple[int, int]]:
        for i, decision in enumerate(self._decisions):
            roles = self._instance.gangs[i].roles
            yield from ((i, pod.node) for pod in decision.pods if roles[pod.role].gpus)

    @cached_property
    def _sizes(self) -> list[int]:
        """GPUs of every gang after the plan."""
        gangs = zip(self._instance.gangs, self._decisions, strict=True)
        return [sum(gang.roles[pod.role].gpus for pod in one.pods) for gang, one in gangs]

    @cached_property
    def _lost(self) -> IntArray:
        """GPUs of the gangs on every node, wherever they are: they restart whole."""
        return np.array([sum(self._sizes[i] for i in there) for there in self._on_node], np.int64)

    @cached_property
    def _highest(self) -> IntArray:
        """The highest priority on every node."""
        gangs, lowest = self._instance.gangs, -(1 << 62)
        found = [max((gangs[i].priority for i in there), default=lowest) for there in self._on_node]
        return np.array(found, np.int64)


def _on(demand: Demand, role: RoleDemand, nodes: frozenset[int]) -> Demand:
    """The same demand with one of its roles on these nodes only."""
    own = (replace(one, nodes=one.nodes & nodes) if one is role else one for one in demand.roles)
    return replace(demand, roles=tuple(own))
