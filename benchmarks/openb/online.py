"""Pods that arrive one at a time, each placed by a rule at once and for good, or dropped if none fits it."""

from __future__ import annotations

from typing import Protocol

import numpy as np

from benchmarks.openb.reserve import Reserve
from benchmarks.openb.rules import without_models
from benchmarks.openb.space import Placed, Space
from benchmarks.openb.trace import Arrivals, Cluster, Pod

NOWHERE = np.inf


class Rule(Protocol):
    """Chooses a node, and of it a GPU. What it says of a node depends only on what is free there."""

    def costs(self, space: Space, pod: Pod, nodes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """What placing a pod costs on each of these nodes, and the GPU for one that shares; each has room."""
        ...


def place_each(
    cluster: Cluster, pods: Arrivals, rule: Rule, listed: Arrivals | None = None
) -> list[Placed]:
    """Each pod on the node where it costs least, of equal ones the first.

    ``listed``: from which the pods were drawn, if room is to be kept for those of it without GPUs.
    """
    space = Space(cluster)
    reserve = Reserve(listed, space, int(pods.gpu_milli.sum())) if listed is not None else None
    boards = {shape: _Board(space, rule, shape) for shape in map(without_models, pods.classes)}
    allowed = [space.allowed(pod) for pod in pods.classes]
    changed = np.zeros(len(cluster.names), dtype=np.int64)
    placed = list[Placed]()
    for i, c in enumerate(pods.order):
        pod = pods.classes[c]
        board = boards[without_models(pod)]
        board.refresh(changed, i)
        costs = np.where(allowed[c], board.costs, NOWHERE)
        if reserve is not None:
            reserve.arrived(pod)
            if pod.gpus:
                able = np.flatnonzero(costs < NOWHERE)
                costs[able[~reserve.may_take(pod, able)]] = NOWHERE
        node = int(costs.argmin())
        if costs[node] == NOWHERE:
            continue
        gpus = (int(board.gpus[node]),) if pod.shares else whole_gpus(space, node, pod)
        space.place(pod, node, gpus)
        changed[node] = i + 1
        if reserve is not None:
            reserve.changed(node)
        placed.append(Placed(i, node, gpus))
    return placed


def whole_gpus(space: Space, node: int, pod: Pod) -> tuple[int, ...]:
    """The first whole GPUs that are free."""
    free = np.flatnonzero(space.gpu[node] >= pod.milli) if pod.gpus else np.array([], dtype=int)
    return tuple(int(gpu) for gpu in free[: pod.gpus])


class _Board:
    """What a pod costs on each node, renewed for nodes that changed since it was looked at."""

    def __init__(self, space: Space, rule: Rule, pod: Pod) -> None:
        self.space, self.rule, self.pod = space, rule, pod
        self.costs = np.full(len(space.cpu), NOWHERE)
        self.gpus = np.zeros(len(space.cpu), dtype=np.int64)
        self.seen = -1

    def refresh(self, changed: np.ndarray, now: int) -> None:
        """``changed``: at which arrival each node changed last."""
        nodes = np.flatnonzero(changed > self.seen)
        self.seen = now
        if len(nodes):
            able = nodes[self.space.fits(self.pod, nodes)]
            self.costs[nodes] = NOWHERE
            if len(able):
                costs, self.gpus[able] = self.rule.costs(self.space, self.pod, able)
                # Costs are rounded, so that equal ones are equal.
                self.costs[able] = np.round(costs, 6)
