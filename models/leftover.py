"""What is left free and what the next requests could do with it: the tiers stranded and defragment.

Promises: exact integers; one place for placeable(s), the domains large requests are counted in, and
for what is wholly free. Called by ``evaluating`` and by the formulation's tiers.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from models.instance import Instance


def stranded(instance: Instance, free: Sequence[int]) -> int:
    """permille-GPU left that the next request of the mix cannot use. ``free``: GPUs a node."""
    total = 0
    for nodes in gpu_models(instance).values():
        left = sum(free[n] for n in nodes)
        for size, permille in instance.policy.mix:
            total += permille * (left - size * placeable(instance, nodes, free, size))
    return total


def gpu_models(instance: Instance) -> dict[str, tuple[int, ...]]:
    """Nodes of every GPU model, by its name."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(instance.cluster.nodes):
        if node.model is not None:
            found.setdefault(node.model.gpu, []).append(index)
    return {name: tuple(found[name]) for name in sorted(found)}


def whole_nodes(instance: Instance, free: Sequence[int]) -> dict[int, int]:
    """Nodes with as many GPUs free as the largest node of their GPU model has: node to GPUs, sorted.

    ``free``: GPUs a node.
    """
    nodes = instance.cluster.nodes
    whole = {}
    for members in gpu_models(instance).values():
        largest = max(nodes[n].gpus for n in members)
        whole.update({n: largest for n in members if free[n] == largest})
    return dict(sorted(whole.items()))


def whole_domains(instance: Instance, whole: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """The nodes with GPUs of every innermost domain that has two or more of them, all in ``whole``."""
    cluster = instance.cluster
    if not cluster.levels:
        return ()
    found = []
    for domain in cluster.domains[cluster.node_level - 1]:
        nodes = tuple(n for n in domain.nodes if cluster.nodes[n].model is not None)
        if len(nodes) > 1 and all(n in whole for n in nodes):
            found.append(nodes)
    return tuple(found)


def placeable(instance: Instance, nodes: Sequence[int], free: Sequence[int], size: int) -> int:
    """How many requests of ``size`` GPUs fit what is left on the nodes of one GPU model."""
    largest = max(instance.cluster.nodes[n].gpus for n in nodes)
    if size <= largest:
        return sum(free[n] // size for n in nodes)
    servers = -(-size // largest)
    return sum(
        sum(1 for n in members if free[n] == largest) // servers
        for members in request_domains(instance, nodes, size)
    )


def request_domains(
    instance: Instance, nodes: Sequence[int], size: int
) -> tuple[tuple[int, ...], ...]:
    """The nodes of one GPU model by domain of the innermost level with room for ``size`` installed GPUs."""
    cluster = instance.cluster
    for level in range(len(cluster.levels) - 1, -1, -1):
        members: dict[int, list[int]] = {}
        for n in nodes:
            members.setdefault(cluster.domain_of[level][n], []).append(n)
        if any(sum(cluster.nodes[n].gpus for n in m) >= size for m in members.values()):
            return tuple(tuple(members[d]) for d in sorted(members))
    return (tuple(nodes),)
