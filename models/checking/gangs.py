"""What is stated of every gang against what follows from its pods.

Names, uids, decision, reason, mark of age, bandwidth, share, domains; and rule 10, minBandwidthShare.
Called by ``judging``.
"""

from __future__ import annotations

from collections.abc import Iterator

from models.checking import reasons
from models.checking.ages import Ages
from models.checking.bandwidth import Speed
from models.checking.changes import Change
from models.checking.form import printable, shown
from models.checking.outlook import Figures, Outlook
from models.checking.statement import StatedGang
from models.checking.violation import Violation


def check(outlook: Outlook) -> Iterator[Violation]:
    for change, stated, figures, speed in zip(
        outlook.changes, outlook.case.gangs, outlook.figures, outlook.speeds, strict=True
    ):
        yield from _names(change, stated)
        if stated.decision != change.kind:
            yield Violation(
                "decision", change.label, f"says {stated.decision}, its pods say {change.kind}"
            )
        yield from reasons.check(change, stated, outlook.arrivals)
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
            f"reaches {speed.share} permille of its ideal bandwidth, at least {float(least):g} is asked for",
        )
