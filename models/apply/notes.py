"""What a run leaves to later runs in the Lease of the lock: gangs that it stops, and nodes to avoid.

Tenants cannot write there, so notes need no seal. A note that is not in the form we write is left out.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from typing import Any

from models.apply.plan_actions import Key

MAX_STOPPING = 131_072
"""Characters of all StopNotes, about 8,000 pods: an object carries 256 KiB of annotations at most."""

MAX_AVOIDED = 100
"""Nodes that gangs avoid, over all gangs."""

AVOID_S = 3600
"""How long a gang avoids a node on which its pods stayed pending."""

_UID = 13
"""Characters of a uid that are kept: unique among the pods of a namespace."""


def shortened(uid: str) -> str:
    """The uid of a pod as notes have it."""
    return uid[:_UID]


@dataclass(frozen=True, slots=True)
class StopNote:
    """A gang whose pods are evicted by ``plan``; written before the first of them.

    ``pods``: shortened uids of all its pods that ran then, also of those that stay.
    """

    gang: Key
    plan: str
    pods: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class AvoidNote:
    """A node on which pods of a gang stayed pending too long. ``until``: seconds since the epoch."""

    gang: Key
    node: str
    until: int


@dataclass(frozen=True, slots=True)
class RunNotes:
    """All notes; at most one StopNote a gang."""

    stops: tuple[StopNote, ...] = ()
    avoid: tuple[AvoidNote, ...] = ()

    def with_stop(self, gang: Key, plan: str, uids: Iterable[str]) -> RunNotes:
        """Note a gang; pods that an earlier run noted stay."""
        before = next((one.pods for one in self.stops if one.gang == gang), ())
        pods = tuple(dict.fromkeys((*before, *map(shortened, uids))))
        others = tuple(one for one in self.stops if one.gang != gang)
        return replace(self, stops=(*others, StopNote(gang, plan, pods)))

    def without_stops(self, gangs: Iterable[Key]) -> RunNotes:
        gone = frozenset(gangs)
        return replace(self, stops=tuple(one for one in self.stops if one.gang not in gone))

    @property
    def fits(self) -> bool:
        """Whether the StopNotes are short enough to be written."""
        return len(replace(self, avoid=()).text()) <= MAX_STOPPING

    def with_avoided(self, found: Iterable[tuple[Key, str]], now: int) -> RunNotes:
        """Note nodes to avoid from now on; past ones are dropped.

        At most MAX_AVOIDED: the namespace with the most gives up its oldest, so that no tenant crowds
        out another.
        """
        known = {(one.gang, one.node): one for one in self.avoided(now)}
        for gang, node in found:
            known[gang, node] = AvoidNote(gang, node, now + AVOID_S)
        kept = sorted(known.values(), key=lambda one: (one.until, one.gang, one.node))
        while len(kept) > MAX_AVOIDED:
            counts = Counter(one.gang[0] for one in kept)
            most = max(sorted(counts), key=lambda namespace: counts[namespace])
            kept.remove(next(one for one in kept if one.gang[0] == most))
        return replace(self, avoid=tuple(kept))

    def without_avoided(self, gangs: Iterable[Key]) -> RunNotes:
        gone = frozenset(gangs)
        return replace(self, avoid=tuple(one for one in self.avoid if one.gang not in gone))

    def avoided(self, now: int) -> tuple[AvoidNote, ...]:
        """Nodes to avoid at that time. A clock that was set back does not prolong them."""
        return tuple(one for one in self.avoid if now < one.until <= now + AVOID_S)

    def text(self) -> str:
        """As JSON; empty without notes."""
        if not (self.stops or self.avoid):
            return ""
        tree = {
            "stops": [
                {"gang": list(one.gang), "plan": one.plan, "pods": list(one.pods)}
                for one in self.stops
            ],
            "avoid": [
                {"gang": list(one.gang), "node": one.node, "until": one.until} for one in self.avoid
            ],
        }
        return json.dumps(tree, separators=(",", ":"))


def read_notes(written: str) -> RunNotes:
    """The notes in an annotation."""
    try:
        tree = json.loads(written) if written else {}
    except (ValueError, RecursionError):
        return RunNotes()
    if not isinstance(tree, dict):
        return RunNotes()
    stops = {one.gang: one for one in _stops(tree.get("stops"))}
    return RunNotes(tuple(stops.values()), tuple(_avoided(tree.get("avoid"))))


def _stops(found: object) -> Iterator[StopNote]:
    for one, gang in _of_gangs(found):
        plan, pods = one.get("plan"), one.get("pods")
        uids = pods if isinstance(pods, list) else []
        if isinstance(plan, str) and uids and all(isinstance(uid, str) for uid in uids):
            yield StopNote(gang, plan, tuple(uids))


def _avoided(found: object) -> Iterator[AvoidNote]:
    for one, gang in _of_gangs(found):
        node, until = one.get("node"), one.get("until")
        if isinstance(node, str) and node and type(until) is int:
            yield AvoidNote(gang, node, until)


def _of_gangs(found: object) -> Iterator[tuple[dict[str, Any], Key]]:
    for one in found if isinstance(found, list) else ():
        gang = one.get("gang") if isinstance(one, dict) else None
        if isinstance(gang, list) and len(gang) == 2 and all(isinstance(p, str) for p in gang):
            yield one, (gang[0], gang[1])
