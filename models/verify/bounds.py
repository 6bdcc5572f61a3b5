"""A better plan one step away from the stated one, if a bounded greedy search finds one.

Where the plan calls a tier proven, a better plan is a violation; elsewhere a remark.

Steps: a running gang stays as it was; a waiting gang starts beside the others, or in the room of one that
starts or may be stopped for it. A step counts only if the plan with it breaks no rule and is better in the
order of the tiers, so what is found is certain; what is not found proves nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any

from models.verify.changes import Change
from models.verify.facts import Gang, Pod, PodKey
from models.verify.outcome import Outcome, Part, Variant
from models.verify.room import Grounds, Room, Work, placements
from models.verify.rules.bandwidth import BOUND
from models.verify.stated.stated_reasons import denies_room
from models.verify.tier_values import VALUES, required, tiers
from models.verify.violation import Violation, printable, quoted

WORK = 200_000
"""Visits of nodes, gangs and pods, about a microsecond each, for each kind of step."""

ALL_WORK = 500_000
"""The same for all steps of one search."""

CERTIFIED_WORK = 100_000
"""Nodes, gangs, and pods in sets, of the plans that are checked by every rule."""

CLUSTER_VISITS = 8
"""Visits of each node for a tier that is no sum over gangs."""

ROOM_VISITS = 50
"""Visits for what is left without a gang, beside one for each ROOM_VISITS gangs and nodes."""

OF_CLUSTER = ("stranded", "defragment", "suspect")
"""Families of tiers that are no sums over gangs."""

POD_VISITS = 20
"""Visits for each pod that is placed, and for each that is valued."""

PLACEMENTS = 6
"""Placements of one gang that are compared."""

Check = Callable[[Outcome], Iterable[Violation]]
Pods = Mapping[PodKey, Pod]


@dataclass(frozen=True, slots=True)
class Step:
    """``pods``: of the gangs that change otherwise, by position. ``gang``: the one it is about."""

    gang: int
    what: str
    pods: Mapping[int, Pods]


@dataclass(frozen=True, slots=True)
class Witness:
    """A step that betters tier ``tier`` (its position) to ``value`` and keeps those before it."""

    tier: int
    value: int
    step: Step
    label: str


class Search:
    """``outcome``: a plan that breaks none of the ``rules``, and states its tiers as they are."""

    def __init__(self, outcome: Outcome, rules: Sequence[Check]) -> None:
        self.outcome = outcome
        self.facts = outcome.facts
        self.stated = outcome.case.status.objectives
        self.rules = rules
        self.tiers = outcome.once(tiers)
        self.required = [
            required(tier, one.best) for one, tier in zip(self.stated, self.tiers, strict=True)
        ]
        self.work = Work(ALL_WORK)
        self.certified = Work(CERTIFIED_WORK)
        self.size = len(self.facts.nodes) + len(self.facts.gangs)
        # what one check by every rule looks at: rules about sets count each pod in each of its sets
        self.checked = self.size + sum(
            len(change.gang.roles[pod.role].pod_sets)
            for change in outcome.changes
            for pod in change.pods.values()
        )
        if self.facts.queues:
            self.checked += sum(one.visits for one in outcome.queues.cells.grounds.values())
        # rules about whole domains look at all pods, for each level
        pods, policy = sum(len(change.pods) for change in outcome.changes), self.facts.policy
        alone = {gang.exclusive for gang in self.facts.gangs} - {None}
        self.checked += (len(alone) + len(self.facts.spares)) * (len(self.facts.nodes) + pods)
        reserved = (one.document.reserved for one in outcome.case.gangs)
        self.checked += ROOM_VISITS * sum(len(one.nodes) for one in reserved if one is not None)
        # what valuing the cluster looks at: with shares of nodes, each pod's requests
        counted = pods if policy.per_gpu else 0
        self.cluster_visits = CLUSTER_VISITS * len(self.facts.nodes) + counted
        self.joint = any(gang.near is not None for gang in self.facts.gangs)
        self.room = Room(outcome, Grounds(self.facts, self.work))
        self.found: dict[int, Witness] = {}

    def fitting(self) -> Iterator[Step]:
        """Gangs, one of a kind, that start beside the others although the plan says that they do not fit."""
        self._begin()
        self.work.part(WORK)
        for i in self._waiting(lambda i: denies_room(self.outcome.case.gangs[i])):
            for pods in self._placed(self.room, i):
                if self.certified.left <= 0:
                    return
                if self._feasible(Variant(self.outcome, {i: pods})):
                    yield Step(i, "starting beside the others", {i: pods})
                    break

    def witnesses(self) -> list[Witness]:
        """For each tier at most one step that betters it first, in the order of the tiers."""
        self._begin()
        for steps in (self._kept_as_they_were, self._started, self._exchanged):
            self.work.part(WORK)
            for step in steps():
                self._consider(step)
                if self.work.total <= 0:
                    break
        return [self.found[tier] for tier in sorted(self.found)]

    def _begin(self) -> None:
        self.work.begin(ALL_WORK)
        self.certified.begin(CERTIFIED_WORK)

    # What is better

    def _consider(self, step: Step) -> None:
        """Keeps the step if it betters a tier that no other one did."""
        variant = Variant(self.outcome, step.pods)
        visits = ROOM_VISITS + len(self.tiers)
        self.work.spend(visits + POD_VISITS * sum(map(len, step.pods.values())))
        first = self._first_better(self._values(variant))
        if first is None or first[0] in self.found or not self._feasible(variant):
            return
        certain = self._first_better(tier.value for tier in tiers(variant))
        if certain is not None and certain[0] not in self.found:
            self.found[certain[0]] = Witness(*certain, step, self.outcome.changes[step.gang].label)

    def _values(self, variant: Variant) -> Iterator[int]:
        """Value of every tier, from what the gangs that change add, one after another."""
        before, after = Part(self.outcome, variant.affected), Part(variant, variant.affected)
        priorities = {"", *(str(change.gang.priority) for change in after.changes)}
        for position, tier in enumerate(self.tiers):
            family, _, priority = tier.name.partition("/")
            value = VALUES[family]
            if family == "fair" or (family == "preference" and self.joint):
                self.work.spend(len(self.facts.gangs))  # no such sum either, but quickly computed
                yield value(variant, int(priority or 0))
            elif family in OF_CLUSTER:
                if position in self.found:
                    return
                self.work.spend(self.cluster_visits)
                yield value(variant, 0)
            elif priority not in priorities:
                yield tier.value
            else:
                number = int(priority or 0)
                yield tier.value + value(after, number) - value(before, number)

    def _first_better(self, values: Iterable[int]) -> tuple[int, int] | None:
        """(position, value) of the first tier that is better; None if one before it is not kept."""
        for position, value in enumerate(values):
            sign = 1 if self.stated[position].sense == "max" else -1
            if sign * value > sign * self.stated[position].best:
                return position, value
            if sign * value < sign * self.required[position]:
                return None
        return None

    def _reaches(self, variant: Variant, i: int) -> bool:
        """Whether a gang certainly has its least share."""
        change, found = variant.changes[i], variant.bandwidths[i]
        least = change.gang.min_share
        if not least or change.kind not in BOUND or found.reached is None:
            return True
        return found.ideal is not None and found.reached.low >= least * found.ideal.high

    def _feasible(self, variant: Variant) -> bool:
        """Whether it breaks no rule, as far as the work for that goes: most break one of the first."""
        if not all(self._reaches(variant, i) for i in variant.altered):
            return False
        if variant.idle_shared != self.outcome.idle_shared:
            return False  # the facts are about other GPUs
        each = self.checked // len(self.rules) + 1
        return all(
            self.certified.spend(each) and not any(True for _ in rule(variant))
            for rule in self.rules
        )

    # Steps

    def _kept_as_they_were(self) -> Iterator[Step]:
        for i, change in enumerate(self.outcome.changes):
            if self.work.left > 0 and change.gang.running and (change.moved or change.dropped):
                yield Step(i, "staying as it was", {i: change.gang.running_pods})

    def _started(self) -> Iterator[Step]:
        for i in self._waiting():
            for pods in self._placed(self.room, i):
                yield Step(i, "starting beside the others", {i: pods})

    def _exchanged(self) -> Iterator[Step]:
        """A gang that waits in the room of one that starts, or may be stopped for it."""
        waiting = self._waiting()
        each = WORK // max(1, len(waiting))
        for i in waiting:
            self.work.part(each)
            for other, change in enumerate(self.outcome.changes):
                if not self.work.spend(10):
                    break
                if self._gives_way(change, self.facts.gangs[i]):
                    what = "stops" if change.gang.running else "waits"
                    what = f"starting while {change.label} {what}"
                    for own in islice(self._placed(self._without(other), i), 1):
                        yield Step(i, what, {i: own, other: {}})

    def _gives_way(self, change: Change, gang: Gang) -> bool:
        """Whether a gang starts, or may be stopped for one of higher priority, and that may be enough."""
        lower = change.gang.preemptible and change.gang.priority < gang.priority
        gives = change.kind == "place" or (change.gang.running and change.pods and lower)
        return bool(gives) and self._opens(gang, change)

    def _opens(self, gang: Gang, change: Change) -> bool:
        """Whether the largest pods of a gang might fit, by GPUs alone, once another gives way."""
        number = max(range(len(gang.roles)), key=lambda r: gang.roles[r].gpus)
        role = gang.roles[number]
        if not role.gpus:
            return True
        caps, level = self.room.caps(role), -1 if gang.required is None else gang.required
        freed: dict[int, int] = {}
        for pod in change.pods.values():
            freed[pod.node] = freed.get(pod.node, 0) + change.gang.held(pod)
        more: dict[int, int] = {}
        for n, gpus in freed.items():
            own = (self.room.left(n)[0] + gpus) // role.gpus - caps.get(n, 0)
            domain = 0 if level < 0 else self.facts.nodes[n].domain[level]
            more[domain] = more.get(domain, 0) + max(0, own)
        sums = self.room.sums(role, level)
        return any(own and sums.get(domain, 0) + own >= role.min for domain, own in more.items())

    # Helpers

    def _without(self, i: int) -> Room:
        self.work.spend(ROOM_VISITS + self.size // ROOM_VISITS)
        return self.room.beside(Variant(self.outcome, {i: {}}))

    def _waiting(self, which: Callable[[int], bool] = lambda _: True) -> list[int]:
        """One waiting gang of each kind, the highest priority and the largest first."""
        kinds: dict[str, int] = {}
        for i, change in enumerate(self.outcome.changes):
            gang = change.gang
            if change.pods or gang.running or gang.hold is not None or not which(i):
                continue
            key = _kind(gang)
            known = kinds.get(key)
            if known is None or _age(gang) < _age(self.facts.gangs[known]):
                kinds[key] = i
        gangs = self.facts.gangs
        return sorted(kinds.values(), key=lambda i: (-gangs[i].priority, -gangs[i].w, i))

    def _placed(self, room: Room, i: int) -> Iterator[dict[PodKey, Pod]]:
        """The gang at its least counts."""
        gang = self.facts.gangs[i]
        visits = POD_VISITS * sum(role.min for role in gang.roles)
        if visits > self.work.left:
            return iter(())
        self.work.spend(visits)
        return islice(placements(room, gang), PLACEMENTS)


def _kind(gang: Gang) -> str:
    """Equal for waiting gangs that may be placed alike and count alike, but for their age."""
    same: dict[str, Any] = {"name": "", "submitted": None, "duration": None, "existing": {}}
    return repr(replace(gang, namespace=gang.namespace if gang.service else "", **same))


def _age(gang: Gang) -> tuple[int, tuple[str, str]]:
    """The oldest first; an absent time is the youngest."""
    return (1 << 62 if gang.submitted is None else gang.submitted), gang.key


NOT_MAXIMAL = "NotMaximal"
BOUND_BEATEN = "BoundBeaten"


def examine(
    outcome: Outcome, rules: Sequence[Callable[[Outcome], Iterable[Violation]]]
) -> tuple[list[Violation], list[str], frozenset[str]]:
    """Violations, remarks, and the tiers whose stated bound is wrong. ``rules``: of a feasible plan."""
    stated = outcome.case.status.objectives
    search = Search(outcome, rules)
    denied = []
    for step in search.fitting():
        reason = outcome.case.gangs[step.gang].document.reason
        code = "" if reason is None else printable(reason.code)
        nodes = sorted({outcome.facts.nodes[p.node].name for p in step.pods[step.gang].values()})
        what = f"{code}: it fits beside the others, on {printable(', '.join(nodes))}"
        denied.append(outcome.changes[step.gang].violation("reason", what))
    if denied:
        return denied, [], frozenset()
    violations, remarks, refuted = list[Violation](), list[str](), set[str]()
    for witness in search.witnesses():
        rule, what = _said(outcome, witness)
        if rule is None:
            remarks.append(f"{witness.label}: {what}")
        else:
            violations.append(Violation(rule, witness.label, what))
            refuted.add(stated[witness.tier].name)
    return violations, remarks, frozenset(refuted)


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
