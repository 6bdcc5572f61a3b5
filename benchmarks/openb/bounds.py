"""What no plan of a batch can exceed: a linear program, and its prices as a proof in whole numbers.

By kind of node it counts pods of each class, and GPUs by the sizes of the parts on them. Cores and memory
are those of all nodes of a kind together; parts lie on GPUs of 1000, as in cutting stock (Gilmore and
Gomory, 1961): sets of parts are added as long as one is worth more than a GPU costs.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from ortools.linear_solver import pywraplp

from benchmarks.openb.trace import WHOLE, Arrivals, Cluster, Pod

SCALE = 10**6
"""Prices are whole numbers of so many a 1/1000 GPU."""

CPU, MEMORY = 1000, 1024
"""1/1000 cores and MiB in a unit of the linear program: its numbers are near one, as engines need them."""


@dataclass(frozen=True, slots=True)
class Prices:
    """What 1/1000 core, MiB, and a part of each size cost on nodes of each kind, in 1/SCALE of 1/1000 GPU."""

    cpu: Sequence[int]
    memory: Sequence[int]
    parts: Sequence[dict[int, int]]


@dataclass(frozen=True, slots=True)
class Bound:
    """``gpu_milli``: the most 1/1000 GPU. ``accepted``: pods of each class at the optimum, in parts, too."""

    gpu_milli: int
    accepted: np.ndarray


def bound_of(cluster: Cluster, pods: Arrivals) -> Bound:
    """Of plans that place all pods without GPUs."""
    master = _Master(cluster, pods)
    while True:
        prices = master.solved()
        sets = {best_set(parts)[1] for parts in prices.parts}
        if not master.add(sets):
            break
    return Bound(proven(cluster, pods, prices), master.accepted())


def proven(cluster: Cluster, pods: Arrivals, prices: Prices) -> int:
    """The most 1/1000 GPU, by these prices, whatever they are: by weak duality.

    What the pods that a plan places pay for cores, memory and GPUs is at most what all of them cost. So the
    plan is at most that and what each pod is worth above what it pays where it pays least.
    """
    counts, whole = cluster.counts().tolist(), [best_set(parts)[0] for parts in prices.parts]
    most = sum(
        n * (prices.cpu[k] * kind.cpu + prices.memory[k] * kind.memory + whole[k] * kind.gpus)
        for k, (n, kind) in enumerate(zip(counts, cluster.kinds, strict=True))
    )
    for pod, count in zip(pods.classes, pods.counts().tolist(), strict=True):
        pays = [
            prices.cpu[k] * pod.cpu
            + prices.memory[k] * pod.memory
            + (prices.parts[k][pod.milli] if pod.shares else pod.gpus * whole[k])
            for k, kind in enumerate(cluster.kinds)
            if kind.may_run(pod)
        ]
        gain = max((SCALE * pod.gpu_milli - paid for paid in pays), default=0)
        most += count * (max(0, gain) if pod.gpus else gain)
    return most // SCALE


Set = tuple[tuple[int, int], ...]
"""Sizes of the parts on a GPU, and how many of each, sorted."""


def best_set(prices: dict[int, int]) -> tuple[int, Set]:
    """The parts on one GPU that cost most together, and what they cost."""
    best, last = [0] * (WHOLE + 1), [0] * (WHOLE + 1)
    for room in range(1, WHOLE + 1):
        best[room] = best[room - 1]
        for size, price in prices.items():
            if size <= room and best[room - size] + price > best[room]:
                best[room], last[room] = best[room - size] + price, size
    found, room = dict[int, int](), WHOLE
    while room:
        size = last[room]
        found[size] = found.get(size, 0) + bool(size)
        room -= size or 1
    found.pop(0, None)
    return best[WHOLE], tuple(sorted(found.items()))


class _Master:
    """The linear program over the sets that are known."""

    def __init__(self, cluster: Cluster, pods: Arrivals) -> None:
        self.cluster, self.pods = cluster, pods
        self.solver = pywraplp.Solver.CreateSolver("CLP")
        self.solver.Objective().SetMaximization()
        self.sizes = sorted({pod.milli for pod in pods.classes if pod.shares})
        nodes = list(zip(cluster.counts().tolist(), cluster.kinds, strict=True))
        self.cpu = [self._row(n * kind.cpu / CPU) for n, kind in nodes]
        self.memory = [self._row(n * kind.memory / MEMORY) for n, kind in nodes]
        self.gpus = [self._row(n * kind.gpus) for n, kind in nodes]
        self.parts = [{size: self._row(0) for size in self.sizes} for _ in nodes]
        self.of_class = [
            self._pods(pod, n) for pod, n in zip(pods.classes, pods.counts(), strict=True)
        ]
        self.known = set[Set]()
        self.add({((size, WHOLE // size),) for size in self.sizes})

    def _row(self, most: float, least: float | None = None) -> pywraplp.Constraint:
        return self.solver.Constraint(-self.solver.infinity() if least is None else least, most)

    def _pods(self, pod: Pod, count: int) -> list[pywraplp.Variable]:
        """Pods of a class on nodes of each kind that may run it."""
        row, found = self._row(int(count), 0 if pod.gpus else int(count)), []
        for k, kind in enumerate(self.cluster.kinds):
            if not count or not kind.may_run(pod):
                continue
            variable = self.solver.NumVar(0, self.solver.infinity(), "")
            row.SetCoefficient(variable, 1)
            self.cpu[k].SetCoefficient(variable, pod.cpu / CPU)
            self.memory[k].SetCoefficient(variable, pod.memory / MEMORY)
            if pod.shares:
                self.parts[k][pod.milli].SetCoefficient(variable, 1)
            else:
                self.gpus[k].SetCoefficient(variable, pod.gpus)
            self.solver.Objective().SetCoefficient(variable, pod.gpu_milli / WHOLE)
            found.append(variable)
        return found

    def add(self, sets: set[Set]) -> bool:
        """GPUs with these parts, on nodes of every kind. Whether any was not known."""
        new = sorted(sets - self.known - {()})
        for one in new:
            for gpus, parts in zip(self.gpus, self.parts, strict=True):
                variable = self.solver.NumVar(0, self.solver.infinity(), "")
                gpus.SetCoefficient(variable, 1)
                for size, count in one:
                    parts[size].SetCoefficient(variable, -count)
        self.known.update(new)
        return bool(new)

    def solved(self) -> Prices:
        """The prices at the optimum."""
        status = self.solver.Solve()
        if status != pywraplp.Solver.OPTIMAL:
            raise ValueError(f"no optimum, status {status}: do the pods without GPUs fit?")

        def price(row: pywraplp.Constraint, unit: int = 1) -> int:
            return max(0, round(row.dual_value() * WHOLE * SCALE / unit))

        parts = [{size: price(row) for size, row in rows.items()} for rows in self.parts]
        cpu = [price(row, CPU) for row in self.cpu]
        return Prices(cpu, [price(row, MEMORY) for row in self.memory], parts)

    def accepted(self) -> np.ndarray:
        """Pods of each class that are placed at the optimum; shape (classes,)."""
        return np.array([sum(v.solution_value() for v in mine) for mine in self.of_class])
