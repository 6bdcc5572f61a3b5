"""How many pods of each role may come to which domains by the rules about pods, for the greedy start.

Whatever keeps these limits is likely to keep the rules; whether it does is seen from the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from models.pod_rules import Kind, Rule, Tally, bases
from models.program.demands import Demand, RoleDemand
from planner.search.free_arrays import MANY, IntArray
from planner.search.free_space import FreeSpace


@dataclass(frozen=True, slots=True)
class Limit:
    """``most``: pods by domain of the level. ``roles``: of the gang, whose pods take from that together."""

    level: int
    most: IntArray
    roles: frozenset[int]


Limits = Mapping[int, tuple[Limit, ...]]
"""By role."""


def limits_of(space: FreeSpace, demand: Demand) -> Limits:
    """The limits of the pods to place; none without rules about them."""
    if demand.gang not in space.rules.of:
        return {}
    found: dict[int, tuple[Limit, ...]] = {}
    for role in demand.roles:
        alike: dict[tuple[int, frozenset[int]], Limit] = {}
        for rule in space.rules.by_role.get((demand.gang, role.role), ()):
            limit = _limit(space, demand.gang, role, rule)
            same = (limit.level, limit.roles)
            if same in alike:
                limit = replace(limit, most=np.minimum(limit.most, alike[same].most))
            alike[same] = limit
        found[role.role] = tuple(alike.values())
    return found


def narrowed(space: FreeSpace, demand: Demand, limits: Limits) -> Demand:
    """The demand without nodes that no pod may come to."""
    roles = []
    for role in demand.roles:
        nodes = role.nodes
        for limit in limits.get(role.role, ()):
            of = space.arrays.tree.domain_of[limit.level]
            nodes &= frozenset(np.flatnonzero(limit.most[of] > 0).tolist())
        roles.append(replace(role, nodes=nodes))
    return replace(demand, roles=tuple(roles))


def whole_within(demand: Demand, limits: Limits, level: int) -> bool:
    """Whether a domain of the level may hold all pods."""
    return all(
        limit.level > level or int(limit.most.max()) >= role.count
        for role in demand.roles
        for limit in limits.get(role.role, ())
    )


def trimmed(pods: IntArray, domains: IntArray, most: IntArray) -> IntArray:
    """Pods a node, cut so that no domain has more than ``most``, the roomiest nodes first."""
    pods = np.minimum(pods, most[domains])
    order = np.lexsort((-pods, domains))
    held = pods[order]
    before = np.cumsum(held) - held
    starts = np.flatnonzero(np.diff(domains[order], prepend=-1))
    sizes = np.diff(np.append(starts, len(order)))
    before -= np.repeat(before[starts], sizes)
    found: IntArray = np.empty_like(pods)
    found[order] = np.clip(most[domains[order]] - before, 0, held)
    return found


def _limit(space: FreeSpace, gang: int, role: RoleDemand, rule: Rule) -> Limit:
    tree, key = space.arrays.tree, (gang, role.role)
    here = space.pod_counts.by_domain(rule)
    most = np.full(tree.sizes[rule.level], MANY, np.int64)
    sharing = rule.members
    if rule.kind is Kind.APART:
        sharing = rule.both
        most[:] = 1 if key in rule.both else MANY
        most[space.pod_counts.closed(rule, key)] = 0
    elif rule.kind is Kind.SPREAD:
        most = _evenly(space, gang, role, rule, here)
    elif key in rule.owners:
        near = [d for d, tally in here.items() if bases(tally)]
        near = near or [d for d, tally in here.items() if tally.new[0]]
        if near:
            most[:] = 0
            most[near] = MANY
    if rule.level == tree.levels:  # at the node level the arrays go by node
        most = most[np.array(rule.of, np.int64)]
    return Limit(rule.level, most, frozenset(r for g, r in sharing if g == gang))


def _evenly(
    space: FreeSpace, gang: int, role: RoleDemand, rule: Rule, here: Mapping[int, Tally]
) -> IntArray:
    """What the pods there leave; if that is not enough, as many in each domain as even filling gives it."""
    tree, key = space.arrays.tree, (gang, role.role)
    held = np.zeros(tree.sizes[rule.level], np.int64)
    bound = np.zeros(tree.sizes[rule.level], np.bool_)
    for d, tally in here.items():
        held[d], bound[d] = tally.all[1], tally.new[0] > 0
    least = space.pod_counts.least(rule, here)
    left = np.maximum(least + rule.max_skew - held, 0)
    if key not in rule.members:
        return np.where(held <= least + rule.max_skew, MANY, 0)
    if key not in rule.owners:
        return np.where(bound, left, MANY)
    room = np.zeros(tree.sizes[rule.level], np.int64)
    table = space.capacity(gang, role, None)
    np.add.at(room, np.array(rule.of, np.int64), table.pods)
    if not rule.least_counts or int(np.minimum(left, room).sum()) >= role.count:
        return left
    return _filled(held, room, role.count)


def _filled(held: IntArray, room: IntArray, pods: int) -> IntArray:
    """So many pods by domain, each to the one with the fewest, as far as there is room."""
    low, high = 0, int((held + room).max(initial=0))
    while low < high:  # the highest level up to which all can be filled
        middle = (low + high + 1) // 2
        fits = int(np.clip(middle - held, 0, room).sum()) <= pods
        low, high = (middle, high) if fits else (low, middle - 1)
    added: IntArray = np.clip(low - held, 0, room)
    lowest = np.flatnonzero((held + added == low) & (added < room))
    added[lowest[: pods - int(added.sum())]] += 1
    return added
