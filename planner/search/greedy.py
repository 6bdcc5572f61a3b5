"""A greedy start: gangs one at a time, by priority, each into the tightest domain that holds it.

Promises: every plan it returns obeys the contract's section 2; about a second at any size; no solver.
It is a start and a test of "would it fit alone", not a proof that something does not fit.
Called by ``solve``, ``reclaiming``, ``growing`` and ``reasons``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.instance import Instance
from models.program.demands import Demand
from models.solution import GangDecision, PodPlacement
from models.tier_values import gang_value
from planner.search.free_space import Ground
from planner.search.trial import Counts, Trial, wanted

MOST_SIZES = 8
"""Sizes of a role tried above its smallest."""


def greedy(instance: Instance, base: Sequence[GangDecision]) -> tuple[GangDecision, ...]:
    """A plan: every gang placed or completed that still fits when its turn comes, elastic ones at ``min``."""
    ground = Ground(instance, base)
    decisions = list(base)
    for demand in queue(ground):
        if admit(ground, demand):
            decisions[demand.gang] = ground.decision(demand.gang)
    return tuple(decisions)


Turn = tuple[int, bool, bool, int, int, int, int]


def queue(ground: Ground) -> list[Demand]:
    """What waits or lacks pods and could ever be placed, in the order of turns."""
    found = []
    for index, gang in enumerate(ground.instance.gangs):
        if gang.hold is not None or ground.pods[index] != ground.stood[index]:
            continue
        if gang.running and not gang.missing():
            continue
        demand = lacking(ground, index)
        if demand.possible:
            found.append(demand)
    return sorted(found, key=lambda demand: turn(ground.instance, demand))


def lacking(ground: Ground, gang: int) -> Demand:
    """The pods that admit the gang at its smallest size, beside those it has."""
    counts = ground.instance.gangs[gang].target_counts()
    return wanted(ground.instance, gang, counts, ground.pods[gang])


def turn(instance: Instance, demand: Demand) -> Turn:
    """Highest first; then those that wait too long, and those of which one pod stops all the others."""
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


def admit(ground: Ground, demand: Demand) -> bool:
    """Put the gang down on what is free, at its smallest size, or at one that is fast enough."""
    gang, held = demand.gang, ground.pods[demand.gang]
    pods = place(ground, demand)
    if pods is None and ground.instance.min_share(ground.instance.gangs[gang]):
        larger = (wanted(ground.instance, gang, counts, held) for counts in _larger(ground, gang))
        found = (place(ground, more) for more in larger if more.possible)
        pods = next((pods for pods in found if pods is not None), None)
    if pods is None:
        return False
    ground.set(gang, (*held, *pods))
    return True


def _larger(ground: Ground, index: int) -> Iterator[Counts]:
    """Sizes above the smallest, of one role at a time: a share of an ideal may need a whole server."""
    gang = ground.instance.gangs[index]
    least = gang.target_counts()
    if ground.instance.size_held(gang):
        return
    for number, role in enumerate(gang.roles):
        larger = [count for count in role.allowed_counts() if count > least[number]]
        for count in larger[:MOST_SIZES]:
            yield (*least[:number], count, *least[number + 1 :])


def place(ground: Ground, demand: Demand, *, bound: bool = True) -> tuple[PodPlacement, ...] | None:
    """Pods for one gang on what is free, None if none is found. ``bound``: to minBandwidthShare."""
    if not countable(ground, demand):
        return None
    for scope in scopes(ground, demand):
        for model in models_of(ground, demand, scope):
            trial = Trial(ground, demand)
            if trial.run(scope, model):
                pods = trial.pods()
                if not bound or fast_enough(ground, demand.gang, pods):
                    return pods
    return None


def models_of(ground: Ground, demand: Demand, scope: frozenset[int]) -> list[str | None]:
    """GPU models to try one at a time; None lets roles mix them."""
    gang = ground.instance.gangs[demand.gang]
    nodes = ground.instance.cluster.nodes
    found = sorted({m.gpu for n in scope if (m := nodes[n].model) is not None})
    mixing = all(gang.roles[role.role].mix_models for role in demand.gpu_roles)
    return [None] if mixing or len(found) < 2 else [*found]


def scopes(ground: Ground, demand: Demand) -> Iterator[frozenset[int]]:
    """Node sets to try: narrow domains first, the tightest that may hold the gang, then everything."""
    cluster, gang = ground.instance.cluster, ground.instance.gangs[demand.gang]
    allowed = frozenset().union(*(role.nodes for role in demand.roles))
    widest = 0 if gang.required is None else gang.required
    gpus = demand.gpus
    if demand.standing_nodes:
        yield from _around(ground, demand.standing_nodes, allowed, widest)
        return
    free = {n: ground.plots[n].free for n in allowed}
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
    ground: Ground, nodes: tuple[int, ...], allowed: frozenset[int], widest: int
) -> Iterator[frozenset[int]]:
    """Nodes of the domains in which others of the gang are, narrow ones first, then everything."""
    cluster, before = ground.instance.cluster, frozenset[int]()
    for level in range(cluster.node_level, widest - 1, -1):
        of = cluster.domain_of[level]
        near = {of[n] for n in nodes}
        scope = allowed.intersection(n for d in near for n in cluster.domains[level][d].nodes)
        if scope != before:
            yield scope
        before = scope
    if allowed != before:
        yield allowed


def countable(ground: Ground, demand: Demand) -> bool:
    """Whether the free GPUs would do for every role, all other rules aside."""
    plots = ground.plots
    return all(
        sum(plots[n].free // role.gpus for n in role.nodes) >= role.count
        for role in demand.gpu_roles
    )


def fast_enough(ground: Ground, gang: int, pods: tuple[PodPlacement, ...]) -> bool:
    """Whether the gang with these pods beside those it has reaches minBandwidthShare."""
    instance = ground.instance
    spec = instance.gangs[gang]
    if not instance.min_share(spec):
        return True
    known = ground.known()
    for pod in pods:
        known[pod.node] |= pod.gpus or 0
    return gang_value(instance, spec, (*ground.pods[gang], *pods), known).meets_min_share
