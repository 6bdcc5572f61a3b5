"""The tier ``stranded``: permille-GPU left over that the next request cannot use.

Sum over GPU models m and sizes s of mix[s] x (F - s x placeable(s)); F = free GPUs of m, g = GPUs of its
largest node. s <= g: placeable = sum over nodes of floor(free / s). s > g: ceil(s / g) whole free nodes
(free = g) a request, all in one domain of the innermost level that has a domain with s or more installed
GPUs of m (else the whole cluster).

The tiers of a plan: which are to be stated, in which order, and their values.

Values are of the plan as it stands; only admitted gangs count, except in kept, disruption and stability.
Promises: exact integers. Called by ``status`` and by ``models.verify.check.derive``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from models.tiers import stated_tiers
from models.verify.changes import Change, Usage
from models.verify.facts import Facts, Gang
from models.verify.outcome import Outlook
from models.verify.rules.topology import domains_used


def stranded(facts: Facts, usage: Usage) -> int:
    """Value of the tier."""
    by_model: dict[str, list[int]] = {}
    for position, node in enumerate(facts.nodes):
        if node.model is not None:
            by_model.setdefault(node.model.gpu, []).append(position)
    return sum(
        permille * (total - size * placeable)
        for members in by_model.values()
        for permille, size, total, placeable in _sizes(facts, usage, members)
    )


def _sizes(facts: Facts, usage: Usage, members: list[int]) -> Iterator[tuple[int, int, int, int]]:
    """(permille, size, free GPUs, placeable) for every size of the mix on one GPU model."""
    free = {n: usage.free(n, facts.nodes[n]) for n in members}
    total = sum(free.values())
    largest = max(facts.nodes[n].gpus for n in members)
    counts = Counter(free.values())
    whole = [n for n in members if free[n] == largest]
    installed = _installed(facts, members)
    for size, permille in facts.policy.mix:
        if size <= largest:
            placeable = sum(nodes * (left // size) for left, nodes in counts.items())
        else:
            nodes_each = -(-size // largest)
            level = next((i for i, most in installed if most >= size), None)
            placeable = sum(
                nodes // nodes_each for nodes in _whole_nodes(facts, whole, level).values()
            )
        yield permille, size, total, placeable


def _installed(facts: Facts, members: list[int]) -> list[tuple[int, int]]:
    """(level, installed GPUs of its largest domain), innermost level first."""
    found = []
    for level in range(facts.node_level, -1, -1):
        domains: Counter[int] = Counter()
        for n in members:
            domains[facts.nodes[n].domain[level]] += facts.nodes[n].gpus
        found.append((level, max(domains.values())))
    return found


def _whole_nodes(facts: Facts, whole: list[int], level: int | None) -> Counter[int]:
    """Whole free nodes by domain; all in one where no level is wide enough."""
    return Counter(0 if level is None else facts.nodes[n].domain[level] for n in whole)


Which = Callable[[Gang], bool]
"""Which gangs a value counts."""


def _any(_gang: Gang) -> bool:
    return True


@dataclass(frozen=True, slots=True)
class Tier:
    """A tier that must be stated. ``tolerance``: what later tiers may give away of it."""

    name: str
    sense: str
    tolerance: Fraction
    value: int


def tiers(outlook: Outlook) -> Iterator[Tier]:
    """Every tier the policy asks for, in order."""
    values = _Values(outlook)
    met = {
        priority: {
            name
            for name, meets in CONDITIONS.items()
            if any(meets(values, gang) for gang in values.gangs(priority))
        }
        for priority in values.priorities
    }
    for tier in stated_tiers(outlook.facts.policy.objectives, met):
        value = VALUES[tier.family](values, tier.priority or 0)
        yield Tier(tier.name, tier.sense, tier.tolerance, value)


def _could_shrink_or_stop(gang: Gang) -> bool:
    """It runs, and is preemptible, or movable and elastic above ``min``."""
    if not gang.running:
        return False
    if gang.preemptible:
        return True
    counts = [0] * len(gang.roles)
    for role, _ in gang.standing:
        counts[role] += 1
    above = any(
        role.elastic and count > role.min for role, count in zip(gang.roles, counts, strict=True)
    )
    return gang.movable and above


class _Values:
    """The formulas, each in a method."""

    def __init__(self, outlook: Outlook) -> None:
        self.outlook = outlook
        self.facts: Facts = outlook.facts
        self.ages = outlook.ages
        self.by_priority: dict[int, list[Change]] = {}
        for change in outlook.changes:
            self.by_priority.setdefault(change.gang.priority, []).append(change)
        self.priorities = sorted(self.by_priority, reverse=True)

    def gangs(self, priority: int) -> Iterator[Gang]:
        return (change.gang for change in self.by_priority[priority])

    def kept(self, priority: int) -> int:
        """GPUs of pods that stood before and are there after, wherever."""
        return sum(
            change.gang.held(pod)
            for change in self.by_priority[priority]
            for key, pod in change.gang.standing.items()
            if key in change.pods
        )

    def admission(self, priority: int, only: Which = _any) -> int:
        return sum(c.gang.w for c in self.by_priority[priority] if c.admitted and only(c.gang))

    def waiting(self, priority: int, only: Which = _any) -> int:
        """w x seconds since submission, of gangs that start; an absent time counts 0."""
        latest = self.ages.latest_submission
        return sum(
            c.gang.w * (latest - c.gang.submitted)
            for c in self.by_priority[priority]
            if c.admitted and not c.gang.running and c.gang.submitted is not None and only(c.gang)
        )

    def disruption(self) -> int:
        """All GPUs of a running gang that is stopped or moves; of one that only shrinks, those dropped.

        Each as often as the loss of one of the gang's GPUs counts.
        """
        total = 0
        for change in self.outlook.changes:
            gang = change.gang
            if not gang.running:
                continue
            if not change.pods or any(gang.held(gang.standing[key]) for key in change.moved):
                lost = change.gpus_standing
            else:
                lost = sum(gang.held(gang.standing[key]) for key in change.dropped)
            total += lost * self.ages.harm(gang)
        return total

    def stability(self) -> int:
        """GPUs that pods ask for which are not on the node where an earlier plan wanted them."""
        return sum(
            change.gang.roles[role].gpus
            for change in self.outlook.changes
            for (role, index), pod in change.pods.items()
            if change.gang.planned.get((role, index), pod.node) != pod.node
        )

    def preference(self) -> int:
        total = 0
        for change in self.outlook.changes:
            if not change.admitted:
                continue
            gang = change.gang
            pods = tuple(change.pods.values())
            if gang.preferred is not None and domains_used(self.facts, pods, gang.preferred) == 1:
                total += gang.w
            for number, role in enumerate(gang.roles):
                if role.preferred is None:
                    continue
                if domains_used(self.facts, change.by_role[number], role.preferred) == 1:
                    total += role.min * role.gpus or 1
        return total

    def bandwidth(self) -> int:
        total = 0
        for change, figures in zip(self.outlook.changes, self.outlook.figures, strict=True):
            gang = change.gang
            if change.admitted and gang.pattern != "none" and figures.share is not None:
                total += gang.weight * gang.w * figures.share
        return total

    def growth(self, priority: int) -> int:
        return sum(
            c.gpus - c.gang.gpus_at_min
            for c in self.by_priority[priority]
            if c.admitted and c.gang.elastic
        )

    def span(self) -> int:
        """w x (domains - 1) x 4^k; k = 0 for node, 1 for the next wider level, ..."""
        total = 0
        for change, used in zip(self.outlook.changes, self.outlook.domains, strict=True):
            if change.admitted:
                total += change.gang.w * sum(
                    (count - 1) * 4**k for k, count in enumerate(reversed(used))
                )
        return total


CONDITIONS: dict[str, Callable[[_Values, Gang], bool]] = {
    "may_lose_gpus": lambda _values, gang: _could_shrink_or_stop(gang),
    "aged": lambda values, gang: values.ages.aged(gang),
    "elastic": lambda _values, gang: gang.elastic,
}
"""Whether a gang meets the condition of a tier."""

VALUES: dict[str, Callable[[_Values, int], int]] = {
    "kept": _Values.kept,
    "aged": lambda values, priority: values.admission(priority, only=values.ages.aged),
    "aged-waiting": lambda values, priority: values.waiting(priority, only=values.ages.aged),
    "admission": lambda values, priority: values.admission(priority),
    "waiting": lambda values, priority: values.waiting(priority),
    "disruption": lambda values, _priority: values.disruption(),
    "preference": lambda values, _priority: values.preference(),
    "bandwidth": lambda values, _priority: values.bandwidth(),
    "growth": _Values.growth,
    "span": lambda values, _priority: values.span(),
    "stranded": lambda values, _priority: stranded(values.facts, values.outlook.usage),
    "defragment": lambda values, _priority: values.outlook.wholeness.value,
    "stability": lambda values, _priority: values.stability(),
}
"""The value of every tier, by its name in ``models.tiers`` and the priority it is stated for."""
