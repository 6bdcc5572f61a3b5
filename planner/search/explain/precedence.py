"""Who comes before a waiting gang in a plan, and what space they leave it.

Gangs of lower priority never count: in the order of the tiers they get what the higher ones leave.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import STARTS, GangDecision
from planner.search.explain.shortage import FreeCounts
from planner.search.free_space import FreeSpace


class LeftByAbove:
    """What a plan leaves without its starts of lower priority, for falling priorities.

    ``stage``: how many starts count now.
    """

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self._gangs = instance.gangs
        self._starts = {i: d.pods for i, d in enumerate(decisions) if d.decision == "place"}
        self._order = sorted(self._starts, key=lambda i: (-self._gangs[i].priority, i))
        running = (d if d.decision != "place" else GangDecision("wait") for d in decisions)
        self.space = FreeSpace(instance, tuple(running))
        self.counts = FreeCounts.of(self.space)
        self.stage = 0

    def lower_to(self, priority: int) -> None:
        """Let the starts of this priority and above count; priorities must not rise between calls."""
        while self.stage < len(self._order):
            index = self._order[self.stage]
            if self._gangs[index].priority < priority:
                break
            self.space.set(index, self._starts[index])
            self.stage += 1


class Starting:
    """Whether gangs that come before another one start where it could, counted once a set of nodes."""

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self._instance = instance
        found = [
            (i, pod.node)
            for i, decision in enumerate(decisions)
            if decision.decision in STARTS
            for pod in decision.pods
        ]
        self._owners, self._places = np.array(found, np.int64).reshape(-1, 2).T
        self._ranks: dict[tuple[frozenset[int], ...], tuple[int, bool]] = {}

    def outranks(self, gang: Gang) -> bool:
        """Whether one of higher priority, or of its own that waited too long where it has not, starts."""
        roles = [role for role in gang.roles if role.gpus] or gang.roles
        sets = tuple(self._instance.eligible_nodes(role) for role in roles)
        if sets not in self._ranks:
            nodes = frozenset[int]().union(*sets)
            here = np.zeros(len(self._instance.cluster.nodes), bool)
            here[np.fromiter(nodes, np.int64, len(nodes))] = True
            owners = np.unique(self._owners[here[self._places]])
            gangs = (self._instance.gangs[int(i)] for i in owners)
            ranks = ((one.priority, self._instance.aged(one)) for one in gangs)
            self._ranks[sets] = max(ranks, default=(-(1 << 62), False))
        return self._ranks[sets] > (gang.priority, self._instance.aged(gang))
