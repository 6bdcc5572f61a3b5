"""The requests of the apply machine as HTTP requests to the API server, and the answers as events.

Every write carries the uid, and the version if the machine knows one. A lost answer is NoAnswer, never
success. Sends what the machine asks for, in its order, and nothing else.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Protocol

from models.apply.intents import KEYS, MANAGER, PIN, PLAN, SEAL, read_intent
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
    Denied,
    Done,
    DryRunBind,
    Event,
    EventGroup,
    Evict,
    Gone,
    Halt,
    LockHeld,
    NoAnswer,
    NotDone,
    ReadCluster,
    ReadPod,
    Rejected,
    Remember,
    RemoveIntent,
    Request,
    RequestGroup,
    Scale,
    Single,
    Ungate,
    WriteIntent,
)
from models.apply.starts import HOSTNAME, REQUIRED, can_match, required_terms, unpinnable
from planner.cluster.api_paths import core, grouped
from planner.cluster.live_view import ClusterReader, is_ours, owned_annotations
from planner.cluster.retry import lacks_right
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
from planner.errors import GangplanError, NotPermittedError
from planner.read.kube.dialects.base import CannotEncode
from planner.read.kube.lookup import items, mapping, objects, text, texts, whole
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from models.apply.intents import Intent, SealKey
    from models.apply.live_state import ClusterView
    from models.apply.notes import RunNotes
    from models.apply.plan_actions import Key, PodStart, PodStop
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

    @property
    def notes(self) -> RunNotes:
        """What runs leave to later ones."""

    def now(self) -> int:
        """The server's clock, in seconds since the epoch."""

    def remember(self, notes: RunNotes) -> bool:
        """Write these notes in place of the others; whether they are there."""

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
        if self.lock is not None:
            view = replace(view, notes=self.lock.notes, now=self.lock.now())
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
                case WriteIntent() | DryRunBind() | Ungate() | Bind():
                    made = self._made(request)
                    return self._send(made) if isinstance(made, ApiRequest) else made
                case RemoveIntent():
                    return self._remove_intent(request)
                case AllocateDevices(pod, seen):
                    if self.dry:
                        return Done()
                    tree = self.reader.pods.get(pod.key, {})
                    return self.backend.allocate(self.wire, pod, seen, tree)
                case ChooseNode():
                    return self._choose_node(request)
                case Evict():
                    return self._evict(request)
                case Remember(notes):
                    return self._remember(notes)
                case Scale():
                    return scale(self.wire, request, self.reader.pods, dry=self.dry)
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
        except NotPermittedError as error:
            return _denied(str(error))
        except GangplanError as error:
            return NoAnswer(one_line(str(error)))

    def _read_pod(self, namespace: str, name: str) -> Done | Gone | Denied | NoAnswer:
        reply = self.wire.send("GET", core("pods", namespace=namespace, name=name))
        if reply.ok and (pod := self.reader.one(reply.body)) is not None:
            return Done(pod)
        if reply.status in {401, 403}:
            return _denied(reply.message)
        message = one_line(reply.message)
        return Gone(message) if reply.status == 404 else NoAnswer(message)

    # ---- writes

    def _send_group(self, requests: Sequence[Single]) -> EventGroup:
        events: dict[int, Event] = {}
        sent: dict[int, ApiRequest] = {}
        for number, request in enumerate(requests):
            made = self._made(request)
            if isinstance(made, ApiRequest):
                sent[number] = made
            else:
                events[number] = made
        replies = send_all(self.wire, list(sent.values()))
        for number, reply in zip(sent, replies, strict=True):
            events[number] = event_of(reply, self._pod_of)
        return EventGroup(tuple(events[number] for number in range(len(requests))))

    def _made(self, request: Single) -> ApiRequest | Event:
        """What to send, or the event where nothing is sent."""
        try:
            match request:
                case WriteIntent(pod, intent, version):
                    metadata = self._intent(pod, intent, version)
                    return self._patch(pod.namespace, pod.name, {"metadata": metadata})
                case DryRunBind(pod):
                    return self._binding(pod, dry=True)
                case Ungate():
                    return self._ungating(request)
                case Bind(pod, version):
                    gates = objects(self.reader.pods.get(pod.key, {}), "spec", "schedulingGates")
                    if self.dry and gates:
                        # the server would only object to the gate that a dry run left
                        return Done()
                    return self._binding(pod, version, dry=self.dry)
        except (ValueError, CannotEncode) as error:
            # An invalid name or a pod that cannot be pinned: a retry does not help.
            return Rejected(one_line(str(error)))

    def _intent(self, order: PodStart, intent: Intent, version: str) -> Tree:
        """The metadata of a patch that writes an intent."""
        tree = self.reader.pods.get(order.key, {})
        # Annotations of an earlier plan are removed in the same patch.
        old = texts(tree, "metadata", "annotations").keys() & set(KEYS)
        written: dict[str, str | None] = dict.fromkeys(sorted(old))
        before = read_intent(
            texts(tree, "metadata", "labels"), texts(tree, "metadata", "annotations")
        )
        key = self.reader.seal_key
        same = before is not None and intent.matches(before) and is_ours(tree, before, key)
        if same and before is not None and not intent.pin:
            intent = replace(intent, pin=before.pin)  # a pod that is pinned already
        written |= intent.annotations() | self._seal(order, intent)
        written |= self.backend.annotations(order, self.reader.nodes.get(order.node, {}), tree)
        return {
            "uid": order.uid,
            "resourceVersion": version,
            "labels": dict(intent.labels()),
            "annotations": written,
        }

    def _seal(self, order: PodStart, intent: Intent) -> dict[str, str]:
        key = self.reader.seal_key
        if key is None:
            return {}
        return {SEAL: key.seal(order.namespace, order.name, order.uid, intent)}

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
        spec: Tree = {"schedulingGates": [gate]}
        intent = pod.intent if request.intent is None else request.intent
        if request.pin:
            view = self.reader.view
            node = None if view is None else view.nodes.get(order.node)
            if node is None:
                raise CannotPin(f"node {order.node} does not exist")
            added = pin(pod, node)
            spec |= added
            if intent is not None and request.record:
                intent = replace(intent, pin=pin_record(pod, added))
        metadata: Tree = {"uid": order.uid, "resourceVersion": pod.version}
        if intent is not None and request.intent is not None:
            metadata = self._intent(order, intent, pod.version)
        elif intent is not None and intent.pin:
            metadata["annotations"] = {PIN: intent.pin, **self._seal(order, intent)}
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

    def _remember(self, notes: RunNotes) -> Done | NoAnswer:
        if self.dry or self.lock is None or self.lock.remember(notes):
            return Done()
        return NoAnswer(one_line(f"the lock cannot be written: {self.lock.lost or 'no answer'}"))

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


def pin_record(pod: LivePod, added: Tree) -> str:
    """``Intent.pin`` of a pod. ``added``: what ``pin`` adds to its spec."""
    if "affinity" not in added:
        return "hostname" if added else "none"
    terms = added["affinity"]["nodeAffinity"][REQUIRED]["nodeSelectorTerms"]
    old = required_terms(pod) or [None]
    changed = [i for i, pair in enumerate(zip(old, terms, strict=True)) if pair[0] != pair[1]]
    return f"terms {' '.join(map(str, changed))}"


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
        case 403 if lacks_right(reply):
            return _denied(reply.message)
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


def _denied(message: str) -> Denied:
    return Denied(one_line(f"not permitted: {message}"))


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


COST = "controller.kubernetes.io/pod-deletion-cost"
GOES_FIRST = str(-(2**31))
"""The least cost that Kubernetes accepts."""


def scale(wire: Transport, request: Scale, pods: Mapping[Key, Tree], *, dry: bool = False) -> Event:
    """Set the scale unless another client went beyond what the plan saw. ``pods``: as last read.

    A ReplicaSet that shrinks removes the pods that are marked for that, after those that do not run; the
    others remove the highest indices.
    """
    resize, member = request.resize, pods.get(request.member, {})
    path = _owner(wire, member, request.member[0], resize.role)
    if path is None:
        return Rejected("its controller has no scale field for this role")
    reply = wire.send("GET", path + "/scale")
    if not reply.ok:
        found = event_of(reply, lambda _: None)
        return Rejected(found.message) if isinstance(found, Gone) else found
    now = whole(reply.body, "spec", "replicas") or 0
    if now == resize.after:
        return Done()
    # It may count more pods than the plan: those beyond the range, and those not created yet.
    shrinks = resize.after < resize.before
    if not (now > resize.after if shrinks else resize.before <= now < resize.after):
        return Rejected(f"its scale is {now:,}, the plan saw {resize.before:,}")
    marks = _Marks(wire, pods, dry=dry)
    if shrinks and _is_of_set(member):
        failure = marks.write(member, request.going)
        if failure is not None:
            return failure
    body: Tree = {
        "metadata": {"resourceVersion": text(reply.body, "metadata", "resourceVersion")},
        "spec": {"replicas": resize.after},
    }
    query = f"?fieldManager={MANAGER}" + "&dryRun=All" * dry
    reply = wire.send("PATCH", path + "/scale" + query, body, content_type=MERGE)
    event = event_of(reply, lambda _: None)
    if isinstance(event, Rejected):
        marks.take_back()
    return event


@dataclass(slots=True)
class _Marks:
    """The pods of a ReplicaSet that are to go first, marked by their deletion cost.

    ``written``: those marked here, with the cost that they had.
    """

    wire: Transport
    pods: Mapping[Key, Tree]
    dry: bool
    written: list[tuple[Key, str | None]] = field(default_factory=list)

    def write(self, member: Tree, going: Sequence[PodStop]) -> NotDone | None:
        """Mark these pods and no others of the set: a run that was cut off may have marked some."""
        owner, leaving = _controller(member), {stop.key for stop in going}
        namespace = text(member, "metadata", "namespace")
        own = [
            key for key in self.pods if key[0] == namespace and _controller(self.pods[key]) == owner
        ]
        for key in sorted(own):
            cost = texts(self.pods[key], "metadata", "annotations").get(COST)
            wanted = GOES_FIRST if key in leaving else None
            if (cost == GOES_FIRST) == (wanted is not None):
                continue
            event = self._set(key, wanted)
            if isinstance(event, Gone):
                continue
            if isinstance(event, NotDone):
                self.take_back()
                what = f"pod {key[1]} cannot be marked as the one to go: {event.message}"
                return Rejected(what) if isinstance(event, Rejected) else event
            if wanted is not None:
                self.written.append((key, cost))
        return None

    def take_back(self) -> None:
        """Give the marked pods their former cost; what fails does no harm before the next shrinking."""
        for key, cost in self.written:
            self._set(key, cost)

    def _set(self, key: Key, cost: str | None) -> Event:
        """Set the cost of the pod that was read; again if the server has a newer version of it."""
        metadata = mapping(self.pods[key], "metadata")
        event: Event = NoAnswer("")
        for _ in range(_MARK_TRIES):
            body: Tree = {
                "metadata": {
                    "uid": text(metadata, "uid"),
                    "resourceVersion": text(metadata, "resourceVersion"),
                    "annotations": {COST: cost},
                }
            }
            sent = _pod_request("PATCH", *key, body, dry=self.dry)
            event = event_of(
                self.wire.send(sent.method, sent.path, sent.body, content_type=sent.content_type),
                lambda _: None,
            )
            if not isinstance(event, Conflict):
                break
            reply = self.wire.send("GET", core("pods", namespace=key[0], name=key[1]))
            found = mapping(reply.body, "metadata")
            if not reply.ok or found.get("uid") != metadata.get("uid"):
                return Gone("is gone") if reply.ok or reply.status == 404 else event
            metadata = found
        return event


_MARK_TRIES = 3


def _controller(tree: Tree) -> str | None:
    """The uid of its controller."""
    owners = objects(tree, "metadata", "ownerReferences")
    return next((text(one, "uid") for one in owners if one.get("controller")), None)


def _is_of_set(tree: Tree) -> bool:
    """Whether a ReplicaSet made the pod, which removes pods in an order of its own."""
    owners = objects(tree, "metadata", "ownerReferences")
    return any(one.get("controller") and one.get("kind") == "ReplicaSet" for one in owners)


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
