"""What a plan states of every gang: names, decision, reason, age, bandwidth, share, speed and domains.

Of a reason only the code is checked, and that a stopped gang names who takes its place.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.verify.adaptor import StatedGang
from models.verify.changes import Change
from models.verify.facts import Pod, PodKey, uses_parts
from models.verify.outcome import Outcome
from models.verify.rates.group_rates import kept, plainest, ranked, sound
from models.verify.standing import Figures
from models.verify.violation import Violation, printable, quoted

INCOMPLETE = "Incomplete"
PREEMPTED = "Preempted"
UNSUPPORTED = "Unsupported"

HELD = ("Gated", UNSUPPORTED, INCOMPLETE, "QueueLimit", "Backoff", PREEMPTED)
"""Codes that a gang has for its own hold, or for what runs of it."""


def check(outcome: Outcome) -> Iterator[Violation]:
    for change, stated, figures in zip(
        outcome.changes, outcome.case.gangs, outcome.figures, strict=True
    ):
        yield from misnamed(change, stated.labels)
        decision = stated.document.decision
        if decision != change.kind:
            what = f"says {decision}, its pods say {change.kind}"
            yield change.violation("decision", what)
        yield from _reason(outcome, change, stated)
        aged = outcome.facts.aged(change.gang)
        if stated.document.aged != aged:
            what = "exceeds" if aged else "does not exceed"
            yield change.violation("aged", f"its wait {what} the starvation limit")
        gpus = _counted(outcome, change)
        if stated.document.gpus != gpus:
            yield change.violation(
                "counted", f"says that it counts {stated.document.gpus} GPUs, is {gpus}"
            )
        yield from _figures(change, stated, figures)
        lacks = not outcome.facts.counts_goodput and "speed" not in stated.document.model_fields_set
        if figures.speed != stated.document.speed and not lacks:
            what = f"says {quoted(stated.document.speed)}, is {quoted(figures.speed)}"
            yield change.violation("speed", what)
        after = stated.document.speed_after
        if after is not None and after != outcome.speeds.after(change, figures.share):
            what = f"says speedAfter {quoted(after)}, which is not its speed after the plan"
            yield change.violation("speed", what)


def _counted(outcome: Outcome, change: Change) -> float | None:
    """GPUs of a gang with parts: before the plan if it is stopped, at its smallest if it waits."""
    if not any(map(uses_parts, change.gang.roles)):
        return None
    counts = {"preempt": change.running_gpus, "wait": change.gang.counts_at_min}
    return outcome.facts.in_gpus(counts.get(change.kind, change.gpus))


def _reason(outcome: Outcome, change: Change, stated: StatedGang) -> Iterator[Violation]:
    reason = stated.document.reason
    fault = _fault(change, None if reason is None else reason.code)
    if fault is not None:
        yield change.violation("reason", fault)
    if change.kind == "preempt":
        arriving = outcome.gives_way_to(change, change.gang.running_pods)
        named = None if reason is None or reason.fields is None else reason.fields.by
        if arriving and named == ():
            what = f"names no gang that gets its nodes, such as {arriving[0].label}"
            yield change.violation("reason", what)


def _fault(change: Change, code: str | None) -> str | None:
    """What is wrong with the code; None: nothing."""
    wanted = _wanted(change)
    if wanted is not None:
        return None if code == wanted else f"its reason is {wanted}, not {quoted(code)}"
    if change.kind == "wait":
        if code is None:
            return "has no pods and no reason"
        return f"is waiting and not held, so its reason is not {code}" if code in HELD else None
    if code is None or (change.kind == "keep" and code == UNSUPPORTED):
        return None
    return f"is admitted, so it has no reason {quoted(code)}"


def _wanted(change: Change) -> str | None:
    """The only possible code, where there is one."""
    if change.held_back and change.kind in ("wait", "keep"):
        return change.gang.hold
    if change.kind == "preempt":
        return PREEMPTED
    return INCOMPLETE if change.kind == "keep" and change.incomplete else None


def misnamed(
    change: Change, labels: Mapping[PodKey, tuple[str, str | None]]
) -> Iterator[Violation]:
    """Pods whose name or uid is not theirs. ``labels``: both, as they are stated."""
    gang = change.gang
    for key, (name, uid) in labels.items():
        if (known := gang.existing.get(key)) is None:
            known = (f"{gang.name}-{gang.roles[key[0]].name}-{key[1]}", None)
        wanted, wanted_uid = known
        if name != wanted:
            yield change.violation("names", f"pod {quoted(name)} must be named {quoted(wanted)}")
        if uid != wanted_uid:
            yield change.violation(
                "names", f"pod {quoted(name)} has uid {quoted(uid)}, not {quoted(wanted_uid)}"
            )


def _figures(change: Change, stated: StatedGang, figures: Figures) -> Iterator[Violation]:
    for rule, says, is_ in (
        ("bandwidth", stated.document.bandwidth, figures.bandwidth),
        ("share", stated.document.share, figures.share),
    ):
        if says != is_:
            yield change.violation(rule, f"says {quoted(says)}, is {quoted(is_)}")
    domains = stated.document.domains
    if domains != figures.domains:
        what = f"says {_counts(domains)}, is {_counts(figures.domains)}"
        yield change.violation("domains", what)


def _counts(domains: dict[str, int] | None) -> str:
    if domains is None:
        return "null"
    some = list(domains.items())[:12]
    return ", ".join(f"{printable(name)} {quoted(count)}" for name, count in some) or "nothing"


Stated = Mapping[PodKey, int | None]


def check_ranks(outcome: Outcome) -> Iterator[Violation]:
    """Stated ranks: distinct, kept by pods that stay, no worse than consecutive ones."""
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        if any(rank is not None for rank in stated.reserved_ranks.values()):
            yield change.violation("ranks", "pods for which room is reserved have no ranks")
        roles = range(len(change.gang.roles))
        if set(stated.ranks.values()) <= {None} and not any(ranked(change.gang, n) for n in roles):
            continue
        for number, pods in enumerate(change.by_role):
            ranks = {(pod.role, pod.index): stated.ranks[pod.role, pod.index] for pod in pods}
            fault = _rank_fault(outcome, change, number, ranks)
            if fault is not None:
                role = quoted(change.gang.roles[number].name)
                yield change.violation("ranks", f"role {role}: {fault}")


def _rank_fault(outcome: Outcome, change: Change, number: int, ranks: Stated) -> str | None:
    """What is wrong with the ranks of a role; None: nothing."""
    gang, gpus, pods = change.gang, change.gang.roles[number].gpus, change.by_role[number]
    if not ranked(gang, number):
        given = any(rank is not None for rank in ranks.values())
        return "its pods have no ranks" if given else None
    if any(rank is None for rank in ranks.values()):
        return "each of its pods has a rank"
    if not sound(ranks.values(), gpus, len(pods)):
        return f"ranks are distinct multiples of {gpus} below {gpus * len(pods)}"
    for key, rank in kept(gang, number, pods).items():
        if ranks[key] != rank:
            return f"pod {key[1]} has rank {quoted(ranks[key])}, keeps {rank}"
    return _worse(
        outcome, change, number, {key: rank for key, rank in ranks.items() if rank is not None}
    )


def _worse(
    outcome: Outcome, change: Change, number: int, ranks: Mapping[PodKey, int]
) -> str | None:
    """How ranks are worse than those in the order of the indices, where some are kept the others."""
    gang = change.gang
    own: dict[PodKey, Pod] = {(pod.role, pod.index): pod for pod in change.by_role[number]}
    plain = plainest(gang, number, own.values())
    if ranks == plain:
        return None
    split, least = (outcome.rates.split_groups(gang, number, own, one) for one in (ranks, plain))
    if split != least:
        if split < least:
            return None
        return f"splits {split} tensor and expert groups, in the order of indices only {least}"
    if gang.roles[number].parallelism is None and gang.pattern != "pipeline":
        return None
    found, other = (outcome.rates.of_role(gang, number, own, one) for one in (ranks, plain))
    if found.reached is None or other.reached is None or found.reached.high >= other.reached.low:
        return None
    return (
        f"reaches {int(found.reached.high)} MB/s, in the order of indices {int(other.reached.low)}"
    )
