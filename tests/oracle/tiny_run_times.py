"""Random minimum run times and evictions in busy tiny instances.

Promises: deterministic by the draws; nothing unless a feature is asked for; a gang that pauses is held.
Called by the generator of busy instances.
"""

from __future__ import annotations

from dataclasses import replace

from exhaustive_ages import paused_until
from tiny_draws import Draws

from models.documents.gang import Hold
from models.documents.policy import EvictionBackoff
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Queue

MINUTE = 60

CALMED = {
    "run times": ("run_times", "checkpoints", "movable", "preemptible", "elastic_running"),
    "run times of queues": ("run_times", "queues", "checkpoints", "preemptible"),
    "evictions": ("evictions", "submitted", "starvation", "priorities"),
    "evicted and left alone": ("evictions", "run_times", "movable", "preemptible", "starvation"),
}
"""What each series of instances with run times or evictions has three times as much of."""

STATED = (None, None, 0, 30 * MINUTE, 300 * MINUTE, 1000 * MINUTE)
"""Minimum run times; gangs of busy instances started up to 1,000 minutes ago."""


def calmed(draws: Draws, instance: Instance) -> Instance:
    """The instance, perhaps with run times for some of those that may state one, and with evictions."""
    r = draws.random("run times")
    wanted = draws.on("run_times", r, 0.3) and draws.asked("run_times")
    most = r.choice((0, 10 * MINUTE, 400 * MINUTE))
    if wanted:
        gangs = tuple(_protected(draws, gang) for gang in instance.gangs)
        queues = tuple(_granting(draws, queue) for queue in instance.queues)
        policy = replace(instance.policy, min_run_time_s=most)
        instance = replace(instance, gangs=gangs, queues=queues, policy=policy)
    r = draws.random("evictions")
    backoff = r.choice((None, EvictionBackoff(), EvictionBackoff(60 * MINUTE, 200 * MINUTE)))
    if draws.on("evictions", r, 0.3) and draws.asked("evictions"):
        gangs = tuple(_evicted(draws, gang) for gang in instance.gangs)
        policy = replace(instance.policy, eviction_backoff=backoff, now=instance.now)
        instance = replace(instance, gangs=gangs, policy=policy)
        gangs = tuple(_held(instance, gang) for gang in gangs)
        instance = replace(instance, gangs=gangs)
    return instance


def _protected(draws: Draws, gang: Gang) -> Gang:
    r = draws.random(f"run time/{gang.name}")
    begun, earlier = gang.started_at, r.choice((0, 0, 60, 400)) * MINUTE
    since = None if begun is None or not earlier else begun - earlier
    return replace(gang, min_run_time_s=r.choice(STATED), runs_since=since)


def _granting(draws: Draws, queue: Queue) -> Queue:
    r = draws.random(f"run time of queue/{queue.name}")
    return replace(queue, min_run_time_s=r.choice(STATED))


def _evicted(draws: Draws, gang: Gang) -> Gang:
    """Perhaps stopped in the hours before, once or several times, or nobody counted how often."""
    r = draws.random(f"evicted/{gang.name}")
    ago, times, often = 10 * MINUTE * r.randint(0, 60), r.choice((0, 1, 1, 2, 3)), r.random() < 0.5
    since = gang.submitted_at or gang.started_at
    if since is None or not often:
        return gang
    return replace(gang, evicted_at=since + 360 * MINUTE - ago, evictions=times)


def _held(instance: Instance, gang: Gang) -> Gang:
    if gang.hold is not None or paused_until(instance, gang) is None:
        return gang
    return replace(gang, hold=Hold("Backoff", "plans stopped it"))
