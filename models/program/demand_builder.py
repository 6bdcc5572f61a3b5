"""Builds the demand of a gang at given pod counts, next to its pods that have a place already.

Pods to place are held to the domains and GPU models of the pods that have a place (contract 2.6, section 7).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.queues.reservations import due
from models.rates.gang_bandwidth import ServerSet, server_set
from models.rules.demands import Demand, Groups, RoleDemand, groups_of
from models.rules.registry import eligible_nodes, gang_key

PlacedPods = Sequence[ExistingPod] | Sequence[PodPlacement]


def demand_for(
    instance: Instance,
    index: int,
    counts: Sequence[int],
    stays: Sequence[ExistingPod],
    known: Sequence[int],
) -> Demand:
    """The gang with so many pods a role, of which these standing ones stay and the others are placed.

    ``known``: mask of GPUs known to be held, a node.
    """
    gang = instance.gangs[index]
    roles, possible = _roles(instance, gang, counts, stays)
    placed = {role.role for role in roles}.intersection(pod.role for pod in stays)
    return Demand(
        index,
        tuple(
            role if role.role in placed else _with_slices(instance, gang, role) for role in roles
        ),
        possible,
        tuple(counts),
        tuple(stays),
        _standing_sets(instance, gang, stays, known),
        tuple(sorted({pod.node for pod in stays if pod.node is not None})),
    )


def remaining_demand(
    instance: Instance, index: int, counts: Sequence[int], placed: Sequence[PodPlacement] = ()
) -> Demand:
    """The pods of these counts that ``placed`` lacks, for the heuristics: slices are not separate."""
    roles, possible = _roles(instance, instance.gangs[index], counts, placed)
    return Demand(
        index, roles, possible, standing_nodes=tuple(sorted({pod.node for pod in placed}))
    )


def _roles(
    instance: Instance, gang: Gang, counts: Sequence[int], placed: PlacedPods
) -> tuple[tuple[RoleDemand, ...], bool]:
    """Pods of every role that lack a place; False if the placed ones break a rule of those already."""
    there = {(pod.role, pod.index) for pod in placed}
    nodes = {pod.node for pod in placed if pod.node is not None}
    possible, roles = True, []
    for number, (role, count) in enumerate(zip(gang.roles, counts, strict=True)):
        indices = tuple(i for i in role.indices(count) if (number, i) not in there)
        if not indices:
            continue
        own = [pod for pod in placed if pod.role == number]
        allowed = eligible_nodes(instance, gang, role)
        layers: tuple[Groups, ...] = ()
        if own:
            allowed, layers, fine = _next_to_placed(instance, role, indices, own, allowed)
            possible &= fine
        allowed, fine = _same_domain(instance, gang.required, nodes, allowed)
        possible &= fine
        roles.append(RoleDemand(number, indices, role.gpus, role.requests, allowed, layers))
    return tuple(roles), possible


def _next_to_placed(
    instance: Instance,
    role: Role,
    indices: Sequence[int],
    own: Sequence[ExistingPod | PodPlacement],
    allowed: frozenset[int],
) -> tuple[frozenset[int], tuple[Groups, ...], bool]:
    """Nodes and slices of pods next to others of their role; False if these break a rule of the role."""
    cluster = instance.cluster
    nodes = {pod.node for pod in own if pod.node is not None}
    allowed, possible = _same_domain(instance, role.required, nodes, allowed)
    if role.gpus and not role.mix_models:
        models = {m.gpu for n in nodes if (m := cluster.nodes[n].model) is not None}
        possible &= len(models) <= 1
        for model in models:
            allowed = instance.nodes_of_model(allowed, model)
    layers = []
    for size, level in role.slice_layers:
        groups, fine = _slice_groups(instance, own, indices, size, level)
        possible &= fine
        layers.append(groups)
    return allowed, tuple(layers) if possible else (), possible


def _with_slices(instance: Instance, gang: Gang, demand: RoleDemand) -> RoleDemand:
    """The demand of a role of which no pod has a place, its slices listed if they need variables."""
    if not _needs_slices(instance, gang, demand):
        return demand
    layers = (groups_of(demand.indices, size) for size, _ in gang.roles[demand.role].slice_layers)
    separate = tuple(tuple((tuple(group), None) for group in groups) for groups in layers)
    return replace(demand, layers=separate)


def _needs_slices(instance: Instance, gang: Gang, demand: RoleDemand) -> bool:
    """Whether it matters which slice is where, not only how many there are."""
    role, cluster = gang.roles[demand.role], instance.cluster
    if role.outer_slices and role.slice_level == cluster.node_level:
        # pieces cannot count two short slices on nodes and hold them to their outer slices as well
        size, _ = role.slice_layers[0]
        if len(demand.cut(size).shorts) > 1:
            return True
    planned = any(pod.role == demand.role for pod in gang.planned)
    return bool(role.gpus and role.slice_layers) and planned and instance.policy.lists("stability")


def _same_domain(
    instance: Instance, level: int | None, nodes: set[int], allowed: frozenset[int]
) -> tuple[frozenset[int], bool]:
    """Allowed nodes within the domain that these nodes are in; False if they are in several."""
    if level is None or not nodes:
        return allowed, True
    of = instance.cluster.domain_of[level]
    used = {of[n] for n in nodes}
    inside = (n for d in used for n in instance.cluster.domains[level][d].nodes)
    return allowed.intersection(inside), len(used) == 1


def _slice_groups(
    instance: Instance,
    own: Sequence[ExistingPod | PodPlacement],
    indices: Sequence[int],
    size: int,
    level: int,
) -> tuple[Groups, bool]:
    """The slices of one layer that lack pods; False if the placed pods of one are in several domains."""
    of = instance.cluster.domain_of[level]
    used: dict[int, set[int]] = {}
    for pod in own:
        if pod.node is not None:
            used.setdefault(pod.index // size, set()).add(of[pod.node])
    result: list[tuple[tuple[int, ...], int | None]] = []
    for members in groups_of(indices, size):
        domains = used.get(members[0] // size, set())
        if len(domains) > 1:
            return (), False
        result.append((tuple(members), next(iter(domains), None)))
    return tuple(result), True


def _standing_sets(
    instance: Instance, gang: Gang, stays: Sequence[ExistingPod], known: Sequence[int]
) -> tuple[tuple[int, ServerSet], ...]:
    masks, blind, nodes = Counter[int](), Counter[int](), instance.cluster.nodes
    for pod in stays:
        gpus = gang.roles[pod.role].gpus
        if gpus and pod.node is not None:
            masks[pod.node] |= pod.gpus or 0
            blind[pod.node] += gpus if pod.gpus is None else 0
    found = (
        (n, server_set(nodes[n], mask, blind[n], known[n] | mask))
        for n, mask in sorted(masks.items())
    )
    return tuple((n, chosen) for n, chosen in found if chosen.count)


def identity(instance: Instance, demand: Demand) -> tuple[object, ...]:
    """Equal for waiting gangs that differ only in name, priority and submit time.

    A gang that an earlier plan placed is equal to no other. One that has to start now is equal only to such.
    """
    gang = instance.gangs[demand.gang]
    if gang.running or gang.planned:
        return ("by itself", demand.gang)
    return (*placing(instance, demand), gang.key in due(instance))


def placing(instance: Instance, demand: Demand) -> tuple[object, ...]:
    """Equal for demands without pods that stay if the same rules and tiers hold for where they are placed."""
    gang = instance.gangs[demand.gang]
    roles = tuple((role.count, role.gpus, role.requests, role.nodes) for role in demand.roles)
    sizes = tuple((role.min, role.max, role.step, role.units) for role in gang.roles)
    return (roles, sizes, gang_key(instance, gang))
