"""What a run leaves to later runs in the Lease: gangs it stops, stopped or found held, promises, nodes."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Collection, Iterable
from dataclasses import dataclass, replace
from typing import TypeVar

from pydantic import TypeAdapter

from models.apply.plan_actions import Key
from models.documents.plan import PlanDocument

MAX_STARTS = 100
"""Gangs of which a stated start is noted."""

MAX_PLACES = 32_768
"""Characters of all their places; the start of a gang beyond that is noted without its place."""

MAX_DUE = 100
"""Gangs that were to start now."""

Seat = tuple[str, int, str]
"""Role and index of a pod, and its node."""


@dataclass(frozen=True, slots=True)
class Promise:
    """``start``: at the latest, in seconds since the epoch. ``pods``: where; empty if that is not noted."""

    gang: Key
    start: int
    pods: tuple[Seat, ...] = ()


@dataclass(frozen=True, slots=True)
class Promises:
    """``at``: the time of the plan, in seconds since the epoch. ``due``: gangs that it starts itself."""

    at: int
    starts: tuple[Promise, ...]
    due: tuple[Key, ...] = ()


def promised_by(plan: PlanDocument) -> Promises | None:
    """What the plan promises gangs that wait; None if it promises nothing.

    Beyond the bounds the gangs of the highest priority, and then the earliest starts, are noted.
    """
    ranks = {gang.key: -gang.spec.priority for gang in plan.instance.gangs}
    waiting = [
        (one, one.reserved)
        for one in plan.spec.gangs
        if one.decision == "wait" and one.reserved is not None
    ]
    if not waiting:
        return None
    waiting.sort(key=lambda pair: (ranks.get(pair[0].key, 0), pair[1].start, pair[0].key))
    starts, left = [], MAX_PLACES
    for one, reserved in waiting[:MAX_STARTS]:
        pods = tuple((pod.role, pod.index, pod.node) for pod in reserved.pods)
        length = len(json.dumps(pods))
        pods, left = (pods, left - length) if length <= left else ((), left)
        starts.append(Promise(one.key, reserved.start, pods))
    due = [one.key for one in plan.spec.gangs if one.decision in ("place", "complete", "move")]
    return Promises(plan.instance.now, tuple(starts), tuple(sorted(due)[:MAX_DUE]))


MAX_STOPPING = 131_072
"""Characters of all StopNotes, about 8,000 pods: an object carries 256 KiB of annotations at most."""

MAX_AVOIDED = 10_000
"""Characters of gangs that avoid nodes, once for each: some 100, over all namespaces."""

AVOID_S = 3600
"""How long a gang avoids a node on which its pods did not start."""

MAX_HELD = 64_000
"""Of gangs that were held by a scheduling gate of others: some 700."""

MAX_EVICTED = 30_000
"""Of gangs of which it is known that plans stopped them: some 300."""

MAX_WRITTEN = 200_000
"""Characters of all notes: what is longer is not written, lest the lock cannot be renewed either."""

EVICTED_S = 86_400
"""How long that is known after the last time."""

_UID = 13
"""Characters of a uid that are kept: unique among the pods of a namespace."""


def shortened(uid: str) -> str:
    """The uid of a pod as notes have it."""
    return uid[:_UID]


@dataclass(frozen=True, slots=True)
class EvictNote:
    """A gang that plans stopped for others, or moved. ``at``: the last time, seconds since the epoch.

    ``moved``: it was moved then. ``since``: since when it was in the queue, before its pods were made again.
    """

    gang: Key
    at: int
    times: int
    moved: bool = False
    since: int | None = None


@dataclass(frozen=True, slots=True)
class StopNote:
    """A gang whose pods are evicted by ``plan``; written before the first of them.

    ``pods``: shortened uids of all its pods that ran then, also of those that stay. ``counts``: what is
    known of it once one of them has gone; None if that is counted, or no eviction for others.
    """

    gang: Key
    plan: str
    pods: tuple[str, ...]
    counts: EvictNote | None = None


@dataclass(frozen=True, slots=True)
class AvoidNote:
    """A node on which pods of a gang did not start. ``until``: seconds since the epoch."""

    gang: Key
    node: str
    until: int


@dataclass(frozen=True, slots=True)
class HeldNote:
    """A waiting gang that a scheduling gate of others held. ``seen``: last, seconds since the epoch.

    Kubernetes does not record when a gate goes. Without a name: every gang of the namespace.
    """

    gang: Key
    seen: int


@dataclass(frozen=True, slots=True)
class RunNotes:
    """All notes; at most one StopNote, HeldNote and EvictNote a gang."""

    stops: tuple[StopNote, ...] = ()
    avoid: tuple[AvoidNote, ...] = ()
    held: tuple[HeldNote, ...] = ()
    evicted: tuple[EvictNote, ...] = ()
    promises: Promises | None = None

    def counted(self, lost: Collection[Key], now: int) -> RunNotes:
        """Count each gang that is being stopped as evicted now that it has lost a pod: before, it runs on."""
        due = [one.counts for one in self.stops if one.gang in lost and one.counts is not None]
        stops = (replace(one, counts=None) if one.gang in lost else one for one in self.stops)
        known = {one.gang: one for one in self.evictions(now)}
        for one in due:
            before = known.get(one.gang)
            times = one.times + (0 if before is None else before.times)
            known[one.gang] = replace(one, times=times)
        kept = sorted(known.values(), key=lambda one: (one.at, one.gang))
        return replace(self, stops=tuple(stops), evicted=_fair(kept, MAX_EVICTED)) if due else self

    def evictions(self, now: int) -> tuple[EvictNote, ...]:
        """Those that are not forgotten yet. A clock that was set back does not prolong them."""
        return tuple(one for one in self.evicted if one.at <= now < one.at + EVICTED_S)

    def with_stop(
        self, gang: Key, plan: str, uids: Iterable[str], counts: EvictNote | None = None
    ) -> RunNotes:
        """Note a gang; pods that an earlier run noted stay, and it counts only once."""
        before = next((one for one in self.stops if one.gang == gang), None)
        pods = tuple(map(shortened, uids))
        if before is not None:
            pods, counts = tuple(dict.fromkeys((*before.pods, *pods))), before.counts
        others = tuple(one for one in self.stops if one.gang != gang)
        return replace(self, stops=(*others, StopNote(gang, plan, pods, counts)))

    def without_stops(self, gangs: Collection[Key]) -> RunNotes:
        return replace(self, stops=tuple(one for one in self.stops if one.gang not in gangs))

    @property
    def fits(self) -> bool:
        """Whether the StopNotes are short enough to be written."""
        return len(RunNotes(stops=self.stops).text()) <= MAX_STOPPING

    def with_avoided(self, found: Iterable[tuple[Key, str]], now: int) -> RunNotes:
        """Note nodes to avoid from now on; past ones are dropped."""
        known = {(one.gang, one.node): one for one in self.avoided(now)}
        for gang, node in found:
            known[gang, node] = AvoidNote(gang, node, now + AVOID_S)
        kept = sorted(known.values(), key=lambda one: (one.until, one.gang, one.node))
        return replace(self, avoid=_fair(kept, MAX_AVOIDED))

    def without_avoided(self, gangs: Collection[Key]) -> RunNotes:
        return replace(self, avoid=tuple(one for one in self.avoid if one.gang not in gangs))

    def avoided(self, now: int) -> tuple[AvoidNote, ...]:
        """Nodes to avoid at that time. A clock that was set back does not prolong them."""
        return tuple(one for one in self.avoid if now < one.until <= now + AVOID_S)

    def with_held(self, held: Iterable[Key], waiting: Iterable[Key], now: int) -> RunNotes:
        """Note the gangs that are held now; those that wait no longer are dropped.

        At most MAX_HELD: the namespace that takes most is noted as a whole, so that no tenant crowds out
        another, or his own.
        """
        there = frozenset(waiting)
        alive = there | {(namespace, "") for namespace, _ in there}
        seen = {one.gang: one.seen for one in self.held if one.gang in alive}
        seen |= dict.fromkeys(held, now)
        while sum(map(_length, seen)) > MAX_HELD and any(name for _, name in seen):
            most = _largest(gang for gang in seen if gang[1])
            seen[most, ""] = max([seen.pop(gang) for gang in list(seen) if gang[0] == most])
        return replace(self, held=tuple(HeldNote(*one) for one in sorted(seen.items())))

    def text(self) -> str:
        """As JSON; empty without notes."""
        return "" if self == RunNotes() else _FORM.dump_json(self, exclude_defaults=True).decode()


_FORM = TypeAdapter(RunNotes)

_Note = TypeVar("_Note", AvoidNote, EvictNote)


def _length(gang: Key) -> int:
    """Characters of a note on a gang: its names are its tenant's, and may be long."""
    return 60 + sum(map(len, gang))


def _largest(gangs: Iterable[Key]) -> str:
    """The namespace whose gangs take the most characters."""
    lengths = Counter[str]()
    for gang in gangs:
        lengths[gang[0]] += _length(gang)
    return max(sorted(lengths), key=lambda namespace: lengths[namespace])


def _fair(kept: list[_Note], most: int) -> tuple[_Note, ...]:
    """At most so long: the namespace that takes most gives up its first; no tenant crowds out another."""
    while sum(_length(one.gang) for one in kept) > most:
        largest = _largest(one.gang for one in kept)
        kept.remove(next(one for one in kept if one.gang[0] == largest))
    return tuple(kept)


def read_notes(written: str) -> RunNotes:
    """The notes in an annotation; none if it is not in the form that we write."""
    try:
        return _FORM.validate_json(written, strict=True) if written else RunNotes()
    except ValueError:
        return RunNotes()
