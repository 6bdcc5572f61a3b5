"""Rule 2.26: to pinned nodes of a queue no pod with GPUs of another gang comes that cannot be stopped.

A node is pinned by queues that are above one another. Gangs with ``preemptible`` may borrow it; they are
guests there, and give way to gangs of the queue that reclaim.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.instance.instance import Instance, once
from models.instance.queue import Pin, path_of

Nodes = frozenset[int]


def pinned_nodes(instance: Instance) -> Mapping[int, Nodes]:
    """The selected nodes with GPUs that each queue pins; only of queues that do."""
    return instance.once(_Pins).nodes if _any(instance) else {}


def pinned_gpus(instance: Instance, queue: int) -> int:
    """GPUs installed on the nodes that a queue pins, and keeps others off."""
    nodes = instance.cluster.nodes
    if any(pin.lax for pin in instance.queues[queue].pins):
        return 0
    return sum(nodes[n].gpus for n in pinned_nodes(instance).get(queue, ()))


def pinned_by(instance: Instance, node: int) -> tuple[int, ...]:
    """The queues that pin a node, ascending."""
    return instance.once(_Pins).owners.get(node, ()) if _any(instance) else ()


def closed_by_pins(instance: Instance, gang: Gang) -> Nodes:
    """Nodes to which no pod with GPUs of the gang may come."""
    if not gang.firm or not _any(instance):
        return frozenset()
    return instance.once(_Pins).closed(gang.queue)


def beside_pins(instance: Instance, gang: Gang, role: Role, nodes: Nodes) -> Nodes:
    """Those of some nodes to which pods of the role may come."""
    closed = closed_by_pins(instance, gang) if role.gpus else frozenset()
    return instance.once(_Pins).without(nodes, closed) if closed else nodes


def guest_of(instance: Instance, index: int) -> frozenset[int]:
    """The queues that a gang is not in, and on whose pinned nodes pods with GPUs of it run."""
    return instance.once(_Pins).hosts(index) if _any(instance) else frozenset()


def trespassing(instance: Instance, gang: Gang, nodes: Iterable[int]) -> Mapping[str, int]:
    """How many of these nodes each queue closes to the gang, by its name: of each node the innermost."""
    if not _any(instance):
        return {}
    pins, found = instance.once(_Pins), dict[str, int]()
    own = pins.path(gang.queue)
    for n in set(nodes) & closed_by_pins(instance, gang):
        owner = max((q for q in pins.owners[n] if q not in own), key=lambda q: len(pins.above[q]))
        name = instance.queues[owner].name
        found[name] = found.get(name, 0) + 1
    return found


def place_of(cluster: Cluster, pin: Pin) -> Nodes:
    """All nodes of a pinned cell, selected or not."""
    if pin.domain is None or pin.level is None:
        names = set(pin.nodes)
        return frozenset(n for n, node in enumerate(cluster.nodes) if node.name in names)
    return frozenset(
        n
        for domain in cluster.domains[pin.level]
        if None not in cluster.nodes[domain.nodes[0]].domains[: pin.level + 1]
        and "/".join(domain.path) == pin.domain
        for n in domain.nodes
    )


@once
def _any(instance: Instance) -> bool:
    return any(queue.pins for queue in instance.queues)


class _Pins:
    """``owners``: of each pinned node. ``above``: of each queue itself and all above it."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        nodes = instance.cluster.nodes
        queues = instance.queues
        self.above = [path_of(queues, q) for q in range(len(queues))]
        self._number: dict[str | None, int] = {queue.name: q for q, queue in enumerate(queues)}
        self.nodes: dict[int, Nodes] = {}
        found: dict[int, list[int]] = {}
        for q, queue in enumerate(queues):
            own = frozenset[int]().union(*(place_of(instance.cluster, pin) for pin in queue.pins))
            own = frozenset(n for n in own if nodes[n].gpus and instance.ours(nodes[n]))
            if own:
                self.nodes[q] = own
            for n in own:
                found.setdefault(n, []).append(q)
        self.owners = {n: tuple(of) for n, of in found.items()}
        self._lax = all(pin.lax for queue in queues for pin in queue.pins)
        self._closed: dict[str | None, Nodes] = {}
        self._without: dict[tuple[Nodes, Nodes], Nodes] = {}

    def path(self, name: str | None) -> tuple[int, ...]:
        """The queues that a gang is in which names this one."""
        number = self._number.get(name)
        return () if number is None else self.above[number]

    def closed(self, name: str | None) -> Nodes:
        if name not in self._closed:
            own = set(self.path(name))
            self._closed[name] = frozenset(
                n for n, of in self.owners.items() if not (self._lax or own.issuperset(of))
            )
        return self._closed[name]

    def without(self, nodes: Nodes, closed: Nodes) -> Nodes:
        key = (nodes, closed)
        if key not in self._without:
            self._without[key] = nodes - closed
        return self._without[key]

    def hosts(self, index: int) -> frozenset[int]:
        gang = self._instance.gangs[index]
        own = self.path(gang.queue)
        return frozenset(
            q
            for pod in gang.running_pods
            if gang.roles[pod.role].gpus and pod.node is not None
            for q in self.owners.get(pod.node, ())
            if q not in own
        )
