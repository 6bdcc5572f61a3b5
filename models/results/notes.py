"""What a plan assumes, as notes for the reader of the plan."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Sequence

from models.documents.policy import LOST_RUNTIME
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import KUEUE
from models.instance.solution import NEVER, QUOTA, RESERVED, GangDecision, MoveSet, TierResult
from models.starts.empty_starts import Answer, not_claiming
from models.tiers import family, sign
from models.units import first_of, plural

MAX_NAMED, MAX_MOVED = 8, 5
"""Names in one note, and in one about moves."""

UNPROMISED = {
    "no place on the empty cluster was found, and it is not proven that there is none": (
        Answer.UNKNOWN,
    ),
    "no place was found on nodes as they are (cordoned, sick, held by other pods), even if no gang ran": (
        Answer.NOT_NOW,
        Answer.UNKNOWN_NOW,
    ),
}
"""What is known of gangs that are promised nothing."""


def notes_of(
    instance: Instance, decisions: Sequence[GangDecision], *, exact: bool
) -> tuple[str, ...]:
    """The notes, in a fixed order."""
    notes = [
        *_unknown_runtime(instance, decisions),
        *_ageless(instance),
        *_unpromised(instance),
        *_moves_used_up(instance, decisions),
        *_admitted(instance, decisions),
    ]
    shared = _shared_nics(instance, decisions)
    if shared:
        notes.append(
            f"on {plural(shared, 'node')} several gangs share NICs; shared NICs are not modelled, so "
            "bandwidth may be overstated"
        )
    if not exact and any(gang.by_rank for gang in instance.gangs):
        notes.append(
            "the bandwidth of gangs that have ranks is bounded in the program, not exact: where a tier "
            "is not proven, a better place for them may exist"
        )
    elif not exact:
        notes.append(
            "some servers (no switch and more than 9 free GPUs, or NVLink domains of unlike servers) are "
            "planned by GPU count: their GPU sets are good, not proven optimal"
        )
    return tuple(notes)


def _admitted(instance: Instance, decisions: Sequence[GangDecision]) -> list[str]:
    """Gangs that Kueue has admitted and that wait, while one that it suspends starts from their queue."""
    waits, starts = dict[str, Gang](), dict[str, Gang]()
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        suspended, queue = gang.scheduler == KUEUE, gang.queue or ""
        if suspended and decision.decision == "place":
            starts[queue] = min(gang, starts.get(queue, gang), key=lambda one: one.priority)
        elif not suspended and decision.decision == "wait" and gang.pods and gang.hold is None:
            waits[queue] = max(gang, waits.get(queue, gang), key=lambda one: one.priority)
    notes = []
    for queue in sorted(waits.keys() & starts.keys() - {""}):
        first, other = waits[queue], starts[queue]
        if first.priority >= other.priority:
            names = "/".join(first.key), "/".join(other.key)
            notes.append(
                f"{names[0]} waits while {names[1]} starts, which Kueue still suspends: in Kueue the first"
                f" has its quota in {queue} already, and the other may not be admitted beside it"
            )
    return notes


def passed(instance: Instance, decisions: Sequence[GangDecision]) -> list[str]:
    """That gangs wait while lower ones start on nodes they may use. ``decisions``: with reasons.

    Gangs with a reservation, or that wait for one, do not count.
    """
    gangs = instance.gangs
    waiting: dict[frozenset[int], list[int]] = {}
    for i, decision in enumerate(decisions):
        if decision.decision == "wait" and gangs[i].hold is None and not _settled(decision):
            own = (instance.eligible_nodes(role) for role in gangs[i].roles if role.gpus)
            waiting.setdefault(frozenset().union(*own), []).append(i)
    starts = [
        (i, {pod.node for pod in decision.pods if gangs[i].roles[pod.role].gpus})
        for i, decision in enumerate(decisions)
        if decision.decision == "place"
    ]
    higher, lower = set[int](), set[int]()
    for nodes, those in waiting.items():
        here = [i for i, used in starts if not nodes.isdisjoint(used)]
        lowest = min((gangs[i].priority for i in here), default=None)
        if lowest is not None:
            found = {i for i in those if gangs[i].priority > lowest}
            highest = max((gangs[i].priority for i in found), default=lowest)
            higher |= found
            lower |= {i for i in here if gangs[i].priority < highest}
    if not higher:
        return []
    first = min(higher, key=lambda i: (-gangs[i].priority, i))
    others = len(higher) - 1
    named = f"{'/'.join(gangs[first].key)} (priority {gangs[first].shown_priority})"
    named += f" and {plural(others, 'other')} wait" if others else " waits"
    firm = sum(not gangs[i].preemptible for i in lower)
    note = (
        f"{named} while {plural(len(lower), 'gang')} of lower priority "
        f"{'starts' if len(lower) == 1 else 'start'} on nodes that {'they' if others else 'it'} may use; no "
        "room is held: a lower gang makes room later only if it is preemptible "
        f"({firm:,} {'is' if firm == 1 else 'are'} not)"
    )
    if instance.policy.reservations is None:
        priorities = f'[">={gangs[first].own_priority}"]'
        note += f"; with reservations: {{priorities: {priorities}}} in the Policy, room may be held for it"
    return [note]


def _settled(decision: GangDecision) -> bool:
    """Whether it never fits, or waits for other reasons than who starts: reservations or quotas."""
    code = None if decision.reason is None else decision.reason.code
    return code in (NEVER, QUOTA, RESERVED) or decision.reserved is not None


def unsearched(tiers: Sequence[TierResult], searched: Collection[int]) -> list[str]:
    """Which tiers the search did not come to. ``searched``: positions of those that it did."""
    names = [tier.name for i, tier in enumerate(tiers) if tier.gap and i not in searched]
    return [f"not searched: {first_of(names, MAX_NAMED)}"] if names else []


def _unpromised(instance: Instance) -> list[str]:
    """Waiting gangs that use up no guarantee since it is not known whether they could start."""
    answers, notes = not_claiming(instance).items(), []
    for why, found in UNPROMISED.items():
        names = ["/".join(instance.gangs[i].key) for i, answer in answers if answer in found]
        if names:
            notes.append(f"{first_of(names, MAX_NAMED)}: use up no guarantee: {why}")
    return notes


def _moves_used_up(instance: Instance, decisions: Sequence[GangDecision]) -> list[str]:
    """That as many gangs move as the policy allows, while others wait."""
    limits = instance.policy.moves
    moved = sum(one.decision == "move" for one in decisions)
    waits = any(
        one.decision == "wait" and gang.hold is None
        for gang, one in zip(instance.gangs, decisions, strict=True)
    )
    if limits is None or not moved or moved != limits.max_gangs or not waits:
        return []
    verb = "moves" if moved == 1 else "move"
    most = "as many as maxGangs of the Policy's moves allows"
    return [f"{plural(moved, 'gang')} {verb}, {most}; with more, gangs that wait might start"]


def _unknown_runtime(instance: Instance, decisions: Sequence[GangDecision]) -> list[str]:
    """Disturbed gangs whose lost runtime is unknown."""
    disruption = instance.policy.disruption
    if disruption.weight != LOST_RUNTIME:
        return []
    unknown = sum(
        gang.running
        and gang.started_at is None
        and gang.last_checkpoint is None
        and (decision.decision in ("preempt", "move") or _shrinks(gang, decision))
        for gang, decision in zip(instance.gangs, decisions, strict=True)
    )
    if not unknown:
        return []
    note = (
        f"{plural(unknown, 'gang')} stopped, moved or shrunk without a known start or checkpoint: each "
        f"GPU counts as {disruption.cap_s} s of lost runtime, the maximum"
    )
    return [note]


def _shrinks(gang: Gang, decision: GangDecision) -> bool:
    """Whether the gang keeps running with fewer pods."""
    kept = {(pod.role, pod.index) for pod in decision.pods}
    return decision.decision == "resize" and any(
        (pod.role, pod.index) not in kept for pod in gang.running_pods
    )


def _ageless(instance: Instance) -> list[str]:
    """Waiting gangs without a submission time, which cannot age."""
    if instance.policy.starvation_after_s is None:
        return []
    ageless = sum(not one.running and one.submitted_at is None for one in instance.gangs)
    if not ageless:
        return []
    what = "a gang ages only if it is known since when it waits"
    return [f"{plural(ageless, 'waiting gang')} without submittedAt: {what}"]


def _shared_nics(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    """Number of nodes with GPUs of two or more gangs that span several nodes."""
    spanning = Counter[int]()
    for gang, decision in zip(instance.gangs, decisions, strict=True):
        nodes = {pod.node for pod in decision.pods if gang.roles[pod.role].gpus}
        if len(nodes) > 1 and gang.pattern != "none":
            spanning.update(nodes)
    return sum(count > 1 for count in spanning.values())


def tier_served(
    instance: Instance, move: MoveSet, tiers: Sequence[TierResult], without: Sequence[TierResult]
) -> tuple[str, ...]:
    """Which tier a set of moves serves, if GPUs, bandwidth and whole nodes do not show it."""
    for tier, other in zip(tiers, without, strict=True):
        if sign(tier.sense) * (tier.value - other.value) > 0:
            if move.gain > 0 and family(tier.name).pays_for_moves:
                return ()
            verb = "moves" if len(move.gangs) == 1 else "move"
            values = f"{tier.value:,} with, {other.value:,} without"
            return (f"{_named(instance, move.gangs)} {verb} to improve {tier.name}: {values}",)
    return ()


def left_out(instance: Instance, move: MoveSet) -> str:
    """That a set of moves gains too little."""
    assert instance.policy.moves is not None
    least = float(instance.policy.moves.min_gain)
    return (
        f"not moved: {_gain_text(instance, move)}, below minGain {least:g}; "
        "bounds apply to plans without this move"
    )


def unsettled(instance: Instance, move: MoveSet) -> str:
    """That a set of moves is left out though it gains enough."""
    return (
        "not moved, since the gangs that moved instead also gained too little: "
        f"{_gain_text(instance, move)}"
    )


def _gain_text(instance: Instance, move: MoveSet) -> str:
    """The gangs of a set of moves, and what the moves would gain."""
    admitted = f" ({_named(instance, move.admitted)})" if move.admitted else ""
    gpus, worth = instance.in_gpus, instance.in_gpus(move.bandwidth) / 1000
    parts = [
        f"{_more(gpus(move.gpus), 'GPU')} admitted{admitted}" if move.gpus or admitted else "",
        _effective(instance, move),
        f"{worth:+,.3f} GPUs' worth of bandwidth" if move.bandwidth else "",
        _more(move.whole_nodes, "whole node") if move.whole_nodes else "",
        _more(move.whole_domains, "whole domain") if move.whole_domains else "",
    ]
    gains = ", ".join(part for part in parts if part) or "nothing of that kind"
    return (
        f"{_named(instance, move.gangs)} ({plural(gpus(move.moved_gpus), 'GPU')}); that would gain "
        f"{gains}: a gain of {move.gain / 1000:.3f}"
    )


def _effective(instance: Instance, move: MoveSet) -> str:
    """Nothing where GPUs say as much."""
    if not move.effective or move.effective == 1000 * move.gpus:
        return ""
    return f"{instance.in_gpus(move.effective) / 1000:+,.3f} effective GPUs"


def _more(count: float, noun: str) -> str:
    return f"{count:+} {noun}" if abs(count) == 1 else f"{count:+} {noun}s"


def _named(instance: Instance, gangs: Sequence[int]) -> str:
    return first_of(["/".join(instance.gangs[gang].key) for gang in gangs], MAX_MOVED)
