"""Who comes before a waiting gang in a plan, and what space they leave it.

Gangs of lower priority never count: in the order of the tiers they get what the higher ones leave.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Collection, Sequence
from functools import cached_property
from typing import NamedTuple

import numpy as np

from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import STARTS, GangDecision, PodPlacement
from models.rules.giving_way import claim, takes
from planner.search.explain.shortage import FreeCounts
from planner.search.free_arrays import IntArray
from planner.search.free_space import FreeSpace

FEW_NODES = 64
"""Nodes with fewest gangs that are looked at for one gang."""

RUNNING = ("keep", "move", "resize")
"""Decisions of running gangs that go on."""


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


class WithoutBelow:
    """Counts as if every gang of lower priority were gone, running or not, for falling priorities."""

    def __init__(self, instance: Instance, decisions: Sequence[GangDecision]) -> None:
        self._gangs = instance.gangs
        self._decisions = decisions
        there = (i for i, decision in enumerate(decisions) if decision.pods)
        self._order = sorted(there, key=lambda i: (-self._gangs[i].priority, i))
        self.counts = FreeCounts.without_pods(instance)
        self.stage = 0

    def lower_to(self, priority: int) -> None:
        """Let the gangs of this priority and above count; priorities must not rise between calls."""
        while self.stage < len(self._order):
            index = self._order[self.stage]
            gang = self._gangs[index]
            if gang.priority < priority:
                break
            for pod in self._decisions[index].pods:
                role = gang.roles[pod.role]
                self.counts.take(pod.node, _gpus(role, pod), role.requests)
            self.stage += 1


class Starting(NamedTuple):
    """Gangs that start on some nodes: their priorities, ascending, and how many of each have aged."""

    priorities: list[int]
    aged: Counter[int]


class Others:
    """What the other gangs of a plan do, counted once. ``removable``: gangs that some plan stops or moves."""

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], removable: Collection[int]
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        gangs = instance.gangs
        self._of_priority = Counter(gang.priority for gang in gangs)
        remaining = [i for i in removable if decisions[i].decision in ("keep", "resize")]
        self._movable = frozenset(i for i in remaining if gangs[i].movable)
        self._stoppable = [i for i in remaining if not gangs[i].movable]
        self._priorities = sorted(gangs[i].priority for i in self._stoppable)
        self._fewest: dict[frozenset[int], list[int]] = {}
        self._holding: dict[tuple[bool, frozenset[int]], list[tuple[int, int]]] = {}
        self._starting: dict[tuple[frozenset[int], ...], Starting] = {}

    def first(self, index: int) -> dict[str, int]:
        """``ReasonFirst``: how many gangs of its priority or higher start on nodes that it may use."""
        gang = self._instance.gangs[index]
        there = self._starting_for(gang)
        below = bisect_right(there.priorities, gang.priority)
        peers = below - bisect_left(there.priorities, gang.priority)
        aged = 0 if self._instance.aged(gang) else there.aged[gang.priority]
        return {"higher": len(there.priorities) - below, "aged": aged, "peers": peers - aged}

    def _starting_for(self, gang: Gang) -> Starting:
        """The gangs that start on nodes of its roles with GPUs; of all roles if none has any."""
        roles = [role for role in gang.roles if role.gpus] or gang.roles
        sets = tuple(self._instance.eligible_nodes(role) for role in roles)
        if sets not in self._starting:
            nodes = frozenset[int]().union(*sets)
            here = np.zeros(len(self._instance.cluster.nodes), bool)
            here[np.fromiter(nodes, np.int64, len(nodes))] = True
            owners, places, _ = self._arriving
            found = [self._instance.gangs[int(i)] for i in np.unique(owners[here[places]])]
            self._starting[sets] = Starting(
                sorted(one.priority for one in found),
                Counter(one.priority for one in found if self._instance.aged(one)),
            )
        return self._starting[sets]

    def has_peers(self, index: int) -> bool:
        """Whether another gang has its priority."""
        return self._of_priority[self._instance.gangs[index].priority] > 1

    def candidates(self, winner: int) -> int:
        """Number of running gangs that keep their place and could give way."""
        movable = len(self._movable) - (winner in self._movable)
        own = claim(self._instance, winner)
        if own.rights:
            return movable + sum(takes(self._instance, own, index) for index in self._stoppable)
        return movable + bisect_left(self._priorities, own.priority)

    def holders(self, nodes: frozenset[int], *, starting: bool = False) -> list[tuple[int, int]]:
        """(gang, its GPUs on these nodes) of running gangs that go on, or of those that start; most first."""
        key = (starting, nodes)
        if key not in self._holding:
            here = np.zeros(len(self._instance.cluster.nodes), np.int64)
            here[np.fromiter(nodes, np.int64, len(nodes))] = 1
            held = np.zeros(len(self._decisions), np.int64)
            owners, places, gpus = self._taken if starting else self._held
            np.add.at(held, owners, gpus * here[places])
            found = [(int(i), int(held[i])) for i in np.flatnonzero(held)]
            self._holding[key] = sorted(found, key=lambda one: (-one[1], one[0]))
        return self._holding[key]

    @cached_property
    def on_nodes(self) -> dict[int, set[int]]:
        """Gangs with GPUs on each node: running ones that go on, and those that start."""
        found: dict[int, set[int]] = {}
        for owners, nodes, gpus in (self._held, self._taken):
            for owner, n in zip(owners[gpus > 0].tolist(), nodes[gpus > 0].tolist(), strict=True):
                found.setdefault(n, set()).add(owner)
        return found

    def shared_by_fewest(self, nodes: frozenset[int]) -> list[int]:
        """The first of these nodes, in order of how many gangs have GPUs there; free ones left out."""
        if nodes not in self._fewest:
            here = np.fromiter(nodes, np.int64, len(nodes))
            here.sort()
            counts = self._sharing[here]
            order = np.argsort(counts, kind="stable")
            self._fewest[nodes] = here[order[counts[order] > 0]][:FEW_NODES].tolist()
        return self._fewest[nodes]

    @cached_property
    def _sharing(self) -> IntArray:
        """How many gangs have GPUs on each node."""
        counts = np.zeros(len(self._instance.cluster.nodes), np.int64)
        for n, gangs in self.on_nodes.items():
            counts[n] = len(gangs)
        return counts

    @cached_property
    def _held(self) -> tuple[IntArray, IntArray, IntArray]:
        return self._pods(RUNNING)

    @cached_property
    def _taken(self) -> tuple[IntArray, IntArray, IntArray]:
        return self._pods(("place",))

    @cached_property
    def _arriving(self) -> tuple[IntArray, IntArray, IntArray]:
        return self._pods(STARTS)

    def _pods(self, decisions: Collection[str]) -> tuple[IntArray, IntArray, IntArray]:
        """(gang, node, GPUs) of every pod of the gangs of which one of these is decided."""
        gangs = self._instance.gangs
        found = [
            (i, pod.node, _gpus(gangs[i].roles[pod.role], pod))
            for i, decision in enumerate(self._decisions)
            if decision.decision in decisions
            for pod in decision.pods
        ]
        owners, nodes, gpus = np.array(found, np.int64).reshape(-1, 3).T
        return owners, nodes, gpus


def _gpus(role: Role, pod: PodPlacement) -> int:
    """GPUs that a pod holds."""
    return role.gpus if pod.gpus is None else pod.gpus.bit_count()
