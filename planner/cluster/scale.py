"""What the answer of the API server means to the machine.

Promises: pure; told apart by status, and by the server's words only where the status is shared.
Called by ``sending`` and the GPU back ends.

The number of pods of a role, set through the scale subresource of the controller that owns them.

Promises: only where that number is the role's own and still what the plan saw; everything else is
Refused, and becomes advice. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

import re
from collections.abc import Callable

from models.apply.intents import MANAGER
from models.apply.live_state import LivePod
from models.apply.requests import (
    BlockedByBudget,
    Conflict,
    Done,
    Event,
    Gone,
    NoAnswer,
    Rejected,
    Scale,
)
from planner.cluster.api_paths import grouped
from planner.cluster.transport import MERGE, Reply, Transport, Tree
from planner.read.kube.lookup import mapping, objects, text, whole
from planner.untrusted_text import one_line

_OTHER_UID = re.compile(r"UID in (?:the )?precondition")
"""Words of the 409 that a wrong uid gets from bindings and evictions, which a wrong version gets, too."""

_TWO_BUDGETS = "more than one PodDisruptionBudget"
"""Words of the 500 for a pod that several budgets cover: no later try would do."""


def event_of(  # noqa: PLR0911  # one return a meaning
    reply: Reply, pod: Callable[[Tree], LivePod | None], *, eviction: bool = False
) -> Event:
    """The answer to a write. ``pod``: reads the pod that an answer may hold."""
    said = one_line(reply.message)
    match reply.status:
        case _ if reply.ok:
            return _done(reply.body, pod)
        case 404:
            return Gone(said)
        case 409:
            return Gone(said) if _OTHER_UID.search(reply.message) else Conflict(said)
        case 422 if _about_uid(reply.body):
            return Gone(said)
        case 429:
            return BlockedByBudget(said) if eviction else NoAnswer(said)
        case status if 400 <= status < 500 or (eviction and _TWO_BUDGETS in reply.message):
            return Rejected(said)
        case _:
            return NoAnswer(said)


def _done(body: Tree, pod: Callable[[Tree], LivePod | None]) -> Done | NoAnswer:
    """A pod, a scale, or the Status that bindings and evictions are answered with; nothing else is a yes."""
    match body.get("kind"):
        case "Pod":
            return Done(pod(body))
        case "Scale":
            return Done()
        case "Status" if body.get("status") != "Failure":
            return Done()
    return NoAnswer("the server's answer is neither a Pod nor its success")


def looked(reply: Reply, pod: Callable[[Tree], LivePod | None]) -> Done | Gone | NoAnswer:
    """The answer to reading one pod."""
    if reply.ok and (seen := pod(reply.body)) is not None:
        return Done(seen)
    said = one_line(reply.message)
    return Gone(said) if reply.status == 404 else NoAnswer(said)


def _about_uid(body: Tree) -> bool:
    """Whether a 422 says that another pod stands under the name."""
    causes = objects(body, "details", "causes")
    return any(cause.get("field") == "metadata.uid" for cause in causes)


_PLURALS = {
    ("apps", "StatefulSet"): "statefulsets",
    ("apps", "ReplicaSet"): "replicasets",
    ("apps", "Deployment"): "deployments",
    ("kubeflow.org", "PyTorchJob"): "pytorchjobs",
}
"""Controllers whose scale is a number of pods; that of a LeaderWorkerSet is a number of groups."""

_WORKERS = {"PyTorchJob": "worker"}
"""Of controllers with several roles, the one that the scale is about."""

_MOST_OWNERS = 3


def scale(wire: Transport, request: Scale, member: Tree | None, *, dry: bool = False) -> Event:
    """Set the scale. ``member``: the tree of a pod of the role."""
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
    """The path of the topmost controller with a scale; None without one."""
    found = None
    for _ in range(_MOST_OWNERS):
        owner = next(
            (one for one in objects(tree, "metadata", "ownerReferences") if one.get("controller")),
            {},
        )
        group, _, version = (text(owner, "apiVersion") or "").rpartition("/")
        kind, name = text(owner, "kind") or "", text(owner, "name") or ""
        plural = _PLURALS.get((group, kind))
        if plural is None or _WORKERS.get(kind, role).lower() != role.lower():
            return None if owner else found  # who is above it would set the number back
        found = grouped(group, version, plural, namespace=namespace, name=name)
        reply = wire.send("GET", found)
        if not reply.ok or mapping(reply.body, "metadata").get("uid") != owner.get("uid"):
            return None
        tree = reply.body
    return found
