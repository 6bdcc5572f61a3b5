"""What given pods leave free on every node: GPUs, and every resource that limits.

Promises: pure arithmetic on an Instance, no solver; one place where free room is defined.
Called by the greedy start, the formulation and the reasons for waiting.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from models.cluster import Node
from models.instance import Instance
from models.solution import GangDecision, PodPlacement

PODS = "pods"


@dataclass(frozen=True, slots=True)
class Room:
    """Room of one node beside the pods that are taken as given.

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


def rooms(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[Room, ...]:
    """Room of every node, in cluster order, beside the pods of these decisions (one a gang)."""
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
            Room(mask, unknown[index], free, left, _blind(instance, node, unknown[index]))
        )
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
        max(0, (node.healthy & ~held[i]).bit_count() - hidden[i])
        if instance.schedulable(node)
        else 0
        for i, node in enumerate(nodes)
    ]
