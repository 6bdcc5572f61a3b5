"""Counts that prove that a gang does not fit, each ignoring all rules but one.

A result holds for every placement on the given free space; None proves nothing.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import chain
from typing import Any

import numpy as np

from models.documents.cluster import Taint
from models.documents.gang import Toleration
from models.documents.reason import MAX_NAMED
from models.instance.eligibility import tolerated, without_conditions
from models.instance.gang import label_texts, shown
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
        return int(self.free[_array(nodes)].sum())

    def most(self, resource: str, nodes: frozenset[int]) -> int | None:
        """The most of a resource that is left on one of these nodes; None where one has no limit."""
        left = self._arrays.left.get(resource)
        most = UNLIMITED if left is None else int(left[_array(nodes)].max())
        return None if most == UNLIMITED else most

    def by_resource(self, resource: str, amount: int, most: int) -> IntArray | None:
        """Pods that request this amount and fit on each node, ``most`` where nothing limits them.

        None if nothing is requested, or no node states it.
        """
        left = self._arrays.left.get(resource)
        if left is None or not amount:
            return None
        return np.where(left == UNLIMITED, most, np.maximum(left, 0) // amount)

    def by_domain(self, level: int, nodes: IntArray, amounts: IntArray) -> IntArray:
        """Sums of the nodes' amounts in every domain of a level."""
        tree = self._arrays.tree
        return sums(tree.domain_of[level][nodes], amounts, tree.sizes[level])

    def best_domain(
        self, level: int, nodes: IntArray, amounts: IntArray
    ) -> tuple[int, dict[str, Any]]:
        """The largest sum of a domain; the first that has it, and what of it is free on these nodes."""
        cluster, of = self.instance.cluster, self._arrays.tree.domain_of[level][nodes]
        found = self.by_domain(level, nodes, amounts)
        used = np.unique(of)
        best = int(used[np.argmax(found[used])])
        inside = nodes[of == best]
        name = cluster.domain_name(level, int(inside[0]))
        room = {"domain": name, "room_gpus": int(self.free[inside].sum())}
        return int(found[best]), {"level": cluster.level_name(level), **room}


@dataclass(frozen=True, slots=True)
class Shortage:
    """What a gang or a role lacks, as fields of a reason; of domains in the first with most room.

    ``level``: of which one domain must hold the pods; ``role``: that is short, None for all together.
    """

    code: str
    fields: Mapping[str, Any]
    level: int | None = None
    role: int | None = None

    @property
    def kind(self) -> object:
        """What it is a shortage of, wherever it is counted."""
        resources = tuple(self.fields.get("resources", ()))
        return self.code, self.level, self.role, resources, "model" in self.fields

    def reason(self, code: str, **more: Any) -> Reason:  # noqa: ANN401  # see ``fields``
        """The reason with more fields."""
        return Reason.of(code, **self.fields, **more)


def shortage(counts: FreeCounts, demand: Demand, like: Shortage | None = None) -> Shortage | None:
    """The first shortage of a role, or of the whole gang. ``like``: the same one, counted elsewhere."""
    found = (short for role in demand.roles for short in _role(counts, demand, role))
    every = chain(found, _together(counts, demand))
    return next((one for one in every if like is None or one.kind == like.kind), None)


def unselected(instance: Instance, demand: Demand) -> Shortage | None:
    """The role that no node accepts now, and the taints that close nodes that have what it needs."""
    nodes = instance.cluster.nodes
    for role in demand.roles:
        if not role.nodes:
            spec = instance.gangs[demand.gang].roles[role.role]
            taints = (t for n in instance.matching_nodes(spec) for t in nodes[n].taints)
            return Shortage("Selector", _unmatched(instance, demand, role, taints))
    return None


def never(best: FreeCounts, demand: Demand) -> Reason | None:
    """Why a waiting gang could not start by counts alone; None if it could. ``best``: see ``at_best``.

    Labels, the policy's selection and taints stay as they are, except taints for a node's condition.
    """
    instance, nodes = best.instance, best.instance.cluster.nodes
    specs = instance.gangs[demand.gang].roles
    roles = (replace(one, nodes=instance.matching_nodes(specs[one.role])) for one in demand.roles)
    demand = replace(demand, roles=tuple(roles))
    for role in demand.roles:
        if not role.nodes:
            tolerant = replace(specs[role.role], tolerations=(Toleration("", "Exists"),))
            tainted = (nodes[n] for n in instance.matching_nodes(tolerant))
            taints = (t for node in tainted for t in without_conditions(node).taints)
            return Reason.of(NEVER, **_unmatched(instance, demand, role, taints))
        who = _who(instance, demand, role)
        largest = int(best.free[_array(role.nodes)].max())
        if role.gpus > largest:
            needs = {"pods": role.count, "gpus": role.count * role.gpus}
            return Reason.of(NEVER, **who, **needs, offered=str(largest))
        for resource, amount in role.requests:
            most = best.most(resource, role.nodes)
            if most is not None and amount > most:
                offered = quantity_text(resource, most)
                return Reason.of(NEVER, **who, resources=[resource], offered=offered)
    short = shortage(best, demand)
    return None if short is None else short.reason(NEVER)


def _unmatched(
    instance: Instance, demand: Demand, role: RoleDemand, taints: Iterable[Taint]
) -> dict[str, Any]:
    """What a role asks of its nodes, and which of these taints it does not tolerate."""
    spec = instance.gangs[demand.gang].roles[role.role]
    keys = sorted({t.key for t in taints if not tolerated(spec.tolerations, (t,))})
    terms = label_texts(spec.node_selector)
    terms += [shown(spec.node_affinity)] if spec.node_affinity else []
    terms += [f"model {spec.model}"] if spec.model else []
    required = shortened(", ".join(terms), MAX_REQUIRED) if terms else None
    who = _who(instance, demand, role)
    return {**who, "nodes_with": required, "taints": keys[:MAX_NAMED]}


def _who(instance: Instance, demand: Demand, role: RoleDemand) -> dict[str, Any]:
    """The role, where the gang has several."""
    roles = instance.gangs[demand.gang].roles
    return {"role": roles[role.role].name} if len(roles) > 1 else {}


def _role(counts: FreeCounts, demand: Demand, role: RoleDemand) -> Iterator[Shortage]:
    """Every count that a role fails, the plainest first."""
    instance, count = counts.instance, role.count
    spec = instance.gangs[demand.gang].roles[role.role]
    nodes = _array(role.nodes)
    fits = counts.free[nodes] // role.gpus if role.gpus else np.full(len(nodes), count, np.int64)
    needs = {**_who(instance, demand, role), "pods": count, "gpus": role.gpus * count}
    every = {**needs, "room_gpus": counts.on(role.nodes)}
    if (room := int(fits.sum())) < count:
        yield Shortage("NoRoom", {**every, "room_pods": room}, role=role.role)
    scarce = {
        resource: found[nodes]
        for resource, amount in ((PODS, 1), *role.requests)
        if (found := counts.by_resource(resource, amount, count)) is not None
    }
    for names in (*((one,) for one in scarce), tuple(scarce)):
        enough = reduce(np.minimum, (scarce[name] for name in names), fits)
        if (room := int(enough.sum())) < count:
            fields = {**every, "resources": names, "room_pods": room}
            yield Shortage("Resources", fields, role=role.role)
    fits = reduce(np.minimum, scarce.values(), fits)
    if role.gpus and not spec.mix_models:
        pods: IntArray = np.zeros(len(counts.free), np.int64)
        pods[nodes] = fits
        rooms = {}
        for gpu in instance.gpu_names(role.nodes):
            own = instance.nodes_of_model(role.nodes, gpu)
            rooms[int(pods[_array(own)].sum()), gpu] = counts.on(own)
        room, gpu = max(rooms, default=(count, ""))
        if room < count:
            fields = {"model": gpu, "room_pods": room, "room_gpus": rooms[room, gpu]}
            yield Shortage("NoRoom", {**needs, **fields}, role=role.role)
    yield from _in_domains(counts, demand, role, fits, needs)


def _in_domains(
    counts: FreeCounts, demand: Demand, role: RoleDemand, fits: IntArray, needs: Mapping[str, Any]
) -> Iterator[Shortage]:
    """Pods that are needed against those that fit in one domain, or in whole slices in all of them."""
    gang, nodes = counts.instance.gangs[demand.gang], _array(role.nodes)
    spec = gang.roles[role.role]
    levels = [level for level in (gang.required, spec.required) if level is not None]
    if levels:
        level = max(levels)
        room, place = counts.best_domain(level, nodes, fits)
        if room < role.count:
            fields = {**needs, **place, "room_pods": room}
            yield Shortage("RequiredTopology", fields, level, role.role)
    for size, level in spec.slice_layers if not demand.standing_nodes else ():
        whole = int((counts.by_domain(level, nodes, fits) // size).sum())
        if whole < role.cut(size).whole:
            name = counts.instance.cluster.level_name(level)
            fields = {"level": name, "room_pods": whole * size, "room_gpus": counts.on(role.nodes)}
            yield Shortage("RequiredTopology", {**needs, **fields}, level, role.role)


def _together(counts: FreeCounts, demand: Demand) -> Iterator[Shortage]:
    """All roles of a gang, in one domain if it has a required level."""
    instance = counts.instance
    level = instance.gangs[demand.gang].required
    if demand.standing_nodes or not demand.gpu_roles:
        return
    if level is None and len(demand.gpu_roles) == 1:
        return  # counted with its pods
    every = frozenset().union(*(role.nodes for role in demand.gpu_roles))
    if level is None:
        free = counts.on(every)
        if free < demand.gpus:
            yield Shortage("NoRoom", {"gpus": demand.gpus, "room_gpus": free})
        return
    nodes = _array(every)
    best, place = counts.best_domain(level, nodes, counts.free[nodes])
    if best < demand.gpus:
        yield Shortage("RequiredTopology", {"gpus": demand.gpus, **place}, level)


@lru_cache(maxsize=64)
def _array(nodes: frozenset[int]) -> IntArray:
    return np.fromiter(nodes, np.int64, len(nodes))
