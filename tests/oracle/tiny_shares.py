"""Random tiny instances of which a node's GPUs may be shared, and the ways to share them.

Promises: of an instance all plans, by sharing idle GPUs in every way beforehand, with the exhaustive planner
for parts that are there already. Nothing of ``models.gpu_shares``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import replace
from fractions import Fraction
from itertools import islice, product

from building import build
from building import gang as one_gang
from building import node as one_node
from building_servers import ring4, switched
from tiny import busy, tiny
from tiny_draws import Draws
from tiny_geometries import (
    LARGE,
    MIDDLE,
    MORE,
    SMALL,
    WITHOUT,
    Gpu,
    Made,
    Place,
    crowd,
    was_whole,
    with_leaving,
)
from tiny_geometries import leavable as leavable_by
from tiny_rules import counted

from models.documents.cluster import GpuSharing
from models.hardware import bits, mask_of
from models.instance.cluster import Node, SharedGpu
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import with_reshapable

MEMORY_MiB = 81920
TENTH = Fraction(1, 10)
PARTS = {
    "0.4": (4 * TENTH, 4 * TENTH),
    "0.5": (5 * TENTH, 5 * TENTH),
    "0.7": (7 * TENTH, 7 * TENTH),
    "0.25": (Fraction(1, 4), Fraction(1, 4)),
    "0.3-60": (3 * TENTH, 6 * TENTH),
    "20480Mi-60": (Fraction(1, 4), 6 * TENTH),
    "49152Mi": (6 * TENTH, Fraction(0)),
    "8192Mi-30": (TENTH, 3 * TENTH),
}
"""Shares of memory and cores of each part."""

SEVERAL = {
    "0.4x2": PARTS["0.4"],
    "0.5x2": PARTS["0.5"],
    "0.7x2": PARTS["0.7"],
    "0.25x3": PARTS["0.25"],
    "0.3-60x2": PARTS["0.3-60"],
    "8192Mi-30x3": PARTS["8192Mi-30"],
}
"""The same of parts of which a pod has several, each on another GPU."""

Parts = tuple[str, ...]


def sharing(
    seed: int, *, runs: bool = False, more: tuple[str, ...] = MORE, several: bool = False
) -> Instance | None:
    """An instance by seed; ``runs``: with pods that run; ``more``: what it has three times as much of.

    ``several``: also pods with parts of several GPUs. None if pods that run find no GPU to share.
    """
    r = Draws(seed, (), ("instances",)).random("sharing")
    without = tuple(feature for feature in WITHOUT if feature not in more)
    found = busy(seed, without, more) if runs else tiny(seed, (*without, "running"), more)
    drawn = r.sample(sorted(PARTS), 3)
    if several:
        drawn = r.sample([*r.sample(sorted(SEVERAL), 2), drawn[0]], 3)
    names = dict(zip((SMALL, MIDDLE, LARGE), drawn, strict=True))
    gangs = tuple(_asking(gang, names) for gang in found.gangs)
    asked = {part for gang in gangs for role in gang.roles if (part := _part(role))}
    nodes = [_plain(node, asked) for node in found.cluster.nodes]
    having = [n for n, node in enumerate(nodes) if node.healthy]
    most = {n: GpuSharing(MEMORY_MiB, r.choice((2, 3, 100))) for n in having}
    chosen = {n: most[n] for n in r.sample(having, min(len(having), r.choice((1, 1, 2))))}
    holders = {pod.node for gang in gangs for pod in gang.pods if _part(gang.roles[pod.role])}
    for n in {n for n in holders if n is not None} | chosen.keys():
        if n not in most:
            return None
        nodes[n] = replace(nodes[n], sharing=most[n])
    named = {n for n in having if r.random() < 0.3}
    placed = _on_gpus(tuple(nodes), gangs, named)
    if placed is None:
        return None
    cluster = replace(found.cluster, nodes=tuple(nodes))
    made = replace(found, cluster=cluster, gangs=placed)
    decimals = Draws(seed, (), ()).random("decimals") if seed % 2 else None
    return with_reshapable(counted(made, decimals))


def _part(role: Role) -> str | None:
    return next((x.partition("/")[2] for x, _ in role.requests if x.startswith("share.")), None)


def _asking(gang: Gang, names: dict[str, str]) -> Gang:
    def other(resource: str) -> str:
        profile = resource.removeprefix("nvidia.com/mig-")
        return f"share.gangplan.dev/{names[profile]}" if profile in names else resource

    roles = (
        replace(
            role,
            requests=tuple(
                sorted((own, _times(own) or n) for x, n in role.requests for own in (other(x),))
            ),
        )
        for role in gang.roles
    )
    return replace(gang, roles=tuple(roles))


def _times(resource: str) -> int:
    """On how many GPUs a pod has such a part; 0 if it need not be on several."""
    part = resource.removeprefix("share.gangplan.dev/")
    return int(part.partition("x")[2]) if part in SEVERAL else 0


def _plain(node: Node, asked: set[str]) -> Node:
    """The node without instances, and without parts of its GPUs."""

    def others(amounts: tuple[tuple[str, int], ...]) -> dict[str, int]:
        return {name: most for name, most in amounts if not name.startswith("nvidia.com/mig-")}

    none = {f"share.gangplan.dev/{part}": 0 for part in asked}
    return replace(
        node,
        mig=(),
        unhealthy=node.unhealthy & ~node.partitioned,
        unknown_unhealthy=node.unknown_unhealthy - node.unknown_partitioned,
        unknown_partitioned=0,
        allocatable=tuple(sorted({**others(node.allocatable), **none}.items())),
        held=tuple(others(node.held).items()),
    )


def _on_gpus(
    nodes: tuple[Node, ...], gangs: tuple[Gang, ...], named: set[int]
) -> tuple[Gang, ...] | None:
    """The gangs with a GPU for each part of a pod that runs: the first that has room. Or its name."""
    held: Counter[int] = Counter()
    for gang in gangs:
        for pod in gang.pods:
            if pod.node is not None and gang.roles[pod.role].gpus:
                held[pod.node] |= pod.gpus or 0
    on: dict[tuple[int, int], Parts] = {}
    found = []
    for gang in gangs:
        pods: list[ExistingPod] = []
        for pod in gang.pods:
            part = _part(gang.roles[pod.role])
            if part is None or pod.node is None:
                pods.append(pod)
                continue
            node = nodes[pod.node]
            able = (
                gpu
                for gpu in bits(node.healthy & ~held[pod.node])
                if fits((*on.get((pod.node, gpu), ()), part), node)
            )
            gpus = list(islice(able, _times(part) or 1))
            if len(gpus) < (_times(part) or 1):
                return None
            for gpu in gpus:
                on[pod.node, gpu] = (*on.get((pod.node, gpu), ()), part)
            if pod.node not in named:
                pods.append(replace(pod, gpus=mask_of(gpus)))
            else:
                pods.append(replace(pod, gpus=None, gpu_group=",".join(f"g{g}" for g in gpus)))
        found.append(replace(gang, pods=tuple(pods)))
    return tuple(found)


def fits(parts: Parts, node: Node) -> bool:
    """Whether these parts fit on one GPU of the node."""
    assert node.sharing is not None
    sizes = [(PARTS | SEVERAL)[part] for part in parts]
    memory = sum(size[0] for size in sizes)
    cores = sum(size[1] for size in sizes)
    return memory <= 1 and cores <= 1 and len(parts) <= node.sharing.pods


def sets_beside(parts: Parts, wanted: frozenset[str], node: Node) -> list[Parts]:
    """What can be added to these parts on one GPU, but for sets within another."""
    found: set[Parts] = {()}
    last = found
    while last:
        more = {tuple(sorted((*one, part))) for one in last for part in wanted}
        last = {one for one in more if fits((*parts, *one), node)}
        found |= last
    within = [Counter(one) for one in found]
    return sorted(
        one
        for one in found
        if not any(Counter(one) != other and Counter(one) <= other for other in within)
    )


def leavable(instance: Instance) -> dict[Gpu, frozenset[Place]]:
    """The shared GPUs that become idle if none of these is there any more."""
    return leavable_by(
        instance, lambda role, _: _part(role) is not None, lambda role: _part(role) in SEVERAL
    )


def ways(instance: Instance) -> Iterator[Made]:
    """The instance with idle GPUs shared in every way, and how many are; those too that all leave."""
    yield from with_leaving(instance, leavable(instance), lambda one, _: _shared_ways(one))


def _shared_ways(instance: Instance) -> Iterator[tuple[Instance, int]]:
    asked = {part for gang in instance.gangs for role in gang.roles if (part := _part(role))}
    choices = [_ways(instance, n, frozenset(asked)) for n in range(len(instance.cluster.nodes))]
    for chosen in product(*choices):
        cluster = replace(instance.cluster, nodes=tuple(node for node, _ in chosen))
        yield replace(instance, cluster=cluster), sum(count for _, count in chosen)


def _ways(instance: Instance, n: int, wanted: frozenset[str]) -> list[tuple[Node, int]]:
    node, found = instance.cluster.nodes[n], []
    if node.sharing is None:
        return [(node, 0)]
    there = {
        name: sum(dict(one.used).get(name, 0) for one in node.shared)
        if name.startswith("share.")
        else most
        for name, most in node.allocatable
    }
    held, unknown = 0, node.unknown_unhealthy
    for gang in instance.gangs:
        for pod in gang.pods:
            if pod.node == n and (gpus := gang.roles[pod.role].gpus):
                held |= pod.gpus or 0
                unknown += gpus if pod.gpus is None else 0
    idle = bits(node.healthy & ~held)
    count = max(0, len(idle) - unknown)
    near_all = all(nic.gpus is None for nic in node.effective_nics)
    alike = node.model is not None and node.model.switched and near_all
    hidden = unknown > 0
    some = idle[:count] if hidden else idle
    on = [tuple(x.partition("/")[2] for x, c in one.used for _ in range(c)) for one in node.shared]
    beside = [sets_beside(parts, wanted, node) for parts in on]
    every = [one for one in sets_beside((), wanted, node) if one]
    for chosen in product(*beside, *([[(), *every]] * len(some))):
        new = chosen[len(on) :]
        if (alike or hidden) and list(new) != sorted(new):
            continue
        offered = dict(there)
        for part in {part for one in chosen for part in one}:
            offered[f"share.gangplan.dev/{part}"] += _for_pods(part, chosen)
        opened = [gpu for gpu, one in zip(some, new, strict=True) if one]
        mask = 0 if hidden else sum(1 << gpu for gpu in opened)
        more = len(opened) if hidden else 0
        made = replace(
            node,
            labels=was_whole(node) if opened else node.labels,
            sharing=None,
            shared=(*node.shared, *(SharedGpu(g, None, ()) for g in bits(mask))),
            unhealthy=node.unhealthy | mask,
            unknown_unhealthy=node.unknown_unhealthy + more,
            unknown_partitioned=node.unknown_partitioned + more,
            allocatable=tuple(offered.items()),
            reshapable=(),
        )
        found.append((made, len(opened)))
    return found


def _for_pods(part: str, on: Iterable[Parts]) -> int:
    """How many of these parts pods can have; each has a number of them on as many GPUs."""
    counts, each = [parts.count(part) for parts in on], _times(part)
    if not each:
        return sum(counts)
    pods = sum(counts) // each
    while sum(min(count, pods) for count in counts) < pods * each:
        pods -= 1
    return pods * each


def crowded(seed: int) -> Instance:
    """Two or three small servers with GPUs that gangs share, most of which may leave, and whole ones wanted.

    Of every three GPUs of a server about two are shared; a third of the servers are rings.
    """
    r = Draws(seed, (), ("instances",)).random("crowded")
    names = [f"share.gangplan.dev/{part}" for part in r.sample(sorted(PARTS), 2)]
    servers = [switched(2), switched(3), ring4()]
    nodes = [
        replace(
            one_node(f"n{i}", r.choice(servers)),
            sharing=GpuSharing(MEMORY_MiB, r.choice((2, 3, 100))),
            allocatable=tuple((name, 0) for name in sorted(names)),
        )
        for i in range(r.choice((2, 2, 3)))
    ]
    on: dict[Gpu, Parts] = {}

    def take(name: str, gpu: Gpu, **_: bool) -> int | None:
        beside = (*on.get(gpu, ()), name.partition("/")[2])
        if not fits(beside, nodes[gpu[0]]):
            return None
        on[gpu] = beside
        return -1

    how = ("movable", "movable", "preemptible", "both", "neither")
    gangs = crowd(r, nodes, names, take, on, how)
    if r.random() < 0.4:
        asks = {r.choice(names): 1}
        gangs.append(one_gang("more", 1, 0, requests=asks, priority=r.choice((0, 10))))
    made = build(nodes=nodes, gangs=gangs, mix={1: 300, 2: 400, 4: 300})
    return with_reshapable(counted(made))
