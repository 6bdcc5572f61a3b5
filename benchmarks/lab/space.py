"""Free space of a cluster as arrays over its nodes, for schedulers that place one pod after another.

Promises: what is taken since a mark can be undone; counts, resources and GPU sets never disagree.
Called by ``benchmarks.lab.scheduler``.
"""

from __future__ import annotations

from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from benchmarks.lab.gpu_choice import device_plugin
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.occupancy import PODS, rooms
from models.instance.solution import GangDecision, PodPlacement

Nodes = NDArray[np.int64]
"""Indices of nodes, or one number a node."""

Able = NDArray[np.bool_]

UNLIMITED = 1 << 60


@dataclass(frozen=True, slots=True)
class Taken:
    """One pod put on a node. ``gpus``: its mask, 0 without GPUs, None where the node decides."""

    role: Role
    number: int
    index: int
    node: int
    gpus: int | None


class Space:
    """``free``, ``masks``, ``left``: free GPUs, their bit mask, and every limiting resource, a node.

    ``domain[l]``: the domain of every node at level l, the node level last. ``gpu``: its GPU model, by
    rank of the name, -1 without GPUs. ``taken``: pods put in place since the last ``commit``.
    """

    def __init__(self, instance: Instance, base: Sequence[GangDecision]) -> None:
        self.instance = instance
        cluster = instance.cluster
        state = rooms(instance, base)
        self.free = np.array([room.free_gpus for room in state], dtype=np.int64)
        self.masks = np.array([room.mask for room in state], dtype=np.int64)
        self.blind = [room.blind for room in state]
        self.installed = np.array([node.gpus for node in cluster.nodes], dtype=np.int64)
        names = sorted({name for node in cluster.nodes for name, _ in node.allocatable})
        self.most = {
            name: np.array(
                [dict(node.allocatable).get(name, UNLIMITED) for node in cluster.nodes],
                dtype=np.int64,
            )
            for name in names
        }
        self.left = {
            name: np.array([dict(room.left).get(name, UNLIMITED) for room in state], dtype=np.int64)
            for name in names
        }
        self.domain = [np.array(of, dtype=np.int64) for of in cluster.domain_of]
        models = [node.model.gpu if node.model else "" for node in cluster.nodes]
        rank = {name: i for i, name in enumerate(sorted(set(models) - {""}))}
        self.gpu = np.array([rank.get(name, -1) for name in models], dtype=np.int64)
        self.everywhere: Nodes = np.arange(len(cluster.nodes), dtype=np.int64)
        self.taken: list[Taken] = []
        self._eligible: dict[Role, Able] = {}
        self._members: dict[tuple[int, int], Nodes] = {}

    def copy(self) -> Space:
        """The same space, of which others may take without taking from this."""
        other = copy(self)
        other.free, other.masks, other.taken = self.free.copy(), self.masks.copy(), []
        other.left = {name: amounts.copy() for name, amounts in self.left.items()}
        return other

    def hold(self, gang: Gang, pods: Sequence[PodPlacement], sign: int) -> None:
        """Pods of a gang came to stand (1), or left (-1)."""
        for pod in pods:
            role = gang.roles[pod.role]
            own = pod.gpus if role.gpus else 0
            self._move(Taken(role, pod.role, pod.index, pod.node, own), sign)

    @property
    def free_gpus(self) -> int:
        """Free GPUs of all nodes."""
        return int(self.free.sum())

    def members(self, level: int, domain: int) -> Nodes:
        """The nodes of one domain."""
        found = self._members.get((level, domain))
        if found is None:
            nodes = self.instance.cluster.domains[level][domain].nodes
            found = self._members[level, domain] = np.array(nodes, dtype=np.int64)
        return found

    def eligible(self, role: Role) -> Able:
        """Nodes that pods of the role may use, room aside."""
        found = self._eligible.get(role)
        if found is None:
            found = np.zeros(len(self.everywhere), dtype=np.bool_)
            found[sorted(self.instance.eligible_nodes(role))] = True
            self._eligible[role] = found
        return found

    def capacity(self, role: Role, nodes: Nodes) -> Nodes:
        """How many pods of the role each of these nodes still takes."""
        most = np.where(self.eligible(role)[nodes], UNLIMITED, 0)
        if role.gpus:
            most = np.minimum(most, self.free[nodes] // role.gpus)
        for name, amount in self._wants(role):
            most = np.minimum(most, self.left[name][nodes] // amount)
        return np.maximum(most, 0)

    def able(self, role: Role, nodes: Nodes) -> Nodes:
        """Those of the nodes that take one more pod of the role."""
        fits = self.eligible(role)[nodes] & (self.free[nodes] >= role.gpus)
        for name, amount in self._wants(role):
            fits &= self.left[name][nodes] >= amount
        found: Nodes = nodes[fits]
        return found

    def _wants(self, role: Role) -> list[tuple[str, int]]:
        wants = ((PODS, 1), *role.requests)
        return [(name, amount) for name, amount in wants if amount and name in self.left]

    def take(self, role: Role, number: int, index: int, node: int) -> None:
        """Put one pod on a node that is able to take it."""
        gpus: int | None = 0
        if role.gpus and self.blind[node]:
            gpus = None
        elif role.gpus:
            model = self.instance.cluster.nodes[node].model
            assert model is not None, "only a node with GPUs is able"
            gpus = device_plugin(model, int(self.masks[node]), role.gpus)
        self._move(Taken(role, number, index, node, gpus), 1)
        self.taken.append(Taken(role, number, index, node, gpus))

    def undo(self, mark: int = 0) -> None:
        """Give back what was taken since ``len(taken)`` was ``mark``."""
        while len(self.taken) > mark:
            self._move(self.taken.pop(), -1)

    def commit(self) -> tuple[PodPlacement, ...]:
        """Keep what was taken."""
        pods = tuple(PodPlacement(t.number, t.index, t.node, t.gpus) for t in self.taken)
        self.taken = []
        return pods

    def stand(self, pods: Sequence[tuple[Role, PodPlacement]]) -> bool:
        """Put pods back where they stood, if all of it is free still."""
        for role, pod in pods:
            able = pod.node in self.able(role, np.array([pod.node], dtype=np.int64))
            held = (pod.gpus or 0) & ~int(self.masks[pod.node])
            if not able or held:
                self.undo()
                return False
            taken = Taken(role, pod.role, pod.index, pod.node, pod.gpus if role.gpus else 0)
            self._move(taken, 1)
            self.taken.append(taken)
        self.commit()
        return True

    def _move(self, pod: Taken, sign: int) -> None:
        self.free[pod.node] -= sign * pod.role.gpus
        self.masks[pod.node] ^= pod.gpus or 0
        for name, amount in self._wants(pod.role):
            self.left[name][pod.node] -= sign * amount
