"""Whether a gang of a tiny instance can start beside a plan, by the exhaustive planner.

Promises: nothing of the causes, remedies and programs of the search; causes are dropped by their names.
Called by the tests of what ``explain`` proves.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

import exhaustive

from models.documents.explanation import WhyCause
from models.documents.gang import Hold, Toleration
from models.documents.policy import Objective
from models.instance.gang import ExistingPod, Gang, Role
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.queue import Amount
from models.instance.solution import GangDecision

ABOVE = 10**6
"""A priority for which nobody is stopped."""

ASIDE = Hold("Unsupported", "aside")


def starts(instance: Instance, decisions: Sequence[GangDecision], gang: int) -> bool:
    """Whether every pod of the gang finds a place if all others are where the plan has them."""
    found = exhaustive.plan(after(instance, decisions, gang)).decisions[gang]
    return len(found.pods) >= sum(role.min for role in instance.gangs[gang].roles)


def after(instance: Instance, decisions: Sequence[GangDecision], gang: int) -> Instance:
    """The cluster once the plan is carried out: nobody else moves, stops, grows or starts."""
    gangs = tuple(
        one if index == gang else standing(one, decision)
        for index, (one, decision) in enumerate(zip(instance.gangs, decisions, strict=True))
    )
    policy = replace(instance.policy, objectives=(Objective("admission"),), moves=None)
    queues = tuple(replace(queue, reclaim=False) for queue in instance.queues)
    return replace(instance, gangs=gangs, policy=policy, queues=queues)


def standing(gang: Gang, decision: GangDecision) -> Gang:
    counts = [sum(pod.role == r for pod in decision.pods) for r in range(len(gang.roles))]
    if not decision.pods:
        return replace(gang, pods=(), hold=ASIDE)
    pods = tuple(
        ExistingPod(
            f"{gang.name}-{pod.role}-{pod.index}", pod.role, pod.index, None, pod.node, pod.gpus
        )
        for pod in decision.pods
    )
    roles = tuple(
        replace(role, min=max(1, count), max=max(1, count), step=1, elastic=False)
        for role, count in zip(gang.roles, counts, strict=True)
    )
    held = replace(gang, pods=pods, roles=roles, hold=ASIDE, planned=())
    return replace(held, priority=ABOVE, movable=False)  # preemptible as it is: queues count that


Named = Collection[tuple[str, str, str | None]]
"""(type, name, role) of causes."""


def named(causes: Collection[WhyCause]) -> list[tuple[str, str, str | None]]:
    return [(one.type, one.name, one.role) for one in causes]


def with_only(
    instance: Instance, decisions: Sequence[GangDecision], gang: int, kept: Named
) -> tuple[Instance, tuple[GangDecision, ...]]:
    """The instance and the plan without every cause but these."""
    types = {one[0] for one in kept}
    gangs, left = list(instance.gangs), list(decisions)
    for index, one in enumerate(instance.gangs):
        if index != gang and ("gang", "/".join(one.key), None) not in kept:
            gangs[index] = replace(one, pods=(), hold=ASIDE)
            left[index] = GangDecision("wait")
    gangs[gang] = _without_wishes(instance, gangs[gang], kept)
    nodes = tuple(
        node
        if ("node", node.name, None) in kept
        else replace(node, ready=True, unschedulable=False, unhealthy=0, unknown_unhealthy=0)
        for node in instance.cluster.nodes
    )
    cluster = replace(instance.cluster, nodes=nodes)
    queues = instance.queues
    if "queue" not in types:
        amounts = ("guarantee", "limit", "lending_limit", "non_preemptible_limit")
        free = {**dict.fromkeys(amounts, Amount()), "borrowing": True}
        queues = tuple(replace(queue, **free) for queue in queues)
    if "cells" not in types:
        queues = tuple(replace(queue, cells=()) for queue in queues)
    policy = _policy(instance.policy, types)
    found = replace(instance, cluster=cluster, gangs=tuple(gangs), policy=policy, queues=queues)
    return found, tuple(left)


TYPES = (
    *("policyNodeSelector", "spares", "queue", "cells", "hold", "required", "balance"),
    *("exclusive", "service", "minBandwidthShare", "slice", "nodeSelector"),
    *("nodeAffinity", "model", "taints", "oneModel", "podAntiAffinity", "podAffinity"),
    "topologySpread",
)


def without(
    instance: Instance, decisions: Sequence[GangDecision], gang: int, dropped: Named
) -> tuple[Instance, tuple[GangDecision, ...]]:
    """The instance and the plan with everything as it is but for these causes."""
    spec = instance.gangs[gang]
    kept = {("gang", "/".join(one.key), None) for one in instance.gangs}
    kept |= {("node", node.name, None) for node in instance.cluster.nodes}
    kept |= {("request", name, None) for role in spec.roles for name, _ in role.requests}
    kept.difference_update(dropped)
    roles = (None, *(role.name for role in spec.roles))
    gone = {(one[0], one[2]) for one in dropped}
    rules = {(kind, "", role) for kind in TYPES for role in roles if (kind, role) not in gone}
    for kind in ("queue", "spares", "cells", "policyNodeSelector"):  # of no role
        if (kind, None) in gone:
            rules -= {(kind, "", role) for role in roles}
    return with_only(instance, decisions, gang, {*kept, *rules})


def _policy(policy: Policy, types: Collection[str]) -> Policy:
    if "policyNodeSelector" not in types:
        policy = replace(policy, node_selector=())
    if "spares" not in types:
        policy = replace(policy, spares=())
    return policy


def _without_wishes(instance: Instance, gang: Gang, kept: Named) -> Gang:
    whole = {one[0] for one in kept if one[2] is None}
    if "required" not in whole:
        gang = replace(gang, required=None)
    if "balance" not in whole:
        gang = replace(gang, balance=None)
    if "exclusive" not in whole:
        gang = replace(gang, exclusive=None)
    if "minBandwidthShare" not in whole:
        gang = replace(gang, min_bandwidth_share=Fraction(0))
    if "hold" not in whole:
        gang = replace(gang, hold=None)
    requests = {one[1] for one in kept if one[0] == "request"}
    roles = (
        _role(role, {k[0] for k in kept if k[2] == role.name}, requests) for role in gang.roles
    )
    del instance
    return replace(gang, roles=tuple(roles))


def _role(role: Role, types: Collection[str], requests: Collection[str]) -> Role:
    role = replace(role, requests=tuple(one for one in role.requests if one[0] in requests))
    if "required" not in types:
        role = replace(role, required=None)
    if "slice" not in types:
        role = replace(role, slice_size=None, slice_level=None, outer_slices=())
    if "nodeSelector" not in types:
        role = replace(role, node_selector=())
    if "nodeAffinity" not in types:
        role = replace(role, node_affinity=())
    if "model" not in types:
        role = replace(role, model=None)
    if "taints" not in types:
        role = replace(role, tolerations=(Toleration("", "Exists"),))
    if "oneModel" not in types:
        role = replace(role, mix_models=True)
    if "podAntiAffinity" not in types:
        role = replace(role, anti_affinity=())
    if "podAffinity" not in types:
        role = replace(role, affinity=())
    return role if "topologySpread" in types else replace(role, spread=())
