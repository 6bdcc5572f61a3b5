"""Whether a gang is whole: how many pods each role has, and which have yet to come.

Promises: a gang whose group has the pods it needs is whole with those; what is missing is told in
words that name the pods. Called by ``reading``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Group
from planner.read.kube.gangs.roles import Draft, holds, waits
from planner.read.kube.records import KubePod

CLOSED = "runs with fewer pods than it could have; those that exist are numbered without gaps"
_NAMED = 3


@dataclass(frozen=True, slots=True)
class Need:
    """What the group objects of a gang need: pods in all, and by role.

    ``absent``: groups that must start with it and have no pods yet.
    """

    total: int | None
    by_role: dict[str, int]
    whose: str
    absent: tuple[str, ...] = ()


def need(groups: Sequence[Group]) -> Need:
    totals = [group.minimum for group in groups if (group.minimum or 0) > 0]
    by_role: dict[str, int] = {}
    for group in groups:
        if len(groups) > 1 and group.minimum is not None:
            by_role[group.link.title] = group.minimum
        by_role.update(group.minimums)
    total = sum(one or 0 for one in totals) if totals else None
    here = {group.link.name for group in groups}
    partners = sorted({name for group in groups for name in group.partners})
    absent = tuple(name for name in partners if name not in here)
    return Need(total, by_role, groups[0].subject if groups else "", absent)


def settle(drafts: list[Draft], needed: Need, subject: str, remarks: Remarks) -> str | None:
    """Fix the sizes of all roles; what is missing, in words."""
    running = any(holds(pod) for pod in _pods(drafts))
    done = 0 if running else _let_go(drafts)
    existing = done + len(_pods(drafts))
    enough = needed.total is not None and existing >= needed.total and _by_role(drafts, needed)
    _fill(drafts, needed, alone=len(drafts) == 1, enough=enough)
    lacking = [name for draft in drafts for name in _lacking(draft)]
    missing = []
    if lacking and enough:
        _shrink(drafts, subject, remarks)
    elif lacking:
        whole = existing + sum(_short(draft) for draft in drafts)
        missing.append(_not_created(lacking, drafts, existing, whole))
    elif needed.total is not None and existing < needed.total:
        missing.append(f"{existing} of the {needed.total} pods that {needed.whose} needs exist")
    missing += [f"group {name} has no pods yet" for name in needed.absent[:_NAMED]]
    if any(draft.members for draft in drafts):
        drafts[:] = [draft for draft in drafts if draft.size]
    return "; ".join(missing + _finished(drafts) + _not_ours(drafts)) or None


def _pods(drafts: Sequence[Draft]) -> list[KubePod]:
    return [pod for draft in drafts for _, pod in draft.members]


def _let_go(drafts: Sequence[Draft]) -> int:
    """Take the pods that succeeded out of a gang that waits: they need no place. Their number."""
    gone = 0
    for draft in drafts:
        left = [(index, pod) for index, pod in draft.members if pod.finished != "Succeeded"]
        less = len(draft.members) - len(left)
        if less:
            draft.members = left
            draft.size = None if draft.size is None else draft.size - less
            if draft.size is not None and draft.end - draft.first > draft.size:
                draft.close_ranks()
            gone += less
    return gone


def _by_role(drafts: Sequence[Draft], needed: Need) -> bool:
    return all(len(draft.members) >= needed.by_role.get(draft.name, 0) for draft in drafts)


def _fill(drafts: Sequence[Draft], needed: Need, *, alone: bool, enough: bool) -> None:
    """Sizes that no controller states: from the group, else from the pods, gaps included."""
    for draft in drafts:
        if draft.size is None:
            stated = needed.by_role.get(draft.name)
            if stated is None and alone:
                stated = needed.total
            standing = len(draft.members) if enough else draft.end - draft.first
            limit = 100 * len(draft.members) + 1000
            draft.size = max(standing, min(stated or 0, limit))
            if enough:
                draft.close_ranks()


def _short(draft: Draft) -> int:
    return (draft.size or 0) - len(draft.members)


def _lacking(draft: Draft) -> list[str]:
    """Names of the first pods that do not exist, as many as are shown and one."""
    short = _short(draft)
    if short <= 0:
        return []
    present = {index for index, _ in draft.members}
    span = range(draft.first, draft.first + (draft.size or 0))
    absent = (index for index in span if index not in present)
    return [f"{draft.name} {next(absent)}" for _ in range(min(short, _NAMED + 1))]


def _not_created(names: list[str], drafts: Sequence[Draft], existing: int, whole: int) -> str:
    count = sum(max(_short(draft), 0) for draft in drafts)
    shown = names[: min(count, _NAMED)]
    more = count - len(shown)
    if more:
        who = f"{', '.join(shown)} and {more} more have"
    elif len(shown) > 1:
        who = f"{', '.join(shown[:-1])} and {shown[-1]} have"
    else:
        who = f"{shown[0]} has"
    return f"{who} not been created ({existing} of {whole} pods exist)"


def _shrink(drafts: Sequence[Draft], subject: str, remarks: Remarks) -> None:
    changed = False
    for draft in drafts:
        changed = draft.close_ranks() or changed
        draft.size = len(draft.members)
    if changed:
        remarks.add(subject, CLOSED)


def _finished(drafts: Sequence[Draft]) -> list[str]:
    phases = Counter(pod.finished for pod in _pods(drafts) if pod.finished is not None)
    if not phases:
        return []
    count = phases.total()
    told = ", ".join(f"{phases[phase]} {phase}" for phase in sorted(phases, reverse=True))
    return [f"{count} {'pod has' if count == 1 else 'pods have'} finished ({told})"]


def _not_ours(drafts: Sequence[Draft]) -> list[str]:
    """Pods that wait, but not for us."""
    by_whom: dict[str, list[str]] = {}
    for draft in drafts:
        for index, pod in draft.members:
            if waits(pod) and (pod.terminating or not pod.ours):
                by_whom.setdefault(_for_whom(pod), []).append(f"{draft.name} {index}")
    told = []
    for whom, names in sorted(by_whom.items()):
        more = len(names) - _NAMED
        listed = ", ".join(names[:_NAMED]) + (f" and {more} more" if more > 0 else "")
        told.append(f"{listed} {whom}")
    return told


def _for_whom(pod: KubePod) -> str:
    if pod.terminating:
        return "being deleted, not yet replaced"
    if pod.bound:
        return "bound to a node that is not there"
    if pod.gates:
        return f"held by the scheduling gate {pod.gates[0]}"
    return f"left to scheduler {pod.scheduler}"
