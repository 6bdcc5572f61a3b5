"""The requests of the apply machine as HTTP requests to the API server, and the answers as events.

Every write carries the uid, and the version if the machine knows one. A lost answer is NoAnswer, never
success. Sends what the machine asks for, in its order, and nothing else.
"""

from __future__ import annotations

import re
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
    BlockedByBudget,
    CheckLock,
    ChooseNode,
    ClusterRead,
    Conflict,
    Done,
    DryRunBind,
    Event,
    EventGroup,
    Evict,
    Gone,
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
from planner.cluster.api_paths import core, grouped
from planner.cluster.live_view import ClusterReader, owned_annotations
from planner.cluster.transport import (
    JSON,
    MERGE,
    STRATEGIC,
    ApiRequest,
    Reply,
    Transport,
    Tree,
    send_all,
)
from planner.cluster.volume_nodes import choose_node
from planner.errors import GangplanError
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import items, mapping, objects, text, texts, whole
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.intents import SealKey
    from models.apply.live_state import ClusterView
    from models.apply.plan_actions import PodStart
    from models.policy import KubernetesPolicy
    from planner.cluster.backends.base import Backend

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

_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_DRY = "&dryRun=All"

OnEvent = Callable[[Request, Event], None]
"""Receives every request with its answer."""


class HeldLock(Protocol):
    """The part of ``planner.cluster.lock.Lock`` that matters here."""

    @property
    def lost(self) -> str | None:
        """Why it is lost; None while it is held."""

    @property
    def seal_key(self) -> SealKey | None:
        """Key of the seals on intents."""

    def left_s(self) -> float:
        """Seconds for which it is certainly held."""

    def renew_if_needed(self) -> None:
        """Renew it if that is due."""


@dataclass(slots=True)
class RequestSender:
    """Answers requests of the apply machine, one at a time.

    ``lock``: None in a dry run. ``stop``: set by a signal. ``dry``: every write is a server-side dry run.
    ``clock``: monotonic seconds.
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

    def answer(self, request: Request) -> Event:  # noqa: C901, PLR0911, PLR0912  # a case a request
        """Send one request; its event."""
        try:
            match request:
                case CheckLock(_, begun):
                    return self._check_lock(begun=begun)
                case ReadCluster(after_s):
                    return self._read_cluster(after_s)
                case ReadPod(namespace, name):
                    return self._read_pod(namespace, name)
                case RequestGroup(requests):
                    return self._send_group(requests)
                case WriteIntent():
                    return self._send(self._intent(request))
                case RemoveIntent():
                    return self._remove_intent(request)
                case AllocateDevices(pod, seen):
                    if self.dry:
                        return Done()
                    tree = self.reader.pods.get(pod.key, {})
                    return self.backend.allocate(self.wire, pod, seen, tree)
                case ChooseNode():
                    return self._choose_node(request)
                case DryRunBind(pod):
                    return self._send(self._binding(pod, dry=True))
                case Ungate():
                    return self._send(self._ungating(request))
                case Bind(pod, version):
                    gates = objects(self.reader.pods.get(pod.key, {}), "spec", "schedulingGates")
                    if self.dry and gates:
                        return (
                            Done()
                        )  # the server would only object to the gate that a dry run left
                    return self._send(self._binding(pod, version, dry=self.dry))
                case Evict():
                    return self._evict(request)
                case Scale(member=member):
                    return scale(self.wire, request, self.reader.pods.get(member), dry=self.dry)
        except (ValueError, CannotEncode) as error:
            # An invalid name or a pod that cannot be pinned: a retry does not help.
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
        except GangplanError as error:
            return NoAnswer(one_line(str(error)))

    def _read_pod(self, namespace: str, name: str) -> Done | Gone | NoAnswer:
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        if reply.ok and (pod := self.reader.one(reply.body)) is not None:
            return Done(pod)
        message = one_line(reply.message)
        return Gone(message) if reply.status == 404 else NoAnswer(message)

    # ---- writes

    def _send_group(self, requests: Sequence[WriteIntent | DryRunBind]) -> EventGroup:
        try:
            sent = [
                self._intent(one)
                if isinstance(one, WriteIntent)
                else self._binding(one.pod, dry=True)
                for one in requests
            ]
        except (ValueError, CannotEncode):
            return EventGroup(tuple(map(self.answer, requests)))  # so that each gets its own answer
        return EventGroup(tuple(event_of(one, self._pod_of) for one in send_all(self.wire, sent)))

    def _intent(self, request: WriteIntent) -> ApiRequest:
        order, intent = request.pod, request.intent
        tree = self.reader.pods.get(order.key, {})
        # Annotations of an earlier plan are removed in the same patch.
        old = texts(tree, "metadata", "annotations").keys() & set(KEYS)
        written: dict[str, str | None] = dict.fromkeys(sorted(old))
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

    def _remove_intent(self, request: RemoveIntent) -> Event:
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
        return self._send(self._patch(request.namespace, request.name, {"metadata": metadata}))

    def _ungating(self, request: Ungate) -> ApiRequest:
        order, pod = request.pod, request.seen
        gate = {"$patch": "delete", "name": self.settings.scheduling_gate}
        metadata: Tree = {"uid": order.uid, "resourceVersion": pod.version}
        spec: Tree = {"schedulingGates": [gate]}
        if request.pin:
            view = self.reader.view
            node = None if view is None else view.nodes.get(order.node)
            if node is None:
                raise CannotPin(f"node {order.node} does not exist")
            spec |= pin(pod, node)
        return self._patch(order.namespace, order.name, {"metadata": metadata, "spec": spec})

    def _binding(self, order: PodStart, version: str | None = None, *, dry: bool) -> ApiRequest:
        metadata: Tree = {"name": order.name, "namespace": order.namespace, "uid": order.uid}
        if version is not None:
            metadata["resourceVersion"] = version
        body: Tree = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": metadata,
            "target": {"apiVersion": "v1", "kind": "Node", "name": order.node},
        }
        return _pod_request("POST", order.namespace, order.name, body, sub="binding", dry=dry)

    def _choose_node(self, request: ChooseNode) -> Event:
        order, view = request.pod, self.reader.view
        node = None if view is None else view.nodes.get(order.node)
        labels = {} if node is None else dict(node.labels)
        query = None if request.check else _QUERY + _DRY * self.dry
        return choose_node(
            self.wire, order, request.claims, labels, request.nodes, query, binds=request.binds
        )

    def _evict(self, request: Evict) -> Event:
        stop = request.pod
        body: Tree = {
            "apiVersion": "policy/v1",
            "kind": "Eviction",
            "metadata": {"name": stop.name, "namespace": stop.namespace},
            "deleteOptions": {"preconditions": {"uid": stop.uid}},
        }
        sent = _pod_request("POST", stop.namespace, stop.name, body, sub="eviction", dry=self.dry)
        return event_of(self._reply(sent), lambda _: None, eviction=True)

    def _patch(self, namespace: str, name: str, body: Tree) -> ApiRequest:
        return _pod_request("PATCH", namespace, name, body, dry=self.dry)

    def _send(self, request: ApiRequest) -> Event:
        return event_of(self._reply(request), self._pod_of)

    def _reply(self, request: ApiRequest) -> Reply:
        return self.wire.send(
            request.method, request.path, request.body, content_type=request.content_type
        )

    def _pod_of(self, tree: Tree) -> LivePod | None:
        """The pod in an answer; a dry run does not show the pod as it is."""
        return None if self.dry else self.reader.one(tree)


def _pod_request(  # as many arguments as such a request has
    method: str, namespace: str, name: str, body: Tree, *, dry: bool, sub: str = ""
) -> ApiRequest:
    path = core("pods", namespace=namespace, name=name, sub=sub) + _QUERY
    return ApiRequest(method, path + _DRY * dry, body, STRATEGIC if method == "PATCH" else JSON)


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


# ---- pinning


class CannotPin(ValueError):  # noqa: N818  # an answer, not a failure of ours
    """The pod's own constraints exclude the node."""


def pin(pod: LivePod, node: LiveNode) -> Tree:
    """Fields of ``spec`` that pin a gated pod: a hostname selector, else node affinity by name.

    The API server only accepts additions to a gated pod. Empty if the pod is limited to that node already.
    """
    why = unpinnable(pod, node)
    if why is not None:
        raise CannotPin(why)
    if node.hostname is not None:
        selected = HOSTNAME in dict(pod.selector)
        return {} if selected else {"nodeSelector": {HOSTNAME: node.hostname}}
    field = {"key": "metadata.name", "operator": "In", "values": [node.name]}
    old = required_terms(pod)
    # Terms are alternatives, and none may be added: each that can match has to name the node.
    terms = [
        _with_field(term, field) if isinstance(term, dict) and can_match(term) else term
        for term in old
    ] or [{"matchFields": [field]}]
    if terms == old:
        return {}
    return {"affinity": {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}}


def _with_field(term: Tree, field: Tree) -> Tree:
    fields = items(term, "matchFields")
    return term if field in fields else {**term, "matchFields": [*fields, field]}


# ---- answers


_OTHER_UID = re.compile(r"UID in (?:the )?precondition")
"""Text of the 409 of bindings and evictions for a wrong uid; a wrong version is a 409, too."""

_TWO_BUDGETS = "more than one PodDisruptionBudget"
"""Text of the 500 for a pod that several budgets cover: a retry does not help."""


def event_of(  # noqa: PLR0911  # one return a meaning
    reply: Reply, pod: Callable[[Tree], LivePod | None], *, eviction: bool = False
) -> Event:
    """The answer to a write, by its status, and by its text only where statuses are shared.

    ``pod``: reads the pod of an answer.
    """
    message = one_line(reply.message)
    match reply.status:
        case _ if reply.ok:
            return _done(reply.body, pod)
        case 404:
            return Gone(message)
        case 409:
            return Gone(message) if _OTHER_UID.search(reply.message) else Conflict(message)
        case 422 if _about_uid(reply.body):
            return Gone(message)
        case 429:
            return BlockedByBudget(message) if eviction else NoAnswer(message)
        case status if 400 <= status < 500 or (eviction and _TWO_BUDGETS in reply.message):
            return Rejected(message)
        case _:
            return NoAnswer(message)


def _done(body: Tree, pod: Callable[[Tree], LivePod | None]) -> Done | NoAnswer:
    """A pod, a scale, or the Status of bindings and evictions; anything else is no success."""
    match body.get("kind"):
        case "Pod":
            return Done(pod(body))
        case "Scale":
            return Done()
        case "Status" if body.get("status") != "Failure":
            return Done()
    return NoAnswer("the server's answer is neither a Pod nor its success")


def _about_uid(body: Tree) -> bool:
    """Whether a 422 is about another pod with the same name."""
    causes = objects(body, "details", "causes")
    return any(cause.get("field") == "metadata.uid" for cause in causes)


# ---- scaling


_PLURALS = {
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
}
"""Controllers whose scale counts pods; that of a LeaderWorkerSet counts groups."""

_WORKERS = {"PyTorchJob": "worker"}
"""For controllers with several roles, the role that the scale is about."""

_MAX_OWNERS = 3


def scale(wire: Transport, request: Scale, member: Tree | None, *, dry: bool = False) -> Event:
    """Set the scale if it still is what the plan saw. ``member``: a pod of the role."""
    resize, namespace = request.resize, request.member[0]
    path = _owner(wire, member or {}, namespace, resize.role)
    if path is None:
        return Rejected("its controller has no scale field for this role")
    reply = wire.send("GET", path + "/scale")
    if not reply.ok:
        found = event_of(reply, lambda _: None)
        return Rejected(found.message) if isinstance(found, Gone) else found
    now = whole(reply.body, "spec", "replicas") or 0
    if now == resize.after:
        return Done()
    if now != resize.before:
        return Rejected(f"its scale is {now:,}, the plan saw {resize.before:,}")
    body: Tree = {
        "metadata": {"resourceVersion": text(reply.body, "metadata", "resourceVersion")},
        "spec": {"replicas": resize.after},
    }
    query = f"?fieldManager={MANAGER}" + "&dryRun=All" * dry
    reply = wire.send("PATCH", path + "/scale" + query, body, content_type=MERGE)
    return event_of(reply, lambda _: None)


def _owner(wire: Transport, tree: Tree, namespace: str, role: str) -> str | None:
    """The path of the topmost controller with a scale."""
    found = None
    for _ in range(_MAX_OWNERS):
        owner = next(
            (one for one in objects(tree, "metadata", "ownerReferences") if one.get("controller")),
            {},
        )
        group, _, version = (text(owner, "apiVersion") or "").rpartition("/")
        kind, name = text(owner, "kind") or "", text(owner, "name") or ""
        plural = _PLURALS.get((group, kind))
        if plural is None or _WORKERS.get(kind, role).lower() != role.lower():
            return None if owner else found  # a controller above it would revert the number
        found = grouped(group, version, plural, namespace=namespace, name=name)
        reply = wire.send("GET", found)
        if not reply.ok or mapping(reply.body, "metadata").get("uid") != owner.get("uid"):
            return None
        tree = reply.body
    return found
