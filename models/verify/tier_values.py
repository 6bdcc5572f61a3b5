"""The tiers a plan must state, and the judge's own value of each.

Values are exact integers of the plan as it stands. Only admitted gangs count, except in kept,
disruption and stability.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.tiers import stated_tiers
from models.verify.changes import Change
from models.verify.facts import Facts, Gang, Pod
from models.verify.outcome import Outcome
from models.verify.rules.nodes import left_of
from models.verify.rules.topology import domains_used


@dataclass(frozen=True, slots=True)
class TierValue:
    """A tier that must be stated. ``tolerance``: what later tiers may give away of it."""

    name: str
    sense: str
    tolerance: Fraction
    value: int


def required(tier: TierValue, best: int) -> int:
    """What later tiers must keep of a tier: ceil(v - t|v|), of a minimised one floor(v + t|v|)."""
    slack = tier.tolerance * abs(best)
    return math.ceil(best - slack) if tier.sense == "max" else math.floor(best + slack)


def tiers(outcome: Outcome) -> tuple[TierValue, ...]:
    """Every tier of the policy with its value, in order."""
    met: dict[int, set[str]] = {}
    for gang in outcome.facts.gangs:
        conditions = met.setdefault(gang.priority, set())
        for name, meets in CONDITIONS.items():
            if name not in conditions and meets(outcome, gang):
                conditions.add(name)
    named = len(outcome.queues.named) if outcome.facts.queues else 0
    listed = [(one.name, one.tolerance) for one in outcome.facts.policy.objectives or ()]
    return tuple(
        TierValue(
            tier.name,
            tier.sense,
            tier.tolerance,
            VALUES[tier.family](outcome, tier.rank or tier.priority or 0),
        )
        for tier in stated_tiers(listed, met, named)
    )


def _may_lose_gpus(_outcome: Outcome, gang: Gang) -> bool:
    """Whether it runs, and is preemptible, or movable and elastic above ``min``."""
    if not gang.running or gang.preemptible:
        return gang.running
    counts = Counter(role for role, _ in gang.running_pods)
    above = any(role.elastic and counts[i] > role.min for i, role in enumerate(gang.roles))
    return gang.movable and above


def _within(outcome: Outcome, gang: Gang) -> bool:
    """Whether it is within the guarantee of a queue."""
    return bool(outcome.facts.queues) and gang.key in outcome.queues.within


def _aged(outcome: Outcome, gang: Gang) -> bool:
    return outcome.facts.aged(gang)


CONDITIONS: dict[str, Callable[[Outcome, Gang], bool]] = {
    "guaranteed": _within,
    "may_lose_gpus": _may_lose_gpus,
    "aged": _aged,
    "elastic": lambda _outcome, gang: gang.elastic,
    "elastic_without_gpus": lambda _outcome, gang: any(
        role.elastic and not role.counts for role in gang.roles
    ),
}
"""Whether a gang meets the condition of a tier."""


def _of_admitted(
    worth: Callable[[Outcome, Change], int],
    counts: Callable[[Outcome, Gang], bool] = lambda _outcome, _gang: True,
) -> Callable[[Outcome, int], int]:
    """What admitted gangs of a priority are worth together, of those that count."""

    def value(outcome: Outcome, priority: int) -> int:
        admitted = (c for c in outcome.by_priority[priority] if c.admitted)
        return sum(worth(outcome, c) for c in admitted if counts(outcome, c.gang))

    return value


def _kept(outcome: Outcome, priority: int) -> int:
    """What pods count that run before and after the plan, on any node."""
    return sum(
        change.running_gpus
        if change.kind == "keep"
        else change.gang.counted(p for k, p in change.gang.running_pods.items() if k in change.pods)
        for change in outcome.by_priority[priority]
    )


def _worth(outcome: Outcome, change: Change) -> int:
    """w of an admitted gang, or w x speed under goodput."""
    gang = change.gang
    return outcome.goodput[gang.key] if outcome.facts.counts_goodput else gang.w


def _age(outcome: Outcome, gang: Gang) -> int:
    """Seconds since submission of a gang that did not run; an absent time counts 0."""
    if gang.running or gang.submitted is None:
        return 0
    return outcome.latest_submission - gang.submitted


def _disruption(outcome: Outcome, _priority: int) -> int:
    """All GPUs of a running gang that is stopped or of which any pod moves; else those dropped.

    Each counts the cost of disrupting one GPU of the gang.
    """
    total = 0
    for change in outcome.changes:
        gang = change.gang
        if not gang.running:
            continue
        if change.evicts:
            lost = change.running_gpus
        else:
            lost = gang.counted(gang.running_pods[key] for key in change.dropped)
        total += lost * outcome.facts.disruption_cost(gang)
    return total


def _preference(outcome: Outcome, _priority: int) -> int:
    facts = outcome.facts
    total = 0
    for change in outcome.changes:
        if not change.admitted:
            continue
        gang = change.gang
        pods = tuple(change.pods.values())
        if gang.preferred is not None and domains_used(facts, pods, gang.preferred) == 1:
            total += gang.w
        for number, role in enumerate(gang.roles):
            if role.preferred is None:
                continue
            if domains_used(facts, change.by_role[number], role.preferred) == 1:
                total += role.min * role.counts or 1
        for roles, level in gang.together:
            own = [p for p in pods if p.role in roles and gang.roles[p.role].gpus]
            if domains_used(facts, own, level) == 1:
                total += sum(gang.roles[n].min * gang.roles[n].counts for n in roles) or 1
    return total + sum(c.gang.w for c in outcome.changes if is_near(outcome, c))


def is_near(outcome: Outcome, change: Change) -> bool:
    """Whether a gang shares a domain with one that it names: both run whole, all pods with GPUs in it."""
    gang, facts = change.gang, outcome.facts
    if gang.near is None or not change.admitted:
        return False
    names, level = gang.near
    for name in names:
        other = outcome.by_label.get(f"{gang.namespace}/{name}")
        if other is None or other is change or not other.admitted:
            continue
        if domains_used(facts, [*_heavy(change), *_heavy(other)], level) == 1:
            return True
    return False


def _heavy(change: Change) -> list[Pod]:
    """Pods with GPUs; all pods of a gang whose roles have none."""
    light = all(role.gpus == 0 for role in change.gang.roles)
    return [pod for pod in change.pods.values() if light or change.gang.roles[pod.role].gpus]


def _bandwidth(outcome: Outcome, _priority: int) -> int:
    return sum(
        change.gang.weight * change.gang.w * figures.share
        for change, figures in zip(outcome.changes, outcome.figures, strict=True)
        if change.admitted and change.gang.pattern != "none" and figures.share is not None
    )


def _growth_pods(_outcome: Outcome, change: Change) -> int:
    """Pods without GPUs beyond those that the gang needs at least."""
    each = zip(change.gang.roles, change.by_role, strict=True)
    return sum(len(pods) - role.min for role, pods in each if not role.counts)


def _span(outcome: Outcome, _priority: int) -> int:
    """w x (domains - 1) x 4^k; k = 0 for node, 1 for the next wider level that is counted, ..."""
    outwards = outcome.facts.counted[::-1]
    return sum(
        change.gang.w * (used[level] - 1) * 4**k
        for change, used in zip(outcome.changes, outcome.domains, strict=True)
        if change.admitted
        for k, level in enumerate(outwards)
        if used[level] > 1
    )


def _stranded(outcome: Outcome, _priority: int) -> int:
    """Permille-GPU left over that the next request cannot use.

    Sum over GPU models and sizes s of the mix of permille x (free GPUs - s x placeable(s)).
    """
    every = sum((outcome.facts.policy.mix or {}).values())
    made = sum(node.comes.bit_count() + node.unknown_comes for node in outcome.facts.nodes)
    return every * made + sum(_stranded_of_model(outcome, m) for m in outcome.models.values())


def _stranded_of_model(outcome: Outcome, members: Sequence[int]) -> int:
    """placeable(s), g the GPUs of the largest node: s <= g: sum over nodes of floor(free / s).

    s > g: ceil(s / g) wholly free nodes a request, all in one domain of the innermost level that has
    a domain with s or more installed GPUs of the model (else of the cluster). In placeable(s) free GPUs count
    only with their share of the node, where the policy states one.
    """
    facts = outcome.facts
    free = {n: outcome.free_gpus[n] for n in members}
    total = sum(free.values())
    if facts.policy.per_gpu:
        free = {n: _usable(outcome, n, gpus) if gpus else 0 for n, gpus in free.items()}
    largest = max(facts.nodes[n].gpus for n in members)
    counts = Counter(free.values())
    whole = [n for n in members if free[n] == largest]
    stranded = 0
    for size, permille in (facts.policy.mix or {}).items():
        needed, placeable = -(-size // largest), 0
        if size <= largest:
            placeable = sum(nodes * (left // size) for left, nodes in counts.items())
        elif len(whole) >= needed:
            level = _level_of(facts, members, size)
            domains = Counter(0 if level is None else facts.nodes[n].domain[level] for n in whole)
            placeable = sum(nodes // needed for nodes in domains.values())
        stranded += permille * (total - size * placeable)
    return stranded


def _usable(outcome: Outcome, n: int, free: int) -> int:
    """Free GPUs of a node for which there is as much left of each resource as the policy counts for one."""
    left = left_of(outcome.facts.nodes[n], outcome.usage.nodes[n], outcome.changes)
    shares = outcome.facts.policy.per_gpu.items()
    return min([free, *(max(0, left[name] // share) for name, share in shares if name in left)])


def _level_of(facts: Facts, members: Sequence[int], size: int) -> int | None:
    """The innermost level, of those that are counted, of which a domain has so many installed GPUs."""
    for level in reversed(facts.counted):
        domains: Counter[int] = Counter()
        for n in members:
            domains[facts.nodes[n].domain[level]] += facts.nodes[n].gpus
        if max(domains.values()) >= size:
            return level
    return None


def _stability(outcome: Outcome, _priority: int) -> int:
    """GPUs of pods that are not on the node where an earlier plan placed them."""
    return sum(
        change.gang.roles[role].counts
        for change in outcome.changes
        for (role, index), pod in change.pods.items()
        if change.gang.planned.get((role, index), pod.node) != pod.node
    )


VALUES: dict[str, Callable[[Outcome, int], int]] = {
    "guarantee": _of_admitted(lambda _, c: c.gang.w, _within),
    "fair": lambda outcome, k: sum(sorted(outcome.fair_counts.values())[:k]),
    "kept": _kept,
    "aged": _of_admitted(_worth, _aged),
    "aged-waiting": _of_admitted(lambda o, c: _worth(o, c) * _age(o, c.gang), _aged),
    "goodput": _of_admitted(lambda o, c: o.goodput[c.gang.key]),
    "admission": _of_admitted(lambda _, c: c.gang.w),
    "waiting": _of_admitted(lambda o, c: c.gang.w * _age(o, c.gang)),
    "disruption": _disruption,
    "preference": _preference,
    "bandwidth": _bandwidth,
    "growth": _of_admitted(lambda _, c: c.gpus - c.gang.counts_at_min, lambda _, g: g.elastic),
    "growth-pods": _of_admitted(_growth_pods),
    "span": _span,
    "stranded": _stranded,
    "defragment": lambda outcome, _priority: outcome.free.value,
    "suspect": lambda outcome, _priority: sum(
        outcome.free_gpus[n] for n, node in enumerate(outcome.facts.nodes) if node.suspect
    ),
    "stability": _stability,
}
"""The value of every tier, by its name in ``models.tiers`` and the priority, or rank, it is stated for."""
