"""Queues: what parts of a cluster are promised to whom, in a tree, and the figures that follow from them.

Levels are indices into Cluster.levels, ``len(levels)`` meaning ``node``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from fractions import Fraction
from functools import cached_property
from typing import NamedTuple

Gpu = str | None
"""Slug of a GPU model; None for all models together."""

RESOURCES = ("cpu", "memory")
"""Counted in fair shares besides GPUs."""

UNITS = 10**6
"""A fair share of 1."""


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
    """What a ``QueueSpec`` says. ``parent``: index of the queue that it is a part of.

    ``cells``: those of any place. ``pins``: places to which no others come that cannot be stopped.
    ``strict``: no gang that names it starts while an earlier one waits.
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


AMOUNTS = ("guarantee", "limit", "lending_limit", "non_preemptible_limit")
"""The fields of a queue that are amounts."""


def path_of(queues: Sequence[Queue], q: int | None) -> tuple[int, ...]:
    """The queue and all above it, itself first."""
    found = []
    while q is not None:
        found.append(q)
        q = queues[q].parent
    return tuple(found)


class Holder(NamedTuple):
    """Gangs that hold GPUs. ``queue``: that they name, None for none; ``firm``, ``managed``: see ``Gang``."""

    queue: int | None
    firm: bool
    managed: bool


@dataclass
class QueueUse:
    """GPUs by holder and GPU model.

    ``beyond``: of managed pods, firm or not, those that are not among the healthy GPUs of usable nodes.
    ``fair``: by queue, what its pods count in fair shares.
    """

    held: Counter[tuple[Holder, Gpu]] = field(default_factory=Counter)
    beyond: Counter[tuple[bool, Gpu]] = field(default_factory=Counter)
    fair: Counter[int] = field(default_factory=Counter)

    def copy(self) -> QueueUse:
        return QueueUse(Counter(self.held), Counter(self.beyond), Counter(self.fair))


@dataclass(frozen=True)
class QueueShares:
    """The queues of an input; every sequence has one entry a queue.

    ``paths``: the queue and all above it, itself first. ``guarantees``, ``before``: by GPU model, what a
    queue is promised, and what gangs in it hold before the plan; a model without guarantees is not in the
    first. ``kept``: what a queue does not lend, of the models of which any does not. ``limits``: what they
    may hold if nothing runs before, None for any number; ``most``: after the plan; ``most_taken``: with what
    queues below keep to themselves. ``firm_limits``, ``most_firm``: of firm gangs alone, of the models of
    which a queue limits them. ``healthy``: GPUs of usable nodes.
    ``shortfall``, ``kept_short``: how many GPUs that are promised, or kept, there are not, before the plan.
    ``within``: keys of the gangs that are within the guarantee of a queue. ``parts``: f of the queues that
    gangs name. ``totals``: GPUs and RESOURCES of all selected nodes.
    """

    names: tuple[str, ...]
    paths: tuple[tuple[int, ...], ...]
    guarantees: Mapping[Gpu, tuple[int, ...]]
    kept: Mapping[Gpu, tuple[int, ...]]
    limits: Mapping[Gpu, tuple[int | None, ...]]
    most: Mapping[Gpu, tuple[int | None, ...]]
    most_taken: Mapping[Gpu, tuple[int | None, ...]]
    firm_limits: Mapping[Gpu, tuple[int | None, ...]]
    most_firm: Mapping[Gpu, tuple[int | None, ...]]
    before: Mapping[Gpu, tuple[int, ...]]
    reclaim: tuple[bool, ...]
    healthy: Mapping[Gpu, int]
    shortfall: Mapping[Gpu, int]
    kept_short: Mapping[Gpu, int]
    within: frozenset[tuple[str, str]]
    parts: Mapping[int, Fraction]
    totals: tuple[int, ...]
    models: tuple[str, ...]

    @property
    def gpus(self) -> tuple[Gpu, ...]:
        """All models together, and each that is counted."""
        return (None, *self.models)

    def number(self, name: str | None) -> int | None:
        """The index of a queue; None without a name or a document."""
        return self._numbers.get(name)

    @cached_property
    def _numbers(self) -> dict[str | None, int]:
        return {name: i for i, name in enumerate(self.names)}

    def path(self, queue: int | None) -> tuple[int, ...]:
        """The queues that a gang is in which names this one."""
        return () if queue is None else self.paths[queue]

    def guarantee(self, queue: int, gpu: Gpu = None) -> int:
        """g(q), or g(q, m)."""
        own = self.guarantees.get(gpu)
        return 0 if own is None else own[queue]

    def unlimited(self) -> QueueShares:
        """The same without limits and guarantees; who may reclaim from whom stays."""
        most = {gpu: (None,) * len(self.names) for gpu in self.most}
        free = replace(self, limits=most, most=most, most_taken={}, healthy={})
        return replace(free, firm_limits={}, most_firm={}, kept={}, kept_short={})

    def fairness(self, rank: int, fair: Mapping[int, int]) -> int:
        """The sum of the ``rank`` smallest x of the queues that gangs name."""
        return sum(sorted(fair.get(queue, 0) for queue in self.parts)[:rank])
