"""Rings when something that planning reads changes: a watch of each kind, through the proxy.

It says only that something of a kind changed: a plan reads everything anew. Heartbeats, counts and what a
plan writes on pods do not ring.
"""

from __future__ import annotations

import hashlib
import json
import threading
import time
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from models.apply.intents import PLAN
from planner.cluster import rights
from planner.cluster.api_paths import list_paths
from planner.cluster.discovery import ServedKind, discover, served_groups
from planner.cluster.pages import ListPages, failed
from planner.cluster.retry import KnownRights, RetryingTransport
from planner.cluster.transport import MalformedError, Tree, json_object
from planner.cluster.unix_http import BrokenError
from planner.errors import Fault, GangplanError, UnavailableError
from planner.read.kube.kinds import ALL, PODS, Kind
from planner.read.kube.lookup import mapping, text
from planner.read.kube.pruning import GONE
from planner.untrusted_text import one_line

if TYPE_CHECKING:
    from planner.cluster.proxy import ProxyTransport

ACCEPT = (*list_paths(ALL), rights.ACCEPT)
"""Paths that it reads, for ``proxy.connect``."""

WATCH_S = 300
"""A watch ends after so many seconds and begins anew where it ended: none hangs for ever."""

IDLE_S = WATCH_S + 60.0
"""A watch without any sign for so long is broken."""

MAX_FAILURES = 6
"""Watches of a kind that break one after the other before all are given up."""

LASTING_S = 30.0
"""A watch that lasted so long before it broke worked."""

_PAUSE_S = 1.0
"""Before a watch begins; twice as long after each failure."""

STARTED = b"started"
"""What is seen of a pod that a plan started: it counts as what it was until it ends."""

_FINISHED = ("Succeeded", "Failed")
_UNREAD = ("apiVersion", "kind", "status")
_VERSIONS = ("resourceVersion", "generation")


def digest(kind: Kind, tree: Tree) -> bytes:
    """Of what planning reads of an object, so that equal ones need no new plan.

    Without what changes by itself: versions, heartbeats, counts, and of a pod's status all but its end.
    """
    found = kind.prune(tree)
    if found is GONE:
        return b""
    metadata, status = mapping(found, "metadata"), mapping(found, "status")
    if kind is PODS:
        finished = text(status, "phase") in _FINISHED
        if PLAN in mapping(metadata, "labels") and not finished and not _terminating(metadata):
            return STARTED
        status = {"finished": finished}
    parts = {name: part for name, part in found.items() if name not in _UNREAD}
    parts["metadata"] = {name: part for name, part in metadata.items() if name not in _VERSIONS}
    parts["status"] = _without_counts(status)
    written = json.dumps(parts, sort_keys=True, separators=(",", ":"))
    return hashlib.blake2b(written.encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _terminating(metadata: Tree) -> bool:
    return "deletionTimestamp" in metadata


def _without_counts(value: object) -> object:
    """Pods that are ready, active or healthy ring themselves if that matters."""
    if isinstance(value, dict):
        kept = {name: one for name, one in value.items() if type(one) is not int}
        return {name: _without_counts(one) for name, one in kept.items()}
    return [_without_counts(one) for one in value] if isinstance(value, list) else value


class Bell:
    """What has changed since ``forget``. Threads ring it; one waits.

    ``rung_at``: when it first rang, by the clock; None as long as it did not. ``event``: set by that.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self.event = threading.Event()
        self.rung_at: float | None = None
        self._clock = clock
        self._changed: set[str] = set()
        self._seen: dict[str, dict[str, bytes]] = {}
        self._lock = threading.Lock()

    @property
    def changed(self) -> tuple[str, ...]:
        """Plurals of the kinds that changed, in the order of ``ALL``."""
        with self._lock:
            return tuple(dict.fromkeys(k.plural for k in ALL if k.resource in self._changed))

    def forget(self) -> None:
        """What changed so far is answered."""
        with self._lock:
            self._changed.clear()
            self.rung_at = None

    def see_all(self, kind: Kind, found: Mapping[str, bytes]) -> None:
        """All objects of a kind, by uid: rings if they are not those known."""
        with self._lock:
            known = self._seen.get(kind.resource)
            now = {
                uid: _kept(None if known is None else known.get(uid), one)
                for uid, one in found.items()
            }
            self._seen[kind.resource] = now
            if now != known:
                self._ring(kind)

    def see(self, kind: Kind, uid: str, found: bytes | None) -> None:
        """One object; None: it is gone. Rings if that is new."""
        with self._lock:
            known = self._seen.setdefault(kind.resource, {})
            before = known.pop(uid, None)
            after = None if found is None else _kept(before, found)
            if after is not None:
                known[uid] = after
            if after != before:
                self._ring(kind)

    def _ring(self, kind: Kind) -> None:
        self._changed.add(kind.resource)
        if self.rung_at is None:
            self.rung_at = self._clock()
            self.event.set()


def _kept(before: bytes | None, found: bytes) -> bytes:
    return before if before is not None and found == STARTED else found


class Watches:
    """A watch of each kind over one connection, which rings the bell. ``trouble``: why it ended.

    ``skip``: resources that are not watched. ``known``: rights that the account has shown.
    """

    def __init__(
        self,
        wire: ProxyTransport,
        bell: Bell,
        *,
        skip: Collection[str] = (),
        known: KnownRights | None = None,
    ) -> None:
        self._wire = wire
        self._bell = bell
        self._skip = skip
        self._closed = threading.Event()
        self._transport = RetryingTransport(wire, sleep=self._closed.wait, known=known)
        self.trouble: str | None = None

    def permitted(self, lock_namespace: str) -> list[Kind]:
        """The kinds to watch. Raises NotPermittedError without a right that runs or watches need.

        Raises UnavailableError.
        """
        groups = served_groups(self._transport)
        rights.require_run(self._transport, groups, self._skip, lock_namespace)
        unread = rights.require_watch(self._transport, groups, self._skip)
        return [one for one in ALL if one.resource not in {*self._skip, *unread}]

    def begin(self, kinds: Sequence[Kind]) -> None:
        """List each kind that is served, and watch it on a thread.

        Raises UnavailableError, NotPermittedError.
        """
        served, _ = discover(self._transport, kinds)
        begun = [(one, self._list(one)) for one in served]
        for one, version in begun:
            threading.Thread(
                target=self._follow,
                args=(one, version),
                name=f"watch-{one.kind.plural}",
                daemon=True,
            ).start()

    def close(self) -> None:
        """Its threads end with the connection."""
        self._closed.set()

    def _follow(self, served: ServedKind, version: str | None) -> None:
        """Watch one kind; where a watch breaks, list it again, after ever longer pauses."""
        failures = 0
        while not self._closed.wait(_PAUSE_S * 2**failures):
            begun, why = time.monotonic(), ""
            try:
                if version is None:
                    version = self._list(served)
                version = self._heard(served, version)
            except (BrokenError, MalformedError) as error:
                version, why = None, str(error)
            except GangplanError as error:  # it cannot be listed either
                why, failures = str(error), MAX_FAILURES
            failures = failures + 1 if why and time.monotonic() - begun < LASTING_S else 0
            if failures >= MAX_FAILURES:
                self._end(f"watching {served.kind.resource}: {one_line(why)}")
                return

    def _end(self, why: str) -> None:
        if not self._closed.is_set():
            self.trouble = self.trouble or why
            self._bell.event.set()

    def _list(self, served: ServedKind) -> str:
        """Its version, from which to watch on. Raises UnavailableError, NotPermittedError."""
        found: dict[str, bytes] = {}
        version = None
        pages = ListPages(self._transport, served.path())
        for page in pages:
            if page.first:
                found.clear()
                version = page.resource_version
            found.update(_digests(served.kind, page.items))
        for path, reply in pages.refused:
            raise failed(reply, f"GET {path}")
        if version is None:
            raise UnavailableError(Fault(f"GET {served.path()}: the list has no resourceVersion"))
        self._bell.see_all(served.kind, found)
        return version

    def _heard(self, served: ServedKind, version: str) -> str | None:
        """Ring what a watch says, until it ends: from where to watch on, None if that is gone.

        Raises BrokenError, MalformedError.
        """
        query = (
            f"watch=1&allowWatchBookmarks=true&timeoutSeconds={WATCH_S}&resourceVersion={version}"
        )
        for line in self._wire.lines(f"{served.path()}?{query}", idle_s=IDLE_S):
            event = json_object(line)
            tree = mapping(event, "object")
            seen = text(tree, "metadata", "resourceVersion")
            if event.get("type") == "ERROR" or seen is None:
                return None
            if event.get("type") != "BOOKMARK":
                uid = text(tree, "metadata", "uid") or ""
                gone = event.get("type") == "DELETED"
                self._bell.see(served.kind, uid, None if gone else digest(served.kind, tree))
            version = seen
        return version


def _digests(kind: Kind, items: Iterable[object]) -> Iterable[tuple[str, bytes]]:
    for tree in items:
        if isinstance(tree, dict) and (uid := text(tree, "metadata", "uid")):
            yield uid, digest(kind, tree)
