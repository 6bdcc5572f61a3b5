"""Gangs: whole or not at all; what runs stays, unless something allows it to move, shrink or stop.

Waiting: role r gets indices f_r .. f_r + c_r - 1, f_r its first index and c_r an allowed count, or no pod.
Running: see ``_running``.
Pods missing: the standing pods stay, and all of the missing ones come or none; none where it is held.

Sizes: until a gang's resizeAfter its number of pods stays.

Running whole: every role keeps its count, wherever its pods are, or the gang is stopped. Pods missing: it is
completed to the smallest allowed count of every role that reaches the highest pod that stands.

Moves: no more restarts elsewhere than the policy allows.

A gang moves if any of its standing pods changes node or GPUs, pods without GPUs included. Such gangs are
at most maxGangs, all GPUs they stand on together at most maxGPUs. What they must gain: ``checking.moves``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

from models.verify.changes import Arrivals, Change, gapless
from models.verify.facts import Ages, Facts, Gang, PodKey, Role
from models.verify.form import printable
from models.verify.violation import Violation


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


def check_of_sizes(changes: Sequence[Change], ages: Ages) -> Iterator[Violation]:
    for change in changes:
        if not change.pods or change.kind == "keep" or not ages.size_held(change.gang):
            continue
        standing: list[list[int]] = [[] for _ in change.gang.roles]
        for number, index in change.gang.standing:
            standing[number].append(index)
        for number, role in enumerate(change.gang.roles):
            if change.incomplete:
                held = _completed(role, standing[number]) if change.added else None
            else:
                held = len(standing[number])
            count = len(change.by_role[number])
            if held is not None and count != held:
                yield Violation(
                    "size",
                    change.label,
                    f"role {printable(role.name)}: {count} pods, "
                    f"but until its next checkpoint it keeps {held}",
                )


def _completed(role: Role, indices: list[int]) -> int | None:
    """Smallest allowed count that reaches every pod that stands; None if none does."""
    least = max(indices, default=role.first - 1) + 1 - role.first
    steps = max(0, -(-(least - role.min) // role.step))
    count = role.min + steps * role.step
    return count if count <= role.max else None


def check_of_moves(facts: Facts, changes: Sequence[Change]) -> Iterator[Violation]:
    moved = [change for change in changes if change.moved]
    limits = facts.policy.moves
    for what, count, most in (
        ("gangs that move", len(moved), limits.gangs),
        ("their GPUs", sum(change.gpus_standing for change in moved), limits.gpus),
    ):
        if most is not None and count > most:
            yield Violation("moves", None, f"{what}: {count}, at most {most} may be")
