"""Which pods that do not run yet hold room on their node: only those that will run there as things stand.

A kubelet refuses a bound pod that does not fit beside those it has started. An unbound pod that is tied to a
node holds room only if a scheduler that exists would bind it there now: the node takes it, and it fits after
the pods before it. Any other holds nothing, and is a remark.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

from msgspec import Struct

from models.documents.cluster import HOSTNAME_LABEL
from models.instance.eligibility import tolerated
from models.instance.gang import selects
from models.mig import RESOURCE
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import gpu_systems, names
from planner.read.kube.dialects.base import PodKey
from planner.read.kube.dialects.gpus import is_taken
from planner.read.kube.lookup import at, conditions, text
from planner.read.kube.pods.asks import PARTITIONS
from planner.read.kube.pods.placement import CHOSEN, DEFAULT_SCHEDULER, PINNED
from planner.read.kube.pods.pod_rules import Ignorable
from planner.read.kube.pods.requests import is_about_gpus
from planner.read.kube.records import GroupKey, Holding, KubeNode, KubePod, Objects, Share

UNREADABLE = "an amount that cannot be read"
NO_CLAIM = "a resource claim that is not in the input"

HELD = "is not bound; the room that it requests is held on the node it is tied to"
NO_SCHEDULER = "is tied to a node, but nothing shows that its scheduler exists; it holds no room"
REFUSED = "is tied to a node, and its scheduler cannot place it; it holds no room"
UNKNOWN = "is tied to a node, but requires what a plan does not model; it holds no room"
GANG_SHORT = "is tied to a node, and too few pods of its group are on nodes; it holds no room"
NO_ROOM = "is tied to a node without room for it; it holds no room"
NOT_ADMITTED = (
    "is bound to a node without room for it and has not started; it counts as failed, because the "
    "kubelet refuses it"
)
_NO_PLACE = ("False", "Unschedulable")
HINT = "list that scheduler under kubernetes.otherSchedulers in a Policy"


def settle_room(
    pods: Sequence[KubePod],
    api: Objects,
    nodes: Mapping[str, KubeNode],
    schedulers: Sequence[str] | None,
    remarks: Remarks,
) -> None:
    """Take their node from pods that will not run on it. ``schedulers``: of the Policy."""
    there = [pod for pod in pods if pod.node is not None and pod.finished is None]
    doubtful = {pod.node for pod in there if pod.tied is not None or not _has_started(pod)}
    if not doubtful:
        return
    known = _existing_schedulers(there, schedulers)
    ordered = sorted((pod for pod in there if pod.node in doubtful), key=_precedence)
    refused = _refused(ordered, nodes, known)
    if short := _short_of_pods(there, refused, api):
        refused = _refused(ordered, nodes, known, short)
    for pod in ordered:
        why = refused.get(pod.key)
        if pod.tied is not None:
            remarks.add(pod.subject, why or HELD, HINT if why == NO_SCHEDULER else None)
            if why is not None:
                pod.node = pod.tied = None
        elif why is not None:
            remarks.add(pod.subject, why)
            pod.node, pod.bound, pod.finished = None, False, "Failed"


def _refused(
    ordered: Sequence[KubePod],
    nodes: Mapping[str, KubeNode],
    known: Callable[[KubePod], bool],
    short: Collection[PodKey] = (),
) -> dict[PodKey, str]:
    """Which of these pods hold no room beside those before them, and why.

    ``known``: whether the scheduler of a pod exists. ``short``: pods of groups with too few.
    """
    names = {pod.node for pod in ordered}
    rooms = {name: _Room(nodes[name], dict(nodes[name].allocatable)) for name in names if name}
    for pod in ordered:
        if pod.bound and pod.holding is not None:
            rooms[pod.node or ""].shares.update(pod.holding.reserves)
    found: dict[PodKey, str] = {}
    for pod in ordered:
        room, why = rooms[pod.node or ""], None
        if pod.tied is not None:
            why = GANG_SHORT if pod.key in short else _refusal(pod, room, known)
        elif pod.bound and not _has_started(pod) and not room.fits(pod):
            why = NOT_ADMITTED
        if why is None:
            room.take(pod)
        else:
            found[pod.key] = why
    return found


def _has_started(pod: KubePod) -> bool:
    status = at(pod.object.tree, "status")
    waits = text(status, "phase") in (None, "Pending") and text(status, "startTime") is None
    return pod.bound and not waits


def _precedence(pod: KubePod) -> tuple[object, ...]:
    """Pods that run and those of a plan, then bound ones as their kubelet takes them, then as queued."""
    stage = 2 if pod.tied is not None else 1 if pod.bound and not _has_started(pod) else 0
    created = pod.object.created
    unknown = created is None
    return (stage, -pod.priority if stage == 2 else 0, unknown, created or 0, pod.key)


def _refusal(pod: KubePod, room: _Room, known: Callable[[KubePod], bool]) -> str | None:
    """Why the pod will not be bound to its node as things stand; None if it will."""
    pinned, node = pod.tied == PINNED, room.node
    if pinned and not known(pod):
        return NO_SCHEDULER
    if pinned and any(isinstance(one, Ignorable) for one in pod.unsupported):
        return UNKNOWN
    labels = {HOSTNAME_LABEL: node.name, **node.labels}
    if (
        node.unschedulable
        or not node.ready
        or not tolerated(pod.tolerations, node.taints)
        or not selects(pod.selector.items(), pod.affinity, labels, node.name)
    ):
        return "is tied to a node that does not take it now; it holds no room"
    unplaceable = UNREADABLE in pod.unsupported or NO_CLAIM in pod.unsupported
    # Schedulers write status, tenants do not.
    seen = conditions(pod.object.tree, "PodScheduled") if pinned else ()
    if unplaceable or any((one.get("status"), one.get("reason")) == _NO_PLACE for one in seen):
        return REFUSED
    if pinned and pod.rules:
        return UNKNOWN
    return None if room.fits(pod) else NO_ROOM


def _short_of_pods(
    there: Sequence[KubePod], refused: Collection[PodKey], api: Objects
) -> set[PodKey]:
    """Pinned pods of groups of which too few are on nodes: their scheduler starts none of them yet."""
    groups: dict[GroupKey, list[KubePod]] = {}
    for pod in there:
        for key in names(api).of(pod.object).groups:
            if names(api).reader_of[key.reader].api_group is not None:
                groups.setdefault(key, []).append(pod)
    found: set[PodKey] = set()
    for key, members in groups.items():
        pinned = [one for one in members if one.tied == PINNED]
        if not pinned:
            continue
        group = names(api).reader_of[key.reader].read(key, members, api, Remarks())
        placed = sum(one.key not in refused for one in members)
        if group.gang and (group.object is None or placed < (group.minimum or 1)):
            found.update(one.key for one in pinned)
    return found


def _existing_schedulers(
    there: Iterable[KubePod], listed: Sequence[str] | None
) -> Callable[[KubePod], bool]:
    """Whether the scheduler of a pod exists. ``listed``: those of the Policy, None without.

    A tenant can bind a pod itself under any scheduler's name, so pods of its own namespace prove nothing.
    """
    seen: dict[str, set[str]] = {}
    for pod in there:
        if _has_started(pod):
            seen.setdefault(pod.scheduler, set()).add(pod.object.namespace)

    def exists(pod: KubePod) -> bool:
        if listed is not None:
            return pod.scheduler in listed
        others = seen.get(pod.scheduler, set()) - {pod.object.namespace}
        return pod.scheduler == DEFAULT_SCHEDULER or bool(others)

    return exists


class _Room(Struct):
    """What pods have left of a node. ``free``: without GPUs; ``shares``: GPUs held together."""

    node: KubeNode
    free: dict[str, int]
    gpus: int = 0
    shares: set[Share] = set()

    def fits(self, pod: KubePod) -> bool:
        """Whether the pod fits; of a bound pod, what the node does not report is no obstacle."""
        for name, amount in self._amounts(pod).items():
            reported = self.node.allocatable.get(name)
            if amount > self.free.get(name, 0) and (reported or not pod.bound):
                return False
        if pod.holding is None or self.node.shared is not None:
            return True
        needed = self._gpus(pod.holding)
        if needed <= max(0, self.node.gpus - self.gpus):
            chosen = pod.bound or pod.tied == CHOSEN  # who chose the node knows what it offers
            return not needed or chosen or pod.gpu_resource in (None, *self.node.gpu_names)
        return pod.bound and not self.node.gpus

    def take(self, pod: KubePod) -> None:
        for name, amount in self._amounts(pod).items():
            self.free[name] = self.free.get(name, 0) - amount
        if pod.holding is not None:
            self.gpus += self._gpus(pod.holding)
            self.shares.update(pod.holding.shares)

    def _gpus(self, holding: Holding) -> int:
        """GPUs that the pod takes beyond those that others share with it; none for a part of any GPU."""
        shares = (s for s in holding.shares if holding.part is None or not isinstance(s, str))
        return holding.gpus + sum(not is_taken(share, self.shares) for share in shares)

    def _amounts(self, pod: KubePod) -> dict[str, int]:
        """Requests and the pod slot; fractions of GPUs, which not every node reports, count as GPUs.

        Of instances that claims make of GPUs a node reports no number.
        """
        made, given = self.node.board is not None, {one.name for one in gpu_systems()}
        return {"pods": 1} | {
            name: amount
            for name, amount in pod.requests.items()
            if not is_about_gpus(name)
            or (PARTITIONS.fullmatch(name) and not (made and name.startswith(RESOURCE)))
            if name not in given
        }
