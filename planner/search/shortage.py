"""Counts that prove that a gang does not fit, each ignoring all rules but one.

A result holds for every placement on the given free space; None proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

import numpy as np

from models.eligibility import tolerated, without_conditions
from models.gang import Role, Toleration, shown
from models.instance import Instance
from models.occupancy import PODS
from models.program.demands import Demand, RoleDemand
from models.program.rules.declarations import declared_shortage
from models.units import first_of, plural, shortened
from planner.search.free_arrays import UNLIMITED, FreeArrays, IntArray, sums
from planner.search.free_space import FreeSpace

MAX_REQUIRED = 300
"""Most characters of a reason about what a role asks of its nodes."""

MAX_NAMED = 3
"""Names listed in one reason."""

SMALLER = "fewer or smaller pods, or more nodes, would help"
WIDER = "a wider level, or fewer pods, would help"


class FreeCounts:
    """Counts on the free space of every node, as it is when they are asked for."""

    def __init__(self, instance: Instance, arrays: FreeArrays) -> None:
        self.instance = instance
        self._arrays = arrays

    @classmethod
    def of(cls, space: FreeSpace) -> FreeCounts:
        return cls(space.instance, space.arrays)

    @classmethod
    def without_pods(cls, instance: Instance) -> FreeCounts:
        """On the nodes as they are, if no pod of a gang ran."""
        nodes = instance.cluster.nodes
        free = [node.healthy_gpus if instance.schedulable(node) else 0 for node in nodes]
        left = [dict(node.allocatable) for node in nodes]
        return cls(instance, FreeArrays(instance.cluster, free, left))

    @classmethod
    def at_best(cls, instance: Instance) -> FreeCounts:
        """On the empty cluster, with every node in order; resources do not count."""
        nodes = instance.cluster.nodes
        free = [node.gpus for node in nodes]
        return cls(instance, FreeArrays(instance.cluster, free, [{}] * len(nodes)))

    @property
    def free(self) -> IntArray:
        """Free GPUs of every node, in node order."""
        return np.maximum(self._arrays.free, 0)

    def take(self, node: int, gpus: int, requests: Iterable[tuple[str, int]]) -> None:
        """Let a pod hold this much of a node; only for counts of their own."""
        self._arrays.free[node] -= gpus
        for resource, amount in ((PODS, 1), *requests):
            left = self._arrays.left.get(resource)
            if left is not None and left[node] != UNLIMITED:
                left[node] -= amount

    def by_node(self) -> list[int]:
        """Free GPUs of every node."""
        found: list[int] = self.free.tolist()
        return found

    def on(self, nodes: frozenset[int]) -> int:
        """Free GPUs of these nodes."""
        return int(self.free[_array(nodes)].sum())

    @cached_property
    def gpu_models(self) -> tuple[tuple[str, ...], IntArray]:
        """Names of the GPU models, ascending, and for every node the position of its model's, or -1."""
        nodes = self.instance.cluster.nodes
        names = tuple(sorted({node.model.gpu for node in nodes if node.model is not None}))
        position = {name: i for i, name in enumerate(names)}
        of = [-1 if node.model is None else position[node.model.gpu] for node in nodes]
        return names, np.array(of, np.int64)

    def by_resource(self, resource: str, amount: int, most: int) -> IntArray:
        """Pods that request this amount and fit on each node; ``most`` where it does not limit."""
        left = self._arrays.left.get(resource)
        if left is None:
            return np.full(len(self.free), most, np.int64)
        return np.where(left == UNLIMITED, most, np.maximum(left, 0) // amount)

    def by_domain(self, level: int, nodes: IntArray, amounts: IntArray) -> IntArray:
        """Sums of the nodes' amounts in every domain of a level."""
        tree = self._arrays.tree
        return sums(tree.domain_of[level][nodes], amounts, tree.sizes[level])


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a gang or a role needs, what there is of it, and what would help if there is never more."""

    code: str
    needs: str
    there: str
    helps: str = ""

    def said(self, when: str = "") -> str:
        """In words. ``when``: on which space this was counted, such as "after 2 gangs ... "."""
        return f"{self.needs}; {when}{self.there}" if self.needs else f"{when}{self.there}"


def shortage(counts: FreeCounts, demand: Demand) -> Shortage | None:
    """The first shortage: of a role, of the whole gang, or one that a rule declares."""
    found = _counted(counts, demand)
    if found is not None:
        return found
    declared = declared_shortage(counts.instance, demand, counts.by_node())
    return None if declared is None else Shortage(declared.code, "", declared.message)


def _counted(counts: FreeCounts, demand: Demand) -> Shortage | None:
    for role in demand.roles:
        short = _role(counts, demand, role)
        if short is not None:
            return short
    return _together(counts, demand)


def unselected(instance: Instance, demand: Demand) -> Shortage | None:
    """The role that no node accepts now."""
    for role in demand.roles:
        if role.nodes:
            continue
        spec = instance.gangs[demand.gang].roles[role.role]
        why = "are cordoned, not ready or tainted"
        if instance.eligible_nodes(spec):
            why = "are excluded by other rules"
        return Shortage(
            "Selector",
            f"{_who(instance, demand, role)}needs nodes {_required(spec) or 'that it tolerates'}",
            f"those that would do ({len(instance.matching_nodes(spec)):,}) {why}",
        )
    return None


class EmptyCluster:
    """The cluster as it would be at its best: no pod runs, every node is ready, every GPU healthy.

    Labels, the policy's selection and taints stay as they are, except taints for a node's condition.
    Resources do not count: what an input says is allocatable may be less the requests of pods of no gang.
    """

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._counts = FreeCounts.at_best(instance)

    def demand(self, index: int) -> Demand:
        """A waiting gang at its least counts, on the nodes that match it."""
        gang = self._instance.gangs[index]
        roles = (
            RoleDemand(
                number,
                tuple(role.indices(count)),
                role.gpus,
                (),
                self._instance.matching_nodes(role),
            )
            for number, (role, count) in enumerate(
                zip(gang.roles, gang.target_counts(), strict=True)
            )
            if count
        )
        return Demand(index, tuple(roles), possible=True)

    def never(self, demand: Demand) -> str | None:
        """Why a waiting gang could not start even here, by counts alone; None if it could."""
        instance = self._instance
        for role in demand.roles:
            spec = instance.gangs[demand.gang].roles[role.role]
            if not role.nodes:
                return f"never fits: {_who(instance, demand, role)}{self._unmatched(spec)}"
            largest = int(self._counts.free[_array(role.nodes)].max())
            if role.gpus > largest:
                return (
                    f"never fits: {_who(instance, demand, role)}needs pods of "
                    f"{plural(role.gpus, 'GPU')}; the largest node it may use has {largest}; smaller "
                    "pods would help"
                )
        short = _counted(self._counts, demand)
        if short is None:
            return None
        return f"never fits: {short.said('even on the empty cluster ')}; {short.helps}"

    def _unmatched(self, spec: Role) -> str:
        """What no node has; of GPU models also those that there are."""
        instance = self._instance
        nodes = instance.cluster.nodes
        required = _required(spec)
        tainted = instance.matching_nodes(replace(spec, tolerations=(Toleration("", "Exists"),)))
        if tainted:
            found = {t for n in tainted for t in without_conditions(nodes[n]).taints}
            keys = sorted({t.key for t in found if not tolerated(spec.tolerations, (t,))})
            taints = first_of(keys, MAX_NAMED, "other")
            return (
                f"tolerates no node{' ' * bool(required)}{required} (taints {taints}); tolerations "
                "would help"
            )
        selected = " that the policy selects" if instance.policy.node_selector else ""
        known = sorted(instance.gpu_names(frozenset(range(len(nodes)))))
        models = ""
        if spec.model and known:
            models = f"; its GPU models are {first_of(known, MAX_NAMED, 'other')}"
        return (
            f"needs nodes{' ' * bool(required)}{required}; the cluster has none{selected}{models}"
        )


def _who(instance: Instance, demand: Demand, role: RoleDemand) -> str:
    """The role, where the gang has several."""
    roles = instance.gangs[demand.gang].roles
    return f"role {roles[role.role].name} " if len(roles) > 1 else ""


def _pods(count: int, role: RoleDemand) -> str:
    return plural(count, "pod") + (f" of {plural(role.gpus, 'GPU')}" if role.gpus else "")


def _required(spec: Role) -> str:
    """What a role asks of its nodes."""
    terms = [f"{key}={value}" for key, value in spec.node_selector]
    terms += [shown(spec.node_affinity)] if spec.node_affinity else []
    terms += [f"model {spec.model}"] if spec.model else []
    return f"with {shortened(', '.join(terms), MAX_REQUIRED)}" if terms else ""


def _role(counts: FreeCounts, demand: Demand, role: RoleDemand) -> Shortage | None:
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    count = role.count
    nodes = _array(role.nodes)
    by_gpus = counts.free[nodes] // role.gpus if role.gpus else np.full(len(nodes), count, np.int64)
    fits = int(by_gpus.sum())
    needs = f"{_who(counts.instance, demand, role)}needs {_pods(count, role)}"
    if fits < count:
        free = int(counts.free[nodes].sum())
        there = f"there is room for {fits} on its nodes ({plural(free, 'GPU')} free)"
        return Shortage("NoRoom", needs, there, SMALLER)
    if role.gpus and not spec.mix_models:
        gpu, room = _best_model(counts, nodes, by_gpus)
        if gpu is not None and room < count:
            there = f"the best, {gpu}, has room for {room}"
            return Shortage("NoRoom", f"{needs} on one GPU model", there, "mixModels may help")
    for resource, amount in ((PODS, 1), *role.requests):
        if not amount:
            continue
        by_resource = counts.by_resource(resource, amount, count)[nodes]
        enough = int(np.minimum(by_gpus, by_resource).sum())
        if enough < count:
            what = "pod slots" if resource == PODS else resource
            there = f"the free {what} on its nodes {'are' if resource == PODS else 'is'} enough for {enough}"
            return Shortage("Resources", needs, there)
    return _one_domain(counts, demand, role, nodes, by_gpus, needs) or _slices(
        counts, demand, role, nodes, by_gpus
    )


def _best_model(counts: FreeCounts, nodes: IntArray, pods: IntArray) -> tuple[str | None, int]:
    """The GPU model with room for most pods, of equals the last by name, and how many."""
    names, of = counts.gpu_models
    present = of[nodes] >= 0
    room: IntArray = np.zeros(len(names), np.int64)
    np.add.at(room, of[nodes][present], pods[present])
    best = max(np.unique(of[nodes][present]).tolist(), key=lambda i: (room[i], i), default=None)
    return (None, 0) if best is None else (names[best], int(room[best]))


def _one_domain(
    counts: FreeCounts,
    demand: Demand,
    role: RoleDemand,
    nodes: IntArray,
    by_gpus: IntArray,
    needs: str,
) -> Shortage | None:
    gang = counts.instance.gangs[demand.gang]
    spec = gang.roles[role.role]
    levels = [level for level in (gang.required, spec.required) if level is not None]
    if not levels:
        return None
    best = int(counts.by_domain(max(levels), nodes, by_gpus).max())
    if best >= role.count:
        return None
    name = counts.instance.cluster.level_name(max(levels))
    there = f"the best {name} has room for {best}"
    return Shortage("RequiredTopology", f"{needs} in one {name}", there, WIDER)


def _slices(
    counts: FreeCounts, demand: Demand, role: RoleDemand, nodes: IntArray, by_gpus: IntArray
) -> Shortage | None:
    """Slices needed against the slices for which the domains have space."""
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    if demand.standing_nodes:
        return None
    for size, level in spec.slice_layers:
        name = counts.instance.cluster.level_name(level)
        needed = role.cut(size).whole
        enough = int((counts.by_domain(level, nodes, by_gpus) // size).sum())
        if enough < needed:
            return Shortage(
                "RequiredTopology",
                f"{_who(counts.instance, demand, role)}needs {plural(needed, 'slice')} of "
                f"{_pods(size, role)}, each in one {name}",
                f"there is room for {plural(enough, 'slice')}",
                WIDER,
            )
    return None


def _together(counts: FreeCounts, demand: Demand) -> Shortage | None:
    """All roles of a gang, in one domain if it has a required level."""
    instance = counts.instance
    level = instance.gangs[demand.gang].required
    if demand.standing_nodes or not demand.gpu_roles:
        return None
    if level is None and len(demand.gpu_roles) == 1:
        return None  # counted with its pods
    nodes = _array(frozenset().union(*(role.nodes for role in demand.gpu_roles)))
    if level is None:
        free = int(counts.free[nodes].sum())
        if free >= demand.gpus:
            return None
        there = f"there is room for {plural(free, 'GPU')} on its nodes"
        return Shortage("NoRoom", f"needs {plural(demand.gpus, 'GPU')}", there, SMALLER)
    name = instance.cluster.level_name(level)
    best = int(counts.by_domain(level, nodes, counts.free[nodes]).max())
    if best >= demand.gpus:
        return None
    return Shortage(
        "RequiredTopology",
        f"needs {plural(demand.gpus, 'GPU')} in one {name}",
        f"the best {name} has {best} free",
        WIDER,
    )


@lru_cache(maxsize=64)
def _array(nodes: frozenset[int]) -> IntArray:
    return np.fromiter(nodes, np.int64, len(nodes))
