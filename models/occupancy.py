"""What standing pods leave free on every node: GPUs, and every resource that limits.

Promises: pure arithmetic on an Instance, no solver; one place where free room is defined.
Called by the greedy start, the formulation and the reasons for waiting.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from models.cluster import Node
from models.instance import Instance
from models.solution import PodPlacement

PODS = "pods"


@dataclass(frozen=True, slots=True)
class Room:
    """Room of one node before the plan.

    ``mask``: healthy GPUs not known to be held. ``unknown``: GPUs held or sick, nobody knows which.
    ``free_gpus``: how many may be given, 0 if the node takes no pods of ours.
    ``left``: what is left of every limiting resource, negative where standing pods overfill it.
    ``blind``: the pods placed here do not get GPU indices (contract 2.9 and gpuBinding none).
    """

    mask: int
    unknown: int
    free_gpus: int
    left: tuple[tuple[str, int], ...]
    blind: bool

    def left_of(self, resource: str) -> int | None:
        """What is left of one resource; None where it does not limit."""
        return dict(self.left).get(resource)


def rooms(instance: Instance) -> tuple[Room, ...]:
    """Room of every node, in cluster order, after the pods that stand."""
    standing: dict[int, list[tuple[int, int | None, int, tuple[tuple[str, int], ...]]]] = {}
    for gang in instance.gangs:
        for pod in gang.standing:
            role = gang.roles[pod.role]
            assert pod.node is not None
            standing.setdefault(pod.node, []).append(
                (role.gpus, pod.gpus, pod.role, role.requests)
            )
    result = []
    for index, node in enumerate(instance.cluster.nodes):
        pods = standing.get(index, [])
        known = 0
        unknown = node.unknown_unhealthy
        used: dict[str, int] = {PODS: len(pods)}
        for gpus, mask, _, requests in pods:
            if gpus and mask is None:
                unknown += gpus
            known |= mask or 0
            for resource, amount in requests:
                used[resource] = used.get(resource, 0) + amount
        mask = node.healthy & ~known
        free = max(0, mask.bit_count() - unknown) if instance.schedulable(node) else 0
        left = tuple((name, amount - used.get(name, 0)) for name, amount in node.allocatable)
        result.append(Room(mask, unknown, free, left, _blind(instance, node, unknown)))
    return tuple(result)


def _blind(instance: Instance, node: Node, unknown: int) -> bool:
    unswitched = node.model is not None and not node.model.switched
    return unknown > 0 or (instance.policy.gpu_binding == "none" and unswitched)


def free_after(instance: Instance, pods: Iterable[tuple[int, PodPlacement]]) -> list[int]:
    """Healthy GPUs of every node in no pod after the plan; 0 where the node takes no pods of ours.

    ``pods``: (GPUs of the pod, its placement) of every pod after the plan, standing ones included.
    Contract, section 4: free(n).
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
        max(0, (node.healthy & ~held[i]).bit_count() - hidden[i]) if instance.schedulable(node) else 0
        for i, node in enumerate(nodes)
    ]
