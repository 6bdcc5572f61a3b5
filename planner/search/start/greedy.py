"""A greedy start: one gang at a time, by priority, each into the tightest domain that holds it.

Every plan it returns obeys section 2 of the contract. That a gang is not placed proves nothing.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from itertools import groupby

from models.instance.gang import Role
from models.instance.instance import Instance
from models.instance.reshaping import reshaping
from models.instance.solution import GangDecision, PodPlacement
from models.instance.speed import FULL_SPEED
from models.program.demand_builder import identity, remaining_demand
from models.program.interruption import Question, never
from models.queues.queue_order import line_up, must_wait, place_in_line
from models.queues.queue_shares import within_guarantee
from models.rules.demands import Demand
from models.rules.registry import admitted, allows
from models.rules.shape import exclusive_levels
from models.tiers import larger_is_better
from models.values.tier_values import Evaluation, GangValue, gang_value, known_value, tiers_of
from planner.search.budget import Budget
from planner.search.free_space import Counts, FreeSpace
from planner.search.start.pod_limits import Limits, limits_of, narrowed
from planner.search.start.scopes import scopes
from planner.search.start.trial import Trial, parts

START_EFFORT = 2.0
"""Effort after which no further order is tried: on 4,096 nodes there is time for all."""

PLACING_EFFORT = 0.75e-7
"""Effort of placing one gang, for each node."""

PART_EFFORT = 3e-4
"""The same of a gang with instances or parts of GPUs, for which GPUs are packed anew."""

TRIED_IN_PARTS = 2
"""Orders of such gangs that are tried in any case."""

RULE_EFFORT = 1e-5
"""The same, for each rule about its pods: 300 jobs that keep apart have 300 each."""

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
) -> tuple[GangDecision, ...]:
    """Place or complete every gang that still fits when its turn comes, elastic gangs at ``min``.

    Once it is ``ended`` the others wait.
    """
    space = FreeSpace(instance, base)
    decisions = list(base)
    for gang in _place_all(space, queue(space), ended):
        decisions[gang] = space.decision(gang)
    return tuple(decisions)


def best_greedy(
    instance: Instance, base: Sequence[GangDecision], budget: Budget
) -> tuple[GangDecision, ...]:
    """The same, with the order that is best for each priority in turn, as far as ``START_EFFORT`` goes."""
    space = FreeSpace(instance, base)
    decisions, effort = list(base), 0.0
    waiting = queue(space)
    for (_, lower), demands in groupby(waiting, key=lambda d: queue_key(instance, d)[:2]):
        peers = list(demands)
        rules = sum(len(space.rules.of.get(demand.gang, ())) for demand in peers)
        in_parts = sum(_asks_for_parts(instance, demand) for demand in peers)
        each = len(peers) * len(instance.cluster.nodes) * PLACING_EFFORT
        each += rules * RULE_EFFORT + in_parts * PART_EFFORT
        best: tuple[tuple[int, ...], list[GangDecision]] | None = None
        steady = all(_is_steady(instance, demand) for demand in peers)
        ways = ((order, patient) for order, patient in _ways(instance) if not (steady and patient))
        for number, (order, patient) in enumerate(ways):
            once = effort + each
            over = once > START_EFFORT and number >= (TRIED_IN_PARTS if in_parts else 1)
            if best is not None and (over or len(peers) == 1 or budget.exhausted()):
                break
            effort, mark, plan = once, space.mark(), list(decisions)
            ordered = in_turn(instance, peers, order)
            ended = late(budget) if best is None else budget.exhausted
            for gang in _place_all(space, ordered, ended, patient=patient):
                plan[gang] = space.decision(gang)
            worth = _worth(instance, plan, -lower) if len(peers) > 1 else ()
            if best is None or worth > best[0]:
                best = worth, plan
            space.undo(mark)
        assert best is not None, "there is at least one way"
        decisions = best[1]
        for demand in peers:
            space.set(demand.gang, decisions[demand.gang].pods)
    # those of a strict queue that came before an earlier one that is placed now
    gangs = instance.gangs
    after = [
        demand
        for demand in waiting
        if place_in_line(instance, gangs[demand.gang]) and not space.pods[demand.gang]
    ]
    for gang in _place_all(space, in_turn(instance, after, ORDERS[0]), budget.exhausted):
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


def _worth(instance: Instance, plan: Sequence[GangDecision], priority: int) -> tuple[int, ...]:
    """Values of the tiers of a priority, and of bandwidth; larger is better."""
    found = [t for t in tiers_of(instance) if t.priority == priority or t.family == "bandwidth"]
    evaluation = Evaluation(instance, plan)
    return larger_is_better(found, map(evaluation.tier, found))


def _place_all(
    space: FreeSpace, demands: Sequence[Demand], ended: Question, *, patient: bool = False
) -> list[int]:
    """Place these gangs in turn; returns those that found a place.

    ``patient``: first only where they are as fast as they can be, by priority; then wherever they fit.
    """
    placed: list[int] = []
    for least in (FULL_SPEED, 0) if patient else (0,):
        left = _place_each(space, demands, ended, least, placed)
        # others may have made room for these under rules about pods
        again = [demand for demand in left if _may_follow(space, demand.gang)] if placed else []
        _place_each(space, again, ended, least, placed)
        demands = [demand for demand in left if demand.gang not in placed] if again else left
    return placed


def _may_follow(space: FreeSpace, gang: int) -> bool:
    """Whether it may find a place once others have one: by rules about pods, or in a strict queue."""
    return (
        gang in space.rules.of
        or place_in_line(space.instance, space.instance.gangs[gang]) is not None
    )


def _place_each(
    space: FreeSpace, demands: Sequence[Demand], ended: Question, least: int, placed: list[int]
) -> list[Demand]:
    """Add to ``placed`` what finds a place of such a speed; returns the others."""
    failed: set[object] = set()
    left: list[Demand] = []
    for demand in demands:
        if ended():
            return left
        if demand.gpus > space.arrays.idle_gpus:
            left.append(demand)
            continue
        kind = identity(space.instance, demand)
        if kind not in failed and admit(space, demand, least_speed=least):
            placed.append(demand.gang)
        else:
            failed.add(kind)  # what is free only shrinks
            left.append(demand)
    return left


Placing = Callable[[FreeSpace, Demand], tuple[PodPlacement, ...] | None]
"""From the free space and a demand to its pods, None if none are found."""

Order = Callable[[Instance, Demand], tuple[int, ...]]
"""Sort key of a gang among those of its priority."""


def _units(instance: Instance, demand: Demand) -> int:
    """What the pods of a demand count."""
    roles = instance.gangs[demand.gang].roles
    return sum(roles[role.role].units * role.count for role in demand.roles)


def _large_pods_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    largest = max((role.gpus for role in demand.roles), default=0)
    age = -instance.age(instance.gangs[demand.gang])
    return -largest, -demand.gpus, _pods(demand), age


def _pods(demand: Demand) -> int:
    """Of a gang without whole GPUs: those that take the least go first."""
    return 0 if demand.gpus else sum(role.count for role in demand.roles)


def _large_gangs_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    return -_units(instance, demand), -instance.age(instance.gangs[demand.gang])


def _old_gangs_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    return (-instance.age(instance.gangs[demand.gang]),)


def _shared_domains_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    alone = instance.gangs[demand.gang].exclusive is not None
    return int(alone), *_large_pods_first(instance, demand)


def _large_parts_first(instance: Instance, demand: Demand) -> tuple[int, ...]:
    ranks = instance.once(_ranks)
    asked = (ranks[r] for role in demand.roles for r, _ in role.requests if r in ranks)
    largest, *others = _large_pods_first(instance, demand)
    return largest, min(asked, default=len(ranks)), *others


def _is_steady(instance: Instance, demand: Demand) -> bool:
    """Whether the gang is as fast wherever it is: it need not wait for a fast place."""
    gang, speeds = instance.gangs[demand.gang], instance.relative_speeds
    alike = len({model.relative_speed or speeds.slowest for model in speeds.models}) <= 1
    return alike and (gang.pattern == "none" or sum(r.gpus * r.max for r in gang.roles) <= 1)


def _asks_for_parts(instance: Instance, demand: Demand) -> bool:
    ranks = instance.once(_ranks)
    return any(r in ranks for role in demand.roles for r, _ in role.requests)


def _ranks(instance: Instance) -> dict[str, int]:
    """Where instances and parts of GPUs are among those of the same GPUs, the largest first."""
    found = dict[str, int]()
    for one in {id(one): one for one in reshaping(instance).values()}.values():
        for rank, resource in enumerate(one.resources):
            found[resource] = min(rank, found.get(resource, rank))
    return found


ORDERS: tuple[Order, ...] = (_large_pods_first, _old_gangs_first, _large_gangs_first)


def _ways(instance: Instance) -> Iterator[tuple[Order, bool]]:
    """(order, whether gangs wait for a fast place at first)."""
    parts = [_large_parts_first] if reshaping(instance) else []
    alone = [_shared_domains_first] if exclusive_levels(instance) else []
    for patient in (instance.by_speed, not instance.by_speed):
        for order in (ORDERS[0], *parts):
            yield order, patient
    for order in (*ORDERS[1:], *alone):
        yield order, instance.by_speed
        yield order, not instance.by_speed


def queue(space: FreeSpace, order: Order = ORDERS[0]) -> list[Demand]:
    """Demands of the gangs that wait or lack pods, in the order in which they are tried."""
    found = []
    for index in space.instance.lacking:
        if space.pods[index] != space.original[index]:
            continue
        demand = missing_demand(space, index)
        if demand.possible:
            found.append(demand)
    return in_turn(space.instance, found, order)


def in_turn(instance: Instance, demands: Sequence[Demand], order: Order) -> list[Demand]:
    """Sorted by ``queue_key``; gangs of a strict queue take the places that they have in its order."""
    ordered = sorted(demands, key=lambda demand: queue_key(instance, demand, order))
    of = {demand.gang: demand for demand in ordered}
    return [of[gang] for gang in line_up(instance, [demand.gang for demand in ordered])]


def missing_demand(space: FreeSpace, gang: int) -> Demand:
    """The missing pods of a gang at its smallest size."""
    counts = space.instance.gangs[gang].target_counts
    return remaining_demand(space.instance, gang, counts, space.pods[gang])


def queue_key(
    instance: Instance, demand: Demand, order: Order = ORDERS[0]
) -> tuple[bool, int, bool, bool, tuple[int, ...], int]:
    """Sort key: gangs within their guarantee, priority, starvation, running gangs first, then the order."""
    gang = instance.gangs[demand.gang]
    within, aged = within_guarantee(instance, gang), instance.aged(gang)
    last = order(instance, demand)
    return not within, -gang.priority, not aged, not gang.running, last, demand.gang


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
    if space.queues is not None:
        units = _units(space.instance, demand)
        if space.queues.refusal(gang, {None: units}) is not None:
            return False
    pods = (placing or place)(space, demand)
    if pods is None and not placing and space.instance.min_share(space.instance.gangs[gang]):
        larger = (
            remaining_demand(space.instance, gang, counts, held) for counts in _larger(space, gang)
        )
        found = (place(space, more) for more in larger if more.possible)
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


def place(
    space: FreeSpace, demand: Demand, *, bound: bool = True
) -> tuple[PodPlacement, ...] | None:
    """Pods for one gang in the free space; None if none are found. ``bound``: enforce minBandwidthShare."""
    return next(placements(space, demand, bound=bound), None)


def placements(
    space: FreeSpace,
    demand: Demand,
    *,
    bound: bool = True,
    roles: Sequence[Role] | None = None,
) -> Iterator[tuple[PodPlacement, ...]]:
    """Ways to place one gang in the free space, the narrowest and tightest domains first.

    Those come first that leave the cells of queues where they are. ``roles``: in the place of the gang's,
    with slices of another size.
    """
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
) -> Iterator[tuple[PodPlacement, ...]]:
    """Pods for the gang in each scope where there is room."""
    for scope in scopes(space, demand, limits) if demand.possible else ():
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


def permitted(
    space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...], *, bound: bool = True
) -> bool:
    """Whether the gang may have these pods too. ``bound``: enforce minBandwidthShare."""
    if bound and not meets_min_share(space, gang, pods):
        return False
    if not admitted(space, gang, pods):
        return False
    return allows(space.instance, space.instance.gangs[gang], (*space.pods[gang], *pods))


def meets_min_share(space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...] = ()) -> bool:
    """Whether the gang reaches minBandwidthShare with these pods added."""
    instance = space.instance
    spec = instance.gangs[gang]
    if not instance.min_share(spec):
        return True
    return value_of(space, gang, pods).meets_min_share


def value_of(space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...]) -> GangValue:
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
