"""For whom a running gang may be stopped or shrunk: gangs of higher priority, and owners who reclaim (2.7).

A gang reclaims in a queue a that holds less than its guarantee before the plan and has room for it within
that. Those give way that are in no queue, or not in a and in queues beyond their guarantees only, leaving
aside the queues that both are in. What holds for all GPUs holds for those of the model of the node, too.
Where a pod with GPUs comes to a node that a pins, all give way that are not in a.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Gpu, QueueShares
from models.instance.solution import GangDecision, PodPlacement
from models.queues.pins import guest_of, pinned_by, pinned_nodes
from models.queues.queue_shares import model_of_nodes, queue_of, shares, stated_shares


class Claim(NamedTuple):
    """What a gang may take. ``rights``: (queue, GPU model) of gangs that give way on nodes of that model.

    None: gangs in no queue, and any model. ``pinning``: queues whose pinned nodes it takes back.
    """

    priority: int
    rights: frozenset[tuple[int | None, Gpu]] = frozenset()
    pinning: frozenset[int] = frozenset()


def claim(instance: Instance, gang: int) -> Claim:
    """What a gang may take when a pod of it comes to a node."""
    if shares(instance) is None:
        return Claim(instance.gangs[gang].priority)
    return instance.once(_Claims).of(gang)


def takes(
    instance: Instance, own: Claim, victim: int, node: int | None = None, *, gpus: bool = True
) -> bool:
    """Whether a gang may be stopped where a pod of such a claim comes to a node; None: to some node.

    ``gpus``: whether that pod has GPUs.
    """
    if own.priority > instance.gangs[victim].priority:
        return True
    if own.pinning and gpus and _takes_back(instance, own, victim, node):
        return True
    if not own.rights:
        return False
    queue = queue_of(instance)[victim]
    if (queue, None) in own.rights:
        return True
    if node is None:
        return any(other == queue for other, _ in own.rights)
    model = model_of_nodes(instance)[node]
    return gpus and model is not None and (queue, model) in own.rights


def _takes_back(instance: Instance, own: Claim, victim: int, node: int | None) -> bool:
    """Whether the victim is a guest on a node that a queue of the claim pins: on this one, or on any."""
    hosts = own.pinning & guest_of(instance, victim)
    return bool(hosts) and (node is None or not hosts.isdisjoint(pinned_by(instance, node)))


class _Claims:
    """Rights by queue and what a gang lacks."""

    def __init__(self, instance: Instance) -> None:
        self._instance, self._shares = instance, stated_shares(instance)
        queues = queue_of(instance)
        running = (q for q, gang in zip(queues, instance.gangs, strict=True) if gang.running)
        self._queues = sorted(set(running), key=lambda q: -1 if q is None else q)
        self._known: dict[object, frozenset[tuple[int | None, Gpu]]] = {}

    def of(self, index: int) -> Claim:
        gang, queue = self._instance.gangs[index], queue_of(self._instance)[index]
        owners = tuple(
            (a, gpu)
            for a in self._shares.path(queue)
            for gpu in self._shares.guarantees
            if self._owns(gang, a, gpu)
        )
        if owners and (queue, owners) not in self._known:
            self._known[queue, owners] = frozenset(
                (other, gpu)
                for a, gpu in owners
                for other in self._queues
                if _borrows(self._shares, other, a, self._shares.path(queue), gpu)
            )
        pins = pinned_nodes(self._instance)
        return Claim(
            gang.priority,
            self._known[queue, owners] if owners else frozenset(),
            frozenset(a for a, gpu in owners if gpu is None and a in pins),
        )

    def _owns(self, gang: Gang, a: int, gpu: Gpu) -> bool:
        """Whether the queue holds less than it is promised, and has room for the gang within that."""
        held, guarantee = self._shares.before[gpu][a], self._shares.guarantee(a, gpu)
        comes = 0 if gang.running else gang.least_units
        return self._shares.reclaim[a] and held < guarantee and held + comes <= guarantee


def _borrows(
    known: QueueShares, queue: int | None, a: int, comes: tuple[int, ...], gpu: Gpu
) -> bool:
    """Whether gangs that name a queue borrow next to a; ``comes``: queues of the gang that comes."""
    path = known.path(queue)
    return a not in path and all(
        known.before[gpu][b] > known.guarantee(b, gpu) for b in path if b not in comes
    )


def unjustified(
    instance: Instance,
    vacated: Mapping[int, Collection[int]],
    came: Iterable[tuple[int, PodPlacement]],
) -> list[int]:
    """Gangs that give up room on nodes to which no gang comes that may take it, ascending.

    ``vacated``: the nodes of each. ``came``: (gang, pod) of pods on a node where they do not stand now.
    """
    nodes = set[int]().union(*vacated.values())
    arrivals: dict[int, set[tuple[Claim, bool]]] = {}
    for index, pod in came:
        if pod.node in nodes:
            gpus = instance.gangs[index].roles[pod.role].uses_gpus
            arrivals.setdefault(pod.node, set()).add((claim(instance, index), gpus))
    return [
        victim
        for victim, own in sorted(vacated.items())
        if not any(
            takes(instance, taker, victim, n, gpus=gpus)
            for n in own
            for taker, gpus in arrivals.get(n, ())
        )
    ]


def unjustified_victims(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that give up space on nodes to which no gang comes that may take it, ascending."""
    nodes = released(instance, decisions)
    return unjustified(instance, nodes, _arrivals(instance, decisions)) if nodes else []


def released(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, set[int]]:
    """The nodes on which gangs give up space."""
    return {
        index: nodes
        for index, before in changed(instance, decisions)
        if (nodes := _released(instance.gangs[index], before, decisions[index].pods))
    }


def moves_beyond(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that move beyond the limits of the policy: those in whose place the lowest come, or nobody.

    Those that make room for the same gang follow each other, so that few moves are for nothing.
    """
    limits = instance.policy.moves
    moved = [i for i, one in enumerate(decisions) if one.decision == "move"]
    if limits is None or not moved:
        return []
    gangs = instance.gangs
    sizes = {index: gangs[index].units_of(gangs[index].running_pods) for index in moved}
    if limits.allow(len(moved), sum(sizes.values())):
        return []
    nobody = (True, 0, 0)
    comes: dict[int, tuple[bool, int, int]] = {}
    for gang, pod in _arrivals(instance, decisions):
        who = (False, -gangs[gang].priority, gang)
        comes[pod.node] = min(who, comes.get(pod.node, nobody))
    standing = instance.standing

    def urgency(index: int) -> tuple[tuple[bool, int, int], int, int]:
        first = min(comes.get(pod.node, nobody) for pod in standing[index])
        return first, sizes[index], index

    kept, gpus, beyond = 0, 0, list[int]()
    for index in sorted(moved, key=urgency):
        if limits.allow(kept + 1, gpus + sizes[index]):
            kept, gpus = kept + 1, gpus + sizes[index]
        else:
            beyond.append(index)
    return sorted(beyond)


def _released(
    gang: Gang, before: Iterable[PodPlacement], after: Sequence[PodPlacement]
) -> set[int]:
    """Nodes on which the gang gives up space under the rule, which lets a movable gang shrink."""
    if after and gang.movable:
        return set()
    kept = {(pod.role, pod.index) for pod in after}
    removed = (pod.node for pod in before if (pod.role, pod.index) not in kept)
    return set(removed)


def _arrivals(
    instance: Instance, decisions: Sequence[GangDecision]
) -> Iterator[tuple[int, PodPlacement]]:
    """(gang, pod) of pods on a node where they do not stand now."""
    for index, before in changed(instance, decisions):
        original = {(pod.role, pod.index): pod.node for pod in before}
        for pod in decisions[index].pods:
            if original.get((pod.role, pod.index)) != pod.node:
                yield index, pod


def changed(
    instance: Instance, decisions: Sequence[GangDecision]
) -> Iterator[tuple[int, tuple[PodPlacement, ...]]]:
    """The gangs whose pods change, with the pods that run now."""
    pairs = zip(instance.standing, decisions, strict=True)
    for index, (before, decision) in enumerate(pairs):
        if decision.pods is not before and decision.pods != before:
            yield index, before
