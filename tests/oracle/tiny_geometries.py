"""Random tiny instances of which a node's GPUs may be partitioned, and their best plans.

Promises: of an instance all plans, by partitioning idle GPUs in every way beforehand, with the exhaustive
planner for GPUs that are partitioned already; places of instances by trying every one. Nothing of
``models.mig``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import cache
from itertools import combinations_with_replacement, islice, product
from random import Random

from building import build
from building import gang as one_gang
from building import node as one_node
from building_servers import ring4, switched
from comparing import misstated
from exhaustive import NobodyAwayError, plan
from exhaustive_gangs import WHOLE, Spares
from exhaustive_queues import settle
from exhaustive_values import Tiers
from tiny import busy, tiny
from tiny_draws import Draws
from tiny_rules import counted

from models.documents.cluster import MigGpus
from models.hardware import bits
from models.instance.cluster import Node
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import with_reshapable
from planner.search.solve import solve

SMALL, MIDDLE, LARGE = "1g.10gb", "2g.20gb", "3g.40gb"
PLACES = {SMALL: (range(7), 1), MIDDLE: ((0, 2, 4), 2), LARGE: ((0, 4), 4)}
"""Where an instance may begin, and its slices; of the eight slices 1g may not begin in the last."""

WITHOUT = ("queues", "unknown_unhealthy", "unknown_gpus", "binding_none", "incomplete")
MORE = ("instances", "launchers", "cpu_gangs", "roles")

MOST_PLANS = 40
"""Geometries of an instance that are tried."""


def dynamic(
    seed: int,
    *,
    runs: bool = False,
    beside: bool = False,
    mode: bool = False,
    more: tuple[str, ...] = MORE,
) -> Instance:
    """An instance by seed; ``runs``: with pods that run; ``more``: what it has three times as much of.

    ``beside``: pods that run with instances have these on GPUs that may get more of them. ``mode``: some GPU
    is in MIG mode.
    """
    draws = Draws(seed, (), ("instances",))
    r = draws.random("dynamic")
    without = tuple(feature for feature in WITHOUT if feature not in more)
    found = busy(seed, without, more) if runs else tiny(seed, (*without, "running"), more)
    nodes = list(found.cluster.nodes)
    having = [n for n, node in enumerate(nodes) if node.healthy and not node.unknown_unhealthy]
    for n in r.sample(having, min(len(having), r.choice((1, 1, 2)))):
        nodes[n] = replace(nodes[n], dynamic_mig="H100-80")
    gangs = _on_gpus(tuple(nodes), found.gangs, r) if beside else found.gangs
    for n, node in enumerate(nodes) if mode else ():
        held = {
            bit for gang in gangs for p in gang.pods if p.node == n for bit in bits(p.gpus or 0)
        }
        idle = [gpu for gpu in bits(node.healthy) if gpu not in held]
        if node.dynamic_mig is not None and idle:
            (gpu,) = r.sample(idle, 1)
            empty = (*node.mig, MigGpus((gpu,), ()))
            nodes[n] = replace(node, mig=empty, unhealthy=node.unhealthy | 1 << gpu)
    cluster = replace(found.cluster, nodes=tuple(nodes))
    return with_reshapable(counted(replace(found, cluster=cluster, gangs=gangs)))


def _on_gpus(nodes: tuple[Node, ...], gangs: tuple[Gang, ...], r: Random) -> tuple[Gang, ...]:
    """The gangs whose pods have their instances on idle GPUs that may be partitioned."""
    held: Counter[int] = Counter()
    for gang in gangs:
        for pod in gang.pods:
            if pod.node is not None and gang.roles[pod.role].gpus:
                held[pod.node] |= pod.gpus or 0
    taken: dict[tuple[int, int], frozenset[int]] = {}
    found = []
    for gang in gangs:
        pods = list(gang.pods)
        for k, pod in enumerate(pods):
            profile = profile_of(gang.roles[pod.role])
            if pod.node is None or profile is None or nodes[pod.node].dynamic_mig is None:
                continue
            idle = bits(nodes[pod.node].healthy & ~held[pod.node])
            places = [
                (gpu, start, slices)
                for gpu in idle[:2]
                for start, slices in places_of(profile)
                if not slices & taken.get((pod.node, gpu), frozenset())
            ]
            if places:
                gpu, start, slices = r.choice(places)
                taken[pod.node, gpu] = taken.get((pod.node, gpu), frozenset()) | slices
                pods[k] = replace(pod, gpus=1 << gpu, start=start)
        found.append(replace(gang, pods=tuple(pods)))
    return tuple(found)


def profile_of(role: Role) -> str | None:
    """The profile of the one instance that a pod of the role has; None if it has none, or several."""
    names = [(n.removeprefix("nvidia.com/mig-"), c) for n, c in role.requests if "mig-" in n]
    return names[0][0] if len(names) == 1 and names[0][1] == 1 and not role.gpus else None


def places_of(profile: str) -> list[tuple[int, frozenset[int]]]:
    """Where an instance may begin, with its slices."""
    starts, size = PLACES[profile]
    return [(start, frozenset(range(start, start + size))) for start in starts]


@cache
def sets_of(wanted: frozenset[str], taken: frozenset[int] = frozenset()) -> list[tuple[str, ...]]:
    """The sets of instances of these profiles that fit on a GPU, but for those within another.

    ``taken``: slices of it that others have.
    """
    found = [
        names
        for count in range(1, 8)
        for names in combinations_with_replacement(sorted(wanted), count)
        if _fit(names, taken)
    ]
    within = [Counter(names) for names in found]
    return [
        names
        for names, own in zip(found, within, strict=True)
        if not any(own != other and own <= other for other in within)
    ]


def _fit(names: tuple[str, ...], taken: frozenset[int]) -> bool:
    if not names:
        return True
    slices = (own for _, own in places_of(names[0]))
    return any(not own & taken and _fit(names[1:], taken | own) for own in slices)


@dataclass(frozen=True)
class Made:
    """An instance whose GPUs are partitioned or shared, and how many become so.

    ``away``: (gang, role, node) of which no pod is there after the plan. ``there``: sets of them, of each of
    which some pod is.
    """

    instance: Instance
    count: int
    away: frozenset[tuple[int, int, int]] = frozenset()
    there: tuple[frozenset[tuple[int, int, int]], ...] = ()

    def tiers(self) -> Tiers | None:
        """The best tiers; None if nobody can be away, or somebody is not there in the best plan."""
        try:
            found = plan(self.instance, away=self.away)
        except NobodyAwayError:
            return None
        after = {(g, p.role, p.node) for g, one in enumerate(found.decisions) for p in one.pods}
        return None if any(after.isdisjoint(own) for own in self.there) else found.tiers


Place = tuple[int, int, int]
"""Gang, role and node."""

Gpu = tuple[int, int]
"""Node and index."""


def leavable(
    instance: Instance,
    has: Callable[[Role, ExistingPod], bool] = lambda _, pod: pod.start is not None,
    several: Callable[[Role], bool] = lambda _: False,
) -> dict[Gpu, frozenset[Place]]:
    """The GPUs of which pods have parts that become idle if none of these is there any more.

    ``has``: whether a pod has a part; ``several``: whether pods of a role have parts of several GPUs.
    """
    found: dict[Gpu, set[Place]] = {}
    fixed, hidden = set[Gpu](), set[int]()
    for g, gang in enumerate(instance.gangs):
        for pod in gang.pods:
            role = gang.roles[pod.role]
            if pod.node is None:
                continue
            if pod.gpus is None and (role.gpus or has(role, pod)):
                hidden.add(pod.node)
            for gpu in bits(pod.gpus or 0) if has(role, pod) else ():
                found.setdefault((pod.node, gpu), set()).add((g, pod.role, pod.node))
                if several(role) or not (gang.movable or gang.preemptible):
                    fixed.add((pod.node, gpu))
    nodes = instance.cluster.nodes
    return {
        (n, gpu): frozenset(own)
        for (n, gpu), own in found.items()
        if (n, gpu) not in fixed and n not in hidden
        if not nodes[n].unknown_unhealthy and nodes[n].reshapable
        if all(gpu not in one.gpus for one in nodes[n].mig)
    }


def with_leaving(
    instance: Instance,
    may_leave: dict[Gpu, frozenset[Place]],
    ways_of: Callable[[Instance, set[Gpu]], Iterator[tuple[Instance, int]]],
) -> Iterator[Made]:
    """Every way to give parts, with any of these GPUs left by all."""
    for left in product((False, True), repeat=len(may_leave)):
        gone = {one for one, leaves in zip(may_leave, left, strict=True) if leaves}
        away = frozenset(place for one in gone for place in may_leave[one])
        there = tuple(own for one, own in may_leave.items() if one not in gone)
        for made, count in ways_of(_without(instance, gone), gone):
            yield Made(made, count, away, there)


def _without(instance: Instance, gone: set[Gpu]) -> Instance:
    """The instance in which nobody ever had parts of these GPUs."""
    nodes = list(instance.cluster.nodes)
    for n, gpu in gone:
        node = nodes[n]
        (mine,) = (one for one in node.shared if one.gpu == gpu)
        offered = Counter(dict(node.allocatable))
        offered.subtract(dict(mine.used))
        nodes[n] = replace(
            node,
            shared=tuple(one for one in node.shared if one is not mine),
            unhealthy=node.unhealthy & ~(1 << gpu),
            allocatable=tuple(offered.items()),
        )
    return replace(instance, cluster=replace(instance.cluster, nodes=tuple(nodes)))


def geometries(instance: Instance) -> Iterator[Made]:
    """The instance with idle GPUs partitioned in every way, and how many are; also those that all leave."""
    yield from with_leaving(instance, leavable(instance), _partitioned)


def _partitioned(instance: Instance, gone: set[Gpu]) -> Iterator[tuple[Instance, int]]:
    asked = {r for gang in instance.gangs for role in gang.roles for r, _ in role.requests}
    wanted = frozenset(p for p in PLACES if f"nvidia.com/mig-{p}" in asked)
    choices = [_ways(instance, n, wanted, gone) for n in range(len(instance.cluster.nodes))]
    for chosen in product(*choices):
        nodes = tuple(node for node, _ in chosen)
        cluster = replace(instance.cluster, nodes=nodes)
        yield replace(instance, cluster=cluster), sum(count for _, count in chosen)


def _ways(
    instance: Instance, n: int, wanted: frozenset[str], gone: set[Gpu]
) -> list[tuple[Node, int]]:
    node = instance.cluster.nodes[n]
    could = dict(node.reshapable)
    there = {name: most - could.get(name, 0) for name, most in node.allocatable}
    plain = replace(node, allocatable=tuple(there.items()), reshapable=(), dynamic_mig=None)
    if not could:
        return [(plain, 0)]
    empty = [gpu for one in node.mig if not one.profiles for gpu in one.gpus]
    held, in_use = 0, dict.fromkeys(empty, frozenset[int]())
    for gang in instance.gangs:
        for pod in gang.pods:
            if pod.start is not None and any((n, gpu) in gone for gpu in bits(pod.gpus or 0)):
                continue
            held |= (pod.gpus or 0) if pod.node == n else 0
            if pod.node == n and pod.start is not None:
                own = dict(places_of(profile_of(gang.roles[pod.role]) or ""))[pod.start]
                (gpu) = bits(pod.gpus or 0)
                in_use[gpu] = in_use.get(gpu, frozenset()) | own
    beside = [[(), *sets_of(wanted, taken)] for taken in in_use.values()]
    idle = bits(node.healthy & ~held)
    near_all = all(nic.gpus is None for nic in node.effective_nics)
    alike = node.model is not None and node.model.switched and near_all
    found = []
    for new in product(*beside, *([[(), *sets_of(wanted)]] * len(idle))):
        chosen = new[len(beside) :]
        if alike and list(chosen) != sorted(chosen):
            continue
        mig = tuple(MigGpus((g,), names) for g, names in zip(idle, chosen, strict=True) if names)
        mask = sum(1 << gpu for one in mig for gpu in one.gpus)
        offered = dict(there)
        for name in (name for one in new for name in one):
            offered[f"nvidia.com/mig-{name}"] += 1
        made = replace(
            plain,
            labels=was_whole(node) if mig else node.labels,
            mig=(*node.mig, *mig),
            unhealthy=node.unhealthy | mask,
            allocatable=tuple(offered.items()),
        )
        found.append((made, len(mig)))
    return found


def was_whole(node: Node) -> tuple[tuple[str, str], ...]:
    """The labels of a node of which GPUs are no longer whole; with one more if all of them were."""
    sick = node.unhealthy or node.unknown_unhealthy
    return node.labels if sick else (*node.labels, (WHOLE, "true"))


def crowded(seed: int) -> Instance:
    """Two or three small servers with GPUs of which gangs have instances, most of which may leave.

    Whole GPUs are wanted, and instances that have no room beside those.
    """
    r = Draws(seed, (), ("instances",)).random("crowded-mig")
    profiles = [SMALL, r.choice((MIDDLE, LARGE))]
    names = [f"nvidia.com/mig-{name}" for name in profiles]
    none = tuple((name, 0) for name in sorted(names))
    servers = (switched(2), switched(3), ring4())
    nodes = [
        replace(one_node(f"n{i}", r.choice(servers)), dynamic_mig="H100-80", allocatable=none)
        for i in range(r.choice((2, 2, 3)))
    ]
    taken: dict[Gpu, frozenset[int]] = {}

    def take(name: str, gpu: Gpu, *, first: bool) -> int | None:
        on = taken.get(gpu, frozenset())
        of = places_of(name.removeprefix("nvidia.com/mig-"))
        places = [one for one in of if not one[1] & on]
        if not places or not first:
            return None
        start, slices = r.choice(places)
        taken[gpu] = on | slices
        return start

    how = ("movable", "preemptible", "preemptible", "both", "neither")
    gangs = crowd(r, nodes, names, take, taken, how)
    if r.random() < 0.6:
        asks, pods = {r.choice(names): 1}, r.choice((1, 2))
        gangs.append(one_gang("more", pods, 0, requests=asks, priority=r.choice((0, 10))))
    return with_reshapable(counted(build(nodes=nodes, gangs=gangs, mix={1: 300, 2: 400, 4: 300})))


def crowd(
    r: Random,
    nodes: Sequence[Node],
    names: Sequence[str],
    take: Callable[..., int | None],
    taken: Collection[Gpu],
    hows: Sequence[str],
) -> list[Gang]:
    """Gangs with parts of the first two GPUs of servers, others with whole GPUs, and some that want those.

    ``take``: gives a pod its part on a GPU, and says where that starts; None where there is no room.
    """
    gangs = []
    for k in range(r.randint(2, 4)):
        name, n = r.choice(names), r.randrange(len(nodes))
        stands, starts = list[tuple[int, int, int, int]](), list[int]()
        for index in range(r.choice((1, 1, 2))):
            gpu = r.randrange(min(2, nodes[n].gpus))
            start = take(name, (n, gpu), first=len(stands) == index)
            if start is not None:
                stands.append((0, index, n, 1 << gpu))
                starts.append(start)
        if stands and len(stands) == stands[-1][1] + 1:
            how, rank = r.choice(hows), r.choice((0, 0, 10))
            may = {name: how in (name, "both") for name in ("movable", "preemptible")}
            asks = {name: 1}
            own = one_gang(
                f"part{k}", len(stands), 0, requests=asks, priority=rank, stands=stands, **may
            )
            pods = (
                replace(p, start=None if s < 0 else s)
                for p, s in zip(own.pods, starts, strict=True)
            )
            gangs.append(replace(own, pods=tuple(pods)))
    for n, node in enumerate(nodes):
        left = [gpu for gpu in bits(node.healthy) if (n, gpu) not in taken]
        if left and r.random() < 0.4:
            may = {"preemptible": r.random() < 0.5, "movable": r.random() < 0.5}
            gangs.append(one_gang(f"whole{n}", 1, 1, stands=[(0, 0, n, 1 << left[-1])], **may))
    for k in range(r.choice((1, 1, 2))):
        gpus, count = r.choice((1, 2, 2, 3)), r.choice((1, 1, 2))
        gangs.append(one_gang(f"wants{k}", count, gpus, priority=r.choice((0, 10))))
    return gangs


Ways = Callable[[Instance], Iterator[Made]]


def best(instance: Instance, ways_of: Ways = geometries) -> Tiers | None:
    """The tiers of the best plan; None if there are too many ways to partition, or to share.

    A partitioned or shared GPU is of no use to whatever comes: in ``stranded`` it counts as all of it.
    """
    every = sum(permille for _, permille in instance.policy.mix)
    ways = list(islice(ways_of(instance), MOST_PLANS + 1))
    if len(ways) > MOST_PLANS:
        return None
    found = []
    for made in ways:
        spares, tiers = Spares(made.instance), None
        if instance.queues:
            settle(made.instance, instance)
        if spares.kept(spares.idle):
            tiers = made.tiers()
        if tiers is not None:
            taken = every * made.count
            found.append(tuple((n, v + taken if n == "stranded" else v) for n, v in tiers))
    return max(found, key=_worth, default=None)


def _worth(tiers: Iterable[tuple[str, int]]) -> tuple[int, ...]:
    minimised = ("disruption", "span", "stranded", "stability")
    return tuple(-value if name in minimised else value for name, value in tiers)


def differences(
    instance: Instance | None, ways_of: Ways = geometries, *, runs: bool
) -> list[object]:
    """What sets the search apart from the best plan, and what the judge says against it.

    Where pods run the plans that are tried have them where they are: some plan may be better.
    """
    if instance is None or not any(node.reshapable for node in instance.cluster.nodes):
        return []
    known = best(instance, ways_of)
    if known is None:
        return []
    solution = solve(instance)
    found = tuple((tier.name, tier.value) for tier in solution.tiers)
    worth, least = _worth(found), _worth(known)
    faults: list[object] = [*misstated("search", instance, solution)]
    if (worth < least) if runs else (worth != least):
        faults.append((found, known))
    if solution.stopped_by != "proof":
        faults.append(solution.stopped_by)
    return faults
