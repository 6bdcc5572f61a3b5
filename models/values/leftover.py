"""What a plan leaves free, and what requests of the policy's mix could do with it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.documents.gang import Toleration
from models.instance.cluster import Node
from models.instance.eligibility import tolerated
from models.instance.gang import Role
from models.instance.instance import Instance, once
from models.instance.occupancy import rooms
from models.instance.solution import GangDecision


def gpu_shares(instance: Instance) -> dict[str, int]:
    """What a free GPU needs of each resource to be of use; empty where it needs nothing."""
    return {name: share for name, share in instance.policy.per_gpu if share}


def usable_gpus(instance: Instance, free: int, left: Mapping[str, int]) -> int:
    """Free GPUs of a node that have their share of what is left of its resources."""
    shares = gpu_shares(instance).items()
    return min([free, *(max(0, left[r]) // share for r, share in shares if r in left)])


def stranded(instance: Instance, free: Sequence[int], usable: Sequence[int] | None = None) -> int:
    """permille-GPU left that the next request of the mix cannot use.

    ``free``: GPUs a node; ``usable``: those of use to a request, None for all.
    """
    total, usable = 0, free if usable is None else usable
    for name, nodes in gpu_models(instance).items():
        largest, levels = instance.once(_request_levels)[name]
        counts = Counter(map(usable.__getitem__, nodes))
        left = sum(map(free.__getitem__, nodes))
        whole = [n for n in nodes if usable[n] == largest]
        for (size, permille), level in zip(instance.policy.mix, levels, strict=True):
            if size <= largest:
                placeable = sum(gpus // size * count for gpus, count in counts.items())
            else:
                of = None if level is None else instance.cluster.domain_of[level]
                servers = -(-size // largest)
                domains = Counter(None if of is None else of[n] for n in whole)
                placeable = sum(count // servers for count in domains.values())
            total += permille * (left - size * placeable)
    return total


def _request_levels(instance: Instance) -> dict[str, tuple[int, tuple[int | None, ...]]]:
    """Of every GPU model: GPUs of its largest node, and the level in whose domains each size is asked for."""
    found = {}
    for name, nodes in gpu_models(instance).items():
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        installed = _installed(instance, nodes)
        levels = (_request_level(installed, size) for size, _ in instance.policy.mix)
        found[name] = (largest, tuple(levels))
    return found


def _installed(instance: Instance, nodes: Sequence[int]) -> dict[int, int]:
    """The most GPUs that these nodes have in one domain, by counted level, widest first."""
    most = {}
    for level in instance.cluster.counted_levels:
        of = instance.cluster.domain_of[level]
        installed: dict[int, int] = {}
        for n in nodes:
            installed[of[n]] = installed.get(of[n], 0) + instance.cluster.nodes[n].gpus
        most[level] = max(installed.values())
    return most


def _request_level(installed: Mapping[int, int], size: int) -> int | None:
    """The innermost level with a domain of so many installed GPUs; None: the whole cluster."""
    return next((level for level in reversed(installed) if installed[level] >= size), None)


@once
def gpu_models(instance: Instance) -> dict[str, tuple[int, ...]]:
    """Nodes of every GPU model, by its name."""
    found: dict[str, list[int]] = {}
    for index, node in enumerate(instance.cluster.nodes):
        if node.model is not None:
            found.setdefault(node.model.gpu, []).append(index)
    return {name: tuple(found[name]) for name in sorted(found)}


def whole_nodes(instance: Instance, free: Sequence[int]) -> dict[int, int]:
    """Nodes with as many GPUs free as the largest node of their GPU model has: node to GPUs, sorted.

    ``free``: GPUs a node.
    """
    nodes = instance.cluster.nodes
    whole = {}
    for members in gpu_models(instance).values():
        largest = max(nodes[n].gpus for n in members)
        whole.update({n: largest for n in members if free[n] == largest})
    return dict(sorted(whole.items()))


def whole_domains(instance: Instance, whole: Collection[int]) -> tuple[tuple[int, ...], ...]:
    """The nodes with GPUs of every innermost domain that has two or more of them, all in ``whole``."""
    cluster = instance.cluster
    if not cluster.counted_levels:
        return ()
    found = []
    for domain in cluster.domains[cluster.counted_levels[-1]]:
        nodes = tuple(n for n in domain.nodes if cluster.nodes[n].model is not None)
        if len(nodes) > 1 and all(n in whole for n in nodes):
            found.append(nodes)
    return tuple(found)


def request_domains(
    instance: Instance, nodes: Sequence[int], size: int
) -> tuple[tuple[int, ...], ...]:
    """The nodes of one GPU model by domain of the innermost level with room for ``size`` installed GPUs."""
    level = _request_level(_installed(instance, nodes), size)
    if level is None:
        return (tuple(nodes),)
    members: dict[int, list[int]] = {}
    for n in nodes:
        members.setdefault(instance.cluster.domain_of[level][n], []).append(n)
    return tuple(tuple(members[d]) for d in sorted(members))


@once
def suspects(instance: Instance) -> frozenset[int]:
    """The nodes that failed less than the policy's ``suspectFor`` before now."""
    since = instance.now - instance.policy.suspect_for_s
    failures = ((n, node.last_failure) for n, node in enumerate(instance.cluster.nodes))
    return frozenset(n for n, last in failures if last is not None and last > since)


def defragment(instance: Instance, free: Sequence[int]) -> int:
    """GPUs of wholly free nodes, those in wholly free domains twice."""
    whole = whole_nodes(instance, free)
    domains = whole_domains(instance, whole)
    return sum(whole.values()) + sum(whole[n] for nodes in domains for n in nodes)


LIMITING = ("cpu", "memory")
"""Resources of which each GPU needs a share where the policy states none: the least that pods ask for."""

CAUSES = {
    "unhealthy": "reported unhealthy",
    "not ready": "on nodes that are not ready",
    "cordoned": "on cordoned nodes",
    "not selected": "on nodes that the policy does not select",
    "tainted": "on nodes with a taint that no GPU pod of the input tolerates",
    "spare": "on nodes that the policy keeps free for failures",
    "cpu or memory": "without the cpu or memory that a GPU needs beside it",
    "node": "too few on one node for the requests of the mix",
    "domain": "on wholly free nodes, too few of them in one domain for the requests of the mix",
}
"""What is said of each cause."""


@dataclass(frozen=True, slots=True)
class FreeGpus:
    """GPUs that nobody holds or shares and that are not partitioned, a node. ``idle``: the healthy ones."""

    unheld: tuple[int, ...]
    idle: tuple[int, ...]


def free_gpus(instance: Instance, decisions: Sequence[GangDecision]) -> FreeGpus:
    """What these decisions leave free, whatever the condition of the nodes."""
    nodes = instance.cluster.nodes
    held, hidden, known = [0] * len(nodes), [0] * len(nodes), [0] * len(nodes)
    kept = [0] * len(nodes)
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        for pod in decision.pods:
            gpus = gang.roles[pod.role].gpus
            held[pod.node] += gpus
            hidden[pod.node] += gpus if pod.gpus is None else 0
            known[pod.node] |= pod.gpus or 0
            kept[pod.node] |= gang.roles[pod.role].keeps_on(pod.node)
    whole = (
        node.whole_gpus - len(node.still_shared(own)) for node, own in zip(nodes, kept, strict=True)
    )
    unheld = tuple(max(0, gpus - own) for gpus, own in zip(whole, held, strict=True))
    idle = (
        (node.givable & ~(known[n] | kept[n])).bit_count() - node.unknown_unhealthy - hidden[n]
        for n, node in enumerate(nodes)
    )
    return FreeGpus(unheld, tuple(max(0, min(a, b)) for a, b in zip(idle, unheld, strict=True)))


def stranded_by_cause(
    instance: Instance, decisions: Sequence[GangDecision]
) -> dict[str, dict[int, Fraction]]:
    """Stranded GPUs of every node, by cause, in the order of CAUSES. Causes without any are left out."""
    free = free_gpus(instance, decisions)
    found: dict[str, dict[int, Fraction]] = {cause: {} for cause in CAUSES}
    usable = [0] * len(free.idle)
    spare = _spares(instance, free.idle)
    for n, node in enumerate(instance.cluster.nodes):
        _add(found["unhealthy"], n, free.unheld[n] - free.idle[n])
        cause = _closed(instance, node) or ("spare" if n in spare else None)
        if cause is None:
            usable[n] = free.idle[n]
        else:
            _add(found[cause], n, free.idle[n])
    for cause, n, gpus in _unplaceable(instance, usable, _with_shares(instance, decisions, usable)):
        _add(found[cause], n, gpus)
    return {cause: dict(sorted(nodes.items())) for cause, nodes in found.items() if nodes}


def _add(found: dict[int, Fraction], n: int, gpus: Fraction | int) -> None:
    if gpus:
        found[n] = found.get(n, Fraction(0)) + gpus


def _closed(instance: Instance, node: Node) -> str | None:
    """Why the node takes no pods with GPUs; None if it does."""
    if not node.ready:
        return "not ready"
    if node.unschedulable:
        return "cordoned"
    if not instance.ours(node):
        return "not selected"
    if node.taints and not any(tolerated(one, node.taints) for one in _tolerations(instance)):
        return "tainted"
    return None


@once
def _tolerations(instance: Instance) -> Collection[tuple[Toleration, ...]]:
    """What the roles with GPUs tolerate, each once."""
    return dict.fromkeys(role.tolerations for role in _gpu_roles(instance))


def _gpu_roles(instance: Instance) -> Iterator[Role]:
    return (role for gang in instance.gangs for role in gang.roles if role.gpus)


def _spares(instance: Instance, idle: Sequence[int]) -> set[int]:
    """The nodes kept idle, the last of each domain: as many as rule 2.21 asks for."""
    cluster, found = instance.cluster, set[int]()
    levels = {cluster.level_name(level): level for level in range(cluster.node_level + 1)}
    for name, count in instance.policy.spares:
        for domain in cluster.domains[levels[name]] if name in levels else ():
            nodes = [n for n in domain.nodes if cluster.nodes[n].gpus]
            sound = [n for n in nodes if instance.intact(cluster.nodes[n])]
            own = (cluster.nodes[n] for n in nodes if instance.ours(cluster.nodes[n]))
            failed = sum(map(instance.failed, own))
            whole = [n for n in sound if idle[n] == cluster.nodes[n].gpus]
            kept = max(0, min(count - failed, len(whole)) - len(found.intersection(whole)))
            found.update([n for n in whole if n not in found][-kept:] if kept else ())
    return found


def _with_shares(
    instance: Instance, decisions: Sequence[GangDecision], free: Sequence[int]
) -> list[int]:
    """Of the free GPUs of every node those that have cpu, memory and so on beside them."""
    shares = gpu_shares(instance) or _least_shares(instance)
    if not shares:
        return list(free)
    found = []
    for gpus, room in zip(free, rooms(instance, decisions), strict=True):
        left = dict(room.left)
        most = [max(0, left[name]) // share for name, share in shares.items() if name in left]
        found.append(min([gpus, *most]))
    return found


def _least_shares(instance: Instance) -> dict[str, int]:
    """The least of each resource that a pod of the input asks for each of its GPUs."""
    least: dict[str, int] = {}
    roles = set(_gpu_roles(instance))
    for name in LIMITING:
        asked = [dict(role.requests).get(name, 0) // role.gpus for role in roles]
        if min(asked, default=0) > 0:
            least[name] = min(asked)
    return least


def _unplaceable(
    instance: Instance, free: Sequence[int], usable: Sequence[int]
) -> Iterator[tuple[str, int, Fraction]]:
    """(cause, node, GPUs) of what requests of the mix cannot use, as ``leftover.stranded`` counts it."""
    total = sum(permille for _, permille in instance.policy.mix)
    sized = [
        (size, Fraction(permille, total)) for size, permille in instance.policy.mix if permille
    ]
    for nodes in gpu_models(instance).values():
        largest = max(instance.cluster.nodes[n].gpus for n in nodes)
        for size, share in sized:
            for n in nodes:
                yield "cpu or memory", n, share * (free[n] - usable[n])
            if size <= largest:
                for n in nodes:
                    yield "node", n, share * (usable[n] % size)
            else:
                yield from _large_requests(instance, nodes, size, largest, share, usable)


def _large_requests(
    instance: Instance,
    nodes: Sequence[int],
    size: int,
    largest: int,
    share: Fraction,
    usable: Sequence[int],
) -> Iterator[tuple[str, int, Fraction]]:
    """The same of requests that take several whole nodes of one domain."""
    servers = -(-size // largest)
    for domain in request_domains(instance, nodes, size):
        whole = [n for n in domain if usable[n] == largest]
        used = len(whole) // servers * servers
        for n in domain:
            if usable[n] < largest:
                yield "node", n, share * usable[n]
        for n in whole[used:]:
            yield "domain", n, share * largest
        for n in whole[:used:servers]:
            yield "node", n, share * (servers * largest - size)
