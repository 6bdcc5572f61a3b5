"""What the page draws of a cluster, and what it says of its nodes and gangs."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Literal

from models.documents.gang import GangDocument
from models.documents.plan import PlanDocument, PlanGang
from models.results.plan_gpus import gpu_count
from models.units import plural, shortened, time_text
from planner.show.cluster_map import Holder, Holders, MapDomain, MapNode, cluster_map, domains
from planner.show.plan.gang_groups import delay, why
from planner.show.plan.plan_tables import DECISIONS
from planner.show.text import compress, ranges, short_names, whole_percent
from planner.untrusted_text import safe

MAX_LABEL = 12
"""Characters of names on the map; longer ones are shown by their shortest unique part."""

MAX_SAID = 1_500_000
"""Characters of what is said of all gangs: with many gangs, less is said of each."""

LEAST_SAID, MOST_SAID = 24, 300

WORDS: Mapping[Holder, str] = {
    "free": "free",
    "unhealthy": "unhealthy",
    "shared": "partitioned or shared",
    "closed": "not free for every pod",
}


@dataclass(frozen=True, slots=True)
class Run:
    """GPUs of one holder beside each other. ``gang``: its number, or None. ``pattern``: what fills them."""

    x: int
    gpus: int
    gang: int | None
    pattern: str
    label: str


class MapView:
    """What the template asks of a map."""

    def __init__(self, plan: PlanDocument) -> None:
        found = cluster_map(plan)
        self.cluster = found.cluster
        self.styles = found.styles
        self.domains = domains(found)
        nodes, gpus = found.cluster.nodes, found.cluster.after.total()
        self.size = next((size for size, most in SIZES.items() if gpus <= most), "small")
        self.marks = sorted({mark for node in nodes for mark in node.marks})
        self.kinds = sorted({node.kind for node in nodes if node.kind})
        self.guessed = any(node.guessed for node in nodes)
        self.changes = any(node.changes for node in nodes)
        self.states = found.cluster.before + found.cluster.after
        self._names = [safe("/".join(gang.key)) for gang in found.gangs]
        self.numbers = {name: gang for gang, name in enumerate(self._names)}
        requests = plan.instance.gangs_by_key()
        most = min(MOST_SAID, max(LEAST_SAID, MAX_SAID // max(1, len(found.gangs))))
        self.gangs = [shortened(_said(gang, requests.get(gang.key)), most) for gang in found.gangs]
        self.short = short_names((node.name for node in nodes), MAX_LABEL)
        names: dict[str, list[str]] = {}
        for domain in _all(found.cluster):
            names.setdefault(domain.level, []).append(domain.name)
        self._domains = {level: short_names(own, MAX_LABEL) for level, own in names.items()}

    def title(self, domain: MapDomain) -> str:
        """``rack r1: 8 nodes, 64 GPUs, 48 → 56 held``."""
        nodes = plural(len(domain.nodes), "node")
        return safe(f"{domain.level} {domain.name}: {nodes}, {domain.held('→')}")

    def short_title(self, domain: MapDomain) -> str:
        """``rack r1``, with the shortest name that no other domain of the level has."""
        return safe(f"{domain.level} {self._domains[domain.level][domain.name]}")

    def islands(self, node: MapNode, holders: Holders) -> Iterator[list[Run]]:
        """The GPUs of a node as they are drawn; no gang is named where it has no room."""
        least = {"large": 1, "medium": 3}.get(self.size, node.gpus + 1)
        for island in node.islands:
            runs, x = [], 0
            for holder, members in groupby(island, key=lambda gpu: holders[gpu]):
                gpus = len(list(members))
                if isinstance(holder, int):
                    label = self._names[holder].split("/")[-1] if gpus >= least else ""
                    runs.append(Run(x, gpus, holder, f"s{self.styles[holder]}", label))
                else:
                    runs.append(Run(x, gpus, None, holder, ""))
                x += gpus
            yield runs

    def said(self, node: MapNode) -> str:
        """A node in words: who holds which GPUs before and after."""
        what = ", ".join(filter(None, (safe(node.name), safe(node.model), *node.marks)))
        if not node.after:
            return f"{what}, no GPUs"
        if node.changes:
            return f"{what}. Before: {self._held(node.before)}. After: {self._held(node.after)}"
        return f"{what}. {self._held(node.after)}"

    def _held(self, holders: Holders) -> str:
        gpus = defaultdict[Holder, list[int]](list)
        for gpu, holder in enumerate(holders):
            gpus[holder].append(gpu)
        return ", ".join(
            f"{self._names[one] if isinstance(one, int) else WORDS[one]} {ranges(gpus[one])}"
            for one in sorted(gpus, key=lambda one: isinstance(one, str))
        )


SIZES: Mapping[Literal["large", "medium", "small"], int] = {"large": 128, "medium": 6400}
"""How large a GPU is drawn at first, by the most GPUs of a cluster."""


def _all(domain: MapDomain) -> Iterator[MapDomain]:
    """The domain and all inside it."""
    yield domain
    for inner in domain.domains:
        yield from _all(inner)


def _said(gang: PlanGang, request: GangDocument | None) -> str:
    """A gang in words, its name first: its nodes, where they are reserved, or why it waits."""
    gpus, reserved = gpu_count(gang, request), gang.reserved
    where = compress((pod.node for pod in gang.pods), " ") or why(gang)
    if reserved is not None and gang.decision == "wait":
        where = f"reserved from {time_text(reserved.start)}: {compress(reserved.nodes, ' ')}"
    parts = (
        "/".join(gang.key),
        DECISIONS[gang.decision][2],
        "" if gpus is None else plural(gpus, "GPU"),
        "" if gang.share is None else f"{whole_percent(gang.share)} of its best bandwidth",
        "" if gang.speed_to_come is None else f"speed {whole_percent(gang.speed_to_come)}",
        delay(gang),
        where,
    )
    return safe(" · ".join(filter(None, parts)))
