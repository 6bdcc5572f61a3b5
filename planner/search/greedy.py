"""A greedy start: one gang at a time, by priority, each into the tightest domain that holds it.

Every plan it returns obeys section 2 of the contract. That a gang is not placed proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

from models.instance import Instance
from models.program.demand_builder import identity, remaining_demand
from models.program.demands import Demand
from models.program.rules.declarations import allows
from models.solution import GangDecision, PodPlacement
from models.tier_values import gang_value
from planner.search.budget import Budget
from planner.search.free_space import Counts, FreeSpace
from planner.search.scopes import scopes
from planner.search.trial import Trial

MAX_SIZES = 8
"""Sizes of a role that are tried above its smallest."""


def greedy(
    instance: Instance,
    base: Sequence[GangDecision],
    *,
    order: Order | None = None,
    budget: Budget | None = None,
) -> tuple[GangDecision, ...]:
    """Place or complete every gang that still fits when its turn comes, elastic gangs at ``min``.

    ``order``: among gangs of one priority and need, large pods first if absent. Once the budget is used up
    the others wait.
    """
    space = FreeSpace(instance, base)
    decisions = list(base)
    failed: set[object] = set()
    for demand in queue(space, order or ORDERS[0]):
        if budget is not None and budget.exhausted():
            break
        kind = identity(instance, demand)
        if kind in failed:
            continue
        if admit(space, demand):
            decisions[demand.gang] = space.decision(demand.gang)
        else:
            failed.add(kind)  # what is free only shrinks
    return tuple(decisions)


Order = Callable[[Instance, Demand], tuple[int, ...]]
"""Sort key of a gang among those of its priority."""


def _large_pods_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    largest = max((role.gpus for role in demand.roles), default=0)
    return -largest, -demand.gpus, -instance.age(instance.gangs[demand.gang])


def _large_gangs_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    return -demand.gpus, -instance.age(instance.gangs[demand.gang])


def _old_gangs_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    return (-instance.age(instance.gangs[demand.gang]),)


ORDERS: tuple[Order, ...] = (_large_pods_first, _large_gangs_first, _old_gangs_first)


def queue(space: FreeSpace, order: Order = ORDERS[0]) -> list[Demand]:
    """Demands of the gangs that wait or lack pods, in the order in which they are tried."""
    found = []
    for index, gang in enumerate(space.instance.gangs):
        if gang.hold is not None or space.pods[index] != space.original[index]:
            continue
        if gang.running and index not in space.instance.incomplete:
            continue
        demand = missing_demand(space, index)
        if demand.possible:
            found.append(demand)
    return sorted(found, key=lambda demand: queue_key(space.instance, demand, order))


def missing_demand(space: FreeSpace, gang: int) -> Demand:
    """The missing pods of a gang at its smallest size."""
    counts = space.instance.gangs[gang].target_counts()
    return remaining_demand(space.instance, gang, counts, space.pods[gang])


def queue_key(
    instance: Instance, demand: Demand, order: Order = ORDERS[0]
) -> tuple[int, bool, bool, tuple[int, ...], int]:
    """Sort key: priority, starvation, running gangs first, then the order."""
    gang = instance.gangs[demand.gang]
    aged = instance.aged(gang)
    return -gang.priority, not aged, not gang.running, order(instance, demand), demand.gang


def admit(space: FreeSpace, demand: Demand) -> bool:
    """Place the gang in the free space, at its smallest size that meets minBandwidthShare."""
    gang, held = demand.gang, space.pods[demand.gang]
    pods = place(space, demand)
    if pods is None and space.instance.min_share(space.instance.gangs[gang]):
        larger = (
            remaining_demand(space.instance, gang, counts, held) for counts in _larger(space, gang)
        )
        found = (place(space, more) for more in larger if more.possible)
        pods = next((pods for pods in found if pods is not None), None)
    if pods is None:
        return False
    space.set(gang, (*held, *pods))
    return True


def _larger(space: FreeSpace, index: int) -> Iterator[Counts]:
    """Larger sizes, one role at a time: a bandwidth share may need a whole server."""
    gang = space.instance.gangs[index]
    least = gang.target_counts()
    if space.instance.size_held(gang):
        return
    for number, role in enumerate(gang.roles):
        larger = [count for count in role.allowed_counts() if count > least[number]]
        for count in larger[:MAX_SIZES]:
            yield (*least[:number], count, *least[number + 1 :])


def place(
    space: FreeSpace, demand: Demand, *, bound: bool = True
) -> tuple[PodPlacement, ...] | None:
    """Pods for one gang in the free space; None if none are found. ``bound``: enforce minBandwidthShare."""
    for scope in scopes(space, demand):
        trial = Trial(space, scope.demand)
        if trial.run(scope.nodes, scope.model):
            pods = trial.pods()
            if permitted(space, demand.gang, pods, bound=bound):
                return pods
    return None


def permitted(
    space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...], *, bound: bool = True
) -> bool:
    """Whether the gang may have these pods too. ``bound``: enforce minBandwidthShare."""
    if bound and not meets_min_share(space, gang, pods):
        return False
    own = (*space.pods[gang], *pods)
    return allows(space.instance, space.instance.gangs[gang], own)


def meets_min_share(space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...] = ()) -> bool:
    """Whether the gang reaches minBandwidthShare with these pods added."""
    instance = space.instance
    spec = instance.gangs[gang]
    if not instance.min_share(spec):
        return True
    known = {pod.node: space.by_node[pod.node].known for pod in (*space.pods[gang], *pods)}
    for pod in pods:
        known[pod.node] |= pod.gpus or 0
    return gang_value(instance, spec, (*space.pods[gang], *pods), known).meets_min_share
