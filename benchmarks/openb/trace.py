"""openb's nodes and lists of pods, and pods that arrive as in the published experiments.

Data: ``data/README.md``. Of the nodes only those with GPUs count, as in the experiments.
"""

from __future__ import annotations

import csv
import gzip
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import numpy as np

DATA = Path(__file__).parent / "data"

LISTS = ("default", "gpuspec33", "multigpu20", "multigpu50", "gpushare100", "cpu250")

SEEDS = range(42, 52)

MOST_GPUS = 8
"""GPUs of the largest server."""

WHOLE = 1000
"""Thousandths of a GPU."""

ARRIVING_PERCENT = 130
"""GPUs that are requested in all, in percent of the cluster's."""


@dataclass(frozen=True, slots=True, order=True)
class Pod:
    """What a pod requests: 1/1000 core, MiB, GPUs, 1/1000 of each of them, and models; none: any."""

    cpu: int
    memory: int
    gpus: int
    milli: int
    models: tuple[str, ...] = ()

    @property
    def gpu_milli(self) -> int:
        """Of all its GPUs."""
        return self.gpus * self.milli

    @property
    def shares(self) -> bool:
        """Whether it needs a part of one GPU."""
        return 0 < self.milli < WHOLE


@dataclass(frozen=True, slots=True, order=True)
class Kind:
    """What nodes that are alike have: the model of the GPUs, how many, 1/1000 core, MiB."""

    model: str
    gpus: int
    cpu: int
    memory: int

    def may_run(self, pod: Pod) -> bool:
        """Whether the pod fits on an empty node of the kind."""
        return (
            pod.cpu <= self.cpu
            and pod.memory <= self.memory
            and pod.gpus <= self.gpus
            and (not pod.gpus or not pod.models or self.model in pod.models)
        )


@dataclass(frozen=True, slots=True)
class Cluster:
    """Nodes, in the order of the file. ``kind_of[n]``: index in ``kinds`` of the node's kind."""

    names: tuple[str, ...]
    kinds: tuple[Kind, ...]
    kind_of: np.ndarray

    @property
    def gpus(self) -> int:
        """GPUs in all."""
        return int(self.column("gpus").sum())

    def column(self, name: str) -> np.ndarray:
        """What each node has: ``cpu``, ``memory`` or ``gpus``; shape (nodes,)."""
        return np.array([getattr(kind, name) for kind in self.kinds])[self.kind_of]

    def counts(self) -> np.ndarray:
        """Nodes of each kind."""
        return np.bincount(self.kind_of, minlength=len(self.kinds))

    def every(self, step: int) -> Cluster:
        """A cut-out: each ``step``-th node."""
        return Cluster(self.names[::step], self.kinds, self.kind_of[::step])


@dataclass(frozen=True, slots=True)
class Arrivals:
    """Pods in the order in which they arrive. ``order[i]``: index in ``classes`` of the i-th."""

    classes: tuple[Pod, ...]
    order: np.ndarray

    @property
    def gpu_milli(self) -> np.ndarray:
        """1/1000 GPU of each pod; shape (pods,)."""
        return np.array([pod.gpu_milli for pod in self.classes])[self.order]

    def until(self, gpu_milli: int) -> Arrivals:
        """The first pods, as many as request at most so much."""
        count = int(np.searchsorted(np.cumsum(self.gpu_milli), gpu_milli, side="right"))
        return Arrivals(self.classes, self.order[:count])

    def counts(self) -> np.ndarray:
        """Pods of each class."""
        return np.bincount(self.order, minlength=len(self.classes))


def _rows(name: str) -> Iterator[dict[str, str]]:
    with gzip.open(DATA / f"{name}.csv.gz", "rt", encoding="utf-8", newline="") as file:
        yield from csv.DictReader(file)


@cache
def read_cluster() -> Cluster:
    """The nodes that have GPUs."""
    names, kinds = list[str](), list[Kind]()
    for row in _rows("nodes"):
        if row["gpus"] != "0":
            names.append(row["node"])
            cpu, memory = int(row["cpu_milli"]), int(row["memory_mib"])
            kinds.append(Kind(row["gpu_model"], int(row["gpus"]), cpu, memory))
    distinct = sorted(set(kinds))
    index = {kind: k for k, kind in enumerate(distinct)}
    return Cluster(tuple(names), tuple(distinct), np.array([index[kind] for kind in kinds]))


@cache
def read_list(name: str) -> Arrivals:
    """A list of pods in its own order."""
    pods = [
        Pod(
            int(row["cpu_milli"]),
            int(row["memory_mib"]),
            int(row["num_gpu"]),
            int(row["gpu_milli"]) if row["num_gpu"] != "0" else 0,
            tuple(sorted({model for model in row["gpu_spec"].split("|") if model})),
        )
        for row in _rows(f"pods_{name}")
    ]
    classes = sorted(set(pods))
    index = {pod: c for c, pod in enumerate(classes)}
    return Arrivals(tuple(classes), np.array([index[pod] for pod in pods]))


def arrivals(listed: Arrivals, gpus: int, seed: int, percent: int = ARRIVING_PERCENT) -> Arrivals:
    """A list shuffled, then pods drawn from it, until they request so much of a cluster's GPUs.

    That is how the published experiments make arrivals; their random numbers are not known.
    """
    random = np.random.default_rng(seed)
    order = listed.order[random.permutation(len(listed.order))]
    most = gpus * WHOLE * percent // 100
    found = Arrivals(listed.classes, order)
    while found.gpu_milli.sum() <= most:
        more = random.choice(listed.order, len(listed.order))
        found = Arrivals(listed.classes, np.concatenate([found.order, more]))
    return found.until(most)
