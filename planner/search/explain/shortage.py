"""Counts that prove that a gang does not fit, each ignoring all rules but one.

A result holds for every placement on the given free space; None proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import chain
from typing import Any

import numpy as np

from models.documents.gang import Toleration
from models.documents.reason import MAX_NAMED
from models.instance.eligibility import tolerated, without_conditions
from models.instance.gang import Role, label_texts, shown
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from models.instance.reshaping import unshared
from models.instance.solution import NEVER, Reason
from models.rules.demands import Demand, RoleDemand
from models.units import quantity_text, shortened
from planner.search.free_arrays import UNLIMITED, FreeArrays, IntArray, sums
from planner.search.free_space import FreeSpace

MAX_REQUIRED = 300
"""Most characters of a reason about what a role asks of its nodes."""

MAX_PLACES = 16
"""Domains with equally much room that are compared."""


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
        nodes = [unshared(instance, node) for node in instance.cluster.nodes]
        free = [node.healthy_gpus if instance.schedulable(node) else 0 for node in nodes]
        left = [dict(node.allocatable) for node in nodes]
        return cls(instance, FreeArrays(instance.cluster, free, left))

    @classmethod
    def at_best(cls, instance: Instance) -> FreeCounts:
        """On the empty cluster, with every node in order."""
        nodes = [unshared(instance, node, repaired=True) for node in instance.cluster.nodes]
        free = [node.whole_gpus for node in nodes]
        return cls(instance, FreeArrays(instance.cluster, free, [node.at_most for node in nodes]))

    @property
    def free(self) -> IntArray:
        """Free GPUs of every node, in node order."""
        return np.maximum(self._arrays.free, 0)

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

    def most(self, resource: str, nodes: frozenset[int]) -> int | None:
        """The most of a resource that is left on one of these nodes; None where one has no limit."""
        left = self._arrays.left.get(resource)
        most = UNLIMITED if left is None else int(left[_array(nodes)].max())
        return None if most == UNLIMITED else most

    def limits(self, resource: str) -> bool:
        """Whether any node states the resource."""
        return resource in self._arrays.left

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

    def best_domains(
        self, level: int, nodes: IntArray, amounts: IntArray
    ) -> tuple[int, tuple[Place, ...]]:
        """The largest sum of a domain, and the first domains that have it, with those of the nodes."""
        cluster, of = self.instance.cluster, self._arrays.tree.domain_of[level]
        found = self.by_domain(level, nodes, amounts)
        used = np.unique(of[nodes])
        best = int(found[used].max())
        places = []
        for domain in used[found[used] == best][:MAX_PLACES].tolist():
            inside = nodes[of[nodes] == domain]
            name = cluster.domain_name(level, int(inside[0]))
            gpus = int(self.free[inside].sum())
            places.append(Place(name, frozenset(inside.tolist()), gpus))
        return best, tuple(places)


@dataclass(frozen=True, slots=True)
class Place:
    """Where a shortage was counted: a domain by its name, or all nodes of a role. ``gpus``: free there."""

    name: str | None
    nodes: frozenset[int]
    gpus: int


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a gang or a role lacks, as fields of a reason.

    ``places``: with most room, of equals the first few; one without a name has all nodes of the role.
    ``level``: of which one domain must hold the pods; ``role``: that is short, None for all together.
    """

    code: str
    fields: Mapping[str, Any]
    places: tuple[Place, ...] = ()
    level: int | None = None
    role: int | None = None

    @property
    def kind(self) -> object:
        """What it is a shortage of, wherever it is counted."""
        resources = tuple(self.fields.get("resources", ()))
        return self.code, self.level, self.role, resources, "model" in self.fields

    def reason(self, code: str, **more: Any) -> Reason:  # noqa: ANN401  # see ``fields``
        """The reason with more fields, as counted in the first place."""
        place = next(iter(self.places), None)
        own = {} if place is None else {"domain": place.name, "room_gpus": place.gpus}
        return Reason.of(code, **own, **self.fields, **more)


def shortage(counts: FreeCounts, demand: Demand, like: Shortage | None = None) -> Shortage | None:
    """The first shortage of a role, or of the whole gang. ``like``: the same one, counted elsewhere."""
    found = (short for role in demand.roles for short in _role(counts, demand, role))
    every = chain(found, _together(counts, demand))
    return next((one for one in every if like is None or one.kind == like.kind), None)


def unselected(instance: Instance, demand: Demand) -> Shortage | None:
    """The role that no node accepts now, and the taints that close nodes that have what it needs."""
    for role in demand.roles:
        if role.nodes:
            continue
        spec = instance.gangs[demand.gang].roles[role.role]
        nodes = (instance.cluster.nodes[n] for n in instance.matching_nodes(spec))
        keys = {
            t.key for node in nodes for t in node.taints if not tolerated(spec.tolerations, (t,))
        }
        fields = {
            **_who(instance, demand, role),
            "nodes_with": _required(spec),
            "taints": sorted(keys)[:MAX_NAMED],
        }
        return Shortage("Selector", fields)
    return None


class EmptyCluster:
    """The cluster as it would be at its best: no pod runs, every node is ready, every GPU healthy.

    Labels, the policy's selection and taints stay as they are, except taints for a node's condition.
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
                role.requests,
                self._instance.matching_nodes(role),
            )
            for number, (role, count) in enumerate(
                zip(gang.roles, gang.target_counts(), strict=True)
            )
            if count
        )
        return Demand(index, tuple(roles), possible=True)

    def never(self, demand: Demand) -> Reason | None:
        """Why a waiting gang could not start even here, by counts alone; None if it could."""
        instance = self._instance
        for role in demand.roles:
            spec = instance.gangs[demand.gang].roles[role.role]
            who = _who(instance, demand, role)
            if not role.nodes:
                return Reason.of(NEVER, **who, **self._unmatched(spec))
            largest = int(self._counts.free[_array(role.nodes)].max())
            if role.gpus > largest:
                needs = {"pods": role.count, "gpus": role.count * role.gpus}
                return Reason.of(NEVER, **who, **needs, offered=str(largest))
            for resource, amount in role.requests:
                most = self._counts.most(resource, role.nodes)
                if most is not None and amount > most:
                    offered = quantity_text(resource, most)
                    return Reason.of(NEVER, **who, resources=[resource], offered=offered)
        short = shortage(self._counts, demand)
        return None if short is None else short.reason(NEVER)

    def _unmatched(self, spec: Role) -> dict[str, Any]:
        """What no node has, or the taints of those that have it."""
        instance = self._instance
        nodes = instance.cluster.nodes
        tainted = instance.matching_nodes(replace(spec, tolerations=(Toleration("", "Exists"),)))
        taints = {t for n in tainted for t in without_conditions(nodes[n]).taints}
        keys = sorted({t.key for t in taints if not tolerated(spec.tolerations, (t,))})
        return {"nodes_with": _required(spec), "taints": keys[:MAX_NAMED]}


def _who(instance: Instance, demand: Demand, role: RoleDemand) -> dict[str, Any]:
    """The role, where the gang has several."""
    roles = instance.gangs[demand.gang].roles
    return {"role": roles[role.role].name} if len(roles) > 1 else {}


def _required(spec: Role) -> str | None:
    """What a role asks of its nodes."""
    terms = label_texts(spec.node_selector)
    terms += [shown(spec.node_affinity)] if spec.node_affinity else []
    terms += [f"model {spec.model}"] if spec.model else []
    return shortened(", ".join(terms), MAX_REQUIRED) if terms else None


def _role(counts: FreeCounts, demand: Demand, role: RoleDemand) -> Iterator[Shortage]:
    """Every count that a role fails, the plainest first."""
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    count = role.count
    nodes = _array(role.nodes)
    fits = counts.free[nodes] // role.gpus if role.gpus else np.full(len(nodes), count, np.int64)
    needs = {
        **_who(counts.instance, demand, role),
        "pods": count,
        "gpus": role.gpus * count,
    }
    every = Place(None, role.nodes, int(counts.free[nodes].sum()))
    if (room := int(fits.sum())) < count:
        yield Shortage("NoRoom", {**needs, "room_pods": room}, (every,), role=role.role)
    scarce = {}
    for resource, amount in ((PODS, 1), *role.requests):
        if amount and counts.limits(resource):
            scarce[resource] = counts.by_resource(resource, amount, count)[nodes]
            enough = int(np.minimum(fits, scarce[resource]).sum())
            if enough < count:
                fields = {**needs, "resources": [resource], "room_pods": enough}
                yield Shortage("Resources", fields, (every,), role=role.role)
    for pods in scarce.values():
        fits = np.minimum(fits, pods)
    if len(scarce) > 1 and (room := int(fits.sum())) < count:
        fields = {**needs, "resources": [*scarce], "room_pods": room}
        yield Shortage("Resources", fields, (every,), role=role.role)
    if role.gpus and not spec.mix_models:
        gpu, room = _best_model(counts, nodes, fits)
        if gpu is not None and room < count:
            own = counts.instance.nodes_of_model(role.nodes, gpu)
            place = Place(None, own, counts.on(own))
            fields = {**needs, "model": gpu, "room_pods": room}
            yield Shortage("NoRoom", fields, (place,), role=role.role)
    yield from _one_domain(counts, demand, role, nodes, fits, needs)
    yield from _slices(counts, demand, role, nodes, fits, needs)


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
    fits: IntArray,
    needs: Mapping[str, Any],
) -> Iterator[Shortage]:
    gang = counts.instance.gangs[demand.gang]
    spec = gang.roles[role.role]
    levels = [level for level in (gang.required, spec.required) if level is not None]
    if levels:
        level = max(levels)
        best, places = counts.best_domains(level, nodes, fits)
        if best < role.count:
            name = counts.instance.cluster.level_name(level)
            fields = {**needs, "level": name, "room_pods": best}
            yield Shortage("RequiredTopology", fields, places, level, role.role)


def _slices(
    counts: FreeCounts,
    demand: Demand,
    role: RoleDemand,
    nodes: IntArray,
    fits: IntArray,
    needs: Mapping[str, Any],
) -> Iterator[Shortage]:
    """Pods that are needed against those for which the domains have space in whole slices."""
    spec = counts.instance.gangs[demand.gang].roles[role.role]
    for size, level in spec.slice_layers if not demand.standing_nodes else ():
        needed = role.cut(size).whole
        enough = int((counts.by_domain(level, nodes, fits) // size).sum())
        if enough < needed:
            name = counts.instance.cluster.level_name(level)
            place = Place(None, role.nodes, int(counts.free[nodes].sum()))
            fields = {**needs, "level": name, "room_pods": enough * size}
            yield Shortage("RequiredTopology", fields, (place,), level, role.role)


def _together(counts: FreeCounts, demand: Demand) -> Iterator[Shortage]:
    """All roles of a gang, in one domain if it has a required level."""
    instance = counts.instance
    level = instance.gangs[demand.gang].required
    if demand.standing_nodes or not demand.gpu_roles:
        return
    if level is None and len(demand.gpu_roles) == 1:
        return  # counted with its pods
    every = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    nodes, fields = _array(every), {"gpus": demand.gpus}
    if level is None:
        free = int(counts.free[nodes].sum())
        if free < demand.gpus:
            yield Shortage("NoRoom", fields, (Place(None, every, free),))
        return
    best, places = counts.best_domains(level, nodes, counts.free[nodes])
    if best < demand.gpus:
        name = instance.cluster.level_name(level)
        yield Shortage("RequiredTopology", {**fields, "level": name}, places, level)


@lru_cache(maxsize=64)
def _array(nodes: frozenset[int]) -> IntArray:
    return np.fromiter(nodes, np.int64, len(nodes))
