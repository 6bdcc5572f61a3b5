"""The cluster of a plan as a tree of domains down to single GPUs: who holds each before and after the plan.

Pure: a function of the plan document. The report and the map on the terminal draw it.
"""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import cache, cached_property
from typing import Literal

from models.documents.cluster import NodeDocument
from models.documents.plan import PlanDocument, PlanGang
from models.documents.server import ServerModelDocument
from models.gpu_shares import share_in, shared_by
from models.instance.eligibility import tolerated_by_all
from models.units import plural
from planner.show.table import Cell, Table, columns_of, row_of
from planner.show.text import change, number
from planner.untrusted_text import safe

State = Literal["free", "unhealthy", "shared", "closed"]
"""A GPU that no gang holds. ``shared``: or partitioned. ``closed``: but its node has marks, so that it is
not free for every pod."""

Holder = int | State
"""The number of a gang, or why there is none."""

Holders = tuple[Holder, ...]
"""Of each GPU of a node by its index."""

Islands = tuple[tuple[int, ...], ...]

STYLES = 28
"""Ways to draw a gang that can be told apart: 7 colours times 4 patterns."""

MAX_DOMAINS = 60
"""Domains that are listed: the narrowest level at which there are no more."""


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


@dataclass(frozen=True)
class MapDomain:
    """A domain with the domains inside it, and ``alone``: the nodes that are in none of those.

    ``level`` and ``name`` are empty for the cluster. ``nvlink``: its servers share one NVLink fabric.
    """

    level: str
    name: str
    domains: tuple[MapDomain, ...]
    alone: tuple[MapNode, ...]
    nvlink: bool = False

    @cached_property
    def nodes(self) -> tuple[MapNode, ...]:
        """All its nodes in the order in which they are drawn."""
        return (*(node for domain in self.domains for node in domain.nodes), *self.alone)

    @cached_property
    def before(self) -> Counter[State | Literal["held"]]:
        """Its GPUs before the plan by their state."""
        return _counted(node.before for node in self.nodes)

    @cached_property
    def after(self) -> Counter[State | Literal["held"]]:
        """The same after the plan."""
        return _counted(node.after for node in self.nodes)

    @property
    def usable(self) -> int:
        """GPUs that could be held whole."""
        return self.after.total() - self.after["unhealthy"] - self.after["shared"]

    def held(self, arrow: str) -> str:
        """``24 GPUs, 8 -> 16 held``."""
        before, after = self.before["held"], self.after["held"]
        way = f"{before:,} {arrow} " if before != after else ""
        return f"{plural(self.after.total(), 'GPU')}, {way}{after:,} held"


def _counted(every: Iterable[Holders]) -> Counter[State | Literal["held"]]:
    return Counter(
        "held" if isinstance(holder, int) else holder for holders in every for holder in holders
    )


@dataclass(frozen=True)
class ClusterMap:
    """``gangs``: those with pods before or after the plan, and the others, in the plan's order.

    ``styles``: of each gang a number, or -1 if it is nowhere.
    """

    cluster: MapDomain
    levels: tuple[str, ...]
    gangs: tuple[PlanGang, ...]
    styles: tuple[int, ...]


def cluster_map(plan: PlanDocument, *, styles: int = STYLES) -> ClusterMap:
    """The map of the plan's cluster. Levels that are not counted are left out.

    ``styles``: how many ways there are to draw a gang.
    """
    spec = plan.instance.cluster.spec
    levels = [level for level in spec.levels if level.counted]
    models = {model.name: model for model in spec.server_models}
    islands = {name: _islands(model) for name, model in models.items()}
    before, after = _held(plan)
    shared, shared_after = _shared(plan)
    tainted = cache(lambda taints: not tolerated_by_all(plan.instance.gangs, taints))
    nodes = []
    for node in sorted(spec.nodes, key=lambda node: natural(node.name)):
        own, kind = islands.get(node.model or "", ((), ""))
        gpus = sum(map(len, own))
        states = {
            "cordoned": node.unschedulable,
            "not ready": not node.ready,
            "tainted": tainted(node.taints),
        }
        marks = tuple(mark for mark, so in states.items() if so)
        old, guess = _holders(node, gpus, before[node.name], shared[node.name], marks)
        new, other = _holders(node, gpus, after[node.name], shared_after[node.name], marks)
        model = node.model if node.model in models else ""
        drawn = MapNode(node.name, model or "", own, kind, marks, old, new, guess or other)
        nodes.append((node, drawn))
    joined = any(model.nvlink_domain_nodes > 1 for model in models.values())
    nvlink = {level.name for level in levels if level.nvlink and joined}
    names = tuple(level.name for level in levels)
    cluster = _domain("", "", nodes, names, nvlink)
    return ClusterMap(cluster, names, plan.spec.gangs, _styles(cluster.nodes, plan, styles))


def natural(name: str) -> list[tuple[str, int]]:
    """Sort key: ``gpu-9`` before ``gpu-10``."""
    parts = re.findall(r"([^0-9]*)([0-9]{0,18})", name)
    return [(text, int(digits or -1)) for text, digits in parts]


def _domain(
    level: str,
    name: str,
    nodes: Sequence[tuple[NodeDocument, MapNode]],
    below: Sequence[str],
    nvlink: Collection[str],
) -> MapDomain:
    """The domain of these nodes. Nodes without a domain at the next level stand in it directly."""
    members: dict[str, list[tuple[NodeDocument, MapNode]]] = {}
    for node, drawn in nodes:
        members.setdefault(node.domains.get(below[0], "") if below else "", []).append(
            (node, drawn)
        )
    alone = tuple(drawn for _, drawn in members.pop("", ()))
    inner = tuple(
        _domain(below[0], one, members[one], below[1:], nvlink)
        for one in sorted(members, key=natural)
    )
    return MapDomain(level, name, inner, alone, level in nvlink)


Held = tuple[int, Sequence[int], int]
"""GPUs of a pod: the number of its gang, their indices, and how many there are where these are not known."""


def _held(plan: PlanDocument) -> tuple[defaultdict[str, list[Held]], defaultdict[str, list[Held]]]:
    """By node, what pods hold before and after the plan. Pods that have parts of GPUs hold none."""
    requests = plan.instance.gangs_by_key()
    before, after = defaultdict[str, list[Held]](list), defaultdict[str, list[Held]](list)
    for gang, decided in enumerate(plan.spec.gangs):
        request = requests.get(decided.key)
        gpus = {} if request is None else {role.name: role.gpus for role in request.spec.roles}
        running = () if request is None else request.running_pods
        for held, pods in ((before, running), (after, decided.pods)):
            for pod in pods:
                if pod.node is not None and gpus.get(pod.role, 1):
                    loose = gpus.get(pod.role, 0) if pod.gpus is None else 0
                    held[pod.node].append((gang, pod.gpus or (), loose))
    return before, after


Shared = defaultdict[str, set[int | str]]
"""By node, GPUs that are partitioned or shared: indices, or names where they are not known."""


def _shared(plan: PlanDocument) -> tuple[Shared, Shared]:
    """Before and after the plan, as far as pods and the plan tell."""
    before, after = Shared(set), Shared(set)
    for gang in plan.instance.gangs:
        sharing = {role.name: share_in(role.all_requests) for role in gang.spec.roles}
        for pod in gang.running_pods:
            part = sharing.get(pod.role)
            if (part is not None or pod.start is not None) and pod.node is not None:
                name = f"{gang.metadata.namespace}/{gang.pod_name(pod)}"
                before[pod.node].update(shared_by(pod.gpus or (), pod.gpu_group, name, part or ""))
    for node, own in before.items():
        after[node] |= own
    for partition in plan.spec.partitions:
        after[partition.node].discard(partition.gpu)
        if partition.profiles:
            after[partition.node].add(partition.gpu)
    for place, share in enumerate(plan.spec.shares):
        if share.gpu_group is None:
            after[share.node].add(f"share {place}" if share.gpu is None else share.gpu)
    return before, after


def _holders(
    node: NodeDocument,
    gpus: int,
    held: Sequence[Held],
    shared: Collection[int | str],
    marks: Collection[str],
) -> tuple[Holders, bool]:
    """Who holds each GPU, and whether some of it is a guess.

    GPUs of unknown index are drawn as the lowest that are left, unhealthy and shared ones as the highest.
    """
    known = [gpu for gpu in shared if isinstance(gpu, int)]
    indices: dict[int, Holder] = {
        **dict.fromkeys(node.unhealthy_gpus, "unhealthy"),
        **dict.fromkeys((*node.partitioned, *known), "shared"),
        **{gpu: gang for gang, own, _ in held for gpu in own},
    }
    found = [indices.get(gpu, "free") for gpu in range(gpus)]
    unknown: list[State] = ["shared"] * (node.unknown_partitioned + len(shared) - len(known))
    unknown += ["unhealthy"] * node.unknown_unhealthy
    loose = [gang for gang, _, count in held for _ in range(count)]
    free = [gpu for gpu in range(gpus) if found[gpu] == "free"]
    for gpu, why in zip(reversed(free), unknown, strict=False):
        found[gpu] = why
    for gpu, gang in zip(free[: max(0, len(free) - len(unknown))], loose, strict=False):
        found[gpu] = gang
    if marks:
        found = ["closed" if holder == "free" else holder for holder in found]
    return tuple(found), bool(loose or unknown)


def _islands(model: ServerModelDocument) -> tuple[Islands, str]:
    """Groups of GPUs in which any two are linked directly, lowest index first, and by what.

    A cube mesh gives its two quads, bridges give pairs; without NVLink the GPUs of one PCIe switch, or
    of one NUMA node, are a group. A model that contradicts itself, which `verify` refuses, is one group.
    """
    every = tuple(range(model.gpus))
    matrix, switch, numa = model.matrix, model.pcie_switch, model.numa
    linked: Callable[[int, int], bool]
    if model.fabric == "nvswitch" or matrix is None or model.field_errors():
        return (every,), ""
    if any(link.startswith("NV") for row in matrix for link in row):
        kind, linked = "NVLink", lambda a, b: matrix[a][b].startswith("NV")
    elif switch and None not in switch:
        kind, linked = "PCIe switch", lambda a, b: switch[a] == switch[b]
    elif numa and None not in numa:
        kind, linked = "NUMA node", lambda a, b: numa[a] == numa[b]
    else:
        return (every,), ""
    groups: list[list[int]] = []
    for gpu in every:
        own = next((group for group in groups if all(linked(gpu, other) for other in group)), [])
        if not own:
            groups.append(own)
        own.append(gpu)
    if len(groups) in (1, model.gpus):
        return (every,), ""
    return tuple(map(tuple, groups)), kind


def _styles(nodes: Sequence[MapNode], plan: PlanDocument, count: int) -> tuple[int, ...]:
    """A style for each gang, one after another as they appear on the map.

    One that a gang on its nodes, or on those beside them, has already is passed over, unless all are.
    """
    places: dict[Holder, list[int]] = {}
    for place, node in enumerate(nodes):
        for holder in dict.fromkeys((*node.before, *node.after)):
            places.setdefault(holder, []).append(place)
    styles: dict[Holder, int] = {}
    for gang in (holder for holder in places if isinstance(holder, int)):
        beside = {near for place in places[gang] for near in (place - 1, place, place + 1)}
        others = {
            styles.get(holder)
            for place in beside
            if 0 <= place < len(nodes)
            for holder in (*nodes[place].before, *nodes[place].after)
        }
        turn = [(len(styles) + more) % count for more in range(count)]
        styles[gang] = next((style for style in turn if style not in others), turn[0])
    return tuple(styles.get(gang, -1) for gang in range(len(plan.spec.gangs)))


def domains(found: ClusterMap) -> Table:
    """A line for each domain, down to the narrowest level of which all can be listed."""
    depth = len(found.levels)
    while depth > 1 and len(list(_inside(found.cluster, depth, 0))) > MAX_DOMAINS:
        depth -= 1
    listed = list(_inside(found.cluster, depth, 0))
    notes = []
    if len(listed) > MAX_DOMAINS:
        notes.append(f"and {len(listed) - MAX_DOMAINS:,} more domains")
    if depth < len(found.levels):
        notes.append(f"folded: narrower levels are {', '.join(map(safe, found.levels[depth:]))}")
    if found.cluster.after["closed"]:
        notes.append("closed: held by nobody, but their node is cordoned, not ready or tainted")
    titles = "|".join(f">{state.upper()}?" for state in NOT_FREE)
    columns = columns_of(f"DOMAIN|>FREE|>FREE NODES?|>HELD?|>GPUS?|>NODES?|{titles}|>GANGS?")
    rows = tuple(_row(domain, indent) for domain, indent in listed[:MAX_DOMAINS])
    return Table(columns, rows, tuple(notes)).without_empty_columns()


NOT_FREE: tuple[State, ...] = ("unhealthy", "shared", "closed")


def _inside(domain: MapDomain, depth: int, indent: int) -> Iterator[tuple[MapDomain, int]]:
    """The domain and those inside it, ``depth`` levels down."""
    yield domain, indent
    for inner in domain.domains if depth else ():
        yield from _inside(inner, depth - 1, indent + 1)


def _row(domain: MapDomain, indent: int) -> tuple[Cell, ...]:
    free = [
        sum(set(holders) == {"free"} for holders in every)
        for every in zip(*((node.before, node.after) for node in domain.nodes), strict=True)
    ]
    before, after = domain.before, domain.after
    return row_of(
        "- " * indent + (f"{domain.level} {domain.name}" if indent else "cluster"),
        change(map(number, (before["free"], after["free"]))),
        change(map(number, free)),
        change(map(number, (before["held"], after["held"]))),
        number(after.total()),
        number(len(domain.nodes)),
        *(number(after[state]) if after[state] else "" for state in NOT_FREE),
        number(len({one for node in domain.nodes for one in node.after if isinstance(one, int)})),
    )
