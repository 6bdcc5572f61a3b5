"""What a plan states of reservations and expected starts: who may hold one, when, where, beside whom.

Whether the gang can start there then, and whether others leave it the room, is a rule of a feasible plan.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from models.documents.plan import PlanReservation
from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.facts import Facts, Gang
from models.verify.outcome import Outcome
from models.verify.rules.reservations import RULE
from models.verify.stated_gangs import misnamed
from models.verify.violation import Violation, printable, quoted


def check(outcome: Outcome) -> Iterator[Violation]:
    counts: Counter[int] = Counter()
    by_label = {change.label: change for change in outcome.changes}
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        reserved, expected = stated.document.reserved, stated.document.expected_start
        if reserved is not None:
            counts[change.gang.priority] += 1
            for what in _faults(outcome.facts, change, stated, reserved):
                yield change.violation(RULE, what)
            for what in _others(by_label, change.gang, reserved.beside):
                yield change.violation(RULE, what)
            yield from misnamed(change, stated.reserved_labels)
        if expected is not None and (change.kind != "wait" or reserved is not None):
            yield change.violation(
                RULE, "does not wait without a reservation: it has no expectedStart"
            )
        elif expected is not None and expected <= outcome.facts.now:
            yield change.violation(RULE, "its expectedStart is not after now")
    rules = outcome.facts.policy.reservations
    for priority, count in sorted(counts.items()):
        if rules is not None and count > rules.per_priority:
            what = (
                f"{count} gangs of priority {priority} hold reservations, not {rules.per_priority}"
            )
            yield Violation(RULE, None, what)


def _faults(
    facts: Facts, change: Change, stated: StatedGang, reserved: PlanReservation
) -> Iterator[str]:
    gang, rules = change.gang, facts.policy.reservations
    if rules is None:
        yield "the policy has no reservations"
    elif not rules.to_reservations().admits(gang.priority):
        yield f"the policy has no reservations for priority {gang.priority}"
    elif reserved.start > facts.now + rules.horizon:
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


def _others(by_label: Mapping[str, Change], holder: Gang, beside: Sequence[str]) -> Iterator[str]:
    """What is wrong with the gangs that need not give way: each is before the holder in the queue."""
    for label in beside:
        change = by_label.get(label)
        if change is None:
            yield f"names {quoted(label)} beside it, which is no gang"
        elif _turn(change.gang) >= _turn(holder):
            yield f"names {printable(label)} beside it, which does not come before it"
        elif change.gang.running and not change.incomplete:
            yield f"names {printable(label)} beside it, which runs"
    if list(beside) != sorted(set(beside), key=lambda label: label.split("/")):
        yield "the gangs that it names beside it are not sorted, or twice the same"


def _turn(gang: Gang) -> tuple[int, bool, int, tuple[str, str]]:
    """Place in the queue: higher priority first, then older, without a time last."""
    return -gang.priority, gang.submitted is None, gang.submitted or 0, gang.key


def _domain(facts: Facts, stated: StatedGang) -> str | None:
    """The narrowest named domain that holds the nodes: its level and its name."""
    nodes = [facts.nodes[n] for n in sorted({pod.node for pod in stated.reserved.values()})]
    if len(nodes) == 1:
        return f"node {nodes[0].name}"
    for level in range(facts.node_level - 1, -1, -1) if nodes else ():
        if nodes[0].has(level) and len({node.domain[level] for node in nodes}) == 1:
            return f"{facts.levels[level].name} {nodes[0].names[level]}"
    return None
