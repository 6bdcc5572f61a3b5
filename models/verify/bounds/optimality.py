"""What the judge can say of the best plan: tiers that are best by counting, and better plans that it builds.

Only for plans that break no rule. Where the plan calls a tier proven, a better plan is a violation;
elsewhere a remark.

A bound holds for every plan that keeps the earlier tiers at what the plan requires of them. Pods that
may neither stop nor move hold their GPUs in every plan. With a(n) the GPUs that are left on node n, the
other pods of size p and count x(p) satisfy, for every size s,

    sum over p of floor(p / s) x(p)  <=  sum over n of floor(a(n) / s).

Each row alone, its gangs taken in part, bounds what gangs can be worth (fractional knapsack).
"""

from __future__ import annotations

import math
from bisect import bisect_left, insort
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from models.tiers import MAINS
from models.verify.bounds.refutation import Search, Witness
from models.verify.outcome import Outcome
from models.verify.rates.speed import FULL_SPEED
from models.verify.tier_values import TierValue, tiers
from models.verify.violation import Violation, printable, quoted

NOT_MAXIMAL = "NotMaximal"
BOUND_BEATEN = "BoundBeaten"


@dataclass(frozen=True, slots=True)
class Optimality:
    """``counted``: names of the tiers of which counting alone shows that no plan is better.

    ``refuted``: names of the tiers whose stated bound is wrong.
    """

    violations: tuple[Violation, ...]
    remarks: tuple[str, ...]
    counted: frozenset[str]
    refuted: frozenset[str] = frozenset()


def examine(
    outcome: Outcome,
    rules: Sequence[Callable[[Outcome], Iterable[Violation]]],
    *,
    count: bool = True,
) -> Optimality:
    """Count and search. ``rules``: of a feasible plan. ``count``: else ``counted`` stays empty.

    Counting finds no violation: it only says of which tiers no search can find any.
    """
    stated = outcome.case.status.objectives
    expected = outcome.once(tiers)
    search = Search(outcome, rules)
    denied = []
    for step in search.fitting():
        reason = outcome.case.gangs[step.gang].document.reason
        code = "" if reason is None else printable(reason.code)
        nodes = sorted({outcome.facts.nodes[p.node].name for p in step.pods[step.gang].values()})
        what = f"{code}: it fits beside the others, on {printable(', '.join(nodes))}"
        denied.append(outcome.changes[step.gang].violation("reason", what))
    for gang, holder in search.needless():
        what = f"it would fit although {printable(outcome.changes[holder].label)} stays"
        reason = outcome.case.gangs[gang].document.reason
        code = "" if reason is None else printable(reason.code)
        denied.append(outcome.changes[gang].violation("reason", f"{code}: {what}"))
    if denied:
        return Optimality(tuple(denied), (), frozenset())
    bounds = Counts(outcome).bounds(expected, search.required) if count else ()
    counted = {one.name for one, bound in zip(stated, bounds, strict=count) if bound == one.best}
    if len(counted) == len(stated):
        return Optimality((), (), frozenset(counted))
    violations, remarks, refuted = [], [], []
    for witness in search.witnesses():
        rule, what = _said(outcome, witness)
        if rule is None:
            remarks.append(f"{witness.label}: {what}")
        else:
            violations.append(Violation(rule, witness.label, what))
            refuted.append(stated[witness.tier].name)
    return Optimality(tuple(violations), tuple(remarks), frozenset(counted), frozenset(refuted))


def _said(outcome: Outcome, witness: Witness) -> tuple[str | None, str]:
    """(rule that the plan breaks, None: none; what the witness shows)."""
    stated = outcome.case.status.objectives[witness.tier]
    name, value = printable(stated.name), quoted(witness.value)
    sign = 1 if stated.sense == "max" else -1
    change = witness.step.what
    if stated.proof is not None and stated.bound == stated.best:
        what = f"{name}: says that {quoted(stated.best)} is proven best, but {change} gives {value}"
        return NOT_MAXIMAL, what
    if sign * witness.value > sign * stated.bound:
        return BOUND_BEATEN, f"{name}: bound {quoted(stated.bound)}, but {change} gives {value}"
    return None, f"{name}: {quoted(stated.best)} is not the best: {change} gives {value}"


MAX_SIZES = 16
"""Pod sizes that get a row of their own, the smallest ones."""

FULL_SHARE = 1000


GPU_SUMS = (*MAINS, "guarantee")
"""Families whose required values take GPUs from lower priorities."""

Rows = Mapping[int, int]
"""By pod size s, slots of that size; s = 1: GPUs."""


@dataclass(frozen=True, slots=True)
class _Item:
    """A gang that may or may not run: what it adds to a tier at most, and the slots that takes."""

    worth: int
    slots: Rows


class Counts:
    """What there is to count of one instance. ``outcome``: a plan of it that breaks no rule."""

    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self._slots_of: dict[int, dict[int, int]] = {}
        self._worth_of: dict[tuple[str, int | None], Mapping[int, int]] = {}

    def bounds(self, tiers: Sequence[TierValue], required: Sequence[int]) -> list[int]:
        """The best possible value of every tier. ``required``: of each, what later tiers must keep."""
        found: list[int] = []
        left: dict[int, Rows] = {}  # by priority, negated, as ``known`` lists them
        known: list[int] = []
        for tier, least in zip(tiers, required, strict=True):
            family, _, number = tier.name.partition("/")
            if family == "fair":
                found.append(self._fair(int(number)))
                continue
            priority = int(number) if number else None
            higher = 0 if priority is None else bisect_left(known, -priority)
            rows = left[known[higher - 1]] if higher else self.slots
            found.append(0 if tier.sense == "min" else self._most(family, priority, rows))
            if family in GPU_SUMS and priority is not None:
                if -priority not in left:
                    insort(known, -priority)
                left[-priority] = self._after(rows, family, priority, least)
        return found

    def _fair(self, rank: int) -> int:
        """The most of a tier of fair shares if every gang that may run has all its pods."""
        queues = self.outcome.queues
        able = {i for own in self._by_priority.values() for i in own}
        most = dict.fromkeys(queues.named, 0)
        for i, gang in enumerate(self.facts.gangs):
            if gang.queue in most:
                counts = Counter(role for role, _ in gang.running_pods)
                for r, role in enumerate(gang.roles):
                    pods = max(role.max if i in able else 0, counts[r])
                    most[gang.queue] += pods * queues.fair_count(gang.queue, role)
        return sum(sorted(most.values())[:rank])

    @cached_property
    def stays(self) -> tuple[bool, ...]:
        """Whether the pods of a gang that run now stay where they are in every plan."""
        gangs = self.facts.gangs
        return tuple(g.running and not (g.preemptible or (g.movable and g.whole)) for g in gangs)

    @cached_property
    def sizes(self) -> tuple[int, ...]:
        """1, and the GPUs that pods ask for."""
        found = {role.gpus for gang in self.facts.gangs for role in gang.roles if role.gpus > 1}
        return (1, *sorted(found)[: MAX_SIZES - 1])

    @cached_property
    def slots(self) -> Rows:
        """Slots of every size on what staying pods leave."""
        facts = self.facts
        staying = [0] * len(facts.nodes)
        held = [0] * len(facts.nodes)
        sick = [0] * len(facts.nodes)
        for gang, stays in zip(facts.gangs, self.stays, strict=True):
            for pod in gang.running_pods.values():
                held[pod.node] += gang.held(pod)
                staying[pod.node] += gang.held(pod) if stays else 0
                sick[pod.node] += ((pod.gpus or 0) & facts.nodes[pod.node].unhealthy).bit_count()
        left = []
        for n, node in enumerate(facts.nodes):
            most = held[n]
            if node.usable:
                healthy = node.healthy.bit_count() - node.unknown_unhealthy
                healthy += sum(m == n and not node.released >> gpu & 1 for m, gpu in facts.releases)
                most = max(most, healthy + sick[n])
            left.append(max(0, most - staying[n]))
        return {s: sum(free // s for free in left) for s in self.sizes}

    def _after(self, rows: Rows, family: str, priority: int, least: int) -> dict[int, int]:
        """Slots left for lower priorities where this one's tier has at least a value."""
        every = self._worths(family, priority)
        others = [i for i in every if not self.stays[i]]
        if least == sum(every.values()):  # all of them run
            taken = [self._taken(i) for i in others]
            return {s: left - sum(one[s] for one in taken) for s, left in rows.items()}
        unit = FULL_SPEED if family == "goodput" else 1
        staying = sum(worth for i, worth in every.items() if self.stays[i])
        whole = self.facts.gpu_unit
        of = (self.facts.gangs[i] for i in others)
        idle = sum(gang.w - whole * gang.gpus_at_min for gang in of)
        gpus = -(-max(0, -(-(least - staying) // unit) - idle) // whole)
        return {**rows, 1: rows[1] - gpus}

    def _of(self, priority: int | None) -> Iterator[int]:
        """Gangs of a priority (None: of all) that run whole or may be started."""
        if priority is None:
            for own in self._by_priority.values():
                yield from own
        else:
            yield from self._by_priority.get(priority, ())

    @cached_property
    def _by_priority(self) -> dict[int, list[int]]:
        found: dict[int, list[int]] = {}
        for i, change in enumerate(self.outcome.changes):
            if not change.held_back:
                found.setdefault(change.gang.priority, []).append(i)
        return found

    def _taken(self, i: int) -> dict[int, int]:
        """Slots of every size that the gang takes at least, beyond those of pods that stay."""
        if i not in self._slots_of:
            self._slots_of[i] = self._slots_taken(i)
        return self._slots_of[i]

    def _slots_taken(self, i: int) -> dict[int, int]:
        gang = self.facts.gangs[i]
        odd = any(gang.held(pod) != gang.roles[pod.role].gpus for pod in gang.running_pods.values())
        if odd or self.stays[i]:
            return dict.fromkeys(self.sizes, 0)
        return {s: sum(role.min * (role.gpus // s) for role in gang.roles) for s in self.sizes}

    def _worths(self, family: str, priority: int | None) -> Mapping[int, int]:
        """What gangs of a priority, or all, that may run add to a tier at most, if anything."""
        if (family, priority) not in self._worth_of:
            worth = WORTHS[family]
            found = ((i, worth(self.outcome, i)) for i in self._of(priority))
            self._worth_of[family, priority] = {i: amount for i, amount in found if amount}
        return self._worth_of[family, priority]

    def _most(self, family: str, priority: int | None, rows: Rows) -> int:
        if family == "defragment":
            free = self.outcome.free
            nodes = sum(gpus * count for gpus, count in free.nodes_possible.items())
            return nodes + sum(node.gpus for node in self.facts.nodes)
        if family == "suspect":
            return sum(node.gpus for node in self.facts.nodes if node.suspect)
        if family == "kept":
            running = (c for c in self.outcome.changes if c.gang.priority == priority)
            return sum(change.running_gpus for change in running)
        certain, items = 0, []
        for i, amount in self._worths(family, priority).items():
            if self.stays[i]:
                certain += amount
            else:
                items.append(_Item(amount, self._taken(i)))
        total = sum(item.worth for item in items)
        if family in ("growth", "growth-pods"):  # they count what the rows do not
            return certain + total
        return certain + min(total, *(_knapsack(items, s, left) for s, left in rows.items()))


def _knapsack(items: Sequence[_Item], size: int, slots: int) -> int:
    """The most worth of items that take so many slots together, the last one in part."""
    kinds = Counter((item.worth, item.slots[size]) for item in items)
    total, left = 0, max(0, slots)
    common = math.lcm(*(taken for _, taken in kinds if taken))
    # the most worth for a slot first, and before all what takes none
    order = sorted(
        (0 if taken == 0 else 1, -worth * (common // max(1, taken)), -worth, taken)
        for worth, taken in kinds
    )
    for _, _, negated, taken in order:
        worth, count = -negated, kinds[-negated, taken]
        if taken * count > left:
            return total + worth * left // taken
        total, left = total + worth * count, left - taken * count
    return total


def _goodput(outcome: Outcome, i: int) -> int:
    change, figures = outcome.changes[i], outcome.figures[i]
    gang, speed = change.gang, FULL_SPEED
    if gang.running and gang.whole and not outcome.facts.free_restarts:
        as_before = change.kind == "keep" and all(
            pod.gpus is not None for pod in change.pods.values()
        )
        before = None if as_before else outcome.speeds.before_plan(change, figures.share)[1]
        speed = (figures.speed or 0) if before is None else before
    return gang.w * speed


def _admission(outcome: Outcome, i: int) -> int:
    return outcome.changes[i].gang.w


def _guarantee(outcome: Outcome, i: int) -> int:
    gang = outcome.changes[i].gang
    return gang.w if gang.key in outcome.queues.within else 0


def _aged(outcome: Outcome, i: int) -> int:
    gang = outcome.changes[i].gang
    if not outcome.facts.aged(gang):
        return 0
    return gang.w * (FULL_SPEED if outcome.facts.counts_goodput else 1)


def _waited(outcome: Outcome, i: int) -> int:
    gang = outcome.changes[i].gang
    if gang.running or gang.submitted is None:
        return 0
    return outcome.latest_submission - gang.submitted


def _waiting(outcome: Outcome, i: int) -> int:
    return outcome.changes[i].gang.w * _waited(outcome, i)


def _aged_waiting(outcome: Outcome, i: int) -> int:
    return _aged(outcome, i) * _waited(outcome, i)


def _preference(outcome: Outcome, i: int) -> int:
    gang = outcome.changes[i].gang
    roles = sum(role.min * role.counts or 1 for role in gang.roles if role.preferred is not None)
    for numbers, _ in gang.together:
        roles += sum(gang.roles[n].min * gang.roles[n].counts for n in numbers) or 1
    return roles + gang.w * ((gang.preferred is not None) + (gang.near is not None))


def _bandwidth(outcome: Outcome, i: int) -> int:
    change = outcome.changes[i]
    gang = change.gang
    if gang.pattern == "none" or sum(role.max * role.gpus for role in gang.roles) < 2:
        return 0
    share = FULL_SHARE
    fixed = gang.running and gang.whole and not (gang.preemptible or gang.movable or gang.elastic)
    if fixed and all(pod.gpus is not None for pod in gang.running_pods.values()):
        share = outcome.figures[i].share or 0
    return gang.weight * gang.w * share


def _growth(outcome: Outcome, i: int) -> int:
    return sum((role.max - role.min) * role.counts for role in outcome.changes[i].gang.roles)


def _growth_pods(outcome: Outcome, i: int) -> int:
    return sum(role.max - role.min for role in outcome.changes[i].gang.roles if not role.counts)


WORTHS: dict[str, Callable[[Outcome, int], int]] = {
    "guarantee": _guarantee,
    "goodput": _goodput,
    "admission": _admission,
    "aged": _aged,
    "waiting": _waiting,
    "aged-waiting": _aged_waiting,
    "preference": _preference,
    "bandwidth": _bandwidth,
    "growth": _growth,
    "growth-pods": _growth_pods,
}
"""What gang i adds to a tier at most."""
