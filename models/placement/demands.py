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
from models.placement.slicing import Cut, cut_of, groups_of
from models.pricing import ServerSet, server_set

Groups = tuple[tuple[tuple[int, ...], int | None], ...]
"""(indices of the pods to place of one slice, the domain where others of it stand or None), a slice."""


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """Pods of one role to place. ``nodes``: those allowed, ascending, room aside.

    ``indices``: the pod indices to fill, ascending. ``layers``: where slices are told apart, their
    groups for each layer, innermost first; else empty.
    """

    role: int
    indices: tuple[int, ...]
    gpus: int
    requests: tuple[tuple[str, int], ...]
    nodes: frozenset[int]
    layers: tuple[Groups, ...] = ()

    @property
    def groups(self) -> Groups:
        """Those of the innermost slices."""
        return self.layers[0] if self.layers else ()

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
            counts = gang.target_counts()
            roles = tuple(_whole(instance, gang, i, count) for i, count in enumerate(counts))
            found.append(Demand(index, roles, possible=True))
    return tuple(found)


def _whole(instance: Instance, gang: Gang, number: int, count: int) -> RoleDemand:
    """All pods of a role of a gang that waits."""
    role = gang.roles[number]
    pods = tuple(role.indices(count))
    demand = RoleDemand(number, pods, role.gpus, role.requests, instance.eligible_nodes(role))
    if role.outer_slices and role.slice_level == instance.cluster.node_level:
        # Two short slices on nodes cannot be counted by pieces and be held to their outer slices.
        size, _ = role.slice_layers[0]
        if len(demand.cut(size).shorts) > 1:
            layers = (groups_of(pods, size) for size, _ in role.slice_layers)
            apart = tuple(tuple((tuple(group), None) for group in groups) for groups in layers)
            return replace(demand, layers=apart)
    return demand


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
        layers = []
        for size, level in role.slice_layers:
            groups, fine = _slice_groups(instance, gang, number, indices, size, level)
            possible &= fine
            layers.append(groups)
        pods = tuple(indices)
        apart = tuple(layers) if possible else ()
        roles.append(RoleDemand(number, pods, role.gpus, role.requests, allowed, apart))
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
    instance: Instance, gang: Gang, number: int, indices: list[int], size: int, level: int
) -> tuple[Groups, bool]:
    """The slices of one layer that miss pods; False if the pods that stand of one use several domains."""
    of = instance.cluster.domain_of[level]
    used: dict[int, set[int]] = {}
    for pod in gang.standing:
        if pod.role == number and pod.node is not None:
            used.setdefault(pod.index // size, set()).add(of[pod.node])
    result: list[tuple[tuple[int, ...], int | None]] = []
    for members in groups_of(indices, size):
        domains = used.get(members[0] // size, set())
        if len(domains) > 1:
            return (), False
        result.append((tuple(members), next(iter(domains), None)))
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
            gang.roles[role.role].outer_slices,
            role.indices[0]
            % max((size for size, _ in gang.roles[role.role].slice_layers), default=1),
            gang.roles[role.role].mix_models,
            gang.roles[role.role].min,
        )
        for role in demand.roles
    )
    share: Fraction = instance.min_share(gang)
    talk = (gang.pattern == "none", gang.weight, gang.nvlink_across_nodes)
    return (gang.required, gang.preferred, share, talk, roles)
