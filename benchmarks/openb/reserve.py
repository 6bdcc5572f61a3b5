"""Room that is kept for pods without GPUs, so that all of them are placed."""

from __future__ import annotations

import numpy as np

from benchmarks.openb.space import Space
from benchmarks.openb.trace import WHOLE, Arrivals, Cluster, Pod

DEVIATIONS = 2
"""Standard deviations of the number of pods to come, beyond what is expected, for which room is kept."""

ALWAYS = 4
"""Pods of each frequent class for which room is kept to the end, when few are expected."""

FREQUENT = 0.03
"""Share of the pods without GPUs from which on room is counted in pods of a class."""

NOTHING = Pod(0, 0, 0, 0)


class Reserve:
    """Room for each frequent class of pods without GPUs, and how much those to come need, by their cores.

    ``gpu_milli``: that are requested until the end. How many pods without GPUs come among them is expected
    from the list. A pod with GPUs may take no room that they need, whichever class it is counted in. Where
    cores do not suffice for the whole list, pods with the most cores a GPU are not placed.
    """

    def __init__(self, listed: Arrivals, space: Space, gpu_milli: int) -> None:
        self.space, self.left, self.listed_milli = space, gpu_milli, int(listed.gpu_milli.sum())
        counts = zip(listed.classes, listed.counts(), strict=True)
        small = [(pod, int(count)) for pod, count in counts if not pod.gpus]
        least = FREQUENT * sum(count for _, count in small)
        sizes = [pod for pod, count in small if count >= least]
        self.cpu = np.array([pod.cpu for pod in sizes], dtype=np.int64)
        self.memory = np.array([max(1, pod.memory) for pod in sizes], dtype=np.int64)
        parts = np.array([pod.cpu for pod, _ in small])[:, None] / self.cpu
        many = np.array([count for _, count in small])[:, None]
        self.needed, self.squares = (parts * many).sum(axis=0), (parts**2 * many).sum(axis=0)
        self.rooms = self._rooms(np.arange(len(space.cpu)), NOTHING)
        self.most_cores = most_cores(listed, space.cluster)

    def _rooms(self, nodes: np.ndarray, beside: Pod) -> np.ndarray:
        """Pods of each size that fit beside a pod; shape (nodes, sizes)."""
        cpu, memory = self.space.cpu[nodes] - beside.cpu, self.space.memory[nodes] - beside.memory
        return np.minimum(cpu[:, None] // self.cpu, memory[:, None] // self.memory)

    def may_take(self, pod: Pod, nodes: np.ndarray) -> np.ndarray:
        """Which of these nodes, where it fits, a pod with GPUs may be placed on."""
        if pod.cpu >= self.most_cores * pod.gpu_milli:
            return np.zeros(len(nodes), dtype=bool)
        coming = self.left / self.listed_milli
        wanted = coming * self.needed + DEVIATIONS * np.sqrt(coming * self.squares) + ALWAYS
        spare = self.rooms.sum(axis=0) - wanted
        lost = self.rooms[nodes] - self._rooms(nodes, pod)
        return ((lost == 0) | (lost <= spare)).all(axis=1)

    def arrived(self, pod: Pod) -> None:
        """Its GPUs are not to come any more."""
        self.left = max(0, self.left - pod.gpu_milli)

    def changed(self, node: int) -> None:
        """A pod was placed there."""
        self.rooms[node] = self._rooms(np.array([node]), NOTHING)[0]


def most_cores(listed: Arrivals, cluster: Cluster) -> float:
    """1/1000 cores for 1/1000 GPU from which on pods are not placed: the first that cores do not suffice for.

    Pods request all GPUs in the mix of the list. Those without GPUs are placed, then those with the fewest
    cores a GPU: the price of cores in the linear program that maximizes GPUs, if the cluster was one node.
    """
    cpu, milli = (
        np.array([getattr(p, what) for p in listed.classes]) for what in ("cpu", "gpu_milli")
    )
    counts = listed.counts() * (cluster.gpus * WHOLE / max(1, int(listed.gpu_milli.sum())))
    with_gpus = np.flatnonzero(milli)
    ratio = cpu[with_gpus] / milli[with_gpus]
    order = np.argsort(ratio, kind="stable")
    left = cluster.column("cpu").sum() - (counts * cpu)[milli == 0].sum()
    used = np.cumsum((counts * cpu)[with_gpus][order])
    last = int(np.searchsorted(used, left))
    return float(ratio[order[last]]) if last < len(order) else float("inf")
