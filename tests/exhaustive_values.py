"""What a plan of a tiny instance is worth, tier by tier as the contract writes it.

Promises: shares no code with evaluating, checking or the formulation; exact; slow and plain.
Called by the exhaustive planner and by the tests that compare it with the others.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence

from exhaustive_prices import Hold, Prices, domain, domains_used

from models.cluster import Cluster, Node
from models.gang import Gang, Role
from models.instance import Instance
from models.solution import GangDecision, PodPlacement

Tiers = tuple[tuple[str, int], ...]
"""Values of the stated tiers in the order of the policy."""

MINIMISED = ("disruption", "span", "stranded")


def usable(instance: Instance, node: Node) -> bool:
    """Ready, not cordoned, and given to us by the policy's nodeSelector."""
    labels = labels_of(instance.cluster, node)
    ours = all(labels.get(key) == value for key, value in instance.policy.node_selector)
    return ours and node.ready and not node.unschedulable


def labels_of(cluster: Cluster, node: Node) -> dict[str, str]:
    """The labels written on the node over those implied by its domains and name."""
    implied = {
        level.label: value
        for level, value in zip(cluster.levels, node.domains, strict=True)
        if level.label is not None and value is not None
    }
    return {"kubernetes.io/hostname": node.name, **implied, **dict(node.labels)}


def weight(gang: Gang) -> int:
    """w(gang): GPUs at ``min``, 1 if none."""
    return sum(role.min * role.gpus for role in gang.roles) or 1


def tier_names(instance: Instance) -> tuple[str, ...]:
    """The tiers the contract states for this instance, in the policy's order."""
    listed = [objective.name for objective in instance.policy.objectives]
    priorities = sorted({gang.priority for gang in instance.gangs}, reverse=True)
    names: list[str] = []
    for name in listed:
        if name == "admission":
            for p in priorities:
                names += [f"kept/{p}"] if _may_lose(instance.gangs, p) else []
                names += [f"admission/{p}"]
                names += [f"waiting/{p}"] if "waiting" in listed else []
        elif name == "waiting":
            names += [] if "admission" in listed else [f"waiting/{p}" for p in priorities]
        elif name == "growth":
            elastic = {g.priority for g in instance.gangs if any(r.elastic for r in g.roles)}
            names += [f"growth/{p}" for p in priorities if p in elastic]
        else:
            names.append(name)
    return tuple(names)


def _may_lose(gangs: Sequence[Gang], priority: int) -> bool:
    """Whether a running gang of the priority may be stopped, or shrunk because it is movable."""
    for gang in gangs:
        if gang.priority != priority or not running(gang):
            continue
        stand = Counter(pod.role for pod in gang.pods if pod.node is not None)
        above = any(r.elastic and stand[i] > r.min for i, r in enumerate(gang.roles))
        if gang.preemptible or (gang.movable and above):
            return True
    return False


def running(gang: Gang) -> bool:
    return any(pod.node is not None for pod in gang.pods)


def preferred_value(cluster: Cluster, gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """The preference a placement earns; ``pods`` are (role, node)."""
    value = 0
    if gang.preferred is not None and domains_used(cluster, gang.preferred, _nodes(pods)) == 1:
        value += weight(gang)
    for number, role in enumerate(gang.roles):
        nodes = {n for r, n in pods if r == number}
        if role.preferred is not None and domains_used(cluster, role.preferred, nodes) == 1:
            value += role.min * role.gpus or 1
    return value


def span_value(cluster: Cluster, gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """Domains beyond the first, weighted by 4 a level outwards."""
    innermost = len(cluster.levels)
    return weight(gang) * sum(
        (domains_used(cluster, level, _nodes(pods)) - 1) * (1 << 2 * (innermost - level))
        for level in range(innermost + 1)
    )


def growth_value(gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """GPUs of the elastic roles above ``min``."""
    counts = Counter(r for r, _ in pods)
    return sum(
        (counts[i] - role.min) * role.gpus for i, role in enumerate(gang.roles) if role.elastic
    )


def _nodes(pods: Sequence[tuple[int, int]]) -> set[int]:
    return {n for _, n in pods}


def earnings(
    instance: Instance, gang: Gang, pods: Sequence[tuple[int, int]], share: int | None
) -> dict[str, int]:
    """What an admitted gang adds to each tier; ``pods`` are (role, node) of all its pods."""
    p, w = gang.priority, weight(gang)
    since = [g.submitted_at for g in instance.gangs if g.submitted_at is not None]
    age = 0 if gang.submitted_at is None else max(since) - gang.submitted_at
    counted = share is not None and gang.pattern != "none"
    return {
        f"admission/{p}": w,
        f"waiting/{p}": 0 if running(gang) else w * age,
        "preference": preferred_value(instance.cluster, gang, pods),
        "bandwidth": gang.weight * w * share if counted and share is not None else 0,
        f"growth/{p}": growth_value(gang, pods),
        "span": span_value(instance.cluster, gang, pods),
    }


def stranded(instance: Instance, free: Sequence[int]) -> int:
    """Permille-GPU that the next request cannot use; ``free``: GPUs left, a node."""
    return sum(
        permille_of_mix * _left_over(instance.cluster, name, size, free)
        for name in sorted({n.model.gpu for n in instance.cluster.nodes if n.model})
        for size, permille_of_mix in instance.policy.mix
    )


def _left_over(cluster: Cluster, gpu: str, size: int, free: Sequence[int]) -> int:
    """F - s x placeable(s) of one GPU model and one size."""
    nodes = [i for i, n in enumerate(cluster.nodes) if n.model and n.model.gpu == gpu]
    largest = max(cluster.nodes[i].gpus for i in nodes)
    total = sum(free[i] for i in nodes)
    if size <= largest:
        return total - size * sum(free[i] // size for i in nodes)
    need = -(-size // largest)
    for level in reversed(range(len(cluster.levels))):
        groups: dict[tuple[str, ...], list[int]] = {}
        for i in nodes:
            groups.setdefault(domain(cluster, level, i), []).append(i)
        if any(sum(cluster.nodes[i].gpus for i in g) >= size for g in groups.values()):
            break
    else:
        groups = {(): nodes}
    whole = [sum(free[i] == largest for i in group) for group in groups.values()]
    return total - size * sum(count // need for count in whole)


def tier_values(instance: Instance, decisions: Sequence[GangDecision]) -> Tiers:
    """The tier vector of any plan of running gangs that stay and waiting gangs that may start."""
    nodes = instance.cluster.nodes
    known = [0] * len(nodes)
    blind = [node.unknown_unhealthy for node in nodes]
    holds: list[dict[int, Hold]] = []
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        own = holds_of(gang.roles, decision.pods)
        holds.append(own)
        for n, (mask, count) in own.items():
            known[n] |= mask
            blind[n] += count
    prices = {joins: Prices(instance, known, joins=joins) for joins in (True, False)}
    sums: Counter[str] = Counter()
    for gang, decision, own in zip(instance.gangs, decisions, holds, strict=True):
        if running(gang):
            stand = [p for p in gang.pods if p.node is not None]
            sums[f"kept/{gang.priority}"] += sum(gang.roles[p.role].gpus for p in stand)
        if admitted(gang, decision):
            pods = [(p.role, p.node) for p in decision.pods]
            share = prices[gang.nvlink_across_nodes].share(own)
            sums.update(earnings(instance, gang, pods, share))
    free = [
        max(0, (n.healthy & ~known[i]).bit_count() - blind[i]) if usable(instance, n) else 0
        for i, n in enumerate(nodes)
    ]
    sums["stranded"] = stranded(instance, free)
    return tuple((name, sums[name]) for name in tier_names(instance))


def admitted(gang: Gang, decision: GangDecision) -> bool:
    """Placed, completed, or kept with every pod in place."""
    if decision.decision == "keep":
        return not gang.missing()
    return decision.decision in ("place", "complete")


def holds_of(roles: Sequence[Role], pods: Iterable[PodPlacement]) -> dict[int, Hold]:
    """GPUs a node, only nodes where the gang has some."""
    holds: dict[int, Hold] = {}
    for pod in pods:
        if roles[pod.role].gpus:
            mask, blind = holds.get(pod.node, (0, 0))
            if pod.gpus is None:
                holds[pod.node] = (mask, blind + roles[pod.role].gpus)
            else:
                holds[pod.node] = (mask | pod.gpus, blind)
    return holds
