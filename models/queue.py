"""Queues: what parts of a cluster are promised to whom, in a tree.

Levels are indices into Cluster.levels, ``len(levels)`` meaning ``node``.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Cell:
    """``count`` domains of a level, or, without a level, ``count`` times ``gpus`` GPUs of one server.

    ``model``: the GPU model of its nodes; None for the one that most GPUs of the cluster have.
    """

    count: int
    level: int | None = None
    gpus: int | None = None
    model: str | None = None


@dataclass(frozen=True, slots=True)
class Pin:
    """A pinned cell: all nodes of one domain, by its path such as ``b1/r2``, or these nodes, sorted.

    ``lax``: others may come all the same, as if it were not pinned; who gives way there stays.
    """

    level: int | None = None
    domain: str | None = None
    nodes: tuple[str, ...] = ()
    lax: bool = False


@dataclass(frozen=True, slots=True)
class Amount:
    """GPUs in all (None: not said), and by GPU model, sorted by its slug."""

    gpus: int | None = None
    models: tuple[tuple[str, int], ...] = ()


@dataclass(frozen=True, slots=True)
class Queue:
    """``parent``: index of the queue that it is a part of. ``guarantee``: GPUs it may always have.

    ``limit``: the most that gangs of it and of its children may hold; without ``borrowing`` that is the
    guarantee. ``lending_limit``: the most of its guarantee that others may hold.
    ``non_preemptible_limit``: the most that gangs hold that are not preemptible. ``reclaim``: its gangs may
    stop preemptible gangs of queues above their guarantee, whatever their priority. ``weight``: next to other
    queues of its parent. ``cells``: domains and parts of servers that stay reachable for it. ``pins``: places
    to which no others come that cannot be stopped.
    ``strict``: no gang that names it starts while an earlier one waits.
    ``min_run_time_s``: of gangs that state none, None for that of the queue above or the policy.
    """

    name: str
    parent: int | None = None
    guarantee: Amount = Amount()
    limit: Amount = Amount()
    lending_limit: Amount = Amount()
    non_preemptible_limit: Amount = Amount()
    borrowing: bool = True
    reclaim: bool = True
    weight: int = 1
    strict: bool = False
    cells: tuple[Cell, ...] = ()
    pins: tuple[Pin, ...] = ()
    min_run_time_s: int | None = None
