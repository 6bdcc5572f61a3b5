"""Our rule for pods that arrive one at a time: each goes where it takes the least room from those to come."""

from __future__ import annotations

import numpy as np

from benchmarks.openb.rules import Costs, without_models
from benchmarks.openb.space import Space
from benchmarks.openb.trace import WHOLE, Arrivals, Cluster, Pod

FLUID = 0.2
"""Share of a GPU's room that is counted without rounding down: what a size leaves of it others use, too."""

FLUID_CORES = 0.5
"""The same of room for pods without GPUs: less keeps more nodes free for large ones, and wastes more GPUs."""

FIRST = 1.5
"""What room for the first pod of a class counts on a node, next to room for another: that is lost last."""

CORES = 6
"""1/1000 cores of pods without GPUs that count as 1/1000 GPU. The mix has twelve cores a GPU."""


class LeastRoom:
    """The node and GPU where the room for the list's pods shrinks least.

    The room of a node for a class is how many pods of it would fit, alone, in parts: as many as cores, memory
    and GPUs suffice for. Each counts by the 1/1000 GPU that the class requests in the whole list, and more
    where few GPUs are of a model that it may use: twice, if half of them are. The constants were chosen on
    seed 42 of the lists; the published figures are over ten seeds.
    """

    def __init__(self, listed: Arrivals, cluster: Cluster) -> None:
        shapes = sorted({without_models(pod) for pod in listed.classes})
        self.cpu = np.array([pod.cpu for pod in shapes])
        self.memory = np.array([max(1, pod.memory) for pod in shapes])
        self.gpus = np.array([pod.gpus for pod in shapes])
        self.parts = np.stack([_parts_of_gpu(pod) for pod in shapes], axis=1)
        self.weights = _weights(listed, cluster, {pod: s for s, pod in enumerate(shapes)})

    def worth(
        self, kinds: np.ndarray, cpu: np.ndarray, memory: np.ndarray, parts: np.ndarray
    ) -> np.ndarray:
        """The room of nodes: cores and MiB, shape (...,); parts of GPUs that fit each shape (..., shapes)."""
        room = np.minimum(cpu[..., None] / self.cpu, memory[..., None] / self.memory)
        sets = np.where(self.gpus > 1, parts // np.maximum(self.gpus, 1), parts)
        with_gpus = np.minimum(room, sets)
        with_gpus = np.where(with_gpus < 1, FIRST * with_gpus, with_gpus + FIRST - 1)
        without = FLUID_CORES * room + (1 - FLUID_CORES) * np.floor(room)
        room = np.where(self.gpus > 0, with_gpus, without)
        return np.einsum("...s,...s->...", room, self.weights[kinds])

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> Costs:
        """By how much the worth shrinks."""
        kinds = space.cluster.kind_of[nodes]
        cpu, memory, gpu = space.cpu[nodes], space.memory[nodes], space.gpu[nodes]
        each = self.parts[gpu]
        parts = each.sum(axis=1)
        before = self.worth(kinds, cpu, memory, parts)
        cpu, memory = cpu - pod.cpu, memory - pod.memory
        if pod.shares:
            less = parts[:, None] - each + self.parts[np.maximum(gpu - pod.milli, 0)]
            after = self.worth(kinds[:, None], cpu[:, None], memory[:, None], less)
            after[gpu < pod.milli] = -np.inf
            best = after.argmax(axis=1)
            return before - after[np.arange(len(nodes)), best], best
        if pod.gpus:
            parts = parts - pod.gpus * self.parts[WHOLE]
        return before - self.worth(kinds, cpu, memory, parts), np.zeros(len(nodes), dtype=np.int64)


def _parts_of_gpu(pod: Pod) -> np.ndarray:
    """How many parts of the pod's size fit into so much of a GPU; shape (WHOLE + 1,)."""
    free = np.arange(WHOLE + 1)
    if not pod.shares:
        return (free // WHOLE).astype(np.float64)
    return (1 - FLUID) * (free // pod.milli) + FLUID * free / pod.milli


def _weights(listed: Arrivals, cluster: Cluster, shapes: dict[Pod, int]) -> np.ndarray:
    """What room for a pod of each shape is worth on each kind of node; shape (kinds, shapes)."""
    found = np.zeros((len(cluster.kinds), len(shapes)))
    gpus = cluster.counts() * np.array([kind.gpus for kind in cluster.kinds])
    for pod, count in zip(listed.classes, listed.counts(), strict=True):
        may = np.array(
            [not pod.gpus or not pod.models or k.model in pod.models for k in cluster.kinds]
        )
        if pod.gpus and may.any():
            found[may, shapes[without_models(pod)]] += (
                count * pod.gpu_milli * gpus.sum() / gpus[may].sum()
            )
        elif not pod.gpus:
            found[:, shapes[pod]] += count * pod.cpu / CORES
    return found / len(listed.order)
