"""The back end ``kai``: pods of KAI Scheduler are bound by KAI's binder, each by a BindRequest.

The name is the lock: KAI names them after their pods, too, and none is overwritten. The binder looks
neither at room nor at gangs, and cannot bind a pod with a gate: gates go once all requests are there.
Read in the source of KAI 0.17, whose internal contract this is.
"""

from __future__ import annotations

from dataclasses import replace

from models.apply.live_state import LivePod
from models.apply.plan_actions import PodStart
from models.apply.requests import Conflict, Done, Event, Gone, Rejected
from models.apply.terms import MANAGER
from planner.cluster.backends.base import Backend
from planner.cluster.pages import is_served
from planner.cluster.transport import Reply, Right, Transport, Tree, grouped
from planner.cluster.writes import event_of
from planner.read.kube.lookup import mapping, objects, text, texts

GROUP, VERSION, PLURAL = "scheduling.run.ai", "v1alpha2", "bindrequests"
SCHEDULER = "kai-scheduler"

BINDING = Right("get", GROUP, PLURAL)
"""To have pods bound by KAI."""

OURS = {"app.kubernetes.io/managed-by": MANAGER}

BACKOFF_LIMIT = 1000
"""Tries of the binder: those before the gates are gone fail."""

_QUERY = f"?fieldManager={MANAGER}&fieldValidation=Strict"
_UNSERVED = f"this cluster does not serve {GROUP}/{VERSION} {PLURAL}"


class Kai(Backend):
    """Asks KAI's binder to bind pods of KAI where the plan has them; other pods are only pinned."""

    name = "kai"
    note = (
        f"pods of {SCHEDULER} are bound by KAI's binder, by a BindRequest each; "
        "the node chooses which of its GPUs a pod gets"
    )

    install = "install KAI 0.17"
    asked = (replace(BINDING, verb="list"),)

    def rights(self, namespace: str | None) -> list[Right]:
        binding = replace(BINDING, namespace=namespace)
        return [binding, *(replace(binding, verb=one) for one in ("create", "delete"))]

    def unserved(self, wire: Transport) -> str | None:
        return None if is_served(wire, GROUP, VERSION, PLURAL) else _UNSERVED

    def allocate(self, wire: Transport, order: PodStart, seen: LivePod, pod_tree: Tree) -> Event:
        """Create the request of the pod; one of an earlier plan of ours is deleted first."""
        if seen.scheduler != SCHEDULER:
            return Done()
        if order.parted:
            return Rejected("it asks for a part of a GPU, and only KAI chooses the GPU of a part")
        if text(pod_tree, "metadata", "uid") != order.uid:
            return Gone("another pod has its name")
        wanted = _request(order)
        reply = wire.send("POST", _path(order.namespace) + _QUERY, wanted)
        if reply.status == 409:
            return _settled(wire, _path(order.namespace, order.name), wanted)
        return Rejected(_UNSERVED) if reply.status == 404 else event_of(reply)

    def release(self, wire: Transport, pod_tree: Tree) -> Event:
        """Delete the request of the pod if it is ours."""
        if text(pod_tree, "spec", "schedulerName") != SCHEDULER:
            return Done()
        path = _path(*(text(pod_tree, "metadata", one) or "" for one in ("namespace", "name")))
        there = wire.send("GET", path)
        if there.status == 404 or (there.ok and not _ours(there.body)):
            return Done()
        return _deleted(wire, path, there) if there.ok else event_of(there)


def _settled(wire: Transport, path: str, wanted: Tree) -> Event:
    """Whether the request that has the name is the one that is wanted; if ours was not, it is deleted."""
    there = wire.send("GET", path)
    if not there.ok:
        return Conflict("its BindRequest went") if there.status == 404 else event_of(there)
    if not _ours(there.body):
        return Rejected("there is a BindRequest of its name that is not gangplan's")
    if _says(there.body, wanted):
        return Done()
    gone = _deleted(wire, path, there)
    return Conflict("its BindRequest was another plan's") if isinstance(gone, Done) else gone


def _path(namespace: str, name: str | None = None) -> str:
    return grouped(GROUP, VERSION, PLURAL, namespace=namespace, name=name)


def _request(order: PodStart) -> Tree:
    """As KAI's scheduler writes it; it goes with its pod."""
    owner = {"apiVersion": "v1", "kind": "Pod", "name": order.name, "uid": order.uid}
    return {
        "apiVersion": f"{GROUP}/{VERSION}",
        "kind": "BindRequest",
        "metadata": {
            "name": order.name,
            "namespace": order.namespace,
            "labels": dict(OURS),
            "ownerReferences": [owner],
        },
        "spec": {
            "podName": order.name,
            "selectedNode": order.node,
            "receivedResourceType": "Regular",
            "receivedGPU": {"count": order.gpu_count, "portion": "1.00"},
            "backoffLimit": BACKOFF_LIMIT,
        },
    }


def _ours(tree: Tree) -> bool:
    return OURS.items() <= texts(tree, "metadata", "labels").items()


def _says(tree: Tree, wanted: Tree) -> bool:
    """Whether a request of ours asks the same for the same pod, and has not failed."""
    (owner,) = wanted["metadata"]["ownerReferences"]
    owned = any(
        one.get("uid") == owner["uid"] for one in objects(tree, "metadata", "ownerReferences")
    )
    same = mapping(tree, "spec") == {**mapping(tree, "spec"), **wanted["spec"]}
    return owned and same and text(tree, "status", "phase") != "Failed"


def _deleted(wire: Transport, path: str, there: Reply) -> Event:
    """Delete just what was read."""
    known = ("uid", "resourceVersion")
    conditions = {one: text(there.body, "metadata", one) for one in known}
    body = {"apiVersion": "v1", "kind": "DeleteOptions", "preconditions": conditions}
    reply = wire.send("DELETE", path, body)
    return Done() if reply.ok or reply.status == 404 else event_of(reply)


BACKEND = Kai
