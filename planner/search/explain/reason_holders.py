"""The running gangs that keep a waiting gang from starting: all of them are needed, and enough.

With the plan otherwise as it is, the gang could start once they are gone: a place is found. With any of them
back, a count says no. Whoever starts in the plan is no holder.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from heapq import nsmallest
from typing import Any

from models.documents.reason import MAX_HOLDERS
from models.instance.disruption_budgets import (
    Guarding,
    held_by_budgets,
    held_by_run_times,
    may_stop,
)
from models.instance.instance import Instance
from models.instance.run_times import without_run_times
from models.instance.solution import GangDecision
from models.queues.reservations import closes, end_of
from models.rules.demands import Demand
from models.rules.giving_way import claim, takes
from models.units import time_text
from planner.search.explain.precedence import Others, WithoutBelow
from planner.search.explain.shortage import FreeCounts, Place, Shortage, shortage
from planner.search.free_space import FreeSpace, MaximalSpace
from planner.search.start.greedy import admit, missing_demand

MAX_OTHERS = 64
"""Gangs in one place that may be stopped, or that start there, beyond which no holder is looked for."""

MAX_SOONEST = 8
"""Gangs that end first which are tried as the only holder."""

Amounts = list[tuple[int, int]]
"""(gang, GPUs), most GPUs first."""


@dataclass(frozen=True, slots=True)
class Found:
    """``place``: of the shortage. ``holders``: (gang, GPUs there), most first.

    ``instead``: the gang could start there only in place of gangs that start in the plan.
    """

    place: Place
    holders: tuple[tuple[int, int], ...]
    instead: bool

    @property
    def rank(self) -> tuple[bool, int]:
        """Sort key: places that are free of others first, then few holders."""
        return self.instead, len(self.holders)

    def fields(self, instance: Instance) -> dict[str, Any]:
        """Fields of a reason."""
        named = (("/".join(instance.gangs[i].key), gpus) for i, gpus in self.holders)
        listed = [{"gang": gang, "gpus": gpus} for gang, gpus in named]
        return {"holders": listed, "instead": self.instead}


class ReasonHolders:
    """Looks for them once a kind of gang, priority, and reservations of others."""

    def __init__(
        self, instance: Instance, decisions: Sequence[GangDecision], others: Others
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._others = others
        self._known: dict[object, Found | None] = {}
        self._split: dict[tuple[frozenset[int], int], tuple[Amounts, Amounts]] = {}

    @cached_property
    def _space(self) -> FreeSpace:
        """What the plan leaves."""
        return FreeSpace(self._instance, self._decisions)

    def of(self, demand: Demand, kind: object, short: Shortage) -> Found | None:
        """Those in the place with most room where they are fewest; None if none are known, or too many."""
        gang = self._instance.gangs[demand.gang]
        reserved = enumerate(self._instance.reserved)
        closed = tuple(number for number, one in reserved if closes(self._instance, one, gang))
        key = (kind, gang.priority, closed)
        if key not in self._known:
            places = [self._at(demand, short, place) for place in short.places]
            found = [one for one in places if one is not None]
            self._known[key] = min(found, key=lambda one: one.rank, default=None)
        return self._known[key]

    def _at(self, demand: Demand, short: Shortage, place: Place) -> Found | None:
        gangs = self._instance.gangs
        mine = gangs[demand.gang].priority
        givers, firm = self._there(place.nodes, mine)
        if gangs[demand.gang].running:
            firm = [one for one in firm if one[0] != demand.gang]
        starting = [
            one
            for one in self._others.holders(place.nodes, starting=True)
            if gangs[one[0]].priority <= mine
        ]
        if max(len(givers), len(starting)) > MAX_OTHERS:
            return None
        for instead, gone in ((False, givers), (True, [*givers, *starting])):
            if instead and not starting:
                break
            if self._reach(gone, firm, place) < _lacking(demand, short):
                continue
            for few in (firm[:MAX_HOLDERS], self._on_few_nodes(demand, place, firm, starting)):
                named = self._needed(demand, short, place, [i for i, _ in gone], few)
                if len(named) == 1:
                    named = self._soonest(demand, short, place, gone, firm) or named
                if named:
                    return Found(place, named, instead)
        return None

    def _soonest(
        self,
        demand: Demand,
        short: Shortage,
        place: Place,
        gone: Sequence[tuple[int, int]],
        firm: Sequence[tuple[int, int]],
    ) -> tuple[tuple[int, int], ...]:
        """Of the gangs of which any one alone is enough, that which ends first; () if none is found."""
        lacking = _lacking(demand, short) - self._reach(gone, (), place)
        ends = (
            (end, gpus, i)
            for i, gpus in firm
            if gpus >= lacking
            and (end := end_of(self._instance, i, self._decisions[i])) is not None
        )
        removed = [i for i, _ in gone]
        tried = (
            self._needed(demand, short, place, removed, [(i, gpus)])
            for _, gpus, i in nsmallest(MAX_SOONEST, ends)
        )
        return next(filter(None, tried), ())

    def _there(self, nodes: frozenset[int], priority: int) -> tuple[Amounts, Amounts]:
        """Running gangs there with their GPUs, most first: those that a gang may stop, and the others."""
        if (nodes, priority) not in self._split:
            givers, firm = list[tuple[int, int]](), list[tuple[int, int]]()
            for one in self._others.holders(nodes):
                lower = self._instance.gangs[one[0]].priority < priority
                (givers if lower and one[0] in self._stoppable else firm).append(one)
            self._split[nodes, priority] = givers, firm
        return self._split[nodes, priority]

    @cached_property
    def _stoppable(self) -> frozenset[int]:
        """Running gangs that some gang of higher priority may stop."""
        gangs = enumerate(self._instance.gangs)
        return frozenset(i for i, g in gangs if g.running and may_stop(self._instance, i))

    def _on_few_nodes(
        self,
        demand: Demand,
        place: Place,
        firm: Sequence[tuple[int, int]],
        starting: Sequence[tuple[int, int]],
    ) -> list[tuple[int, int]]:
        """The holders of the nodes that fewest share, of nodes that are large enough, most GPUs first."""
        least = max((role.gpus for role in demand.gpu_roles), default=0)
        nodes = self._instance.cluster.nodes
        there, taken = self._others.on_nodes, {i for i, _ in starting}
        suited = [
            n
            for n in self._others.shared_by_fewest(place.nodes)
            if nodes[n].healthy_gpus >= least and taken.isdisjoint(there.get(n, ()))
        ]
        if not suited:
            return []
        known, found = dict(firm), dict[int, int]()
        for n in suited:
            own = {i: known[i] for i in there.get(n, ()) if i in known}
            if len(found.keys() | own.keys()) > MAX_HOLDERS:
                break
            found |= own
        return sorted(found.items(), key=lambda one: (-one[1], one[0]))

    def _reach(
        self, gone: Sequence[tuple[int, int]], firm: Sequence[tuple[int, int]], place: Place
    ) -> int:
        """GPUs that are free in a place without some gangs and the largest holders."""
        free = FreeCounts.of(self._space).on(place.nodes)
        return free + sum(gpus for _, gpus in (*gone, *firm[:MAX_HOLDERS]))

    def _needed(
        self,
        demand: Demand,
        short: Shortage,
        place: Place,
        gone: Sequence[int],
        firm: Sequence[tuple[int, int]],
    ) -> tuple[tuple[int, int], ...]:
        """Those of a few holders without which, and without those gone, a place is found; () if none is."""
        space, counts = self._space, FreeCounts.of(self._space)
        mark = space.mark()
        for index in gone:
            space.set(index, ())
        anywhere = missing_demand(space, demand.gang)
        wanted = self._inside(anywhere, short, place)
        named: list[tuple[int, int]] = []
        for one in firm:
            if shortage(counts, wanted) is None:
                break
            space.set(one[0], ())
            named.append(one)
        enough = bool(named) and shortage(counts, wanted) is None
        for one in reversed(tuple(named)) if enough else ():
            before = space.mark()
            space.set(one[0], self._decisions[one[0]].pods)
            if shortage(counts, wanted) is None:
                named.remove(one)
            else:
                # those left may hold as much elsewhere, where this one is not in the way
                enough = enough and shortage(counts, anywhere) is not None
                space.undo(before)
        enough = enough and wanted.possible and admit(space, wanted)
        space.undo(mark)
        return tuple(named) if enough else ()

    def _inside(self, demand: Demand, short: Shortage, place: Place) -> Demand:
        """The demand in the domain of the place, as far as its roles have to be there."""
        if short.level is None or place.name is None:
            return demand
        cluster, level = self._instance.cluster, short.level
        domain = cluster.domain_of[level][next(iter(place.nodes))]
        inside = frozenset(cluster.domains[level][domain].nodes)
        every = self._instance.gangs[demand.gang].required == level
        roles = (
            replace(role, nodes=role.nodes & inside) if every or role.role == short.role else role
            for role in demand.roles
        )
        return replace(demand, roles=tuple(roles))


def _lacking(demand: Demand, short: Shortage) -> int:
    """GPUs that have to be free in the place."""
    roles = [role for role in demand.roles if short.role in (None, role.role)]
    return sum(role.gpus * role.count for role in roles)


class Remedies:
    """``plain``: the instance without rules that counts leave aside. Gangs must come by falling priority.

    ``_helps``: whether a kind of gang might fit if no disruption budget guarded a pod.
    """

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        plain: Instance,
        maximal: MaximalSpace,
        others: Others,
    ) -> None:
        self._instance = instance
        self._decisions = decisions
        self._plain = plain
        self._maximal = maximal
        self._others = others
        self._short_at_best: dict[object, Shortage | None] = {}
        self._preemption_helps: dict[object, bool] = {}
        self._helps: dict[object, bool] = {}
        self._lowest: dict[object, int] = {}
        self._stay: dict[object, list[tuple[int, int]]] = {}

    @cached_property
    def _undercut(self) -> WithoutBelow:
        return WithoutBelow(self._plain, self._decisions)

    def help(self, demand: Demand, kind: object, *, named: bool) -> dict[str, Any]:
        """What might let it start, by counts: nodes that are out, preemption, or only that gangs end.

        ``named``: the reason names those that hold what it lacks.
        """
        if guarded := self.guarded(demand, kind):
            return guarded
        if kind not in self._short_at_best:
            self._short_at_best[kind] = shortage(self._idle, demand)
        short = self._short_at_best[kind]
        if short is not None:
            return {"help": "smallerRequests" if short.code == "Resources" else "nodesInOrder"}
        may = self.preemption(demand, kind)
        if may or named or not self._staying(demand):
            return may
        return {"help": "othersEnd"}

    def preemption(self, demand: Demand, kind: object) -> dict[str, Any]:
        """Whether there would be room, by counts, if no gang of lower priority ran or started."""
        priority = self._instance.gangs[demand.gang].priority
        if self._lowest_staying(demand) >= priority:
            return {}
        self._undercut.lower_to(priority)
        key = (kind, self._undercut.stage)
        if key not in self._preemption_helps:
            self._preemption_helps[key] = shortage(self._undercut.counts, demand) is None
        return {"help": "preemptible"} if self._preemption_helps[key] else {}

    def _staying(self, demand: Demand) -> list[tuple[int, int]]:
        """(gang, GPUs) of running gangs where it may run that no plan stops or moves for it, most first."""
        key = (demand.nodes, self._maximal.removed, self._instance.gangs[demand.gang].running)
        if key not in self._stay or key[2]:
            gone = {*self._maximal.removed, demand.gang}
            holders = self._others.holders(demand.nodes)
            self._stay[key] = [one for one in holders if one[0] not in gone]
        return self._stay[key]

    def _lowest_staying(self, demand: Demand) -> int:
        """The lowest priority among those; beyond all where there are none."""
        gangs = self._instance.gangs
        key = (demand.nodes, demand.gang if gangs[demand.gang].running else None)
        if key not in self._lowest:
            priorities = (gangs[i].priority for i, _ in self._staying(demand))
            self._lowest[key] = min(priorities, default=1 << 62)
        return self._lowest[key]

    @cached_property
    def _idle(self) -> FreeCounts:
        """The nodes as they are, without any pod of a gang."""
        return FreeCounts.without_pods(self._plain)

    def guarded(self, demand: Demand, kind: object) -> dict[str, Any]:
        """A running gang that only budgets or its run time keep from giving way, if that might help."""
        if not self._held:
            return {}
        if kind not in self._helps:
            self._helps[kind] = shortage(self._unguarded, demand) is None
        own = claim(self._instance, demand.gang)
        for one in self._held if self._helps[kind] else ():
            other = self._instance.gangs[one.gang]
            yields = other.movable or takes(self._instance, own, one.gang)
            if one.gang != demand.gang and yields and self._stands_on(one.gang, demand.nodes):
                guard = {
                    "gang": "/".join(other.key),
                    "budgets": one.budgets,
                    "until": None if one.until is None else time_text(one.until),
                    "allowed": one.allowed,
                    "evictions": one.evictions,
                }
                return {"guarded": guard}
        return {}

    def _stands_on(self, index: int, nodes: Collection[int]) -> bool:
        return any(pod.node in nodes for pod in self._instance.gangs[index].running_pods)

    @cached_property
    def _held(self) -> list[Guarding]:
        """Gangs that run times or budgets keep from stopping or moving beside the plan, and why."""
        held = held_by_budgets(self._instance, self._decisions)
        return [*held_by_run_times(self._instance), *held]

    @cached_property
    def _unguarded(self) -> FreeCounts:
        """The most space there could be if no budget guarded a pod, and no run time a gang."""
        cluster = replace(self._plain.cluster, budgets=())
        free = replace(without_run_times(self._plain), cluster=cluster)
        return FreeCounts.of(MaximalSpace(free).space)
