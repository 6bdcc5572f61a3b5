"""What time makes of the gangs of a tiny instance: who is aged, whose size is held, what a stop costs.

Promises: straight from the words of the policy; takes nothing from the methods of ``Instance``; no clock.
Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from models.instance.gang import Gang
from models.instance.instance import Instance


def now(instance: Instance) -> int:
    """The policy's, or the latest time at which the input says that anything happened."""
    if instance.policy.now is not None:
        return instance.policy.now
    happened = [0]
    for gang in instance.gangs:
        happened += [queued_since(gang) or 0, gang.started_at or 0, gang.last_checkpoint or 0]
    return max(happened)


def queued_since(gang: Gang) -> int | None:
    """When it joined the queue: at its submission, or when it was last thrown out of its place."""
    if gang.submitted_at is None:
        return None
    return sorted((gang.submitted_at, gang.evicted_at or 0))[1]


def run_time(instance: Instance, gang: Gang) -> int:
    """How long nobody stops it: said by itself, else by the queues up its branch, else by the policy.

    Thrown out or moved n times, 2^n times that, or the pause after the first time if that is longer, but
    no longer than others wait before they are aged.
    """
    said = [gang.min_run_time_s]
    queues = {queue.name: queue for queue in instance.queues}
    at = queues.get(gang.queue or "")
    while at is not None:
        said.append(at.min_run_time_s)
        at = None if at.parent is None else instance.queues[at.parent]
    time = next((s for s in (*said, instance.policy.min_run_time_s) if s is not None), 0)
    backoff, patience = instance.policy.eviction_backoff, instance.policy.starvation_after_s
    if gang.evicted_at is None or backoff is None:
        return time
    often = 2 ** max(1, gang.evictions) * max(time, backoff.base_s)
    return max(time, min(often, 86_400 if patience is None else patience))


def left_alone(instance: Instance, gang: Gang) -> bool:
    """Its time has begun, and has not passed."""
    begun = gang.started_at if gang.runs_since is None else gang.runs_since
    if gang.evicted_at is not None:
        begun = max(begun or 0, gang.evicted_at)
    lasts = run_time(instance, gang)
    return begun is not None and lasts > 0 and now(instance) < begun + lasts


def paused_until(instance: Instance, gang: Gang) -> int | None:
    """Thrown out, it waits for 1, 2, 4, ... times the base since, up to the longest pause; None: no more."""
    backoff = instance.policy.eviction_backoff
    if backoff is None or gang.evicted_at is None or any(p.node is not None for p in gang.pods):
        return None
    pause = min(backoff.max_s, backoff.base_s * 2 ** (max(1, gang.evictions) - 1))
    until = gang.evicted_at + pause
    return until if now(instance) < until else None


def aged(instance: Instance, gang: Gang) -> bool:
    """It waits, and has for longer than the limit."""
    after = instance.policy.starvation_after_s
    runs = any(pod.node is not None for pod in gang.pods)
    since = gang.submitted_at
    if after is None or runs or since is None:
        return False
    return since + after < now(instance)


def size_held(instance: Instance, gang: Gang) -> bool:
    """Its next checkpoint is yet to come, and until then its number of pods stays."""
    return gang.resize_after is not None and gang.resize_after > now(instance)


def harm(instance: Instance, gang: Gang) -> int:
    """What each of its GPUs counts in disruption: 1, nothing, or the seconds of work lost with it."""
    disruption = instance.policy.disruption
    if disruption.weight in ("gpus", "none"):
        return int(disruption.weight == "gpus")
    begun = max(gang.started_at or 0, gang.last_checkpoint or 0)
    known = gang.started_at is not None or gang.last_checkpoint is not None
    lost = now(instance) - begun if known else disruption.cap_s
    return sorted((1, lost, disruption.cap_s))[1] if disruption.cap_s > 1 else 1
