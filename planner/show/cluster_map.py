"""The cluster of a plan as a tree of domains down to single GPUs: who holds each before and after the plan.

Pure: a function of the plan document. The report and the map on the terminal draw it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from models.documents.cluster import NodeDocument
from models.documents.gang import GangDocument, PodDocument
from models.documents.plan import PlanDocument, PlanGang, PlanPod
from models.documents.server import ServerModelDocument
from models.gpu_shares import share_in, shared_by
from models.instance.eligibility import tolerated_by_all

FREE = -1
UNHEALTHY = -2
PARTITIONED = -3
CLOSED = -4
"""Nobody holds it, but its node has marks: it is not free for every pod."""

Room = Literal["whole", "part", "full", "closed"]
"""What a node has room for: all its GPUs are free, some are, none is, or it is marked."""

Holders = tuple[int, ...]
"""Of each GPU of a node by its index: the number of its gang, or one of the above."""

Islands = tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True)
class MapNode:
    """One node. ``islands``: its GPUs in groups that reach each other without leaving their links.

    ``kind``: what links a group, such as ``NVLink``; empty where the node is one group. ``guessed``:
    which GPUs a pod holds, or which are unhealthy, is not known of some: the lowest free ones are drawn.
    ``marks``: why it is not open to every pod.
    """

    name: str
    model: str
    islands: Islands
    kind: str
    marks: tuple[str, ...]
    before: Holders
    after: Holders
    guessed: bool

    @property
    def gpus(self) -> int:
        return len(self.after)

    @property
    def changes(self) -> bool:
        return self.before != self.after

    def room(self, holders: Holders) -> Room:
        """What it has room for with these holders; closed, too, without a healthy GPU."""
        if self.marks or all(holder <= UNHEALTHY for holder in holders):
            return "closed"
        free = holders.count(FREE)
        return "whole" if free == len(holders) else "part" if free else "full"


@dataclass(frozen=True)
class MapDomain:
    """A domain with the domains inside it, and the nodes that are in none of those.

    ``level`` and ``name`` are empty for the cluster. ``nvlink``: its servers share one NVLink fabric.
    """

    level: str
    name: str
    domains: tuple[MapDomain, ...]
    nodes: tuple[MapNode, ...]
    nvlink: bool = False

    def all_nodes(self) -> Iterator[MapNode]:
        """Its nodes in the order in which they are drawn."""
        for domain in self.domains:
            yield from domain.all_nodes()
        yield from self.nodes

    def innermost(self) -> Iterator[MapDomain]:
        """Itself if it holds no other, or those inside it that hold no other."""
        for domain in self.domains:
            yield from domain.innermost()
        if not self.domains:
            yield self

    @cached_property
    def counts(self) -> Counts:
        return Counts.of(self.all_nodes())


@dataclass(frozen=True, slots=True)
class Counts:
    """GPUs of several nodes. ``free``: after the plan. ``closed``: of nodes with marks, held or not."""

    nodes: int
    gpus: int
    held_before: int
    held_after: int
    unhealthy: int
    partitioned: int
    free: int
    closed: int

    @property
    def usable(self) -> int:
        """GPUs that could be held whole."""
        return self.gpus - self.unhealthy - self.partitioned

    @property
    def not_open(self) -> int:
        """GPUs that nobody holds after the plan, on nodes with marks."""
        return self.usable - self.held_after - self.free

    @classmethod
    def of(cls, nodes: Iterable[MapNode]) -> Counts:
        every = list(nodes)
        before = Counter(holder for node in every for holder in node.before)
        after = Counter(holder for node in every for holder in node.after)
        return cls(
            len(every),
            sum(node.gpus for node in every),
            sum(count for holder, count in before.items() if holder >= 0),
            sum(count for holder, count in after.items() if holder >= 0),
            after[UNHEALTHY],
            after[PARTITIONED],
            after[FREE],
            sum(node.gpus for node in every if node.marks),
        )


@dataclass(frozen=True, slots=True)
class Rooms:
    """Nodes by what they have room for, and their free GPUs. ``domains``: innermost ones, wholly free."""

    nodes: Counter[Room]
    free: Counter[Room]
    domains: int

    @classmethod
    def of(cls, cluster: MapDomain, *, after: bool) -> Rooms:
        """The rooms before or after the plan; nodes without GPUs are left out."""
        nodes, free = Counter[Room](), Counter[Room]()
        domains = 0
        for node in cluster.all_nodes():
            holders = node.after if after else node.before
            if holders:
                room = node.room(holders)
                nodes[room] += 1
                free[room] += holders.count(FREE)
        for domain in cluster.innermost():
            with_gpus = [
                (one, one.after if after else one.before) for one in domain.nodes if one.gpus
            ]
            wholly = all(one.room(holders) == "whole" for one, holders in with_gpus)
            domains += bool(with_gpus) and wholly
        return cls(nodes, free, domains)


@dataclass(frozen=True)
class ClusterMap:
    """``gangs``: those with pods before or after the plan, and the others, in the plan's order."""

    cluster: MapDomain
    levels: tuple[str, ...]
    gangs: tuple[PlanGang, ...]
    styles: tuple[int, ...]
    """Of each gang: a number below ``styles``, or -1 if it is nowhere; gangs beside each other differ."""


STYLES = 28
"""Ways to draw a gang that can be told apart: 7 colours times 4 patterns."""


def cluster_map(plan: PlanDocument, *, styles: int = STYLES) -> ClusterMap:
    """The map of the plan's cluster. Levels that are not counted are left out.

    ``styles``: how many ways there are to draw a gang.
    """
    spec = plan.instance.cluster.spec
    levels = [level for level in spec.levels if level.counted]
    models = {model.name: model for model in spec.server_models}
    gangs = plan.spec.gangs
    held = _Held(plan)
    islands = {name: _islands(model) for name, model in models.items()}
    nodes = []
    for node in sorted(spec.nodes, key=lambda node: natural(node.name)):
        model = models.get(node.model or "")
        nodes.append((node, held.map_node(node, model, islands.get(node.model or "", ((), "")))))
    shared = {name for name, model in models.items() if model.nvlink_domain_nodes > 1}
    nvlink = (
        frozenset(level.name for level in levels if level.nvlink) if shared else frozenset[str]()
    )
    cluster = _domain("", "", nodes, [level.name for level in levels], nvlink)
    return ClusterMap(
        cluster, tuple(level.name for level in levels), gangs, _styles(cluster, gangs, styles)
    )


def natural(name: str) -> list[tuple[str, int]]:
    """Sort key: ``gpu-9`` before ``gpu-10``."""
    parts = re.findall(r"([^0-9]*)([0-9]{0,18})", name)
    return [(text, int(digits or -1)) for text, digits in parts]


def _domain(
    level: str,
    name: str,
    nodes: Sequence[tuple[NodeDocument, MapNode]],
    below: Sequence[str],
    nvlink: frozenset[str],
) -> MapDomain:
    """The domain of these nodes. Nodes without a domain at the next level stand in it directly."""
    if not below:
        return MapDomain(level, name, (), tuple(drawn for _, drawn in nodes), level in nvlink)
    members: dict[str | None, list[tuple[NodeDocument, MapNode]]] = {}
    for node, drawn in nodes:
        members.setdefault(node.domains.get(below[0]), []).append((node, drawn))
    alone = tuple(drawn for _, drawn in members.pop(None, ()))
    named = sorted(((one, own) for one, own in members.items() if one), key=lambda x: natural(x[0]))
    inner = tuple(_domain(below[0], one, own, below[1:], nvlink) for one, own in named)
    return MapDomain(level, name, inner, alone, level in nvlink)


class _Held:
    """Which gangs hold GPUs of which node, before and after a plan: (gang, GPUs or their number)."""

    def __init__(self, plan: PlanDocument) -> None:
        requests = plan.instance.gangs_by_key()
        self._before: dict[str, list[tuple[int, tuple[int, ...] | int]]] = {}
        self._after: dict[str, list[tuple[int, tuple[int, ...] | int]]] = {}
        for number, gang in enumerate(plan.spec.gangs):
            request = requests.get(gang.key)
            if request is not None:
                _add(self._before, number, request.running_pods, request)
            _add(self._after, number, gang.pods, request)
        self._tainted = cache(lambda taints: not tolerated_by_all(plan.instance.gangs, taints))
        self._shared = _shared(plan)
        self._parts: dict[str, list[int | None]] = {}
        gone = {(one.node, one.gpu) for one in plan.spec.partitions if one.anew}
        for node, own in self._shared.items():
            self._parts[node] = [gpu for gpu in own if (node, gpu) not in gone]
        for one in plan.spec.partitions:
            if one.profiles:
                self._parts.setdefault(one.node, []).append(one.gpu)
        for more in plan.spec.shares:
            if more.gpu is not None or more.gpu_group is None:
                self._parts.setdefault(more.node, []).append(more.gpu)

    def map_node(
        self, node: NodeDocument, model: ServerModelDocument | None, islands: tuple[Islands, str]
    ) -> MapNode:
        gpus = model.gpus if model is not None else 0
        shared = self._shared.get(node.name, ())
        made = self._parts.get(node.name, ())
        before, guessed = _holders(node, gpus, self._before.get(node.name, ()), shared)
        after, guessed_after = _holders(node, gpus, self._after.get(node.name, ()), made)
        marks = (
            *(("cordoned",) if node.unschedulable else ()),
            *(() if node.ready else ("not ready",)),
            *(("tainted",) if self._tainted(node.taints) else ()),
        )
        if marks:
            before, after = (
                tuple(CLOSED if holder == FREE else holder for holder in holders)
                for holders in (before, after)
            )
        unknown = guessed or guessed_after
        name = "" if model is None else model.name
        return MapNode(node.name, name, islands[0], islands[1], marks, before, after, unknown)


def _shared(plan: PlanDocument) -> dict[str, list[int | None]]:
    """By node, the GPUs of which pods that run have parts; None for one of unknown index."""
    found: dict[str, dict[int | str, None]] = {}
    for gang in plan.instance.gangs:
        sharing = {r.name: share_in(r.all_requests) for r in gang.spec.roles}
        for pod in gang.running_pods:
            part = sharing.get(pod.role)
            if (part is not None or pod.start is not None) and pod.node is not None:
                name = f"{gang.metadata.namespace}/{gang.pod_name(pod)}"
                gpus = shared_by(pod.gpus or (), pod.gpu_group, name, part or "")
                found.setdefault(pod.node, {}).update(dict.fromkeys(gpus))
    return {
        node: [gpu if isinstance(gpu, int) else None for gpu in own] for node, own in found.items()
    }


def _add(
    held: dict[str, list[tuple[int, tuple[int, ...] | int]]],
    number: int,
    pods: Sequence[PodDocument | PlanPod],
    request: GangDocument | None,
) -> None:
    gpus = {} if request is None else {role.name: role.gpus for role in request.spec.roles}
    for pod in pods:
        if not gpus.get(pod.role, 1):
            continue  # of a GPU that it shares it has a part alone
        own = gpus.get(pod.role, 0) if pod.gpus is None else pod.gpus
        if own and pod.node is not None:
            held.setdefault(pod.node, []).append((number, own))


def _holders(
    node: NodeDocument,
    gpus: int,
    held: Iterable[tuple[int, tuple[int, ...] | int]],
    made: Collection[int | None] = (),
) -> tuple[Holders, bool]:
    """Who holds each GPU, and whether some of it is a guess. ``made``: GPUs that are partitioned or shared.

    GPUs of unknown index are drawn as the lowest that are left, unhealthy ones as the highest.
    """
    found = [FREE] * gpus
    kept = {
        **dict.fromkeys(node.unhealthy_gpus, UNHEALTHY),
        **dict.fromkeys(
            (*node.partitioned, *(gpu for gpu in made if gpu is not None)), PARTITIONED
        ),
    }
    for gpu, why in kept.items():
        if gpu < gpus:
            found[gpu] = why
    loose: list[tuple[int, int]] = []
    for number, own in held:
        if isinstance(own, int):
            loose.append((number, own))
            continue
        for gpu in own:
            if gpu < gpus:
                found[gpu] = number
    somewhere = node.unknown_partitioned + sum(gpu is None for gpu in made)
    unknown = [PARTITIONED] * somewhere + [UNHEALTHY] * node.unknown_unhealthy
    free = [gpu for gpu in reversed(range(gpus)) if found[gpu] == FREE]
    for gpu, why in zip(free, unknown, strict=False):
        found[gpu] = why
    left = iter([gpu for gpu in range(gpus) if found[gpu] == FREE])
    for number, count in loose:
        for _, gpu in zip(range(count), left, strict=False):  # in this order: no GPU is skipped
            found[gpu] = number
    return tuple(found), bool(loose or unknown)


def _islands(model: ServerModelDocument) -> tuple[Islands, str]:
    """Groups of GPUs in which any two are linked directly, lowest index first, and by what.

    A cube mesh gives its two quads, bridges give pairs; without NVLink the GPUs of one PCIe switch, or
    of one NUMA node, are a group. A model that contradicts itself, which `verify` refuses, is one group.
    """
    every = tuple(range(model.gpus))
    matrix = model.matrix
    if model.fabric == "nvswitch" or matrix is None or model.field_errors():
        return (every,), ""
    if any(link.startswith("NV") for row in matrix for link in row):
        groups, kind = (
            _cliques([[link.startswith("NV") for link in row] for row in matrix]),
            "NVLink",
        )
    else:
        known = (of for of in (model.pcie_switch, model.numa) if of and None not in of)
        of = next(known, None)
        if of is None:
            return (every,), ""
        members: dict[int | None, list[int]] = {}
        for gpu in every:
            members.setdefault(of[gpu], []).append(gpu)
        groups = tuple(tuple(own) for own in members.values())
        kind = "PCIe switch" if of is model.pcie_switch else "NUMA node"
    return (groups, kind) if 1 < len(groups) < model.gpus else ((every,), "")


def _cliques(linked: Sequence[Sequence[bool]]) -> Islands:
    """Each GPU in the first group of which it is linked with every member."""
    groups: list[list[int]] = []
    for gpu in range(len(linked)):
        own = next((group for group in groups if all(linked[gpu][other] for other in group)), None)
        if own is None:
            groups.append([gpu])
        else:
            own.append(gpu)
    return tuple(map(tuple, groups))


def _styles(cluster: MapDomain, gangs: Sequence[PlanGang], count: int) -> tuple[int, ...]:
    """A style for each gang, in the order in which they appear on the map.

    Of the styles, the one least used among the gangs on its nodes and on those beside them; of equal
    ones, the one least used so far.
    """
    nodes = list(cluster.all_nodes())
    at: dict[int, list[int]] = {}
    for place, node in enumerate(nodes):
        for holder in {*node.before, *node.after}:
            if holder >= 0:
                at.setdefault(holder, []).append(place)
    styles: dict[int, int] = {}
    near: list[Counter[int]] = [Counter() for _ in nodes]
    used: Counter[int] = Counter()
    for gang, places in at.items():
        around: Counter[int] = Counter()
        for place in places[:MAX_LOOKED_AT]:
            for other in near[max(0, place - BESIDE) : place + BESIDE + 1]:
                around.update(other)
        chosen = min(range(count), key=lambda style: (around[style], used[style], style))
        styles[gang] = chosen
        used[chosen] += 1
        for place in places:
            near[place][chosen] += 1
    return tuple(styles.get(number, -1) for number in range(len(gangs)))


BESIDE = 6
"""Nodes before and after a node whose gangs are drawn in other styles."""

MAX_LOOKED_AT = 8
"""Nodes of a gang around which styles are compared."""
