"""Free space of every node: GPUs, and every resource that limits pods."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.reshaping import Uses, beside, is_blind, reshaping, taken_gpus
from models.instance.solution import GangDecision, PodPlacement

PODS = "pods"


@dataclass(frozen=True, slots=True)
class Room:
    """Free space of one node, given the pods on it.

    ``mask``: healthy GPUs not known to be held. ``unknown``: GPUs held or unhealthy, of unknown index.
    ``free_gpus``: GPUs that may be assigned; 0 if the node accepts no pods of the policy.
    ``left``: free amount of every limiting resource; negative where running pods exceed it.
    ``blind``: pods placed here get no GPU indices. ``kept``: mask of the releasable GPUs that stay shared.
    """

    mask: int
    unknown: int
    free_gpus: int
    left: tuple[tuple[str, int], ...]
    blind: bool
    kept: int = 0

    def left_of(self, resource: str) -> int | None:
        """Free amount of one resource; None where it does not limit."""
        return dict(self.left).get(resource)


def rooms(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[Room, ...]:
    """Free space of every node, in cluster order, given the pods of one decision for each gang.

    Of GPUs that a plan may partition it does not say what pods with instances take (``beside_parts``): the
    program decides that together with what comes.
    Nodes with the same pods as in the plan that was asked for before are not counted again.
    """
    latest = instance.once(_Latest)
    before, found = latest.found
    nodes = changed_nodes(before, decisions) if found else range(len(instance.cluster.nodes))
    anew = _rooms_on(instance, decisions, nodes)
    found = tuple(anew.get(n, room) for n, room in enumerate(found)) or tuple(anew.values())
    latest.found = (tuple(decisions), found)
    return found


class _Latest:
    """Decisions and the rooms found for them last: one value, so that threads may share it."""

    def __init__(self, _instance: Instance) -> None:
        self.found: tuple[tuple[GangDecision, ...], tuple[Room, ...]] = ((), ())


def changed_nodes(before: Sequence[GangDecision], after: Sequence[GangDecision]) -> set[int]:
    """Nodes of the pods of gangs whose decisions differ."""
    return {
        pod.node
        for old, new in zip(before, after, strict=True)
        if old is not new and old.pods is not new.pods and old.pods != new.pods
        for pod in (*old.pods, *new.pods)
    }


def _rooms_on(
    instance: Instance, decisions: Sequence[GangDecision], nodes: Collection[int]
) -> dict[int, Room]:
    """Free space of some nodes, ascending."""
    tenants: dict[int, list[tuple[Role, PodPlacement]]] = {n: [] for n in sorted(nodes)}
    for index, decision in enumerate(decisions):
        for pod in decision.pods:
            if pod.node in tenants:
                tenants[pod.node].append((instance.gangs[index].roles[pod.role], pod))
    return {n: _room(instance, n, pods) for n, pods in tenants.items()}


def _room(instance: Instance, n: int, pods: Sequence[tuple[Role, PodPlacement]]) -> Room:
    node = instance.cluster.nodes[n]
    known, unknown, left = 0, node.unknown_unhealthy, dict(node.allocatable)
    kept = 0
    for role, pod in pods:
        known |= pod.gpus or 0
        kept |= role.keeps_on(n)
        unknown += role.gpus if pod.gpus is None else 0
        for resource, amount in ((PODS, 1), *role.requests):
            if resource in left:
                left[resource] -= amount
    mask = node.givable & ~(known | kept)
    free = max(0, mask.bit_count() - unknown) if instance.schedulable(node) else 0
    return Room(mask, unknown, free, tuple(left.items()), is_blind(instance, node, unknown), kept)


def beside_parts(instance: Instance, n: int, room: Room) -> Room:
    """The room of a node less the GPUs that its pods with instances take, and the instances left beside."""
    node, one = instance.cluster.nodes[n], reshaping(instance).get(n)
    if one is None:
        return room
    one = beside(one, node, room.kept)
    offered, left = dict(node.allocatable), dict(room.left)
    used = {resource: offered[resource] - left[resource] for resource in one.resources}
    free, instances = one.left(room.free_gpus, used)
    return replace(room, free_gpus=max(0, free), left=tuple({**left, **instances}.items()))


def pods_after(
    instance: Instance, decisions: Sequence[GangDecision]
) -> list[tuple[Role, PodPlacement]]:
    """Every pod of these decisions, one for each gang, with its role."""
    return [
        (gang.roles[pod.role], pod)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        for pod in decision.pods
    ]


def free_after(instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]]) -> list[int]:
    """Healthy GPUs of every node that no pod holds after the plan; 0 where the node accepts no pods.

    ``pods``: every pod after the plan with its role, running ones included.
    """
    return list(free_on(instance, pods, range(len(instance.cluster.nodes))).values())


def free_on(
    instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]], nodes: Collection[int]
) -> dict[int, int]:
    """The same of some nodes, given every pod on them."""
    held: dict[int, int] = {}
    hidden: dict[int, int] = {}
    for role, pod in pods:
        if pod.gpus is None:
            hidden[pod.node] = hidden.get(pod.node, 0) + role.gpus
        else:
            held[pod.node] = held.get(pod.node, 0) | pod.gpus | role.keeps_on(pod.node)
    taken, found = taken_gpus(instance, pods, nodes), {}
    for n in nodes:
        node = instance.cluster.nodes[n]
        idle = (node.givable & ~held.get(n, 0)).bit_count()
        idle -= node.unknown_unhealthy + hidden.get(n, 0) + taken.get(n, 0)
        found[n] = max(0, idle) if instance.schedulable(node) else 0
    return found
