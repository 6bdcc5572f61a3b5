"""Queue documents to Queues: names of parents and levels to indices. Faults are reported at their places."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace

from models.documents.base import Path, made, suggestion
from models.documents.cluster import NODE_LEVEL
from models.documents.queue import AmountDocument, CellDocument, QueueDocument
from models.hardware import slug
from models.instance.queue import Amount, Cell, Pin, Queue
from models.queues.pins import place_of
from models.units import shown
from planner.read.compact_cluster import MergedCluster
from planner.read.findings import Remarks
from planner.read.validation import Entry

QueueEntry = Entry[QueueDocument]

GONE = "pins {}, which is not in the cluster; nothing is kept for it there"
GONE_HINT = "it counts again as soon as the node, or a node of the domain, is back"


def read_queues(
    entries: Sequence[QueueEntry],
    merged: MergedCluster,
    remarks: Remarks,
    *,
    observed: bool = False,
) -> tuple[Queue, ...]:
    """Every queue, by name. A parent that is unknown, or below the queue itself, is reported.

    ``observed``: nodes come and go, so that a pinned place which is not there is a remark.
    """
    by_name: dict[str, QueueEntry] = {}
    for entry in entries:
        name = entry.document.metadata.name
        entry.report_errors(entry.document.field_errors())
        if name in by_name:
            other = by_name[name].source.name
            what = f"two queues are named {shown(name)}; the other is in {other}"
            entry.fault(("metadata", "name"), what, "rename one")
        by_name.setdefault(name, entry)
        _check_levels(entry, merged)
    order = {name: i for i, name in enumerate(sorted(by_name))}
    tops = _check_parents(by_name)
    levels = {level.name: i for i, level in enumerate(merged.cluster.levels)}
    levels[NODE_LEVEL] = merged.cluster.node_level
    documents = {name: by_name[name].document for name in order}
    queues = tuple(_queue(documents[name], {} if name in tops else order, levels) for name in order)
    if not any(queue.pins for queue in queues):
        return queues
    places = _Places(merged, remarks, observed=observed)
    kept = {q: places.pins(by_name[queue.name], queue) for q, queue in enumerate(queues)}
    places.check_owners(queues, by_name)
    return tuple(replace(queue, pins=kept[q]) for q, queue in enumerate(queues))


class _Places:
    def __init__(self, merged: MergedCluster, remarks: Remarks, *, observed: bool) -> None:
        self._cluster = merged.cluster
        self._remarks = remarks
        self._observed = observed
        self._numbers = {node.name: n for n, node in enumerate(merged.cluster.nodes)}
        self._found: list[tuple[str, Path, frozenset[int]]] = []

    def pins(self, entry: QueueEntry, queue: Queue) -> tuple[Pin, ...]:
        """The pinned cells of a queue with what there is of them."""
        kept = []
        cells = [(i, cell) for i, cell in enumerate(entry.document.spec.cells) if cell.pinned]
        for (i, cell), pin in zip(cells, queue.pins, strict=True):
            path: Path = ("spec", "cells", i)
            if next(cell.field_errors(), None) is not None:
                continue
            there = self._there(entry, path, pin, cell)
            if there.domain is not None or there.nodes:
                kept.append(there)
                place = place_of(self._cluster, there)
                self._found.append((queue.name, path, place))
        return tuple(kept)

    def _there(self, entry: QueueEntry, path: Path, pin: Pin, cell: CellDocument) -> Pin:
        if pin.domain is not None:
            if pin.level is None:  # reported as unknown
                return Pin()
            if not place_of(self._cluster, pin):
                at = f"domain {shown(pin.domain)} of level {shown(cell.level or '')}"
                self._missing(entry, (*path, "domain"), at, self._domain_hint(pin))
                return Pin(pin.level)
            return pin
        there = tuple(name for name in pin.nodes if name in self._numbers)
        gone = next((name for name in pin.nodes if name not in self._numbers), None)
        if gone is not None:
            hint = suggestion(gone, self._numbers, "nodes")
            self._missing(entry, (*path, "nodes"), f"node {shown(gone)}", hint)
        return replace(pin, nodes=there)

    def _missing(self, entry: QueueEntry, path: Path, what: str, hint: str) -> None:
        if self._observed:
            self._remarks.add(f"queue {entry.document.metadata.name}", GONE.format(what), GONE_HINT)
        else:
            entry.fault(path, f"unknown {what}", hint)

    def _domain_hint(self, pin: Pin) -> str:
        """The level that has such a domain, or what the domains of its level are called."""
        cluster = self._cluster
        for number, level in enumerate(cluster.levels):
            if place_of(cluster, replace(pin, level=number)):
                return f"it is a domain of level {level.name}"
        assert pin.level is not None, "the level is known"
        nodes = (one.nodes[0] for one in cluster.domains[pin.level])
        named = [n for n in nodes if None not in cluster.nodes[n].domains[: pin.level + 1]]
        return suggestion(
            str(pin.domain), (cluster.domain_name(pin.level, n) for n in named), "its domains"
        )

    def check_owners(self, queues: Sequence[Queue], by_name: Mapping[str, QueueEntry]) -> None:
        """Report places that a queue pins twice, or two queues of which none is above the other."""
        above = {queue.name: set(_line(queues, q)) for q, queue in enumerate(queues)}
        owners: dict[int, list[str]] = {}
        for name, path, place in self._found:
            for n in sorted(place):
                own = owners.setdefault(n, [])
                related = above[name].union(one for one in own if name in above[one]) - {name}
                other = next((one for one in own if one not in related), None)
                if other is not None:
                    node = shown(self._cluster.nodes[n].name)
                    what = f"queue {shown(other)} pins node {node}"
                    hint = "a node is pinned by one queue, and by those above it"
                    if other == name:
                        what = f"node {node} is pinned twice"
                        hint = "leave it out of one of the cells"
                    by_name[name].fault(path, what, hint)
                    break
                own.append(name)


def _line(queues: Sequence[Queue], q: int) -> Iterator[str]:
    at: int | None = q
    while at is not None:
        yield queues[at].name
        at = queues[at].parent


def _check_levels(entry: QueueEntry, merged: MergedCluster) -> None:
    levels = [*(level.name for level in merged.cluster.levels), NODE_LEVEL]
    for path, level in entry.document.level_names():
        if level not in levels:
            entry.fault(path, f"unknown level {shown(level)}", suggestion(level, levels, "levels"))


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
        cells=tuple(
            Cell(
                cell.count or 1,
                None if cell.level is None else levels.get(cell.level),
                cell.gpus,
                None if cell.model is None else slug(cell.model),
            )
            for cell in spec.cells
            if not cell.pinned
        ),
        pins=tuple(
            Pin(
                None if cell.level is None else levels.get(cell.level),
                cell.domain,
                () if next(cell.field_errors(), None) is not None else cell.to_nodes(),
            )
            for cell in spec.cells
            if cell.pinned
        ),
    )


def _amount(document: AmountDocument) -> Amount:
    """In thousandths of a GPU, until it is known in what all GPUs are counted."""
    models = sorted((slug(name), round(1000 * gpus)) for name, gpus in document.models.items())
    return Amount(None if document.gpus is None else round(1000 * document.gpus), tuple(models))
