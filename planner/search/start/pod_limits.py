"""How many pods of each role may come to which domains by the rules about pods, for the greedy start.

Whatever keeps these limits is likely to keep the rules; whether it does is seen from the counts.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

import numpy as np

from models.rules.demands import Demand, RoleDemand
from models.rules.pod_rules import Kind, Rule
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
    return {role.role: _limits(space, demand.gang, role) for role in demand.roles}


def _limits(space: FreeSpace, gang: int, role: RoleDemand) -> tuple[Limit, ...]:
    """The limits of one role: one for each level and set of roles that share it."""
    tree, found = space.arrays.tree, dict[tuple[int, frozenset[int]], IntArray]()
    own = range(len(space.instance.gangs[gang].roles))
    for rule in space.rules.by_role.get((gang, role.role), ()):
        most = _most(space, gang, role, rule)
        if not len(most):
            continue
        sharing = rule.both if rule.kind is Kind.APART else rule.members
        key = (rule.level, frozenset(number for number in own if (gang, number) in sharing))
        if key not in found:
            found[key] = np.full(tree.sizes[rule.level], MANY, np.int64)
        if isinstance(most, dict):
            domains = list(most)
            found[key][domains] = np.minimum(found[key][domains], list(most.values()))
        else:
            found[key] = np.minimum(found[key], most)
    of = space.instance.cluster.domain_of[-1]
    return tuple(
        # at the node level the arrays go by node
        Limit(level, most[list(of)] if level == tree.levels else most, roles)
        for (level, roles), most in found.items()
    )


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


def _most(space: FreeSpace, gang: int, role: RoleDemand, rule: Rule) -> dict[int, int] | IntArray:
    """Pods of the role that may come, by domain; of domains that are not listed any number may."""
    key, counts = (gang, role.role), space.pod_counts
    owners, members = counts.owners(rule), counts.members(rule)
    if rule.kind is Kind.SPREAD and key in rule.owners:
        return _evenly(space, gang, role, rule)
    if rule.kind is Kind.SPREAD:
        most = counts.least(rule) + rule.max_skew
        return {d: max(0, most - members.get(d, 0)) for d, own in owners.items() if own.new}
    if rule.kind is Kind.APART:
        found = {d: 0 for d, own in owners.items() if own.all and key in rule.members}
        if key in rule.owners:
            found.update((d, 0) for d, pods in members.items() if pods)
        if key not in rule.both:
            return found
        one = np.ones(space.arrays.tree.sizes[rule.level], np.int64)
        one[list(found)] = 0
        return one
    if key not in rule.owners:
        return {}
    near = [d for d, pods in counts.bases(rule).items() if pods]
    near = near or [d for d, own in owners.items() if own.new]
    only = np.full(space.arrays.tree.sizes[rule.level], 0 if near else MANY, np.int64)
    only[near] = MANY
    return only


def _evenly(space: FreeSpace, gang: int, role: RoleDemand, rule: Rule) -> IntArray:
    """What the pods there leave; if that is not enough, as many in each domain as even filling gives it."""
    held = np.zeros(space.arrays.tree.sizes[rule.level], np.int64)
    for d, pods in space.pod_counts.members(rule).items():
        held[d] = pods
    most = space.pod_counts.least(rule) + rule.max_skew
    if (gang, role.role) not in rule.members:
        return np.where(held <= most, MANY, 0)
    left: IntArray = np.maximum(most - held, 0)
    room = np.zeros_like(held)
    np.add.at(room, np.array(rule.of, np.int64), space.capacity(gang, role, None).pods)
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
