"""Bandwidth B, ideal and share of one gang's placement, as exact rationals."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from models.hardware import ServerModel, bits, mask_of
from models.instance.cluster import Cluster, Node
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import best_inside_MBps, inside_MBps, switched_MBps

EXCHANGES = ("all-to-all", "parameter-server")
"""Patterns in which the GPUs of a server share its NICs."""

FULL_SHARE = 1000
"""Shares are in permille of the ideal."""


@dataclass(frozen=True, slots=True)
class ServerSet:
    """A gang's GPUs on one node: mask ``known``, and ``blind`` more of unknown index from ``candidates``."""

    known: int
    blind: int = 0
    candidates: int = 0

    @property
    def count(self) -> int:
        return self.known.bit_count() + self.blind


def server_set(node: Node, known: int, blind: int, held: int) -> ServerSet:
    """A gang's GPUs on a node. ``held``: mask of all GPUs known to be in a pod, the gang's included.

    GPUs of unknown index are healthy and free. Where existing pods hold more than that, unhealthy
    GPUs count too, then any GPU of the node.
    """
    installed = node.model.all_gpus if node.model else 0
    blind = min(blind, node.gpus - known.bit_count())
    for candidates in (node.healthy & ~held, installed & ~held):
        if candidates.bit_count() >= blind:
            return ServerSet(known, blind, candidates)
    return ServerSet(known, blind, installed & ~known)


def worst_masks(chosen: ServerSet) -> tuple[int, ...]:
    """Every possible set of GPUs: one mask unless some indices are unknown."""
    if not chosen.blind:
        return (chosen.known,)
    rest = bits(chosen.candidates & ~chosen.known)
    return tuple(chosen.known | mask_of(extra) for extra in combinations(rest, chosen.blind))


def set_inside_MBps(node: Node, chosen: ServerSet) -> Fraction | None:
    """inside(S) of the worst possible set; None = unlimited (one GPU)."""
    assert node.model is not None
    if chosen.count < 2:
        return None
    if node.model.switched:
        return inside_MBps(node.model, (1 << chosen.count) - 1)
    values = [inside_MBps(node.model, mask) for mask in worst_masks(chosen)]
    return min(value for value in values if value is not None)


def set_nics_MBps(node: Node, chosen: ServerSet) -> Fraction:
    """N(S) of the worst possible set."""
    assert node.model is not None
    nics = node.effective_nics
    return min(nics_MBps(node.model, nics, mask) for mask in worst_masks(chosen))


def group_of(cluster: Cluster, node: int) -> tuple[int, int]:
    """(level, domain) that counts as one server: the node, or its domain at the widest nvlink level."""
    model = cluster.nodes[node].model
    if model is not None and model.nvlink_domain_nodes > 1:
        for level, spec in enumerate(cluster.levels):
            if spec.nvlink:
                return (level, cluster.domain_of[level][node])
    return (cluster.node_level, node)


def oversubscription(cluster: Cluster, nodes: tuple[int, ...]) -> Fraction:
    """O: the largest oversubscription over the levels at which the nodes lie in several domains."""
    crossed = [
        spec.oversubscription
        for level, spec in enumerate(cluster.levels)
        if len({cluster.domain_of[level][node] for node in nodes}) > 1
    ]
    return max(crossed, default=Fraction(1))


def exchange_factor(pattern: str, own: int, total: int) -> Fraction:
    """What a pattern makes of the network rate of ``own`` GPUs of a unit, of ``total`` in all.

    An all-reduce has it all; in an exchange each GPU has its share, and sends parts to those of its unit.
    """
    if pattern == "all-to-all" and own < total:
        return Fraction(total - 1, own * (total - own))
    return Fraction(1, own) if pattern == "parameter-server" else Fraction(1)


def gang_MBps(
    cluster: Cluster,
    sets: Mapping[int, ServerSet],
    *,
    joined: bool = True,
    pattern: str = "all-reduce",
) -> Fraction | None:
    """B before rounding; None with fewer than two GPUs. ``sets``: node index -> its GPUs there.

    ``joined`` False: NVLink between servers is not used.
    """
    sets = {node: chosen for node, chosen in sets.items() if chosen.count}
    total = sum(chosen.count for chosen in sets.values())
    if total < 2:
        return None
    groups: dict[tuple[int, int], list[int]] = {}
    for node in sorted(sets):
        group = group_of(cluster, node) if joined else (cluster.node_level, node)
        groups.setdefault(group, []).append(node)
    insides = [_group_inside(cluster, members, sets) for members in groups.values()]
    limits = [value for value in insides if value is not None]
    if len(groups) > 1:
        over = oversubscription(cluster, tuple(sets))
        for members in groups.values():
            network = sum((set_nics_MBps(cluster.nodes[n], sets[n]) for n in members), Fraction(0))
            if pattern in EXCHANGES:
                network *= exchange_factor(pattern, sum(sets[n].count for n in members), total)
            limits.append(network / over)
    return min(limits)


def _group_inside(
    cluster: Cluster, members: list[int], sets: Mapping[int, ServerSet]
) -> Fraction | None:
    """inside of one server, or of one NVLink domain."""
    if len(members) == 1:
        return set_inside_MBps(cluster.nodes[members[0]], sets[members[0]])
    models = [cluster.nodes[n].model for n in members]
    return min(switched_MBps(model) for model in models if model is not None)


def ideal_MBps(models: tuple[ServerModel, ...], gpus: int, *, joined: bool = True) -> Fraction:
    """ideal of ``gpus`` GPUs: the smallest over the models of the servers, health and own NICs aside.

    ``joined`` False: NVLink between servers is not used.
    """
    return min(_model_ideal(model, gpus, joined=joined) for model in models)


def _model_ideal(model: ServerModel, gpus: int, *, joined: bool) -> Fraction:
    if gpus <= model.gpus:
        return Fraction(best_inside_MBps(model, gpus) or 0)
    if joined and gpus <= model.gpus * model.nvlink_domain_nodes:
        return switched_MBps(model)
    network = nics_MBps(model, model.nics, model.all_gpus)
    inside = inside_MBps(model, model.all_gpus)
    return network if inside is None else min(inside, network)


def share_permille(bandwidth: Fraction, ideal: Fraction) -> int:
    """min(1000, floor(1000 x B / ideal)); 1000 if ideal is 0."""
    if ideal == 0:
        return FULL_SHARE
    return min(FULL_SHARE, int(FULL_SHARE * bandwidth / ideal))
