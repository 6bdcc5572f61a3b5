"""Gangs: whole or not at all; what runs stays, unless something allows it to move, shrink or stop.

Waiting: role r gets indices f_r .. f_r + c_r - 1, f_r its first index and c_r an allowed count, or no pod.
Running: see ``_running``.
Pods missing: the standing pods stay, and all of the missing ones come or none; none where it is held.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.checking.changes import Arrivals, Change, gapless
from models.checking.facts import Gang, PodKey
from models.checking.form import printable
from models.checking.violation import Violation


def check(changes: Sequence[Change], arrivals: Arrivals) -> Iterator[Violation]:
    for change in changes:
        if change.held_back and change.added:
            yield Violation(
                "hold",
                change.label,
                f"is held ({change.gang.hold}): {_pods(change.gang, change.added)} may not be placed",
            )
        if not change.gang.running:
            if change.pods:
                yield from _whole(change, "all-or-nothing")
        elif change.incomplete:
            yield from _with_pods_missing(change, arrivals)
        else:
            yield from _running(change, arrivals)


def _whole(change: Change, rule: str) -> Iterator[Violation]:
    """Every role at an allowed count, without holes."""
    for number, role in enumerate(change.gang.roles):
        indices = [pod.index for pod in change.by_role[number]]
        if not role.allows(len(indices)):
            yield Violation(
                rule,
                change.label,
                f"role {printable(role.name)}: {len(indices)} pods are not an allowed count "
                f"({_counts(role.min, role.max, role.step)})",
            )
        elif not gapless(role, indices):
            yield Violation(
                rule,
                change.label,
                f"role {printable(role.name)}: {len(indices)} pods must be {role.first} to "
                f"{role.first + len(indices) - 1}",
            )


def _counts(low: int, high: int, step: int) -> str:
    return str(low) if low == high else f"{low} to {high} by {step}"


def _running(change: Change, arrivals: Arrivals) -> Iterator[Violation]:
    """A whole running gang.

    Stop: preemptible, for a higher gang. Move: movable. Shrink: elastic and movable, or elastic and
    preemptible for a higher gang; highest indices first. Grow: elastic, any allowed count.
    """
    gang = change.gang
    if not change.pods:
        yield from _stopped(change, arrivals)
        return
    if change.moved and not gang.movable:
        yield Violation("standing", change.label, f"{_pods(gang, change.moved)} may not move")
    if change.dropped and not gang.movable:
        if not gang.preemptible:
            yield Violation(
                "standing", change.label, f"{_pods(gang, change.dropped)} may not be stopped"
            )
        else:
            yield from _gives_room(change, change.dropped, arrivals)
    if change.dropped or change.added or change.moved:
        yield from _whole(change, "shrinking" if _has_holes(change) else "all-or-nothing")


def _has_holes(change: Change) -> bool:
    """It shrinks to allowed counts, but not from the top."""
    counts = [0] * len(change.gang.roles)
    for role, _ in change.pods:
        counts[role] += 1
    return bool(change.dropped) and all(
        role.allows(count) for role, count in zip(change.gang.roles, counts, strict=True)
    )


def _with_pods_missing(change: Change, arrivals: Arrivals) -> Iterator[Violation]:
    gang = change.gang
    if not change.pods:
        yield from _stopped(change, arrivals)
        return
    if change.kind == "keep":
        return
    gone = (*change.moved, *change.dropped)
    if gone:
        yield Violation(
            "standing", change.label, f"{_pods(gang, gone)} must stay until the gang is complete"
        )
    if change.added:
        yield from _whole(change, "completion")


def _stopped(change: Change, arrivals: Arrivals) -> Iterator[Violation]:
    if not change.gang.preemptible:
        yield Violation(
            "standing", change.label, "runs, is not preemptible, and may not be stopped"
        )
    else:
        yield from _gives_room(change, change.gang.standing, arrivals)


def _gives_room(
    change: Change, leaving: Iterable[PodKey], arrivals: Arrivals
) -> Iterator[Violation]:
    if not change.outranked_by(arrivals, leaving):
        yield Violation(
            "preemption",
            change.label,
            "gives way, but no gang of higher priority comes to its nodes",
        )


def _pods(gang: Gang, keys: Sequence[PodKey]) -> str:
    names = [f"{printable(gang.roles[role].name)}/{index}" for role, index in keys[:3]]
    more = f" and {len(keys) - 3} more" if len(keys) > 3 else ""
    return f"pods {', '.join(names)}{more}"
