"""The live cluster as the apply machine sees it: nodes, pods, pod states and free room on nodes.

Amounts are integers as in an Instance. A pod that is bound or pinned to a node, or that a record means to
start there, occupies room there, also while it terminates.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum

from msgspec import structs

from models.apply.notes import RunNotes
from models.apply.placement_requests import LiveRequest
from models.apply.plan_actions import Key, Named, PodStart, PodStop
from models.apply.records import RecordKey, StartRecord
from models.documents.gang import Toleration
from models.instance.disruption_budgets import DisruptionBudgets


class LivePod(Named, frozen=True):
    """One live pod.

    ``version``: metadata.resourceVersion. ``node``: spec.nodeName. ``held_at``: the node whose room an
    unbound pod occupies: as is recorded, or pinned or nominated where it fits. ``start``: what is recorded of
    it alone. ``unschedulable``: message of PodScheduled=False, if its scheduler has tried it. ``requests``:
    without GPUs. ``indices``: GPUs it holds, None if unknown; ``shares``: those of which it holds parts, by
    index or name; ``made``: instances that its claims made, each as GPU and mask of memory slices.
    ``selector``, ``node_affinity``: spec.nodeSelector and spec.affinity.nodeAffinity (JSON). ``owner``: uid
    of its controller. ``tolerations``: None if not read. ``expected``: it does not exist yet: it is
    made once a request is answered.
    """

    uid: str
    version: str
    node: str | None = None
    held_at: str | None = None
    gates: tuple[str, ...] = ()
    scheduler: str = "default-scheduler"
    terminating: bool = False
    finished: bool = False
    start: StartRecord | None = None
    unschedulable: str | None = None
    gpus: int = 0
    requests: tuple[tuple[str, int], ...] = ()
    indices: tuple[int, ...] | None = None
    shares: tuple[int | str, ...] = ()
    made: tuple[tuple[int, int], ...] = ()
    selector: tuple[tuple[str, str], ...] = ()
    node_affinity: str = "null"
    owner: str | None = None
    tolerations: tuple[Toleration, ...] | None = None
    expected: bool = False

    def carries(self, plan: str) -> bool:
        """Whether this plan means to start it, or has."""
        return self.start is not None and self.start.plan == plan

    def meant(self, start: StartRecord | None) -> LivePod:
        """With this start, and while it is not bound with the room that this gives it."""
        unbound = self.node is None and self.stays
        node, indices = None, None if unbound else self.indices
        if start is not None:
            node, gpus = start.pod.node, start.pod.gpus
            indices = indices if gpus is None else gpus
        return structs.replace(
            self, start=start, held_at=node if unbound else None, indices=indices
        )

    @property
    def stays(self) -> bool:
        """Whether it has not finished and is not being deleted."""
        return not (self.terminating or self.finished)

    @property
    def place(self) -> str | None:
        """The node whose room it occupies."""
        return None if self.finished else self.node or self.held_at


@dataclass(frozen=True, slots=True)
class LiveNode:
    """One live node. ``allocatable``: without GPUs; ``gpus``: allocatable whole GPUs.

    ``taints``: (key, value, effect) of effects NoSchedule and NoExecute. ``hostname``: label
    kubernetes.io/hostname if no other node has the same value.
    """

    name: str
    ready: bool = True
    unschedulable: bool = False
    gpus: int = 0
    allocatable: tuple[tuple[str, int], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """One reading of the cluster.

    ``budgets``: None if they were not or cannot be read. ``notes``: of earlier runs. ``now``: the server's
    clock, seconds since the epoch, None if unknown. ``requests``: for a placement, by uid. ``records``: of
    starts that are not over; what ``pods`` have of it is theirs.
    """

    cluster: str
    nodes: dict[str, LiveNode]
    pods: dict[Key, LivePod]
    budgets: DisruptionBudgets | None = None
    notes: RunNotes = field(default_factory=RunNotes)
    now: int | None = None
    requests: dict[str, LiveRequest] = field(default_factory=dict)
    records: dict[RecordKey, StartRecord] = field(default_factory=dict)

    def indexed(self) -> ClusterView:
        """A copy with its own PodIndex."""
        return replace(self, pods=PodIndex(self.pods), records=dict(self.records))

    def enter(self, key: RecordKey, record: StartRecord | None) -> None:
        """A record is there now, in place of an earlier one, or is gone."""
        before = self.records.pop(key, None)
        starts = dict.fromkeys({} if before is None else before.parts())
        if record is not None:
            self.records[key] = record
            starts |= record.parts()
        for (name, uid), start in starts.items():
            pod = self.pods.get(name)
            if pod is not None and pod.uid == uid and pod.start != start:
                self.pods[name] = pod.meant(start)


def pod_of(view: ClusterView, order: PodStart | PodStop) -> LivePod | None:
    """The pod of an order; None if it is missing or another pod has its name."""
    pod = view.pods.get(order.key)
    return pod if pod is not None and pod.uid == order.uid else None


class PodIndex(dict[Key, LivePod]):
    """Pods by (namespace, name), indexed by node. Change it by assignment and ``pop`` only."""

    def __init__(self, pods: Mapping[Key, LivePod]) -> None:
        super().__init__(pods)
        self._places: dict[str, dict[Key, LivePod]] = {}
        for key, pod in pods.items():
            self._add(key, pod)

    def __setitem__(self, key: Key, pod: LivePod) -> None:
        self._drop(key)
        super().__setitem__(key, pod)
        self._add(key, pod)

    def pop(self, key: Key, default: LivePod | None = None) -> LivePod | None:  # type: ignore[override]  # the one form used
        self._drop(key)
        return super().pop(key, default)

    def on_node(self, node: str) -> Iterable[LivePod]:
        return self._places.get(node, {}).values()

    def _add(self, key: Key, pod: LivePod) -> None:
        if pod.place is not None:
            self._places.setdefault(pod.place, {})[key] = pod

    def _drop(self, key: Key) -> None:
        old = self.get(key)
        if old is not None and old.place is not None:
            self._places[old.place].pop(key, None)


def pods_on(view: ClusterView, nodes: Iterable[str]) -> Iterable[LivePod]:
    """Pods that occupy room on any of the nodes."""
    pods = view.pods if isinstance(view.pods, PodIndex) else PodIndex(view.pods)
    return [pod for node in nodes for pod in pods.on_node(node)]


class PodState(StrEnum):
    """State of a pod relative to the node that its plan chose."""

    waiting = "waiting"
    """Not started."""
    ungated = "ungated"
    """Started; the scheduler has not bound it yet."""
    bound = "bound"
    """Started, on the planned node."""
    misplaced = "misplaced"
    """Bound to another node."""
    finished = "finished"
    """It was bound and has finished."""
    terminating = "terminating"
    """It was started and is being deleted."""
    gone = "gone"
    """Deleted, replaced by another pod, or dead before it started."""


STARTED = (PodState.ungated, PodState.bound, PodState.finished)
RUNNING = (PodState.ungated, PodState.bound)


@dataclass(frozen=True, slots=True)
class PodClassifier:
    """Derives pod states from our scheduling gate: a pod is started once that is removed."""

    gate: str

    def gated(self, pod: LivePod) -> bool:
        return self.gate in pod.gates

    def started(self, pod: LivePod) -> bool:
        return pod.node is not None or not self.gated(pod)

    def over(self, pod: LivePod) -> str | None:
        """Why a pod that should still wait does not."""
        if pod.terminating:
            return "is being deleted"
        if pod.finished:
            return "has finished"
        if pod.node is not None:
            return f"is bound to node {pod.node}"
        return "lost its gate" if self.started(pod) else None

    def other_gates(self, pod: LivePod) -> tuple[str, ...]:
        """Gates of other controllers, which hold the pod back."""
        return tuple(gate for gate in pod.gates if gate != self.gate)

    def state(self, pod: LivePod | None, uid: str, node: str) -> PodState:  # noqa: PLR0911
        """State of the pod with this uid on its way to the node."""
        if pod is None or pod.uid != uid:
            return PodState.gone
        if not self.started(pod):
            if pod.terminating or pod.finished:
                return PodState.gone
            return PodState.waiting
        if pod.node is not None and pod.node != node:
            return PodState.misplaced
        if pod.finished:
            return PodState.finished if pod.node is not None else PodState.gone
        if pod.terminating:
            return PodState.terminating
        return PodState.ungated if pod.node is None else PodState.bound


_POD_SLOTS = "pods"


@dataclass(slots=True)
class NodeUsage:
    """Occupied room of one node. ``indices``: GPU index to the pod that holds it, where known.

    ``shared``: GPUs of which pods hold parts, by index or by a name; ``slices``: masks of the memory slices
    of GPUs that instances have.
    """

    gpus: int = 0
    pods: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    indices: dict[int, str] = field(default_factory=dict)
    shared: set[int | str] = field(default_factory=set)
    slices: dict[int, int] = field(default_factory=dict)

    def add(self, pod: LivePod) -> None:
        self.gpus += pod.gpus
        self.pods += 1
        for name, amount in pod.requests:
            self.amounts[name] = self.amounts.get(name, 0) + amount
        for index in pod.indices or ():
            self.indices[index] = str(pod)
        self.shared.update(pod.shares)
        for gpu, mask in pod.made:
            self.shared.add(gpu)
            self.slices[gpu] = self.slices.get(gpu, 0) | mask


def usage(
    view: ClusterView, nodes: Collection[str], *, without: Collection[str] = ()
) -> dict[str, NodeUsage]:
    """Usage of each of the nodes. ``without``: uids of pods that do not count."""
    found = {name: NodeUsage() for name in nodes}
    for pod in pods_on(view, found):
        if pod.uid not in without:
            found[pod.place or ""].add(pod)
    return found


def shortages(
    view: ClusterView, orders: Iterable[PodStart], *, without: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(node, shortage) if pods start together, sorted; empty if all fit.

    A live pod requests what its spec says, a missing pod what the plan says. ``without``: uids of pods
    whose room counts as free.
    """
    starting: dict[str, list[PodStart]] = defaultdict(list)
    for order in orders:
        starting[order.node].append(order)
    own = {order.uid for pods in starting.values() for order in pods if order.uid}
    used = usage(view, starting, without={*without, *own})
    found = []
    for name in sorted(starting):
        node = view.nodes.get(name)
        if node is None:
            found.append((name, "does not exist"))
        else:
            found.extend(
                (name, what) for what in _shortages(view, node, starting[name], used[name])
            )
    return found


def _shortages(
    view: ClusterView, node: LiveNode, orders: list[PodStart], used: NodeUsage
) -> Iterable[str]:
    gpus, amounts = _requested(view, orders)
    parted = {gpu for order in orders for gpu in order.parted}
    gpus += len(parted - used.shared)
    held = used.gpus + len(used.shared)
    if held + gpus > node.gpus and gpus:
        free = max(0, node.gpus - held)
        yield f"has {free} free GPUs, the plan needs {gpus}"
    else:
        yield from _taken(orders, used)
    offered = dict(node.allocatable)
    for name in sorted(amounts):
        if name in offered and amounts[name] and name != _POD_SLOTS:
            short = used.amounts.get(name, 0) + amounts[name] - offered[name]
            if short > 0:
                yield f"lacks free {name}: {short:,} short"
    if _POD_SLOTS in offered and used.pods + len(orders) > offered[_POD_SLOTS]:
        yield f"has no room for {len(orders)} more pods"


def _taken(orders: Iterable[PodStart], used: NodeUsage) -> Iterable[str]:
    """GPUs of the orders that pods hold, or of which they hold parts that the orders want too."""
    for order in orders:
        own = order.parted
        for index in (*(order.gpus or ()), *own):
            if isinstance(index, int) and index in used.indices:
                yield f"has GPU {index} in use by pod {used.indices[index]}"
            elif index in used.shared and index not in own:
                yield f"has GPU {index} shared by pods"
        for _, gpu, mask in order.instances:
            if used.slices.get(gpu, 0) & mask:
                yield f"has instances in use on GPU {gpu} where the plan has others"


def _requested(view: ClusterView, orders: list[PodStart]) -> tuple[int, dict[str, int]]:
    gpus, amounts = 0, dict[str, int]()
    for order in orders:
        pod = view.pods.get(order.key)
        same = pod if pod is not None and pod.uid == order.uid else None
        gpus += order.gpu_count if same is None else same.gpus
        for name, amount in order.requests if same is None else same.requests:
            amounts[name] = amounts.get(name, 0) + amount
    return gpus, amounts


def overcommitted(view: ClusterView, nodes: Collection[str]) -> list[str]:
    """Nodes whose bound pods hold more GPUs than exist, or one GPU index twice, sorted."""
    found = set()
    count = dict.fromkeys(nodes, 0)
    held: dict[tuple[str, int], str] = {}
    for pod in pods_on(view, count):
        name = pod.node
        if name is None or name not in view.nodes:
            continue  # not bound yet
        count[name] += pod.gpus
        twice = [held.setdefault((name, index), pod.uid) != pod.uid for index in pod.indices or ()]
        if any(twice) or count[name] > view.nodes[name].gpus:
            found.add(name)
    return sorted(found)
