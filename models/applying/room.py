"""Whether pods find room on nodes as they are now: GPUs, their indices, other resources, pod slots.

Promises: exact; whoever is bound, pinned or intended somewhere takes room there, Terminating or not;
a pod never stands in its own way. Called by staleness and the machine in this package.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from models.applying.orders import PodOrder
from models.applying.roster import pods_at
from models.applying.seen import NodeSeen, PodSeen, View

_SLOTS = "pods"


@dataclass(slots=True)
class Taken:
    """What is taken on one node. ``indices``: GPU to the pod that holds it, where that is known."""

    gpus: int = 0
    pods: int = 0
    amounts: dict[str, int] = field(default_factory=dict)
    indices: dict[int, str] = field(default_factory=dict)

    def add(self, pod: PodSeen) -> None:
        self.gpus += pod.gpus
        self.pods += 1
        for name, amount in pod.requests:
            self.amounts[name] = self.amounts.get(name, 0) + amount
        for index in pod.indices or ():
            self.indices[index] = f"{pod.namespace}/{pod.name}"


def taken(view: View, nodes: Collection[str], *, without: Collection[str] = ()) -> dict[str, Taken]:
    """What is taken on each of the nodes; ``without``: uids of pods not to count."""
    found = {name: Taken() for name in nodes}
    for pod in pods_at(view, found):
        if pod.uid not in without:
            found[pod.place or ""].add(pod)
    return found


def lacks(
    view: View, orders: Iterable[PodOrder], *, without: Collection[str] = ()
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


def _lack(view: View, node: NodeSeen, orders: list[PodOrder], used: Taken) -> Iterable[str]:
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


def _asked(view: View, orders: list[PodOrder]) -> tuple[int, dict[str, int]]:
    """GPUs and other amounts that the pods ask for together."""
    gpus, amounts = 0, dict[str, int]()
    for order in orders:
        seen = view.pods.get(order.key)
        here = seen if seen is not None and seen.uid == order.uid else None
        gpus += order.gpu_count if here is None else here.gpus
        for name, amount in order.requests if here is None else here.requests:
            amounts[name] = amounts.get(name, 0) + amount
    return gpus, amounts


def overfull(view: View, nodes: Collection[str]) -> list[str]:
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
