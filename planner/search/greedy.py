"""A greedy start: one gang at a time, by priority, each into the tightest domain that holds it.

Every plan it returns obeys section 2 of the contract. That a gang is not placed proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance import Instance
from models.program.demand_builder import remaining_demand
from models.program.demands import Demand
from models.program.rules.declarations import allows, node_sets
from models.solution import GangDecision, PodPlacement
from models.tier_values import gang_value
from planner.search.free_space import Counts, FreeSpace
from planner.search.trial import Trial

MAX_SIZES = 8
"""Sizes of a role that are tried above its smallest."""


def greedy(instance: Instance, base: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """Place or complete every gang that still fits when its turn comes, elastic gangs at ``min``."""
    space = FreeSpace(instance, base)
    decisions = list(base)
    for demand in queue(space):
        if admit(space, demand):
            decisions[demand.gang] = space.decision(demand.gang)
    return tuple(decisions)


QueueKey = tuple[int, bool, bool, int, int, int, int]


def queue(space: FreeSpace) -> list[Demand]:
    """Demands of the gangs that wait or lack pods, in the order in which they are tried."""
    found = []
    for index, gang in enumerate(space.instance.gangs):
        if gang.hold is not None or space.pods[index] != space.original[index]:
            continue
        if gang.running and not gang.missing():
            continue
        demand = missing_demand(space, index)
        if demand.possible:
            found.append(demand)
    return sorted(found, key=lambda demand: queue_key(space.instance, demand))


def missing_demand(space: FreeSpace, gang: int) -> Demand:
    """The missing pods of a gang at its smallest size."""
    counts = space.instance.gangs[gang].target_counts()
    return remaining_demand(space.instance, gang, counts, space.pods[gang])


def queue_key(instance: Instance, demand: Demand) -> QueueKey:
    """Sort key: priority, starvation, running gangs first, then the largest pods and gangs, then age."""
    gang = instance.gangs[demand.gang]
    largest = max((role.gpus for role in demand.roles), default=0)
    return (
        -gang.priority,
        not instance.aged(gang),
        not gang.running,
        -largest,
        -demand.gpus,
        -instance.age(gang),
        demand.gang,
    )


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
    if not gpus_suffice(space, demand):
        return None
    for scope in scopes(space, demand):
        for nodes, model in node_choices(space, demand, scope):
            trial = Trial(space, demand)
            if trial.run(nodes, model):
                pods = trial.pods()
                if permitted(space, demand.gang, pods, bound=bound):
                    return pods
    return None


def node_choices(
    space: FreeSpace, demand: Demand, scope: frozenset[int]
) -> Iterator[tuple[frozenset[int], str | None]]:
    """Nodes of a scope and a GPU model to try together, as the rules let the gang use them."""
    gang = space.instance.gangs[demand.gang]
    for nodes in node_sets(space.instance, gang, scope):
        for model in gpu_models(space, demand, nodes):
            yield nodes, model


def permitted(
    space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...], *, bound: bool = True
) -> bool:
    """Whether the gang may have these pods too. ``bound``: enforce minBandwidthShare."""
    if bound and not meets_min_share(space, gang, pods):
        return False
    own = (*space.pods[gang], *pods)
    return allows(space.instance, space.instance.gangs[gang], own)


def gpu_models(space: FreeSpace, demand: Demand, scope: frozenset[int]) -> list[str | None]:
    """GPU models to try one at a time; None lets roles mix them."""
    gang = space.instance.gangs[demand.gang]
    nodes = space.instance.cluster.nodes
    found = sorted({m.gpu for n in scope if (m := nodes[n].model) is not None})
    mixing = all(gang.roles[role.role].mix_models for role in demand.gpu_roles)
    return [None] if mixing or len(found) < 2 else [*found]


def scopes(space: FreeSpace, demand: Demand) -> Iterator[frozenset[int]]:
    """Node sets to try: narrow domains first, the tightest that may hold the gang, then all nodes."""
    cluster, gang = space.instance.cluster, space.instance.gangs[demand.gang]
    allowed = demand.nodes
    widest = 0 if gang.required is None else gang.required
    gpus = demand.gpus
    if demand.standing_nodes:
        yield from _around(space, demand.standing_nodes, allowed, widest)
        return
    free = {n: space.by_node[n].free for n in allowed}
    for level in range(cluster.node_level, widest - 1, -1):
        of = cluster.domain_of[level]
        room: dict[int, int] = {}
        for n, idle in free.items():
            room[of[n]] = room.get(of[n], 0) + idle
        planned = {of[pod.node] for pod in gang.planned}
        fitting = [(idle, d not in planned, d) for d, idle in room.items() if idle >= gpus]
        for _, _, d in sorted(fitting):
            yield allowed.intersection(cluster.domains[level][d].nodes)
    if gang.required is None:
        yield allowed


def _around(
    space: FreeSpace, nodes: tuple[int, ...], allowed: frozenset[int], widest: int
) -> Iterator[frozenset[int]]:
    """Nodes of the domains in which pods of the gang run, narrow ones first, then all nodes."""
    cluster, before = space.instance.cluster, frozenset[int]()
    for level in range(cluster.node_level, widest - 1, -1):
        of = cluster.domain_of[level]
        used_domains = {of[n] for n in nodes}
        scope = allowed.intersection(
            n for d in used_domains for n in cluster.domains[level][d].nodes
        )
        if scope != before:
            yield scope
        before = scope
    if allowed != before:
        yield allowed


def gpus_suffice(space: FreeSpace, demand: Demand) -> bool:
    """Whether the free GPUs suffice for every role, ignoring all other rules."""
    by_node = space.by_node
    return all(
        sum(by_node[n].free // role.gpus for n in role.nodes) >= role.count
        for role in demand.gpu_roles
    )


def meets_min_share(space: FreeSpace, gang: int, pods: tuple[PodPlacement, ...] = ()) -> bool:
    """Whether the gang reaches minBandwidthShare with these pods added."""
    instance = space.instance
    spec = instance.gangs[gang]
    if not instance.min_share(spec):
        return True
    known = space.known()
    for pod in pods:
        known[pod.node] |= pod.gpus or 0
    return gang_value(instance, spec, (*space.pods[gang], *pods), known).meets_min_share
