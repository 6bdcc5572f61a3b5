"""Free space of every node: GPUs, and every resource that limits pods."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from models.cluster import Node
from models.instance import Instance
from models.solution import GangDecision, PodPlacement

PODS = "pods"


@dataclass(frozen=True, slots=True)
class Room:
    """Free space of one node, given the pods on it.

    ``mask``: healthy GPUs not known to be held. ``unknown``: GPUs held or unhealthy, of unknown index.
    ``free_gpus``: GPUs that may be assigned; 0 if the node accepts no pods of the policy.
    ``left``: free amount of every limiting resource; negative where running pods exceed it.
    ``blind``: pods placed here get no GPU indices.
    """

    mask: int
    unknown: int
    free_gpus: int
    left: tuple[tuple[str, int], ...]
    blind: bool

    def left_of(self, resource: str) -> int | None:
        """Free amount of one resource; None where it does not limit."""
        return dict(self.left).get(resource)


def rooms(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[Room, ...]:
    """Free space of every node, in cluster order, given the pods of one decision for each gang."""
    nodes = instance.cluster.nodes
    known = [0] * len(nodes)
    unknown = [node.unknown_unhealthy for node in nodes]
    used: list[dict[str, int]] = [{PODS: 0} for _ in nodes]
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        for pod in decision.pods:
            role = gang.roles[pod.role]
            if pod.gpus is None:
                unknown[pod.node] += role.gpus
            known[pod.node] |= pod.gpus or 0
            for resource, amount in ((PODS, 1), *role.requests):
                used[pod.node][resource] = used[pod.node].get(resource, 0) + amount
    result = []
    for index, node in enumerate(nodes):
        mask = node.healthy & ~known[index]
        free = max(0, mask.bit_count() - unknown[index]) if instance.schedulable(node) else 0
        left = tuple((name, most - used[index].get(name, 0)) for name, most in node.allocatable)
        result.append(
            Room(mask, unknown[index], free, left, is_blind(instance, node, unknown[index]))
        )
    return tuple(result)


def is_blind(instance: Instance, node: Node, unknown: int) -> bool:
    """Whether pods placed on the node get no GPU indices. ``unknown``: GPUs of unknown index."""
    unswitched = node.model is not None and not node.model.switched
    return unknown > 0 or (instance.policy.gpu_binding == "none" and unswitched)


def free_after(instance: Instance, pods: Iterable[tuple[int, PodPlacement]]) -> list[int]:
    """Healthy GPUs of every node that no pod holds after the plan; 0 where the node accepts no pods.

    ``pods``: (GPUs of the pod, its placement) of every pod after the plan, running ones included.
    """
    nodes = instance.cluster.nodes
    held = [0] * len(nodes)
    hidden = [node.unknown_unhealthy for node in nodes]
    for gpus, pod in pods:
        if pod.gpus is None:
            hidden[pod.node] += gpus
        else:
            held[pod.node] |= pod.gpus
    return [
        max(0, (node.healthy & ~held[i]).bit_count() - hidden[i])
        if instance.schedulable(node)
        else 0
        for i, node in enumerate(nodes)
    ]
