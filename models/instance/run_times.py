"""For how long running gangs are left alone (2.24), and when those that plans stopped start again (2.25).

Times are seconds since the epoch, counted to ``Instance.now``.
"""

from __future__ import annotations

from collections.abc import Mapping

from models.instance.gang import Gang
from models.instance.instance import Instance, once
from models.instance.policy import Policy, lengthened_s
from models.instance.queue import path_of


def min_run_time(instance: Instance, gang: Gang) -> int:
    """Seconds after its start for which a gang is left alone: its own, else its queue's or the policy's.

    Each time that plans stop or move it, it becomes twice as long, so that the gang comes to an end.
    """
    policy, stated = instance.policy, gang.min_run_time_s
    if stated is None:
        stated = instance.once(granted_run_times).get(gang.queue, policy.min_run_time_s)
    return stated if gang.evicted_at is None else lengthened_s(policy, stated, gang.evictions)


def granted_run_times(instance: Instance) -> Mapping[str | None, int]:
    """By queue, what gangs in it have that state none: that of the nearest queue upward which states one."""
    found: dict[str | None, int] = {}
    for q, queue in enumerate(instance.queues):
        above = (instance.queues[a].min_run_time_s for a in path_of(instance.queues, q))
        if (stated := next((s for s in above if s is not None), None)) is not None:
            found[queue.name] = stated
    return found


def stoppable_from(instance: Instance, index: int, *, comes: bool) -> int:
    """From when on the gang may be stopped, as far as its minimum run time goes.

    ``comes``: pods of it come to nodes by this plan, so that its time begins now.
    """
    if comes:
        return instance.now + min_run_time(instance, instance.gangs[index])
    return protected_until(instance, index) or instance.now


def protected_until(instance: Instance, index: int) -> int | None:
    """Until when a running gang is not stopped, shrunk or moved; None if it may be now."""
    return instance.once(_protected).get(index)


@once
def protected(instance: Instance) -> frozenset[int]:
    """The running gangs that are not stopped, shrunk or moved now."""
    return frozenset(instance.once(_protected))


def _protected(instance: Instance) -> Mapping[int, int]:
    found = {}
    for index, gang in enumerate(instance.gangs):
        since = stands_since(gang)
        if since is None or not gang.running:
            continue
        seconds = min_run_time(instance, gang)
        if seconds and instance.now < since + seconds:
            found[index] = since + seconds
    return found


def stands_since(gang: Gang) -> int | None:
    """Since when a running gang has stood where it does: its start, or a later move."""
    since = gang.begun_at
    return since if gang.evicted_at is None else max(since or 0, gang.evicted_at)


def starts_again(policy: Policy, gang: Gang, now: int) -> int | None:
    """When a gang that waits may start after its evictions; None if it may now."""
    backoff = policy.eviction_backoff
    if backoff is None or gang.evicted_at is None or gang.running:
        return None
    pause_s = min(backoff.max_s, backoff.base_s << min(max(gang.evictions, 1) - 1, 62))
    again = gang.evicted_at + pause_s
    return again if now < again else None
