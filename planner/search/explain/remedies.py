"""What would let a waiting gang start, by counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property
from typing import Any

from models.instance.disruption_budgets import Guarding, held_by_budgets, held_by_run_times
from models.instance.instance import Instance
from models.instance.run_times import without_run_times
from models.instance.solution import GangDecision
from models.rules.demands import Demand
from models.rules.giving_way import claim, takes
from models.units import time_text
from planner.search.explain.precedence import Others, WithoutBelow
from planner.search.explain.shortage import FreeCounts, Shortage, shortage
from planner.search.free_space import MaximalSpace


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
