"""Who gives room to whom: the one rule that a search over parts of a plan may break unseen.

Promises: exact (contract 2.7: a gang is stopped, or shrunk without being movable, only if a higher one
puts a pod that does not stand there now on a node it gives room on). Called by ``ledger``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.instance import Instance
from models.occupancy import rooms
from models.placement.ground import base_decision
from models.solution import GangDecision


def unlawful(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Gangs that give room on nodes to which no higher one comes, ascending."""
    given = {
        index: nodes
        for index, decision in enumerate(decisions)
        if (nodes := _given(instance, index, decision))
    }
    if not given:
        return []
    highest = _arrivals(instance, decisions)
    return [
        index
        for index, nodes in given.items()
        if not any(
            highest.get(n, instance.gangs[index].priority) > instance.gangs[index].priority
            for n in nodes
        )
    ]


def _given(instance: Instance, index: int, decision: GangDecision) -> set[int]:
    """Nodes on which a gang gives room that it need not give."""
    gang = instance.gangs[index]
    if not gang.running or (decision.pods and gang.movable):
        return set()
    after = {(pod.role, pod.index) for pod in decision.pods}
    gone = (pod for pod in gang.standing if (pod.role, pod.index) not in after)
    return {pod.node for pod in gone if pod.node is not None}


def _arrivals(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """The highest priority that comes to each node."""
    highest: dict[int, int] = {}
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        stood = {(pod.role, pod.index): pod.node for pod in gang.standing}
        for pod in decision.pods:
            if stood.get((pod.role, pod.index)) != pod.node:
                highest[pod.node] = max(highest.get(pod.node, gang.priority), gang.priority)
    return highest


def mended(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """The plan with gangs that give room to nobody put back as they were, where there still is room."""
    found = list(decisions)
    for index in unlawful(instance, decisions):
        back = base_decision(instance, index)
        trial = [*found[:index], back, *found[index + 1 :]]
        if _fits(instance, found, trial, index):
            found = trial
    return tuple(found)


def _fits(
    instance: Instance,
    before: Sequence[GangDecision],
    after: Sequence[GangDecision],
    index: int,
) -> bool:
    """Whether the gang's pods fit where they stood beside what the plan puts there now."""
    gang = instance.gangs[index]
    here = {pod.node for pod in gang.standing if pod.node is not None}
    now, then = rooms(instance, before), rooms(instance, after)
    taken = {
        (pod.node, gpu)
        for other, decision in enumerate(before)
        if other != index
        for pod in decision.pods
        if pod.node in here and pod.gpus
        for gpu in range(pod.gpus.bit_length())
        if pod.gpus >> gpu & 1
    }
    own = (
        (pod.node, gpu)
        for pod in after[index].pods
        if pod.gpus
        for gpu in range(pod.gpus.bit_length())
        if pod.gpus >> gpu & 1
    )
    return not taken & set(own) and all(
        then[n].mask.bit_count() >= then[n].unknown
        and then[n].blind == now[n].blind
        and all(left >= 0 for _, left in then[n].left)
        for n in sorted(here)
    )
