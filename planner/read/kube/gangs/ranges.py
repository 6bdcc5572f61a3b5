"""The numbers of pods that an elastic role may run with: those its owner allows, and those possible now.

A group that needs fewer pods than its roles have makes roles elastic, too. Only the owner's own gang depends
on what it writes: a value that cannot be read is a remark, and the role has the number of pods of its
controller.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    MAX,
    MIN,
    RANGE,
    STEP,
    Controller,
    RoleSpec,
    is_elastic,
)
from planner.read.kube.lookup import number
from planner.read.kube.records import KubePod, KubeRole, ReplicaRange

WORKERS = "worker"
"""Of several roles, the one that the annotations of the controller concern."""

MOST_MORE = 16
"""A plan at most doubles the pods that exist of a role, and adds so many: the program grows with them."""

NO_RANGE = (
    f"its annotations {MIN}, {MAX} and {STEP} are no numbers of pods in order; they are ignored"
)
DIFFER = f"its pods differ in their annotations {MIN}, {MAX} and {STEP}; they are ignored"
TOO_MANY = f"annotation {MIN} asks for far more pods than exist; its range is ignored"
BELOW_GROUP = "its group needs more pods than its range allows; the range is ignored"
BEYOND = f"has more pods than {MAX}, or a field of its controller, allows; those beyond wait"


def wished_range(
    controller: Controller | None, spec: RoleSpec, pods: Sequence[KubePod], remarks: Remarks
) -> ReplicaRange | None:
    """The range of a role; None if it has one number of pods.

    The annotations of the controller come before those of its pods, which have to agree; both before the
    controller's own fields.
    """
    made = None if controller is None else controller.object
    concerned = controller is not None and (len(controller.roles) < 2 or spec.name == WORKERS)
    if made is not None and concerned and is_elastic(made.annotations):
        return _read(made.annotations, made.subject, remarks)
    living = [pod for pod in pods if pod.finished is None]
    if not any(is_elastic(pod.annotations) for pod in living):
        return spec.range
    stated = {tuple(pod.annotations.get(key) for key in RANGE) for pod in living}
    if len(stated) == 1:
        return _read(living[0].annotations, living[0].subject, remarks)
    remarks.add(living[0].subject if made is None else made.subject, DIFFER)
    return None


def _read(written: Mapping[str, str], subject: str, remarks: Remarks) -> ReplicaRange | None:
    least, most, step = (number(written.get(key, "").strip()) for key in (MIN, MAX, STEP))
    step = step if STEP in written else 1
    if not (least and most and step) or least > most:
        remarks.add(subject, NO_RANGE)
        return None
    return ReplicaRange(least, most, step)


class Need(Struct, frozen=True):
    """At least ``pods`` of these roles together start before any does."""

    pods: int
    roles: tuple[KubeRole, ...]


def fit_ranges(roles: Sequence[KubeRole], needed: int, subject: str, remarks: Remarks) -> None:
    """Set the range and size of every elastic role to what is possible now.

    ``needed``: pods that the groups of the gang need before it starts.
    """
    elastic = [role for role in roles if role.wished is not None]
    if not elastic:
        return
    needed -= sum(role.size or 0 for role in roles if role.wished is None)
    if _lacking(elastic, needed) > 0:
        remarks.add(subject, BELOW_GROUP)
        for role in elastic:
            role.wished = None
    for role in elastic:
        if role.wished is not None:
            if len(role.members) > role.wished.most:
                remarks.add(subject, BEYOND)
            _fit(role, role.wished)


def _lacking(elastic: Sequence[KubeRole], needed: int) -> int:
    """Raise the least numbers of the roles until they are as many as are needed: pods that exist first.

    Returns how many they lack then.
    """
    missing = needed - sum(role.wished.least for role in elastic if role.wished is not None)
    for existing in (True, False):
        for role in elastic:
            wished = role.wished
            if missing > 0 and wished is not None:
                most = wished.at_most(len(role.members) if existing else wished.most)
                least = min(wished.at_least(wished.least + missing) or most, most)
                role.wished = replace(wished, least=max(least, wished.least))
                missing -= role.wished.least - wished.least
    return missing


def share_slack(roles: Sequence[KubeRole], needs: Sequence[Need], *, complete: bool) -> None:
    """Make roles elastic where fewer pods are needed than they have; their sizes are known.

    What several roles need together leaves the small ones whole: pods are missing from the largest role, of
    equally large ones from the last, and from the next only once a single pod of it is left. Such a role
    never has more pods than its size, and no scale sets their number. ``complete``: the needed pods exist.
    """
    place = {id(role): i for i, role in enumerate(roles)}
    sizes = [role.size or 0 for role in roles]
    least = [role.range.least if role.range else role.size or 0 for role in roles]
    fixed = {i for i, role in enumerate(roles) if role.wished is None and sizes[i]}
    free = set(fixed)
    for need in sorted(needs, key=lambda need: len(need.roles)):
        own = {place[id(role)] for role in need.roles}
        spare = sum(least[i] for i in own) - need.pods
        for i in sorted(own & fixed, key=lambda i: (-sizes[i], -i)):
            before = least[i]
            least[i] = max(1 if i in free else before, min(before - spare, sizes[i]))
            spare -= before - least[i]
        free -= own
    for i in fixed:
        if least[i] < sizes[i]:
            role = roles[i]
            role.scalable = False
            role.wished = role.range = ReplicaRange(least[i], sizes[i])
            if complete:
                _fit(role, role.wished)


def _fit(role: KubeRole, wished: ReplicaRange) -> None:
    """Set the range, the size and the members of one role.

    Waiting, it starts with pods that exist, without a gap. Running, it never shrinks below or grows above
    its pods unless its number can be set, and grows only from an allowed number without gaps.
    """
    first, there = role.first_index, dict(role.members)
    running = {index for index, pod in there.items() if pod.holds_room}
    span = max(running) + 1 - first if running else 0
    existing = next(n for n in range(len(there) + 1) if first + n not in there)
    size = wished.at_least(span)
    if size is None:  # it runs with more pods than it may, and stays as it is
        role.size, most = span, span
        role.range = None
    else:
        whole = len(running) == span == size
        # What new pods would need of volumes that only some nodes reach, nobody knows yet.
        rooted = any(pod.rooted for pod in there.values())
        grows = whole and role.scalable and not rooted
        possible = 2 * existing + MOST_MORE if grows else existing
        most = max(size, wished.at_most(possible))
        least = size if running and not role.scalable else wished.least
        role.size, role.range = size, ReplicaRange(least, most, wished.step)
    role.members = [(index, pod) for index, pod in role.members if index < first + most]
