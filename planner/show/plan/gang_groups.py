"""Gangs that share a row of a table, what the row is called; why they wait, start later or run slowly."""

from __future__ import annotations

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping, Sequence
from enum import IntEnum
from fractions import Fraction

from models.documents.gang import GangDocument
from models.documents.plan import GangKey, PlanGang
from models.instance.policy import SLURM
from models.instance.speed import FULL_SPEED
from models.units import first_of, plural, time_text
from planner.show.reason_words import sentence
from planner.show.text import compress, permille

Requests = Mapping[GangKey, GangDocument]


class Sharing(IntEnum):
    """Which gangs share a row: none; those that wait for equal reasons; all of one decision."""

    none = 0
    alike = 1
    decision = 2


FIRST_NAMES = 3
"""Gangs of a row, or that delay another, that are named; the others are counted."""

ORDER = ("place", "complete", "move", "resize", "preempt", "wait", "keep")
"""What happens, before what waits and what stays."""


def rank(gang: PlanGang, request: GangDocument | None) -> tuple[int, int, str, str]:
    """Sort key of gangs: decision, priority, name."""
    priority = request.shown_priority if request else 0
    return (ORDER.index(gang.decision), -priority, gang.namespace, gang.name)


def groups(
    listed: Iterable[PlanGang], requests: Requests, sharing: Sharing
) -> list[list[PlanGang]]:
    """The gangs of each row, in the order of ``rank`` of the first of each."""
    found: dict[Hashable, list[PlanGang]] = {}
    for gang in sorted(listed, key=lambda gang: rank(gang, requests.get(gang.key))):
        found.setdefault(_shared(gang, sharing), []).append(gang)
    return list(found.values())


def fold(
    rows: Sequence[list[PlanGang]], most: int | None
) -> tuple[list[list[PlanGang]], list[PlanGang]]:
    """The rows with at most so many of gangs that wait, and the gangs of the others."""
    shown, hidden, waiting = list[list[PlanGang]](), list[PlanGang](), 0
    for row in rows:
        waiting += row[0].decision == "wait"
        if row[0].decision == "wait" and most is not None and waiting > most:
            hidden += row
        else:
            shown.append(row)
    return shown, hidden


def folded_note(hidden: Sequence[PlanGang], gpus: float) -> str:
    """``and 150 more gangs wait, for 1,200 GPUs: NoRoom 120, Outranked 30``."""
    codes = Counter("Unknown" if one.reason is None else one.reason.code for one in hidden)
    ordered = sorted(codes.items(), key=lambda one: (-one[1], one[0]))
    listed = ", ".join(f"{code} {count:,}" for code, count in ordered)
    waits = "gang waits" if len(hidden) == 1 else "gangs wait"
    return f"and {len(hidden):,} more {waits}, for {plural(gpus, 'GPU')}: {listed}"


def _shared(gang: PlanGang, sharing: Sharing) -> Hashable:
    """Equal for gangs that share a row: those that wait never for different reasons."""
    alone = gang.decision == "wait" and (gang.reserved or gang.delayed) is not None
    if sharing == Sharing.none or alone:
        return gang.key
    if gang.reason is not None and gang.decision in ("wait", "keep"):
        facts = gang.reason.message if gang.reason.fields is None else gang.reason.fields
        return gang.decision, gang.reason.code, gang.aged, facts
    return gang.decision if sharing == Sharing.decision else gang.key


def names(gangs: Sequence[PlanGang], most: int | None = None) -> str:
    """``team-a: x-[1-3], y; team-b: z``; one alone is ``team-a/x``. ``most``: a count of the others."""
    if len(gangs) == 1:
        return "/".join(gangs[0].key)
    by_namespace: dict[str, list[str]] = {}
    for gang in gangs[:most]:
        by_namespace.setdefault(gang.namespace, []).append(gang.name)
    listed = "; ".join(f"{one}: {compress(own, ', ')}" for one, own in by_namespace.items())
    more = 0 if most is None else len(gangs) - most
    return f"{listed} and {more:,} more" if more > 0 else listed


def priorities(gangs: Iterable[PlanGang], requests: Requests) -> str:
    """``10``, or the lowest and the highest as ``0 to 100``; ``-`` if unknown."""
    found = {requests[gang.key].shown_priority for gang in gangs if gang.key in requests}
    if not found:
        return "-"
    low, high = min(found), max(found)
    return str(low) if low == high else f"{low} to {high}"


def schedulers(gangs: Iterable[PlanGang], requests: Requests) -> str:
    """Whose their waiting pods are, as in ``volcano``, ``3 schedulers``; ``-`` for gangplan's.

    Also ``-`` for jobs of Slurm, which has a cluster to itself: the summary says whose they all are.
    """
    found = {requests[gang.key].status.scheduler or "-" for gang in gangs if gang.key in requests}
    if found == {SLURM}:
        return "-"
    return found.pop() if len(found) == 1 else plural(len(found), "scheduler") if found else "-"


def why(gang: PlanGang) -> str:
    """``Code: sentence``; empty without a reason."""
    reason = gang.reason
    if reason is None:
        return ""
    said = reason.message if reason.fields is None else sentence(reason.code, reason.fields)
    return f"{reason.code}: {said}"


def starts(gangs: Sequence[PlanGang]) -> str:
    """When the first of these that wait is to start: reserved, ``by`` a time; expected, ``about`` one."""
    waiting = [gang for gang in gangs if gang.decision == "wait"]
    who = "the first starts" if len(gangs) > 1 else "starts"
    if reserved := [gang.reserved.start for gang in waiting if gang.reserved is not None]:
        return f"{who} by {time_text(min(reserved))}"
    expected = [gang.expected_start for gang in waiting if gang.expected_start is not None]
    return f"{who} about {time_text(min(expected))}" if expected else ""


def below(gangs: Sequence[PlanGang]) -> str:
    """What is said of a row: when it starts, its delay, why it waits; of several gangs their names, too."""
    if len(gangs) == 1:
        return "; ".join(filter(None, (starts(gangs), delay(gangs[0]), why(gangs[0]))))
    if gangs[0].decision not in ("wait", "keep"):
        return names(sorted(gangs, key=lambda gang: gang.key))
    said = "; ".join(filter(None, (starts(gangs), why(gangs[0]))))
    return f"{said} ({names(gangs, FIRST_NAMES)})"


def kept_note(kept: Sequence[PlanGang], gpus: float) -> str:
    """One line for the running gangs that do not change, with a few names."""
    are = "gang stays as it is" if len(kept) == 1 else "gangs stay as they are"
    named = names(sorted(kept, key=lambda gang: gang.key), FIRST_NAMES + 1)
    return f"{len(kept):,} running {are}, on {plural(gpus, 'GPU')} ({named})"


_CAUSES = {
    "Arrival": "{} came since, or may start first",
    "Failure": "{} out of order or gone",
    "Overrun": "{} longer than expected",
    "Input": "the input is another",
}
"""By cause, with what it names."""

_VERBS = {"Failure": ("is", "are"), "Overrun": ("runs", "run")}

_PASSED = {
    "NoStart": "no start was found for it within the horizon",
    "Promised": "the reservation of its priority was promised to a gang behind it by an earlier plan",
}


def delay(gang: PlanGang) -> str:
    """``promised 14:10 by an earlier plan; later, for x came since``; empty without a delay."""
    late = gang.delayed
    if late is None:
        return ""
    names = first_of(list(late.by), FIRST_NAMES)
    if late.cause in _VERBS:
        names += f" {_VERBS[late.cause][len(late.by) > 1]}"
    later = "no start is reserved now" if gang.reserved is None else "later now"
    cause = _CAUSES[late.cause].format(names)
    return f"promised {time_text(late.promised)} by an earlier plan; {later}: {cause}"


def passed_over(gang: PlanGang) -> str:
    """Why a gang behind it holds a reservation and it does not; empty if none does."""
    return "" if gang.passed_over is None else _PASSED[gang.passed_over]


def slowed_by(gang: PlanGang, request: GangDocument | None, speeds: Mapping[str, Fraction]) -> str:
    """``links, GPU model at 31.5 %``: those that apply; empty at full speed. ``speeds``: of nodes."""
    if gang.speed_to_come is None or gang.speed_to_come >= FULL_SPEED or request is None:
        return ""
    communication = request.spec.communication
    causes = []
    if communication.pattern != "none" and communication.fraction:
        causes += ["links"] * (gang.share is not None and gang.share < FULL_SPEED)
    with_gpus = {role.name for role in request.spec.roles if role.gpus}
    own = [speeds.get(pod.node, 1) for pod in gang.pods if pod.role in with_gpus]
    relative = int(FULL_SPEED * min(own, default=1))
    if relative < FULL_SPEED and communication.speed != "ignore":
        causes.append(f"GPU model at {permille(relative)}")
    return ", ".join(causes)
