"""Pods to seats: each index of a role once, whatever the labels say.

Promises: a pod that holds room is never left out; of two pods for one index the one that holds room
has it. Called by ``roles``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from planner.reading.kubernetes.forms import KubePod
from planner.reading.kubernetes.gangs.forms import RolePlan
from planner.reading.kubernetes.looking import number
from planner.reading.remarks import Remarks

Claim = tuple[int | None, KubePod]
Member = tuple[int, KubePod]

NEXT_FREE = "its index is missing, odd or taken; it counts under the next free one"
BEHIND = "waits for the terminating pod of its index to go, and is left out until then"


def holds(pod: KubePod) -> bool:
    """Whether the pod stands somewhere or has room kept for it."""
    return pod.node is not None and pod.finished is None


def waits(pod: KubePod) -> bool:
    return pod.node is None and pod.finished is None


def seated(claims: Sequence[Claim], plan: RolePlan, remarks: Remarks) -> list[Member]:
    """(index, pod) of a role, ascending, each index once."""
    if plan.queue_like:
        return _in_a_row(claims, plan)
    taken: dict[int, KubePod] = {}
    left: list[Claim] = []
    reach = plan.size if plan.size is not None else 2 * len(claims) + 16
    for index, pod in sorted(claims, key=_precedence):
        if index is None or not plan.first_index <= index < plan.first_index + reach:
            left.append((index, pod))
        elif index not in taken:
            taken[index] = pod
        elif pod.finished is not None or (waits(pod) and pod.terminating):
            continue  # its successor has the index
        elif waits(pod) and taken[index].terminating:
            remarks.add(pod.subject, BEHIND)
        else:
            left.append((index, pod))
    _seat_rest(taken, left, plan, remarks)
    return sorted(taken.items())


def numbered(claims: list[Claim], size: int | None) -> list[Claim]:
    """Pods that nobody made, under the numbers that end their names, if these count to ``size``.

    The numbers start at 0, or at 1 where the last is the size; others say nothing.
    """
    if size is None or any(index is not None or pod.object.owner for index, pod in claims):
        return claims
    tails = [number(pod.name.rpartition("-")[2]) for _, pod in claims]
    known = [tail for tail in tails if tail is not None]
    if len(set(known)) < len(claims):
        return claims
    first = 1 if min(known) == 1 and max(known) == size else 0
    if max(known) - first >= size:
        return claims
    return [(tail - first, pod) for tail, (_, pod) in zip(known, claims, strict=True)]


def by_name(pod: KubePod) -> tuple[str, int, str]:
    """The order of names; of pods that nobody made, 10 after 9: people number them."""
    front, _, last = pod.name.rpartition("-")
    rank = number(last) if pod.object.owner is None else None
    return (pod.name, 0, "") if rank is None else (front, rank, pod.name)


def _precedence(claim: Claim) -> tuple[bool, bool, bool, str]:
    pod = claim[1]
    return (not holds(pod), pod.finished is not None, pod.terminating, pod.name)


def _in_a_row(claims: Sequence[Claim], plan: RolePlan) -> list[Member]:
    """Pods whose index is no rank: those that stand or wait, in the order of index and name."""
    live = [claim for claim in claims if claim[1].finished is None] or claims
    ordered = sorted(live, key=lambda claim: (claim[0] is None, claim[0] or 0, claim[1].name))
    return [(plan.first_index + place, pod) for place, (_, pod) in enumerate(ordered)]


def _seat_rest(
    taken: dict[int, KubePod], left: Sequence[Claim], plan: RolePlan, remarks: Remarks
) -> None:
    """Give the rest the free indexes, by name; finished pods only what no other pod needs."""
    room = None if plan.size is None else plan.size - len(taken)
    crowded = room is not None and len(left) > room
    free = _free(taken, plan.first_index)
    expected = bool(taken) or any(index is not None for index, _ in left)
    for _, pod in sorted(left, key=lambda claim: (crowded and _done(claim), *by_name(claim[1]))):
        if crowded and pod.finished is not None and len(taken) >= (plan.size or 0):
            continue
        taken[next(free)] = pod
        if expected:
            remarks.add(pod.subject, NEXT_FREE)


def _done(claim: Claim) -> bool:
    return claim[1].finished is not None


def _free(taken: dict[int, KubePod], first: int) -> Iterator[int]:
    index = first
    while True:
        if index not in taken:
            yield index
        index += 1
