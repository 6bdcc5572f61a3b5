"""Sizes: until a gang's resizeAfter its number of pods stays.

Running whole: every role keeps its count, wherever its pods are, or the gang is stopped. Pods missing: it is
completed to the smallest allowed count of every role that reaches the highest pod that stands.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.checking.ages import Ages
from models.checking.changes import Change
from models.checking.facts import Role
from models.checking.form import printable
from models.checking.violation import Violation


def check(changes: Sequence[Change], ages: Ages) -> Iterator[Violation]:
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
