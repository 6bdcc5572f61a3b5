"""Rules about the pods of a gang in tiny instances: which may be together, which must, and how evenly spread.

Promises: the words of rules 2.11 to 2.13, pod by pod and pair by pair; own code.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import permutations

from exhaustive_nodes import NAME, attracted
from exhaustive_prices import domain, labels_of

from models.instance.cluster import Cluster
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from models.instance.solution import PodPlacement

Pod = tuple[int, int, bool]
"""(role, node, whether it is new)."""


def keeps_pod_rules(
    instance: Instance,
    g: int,
    stays: Collection[PodPlacement],
    new: Collection[tuple[int, int, int]],
) -> bool:
    """Whether the rules of a gang hold with the pods that stay, and new ones (role, index, node)."""
    gang, cluster = instance.gangs[g], instance.cluster
    pods = [*((pod.role, pod.node, False) for pod in stays), *((r, n, True) for r, _, n in new)]
    for r, role in enumerate(gang.roles):
        for apart in role.anti_affinity:
            if not _apart(cluster, apart.level, pods, r, _members(gang, apart, r)):
                return False
        for spread in role.spread:
            if not _even(cluster, role, spread, pods, r, _members(gang, spread, r)):
                return False
    joins = {
        (one.level, one.pod_set or r): _members(gang, one, r)
        for r, role in enumerate(gang.roles)
        for one in role.affinity
    }
    for (level, about), members in joins.items():
        ruled = {
            r
            for r, role in enumerate(gang.roles)
            if any((one.level, one.pod_set or r) == (level, about) for one in role.affinity)
        }
        if not _joined(cluster, level, pods, ruled, members):
            return False
    return True


def _members(gang: Gang, rule: NextTo | Spread, r: int) -> set[int]:
    """Roles that a rule of a role is about."""
    if rule.pod_set is None:
        return {r}
    return {other for other, role in enumerate(gang.roles) if rule.pod_set in role.pod_sets}


def _apart(
    cluster: Cluster, level: int, pods: Sequence[Pod], ruled: int, members: set[int]
) -> bool:
    return not any(
        mine[0] == ruled
        and other[0] in members
        and (mine[2] or other[2])
        and domain(cluster, level, mine[1]) == domain(cluster, level, other[1])
        for mine, other in permutations(pods, 2)
    )


def _joined(
    cluster: Cluster, level: int, pods: Sequence[Pod], ruled: set[int], members: set[int]
) -> bool:
    starting = [n for r, n, new in pods if new and r in ruled]
    if not all(_has(cluster, level, n) for n in starting):
        return False
    places = {domain(cluster, level, n) for n in starting}
    base = {
        domain(cluster, level, n) for r, n, new in pods if r in members and not (new and r in ruled)
    }
    if base:
        return places <= base
    return len(places) <= 1 and (not places or any(r in members for r, _, _ in pods))


def _even(
    cluster: Cluster, role: Role, spread: Spread, pods: Sequence[Pod], ruled: int, members: set[int]
) -> bool:
    starting = [n for r, n, new in pods if new and r == ruled]
    if not all(_has(cluster, spread.level, n) for n in starting):
        return False
    nodes = [n for n in range(len(cluster.nodes)) if _counts(cluster, role, n)]
    places = {domain(cluster, spread.level, n) for n in nodes}
    there = [domain(cluster, spread.level, n) for r, n, _ in pods if r in members and n in nodes]
    least = min((there.count(place) for place in places), default=0)
    if len(places) < spread.min_domains:
        least = 0
    return all(
        there.count(domain(cluster, spread.level, n)) - least <= spread.max_skew for n in starting
    )


def _has(cluster: Cluster, level: int, n: int) -> bool:
    """Whether the node has a value at the level, and at all around it."""
    return level == cluster.node_level or None not in cluster.nodes[n].domains[: level + 1]


def _counts(cluster: Cluster, role: Role, n: int) -> bool:
    """Whether pods on the node count for the spreads of the role, and its domains."""
    node = cluster.nodes[n]
    labels = labels_of(cluster, node)
    return (
        all(_has(cluster, spread.level, n) for spread in role.spread)
        and all(labels.get(key) == value for key, value in role.node_selector)
        and attracted(role, {**labels, NAME: node.name})
    )
