"""A start from an earlier plan: what it decided, as far as it still stands, and what fits beside it.

Gangs are placed where ``Gang.planned`` has them. Nothing of the earlier plan is taken for true: every place
is looked for anew, and a gang that finds none there is placed elsewhere, or stays as it is.
"""

from __future__ import annotations

from collections.abc import Container, Sequence

from models.instance.disruption_budgets import may_move, may_stop
from models.instance.instance import EarlierPlan, Instance
from models.instance.solution import GangDecision
from planner.search.budget import Budget
from planner.search.free_space import Decisions, FreeSpace
from planner.search.improve.repair import back_in_place, needless_undone
from planner.search.start.greedy import admit, demand_like, greedy, late, place, queue, value_of


def resume(instance: Instance, base: Sequence[GangDecision], budget: Budget) -> Decisions | None:
    """The earlier plan as far as it stands, and what fits beside it; None without an earlier plan."""
    if instance.earlier is None or not any(gang.planned for gang in instance.gangs):
        return None
    space, past, ended = FreeSpace(instance, base), FreeSpace(instance, base), late(budget)
    movers, stopped = _leaving(space, instance.earlier.gangs)
    for gang in (*movers, *stopped):
        space.set(gang, ())
    homeless = [gang for gang in movers if ended() or not _moved(space, gang)]
    for gang, pods in enumerate(space.pods):
        past.set(gang, pods)
    _take_turns(space, past, instance.earlier, budget)
    each = enumerate(zip(base, space.pods, strict=True))
    decisions = [one if own == one.pods else space.decision(i) for i, (one, own) in each]
    plan = needless_undone(instance, back_in_place(instance, decisions, homeless))
    return greedy(instance, plan, ended=ended)


def _take_turns(space: FreeSpace, past: FreeSpace, earlier: EarlierPlan, budget: Budget) -> None:
    """Gangs return in turn to where the earlier plan has them.

    Who has no room there, or came since, goes where there is room, or takes that of those whose turn is
    later, of the lowest priority only if these are as well off elsewhere. Who waited in the earlier plan
    goes on waiting, since that weighed all of them. ``past``: will have those whose turn it was.
    """
    ended, gangs, demands = late(budget), space.instance.gangs, {d.gang: d for d in queue(space)}
    waited = earlier.waited or ()
    lowest = min((gangs[i].priority for i in demands), default=0)

    def returns(gang: int) -> bool:
        planned = frozenset(pod.node for pod in gangs[gang].planned)
        return bool(planned) and not ended() and admit(space, demands[gang].within(planned))

    for gang in demands:
        returns(gang)
    for gang, demand in demands.items():
        waits = space.pods[gang] == space.original[gang] and gangs[gang].key not in waited
        found = place(past, demand) if waits and not budget.exhausted() else None
        if found and not admit(space, demand, least_speed=value_of(past, gang, found).speed):
            mark, nodes = space.mark(), frozenset(pod.node for pod in found)
            there = {i for n in nodes for i, *_ in space.by_node[n].tenants}
            gone = sorted(i for i in there & demands.keys() if past.pods[i] != space.pods[i])
            speeds = [value_of(space, i, ()).speed for i in gone]
            for other in gone:
                space.set(other, space.original[other])
            fine = admit(space, demand.within(nodes))
            for other, speed in zip(gone, speeds, strict=True):
                back = returns(other) or admit(space, demands[other], least_speed=speed)
                fine = fine and (back or gangs[gang].priority > lowest)
            if not fine:
                space.undo(mark)
                admit(space, demand)
        past.set(gang, space.pods[gang])


def _leaving(space: FreeSpace, known: Container[tuple[str, str]]) -> tuple[list[int], list[int]]:
    """Gangs that may move and that the earlier plan has elsewhere; those that it stopped, ``known`` to it."""
    movers, stopped, instance = [], [], space.instance
    for index, gang in enumerate(instance.gangs):
        planned = {(pod.role, pod.index): pod.node for pod in gang.planned if gang.running}
        if any(planned.get((p.role, p.index), p.node) != p.node for p in space.original[index]):
            movers += [index] * may_move(instance, index)
        elif gang.running and not planned and gang.key in known and may_stop(instance, index):
            stopped.append(index)
    return movers, stopped


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
