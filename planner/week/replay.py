"""What would have run if gangplan had started the gangs: a journal played forward.

At each moment the plan knows what could be known then: who has come, what the cluster was at the last
round, and what gangs say of themselves. What it starts keeps its room, for as long as the gang ran in truth.
Nothing that runs is moved or stopped.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cache
from typing import TYPE_CHECKING

from models.documents.communication import DEFAULT_FRACTION
from models.documents.policy import SolveLimits
from models.instance.gang import ExistingPod
from models.instance.solution import STARTS
from planner.week.history import History, Life, Pick
from planner.week.journal import State, Tree

if TYPE_CHECKING:
    from models.instance.cluster import Node
    from models.instance.gang import Gang
    from models.instance.instance import Instance
    from models.instance.solution import GangDecision, PodPlacement

LIMITS = SolveLimits(1, 24 * 60 * 60, 1, 0)
"""Of one plan: its budget ends the search, so that the clock decides nothing."""

MANY = 2000
"""With more gangs plans are made at rounds alone, so that there are not many times as many."""


@dataclass(slots=True)
class Replayed:
    """A gang in the replay. ``started``, ``ended``: seconds since the epoch, the first; None: not by the end.

    ``gang``: as it is in this stretch. ``gpus``: at least. ``length``: seconds that it runs, if known.
    ``nodes``: where it starts. ``scaled``: by speed. ``waited``, ``ran``: seconds; ``since``: of this.
    """

    life: Life
    gang: Gang
    gpus: Fraction
    length: int | None
    started: int | None = None
    ended: int | None = None
    nodes: tuple[str, ...] = ()
    scaled: bool = False
    waited: int = 0
    ran: int = 0
    since: int = 0


Event = Replayed | State | tuple[str, str] | None
"""A gang that comes, a cluster that is another one, the key of a gang that left; None: a round."""


class Replay:
    """Plays a journal. ``pick``: which of the possible times of ends counts."""

    def __init__(self, history: History, pick: Pick = "middle") -> None:
        self._history, self._pick = history, pick
        self._rounds = {seen.time for seen in history.rounds}
        self._gangs: dict[str, Replayed] = {}
        self.largest_node = 0

    def run(self) -> list[Replayed]:
        """Each stretch between gaps, from what truly ran at its start on. Gangs are by arrival."""
        for start, end in self._history.stretches():
            self._play(start, end)
        return [self._gangs[life.name] for life in self._history.lives]

    def _play(self, start: int, end: int) -> None:
        self._bases: dict[int, Instance] = {}
        self._running: dict[tuple[str, str], Replayed] = {}
        self._waiting: dict[tuple[str, str], Replayed] = {}
        self._ends: list[tuple[int, tuple[str, str]]] = []
        base: Instance | None = None
        tried: object = None
        for time, changes in self._moments(start, end):
            while self._ends and self._ends[0][0] <= time:
                at, key = heapq.heappop(self._ends)
                one = self._running.pop(key)
                one.ended = one.ended or at
                one.ran += at - one.since
            for event in changes:
                if isinstance(event, Replayed):
                    self._arrive(event, time)
                elif isinstance(event, State):
                    base = self._base(event)
                elif event in self._waiting:
                    self._waits_until(time, self._waiting.pop(event))
            assert base is not None, "a stretch has a cluster"
            waiting = [one for one in self._waiting.values() if not self._held(one, time)]
            known = id(base), frozenset(self._running), frozenset(w.gang.key for w in waiting)
            due = len(self._history.lives) <= MANY or time in self._rounds
            if waiting and due and known != tried:
                tried = known
                if self._plan(base, waiting, time):
                    tried = None
        for one in self._running.values():
            one.ran += end - one.since
        self._waits_until(end, *self._waiting.values())

    # moments

    def _moments(self, start: int, end: int) -> Iterator[tuple[int, list[Event]]]:
        """Times at which something happens, with what."""
        state, events = None, list[tuple[int, int, Event]]()
        for seen in self._history.rounds:
            if seen.time <= start:
                state = seen.state or state
            elif seen.time <= end:
                events.append((seen.time, len(events), seen.state))
        assert state is not None
        events.append((start, -1, state))
        for one in self._read(state, start, end):
            life, comes = one.life, max(start, one.life.arrived)
            events.append((comes, len(events), one))
            if life.gone is not None and life.started is None:
                events.append((life.gone, len(events), one.gang.key))
            released = (time for time, hold in life.holds if hold is None)
            events += [(time, len(events), None) for time in released if time > comes][:1]
        events.sort(key=lambda event: event[:2])
        at = 0
        while at < len(events) or self._ends:
            due = [events[at][0]] if at < len(events) else []
            time = min([*due, *(until for until, _ in self._ends[:1])])
            if time > end:
                return
            changes = []
            while at < len(events) and events[at][0] == time:
                changes.append(events[at][2])
                at += 1
            yield time, changes

    def _arrive(self, one: Replayed, time: int) -> None:
        """A gang comes, or is there at the start."""
        life, key = one.life, one.gang.key
        one.since = time
        if not one.gang.running:
            self._waiting[key] = one
            return
        one.started = one.started or time
        one.nodes = one.nodes or nodes_of(life.pods(time))
        self._running[key] = one
        if life.gone is not None:
            heapq.heappush(self._ends, (life.end(self._pick), key))

    def _held(self, one: Replayed, time: int) -> bool:
        """Whether it must not start then, as far as is known. Who ran by then was free to."""
        started = one.life.start("earliest")
        if started is not None and started <= time:
            return False
        known = [hold for at, hold in one.life.holds if at <= time]
        first = one.life.holds[0][1]  # what is seen first counts from its arrival on
        return (known[-1] if known else first) is not None

    def _waits_until(self, time: int, *gangs: Replayed) -> None:
        """They wait no longer. Only hours before the first start count."""
        for one in gangs:
            if one.life.started is None or one.life.started[0] >= one.since:
                one.waited += time - one.since

    # clusters and gangs

    def _document(self, state: State, gangs: dict[str, Tree]) -> Tree:
        """A cluster with all nodes that ever were, and these gangs."""
        absent = {name: {**node, "ready": False} for name, node in self._history.nodes.items()}
        return replace(state, nodes={**absent, **state.nodes}, gangs=gangs).document()

    def _base(self, state: State) -> Instance:
        """The cluster of a round without gangs."""
        from planner.read.inputs import instance_from_document

        known = self._bases.get(id(state))
        if known is None:
            known = instance_from_document(self._document(state, {}))
            unit = next(iter(self._bases.values())).gpu_unit
            known = self._bases[id(state)] = replace(known, gpu_unit=unit)
        return known

    def _read(self, state: State, start: int, end: int) -> list[Replayed]:
        """The gangs of a stretch as they wait, or as they run at its start. ``state``: the cluster then."""
        from planner.read.inputs import instance_from_document

        lives = {life.name: life for life in self._history.lives if life.within(start, end)}
        documents: dict[str, Tree] = {}
        for life in lives.values():
            namespace, _, name = life.name.partition("/")
            metadata = {**life.document["metadata"], "namespace": namespace, "name": name}
            status = {**life.document["status"], "pods": life.pods(start)}
            status.pop("hold", None)
            if not status["pods"]:
                for stated in ("startedAt", "runsSince", "lastCheckpoint", "expectedLeft"):
                    status.pop(stated, None)
            documents[life.name] = {**life.document, "metadata": metadata, "status": status}
        whole = instance_from_document(self._document(state, documents))
        self._bases[id(state)] = replace(whole, gangs=())
        self.largest_node = max(self.largest_node, *(n.gpus for n in whole.cluster.nodes))
        by_name = {"/".join(gang.key): gang for gang in whole.gangs}
        for name, life in lives.items():
            gang = by_name[name]
            gpus = Fraction(gang.least_units, whole.gpu_unit)
            new = Replayed(life, gang, gpus, life.seconds(self._pick))
            self._gangs.setdefault(name, new).gang = gang
        return [self._gangs[name] for name in lives]

    # plans

    def _plan(self, base: Instance, waiting: list[Replayed], time: int) -> bool:
        """Start what a plan of this moment starts; whether anything."""
        from models.queues.bands import banded
        from planner.pipelines.adjustments import freeze_running
        from planner.search.solve import solve

        if not any(map(self._room(base), waiting)):
            return False
        present = [*self._running.values(), *waiting]
        gangs = sorted((one.gang for one in present), key=lambda gang: gang.key)
        policy = replace(base.policy, now=time, solve=LIMITS)
        instance = banded(freeze_running(base.with_gangs(tuple(gangs), policy)))
        decisions = solve(instance, frequent=True).decisions
        by_key = {one.gang.key: one for one in waiting}
        began = False
        for gang, decision in zip(instance.gangs, decisions, strict=True):
            if decision.decision in STARTS and gang.key in by_key:
                one, began = by_key[gang.key], True
                seconds = self._seconds(instance, decisions, one, decision.pods)
                self._start(one, instance.cluster.nodes, decision.pods, time)
                if seconds is not None:  # else it runs to the end of the stretch
                    heapq.heappush(self._ends, (time + seconds, gang.key))
        return began

    def _room(self, base: Instance) -> Callable[[Replayed], bool]:
        """Whether there may be room for a gang: by the free GPUs of each node, one role at a time."""
        free = {
            number: base.gpu_unit * node.healthy_gpus
            for number, node in enumerate(base.cluster.nodes)
            if base.schedulable(node)
        }
        for one in self._running.values():
            for pod in one.gang.pods:
                if pod.node in free:
                    free[pod.node] -= one.gang.roles[pod.role].units
        most = cache(lambda units: sum(max(0, own) // units for own in free.values()))
        return lambda one: all(r.min <= most(r.units) for r in one.gang.roles if r.units)

    def _start(
        self, one: Replayed, nodes: Sequence[Node], pods: tuple[PodPlacement, ...], time: int
    ) -> None:
        gang = one.gang
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
        self._running[gang.key] = self._waiting.pop(gang.key)
        self._waits_until(time, one)
        one.started, one.since = one.started or time, time
        one.nodes = one.nodes or tuple(sorted({nodes[pod.node].name for pod in pods}))
        one.gang = replace(gang, pods=standing, started_at=time)

    def _seconds(
        self,
        instance: Instance,
        decisions: tuple[GangDecision, ...],
        one: Replayed,
        pods: tuple[PodPlacement, ...],
    ) -> int | None:
        """How long it runs: as it did, by its speed where it ran over that where it runs now."""
        from models.values.tier_values import gang_value, known_masks

        if one.length is None or one.gang.fraction == DEFAULT_FRACTION or not one.life.runs:
            return one.length
        known = known_masks(instance, decisions)
        now = gang_value(instance, one.gang, pods, known).speed
        then = gang_value(instance, one.gang, _truly(one, instance), [0] * len(known)).speed
        speeds = Fraction(max(1, then), max(1, now))
        one.scaled = speeds != 1
        return max(1, round(one.length * speeds))


def _truly(one: Replayed, instance: Instance) -> tuple[PodPlacement, ...]:
    """Where it ran in truth."""
    from models.instance.solution import PodPlacement

    roles = {role.name: number for number, role in enumerate(one.gang.roles)}
    places = {node.name: number for number, node in enumerate(instance.cluster.nodes)}
    return tuple(
        PodPlacement(
            roles[pod["role"]],
            pod["index"],
            places[pod["node"]],
            None if pod.get("gpus") is None else sum(1 << gpu for gpu in pod["gpus"]),
        )
        for pod in one.life.runs[0][1]
    )


def nodes_of(pods: Iterable[Tree]) -> tuple[str, ...]:
    """The nodes of pods."""
    return tuple(sorted({pod["node"] for pod in pods}))
