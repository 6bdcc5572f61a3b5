"""Pods to gangs, with priority, queue, times and marks.

Every pod that holds room or is planned is in exactly one gang, unless it holds no GPU and belongs
to no group or controller. Pods of other schedulers are planned only in groups and in gangs that want GPUs. No
single pod raises its gang: the lowest priority counts, and marks must be on the controller, the group or
every pod.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from itertools import takewhile

from models.apply.terms import PLAN
from models.documents.policy import LOST_RUNTIME
from models.instance.gang import turn
from models.instance.policy import KubernetesPolicy, Policy
from models.units import InvalidValueError, epoch_seconds, seconds
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import (
    DIALECTS,
    cell_readers,
    dialect_of,
    gpu_systems,
    holders,
    placed_on_request,
    queue_keys,
)
from planner.read.kube.gangs.communication import (
    mark_mixed_roles,
    mark_parallel_roles,
    read_communication,
)
from planner.read.kube.gangs.membership import Membership, group_pods
from planner.read.kube.gangs.roles import (
    DEFAULT_ROLE,
    complete_roles,
    read_roles,
    split_by_volumes,
)
from planner.read.kube.gangs.terms import hold_to_terms
from planner.read.kube.gangs.topology import add_topology
from planner.read.kube.lookup import LONGEST, at, distinct, is_name, time_of
from planner.read.kube.pods.placement import EXPECTED, deadline_s
from planner.read.kube.pods.pods import bounded_priority
from planner.read.kube.records import KubeGang, KubeObject, KubePod, KubeRole, Objects
from planner.read.kube.shares import beyond_share

ALONE = "Pod"
RENAMED = "another gang of its namespace has its name; its kind is appended"

CHECKPOINT = "gangplan.dev/last-checkpoint"
RESIZE_AFTER = "gangplan.dev/resize-after"
SUBMITTED = "gangplan.dev/submitted-at"
MIN_RUN_TIME = "gangplan.dev/min-run-time"
PREEMPTIBLE = "gangplan.dev/preemptible"
MOVABLE = "gangplan.dev/movable"

_NO_GANGS = frozenset({"Pod", "ReplicaSet", "StatefulSet", "DaemonSet", "Node"})
"""Owners of group objects that make no gangs: the gang takes the name of the group."""

MAX_BEYOND = 5_000
"""Waiting gangs beyond the limits of their namespaces that a plan still lists."""

LATE = f"annotation {CHECKPOINT} is later than any time of the cluster; it counts as the latest one"


def read_gangs(
    api: Objects, pods: Sequence[KubePod], policy: KubernetesPolicy, remarks: Remarks
) -> list[KubeGang]:
    """Gangs that run or wait to be planned, sorted by namespace and name; names are distinct.

    A pod without group and controller is a gang if it has GPUs or waits to be planned.
    """
    empty = [one.is_empty for one in gpu_systems()]
    ordered = sorted(
        (pod for pod in pods if not any(is_empty(pod) for is_empty in empty)),
        key=lambda pod: pod.key,
    )
    memberships = group_pods(api, ordered, remarks)
    for members in memberships:
        several = members.groups and len(members.pods) > 1
        if not several and not any(pod.wants_gpus for pod in members.pods):
            for pod in members.pods:  # of other schedulers, and no group starts them together
                pod.planned = pod.queued = pod.mode is not None
    found = [_gang(one, api, policy, remarks) for one in memberships if _is_gang(one)]
    return _distinct(found, remarks)


def leave_out_last(
    gangs: Sequence[KubeGang], limit: int | None, remarks: Remarks
) -> list[KubeGang]:
    """The gangs without those for which a plan has no place: more than MAX_BEYOND wait beyond the limit.

    ``limit``: of a namespace, as in ``limit_queues``, which ranks in the same order. Namespaces share what
    may be listed evenly.
    """
    if limit is None:
        return list(gangs)
    queues: dict[str, list[KubeGang]] = {}
    for gang in gangs:
        if not any(pod.holds_room for pod in gang.pods()):
            queues.setdefault(gang.namespace, []).append(gang)
    for queue in queues.values():
        queue.sort(key=lambda one: turn(one.priority, one.submitted_at, one.name))
    beyond = {name: [(one, 1) for one in queue[limit:]] for name, queue in queues.items()}
    gone = list(beyond_share(beyond, MAX_BEYOND))
    for name, number in Counter(gang.namespace for gang in gone).items():
        what = f"{number:,} more waiting gangs are left out of the plan"
        remarks.add(f"namespace {name}", what)
    left = set(map(id, gone))
    return [gang for gang in gangs if id(gang) not in left]


def _is_gang(members: Membership) -> bool:
    """Whether it runs or waits to be planned; a lone pod, or a plain Job of one, without GPUs only waits."""
    kinds = {controller.kind for controller in members.controllers.values()}
    plain = not members.groups and kinds <= {"Job"} and len(members.pods) == 1
    if plain and not any(p.gpus or p.part or p.instance or p.to_place for p in members.pods):
        return False
    # The gang of a pod that is bound to a node that is not in the input runs.
    elsewhere = any(pod.bound and pod.waits for pod in members.pods) and not members.lone
    return elsewhere or any(pod.holds_room or pod.to_place for pod in members.pods)


def _gang(
    members: Membership, api: Objects, policy: KubernetesPolicy, remarks: Remarks
) -> KubeGang:
    name, kind = _identity(members)
    gang = KubeGang(members.namespace, name, kind, [])
    if members.lone:
        gang.roles = [KubeRole(DEFAULT_ROLE, 1, [(0, members.pods[0])])]
    else:
        problems: list[str] = []
        gang.roles = read_roles(members, problems, remarks)
        gang.problems = tuple(problems)
        for role in gang.roles:
            # What gangplan starts, or has started, it would start more of.
            ours = any(pod.mode is not None or PLAN in pod.labels for _, pod in role.members)
            role.scalable = role.scalable and ours
        gang.missing = complete_roles(gang.roles, members, gang.subject, remarks)
    add_topology(gang, members, api, remarks)
    groups = [group.object for group in (*members.groups.values(), *members.loose.values())]
    objects = [one for one in (*members.controller_objects(), *groups) if one is not None]
    every = [*objects, *(pod.object for pod in members.pods)]
    gang.priority = _priority(gang, members, every, api, remarks)
    gang.queues = _queues(members, every)
    cells = cell_readers()
    gang.queue = next((name for system, name in gang.queues if system not in cells), None)
    gang.submitted_at = _submitted_at(gang, members, objects, policy, remarks)
    if gang.submitted_at is not None and not policy.trust_submitted_at:
        released = (holder.released_at(api, every) or 0 for holder in holders())
        gang.submitted_at = max((gang.submitted_at, *released))
    gang.preemptible = any(group.preemptible for group in members.groups.values()) or any(
        _is_marked(members, objects, key, value)
        for marks in ({PREEMPTIBLE: "true"}, *(one.preemptible for one in DIALECTS))
        for key, value in marks.items()
    )
    gang.movable = _is_marked(members, objects, MOVABLE, "true")
    running, placed = [pod for pod in members.pods if pod.holds_room], placed_on_request(api)
    if any(pod.key in placed or EXPECTED in pod.object.tree for pod in running):
        gang.preemptible = gang.movable = False  # its system would only start it there again
    gang.communication = read_communication(gang, objects, policy, remarks)
    mark_mixed_roles(gang, objects)
    mark_parallel_roles(gang, objects, policy, remarks)
    gang.roles = split_by_volumes(gang.roles, remarks)
    gang.service = service_of(members, api, remarks)
    # The other scheduler that most of its planned pods wait for.
    others = Counter(pod.scheduler for pod in members.pods if pod.to_place and pod.mode is None)
    gang.scheduler = min(others, key=lambda name: (-others[name], name), default=None)
    starts = _known(_started_at(pod) for pod in members.pods)
    gang.started_at, gang.runs_since = max(starts, default=None), min(starts, default=None)
    gang.last_checkpoint = max(_times(every, CHECKPOINT, remarks), default=None)
    gang.resize_after = max(_times(every, RESIZE_AFTER, remarks), default=None)
    gang.min_run_time_s = min(_times(every, MIN_RUN_TIME, remarks, seconds), default=None)
    # Kubernetes ends it only if it ends each of its pods.
    left = [pod for pod in members.pods if pod.finished is None]
    ends = [*takewhile(lambda end: end is not None, (deadline_s(pod, api) for pod in left))]
    gang.deadline_s = max(_known(ends), default=None) if len(ends) == len(left) else None
    hold_to_terms(gang, members, remarks)
    return gang


def _priority(
    gang: KubeGang,
    members: Membership,
    every: Sequence[KubeObject],
    api: Objects,
    remarks: Remarks,
) -> int:
    """That of its Workload in Kueue's queue, else the lowest of its pods that have not finished."""
    for holder in holders():
        if (queued := holder.priority(api, every)) is not None:
            return bounded_priority(queued)
    priorities = {pod.priority for pod in members.unfinished}
    if len(priorities) > 1:
        remarks.add(gang.subject, "its pods have different priorities; the lowest counts")
    return min(priorities, default=0)


def _identity(members: Membership) -> tuple[str, str]:
    """(name, kind): the controller's if it is the only one and completely here, else the group's."""
    if members.lone:
        return members.pods[0].name, ALONE
    keys = {pod.controller for pod in members.pods}
    if not members.groups or (len(keys) == 1 and keys == members.complete):
        controller = members.sorted_controllers()[0]
        return controller.name, controller.kind
    group = next(iter(members.groups.values()))
    if group.parent is not None:
        return group.parent, "PodGroup"
    owner = group.object.owner if group.object is not None else None
    if not members.controllers and owner is not None and owner.kind not in _NO_GANGS:
        return owner.name, owner.kind
    return group.key.title, "PodGroup"


def _distinct(gangs: list[KubeGang], remarks: Remarks) -> list[KubeGang]:
    """Give every gang a name of its own in its namespace.

    Of gangs of one name one with pods keeps it, and of these one that requests GPUs: a RayJob before its
    submitter.
    """
    taken: dict[str, set[str]] = {}
    for gang in gangs:
        taken.setdefault(gang.namespace, set()).add(gang.name)
    seen: set[tuple[str, str]] = set()

    def precedence(gang: KubeGang) -> tuple[object, ...]:
        expected = all(EXPECTED in pod.object.tree for pod in gang.pods())
        without = not any(pod.gpus for pod in gang.pods())
        return (gang.namespace, gang.name, expected, gang.kind == ALONE, without, gang.kind)

    for gang in sorted(gangs, key=precedence):
        if (gang.namespace, gang.name) in seen:
            remarks.add(gang.subject, RENAMED)
            gang.name = distinct(f"{gang.name}-{gang.kind.lower()}", taken[gang.namespace])
        seen.add((gang.namespace, gang.name))
    return sorted(gangs, key=lambda gang: (gang.namespace, gang.name))


def _queues(members: Membership, every: Sequence[KubeObject]) -> tuple[tuple[str, str], ...]:
    """The group's own queue, the controller's, then what labels and annotations name; with the dialect."""
    stated = [(key.reader, group.queue) for key, group in members.groups.items()]
    stated += [
        (dialect_of(controller.key.kind).name, controller.queue)
        for controller in members.sorted_controllers()
        if controller.queue
    ]
    notes = [part for one in every for part in (one.labels, one.annotations) if part]
    known, written = queue_keys(), set[str]().union(*notes)
    keys = [key for key in known if key in written]
    stated += [(known[key], note.get(key)) for key in keys for note in notes]
    stated += [
        (system, reader.queue(pod.annotations))
        for system, reader in cell_readers().items()
        for pod in members.pods[:1]
    ]
    return tuple(dict.fromkeys((system, name) for system, name in stated if name))


def _submitted_at(
    gang: KubeGang,
    members: Membership,
    objects: Sequence[KubeObject],
    policy: KubernetesPolicy,
    remarks: Remarks,
) -> int | None:
    """Since when it could start: its controller exists, and so do as many pods as it needs.

    A controller can be kept for years without pods, and a pod alone is no gang, so neither is a place in
    the queue. Of a gang that runs the oldest pod counts. The annotation counts instead if it is trusted.
    """
    pods = [pod.object for pod in members.pods]
    if policy.trust_submitted_at:
        stated = next(iter(_times(objects, SUBMITTED, remarks)), None)
        if stated is None:
            stated = min(_times(pods, SUBMITTED, remarks), default=None)
        if stated is not None:
            return stated
    made = min(_known(one.created for one in members.controller_objects()), default=None)
    whole = min(_known(pod.object.created for pod in members.unfinished), default=None)
    if not any(pod.holds_room for pod in members.pods):
        latest = []
        for role in gang.roles:
            live = [pod for _, pod in role.members if pod.finished is None]
            times = sorted(_known(pod.object.created for pod in live))
            latest += times[: role.size][-1:]  # it needs the oldest ones
        whole = max(latest, default=whole)
    return max(_known((made, whole)), default=None)


def _known(times: Iterable[int | None]) -> list[int]:
    return [time for time in times if time is not None]


def _times(
    objects: Iterable[KubeObject],
    key: str,
    remarks: Remarks,
    read: Callable[[str], int] = epoch_seconds,
) -> list[int]:
    times = []
    for one in objects:
        written = one.annotations.get(key)
        if written is not None:
            try:
                times.append(read(written))
            except InvalidValueError:
                form = "time" if read is epoch_seconds else "duration"
                remarks.add(one.subject, f"annotation {key} is not a {form}; ignored")
    return times


def _started_at(pod: KubePod) -> int | None:
    if not pod.holds_room:
        return None
    stated = time_of(at(pod.object.tree, "status", "startTime"))
    return pod.object.created if stated is None else stated


def _is_marked(members: Membership, objects: Sequence[KubeObject], key: str, value: str) -> bool:
    def marked(one: KubeObject) -> bool:
        return value in (one.annotations.get(key), one.labels.get(key))

    return any(marked(one) for one in objects) or all(marked(pod.object) for pod in members.pods)


def bound_checkpoints(gangs: Sequence[KubeGang], policy: Policy, remarks: Remarks) -> None:
    """No checkpoint is later than now: the Policy's, else the latest time of the cluster.

    What a tenant writes never moves the time that the ages of others are counted to.
    """
    times = _known(time for gang in gangs for time in (gang.submitted_at, gang.started_at))
    now = max(times, default=0) if policy.now is None else policy.now
    for gang in gangs:
        if gang.last_checkpoint is not None and gang.last_checkpoint > now:
            if policy.disruption.weight == LOST_RUNTIME:
                remarks.add(gang.subject, LATE, "state the time: --now, or `now` in a Policy")
            gang.last_checkpoint = now


_HASH = "pod-template-hash"
"""Label of the pods of a Deployment, whose ReplicaSet is named ``<deployment>-<hash>``."""

_NO_SERVICES = frozenset({"DaemonSet", "Node"})
"""Owners whose pods belong to their nodes."""


def service_of(members: Membership, api: Objects, remarks: Remarks) -> str | None:
    """The service that a gang is a replica of, ``Deployment/llm-server``; None for one that is no replica.

    Replicas are pods of no gang that one controller made, and the groups of a LeaderWorkerSet.
    """
    owners = {(key.kind, key.name) for key in members.controllers if key.part}
    if len(members.pods) == 1 and not members.controllers:
        owners = _controller(members.pods[0], api)
    if len(owners) != 1:
        return None
    ((kind, name),) = owners
    service = f"{kind}/{name}"
    if is_name(kind) and is_name(name) and len(service) <= LONGEST:
        return service
    what = "its controller has a malformed name; other pods of it may use other GPU models"
    remarks.add(members.pods[0].subject, what)
    return None


def _controller(pod: KubePod, api: Objects) -> set[tuple[str, str]]:
    """(kind, name) of the controller of a pod; that of a ReplicaSet is its Deployment."""
    owner = pod.object.owner
    if owner is None or owner.kind in _NO_SERVICES:
        return set()
    if owner.kind == "ReplicaSet":
        made = api.owner_of(pod.object)
        if made is not None and made.owner is not None:
            return {(made.owner.kind, made.owner.name)}
        deployment, _, hash_ = owner.name.rpartition("-")
        if deployment and pod.labels.get(_HASH) == hash_:
            return {("Deployment", deployment)}
    return {(owner.kind, owner.name)}
