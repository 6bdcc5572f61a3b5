"""The whole batch at once: the largest pods first, then nodes emptied and filled again in other orders.

Pods that the linear program of the bound leaves out, for they waste GPUs, come after all others.
"""

from __future__ import annotations

import time
from collections import defaultdict
from dataclasses import dataclass, field

import numpy as np

from benchmarks.openb.bounds import Bound
from benchmarks.openb.online import place_each, whole_gpus
from benchmarks.openb.room import LeastRoom
from benchmarks.openb.space import Placed, Space
from benchmarks.openb.trace import Arrivals, Cluster, Pod

EMPTIED = (4, 24)
"""Fewest and most nodes that are emptied at once."""

DRAWN = 0.3
"""By how much the size of a class may differ from its own in an order that is drawn."""


def place_batch(
    cluster: Cluster, pods: Arrivals, bound: Bound, seed: int, cpu_seconds: float
) -> list[Placed]:
    """All pods without GPUs, and of the others as many GPUs as are found in so many CPU seconds."""
    start = time.process_time()
    rule = LeastRoom(pods, cluster)
    sizes = np.array([_size(pod) for pod in pods.classes])
    without = np.array([not pod.gpus for pod in pods.classes])
    later = np.floor(pods.counts() - bound.accepted + 1e-6).astype(np.int64)
    first = _largest_first(cluster, pods, rule, sizes, later)
    if not set(np.flatnonzero(without[pods.order])) <= {one.arrival for one in first}:
        sizes[without] += sizes.max() + 1
        first = _largest_first(cluster, pods, rule, sizes, later)
    search = _Search(cluster, pods, rule, sizes, later, without, np.random.default_rng(seed))
    search.take(first)
    while time.process_time() - start < cpu_seconds:
        search.step()
    return search.placed()


def _largest_first(
    cluster: Cluster, pods: Arrivals, rule: LeastRoom, sizes: np.ndarray, later: np.ndarray
) -> list[Placed]:
    left, order = pods.counts() - later, np.argsort(-sizes[pods.order], kind="stable")
    waits = np.zeros(len(order), dtype=bool)
    for i in order:
        left[pods.order[i]] -= 1
        waits[i] = left[pods.order[i]] < 0
    order = np.concatenate([order[~waits[order]], order[waits[order]]])
    placed = place_each(cluster, Arrivals(pods.classes, pods.order[order]), rule)
    return [Placed(int(order[one.arrival]), one.node, one.gpus) for one in placed]


def _size(pod: Pod) -> float:
    """Whole GPUs before parts, larger ones first; pods without GPUs last, for most fit beside others."""
    return pod.gpu_milli + pod.cpu / 1e6


@dataclass(slots=True)
class _Search:
    """``on[n]``: pods on a node, with their GPUs; ``out[c]``: pods of a class that are nowhere.

    ``later[c]``: of them, how many come after all other pods. ``without[c]``: whether the class has no GPUs.
    """

    cluster: Cluster
    pods: Arrivals
    rule: LeastRoom
    sizes: np.ndarray
    later: np.ndarray
    without: np.ndarray
    random: np.random.Generator
    space: Space = field(init=False)
    on: list[list[tuple[int, tuple[int, ...]]]] = field(init=False)
    out: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.space = Space(self.cluster)
        self.on = [[] for _ in self.cluster.names]
        self.out = self.pods.counts()

    def take(self, placed: list[Placed]) -> None:
        """A first plan."""
        for one in placed:
            self._put(int(self.pods.order[one.arrival]), one.node, one.gpus)

    def placed(self) -> list[Placed]:
        """The plan: pods of a class are alike, so any of them is there."""
        which = defaultdict[int, list[int]](list)
        for i, c in enumerate(self.pods.order):
            which[int(c)].append(i)
        nodes = enumerate(self.on)
        return [Placed(which[c].pop(), n, gpus) for n, pods in nodes for c, gpus in pods]

    def step(self) -> None:
        """Empty some nodes and fill them again; keep that unless fewer GPUs are allocated."""
        nodes = self._chosen()
        kept = [list(self.on[n]) for n in nodes]
        missing = self.out[self.without].sum()
        before = int(self.space.gpu[nodes].sum())
        self._empty(nodes)
        self._fill(nodes)
        left = int(self.space.gpu[nodes].sum())
        if left > before or self.out[self.without].sum() > missing:
            self._empty(nodes)
            for n, pods in zip(nodes, kept, strict=True):
                for c, gpus in pods:
                    self._put(c, n, gpus)

    def _chosen(self) -> np.ndarray:
        """Half of them nodes with GPUs left, the more the likelier; the others any."""
        count = min(int(self.random.integers(*EMPTIED)), len(self.on))
        idle = self.space.gpu.sum(axis=1) + 1.0
        some = self.random.choice(len(idle), count // 2, replace=False, p=idle / idle.sum())
        return np.unique(np.concatenate([some, self.random.choice(len(idle), count - count // 2)]))

    def _fill(self, nodes: np.ndarray) -> None:
        drawn = self.sizes * self.random.uniform(1 - DRAWN, 1, len(self.sizes))
        order = np.argsort(-drawn, kind="stable")
        for later in (self.later, np.zeros_like(self.later)):
            for c in order:
                while self.out[c] > later[c] and self._place(int(c), nodes):
                    pass

    def _place(self, c: int, nodes: np.ndarray) -> bool:
        """One more pod of a class, where it takes the least room; False if none of the nodes has any."""
        pod = self.pods.classes[c]
        able = nodes[self.space.allowed(pod)[nodes]]
        able = able[self.space.fits(pod, able)]
        if not len(able):
            return False
        costs, gpus = self.rule.costs(self.space, pod, able)
        best = int(np.round(costs, 6).argmin())
        shared = (int(gpus[best]),) if pod.shares else whole_gpus(self.space, int(able[best]), pod)
        self._put(c, int(able[best]), shared)
        return True

    def _put(self, c: int, node: int, gpus: tuple[int, ...]) -> None:
        self.space.place(self.pods.classes[c], node, gpus)
        self.on[node].append((c, gpus))
        self.out[c] -= 1

    def _empty(self, nodes: np.ndarray) -> None:
        for n in nodes:
            for c, gpus in self.on[n]:
                self.space.remove(self.pods.classes[c], n, gpus)
                self.out[c] += 1
            self.on[n] = []
