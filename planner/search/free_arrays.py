"""Free space as integer arrays: what is free on every node, and how many pods of a kind fit where.

Tables are brought up to date from the nodes that changed since they were last read, so that no gang
scans the cluster.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from copy import copy
from typing import TypeAlias

import numpy as np
import numpy.typing as npt

from models.instance.cluster import Cluster, once_with
from models.instance.occupancy import PODS
from models.rules.demands import RoleDemand

IntArray: TypeAlias = npt.NDArray[np.int64]
BoolArray: TypeAlias = npt.NDArray[np.bool_]

UNLIMITED = 1 << 62
"""Left of a resource that does not limit the pods of a node."""

MANY = 1 << 31
"""Most pods counted on one node, so that sums stay small."""

LAST = 1 << 12
"""More GPUs than a node has."""

MAX_TABLES = 128
"""Tables remembered before all are dropped: gangs with standing pods may have node sets of their own."""

Kind = tuple[int, tuple[tuple[str, int], ...], frozenset[int] | None, str | None]
"""What pods ask for: (GPUs, requests, nodes or None for any, GPU model or None for any)."""

ANY_GPU: Kind = (1, (), None, None)


def as_array(values: Iterable[int]) -> IntArray:
    return np.array(tuple(values), dtype=np.int64)


class Tree:
    """The topology of a cluster as arrays. At the node level a domain has the number of its node.

    ``domain_of[l][n]``: the domain of node n. ``sizes[l]``: number of domains. ``levels``: the node level.
    """

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        self.levels = cluster.node_level
        self.every = np.arange(len(cluster.nodes), dtype=np.int64)
        self.everywhere = frozenset(range(len(cluster.nodes)))
        self.domain_of = (*(as_array(of) for of in cluster.domain_of[: self.levels]), self.every)
        self.sizes = tuple(len(domains) for domains in cluster.domains)
        self._nodes: dict[tuple[int, int], IntArray] = {}
        self._parents: dict[tuple[int, int], IntArray] = {}
        self._models: dict[str, BoolArray] = {}

    def nodes(self, level: int, domain: int) -> IntArray:
        """The nodes of a domain, ascending."""
        if level == self.levels:
            return as_array((domain,))
        key = (level, domain)
        if key not in self._nodes:
            self._nodes[key] = as_array(self._cluster.domains[level][domain].nodes)
        return self._nodes[key]

    def parents(self, level: int, wider: int) -> IntArray:
        """The domain of level ``wider`` that each domain of ``level`` is part of; level -1 is the cluster."""
        key = (level, wider)
        if wider < 0:
            return np.zeros(self.sizes[level], dtype=np.int64)
        if level == self.levels:
            return self.domain_of[wider]
        if key not in self._parents:
            of = self._cluster.domain_of[wider]
            self._parents[key] = as_array(of[d.nodes[0]] for d in self._cluster.domains[level])
        return self._parents[key]

    def mask(self, kind: Kind) -> BoolArray:
        """The nodes that pods of a kind may use, room aside."""
        _, _, nodes, model = kind
        found = np.full(len(self.every), nodes is None, dtype=np.bool_)
        if nodes is not None:
            found[np.fromiter(nodes, np.int64, len(nodes))] = True
        if model is not None and model not in self._models:
            own = (one.model is not None and one.model.gpu == model for one in self._cluster.nodes)
            self._models[model] = np.fromiter(own, np.bool_, len(self.every))
        return found if model is None else found & self._models[model]


tree_of = once_with(Tree)


class FreeArrays:
    """By node, ``free``: GPUs that may be given; ``left``: free amount of every limiting resource.

    ``idle_gpus``: sum of ``free``. ``in_parts``: nodes whose GPUs pods may have in parts, too: whole ones are
    taken elsewhere first; ``last``: LAST of these. ``tightness``: what nodes are compared by then, the sum of
    both. ``changes``: nodes that have changed, in order; tables know how many of them they have seen.
    """

    def __init__(
        self,
        cluster: Cluster,
        free: Sequence[int],
        left: Sequence[Mapping[str, int]],
        in_parts: Iterable[int] = (),
    ) -> None:
        self.tree = tree_of(cluster)
        self.free = as_array(free)
        self.last = np.zeros(len(free), dtype=np.int64)
        if last := list(in_parts):
            self.last[last] = LAST
        self.favour(self.last)
        self.idle_gpus = sum(free)
        names = sorted({name for amounts in left for name in amounts})
        self.left = {
            name: as_array(amounts.get(name, UNLIMITED) for amounts in left) for name in names
        }
        self.forget()

    def copy(self) -> FreeArrays:
        """The same, which changes by itself."""
        twin = copy(self)
        twin.free, twin.tightness = self.free.copy(), self.tightness.copy()
        twin.left = {name: amounts.copy() for name, amounts in self.left.items()}
        twin.forget()
        return twin

    def favour(self, uses: IntArray) -> None:
        """From now on those of equal nodes are tighter that have less of this."""
        self.order = np.unique(uses, return_inverse=True)[1]
        self.tightness = (self.free + self.last) * len(self.free) + self.order

    def forget(self) -> None:
        self.changes: list[int] = []
        self._tables: dict[Kind, Capacity] = {}

    def change(self, n: int, free: int, left: Mapping[str, int]) -> None:
        """Record what is free on a node now."""
        self.idle_gpus += free - int(self.free[n])
        self.free[n] = free
        self.tightness[n] = (free + self.last[n]) * len(self.free) + self.order[n]
        for name, amount in left.items():
            self.left[name][n] = amount
        self.changes.append(n)

    def capacity(self, kind: Kind) -> Capacity:
        """How many pods of a kind fit where, as of now; valid until the next change."""
        if len(self._tables) > MAX_TABLES or len(self.changes) > 4 * len(self.free):
            self.forget()
        table = self._tables.get(kind)
        if table is None:
            table = self._tables[kind] = Capacity(self, kind)
        table.refresh()
        return table

    def of_role(self, role: RoleDemand, model: str | None) -> Capacity:
        """The capacity for pods of a role on nodes of a GPU model, None for any."""
        requests = ((PODS, 1), *((name, amount) for name, amount in role.requests if amount))
        return self.capacity((role.gpus, requests, role.nodes, model if role.gpus else None))

    def idle(self, level: int) -> IntArray:
        """Free GPUs of every domain of a level."""
        return self.capacity(ANY_GPU).at(level)


class Capacity:
    """Pods of one kind that fit beside all pods there. ``allowed``: nodes they may use. ``pods``: by node."""

    def __init__(self, arrays: FreeArrays, kind: Kind) -> None:
        self._arrays = arrays
        self._gpus, self._requests, _, _ = kind
        tree = arrays.tree
        self.allowed = tree.mask(kind)
        self.pods, own = np.zeros_like(tree.every), np.flatnonzero(self.allowed)
        self.pods[own] = self._fitting(own)
        self.total = int(self.pods.sum())
        self._sums: dict[int, IntArray] = {}
        self._seen = len(arrays.changes)

    def at(self, level: int) -> IntArray:
        """Pods that fit in every domain of a level; level -1 is the cluster."""
        if level < 0:
            return as_array((self.total,))
        tree = self._arrays.tree
        if level == tree.levels:
            return self.pods
        if level not in self._sums:
            self._sums[level] = sums(tree.domain_of[level], self.pods, tree.sizes[level])
        return self._sums[level]

    def refresh(self) -> None:
        changes = self._arrays.changes
        if self._seen == len(changes):
            return
        nodes = as_array(sorted(set(changes[self._seen :])))
        self._seen = len(changes)
        now = self._fitting(nodes)
        gained = now - self.pods[nodes]
        self.pods[nodes] = now
        self.total += int(gained.sum())
        for level, found in self._sums.items():
            np.add.at(found, self._arrays.tree.domain_of[level][nodes], gained)

    def _fitting(self, nodes: IntArray) -> IntArray:
        free = self._arrays.free[nodes]
        found = free // self._gpus if self._gpus else np.full_like(free, MANY)
        for name, amount in self._requests:
            left = self._arrays.left.get(name)
            if left is not None:
                found = np.minimum(found, left[nodes] // amount)
        return np.where(self.allowed[nodes], np.maximum(found, 0), 0)


def sums(group: IntArray, amounts: IntArray, count: int) -> IntArray:
    """Sums of the amounts by group. ``count``: number of groups."""
    found = np.zeros(count, dtype=np.int64)
    np.add.at(found, group, amounts)
    return found


Key = Callable[[IntArray], IntArray]
"""What candidates are compared by, the smaller the better."""


def by(values: IntArray) -> Key:
    """Compare by these values."""
    return lambda candidates: values[candidates]


def tightest(candidates: IntArray, keys: Iterable[Key]) -> int:
    """The candidate that is smallest by the first key, then by the next; the first of equals."""
    for key in keys:
        if len(candidates) == 1:
            break
        values = key(candidates)
        candidates = candidates[values == values.min()]
    return int(candidates[0])
