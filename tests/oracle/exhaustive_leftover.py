"""What is left free on a tiny cluster, in the words of two tiers: GPUs stranded, and pieces left whole.

Promises: a function of the numbers of free GPUs, and of those of use, one a node, 0 where a node may not be
used.
Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from collections.abc import Sequence

from exhaustive_prices import domain

from models.instance.cluster import Cluster
from models.instance.instance import Instance

LEFTOVER = ("stranded", "defragment", "suspect")
"""The tiers that are no sums over gangs."""

WHOLE_OR_FREE = ("defragment", "suspect")
"""Those of them of which a plan that leaves less is never worth more."""


def leftover(instance: Instance, tier: str, free: Sequence[int], useful: Sequence[int]) -> int:
    """Value of one of ``LEFTOVER``; ``free``: GPUs left, a node; ``useful``: those with their share of it."""
    if tier == "defragment":
        return defragment(instance.cluster, free)
    if tier == "suspect":
        return sum(gpus for n, gpus in enumerate(free) if failed_lately(instance, n))
    return stranded(instance, free, useful)


def failed_lately(instance: Instance, n: int) -> bool:
    """Whether the node failed within the time that the policy states, before its reference time."""
    last = instance.cluster.nodes[n].last_failure
    return last is not None and instance.now - last < instance.policy.suspect_for_s


def stranded(instance: Instance, free: Sequence[int], useful: Sequence[int]) -> int:
    """Permille-GPU that the next request cannot use."""
    return sum(
        permille_of_mix * _left_over(instance.cluster, name, size, free, useful)
        for name in sorted({n.model.gpu for n in instance.cluster.nodes if n.model})
        for size, permille_of_mix in instance.policy.mix
    )


def _left_over(
    cluster: Cluster, gpu: str, size: int, free: Sequence[int], useful: Sequence[int]
) -> int:
    """F - s x placeable(s) of one GPU model and one size."""
    nodes = [i for i, n in enumerate(cluster.nodes) if n.model and n.model.gpu == gpu]
    largest = max(cluster.nodes[i].gpus for i in nodes)
    total = sum(free[i] for i in nodes)
    if size <= largest:
        return total - size * sum(useful[i] // size for i in nodes)
    need = -(-size // largest)
    for level in reversed(counted(cluster)):
        groups: dict[tuple[str, ...], list[int]] = {}
        for i in nodes:
            groups.setdefault(domain(cluster, level, i), []).append(i)
        if any(sum(cluster.nodes[i].gpus for i in g) >= size for g in groups.values()):
            break
    else:
        groups = {(): nodes}
    whole = [sum(useful[i] == largest for i in group) for group in groups.values()]
    return total - size * sum(count // need for count in whole)


def counted(cluster: Cluster) -> list[int]:
    """The levels above the nodes that tiers look at."""
    return [number for number, level in enumerate(cluster.levels) if level.counted]


def defragment(cluster: Cluster, free: Sequence[int]) -> int:
    """GPUs of the nodes left whole, and once more of those in innermost domains left whole."""
    whole = whole_nodes(cluster, free)
    twice = [whole[n] for nodes in whole_domains(cluster, free) for n in nodes]
    return sum(whole.values()) + sum(twice)


def whole_nodes(cluster: Cluster, free: Sequence[int]) -> dict[int, int]:
    """The nodes with as many GPUs free as the largest of their GPU model has, and how many that is."""
    whole: dict[int, int] = {}
    for n, node in enumerate(cluster.nodes):
        if node.model:
            of_model = [m.gpus for m in cluster.nodes if m.model and m.model.gpu == node.model.gpu]
            if free[n] == max(of_model):
                whole[n] = free[n]
    return whole


def whole_domains(cluster: Cluster, free: Sequence[int]) -> list[list[int]]:
    """The nodes with GPUs of each innermost domain that has several, all of them whole."""
    if not counted(cluster):
        return []
    rooms: dict[tuple[str, ...], list[int]] = {}
    for n, node in enumerate(cluster.nodes):
        if node.model:
            rooms.setdefault(domain(cluster, counted(cluster)[-1], n), []).append(n)
    whole = whole_nodes(cluster, free)
    return [nodes for nodes in rooms.values() if len(nodes) > 1 and all(n in whole for n in nodes)]
