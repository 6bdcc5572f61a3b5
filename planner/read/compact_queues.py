"""Queue documents to Queues: names of parents to indices. Faults are reported at their places."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from models.documents.base import made, suggestion
from models.documents.queue import AmountDocument, QueueDocument
from models.hardware import slug
from models.instance.queue import Amount, Queue
from models.units import shown
from planner.read.validation import Entry

QueueEntry = Entry[QueueDocument]


def read_queues(entries: Sequence[QueueEntry]) -> tuple[Queue, ...]:
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
    order = {name: i for i, name in enumerate(sorted(by_name))}
    tops = _check_parents(by_name)
    documents = {name: by_name[name].document for name in order}
    return tuple(_queue(documents[name], {} if name in tops else order) for name in order)


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


def _queue(document: QueueDocument, order: Mapping[str, int]) -> Queue:
    spec = document.spec
    return made(
        Queue,
        document.metadata,
        spec,
        parent=None if spec.parent is None else order.get(spec.parent),
        guarantee=_amount(spec.guarantee),
        limit=_amount(spec.limit),
        lending_limit=_amount(spec.lending_limit),
        non_preemptible_limit=_amount(spec.non_preemptible_limit),
        strict=spec.order == "strict",
    )


def _amount(document: AmountDocument) -> Amount:
    """In thousandths of a GPU, until it is known in what all GPUs are counted."""
    models = sorted((slug(name), round(1000 * gpus)) for name, gpus in document.models.items())
    return Amount(None if document.gpus is None else round(1000 * document.gpus), tuple(models))
