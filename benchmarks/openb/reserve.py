"""Room that is kept for pods without GPUs, so that all of them are placed."""

from __future__ import annotations

import numpy as np

from benchmarks.openb.space import Space
from benchmarks.openb.trace import Arrivals, Pod

DEVIATIONS = 2
"""Standard deviations of the number of pods to come, beyond what is expected, for which room is kept."""

FREQUENT = 0.03
"""Share of the pods without GPUs from which on room is counted in pods of a class."""

NOTHING = Pod(0, 0, 0, 0)


class Reserve:
    """Room for each frequent class of pods without GPUs, and how much those to come need, by their cores.

    ``gpu_milli``: that are requested until the end. How many pods without GPUs come among them is expected
    from the list. A pod with GPUs may take no room that they need, whichever class it is counted in.
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

    def _rooms(self, nodes: np.ndarray, beside: Pod) -> np.ndarray:
        """Pods of each size that fit beside a pod; shape (nodes, sizes)."""
        cpu, memory = self.space.cpu[nodes] - beside.cpu, self.space.memory[nodes] - beside.memory
        return np.minimum(cpu[:, None] // self.cpu, memory[:, None] // self.memory)

    def may_take(self, pod: Pod, nodes: np.ndarray) -> np.ndarray:
        """Which of these nodes, where it fits, a pod with GPUs may be placed on."""
        coming = self.left / self.listed_milli
        wanted = coming * self.needed + DEVIATIONS * np.sqrt(coming * self.squares)
        spare = self.rooms.sum(axis=0) - wanted
        lost = self.rooms[nodes] - self._rooms(nodes, pod)
        return ((lost == 0) | (lost <= spare)).all(axis=1)

    def arrived(self, pod: Pod) -> None:
        """Its GPUs are not to come any more."""
        self.left = max(0, self.left - pod.gpu_milli)

    def changed(self, node: int) -> None:
        """A pod was placed there."""
        self.rooms[node] = self._rooms(np.array([node]), NOTHING)[0]
