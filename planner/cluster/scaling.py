"""The number of pods of a role, set through the scale subresource of the controller that owns them.

Promises: only where that number is the role's own and still what the plan saw; everything else is
Refused, and becomes advice. Called by ``planner.cluster.sending``.
"""

from __future__ import annotations

from models.applying.asking import Done, Event, Gone, Refused, Scale
from models.applying.intents import MANAGER
from planner.cluster.events import event_of
from planner.cluster.paths import grouped
from planner.cluster.wire import MERGE, Tree, Wire
from planner.reading.kubernetes.looking import mapping, objects, text, whole

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


def scale(wire: Wire, request: Scale, member: Tree | None, *, dry: bool = False) -> Event:
    """Set the scale. ``member``: the tree of a pod of the role."""
    resize, namespace = request.resize, request.member[0]
    path = _owner(wire, member or {}, namespace, resize.role)
    if path is None:
        return Refused("its controller has no scale field for this role")
    reply = wire.send("GET", path + "/scale")
    if not reply.ok:
        found = event_of(reply, lambda _: None)
        return Refused(found.message) if isinstance(found, Gone) else found
    now = whole(reply.body, "spec", "replicas") or 0
    if now == resize.after:
        return Done()
    if now != resize.before:
        return Refused(f"its scale is {now:,}, the plan saw {resize.before:,}")
    body: Tree = {
        "metadata": {"resourceVersion": text(reply.body, "metadata", "resourceVersion")},
        "spec": {"replicas": resize.after},
    }
    query = f"?fieldManager={MANAGER}" + "&dryRun=All" * dry
    reply = wire.send("PATCH", path + "/scale" + query, body, content_type=MERGE)
    return event_of(reply, lambda _: None)


def _owner(wire: Wire, tree: Tree, namespace: str, role: str) -> str | None:
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
