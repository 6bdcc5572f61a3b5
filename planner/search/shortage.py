"""Counts that prove that a gang does not fit, each ignoring all rules but one.

A result holds for every placement on the given free space; None proves nothing.
"""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property

import numpy as np
import numpy.typing as npt

from models.gang import shown
from models.instance import Instance
from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand
from models.program.rules.declarations import declared_shortage
from models.solution import Reason
from models.units import plural
from planner.search.free_space import FreeSpace

Integers = npt.NDArray[np.int64]

MAX_AFFINITY = 300
"""Most characters of a node affinity in a reason."""


class FreeCounts:
    """The free space of every node as arrays, in node order, as it is when they are made."""

    def __init__(self, space: FreeSpace) -> None:
        self.instance = space.instance
        self.free: Integers = np.array([node.free for node in space.by_node], np.int64)
        self._left = [node.left for node in space.by_node]
        self._limits: dict[str, tuple[Integers, Integers]] = {}
        self._domain_of: dict[int, Integers] = {}

    @cached_property
    def by_node(self) -> list[int]:
        """Free GPUs of every node."""
        found: list[int] = self.free.tolist()
        return found

    def on(self, nodes: Collection[int]) -> int:
        """Free GPUs of these nodes."""
        return int(self.free[_array(nodes)].sum())

    @cached_property
    def gpu_models(self) -> tuple[tuple[str, ...], Integers]:
        """Names of the GPU models, ascending, and for every node the position of its model's, or -1."""
        nodes = self.instance.cluster.nodes
        names = tuple(sorted({node.model.gpu for node in nodes if node.model is not None}))
        position = {name: i for i, name in enumerate(names)}
        of = [-1 if node.model is None else position[node.model.gpu] for node in nodes]
        return names, np.array(of, np.int64)

    def by_resource(self, resource: str, amount: int, most: int) -> Integers:
        """Pods that request this amount and fit on each node; ``most`` where it does not limit."""
        if resource not in self._limits:
            limited = [n for n, left in enumerate(self._left) if resource in left]
            amounts = [max(0, self._left[n][resource]) for n in limited]
            self._limits[resource] = (np.array(limited, np.int64), np.array(amounts, np.int64))
        nodes, left = self._limits[resource]
        pods = np.full(len(self.free), most, np.int64)
        pods[nodes] = left // amount
        return pods

    def by_domain(self, level: int, nodes: Integers, amounts: Integers) -> Integers:
        """Sums of the nodes' amounts in every domain of a level."""
        if level not in self._domain_of:
            self._domain_of[level] = np.array(self.instance.cluster.domain_of[level], np.int64)
        sums: Integers = np.zeros(len(self.instance.cluster.domains[level]), np.int64)
        np.add.at(sums, self._domain_of[level][nodes], amounts)
        return sums


def shortage(counts: FreeCounts, demand: Demand) -> Reason | None:
    """The first shortage: of a role, of the whole gang, or one that a rule declares."""
    for role in demand.roles:
        short = _role(counts, demand, role)
        if short is not None:
            return short
    return _together(counts, demand) or declared_shortage(counts.instance, demand, counts.by_node)


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


def _role(counts: FreeCounts, demand: Demand, role: RoleDemand) -> Reason | None:
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    count = role.count
    nodes = _array(role.nodes)
    by_gpus = counts.free[nodes] // role.gpus if role.gpus else np.full(len(nodes), count, np.int64)
    fits = int(by_gpus.sum())
    demanded = f"{plural(count, 'pod')} of {plural(role.gpus, 'GPU')}"
    if fits < count:
        free = int(counts.free[nodes].sum())
        return Reason(
            "NoRoom",
            f"role {spec.name} needs {demanded}; the eligible nodes have {plural(free, 'free GPU')}, "
            f"enough for {plural(fits, 'pod')}",
        )
    if role.gpus and not spec.mix_models:
        gpu, room = _best_model(counts, nodes, by_gpus)
        if gpu is not None and room < count:
            return Reason(
                "NoRoom",
                f"role {spec.name} needs {demanded} on one GPU "
                f"model; the best, {gpu}, has room for {room}",
            )
    for resource, amount in ((PODS, 1), *role.requests):
        if not amount:
            continue
        by_resource = counts.by_resource(resource, amount, count)[nodes]
        enough = int(np.minimum(by_gpus, by_resource).sum())
        if enough < count:
            return Reason(
                "Resources",
                f"not enough free {resource} on the eligible nodes: role {spec.name} needs "
                f"{plural(count, 'pod')}, there is enough for {enough}",
            )
    return _one_domain(counts, demand, role, nodes, by_gpus) or _slices(
        counts, demand, role, nodes, by_gpus
    )


def _best_model(counts: FreeCounts, nodes: Integers, pods: Integers) -> tuple[str | None, int]:
    """The GPU model with room for most pods, of equals the last by name, and how many."""
    names, of = counts.gpu_models
    present = of[nodes] >= 0
    room: Integers = np.zeros(len(names), np.int64)
    np.add.at(room, of[nodes][present], pods[present])
    best = max(np.unique(of[nodes][present]).tolist(), key=lambda i: (room[i], i), default=None)
    return (None, 0) if best is None else (names[best], int(room[best]))


def _one_domain(
    counts: FreeCounts, demand: Demand, role: RoleDemand, nodes: Integers, by_gpus: Integers
) -> Reason | None:
    gang = counts.instance.gangs[demand.gang]
    spec = gang.roles[role.role]
    levels = [level for level in (gang.required, spec.required) if level is not None]
    if not levels:
        return None
    best = int(counts.by_domain(max(levels), nodes, by_gpus).max())
    if best >= role.count:
        return None
    name = counts.instance.cluster.level_name(max(levels))
    return Reason(
        "RequiredTopology",
        f"role {spec.name} needs {plural(role.count, 'pod')} of {plural(role.gpus, 'GPU')} in one "
        f"{name}; the best {name} has room for {best}",
    )


def _slices(
    counts: FreeCounts, demand: Demand, role: RoleDemand, nodes: Integers, by_gpus: Integers
) -> Reason | None:
    """Slices needed against the slices for which the domains have space."""
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    if demand.standing_nodes:
        return None
    for size, level in spec.slice_layers:
        name = counts.instance.cluster.level_name(level)
        needed = role.cut(size).whole
        enough = int((counts.by_domain(level, nodes, by_gpus) // size).sum())
        if enough < needed:
            return Reason(
                "RequiredTopology",
                f"role {spec.name} needs {plural(needed, 'slice')} of {plural(size, 'pod')} of "
                f"{plural(role.gpus, 'GPU')}, each in one {name}; there is room for {enough}",
            )
    return None


def _together(counts: FreeCounts, demand: Demand) -> Reason | None:
    """All roles of a gang with a required level."""
    instance = counts.instance
    level = instance.gangs[demand.gang].required
    if level is None or demand.standing_nodes or not demand.gpu_roles:
        return None
    name = instance.cluster.level_name(level)
    nodes = _array(frozenset().union(*(role.nodes for role in demand.gpu_roles)))
    best = int(counts.by_domain(level, nodes, counts.free[nodes]).max())
    if best >= demand.gpus:
        return None
    return Reason(
        "RequiredTopology",
        f"needs {plural(demand.gpus, 'GPU')} in one {name}; the best {name} has {best} free",
    )


def _array(nodes: Collection[int]) -> Integers:
    return np.fromiter(nodes, np.int64, len(nodes))


def _cut(text: str) -> str:
    return text if len(text) <= MAX_AFFINITY else f"{text[: MAX_AFFINITY - 3]}..."
