"""Freeing the lock of a run that is dead, on a person's word.

Promises: only the lock with that ID; with the resourceVersion that was read, so never one that was taken
meanwhile; what the last run left in it stays. Called by ``planner.verbs.unlock``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from planner.cluster.holders import LEASE, Holder, LeaseSeen, freed, unlock_command
from planner.cluster.lease import read_lease
from planner.cluster.locking import MANAGER, failure, path
from planner.cluster.refusals import one_line
from planner.cluster.wire import LOST, Reply, Wire
from planner.errors import Fault, LockedError

_TRIES = 5
_PAUSE_S = 0.2


def unlocked(
    wire: Wire,
    *,
    namespace: str,
    identity: str,
    command: Sequence[str] = ("gangplan", "unlock"),
    sleep: Callable[[float], object] = time.sleep,
) -> Holder | None:
    """Who held the lock; None if nobody did. Raises LockedError where it has another ID; as read_lease."""
    first: Holder | None = None
    for left in range(_TRIES, 0, -1):
        lease = read_lease(wire, namespace, sleep=sleep)
        holder = lease.holder
        if holder is None or lease.tree is None:
            return first
        if holder.id != identity:
            if first is not None:
                return (
                    first  # the one it was asked for is gone; that another came is not our business
                )
            raise _other(holder, namespace, identity, command)
        first = first or holder
        reply = _freed(wire, namespace, lease)
        if reply.ok:
            return first
        if not _again(reply) or left == 1:
            raise failure("update", namespace, reply)
        if reply.status != 409:  # a renewal of its holder's; everything else takes a moment
            sleep(_PAUSE_S)
    raise AssertionError("the last try returns or raises")


def _freed(wire: Wire, namespace: str, lease: LeaseSeen) -> Reply:
    assert lease.tree is not None
    body = freed(lease.tree, namespace, None, int(lease.now or 0))
    return wire.send("PUT", f"{path(namespace, LEASE)}?{MANAGER}", body)


def _again(reply: Reply) -> bool:
    return reply.status in {LOST, 404, 409, 429} or reply.status >= 500


def _other(holder: Holder, namespace: str, identity: str, command: Sequence[str]) -> LockedError:
    what = f"the lock in namespace {namespace} is not {one_line(identity)!r}: {holder.worded()}"
    hint = f"only if that run is dead: {unlock_command(holder.id, command)}"
    return LockedError(Fault(what, hint))
