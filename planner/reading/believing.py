"""What running pods say they hold, taken as it was observed: more than there is, or one GPU twice.

Promises: never a fault; a GPU that two pods hold, and one the node cannot have, nobody knows.
Called by ``planner.reading.gangs`` for live clusters and for plans.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import replace

from models.cluster import Node
from models.documents import PodDocument, RoleDocument
from models.gang import Gang, StandingPod
from models.masks import bits
from models.quantities import shown


def believable(pod: PodDocument, role: RoleDocument, node: Node) -> int | None:
    """Mask of the GPUs a pod says it holds; None where it names none, or the node cannot have them."""
    if not role.gpus:
        return 0
    if pod.gpus is None or role.gpus > node.gpus or any(gpu >= node.gpus for gpu in pod.gpus):
        return None
    return sum(1 << gpu for gpu in set(pod.gpus))


def settled(
    gangs: Sequence[Gang], held: dict[tuple[int, int], str], unknown: dict[int, int]
) -> list[Gang]:
    """The gangs, GPUs that two pods hold unknown in both of them.

    ``held``, (node, GPU) to its owner, and ``unknown``, GPUs a node, learn of what their pods hold.
    """
    once: dict[int, int] = {}
    twice: dict[int, int] = {}
    for node, gpu in held:
        once[node] = once.get(node, 0) | 1 << gpu
    for _, node, pod in _running(gangs):
        twice[node] = twice.get(node, 0) | (once.get(node, 0) & (pod.gpus or 0))
        once[node] = once.get(node, 0) | (pod.gpus or 0)
    for gang, node, pod in _running(gangs):
        if pod.gpus is None or pod.gpus & twice[node]:
            unknown[node] = unknown.get(node, 0) + gang.roles[pod.role].gpus
            continue
        for gpu in bits(pod.gpus):
            held[node, gpu] = f"pod {shown(pod.name)}"
    return [_unsure(gang, twice) for gang in gangs]


def _running(gangs: Iterable[Gang]) -> list[tuple[Gang, int, StandingPod]]:
    return [(gang, pod.node, pod) for gang in gangs for pod in gang.pods if pod.node is not None]


def _unsure(gang: Gang, twice: dict[int, int]) -> Gang:
    """The gang with GPUs unknown of every pod that holds one of those; ``twice``: a mask a node."""
    pods = tuple(
        replace(pod, gpus=None)
        if pod.node is not None and (pod.gpus or 0) & twice[pod.node]
        else pod
        for pod in gang.pods
    )
    return gang if pods == gang.pods else replace(gang, pods=pods)
