"""A greedy start: one gang at a time, by priority, each into the tightest domain that holds it.

Every plan it returns obeys section 2 of the contract. That a gang is not placed proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence

from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.reshaping import reshaping
from models.instance.solution import GangDecision, PodPlacement
from models.program.demand_builder import identity, remaining_demand
from models.program.linear_program import Question, never
from models.queues.queue_order import line_up, must_wait, place_in_line
from models.queues.queue_shares import within_guarantee
from models.rules.demands import Demand
from models.rules.registry import admitted, allows
from models.values.tier_values import GangValue, gang_value, known_value
from planner.search.budget import Budget
from planner.search.free_space import Counts, Decisions, FreeSpace, Pods, counts_of
from planner.search.start.pod_limits import Limits, limits_of, narrowed
from planner.search.start.scopes import scopes
from planner.search.start.trial import Trial, parts

GRACE_S = 1.0
"""Seconds that the first plan may still take once the search was stopped."""

MAX_REFUSED = 2
"""Placements of one gang in the places of others' cells that are tried: each asks for other places."""

MAX_REFUSALS = 64
"""Such questions in a row that were answered with no, after which none is asked."""

MAX_SIZES = 8
"""Sizes of a role that are tried above its smallest."""


def greedy(
    instance: Instance, base: Sequence[GangDecision], *, ended: Question = never
) -> Decisions:
    """Place or complete every gang that still fits when its turn comes, elastic gangs at ``min``.

    Once it is ``ended`` the others wait.
    """
    space = FreeSpace(instance, base)
    decisions = list(base)
    for gang in _place_all(space, queue(space), ended):
        decisions[gang] = space.decision(gang)
    return tuple(decisions)


def late(budget: Budget) -> Question:
    """Whether the search was stopped GRACE_S ago. Time that is up ends no first plan: it starts who fits."""
    over: list[float] = []

    def ended() -> bool:
        if not over and budget.stop.is_set():
            over.append(time.monotonic())
        return bool(over) and time.monotonic() - over[0] > GRACE_S

    return ended


def _place_all(space: FreeSpace, demands: Sequence[Demand], ended: Question) -> list[int]:
    """Place these gangs in turn; returns those that found a place."""
    placed: list[int] = []
    left, gangs = _place_each(space, demands, ended, placed), space.instance.gangs
    # others may have made room for these under rules about pods, or started before them in a strict queue
    again = [
        one
        for one in (left if placed else ())
        if one.gang in space.rules.of or place_in_line(space.instance, gangs[one.gang]) is not None
    ]
    _place_each(space, again, ended, placed)
    return placed


def _place_each(
    space: FreeSpace, demands: Sequence[Demand], ended: Question, placed: list[int]
) -> list[Demand]:
    """Add to ``placed`` what finds a place; returns the others."""
    failed: set[object] = set()
    left: list[Demand] = []
    for demand in demands:
        if ended():
            return left
        if demand.gpus > space.arrays.idle_gpus:
            left.append(demand)
            continue
        kind = identity(space.instance, demand)
        if kind not in failed and admit(space, demand):
            placed.append(demand.gang)
        else:
            failed.add(kind)  # what is free only shrinks
            left.append(demand)
    return left


Placing = Callable[[FreeSpace, Demand], Pods | None]
"""From the free space and a demand to its pods, None if none are found."""


def _ranks(instance: Instance) -> dict[str, int]:
    """Where instances and parts of GPUs are among those of the same GPUs, the largest first."""
    found = dict[str, int]()
    for one in {id(one): one for one in reshaping(instance).values()}.values():
        for rank, resource in enumerate(one.resources):
            found[resource] = min(rank, found.get(resource, rank))
    return found


def queue(space: FreeSpace) -> list[Demand]:
    """Demands of the gangs that wait or lack pods, in the order in which they are tried.

    By ``queue_key``; gangs of a strict queue take the places that they have in its order.
    """
    instance = space.instance
    lacking = (i for i in instance.lacking if space.pods[i] == space.original[i])
    found = [one for one in (missing_demand(space, index) for index in lacking) if one.possible]
    found.sort(key=lambda demand: queue_key(instance, demand))
    of = {demand.gang: demand for demand in found}
    return [of[gang] for gang in line_up(instance, list(of))]


def missing_demand(space: FreeSpace, gang: int) -> Demand:
    """The missing pods of a gang at its smallest size."""
    counts = space.instance.gangs[gang].target_counts
    return remaining_demand(space.instance, gang, counts, space.pods[gang])


def demand_like(space: FreeSpace, gang: int, pods: Pods, held: Pods = ()) -> Demand:
    """All pods of a gang but those that are held, at the size that it has with ``pods``."""
    return remaining_demand(space.instance, gang, counts_of(space.instance.gangs[gang], pods), held)


def queue_key(instance: Instance, demand: Demand) -> tuple[bool, int, bool, bool, tuple[int, ...]]:
    """Sort key: gangs within their guarantee, priority, starvation, running gangs first, then large pods.

    Of gangs of equal pods without whole GPUs those go first that take least, then as of others the old ones.
    """
    gang = instance.gangs[demand.gang]
    within, aged = within_guarantee(instance, gang), instance.aged(gang)
    largest = max((role.gpus for role in demand.roles), default=0)
    pods = 0 if demand.gpus else sum(role.count for role in demand.roles)
    ranks = instance.once(_ranks)  # of instances and parts of GPUs
    asked = (ranks[r] for role in demand.roles for r, _ in role.requests if r in ranks)
    size = (-largest, min(asked, default=len(ranks)), -demand.gpus, pods)
    order = (*size, -instance.age(gang), demand.gang)
    return not within, -gang.priority, not aged, not gang.running, order


def admit(
    space: FreeSpace, demand: Demand, *, least_speed: int = 0, placing: Placing | None = None
) -> bool:
    """Place the gang in the free space, at its smallest size that meets minBandwidthShare.

    ``placing``: a way to place it at that size, in the place of ``place`` and of larger sizes. Not if room
    is held for another one, an earlier one of its queue waits, or a queue may not hold so much.
    """
    gang, held = demand.gang, space.pods[demand.gang]
    if must_wait(space.instance, space.pods, gang):
        return False
    roles = space.instance.gangs[gang].roles
    units = sum(roles[role.role].units * role.count for role in demand.roles)
    if space.queues is not None and space.queues.refusal(gang, {None: units}) is not None:
        return False
    pods = (placing or place)(space, demand)
    if pods is None and not placing and space.instance.min_share(space.instance.gangs[gang]):
        sizes = _larger(space, gang)
        larger = (remaining_demand(space.instance, gang, counts, held) for counts in sizes)
        found = (place(space, more) for more in larger)
        pods = next((pods for pods in found if pods is not None), None)
    if pods is None:
        return False
    if least_speed and value_of(space, gang, pods).speed < least_speed:
        return False
    space.set(gang, (*held, *pods))
    return True


def _larger(space: FreeSpace, index: int) -> Iterator[Counts]:
    """Larger sizes, one role at a time: a bandwidth share may need a whole server."""
    gang = space.instance.gangs[index]
    least = gang.target_counts
    if space.instance.size_held(gang):
        return
    for number, role in enumerate(gang.roles):
        larger = [count for count in role.allowed_counts() if count > least[number]]
        for count in larger[:MAX_SIZES]:
            yield (*least[:number], count, *least[number + 1 :])


def place(space: FreeSpace, demand: Demand, *, bound: bool = True) -> Pods | None:
    """Pods for one gang in the free space; None if none are found. ``bound``: enforce minBandwidthShare."""
    return next(placements(space, demand, bound=bound), None)


def placements(
    space: FreeSpace, demand: Demand, *, bound: bool = True, roles: Sequence[Role] | None = None
) -> Iterator[Pods]:
    """Ways to place one gang in the free space, the narrowest and tightest domains first.

    Those come first that leave the cells of queues where they are. ``roles``: in the place of the gang's,
    with slices of another size.
    """
    if not demand.possible or not all(role.nodes for role in demand.roles):
        return
    if space.closed.active:
        demand = space.closed.narrowed(demand)
    limits = limits_of(space, demand)
    if limits:
        demand = narrowed(space, demand, limits)
    refused = 0
    for own in _beside_cells(space, demand):
        for pods in _trials(space, own, limits, roles):
            if not space.keeps_cells(demand.gang, pods):
                refused += 1
                if refused > MAX_REFUSED:
                    return
            elif permitted(space, demand.gang, pods, bound=bound) and space.holds(
                pods, space.instance.gangs[demand.gang].roles
            ):
                yield pods


def _trials(
    space: FreeSpace, demand: Demand, limits: Limits, roles: Sequence[Role] | None
) -> Iterator[Pods]:
    """Pods for the gang in each scope where there is room."""
    for scope in scopes(space, demand, limits):
        for division in parts(space, scope.demand, scope.nodes, scope.model):
            trial = Trial(space, scope.demand, limits, roles)
            if all(trial.run(part, nodes, scope.model) for part, nodes in division):
                yield trial.pods()


def _beside_cells(space: FreeSpace, demand: Demand) -> Iterator[Demand]:
    """The demand beside the places of cells; beside them nearer to the pods of their queues; anywhere."""
    beside, reach = space.beside_cells(demand), space.reach
    if beside is None or reach is None:
        yield demand
        return
    yield beside
    if reach.renew():
        again = space.beside_cells(demand)
        if again is not None and again != beside:
            yield again
    if reach.refusals < MAX_REFUSALS:
        yield demand


def permitted(space: FreeSpace, gang: int, pods: Pods, *, bound: bool = True) -> bool:
    """Whether the gang may have these pods too. ``bound``: enforce minBandwidthShare."""
    if (bound and not meets_min_share(space, gang, pods)) or not admitted(space, gang, pods):
        return False
    return allows(space.instance, space.instance.gangs[gang], (*space.pods[gang], *pods))


def meets_min_share(space: FreeSpace, gang: int, pods: Pods = ()) -> bool:
    """Whether the gang reaches minBandwidthShare with these pods added."""
    asked = space.instance.min_share(space.instance.gangs[gang])
    return not asked or value_of(space, gang, pods).meets_min_share


def value_of(space: FreeSpace, gang: int, pods: Pods) -> GangValue:
    """What the gang has with these pods added."""
    return value_with(space, gang, (*space.pods[gang], *pods), pods)


def value_with(
    space: FreeSpace, gang: int, own: Sequence[PodPlacement], added: Sequence[PodPlacement] = ()
) -> GangValue:
    """What the gang has with these pods. ``added``: those that the space does not hold."""
    if (value := known_value(space.instance, gang, own)) is not None:
        return value
    known = {pod.node: space.by_node[pod.node].known for pod in own}
    for pod in added:
        known[pod.node] |= pod.gpus or 0
    return gang_value(space.instance, space.instance.gangs[gang], own, known)
