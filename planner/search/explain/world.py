"""A plan of an instance in which something is otherwise, and whether a gang starts, or has a place, in it.

``Replan`` is the question that every stated cause and remedy is put to: what a new plan of the changed world
would start. A search answers it where one is affordable, with all that may move or stop free. Else gangs take
what is free beside the plan in their order, and those of lower priority give way.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, replace
from itertools import islice, takewhile
from typing import TypeVar

from models.instance.cluster import Node
from models.instance.eligibility import without_conditions
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.rules.demands import Demand
from models.tiers import MAINS
from planner.search.explain.shortage import FreeCounts, shortage
from planner.search.free_space import SET_ASIDE, Decisions, FreeSpace, Pods
from planner.search.start.greedy import admit, missing_demand, queue, queue_key


@dataclass(frozen=True, slots=True)
class World:
    """A plan of an instance, and the gang of it that is asked about. ``gang``: its index."""

    instance: Instance
    decisions: Decisions
    gang: int

    @property
    def spec(self) -> Gang:
        return self.instance.gangs[self.gang]

    def with_gang(self, gang: Gang) -> World:
        """The same with another description of the gang."""
        return replace(self, instance=self.instance.with_changed({self.gang: gang}))

    def with_role(self, number: int, role: Role) -> World:
        """The same with another description of one role of the gang."""
        roles = list(self.spec.roles)
        roles[number] = role
        return self.with_gang(replace(self.spec, roles=tuple(roles)))

    def without(self, gone: Collection[int]) -> World:
        """The same without the pods of these gangs, which do not come back."""
        gangs, decisions = self.instance.gangs, list(self.decisions)
        for index in gone:
            decisions[index] = GangDecision("wait")
        aside = {index: replace(gangs[index], pods=(), hold=SET_ASIDE) for index in gone}
        instance = self.instance.with_changed(aside)
        return replace(self, instance=instance, decisions=tuple(decisions))

    def with_nodes(self, nodes: Sequence[Node]) -> World:
        """The same with other descriptions of the nodes; more of them may follow."""
        cluster = replace(self.instance.cluster, nodes=tuple(nodes))
        return replace(self, instance=replace(self.instance, cluster=cluster))

    def placement(self) -> Pods | None:
        """A place for all pods of the gang with everything else as planned, if one is found."""
        space = FreeSpace(self.instance, self.decisions)
        return placed(space, missing_demand(space, self.gang))


def placed(space: FreeSpace, demand: Demand) -> Pods | None:
    """All pods of a gang with those that it lacks; None if a count denies them room, or none is found.

    The space stays as it is.
    """
    if not demand.possible or shortage(FreeCounts.of(space), demand) is not None:
        return None
    mark = space.mark()
    pods = space.pods[demand.gang] if admit(space, demand) else None
    space.undo(mark)
    return pods


def named(gang: Gang, **more: object) -> dict[str, object]:
    """A gang as a reason states it."""
    return {"gang": "/".join(gang.key), "priority": gang.shown_priority, **more}


def node_faults(node: Node) -> tuple[str, ...]:
    """Codes of what is wrong with a node; none if nothing is."""
    tainted = len(without_conditions(node).taints) < len(node.taints)
    found = (
        ("NotReady", not node.ready),
        ("Cordoned", node.unschedulable),
        ("Tainted", tainted and node.ready and not node.unschedulable),
        ("UnhealthyGpus", node.healthy_gpus < node.whole_gpus - len(node.shared)),
    )
    return tuple(code for code, wrong in found if wrong)


One = TypeVar("One")


def needed(
    gone: Sequence[One], put_back: Callable[[Sequence[One]], bool], late: Callable[[], bool]
) -> tuple[One, ...]:
    """Those that cannot be put back, tried in order: whole chunks at first, since most can.

    ``put_back``: whether the gang starts with these, too; they then stay. All that is left when it is late
    counts as needed.
    """
    left, kept, size = list(gone), list[One](), max(1, len(gone) // 2)
    while left and not late():
        size = min(size, len(left))
        if put_back(left[:size]):
            left, size = left[size:], 2 * size
        elif size == 1:
            kept.append(left.pop(0))
        else:
            size //= 2
    return (*kept, *left)


def needed_away(
    space: FreeSpace,
    demand: Demand,
    gone: Sequence[int],
    decisions: Sequence[GangDecision],
    late: Callable[[], bool],
) -> tuple[int, ...]:
    """Of gangs that have no pods in the space those that must have none there, tried in order.

    None if the demand has no place even without all of them. ``decisions``: the pods that they had.
    """

    def put_back(chunk: Sequence[int]) -> bool:
        mark = space.mark()
        for index in chunk:
            space.set(index, decisions[index].pods)
        if placed(space, demand) is not None:
            return True
        space.undo(mark)
        return False

    return () if placed(space, demand) is None else needed(gone, put_back, late)


Plan = Callable[[Instance], Sequence[GangDecision] | None]
"""A search for the best plan of an instance; None where the time does not suffice."""

WHO_RUNS = (*MAINS, "waiting")
"""Objectives that decide who runs."""

SEARCHED_PAIRS = 20_000
"""Pairs of a node and a gang that all instances together may have of which searches make new plans."""

TURNS_A_SEARCH = 50
"""Plans in which gangs take turns that cost no more than a search."""

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


def affordable(instance: Instance) -> float:
    """Searches for new plans of such an instance that may be made."""
    return SEARCHED_PAIRS / max(1, len(instance.cluster.nodes) * len(instance.gangs))


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


def in_turn(world: World) -> Decisions:
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
    pods, gangs = placed(space, missing_demand(space, index)), space.instance.gangs
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
    pods = placed(space, missing_demand(space, index))
    if pods is None:
        space.undo(mark)
        return
    space.set(index, pods)
    for other in sorted(lower, key=lambda i: (-gangs[i].priority, i)):
        if not space.put_back(other, before[other]):
            space.set(other, placed(space, missing_demand(space, other)) or ())
