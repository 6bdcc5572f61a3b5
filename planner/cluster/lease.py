"""The lock as a document: the Lease ``gangplan``, who holds it, and what the last run left in it.

Nothing is sent here. Whatever a Lease contains is untrusted, and shown on one line.
"""

from __future__ import annotations

import json
import os
import shlex
import socket
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from models.apply.intents import SealKey
from models.apply.notes import RunNotes, read_notes
from models.units import InvalidValueError, epoch_seconds, time_text
from planner.cluster.transport import Tree, exactly, grouped
from planner.errors import Fault, UsageError
from planner.read.kube.lookup import at, mapping, text, texts
from planner.untrusted_text import one_line

LEASE = "gangplan"
DURATION_S = 60
MARGIN_S = 2
"""Seconds past its end before another run may take a lock that was not released: clocks differ."""

HOST = "gangplan.dev/host"
USER = "gangplan.dev/user"
OPERATION = "gangplan.dev/operation"
PLAN = "gangplan.dev/plan"
ACQUIRED = "gangplan.dev/acquired"
LAST_RUN = "gangplan.dev/last-run"
NOTES = "gangplan.dev/notes"

_OF_A_HOLDER = (HOST, USER, OPERATION, PLAN, ACQUIRED)
_MAX_NAME = 200
_MAX_LAST_RUN = 64 * 2**10


def lease_path(namespace: str, name: str | None = None) -> str:
    """URL path of the Leases of a namespace, or of one. Raises UsageError."""
    try:
        return grouped("coordination.k8s.io", "v1", "leases", namespace=namespace, name=name)
    except ValueError:
        hint = "lower case letters, digits and dashes, at most 63"
        what = f"--lock-namespace {one_line(namespace)!r} is not the name of a namespace"
        raise UsageError(Fault(what, hint)) from None


def lock_paths(namespace: str) -> tuple[str, ...]:
    """The paths of the lock, for ``proxy.connect``. Raises UsageError."""
    return exactly(lease_path(namespace), lease_path(namespace, LEASE))


@dataclass(frozen=True, slots=True)
class UserAtHost:
    """On whose behalf the lock is taken; other runs show it."""

    user: str
    host: str


def current_user(environ: Mapping[str, str]) -> UserAtHost:
    """This user on this host; in a pod the host is the pod's name."""
    user = environ.get("USER") or environ.get("LOGNAME") or _account()
    return UserAtHost(user[:_MAX_NAME], socket.gethostname()[:_MAX_NAME])


def _account() -> str:
    import pwd

    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"uid {os.getuid()}"


@dataclass(frozen=True, slots=True)
class Holder:
    """Who holds the lock, as the Lease says; "" where it says nothing.

    ``since``, ``until``: seconds since the epoch on the server's clock, None if unreadable.
    ``left_s``: seconds until ``until`` when the Lease was read, None if unknown.
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
        """Whether another run may take over: not renewed for the whole duration and the margin."""
        return self.left_s is not None and self.left_s <= -MARGIN_S

    def describe(self) -> str:
        """``apply of plan gp-0123 by ana@login1 (lock 4f2a9c01d7, since ..., until ...)``."""
        what = one_line(self.operation) or "unknown operation"
        what += f" of plan {one_line(self.plan)}" if self.plan else ""
        if self.user or self.host:
            what += f" by {one_line(f'{self.user}@{self.host}')}"
        parts = [f"lock {one_line(self.id)}"]
        parts += [f"since {time_text(self.since)}"] if self.since is not None else []
        parts += [f"until {time_text(self.until)}"] if self.until is not None else []
        return f"{what} ({', '.join(parts)})"


def release_command(identity: str, program: str = "gangplan") -> str:
    """The command that frees a lock whose run is dead; quoted for a shell."""
    return shlex.join([*program.split(), "status", "--release", one_line(identity)])


@dataclass(frozen=True, slots=True)
class LeaseState:
    """``tree``: the Lease as the server sent it, None if there is none.

    ``now``: the server's clock, None if unknown. ``last_run``: the summary that ``release`` wrote.
    """

    tree: Tree | None = None
    now: float | None = None
    holder: Holder | None = None
    last_run: dict[str, Any] | None = None


def lease_state(tree: Tree | None, now: float | None) -> LeaseState:
    """Read a Lease."""
    if tree is None:
        return LeaseState(now=now)
    annotations = texts(tree, "metadata", "annotations")
    holder = _holder(mapping(tree, "spec"), annotations, now)
    return LeaseState(tree, now, holder, _last_run(annotations))


def _holder(spec: Tree, annotations: dict[str, str], now: float | None) -> Holder | None:
    if not (identity := text(spec, "holderIdentity")):
        return None
    duration = spec.get("leaseDurationSeconds")
    if type(duration) is not int or not 0 < duration < 10**9:
        duration = DURATION_S
    acquired = time_of(spec.get("acquireTime"))
    renewed = time_of(spec.get("renewTime"))
    renewed = acquired if renewed is None else renewed
    until = None if renewed is None else renewed + duration
    since = time_of(annotations.get(ACQUIRED))
    return Holder(
        id=identity,
        user=annotations.get(USER, ""),
        host=annotations.get(HOST, ""),
        operation=annotations.get(OPERATION, ""),
        plan=annotations.get(PLAN, ""),
        since=acquired if since is None else since,
        until=until,
        left_s=None if until is None or now is None else until - now,
    )


def _last_run(annotations: dict[str, str]) -> dict[str, Any] | None:
    written = annotations.get(LAST_RUN, "")
    try:
        found = json.loads(written) if len(written) <= _MAX_LAST_RUN else None
    except (ValueError, RecursionError):
        return None
    return found if isinstance(found, dict) else None


def seal_key_of(tree: Tree | None) -> SealKey | None:
    """Tells intents of runs from those that others wrote; None if it is unknown.

    The Lease's uid is the secret: the server draws it, and only who may read the Lease knows it.
    """
    uid, created = text(tree, "metadata", "uid"), time_of(at(tree, "metadata", "creationTimestamp"))
    return SealKey(uid, created) if uid and created is not None else None


def notes_of(tree: Tree | None) -> RunNotes:
    """What earlier runs left to later ones."""
    return read_notes(texts(tree, "metadata", "annotations").get(NOTES, ""))


def with_notes(tree: Tree, notes: RunNotes) -> Tree:
    """The Lease with these notes."""
    metadata = mapping(tree, "metadata")
    annotations = {**texts(metadata, "annotations"), NOTES: notes.text()}
    if not annotations[NOTES]:
        del annotations[NOTES]
    return {**tree, "metadata": {**metadata, "annotations": annotations}}


@dataclass(frozen=True, slots=True)
class LeaseTerms:
    """What a holder writes about itself. ``acquired``: seconds since the epoch, the server's."""

    id: str
    user: UserAtHost
    operation: str
    plan: str | None
    acquired: int
    duration_s: int = DURATION_S


def held_lease(tree: Tree | None, namespace: str, terms: LeaseTerms, renewed: int) -> Tree:
    """The Lease to write while it is held. Of ``tree`` the rest stays, its resourceVersion too."""
    fresh = tree is None or mapping(tree, "spec").get("holderIdentity") != terms.id
    found = _copy(tree, namespace)
    spec, annotations = found["spec"], found["metadata"]["annotations"]
    spec |= {
        "holderIdentity": terms.id,
        "leaseDurationSeconds": terms.duration_s,
        "acquireTime": _micro_time(terms.acquired),
        "renewTime": _micro_time(renewed),
    }
    if fresh:
        before = spec.get("leaseTransitions")
        count = before if type(before) is int and 0 <= before < 2**31 - 1 else 0
        spec["leaseTransitions"] = count + (tree is not None)
    annotations |= {
        HOST: terms.user.host,
        USER: terms.user.user,
        OPERATION: terms.operation,
        ACQUIRED: time_text(terms.acquired),
    }
    if terms.plan is not None:
        annotations[PLAN] = terms.plan
    return found


def released_lease(
    tree: Tree, namespace: str, last_run: Mapping[str, Any] | None, now: int
) -> Tree:
    """The Lease to write when it is released; ``last_run`` None leaves the summary that is there."""
    found = _copy(tree, namespace)
    found["spec"] |= {"holderIdentity": "", "renewTime": _micro_time(now)}
    annotations = found["metadata"]["annotations"]
    if last_run is not None:
        annotations[LAST_RUN] = json.dumps(last_run, separators=(",", ":"), sort_keys=True)
    return found


def _copy(tree: Tree | None, namespace: str) -> Tree:
    """A Lease to write over that one, without the fields of the server and of its holder."""
    metadata = {**mapping(tree, "metadata"), "name": LEASE, "namespace": namespace}
    metadata.pop("managedFields", None)
    annotations = texts(metadata, "annotations").items()
    metadata["annotations"] = {key: one for key, one in annotations if key not in _OF_A_HOLDER}
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": metadata,
        "spec": {**mapping(tree, "spec")},
    }


def _micro_time(epoch: int) -> str:
    return f"{time_text(epoch).removesuffix('Z')}.000000Z"


def time_of(written: object) -> int | None:
    """Seconds since the epoch; None for what is no time."""
    if not isinstance(written, str):
        return None
    try:
        return epoch_seconds(written)
    except InvalidValueError:
        return None
