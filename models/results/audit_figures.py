"""Figures of an audit that need no search: what gangs could reach at best, and what no re-plan exceeds."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from itertools import accumulate

from models.instance.instance import Instance
from models.instance.occupancy import free_after, pods_after
from models.instance.solution import GangDecision, Solution
from models.instance.speed import FULL_SPEED
from models.program.base_state import base_decisions
from models.tiers import MAINS
from models.units import plural
from models.values.leftover import whole_domains, whole_nodes
from models.values.stranded_gpus import whole_by_level
from models.values.tier_values import Evaluation


def fixed_gangs(instance: Instance) -> dict[int, str]:
    """Why running gangs cannot be moved by any plan."""
    found = {}
    for index, gang in enumerate(instance.gangs):
        if gang.running and index in instance.incomplete:
            found[index] = f"{plural(len(gang.missing()), 'pod')} missing"
        elif gang.running and gang.hold is not None:
            found[index] = gang.hold.message
    return found


def best_speeds(instance: Instance) -> dict[int, int]:
    """The speed of every gang on ideal links and the fastest GPUs that it may use, permille.

    At least the one that it has now.
    """
    lines = Evaluation(instance, base_decisions(instance)).lines
    known: dict[frozenset[int], int] = {}

    def fastest(nodes: frozenset[int]) -> int:
        if nodes not in known:
            models = {instance.cluster.nodes[n].model for n in nodes}
            speeds = (instance.relative_speeds.of((m,)) for m in models if m is not None)
            known[nodes] = max(speeds, default=FULL_SPEED)
        return known[nodes]

    found = {}
    for index, (gang, line) in enumerate(zip(instance.gangs, lines, strict=True)):
        speeds = [fastest(instance.eligible_nodes(r)) for r in gang.roles if r.gpus]
        best = min(speeds) if speeds and gang.counts_speed else FULL_SPEED
        found[index] = max(best, line.speed or 0)
    return found


def wholly_free(
    instance: Instance, decisions: Sequence[GangDecision]
) -> Mapping[str, tuple[int, int]]:
    """Wholly free domains and all domains with GPUs, by level."""
    return whole_by_level(instance, free_after(instance, pods_after(instance, decisions)))


def effective_bound(free: Instance, solution: Solution, best: Mapping[int, int]) -> int:
    """Permille-GPU that no plan exceeds which is at least as good in the policy's tiers.

    ``best``: speeds that gangs could reach at most. The bound of a tier counts while all tiers before it are
    proven: a better plan may be worse in those after the first gap.
    """
    main = next((name for name in MAINS if free.policy.lists(name)), None)
    settled, bounds = True, dict[int, int]()
    for tier in solution.tiers:
        name, _, priority = tier.name.partition("/")
        if settled and name == main:
            bounds[int(priority)] = tier.bound
        settled = settled and tier.bound == tier.best
    running: dict[int, int] = {}
    others: dict[int, int] = {}
    least: dict[int, int] = {}
    by_gpus = 1 if main == "goodput" else FULL_SPEED
    for index, gang in enumerate(free.gangs):
        most = gang.least_units * best.get(index, FULL_SPEED)
        whole = gang.running and index not in free.incomplete
        sums = running if whole else others
        sums[gang.priority] = sums.get(gang.priority, 0) + most
        if whole and not gang.least_units:  # counts as one GPU in the tier, and nothing here
            least[gang.priority] = least.get(gang.priority, 0) + FULL_SPEED
    total = 0
    for number in sorted({*running, *others}):
        most = running.get(number, 0) + others.get(number, 0)
        if number in bounds:
            most = min(most, bounds[number] * by_gpus - least.get(number, 0))
        total += most
    roles = (role for gang in free.gangs for role in gang.roles)
    parts = sum(role.max * (role.units - free.gpu_unit * role.gpus) for role in roles)
    return min(total, FULL_SPEED * (free.gpu_unit * usable_gpus(free) + parts))


def usable_gpus(instance: Instance) -> int:
    """GPUs that the gangs of any plan have at most.

    On nodes that take pods with GPUs the healthy ones, and the unhealthy ones that running pods may hold; on
    other nodes those that running pods hold.
    """
    nodes = instance.cluster.nodes
    roles = (role for gang in instance.gangs for role in gang.roles if role.gpus)
    usable = frozenset().union(*{instance.eligible_nodes(role) for role in roles})
    held, doubtful = [0] * len(nodes), [0] * len(nodes)
    for gang, decision in zip(instance.gangs, base_decisions(instance), strict=True):
        for pod in decision.pods:
            node, gpus = nodes[pod.node], gang.roles[pod.role].gpus
            known = pod.gpus is not None and not node.unknown_unhealthy
            held[pod.node] += gpus
            doubtful[pod.node] += ((pod.gpus or 0) & node.unhealthy).bit_count() if known else gpus
    total = 0
    for n, node in enumerate(nodes):
        sick = node.gpus - node.healthy_gpus
        most = node.healthy_gpus + min(sick, doubtful[n]) if n in usable else 0
        total += max(most, held[n])
    return total


def most_whole(alone: Instance, packed: Solution) -> Mapping[str, int]:
    """Wholly free domains by level that no placement of the running gangs exceeds.

    ``alone``: the running gangs, which may move; ``packed``: the best plan found for them. Moves make no more
    GPUs free than are free now on nodes that take pods. If ``defragment`` is bounded while the gangs are
    proven to be as fast as they can be, that counts, too.
    """
    cluster, base = alone.cluster, base_decisions(alone)
    pods = [
        (gang, gang.roles[pod.role], pod)
        for gang, decision in zip(alone.gangs, base, strict=True)
        for pod in decision.pods
    ]
    free = sum(free_after(alone, [(role, pod) for _, role, pod in pods]))
    kept = {pod.node for gang, role, pod in pods if role.gpus and not gang.movable}
    emptied = [
        node.healthy_gpus if alone.schedulable(node) and n not in kept else 0
        for n, node in enumerate(cluster.nodes)
    ]
    whole = whole_nodes(alone, emptied)
    twice = {n: whole[n] for nodes in whole_domains(alone, whole) for n in nodes}
    *mains, last = packed.tiers
    settled = all(tier.bound == tier.value for tier in mains)
    found = {}
    for level in (*cluster.counted_levels, cluster.node_level):
        domains = [
            [n for n in one.nodes if cluster.nodes[n].gpus] for one in cluster.domains[level]
        ]
        able = [nodes for nodes in domains if nodes and all(n in whole for n in nodes)]
        found[cluster.level_name(level)] = _most_within(
            free, (sum(whole[n] for n in nodes) for nodes in able)
        )
        if settled:
            counted = twice if level != cluster.node_level else {}
            worths = (sum(whole[n] + counted.get(n, 0) for n in nodes) for nodes in able)
            name = cluster.level_name(level)
            found[name] = min(found[name], _most_within(last.bound, worths))
    return found


def _most_within(total: int, parts: Iterable[int]) -> int:
    """How many of the parts have a sum of at most the total."""
    return sum(sofar <= total for sofar in accumulate(sorted(parts)))
