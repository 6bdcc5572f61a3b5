"""Pods to gangs: bunches of pods, their roles, what they ask, and whether they are whole.

Promises: gangs ascending by (namespace, name), names distinct; every pod that holds room or is ours
to place is in exactly one, unless it holds no GPU and belongs to no gang. Called by
``kubernetes.assembling``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import TYPE_CHECKING

from planner.read.findings import Remarks
from planner.read.kube.gangs import attributes as ages
from planner.read.kube.gangs import attributes as facts
from planner.read.kube.gangs.completeness import need, settle
from planner.read.kube.gangs.membership import Bunch, sort_out
from planner.read.kube.gangs.roles import DEFAULT_ROLE, Draft, drafts, holds, waits
from planner.read.kube.gangs.topology import Asks, asks
from planner.read.kube.records import KubeGang, KubePod, KubeRole, Objects

if TYPE_CHECKING:
    from models.policy import KubernetesPolicy

ALONE = "Pod"
RENAMED = "another gang of its namespace has its name; it is named after its kind as well"
_NOBODYS = frozenset({"Pod", "ReplicaSet", "StatefulSet", "DaemonSet", "Node"})
"""Owners of group objects that make no gangs: such a group goes by its own name."""


def read_gangs(
    objects: Objects, pods: Sequence[KubePod], policy: KubernetesPolicy, remarks: Remarks
) -> list[KubeGang]:
    """Every gang that stands, or that waits for us; a lone pod with GPUs, or of ours, is one too."""
    ordered = sorted(pods, key=lambda pod: pod.key)
    bunches, alone = sort_out(objects, ordered, remarks)
    gangs = [
        _gang(bunch, objects, policy, remarks)
        for bunch in bunches
        if (_counts(bunch.pods) or _stranded(bunch.pods)) and not _idle(bunch, policy)
    ]
    for pod in alone:
        if _counts([pod]) and (pod.gpus or pod.ours):
            lone = Bunch(pod.object.namespace, [pod], [None], [None])
            gangs.append(_lone(lone, pod, objects, policy, remarks))
    gangs.sort(key=_first_named)
    return _distinct(gangs, remarks)


def _first_named(gang: KubeGang) -> tuple[object, ...]:
    """Of gangs of one name the one that asks for GPUs keeps it: a RayJob before its submitter."""
    without = not any(pod.gpus for pod in gang.pods())
    return (gang.namespace, gang.name, gang.kind == ALONE, without, gang.kind)


def _counts(pods: Sequence[KubePod]) -> bool:
    """Whether any of them stands, or waits for us: other schedulers' waiting gangs are left out."""
    return any(holds(pod) or (waits(pod) and pod.ours) for pod in pods)


def _stranded(pods: Sequence[KubePod]) -> bool:
    """Whether any of them is bound to a node that is not there: it ran, and is not to be forgotten."""
    return any(pod.bound and pod.node is None and pod.finished is None for pod in pods)


def _idle(bunch: Bunch, policy: KubernetesPolicy) -> bool:
    """A plain Job of one pod without GPUs that was never ours: housekeeping, not a gang."""
    kinds = {maker.kind for maker in bunch.makers.values()}
    if bunch.groups or kinds != {"Job"} or len(bunch.pods) > 1:
        return False
    (pod,) = bunch.pods
    return not pod.gpus and not pod.ours and pod.scheduler != policy.scheduler_name


def _gang(bunch: Bunch, objects: Objects, policy: KubernetesPolicy, remarks: Remarks) -> KubeGang:
    name, kind = _identity(bunch)
    subject = f"{kind} {bunch.namespace}/{name}"
    roles = drafts(bunch, remarks)
    missing = settle(roles, need(list(bunch.groups.values())), subject, remarks)
    asked = asks(bunch, roles, subject, objects, remarks)
    asked.problems[:0] = [problem for draft in roles for problem in draft.problems]
    return _built(bunch, (name, kind), roles, asked, missing, policy, remarks)


def _lone(
    bunch: Bunch, pod: KubePod, objects: Objects, policy: KubernetesPolicy, remarks: Remarks
) -> KubeGang:
    roles = drafts(bunch, remarks)
    for draft in roles:
        draft.name = DEFAULT_ROLE
        draft.close_ranks()
        draft.members = [(0, member) for _, member in draft.members]
        draft.size = 1
    asked = asks(bunch, roles, pod.subject, objects, remarks)
    return _built(bunch, (pod.name, ALONE), roles, asked, None, policy, remarks)


def _built(
    bunch: Bunch,
    identity: tuple[str, str],
    roles: Sequence[Draft],
    asked: Asks,
    missing: str | None,
    policy: KubernetesPolicy,
    remarks: Remarks,
) -> KubeGang:
    name, kind = identity
    subject = f"{kind} {bunch.namespace}/{name}"
    speakers = facts.speakers(bunch)
    return KubeGang(
        namespace=bunch.namespace,
        name=name,
        kind=kind,
        roles=tuple(
            KubeRole(
                name=draft.name,
                size=draft.size or len(draft.members),
                members=tuple(draft.members),
                first_index=draft.first,
                required=role.required,
                preferred=role.preferred,
                slices=role.slices,
            )
            for draft, role in zip(roles, asked.roles, strict=True)
        ),
        priority=facts.priority(bunch.pods, subject, remarks),
        queue=facts.queue(bunch),
        submitted_at=facts.submitted_at(bunch, bunch.pods, policy, remarks),
        required=asked.required,
        preferred=asked.preferred,
        preemptible=facts.preemptible(bunch),
        movable=facts.movable(bunch),
        missing=missing,
        problems=tuple(asked.problems),
        started_at=ages.started_at(bunch.pods),
        last_checkpoint=ages.latest(speakers, bunch.pods, ages.CHECKPOINT, remarks),
        resize_after=ages.latest(speakers, bunch.pods, ages.RESIZE_AFTER, remarks),
    )


def _identity(bunch: Bunch) -> tuple[str, str]:
    """(name, kind): the controller's where it is the only one and wholly here, else the group's."""
    if len(bunch.makers) == 1 and None not in bunch.keys:
        (key,) = bunch.makers
        if key in bunch.complete:
            return bunch.makers[key].name, bunch.makers[key].kind
    if not bunch.groups:
        maker = bunch.makers[min(bunch.makers)]
        return maker.name, maker.kind
    group = next(iter(bunch.groups.values()))
    if group.wider is not None:
        return group.wider, "PodGroup"
    owner = group.object.owner if group.object is not None else None
    if not bunch.makers and owner is not None and owner.kind not in _NOBODYS:
        return owner.name, owner.kind
    return group.link.title, "PodGroup"


def _distinct(gangs: list[KubeGang], remarks: Remarks) -> list[KubeGang]:
    """The same gangs under names of their own."""
    taken = {(gang.namespace, gang.name) for gang in gangs}
    seen: set[tuple[str, str]] = set()
    found: list[KubeGang] = []
    for gang in gangs:
        if (gang.namespace, gang.name) not in seen:
            seen.add((gang.namespace, gang.name))
            found.append(gang)
            continue
        base = f"{gang.name}-{gang.kind.lower()}"
        name, again = base, 1
        while (gang.namespace, name) in taken:
            again += 1
            name = f"{base}-{again}"
        taken.add((gang.namespace, name))
        seen.add((gang.namespace, name))
        remarks.add(gang.subject, RENAMED)
        found.append(_renamed(gang, name))
    return sorted(found, key=lambda gang: (gang.namespace, gang.name))


def _renamed(gang: KubeGang, name: str) -> KubeGang:
    return replace(gang, name=name)
