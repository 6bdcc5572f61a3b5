"""Pinned cells of a tiny instance: whose node it is, who may come, and who is a guest there. Rule 2.26.

Promises: the words of the rule, node by node; own code. Called by the exhaustive planner's queues.
"""

from __future__ import annotations

from exhaustive_prices import ours

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Pin


def pinned_to(instance: Instance, n: int) -> set[int]:
    """The queues that pin a node."""
    node = instance.cluster.nodes[n]
    if node.model is None or not ours(instance, node):
        return set()
    return {
        q
        for q, one in enumerate(instance.queues)
        if any(_has(pin, instance, n) for pin in one.pins)
    }


def _has(pin: Pin, instance: Instance, n: int) -> bool:
    node = instance.cluster.nodes[n]
    if pin.level is None:
        return node.name in pin.nodes
    path = node.domains[: pin.level + 1]
    return all(path) and "/".join(str(name) for name in path) == pin.domain


def queues_of(instance: Instance, gang: Gang) -> set[int]:
    """The queues that a gang is in."""
    found = set[int]()
    name = gang.queue
    while name is not None:
        at = [q for q, one in enumerate(instance.queues) if one.name == name]
        found.update(at)
        parent = instance.queues[at[0]].parent if at else None
        name = None if parent is None else instance.queues[parent].name
    return found


def shut_out(instance: Instance, gang: Gang, n: int) -> bool:
    """Whether no pod with GPUs of a gang may come to a node, for it is pinned to others."""
    if gang.preemptible or (gang.queue is None and gang.scheduler is not None):
        return False
    return not pinned_to(instance, n) <= queues_of(instance, gang)


def visits(instance: Instance, gang: Gang) -> set[int]:
    """The queues on whose pinned nodes a gang runs with GPUs, without being in them."""
    found = set[int]()
    for pod in gang.pods:
        if pod.node is not None and gang.roles[pod.role].gpus:
            found |= pinned_to(instance, pod.node)
    return found - queues_of(instance, gang)
