"""Counts that prove that a gang does not fit, each ignoring all rules but one.

A result holds for every placement on the given free space; None proves nothing.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import TypeVar

from models.gang import shown
from models.instance import Instance
from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand
from models.program.rules.declarations import declared_shortage
from models.solution import Reason
from models.units import plural
from planner.search.free_space import FreeSpace

Name = TypeVar("Name", bound=Hashable)

MAX_AFFINITY = 300
"""Most characters of a node affinity in a reason."""


def shortage(space: FreeSpace, demand: Demand) -> Reason | None:
    """The first shortage: of a role, of the whole gang, or one that a rule declares."""
    for role in demand.roles:
        short = _role(space, demand, role)
        if short is not None:
            return short
    free = [node.free for node in space.by_node]
    return _together(space, demand) or declared_shortage(space.instance, demand, free)


def unselected(instance: Instance, demand: Demand) -> Reason | None:
    """The role that no node accepts."""
    for role in demand.roles:
        if not role.nodes:
            return Reason("Selector", _selector(instance, demand, role))
    return None


def _selector(instance: Instance, demand: Demand, role: RoleDemand) -> str:
    spec = instance.gangs[demand.gang].roles[role.role]
    nodes = instance.cluster.nodes
    closed = sum(1 for node in nodes if not instance.schedulable(node))
    terms = [f"{key}={value}" for key, value in spec.node_selector]
    terms += [_cut(shown(spec.node_affinity))] if spec.node_affinity else []
    terms += [f"model {spec.model}"] if spec.model else []
    required = f" with {', '.join(terms)}" if terms else ""
    return (
        f"no node{required} accepts pods of role {spec.name}: {closed} of {len(nodes)} nodes are cordoned, "
        "not ready or excluded by the policy; the others do not match or have untolerated taints"
    )


def _role(space: FreeSpace, demand: Demand, role: RoleDemand) -> Reason | None:
    spec = space.instance.gangs[demand.gang].roles[role.role]
    by_node = space.by_node
    by_gpus = {n: by_node[n].free // role.gpus if role.gpus else role.count for n in role.nodes}
    fits = sum(by_gpus.values())
    demanded = f"{plural(role.count, 'pod')} of {plural(role.gpus, 'GPU')}"
    if fits < role.count:
        free = sum(by_node[n].free for n in role.nodes)
        return Reason(
            "NoRoom",
            f"role {spec.name} needs {demanded}; the eligible nodes have {plural(free, 'free GPU')}, "
            f"enough for {plural(fits, 'pod')}",
        )
    if role.gpus and not spec.mix_models:
        nodes = space.instance.cluster.nodes
        room = _sums((m.gpu, by_gpus[n]) for n in by_gpus if (m := nodes[n].model) is not None)
        best = max(room, key=lambda gpu: (room[gpu], gpu), default=None)
        if best is not None and room[best] < role.count:
            return Reason(
                "NoRoom",
                f"role {spec.name} needs {demanded} on one GPU "
                f"model; the best, {best}, has room for {room[best]}",
            )
    for resource, amount in ((PODS, 1), *role.requests):
        if not amount:
            continue
        enough = sum(
            min(by_gpus[n], max(0, by_node[n].left.get(resource, amount * role.count)) // amount)
            for n in role.nodes
        )
        if enough < role.count:
            return Reason(
                "Resources",
                f"not enough free {resource} on the eligible nodes: role {spec.name} needs "
                f"{plural(role.count, 'pod')}, there is enough for {enough}",
            )
    return _one_domain(space.instance, demand, role, by_gpus) or _slices(
        space.instance, demand, role, by_gpus
    )


def _one_domain(
    instance: Instance, demand: Demand, role: RoleDemand, by_gpus: dict[int, int]
) -> Reason | None:
    gang = instance.gangs[demand.gang]
    spec = gang.roles[role.role]
    levels = [level for level in (gang.required, spec.required) if level is not None]
    if not levels:
        return None
    of = instance.cluster.domain_of[max(levels)]
    best = max(_sums((of[n], pods) for n, pods in by_gpus.items()).values())
    if best >= role.count:
        return None
    name = instance.cluster.level_name(max(levels))
    return Reason(
        "RequiredTopology",
        f"role {spec.name} needs {plural(role.count, 'pod')} of {plural(role.gpus, 'GPU')} in one "
        f"{name}; the best {name} has room for {best}",
    )


def _slices(
    instance: Instance, demand: Demand, role: RoleDemand, by_gpus: dict[int, int]
) -> Reason | None:
    """Slices needed against the slices for which the domains have space."""
    spec = instance.gangs[demand.gang].roles[role.role]
    if demand.standing_nodes:
        return None
    for size, level in spec.slice_layers:
        of, name = instance.cluster.domain_of[level], instance.cluster.level_name(level)
        needed = role.cut(size).whole
        room = _sums((of[n], pods) for n, pods in by_gpus.items())
        enough = sum(pods // size for pods in room.values())
        if enough < needed:
            return Reason(
                "RequiredTopology",
                f"role {spec.name} needs {plural(needed, 'slice')} of {plural(size, 'pod')} of "
                f"{plural(role.gpus, 'GPU')}, each in one {name}; there is room for {enough}",
            )
    return None


def _together(space: FreeSpace, demand: Demand) -> Reason | None:
    """All roles of a gang with a required level."""
    instance = space.instance
    level = instance.gangs[demand.gang].required
    if level is None or demand.standing_nodes or not demand.gpu_roles:
        return None
    of, name = instance.cluster.domain_of[level], instance.cluster.level_name(level)
    nodes = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    best = max(_sums((of[n], space.by_node[n].free) for n in nodes).values())
    if best >= demand.gpus:
        return None
    return Reason(
        "RequiredTopology",
        f"needs {plural(demand.gpus, 'GPU')} in one {name}; the best {name} has {best} free",
    )


def _sums(amounts: Iterable[tuple[Name, int]]) -> dict[Name, int]:
    """Sums by name."""
    found: dict[Name, int] = {}
    for name, amount in amounts:
        found[name] = found.get(name, 0) + amount
    return found


def _cut(text: str) -> str:
    return text if len(text) <= MAX_AFFINITY else f"{text[: MAX_AFFINITY - 3]}..."
