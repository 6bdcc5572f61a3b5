"""The map of a cluster as the page draws it: small ones as SVG in the page, large ones by its script."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Any

from models.units import plural, shortened
from planner.show.cluster_map import (
    CLOSED,
    FREE,
    PARTITIONED,
    UNHEALTHY,
    ClusterMap,
    Holders,
    MapDomain,
    MapNode,
    Room,
    Rooms,
)
from planner.show.text import number, ranges, short_names
from planner.untrusted_text import safe

MAX_DRAWN = 800
"""Nodes of a cluster that the page draws itself; a larger one is an overview that the script draws."""

MAX_DRAWN_GPUS = 8_000

MAX_LABEL = 12
"""Characters of names on the map; longer ones are shown by their shortest unique part."""

GROUP_GAP = 3
"""Pixels between GPUs of two groups in a node."""


@dataclass(frozen=True, slots=True)
class Size:
    """Pixels: the GPUs of a node together, a GPU at most, their height, a character (0: no labels)."""

    name: str
    bar: int
    gpu: int
    height: int
    character: float


SIZES = (
    (16, Size("large", 320, 44, 26, 7.6)),
    (250, Size("medium", 112, 40, 15, 6.1)),
    (MAX_DRAWN, Size("small", 64, 24, 11, 0)),
)
"""By the most nodes that they are for."""


@dataclass(frozen=True, slots=True)
class Run:
    """GPUs of one holder beside each other. ``kind``: its class. ``gang``: its number, or None."""

    x: int
    width: int
    kind: str
    gang: int | None
    label: str


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """``before`` is None where nothing changes. ``ticks``: x of the lines between GPUs."""

    name: str
    label: str
    said: str
    marks: tuple[str, ...]
    width: int
    before: tuple[Run, ...] | None
    after: tuple[Run, ...]
    ticks: tuple[int, ...]


class MapView:
    """What the template asks of a map."""

    def __init__(self, drawn: ClusterMap) -> None:
        self.cluster = drawn.cluster
        counts = drawn.cluster.counts
        self.counts = counts
        self.small = counts.nodes <= MAX_DRAWN and counts.gpus <= MAX_DRAWN_GPUS
        self.levels = drawn.levels
        self._gangs = drawn.gangs
        self._styles = drawn.styles
        self._names = ["/".join(gang.key) for gang in drawn.gangs]
        size = next((size for most, size in SIZES if counts.nodes <= most), SIZES[-1][1])
        widest = max((node.gpus for node in drawn.cluster.all_nodes()), default=1)
        self.size = size
        self._gpu = max(2, min(size.gpu, size.bar // max(widest, 1)))
        self.marks = sorted({mark for node in drawn.cluster.all_nodes() for mark in node.marks})
        self.guessed = any(node.guessed for node in drawn.cluster.all_nodes())
        self.changed = sum(node.changes for node in drawn.cluster.all_nodes())
        self.kinds = sorted({node.kind for node in drawn.cluster.all_nodes()} - {""})
        self._short = short_names((node.name for node in drawn.cluster.all_nodes()), MAX_LABEL)
        names: dict[str, list[str]] = {}
        for domain in _domains(drawn.cluster):
            names.setdefault(domain.level, []).append(domain.name)
        self._short_domains = {level: short_names(own, MAX_LABEL) for level, own in names.items()}

    def title(self, domain: MapDomain) -> str:
        """``rack r1``."""
        return safe(f"{domain.level} {domain.name}")

    def short_title(self, domain: MapDomain) -> str:
        """The same with the shortest name that no other domain of the level has."""
        return safe(f"{domain.level} {self._short_domains[domain.level][domain.name]}")

    def rooms(self) -> list[tuple[str, str, str]]:
        """What nodes have room for, in the two states: the kind, how many there are, and of what."""
        before, after = (Rooms.of(self.cluster, after=after) for after in (False, True))

        def way(old: int, new: int) -> str:
            return number(new) if old == new else f"{number(old)} → {number(new)}"

        words: dict[Room, str] = {
            "whole": "wholly free",
            "part": "partly free",
            "full": "full",
            "closed": "not free for every pod (cordoned, not ready, tainted, or without a healthy GPU)",
        }
        found = []
        for room, said in words.items():
            nodes = before.nodes[room], after.nodes[room]
            gpus = before.free[room], after.free[room]
            if room == "closed" and not any(nodes):
                continue
            free = f", {way(*gpus)} free GPU{'s' * (gpus != (1, 1))}" if any(gpus) else ""
            found.append((str(room), way(*nodes), f"node{'s' * (nodes != (1, 1))} {said}{free}"))
        if self.levels:
            levels = [domain.level for domain in self.cluster.innermost() if domain.counts.gpus]
            noun = levels[0] if len(set(levels)) == 1 and levels[0] else "innermost domain"
            level = f"of {plural(len(levels), safe(noun))} wholly free"
            found.append(("", way(before.domains, after.domains), level))
        return found

    def summary(self, domain: MapDomain) -> str:
        """``8 nodes, 64 GPUs, 56 held``, and from where they were."""
        counts = domain.counts
        held = f"{counts.held_after:,} held"
        if counts.held_before != counts.held_after:
            held = f"{counts.held_before:,} → {counts.held_after:,} held"
        sick = f", {counts.unhealthy:,} unhealthy" if counts.unhealthy else ""
        parts = f", {counts.partitioned:,} partitioned or shared" if counts.partitioned else ""
        return f"{plural(counts.nodes, 'node')}, {plural(counts.gpus, 'GPU')}, {held}{sick}{parts}"

    def node(self, node: MapNode) -> DrawnNode:
        """One node, drawn."""
        unit = self._gpu
        order = [gpu for island in node.islands for gpu in island]
        gaps = [GROUP_GAP * number for number, island in enumerate(node.islands) for _ in island]
        at = {gpu: place * unit + gaps[place] for place, gpu in enumerate(order)}
        return DrawnNode(
            safe(node.name),
            safe(self._short[node.name]),
            said(node, self._names),
            node.marks,
            len(order) * unit + (gaps[-1] if gaps else 0),
            self._runs(node, node.before, at) if node.changes else None,
            self._runs(node, node.after, at),
            tuple(at[gpu] for gpu in order if gpu != order[0]),
        )

    def _runs(self, node: MapNode, holders: Holders, at: dict[int, int]) -> tuple[Run, ...]:
        runs = []
        for island in node.islands:
            for holder, members in groupby(island, key=lambda gpu: holders[gpu]):
                gpus = list(members)
                width = len(gpus) * self._gpu
                runs.append(self._run(holder, at[gpus[0]], width))
        return tuple(runs)

    def _run(self, holder: int, x: int, width: int) -> Run:
        if holder < 0:
            return Run(
                x,
                width,
                {FREE: "free", PARTITIONED: "part", CLOSED: "shut"}.get(holder, "sick"),
                None,
                "",
            )
        style = self._styles[holder]
        room = int((width - 4) / self.size.character) if self.size.character else 0
        name = safe(self._gangs[holder].name)
        label = name if len(name) <= room else f"{name[: room - 1]}…" if room >= 4 else ""
        return Run(x, width, f"s{style}", holder, label)

    def overview(self) -> dict[str, Any]:
        """The map for the script, compactly: the tree, and of every node its holders as runs.

        A domain: [level, name, NVLink, [domains], [nodes], short name]. A node: [name, model, marks, after,
        before or 0], holders as [gang, GPUs, gang, GPUs, ...] in the order in which they are drawn.
        """
        models: dict[str, int] = {}
        longest = max(LEAST, MAX_NAMES // max(1, self.counts.nodes))

        def node(one: MapNode) -> list[Any]:
            model = models.setdefault(one.model, len(models))
            before = _flat(one, one.before) if one.changes else 0
            name = shortened(safe(one.name), longest)
            return [name, model, list(one.marks), _flat(one, one.after), before]

        def domain(one: MapDomain) -> list[Any]:
            inner = [domain(below) for below in one.domains]
            own = [node(below) for below in one.nodes]
            short = self._short_domains[one.level][one.name]
            return [safe(one.level), safe(one.name), int(one.nvlink), inner, own, safe(short)]

        tree = domain(self.cluster)
        return {"tree": tree, "models": [safe(name) for name in models]}


def _domains(domain: MapDomain) -> Iterator[MapDomain]:
    """The domain and all inside it."""
    yield domain
    for inner in domain.domains:
        yield from _domains(inner)


def said(node: MapNode, names: Sequence[str]) -> str:
    """A node in words: who holds which GPUs before and after."""
    parts = [safe(node.name), *([safe(node.model)] if node.model else []), *node.marks]
    if not node.gpus:
        return ", ".join([*parts, "no GPUs"])
    if node.changes:
        before, after = _held(node.before, names), _held(node.after, names)
        return f"{', '.join(parts)}. Before: {before}. After: {after}"
    return f"{', '.join(parts)}. {_held(node.after, names)}"


def _held(holders: Holders, names: Sequence[str]) -> str:
    order = dict.fromkeys(sorted(holders, key=lambda one: (one < 0, holders.index(one))))
    return ", ".join(
        f"{_name(one, names)} {ranges(gpu for gpu, own in enumerate(holders) if own == one)}"
        for one in order
    )


def _name(holder: int, names: Sequence[str]) -> str:
    if holder >= 0:
        return safe(names[holder])
    return {
        UNHEALTHY: "unhealthy",
        PARTITIONED: "partitioned or shared",
        CLOSED: "not free for every pod",
    }.get(holder, "free")


MAX_NAMES = 1_000_000
"""Characters of the names of nodes in an overview: of very many long ones the ends are left out."""

LEAST = 24
"""Characters that every name keeps."""


def _flat(node: MapNode, holders: Holders) -> list[int]:
    found: list[int] = []
    order = (holders[gpu] for island in node.islands for gpu in island)
    for holder, members in groupby(order):
        found += [holder, sum(1 for _ in members)]
    return found
