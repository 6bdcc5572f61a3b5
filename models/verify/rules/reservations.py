"""Reservations: others leave the nodes that are reserved, so that the holder can start there then.

Others that come to the nodes are expected to end by then, or may be stopped, or are among those that the
reservation names. Of a holder that waits the stated pods fit beside all that still runs then, and holders
that share a node start one after another.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

from models.verify.changes import Change, NodeUse, Overlay, Usage
from models.verify.facts import Facts, Gang, Pod, PodKey
from models.verify.outcome import Outcome
from models.verify.rates.group_rates import by_ranks
from models.verify.rule import Judged
from models.verify.rules import gpus, nodes, topology
from models.verify.violation import Violation, printable, quoted

NAME = "reserved"

LEAST_OVERDUE_S = 60
"""A gang that should have ended is taken to run for so long at least."""

LEAST_RUN_S = 600
"""Who has to be stopped for a holder runs for so long before, or does not come."""


@dataclass(frozen=True, slots=True)
class Holder:
    """A gang (position) with a reservation. ``pods``: where they would start at ``start``.

    ``beside``: labels of the gangs that need not give way.
    """

    position: int
    change: Change
    start: int
    pods: Mapping[PodKey, Pod]
    beside: frozenset[str]

    @property
    def nodes(self) -> set[int]:
        return {pod.node for pod in self.pods.values()}

    @property
    def waits(self) -> bool:
        return self.change.kind == "wait"


def check(outcome: Outcome) -> Iterator[Violation]:
    could = []
    for holder in holders_of(outcome):
        yield from _others_come(outcome, holder)
        if holder.waits:
            faults = list(_cannot_start(outcome, holder))
            yield from faults
            could += [] if faults else [holder]
    yield from _meet(could)


def holders_of(outcome: Outcome) -> Iterator[Holder]:
    for position, (change, stated) in enumerate(
        zip(outcome.changes, outcome.case.gangs, strict=True)
    ):
        reserved = stated.document.reserved
        if reserved is not None and not change.gang.running:
            beside = frozenset(reserved.beside)
            yield Holder(position, change, reserved.start, stated.reserved, beside)


def end_of(facts: Facts, change: Change) -> int | None:
    """When a gang is expected to end after the plan; None: nobody knows."""
    gang = change.gang
    if gang.duration is None or (change.incomplete and change.kind == "keep"):
        return None
    begun = facts.now if change.kind in ("place", "complete", "move") else gang.started
    if begun is None:
        return None
    end = begun + gang.duration
    return end if end > facts.now else facts.now + max(LEAST_OVERDUE_S, facts.now - end)


def _others_come(outcome: Outcome, holder: Holder) -> Iterator[Violation]:
    """Gangs that come to reserved nodes although they neither end in time nor may be stopped."""
    left = holder.start - outcome.facts.now
    coming: dict[int, int] = {}
    for n in sorted(holder.nodes):
        for position, _, placed in outcome.usage.nodes[n].tenants:
            if placed and position != holder.position:
                coming.setdefault(position, n)
    for position, n in sorted(coming.items()):
        change = outcome.changes[position]
        duration = change.gang.duration
        in_time = duration is not None and duration <= left
        stopped = left >= LEAST_RUN_S and _yields(outcome, change, holder)
        if in_time or stopped or change.label in holder.beside:
            continue
        if _goes_first(outcome, position, holder):
            continue
        name = printable(outcome.facts.nodes[n].name)
        what = f"comes to node {name}, which is reserved for {printable(holder.change.label)}"
        yield change.violation(NAME, what)


def _goes_first(outcome: Outcome, position: int, holder: Holder) -> bool:
    """Whether a gang within a guarantee starts before a holder that borrows; not one that had to start."""
    gang = outcome.changes[position].gang
    if gang.running or not within(outcome, gang) or within(outcome, holder.change.gang):
        return False
    reserved = outcome.case.gangs[position].document.reserved
    return reserved is None or bool(reserved.nodes)


def within(outcome: Outcome, gang: Gang) -> bool:
    """Whether the gang is within the guarantee of a queue."""
    return bool(outcome.facts.queues) and gang.key in outcome.queues.within


def _yields(outcome: Outcome, change: Change, holder: Holder) -> bool:
    """Whether a gang may be stopped for the holder, and has run for its minimum time by then."""
    gang, facts = change.gang, outcome.facts
    if not gang.preemptible or gang.priority >= holder.change.gang.priority:
        return False
    if within(outcome, gang) and not within(outcome, holder.change.gang):
        return False
    comes = change.kind in ("place", "complete", "move")
    begun = facts.now if comes else gang.since
    ends = None if begun is None or not gang.min_run_time else begun + gang.min_run_time
    return ends is None or ends <= max(holder.start, facts.now)


def _cannot_start(outcome: Outcome, holder: Holder) -> Iterator[Violation]:
    """What keeps the stated pods from starting then."""
    if holder.start <= outcome.facts.now:
        yield holder.change.violation(NAME, "waits, although it is said to start now")
    what = lacking_in_queues(outcome, holder)
    if what is not None:
        yield holder.change.violation(NAME, f"cannot start then: {what}")
    scene = _Scene(outcome, holder)
    faults = [
        *gpus.GPUS.check(scene),
        *nodes.RESOURCES.check(scene),
        *nodes.ELIGIBILITY.check(scene),
        *topology.faults(outcome.facts, scene.placed),
        *gpus.lacking(scene),
    ]
    for fault in faults:
        if fault.gang == holder.change.label:
            yield holder.change.violation(NAME, f"cannot start there then: {fault.message}")
    least = holder.change.gang.min_share
    if least and not by_ranks(holder.change.gang):  # no ranks are stated of what is reserved
        every = (scene.uses.get(n, use) for n, use in enumerate(outcome.usage.nodes))
        rates = outcome.rates.beside(Usage(tuple(every)))
        if rates.of(holder.change.gang, holder.pods).below(least):
            yield holder.change.violation(NAME, "would start there below its minBandwidthShare")


def lacking_in_queues(outcome: Outcome, holder: Holder) -> str | None:
    """What keeps the stated pods from starting then in the queues; None if nothing does.

    Limits, guarantees and what is not lent are as in ``rules.quotas``; those that have ended by then, or are
    stopped if they are in the way, hold nothing.
    """
    if not outcome.facts.queues:
        return None
    queues, own = outcome.queues, holder.change.gang
    by_gang = list(outcome.queue_gpus)
    gone = {
        position
        for position, change in enumerate(outcome.changes)
        if position != holder.position and _gone(outcome, change, holder)
    }
    for position in gone:
        by_gang[position] = Counter()
    by_gang[holder.position] = queues.held(own, holder.pods.values())
    there = (
        (outcome.facts.gangs[position], pod)
        for n in queues.odd_nodes
        for position, pod, _ in outcome.usage.nodes[n].tenants
        if position not in gone and position != holder.position
    )
    odd = [*there, *((own, pod) for pod in holder.pods.values())]
    return next(_beyond_queues(outcome, own, by_gang, odd), None)


def _beyond_queues(
    outcome: Outcome,
    own: Gang,
    by_gang: Sequence[Counter[str]],
    odd: Sequence[tuple[Gang, Pod]],
) -> Iterator[str]:
    """What does not hold with so many GPUs of each gang and concerns this one."""
    queues = outcome.queues
    mine = queues.above(own.queue)
    for firm in (False, True)[: 2 - own.preemptible]:
        for queue, _, there, *_ in queues.beyond_limits(by_gang, firm=firm):
            if queue in mine:
                yield f"queue {quoted(queue)} would hold {there} GPUs"
    if own.counts_against_promises and queues.guaranteed:
        for key, short in queues.shortfall(by_gang, queues.beyond(odd)).items():
            if short > queues.shortfall_before[key]:
                yield f"{short} GPUs that are promised would not be there"
    if own.managed and queues.unlent:
        lent = queues.lent_too_much(by_gang, queues.beyond(odd, firm=False))
        for (name, key), gpus in lent.items():
            most = 0 if name is None else queues.limit[name].get(key, gpus)
            if name in (None, *mine) and gpus > max(most, queues.lent_before[name, key]):
                yield f"{gpus} GPUs would be held next to what queues do not lend"


def _gone(outcome: Outcome, change: Change, holder: Holder) -> bool:
    """Whether a gang has ended by then, or is stopped if it is in the way."""
    end = end_of(outcome.facts, change)
    return (end is not None and end <= holder.start) or _yields(outcome, change, holder)


class _Scene(Outcome):
    """The nodes of one reservation when it begins, with the holder's pods and what still runs there."""

    def __init__(self, outcome: Outcome, holder: Holder) -> None:
        self.case, nodes_ = outcome.case, sorted(holder.nodes)
        # GPUs that the plan partitions may be whole again by then, and others partitioned
        there = tuple(outcome.facts.nodes[n].as_it_was for n in nodes_)
        self.facts = replace(outcome.facts, nodes=there)
        self.placed = Change.of(holder.change.gang, holder.change.label, holder.pods)
        self.changes = Overlay(outcome.changes, {holder.position: self.placed})
        self.uses = {n: self._use(outcome, holder, n) for n in nodes_}
        self.usage = Usage(tuple(self.uses.values()))

    def _use(self, outcome: Outcome, holder: Holder, n: int) -> NodeUse:
        use = NodeUse()
        for position, pod, placed in outcome.usage.nodes[n].tenants:
            if not _gone(outcome, outcome.changes[position], holder):
                use.add(outcome.changes[position].gang, position, pod, placed=placed)
        for pod in holder.pods.values():
            if pod.node == n:
                use.add(holder.change.gang, holder.position, pod, placed=True)
        return use


def _meet(waiting: Collection[Holder]) -> Iterator[Violation]:
    """Holders that share a node although the first one has not ended when the next one starts."""
    on: dict[int, list[Holder]] = {}
    for holder in sorted(waiting, key=lambda one: (one.start, one.position)):
        for n in holder.nodes:
            on.setdefault(n, []).append(holder)
    met = {(a.position, b.position) for own in on.values() for a, b in pairwise(own)}
    by_position = {holder.position: holder for holder in waiting}
    for one, other in sorted(met):
        first, second = by_position[one], by_position[other]
        duration = first.change.gang.duration
        if duration is None or first.start + duration > second.start:
            what = f"shares nodes with the reservation of {printable(first.change.label)}"
            yield second.change.violation(NAME, f"{what}, which has not ended by then")


RULE = Judged(
    check,
    {
        "reserved": "others leave reserved nodes in time, so that the holder can start there as stated",
    },
)
