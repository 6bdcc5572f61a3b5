"""A cluster in memory that answers the requests of the apply machine.

Preconditions, gates, evictions and the scheduler behave as measured on kube-apiserver 1.36.
Tests inject faults.
"""

from __future__ import annotations

import copy
import random
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, fields, replace
from typing import Any

import pytest
from msgspec import structs

from models.apply import requests as req
from models.apply.gate_and_pin import HOSTNAME
from models.apply.live_state import ClusterView, LiveNode, LivePod
from models.apply.notes import RunNotes
from models.apply.plan_actions import (
    GangActions,
    KeptGang,
    Key,
    NodeAssumptions,
    PlanActions,
    PodStart,
    PodStop,
)
from models.apply.records import RecordKey, StartRecord
from models.apply.state_machine import apply_plan, recover_gangs
from models.instance.disruption_budgets import DisruptionBudgets

GATE = "gangplan.dev/placement"
PLAN = "gp-" + "a" * 20
OTHER_PLAN = "gp-" + "b" * 20
NAMES = "abcdefghijklmnopqrstuvwxyz"
WRITES = (
    req.WriteRecord, req.RemoveRecord, req.Ungate, req.Evict, req.AllocateDevices,
    req.ReleaseDevices, req.Scale,
)  # fmt: skip


def no_scale(world: World, request: req.Scale) -> req.Event:
    return req.Rejected("no scale field")


@dataclass(slots=True)
class World:
    """``budgets``: by name, how many of which pods have to run; unread if not ``reads_budgets``.

    ``recreates``: gangs' pods come back gated under the same name once they are gone.
    ``schedules``: kube-scheduler binds ungated pods after every write. ``backend``: of its runs.
    """

    nodes: dict[str, LiveNode] = field(default_factory=dict)
    pods: dict[Key, LivePod] = field(default_factory=dict)
    recreates: set[Key] = field(default_factory=set)
    pins: dict[str, str] = field(default_factory=dict)
    allocated: dict[str, str] = field(default_factory=dict)
    schedules: bool = True
    backend: str = "annotation"
    controller: Callable[[World, req.Scale], req.Event] = no_scale
    budgets: dict[str, tuple[int, frozenset[Key]]] = field(default_factory=dict)
    reads_budgets: bool = True
    notes: RunNotes = field(default_factory=RunNotes)
    records: dict[RecordKey, StartRecord] = field(default_factory=dict)
    clock: int = 100
    made: int = 0
    log: list[req.Request] = field(default_factory=list)

    # ---- building

    def node(self, name: str, gpus: int = 8, **more: object) -> None:
        given = {"hostname": name, "labels": ((HOSTNAME, name),), **more}
        self.nodes[name] = LiveNode(name, gpus=gpus, **given)  # type: ignore[arg-type]

    def pod(self, name: str, gpus: int = 1, *, mode: str = "gate", **more: object) -> LivePod:
        """A pod in ``default``. ``mode``: gate, or none for somebody else's."""
        self.made += 1
        more = {"gates": (GATE,) if mode == "gate" else (), "gpus": gpus, **more}
        pod = LivePod("default", name, f"uid-{self.made}", str(self._tick()), **more)  # type: ignore[arg-type]
        self.pods[pod.key] = pod
        return pod

    def _tick(self) -> int:
        self.clock += 1
        return self.clock

    # ---- the API

    def view(self) -> ClusterView:
        pods = {key: self._held(pod) for key, pod in self.pods.items()}
        budgets = self._budgets() if self.reads_budgets else None
        records = dict(self.records)
        return ClusterView(
            "cluster", dict(self.nodes), pods, notes=self.notes, budgets=budgets, records=records
        )

    def start(self, pod: LivePod) -> StartRecord | None:
        """What is recorded of a pod."""
        found = (record.parts().get((pod.key, pod.uid)) for record in self.records.values())
        return next(filter(None, found), None)

    def _budgets(self) -> DisruptionBudgets:
        guards: dict[Key, tuple[str, ...]] = {}
        for name, (_, covered) in sorted(self.budgets.items()):
            for key in covered:
                if (pod := self.pods.get(key)) is not None and pod.node and not pod.terminating:
                    guards[key] = (*guards.get(key, ()), name)
        return DisruptionBudgets(
            {("default", name): self._allowed(name) for name in self.budgets}, guards
        )

    def _allowed(self, name: str) -> int:
        """Evictions that the budget allows now."""
        least, covered = self.budgets[name]
        pods = [self.pods[key] for key in covered if key in self.pods]
        healthy = sum(bool(one.node) and not (one.terminating or one.finished) for one in pods)
        return max(0, healthy - least)

    def _held(self, pod: LivePod) -> LivePod:
        """With what is meant with it, and the room it takes while it is not bound."""
        found = pod.meant(self.start(pod))
        if found.start is None and pod.node is None and pod.stays:
            return structs.replace(found, held_at=self.pins.get(pod.uid))
        return found

    def change(self, key: Key, **more: object) -> None:
        """Whatever is written on a pod gives it a new version."""
        self.pods[key] = structs.replace(self.pods[key], version=str(self._tick()), **more)  # type: ignore[arg-type]

    def answer(self, request: req.Request) -> req.Event:
        self.log.append(request)
        event = self._answer(request)
        self.schedule()
        if isinstance(event, req.Done) and event.pod is not None:
            return req.Done(self._held(event.pod))
        return event

    def _answer(self, request: req.Request) -> req.Event:  # noqa: C901, PLR0911, PLR0912  # a case a request
        match request:
            case req.CheckLock():
                return req.LockHeld()
            case req.ReadPod(namespace, name):
                pod = self.pods.get((namespace, name))
                return req.Gone("not found") if pod is None else req.Done(pod)
            case req.ReadCluster(after_s):
                if after_s:
                    self.wait()
                return req.ClusterRead(self.view())
            case req.WriteRecord(record, _):
                self.records[record.key] = record
                return req.Done(record=record)
            case req.RemoveRecord(key):
                return req.Done() if self.records.pop(key, None) else req.Gone("not found")
            case req.ReadRecord(key):
                record = self.records.get(key)
                return req.Gone("not found") if record is None else req.Done(record=record)
            case req.Ungate(order, seen):
                return self._ungate(order, seen.version)
            case req.Evict(stop):
                return self._evict(stop)
            case req.AllocateDevices(order, _):
                self.allocated[order.uid] = order.node
                return req.Done()
            case req.ReleaseDevices(namespace, name):
                self.allocated.pop(self.pods[namespace, name].uid, None)
                return req.Done()
            case req.Scale():
                return self.controller(self, request)
            case req.Remember(notes):
                self.notes = notes
                return req.Done()
            case req.RequestGroup():
                raise AssertionError("they are answered one by one: see play")

    def _checked(self, key: Key, uid: str, version: str | None) -> req.Event | None:
        pod = self.pods.get(key)
        if pod is None:
            return req.Gone("not found")
        if pod.uid != uid:
            return req.Gone("uid: field is immutable")
        if version is not None and pod.version != version:
            return req.Conflict("the object has been modified")
        return None

    def _ungate(self, order: PodStart, version: str) -> req.Event:
        if (wrong := self._checked(order.key, order.uid, version)) is not None:
            return wrong
        pod = self.pods[order.key]
        if not pod.gates:
            return req.Rejected("pod updates may not change fields other than")
        self.pins[pod.uid] = order.node
        gates = tuple(gate for gate in pod.gates if gate != GATE)
        self.change(order.key, gates=gates, selector=((HOSTNAME, order.node),))
        return req.Done(self.pods[order.key])

    def _evict(self, stop: PodStop) -> req.Event:
        if (wrong := self._checked(stop.key, stop.uid, None)) is not None:
            return wrong
        names = self._budgets().guards.get(stop.key, ())
        if any(not self._allowed(name) for name in names):
            return req.BlockedByBudget("it would violate the pod's disruption budget")
        self.change(stop.key, terminating=True)
        return req.Done()

    # ---- everybody else

    def wait(self) -> None:
        """A tick of the clock: what is being deleted goes, controllers make new pods."""
        for key, pod in sorted(self.pods.items()):
            if pod.terminating:
                self.delete(key)

    def delete(self, key: Key) -> None:
        pod = self.pods.pop(key)
        if key in self.recreates:
            self.made += 1
            more = {"gates": (GATE,), "gpus": pod.gpus, "owner": pod.owner}
            self.pods[key] = LivePod(*key, f"uid-{self.made}", str(self._tick()), **more)  # type: ignore[arg-type]

    def free(self, node: str) -> int:
        held = (pod.gpus for pod in self.pods.values() if pod.node == node and not pod.finished)
        return self.nodes[node].gpus - sum(held)

    def schedule(self) -> None:
        """kube-scheduler: ungated pods go to their pin, if there is room."""
        if not self.schedules:
            return
        waiting = [
            (key, pod)
            for key, pod in self.pods.items()
            if not (pod.node or pod.gates or pod.terminating or pod.finished)
        ]
        for key, pod in sorted(waiting, key=lambda one: one[0]):
            pin = self.pins.get(pod.uid)
            node = self.nodes.get(pin or "")
            fits = node is not None and not node.unschedulable and node.ready
            if pin is not None and fits and self.free(pin) >= pod.gpus:
                self.change(key, node=pin, unschedulable=None)
            elif pod.unschedulable is None:
                self.change(key, unschedulable="0/2 nodes are available")

    def copy(self) -> World:
        """All it holds is frozen, but for the tables themselves."""
        tables = {one.name: copy.copy(getattr(self, one.name)) for one in fields(self)}
        return replace(self, **tables)


# ---- orders


def world_of(nodes: int, **more: Any) -> World:  # noqa: ANN401  # fields of World
    """Nodes n0, n1, ... of 8 GPUs."""
    world = World(**more)
    for number in range(nodes):
        world.node(f"n{number}")
    return world


def order_for(
    pod: LivePod, node: str, gpus: Sequence[int] | None = None, **more: object
) -> PodStart:
    return PodStart(
        pod.namespace, pod.name, pod.uid, "worker", int(pod.name.rpartition("-")[2]), node,
        None if gpus is None else tuple(gpus), pod.gpus, **more,  # type: ignore[arg-type]
    )  # fmt: skip


def stop_for(pod: LivePod) -> PodStop:
    return PodStop(
        pod.namespace, pod.name, pod.uid, "worker", int(pod.name.rpartition("-")[2]),
        pod.node or "", pod.gpus,
    )  # fmt: skip


def orders(world: World, *gangs: GangActions, plan: str = PLAN) -> PlanActions:
    used = sorted({order.node for gang in gangs for order in gang.starts})
    relied = tuple(NodeAssumptions(name, world.nodes[name].gpus) for name in used)
    ordered = tuple(sorted(gangs, key=lambda gang: gang.key))
    return PlanActions(
        plan, "cluster", "2026-01-01T00:00:00Z", GATE, world.backend, ordered, relied
    )


def gang(
    name: str, starts: Sequence[PodStart] = (), decision: str = "place", **more: object
) -> GangActions:
    given = {"priority": 0, **more}
    return GangActions("default", name, decision, starts=tuple(starts), **given)  # type: ignore[arg-type]


def gangs_of(
    sizes: Sequence[int], backend: str = "annotation", gpus: int = 4, spare: int = 0
) -> tuple[World, PlanActions]:
    """Gangs a, b, ... of so many pods, 8 // gpus pods a node, one node after the other; ``spare`` nodes more.

    Beyond 8 // gpus pods, each has its own GPUs by number.
    """
    each = 8 // gpus
    world = world_of((sum(sizes) + each - 1) // each + spare, backend=backend)
    gangs, slot = [], 0
    for name, size in zip(NAMES, sizes, strict=False):
        starts = []
        for j in range(size):
            first = gpus * (slot % each)
            pod = world.pod(f"{name}-{j}", gpus)
            starts.append(order_for(pod, f"n{slot // each}", range(first, first + gpus)))
            slot += 1
        gangs.append(gang(name, starts, priority=-slot))
    return world, orders(world, *gangs)


LIMITS = req.ApplyLimits(allow_evictions=True, max_evictions=100, wait_rounds=5)


# ---- running and faults


class Killed(Exception):  # noqa: N818  # it happens; it is no error of ours
    """The process is gone: whatever it knew is lost."""


Fault = Callable[[int, req.Request, World], req.Event | None]
"""Number of the request, itself, the world; an event in place of the world's answer, or None."""


def on(kind: Any, deed: Callable[[World, Any], req.Event | None]) -> Fault:  # noqa: ANN401
    """The deed before each request of a kind, or of several: ``A | B``."""
    return lambda _, request, world: deed(world, request) if isinstance(request, kind) else None


def at(number: int, deed: Callable[[World, req.Request], req.Event | None]) -> Fault:
    """The deed before the request of that number."""
    return lambda count, request, world: deed(world, request) if count == number else None


def dies(world: World, request: req.Request) -> req.Event:
    raise Killed


def dies_after(world: World, request: req.Request) -> req.Event:
    world.answer(request)
    raise Killed


def loses(world: World, request: req.Request) -> req.Event:
    """There is no answer, and nothing was done."""
    return req.NoAnswer("timeout")


def loses_answer(world: World, request: req.Request) -> req.Event:
    """It is done, and there is no answer."""
    if isinstance(request, WRITES):
        world.answer(request)
    return req.NoAnswer("timeout")


KILLS = {"killed before": dies, "killed after": dies_after}


def killed_after(most: int, kind: type[req.Request]) -> Fault:
    """Dead before the next request of a kind after so many."""
    left = iter(range(most))
    return on(kind, lambda world, request: dies(world, request) if next(left, -1) < 0 else None)


@dataclass(slots=True)
class Played:
    verdict: req.Verdict
    requests: list[req.Request]

    @property
    def outcomes(self) -> dict[str, str]:
        """Outcome of each gang by its name."""
        return {one.gang[1]: one.outcome.value for one in self.verdict.gangs}

    @property
    def one(self) -> req.GangVerdict:
        (found,) = self.verdict.gangs
        return found

    def of(self, *kinds: type[req.Request]) -> list[Any]:
        return [one for one in self.requests if isinstance(one, kinds)]


def play(
    machine: Generator[req.Request, req.Event, req.Verdict],
    world: World,
    fault: Fault | None = None,
) -> Played:
    """Run a machine against the world to its verdict.

    Requests that go together are carried out in order, and each may meet a fault of its own.
    """
    asked: list[req.Request] = []

    def one(request: req.Request) -> req.Event:
        if isinstance(request, req.RequestGroup):
            return req.EventGroup(tuple(map(one, request.requests)))
        event = None if fault is None else fault(len(asked), request, world)
        asked.append(request)
        return world.answer(request) if event is None else event

    try:
        request = next(machine)
        while True:
            request = machine.send(one(request))
    except StopIteration as end:
        return Played(end.value, asked)


def apply(
    world: World,
    plan: PlanActions,
    fault: Fault | None = None,
    **limits: Any,  # noqa: ANN401
) -> Played:
    """``limits``: other than LIMITS."""
    with_ = replace(LIMITS, backend=world.backend, **limits)
    return play(apply_plan(plan, world.view(), with_), world, fault)


def recover(world: World, fault: Fault | None = None, **limits: Any) -> Played:  # noqa: ANN401
    with_ = replace(LIMITS, backend=world.backend, **limits)
    return play(recover_gangs(world.view(), with_), world, fault)


def cut(world: World, plan: PlanActions, fault: Fault, **limits: Any) -> None:  # noqa: ANN401
    """An apply that is killed."""
    with pytest.raises(Killed):
        apply(world, plan, fault, **limits)


ANSWERS = [
    req.Conflict("409"), req.Gone("404"), req.Rejected("422"), req.BlockedByBudget("429"),
    req.Halt("a signal"),
]  # fmt: skip


def chaos(draw: random.Random, rate: float) -> Fault:
    """Kills, lost answers and refusals, each request with this probability."""

    def fault(count: int, request: req.Request, world: World) -> req.Event | None:
        if draw.random() > rate:
            return None
        kind = draw.choice(("killed", "lost", "refused", "refused"))
        if kind == "killed":
            return (dies_after if draw.random() < 0.5 else dies)(world, request)
        if isinstance(request, req.CheckLock):
            return None
        if kind == "lost" or isinstance(request, req.ReadPod | req.ReadCluster):
            return loses_answer(world, request)
        return draw.choice((*ANSWERS, req.NoAnswer("timeout")))

    return fault


# ---- contests: gangs that run give way to gangs that wait

V = frozenset(("default", f"v-{i}") for i in range(4))


def running(world: World, name: str, gpus: int, *nodes: str) -> list[LivePod]:
    """Pods of a job."""
    return [
        world.pod(f"{name}-{i}", gpus, mode="none", node=node, owner=f"job-{name}")
        for i, node in enumerate(nodes)
    ]


def waiting(world: World, name: str, gpus: int, *nodes: str, priority: int = 0) -> GangActions:
    """A gang that the plan starts there."""
    pods = [world.pod(f"{name}-{i}", gpus) for i in range(len(nodes))]
    return gang(name, list(map(order_for, pods, nodes)), priority=priority)


def stopped(name: str, pods: Sequence[LivePod]) -> GangActions:
    return gang(name, (), "preempt", stops=tuple(map(stop_for, pods)))


def crowded() -> tuple[World, PlanActions]:
    """v fills n0; m has 4 GPUs on n1 and n2. The plan stops v for w, and moves m for x to n3.

    w: two pods of 4 on n0. x: two pods of 8 on n1 and n2. f: one pod of 4 on n4, where there is room.
    """
    world = world_of(5)
    v, m = running(world, "v", 4, "n0", "n0"), running(world, "m", 4, "n1", "n2")
    world.recreates = {pod.key for pod in m}
    to = [order_for(pod, "n3") for pod in m]
    return world, orders(
        world,
        stopped("v", v),
        gang("m", to, "move", stops=tuple(map(stop_for, m))),
        waiting(world, "w", 4, "n0", "n0", priority=5),
        waiting(world, "x", 8, "n1", "n2"),
        waiting(world, "f", 4, "n4"),
    )


def chain() -> tuple[World, PlanActions]:
    """``crowded``, but x comes first, and u, which the plan stops, fills n3, to where m moves."""
    world, plan = crowded()
    gangs = (structs.replace(one, priority=9 * (one.name == "x")) for one in plan.gangs)
    return world, orders(world, *gangs, stopped("u", running(world, "u", 8, "n3")))


def four() -> tuple[World, PlanActions]:
    """v runs with 4 pods of 8 GPUs on n0 to n3, its pods come back; w (3 x 8) gets n0 to n2."""
    world = world_of(7, recreates=set(V))
    v = stopped("v", running(world, "v", 8, "n0", "n1", "n2", "n3"))
    return world, orders(world, v, waiting(world, "w", 8, "n0", "n1", "n2", priority=5))


def elsewhere(world: World, plan: PlanActions) -> PlanActions:
    """Another plan for ``four``: w starts on n4 to n6, and v stays as it is."""
    w = [order_for(world.pods["default", f"w-{i}"], f"n{4 + i}") for i in range(3)]
    v = [pod for _, pod in sorted(world.pods.items()) if pod.key in V and pod.node]
    kept = {("default", "v"): KeptGang(tuple(pod.uid for pod in v), elastic=False)}
    made = orders(world, gang("w", w, priority=5), plan=OTHER_PLAN)
    return replace(made, kept=kept if len(v) == 4 else {})


def evicted_in_part() -> tuple[World, PlanActions]:
    """v, seven pods on n0 and n1, was started by an earlier plan and is whole; w wants their room."""
    world = world_of(2)
    v = [world.pod(f"v-{i}", 2, owner="job-v") for i in range(7)]
    earlier = gang("v", [order_for(pod, f"n{i // 4}") for i, pod in enumerate(v)])
    apply(world, orders(world, earlier, plan=OTHER_PLAN))
    assert whole(world) == {"v"}
    world.log.clear()
    v = [world.pods[pod.key] for pod in v]
    return world, orders(world, stopped("v", v), waiting(world, "w", 8, "n0", "n1"))


# ---- what must hold


def shape(world: World) -> dict[Any, Any]:
    """What end states are compared by: where each pod is, its gates, what is meant with it, who is whole."""
    found: dict[Any, Any] = {
        key: (pod.node, pod.gates, world.start(pod)) for key, pod in sorted(world.pods.items())
    }
    return found | {"whole": whole(world)}


def bound(world: World) -> dict[str, str]:
    """Pod to node."""
    return {pod.name: pod.node for _, pod in sorted(world.pods.items()) if pod.node is not None}


def whole(world: World) -> set[str]:
    """Gangs of which it is recorded that they were whole."""
    return {gang[1] for (gang, _), record in world.records.items() if record.whole}


def half_way(world: World, plan: PlanActions) -> list[str]:
    """Gangs of which some pods are started and others are not."""
    found = []
    for one in plan.gangs:
        pods = [world.pods[order.key] for order in one.starts if order.key in world.pods]
        started = sum(pod.node is not None or not pod.gates for pod in pods)
        found += [one.name] if 0 < started < len(one.starts) else []
    return found


def doubled(world: World) -> list[str]:
    """Nodes whose GPUs are given twice: by number, or one index to two pods."""
    full = [name for name in sorted(world.nodes) if world.free(name) < 0]
    held: set[tuple[str, int]] = set()
    for pod in world.pods.values():
        start = world.start(pod)
        for index in (start.pod.gpus if start else None) or ():
            if pod.node is not None and not pod.finished:
                if (pod.node, index) in held:
                    full.append(pod.node)
                held.add((pod.node, index))
    return full
