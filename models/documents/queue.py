"""The Queue document: what a part of the users of a cluster is promised, and the most they may hold."""

from collections.abc import Iterator
from typing import Annotated, Literal

from models.documents.base import (
    MAX_GPUS,
    ApiVersion,
    Document,
    Duration,
    FieldError,
    GpuAmount,
    Many,
    Mapped,
    Path,
    Title,
    omitted,
    whole,
    within,
)
from models.documents.cluster import NODE_LEVEL, Hosts
from models.documents.gang import MAX_GPUS_A_POD, LevelName
from models.hardware import slug
from models.host_ranges import MAX_NAMES, host_count, hosts
from models.units import shown

MAX_CELLS = 100
"""Most entries of ``cells``."""

MAX_WEIGHT = 1_000_000


class AmountDocument(Document):
    """GPUs in all, and of single GPU models."""

    gpus: GpuAmount | None = omitted(None, "GPUs of all models together; absent: not said")
    models: Mapped[Title, GpuAmount] = omitted({}, "GPUs by GPU model")

    def field_errors(self) -> Iterator[FieldError]:
        """Two spellings of one GPU model; paths start at the amount."""
        seen: dict[str, str] = {}
        for name in self.models:
            if slug(name) in seen:
                what = f"{shown(name)} and {shown(seen[slug(name)])} are one GPU model"
                yield FieldError(("models", name), what, "keep one of them", at_key=True)
            seen[slug(name)] = name


class CellDocument(Document):
    """So many domains of a level, or so many times some GPUs of one server; or pinned: these very nodes."""

    count: Annotated[int, whole(1, MAX_GPUS)] | None = omitted(None)
    """How many; absent where the cell is pinned, which is one place"""
    level: LevelName | None = omitted()
    domain: Title | None = omitted(None)
    """The very domain of `level`, by its whole path such as b1/r2: the cell is pinned"""
    nodes: Many[Hosts] = omitted((), "The very nodes, names or host ranges: the cell is pinned")
    gpus: Annotated[int, whole(1, MAX_GPUS_A_POD)] | None = omitted(None)
    """GPUs of one server; in place of a level"""
    model: Title | None = omitted(None)
    """GPU model of its nodes; absent: the one that most GPUs of the cluster have"""

    @property
    def pinned(self) -> bool:
        """Whether it is a place, not any place of a kind."""
        return self.domain is not None or bool(self.nodes)

    def to_nodes(self) -> tuple[str, ...]:
        """The names of its ``nodes``, sorted."""
        return tuple(sorted({name for pattern in self.nodes for name in hosts(pattern)}))

    def field_errors(self) -> Iterator[FieldError]:
        """Both sizes, or none; paths start at the cell."""
        if self.pinned:
            yield from self._pin_errors()
        elif self.count is None:
            hint = "write how many, such as {count: 4, level: rack}; or pin it with `domain` or `nodes`"
            yield FieldError((), "missing field 'count'", hint)
        elif (self.level is None) == (self.gpus is None):
            what = "neither `level` nor `gpus`" if self.level is None else "both `level` and `gpus`"
            hint = "write {count: 4, level: rack}, or {count: 8, gpus: 1} for GPUs of one server"
            yield FieldError((), what, hint)

    def _pin_errors(self) -> Iterator[FieldError]:
        """What a pinned cell does not say, or says otherwise."""
        hint = "write {level: rack, domain: b1/r2}, or {nodes: ['gpu-[01-04]']}, and nothing else"
        if self.domain is not None and self.nodes:
            yield FieldError((), "both `domain` and `nodes`", hint)
            return
        stated = {"count": self.count, "gpus": self.gpus, "model": self.model}
        if self.nodes:
            stated["level"] = self.level
        elif self.level in (None, NODE_LEVEL):
            yield FieldError((), "`domain` without the `level` that it is of", hint)
        for name, value in stated.items():
            if value is not None:
                yield FieldError((name,), f"{name} of a pinned cell, which is one place", hint)
        if (names := sum(map(host_count, self.nodes))) > MAX_NAMES:
            what = f"{names:,} nodes in one cell"
            yield FieldError(("nodes",), what, f"the most is {MAX_NAMES:,}")


class QueueMetadata(Document):
    """Name of a queue."""

    name: Title


class QueueSpec(Document):
    """What it is promised, and the most that it may hold."""

    parent: Title | None = omitted(None, "The queue that it is a part of")
    guarantee: AmountDocument = omitted(AmountDocument.model_construct())
    """GPUs that its gangs may always have"""
    limit: AmountDocument = omitted(AmountDocument.model_construct())
    """Most GPUs that its gangs, and those of queues below it, hold together"""
    lending_limit: AmountDocument = omitted(AmountDocument.model_construct())
    """Most GPUs of its guarantee that others may hold, preemptible gangs too; absent: all"""
    non_preemptible_limit: AmountDocument = omitted(AmountDocument.model_construct())
    """Most GPUs that its gangs without `preemptible`, also of queues below it, hold"""
    borrowing: bool = True
    """false: it never holds more than its guarantee"""
    reclaim: bool = True
    """Within its guarantee its gangs may stop preemptible gangs of queues that hold more than theirs,
    whatever their priority"""
    weight: Annotated[int, whole(1, MAX_WEIGHT)] = 1
    """Of its fair share, next to other queues of its parent"""
    order: Literal["strict", "bestEffort"] = omitted("bestEffort")
    """strict: no gang that names it starts while an earlier one waits that could ever start; bestEffort: it
    may"""
    min_run_time_s: Duration | None = omitted(None, alias="minRunTime")
    """`minRunTime` of gangs that state none; absent: that of the queue above, else of the policy"""
    cells: Many[CellDocument] = omitted((), max_length=MAX_CELLS)
    """Domains and parts of servers that stay reachable for it, whatever others run"""


class QueueDocument(Document):
    """A queue: gangs name it in `queue`."""

    api_version: ApiVersion
    kind: Literal["Queue"]
    metadata: QueueMetadata
    spec: QueueSpec = QueueSpec.model_construct()

    def level_names(self) -> Iterator[tuple[Path, str]]:
        """Every level that it names, with its path."""
        for i, cell in enumerate(self.spec.cells):
            if cell.level is not None:
                yield ("spec", "cells", i, "level"), cell.level

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the queue; paths start at its top."""
        amounts = {
            "guarantee": self.spec.guarantee,
            "limit": self.spec.limit,
            "lendingLimit": self.spec.lending_limit,
            "nonPreemptibleLimit": self.spec.non_preemptible_limit,
        }
        for name, amount in amounts.items():
            yield from within(("spec", name), amount.field_errors())
        for i, cell in enumerate(self.spec.cells):
            yield from within(("spec", "cells", i), cell.field_errors())
