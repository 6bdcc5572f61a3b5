"""The lock as a document: a Lease, who holds it, and what the last run left in it.

Promises: pure; whatever stands in a Lease is read without trust, and shown on one line. Called by
``planner.cluster.lease``, which takes and gives it, and by the verbs that tell about it.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from models.apply.intents import SealKey
from models.units import InvalidValueError, epoch_seconds, time_text
from planner.cluster.transport import Tree
from planner.untrusted_text import one_line

LEASE = "gangplan"
DURATION_S = 60
MARGIN_S = 2
"""Seconds past its end before a lock that was not given back may be taken: servers' clocks differ."""

HOST = "gangplan.dev/host"
USER = "gangplan.dev/user"
OPERATION = "gangplan.dev/operation"
PLAN = "gangplan.dev/plan"
ACQUIRED = "gangplan.dev/acquired"
LAST_RUN = "gangplan.dev/last-run"

_OF_A_HOLDER = (HOST, USER, OPERATION, PLAN, ACQUIRED)
_MAX_SHOWN = 200
_MAX_LAST_RUN = 64 * 2**10


@dataclass(frozen=True, slots=True)
class Who:
    """On whose behalf the lock is taken: told to whoever finds it taken."""

    user: str
    host: str


def here(environ: Mapping[str, str]) -> Who:
    """This user on this host; in a pod the host is the pod's name."""
    user = environ.get("USER") or environ.get("LOGNAME") or _account()
    return Who(user[:_MAX_SHOWN], socket.gethostname()[:_MAX_SHOWN])


def _account() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock: every text is what the Lease says, untrusted, "" where it says nothing.

    ``since``, ``until``: seconds since the epoch on the server's clock, None where they cannot be read.
    ``left_s``: seconds until ``until`` when it was read, None where that is unknown.
    """

    id: str
    user: str = ""
    host: str = ""
    operation: str = ""
    plan: str = ""
    since: int | None = None
    until: int | None = None
    left_s: float | None = None

    @property
    def expired(self) -> bool:
        """Whether it may be taken over: not renewed for its whole time and the margin."""
        return self.left_s is not None and self.left_s <= -MARGIN_S

    def worded(self) -> str:
        """``apply of plan gp-0123 by ana@login1 (lock 4f2a9c01d7, since ..., until ...)``."""
        what = one_line(self.operation) or "somebody"
        what += f" of plan {one_line(self.plan)}" if self.plan else ""
        if self.user or self.host:
            what += f" by {one_line(f'{self.user}@{self.host}')}"
        parts = [f"lock {one_line(self.id)}"]
        parts += [f"since {time_text(self.since)}"] if self.since is not None else []
        parts += [f"until {time_text(self.until)}"] if self.until is not None else []
        return f"{what} ({', '.join(parts)})"


def unlock_command(identity: str, command: Sequence[str] = ("gangplan", "unlock")) -> str:
    """What a person types to free a lock whose run is dead; quoted for a shell."""
    shown = one_line(identity)
    ended = ["--"] if shown.startswith("-") else []
    return shlex.join([*command, *ended, shown])


@dataclass(frozen=True, slots=True)
class LeaseSeen:
    """The Lease as read. ``tree``: as the server sent it, None if there is none yet.

    ``now``: the server's clock, None if it did not say. ``last_run``: what ``release`` was given.
    """

    tree: Tree | None = None
    now: float | None = None
    holder: Holder | None = None
    last_run: dict[str, Any] | None = field(default=None)


def seen(tree: Tree | None, now: float | None) -> LeaseSeen:
    """What a Lease says."""
    if tree is None:
        return LeaseSeen(now=now)
    notes = _texts(_below(tree, "metadata").get("annotations"))
    return LeaseSeen(tree, now, _holder(_below(tree, "spec"), notes, now), _last_run(notes))


def _holder(spec: Tree, notes: dict[str, str], now: float | None) -> Holder | None:
    identity = spec.get("holderIdentity")
    if not isinstance(identity, str) or not identity:
        return None
    duration = spec.get("leaseDurationSeconds")
    if type(duration) is not int or not 0 < duration < 10**9:
        duration = DURATION_S
    renewed = _time(spec.get("renewTime"))
    renewed = _time(spec.get("acquireTime")) if renewed is None else renewed
    until = None if renewed is None else renewed + duration
    since = _time(notes.get(ACQUIRED))
    return Holder(
        id=identity,
        user=notes.get(USER, ""),
        host=notes.get(HOST, ""),
        operation=notes.get(OPERATION, ""),
        plan=notes.get(PLAN, ""),
        since=_time(spec.get("acquireTime")) if since is None else since,
        until=until,
        left_s=None if until is None or now is None else until - now,
    )


def _last_run(notes: dict[str, str]) -> dict[str, Any] | None:
    written = notes.get(LAST_RUN)
    if written is None or len(written) > _MAX_LAST_RUN:
        return None
    try:
        found = json.loads(written)
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


@dataclass(frozen=True, slots=True)
class Terms:
    """What a holder writes of itself. ``acquired``: seconds since the epoch, the server's."""

    id: str
    who: Who
    operation: str
    plan: str | None
    acquired: int
    duration_s: int = DURATION_S


def held(tree: Tree | None, namespace: str, terms: Terms, renewed: int) -> Tree:
    """The Lease to write while it is held; of ``tree`` the rest stays, its resourceVersion too."""
    fresh = tree is None or _below(tree, "spec").get("holderIdentity") != terms.id
    found = _copied(tree, namespace)
    spec = found["spec"]
    spec |= {
        "holderIdentity": terms.id,
        "leaseDurationSeconds": terms.duration_s,
        "acquireTime": _micro(terms.acquired),
        "renewTime": _micro(renewed),
    }
    if fresh:
        before = spec.get("leaseTransitions")
        count = before if type(before) is int and 0 <= before < 2**31 - 1 else 0
        spec["leaseTransitions"] = count + (tree is not None)
    notes = found["metadata"]["annotations"]
    for key in _OF_A_HOLDER:
        notes.pop(key, None)
    notes |= {
        HOST: terms.who.host,
        USER: terms.who.user,
        OPERATION: terms.operation,
        ACQUIRED: time_text(terms.acquired),
    }
    if terms.plan is not None:
        notes[PLAN] = terms.plan
    return found


def seal_key_of(tree: Tree | None) -> SealKey | None:
    """What tells intents of runs from those that somebody else wrote; None where nothing is known.

    The Lease's uid is the secret: the server draws it, and only who may read the Lease knows it.
    """
    metadata = {} if tree is None else _below(tree, "metadata")
    uid, made = metadata.get("uid"), _time(metadata.get("creationTimestamp"))
    if not isinstance(uid, str) or not uid or made is None:
        return None
    return SealKey(uid, made)


def freed(tree: Tree, namespace: str, last_run: Mapping[str, Any] | None, now: int) -> Tree:
    """The Lease to write when it is given back; ``last_run`` None leaves the one that is there."""
    found = _copied(tree, namespace)
    found["spec"] |= {"holderIdentity": "", "renewTime": _micro(now)}
    notes = found["metadata"]["annotations"]
    for key in _OF_A_HOLDER:
        notes.pop(key, None)
    if last_run is not None:
        notes[LAST_RUN] = _bounded(last_run)
    return found


def _bounded(last_run: Mapping[str, Any]) -> str:
    """As JSON; what is too long for an annotation is left out, the longest first."""
    parts = dict(last_run)
    while len(written := json.dumps(parts, separators=(",", ":"), sort_keys=True)) > _MAX_LAST_RUN:
        del parts[max(parts, key=lambda name: len(json.dumps(parts[name])))]
    return written


def _copied(tree: Tree | None, namespace: str) -> Tree:
    """A Lease to write over that one: all of it but what the server alone keeps."""
    metadata = {} if tree is None else {**_below(tree, "metadata")}
    metadata.pop("managedFields", None)
    metadata |= {"name": LEASE, "namespace": namespace}
    metadata["annotations"] = _texts(metadata.get("annotations"))
    spec = {} if tree is None else {**_below(tree, "spec")}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": spec,
    }


def _micro(epoch: int) -> str:
    """As the API writes times of Leases."""
    return f"{time_text(epoch).removesuffix('Z')}.000000Z"


def _time(written: object) -> int | None:
    if not isinstance(written, str):
        return None
    try:
        return epoch_seconds(written)
    except InvalidValueError:
        return None


def _below(tree: Tree, name: str) -> Tree:
    found = tree.get(name)
    return found if isinstance(found, dict) else {}


def _texts(value: object) -> dict[str, str]:
    if not isinstance(value, dict):
        return {}
    return {key: text for key, text in value.items() if isinstance(text, str)}
