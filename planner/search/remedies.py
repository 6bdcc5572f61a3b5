"""Who holds what a waiting gang lacks, and what would let it start, by counts."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from functools import cached_property

from models.disruption_budgets import held_by_budgets
from models.instance import Instance
from models.program.demands import Demand
from models.solution import GangDecision
from models.units import plural
from planner.search.free_space import MaximalSpace
from planner.search.precedence import Others, WithoutBelow
from planner.search.shortage import FreeCounts, Shortage, shortage


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

    def held_by(self, demand: Demand) -> str:
        """The running gangs that hold what it lacks."""
        gangs, holders = self._instance.gangs, self._staying(demand)
        if not holders:
            return ""
        largest, most = holders[0]
        name = "/".join(gangs[largest].key)
        if len(holders) == 1:
            return f"; {name} holds {plural(most, 'GPU')} there"
        gpus = plural(sum(gpus for _, gpus in holders), "GPU")
        return f"; {len(holders):,} running gangs hold {gpus} there, most {name} ({most:,})"

    def would_help(self, demand: Demand, kind: object, *, named: bool) -> str:
        """What might let it start, by counts: nodes that are out, preemption, or only that gangs end.

        ``named``: the words before name a single gang that holds what it lacks.
        """
        if kind not in self._short_at_best:
            self._short_at_best[kind] = shortage(self._idle, demand)
        short = self._short_at_best[kind]
        if short is not None and short.code == "Resources":
            return "; smaller requests would help"
        if short is not None:
            return "; needs nodes or GPUs that are cordoned, not ready or unhealthy now"
        stay = self._staying(demand)
        may = self.preemption(demand, kind)
        if may or not stay:
            return may
        whose = "it ends" if len(stay) == 1 and named else "running gangs end"
        return f"; may start once {whose}"

    def preemption(self, demand: Demand, kind: object) -> str:
        """Whether there would be room, by counts, if no gang of lower priority ran or started."""
        priority = self._instance.gangs[demand.gang].priority
        if self._lowest_staying(demand) >= priority:
            return ""
        self._undercut.lower_to(priority)
        key = (kind, self._undercut.stage)
        if key not in self._preemption_helps:
            self._preemption_helps[key] = shortage(self._undercut.counts, demand) is None
        helps = self._preemption_helps[key]
        return "; making running gangs of lower priority preemptible may help" if helps else ""

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

    def guarded(self, demand: Demand, kind: object) -> str:
        """A running gang that only disruption budgets keep from giving way, if that might help."""
        if not self._instance.cluster.budgets:
            return ""
        if kind not in self._helps:
            self._helps[kind] = shortage(self._unguarded, demand) is None
        for index, why in self._held if self._helps[kind] else ():
            other = self._instance.gangs[index]
            lower = other.priority < self._instance.gangs[demand.gang].priority
            gives_way = index != demand.gang and (other.movable or lower)
            if gives_way and self._stands_on(index, demand.nodes):
                return f"; {'/'.join(other.key)} may not stop or move: {why}"
        return ""

    def _stands_on(self, index: int, nodes: Collection[int]) -> bool:
        return any(pod.node in nodes for pod in self._instance.gangs[index].running_pods)

    @cached_property
    def _held(self) -> list[tuple[int, str]]:
        """Gangs that budgets keep from stopping or moving beside what the plan does, and why."""
        return list(held_by_budgets(self._instance, self._decisions))

    @cached_property
    def _unguarded(self) -> FreeCounts:
        """The most space there could be if no budget guarded a pod."""
        cluster = replace(self._plain.cluster, budgets=())
        return FreeCounts.of(MaximalSpace(replace(self._plain, cluster=cluster)).space)
