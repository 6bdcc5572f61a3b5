"""What a plan does to what runs or was planned: the tiers kept, disruption and stability.

Promises: exact integers over standing pods, pods after the plan and earlier plans; no bandwidth, no solver.
Called by ``evaluating``.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.gang import Gang
from models.instance import Instance
from models.solution import GangDecision


def kept(instance: Instance, decisions: Sequence[GangDecision], priority: int) -> int:
    """GPUs of standing pods of this priority that are there after the plan, wherever."""
    total = 0
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        if gang.priority == priority and gang.running:
            after = {(pod.role, pod.index) for pod in decision.pods}
            total += sum(
                gang.roles[p.role].gpus for p in gang.standing if (p.role, p.index) in after
            )
    return total


def disruption(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """GPUs taken from running gangs, each times what its loss counts (``Instance.harm``)."""
    return sum(
        _gpus_lost(gang, decision) * instance.harm(gang)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
        if gang.running
    )


def _gpus_lost(gang: Gang, decision: GangDecision) -> int:
    """All standing GPUs of a gang that is stopped or moves, of one that only shrinks those dropped."""
    after = {(p.role, p.index): (p.node, p.gpus) for p in decision.pods}
    before = {(p.role, p.index): (p.node, p.gpus) for p in gang.standing}
    gpus = {key: gang.roles[key[0]].gpus for key in before}
    moved = any(gpus[key] and key in after and after[key] != place for key, place in before.items())
    if not decision.pods or moved:
        return sum(gpus.values())
    return sum(gpus[key] for key in before if key not in after)


def stability(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """GPUs that pods ask for which are not on the node where an earlier plan wanted them."""
    total = 0
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        if gang.planned:
            wanted = {(p.role, p.index): p.node for p in gang.planned}
            total += sum(
                gang.roles[pod.role].gpus
                for pod in decision.pods
                if wanted.get((pod.role, pod.index), pod.node) != pod.node
            )
    return total
