"""B, ideal and share of one gang's placement, exactly (contract, section 3).

Promises: rationals inside, floored once; no solver; sets of one server come from ``models.rates``.
Called by evaluating (every plan), the greedy start and the formulation's thresholds.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from fractions import Fraction
from itertools import combinations

from models.cluster import Cluster, Node
from models.hardware import ServerModel, bits
from models.rates.server_bandwidth import best_inside_MBps, inside_MBps, nics_MBps

FULL_SHARE = 1000
"""share() is permille of the ideal."""


@dataclass(frozen=True, slots=True)
class ServerSet:
    """A gang's GPUs on one node: ``known`` mask, ``blind`` more of unknown index out of ``candidates``."""

    known: int
    blind: int = 0
    candidates: int = 0

    @property
    def count(self) -> int:
        return self.known.bit_count() + self.blind


def server_set(node: Node, known: int, blind: int, held: int) -> ServerSet:
    """A gang's GPUs on a node. ``held``: mask of the GPUs known to be any pod's, the gang's included.

    The blind ones are healthy and nobody's. Pods that stay may hold more than that: then sick ones,
    then any; and no more than the node has.
    """
    installed = node.model.all_gpus if node.model else 0
    blind = min(blind, node.gpus - known.bit_count())
    for candidates in (node.healthy & ~held, installed & ~held):
        if candidates.bit_count() >= blind:
            return ServerSet(known, blind, candidates)
    return ServerSet(known, blind, installed & ~known)


def worst_masks(chosen: ServerSet) -> tuple[int, ...]:
    """Every set the GPUs may turn out to be: one mask unless some indices are unknown."""
    if not chosen.blind:
        return (chosen.known,)
    rest = bits(chosen.candidates & ~chosen.known)
    return tuple(
        chosen.known | sum(1 << i for i in extra) for extra in combinations(rest, chosen.blind)
    )


def set_inside_MBps(node: Node, chosen: ServerSet) -> Fraction | None:
    """inside(S) of the worst set it may be; None = unlimited (one GPU)."""
    assert node.model is not None
    if chosen.count < 2:
        return None
    if node.model.switched:
        return inside_MBps(node.model, (1 << chosen.count) - 1)
    values = [inside_MBps(node.model, mask) for mask in worst_masks(chosen)]
    return min(value for value in values if value is not None)


def set_nics_MBps(node: Node, chosen: ServerSet) -> Fraction:
    """N(S) of the worst set it may be."""
    assert node.model is not None
    nics = node.effective_nics
    return min(nics_MBps(node.model, nics, mask) for mask in worst_masks(chosen))


def group_of(cluster: Cluster, node: int) -> tuple[int, int]:
    """What counts as one server: the node, or its NVLink domain at the widest nvlink level."""
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


def fabric_MBps(model: ServerModel) -> Fraction:
    """linksPerGpu x linkMBps: what a switched fabric, or an NVLink domain, gives any set."""
    assert model.links_per_gpu is not None
    assert model.link_MBps is not None
    return Fraction(model.links_per_gpu * model.link_MBps)


def gang_MBps(
    cluster: Cluster, sets: Mapping[int, ServerSet], *, joined: bool = True
) -> Fraction | None:
    """B before rounding; None with fewer than two GPUs. ``sets``: node index -> its GPUs there.

    ``joined`` False: every server by itself, whatever NVLink domain it is in.
    """
    sets = {node: chosen for node, chosen in sets.items() if chosen.count}
    if sum(chosen.count for chosen in sets.values()) < 2:
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
            limits.append(network / over)
    return min(limits)


def _group_inside(
    cluster: Cluster, members: list[int], sets: Mapping[int, ServerSet]
) -> Fraction | None:
    """inside of one server or of one NVLink domain taken as one server."""
    if len(members) == 1:
        return set_inside_MBps(cluster.nodes[members[0]], sets[members[0]])
    models = [cluster.nodes[n].model for n in members]
    return min(fabric_MBps(model) for model in models if model is not None)


def ideal_MBps(models: tuple[ServerModel, ...], gpus: int, *, joined: bool = True) -> Fraction:
    """ideal for ``gpus`` GPUs: the smallest over the models of the servers chosen, as made.

    ``joined`` False: no NVLink between servers.
    """
    return min(_model_ideal(model, gpus, joined=joined) for model in models)


def _model_ideal(model: ServerModel, gpus: int, *, joined: bool) -> Fraction:
    if gpus <= model.gpus:
        return Fraction(best_inside_MBps(model, gpus) or 0)
    if joined and gpus <= model.gpus * model.nvlink_domain_nodes:
        return fabric_MBps(model)
    network = nics_MBps(model, model.nics, model.all_gpus)
    inside = inside_MBps(model, model.all_gpus)
    return network if inside is None else min(inside, network)


def share_permille(bandwidth: Fraction, ideal: Fraction) -> int:
    """min(1000, floor(1000 x B / ideal)); 1000 if ideal is 0."""
    if ideal == 0:
        return FULL_SHARE
    return min(FULL_SHARE, int(FULL_SHARE * bandwidth / ideal))
