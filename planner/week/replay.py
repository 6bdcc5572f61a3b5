"""What would have run if gangplan had started the gangs: a journal played forward.

At each moment the plan knows what could be known then: who has come, what the cluster was at the last
round, and what gangs say of themselves. What it starts keeps its room, for as long as the gang ran in truth.
Nothing that runs is moved or stopped.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from typing import TYPE_CHECKING

from models.documents.communication import DEFAULT_FRACTION
from models.documents.policy import SolveLimits
from models.instance.gang import ExistingPod
from models.instance.solution import STARTS
from planner.week.history import History, Life, Pick
from planner.week.journal import State, Tree

if TYPE_CHECKING:
    from models.instance.gang import Gang
    from models.instance.instance import Instance
    from models.instance.solution import GangDecision, PodPlacement

LIMITS = SolveLimits(1, 24 * 60 * 60, 1, 0)
"""Of one plan: its budget ends the search, so that the clock decides nothing."""


MANY = 2000
"""With more gangs plans are made at rounds alone, so that there are not many times as many."""


@dataclass(slots=True)
class Replayed:
    """A gang in the replay. ``started``, ``ended``: seconds since the epoch; None: not by the end.

    ``nodes``: where. ``length``: seconds that it runs, if known. ``scaled``: by speed.
    """

    life: Life
    gang: Gang
    started: int | None = None
    ended: int | None = None
    nodes: tuple[str, ...] = ()
    length: int | None = None
    scaled: bool = False

    @property
    def gpus(self) -> int:
        """Its GPUs, in thousandths where some pods have parts."""
        return self.gang.least_units


Event = Replayed | State | tuple[str, str] | None
"""A gang that comes, a cluster that is another one, the key of a gang that left; None: a round."""


class Replay:
    """Plays a journal. ``pick``: which of the possible times of ends counts."""

    def __init__(self, history: History, pick: Pick = "middle") -> None:
        self._history, self._pick = history, pick
        self._bases: dict[int, Instance] = {}
        self.gangs = self._gangs()
        self.gpu_unit = next(iter(self._bases.values())).gpu_unit
        self.largest_node = max(
            (n.gpus for one in self._bases.values() for n in one.cluster.nodes), default=0
        )
        self._running: dict[tuple[str, str], Gang] = {}
        self._waiting: dict[tuple[str, str], Replayed] = {}
        self._rounds = {seen.time for seen in history.rounds}
        self._ends: list[tuple[int, tuple[str, str]]] = []

    def run(self) -> list[Replayed]:
        """To the last round."""
        base: Instance | None = None
        tried: object = None
        for time, changes in self._moments():
            while self._ends and self._ends[0][0] <= time:
                _, key = heapq.heappop(self._ends)
                self._running.pop(key, None)
            for one in changes:
                if isinstance(one, Replayed):
                    self._arrive(one)
                elif isinstance(one, State):
                    base = self._base(one)
                elif one is not None:
                    self._waiting.pop(one, None)
            assert base is not None, "the first round has a cluster"
            waiting = [one for one in self._waiting.values() if not self._held(one, time)]
            known = id(base), frozenset(self._running), frozenset(w.gang.key for w in waiting)
            due = len(self.gangs) <= MANY or time in self._rounds
            if waiting and due and known != tried:
                tried = known
                if self._plan(base, waiting, time):
                    tried = None
        return self.gangs

    # moments

    def _moments(self) -> Iterator[tuple[int, list[Event]]]:
        """Times at which something happens, with what."""
        events: list[tuple[int, int, Event]] = []
        for seen in self._history.rounds:
            events.append((seen.time, len(events), seen.state))
        for one in self.gangs:
            events.append((one.life.arrived, len(events), one))
            if one.life.gone is not None and one.life.started is None:
                events.append((one.life.gone, len(events), one.gang.key))
            released = (time for time, hold in one.life.holds if hold is None)
            events += [(time, len(events), one) for time in released if time > one.life.arrived][:1]
        events.sort(key=lambda event: event[:2])
        last, at = self._history.rounds[-1].time, 0
        while at < len(events) or (self._ends and self._ends[0][0] <= last):
            due = [events[at][0]] if at < len(events) else []
            time = min([*due, *(end for end, _ in self._ends[:1])])
            if time > last:
                return
            changes = []
            while at < len(events) and events[at][0] == time:
                changes.append(events[at][2])
                at += 1
            yield time, changes

    def _arrive(self, one: Replayed) -> None:
        life = one.life
        if one.started is not None:
            return
        if life.at_first:
            one.started = life.arrived
            one.nodes = tuple(sorted({pod["node"] for pod in life.places if "node" in pod}))
            self._running[one.gang.key] = one.gang
            if life.gone is not None and life.seen is not None:
                one.ended = life.end(self._pick)
                heapq.heappush(self._ends, (one.ended, one.gang.key))
            return
        self._waiting[one.gang.key] = one

    def _held(self, one: Replayed, time: int) -> bool:
        """Whether it must not start then, as far as is known. Who ran by then was free to."""
        started = one.life.start("earliest")
        if started is not None and started <= time:
            return False
        known = [hold for at, hold in one.life.holds if at <= time]
        first = one.life.holds[0][1]  # what is seen first counts from its arrival on
        return (known[-1] if known else first) is not None

    # clusters and gangs

    def _document(self, state: State, gangs: list[Tree]) -> Tree:
        nodes = []
        for name in sorted(self._history.nodes):
            absent = {**self._history.nodes[name], "ready": False}
            nodes.append(state.nodes.get(name, absent))
        cluster = state.head["cluster"]
        return {
            "cluster": {**cluster, "spec": {**cluster["spec"], "nodes": nodes}},
            "gangs": gangs,
            "policy": state.head["policy"],
            "queues": state.head["queues"],
        }

    def _base(self, state: State) -> Instance:
        """The cluster of a round without gangs, with all nodes that ever were."""
        from planner.read.inputs import instance_from_document

        known = self._bases.get(id(state))
        if known is None:
            known = instance_from_document(self._document(state, []))
            unit = next(iter(self._bases.values())).gpu_unit if self._bases else known.gpu_unit
            known = self._bases[id(state)] = replace(known, gpu_unit=unit)
        return known

    def _gangs(self) -> list[Replayed]:
        """Every gang as it waits, or as it ran at the first round."""
        from planner.read.inputs import instance_from_document

        first = next(seen.state for seen in self._history.rounds if seen.state is not None)
        documents = []
        for life in self._history.lives:
            namespace, _, name = life.name.partition("/")
            metadata = {**life.document["metadata"], "namespace": namespace, "name": name}
            status = {**life.document["status"]}
            status.pop("hold", None)
            if not life.at_first:
                for stated in ("startedAt", "runsSince", "lastCheckpoint", "expectedLeft"):
                    status.pop(stated, None)
                status["pods"] = []
            documents.append({**life.document, "metadata": metadata, "status": status})
        whole = instance_from_document(self._document(first, documents))
        self._bases[id(first)] = replace(whole, gangs=())
        by_name = {"/".join(gang.key): gang for gang in whole.gangs}
        found = []
        for life in self._history.lives:
            gang = by_name[life.name]
            found.append(Replayed(life, gang, length=life.seconds(self._pick)))
        return found

    # plans

    def _plan(self, base: Instance, waiting: list[Replayed], time: int) -> bool:
        """Start what a plan of this moment starts; whether anything."""
        from models.queues.bands import banded
        from planner.pipelines.adjustments import freeze_running
        from planner.search.solve import solve

        held = sum(gang.least_units for gang in self._running.values())
        usable = base.gpu_unit * sum(
            node.healthy_gpus for node in base.cluster.nodes if base.schedulable(node)
        )
        if min(one.gpus for one in waiting) > usable - held and all(one.gpus for one in waiting):
            return False
        gangs = sorted(
            [*self._running.values(), *(one.gang for one in waiting)], key=lambda gang: gang.key
        )
        policy = replace(base.policy, now=time, solve=LIMITS)
        instance = banded(freeze_running(base.with_gangs(tuple(gangs), policy)))
        decisions = solve(instance, frequent=True).decisions
        by_key = {one.gang.key: one for one in waiting}
        began = False
        for gang, decision in zip(instance.gangs, decisions, strict=True):
            if decision.decision in STARTS and gang.key in by_key:
                self._start(instance, decisions, by_key[gang.key], decision.pods, time)
                began = True
        return began

    def _start(
        self,
        instance: Instance,
        decisions: tuple[GangDecision, ...],
        one: Replayed,
        pods: tuple[PodPlacement, ...],
        time: int,
    ) -> None:
        gang, key = one.gang, one.gang.key
        standing = tuple(
            ExistingPod(
                f"{gang.name}-{gang.roles[pod.role].name}-{pod.index}",
                pod.role,
                pod.index,
                node=pod.node,
                gpus=pod.gpus if gang.roles[pod.role].units else None,
            )
            for pod in pods
        )
        del self._waiting[key]
        one.started = time
        one.nodes = tuple(sorted({instance.cluster.nodes[pod.node].name for pod in pods}))
        self._running[key] = replace(gang, pods=standing, started_at=time)
        if one.length is None:
            return  # it runs to the end of the journal, as far as anybody knows
        if gang.fraction != DEFAULT_FRACTION:
            speeds = self._speeds(instance, decisions, one, pods)
            one.scaled = speeds != 1
            one.length = max(1, round(one.length * speeds))
        one.ended = time + one.length
        heapq.heappush(self._ends, (one.ended, key))

    def _speeds(
        self,
        instance: Instance,
        decisions: tuple[GangDecision, ...],
        one: Replayed,
        pods: tuple[PodPlacement, ...],
    ) -> Fraction:
        """Its speed where it ran, over that where it runs now."""
        from models.values.tier_values import gang_value, known_masks

        known = known_masks(instance, decisions)
        now = gang_value(instance, one.gang, pods, known).speed
        then = gang_value(instance, one.gang, self._truly(one), [0] * len(known)).speed
        return Fraction(max(1, then), max(1, now))

    def _truly(self, one: Replayed) -> tuple[PodPlacement, ...]:
        """Where it ran in truth."""
        from models.instance.solution import PodPlacement

        roles = {role.name: number for number, role in enumerate(one.gang.roles)}
        return tuple(
            PodPlacement(
                roles[pod["role"]],
                pod["index"],
                self._places[pod["node"]],
                None if pod.get("gpus") is None else sum(1 << gpu for gpu in pod["gpus"]),
            )
            for pod in one.life.places
            if "node" in pod
        )

    @cached_property
    def _places(self) -> dict[str, int]:
        return {name: number for number, name in enumerate(sorted(self._history.nodes))}
