"""What tiny instances have of rules about several gangs: pods of sets, shapes, wishes, groups, queues, parts.

Promises: deterministic by the draws; nothing unless a feature is asked for. Called by ``tiny``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from random import Random
from typing import TypeVar

from exhaustive_gangs import paused_until
from tiny_draws import HOUR, Draws

from models.documents.cluster import MigGpus
from models.documents.gang import Hold, Parallelism
from models.documents.policy import DAY_S, EvictionBackoff, Objective
from models.hardware import bits, slug
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Near, NextTo, Role, Spread, Together
from models.instance.gpu_units import in_gpu_units
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.queue import Amount, Cell, Pin, Queue
from models.queues.pins import place_of

Rule = TypeVar("Rule", NextTo, Spread)


# Rules about pods: few sets, so that roles meet

SETS = ("red", "blue")


def with_pod_rules(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps in sets, and with rules about these or about their own pods."""
    found = []
    for gang in gangs:
        roles = [_with_rules(draws, gang, role, cluster) for role in gang.roles]
        known = {name for role in roles for name in role.pod_sets}
        found.append(replace(gang, roles=tuple(_about(role, known) for role in roles)))
    return found


def _about(role: Role, known: set[str]) -> Role:
    """The role with rules about its own pods where no role of the gang is in a set."""

    def own(rules: tuple[Rule, ...]) -> tuple[Rule, ...]:
        return tuple(r if r.pod_set in known else replace(r, pod_set=None) for r in rules)

    apart, join, spread = own(role.anti_affinity), own(role.affinity), own(role.spread)
    return replace(role, anti_affinity=apart, affinity=join, spread=spread)


def _with_rules(draws: Draws, gang: Gang, role: Role, cluster: Cluster) -> Role:
    r = draws.random(f"pod rules/{gang.name}/{role.name}")
    sets = tuple(sorted(name for name in SETS if r.random() < 0.4))
    apart, join = _next_to(r, cluster), _next_to(r, cluster)
    spread = tuple(
        Spread(one.level, r.choice((1, 1, 2)), one.pod_set, r.choice((1, 1, 2, 3)))
        for one in (_next_to(r, cluster), _next_to(r, cluster))[: r.choice((1, 1, 2))]
    )
    names = ("apart", "together", "even")
    wanted = {name: draws.on(name, r) for name in names}
    return replace(
        role,
        pod_sets=sets if any(map(draws.asked, names)) else (),
        anti_affinity=(apart,) if wanted["apart"] else (),
        affinity=(join,) if wanted["together"] else (),
        spread=spread if wanted["even"] else (),
    )


def _next_to(r: Random, cluster: Cluster) -> NextTo:
    level = r.choice(range(len(cluster.levels) + 1))
    return NextTo(level, r.choice((None, *SETS, *SETS)))


# Shapes: balance, exclusive domains, spare nodes, shares of a node, nodes that failed lately


def shaped(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps balanced over domains, or alone in theirs."""
    return [_shaped(draws, gang, cluster) for gang in gangs]


def _shaped(draws: Draws, gang: Gang, cluster: Cluster) -> Gang:
    r = draws.random(f"shape/{gang.name}")
    levels = range(len(cluster.levels) + 1)
    at = {"balance": r.choice(levels), "exclusive": r.choice(levels)}
    wanted = {name: level if draws.on(name, r) else None for name, level in at.items()}
    if wanted["balance"] is not None and not gang.pods:
        gang = replace(gang, roles=tuple(_split(role) for role in gang.roles))
    return replace(gang, **wanted)


def _split(role: Role) -> Role:
    """The role with many small pods, so that balance is seldom free."""
    if role.gpus < 2 or role.elastic or role.slice_size is not None:
        return role
    pods = min(5, role.min * role.gpus)
    return replace(role, min=pods, max=pods, gpus=1)


def shaped_policy(draws: Draws, policy: Policy, cluster: Cluster) -> Policy:
    """The policy, perhaps with spare nodes, or with shares of a node that GPUs need."""
    r = draws.random("shape")
    spares = {level.name: r.choice((1, 1, 2)) for level in cluster.levels if r.random() < 0.7}
    shares = {"cpu": r.choice((4, 8, 12)) * 1000, "memory": r.choice((32, 64, 96)) * 2**30}
    named = tuple(item for item in sorted(shares.items()) if r.random() < 0.7)
    return replace(
        policy,
        spares=tuple(sorted(spares.items())) if draws.on("spares", r) else (),
        per_gpu=named if draws.on("per_gpu", r) else (),
    )


def suspected(draws: Draws, instance: Instance) -> Instance:
    """The instance with nodes that failed, some of them lately, and the tier about them."""
    if not draws.asked("suspects"):
        return instance
    r = draws.random("suspects")
    ago = (None, HOUR, 12 * HOUR, DAY_S, 48 * HOUR)
    failures = [r.choice(ago) for _ in instance.cluster.nodes]
    nodes = tuple(
        replace(node, last_failure=None if s is None else max(0, instance.now - s))
        for node, s in zip(instance.cluster.nodes, failures, strict=True)
    )
    return _with_tier(
        replace(instance, cluster=replace(instance.cluster, nodes=nodes)), "suspect", r
    )


def _with_tier(instance: Instance, name: str, r: Random) -> Instance:
    objectives = list(instance.policy.objectives)
    objectives.insert(r.randrange(len(objectives) + 1), Objective(name))
    return replace(instance, policy=replace(instance.policy, objectives=tuple(objectives)))


# Wishes, and groups


def with_wishes(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps near to others, some of which there are not, or with roles that belong together."""
    names = [*sorted(gang.name for gang in gangs), "nobody"]
    return [_wishing(draws, gang, names, cluster) for gang in gangs]


def _wishing(draws: Draws, gang: Gang, names: Sequence[str], cluster: Cluster) -> Gang:
    r = draws.random(f"beside/{gang.name}")
    levels = range(len(cluster.levels) + 1)
    others = [name for name in names if name != gang.name]
    near = Near(tuple(sorted(r.sample(others, r.choice((1, 1, 2))))), r.choice(levels))
    roles = tuple(sorted(r.sample(range(len(gang.roles)), r.randint(1, len(gang.roles)))))
    group = Together("group", roles, r.choice(levels))
    grouped = draws.on("preferred_groups", r) and any(gang.roles[n].gpus for n in roles)
    wished = near if draws.on("near", r) else None
    return replace(gang, near=wished, together=(group,) if grouped else ())


def grouped(draws: Draws, gangs: Sequence[Gang]) -> list[Gang]:
    """The gangs, perhaps with groups, patterns, an order of their ranks, and ranks that they run with."""
    return [_grouped(draws, gang) for gang in gangs] if draws.asked("parallelism") else list(gangs)


def _grouped(draws: Draws, gang: Gang) -> Gang:
    r = draws.random(f"groups/{gang.name}")
    roles = tuple(replace(role, parallelism=_degrees(r, role)) for role in gang.roles)
    pattern = r.choice(("all-to-all", "parameter-server", "pipeline", "broadcast"))
    in_order = r.random() < 0.3
    parallel, other = draws.on("parallelism", r), draws.on("parallelism", r, 0.15)
    gang = replace(
        gang,
        roles=roles if parallel else gang.roles,
        pattern=pattern if other and gang.pattern != "none" else gang.pattern,
        ordered=in_order,
    )
    return _with_ranks(r, gang)


def _degrees(r: Random, role: Role) -> Parallelism | None:
    """Degrees that divide the GPUs of the role at its least, in one of four roles none."""
    left = role.min * role.gpus
    if not left or r.random() < 0.25:
        return None
    found = {}
    for name in r.sample(("tensor", "pipeline", "context"), 3):
        found[name] = r.choice([d for d in range(1, left + 1) if left % d == 0])
        left //= found[name]
    experts = [d for d in range(1, left * found["context"] + 1) if left * found["context"] % d == 0]
    return Parallelism(**found, expert=r.choice(experts))


def _with_ranks(r: Random, gang: Gang) -> Gang:
    """Pods that stand with ranks of an earlier plan: all, some, or some that contradict each other."""
    missing, wrong = r.choice((0, 0, 0.3, 1)), r.random() < 0.15
    pods = []
    for number, role in enumerate(gang.roles):
        own = [pod for pod in gang.pods if pod.role == number]
        ranks = [role.gpus * place for place in range(len(own))]
        r.shuffle(ranks)
        for pod, rank in zip(own, ranks, strict=True):
            stated = role.gpus * r.randint(0, len(own)) if wrong else rank
            pods.append(pod if r.random() < missing else replace(pod, rank=stated))
    return replace(gang, pods=tuple(pods))


# Queues: a tree of at most four, with guarantees, limits and cells that mostly fit


def with_queues(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with queues that its gangs name."""
    r, cluster = draws.random("queues"), instance.cluster
    plain, celled, fair = (draws.on(name, r) for name in ("queues", "cells", "fair"))
    if not (plain or celled or fair):
        return instance
    names = ("ads", "bio", "cv", "dev")[: r.randint(1, 4)]
    queues = [_queue(draws, i, name, cluster) for i, name in enumerate(names)]
    if not plain:
        none = {"guarantee": Amount(), "limit": Amount(), "borrowing": True}
        queues = [replace(queue, **none) for queue in queues]
    if draws.on("lending", draws.random("lending")):
        queues = [_lending(draws, queue) for queue in queues]
    if draws.asked("firm_limits"):
        r, most = draws.random("firm_limits"), sum(node.gpus for node in cluster.nodes) // 2
        queues = [
            replace(queue, non_preemptible_limit=_amount(r, cluster, most))
            if r.random() < 0.6
            else queue
            for queue in queues
        ]
    if draws.asked("strict"):
        r = draws.random("strict")
        queues = [replace(queue, strict=r.random() < 0.6) for queue in queues]
    if draws.on("pins", draws.random("pins")):
        queues = _with_pins(draws, queues, cluster)
    if celled:
        queues = [_with_cells(draws, queue, cluster) for queue in queues]
    named = [
        replace(gang, queue=r.choice((*names, *names, *names, None, "nowhere")))
        for gang in instance.gangs
    ]
    gangs = tuple(_of_others(draws, gang) for gang in named)
    made = replace(instance, gangs=gangs, queues=tuple(queues))
    return _with_tier(made, "fair", r) if fair else made


def _of_others(draws: Draws, gang: Gang) -> Gang:
    """Half of the gangs that wait and name no queue are another scheduler's."""
    other = draws.random(f"scheduler/{gang.name}").random() < 0.5
    if gang.queue is not None or not gang.missing or not other:
        return gang
    pods = tuple(replace(pod, mode=None) for pod in gang.pods)
    return replace(gang, scheduler="default-scheduler", pods=pods)


def _queue(draws: Draws, i: int, name: str, cluster: Cluster) -> Queue:
    r = draws.random(f"queue/{name}")
    capacity = sum(node.gpus for node in cluster.nodes)
    parent = r.choice((None, *range(i))) if r.random() < 0.6 else None
    guarantee, limit = _amount(r, cluster, capacity // 2), _amount(r, cluster, capacity)
    return Queue(
        name=name,
        parent=parent,
        guarantee=guarantee if r.random() < 0.7 else Amount(),
        limit=limit if r.random() < 0.35 else Amount(),
        borrowing=r.random() < 0.85,
        reclaim=r.random() < 0.85,
        weight=r.choice((1, 1, 2, 3)),
    )


def _lending(draws: Draws, queue: Queue) -> Queue:
    """Half of the queues keep some of their guarantee, in all or of a model."""
    r = draws.random(f"lending/{queue.name}")
    if r.random() < 0.4:
        return queue
    most, models = queue.guarantee.gpus, dict(queue.guarantee.models)
    lent = {name: r.randint(0, gpus) for name, gpus in models.items() if r.random() < 0.7}
    in_all = None if most is None or r.random() < 0.2 else r.randint(0, most // 2)
    return replace(queue, lending_limit=Amount(in_all, tuple(sorted(lent.items()))))


def _models(cluster: Cluster) -> list[str]:
    return sorted({slug(node.model.gpu) for node in cluster.nodes if node.model})


def _amount(r: Random, cluster: Cluster, most: int) -> Amount:
    """Of all models together, of some, or of both."""
    gpus = r.randint(0, most)
    models = {name: r.randint(0, most) for name in _models(cluster) if r.random() < 0.6}
    kind = r.random()
    if kind < 0.6 or not models:
        return Amount(gpus)
    return Amount(gpus if kind < 0.8 else None, tuple(sorted(models.items())))


def _with_pins(draws: Draws, queues: Sequence[Queue], cluster: Cluster) -> list[Queue]:
    """Some queues pin a domain or one or two nodes that no queue pins which is not above or below them."""

    def line(q: int | None) -> list[int]:
        return [] if q is None else [q, *line(queues[q].parent)]

    found, taken = list(queues), dict[str, set[int]]()
    for q, queue in enumerate(queues):
        r = draws.random(f"pins/{queue.name}")
        if r.random() < 0.35:
            continue
        pin = _pin(r, cluster)
        names = {cluster.nodes[n].name for n in place_of(cluster, pin)}
        others = {o for name in names for o in taken.get(name, ())}
        if q in others or any(o not in line(q) and q not in line(o) for o in others):
            continue
        for name in names:
            taken.setdefault(name, set()).add(q)
        found[q] = replace(queue, pins=(pin,))
    return found


def _pin(r: Random, cluster: Cluster) -> Pin:
    domains = [
        Pin(level, "/".join(domain.path))
        for level in range(len(cluster.levels))
        for domain in cluster.domains[level]
        if None not in cluster.nodes[domain.nodes[0]].domains[: level + 1]
    ]
    if domains and r.random() < 0.4:
        return r.choice(domains)
    names = [node.name for node in cluster.nodes]
    return Pin(nodes=tuple(sorted(r.sample(names, min(len(names), r.choice((1, 1, 2)))))))


def _with_cells(draws: Draws, queue: Queue, cluster: Cluster) -> Queue:
    r, cells = draws.random(f"cells/{queue.name}"), []
    for _ in range(r.choice((0, 1, 1, 2))):
        model = r.choice((None, None, *_models(cluster)))
        level = r.choice((*range(len(cluster.levels) + 1), len(cluster.levels)))
        if r.random() < 0.5:
            cells.append(Cell(r.choice((1, 1, 2)), level=level, model=model))
        else:
            cells.append(Cell(r.choice((1, 1, 2)), gpus=r.choice((1, 2, 2, 3)), model=model))
    return replace(queue, cells=tuple(cells))


# Minimum run times, and evictions: a gang that pauses is held

MINUTE = 60
STATED = (None, None, 0, 30 * MINUTE, 300 * MINUTE, 1000 * MINUTE)
"""Minimum run times; gangs of busy instances started up to 1,000 minutes ago."""


def calmed(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with run times for some of those that may state one, and with evictions."""
    r = draws.random("run times")
    wanted, most = draws.on("run_times", r), r.choice((0, 10 * MINUTE, 400 * MINUTE))
    if wanted:
        gangs = tuple(_protected(draws, gang) for gang in instance.gangs)
        queues = tuple(
            replace(q, min_run_time_s=draws.random(f"run time of queue/{q.name}").choice(STATED))
            for q in instance.queues
        )
        policy = replace(instance.policy, min_run_time_s=most)
        instance = replace(instance, gangs=gangs, queues=queues, policy=policy)
    r = draws.random("evictions")
    backoff = r.choice((None, EvictionBackoff(), EvictionBackoff(60 * MINUTE, 200 * MINUTE)))
    if draws.on("evictions", r):
        gangs = tuple(_evicted(draws, gang) for gang in instance.gangs)
        policy = replace(instance.policy, eviction_backoff=backoff, now=instance.now)
        instance = replace(instance, gangs=gangs, policy=policy)
        pauses = [g.hold is None and paused_until(instance, g) is not None for g in gangs]
        held = Hold("Backoff", "plans stopped it")
        gangs = tuple(
            replace(g, hold=held) if own else g for g, own in zip(gangs, pauses, strict=True)
        )
        instance = replace(instance, gangs=gangs)
    return instance


def _protected(draws: Draws, gang: Gang) -> Gang:
    r = draws.random(f"run time/{gang.name}")
    begun, earlier = gang.started_at, r.choice((0, 0, 60, 400)) * MINUTE
    since = None if begun is None or not earlier else begun - earlier
    return replace(gang, min_run_time_s=r.choice(STATED), runs_since=since)


def _evicted(draws: Draws, gang: Gang) -> Gang:
    """Perhaps stopped in the hours before, once or several times, or nobody counted how often."""
    r = draws.random(f"evicted/{gang.name}")
    ago, times, often = 10 * MINUTE * r.randint(0, 60), r.choice((0, 1, 1, 2, 3)), r.random() < 0.5
    since = gang.submitted_at or gang.started_at
    if since is None or not often:
        return gang
    return replace(gang, evicted_at=since + 360 * MINUTE - ago, evictions=times)


# Partitioned GPUs (MIG), none of which a pod holds, and pods that ask for an instance

SMALL, LARGE = "1g.10gb", "3g.40gb"
MIG = "nvidia.com/mig-"


def with_instances(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with partitioned GPUs and gangs that ask for their instances."""
    if not draws.asked("instances"):
        return instance
    gangs = tuple(_asking(draws, gang) for gang in instance.gangs)
    asked = {name for gang in gangs for role in gang.roles for name, _ in role.requests}
    none = dict.fromkeys((name for name in asked if name.startswith(MIG)), 0)
    made = [_partitioned(draws, n, instance) for n in range(len(instance.cluster.nodes))]
    nodes = tuple(  # of instances that it lacks a node has none
        replace(node, allocatable=tuple(sorted({**none, **dict(node.allocatable)}.items())))
        for node in made
    )
    return replace(instance, gangs=gangs, cluster=replace(instance.cluster, nodes=nodes))


def _asking(draws: Draws, gang: Gang) -> Gang:
    """The gang; pods without GPUs often ask for an instance, and there are perhaps more of them."""
    r = draws.random(f"instances/{gang.name}")
    pods, more = r.randint(1, 2), r.random() < 0.5
    roles = [role if role.gpus else _with_instance(r, role) for role in gang.roles]
    if more and all(role.gpus for role in roles):
        left = 6 - sum(role.max for role in roles)
        part = _with_instance(r, Role("part", min(pods, left), min(pods, left), 1, 0), 1.0)
        roles += [part] if left > 0 and not gang.running else []
    return replace(gang, roles=tuple(roles))


def _with_instance(r: Random, role: Role, chance: float = 0.7) -> Role:
    name, asks = f"{MIG}{r.choice((SMALL, SMALL, LARGE))}", r.random() < chance
    requests = tuple(sorted({**dict(role.requests), name: 1}.items()))
    return replace(role, requests=requests) if asks else role


def _partitioned(draws: Draws, n: int, instance: Instance) -> Node:
    """The node with some of its healthy GPUs partitioned that no pod holds, as far as one knows."""
    r, node = draws.random(f"partitioned/{n}"), instance.cluster.nodes[n]
    known, unknown = 0, node.unknown_unhealthy
    for gang in instance.gangs:
        for pod in gang.pods:
            if pod.node == n:
                known |= pod.gpus or 0
                unknown += gang.roles[pod.role].gpus if pod.gpus is None else 0
    free = bits(node.healthy & ~known)
    chosen = sorted(r.sample(free, max(0, min(r.choice((0, 1, 1, 2)), len(free) - unknown))))
    sets = ((SMALL,), (SMALL, SMALL), (LARGE, SMALL), (LARGE, LARGE), (SMALL, SMALL, SMALL))
    mig = tuple(MigGpus((gpu,), r.choice(sets)) for gpu in chosen)
    there = Counter(f"{MIG}{name}" for one in mig for name in one.profiles)
    held = {name: 1 for name in sorted(there) if r.random() < 0.1}
    spare = len(free) - len(chosen) - unknown
    more = 1 if r.random() < 0.15 and spare > 0 else 0  # partitioned, and nobody knows which
    left = {name: count - held.get(name, 0) for name, count in there.items()}
    return replace(
        node,
        mig=mig,
        unhealthy=node.unhealthy | sum(1 << gpu for gpu in chosen),
        unknown_unhealthy=node.unknown_unhealthy + more,
        unknown_partitioned=more,
        allocatable=tuple(sorted({**dict(node.allocatable), **left}.items())),
        held=tuple(sorted({**dict(node.held), **held}.items())),
    )


def counted(instance: Instance, decimals: Random | None = None) -> Instance:
    """The instance in its unit of GPUs, counted anew, with the same amounts of its queues.

    ``decimals``: draws what some amounts of its queues are beside whole GPUs.
    """
    unit, moves = instance.gpu_unit, instance.policy.moves
    if moves is not None and moves.max_gpus is not None:
        moves = replace(moves, max_gpus=moves.max_gpus // unit)

    def more() -> int:
        return 0 if decimals is None else decimals.choice((0, 0, 142, 250, 300, 800))

    def gpus(amount: Amount) -> Amount:
        models = tuple((model, 1000 // unit * n + more()) for model, n in amount.models)
        in_all = None if amount.gpus is None else 1000 // unit * amount.gpus + more()
        return Amount(in_all, models)

    amounts = ("guarantee", "limit", "lending_limit", "non_preemptible_limit")
    return in_gpu_units(
        replace(
            instance,
            gpu_unit=1,
            policy=replace(instance.policy, moves=moves),
            queues=tuple(
                replace(queue, **{name: gpus(getattr(queue, name)) for name in amounts})
                for queue in instance.queues
            ),
            gangs=tuple(
                replace(gang, roles=tuple(replace(role, thousandths=None) for role in gang.roles))
                for gang in instance.gangs
            ),
        )
    )
