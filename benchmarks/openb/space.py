"""What is free on each node while pods arrive, and pods that stay where they were placed."""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from benchmarks.openb.trace import MOST_GPUS, WHOLE, Cluster, Pod


@dataclass(frozen=True, slots=True)
class Placed:
    """The ``arrival``-th pod, its node and the GPUs there on which it is."""

    arrival: int
    node: int
    gpus: tuple[int, ...]


@dataclass(slots=True)
class Space:
    """Free 1/1000 cores, MiB and 1/1000 of each GPU, by node. GPUs that a node does not have are full.

    ``cpu``, ``memory``: shape (nodes,); ``gpu``: shape (nodes, MOST_GPUS).
    """

    cluster: Cluster
    cpu: np.ndarray = field(init=False)
    memory: np.ndarray = field(init=False)
    gpu: np.ndarray = field(init=False)

    def __post_init__(self) -> None:
        self.cpu = self.cluster.column("cpu")
        self.memory = self.cluster.column("memory")
        has = np.arange(MOST_GPUS) < self.cluster.column("gpus")[:, None]
        self.gpu = np.where(has, WHOLE, 0)

    def allowed(self, pod: Pod) -> np.ndarray:
        """Nodes whose GPU model the pod may have; shape (nodes,)."""
        kinds = [
            not pod.gpus or not pod.models or k.model in pod.models for k in self.cluster.kinds
        ]
        return np.array(kinds)[self.cluster.kind_of]

    def fits(self, pod: Pod, nodes: np.ndarray) -> np.ndarray:
        """Which of these nodes have room for the pod; their model is not looked at."""
        room = (self.cpu[nodes] >= pod.cpu) & (self.memory[nodes] >= pod.memory)
        if pod.gpus:
            room &= (self.gpu[nodes] >= pod.milli).sum(axis=1) >= pod.gpus
        return room

    def place(self, pod: Pod, node: int, gpus: tuple[int, ...]) -> None:
        """Take what the pod requests."""
        self.cpu[node] -= pod.cpu
        self.memory[node] -= pod.memory
        self.gpu[node, list(gpus)] -= pod.milli

    def remove(self, pod: Pod, node: int, gpus: tuple[int, ...]) -> None:
        """Give back what the pod requested."""
        self.cpu[node] += pod.cpu
        self.memory[node] += pod.memory
        self.gpu[node, list(gpus)] += pod.milli
