"""What a new plan of a changed world would start: the question that every stated cause and remedy is put to.

A search answers it where one is affordable, with all that may move or stop free. Else gangs take what is free
beside the plan in their order, and those of lower priority give way.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.tiers import MAINS
from planner.search.explain.world import Pods, World, placed
from planner.search.free_space import SET_ASIDE, FreeSpace
from planner.search.start.greedy import missing_demand, queue, queue_key

Plan = Callable[[Instance], Sequence[GangDecision] | None]
"""A search for the best plan of an instance; None where the time does not suffice."""

WHO_RUNS = (*MAINS, "waiting")
"""Objectives that decide who runs."""

MAX_FIRST = 40
"""Gangs before another one that are tried where no search is affordable."""

MAX_ASIDE = 200
"""Gangs of lower priority that are set aside for one of these."""


@dataclass(slots=True)
class Replan:
    """``plan``: the search; ``searches``, ``turns``: how many plans of each kind there may still be."""

    plan: Plan = lambda _: None
    searches: int = 0
    turns: int = 20

    def decide(self, world: World) -> Sequence[GangDecision] | None:
        """What everybody does in a new plan of the world; None if there were too many questions."""
        found = self.search(world)
        if found is None and self.turns > 0:
            self.turns -= 1
            return in_turn(world)
        return found

    def search(self, world: World) -> Sequence[GangDecision] | None:
        """The same where a search says so."""
        if self.searches <= 0:
            return None
        self.searches -= 1
        found = self.plan(_who_runs(world))
        if found is not None and found[world.gang].pods:  # of equals, later tiers choose
            found = self.plan(replace(world.instance, reserved=())) or found
        return found


def _who_runs(world: World) -> Instance:
    """The instance as far as it decides about the gang: later tiers do not, nor lower gangs that wait.

    With queues they may: those within a guarantee come first.
    """
    policy, own = world.instance.policy, world.spec.priority
    names = [one.name for one in policy.objectives]
    last = max((i for i, name in enumerate(names) if name in WHO_RUNS), default=len(names))
    gangs = tuple(
        replace(gang, hold=SET_ASIDE)
        if not gang.running and gang.priority < own and not world.instance.queues
        else gang
        for gang in world.instance.gangs
    )
    policy = replace(policy, objectives=policy.objectives[: last + 1])
    return replace(world.instance, policy=policy, gangs=gangs, reserved=())


def _yields(gang: Gang) -> bool:
    return not gang.running or gang.preemptible


def in_turn(world: World) -> tuple[GangDecision, ...]:
    """Let the gangs that come before this one, and then it, take what is free or what lower ones have."""
    space, gangs = FreeSpace(world.instance, world.decisions), world.instance.gangs
    mine = queue_key(world.instance, missing_demand(space, world.gang))
    own = world.spec.priority
    ahead = [one.gang for one in queue(space) if queue_key(world.instance, one) < mine]
    ahead += [
        index
        for index, one in enumerate(world.decisions)
        if one.decision == "preempt" and gangs[index].priority >= own and index != world.gang
    ]
    ahead.sort(key=lambda i: (-gangs[i].priority, i))
    may_yield = enumerate(world.instance.of_gangs(_yields))
    yields = sorted((i for i, may in may_yield if may), key=lambda i: gangs[i].priority)
    for index in (*ahead[:MAX_FIRST], world.gang):
        _start(space, index, yields)
    return tuple(
        replace(one, pods=space.pods[i], decision="place" if space.pods[i] else "wait")
        if space.pods[i] != one.pods
        else one
        for i, one in enumerate(world.decisions)
    )


def _start(space: FreeSpace, index: int, yields: Sequence[int]) -> None:
    """Place a gang, if need be where lower ones are, which then go elsewhere or wait.

    ``yields``: gangs that may be set aside, the lowest first.
    """
    pods, gangs = _place(space, index), space.instance.gangs
    if pods is not None:
        space.set(index, pods)
        return
    yielding = takewhile(lambda i: gangs[i].priority < gangs[index].priority, yields)
    lower = sorted(islice((i for i in yielding if space.pods[i]), MAX_ASIDE + 1))
    if not 0 < len(lower) <= MAX_ASIDE:
        return
    mark, before = space.mark(), {i: space.pods[i] for i in lower}
    for other in lower:
        space.set(other, ())
    pods = _place(space, index)
    if pods is None:
        space.undo(mark)
        return
    space.set(index, pods)
    for other in sorted(lower, key=lambda i: (-gangs[i].priority, i)):
        if not space.put_back(other, before[other]):
            space.set(other, _place(space, other) or ())


def _place(space: FreeSpace, index: int) -> Pods | None:
    return placed(space, missing_demand(space, index))
