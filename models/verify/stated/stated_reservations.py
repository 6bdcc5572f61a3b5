"""What a plan states of reservations and expected starts: who may hold one, when, where, beside whom.

Whether the gang can start there then, and whether others leave it the room, is a rule of a feasible plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from itertools import chain

from models.documents.plan import PlanGang, PlanReservation
from models.documents.policy import Reservations
from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.facts import Facts, Gang
from models.verify.outcome import Outcome
from models.verify.rules.reservations import NAME, within
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
