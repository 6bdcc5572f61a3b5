"""Random tiny clusters on which most things run already, and more is wanted than there is room for.

Promises: deterministic by the seed; 2 to 4 servers, at most 12 GPUs (16 if asked to be wide) and 4 pods a
gang, so that every plan can be tried in well under a second; everything that a plan may do to gangs that
run occurs, alone and mixed.
Called by the comparison with the exhaustive planner and by its sweep.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace

from tiny import OBJECTIVES, draw_policy
from tiny_beside import with_wishes
from tiny_counts import counted
from tiny_draws import Draws
from tiny_gangs import NEWEST, apart, draw_gang, held, queued, sickened, started
from tiny_groups import grouped
from tiny_instances import with_instances
from tiny_pods import with_pod_rules
from tiny_queues import with_queues
from tiny_run_times import calmed
from tiny_servers import draw_small_cluster
from tiny_shape import shaped, suspected

from models.documents.cluster import DisruptionBudget
from models.documents.policy import Disruption, Objective
from models.instance.cluster import Cluster, Node, Taint
from models.instance.gang import Gang, PlannedPod, Role
from models.instance.instance import Instance
from models.instance.policy import Moves, Policy
from models.starts.empty_starts import EmptyStarts

MAX_PODS = 3
"""Pods of a gang, beside a launcher."""

MAX_MOVING = 6
"""Pods of all gangs together that run and may move."""

HOUR = 3600

CHANCES = {
    "running": 0.6,
    "movable": 0.6,
    "preemptible": 0.5,
    "elastic": 0.5,
    "priorities": 0.75,
    "incomplete": 0.1,
    "preferred": 0.2,
    "required": 0.3,
    "slices": 0.15,
    "role_model": 0.06,
    "resources": 0.18,
    "held": 0.04,
    "selectors": 0.06,
    "affinity": 0.06,
    "cordons": 0.04,
    "taints": 0.06,
    "unhealthy": 0.08,
    "unknown_unhealthy": 0.06,
    "unknown_gpus": 0.1,
    "overfull": 0.03,
    "sick_holders": 0.06,
    "objectives": 0.1,
    "min_share": 0.1,
}
"""What is drawn more often, or less often, than in other tiny instances."""


def busy(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """The busy instance of a seed, ``without`` some features, with ``more`` of others.

    Raises ValueError for a feature that does not exist.
    """
    draws = Draws(seed, without, more, CHANCES)
    cluster = draw_small_cluster(draws)
    gangs, cluster = _gangs(draws, cluster)
    gangs, cluster = _guarded(draws, gangs, cluster)
    policy = draw_policy(draws, cluster, gangs)
    instance = Instance(cluster, gangs, _policy(draws, policy, gangs), starts=EmptyStarts)
    made = calmed(draws, suspected(draws, with_queues(draws, instance)))
    return counted(with_instances(draws, made))


def _gangs(draws: Draws, cluster: Cluster) -> tuple[tuple[Gang, ...], Cluster]:
    """3 to 6 gangs, those that run first, until they ask for more than there is."""
    r = draws.random("gangs")
    capacity = sum(node.gpus for node in cluster.nodes)
    most, demand = r.randint(3, 6), r.choice((0.8, 1.0, 1.3, 1.6)) * capacity
    free = [(1 << node.gpus) - 1 for node in cluster.nodes]
    running = sorted((draws.on("running", r, 0.6) for _ in range(most)), reverse=True)
    gangs: list[Gang] = []
    asked = moving = 0
    for i, runs in enumerate(running):
        if len(gangs) >= 3 and asked > demand and not runs:
            break
        gang = draw_gang(draws, i, cluster, MAX_PODS)
        if not runs and draws.on("priorities", draws.random(f"urgent/{i}"), 0.4):
            gang = replace(gang, priority=100)
        gang = _started(draws, gang, cluster, free) if runs else queued(draws, gang)
        if gang.movable and gang.running:
            moving += len(gang.running_pods)
            gang = replace(gang, movable=moving <= MAX_MOVING)
        asked += gang.weight_gpus
        gangs.append(_planned(draws, held(draws, apart(draws, gang)), cluster))
    nodes = [sickened(draws, i, node, free[i]) for i, node in enumerate(cluster.nodes)]
    turned = tuple(_turned(draws, i, node) for i, node in enumerate(nodes))
    ruled = grouped(draws, shaped(draws, with_pod_rules(draws, gangs, cluster), cluster))
    ruled = with_wishes(draws, ruled, cluster)
    return tuple(sorted(ruled, key=lambda g: g.key)), replace(cluster, nodes=turned)


def _guarded(
    draws: Draws, gangs: tuple[Gang, ...], cluster: Cluster
) -> tuple[tuple[Gang, ...], Cluster]:
    """Perhaps one or two disruption budgets over some of the pods that run, alone or together."""
    r = draws.random("budgets")
    wanted = draws.on("budgets", r, 0.3)
    names = ("most", "some")[: r.choice((1, 1, 2))]
    found = []
    for gang in gangs:
        chances = {name: r.choice((0.0, 0.5, 1.0, 1.0)) for name in names}
        both = r.random() < 0.3
        pods = []
        for pod in gang.pods:
            own = tuple(
                name for name in names if pod.node is not None and r.random() < chances[name]
            )
            pods.append(replace(pod, budgets=own if both else own[:1]))
        found.append(replace(gang, pods=tuple(pods)))
    keys = {(g.namespace, name) for g in found for pod in g.pods for name in pod.budgets}
    budgets = tuple(DisruptionBudget(*key, r.choice((0, 1, 1, 2, 2, 3))) for key in sorted(keys))
    return (tuple(found), replace(cluster, budgets=budgets)) if wanted else (gangs, cluster)


def _started(draws: Draws, gang: Gang, cluster: Cluster, free: list[int]) -> Gang:
    """The gang running, perhaps no longer elastic, perhaps with times."""
    gang = started(draws, gang, cluster, free)
    if not gang.running:
        return gang
    r = draws.random(f"times/{gang.name}")
    begun, wrote = (NEWEST - 300 * r.randint(0, 200) for _ in range(2))
    until = NEWEST + 600 * r.randint(-40, 20)
    if not draws.on("elastic_running", r, 0.8):
        gang = replace(gang, roles=_fixed(gang))
    times = draws.on("checkpoints", r, 0.6)
    return replace(
        gang,
        started_at=begun if times and r.random() < 0.8 else None,
        last_checkpoint=wrote if times and r.random() < 0.6 else None,
        resize_after=until if draws.on("resize_after", r, 0.15) else None,
    )


def _fixed(gang: Gang) -> tuple[Role, ...]:
    """The roles of a running gang without their ranges: what stands, or what it lacks the least to."""
    return tuple(
        replace(role, min=count, max=count, step=1, elastic=False) if role.elastic else role
        for role, count in zip(gang.roles, gang.target_counts, strict=True)
    )


def _planned(draws: Draws, gang: Gang, cluster: Cluster) -> Gang:
    """The gang as an earlier plan wanted it, which knew of other room."""
    r = draws.random(f"planned/{gang.name}")
    pods = [(number, i) for number, role in enumerate(gang.roles) for i in role.indices(role.max)]
    wanted = [
        PlannedPod(number, index, r.randrange(len(cluster.nodes)))
        for number, index in pods
        if r.random() < 0.7
    ]
    return replace(gang, planned=tuple(wanted) if draws.on("stability", r, 0.3) else ())


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
    return turned if draws.on("stragglers", r, 0.12) else node


def _policy(draws: Draws, policy: Policy, gangs: tuple[Gang, ...]) -> Policy:
    """The policy with what it says of gangs that run, and of those that waited for long."""
    r = draws.random("busy policy")
    moves = Moves(r.choice((None, 0, 1, 1, 2)), r.choice((None, 1, 2, 3, 4)))
    cap = r.choice((1, HOUR, 3 * HOUR, 24 * HOUR))
    after, now = r.randint(1, 9) * HOUR, NEWEST + r.randint(-3, 3) * HOUR
    return replace(
        policy,
        objectives=_objectives(draws, policy, gangs),
        moves=moves if draws.on("moves_limit", r, 0.25) else None,
        disruption=Disruption("lostRuntime", cap)
        if draws.on("lost_runtime", r, 0.25)
        else Disruption(),
        starvation_after_s=after if draws.on("starvation", r, 0.25) else None,
        now=now if draws.on("clock", r, 0.3) else None,
    )


def _objectives(draws: Draws, policy: Policy, gangs: tuple[Gang, ...]) -> tuple[Objective, ...]:
    """The tiers with ``defragment`` before ``disruption`` and ``stability`` last, or all of them shuffled."""
    r = draws.random("busy objectives")
    names = [objective.name for objective in policy.objectives]
    shuffled = tuple(names) != OBJECTIVES
    if draws.on("defragment", r, 0.2):
        places = range(len(names) + 1)
        before = names.index("disruption") if "disruption" in names else 0
        names.insert(r.choice(places) if shuffled else before, "defragment")
    if draws.on("stability", r, 0.5) and any(gang.planned for gang in gangs):
        names.insert(r.randrange(len(names) + 1) if shuffled else len(names), "stability")
    return tuple(Objective(name) for name in names)
