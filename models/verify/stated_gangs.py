"""Reasons: gangs that wait, are stopped or stay incomplete say why; gangs that are admitted do not.

What a message says cannot be judged, but for one thing: a gang that is stopped names one it gives way to.
Called by ``gangs``.

What is stated of every gang against what follows from its pods.

Names, uids, decision, reason, mark of age, bandwidth, share, domains; and rule 10, minBandwidthShare.
Called by ``judging``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator

from models.verify.bandwidth import Speed
from models.verify.changes import Arrivals, Change
from models.verify.facts import Ages
from models.verify.form import printable, shown
from models.verify.outcome import Figures, Outlook
from models.verify.statement import StatedGang
from models.verify.violation import Violation

INCOMPLETE = "Incomplete"
PREEMPTED = "Preempted"
UNSUPPORTED = "Unsupported"


def check(change: Change, stated: StatedGang, arrivals: Arrivals) -> Iterator[Violation]:
    code, message = (None, "") if stated.reason is None else stated.reason
    fault = _fault(change, code)
    if fault is not None:
        yield Violation("reason", change.label, fault)
    if change.kind == "preempt":
        comes = change.outranked_by(arrivals, change.gang.standing)
        if comes and not any(_named(other.gang.name, message) for other in comes):
            yield Violation(
                "reason",
                change.label,
                f"does not name who comes to its nodes, such as {comes[0].label}",
            )


def _fault(change: Change, code: str | None) -> str | None:
    """What is wrong with the code, None if nothing is."""
    wanted = _wanted(change)
    if wanted is not None:
        return None if code == wanted else f"its reason is {wanted}, not {shown(code)}"
    if change.kind == "wait":
        if code is None:
            return "must say why it has no pods"
        return f"waits, so it is not {code}" if code in (INCOMPLETE, PREEMPTED) else None
    if code is None or (change.kind == "keep" and code == UNSUPPORTED):
        return None
    return f"is admitted and needs no reason {shown(code)}"


def _wanted(change: Change) -> str | None:
    """The one code that fits, where there is one."""
    if change.held_back and change.kind in ("wait", "keep"):
        return change.gang.hold
    if change.kind == "preempt":
        return PREEMPTED
    return INCOMPLETE if change.kind == "keep" and change.incomplete else None


def _named(name: str, message: str) -> bool:
    """Whether a name stands in a message, not as a part of another."""
    part = r"[A-Za-z0-9_-]"
    return re.search(f"(?<!{part}){re.escape(printable(name))}(?!{part})", message) is not None


def check_of_gangs(outlook: Outlook) -> Iterator[Violation]:
    for change, stated, figures, speed in zip(
        outlook.changes, outlook.case.gangs, outlook.figures, outlook.speeds, strict=True
    ):
        yield from _names(change, stated)
        if stated.decision != change.kind:
            yield Violation(
                "decision", change.label, f"says {stated.decision}, its pods say {change.kind}"
            )
        yield from check(change, stated, outlook.arrivals)
        if stated.aged != outlook.ages.aged(change.gang):
            yield Violation("aged", change.label, _aged(outlook.ages, change))
        yield from _figures(change, stated, figures)
        yield from _min_share(change, speed)


def _names(change: Change, stated: StatedGang) -> Iterator[Violation]:
    gang = change.gang
    for key, (name, uid) in stated.labels.items():
        fresh = (f"{gang.name}-{gang.roles[key[0]].name}-{key[1]}", None)
        wanted, wanted_uid = gang.existing.get(key, fresh)
        if name != wanted:
            yield Violation(
                "names", change.label, f"pod {shown(name)} must be named {shown(wanted)}"
            )
        if uid != wanted_uid:
            yield Violation(
                "names",
                change.label,
                f"pod {shown(name)} has uid {shown(uid)}, not {shown(wanted_uid)}",
            )


def _aged(ages: Ages, change: Change) -> str:
    if ages.aged(change.gang):
        return "has waited for longer than the starvation limit, and is not marked as aged"
    return "is marked as aged, and is not"


def _figures(change: Change, stated: StatedGang, figures: Figures) -> Iterator[Violation]:
    for rule, says, is_ in (
        ("bandwidth", stated.bandwidth, figures.bandwidth),
        ("share", stated.share, figures.share),
    ):
        if says != is_:
            yield Violation(rule, change.label, f"says {shown(says)}, is {shown(is_)}")
    if stated.domains != figures.domains:
        yield Violation(
            "domains",
            change.label,
            f"says {_counts(stated.domains)}, is {_counts(figures.domains)}",
        )


def _counts(domains: object) -> str:
    if not isinstance(domains, dict):
        return "null"
    return (
        ", ".join(f"{printable(str(k))} {shown(v)}" for k, v in list(domains.items())[:12])
        or "nothing"
    )


def _min_share(change: Change, speed: Speed) -> Iterator[Violation]:
    """Binds gangs that are placed, moved or completed; growing and shrinking are free of it."""
    least = change.gang.min_share
    if change.kind in ("place", "move", "complete") and speed.below(least):
        yield Violation(
            "min-share",
            change.label,
            f"reaches {speed.share[1] if speed.share else 0} permille of its ideal bandwidth, "
            f"at least {float(least):g} is required",
        )
