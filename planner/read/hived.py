"""HiveD's configuration file: a Queue with cells for each virtual cluster.

``physicalCluster`` says what cells are made of and which nodes they have, ``virtualClusters`` what each is
promised. Pinned cells of whole nodes are pinned to these. What has no counterpart here is a remark.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from pydantic import ValidationError

from models.documents.base import MAX_GPUS, document_tree
from models.documents.cluster import NODE_LEVEL
from models.documents.gang import MAX_GPUS_A_POD
from models.documents.queue import MAX_CELLS, QueueDocument
from models.hardware import slug
from models.instance.cluster import Cluster
from models.units import plural, shown
from planner.read.findings import Findings, Remarks
from planner.read.kube.lookup import Tree, flag, mapping, objects, text, whole
from planner.read.sources import Source
from planner.read.validation import Entry

MAX_CLUSTERS = 1_000
"""Most virtual clusters that are read."""

MAX_HEIGHT = 32
"""Most cell types inside one another."""

UNKNOWN_TYPE = "has cells of a type that does not end in a device; they are left out"
NO_NUMBER = "has cells without a number; they are left out"
NO_PIN = "names a pinned cell that does not exist; it is left out"
PINNED = "has pinned cells of {}; as many are promised, wherever they are"
PARTS = "parts of a node"
UNKNOWN_NODES = "nodes that are not in the input"
PINNED_BEFORE = "nodes that are pinned already"
NO_NODES = "has cells of {}, of which no node is in the input; they are left out"
NO_LEVEL = "has cells of {}, {} each, and no level has such domains; they count as nodes, wherever"
UNEVEN = "has cells of {}; the domains of level {} differ in size, and the smallest is promised"
TOO_MANY_CELLS = f"has cells of more than {MAX_CELLS} kinds; the rest is left out"
TOO_MANY = f"is one of more than {MAX_CLUSTERS:,} virtual clusters; it is left out"
TWICE = "has a name that another queue has; it is left out"
BAD_NAME = "has a name that no queue can have; it is left out"


def virtual_clusters(trees: Sequence[tuple[Source, Tree]]) -> list[str]:
    """The names of the virtual clusters that are read, of all files."""
    names = (str(name) for _, tree in trees for name in mapping(tree, "virtualClusters"))
    return list(dict.fromkeys(names))[:MAX_CLUSTERS]


def pinned_cells(trees: Sequence[tuple[Source, Tree]]) -> dict[str, frozenset[str]]:
    """The nodes of each pinned cell, by its id; of two files the first."""
    found: dict[str, frozenset[str]] = {}
    for _, tree in trees:
        physical = _Cells(mapping(tree, "physicalCluster"))
        for pin, (_, nodes) in physical.pinned.items():
            found.setdefault(pin, nodes)
    return found


def read_hived(
    trees: Sequence[tuple[Source, Tree]],
    cluster: Cluster,
    taken: Sequence[str],
    findings: Findings,
    remarks: Remarks,
) -> list[Entry[QueueDocument]]:
    """A Queue for each virtual cluster. ``taken``: names that count instead."""
    found: list[Entry[QueueDocument]] = []
    known, seen = set(virtual_clusters(trees)), set(taken)
    for source, tree in trees:
        reader = _Reader(_Cells(mapping(tree, "physicalCluster")), cluster, remarks)
        for name, own in mapping(tree, "virtualClusters").items():
            subject = f"virtual cluster {shown(str(name))}"
            if str(name) in seen or str(name) not in known:
                remarks.add(subject, TWICE if str(name) in seen else TOO_MANY)
                continue
            seen.add(str(name))
            spec = {"cells": reader.cells(own, subject)}
            try:
                queue = QueueDocument.model_validate(document_tree("Queue", str(name), spec))
            except ValidationError:  # the cells are in order: it is the name
                remarks.add(subject, BAD_NAME)
                continue
            found.append(Entry(source, (), queue, findings))
    return found


class _Shape(NamedTuple):
    """What a cell is made of. ``nodes``: how many, None for a part of one; ``gpus``: of that part."""

    nodes: int | None
    gpus: int
    leaf: str


class _Cells:
    """``types``: as the file has them. ``nodes``: of each physical cell, by type.

    ``pinned``: (type, nodes) by id.
    """

    def __init__(self, physical: Tree) -> None:
        self.types = mapping(physical, "cellTypes")
        self.nodes: dict[str, list[frozenset[str]]] = {}
        self.pinned: dict[str, tuple[str, frozenset[str]]] = {}
        for cell in objects(physical, "physicalCells"):
            self.add(cell, text(cell, "cellType") or "")

    def shape(self, name: str) -> _Shape | None:
        """None for a type that contains itself."""
        nodes, parts = None, 1
        for _ in range(MAX_HEIGHT):
            if not isinstance(kind := self.types.get(name), dict):
                return _Shape(nodes, parts, name)
            if nodes is None and flag(kind, "isNodeLevel"):
                nodes, parts = parts, 1
            number = min(max(1, whole(kind, "childCellNumber") or 1), MAX_GPUS)
            parts = min(parts * number, MAX_GPUS)
            name = text(kind, "childCellType") or ""
        return None

    def add(self, cell: Tree, name: str, depth: int = 0) -> frozenset[str]:
        """Keep a physical cell of a type and those inside it; the names of its nodes."""
        kind = mapping(self.types, name)
        nodes: set[str] = set()
        if flag(kind, "isNodeLevel"):
            nodes |= {str(cell["cellAddress"])} if "cellAddress" in cell else set()
        child = text(kind, "childCellType")
        for one in objects(cell, "cellChildren") if child and depth < MAX_HEIGHT else ():
            nodes |= self.add(one, text(one, "cellType") or str(child), depth + 1)
        if (pin := text(cell, "pinnedCellId") or text(cell, "reservationId")) is not None:
            self.pinned.setdefault(pin, (name, frozenset(nodes)))
        self.nodes.setdefault(name, []).append(frozenset(nodes))
        return frozenset(nodes)


class _Reader:
    def __init__(self, physical: _Cells, cluster: Cluster, remarks: Remarks) -> None:
        self._physical = physical
        self._cluster = cluster
        self._remarks = remarks
        self._model_of = {
            node.name: slug(node.model.gpu) for node in cluster.nodes if node.model is not None
        }
        self._pinned: set[str] = set()
        self._nodes_of: dict[str, set[str]] = {}
        for name, places in physical.nodes.items():
            shape = physical.shape(name)
            if shape is not None and shape.nodes == 1:
                self._nodes_of.setdefault(shape.leaf, set()).update(*places)

    def cells(self, own: object, subject: str) -> list[dict[str, Any]]:
        """The cells of a virtual cluster, equal ones together."""
        counts: Counter[tuple[str | None, int | None, str | None]] = Counter()
        pins: list[list[str]] = []
        for name, count in self._promised(own, subject, pins):
            shape = self._physical.shape(name)
            if shape is None or not shape.leaf:
                self._remarks.add(subject, UNKNOWN_TYPE)
                continue
            model = self._model(shape.leaf)
            if model is None:
                self._remarks.add(subject, NO_NODES.format(shown(shape.leaf)))
            elif shape.nodes is None:
                counts[None, min(shape.gpus, MAX_GPUS_A_POD), model] += count
            else:
                level = self._level(name, shape.nodes, model, subject)
                times = 1 if shape.nodes == 1 or level != NODE_LEVEL else shape.nodes
                counts[level, None, model] += count * times
        if len(counts) + len(pins) > MAX_CELLS:
            self._remarks.add(subject, TOO_MANY_CELLS)
        cells: list[dict[str, Any]] = [
            {"count": min(count, MAX_GPUS), "gpus": gpus, "level": level, "model": model}
            for (level, gpus, model), count in counts.items()
        ]
        return [*cells[: MAX_CELLS - len(pins)], *({"nodes": nodes} for nodes in pins)]

    def _promised(
        self, own: object, subject: str, pins: list[list[str]]
    ) -> Iterator[tuple[str, int]]:
        """(cell type, how many) of a virtual cluster; nodes of pinned cells go into ``pins``."""
        for cell in objects(own, "virtualCells"):
            name, count = text(cell, "cellType"), whole(cell, "cellNumber")
            if name is None or count is None or count < 0:
                self._remarks.add(subject, NO_NUMBER)
            elif count:
                # The types around it say from which cells it is taken; here any will do.
                yield name.rpartition(".")[2], min(count, MAX_GPUS)
        for cell in objects(own, "pinnedCells"):
            pin = text(cell, "pinnedCellId") or text(cell, "reservationId")
            if pin not in self._physical.pinned:
                self._remarks.add(subject, NO_PIN)
                continue
            name, nodes = self._physical.pinned[pin]
            known = sorted(nodes & self._model_of.keys())
            why = PARTS if not nodes else UNKNOWN_NODES if not known else None
            why = why or (None if self._pinned.isdisjoint(known) else PINNED_BEFORE)
            if why is None and len(pins) < MAX_CELLS:
                self._pinned.update(known)
                pins.append(known)
                continue
            self._remarks.add(subject, PINNED.format(why) if why else TOO_MANY_CELLS)
            yield name, 1

    def _model(self, leaf: str) -> str | None:
        """The GPU model of a device type: that of its nodes, else the one of its name, or the only one."""
        every = set(self._model_of.values())
        found = {self._model_of.get(name) for name in self._nodes_of.get(leaf, ())} - {None}
        for known in (found, {slug(leaf)} & every, every):
            if len(known) == 1:
                return next(iter(known))
        return None

    def _level(self, name: str, nodes: int, model: str, subject: str) -> str:
        """The narrowest level with such domains; ``node`` for one node, or, with a remark, without any."""
        if nodes == 1:
            return NODE_LEVEL
        known = frozenset(self._model_of)
        places = {one & known for one in self._physical.nodes.get(name, ())} - {frozenset()}
        for level in reversed(range(len(self._cluster.levels))):
            domains = self._domains(level, model)
            sizes = set(map(len, domains))
            if (places and places <= domains) or sizes == {nodes}:
                level_name = self._cluster.levels[level].name
                if len(sizes) > 1:
                    self._remarks.add(subject, UNEVEN.format(shown(name), shown(level_name)))
                return level_name
        self._remarks.add(subject, NO_LEVEL.format(shown(name), plural(nodes, "node")))
        return NODE_LEVEL

    def _domains(self, level: int, model: str) -> set[frozenset[str]]:
        members: dict[int, set[str]] = {}
        for n, node in enumerate(self._cluster.nodes):
            named = None not in node.domains[: level + 1]
            if named and self._model_of.get(node.name) == model:
                members.setdefault(self._cluster.domain_of[level][n], set()).add(node.name)
        return {frozenset(names) for names in members.values()}
