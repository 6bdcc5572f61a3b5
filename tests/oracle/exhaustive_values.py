"""What a plan of a tiny instance is worth, tier by tier as docs/formulation.md has it.

Promises: shares no code with evaluating, checking or the formulation; exact; slow and plain.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from itertools import product

from exhaustive_gangs import (
    Pods,
    aged,
    counted,
    harm,
    least_counts,
    places,
    pod_counts,
    queued_since,
    running,
    standing,
    whole,
)
from exhaustive_queues import Part, arrived, promises, together
from exhaustive_rates import (
    Prices,
    best_share,
    by_speed,
    domain,
    domains_used,
    has_groups,
    holds_of,
    relative_speed,
    speed,
    usable,
)

from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement

# What is left free on a tiny cluster, in the words of two tiers: GPUs stranded, and pieces left whole.


LEFTOVER = ("stranded", "defragment", "suspect")
"""The tiers that are no sums over gangs."""

WHOLE_OR_FREE = ("defragment", "suspect")
"""Those of them of which a plan that leaves less is never worth more."""


def leftover(instance: Instance, tier: str, free: Sequence[int], useful: Sequence[int]) -> int:
    """Value of one of ``LEFTOVER``; ``free``: GPUs left, a node; ``useful``: those with their share of it."""
    if tier == "defragment":
        return defragment(instance.cluster, free)
    if tier == "suspect":
        return sum(gpus for n, gpus in enumerate(free) if failed_lately(instance, n))
    return stranded(instance, free, useful)


def failed_lately(instance: Instance, n: int) -> bool:
    """Whether the node failed within the time that the policy states, before its reference time."""
    last = instance.cluster.nodes[n].last_failure
    return last is not None and instance.now - last < instance.policy.suspect_for_s


def stranded(instance: Instance, free: Sequence[int], useful: Sequence[int]) -> int:
    """Permille-GPU that the next request cannot use."""
    return sum(
        permille_of_mix * _left_over(instance.cluster, name, size, free, useful)
        for name in sorted({n.model.gpu for n in instance.cluster.nodes if n.model})
        for size, permille_of_mix in instance.policy.mix
    )


def _left_over(
    cluster: Cluster, gpu: str, size: int, free: Sequence[int], useful: Sequence[int]
) -> int:
    """F - s x placeable(s) of one GPU model and one size."""
    nodes = [i for i, n in enumerate(cluster.nodes) if n.model and n.model.gpu == gpu]
    largest = max(cluster.nodes[i].gpus for i in nodes)
    total = sum(free[i] for i in nodes)
    if size <= largest:
        return total - size * sum(useful[i] // size for i in nodes)
    need = -(-size // largest)
    for level in reversed(counted_levels(cluster)):
        groups: dict[tuple[str, ...], list[int]] = {}
        for i in nodes:
            groups.setdefault(domain(cluster, level, i), []).append(i)
        if any(sum(cluster.nodes[i].gpus for i in g) >= size for g in groups.values()):
            break
    else:
        groups = {(): nodes}
    whole = [sum(useful[i] == largest for i in group) for group in groups.values()]
    return total - size * sum(count // need for count in whole)


def counted_levels(cluster: Cluster) -> list[int]:
    """The levels above the nodes that tiers look at."""
    return [number for number, level in enumerate(cluster.levels) if level.counted]


def defragment(cluster: Cluster, free: Sequence[int]) -> int:
    """GPUs of the nodes left whole, and once more of those in innermost domains left whole."""
    whole = whole_nodes(cluster, free)
    twice = [whole[n] for nodes in whole_domains(cluster, free) for n in nodes]
    return sum(whole.values()) + sum(twice)


def whole_nodes(cluster: Cluster, free: Sequence[int]) -> dict[int, int]:
    """The nodes with as many GPUs free as the largest of their GPU model has, and how many that is."""
    whole: dict[int, int] = {}
    for n, node in enumerate(cluster.nodes):
        if node.model:
            of_model = [m.gpus for m in cluster.nodes if m.model and m.model.gpu == node.model.gpu]
            if free[n] == max(of_model):
                whole[n] = free[n]
    return whole


def whole_domains(cluster: Cluster, free: Sequence[int]) -> list[list[int]]:
    """The nodes with GPUs of each innermost domain that has several, all of them whole."""
    if not counted_levels(cluster):
        return []
    rooms: dict[tuple[str, ...], list[int]] = {}
    for n, node in enumerate(cluster.nodes):
        if node.model:
            rooms.setdefault(domain(cluster, counted_levels(cluster)[-1], n), []).append(n)
    whole = whole_nodes(cluster, free)
    return [nodes for nodes in rooms.values() if len(nodes) > 1 and all(n in whole for n in nodes)]


# What gangs of a tiny instance add to ``preference`` by standing beside each other.


def spots(instance: Instance, g: int, pods: Pods) -> Part:
    """(level, domain) of a gang that runs whole, for every level at which gangs should be near others."""
    gang, of = instance.gangs[g], instance.cluster.domain_of
    levels = {other.near.level for other in instance.gangs if other.near is not None}
    heavy = {r for r, role in enumerate(gang.roles) if role.gpus} or set(range(len(gang.roles)))
    nodes = [n for r, _, n in pods if r in heavy]
    found = {(level, of[level][nodes[0]]) for level in levels if nodes}
    return frozenset(
        (("spot", g, level, d), 1) for level, d in found if all(of[level][n] == d for n in nodes)
    )


def beside(instance: Instance, part: Part) -> int:
    """GPUs of the gangs that share a spot with one that they name."""
    if not part:
        return 0
    found = {key[1:] for key, _ in part if key[0] == "spot"}
    return sum(
        least_counts(gang) or 1
        for g, gang in enumerate(instance.gangs)
        if any((g, *spot) in found for spot in _spots_of_named(instance, gang, found))
    )


def _spots_of_named(
    instance: Instance, gang: Gang, found: Iterable[tuple[object, ...]]
) -> Iterable[tuple[object, ...]]:
    if gang.near is None:
        return
    pairs = product(enumerate(instance.gangs), found)
    for (h, other), (owner, level, at) in pairs:
        named = other.name in gang.near.gangs and other.namespace == gang.namespace
        if owner == h and level == gang.near.level and named and other is not gang:
            yield level, at


def all_beside(instance: Instance, running: Mapping[int, Pods]) -> int:
    """The same of a plan; ``running``: pods of the gangs that run whole after it."""
    parts = [spots(instance, g, pods) for g, pods in running.items()]
    return beside(instance, frozenset().union(*parts))


# What a plan of a tiny instance is worth, tier by tier as the contract writes it.


Tiers = tuple[tuple[str, int], ...]
"""Values of the stated tiers in the order of the policy."""

MINIMISED = ("disruption", "span", "stranded", "stability")


def weight(gang: Gang) -> int:
    """w(gang): what it counts at ``min``, 1 if nothing."""
    return least_counts(gang) or 1


def tier_names(instance: Instance) -> tuple[str, ...]:
    """The tiers the contract states for this instance, in the policy's order."""
    listed = [objective.name for objective in instance.policy.objectives]
    priorities = sorted({gang.priority for gang in instance.gangs}, reverse=True)
    guarantees, fair = promises(instance).tier_names() if instance.queues else ([], [])
    names: list[str] = guarantees if {"goodput", "admission"} & set(listed) else []
    for name in listed:
        if name in ("goodput", "admission"):
            for p in priorities:
                names += _admission_names(instance, p, name, waiting="waiting" in listed)
        elif name == "waiting":
            main = "goodput" in listed or "admission" in listed
            names += [] if main else [f"waiting/{p}" for p in priorities]
        elif name == "fair":
            names += fair
        elif name == "growth":
            elastic = {g.priority for g in instance.gangs if any(r.elastic for r in g.roles)}
            names += [f"growth/{p}" for p in priorities if p in elastic]
            light = {g.priority for g in instance.gangs if any(map(_light, g.roles))}
            names += [f"growth-pods/{p}" for p in priorities if p in light]
        else:
            names.append(name)
    return tuple(names)


def _light(role: Role) -> bool:
    """Whether pods that count nothing may be more or fewer."""
    return role.elastic and pod_counts(role) == 0


def _admission_names(instance: Instance, priority: int, main: str, *, waiting: bool) -> list[str]:
    """kept, aged and goodput or admission of one priority, with the time waited if that is listed."""
    gangs = [gang for gang in instance.gangs if gang.priority == priority]
    names = ["kept"] if any(_may_lose(gang) for gang in gangs) else []
    if any(aged(instance, gang) for gang in gangs):
        names += ["aged", "aged-waiting"] if waiting else ["aged"]
    names += [main, "waiting"] if waiting else [main]
    return [f"{name}/{priority}" for name in names]


def _may_lose(gang: Gang) -> bool:
    """Whether a running gang may be stopped, or shrunk because it is movable."""
    stand = Counter(pod.role for pod in gang.pods if pod.node is not None)
    above = any(r.elastic and stand[i] > r.min for i, r in enumerate(gang.roles))
    return running(gang) and (gang.preemptible or (gang.movable and above))


def preferred_value(cluster: Cluster, gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """The preference a placement earns; ``pods`` are (role, node)."""
    value = 0
    if gang.preferred is not None and domains_used(cluster, gang.preferred, _nodes(pods)) == 1:
        value += weight(gang)
    for number, role in enumerate(gang.roles):
        nodes = {n for r, n in pods if r == number}
        if role.preferred is not None and domains_used(cluster, role.preferred, nodes) == 1:
            value += role.min * pod_counts(role) or 1
    for group in gang.together:
        heavy = [r for r in group.roles if gang.roles[r].gpus]
        nodes = {n for r, n in pods if r in heavy}
        if domains_used(cluster, group.level, nodes) == 1:
            roles = [gang.roles[r] for r in group.roles]
            value += sum(role.min * pod_counts(role) for role in roles) or 1
    return value


def span_value(cluster: Cluster, gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """Domains beyond the first, weighted by 4 a counted level outwards."""
    innermost = len(cluster.levels)
    counted = [innermost, *(i for i in reversed(range(innermost)) if cluster.levels[i].counted)]
    return weight(gang) * sum(
        (domains_used(cluster, level, _nodes(pods)) - 1) * (1 << 2 * steps)
        for steps, level in enumerate(counted)
    )


def growth_value(gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """GPUs of the elastic roles above ``min``."""
    counts = Counter(r for r, _ in pods)
    return sum(
        (counts[i] - role.min) * pod_counts(role)
        for i, role in enumerate(gang.roles)
        if role.elastic
    )


def light_growth(gang: Gang, pods: Sequence[tuple[int, int]]) -> int:
    """Pods of elastic roles without GPUs above ``min``."""
    counts = Counter(r for r, _ in pods)
    return sum(counts[i] - role.min for i, role in enumerate(gang.roles) if _light(role))


def _nodes(pods: Sequence[tuple[int, int]]) -> set[int]:
    return {n for _, n in pods}


def stability_value(gang: Gang, pods: Pods) -> int:
    """GPUs of pods that an earlier plan wanted on another node."""
    wanted = {(one.role, one.index): one.node for one in gang.planned}
    return counted(gang, (r for r, i, n in pods if wanted.get((r, i), n) != n))


def earnings(instance: Instance, gang: Gang, pods: Pods) -> dict[str, int]:
    """What an admitted gang adds to the tiers by its nodes alone; ``pods``: all of its pods."""
    p = gang.priority
    where = [(r, n) for r, _, n in pods]
    return {
        **({} if by_speed(instance) else _aged_values(instance, gang)),
        f"admission/{p}": weight(gang),
        f"waiting/{p}": _waited(instance, gang),
        f"guarantee/{p}": weight(gang) if gang.key in promises(instance).within else 0,
        "preference": preferred_value(instance.cluster, gang, where),
        f"growth/{p}": growth_value(gang, where),
        f"growth-pods/{p}": light_growth(gang, where),
        "span": span_value(instance.cluster, gang, where),
    }


def performance(instance: Instance, gang: Gang, share: int | None, permille: int) -> dict[str, int]:
    """What an admitted gang adds besides, by the GPUs it has; ``permille``: its speed."""
    counted = share is not None and gang.pattern != "none"
    values = {"bandwidth": gang.weight * weight(gang) * share if counted and share else 0}
    if by_speed(instance):
        values |= {name: permille * value for name, value in _aged_values(instance, gang).items()}
        values[f"goodput/{gang.priority}"] = permille * weight(gang)
    return values


def _aged_values(instance: Instance, gang: Gang) -> dict[str, int]:
    """What an admitted gang adds to the tiers of aged gangs, where they do not count speed."""
    if not aged(instance, gang):
        return {}
    p = gang.priority
    return {f"aged/{p}": weight(gang), f"aged-waiting/{p}": _waited(instance, gang)}


def _waited(instance: Instance, gang: Gang) -> int:
    """w by the seconds from submission to the latest one, of a gang that does not run."""
    since = [t for g in instance.gangs if (t := queued_since(g)) is not None]
    own = queued_since(gang)
    if running(gang) or own is None:
        return 0
    return weight(gang) * (max(since) - own)


def tier_values(instance: Instance, decisions: Sequence[GangDecision]) -> Tiers:
    """The tier vector of any plan; what a plan does to a gang is read off its pods alone."""
    sums: Counter[str] = Counter()
    figures = zip(shares(instance, decisions), speeds(instance, decisions), strict=True)
    of_gangs = zip(instance.gangs, decisions, figures, strict=True)
    runs: dict[int, Pods] = {}
    for g, (gang, decision, (share, permille)) in enumerate(of_gangs):
        pods = [(p.role, p.index, p.node) for p in decision.pods]
        sums[f"kept/{gang.priority}"] += _kept(gang, decision)
        sums["disruption"] += harm(instance, gang) * _disrupted(gang, decision)
        sums["stability"] += stability_value(gang, pods)
        if admitted(gang, decision):
            runs[g] = pods
            sums.update(earnings(instance, gang, pods))
            sums.update(performance(instance, gang, share, permille))
    free = free_after(instance, decisions)
    useful = of_use(instance, free, left_after(instance, decisions))
    for tier in LEFTOVER:
        sums[tier] = leftover(instance, tier, free, useful)
    sums["preference"] += all_beside(instance, runs)
    sums.update(_of_queues(instance, decisions))
    return tuple((name, sums[name]) for name in tier_names(instance))


def _of_queues(instance: Instance, decisions: Sequence[GangDecision]) -> dict[str, int]:
    """The tiers about queues."""
    if not instance.queues:
        return {}
    known = promises(instance)
    parts = []
    for g, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        pods = [(p.role, p.node, pod_counts(gang.roles[p.role]), 0) for p in decision.pods]
        come = arrived(gang, [(p.role, p.index, p.node) for p in decision.pods])
        parts.append(known.part(g, pods, come))
    return known.values(together(*parts))


def held_after(
    instance: Instance, decisions: Sequence[GangDecision]
) -> tuple[list[int], list[int]]:
    """GPUs a node that are known to be held after the plan, and how many more nobody knows."""
    known = [0] * len(instance.cluster.nodes)
    blind = [node.unknown_unhealthy for node in instance.cluster.nodes]
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        for n, (mask, count) in holds_of(gang.roles, decision.pods).items():
            known[n] |= mask
            blind[n] += count
    return known, blind


def shares(instance: Instance, decisions: Sequence[GangDecision]) -> list[int | None]:
    """share of the pods of every gang, None below two GPUs."""
    known, _ = held_after(instance, decisions)
    prices = {joins: Prices(instance, known, joins=joins) for joins in (True, False)}
    return [
        _share(prices[gang.nvlink_across_nodes], gang, decision.pods)
        for gang, decision in zip(instance.gangs, decisions, strict=True)
    ]


def _share(prices: Prices, gang: Gang, pods: Sequence[PodPlacement]) -> int | None:
    if has_groups(gang):
        return best_share(prices, gang, pods)
    return prices.share(holds_of(gang.roles, pods))


def speeds(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Speed of every gang; where it runs whole before the plan the smaller one, before or after."""
    after = _speeds(instance, decisions)
    limits = speed_limits(instance)
    return [b if b is not None and b < a else a for a, b in zip(after, limits, strict=True)]


def speed_limits(instance: Instance) -> list[int | None]:
    """The speed that every gang counts at most: as it stands, unless restarts cost nothing."""
    if instance.policy.disruption.weight == "none":
        return [None] * len(instance.gangs)
    return speeds_before(instance)


def speeds_before(instance: Instance) -> list[int | None]:
    """Speed as every gang stands, None where it does not run whole."""
    stand = [GangDecision("keep", standing(gang)) for gang in instance.gangs]
    return [
        found if running(gang) and whole(gang, places(standing(gang))) else None
        for gang, found in zip(instance.gangs, _speeds(instance, stand), strict=True)
    ]


def _speeds(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """Speed of the pods of every gang, whatever ran before."""
    found = []
    of_gangs = zip(instance.gangs, decisions, shares(instance, decisions), strict=True)
    for gang, decision, share in of_gangs:
        nodes = holds_of(gang.roles, decision.pods)
        found.append(speed(gang, share, relative_speed(instance, gang, nodes)))
    return found


def free_after(instance: Instance, decisions: Sequence[GangDecision]) -> list[int]:
    """GPUs a node that are left free, 0 where it may not be used."""
    known, blind = held_after(instance, decisions)
    return [
        max(0, (n.healthy & ~known[i]).bit_count() - blind[i]) if usable(instance, n) else 0
        for i, n in enumerate(instance.cluster.nodes)
    ]


def left_after(instance: Instance, decisions: Sequence[GangDecision]) -> list[dict[str, int]]:
    """What pods leave of the resources that each node states."""
    left = [dict(node.allocatable) for node in instance.cluster.nodes]
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        for pod in decision.pods:
            for name, amount in (*gang.roles[pod.role].requests, ("pods", 1)):
                if name in left[pod.node]:
                    left[pod.node][name] -= amount
    return left


def of_use(instance: Instance, free: Sequence[int], left: Sequence[Mapping[str, int]]) -> list[int]:
    """Free GPUs a node that have their share of it. ``left``: what pods leave of its resources."""
    if not instance.policy.per_gpu:
        return list(free)
    found = []
    for gpus, amounts in zip(free, left, strict=True):
        most = gpus
        for name, share in instance.policy.per_gpu:
            while name in amounts and most > 0 and most * share > amounts[name]:
                most -= 1
        found.append(most)
    return found


def admitted(gang: Gang, decision: GangDecision) -> bool:
    """It has pods, and is not one that was left with pods missing."""
    before, after = places(standing(gang)), places(decision.pods)
    return bool(after) and (before != after or whole(gang, before))


def _kept(gang: Gang, decision: GangDecision) -> int:
    """GPUs of pods that stood and are there after the plan, wherever."""
    before, after = places(standing(gang)), places(decision.pods)
    return counted(gang, (r for r, i in before if (r, i) in after))


def _disrupted(gang: Gang, decision: GangDecision) -> int:
    """All GPUs of a gang that is stopped or of which any pod moves, else those dropped."""
    before, after = places(standing(gang)), places(decision.pods)
    gpus = {key: pod_counts(gang.roles[key[0]]) for key in before}
    moved = any(after.get(key, place) != place for key, place in before.items())
    if moved or not after:
        return sum(gpus.values())
    return sum(count for key, count in gpus.items() if key not in after)
