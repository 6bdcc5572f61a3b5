"""Bandwidth and ideal of a gang with given pods, by its pattern or the groups of its roles (section 3)."""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction

from models.hardware import ServerModel
from models.instance.cluster import Cluster
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rates.gang_bandwidth import ServerSet, gang_MBps, ideal_MBps, server_set
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import (
    ideal_of_exchange,
    ideal_of_kinds,
    role_kinds,
    unit_gpus,
)
from models.rates.ranks import deal, has_ranks, placed_kinds

KnownMasks = Sequence[int] | Mapping[int, int]
"""Mask of GPUs known to be held, by node: of all nodes, or of those of a gang."""


def own_sets(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> dict[int, ServerSet]:
    """The gang's GPUs a node. ``known``: mask of the GPUs known to be held, a node, after the plan."""
    masks: dict[int, int] = {}
    blind: dict[int, int] = {}
    for pod in pods:
        gpus = gang.roles[pod.role].gpus
        if not gpus:
            continue
        masks.setdefault(pod.node, 0)
        if pod.gpus is None:
            blind[pod.node] = blind.get(pod.node, 0) + gpus
        else:
            masks[pod.node] |= pod.gpus
    nodes = instance.cluster.nodes
    return {
        n: server_set(nodes[n], mask, blind[n], known[n]) if n in blind else ServerSet(mask)
        for n, mask in masks.items()
    }


def gang_rates(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> tuple[Fraction | None, Fraction | None]:
    """B and ideal of a gang (section 3); None where there is none, or a rate is not known."""
    if not gang.by_rank:
        sets = own_sets(instance, gang, pods, known)
        return _rates(instance, gang, sets)
    least: tuple[Fraction | None, Fraction | None] = (None, None)
    for number, role in enumerate(gang.roles):
        own = [pod for pod in pods if pod.role == number and role.gpus]
        sets = own_sets(instance, gang, own, known)
        found = role_rates(instance, gang, number, pods, sets)
        if found is None:  # one GPU
            continue
        if None in found:
            return found
        if least[0] is None or _relative(found) < _relative(least):
            least = found
    return least


def dealt_ranks(
    instance: Instance, gang: Gang, pods: Sequence[PodPlacement], known: KnownMasks
) -> dict[tuple[int, int], int]:
    """Rank of the first GPU of every pod that has one, by role and index."""
    found: dict[tuple[int, int], int] = {}
    for number, role in enumerate(gang.roles):
        own = [pod for pod in pods if pod.role == number]
        if has_ranks(gang, role) and own:
            sets = own_sets(instance, gang, own, known)
            found |= deal(instance.cluster, gang, number, pods, sets).ranks
    return found


Rates = tuple[Fraction | None, Fraction | None]
"""B and ideal."""


def _relative(rates: Rates) -> Fraction:
    bandwidth, ideal = rates
    assert bandwidth is not None
    return bandwidth / ideal if ideal else Fraction(1)


def role_rates(
    instance: Instance,
    gang: Gang,
    number: int,
    pods: Sequence[PodPlacement],
    sets: dict[int, ServerSet],
) -> Rates | None:
    """B and ideal of one role; None with fewer than two GPUs. ``sets``: its GPUs a node."""
    gpus = sum(chosen.count for chosen in sets.values())
    if gpus < 2:
        return None
    cluster, joined = instance.cluster, gang.nvlink_across_nodes
    kinds = placed_kinds(gang, number, [pod for pod in pods if pod.role == number], sets)
    if kinds is None:
        return _rates(instance, gang, sets)
    try:
        dealt = deal(cluster, gang, number, pods, sets)
        assert dealt.rates is not None
        bandwidth = dealt.rates.bandwidth(dealt.order)
    except UnknownRate:
        return None, None
    try:
        return bandwidth, ideal_of_kinds(_models(cluster, sets), kinds, gpus, joined=joined)
    except UnknownRate:
        return bandwidth, None


def _models(cluster: Cluster, sets: Iterable[int]) -> tuple[ServerModel, ...]:
    return tuple(dict.fromkeys(m for n in sets if (m := cluster.nodes[n].model) is not None))


def ideal_of(
    instance: Instance,
    gang: Gang,
    counts: Sequence[int],
    models: Sequence[ServerModel],
    gpus: int,
) -> Fraction:
    """Ideal of a gang with so many pods a role, the smallest over the models in use (section 3).

    Of a gang in groups with several roles with GPUs, where each has its own, that of one all-reduce.
    """
    joined = gang.nvlink_across_nodes
    if not gang.in_groups:
        return ideal_MBps(tuple(models), gpus, joined=joined)
    if not gang.by_rank:
        return min(_ideal_exchange(instance, gang, model, gpus) for model in models)
    roles = [(r, n) for r, n in zip(gang.roles, counts, strict=True) if r.gpus * n]
    kinds = role_kinds(gang, *roles[0]) if len(roles) == 1 else None
    if kinds is None:
        return ideal_MBps(tuple(models), gpus, joined=joined)
    return ideal_of_kinds(models, kinds, gpus, joined=joined)


def _ideal_exchange(instance: Instance, gang: Gang, model: ServerModel, gpus: int) -> Fraction:
    """Ideal of all-to-all or of parameter-server on servers of a model.

    Of the latter, where it needs the network, that of the best model of the input: NIC rate counts.
    """
    joined, pattern = gang.nvlink_across_nodes, gang.pattern
    own = ideal_of_exchange(model, gpus, pattern, joined=joined)
    if pattern == "all-to-all" or gpus <= unit_gpus(model, gpus, joined=joined):
        return own
    found = [own]
    for other in instance.relative_speeds.models:
        if gpus > unit_gpus(other, gpus, joined=joined):
            with contextlib.suppress(UnknownRate):  # of servers that the gang does not use
                found.append(ideal_of_exchange(other, gpus, pattern, joined=joined))
    return max(found)


def _rates(instance: Instance, gang: Gang, sets: dict[int, ServerSet]) -> Rates:
    """B and ideal where ranks do not matter; None where there is none, or a rate is not known.

    A role of a gang with ranks counts as one all-reduce.
    """
    cluster, joined, bandwidth = instance.cluster, gang.nvlink_across_nodes, None
    # the readers refuse it for every gang that may be placed
    with contextlib.suppress(UnknownRate):
        bandwidth = gang_MBps(cluster, sets, joined=joined, pattern=gang.pattern)
    if bandwidth is None:
        return None, None
    gpus = sum(chosen.count for chosen in sets.values())
    models = _models(cluster, (n for n, chosen in sets.items() if chosen.count))
    try:
        if gang.by_rank:
            return bandwidth, ideal_MBps(models, gpus, joined=joined)
        return bandwidth, ideal_of(instance, gang, (), models, gpus)
    except UnknownRate:
        return bandwidth, None
