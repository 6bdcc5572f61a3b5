"""The rules about several gangs (section 2, 2.11 to 2.21): one row each.

A program may leave such a rule out, or keep only a part of it: the ledger looks at every plan, and repair
takes back what breaks it. Greedy asks before it places a gang.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from models.program.base_state import Pods
from models.queues.cell_places import Reach, breaks_cells
from models.queues.queue_order import overtaking
from models.queues.queue_shares import QueueCounts, Refusal, queue_of, shares
from models.queues.reservations import left_waiting, trespassing
from models.queues.reserved_quotas import crowding
from models.queues.room_holding import passing
from models.rules.pod_counts import conflicting, conflicts
from models.rules.shape import balanced, breaking
from models.values.tier_values import Evaluation
from planner.search.free_space import FreeSpace


@dataclass(frozen=True, slots=True)
class JointRule:
    """``broken``: whether a plan breaks it. ``back``: gangs that have to go back then, the lowest that help.

    ``allows``: whether a gang may have these pods too, None where greedy asks earlier (``admit``,
    ``placements``). ``elsewhere``: whether a gang that has to go back may start elsewhere. ``drops``: whether
    a plan that breaks it even then is dropped; other rules stay broken only in a part of an instance, where
    gangs outside have to go back.
    """

    name: str
    broken: Callable[[Evaluation], bool]
    back: Callable[[FreeSpace], list[int]]
    allows: Callable[[FreeSpace, int, Pods], bool] | None = None
    elsewhere: bool = False
    drops: bool = False


def allowed(space: FreeSpace, gang: int, pods: Pods) -> bool:
    """Whether the rules about several gangs let a gang have these pods too."""
    return all(rule.allows is None or rule.allows(space, gang, pods) for rule in JOINT_RULES)


def _pods_of(plan: Evaluation) -> list[Pods]:
    return [decision.pods for decision in plan.decisions]


def _exceeds_queues(plan: Evaluation) -> bool:
    """Whether a limit or a guarantee of a queue does not hold."""
    known = shares(plan.instance)
    if known is None:
        return False
    counts = QueueCounts(plan.instance, known, plan.queue_use)
    return next(counts.broken(), None) is not None


def _conflicting(space: FreeSpace) -> list[int]:
    """Gangs that have to go back so that the rules about pods hold: of every conflict the lowest one."""
    rules, found = space.rules, set[int]()
    if not rules.rules:
        return []
    new = {gang: space.new_pods(gang) for gang in rules.of}
    for gangs in conflicting(rules, space.pod_counts, new):
        if found.isdisjoint(gangs):
            found.add(min(gangs, key=lambda gang: (space.instance.gangs[gang].priority, -gang)))
    return sorted(found)


def _beyond_queues(space: FreeSpace) -> list[int]:
    """A gang that has to go back so that limits and guarantees of queues hold: the lowest that helps."""
    counts, gangs = space.queues, space.instance.gangs
    first = None if counts is None else next(counts.broken(), None)
    if counts is None or first is None:
        return []
    queues = queue_of(space.instance)
    changed = [
        gang
        for gang, pods in enumerate(space.pods)
        if pods != space.original[gang]
        and (
            (first.kept or gangs[gang].firm)
            if first.queue is None
            else (gangs[gang].firm or not first.firm)
            and first.queue in counts.shares.path(queues[gang])
        )
    ]
    changed.sort(key=lambda gang: (gangs[gang].priority, -gang))
    return next(([gang] for gang in changed if _relieves(space, counts, gang, first)), changed[:1])


def _relieves(space: FreeSpace, counts: QueueCounts, gang: int, broken: Refusal) -> bool:
    """Whether less is held in the queue, or promised, if the gang goes back."""

    def excess() -> tuple[int, int]:
        queue, gpu, kept, firm = broken
        if queue is None:
            return counts.promised(gpu, kept=kept) - counts.beyond(gpu, kept=kept), 0
        if firm:
            return counts.firm[gpu][queue], 0
        return counts.taken(queue, gpu), counts.held[gpu][queue]

    before, mark = excess(), space.mark()
    space.set(gang, space.original[gang])
    relieved = excess() < before  # one of them falls, and none grows
    space.undo(mark)
    return relieved


def _in_cells(space: FreeSpace) -> list[int]:
    """Gangs that have to go back so that the cells of queues stay reachable, the lowest that come."""
    if space.reach is None or space.reach.keep():
        return []
    gangs = space.instance.gangs
    new = {
        g: own for g, gang in enumerate(gangs) if gang.firm_on_gpus and (own := space.new_pods(g))
    }
    reach = Reach(space.instance)
    for gang, pods in enumerate(space.pods):
        reach.add(gang, set(pods) - set(new.get(gang, ())))
    found = []
    for gang in sorted(new, key=lambda g: (-gangs[g].priority, g)):
        reach.add(gang, new[gang])
        if not reach.keep():
            reach.add(gang, new[gang], -1)
            found.append(gang)
    return found[::-1]


JOINT_RULES = (
    JointRule(
        "pods next to each other",
        broken=lambda plan: bool(conflicts(plan.instance, plan.decisions)),
        back=_conflicting,
        allows=FreeSpace.keeps_pod_rules,
    ),
    JointRule(
        "held room",
        broken=lambda plan: bool(passing(plan.instance, _pods_of(plan))),
        back=lambda space: passing(space.instance, space.pods),
    ),
    JointRule(
        "order of queues",
        broken=lambda plan: bool(overtaking(plan.instance, _pods_of(plan))),
        back=lambda space: overtaking(space.instance, space.pods),
    ),
    JointRule(
        "reservations",
        broken=lambda plan: bool(trespassing(plan.instance, _pods_of(plan))),
        back=lambda space: trespassing(space.instance, space.pods),
    ),
    JointRule(
        "reservations in queues",
        broken=lambda plan: bool(crowding(plan.instance, _pods_of(plan))),
        back=lambda space: crowding(space.instance, space.pods),
    ),
    JointRule(
        "starts in turn",
        broken=lambda plan: bool(left_waiting(plan.instance, _pods_of(plan))),
        back=lambda _: [],
        drops=True,
    ),
    JointRule(
        "queues",
        broken=_exceeds_queues,
        back=_beyond_queues,
        allows=FreeSpace.keeps_queue_rules,
    ),
    JointRule(
        "cells",
        broken=lambda plan: breaks_cells(plan.instance, _pods_of(plan)),
        back=_in_cells,
        elsewhere=True,
        drops=True,
    ),
    JointRule(
        "whole domains",
        broken=lambda plan: bool(breaking(plan.instance, _pods_of(plan))),
        back=lambda space: breaking(space.instance, space.pods),
        allows=lambda space, gang, pods: balanced(space.instance, gang, (*space.pods[gang], *pods)),
        elsewhere=True,
    ),
)
"""In the order in which repair looks at them."""
