"""Random tiny instances, by seed: what they may have is a table (``features.yaml``).

``tiny``: 1 to 4 servers of 2 to 8 GPUs, 2 to 5 gangs of at most 6 pods, every rule in some of them.
``busy``: 2 to 4 servers of at most 12 GPUs (16 if asked to be wide) on which most things run already, at most
4 pods a gang. ``tiny_by_speed`` and ``busy_by_speed``: the same of a seed under goodput.

Promises: the same seed gives the same instance; each feature can be switched off by name and leaves the draws
of the others as they are, so that a failing case can be narrowed; most instances are contended; standing
pods hold GPUs that no other pod holds, unless drawn so.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction
from random import Random

from building import mask
from building_servers import links, nvl, pairs4, pcie, ring4, switched, v100
from tiny_draws import HOUR, Draws
from tiny_rules import (
    calmed,
    counted,
    grouped,
    shaped,
    shaped_policy,
    suspected,
    with_instances,
    with_pod_rules,
    with_queues,
    with_wishes,
)

from models.documents.cluster import DisruptionBudget, Level, Taint
from models.documents.gang import Hold, NodeExpression, Toleration
from models.documents.policy import Disruption, Objective, SolveLimits, preset_objectives
from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, PlannedPod, Role
from models.instance.instance import Instance
from models.instance.policy import Moves, Policy
from models.starts.empty_starts import EmptyStarts

OBJECTIVES = preset_objectives("admission")
NEWEST = 1_795_000_000
"""Seconds since the epoch; the queue was submitted in the hours before."""
SPEEDS = (10_000, 25_000, 100_000, 200_000, 400_000)
"""Line rates in Mbit/s."""
MAX_PODS = {False: 6, True: 3}
"""Pods of a gang, by whether most things run; a launcher may come on top."""
MAX_MOVING = {False: 3, True: 6}
"""Pods of one running gang, of all together on busy instances, that may move."""


def tiny(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """Raises ValueError for a feature that does not exist."""
    draws = Draws(seed, without, more)
    cluster = _cluster(draws)
    gangs, cluster = _gangs(draws, cluster)
    instance = Instance(cluster, gangs, _policy(draws, cluster, gangs), starts=EmptyStarts)
    return counted(with_instances(draws, suspected(draws, with_queues(draws, instance))))


def busy(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """Raises ValueError for a feature that does not exist."""
    draws = Draws(seed, without, more, busy=True)
    cluster = _small_cluster(draws)
    gangs, cluster = _busy_gangs(draws, cluster)
    gangs, cluster = _guarded(draws, gangs, cluster)
    policy = _busy_policy(draws, _policy(draws, cluster, gangs), gangs)
    instance = Instance(cluster, gangs, policy, starts=EmptyStarts)
    made = calmed(draws, suspected(draws, with_queues(draws, instance)))
    return counted(with_instances(draws, made))


# Clusters: server models of every fabric, NICs, levels, labels, taints, sick GPUs


def _cluster(draws: Draws) -> Cluster:
    """Servers of one family (or two), under no to two levels; at most 20 GPUs."""
    r = draws.random("servers")
    family = r.choice(
        ("v100", "v100", "ring", "pairs", "quad", "switched", "switched", "pcie", "nvl")
    )
    first = _model(draws, family, "a")
    count = r.randint(1, 2) if first.gpus == 8 and not first.switched else r.randint(2, 4)
    if first.gpus == 8 and first.switched:
        count = min(count, 3)
    wide = r.randint(5, 8)
    if draws.asked("wide") and first.switched:  # meshes would take minutes to try in full
        count = wide
    models: list[ServerModel | None] = [first] * count
    other = r.choice(("ring", "pairs", "switched", "pcie"))
    if draws.on("mixed", r):
        # The same GPU model in another server, or another one: both are of interest to rule 5.
        second = _model(draws, other, "b")
        second = replace(second, gpu=first.gpu) if r.random() < 0.4 else second
        models[-1] = second
        models.insert(0, first)
        models = models[-4:]
    if draws.on("cpu_nodes", r):
        models.append(None)
    r.shuffle(models)
    return _under_levels(draws, "tiny", models)


def _small_cluster(draws: Draws) -> Cluster:
    r = draws.random("servers")
    first, count = r.choice(
        (
            *[(switched(2), r.randint(3, 4)) for _ in range(2)],
            *[(switched(4), r.randint(2, 3)) for _ in range(2)],
            (nvl(2, r.randint(2, 3)), r.randint(3, 4)),
            (pcie(r.choice((2, 3))), r.randint(2, 4)),
            (ring4(), r.randint(2, 3)),
            (pairs4(), r.randint(2, 3)),
        )
    )
    models: list[ServerModel | None] = [_named(draws, first, "a")]
    models *= 4 if draws.asked("wide") else count
    other = _named(draws, r.choice((switched(2), pcie(3), ring4(), pairs4())), "b")
    same_gpu = r.random() < 0.5
    if draws.on("mixed", r):
        models[-1] = replace(other, gpu=first.gpu) if same_gpu else other
    r.shuffle(models)
    if draws.on("cpu_nodes", r):
        models.append(None)
    return _under_levels(draws, "busy", models)


def _under_levels(draws: Draws, name: str, models: Sequence[ServerModel | None]) -> Cluster:
    levels = _levels(draws, models)
    nodes = tuple(_node(draws, i, model, levels) for i, model in enumerate(models))
    return Cluster(name, levels, nodes)


def _model(draws: Draws, family: str, suffix: str) -> ServerModel:
    r = draws.random(f"model/{suffix}")
    size, small, trays = r.choice((2, 4, 4, 8)), r.choice((2, 4)), r.randint(2, 3)
    if family == "quad":
        quad = links(4, {(a, b): "NV4" for a in range(4) for b in range(a + 1, 4)}, "SYS")
        model = replace(pairs4(), name="quad", fabric="direct", matrix=quad, links_per_gpu=12)
    elif family == "pcie":
        model = pcie(r.randint(2, 4))
    else:
        made = {"v100": v100(), "ring": ring4(), "pairs": pairs4(), "switched": switched(size)}
        model = made[family] if family in made else nvl(small, trays)
    return _with_nics(draws, model, suffix, r)


def _named(draws: Draws, model: ServerModel, suffix: str) -> ServerModel:
    return _with_nics(draws, model, suffix, draws.random(f"named/{suffix}"))


def _with_nics(draws: Draws, model: ServerModel, suffix: str, r: Random) -> ServerModel:
    """The model with NICs of its own and a name of its own."""
    nics = _nics(r, model.gpus)
    changed = replace(model, nics=nics) if draws.on("nics", r) else model
    return replace(changed, name=f"{model.name} {suffix}")


def _nics(r: Random, gpus: int) -> tuple[Nic, ...]:
    """None, one near all, one a GPU, one a pair, one near a half, two of unlike speed, one near one."""
    half, speed = gpus // 2, r.choice(SPEEDS)
    lower, upper = tuple(range(half)), tuple(range(half, gpus))
    choices: tuple[tuple[Nic, ...], ...] = (
        (),
        (Nic("eth0", speed),),
        tuple(Nic(f"ib{i}", speed, (i,)) for i in range(gpus)),
        tuple(Nic(f"ib{i}", speed, (i, i + 1)) for i in range(0, gpus - 1, 2)),
        (Nic("ib0", speed, lower),),
        (Nic("ib0", speed, lower), Nic("ib1", r.choice(SPEEDS), upper)),
        (Nic("ib0", speed, (gpus - 1,)), Nic("eth0", 25_000)),
    )
    return r.choice(choices)


def _levels(draws: Draws, models: Sequence[ServerModel | None]) -> tuple[Level, ...]:
    r = draws.random("levels")
    count = r.choice((0, 1, 1, 2, 2))
    over = [Fraction(r.choice(("1", "1", "1.5", "2", "3", "4"))) for _ in range(2)]
    fabric = r.choice(("block", "rack", "rack", "both", "neither"))
    if "levels" in draws.without:
        return ()
    shared = any(model is not None and model.nvlink_domain_nodes > 1 for model in models)
    names = enumerate(("block", "rack")[2 - count :])
    levels = [
        Level(
            name,
            f"example.com/{name}",
            over[i] if draws.on("oversubscription", r) else Fraction(1),
            nvlink=shared and fabric in (name, "both"),
        )
        for i, name in names
    ]
    r = draws.random("uncounted")
    plain = {"oversubscription": Fraction(1), "nvlink": False, "counted": False}
    return tuple(replace(one, **plain) if draws.on("uncounted", r) else one for one in levels)


def _node(draws: Draws, i: int, model: ServerModel | None, levels: Sequence[Level]) -> Node:
    r, size = draws.random(f"node/{i}"), draws.random(f"size/{i}")
    gpus = model.gpus if model else 0
    domains: list[str | None] = []
    for level in levels:
        name = f"{level.name[0]}{r.randint(1, 2)}"
        domains.append(None if draws.on("gaps", r) else name)
    own = _nics(r, gpus) if gpus else ()
    effect = r.choice(("NoSchedule", "NoExecute", "PreferNoSchedule"))
    sick = r.sample(range(gpus), r.choice((1, 1, 2))) if gpus >= 2 else []
    number = size.choice((None, "1", "2", "3", "large"))  # a label to compare with, or no number
    sized = (("size", number),) if number is not None and "affinity" not in draws.without else ()
    scale = max(gpus, 2)
    amounts = {  # more or less than the gangs ask for: cpu 8 a GPU, memory 64 GiB a GPU, a few pods
        "cpu": r.randint(6, 14) * 1000 * scale,
        "memory": r.randint(48, 112) * 2**30 * scale,
        "pods": r.randint(2, 6),
    }
    return Node(
        name=f"n{i + 1}",
        model=model,
        domains=tuple(domains),
        allocatable=tuple(item for item in amounts.items() if draws.on("resources", r)),
        labels=(("pool", r.choice("aab")), *sized),
        taints=(Taint("dedicated", "infra", effect),) if draws.on("taints", r) else (),
        nics=own if draws.on("own_nics", r) and gpus else None,
        unschedulable=draws.on("cordons", r),
        ready=not draws.on("not_ready", r),
        unhealthy=mask(*sick) if draws.on("unhealthy", r) else 0,
    )


# Gangs: some that run, whole or not, and a queue that asks for too much


def _gangs(draws: Draws, cluster: Cluster) -> tuple[tuple[Gang, ...], Cluster]:
    """Gangs asking for one to two times the GPUs there are; and the cluster with unknown sick GPUs."""
    r = draws.random("gangs")
    capacity = sum(node.gpus for node in cluster.nodes)
    most, demand = r.randint(3, 5), r.choice((1.2, 1.5, 2.0)) * capacity
    most = min(most, 3) if draws.asked("wide") else most
    gangs: list[Gang] = []
    free = [(1 << node.gpus) - 1 for node in cluster.nodes]
    asked = 0
    while len(gangs) < most and (len(gangs) < 3 or asked < demand):
        gang = _gang(draws, len(gangs), cluster)
        runs = draws.on("running", r)
        gang = _started(draws, gang, cluster, free) if runs else _queued(draws, gang)
        asked += gang.weight_gpus
        gangs.append(_held(draws, gang))
    nodes = [_sickened(draws, i, node, free[i]) for i, node in enumerate(cluster.nodes)]
    return _ruled(draws, gangs, cluster, nodes)


def _busy_gangs(draws: Draws, cluster: Cluster) -> tuple[tuple[Gang, ...], Cluster]:
    """3 to 6 gangs, those that run first, until they ask for more than there is."""
    r = draws.random("gangs")
    capacity = sum(node.gpus for node in cluster.nodes)
    most, demand = r.randint(3, 6), r.choice((0.8, 1.0, 1.3, 1.6)) * capacity
    free = [(1 << node.gpus) - 1 for node in cluster.nodes]
    running = sorted((draws.on("running", r) for _ in range(most)), reverse=True)
    gangs: list[Gang] = []
    asked = moving = 0
    for i, runs in enumerate(running):
        if len(gangs) >= 3 and asked > demand and not runs:
            break
        gang = _gang(draws, i, cluster)
        if not runs and draws.on("priorities", draws.random(f"urgent/{i}")):
            gang = replace(gang, priority=100)
        gang = _timed(draws, _started(draws, gang, cluster, free)) if runs else _queued(draws, gang)
        if gang.movable and gang.running:
            moving += len(gang.running_pods)
            gang = replace(gang, movable=moving <= MAX_MOVING[True])
        asked += gang.weight_gpus
        gangs.append(_planned(draws, _held(draws, gang), cluster))
    nodes = [_sickened(draws, i, node, free[i]) for i, node in enumerate(cluster.nodes)]
    nodes = [_turned(draws, i, node) for i, node in enumerate(nodes)]
    return _ruled(draws, gangs, cluster, nodes)


def _ruled(
    draws: Draws, gangs: Sequence[Gang], cluster: Cluster, nodes: Sequence[Node]
) -> tuple[tuple[Gang, ...], Cluster]:
    ruled = with_pod_rules(draws, gangs, cluster)
    ruled = with_wishes(draws, grouped(draws, shaped(draws, ruled, cluster)), cluster)
    return tuple(sorted(ruled, key=lambda g: g.key)), replace(cluster, nodes=tuple(nodes))


def _gang(draws: Draws, i: int, cluster: Cluster) -> Gang:
    """A gang of which no pod exists."""
    r, most = draws.random(f"gang/{i}"), MAX_PODS[draws.busy]
    roles = [_role(draws, r, "worker", cluster, most)]
    pods = roles[0].max
    if draws.on("roles", r) and pods < most:
        roles.append(_role(draws, r, "server", cluster, min(2, most - pods)))
    elif draws.on("launchers", r) and pods < most:
        roles.insert(r.randint(0, 1), _launcher(draws, r, cluster, 1))
    if draws.on("cpu_gangs", r):
        roles = [_launcher(draws, r, cluster, r.randint(1, 4))]
    if draws.asked("growing_launchers"):
        roles = _growing(draws, i, roles)
    roles = [
        _attracted(draws, i, _shifted(draws, i, _enclosed(draws, i, one)), cluster) for one in roles
    ]
    levels = range(len(cluster.levels) + 1)
    required, preferred = min(r.choice(levels), r.choice(levels)), r.choice(levels)
    share, weight = draws.share(r), r.randint(2, 3)
    submitted = NEWEST - 600 * r.randint(0, 60)
    return Gang(
        namespace=r.choice(("default", "research")),
        name=f"g{i + 1}",
        roles=tuple(roles),
        priority=r.choice((0, 10, 100)) if draws.on("priorities", r) else 0,
        submitted_at=submitted if draws.on("submitted", r) else None,
        preemptible=draws.on("preemptible", r),
        movable=draws.on("movable", r),
        required=required if draws.on("required", r) else None,
        preferred=preferred if draws.on("preferred", r) else None,
        min_bandwidth_share=share if draws.on("min_share", r) else None,
        pattern="none" if draws.on("pattern_none", r) else "all-reduce",
        weight=weight if draws.on("weights", r) else 1,
    )


def _growing(draws: Draws, gang: int, roles: Sequence[Role]) -> list[Role]:
    """The roles, those without GPUs with a few pods more if the gang stays small enough."""
    r, found = draws.random(f"growing_launchers/{gang}"), []
    left = MAX_PODS[False] - sum(role.max for role in roles)
    for role in roles:
        more = min(left, r.randint(1, 2)) if not role.gpus and r.random() < 0.8 else 0
        left -= more
        found.append(replace(role, max=role.max + more, elastic=True) if more else role)
    return found


def _role(draws: Draws, r: Random, name: str, cluster: Cluster, most: int) -> Role:
    """Pods of 1 to 8 GPUs; together at most half of the cluster, but one pod at least."""
    servers = [node for node in cluster.nodes if node.model]
    chosen = r.choice(servers)
    gpus = r.choice([size for size in (1, 1, 2, 2, 3, 4, 8) if size <= chosen.gpus])
    capacity = sum(node.gpus for node in servers)
    pods = r.randint(1, max(1, min(most, capacity // (2 * gpus))))
    step = r.choice((1, 1, 2))
    grows = draws.on("elastic", r)
    top = max(pods, min(most, pods + step * r.randint(1, 2)))
    role = _constrained(draws, r, Role(name, pods, pods, 1, gpus), cluster)
    wanted = r.choice([node.model.gpu for node in servers if node.model])
    if r.random() < 0.3 and chosen.model:
        wanted = chosen.model.name
    return replace(
        role,
        min=pods - 1 if grows and top == pods > 1 else pods,
        max=top if grows else pods,
        step=step if grows else 1,
        elastic=grows,
        model=wanted if draws.on("role_model", r) else None,
        mix_models=draws.on("mix_models", r),
    )


def _shifted(draws: Draws, gang: int, role: Role) -> Role:
    """The role with indices that start above 0."""
    r = draws.random(f"first_index/{gang}/{role.name}")
    first = r.randint(1, 4)
    return replace(role, first_index=first if draws.on("first_index", r) else 0)


def _enclosed(draws: Draws, gang: int, role: Role) -> Role:
    """The role with slices around its slices, one layer for every wider level or fewer."""
    r = draws.random(f"slice_layers/{gang}/{role.name}")
    size, outer = role.slice_size or 1, list[tuple[int, int]]()
    for level in reversed(range(role.slice_level or 0)):
        factor, skips = r.choice((2, 2, 3)), r.random() < 0.3
        if not skips:
            size *= factor
            outer.append((size, level))
    on = draws.on("slice_layers", r) and role.slice_size is not None
    return replace(role, outer_slices=tuple(outer) if on else ())


def _attracted(draws: Draws, gang: int, role: Role, cluster: Cluster) -> Role:
    """The role with a node affinity of one or two terms."""
    r = draws.random(f"affinity/{gang}/{role.name}")
    terms = tuple(
        tuple(_expression(r, cluster) for _ in range(r.choice((1, 1, 2))))
        for _ in range(r.choice((1, 2)))
    )
    return replace(role, node_affinity=terms if draws.on("affinity", r) else ())


def _expression(r: Random, cluster: Cluster) -> NodeExpression:
    hosts = tuple(r.choice(cluster.nodes).name for _ in range(2))
    key = r.choice(("pool", "size", "example.com/rack", "kubernetes.io/hostname"))
    pick = r.choice(("In", "NotIn"))
    return r.choice(
        (
            NodeExpression("metadata.name", pick, hosts, field=True),
            NodeExpression("pool", pick, (r.choice("ab"),)),
            NodeExpression("size", r.choice(("Gt", "Lt")), (str(r.randint(0, 3)),)),
            NodeExpression("example.com/rack", pick, ("r1",)),
            NodeExpression(key, r.choice(("Exists", "DoesNotExist"))),
        )
    )


def _launcher(draws: Draws, r: Random, cluster: Cluster, pods: int) -> Role:
    return _constrained(draws, r, Role("launcher", pods, pods, 1, 0), cluster)


def _constrained(draws: Draws, r: Random, role: Role, cluster: Cluster) -> Role:
    """Requests, topology, slices, selectors and tolerations."""
    levels = range(len(cluster.levels) + 1)
    units = max(role.gpus, 1)
    cpu, memory = r.choice((0, 4000, 8000)) * units, r.choice((32, 64)) * 2**30 * units
    required, preferred, slice_level = (r.choice(levels) for _ in range(3))
    host = r.choice(cluster.nodes).name
    selector = r.choice(((("pool", "a"),), (("pool", "b"),), (("kubernetes.io/hostname", host),)))
    size = r.randint(1, 3)
    sliced = draws.on("slices", r) and role.max >= 2
    requests = (("cpu", cpu), ("memory", memory))
    return replace(
        role,
        requests=tuple(item for item in requests if draws.on("resources", r, 0.4)),
        required=required if draws.on("role_topology", r) else None,
        preferred=preferred if draws.on("role_topology", r, 0.15) else None,
        slice_size=size if sliced else None,
        slice_level=slice_level if sliced else None,
        node_selector=selector if draws.on("selectors", r) else (),
        tolerations=(Toleration("dedicated", "Exists"),) if draws.on("taints", r, 0.4) else (),
    )


def _started(draws: Draws, gang: Gang, cluster: Cluster, free: list[int]) -> Gang:
    """The gang with pods standing where there is room (as it is if there is none); takes from ``free``.

    It is movable only with few of them: each may move or stay, and every plan is tried.
    """
    r = draws.random(f"running/{gang.name}")
    pods: list[ExistingPod] = []
    for number, role in enumerate(gang.roles):
        for index in role.indices(r.choice(role.allowed_counts())):
            gone = draws.on("incomplete", r)
            pod = None if gone else _stand(draws, r, gang, (number, index), cluster, free)
            pods += [pod] if pod else []
    few = len(pods) <= MAX_MOVING[False]
    return replace(gang, pods=tuple(pods), movable=gang.movable and few)


def _queued(draws: Draws, gang: Gang) -> Gang:
    """The gang with some of its pods there already, waiting."""
    r = draws.random(f"queued/{gang.name}")
    pods = tuple(
        ExistingPod(f"{gang.name}-{role.name}-x{i}", n, i, uid=f"u-{n}-{i}", mode="gate")
        for n, role in enumerate(gang.roles)
        for i in role.indices(role.min)
        if r.random() < 0.7
    )
    return replace(gang, pods=pods if draws.on("waiting_pods", r) else ())


def _held(draws: Draws, gang: Gang) -> Gang:
    """The gang, perhaps held back, perhaps without NVLink between servers."""
    apart, r = draws.random(f"network_only/{gang.name}"), draws.random(f"held/{gang.name}")
    hold = Hold(r.choice(("Unsupported", "Incomplete")), "drawn so")
    joined = not draws.on("network_only", apart)
    return replace(gang, nvlink_across_nodes=joined, hold=hold if draws.on("held", r) else None)


def _stand(
    draws: Draws, r: Random, gang: Gang, place: tuple[int, int], cluster: Cluster, free: list[int]
) -> ExistingPod | None:
    """One pod on a random node with so many GPUs free, whatever its labels; None if there is none.

    Seldom on one with so many GPUs, whoever holds them; only pods with GPUs.
    """
    role = gang.roles[place[0]]
    sick_too = draws.on("sick_holders", r)
    hidden = draws.on("unknown_gpus", r) and not sick_too
    room = [
        own & (node.model.all_gpus if sick_too and node.model else node.healthy)
        for own, node in zip(free, cluster.nodes, strict=True)
    ]
    fitting = [n for n, own in enumerate(room) if own.bit_count() >= role.gpus]
    if role.gpus:
        fitting = [n for n in fitting if cluster.nodes[n].model]
    name = f"{gang.name}-{role.name}-{place[1]}"
    over = draws.random(f"overfull/{name}")
    crowded = over.choice([n for n, node in enumerate(cluster.nodes) if node.gpus >= role.gpus])
    if draws.on("overfull", over) and role.gpus:
        return ExistingPod(name, *place, uid=f"u-{name}", node=crowded, gpus=None)
    if not fitting:
        return None
    n = r.choice(fitting)
    own = mask(*r.sample([i for i in range(8) if room[n] >> i & 1], role.gpus))
    free[n] &= ~own
    known = None if hidden and role.gpus else own
    return ExistingPod(name, *place, uid=f"u-{name}", node=n, gpus=known)


def _sickened(draws: Draws, i: int, node: Node, free: int) -> Node:
    """The node with GPUs sick that nobody can name, never more than stand free and healthy."""
    r = draws.random(f"sickened/{i}")
    count = min((free & node.healthy).bit_count(), r.randint(1, 2))
    return replace(node, unknown_unhealthy=count if draws.on("unknown_unhealthy", r) else 0)


def _timed(draws: Draws, gang: Gang) -> Gang:
    """The gang that runs, perhaps no longer elastic, perhaps with times."""
    if not gang.running:
        return gang
    r = draws.random(f"times/{gang.name}")
    begun, wrote = (NEWEST - 300 * r.randint(0, 200) for _ in range(2))
    until = NEWEST + 600 * r.randint(-40, 20)
    if not draws.on("elastic_running", r):  # what stands, or what it lacks the least to
        roles = tuple(
            replace(role, min=n, max=n, step=1, elastic=False) if role.elastic else role
            for role, n in zip(gang.roles, gang.target_counts, strict=True)
        )
        gang = replace(gang, roles=roles)
    times = draws.on("checkpoints", r)
    return replace(
        gang,
        started_at=begun if times and r.random() < 0.8 else None,
        last_checkpoint=wrote if times and r.random() < 0.6 else None,
        resize_after=until if draws.on("resize_after", r) else None,
    )


def _planned(draws: Draws, gang: Gang, cluster: Cluster) -> Gang:
    """The gang as an earlier plan wanted it, which knew of other room."""
    r = draws.random(f"planned/{gang.name}")
    wanted = tuple(
        PlannedPod(number, index, r.randrange(len(cluster.nodes)))
        for number, role in enumerate(gang.roles)
        for index in role.indices(role.max)
        if r.random() < 0.7
    )
    return replace(gang, planned=wanted if draws.on("stability", r) else ())


def _turned(draws: Draws, i: int, node: Node) -> Node:
    """The node as it is after its pods started: perhaps cordoned, tainted, not ready, or a GPU sick."""
    r = draws.random(f"stragglers/{i}")
    sick = replace(node, unhealthy=node.unhealthy | 1 << r.randrange(max(1, node.gpus)))
    turned = r.choice(
        (
            replace(node, unschedulable=True),
            replace(node, ready=False),
            replace(node, taints=(Taint("dedicated", "infra", "NoSchedule"),)),
            sick if node.gpus and not node.unknown_unhealthy else node,
        )
    )
    return turned if draws.on("stragglers", r) else node


def _guarded(
    draws: Draws, gangs: tuple[Gang, ...], cluster: Cluster
) -> tuple[tuple[Gang, ...], Cluster]:
    """Perhaps one or two disruption budgets over some of the pods that run, alone or together."""
    r = draws.random("budgets")
    wanted = draws.on("budgets", r)
    names = ("most", "some")[: r.choice((1, 1, 2))]
    found = []
    for gang in gangs:
        chances = {name: r.choice((0.0, 0.5, 1.0, 1.0)) for name in names}
        both = r.random() < 0.3
        pods = []
        for pod in gang.pods:
            own = [n for n in names if pod.node is not None and r.random() < chances[n]]
            pods.append(replace(pod, budgets=tuple(own if both else own[:1])))
        found.append(replace(gang, pods=tuple(pods)))
    keys = _budget_keys(found)
    budgets = tuple(DisruptionBudget(*key, r.choice((0, 1, 1, 2, 2, 3))) for key in keys)
    return (tuple(found), replace(cluster, budgets=budgets)) if wanted else (gangs, cluster)


def _budget_keys(gangs: Sequence[Gang]) -> list[tuple[str, str]]:
    return sorted({(g.namespace, name) for g in gangs for pod in g.pods for name in pod.budgets})


# Policies


def _policy(draws: Draws, cluster: Cluster, gangs: tuple[Gang, ...]) -> Policy:
    """What is best: mix, binding, which nodes are ours, least share, sometimes other tiers."""
    r = draws.random("policy")
    largest, weights = max(node.gpus for node in cluster.nodes), {g.weight_gpus for g in gangs}
    each, rest = divmod(1000, len(weights))
    mixes = (  # small sizes, sizes above a whole server, those of the gangs
        {1: 1000},
        {1: 300, 2: 300, 4: 400},
        {1: 250, 3: 250, largest: 250, 2 * largest: 250},
        {largest: 400, largest + 1: 600},
        {size: each + (rest if size == min(weights) else 0) for size in sorted(weights)},
    )
    policy = Policy(
        objectives=tuple(map(Objective, OBJECTIVES)),
        mix=tuple(sorted(draws.random("mix").choice(mixes).items())),
        solve=SolveLimits(workers=1),
        gpu_binding="none" if draws.on("binding_none", r) else "exact",
        node_selector=(("pool", "a"),) if draws.on("ours", r) else (),
    )
    if draws.on("min_share", r):
        policy = replace(policy, min_bandwidth_share=draws.share(r))
    if draws.on("objectives", r):  # `stranded` or `span` may come before `bandwidth`
        other, names = draws.random("objectives"), list(OBJECTIVES)
        other.shuffle(names)
        names = names[: other.randint(1, len(names))]
        policy = replace(policy, objectives=tuple(map(Objective, names)))
    return shaped_policy(draws, policy, cluster)


def _busy_policy(draws: Draws, policy: Policy, gangs: tuple[Gang, ...]) -> Policy:
    """The policy with what it says of gangs that run, and of those that waited for long."""
    r = draws.random("busy policy")
    moves = Moves(r.choice((None, 0, 1, 1, 2)), r.choice((None, 1, 2, 3, 4)))
    cap = r.choice((1, HOUR, 3 * HOUR, 24 * HOUR))
    after, now = r.randint(1, 9) * HOUR, NEWEST + r.randint(-3, 3) * HOUR
    return replace(
        policy,
        objectives=_busy_objectives(draws, policy, gangs),
        moves=moves if draws.on("moves_limit", r) else None,
        disruption=Disruption("lostRuntime", cap) if draws.on("lost_runtime", r) else Disruption(),
        starvation_after_s=after if draws.on("starvation", r) else None,
        now=now if draws.on("clock", r) else None,
    )


def _busy_objectives(draws: Draws, policy: Policy, gangs: Sequence[Gang]) -> tuple[Objective, ...]:
    """The tiers with ``defragment`` before ``disruption`` and ``stability`` last, or all of them shuffled."""
    r = draws.random("busy objectives")
    names = [objective.name for objective in policy.objectives]
    shuffled = tuple(names) != OBJECTIVES
    if draws.on("defragment", r):
        places = range(len(names) + 1)
        before = names.index("disruption") if "disruption" in names else 0
        names.insert(r.choice(places) if shuffled else before, "defragment")
    if draws.on("stability", r, 0.5) and any(gang.planned for gang in gangs):
        names.insert(r.randrange(len(names) + 1) if shuffled else len(names), "stability")
    return tuple(map(Objective, names))


# Under goodput: GPU generations, communication and services

UNEQUAL = ("mixed", "nics", "own_nics", "oversubscription", "starvation", "submitted")
"""Features drawn three times as often there."""


def tiny_by_speed(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    return _by_speed(tiny(seed, without, (*more, *UNEQUAL)), Draws(seed, without, more))


def busy_by_speed(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    return _by_speed(busy(seed, without, (*more, *UNEQUAL)), Draws(seed, without, more))


def _by_speed(instance: Instance, draws: Draws) -> Instance:
    names = [one.name.replace("admission", "goodput") for one in instance.policy.objectives]
    names = names if "goodput" in names else ["goodput", *names]
    gangs = [
        _communicating(draws, gang)
        for gang in instance.gangs  # without room to choose from, speeds decide nothing
        if not (draws.on("finished", draws.random(f"finished/{gang.name}")) and gang.running)
    ]
    cluster = instance.cluster
    allowed = {budget.name: budget.allowed for budget in cluster.budgets}
    budgets = tuple(DisruptionBudget(*key, allowed[key[1]]) for key in _budget_keys(gangs))
    made = replace(
        instance,
        cluster=replace(cluster, budgets=budgets, nodes=_generations(draws, cluster.nodes)),
        gangs=tuple(sorted(gangs, key=lambda gang: gang.key)),
        policy=replace(instance.policy, objectives=tuple(map(Objective, names))),
    )
    return counted(made)


def _generations(draws: Draws, nodes: Sequence[Node]) -> tuple[Node, ...]:
    """The nodes, some of an older generation, whose GPUs may be called otherwise; most speeds are known."""
    r, found = draws.random("generations"), []
    several, named = draws.on("generations", r), r.random() < 0.7
    for node in nodes:
        model = node.model
        if model is not None:
            old = r.random() < 0.5 and several
            name = f"{model.name} old" if old else model.name
            gpu = f"{model.gpu} old" if old and named else model.gpu
            peaks = draws.random(f"peak/{name}")
            peak = Fraction(peaks.choice((125, 312, 500, 990)))
            known = None if draws.on("unknown_speeds", peaks) else peak
            model = replace(model, name=name, gpu=gpu, relative_speed=known)
        found.append(replace(node, model=model))
    return tuple(found)


def _communicating(draws: Draws, gang: Gang) -> Gang:
    """The gang with the part of a step that it communicates, in some instances as one of a service."""
    r = draws.random(f"speeds/{gang.name}")
    fraction = Fraction(r.choice((0, 25, 60, 95, 95)), 100)
    gang = replace(
        gang,
        fraction=fraction if draws.on("fractions", r) else gang.fraction,
        counts_speed=not draws.on("speed_ignored", r),
    )
    r = draws.random(f"service/{gang.name}")
    service, namespace = r.choice(("chat", "chat", "search", None)), r.choice("aaaab")
    if not draws.on("services", draws.random("services")) or service is None:
        return gang
    return replace(gang, service=service, namespace=namespace)
