"""Whether a gang of a tiny instance can start beside a plan, by the exhaustive planner.

Promises: nothing of the remedies and programs of the search. Called by the tests of what ``explain`` proves.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import exhaustive

from models.documents.gang import Hold
from models.documents.policy import Objective
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision

ABOVE = 10**6
"""A priority for which nobody is stopped."""

ASIDE = Hold("Unsupported", "aside")


def starts(instance: Instance, decisions: Sequence[GangDecision], gang: int) -> bool:
    """Whether every pod of the gang finds a place if all others are where the plan has them."""
    found = exhaustive.plan(after(instance, decisions, gang)).decisions[gang]
    return len(found.pods) >= sum(role.min for role in instance.gangs[gang].roles)


def after(instance: Instance, decisions: Sequence[GangDecision], gang: int) -> Instance:
    """The cluster once the plan is carried out: nobody else moves, stops, grows or starts."""
    gangs = tuple(
        one if index == gang else standing(one, decision)
        for index, (one, decision) in enumerate(zip(instance.gangs, decisions, strict=True))
    )
    policy = replace(instance.policy, objectives=(Objective("admission"),), moves=None)
    queues = tuple(replace(queue, reclaim=False) for queue in instance.queues)
    return replace(instance, gangs=gangs, policy=policy, queues=queues)


def standing(gang: Gang, decision: GangDecision) -> Gang:
    counts = [sum(pod.role == r for pod in decision.pods) for r in range(len(gang.roles))]
    if not decision.pods:
        return replace(gang, pods=(), hold=ASIDE)
    pods = tuple(
        ExistingPod(
            f"{gang.name}-{pod.role}-{pod.index}", pod.role, pod.index, None, pod.node, pod.gpus
        )
        for pod in decision.pods
    )
    roles = tuple(
        replace(role, min=max(1, count), max=max(1, count), step=1, elastic=False)
        for role, count in zip(gang.roles, counts, strict=True)
    )
    held = replace(gang, pods=pods, roles=roles, hold=ASIDE, planned=())
    return replace(held, priority=ABOVE, movable=False)  # preemptible as it is: queues count that
