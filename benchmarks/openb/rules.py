"""Rules of others, restated from the published descriptions and results; no code of theirs runs here.

Weng et al., "Beware of Fragmentation", USENIX ATC 2023, compare them: FGD, best fit, dot product (Tetris),
packing and clustering of GPUs, and chance.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from benchmarks.openb.space import Space
from benchmarks.openb.trace import MOST_GPUS, WHOLE, Arrivals, Pod

MOST_CPU = 128_000
"""1/1000 cores of the largest server."""

Costs = tuple[np.ndarray, np.ndarray]


def without_models(pod: Pod) -> Pod:
    """The pod as if it could use any model."""
    return replace(pod, models=())


def tightest(space: Space, pod: Pod, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The GPU of each node that has room for a part and least left, and how much it has."""
    gpu = space.gpu[nodes]
    room = np.where(gpu >= max(pod.milli, 1), gpu, WHOLE + 1)
    best = room.argmin(axis=1)
    return best, room[np.arange(len(nodes)), best]


class Chance:
    """Any node that has room."""

    def __init__(self, seed: int) -> None:
        self.random = np.random.default_rng(seed)

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """Drawn for each node, and again when it has changed."""
        return self.random.random(len(nodes)), tightest(space, pod, nodes)[0]


class BestFit:
    """The node with the least cores and GPUs left, each in parts of the largest server's."""

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """Half of each."""
        gpus = space.gpu[nodes].sum(axis=1) / (MOST_GPUS * WHOLE)
        return space.cpu[nodes] / MOST_CPU / 2 + gpus / 2, tightest(space, pod, nodes)[0]


class DotProduct:
    """The node where what is free is least along what is requested, cores and GPUs as in ``BestFit``."""

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """The inner product; for a part that of its GPU."""
        gpu, room = tightest(space, pod, nodes)
        free = room if pod.shares else space.gpu[nodes].sum(axis=1)
        cores = space.cpu[nodes] / MOST_CPU * (pod.cpu / MOST_CPU)
        return cores + free / 8000 * (pod.gpu_milli / 8000), gpu


class GpuPacking:
    """First GPUs that are shared, then idle ones of a node in use, then idle nodes; fewest free first."""

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """Of three levels."""
        gpu, room = tightest(space, pod, nodes)
        free = (space.gpu[nodes] == WHOLE).sum(axis=1)
        idle = free == space.cluster.column("gpus")[nodes]
        new = np.where(room == WHOLE, 1, 0) if pod.shares else np.full(len(nodes), pod.gpus)
        used = np.where(new > 0, 10 + new, room / WHOLE)
        return (np.where(idle, 100 + free, used) if pod.gpus else np.zeros(len(nodes))), gpu


class Fgd:
    """Fragmentation gradient descent: the GPU on which the expected fragment of its node grows least.

    Fragment of a node for a pod of the mix: what is free on GPUs that the pod cannot use; everything if the
    node has no room for it. Expected: over the most frequent classes of the list, 95 % of its pods. A growth
    becomes a whole score between 0 and 100, a sigmoid of GPUs, as in the publication's simulator: of equal
    scores the first node is taken. Without that it allocates less.
    """

    def __init__(self, listed: Arrivals, percent: int = 95) -> None:
        counts = listed.counts()
        order = np.argsort(-counts, kind="stable")
        enough = int(np.searchsorted(np.cumsum(counts[order]), counts.sum() * percent / 100)) + 1
        self.mix = [listed.classes[c] for c in order[:enough]]
        share = counts[order[:enough]] / counts[order[:enough]].sum()
        self.cpu = np.array([pod.cpu for pod in self.mix])
        self.milli = np.array([pod.milli for pod in self.mix])
        self.gpus = np.array([pod.gpus for pod in self.mix])
        self.share = share

    def fragment(
        self, kinds: np.ndarray, cpu: np.ndarray, gpu: np.ndarray, allowed: np.ndarray
    ) -> np.ndarray:
        """Expected 1/1000 GPU; ``cpu``: shape (...,), ``gpu``: (..., GPUs), ``allowed``: (kinds, mix)."""
        able = gpu[..., None, :] >= np.maximum(self.milli, 1)[:, None]
        runs = (cpu[..., None] >= self.cpu) & (able.sum(axis=-1) >= self.gpus) & (self.gpus > 0)
        runs &= allowed[kinds]
        useful = np.where(runs, np.where(able, gpu[..., None, :], 0).sum(axis=-1), 0)
        return gpu.sum(axis=-1) - useful @ self.share

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """How much the fragment grows."""
        kinds = space.cluster.kind_of[nodes]
        allowed = np.array(
            [[not m.models or k.model in m.models for m in self.mix] for k in space.cluster.kinds]
        )
        cpu, gpu = space.cpu[nodes], space.gpu[nodes]
        before = self.fragment(kinds, cpu, gpu, allowed)
        if not pod.shares:
            after = gpu.copy()
            if pod.gpus:
                free = gpu >= pod.milli
                after[free & (free.cumsum(axis=1) <= pod.gpus)] -= pod.milli
            growth = self.fragment(kinds, cpu - pod.cpu, after, allowed) - before
            return _score(growth), np.zeros(len(nodes), dtype=np.int64)
        choices = np.repeat(gpu[:, None, :], MOST_GPUS, axis=1)
        choices[:, np.arange(MOST_GPUS), np.arange(MOST_GPUS)] -= pod.milli
        many = np.repeat(kinds[:, None], MOST_GPUS, axis=1)
        cores = np.repeat((cpu - pod.cpu)[:, None], MOST_GPUS, axis=1)
        after = self.fragment(many, cores, choices, allowed)
        after[gpu < pod.milli] = np.inf
        best = after.argmin(axis=1)
        return _score(after[np.arange(len(nodes)), best] - before), best


def _score(growth: np.ndarray) -> np.ndarray:
    return -np.floor(100 / (1 + np.exp(growth / WHOLE)))
