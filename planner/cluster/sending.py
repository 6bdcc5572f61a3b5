"""What ties a gated pod to its node: the part of one patch that nothing but deleting the pod undoes.

Promises: pure; only what the API server lets be added to a gated pod; terms that match nothing stay
so. Raises CannotPin. Called by ``planner.cluster.sending``.

Requests of the applying machine as HTTP requests, and the answers as events.

Promises: every write names the uid, and the version where the machine knows one; an answer nobody got is
Lost, never success; nothing raises but a bug. Called by ``planner.cluster.sending``.

The machine's requests carried out one after the other, until its verdict.

Promises: nothing but what the machine asks for, in its order. Called by ``planner.pipelines.apply_steps``.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Generator, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Protocol

from models.apply.intents import KEYS, MANAGER, PLAN, SEAL
from models.apply.live_state import LiveNode, LivePod
from models.apply.outcomes import Verdict
from models.apply.requests import (
    AllocateDevices,
    Bind,
    CheckLock,
    ClusterRead,
    Done,
    DryRunBind,
    Event,
    EventGroup,
    Evict,
    Halt,
    LockHeld,
    NoAnswer,
    ReadCluster,
    ReadPod,
    Rejected,
    RemoveIntent,
    Request,
    RequestGroup,
    Scale,
    Ungate,
    WriteIntent,
)
from models.apply.starts import HOSTNAME, REQUIRED, can_match, required_terms, unpinnable
from planner.cluster.api_paths import core
from planner.cluster.live_view import ClusterReader, owned_annotations
from planner.cluster.scale import event_of, looked, scale
from planner.cluster.transport import JSON, STRATEGIC, ApiRequest, Reply, Transport, Tree, send_all
from planner.errors import GangplanError
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import items, objects, texts
from planner.untrusted_text import one_line


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints leave no way to the node."""


def pin(pod: LivePod, node: LiveNode) -> Tree:
    """Fields of ``spec`` for a patch: a hostname selector, else required affinity by name.

    Empty if the pod is tied to that node alone already.
    """
    why = unpinnable(pod, node)
    if why is not None:
        raise CannotPin(why)
    if node.hostname is not None:
        chosen = HOSTNAME in dict(pod.selector)
        return {} if chosen else {"nodeSelector": {HOSTNAME: node.hostname}}
    terms = _terms(required_terms(pod), node.name)
    if terms is None:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def _terms(old: list[object], node: str) -> list[object] | None:
    """Every term of the pod's own that can match, with the node's name added; None if all have it.

    Terms are alternatives, so each must name the node; a list of terms cannot grow.
    """
    ours = {"key": "metadata.name", "operator": "In", "values": [node]}
    if not old:
        return [{"matchFields": [ours]}]
    new = [
        _term(term, ours) if isinstance(term, dict) and can_match(term) else term for term in old
    ]
    return None if new == old else new


def _term(term: Tree, ours: Tree) -> Tree:
    """The term with our field added, after its own."""
    fields = items(term, "matchFields")
    return term if ours in fields else {**term, "matchFields": [*fields, ours]}


if TYPE_CHECKING:
    from models.apply.intents import SealKey
    from models.apply.live_state import ClusterView, LivePod
    from models.apply.orders import PodOrder
    from models.policy import KubernetesPolicy
    from planner.cluster.backends.base import Backend

LEAST_LEFT_S = 15.0
"""With less time left on the lock nothing more is begun: a request may take that long."""

GRACE_S = 10.0
"""So long after a signal a gang whose pods are being started may be finished."""

REREAD_S = 2.0
"""A reading this old is no ground to begin a gang on: others may have come to its nodes since."""

SHARE = 10
"""Reading again takes at most one part in so many of the time: large clusters take seconds to read."""

_TICK_S = 0.5
"""So often a wait looks at the lock and at signals."""

_PATCH = "PATCH"
_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_DRY = "&dryRun=All"


class HeldLock(Protocol):
    """The lock of ``planner.cluster.lock``, as far as it matters here."""

    @property
    def lost(self) -> str | None:
        """Why it is ours no more; None while it is."""

    @property
    def seal_key(self) -> SealKey | None:
        """What tells intents of runs from those that somebody else wrote."""

    def left_s(self) -> float:
        """Seconds that it is surely ours."""

    def renew_if_needed(self) -> None:
        """Renew it from a third of its time on."""


@dataclass(slots=True)
class RequestSender:
    """Answers requests, one at a time. ``lock`` None: nothing is locked (a dry run).

    ``stop``: set by a signal. ``dry``: every write asks the server for a dry run.
    ``clock``: seconds, of any beginning.
    """

    wire: Transport
    settings: KubernetesPolicy
    backend: Backend
    lock: HeldLock | None
    stop: threading.Event
    clock: Callable[[], float]
    sleep: Callable[[float], object]
    dry: bool = False
    reader: ClusterReader = field(init=False)
    _stopped_at: float | None = None
    _read_at: float | None = None
    _read_s: float = 0.0

    def __post_init__(self) -> None:
        self.reader = ClusterReader(self.wire, self.settings)
        self.reader.seal_key = None if self.lock is None else self.lock.seal_key

    def read_view(self) -> ClusterView:
        """Read everything. Raises UnavailableError and NotPermittedError."""
        begun = self.clock()
        view = self.reader.read_view()
        self._read_at, self._read_s = begun, self.clock() - begun
        return view

    def answer(self, request: Request) -> Event:
        """Carry out one request."""
        try:
            match request:
                case CheckLock(_, begun):
                    return self._held(begun=begun)
                case ReadCluster(after_s):
                    return self._looked_around(after_s)
                case ReadPod(namespace, name):
                    reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
                    return looked(reply, self.reader.one)
                case RequestGroup(requests):
                    return self._together(requests)
                case _:
                    return self._wrote(request)
        except (ValueError, CannotEncode) as error:
            # A name that is none, a pod that cannot be pinned: no try would change that.
            return Rejected(one_line(str(error)))

    def _together(self, requests: Sequence[WriteIntent | DryRunBind]) -> EventGroup:
        """All of them, sent without waiting for the answers between."""
        try:
            asked = [
                self._intent(one)
                if isinstance(one, WriteIntent)
                else self._binding(one.pod, dry=True)
                for one in requests
            ]
        except (ValueError, CannotEncode):
            return EventGroup(tuple(map(self.answer, requests)))  # so that each gets its own answer
        return EventGroup(tuple(event_of(one, self._shown) for one in send_all(self.wire, asked)))

    def _wrote(  # noqa: PLR0911  # one return a kind of request
        self,
        request: WriteIntent
        | RemoveIntent
        | AllocateDevices
        | DryRunBind
        | Ungate
        | Bind
        | Evict
        | Scale,
    ) -> Event:
        match request:
            case WriteIntent():
                return self._sent(self._intent(request))
            case RemoveIntent():
                return self._forgotten(request)
            case AllocateDevices():
                return self._allocated(request)
            case DryRunBind(pod):
                return self._sent(self._binding(pod, dry=True))
            case Ungate():
                return self._ungated(request)
            case Bind(pod, version):
                if self.dry and self._gated(pod):
                    return Done()  # the gate that a dry run left there is all the server could see
                return self._sent(self._binding(pod, version, dry=self.dry))
            case Evict():
                return self._evicted(request)
            case Scale():
                member = self.reader.pods.get(request.member)
                return scale(self.wire, request, member, dry=self.dry)

    def _held(self, *, begun: bool = False) -> LockHeld | Halt:
        """``begun``: a gang is half there, so a signal leaves it GRACE_S to become whole."""
        if self.stop.is_set():
            now = self.clock()
            self._stopped_at = now if self._stopped_at is None else self._stopped_at
            if not begun or now - self._stopped_at >= GRACE_S:
                return Halt("interrupted")
        if self.lock is None:
            return LockHeld(self._due())
        self.lock.renew_if_needed()
        if self.lock.lost is not None:
            return Halt(one_line(f"the lock is lost: {self.lock.lost}"), lock=True)
        if self.lock.left_s() < LEAST_LEFT_S:
            return Halt("the lock could not be renewed in time", lock=True)
        return LockHeld(self._due())

    def _due(self) -> bool:
        """Whether the last reading is too old to begin a gang on."""
        if self._read_at is None or self.dry:
            return False
        return self.clock() - self._read_at >= max(REREAD_S, SHARE * self._read_s)

    def _looked_around(self, after_s: float) -> Event:
        left = after_s
        while left > 0:
            if isinstance(held := self._held(), Halt):
                return held
            self.sleep(min(left, _TICK_S))
            left -= _TICK_S
        try:
            return ClusterRead(self.read_view())
        except GangplanError as error:
            return NoAnswer(one_line(str(error)))

    def _intent(self, request: WriteIntent) -> ApiRequest:
        order, intent = request.pod, request.intent
        tree = self.reader.pods.get(order.key, {})
        # What an earlier plan left goes; nothing else is named, for there is nothing to take off.
        left = texts(tree, "metadata", "annotations").keys() & set(KEYS)
        written: dict[str, str | None] = dict.fromkeys(sorted(left))
        written |= intent.annotations()
        seal_key = self.reader.seal_key
        if seal_key is not None:
            written[SEAL] = seal_key.seal(order.namespace, order.name, order.uid, intent)
        written |= self.backend.annotations(order, self.reader.nodes.get(order.node, {}), tree)
        metadata: Tree = {
            "uid": order.uid,
            "resourceVersion": request.version,
            "labels": dict(intent.labels()),
            "annotations": written,
        }
        return self._patch(order.namespace, order.name, {"metadata": metadata})

    def _forgotten(self, request: RemoveIntent) -> Event:
        tree = self.reader.pods.get(request.key, {})
        if self.backend.allocates and not self.dry:
            released = self.backend.release(self.wire, tree)
            if not isinstance(released, Done):
                return released
        metadata: Tree = {
            "uid": request.uid,
            "resourceVersion": request.version,
            "labels": {PLAN: None},
            "annotations": dict.fromkeys(owned_annotations(tree) or KEYS),
        }
        return self._sent(self._patch(request.namespace, request.name, {"metadata": metadata}))

    def _ungated(self, request: Ungate) -> Event:
        order, seen = request.pod, request.seen
        gone = {"$patch": "delete", "name": self.settings.scheduling_gate}
        metadata: Tree = {"uid": order.uid, "resourceVersion": seen.version}
        spec: Tree = {"schedulingGates": [gone]}
        if request.pin:
            view = self.reader.view
            node = None if view is None else view.nodes.get(order.node)
            if node is None:
                raise CannotPin(f"node {order.node} is not there")
            spec |= pin(seen, node)
        return self._sent(
            self._patch(order.namespace, order.name, {"metadata": metadata, "spec": spec})
        )

    def _binding(self, order: PodOrder, version: str | None = None, *, dry: bool) -> ApiRequest:
        metadata: Tree = {"name": order.name, "namespace": order.namespace, "uid": order.uid}
        if version is not None:
            metadata["resourceVersion"] = version
        body: Tree = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
        }
        return _asked("POST", order.namespace, order.name, body, sub="binding", dry=dry)

    def _gated(self, order: PodOrder) -> bool:
        tree = self.reader.pods.get(order.key, {})
        return bool(objects(tree, "spec", "schedulingGates"))

    def _allocated(self, request: AllocateDevices) -> Event:
        if self.dry:
            return Done()
        tree = self.reader.pods.get(request.pod.key, {})
        return self.backend.allocate(self.wire, request.pod, request.seen, tree)

    def _evicted(self, request: Evict) -> Event:
        stop = request.pod
        body: Tree = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": stop.name, "namespace": stop.namespace},
            "deleteOptions": {"preconditions": {"uid": stop.uid}},
        }
        asked = _asked("POST", stop.namespace, stop.name, body, sub="eviction", dry=self.dry)
        return event_of(self._reply(asked), lambda _: None, eviction=True)

    def _patch(self, namespace: str, name: str, body: Tree) -> ApiRequest:
        return _asked(_PATCH, namespace, name, body, dry=self.dry)

    def _sent(self, asked: ApiRequest) -> Event:
        return event_of(self._reply(asked), self._shown)

    def _reply(self, asked: ApiRequest) -> Reply:
        return self.wire.send(asked.method, asked.path, asked.body, content_type=asked.content_type)

    def _shown(self, tree: Tree) -> LivePod | None:
        """The pod of an answer; what a dry run answers with is not what is there."""
        return None if self.dry else self.reader.one(tree)


def _asked(  # as many words as such a request has
    method: str, namespace: str, name: str, body: Tree, *, dry: bool, sub: str = ""
) -> ApiRequest:
    path = core("pods", namespace=namespace, name=name, sub=sub) + _QUERY
    return ApiRequest(method, path + _DRY * dry, body, STRATEGIC if method == _PATCH else JSON)


Machine = Generator[Request, Event, Verdict]
OnEvent = Callable[[Request, Event], None]
"""Hears of every request once it is answered."""


def run_machine(machine: Machine, sender: RequestSender, on_event: OnEvent) -> Verdict:
    """Carry out everything the machine asks for; its last word."""
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
