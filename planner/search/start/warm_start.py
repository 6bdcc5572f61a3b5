"""A start from an earlier plan: what it decided, as far as it still stands, and what fits beside it.

Gangs are placed where ``Gang.planned`` has them. Nothing of the earlier plan is taken for true: every place
is looked for anew, and a gang that finds none there is placed elsewhere, or stays as it is.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance.disruption_budgets import may_move, may_stop
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from planner.search.budget import Budget
from planner.search.free_space import Decisions, FreeSpace
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.start.greedy import admit, demand_like, greedy, late, place, queue


def resume(instance: Instance, base: Sequence[GangDecision], budget: Budget) -> Decisions | None:
    """The earlier plan as far as it stands, and what fits beside it; None without an earlier plan."""
    if instance.earlier is None or not any(gang.planned for gang in instance.gangs):
        return None
    space, decisions, ended = FreeSpace(instance, base), list(base), late(budget)
    movers = list(_elsewhere(space))
    for gang in (*movers, *_stopped(space)):
        space.set(gang, ())
    homeless = [gang for gang in movers if ended() or not _moved(space, gang)]
    for demand in queue(space):
        planned = frozenset(pod.node for pod in instance.gangs[demand.gang].planned)
        if planned and not ended():
            admit(space, demand.within(planned))
    for gang, pods in enumerate(space.pods):
        if pods != base[gang].pods:
            decisions[gang] = space.decision(gang)
    plan = needless_undone(instance, back_in_place(instance, decisions, homeless))
    return greedy(instance, plan, ended=ended)


def _elsewhere(space: FreeSpace) -> Iterator[int]:
    """Gangs that may move and that the earlier plan has on other nodes than now."""
    for index, gang in enumerate(space.instance.gangs):
        if gang.running and gang.planned and may_move(space.instance, index):
            planned = {(pod.role, pod.index): pod.node for pod in gang.planned}
            standing = space.original[index]
            if any(planned.get((pod.role, pod.index), pod.node) != pod.node for pod in standing):
                yield index


def _stopped(space: FreeSpace) -> Iterator[int]:
    """Gangs that the earlier plan knew and stopped, and that may be stopped."""
    earlier = space.instance.earlier
    for index, gang in enumerate(space.instance.gangs):
        known = earlier is not None and gang.key in earlier.gangs
        if known and gang.running and not gang.planned and may_stop(space.instance, index):
            yield index


def _moved(space: FreeSpace, gang: int) -> bool:
    """Place a gang that moves on the nodes planned, or anywhere; whether there is room."""
    demand = demand_like(space, gang, space.original[gang])
    planned = frozenset(pod.node for pod in space.instance.gangs[gang].planned)
    for own in (demand.within(planned), demand):
        pods = place(space, own)
        if pods is not None:
            space.set(gang, pods)
            return True
    return False
