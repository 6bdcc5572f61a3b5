"""Tells provisioners the node of a pod that gangplan binds, as kube-scheduler does for the pods it binds.

The annotation on an unbound claim is all that a provisioner waits for; the same call completes what a crash
left. A claim that no longer allows the node is an answer, not an error.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from models.apply.plan_actions import PodStart
from models.apply.requests import Conflict, Done, Event, NoAnswer, Rejected
from models.documents.cluster import HOSTNAME_LABEL
from models.instance.gang import matches
from planner.cluster.api_paths import STORAGE_CLASSES, VOLUMES, checked, core
from planner.cluster.pages import NotServedError, get
from planner.cluster.transport import MERGE, Transport
from planner.errors import NotPermittedError, UnavailableError
from planner.read.findings import Remarks
from planner.read.kube.lookup import items, mapping, text
from planner.read.kube.objects import Gatherer
from planner.read.kube.pods.volume_claims import (
    ANY_NODE,
    CLAIM,
    CLASS,
    SELECTED_NODE,
    VOLUME,
    VolumeClaim,
    VolumeClaims,
)
from planner.read.kube.records import KubeObject
from planner.untrusted_text import one_line

_REFERRED = (
    (VOLUME, "v1", VOLUMES, "volumeName"),
    (CLASS, "storage.k8s.io/v1", STORAGE_CLASSES, "storageClassName"),
)
"""What a claim refers to: kind, version, path, and the field of the claim with the name."""


def choose_node(
    wire: Transport,
    order: PodStart,
    claims: Collection[str],
    labels: Mapping[str, str],
    nodes: Collection[str],
    query: str | None,
    *,
    binds: bool = True,
) -> Event:
    """Annotate the unbound claims of a pod with its node, or only check them (``query`` None).

    ``labels``: of its node. ``nodes``: of the pods of its gang, which may share a claim. ``query``: of the
    writes. ``binds``: whether gangplan binds the pod; else claims that may not be read are left to
    kube-scheduler. Done; Rejected if a claim excludes the node.
    """
    try:
        known: list[tuple[KubeObject, VolumeClaim]] = []
        for name in claims:
            found = _read(wire, order.namespace, name)
            if isinstance(found, Event):
                return found
            why = _obstacle(*found, order.node, labels, nodes)
            if found[1].storage_class is not None:
                why = (
                    f"{found[0].where} gets its volume from kube-scheduler only" if binds else None
                )
            if why is not None:
                return Rejected(one_line(why))
            known.append(found)
        for one, claim in known if query is not None else ():
            if claim.unbound and SELECTED_NODE not in one.annotations:
                event = _annotate(wire, one, order.node, query or "")
                if not isinstance(event, Done):
                    return event
    except NotPermittedError as error:
        return Rejected(one_line(f"not permitted: {error}")) if binds else Done()
    except UnavailableError as error:
        return NoAnswer(one_line(str(error)))
    return Done()


def _read(wire: Transport, namespace: str, name: str) -> tuple[KubeObject, VolumeClaim] | Event:
    """A claim as it is now, with its volume and its class."""
    try:
        reply = get(wire, core("persistentvolumeclaims", namespace=namespace, name=name))
    except NotServedError:
        return Rejected(f"{CLAIM} {name} does not exist")
    spec = mapping(reply.body, "spec")
    gatherer = Gatherer(Remarks())
    gatherer.add({**reply.body, "kind": CLAIM, "apiVersion": "v1"}, "the cluster")
    for kind, version, path, name_at in _REFERRED:
        wanted, found = text(spec, name_at), []
        if wanted is not None or kind == CLASS:  # without a class it has the default one
            named = f"?fieldSelector=metadata.name%3D{checked(wanted)}" if wanted else ""
            found = items(get(wire, path + named).body, "items")
        listed = {"kind": f"{kind}List", "apiVersion": version, "items": found}
        gatherer.add(listed, "the cluster")
    claim = VolumeClaims(gatherer.objects).of(namespace, name)
    one = gatherer.objects.named("", CLAIM, namespace, name)
    if claim is None or one is None:
        return NoAnswer(f"{CLAIM} {name} cannot be read")
    return one, claim


def _obstacle(
    one: KubeObject,
    claim: VolumeClaim,
    node: str,
    labels: Mapping[str, str],
    nodes: Collection[str],
) -> str | None:
    """Why a pod with this claim cannot start on the node."""
    if claim.waits or claim.problem:
        return claim.waits or claim.problem
    chosen = one.annotations.get(SELECTED_NODE)
    if claim.unbound and claim.access_modes & ANY_NODE and chosen in nodes:
        return None  # chosen for another pod of the gang, which shares it
    known = {HOSTNAME_LABEL: node, **labels}
    if matches(claim.affinity, known, node):
        return None
    where = f"is for node {chosen}" if claim.unbound and chosen else "has a volume elsewhere"
    return f"{one.where} {where}, node {node} does not reach it"


def _annotate(wire: Transport, one: KubeObject, node: str, query: str) -> Event:
    metadata = {
        "uid": one.uid,
        "resourceVersion": text(one.tree, "metadata", "resourceVersion"),
        "annotations": {SELECTED_NODE: node},
    }
    path = core("persistentvolumeclaims", namespace=one.namespace, name=one.name) + query
    reply = wire.send("PATCH", path, {"metadata": metadata}, content_type=MERGE)
    if reply.ok:
        return Done()
    message = one_line(reply.message)
    if reply.status == 409:
        return Conflict(message)
    if reply.status in (401, 403):
        right = f"patch persistentvolumeclaims in namespace {one.namespace}"
        return Rejected(f"not permitted: {right} ({message})")
    return (
        Rejected(message)
        if 400 <= reply.status < 500 and reply.status != 429
        else NoAnswer(message)
    )
