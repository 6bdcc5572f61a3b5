"""What is left free and what the next requests could do with it (contract, section 4: stranded).

Promises: exact integers; one place for placeable(s) and the domains large requests are counted in.
Called by ``evaluating`` and by the formulation's tiers.
"""

from __future__ import annotations

from collections.abc import Sequence

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
