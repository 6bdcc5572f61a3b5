"""What was seen of the live cluster: nodes and pods, reduced to what applying depends on.

Promises: frozen facts without judgement; amounts are integers as in an Instance. Built by
``planner.cluster.live_view``; judged by the rest of this package.

The fence: which intents on pods were written by runs, and not by whoever may write to a pod.

Promises: pure. A seal holds for one pod, by uid, and one intent; nobody makes one without the key, which
only those know who may read the lock. Called by ``planner.cluster``.

Pods by key, and by the node whose room they take: kept together while pods change.

Promises: a dict in every way; ``at`` costs what stands there, not what the cluster holds.
Called by ``room`` and the desk.

Whether pods find room on nodes as they are now: GPUs, their indices, other resources, pod slots.

Promises: exact; whoever is bound, pinned or intended somewhere takes room there, Terminating or not;
a pod never stands in its own way. Called by staleness and the machine in this package.
"""

from __future__ import annotations

import hashlib
import hmac
import json
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from models.apply.intents import Intent
from models.apply.orders import Key, PodOrder


@dataclass(frozen=True, slots=True)
class LivePod:
    """One live pod.

    ``version``: metadata.resourceVersion. ``node``: spec.nodeName, where it is bound; None if it is not.
    ``held_at``: where it has room although it is not bound: pinned, nominated, or by our intent.
    ``gates``: scheduling gates in order. ``intent``: what our label and annotations say.
    ``intent_is_ours``: managedFields say that our field manager wrote them.
    ``unschedulable``: message of PodScheduled=False with reason Unschedulable. ``group``: name of its
    native PodGroup. ``requests``: without GPUs. ``indices``: GPUs it holds, None where nobody knows.
    ``selector``, ``affinity``: spec.nodeSelector and spec.affinity.nodeAffinity as they are (JSON).
    ``owner``: uid of its controller. ``tolerations``: (key, operator, value, effect); None: not read.
    """

    namespace: str
    name: str
    uid: str
    version: str
    node: str | None = None
    held_at: str | None = None
    gates: tuple[str, ...] = ()
    scheduler: str = "default-scheduler"
    terminating: bool = False
    finished: bool = False
    intent: Intent | None = None
    intent_is_ours: bool = False
    unschedulable: str | None = None
    group: str | None = None
    gpus: int = 0
    requests: tuple[tuple[str, int], ...] = ()
    indices: tuple[int, ...] | None = None
    selector: tuple[tuple[str, str], ...] = ()
    node_affinity: str = "null"
    owner: str | None = None
    tolerations: tuple[tuple[str, str, str, str], ...] | None = None

    @property
    def key(self) -> Key:
        return (self.namespace, self.name)

    @property
    def place(self) -> str | None:
        """The node whose room it takes; None if it takes none. Terminating pods still do."""
        return None if self.finished else self.node or self.held_at


@dataclass(frozen=True, slots=True)
class LiveNode:
    """One live node. ``allocatable``: without GPUs; ``gpus``: allocatable whole GPUs.

    ``taints``: (key, value, effect) of effects NoSchedule and NoExecute. ``hostname``: its label
    kubernetes.io/hostname where no other node has the same; None otherwise.
    """

    name: str
    uid: str = ""
    ready: bool = True
    unschedulable: bool = False
    gpus: int = 0
    allocatable: tuple[tuple[str, int], ...] = ()
    taints: tuple[tuple[str, str, str], ...] = ()
    labels: tuple[tuple[str, str], ...] = ()
    hostname: str | None = None


@dataclass(frozen=True, slots=True)
class ClusterView:
    """The cluster at one reading. ``groups``: native PodGroups, (namespace, name) to gang minCount."""

    cluster: str
    nodes: dict[str, LiveNode]
    pods: dict[Key, LivePod]
    groups: dict[Key, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SealKey:
    """``key``: secret of this cluster's runs. ``since``: when it was made, seconds since the epoch.

    Pods that are older than the key may carry intents of runs that knew another one: those are
    believed without a seal. A pod's age is the server's word, and nobody can change it.
    """

    key: str = field(repr=False)
    since: int

    def seal(self, namespace: str, name: str, uid: str, intent: Intent) -> str:
        """What is written beside the intent on that very pod."""
        said = [namespace, name, uid, sorted(intent.annotations().items())]
        text = json.dumps(said, separators=(",", ":"))
        return hmac.new(self.key.encode(), text.encode(), hashlib.sha256).hexdigest()[:32]

    def holds(
        self,
        namespace: str,
        name: str,
        uid: str,
        intent: Intent,
        seal: str,
        created: int | None,
    ) -> bool:
        """Whether a run wrote this intent on this pod. ``created``: None if nobody knows."""
        if created is not None and created <= self.since:
            return True
        own = self.seal(namespace, name, uid, intent)
        return hmac.compare_digest(own.encode(), seal.encode("utf-8", "replace"))


def forged(pods: Iterable[LivePod]) -> list[LivePod]:
    """Pods whose intent no run of ours has written: it counts for nothing. By (namespace, name)."""
    return sorted(
        (pod for pod in pods if pod.intent is not None and not pod.intent_is_ours),
        key=lambda pod: pod.key,
    )


class PodIndex(dict[Key, LivePod]):
    """Pods by (namespace, name). Changed by assignment and by ``pop`` alone."""

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

    def at(self, node: str) -> Iterable[LivePod]:
        """Pods that take room on the node."""
        return self._places.get(node, {}).values()

    def _add(self, key: Key, pod: LivePod) -> None:
        if pod.place is not None:
            self._places.setdefault(pod.place, {})[key] = pod

    def _drop(self, key: Key) -> None:
        old = self.get(key)
        if old is not None and old.place is not None:
            self._places[old.place].pop(key, None)


def pods_at(view: ClusterView, nodes: Iterable[str]) -> Iterable[LivePod]:
    """Pods that take room on any of the nodes."""
    if isinstance(view.pods, PodIndex):
        return [pod for node in nodes for pod in view.pods.at(node)]
    wanted = frozenset(nodes)
    return [pod for pod in view.pods.values() if pod.place in wanted]


_SLOTS = "pods"


@dataclass(slots=True)
class NodeUsage:
    """What is taken on one node. ``indices``: GPU to the pod that holds it, where that is known."""

    gpus: int = 0
    pods: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    indices: dict[int, str] = field(default_factory=dict)

    def add(self, pod: LivePod) -> None:
        self.gpus += pod.gpus
        self.pods += 1
        for name, amount in pod.requests:
            self.amounts[name] = self.amounts.get(name, 0) + amount
        for index in pod.indices or ():
            self.indices[index] = f"{pod.namespace}/{pod.name}"


def taken(
    view: ClusterView, nodes: Collection[str], *, without: Collection[str] = ()
) -> dict[str, NodeUsage]:
    """What is taken on each of the nodes; ``without``: uids of pods not to count."""
    found = {name: NodeUsage() for name in nodes}
    for pod in pods_at(view, found):
        if pod.uid not in without:
            found[pod.place or ""].add(pod)
    return found


def lacks(
    view: ClusterView, orders: Iterable[PodOrder], *, without: Collection[str] = ()
) -> list[tuple[str, str]]:
    """(node, what it lacks) for pods that are to start together, sorted; empty if there is room.

    A pod asks for what it is seen to ask for, or for what the plan says where it is not there.
    ``without``: uids of pods whose room counts as free.
    """
    coming: dict[str, list[PodOrder]] = defaultdict(list)
    for order in orders:
        coming[order.node].append(order)
    own = {order.uid for group in coming.values() for order in group if order.uid}
    used = taken(view, coming, without={*without, *own})
    found = []
    for name in sorted(coming):
        node = view.nodes.get(name)
        if node is None:
            found.append((name, "is not there"))
            continue
        found.extend((name, what) for what in _lack(view, node, coming[name], used[name]))
    return found


def _lack(
    view: ClusterView, node: LiveNode, orders: list[PodOrder], used: NodeUsage
) -> Iterable[str]:
    gpus, amounts = _asked(view, orders)
    if used.gpus + gpus > node.gpus and gpus:
        free = max(0, node.gpus - used.gpus)
        yield f"has {free} of the {gpus} GPUs free that the plan gives there"
    else:
        for order in orders:
            for index in order.gpus or ():
                if index in used.indices:
                    yield f"has GPU {index} held by pod {used.indices[index]}"
    offered = dict(node.allocatable)
    for name in sorted(amounts):
        if name in offered and amounts[name] and name != _SLOTS:
            short = used.amounts.get(name, 0) + amounts[name] - offered[name]
            if short > 0:
                yield f"has too little {name} free: {short:,} short"
    if _SLOTS in offered and used.pods + len(orders) > offered[_SLOTS]:
        yield f"has no room for {len(orders)} more pods"


def _asked(view: ClusterView, orders: list[PodOrder]) -> tuple[int, dict[str, int]]:
    """GPUs and other amounts that the pods ask for together."""
    gpus, amounts = 0, dict[str, int]()
    for order in orders:
        seen = view.pods.get(order.key)
        here = seen if seen is not None and seen.uid == order.uid else None
        gpus += order.gpu_count if here is None else here.gpus
        for name, amount in order.requests if here is None else here.requests:
            amounts[name] = amounts.get(name, 0) + amount
    return gpus, amounts


def overfull(view: ClusterView, nodes: Collection[str]) -> list[str]:
    """Those of the nodes whose bound pods hold more GPUs than it has, or one GPU twice, sorted."""
    found = set()
    count = dict.fromkeys(nodes, 0)
    held: dict[tuple[str, int], str] = {}
    for pod in pods_at(view, count):
        name = pod.node
        if name is None or name not in view.nodes:
            continue  # it is only on its way there
        count[name] += pod.gpus
        twice = (held.setdefault((name, index), pod.uid) != pod.uid for index in pod.indices or ())
        if any(list(twice)) or count[name] > view.nodes[name].gpus:
            found.add(name)
    return sorted(found)
