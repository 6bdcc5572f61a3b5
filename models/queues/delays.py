"""Why gangs are passed over by a plan, and why a start that an earlier one stated is later or is dropped.

What is at the promised place at the promised time says why; where nothing is, gangs that came since and go
before it, then gangs that are overdue, then nodes that failed since, then nothing but the input.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import replace

from models.instance.instance import EarlierPlan, Instance
from models.instance.policy import may_reserve
from models.instance.solution import (
    STARTS,
    Cause,
    Delayed,
    GangDecision,
    PassedOver,
    QueuePlace,
)
from models.queues.reservations import end_of, expected_end, queue_place, yields
from models.tiers import MAINS

MOST_NAMED = 8
"""Gangs or nodes that are named as a cause, the first by name."""


def waiting_in_turn(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """The gangs that wait, in the order of the queue; none without reservations.

    None either if no tier rewards a start.
    """
    if instance.policy.reservations is None:
        return []
    if not any(map(instance.policy.lists, (*MAINS, "waiting"))):
        return []
    found = [
        index
        for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True))
        if decision.decision == "wait" and gang.hold is None
    ]
    return sorted(found, key=lambda i: queue_place(instance, instance.gangs[i]))


def with_causes(
    instance: Instance, decisions: Sequence[GangDecision], only: Collection[int] | None = None
) -> tuple[GangDecision, ...]:
    """The decisions, which say what is reserved, with why gangs are passed over, and delayed.

    ``only``: delays of these gangs; None: of all.
    """
    found = [replace(one, passed_over=None) for one in decisions]
    for i, why in _passed_over(instance, found, waiting_in_turn(instance, found)):
        found[i] = replace(found[i], passed_over=why)
    for i, late in _delayed(instance, found):
        if only is None or i in only:
            found[i] = replace(found[i], delayed=late)
    return tuple(found)


def _passed_over(
    instance: Instance, decisions: Sequence[GangDecision], waiting: Sequence[int]
) -> Iterator[tuple[int, PassedOver]]:
    """Gangs that hold no reservation though one behind them does, of their priority."""
    rules, starts = (
        instance.policy.reservations,
        {} if instance.earlier is None else instance.earlier.starts,
    )
    behind: dict[int, PassedOver] = {}
    for index in reversed(waiting):
        gang = instance.gangs[index]
        if rules is None or not may_reserve(rules, gang.own_priority):
            continue
        if decisions[index].reserved is None:
            if gang.priority in behind:
                yield index, behind[gang.priority]
        elif gang.key not in starts:
            behind[gang.priority] = "NoStart"
        else:
            behind.setdefault(gang.priority, "Promised")


def _delayed(
    instance: Instance, decisions: Sequence[GangDecision]
) -> Iterator[tuple[int, Delayed]]:
    """The gangs that wait for longer than an earlier plan stated, and why.

    ``decisions``: with reservations.
    """
    earlier = instance.earlier
    if earlier is None:
        return
    for index, (gang, one) in enumerate(zip(instance.gangs, decisions, strict=True)):
        start = earlier.starts.get(gang.key)
        if start is None or one.decision != "wait":
            continue
        if one.reserved is None or one.reserved.start > start:
            cause, by = _Causes(instance, decisions, earlier, index, start).find()
            yield index, Delayed(start, cause, tuple(sorted(by))[:MOST_NAMED])


class _Causes:
    """``start``: when the gang was to start."""

    def __init__(
        self,
        instance: Instance,
        decisions: Sequence[GangDecision],
        earlier: EarlierPlan,
        index: int,
        start: int,
    ) -> None:
        self._instance, self._decisions, self._earlier = instance, decisions, earlier
        self._index, self._gang = index, instance.gangs[index]
        self._start = max(start, instance.now)
        self._nodes = {pod.node for pod in self._gang.planned}

    def find(self) -> tuple[Cause, set[str]]:
        """The first kind of cause that there is, and the names."""
        failed = self._failed()
        if failed:
            return "Failure", failed
        there = self._there()
        late = {i for i in there if self._is_late(i)}
        peers = {
            i
            for i, one in enumerate(self._decisions)
            if one.reserved is not None and self._instance.gangs[i].priority == self._gang.priority
        }
        moved = {i for i in there | peers - {self._index} if self._moved_up(i)}
        came = {i for i in there if self._came(i) or self._goes_first(i)}
        came |= {i for i in moved & there if self._instance.gangs[i].running}
        everywhere = (i for i, one in enumerate(self._decisions) if one.pods)
        causes: tuple[tuple[Cause, Callable[[], set[int]]], ...] = (
            ("Arrival", lambda: came),
            ("Overrun", lambda: late),
            ("Arrival", self._before),
            ("Overrun", lambda: {i for i in everywhere if self._is_late(i)}),
            ("Arrival", lambda: moved),
        )
        for cause, gangs in causes:
            if found := gangs():
                return cause, {"/".join(self._instance.gangs[i].key) for i in found}
        instance = self._instance
        sound = {node.name for node in instance.cluster.nodes if not instance.failed(node)}
        unsound = set(self._earlier.sound) - sound
        return ("Failure", unsound) if unsound else ("Input", set())

    def _failed(self) -> set[str]:
        """Nodes of the promised place that are gone, closed, or have too few healthy GPUs."""
        nodes, asked = self._instance.cluster.nodes, Counter[int]()
        for pod in self._gang.planned:
            asked[pod.node] += self._gang.roles[pod.role].gpus
        bad = {
            nodes[n].name
            for n, gpus in asked.items()
            if not self._instance.schedulable(nodes[n]) or nodes[n].healthy_gpus < gpus
        }
        return bad | self._earlier.gone.get(self._gang.key, frozenset())

    def _there(self) -> set[int]:
        """Gangs that are at the promised place at that time."""
        found = set()
        for index, one in enumerate(self._decisions):
            if index == self._index:
                continue
            if one.pods:
                end = end_of(self._instance, index, one)
                if (end is None or end > self._start) and self._on(p.node for p in one.pods):
                    found.add(index)
            elif one.reserved is not None and self._on(one.reserved.nodes):
                found.add(index)
        return found

    def _on(self, nodes: Iterable[int]) -> bool:
        return any(n in self._nodes for n in nodes)

    def _is_late(self, index: int) -> bool:
        """Whether it runs beyond what was expected, or started later than was stated."""
        gang, now = self._instance.gangs[index], self._instance.now
        if not gang.running:
            return False
        end = expected_end(self._instance, index, GangDecision("keep"))
        stated = self._earlier.starts.get(gang.key)
        started = stated is not None and gang.started_at is not None and gang.started_at > stated
        return (end is not None and end <= now) or started

    def _came(self, index: int) -> bool:
        """Whether it has come since the earlier plan, and goes before the gang or runs already.

        Who is within a guarantee goes before all that borrow, whenever it came. Who was stopped, or was held
        back then, comes when it waits again.
        """
        gang, own = self._instance.gangs[index], self._place(index)
        if gang.key in self._earlier.gangs:
            comes = not gang.running or self._decisions[index].decision in STARTS
            if comes and self._goes_first(index):
                return True
            waited = self._earlier.waited
            waits = not gang.running and waited is not None and gang.key not in waited
            return waits and own < self._place(self._index)
        return gang.running or own < self._place(self._index)

    def _goes_first(self, index: int) -> bool:
        """Whether it is within a guarantee, and the gang is not: it starts first, and no longer gives way."""
        return self._place(index)[0] < self._place(self._index)[0]

    def _moved_up(self, index: int) -> bool:
        """Whether it has come before the gang, or gives way to it no longer: by ``order: shortest``.

        It needs less by now, or has waited for too long.
        """
        instance, gang = self._instance, self._instance.gangs[index]
        if instance.policy.order != "shortest":
            return False
        own = self._place(self._index)
        stays = gang.running and self._decisions[index].decision not in STARTS
        return not yields(instance, gang, own) if stays else self._place(index) < own

    def _before(self) -> set[int]:
        """Gangs that have come since the earlier plan and start, or wait, before the gang."""
        gangs = self._instance.gangs
        return {
            i for i, gang in enumerate(gangs) if gang.hold is None or gang.running if self._came(i)
        }

    def _place(self, index: int) -> QueuePlace:
        return queue_place(self._instance, self._instance.gangs[index])
