"""What a plan leaves free, and what requests of the policy's mix could do with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping, Sequence

from models.instance.instance import Instance, once


def gpu_shares(instance: Instance) -> dict[str, int]:
    """What a free GPU needs of each resource to be of use; empty where it needs nothing."""
    return {name: share for name, share in instance.policy.per_gpu if share}


def usable_gpus(instance: Instance, free: int, left: Mapping[str, int]) -> int:
    """Free GPUs of a node that have their share of what is left of its resources."""
    shares = gpu_shares(instance).items()
    return min([free, *(max(0, left[r]) // share for r, share in shares if r in left)])


def stranded(instance: Instance, free: Sequence[int], usable: Sequence[int] | None = None) -> int:
    """permille-GPU left that the next request of the mix cannot use.

    ``free``: GPUs a node; ``usable``: those of use to a request, None for all.
    """
    total, usable = 0, free if usable is None else usable
    for name, nodes in gpu_models(instance).items():
        largest, levels = instance.once(_request_levels)[name]
        counts = Counter(map(usable.__getitem__, nodes))
        left = sum(map(free.__getitem__, nodes))
        whole = [n for n in nodes if usable[n] == largest]
        for (size, permille), level in zip(instance.policy.mix, levels, strict=True):
            if size <= largest:
                placeable = sum(gpus // size * count for gpus, count in counts.items())
            else:
                of = None if level is None else instance.cluster.domain_of[level]
                servers = -(-size // largest)
                domains = Counter(None if of is None else of[n] for n in whole)
                placeable = sum(count // servers for count in domains.values())
            total += permille * (left - size * placeable)
    return total


def _request_levels(instance: Instance) -> dict[str, tuple[int, tuple[int | None, ...]]]:
    """Of every GPU model: GPUs of its largest node, and the level in whose domains each size is asked for."""
    found = {}
    for name, nodes in gpu_models(instance).items():
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        installed = _installed(instance, nodes)
        levels = (_request_level(installed, size) for size, _ in instance.policy.mix)
        found[name] = (largest, tuple(levels))
    return found


def _installed(instance: Instance, nodes: Sequence[int]) -> dict[int, int]:
    """The most GPUs that these nodes have in one domain, by counted level, widest first."""
    most = {}
    for level in instance.cluster.counted_levels:
        of = instance.cluster.domain_of[level]
        installed: dict[int, int] = {}
        for n in nodes:
            installed[of[n]] = installed.get(of[n], 0) + instance.cluster.nodes[n].gpus
        most[level] = max(installed.values())
    return most


def _request_level(installed: Mapping[int, int], size: int) -> int | None:
    """The innermost level with a domain of so many installed GPUs; None: the whole cluster."""
    return next((level for level in reversed(installed) if installed[level] >= size), None)


@once
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
    if not cluster.counted_levels:
        return ()
    found = []
    for domain in cluster.domains[cluster.counted_levels[-1]]:
        nodes = tuple(n for n in domain.nodes if cluster.nodes[n].model is not None)
        if len(nodes) > 1 and all(n in whole for n in nodes):
            found.append(nodes)
    return tuple(found)


def request_domains(
    instance: Instance, nodes: Sequence[int], size: int
) -> tuple[tuple[int, ...], ...]:
    """The nodes of one GPU model by domain of the innermost level with room for ``size`` installed GPUs."""
    level = _request_level(_installed(instance, nodes), size)
    if level is None:
        return (tuple(nodes),)
    members: dict[int, list[int]] = {}
    for n in nodes:
        members.setdefault(instance.cluster.domain_of[level][n], []).append(n)
    return tuple(tuple(members[d]) for d in sorted(members))


@once
def suspects(instance: Instance) -> frozenset[int]:
    """The nodes that failed less than the policy's ``suspectFor`` before now."""
    since = instance.now - instance.policy.suspect_for_s
    failures = ((n, node.last_failure) for n, node in enumerate(instance.cluster.nodes))
    return frozenset(n for n, last in failures if last is not None and last > since)


def defragment(instance: Instance, free: Sequence[int]) -> int:
    """GPUs of wholly free nodes, those in wholly free domains twice."""
    whole = whole_nodes(instance, free)
    domains = whole_domains(instance, whole)
    return sum(whole.values()) + sum(whole[n] for nodes in domains for n in nodes)
