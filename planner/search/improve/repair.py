"""Repair of plans: gangs go back to where they run, and gangs that start give way to them.

A relaxed program can stop or shrink gangs unnoticed for which nobody comes who may (rule 2.7).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.instance.disruption_budgets import guards
from models.instance.instance import Instance
from models.instance.run_times import protected
from models.instance.solution import GangDecision
from models.program.base_state import moves_pods
from models.queues.queue_order import must_wait
from models.queues.reservations import due
from models.rules.giving_way import changed, unjustified_victims
from models.rules.registry import joint_rules
from planner.search.free_space import Decisions, FreeSpace, Pods
from planner.search.start.greedy import demand_like, place

MAX_ELSEWHERE = 100
"""Gangs for which one repair looks for another place: under a second of work on 12,500 nodes."""


def needless_undone(instance: Instance, decisions: Sequence[GangDecision]) -> Decisions:
    """The plan in which running gangs stay where they run if nobody came there."""
    gangs = [index for index, before in changed(instance, decisions) if before]
    if not gangs:
        return tuple(decisions)
    space, found = FreeSpace(instance, decisions), list(decisions)
    for gang in gangs:
        mark, seated = space.mark(), set[int]()
        space.set(gang, space.original[gang])
        nodes = sorted({pod.node for pod in space.original[gang]})
        alone = space.closed.broken_by(gang, space.original[gang])
        if alone or not all(_fits_again(space, n, seated) for n in nodes):
            space.undo(mark)
            continue
        for one in (gang, *seated):
            found[one] = space.decision(one)
    return tuple(found)


def _fits_again(space: FreeSpace, n: int, seated: set[int]) -> bool:
    """Whether all pods fit on the node, those that came on other GPUs of it if need be.

    Gangs that change GPUs are added to ``seated``. On a mesh GPUs are not alike: there they stay.
    """
    if space.is_valid(n) and not space.stale_indices(n):
        return True
    model = space.instance.cluster.nodes[n].model
    if model is None or not model.switched or space.by_node[n].raw < 0:
        return False
    came = {gang for (gang, _, _), (_, stays) in space.by_node[n].tenants.items() if not stays}
    for gang in sorted(came):
        pods = space.pods[gang]
        if any(pod.node != n for pod in pods) or space.original[gang]:
            return False
        space.set(gang, ())
        again = place(space, demand_like(space, gang, pods).within(frozenset({n})))
        if again is None:
            return False
        space.set(gang, again)
        seated.add(gang)
    return space.is_valid(n) and not space.stale_indices(n)


def back_in_place(
    instance: Instance, decisions: Sequence[GangDecision], gangs: Iterable[int]
) -> Decisions:
    """The plan in which these gangs stay where they run; gangs that started in their place wait.

    Gangs that were stopped for such a gang stay where they run, too, and the rules about several gangs hold.
    Some gangs that break one start elsewhere if they find a place.
    """
    space = FreeSpace(instance, decisions)
    turns = [g for g in gangs if space.pods[g] != space.original[g]]
    returned: set[int] = set()
    misplaced: dict[int, Pods] = {}
    while turns or (turns := _breaking(space, misplaced)):
        gang = turns.pop()
        returned.add(gang)
        space.set(gang, space.original[gang])
        for pod in space.original[gang]:
            while not space.is_valid(pod.node) or space.stale_indices(pod.node):
                turns += _give_way(space, pod.node, returned)
    _start_elsewhere(space, misplaced)
    found = [
        decision if space.pods[index] == decision.pods else space.decision(index)
        for index, decision in enumerate(decisions)
    ]
    needless = set(unjustified_victims(instance, found)) - returned
    return back_in_place(instance, found, sorted(needless)) if needless else tuple(found)


def _breaking(space: FreeSpace, misplaced: dict[int, Pods]) -> list[int]:
    """Gangs that have to go back so that the rules about several gangs hold.

    The pods of those that start and may start elsewhere are noted in ``misplaced``.
    """
    for rule in joint_rules():
        found = rule.going_back(space)
        if found and rule.elsewhere:
            misplaced.update((g, space.pods[g]) for g in found if not space.original[g])
        if found:
            return found
    return []


def _start_elsewhere(space: FreeSpace, misplaced: dict[int, Pods]) -> None:
    """Start these gangs, which wait now, at the size that they had, the highest priority first."""
    gangs = space.instance.gangs
    order = sorted(misplaced, key=lambda gang: (-gangs[gang].priority, gang))
    for gang in order[:MAX_ELSEWHERE]:
        demand = demand_like(space, gang, misplaced[gang])
        pods = None if must_wait(space.instance, space.pods, gang) else place(space, demand)
        if pods is not None:
            space.set(gang, pods)


def _give_way(space: FreeSpace, n: int, returned: set[int]) -> list[int]:
    """Take the lowest gang that came to the node off again; returns it if it has to go back, too.

    A gang that runs elsewhere now may find another place; back where it was may stand others by now, so that
    it counts as the highest of them. Gangs that have to start count as the highest of all.
    """
    came = {
        gang
        for (gang, _, _), (_, stays) in space.by_node[n].tenants.items()
        if not stays and gang not in returned
    }
    for gang in sorted(came, key=lambda gang: (_rank(space, gang), -gang)):
        may_go = space.instance.gangs[gang].movable
        if gang in guards(space.instance).takings or gang in protected(space.instance):
            may_go = moves_pods(space.original[gang], space.pods[gang])  # only if it moves already
        if space.original[gang] and may_go:
            before = space.pods[gang]
            space.set(gang, elsewhere(space, gang, n) or before)
            if space.pods[gang] != before:
                return []
    lowest = min(came, key=lambda gang: (_highest_rank(space, gang, returned), -gang))
    if not space.original[lowest]:
        space.set(lowest, elsewhere(space, lowest, n))
        return []
    space.set(lowest, space.original[lowest])
    return [lowest]


def _rank(space: FreeSpace, gang: int) -> tuple[bool, int]:
    """Whether the gang has to start, and its priority."""
    spec = space.instance.gangs[gang]
    return spec.key in due(space.instance), spec.priority


def _highest_rank(space: FreeSpace, gang: int, returned: set[int]) -> tuple[bool, int]:
    """Of the gang, and of those that came to where it runs, if it does."""
    there = {
        other
        for pod in space.original[gang]
        for (other, _, _), (_, stays) in space.by_node[pod.node].tenants.items()
        if not stays and other not in returned
    }
    return max(_rank(space, one) for one in (gang, *there))


def elsewhere(space: FreeSpace, gang: int, n: int) -> Pods:
    """The pods of a gang, with those on a node placed on others, else all anew; none if neither fits."""
    before, others = space.pods[gang], space.arrays.tree.everywhere - {n}
    for kept in (tuple(pod for pod in before if pod.node != n), ()):
        space.set(gang, kept)
        pods = place(space, demand_like(space, gang, before, kept).within(others))
        if pods is not None:
            return (*kept, *pods)
    return ()
