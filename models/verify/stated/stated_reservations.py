"""What a plan states of reservations and expected starts: who may hold one, when, where, beside whom.

Whether the gang can start there then, and whether others leave it the room, is a rule of a feasible plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import chain

from models.documents.plan import PlanDelay, PlanGang, PlanReservation
from models.documents.policy import Reservations
from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.facts import Facts, Gang
from models.verify.outcome import Outcome
from models.verify.room import Room, Work
from models.verify.rules.reservations import NAME, end_of, within
from models.verify.stated.reason_rooms import Rooms
from models.verify.stated.stated_gangs import misnamed
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    counts: Counter[tuple[int, str | None]] = Counter()
    gangs, running = outcome.facts.gangs, outcome.speeds.before.usage.nodes
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        reserved = stated.document.reserved
        if reserved is not None and not (reserved.nodes or reserved.pods):
            for what in _turn_faults(outcome.facts, change, reserved):
                yield change.violation(NAME, what)
        elif reserved is not None:
            own = change.gang.namespace
            there = (i for pod in stated.reserved.values() for i, *_ in running[pod.node].tenants)
            blocked = any(gangs[i].namespace == own for i in there)
            if change.kind == "wait":
                counts[change.gang.priority, own if blocked else None] += 1
                counts[change.gang.priority, own] += not blocked
            faults = _faults(outcome.facts, change, stated, reserved)
            for what in chain(faults, _others(outcome, change.gang, reserved.beside)):
                yield change.violation(NAME, what)
            yield from misnamed(change, stated.reserved_labels)
        for what in _later(outcome.facts, change, stated.document):
            yield change.violation(NAME, what)
    rules = outcome.facts.policy.reservations
    for priority, count in sorted({(priority, count) for (priority, _), count in counts.items()}):
        if rules is not None and count > rules.per_priority:
            what = (
                f"{count} gangs of priority {priority} hold reservations, not {rules.per_priority}"
            )
            yield Violation(NAME, None, what)
    yield from _order(outcome)


def _turn_faults(facts: Facts, change: Change, reserved: PlanReservation) -> Iterator[str]:
    """What is wrong with a gang for which no nodes are held: it starts now, in its turn."""
    if facts.policy.reservations is None:
        yield "the policy has no reservations"
    if reserved.start != facts.now:
        yield "does not start now, and no nodes are held for it"
    if change.gang.hold is not None or change.gang.running:
        yield "runs" if change.gang.running else f"is held ({change.gang.hold})"
    if reserved.beside or reserved.domain is not None:
        yield "has nobody beside it, and no domain: no nodes are held for it"


def _later(facts: Facts, change: Change, stated: PlanGang) -> Iterator[str]:
    """What is wrong with an estimate."""
    expected = stated.expected_start
    if expected is None:
        return
    if change.kind != "wait" or stated.reserved is not None:
        yield "does not wait without a reservation: it has no expectedStart"
    elif expected <= facts.now:
        yield "its expectedStart is not after now"


def _order(outcome: Outcome) -> Iterator[Violation]:
    """Gangs that come before a holder of their priority hold a reservation, or say why they hold none."""
    rules = outcome.facts.policy.reservations
    behind: set[int] = set()
    each = zip(outcome.changes, outcome.case.gangs, strict=True)
    pairs = [one for one in each if one[0].kind == "wait" or one[1].document.passed_over]
    for change, stated in sorted(pairs, key=lambda one: turn(outcome, one[0].gang), reverse=True):
        gang, document = change.gang, stated.document
        waits = change.kind == "wait" and gang.hold is None and rules is not None
        if waits and document.reserved is not None:
            behind.add(gang.priority)
            if document.passed_over is not None:
                yield change.violation(NAME, "holds a reservation: it is not passed over")
            continue
        listed = rules is not None and _for(rules, gang.stated_priority)
        passed = waits and listed and gang.priority in behind
        if passed != (document.passed_over is not None):
            yield change.violation(
                NAME,
                "does not say why a gang behind it holds a reservation and it does not"
                if passed
                else "is said to be passed over, but no gang of its priority behind it is reserved for",
            )


def _for(rules: Reservations, priority: int) -> bool:
    """Whether gangs of a priority may hold one: some comparison holds, or there is none."""
    for sign, other in rules.priorities:
        if (priority == other and "=" in sign) or (priority > other and ">" in sign):
            return True
        if priority < other and "<" in sign:
            return True
    return not rules.priorities


def _faults(
    facts: Facts, change: Change, stated: StatedGang, reserved: PlanReservation
) -> Iterator[str]:
    gang, rules = change.gang, facts.policy.reservations
    if rules is None:
        yield "the policy has no reservations"
    elif not _for(rules, gang.stated_priority):
        yield f"the policy has no reservations for priority {gang.priority}"
    elif reserved.start > facts.now + rules.horizon_s:
        yield "starts after the policy's horizon"
    if reserved.start < facts.now:
        yield "is said to have started"
    if gang.hold is not None or gang.running:
        yield "runs" if gang.running else f"is held ({gang.hold})"
    least = {(r, role.first + i) for r, role in enumerate(gang.roles) for i in range(role.min)}
    if stated.reserved.keys() != least:
        yield "its pods are not those at the least counts of its roles"
    nodes = sorted({facts.nodes[pod.node].name for pod in stated.reserved.values()})
    if list(reserved.nodes) != nodes:
        yield "its nodes are not those of its pods, sorted"
    domain = _domain(facts, stated)
    if reserved.domain != domain:
        yield f"says that its nodes are in {quoted(reserved.domain)}, not in {quoted(domain)}"


def _others(outcome: Outcome, holder: Gang, beside: Sequence[str]) -> Iterator[str]:
    """What is wrong with the gangs that need not give way: each is before the holder in the queue."""
    for label in beside:
        change = outcome.by_label.get(label)
        if change is None:
            yield f"names {quoted(label)} beside it, which is no gang"
        elif turn(outcome, change.gang) >= turn(outcome, holder):
            yield f"names {printable(label)} beside it, which does not come before it"
        elif change.gang.running and not change.incomplete:
            yield f"names {printable(label)} beside it, which runs"
    if list(beside) != sorted(set(beside), key=lambda label: label.split("/")):
        yield "the gangs that it names beside it are not sorted, or twice the same"


def turn(outcome: Outcome, gang: Gang) -> tuple[bool, int, bool, int, tuple[str, str]]:
    """Place in the queue: within a guarantee, higher priority, then older, without a time last."""
    age = gang.submitted is None, gang.submitted or 0
    return not within(outcome, gang), -gang.priority, *age, gang.key


def _domain(facts: Facts, stated: StatedGang) -> str | None:
    """The narrowest named domain that holds the nodes: its level and its name."""
    nodes = [facts.nodes[n] for n in sorted({pod.node for pod in stated.reserved.values()})]
    if len(nodes) == 1:
        return f"node {nodes[0].name}"
    for level in range(facts.node_level - 1, -1, -1) if nodes else ():
        if nodes[0].has(level) and len({node.domain[level] for node in nodes}) == 1:
            return f"{facts.levels[level].name} {nodes[0].names[level]}"
    return None


NEVER = "Never"

WORK = 1_000_000
"""Visits of nodes for counting what is free at expected starts."""


def check_starts(outcome: Outcome) -> Iterator[Violation]:
    """What a plan states of expected starts: who may have one, and what there is for it by then.

    Time goes from one expected end or reserved start to the next: each expected start is one of these. Where
    the gangs would be then is not in the plan; only counts are made of the room that has become free.
    """
    starts = _Starts(outcome)
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        expected = stated.document.expected_start
        if expected is not None:
            for what in starts.faults(change, stated, expected):
                yield change.violation(NAME, what)


class _Starts:
    def __init__(self, outcome: Outcome) -> None:
        self.outcome = outcome
        self.rooms = Rooms(outcome, Work(WORK))
        self._by_time: dict[int, Room] = {}

    def faults(self, change: Change, stated: StatedGang, expected: int) -> Iterator[str]:
        facts, reason = self.outcome.facts, stated.document.reason
        if facts.policy.reservations is None:
            yield "the policy has no reservations: it has no expectedStart"
        elif change.gang.hold is not None or (reason is not None and reason.code == NEVER):
            yield "is held or can never start: it has no expectedStart"
        elif expected not in self._times:
            yield "nothing is expected to end or start at its expectedStart"
        elif not self._has_room(change.gang, expected):
            yield "at its expectedStart, what is expected to have ended leaves too little room"

    @cached_property
    def _ends(self) -> Mapping[int, int]:
        """By position, when gangs with pods are expected to end."""
        found = ((i, end_of(self.outcome.facts, c)) for i, c in enumerate(self.outcome.changes))
        return {i: end for i, end in found if end is not None and self.outcome.changes[i].pods}

    @cached_property
    def _times(self) -> set[int]:
        """When something ends, or starts as reserved, or ends that starts as stated."""
        found = set(self._ends.values())
        for change, stated in zip(self.outcome.changes, self.outcome.case.gangs, strict=True):
            if change.kind != "wait":
                continue
            reserved, duration = stated.document.reserved, change.gang.duration
            begun = stated.document.expected_start
            if reserved is not None:
                begun = reserved.start
                found.add(begun)
            if begun is not None and duration is not None:
                found.add(begun + duration)
        return found

    def _has_room(self, gang: Gang, at: int) -> bool:
        """Whether no count denies that it fits beside what still runs then."""
        if self.rooms.work.left <= 0:
            return True
        if at not in self._by_time:
            gone = {
                i
                for i, change in enumerate(self.outcome.changes)
                if change.pods and (change.gang.preemptible or self._ends.get(i, at + 1) <= at)
            }
            self._by_time[at] = self.rooms.without(gone)
        return self.rooms.holds(self._by_time[at], gang)


def check_delays(outcome: Outcome) -> Iterator[Violation]:
    """What a plan states of starts that are later than an earlier plan stated: by whom, as far as is seen.

    The earlier plan is not in the document: what it promised, and whom it knew, is taken as it is said.
    """
    nodes = {node.name: node for node in outcome.facts.nodes}
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        late, reserved = stated.document.delayed, stated.document.reserved
        if late is None:
            continue
        if change.kind != "wait":
            yield change.violation(NAME, "does not wait: it is not delayed")
        elif reserved is not None and reserved.start <= late.promised:
            yield change.violation(NAME, "is said to be delayed, but starts no later than promised")
        if list(late.by) != sorted(set(late.by)):
            yield change.violation(
                NAME, "the causes of its delay are not sorted, or twice the same"
            )
        if bool(late.by) == (late.cause == "Input"):
            what = "the cause of its delay names nobody, or somebody though it is another input"
            yield change.violation(NAME, what)
        for name in late.by:
            if late.cause == "Failure":
                of = nodes.get(name)
                if of and of.usable and not of.unhealthy and not of.unknown_unhealthy:
                    what = f"is said to be delayed by node {printable(name)}, with which nothing is wrong"
                    yield change.violation(NAME, what)
            else:
                yield from _by_gang(outcome, change, late, name)


def _by_gang(outcome: Outcome, change: Change, late: PlanDelay, label: str) -> Iterator[Violation]:
    other = outcome.by_label.get(label)
    if other is None or other is change:
        what = f"is said to be delayed by {quoted(label)}, which is no other gang"
        yield change.violation(NAME, what)
    elif late.cause == "Overrun":
        if not other.gang.running:
            what = f"is said to be delayed by {printable(label)}, which does not run"
            yield change.violation(NAME, what)
    elif not other.gang.running and turn(outcome, other.gang) > turn(outcome, change.gang):
        what = f"is said to be delayed by {printable(label)}, which does not come before it"
        yield change.violation(NAME, what)
