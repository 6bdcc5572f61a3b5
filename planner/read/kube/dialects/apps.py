"""Deployments, ReplicaSets and StatefulSets whose pods are one gang: one role, ``worker``.

They are a gang if they or their pods state a range of pods, or name a gang with our label; other pods of
theirs are replicas of a service. Annotations of a Deployment are also on its ReplicaSets.
"""

from __future__ import annotations

from models.apply.terms import GANG
from planner.read.kube.dialects import base
from planner.read.kube.lookup import holds_condition, number, text, whole
from planner.read.kube.records import KubeObject, KubePod, Objects

ROLE = "worker"
GROUP = "apps"
INDEX = "apps.kubernetes.io/pod-index"
_OWNERS = ((GROUP, "ReplicaSet"), (GROUP, "StatefulSet"))
_PHASES = ("Running", "Unknown", "Pending")


def name_on(pod: KubeObject, api: Objects) -> str | None:
    """``Deployment/name``, so that two kinds may have one name."""
    owner = pod.owner
    if owner is None or (owner.group, owner.kind) not in _OWNERS:
        return None
    made = api.owner_of(pod)
    stated = [pod.annotations] if made is None else [made.annotations, pod.annotations]
    if not any(map(base.is_elastic, stated)) and not pod.labels.get(GANG):
        return None
    above = None if made is None else made.owner
    deployed = above is not None and (above.group, above.kind) == (GROUP, "Deployment")
    named = above if above is not None and deployed else owner
    return f"{named.kind}/{named.name}"


def describe(of: base.Controlled) -> base.Controller:
    key, _, pods, api = of
    kind, _, name = key.name.partition("/")
    sets = {one for pod in pods if (one := api.owner_of(pod.object)) is not None}
    made = max(sets, key=_precedence, default=None)
    sizes = (base.count(one.tree, "spec", "replicas", absent=1) for one in sets)
    known = [size for size in sizes if size is not None]
    first = 0 if made is None else whole(made.tree, "spec", "ordinals", "start") or 0
    role = base.RoleSpec(
        ROLE,
        sum(known) if known else None,
        first_index=max(0, first) if kind == "StatefulSet" else 0,
        queue_like=kind != "StatefulSet",
        scalable=made is not None and (kind == "Deployment" or made.owner is None),
    )
    stays_first = sorted(pods, key=_removal)
    ranks = {pod.name: place for place, pod in enumerate(stays_first)}
    return base.Controller(key, kind, name, made, {ROLE: role}, ranks=ranks)


def _precedence(one: KubeObject) -> tuple[int, int, str]:
    """The set with most replicas, then the newest, stands for its Deployment."""
    return (whole(one.tree, "spec", "replicas") or 0, one.created or 0, one.name)


def _removal(pod: KubePod) -> tuple[object, ...]:
    """Order of the pods of a ReplicaSet: it removes the last ones first, unless their costs differ."""
    phase = text(pod.object.tree, "status", "phase")
    return (
        pod.terminating,
        not pod.bound,
        _PHASES.index(phase) if phase in _PHASES else len(_PHASES),
        not holds_condition(pod.object.tree, "Ready"),
        pod.object.created or 0,
        pod.name,
    )


def role_index(pod: KubePod, controller: base.Controller) -> base.RoleIndex:
    if controller.kind != "StatefulSet":
        return base.RoleIndex(ROLE, controller.ranks.get(pod.name))
    index = number(pod.labels.get(INDEX))
    return base.RoleIndex(ROLE, number(pod.name.rpartition("-")[2]) if index is None else index)


DIALECT = base.Dialect(
    "apps",
    precedence=160,
    index=lambda pod: number(pod.labels.get(INDEX)),
    controller=base.ControllerReader(
        "Workload", describe, role_index, replaces=True, owners=_OWNERS, find=name_on
    ),
    scales={
        ("apps", "StatefulSet"): base.Scale("statefulsets"),
        ("apps", "ReplicaSet"): base.Scale("replicasets"),
        ("apps", "Deployment"): base.Scale("deployments"),
    },
)
