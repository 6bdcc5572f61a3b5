"""Sets of pods that share a domain, as levels of a gang, of a role, or as slices.

Promises: each set is said in one of these ways, or it is a problem (required) or a remark
(preferred). Called by ``asking``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from planner.reading.kubernetes.forms import LevelAsk
from planner.reading.kubernetes.gangs.forms import Together
from planner.reading.kubernetes.gangs.roles import Draft
from planner.reading.remarks import Remarks

NOT_MODELLED = "prefers one domain for a part of its pods, which is not modelled; it is ignored"


@dataclass(frozen=True, slots=True)
class Sharing:
    """A level for the gang (``role`` None), for a role by its place, or for slices of it."""

    level: LevelAsk
    hard: bool
    role: int | None = None
    size: int | None = None


def shared(
    together: Sequence[Together],
    drafts: Sequence[Draft],
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """What the sets amount to; what they cannot amount to is added to the problems."""
    place = {
        pod.key: (role, index) for role, draft in enumerate(drafts) for index, pod in draft.members
    }
    found: list[Sharing] = []
    parts: dict[tuple[int, LevelAsk, bool], list[tuple[Together, set[int]]]] = {}
    for one in together:
        inside = {key for key in one.members if key in place}
        roles = sorted({place[key][0] for key in inside})
        if not inside:
            continue
        in_a_row = None if one.apart else one.size
        if in_a_row is not None and not _one_each(in_a_row, roles, drafts):
            found += _by_size(one, roles, drafts, problems, subject, remarks)
        elif in_a_row is None and len(inside) == len(place) and _whole(one, drafts):
            found.append(Sharing(one.level, one.hard))
        elif len(roles) == 1:
            indexes = {place[key][1] for key in inside}
            parts.setdefault((roles[0], one.level, one.hard), []).append((one, indexes))
        else:
            _give_up(one, problems, subject, remarks)
    for (role, level, hard), sets in parts.items():
        found += _of_role(
            Sharing(level, hard, role), sets, drafts[role], problems, subject, remarks
        )
    return found


def _whole(one: Together, drafts: Sequence[Draft]) -> bool:
    """Whether all pods that the roles will have are in this part, not only those that exist."""
    return not one.apart or (one.size or 0) >= sum(draft.size or 0 for draft in drafts)


def _one_each(size: int, roles: Sequence[int], drafts: Sequence[Draft]) -> bool:
    """Sub-groups of one role that are told apart already: no larger than the size."""
    return len(roles) == 1 and size >= (drafts[roles[0]].size or 0)


def _by_size(
    one: Together,
    roles: Sequence[int],
    drafts: Sequence[Draft],
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """Every so many pods by index; over several roles only where each is a whole number of them."""
    size = one.size or 1
    even = all((drafts[role].size or 0) % size == 0 for role in roles)
    if not one.hard or not (even or len(roles) == 1):
        _give_up(one, problems, subject, remarks)
        return []
    return [Sharing(one.level, hard=True, role=role, size=size) for role in roles]


def _of_role(
    wanted: Sharing,
    sets: Sequence[tuple[Together, set[int]]],
    draft: Draft,
    problems: list[str],
    subject: str,
    remarks: Remarks,
) -> list[Sharing]:
    """Sets inside one role: all of it, or slices if they lie as slices do."""
    size = max((one.size or 0) if one.apart else 0 for one, _ in sets)
    size = max(size, *(len(indexes) for _, indexes in sets))
    if len(sets) == 1 and len(sets[0][1]) == len(draft.members) and _whole(sets[0][0], [draft]):
        return [wanted]
    ranks = [{(index - draft.first) // size for index in indexes} for _, indexes in sets]
    aligned = all(len(rank) == 1 for rank in ranks)
    apart = len(set().union(*ranks)) == len(sets)
    covered = sum(len(indexes) for _, indexes in sets) == len(draft.members)
    if not (wanted.hard and aligned and apart and covered):
        for one, _ in sets:
            _give_up(one, problems, subject, remarks)
        return []
    return [replace(wanted, size=size)]


def _give_up(one: Together, problems: list[str], subject: str, remarks: Remarks) -> None:
    if one.hard:
        problems.append(f"{one.what}: one domain of {one.level} for pods that are no slice")
    else:
        remarks.add(subject, NOT_MODELLED)
