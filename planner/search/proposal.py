"""A proposal: the changes that a choice of victims implies, tested on the free space and repaired.

Victims that are not needed are restored, gangs that move are placed again, and GPU indices are
given anew where the plan needs them.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from models.program.demand_builder import remaining_demand
from planner.search.concessions import Concession, Reclaimable
from planner.search.free_space import FreeSpace, Pods, counts_of
from planner.search.greedy import meets_min_share, permitted, place
from planner.search.preemption_rule import is_justified
from planner.search.victim_choice import VictimSearch


@dataclass(frozen=True, slots=True)
class Proposal:
    """The pods of every gang that changes, and the cost."""

    cost: int
    pods: dict[int, Pods]


def build_proposal(
    space: FreeSpace, victims: VictimSearch, reclaimable: Reclaimable
) -> tuple[Proposal | None, int | None]:
    """Test a choice of victims on the free space, which is left unchanged.

    Returns the valid proposal or None, and the gang that could not be placed again if that is why
    it failed.
    """
    mark = space.mark()
    concessions, proposal, unplaced = dict(victims.concessions), None, None
    before = {gang: space.pods[gang] for gang in concessions}
    if _apply(space, victims, before):
        _restore_spared(space, concessions, before, reclaimable)
        movers = [gang for gang in concessions if concessions[gang].must_restart]
        movers.sort(key=lambda gang: (-len(before[gang]), gang))
        unplaced = next((g for g in movers if not place_again(space, g, before[g])), None)
        if unplaced is None and is_justified(space):
            cost = sum(concession.cost for concession in concessions.values())
            proposal = Proposal(cost, space.since(mark))
    space.undo(mark)
    return proposal, unplaced


def _apply(space: FreeSpace, victims: VictimSearch, before: dict[int, Pods]) -> bool:
    """Place the winner and remove the victims; returns whether the result is valid."""
    winner = victims.demand.gang
    for gang, concession in victims.concessions.items():
        space.set(gang, concession.left)
    if any(gpus > space.by_node[n].free for n, gpus in victims.gpus.items()):
        return False
    pods = victims.pods()
    if not permitted(space, winner, pods):
        return False
    space.set(winner, (*space.pods[winner], *pods))
    held = {pod.node for pods in before.values() for pod in pods}
    return refresh_indices(space, held | {pod.node for pod in pods})


def _restore_spared(
    space: FreeSpace,
    concessions: dict[int, Concession],
    before: dict[int, Pods],
    reclaimable: Reclaimable,
) -> None:
    """Restore victims, costliest first, that need not give way or not as much."""
    for gang in sorted(concessions, key=lambda g: (-concessions[g].cost, g)):
        if put_back(space, gang, before[gang]):
            del concessions[gang]
            continue
        for less in reclaimable.options[gang]:
            if (
                not less.must_restart
                and less.cost < concessions[gang].cost
                and put_back(space, gang, less.left)
            ):
                concessions[gang] = less
                break


def put_back(space: FreeSpace, gang: int, pods: Pods) -> bool:
    """Give the gang these pods again if they still fit; returns whether they do."""
    mark = space.mark()
    nodes = {pod.node for pod in (*space.pods[gang], *pods)}
    space.set(gang, pods)
    if refresh_indices(space, nodes):
        return True
    space.undo(mark)
    return False


def restore_needless(space: FreeSpace) -> None:
    """Restore victims whose space is not needed, or whose successors also fit elsewhere."""
    victims = [
        gang
        for gang, original in enumerate(space.original)
        if original and space.decision(gang).decision in ("preempt", "resize", "move")
    ]
    for gang in sorted(victims, key=lambda g: (-len(space.original[g]), g)):
        mark = space.mark()
        if not (put_back(space, gang, space.original[gang]) or _exchange(space, gang)):
            space.undo(mark)


def _exchange(space: FreeSpace, gang: int) -> bool:
    """Restore a gang and place the gangs on its nodes elsewhere; returns whether that works."""
    nodes = {pod.node for pod in space.original[gang]}
    successors = {
        successor: space.pods[successor]
        for n in sorted(nodes)
        for (successor, _, _), (_, stays) in space.by_node[n].tenants.items()
        if not stays and successor != gang
    }
    if any(space.original[successor] for successor in successors):
        return False  # a successor that was moved itself, or is half new
    for successor in successors:
        space.set(successor, ())
    if not put_back(space, gang, space.original[gang]):
        return False
    order = sorted(successors, key=lambda g: (-len(successors[g]), g))
    if not all(place_again(space, successor, successors[successor]) for successor in order):
        return False
    return is_justified(space)


def place_again(space: FreeSpace, gang: int, before: Pods) -> bool:
    """Place the pods that a gang gave up on other nodes; returns whether that works."""
    counts = counts_of(space.instance.gangs[gang], before)
    found = place(space, remaining_demand(space.instance, gang, counts, space.pods[gang]))
    if found is None:
        return False
    space.set(gang, (*space.pods[gang], *found))
    return refresh_indices(space, {pod.node for pod in (*found, *before)})


def refresh_indices(space: FreeSpace, nodes: Iterable[int]) -> bool:
    """Give pods new GPU indices where needed; False if a node is invalid then."""
    for n in sorted(set(nodes)):
        for gang in space.stale_indices(n):
            if not _reassign_gpus(space, gang, n):
                return False
        if space.stale_indices(n) or not space.is_valid(n):
            return False
    return True


def _reassign_gpus(space: FreeSpace, gang: int, n: int) -> bool:
    """New GPU indices for the gang's placed pods on a node."""
    spec = space.instance.gangs[gang]
    here = {key for key, (_, stays) in space.by_node[n].tenants.items() if not stays}
    pods = space.pods[gang]
    affected = [p for p in pods if (gang, p.role, p.index) in here and spec.roles[p.role].gpus]
    rest = [p for p in pods if p not in affected]
    space.set(gang, rest)
    gpus = sum(spec.roles[p.role].gpus for p in affected)
    if gpus > space.by_node[n].free:
        return False
    pool = space.pick(n, gpus)
    reassigned = []
    for pod in affected:
        count = spec.roles[pod.role].gpus
        mask = None if pool is None else sum(1 << i for i in pool[:count])
        pool = None if pool is None else pool[count:]
        reassigned.append(replace(pod, gpus=mask))
    space.set(gang, (*rest, *reassigned))
    return meets_min_share(space, gang)
