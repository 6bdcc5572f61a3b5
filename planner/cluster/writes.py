"""Writes as the API server takes them, and their answers as events of the apply machine.

A lost answer is NoAnswer, never success. Here too: the number of pods of a controller, set through its
scale, and which of them a ReplicaSet gives up.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from models.apply.live_state import LivePod
from models.apply.plan_actions import Key, PodStop
from models.apply.requests import (
    BlockedByBudget,
    Conflict,
    Denied,
    Done,
    Event,
    Gone,
    NoAnswer,
    NotDone,
    Rejected,
    Scale,
)
from models.apply.terms import MANAGER
from planner.cluster.retry import causes, lacks_right
from planner.cluster.transport import (
    JSON,
    MERGE,
    STRATEGIC,
    ApiRequest,
    Reply,
    Transport,
    Tree,
    core,
    grouped,
    send_one,
)
from planner.read.kube.dialect_registry import scales
from planner.read.kube.lookup import mapping, objects, text, texts, whole
from planner.untrusted_text import one_line


def pod_request(
    method: str, namespace: str, name: str, body: Tree, *, dry: bool, sub: str = ""
) -> ApiRequest:
    path = core("pods", namespace=namespace, name=name, sub=sub)
    path += f"?fieldManager={MANAGER}&fieldValidation=Strict" + "&dryRun=All" * dry
    return ApiRequest(method, path, body, STRATEGIC if method == "PATCH" else JSON)


_OTHER_UID = re.compile(r"UID in (?:the )?precondition")
"""Text of the 409 of evictions for a wrong uid; a wrong version is a 409, too."""

_TWO_BUDGETS = "more than one PodDisruptionBudget"
"""Text of the 500 for a pod that several budgets cover: a retry does not help."""


def event_of(  # noqa: PLR0911  # one return a meaning
    reply: Reply, pod: Callable[[Tree], LivePod | None] = lambda _: None, *, eviction: bool = False
) -> Event:
    """The answer to a write, by its status, and by its text only where statuses are shared.

    ``pod``: reads the pod of an answer.
    """
    message = one_line(reply.message)
    match reply.status:
        case _ if reply.ok:
            kind, status = reply.body.get("kind"), reply.body.get("status")
            if kind == "Pod":
                return Done(pod(reply.body))
            evicted = kind == "Status" and status != "Failure"
            if evicted or kind in ("Scale", "Node", "ProvisioningRequest", "BindRequest"):
                return Done()
            return NoAnswer("the server's answer is neither a Pod nor its success")
        case 404:
            return Gone(message)
        case 403 if lacks_right(reply):
            return denied(reply.message)
        case 409:
            return Gone(message) if _OTHER_UID.search(reply.message) else Conflict(message)
        case 422 if any(one.get("field") == "metadata.uid" for one in causes(reply)):
            return Gone(message)  # another pod has the name
        case 429:
            return BlockedByBudget(message) if eviction else NoAnswer(message)
        case status if 400 <= status < 500 or (eviction and _TWO_BUDGETS in reply.message):
            return Rejected(message)
        case _:
            return NoAnswer(message)


def denied(message: str) -> Denied:
    return Denied(one_line(f"not permitted: {message}"))


_MAX_OWNERS = 3
_MARK_TRIES = 3

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
        found = event_of(reply)
        return Rejected(found.message) if isinstance(found, Gone) else found
    now = whole(reply.body, "spec", "replicas") or 0
    if now == resize.after:
        return Done()
    # It may count more pods than the plan: those beyond the range, and those not created yet.
    shrinks = resize.after < resize.before
    if not (now > resize.after if shrinks else resize.before <= now < resize.after):
        return Rejected(f"its scale is {now:,}, the plan saw {resize.before:,}")
    marks = _Marks(wire, pods, dry=dry)
    if (
        shrinks and _controller(member).get("kind") == "ReplicaSet"
    ):  # it chooses by an order of its own
        failure = marks.write(member, request.going)
        if failure is not None:
            return failure
    body: Tree = {
        "metadata": {"resourceVersion": text(reply.body, "metadata", "resourceVersion")},
        "spec": {"replicas": resize.after},
    }
    query = f"?fieldManager={MANAGER}" + "&dryRun=All" * dry
    reply = wire.send("PATCH", path + "/scale" + query, body, content_type=MERGE)
    event = event_of(reply)
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
        owner, leaving = _controller(member).get("uid"), {stop.key for stop in going}
        namespace = text(member, "metadata", "namespace")
        for key, pod in sorted(self.pods.items(), key=lambda one: one[0]):
            if key[0] != namespace or _controller(pod).get("uid") != owner:
                continue
            cost = texts(pod, "metadata", "annotations").get(COST)
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
            sent = pod_request("PATCH", *key, body, dry=self.dry)
            event = event_of(send_one(self.wire, sent))
            if not isinstance(event, Conflict):
                break
            reply = self.wire.send("GET", core("pods", namespace=key[0], name=key[1]))
            found = mapping(reply.body, "metadata")
            if not reply.ok or found.get("uid") != metadata.get("uid"):
                return Gone("is gone") if reply.ok or reply.status == 404 else event
            metadata = found
        return event


def _controller(tree: Tree) -> Tree:
    """The reference to its controller; {} without one."""
    owners = objects(tree, "metadata", "ownerReferences")
    return next((one for one in owners if one.get("controller")), {})


def _owner(wire: Transport, tree: Tree, namespace: str, role: str) -> str | None:
    """The path of the topmost controller with a scale."""
    found = None
    for _ in range(_MAX_OWNERS):
        owner = _controller(tree)
        group, _, version = (text(owner, "apiVersion") or "").rpartition("/")
        kind, name = text(owner, "kind") or "", text(owner, "name") or ""
        scale = scales().get((group, kind))
        if scale is None or (scale.role or role).lower() != role.lower():
            return None if owner else found  # a controller above it would revert the number
        found = grouped(group, version, scale.plural, namespace=namespace, name=name)
        reply = wire.send("GET", found)
        if not reply.ok or mapping(reply.body, "metadata").get("uid") != owner.get("uid"):
            return None
        tree = reply.body
    return found
