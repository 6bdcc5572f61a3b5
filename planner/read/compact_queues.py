"""Queue documents to Queues: names of parents and levels to indices. Faults are reported at their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.documents.base import suggestion
from models.documents.cluster import NODE_LEVEL
from models.documents.queue import AmountDocument, QueueDocument
from models.hardware import slug
from models.queue import Amount, Cell, Queue
from models.units import shown
from planner.read.compact_cluster import MergedCluster
from planner.read.validation import Entry

QueueEntry = Entry[QueueDocument]


def read_queues(entries: Sequence[QueueEntry], merged: MergedCluster) -> tuple[Queue, ...]:
    """Every queue, by name. A parent that is unknown, or below the queue itself, is reported."""
    by_name: dict[str, QueueEntry] = {}
    for entry in entries:
        name = entry.document.metadata.name
        entry.report_errors(entry.document.field_errors())
        if name in by_name:
            what = (
                f"two queues are named {shown(name)}; the other is in {by_name[name].source.name}"
            )
            entry.fault(("metadata", "name"), what, "rename one")
        by_name.setdefault(name, entry)
        _check_levels(entry, merged)
    order = {name: i for i, name in enumerate(sorted(by_name))}
    tops = _check_parents(by_name)
    levels = {level.name: i for i, level in enumerate(merged.cluster.levels)}
    levels[NODE_LEVEL] = merged.cluster.node_level
    documents = {name: by_name[name].document for name in order}
    return tuple(_queue(documents[name], {} if name in tops else order, levels) for name in order)


def _check_levels(entry: QueueEntry, merged: MergedCluster) -> None:
    levels = [*(level.name for level in merged.cluster.levels), NODE_LEVEL]
    for path, level in entry.document.level_names():
        if merged.levels_known and level not in levels:
            hint = suggestion(level, levels, "levels")
            entry.fault(path, f"unknown level {shown(level)}", hint)


def _check_parents(by_name: Mapping[str, QueueEntry]) -> set[str]:
    """Report unknown parents, and each circle of parents once.

    Returns the queues to read without a parent: one of each circle, since walks up the tree end at its top.
    """
    circles: set[str] = set()
    parents = {name: entry.document.spec.parent for name, entry in by_name.items()}
    done: set[str] = set()
    for name in sorted(parents):
        path: list[str] = []
        at: str | None = name
        while at is not None and at in parents and at not in done:
            done.add(at)
            path.append(at)
            at = parents[at]
        if at in path:
            what = f"queue {shown(str(at))} is below itself"
            by_name[str(at)].fault(("spec", "parent"), what, "a tree has no circles")
            circles.add(str(at))
        elif at is not None and at not in parents:
            hint = suggestion(at, parents, "queues")
            by_name[path[-1]].fault(("spec", "parent"), f"unknown queue {shown(at)}", hint)
    return circles


def _queue(document: QueueDocument, order: Mapping[str, int], levels: Mapping[str, int]) -> Queue:
    spec = document.spec
    return Queue(
        name=document.metadata.name,
        parent=None if spec.parent is None else order.get(spec.parent),
        guarantee=_amount(spec.guarantee),
        limit=_amount(spec.limit),
        lending_limit=_amount(spec.lending_limit),
        non_preemptible_limit=_amount(spec.non_preemptible_limit),
        borrowing=spec.borrowing,
        reclaim=spec.reclaim,
        weight=spec.weight,
        strict=spec.order == "strict",
        min_run_time_s=spec.min_run_time,
        cells=tuple(
            Cell(
                cell.count,
                None if cell.level is None else levels.get(cell.level),
                cell.gpus,
                None if cell.model is None else slug(cell.model),
            )
            for cell in spec.cells
        ),
    )


def _amount(document: AmountDocument) -> Amount:
    models = sorted((slug(name), gpus) for name, gpus in document.models.items())
    return Amount(document.gpus, tuple(models))
