"""Stated ranks: where they belong, distinct, kept by pods that stay, and no worse than consecutive ones."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from models.verify.changes import Change
from models.verify.facts import Pod, PodKey
from models.verify.outcome import Outcome
from models.verify.rates.ranks import kept, plainest, ranked, sound
from models.verify.violation import Violation, quoted

Stated = Mapping[PodKey, int | None]


def check(outcome: Outcome) -> Iterator[Violation]:
    for change, stated in zip(outcome.changes, outcome.case.gangs, strict=True):
        if any(rank is not None for rank in stated.reserved_ranks.values()):
            yield change.violation("ranks", "pods for which room is reserved have no ranks")
        roles = range(len(change.gang.roles))
        if set(stated.ranks.values()) <= {None} and not any(ranked(change.gang, n) for n in roles):
            continue
        for number, pods in enumerate(change.by_role):
            ranks = {(pod.role, pod.index): stated.ranks[pod.role, pod.index] for pod in pods}
            fault = _fault(outcome, change, number, ranks)
            if fault is not None:
                role = quoted(change.gang.roles[number].name)
                yield change.violation("ranks", f"role {role}: {fault}")


def _fault(outcome: Outcome, change: Change, number: int, ranks: Stated) -> str | None:
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
