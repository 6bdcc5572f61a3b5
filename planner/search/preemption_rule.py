"""The preemption rule (2.7): a gang gives up space only to a gang of higher priority.

A gang is stopped, or shrunk without being movable, only if a gang of higher priority puts a new pod
on a node that it gives up. A search over parts of a plan can break this rule unnoticed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.gang import Gang
from models.instance import Instance
from models.program.base_state import Pods, base_decision, standing_pods
from models.solution import GangDecision, PodPlacement
from planner.search.free_space import FreeSpace


def unjustified_victims(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that give up space on nodes to which no gang of higher priority comes, ascending."""
    released = {
        index: nodes
        for index, before in _changed(instance, decisions)
        if (nodes := _released(instance.gangs[index], before, decisions[index].pods))
    }
    if not released:
        return []
    highest = _highest_arrivals(instance, decisions)
    victims = []
    for index, nodes in released.items():
        priority = instance.gangs[index].priority
        if all(highest.get(n, priority) <= priority for n in nodes):
            victims.append(index)
    return victims


def is_justified(space: FreeSpace) -> bool:
    """Whether no gang gives up space without need: the rule on a plan under construction."""
    gangs = space.instance.gangs
    for index, pods in enumerate(space.pods):
        if pods == space.original[index]:
            continue
        released = _released(gangs[index], space.original[index], pods)
        arrivals = (other for n in released for other in space.arrivals(n, gangs[index].priority))
        if released and next(arrivals, None) is None:
            return False
    return True


def restore_unjustified(
    instance: Instance, decisions: Sequence[GangDecision]
) -> tuple[GangDecision, ...]:
    """The plan with unjustified victims restored as they were, where all pods then fit."""
    victims = unjustified_victims(instance, decisions)
    if not victims:
        return tuple(decisions)
    space, restored = FreeSpace(instance, decisions), list(decisions)
    for index in victims:
        mark = space.mark()
        space.set(index, space.original[index])
        nodes = {pod.node for pod in space.original[index]}
        if all(space.is_valid(n) and not space.stale_indices(n) for n in nodes):
            restored[index] = base_decision(instance, index)
        else:
            space.undo(mark)
    return tuple(restored)


def _released(
    gang: Gang, before: Iterable[PodPlacement], after: Sequence[PodPlacement]
) -> set[int]:
    """Nodes on which the gang gives up space under the rule, which lets a movable gang shrink."""
    if after and gang.movable:
        return set()
    kept = {(pod.role, pod.index) for pod in after}
    removed = (pod.node for pod in before if (pod.role, pod.index) not in kept)
    return set(removed)


def _highest_arrivals(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """The highest priority of the new pods on each node."""
    highest: dict[int, int] = {}
    for index, before in _changed(instance, decisions):
        priority = instance.gangs[index].priority
        original = {(pod.role, pod.index): pod.node for pod in before}
        for pod in decisions[index].pods:
            if original.get((pod.role, pod.index)) != pod.node:
                highest[pod.node] = max(highest.get(pod.node, priority), priority)
    return highest


def _changed(instance: Instance, decisions: Sequence[GangDecision]) -> Iterator[tuple[int, Pods]]:
    """The gangs whose pods change, with those that run now."""
    pairs = zip(standing_pods(instance), decisions, strict=True)
    for index, (before, decision) in enumerate(pairs):
        if decision.pods is not before and decision.pods != before:
            yield index, before
