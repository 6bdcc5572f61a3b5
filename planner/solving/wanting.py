"""What one gang asks for at given pod counts beside pods it already has: the one place that makes a Demand.

Promises: nodes narrowed to the domains and GPU models of the pods it has (contract 2.6), slices tied to
theirs. Called by the greedy start, reclaiming, growing and the reasons.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from models.gang import Gang, Role
from models.instance import Instance
from models.placement.demands import Demand, Groups, RoleDemand
from models.placement.slicing import groups_of
from models.solution import PodPlacement

Counts = tuple[int, ...]
"""Pods a role."""


def wanted(
    instance: Instance, index: int, counts: Sequence[int], beside: Sequence[PodPlacement] = ()
) -> Demand:
    """The pods of gang ``index`` that ``beside`` lacks of these counts. ``possible`` as in Demand."""
    gang = instance.gangs[index]
    have = {(pod.role, pod.index) for pod in beside}
    nodes = {pod.node for pod in beside}
    possible = True
    roles = []
    for number, count in enumerate(counts):
        role = gang.roles[number]
        lacking = tuple(i for i in role.indices(count) if (number, i) not in have)
        if not lacking:
            continue
        own = {pod.node for pod in beside if pod.role == number}
        allowed = instance.eligible_nodes(role)
        for level, stand in ((gang.required, nodes), (role.required, own)):
            allowed, fine = _same_domain(instance, level, stand, allowed)
            possible &= fine
        allowed, fine = _same_model(instance, role, own, allowed)
        possible &= fine
        layers = _layers(instance, role, [p for p in beside if p.role == number], lacking)
        possible &= layers is not None
        roles.append(
            RoleDemand(number, lacking, role.gpus, role.requests, allowed, layers=layers or ())
        )
    return Demand(index, tuple(roles), possible, standing_nodes=tuple(sorted(nodes)))


def counts_of(gang: Gang, pods: Iterable[PodPlacement]) -> Counts:
    """Pods a role."""
    found = [0] * len(gang.roles)
    for pod in pods:
        found[pod.role] += 1
    return tuple(found)


def _same_domain(
    instance: Instance, level: int | None, stand: set[int], allowed: frozenset[int]
) -> tuple[frozenset[int], bool]:
    if level is None or not stand:
        return allowed, True
    of = instance.cluster.domain_of[level]
    used = {of[n] for n in stand}
    return frozenset(n for n in allowed if of[n] in used), len(used) == 1


def _same_model(
    instance: Instance, role: Role, own: set[int], allowed: frozenset[int]
) -> tuple[frozenset[int], bool]:
    nodes = instance.cluster.nodes
    used = {m.gpu for n in own if (m := nodes[n].model) is not None}
    if not role.gpus or role.mix_models or not used:
        return allowed, True
    fine = frozenset(n for n in allowed if (m := nodes[n].model) is not None and m.gpu in used)
    return fine, len(used) == 1


def _layers(
    instance: Instance, role: Role, beside: Sequence[PodPlacement], lacking: tuple[int, ...]
) -> tuple[Groups, ...] | None:
    """Slices of the lacking pods and the domain each is tied to; None where one is torn already."""
    if not beside:
        return ()
    layers = []
    for size, level in role.slice_layers:
        of = instance.cluster.domain_of[level]
        used: dict[int, set[int]] = {}
        for pod in beside:
            used.setdefault(pod.index // size, set()).add(of[pod.node])
        groups: list[tuple[tuple[int, ...], int | None]] = []
        for members in groups_of(lacking, size):
            domains = used.get(members[0] // size, set())
            if len(domains) > 1:
                return None
            groups.append((tuple(members), next(iter(domains), None)))
        layers.append(tuple(groups))
    return tuple(layers)
