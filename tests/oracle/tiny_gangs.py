"""Random gangs for a tiny cluster: some that run, whole or not, and a queue that asks for too much.

Promises: deterministic by the draws; standing pods hold GPUs that no other pod holds; at most 6 pods a gang.
Called by the generator of tiny instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from random import Random

from tiny_beside import with_wishes
from tiny_draws import Draws
from tiny_groups import grouped
from tiny_pods import with_pod_rules
from tiny_shape import shaped

from models.documents.gang import Hold, NodeExpression, Toleration
from models.instance.cluster import Cluster, Node
from models.instance.gang import ExistingPod, Gang, Role

MAX_PODS = 6
MAX_MOVING = 3
"""Pods of a running gang that may move."""

NEWEST = 1_795_000_000
"""Seconds since the epoch; the queue was submitted in the hours before."""


def draw_gangs(draws: Draws, cluster: Cluster) -> tuple[tuple[Gang, ...], Cluster]:
    """Gangs asking for one to two times the GPUs there are; and the cluster with unknown sick GPUs."""
    r = draws.random("gangs")
    capacity = sum(node.gpus for node in cluster.nodes)
    most, demand = r.randint(3, 5), r.choice((1.2, 1.5, 2.0)) * capacity
    most = min(most, 3) if draws.asked("wide") else most
    gangs: list[Gang] = []
    free = [(1 << node.gpus) - 1 for node in cluster.nodes]
    asked = 0
    while len(gangs) < most and (len(gangs) < 3 or asked < demand):
        gang = draw_gang(draws, len(gangs), cluster)
        runs = draws.on("running", r, 0.25)
        gang = started(draws, gang, cluster, free) if runs else queued(draws, gang)
        asked += gang.weight_gpus
        gangs.append(held(draws, apart(draws, gang)))
    nodes = tuple(sickened(draws, i, node, free[i]) for i, node in enumerate(cluster.nodes))
    ruled = grouped(draws, shaped(draws, with_pod_rules(draws, gangs, cluster), cluster))
    ruled = with_wishes(draws, ruled, cluster)
    return tuple(sorted(ruled, key=lambda g: g.key)), replace(cluster, nodes=tuple(nodes))


def draw_gang(draws: Draws, i: int, cluster: Cluster, most: int = MAX_PODS) -> Gang:
    """A gang of at most so many pods, none of which exists."""
    r = draws.random(f"gang/{i}")
    roles = [_role(draws, r, "worker", cluster, most)]
    pods = roles[0].max
    if draws.on("roles", r, 0.15) and pods < most:
        roles.append(_role(draws, r, "server", cluster, min(2, most - pods)))
    elif draws.on("launchers", r, 0.2) and pods < most:
        roles.insert(r.randint(0, 1), _launcher(draws, r, cluster, 1))
    if draws.on("cpu_gangs", r, 0.06):
        roles = [_launcher(draws, r, cluster, r.randint(1, 4))]
    if draws.asked("growing_launchers"):
        roles = _growing(draws, i, roles)
    roles = [_enclosed(draws, i, role) for role in roles]
    roles = [_attracted(draws, i, _shifted(draws, i, role), cluster) for role in roles]
    levels = range(len(cluster.levels) + 1)
    required, preferred = min(r.choice(levels), r.choice(levels)), r.choice(levels)
    share, weight = draws.share(r), r.randint(2, 3)
    submitted = NEWEST - 600 * r.randint(0, 60)
    return Gang(
        namespace=r.choice(("default", "research")),
        name=f"g{i + 1}",
        roles=tuple(roles),
        priority=r.choice((0, 10, 100)) if draws.on("priorities", r, 0.6) else 0,
        submitted_at=submitted if draws.on("submitted", r, 0.8) else None,
        preemptible=draws.on("preemptible", r, 0.15),
        movable=draws.on("movable", r, 0.15),
        required=required if draws.on("required", r, 0.25) else None,
        preferred=preferred if draws.on("preferred", r, 0.3) else None,
        min_bandwidth_share=share if draws.on("min_share", r, 0.15) else None,
        pattern="none" if draws.on("pattern_none", r, 0.1) else "all-reduce",
        weight=weight if draws.on("weights", r, 0.2) else 1,
    )


def _growing(draws: Draws, gang: int, roles: Sequence[Role]) -> list[Role]:
    """The roles, those without GPUs with a few pods more if the gang stays small enough."""
    r, found = draws.random(f"growing_launchers/{gang}"), []
    left = MAX_PODS - sum(role.max for role in roles)
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
    grows = draws.on("elastic", r, 0.12)
    top = max(pods, min(most, pods + step * r.randint(1, 2)))
    role = _constrained(draws, r, Role(name, pods, pods, 1, gpus), cluster)
    wanted = r.choice([node.model.gpu for node in servers if node.model])
    if r.random() < 0.3 and chosen.model:
        wanted = chosen.model.name
    least = pods - 1 if grows and top == pods > 1 else pods
    return replace(
        role,
        min=least,
        max=top if grows else pods,
        step=step if grows else 1,
        elastic=grows,
        model=wanted if draws.on("role_model", r, 0.12) else None,
        mix_models=draws.on("mix_models", r, 0.3),
    )


def _shifted(draws: Draws, gang: int, role: Role) -> Role:
    """The role with indices that start above 0."""
    r = draws.random(f"first_index/{gang}/{role.name}")
    first = r.randint(1, 4)
    return replace(role, first_index=first if draws.on("first_index", r, 0.12) else 0)


def _enclosed(draws: Draws, gang: int, role: Role) -> Role:
    """The role with slices around its slices, one layer for every wider level or fewer."""
    r = draws.random(f"slice_layers/{gang}/{role.name}")
    size, outer = role.slice_size or 1, list[tuple[int, int]]()
    for level in reversed(range(role.slice_level or 0)):
        factor, skips = r.choice((2, 2, 3)), r.random() < 0.3
        if not skips:
            size *= factor
            outer.append((size, level))
    on = draws.on("slice_layers", r, 0.3) and role.slice_size is not None
    return replace(role, outer_slices=tuple(outer) if on else ())


def _attracted(draws: Draws, gang: int, role: Role, cluster: Cluster) -> Role:
    """The role with a node affinity of one or two terms."""
    r = draws.random(f"affinity/{gang}/{role.name}")
    terms = tuple(
        tuple(_expression(r, cluster) for _ in range(r.choice((1, 1, 2))))
        for _ in range(r.choice((1, 2)))
    )
    return replace(role, node_affinity=terms if draws.on("affinity", r, 0.1) else ())


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
    requests = {
        "cpu": r.choice((0, 4000, 8000)) * units,
        "memory": r.choice((32, 64)) * 2**30 * units,
    }
    required, preferred, slice_level = (r.choice(levels) for _ in range(3))
    host = r.choice(cluster.nodes).name
    selector = r.choice(((("pool", "a"),), (("pool", "b"),), (("kubernetes.io/hostname", host),)))
    size = r.randint(1, 3)
    sliced = draws.on("slices", r, 0.2) and role.max >= 2
    return replace(
        role,
        requests=tuple(item for item in sorted(requests.items()) if draws.on("resources", r, 0.4)),
        required=required if draws.on("role_topology", r, 0.12) else None,
        preferred=preferred if draws.on("role_topology", r, 0.15) else None,
        slice_size=size if sliced else None,
        slice_level=slice_level if sliced else None,
        node_selector=selector if draws.on("selectors", r, 0.1) else (),
        tolerations=(Toleration("dedicated", "Exists"),) if draws.on("taints", r, 0.4) else (),
    )


def started(draws: Draws, gang: Gang, cluster: Cluster, free: list[int]) -> Gang:
    """The gang with pods standing where there is room (as it is if there is none); takes from ``free``.

    It is movable only with few of them: each may move or stay, and every plan is tried.
    """
    r = draws.random(f"running/{gang.name}")
    pods: list[ExistingPod] = []
    for number, role in enumerate(gang.roles):
        for index in role.indices(r.choice(role.allowed_counts())):
            gone = draws.on("incomplete", r, 0.2)
            pod = None if gone else _stand(draws, r, gang, (number, index), cluster, free)
            pods += [pod] if pod else []
    return replace(gang, pods=tuple(pods), movable=gang.movable and len(pods) <= MAX_MOVING)


def queued(draws: Draws, gang: Gang) -> Gang:
    """The gang with some of its pods there already, waiting."""
    r = draws.random(f"queued/{gang.name}")
    pods = tuple(
        ExistingPod(
            f"{gang.name}-{role.name}-x{index}",
            number,
            index,
            uid=f"u-{number}-{index}",
            mode="gate",
        )
        for number, role in enumerate(gang.roles)
        for index in role.indices(role.min)
        if r.random() < 0.7
    )
    return replace(gang, pods=pods if draws.on("waiting_pods", r, 0.15) else ())


def apart(draws: Draws, gang: Gang) -> Gang:
    """The gang, perhaps without NVLink between servers."""
    r = draws.random(f"network_only/{gang.name}")
    return replace(gang, nvlink_across_nodes=not draws.on("network_only", r, 0.25))


def held(draws: Draws, gang: Gang) -> Gang:
    """The gang, perhaps held back."""
    r = draws.random(f"held/{gang.name}")
    hold = Hold(r.choice(("Unsupported", "Incomplete")), "drawn so")
    return replace(gang, hold=hold if draws.on("held", r, 0.06) else None)


def _stand(
    draws: Draws,
    r: Random,
    gang: Gang,
    place: tuple[int, int],
    cluster: Cluster,
    free: list[int],
) -> ExistingPod | None:
    """One pod on a random node with so many GPUs free, whatever its labels; None if there is none."""
    role = gang.roles[place[0]]
    sick_too = draws.on("sick_holders", r, 0.1)
    hidden = draws.on("unknown_gpus", r, 0.15) and not sick_too
    room = [
        mask & (node.model.all_gpus if sick_too and node.model else node.healthy)
        for mask, node in zip(free, cluster.nodes, strict=True)
    ]
    fitting = [n for n, mask in enumerate(room) if mask.bit_count() >= role.gpus]
    if role.gpus:
        fitting = [n for n in fitting if cluster.nodes[n].model]
    name = f"{gang.name}-{role.name}-{place[1]}"
    if (crowded := _crowded(draws, name, role, cluster)) is not None:
        return ExistingPod(name, *place, uid=f"u-{name}", node=crowded, gpus=None)
    if not fitting:
        return None
    n = r.choice(fitting)
    own = sum(1 << i for i in r.sample([i for i in range(8) if room[n] >> i & 1], role.gpus))
    free[n] &= ~own
    return ExistingPod(
        name, *place, uid=f"u-{name}", node=n, gpus=None if hidden and role.gpus else own
    )


def _crowded(draws: Draws, name: str, role: Role, cluster: Cluster) -> int | None:
    """A node with so many GPUs, whoever holds them; seldom, and only for pods with GPUs."""
    r = draws.random(f"overfull/{name}")
    able = [n for n, node in enumerate(cluster.nodes) if node.gpus >= role.gpus]
    chosen = r.choice(able)
    return chosen if draws.on("overfull", r, 0.05) and role.gpus else None


def sickened(draws: Draws, i: int, node: Node, free: int) -> Node:
    """The node with GPUs sick that nobody can name, never more than stand free and healthy."""
    r = draws.random(f"sickened/{i}")
    left = (free & node.healthy).bit_count()
    count = min(left, r.randint(1, 2))
    return replace(node, unknown_unhealthy=count if draws.on("unknown_unhealthy", r, 0.08) else 0)
