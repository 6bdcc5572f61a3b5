"""What is to be placed: the missing pods of every gang that waits or runs incomplete.

Promises: everything a rule needs of a gang, in dense integers, with the nodes each role may use;
for an incomplete gang the standing pods already narrow those nodes (contract 2.6, 2.8, section 7).
Built once per formulation; the greedy start uses the same records.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from fractions import Fraction

from models.gang import Gang
from models.instance import Instance
from models.placement.slicing import Cut, cut_of
from models.pricing import ServerSet, server_set


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """Pods of one role to place. ``nodes``: those allowed, ascending, room aside.

    ``indices``: the pod indices to fill, ascending. ``groups``: for sliced roles of an incomplete
    gang, (indices of the missing pods of one slice, its fixed domain or None), else empty.
    """

    role: int
    indices: tuple[int, ...]
    gpus: int
    requests: tuple[tuple[str, int], ...]
    nodes: frozenset[int]
    groups: tuple[tuple[tuple[int, ...], int | None], ...] = ()

    @property
    def count(self) -> int:
        return len(self.indices)

    def cut(self, size: int) -> Cut:
        """Its slices of that size; only for a role that waits as a whole."""
        return cut_of(self.indices[0], self.count, size)


@dataclass(frozen=True, slots=True)
class Demand:
    """One gang to place or complete. ``possible`` is False where standing pods already break a rule.

    ``standing``: the GPUs that stand, by node. ``standing_nodes``: nodes of all its standing pods.
    """

    gang: int
    roles: tuple[RoleDemand, ...]
    possible: bool
    standing: tuple[tuple[int, ServerSet], ...] = ()
    standing_nodes: tuple[int, ...] = ()

    def within(self, nodes: frozenset[int]) -> Demand:
        """The same demand, held to these nodes."""
        roles = tuple(replace(role, nodes=role.nodes & nodes) for role in self.roles)
        return replace(self, roles=roles)

    @property
    def gpu_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if role.gpus)

    @property
    def zero_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if not role.gpus)

    @property
    def gpus(self) -> int:
        """GPUs to place."""
        return sum(role.gpus * role.count for role in self.roles)

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang, standing ones included."""
        return self.gpus + sum(chosen.count for _, chosen in self.standing)


def demands_of(instance: Instance, known: list[int]) -> tuple[Demand, ...]:
    """Every gang with pods to place, in instance order; held ones are not to be placed.

    ``known``: mask of GPUs known held, a node.
    """
    found = []
    for index, gang in enumerate(instance.gangs):
        if gang.hold is not None:
            continue
        if gang.running:
            if gang.missing():
                found.append(_completion(instance, index, gang, known))
        else:
            roles = tuple(
                RoleDemand(
                    number,
                    tuple(role.indices(count)),
                    role.gpus,
                    role.requests,
                    instance.eligible_nodes(role),
                )
                for number, (role, count) in enumerate(
                    zip(gang.roles, gang.target_counts(), strict=True)
                )
            )
            found.append(Demand(index, roles, possible=True))
    return tuple(found)


def _completion(instance: Instance, index: int, gang: Gang, known: list[int]) -> Demand:
    """The missing pods of a running gang, held to the domains and models of its standing pods."""
    cluster = instance.cluster
    missing: dict[int, list[int]] = {}
    for number, pod in gang.missing():
        missing.setdefault(number, []).append(pod)
    nodes_all = {p.node for p in gang.standing if p.node is not None}
    possible = True
    roles = []
    for number, indices in missing.items():
        role = gang.roles[number]
        own = {p.node for p in gang.standing if p.role == number and p.node is not None}
        allowed = instance.eligible_nodes(role)
        for level, stand in ((gang.required, nodes_all), (role.required, own)):
            allowed, fine = _same_domain(instance, level, stand, allowed)
            possible &= fine
        if role.gpus and not role.mix_models:
            gpu_models = {m.gpu for n in own if (m := cluster.nodes[n].model) is not None}
            possible &= len(gpu_models) <= 1
            if gpu_models:
                allowed = frozenset(
                    n for n in allowed if (m := cluster.nodes[n].model) and m.gpu in gpu_models
                )
        groups, fine = _slice_groups(instance, gang, number, tuple(indices))
        possible &= fine
        roles.append(RoleDemand(number, tuple(indices), role.gpus, role.requests, allowed, groups))
    return Demand(
        index,
        tuple(roles),
        possible,
        _standing_sets(instance, gang, known),
        tuple(sorted(nodes_all)),
    )


def _same_domain(
    instance: Instance, level: int | None, stand: set[int], allowed: frozenset[int]
) -> tuple[frozenset[int], bool]:
    """Allowed nodes within the one domain the standing pods use; False if they use several."""
    if level is None or not stand:
        return allowed, True
    of = instance.cluster.domain_of[level]
    used = {of[n] for n in stand}
    if len(used) > 1:
        return allowed, False
    return frozenset(n for n in allowed if of[n] in used), True


def _slice_groups(
    instance: Instance, gang: Gang, number: int, indices: tuple[int, ...]
) -> tuple[tuple[tuple[tuple[int, ...], int | None], ...], bool]:
    role = gang.roles[number]
    if role.slice_size is None or role.slice_level is None:
        return (), True
    of = instance.cluster.domain_of[role.slice_level]
    groups: dict[int, list[int]] = {}
    for pod in indices:
        groups.setdefault(pod // role.slice_size, []).append(pod)
    result: list[tuple[tuple[int, ...], int | None]] = []
    for group, members in sorted(groups.items()):
        used = {
            of[p.node]
            for p in gang.standing
            if p.role == number and p.node is not None and p.index // role.slice_size == group
        }
        if len(used) > 1:
            return (), False
        result.append((tuple(members), next(iter(used), None)))
    return tuple(result), True


def _standing_sets(
    instance: Instance, gang: Gang, known: list[int]
) -> tuple[tuple[int, ServerSet], ...]:
    masks: dict[int, int] = {}
    blind: dict[int, int] = {}
    for pod in gang.standing:
        gpus = gang.roles[pod.role].gpus
        if gpus and pod.node is not None:
            masks[pod.node] = masks.get(pod.node, 0) | (pod.gpus or 0)
            if pod.gpus is None:
                blind[pod.node] = blind.get(pod.node, 0) + gpus
    nodes = instance.cluster.nodes
    found = (
        (n, server_set(nodes[n], mask, blind.get(n, 0), known[n]))
        for n, mask in sorted(masks.items())
    )
    return tuple((n, chosen) for n, chosen in found if chosen.count)


def identity(instance: Instance, demand: Demand) -> tuple[object, ...]:
    """Equal for waiting gangs that differ in nothing but name, priority and submit time."""
    gang = instance.gangs[demand.gang]
    if gang.running:
        return ("running", demand.gang)
    roles = tuple(
        (
            role.count,
            role.gpus,
            role.requests,
            role.nodes,
            gang.roles[role.role].required,
            gang.roles[role.role].preferred,
            gang.roles[role.role].slice_size,
            gang.roles[role.role].slice_level,
            role.indices[0] % (gang.roles[role.role].slice_size or 1),
            gang.roles[role.role].mix_models,
            gang.roles[role.role].min,
        )
        for role in demand.roles
    )
    share: Fraction = instance.min_share(gang)
    talk = (gang.pattern == "none", gang.weight, gang.nvlink_across_nodes)
    return (gang.required, gang.preferred, share, talk, roles)
