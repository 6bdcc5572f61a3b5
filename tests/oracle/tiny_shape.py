"""Random shapes for tiny instances: balance, exclusive domains, spare nodes, shares of a node.

Promises: deterministic by the draws; nothing unless a feature is asked for.
Called by the generators of tiny and of busy instances.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from tiny_draws import Draws

from models.documents.policy import DAY_S, Objective
from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy

HOUR = 3600

MAX_PODS = 5

SHAPES = {
    "balance": ("balance", "levels", "mixed", "mix_models", "running", "unhealthy"),
    "exclusive": ("exclusive", "levels", "running", "movable", "preemptible", "priorities"),
    "spares": ("spares", "levels", "running", "cordons", "unhealthy", "unknown_unhealthy", "gaps"),
    "shares of a node": ("per_gpu", "resources", "launchers", "cpu_gangs"),
    "all shapes": ("balance", "exclusive", "spares", "per_gpu", "resources", "elastic"),
}
"""Series of instances, and what each has three times as much of."""


def shaped(draws: Draws, gangs: Sequence[Gang], cluster: Cluster) -> list[Gang]:
    """The gangs, perhaps balanced over domains, or alone in theirs."""
    return [_shaped(draws, gang, cluster) for gang in gangs]


def _shaped(draws: Draws, gang: Gang, cluster: Cluster) -> Gang:
    r = draws.random(f"shape/{gang.name}")
    levels = range(len(cluster.levels) + 1)
    balance, exclusive = r.choice(levels), r.choice(levels)
    on = {name: draws.on(name, r, 0.15) and draws.asked(name) for name in ("balance", "exclusive")}
    if on["balance"] and not gang.pods:
        gang = replace(gang, roles=tuple(_split(role) for role in gang.roles))
    return replace(
        gang,
        balance=balance if on["balance"] else None,
        exclusive=exclusive if on["exclusive"] else None,
    )


def _split(role: Role) -> Role:
    """The role with many small pods, so that balance is seldom free."""
    if role.gpus < 2 or role.elastic or role.slice_size is not None:
        return role
    pods = min(MAX_PODS, role.min * role.gpus)
    return replace(role, min=pods, max=pods, gpus=1)


def shaped_policy(draws: Draws, policy: Policy, cluster: Cluster) -> Policy:
    """The policy, perhaps with spare nodes, or with shares of a node that GPUs need."""
    r = draws.random("shape")
    spares = {level.name: r.choice((1, 1, 2)) for level in cluster.levels if r.random() < 0.7}
    shares = {"cpu": r.choice((4, 8, 12)) * 1000, "memory": r.choice((32, 64, 96)) * 2**30}
    named = tuple(item for item in sorted(shares.items()) if r.random() < 0.7)
    on = {name: draws.on(name, r, 0.3) and draws.asked(name) for name in ("spares", "per_gpu")}
    return replace(
        policy,
        spares=tuple(sorted(spares.items())) if on["spares"] else (),
        per_gpu=named if on["per_gpu"] else (),
    )


def suspected(draws: Draws, instance: Instance) -> Instance:
    """The instance with nodes that failed, some of them lately, and the tier about them."""
    if not draws.asked("suspects"):
        return instance
    r = draws.random("suspects")
    now, policy = instance.now, instance.policy
    ago = (None, HOUR, 12 * HOUR, DAY_S, 48 * HOUR)
    failures = [r.choice(ago) for _ in instance.cluster.nodes]
    nodes = tuple(
        replace(node, last_failure=None if seconds is None else max(0, now - seconds))
        for node, seconds in zip(instance.cluster.nodes, failures, strict=True)
    )
    objectives = list(policy.objectives)
    objectives.insert(r.randrange(len(objectives) + 1), Objective("suspect"))
    cluster = replace(instance.cluster, nodes=nodes)
    return replace(instance, cluster=cluster, policy=replace(policy, objectives=tuple(objectives)))
