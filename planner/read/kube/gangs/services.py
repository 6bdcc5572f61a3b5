"""The service that a gang is a replica of: its replicas run on one GPU model.

Replicas are pods of no gang that one controller made, and the groups of a LeaderWorkerSet.
"""

from __future__ import annotations

from planner.read.findings import Remarks
from planner.read.kube.gangs.membership import Membership
from planner.read.kube.lookup import LONGEST, is_name
from planner.read.kube.records import KubePod, Objects

_HASH = "pod-template-hash"
"""Label of the pods of a Deployment, whose ReplicaSet is named ``<deployment>-<hash>``."""

_NO_SERVICES = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to their nodes."""


def service_of(members: Membership, api: Objects, remarks: Remarks) -> str | None:
    """``Deployment/llm-server``; None for a gang that is no replica."""
    owner = _several_gangs(members)
    if owner is None and len(members.members) == 1 and not members.controllers:
        owner = _controller(members.pods[0], api)
    if owner is None:
        return None
    kind, name = owner
    service = f"{kind}/{name}"
    if is_name(kind) and is_name(name) and len(service) <= LONGEST:
        return service
    what = "its controller has a malformed name; other pods of it may use other GPU models"
    remarks.add(members.pods[0].subject, what)
    return None


def _several_gangs(members: Membership) -> tuple[str, str] | None:
    """(kind, name) of the controller that made this gang and others."""
    found = {(key.kind, key.name) for key in members.controllers if key.part}
    return found.pop() if len(found) == 1 else None


def _controller(pod: KubePod, api: Objects) -> tuple[str, str] | None:
    """(kind, name) of the controller of a pod; that of a ReplicaSet is its Deployment."""
    owner = pod.object.owner
    if owner is None or owner.kind in _NO_SERVICES:
        return None
    if owner.kind == "ReplicaSet":
        made = api.owner_of(pod.object)
        if made is not None and made.owner is not None:
            return made.owner.kind, made.owner.name
        deployment, _, hash_ = owner.name.rpartition("-")
        if deployment and pod.labels.get(_HASH) == hash_:
            return "Deployment", deployment
    return owner.kind, owner.name
