"""A proposal of who gives way for a gang, put to the test on the ground.

Promises: what it returns obeys the contract's section 2 on every node it touches; every gang that gives
way does so because the winner is where its pods stood, and gives no more than that. The ground is left as
it was. Called by ``reclaiming``.
"""

from __future__ import annotations

from dataclasses import dataclass

from planner.solving.greedy import fast_enough
from planner.solving.ground import Ground, Pods
from planner.solving.opening import Opening
from planner.solving.restoring import put_back, restart, settle, unjustified
from planner.solving.yielding import Concession, Yields


@dataclass(frozen=True, slots=True)
class Proposal:
    """Pods of every gang it changes, and what that costs."""

    cost: int
    pods: dict[int, Pods]


def put_to_test(
    ground: Ground, opening: Opening, yields: Yields
) -> tuple[Proposal | None, int | None]:
    """What holds, or None; and the gang that finds no other place, where it failed for that."""
    mark = ground.mark()
    given, proposal, stuck = dict(opening.given), None, None
    before = {gang: ground.pods[gang] for gang in given}
    if _put_down(ground, opening, before):
        _put_back(ground, given, before, yields)
        movers = [gang for gang in given if given[gang].again]
        movers.sort(key=lambda gang: (-len(before[gang]), gang))
        stuck = next((g for g in movers if not restart(ground, g, before[g])), None)
        gave = (g for g, pods in enumerate(ground.pods) if pods != ground.stood[g])
        if stuck is None and not unjustified(ground, gave):
            cost = sum(concession.cost for concession in given.values())
            proposal = Proposal(cost, ground.since(mark))
    ground.undo(mark)
    return proposal, stuck


def _put_down(ground: Ground, opening: Opening, before: dict[int, Pods]) -> bool:
    """The winner where the opening wants it, everything given gone; whether that holds."""
    winner = opening.demand.gang
    for gang, concession in opening.given.items():
        ground.set(gang, concession.left)
    if any(gpus > ground.plots[n].free for n, gpus in opening.gpus.items()):
        return False
    pods = opening.pods()
    if not fast_enough(ground, winner, pods):
        return False
    ground.set(winner, (*ground.pods[winner], *pods))
    held = {pod.node for pods in before.values() for pod in pods}
    return settle(ground, held | {pod.node for pod in pods})


def _put_back(
    ground: Ground, given: dict[int, Concession], before: dict[int, Pods], yields: Yields
) -> None:
    """Take from ``given``, the costliest first, what need not be given, or not so much of it."""
    for gang in sorted(given, key=lambda g: (-given[g].cost, g)):
        if put_back(ground, gang, before[gang]):
            del given[gang]
            continue
        for less in yields.options[gang]:
            if (
                not less.again
                and less.cost < given[gang].cost
                and put_back(ground, gang, less.left)
            ):
                given[gang] = less
                break
