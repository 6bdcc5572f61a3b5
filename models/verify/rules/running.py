"""Gangs: whole or not at all; running pods stay unless something allows them to move or stop.

A gang gives way to one of higher priority, and to one whose queue reclaims what it is guaranteed.
Waiting: a role gets indices f .. f + c - 1, f its first index and c an allowed count, or no pod.
Running: stopped if preemptible for another gang; moved if movable; shrunk if movable, or preemptible
for another gang, highest indices first; grown if elastic. Pods missing: running pods stay, and all
missing ones come or none. Until its minimum run time is over every running pod stays, until ``resizeAfter``
their number. Moves keep to the policy, and gangs that stop or move to the disruption budgets, with all their
running pods; shrinking evicts nothing.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from fractions import Fraction

from models.documents.gang import GangDocument
from models.documents.policy import PolicySpec
from models.units import first_of
from models.verify.changes import Change
from models.verify.facts import Gang, PodKey, Role
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation, printable


def check(outcome: Outcome) -> Iterator[Violation]:
    for change in outcome.changes:
        if change.held_back and change.added:
            yield change.violation(
                "hold",
                f"is held ({change.gang.hold}): {_pods(change.gang, change.added)} may not be placed",
            )
        if not change.gang.running:
            if change.pods:
                yield from _whole(change, "all-or-nothing")
        elif change.incomplete:
            yield from _with_pods_missing(outcome, change)
        else:
            yield from _running(outcome, change)
        if change.gang.running and outcome.facts.protected(change.gang):
            yield from _left_alone(change)
    yield from _sizes(outcome)
    yield from _moves(outcome)
    yield from _budgets(outcome)


def _whole(change: Change, rule: str) -> Iterator[Violation]:
    """Every role at an allowed count, without holes."""
    for number, role in enumerate(change.gang.roles):
        indices = [pod.index for pod in change.by_role[number]]
        if not role.allows(len(indices)):
            yield change.violation(
                rule,
                f"role {role.name}: {len(indices)} pods are not an allowed count "
                f"({_counts(role.min, role.max, role.step)})",
            )
        elif not role.gapless(indices):
            yield change.violation(
                rule,
                f"role {role.name}: {len(indices)} pods must be {role.first} to "
                f"{role.first + len(indices) - 1}",
            )


def _counts(low: int, high: int, step: int) -> str:
    return str(low) if low == high else f"{low} to {high} by {step}"


def _running(outcome: Outcome, change: Change) -> Iterator[Violation]:
    """A gang that runs whole."""
    gang = change.gang
    if not change.pods:
        yield from _stopped(outcome, change)
        return
    if change.moved and not gang.movable:
        yield change.violation("standing", f"{_pods(gang, change.moved)} may not move")
    if change.dropped and not gang.movable:
        if not gang.preemptible:
            yield change.violation("standing", f"{_pods(gang, change.dropped)} may not be stopped")
        else:
            yield from _gives_room(outcome, change, change.dropped)
    if change.dropped or change.added or change.moved:
        yield from _whole(change, "shrinking" if _has_holes(change) else "all-or-nothing")


def _has_holes(change: Change) -> bool:
    """Whether it shrinks to allowed counts, but not from the highest index."""
    counts = [0] * len(change.gang.roles)
    for role, _ in change.pods:
        counts[role] += 1
    return bool(change.dropped) and all(
        role.allows(count) for role, count in zip(change.gang.roles, counts, strict=True)
    )


def _with_pods_missing(outcome: Outcome, change: Change) -> Iterator[Violation]:
    gang = change.gang
    if not change.pods:
        yield from _stopped(outcome, change)
        return
    if change.kind == "keep":
        return
    gone = (*change.moved, *change.dropped)
    if gone:
        yield change.violation(
            "standing", f"{_pods(gang, gone)} must stay until the gang is complete"
        )
    if change.added:
        yield from _whole(change, "completion")


def _stopped(outcome: Outcome, change: Change) -> Iterator[Violation]:
    if not change.gang.preemptible:
        yield change.violation("standing", "is running and not preemptible, and may not be stopped")
    else:
        yield from _gives_room(outcome, change, change.gang.running_pods)


def _gives_room(outcome: Outcome, change: Change, leaving: Iterable[PodKey]) -> Iterator[Violation]:
    if not outcome.gives_way_to(change, leaving):
        yield change.violation(
            "preemption",
            "is stopped or shrunk, but no gang that it gives way to gets a pod on its nodes",
        )


def _left_alone(change: Change) -> Iterator[Violation]:
    """All its running pods stay as they are; others may come."""
    gone = (*change.moved, *change.dropped) if change.pods else tuple(change.gang.running_pods)
    if gone:
        what = f"{_pods(change.gang, gone)} must stay: it has not run for its minRunTime yet"
        yield change.violation("run-time", what)


def _pods(gang: Gang, keys: Sequence[PodKey]) -> str:
    return f"pods {first_of([f'{gang.roles[role].name}/{index}' for role, index in keys], 3)}"


def _sizes(outcome: Outcome) -> Iterator[Violation]:
    """Until resizeAfter: a whole gang keeps its counts, a completed one gets the least possible."""
    for change in outcome.changes:
        if not change.pods or change.kind == "keep" or not outcome.facts.size_held(change.gang):
            continue
        running_pods: list[list[int]] = [[] for _ in change.gang.roles]
        for number, index in change.gang.running_pods:
            running_pods[number].append(index)
        for number, role in enumerate(change.gang.roles):
            if change.incomplete:
                held = _completed(role, running_pods[number]) if change.added else None
            else:
                held = len(running_pods[number])
            count = len(change.by_role[number])
            if held is not None and count != held:
                yield change.violation(
                    "size",
                    f"role {role.name}: {count} pods, but it must keep {held} until resizeAfter",
                )


def _completed(role: Role, indices: list[int]) -> int | None:
    """Smallest allowed count that includes every running pod; None if there is none."""
    least = max(indices, default=role.first - 1) + 1 - role.first
    count = role.min + max(0, -(-(least - role.min) // role.step)) * role.step
    return count if count <= role.max else None


def _moves(outcome: Outcome) -> Iterator[Violation]:
    """Gangs with a running pod that changes node or GPUs, and all GPUs they run on."""
    moved = [change for change in outcome.changes if change.moved]
    limits = outcome.facts.policy.moves
    gpus = [Fraction(change.running_gpus, outcome.facts.gpu_unit) for change in moved]
    for what, count, most in (
        ("gangs that move", len(moved), limits.max_gangs),
        ("their GPUs", sum(gpus), limits.max_gpus),
    ):
        if most is not None and count > most:
            yield Violation("moves", None, f"{what}: {count}, the policy allows {most}")


def _budgets(outcome: Outcome) -> Iterator[Violation]:
    """Every eviction is one that its pod's only budget allows."""
    for change in outcome.changes if outcome.facts.budgets else ():
        if change.gang.budgets and change.evicts:
            both = next((key for key, names in change.gang.budgets.items() if len(names) > 1), None)
            if both is not None:
                role, index = both
                pod = f"pod {change.gang.roles[role].name}/{index}"
                what = f"{pod} has several disruption budgets"
                yield change.violation("budgets", f"{what} and may not be evicted")
    for budget, count in sorted(evictions(outcome).items()):
        allowed = outcome.facts.budgets.get(budget, 0)
        if count > allowed:
            what = f"{printable('/'.join(budget))}: {count} pods are evicted, it allows {allowed}"
            yield Violation("budgets", None, what)


def evictions(outcome: Outcome) -> Counter[tuple[str, str]]:
    """Pods that go of each disruption budget: those of gangs that stop or move."""
    return Counter(
        (change.gang.namespace, name)
        for change in (outcome.changes if outcome.facts.budgets else ())
        if change.gang.budgets and change.evicts
        for names in change.gang.budgets.values()
        for name in names
    )


def _held(gang: GangDocument, _: PolicySpec) -> bool:
    return gang.status.hold is not None and gang.status.hold.code != "QueueLimit"


RULE = Judged(
    check,
    {
        "all-or-nothing": "every pod of every role, at an allowed count, or none",
        "standing": "running pods stay unless a rule allows them to leave",
        "shrinking": "the highest indices leave first",
        "preemption": "a gang is stopped or shrunk only for one of higher priority or that reclaims on its"
        " nodes",
        "completion": "missing pods are placed all together, and running ones stay",
        "size": "the number of pods stays until resizeAfter",
        "run-time": "every pod of a gang that has not run for its minRunTime stays",
        "moves": "no more gangs and GPUs move than the policy allows, and no set below its minGain",
        "budgets": "no more pods are evicted than their disruption budgets allow",
        "hold": "no pod of a gang that is held is placed",
    },
    binds={"hold": _held},
)
