"""The requests of the apply machine as HTTP requests to the API server, and the answers as events.

Every write carries the uid, and the version if the machine knows one. A lost answer is NoAnswer, never
success. Sends what the machine asks for, in its order, and nothing else.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field, replace

from models.apply.gate_and_pin import CannotPin, pin
from models.apply.live_state import ClusterView
from models.apply.plan_actions import PodStart
from models.apply.requests import (
    AllocateDevices,
    AnswerRequest,
    CheckLock,
    ClusterRead,
    Denied,
    Done,
    Event,
    EventGroup,
    Evict,
    Gone,
    Halt,
    LabelNode,
    LockHeld,
    NoAnswer,
    ReadCluster,
    ReadPod,
    ReadRecord,
    Rejected,
    ReleaseDevices,
    Remember,
    RemoveRecord,
    Request,
    RequestGroup,
    Scale,
    Single,
    Ungate,
    Verdict,
    WriteRecord,
)
from models.apply.terms import KEYS, PLAN
from models.instance.policy import KubernetesPolicy
from planner.cluster.backends.base import Backend
from planner.cluster.live_view import ClusterReader
from planner.cluster.lock import Lock
from planner.cluster.placement_requests import labelled
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import ApiRequest, Reply, Transport, Tree, core, send_all, send_one
from planner.cluster.writes import denied, event_of, pod_request, scale
from planner.errors import GangplanError, NotPermittedError
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import objects, text
from planner.untrusted_text import one_line

LEAST_LEFT_S = 15.0
"""Least time left on the lock to go on: a request may take that long."""

GRACE_S = 10.0
"""Time after a signal to complete a gang whose pods are being started."""

REREAD_S = 2.0
"""Age of a reading after which other clients may have filled the nodes of the next gang."""

REREAD_SHARE = 10
"""Reading again takes at most one part in this many of the time: large clusters take seconds to read."""

_TICK_S = 0.5
"""Seconds between two checks of the lock and of signals while waiting."""

_UNSENDABLE = (ValueError, CannotEncode)
"""An invalid name, or a pod that cannot be pinned: a retry does not help."""

OnEvent = Callable[[Request, Event], None]
"""Receives every request with its answer."""


@dataclass(slots=True)
class RequestSender:
    """Answers requests of the apply machine, one at a time.

    ``lock``: None in a dry run. ``namespace``: of the lock and of records. ``stop``: set by a signal.
    ``dry``: every write is a server-side dry run. ``clock``: monotonic seconds.
    """

    wire: Transport
    settings: KubernetesPolicy
    backend: Backend
    lock: Lock | None
    stop: threading.Event
    namespace: str
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    dry: bool = False
    reader: ClusterReader = field(init=False)
    _stopped_at: float | None = None
    _read_at: float | None = None
    _read_s: float = 0.0

    def __post_init__(self) -> None:
        records = StartRecords(self.wire, self.namespace)
        self.reader = ClusterReader(self.wire, self.settings, records)

    def read_view(self) -> ClusterView:
        """Read everything. Raises UnavailableError and NotPermittedError."""
        begun = self.clock()
        view = self.reader.read_view()
        self._read_at, self._read_s = begun, self.clock() - begun
        if self.lock is not None:
            view = replace(view, notes=self.lock.notes, now=self.lock.now())
        return view

    def answer(self, request: Request) -> Event:  # noqa: C901, PLR0911, PLR0912  # a case a request
        """Send one request; its event."""
        try:
            match request:
                case CheckLock(begun):
                    return self._check_lock(begun=begun)
                case ReadCluster(after_s):
                    return self._read_cluster(after_s)
                case ReadPod(namespace, name):
                    return self._read_pod(namespace, name)
                case RequestGroup(requests):
                    return self._send_group(requests)
                case WriteRecord() | RemoveRecord() | Ungate() | LabelNode() | AnswerRequest():
                    return self._event(request, send_one(self.wire, self._made(request)))
                case ReadRecord(key):
                    return self.reader.records.look(key)
                case AllocateDevices(pod, seen):
                    if self.dry:
                        return Done()
                    tree = self.reader.pods.get(pod.key, {})
                    return self.backend.allocate(self.wire, pod, seen, tree)
                case ReleaseDevices():
                    if self.dry:
                        return Done()
                    return self.backend.release(self.wire, self.reader.pods.get(request.key, {}))
                case Evict():
                    return self._evict(request)
                case Remember(notes):
                    if self.dry or self.lock is None or self.lock.remember(notes):
                        return Done()
                    why = self.lock.lost or "no answer"
                    return NoAnswer(one_line(f"the lock cannot be written: {why}"))
                case Scale():
                    return scale(self.wire, request, self.reader.pods, dry=self.dry)
        except _UNSENDABLE as error:
            return Rejected(one_line(str(error)))

    # ---- the lock, signals and readings

    def _check_lock(self, *, begun: bool = False) -> LockHeld | Halt:
        """``begun``: a gang is incomplete, so after a signal it has GRACE_S to become whole."""
        if self.stop.is_set():
            now = self.clock()
            self._stopped_at = now if self._stopped_at is None else self._stopped_at
            if not begun or now - self._stopped_at >= GRACE_S:
                return Halt("interrupted")
        if self.lock is not None:
            self.lock.renew_if_needed()
            if self.lock.lost is not None:
                return Halt(one_line(f"the lock is lost: {self.lock.lost}"), lock=True)
            if self.lock.left_s() < LEAST_LEFT_S:
                return Halt("the lock could not be renewed in time", lock=True)
        if self._read_at is None or self.dry:
            return LockHeld()
        age = self.clock() - self._read_at
        return LockHeld(reread=age >= max(REREAD_S, REREAD_SHARE * self._read_s))

    def _read_cluster(self, after_s: float) -> Event:
        left = after_s
        while left > 0:
            if isinstance(held := self._check_lock(), Halt):
                return held
            self.sleep(min(left, _TICK_S))
            left -= _TICK_S
        try:
            return ClusterRead(self.read_view())
        except NotPermittedError as error:
            return denied(str(error))
        except GangplanError as error:
            return NoAnswer(one_line(str(error)))

    def _read_pod(self, namespace: str, name: str) -> Done | Gone | Denied | NoAnswer:
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        if reply.ok and (pod := self.reader.one(reply.body)) is not None:
            return Done(pod)
        if reply.status in {401, 403}:
            return denied(reply.message)
        message = one_line(reply.message)
        return Gone(message) if reply.status == 404 else NoAnswer(message)

    # ---- writes

    def _send_group(self, requests: Sequence[Single]) -> EventGroup:
        events: dict[int, Event] = {}
        sent: dict[int, ApiRequest] = {}
        for number, request in enumerate(requests):
            try:
                sent[number] = self._made(request)
            except _UNSENDABLE as error:
                events[number] = Rejected(one_line(str(error)))
        replies = send_all(self.wire, list(sent.values()))
        for number, reply in zip(sent, replies, strict=True):
            events[number] = self._event(requests[number], reply)
        return EventGroup(tuple(events[number] for number in range(len(requests))))

    def _made(self, request: Single | LabelNode | AnswerRequest) -> ApiRequest:
        match request:
            case WriteRecord(record, pods):
                for order in pods:  # lest one turns out to be impossible after others have started
                    self._annotations(order)
                return self.reader.records.write(record, dry=self.dry)
            case RemoveRecord(key):
                return self.reader.records.remove(key, dry=self.dry)
            case Ungate():
                return self._ungating(request)
            case LabelNode(node):
                return labelled(request, self.reader.nodes.get(node, {}), dry=self.dry)
            case AnswerRequest():
                now = (self.reader.date or 0) if self.lock is None else self.lock.now()
                return self.reader.requests.answered(request, int(now), dry=self.dry)

    def _event(self, request: Single | LabelNode | AnswerRequest, reply: Reply) -> Event:
        match request:
            case WriteRecord(record):
                return self.reader.records.answer(record.key, reply, dry=self.dry)
            case RemoveRecord(key):
                return self.reader.records.answer(key, reply, dry=self.dry)
            case _:
                # a dry run does not show the pod as it is
                return event_of(reply, lambda tree: None if self.dry else self.reader.one(tree))

    def _annotations(self, order: PodStart) -> dict[str, str]:
        """What the GPU back end has the pod say. Raises CannotEncode."""
        tree, node = self.reader.pods.get(order.key, {}), self.reader.nodes.get(order.node, {})
        gates = (text(one, "name") for one in objects(tree, "spec", "schedulingGates"))
        waits = self.settings.scheduling_gate in gates
        return self.backend.annotations(order, node, tree) if waits else {}

    def _ungating(self, request: Ungate) -> ApiRequest:
        order, pod = request.pod, request.seen
        view = self.reader.view
        node = None if view is None else view.nodes.get(order.node)
        if node is None or pod.start is None:
            raise CannotPin(f"node {order.node} does not exist")
        gate = {"$patch": "delete", "name": self.settings.scheduling_gate}
        said = dict.fromkeys(KEYS) | pod.start.pod.annotations() | self._annotations(order)
        metadata: Tree = {
            "uid": order.uid,
            "resourceVersion": pod.version,
            "labels": {PLAN: pod.start.plan},
            "annotations": said,
        }
        body: Tree = {"metadata": metadata, "spec": {"schedulingGates": [gate], **pin(pod, node)}}
        return pod_request("PATCH", *order.key, body, dry=self.dry)

    def _evict(self, request: Evict) -> Event:
        stop = request.pod
        body: Tree = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": stop.name, "namespace": stop.namespace},
            "deleteOptions": {"preconditions": {"uid": stop.uid}},
        }
        sent = pod_request("POST", *stop.key, body, sub="eviction", dry=self.dry)
        return event_of(send_one(self.wire, sent), eviction=True)


def run_machine(
    machine: Generator[Request, Event, Verdict], sender: RequestSender, on_event: OnEvent
) -> Verdict:
    """Answer everything that the machine requests; its verdict."""
    try:
        request = next(machine)
        while True:
            event = sender.answer(request)
            if isinstance(request, RequestGroup) and isinstance(event, EventGroup):
                for one, answer in zip(request.requests, event.events, strict=True):
                    on_event(one, answer)
            else:
                on_event(request, event)
            request = machine.send(event)
    except StopIteration as ended:
        verdict: Verdict = ended.value
        return verdict
