"""Place the gangs that start once more, each beside a gang that it should be near where there is room.

The greedy start looks at one gang at a time; here a gang and one that it names are placed together. Nothing
is placed worse than it must be for the tiers: the caller keeps the plan only if it is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import islice

import numpy as np

from models.instance.solution import PodPlacement
from models.rules.demands import Demand
from models.values.nearness import anchored, companions, home, suitors
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.start.greedy import place

PARTNERS = 4
"""Gangs that wait for a place, too, beside which one is tried."""

DOMAINS = 8
"""Domains with room for both that are tried, the tightest first."""


class Pairs:
    """Places gangs of ``demands`` in turn, in the free space; ``place`` says whether all have a place."""

    def __init__(self, space: FreeSpace, demands: Sequence[Demand], budget: Budget | None) -> None:
        self._space = space
        self._instance = space.instance
        self._pending = {demand.gang: demand for demand in demands}
        self._budget = budget

    def place(self) -> bool:
        """Give every gang its pods; False if one finds no place or the budget ends."""
        for gang in list(self._pending):
            if gang not in self._pending:
                continue
            if self._budget is not None and self._budget.exhausted():
                return False
            if not self._beside(gang):
                pods = place(self._space, self._pending[gang])
                if pods is None:
                    return False
                self._settle(gang, pods)
        return True

    def _settle(self, gang: int, pods: Sequence[PodPlacement]) -> None:
        self._space.set(gang, (*self._space.pods[gang], *pods))
        del self._pending[gang]

    def _beside(self, gang: int) -> bool:
        """Place a gang beside one that it should be near, or with one that should be near it."""
        if gang in companions(self._instance):
            for nodes in self._homes(gang):
                pods = place(self._space, self._held(gang, nodes))
                if pods is not None:
                    self._settle(gang, pods)
                    return True
        pairs = [(gang, other) for other in companions(self._instance).get(gang, ())]
        pairs += [(other, gang) for other in suitors(self._instance).get(gang, ())]
        waiting = (pair for pair in pairs if self._pending.keys() >= {*pair})
        return any(self._together(*pair) for pair in islice(waiting, PARTNERS))

    def _homes(self, gang: int) -> Iterator[frozenset[int]]:
        """Nodes of the domains in which gangs are that it should be near, each once."""
        near = self._instance.gangs[gang].near
        assert near is not None, "only gangs with near have companions"
        found = dict.fromkeys(sorted(anchored(self._instance, gang)))
        for other in companions(self._instance)[gang]:
            if other not in self._pending:
                pods = self._space.pods[other]
                own = home(self._instance, self._instance.gangs[other], pods, near.level)
                found |= {} if own is None else {own: None}
        for domain in found:
            yield frozenset(self._space.arrays.tree.nodes(near.level, domain).tolist())

    def _together(self, gang: int, other: int) -> bool:
        """Place two gangs in the tightest domain that holds both."""
        near, arrays = self._instance.gangs[gang].near, self._space.arrays
        assert near is not None, "only gangs with near have companions"
        if self._space.pods[gang] or self._space.pods[other]:
            return False  # pods that stand hold them where they are
        gpus = self._pending[gang].gpus + self._pending[other].gpus
        of, size = arrays.tree.domain_of[near.level], arrays.tree.sizes[near.level]
        free = np.bincount(of, arrays.free, size).astype(np.int64)
        fitting = np.flatnonzero(free >= gpus)
        for domain in fitting[np.argsort(free[fitting], kind="stable")][:DOMAINS].tolist():
            nodes = frozenset(arrays.tree.nodes(near.level, domain).tolist())
            mark = self._space.mark()
            first, second = sorted((gang, other), key=lambda i: (-self._pending[i].gpus, i))
            pods = place(self._space, self._held(first, nodes))
            if pods is None:
                continue
            self._space.set(first, pods)
            more = place(self._space, self._held(second, nodes))
            if more is not None:
                self._space.set(second, more)
                del self._pending[first], self._pending[second]
                return True
            self._space.undo(mark)
        return False

    def _held(self, gang: int, nodes: frozenset[int]) -> Demand:
        """What the gang asks for, its pods that count on these nodes."""
        demand = self._pending[gang]
        return demand.on_gpus(nodes) if demand.gpu_roles else demand.within(nodes)
