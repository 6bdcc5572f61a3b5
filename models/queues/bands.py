"""Section 1: under ``order: shortest``, gangs of one priority go by the GPU time they are expected to need.

Each priority has ``BANDS`` bands; a band counts as a priority of its own everywhere, so a gang stops others
of its own priority that may be stopped and need much longer. What documents state is ``own_priority``.
"""

from __future__ import annotations

from bisect import bisect_left
from dataclasses import replace

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Policy

BANDS = 10

LIMITS_GPU_S = tuple(600 * 4**band for band in range(BANDS - 1))
"""The most GPU seconds of each band but the last: 10 GPU minutes, 40, and so on to 455 GPU days.

Wide, for an estimate is seldom better than a factor of 2, and each band costs the search some tiers.
"""

UNKNOWN_S = 600
"""What a gang of which nothing is known takes; once it has run longer, it is taken to have half behind it."""


def banded(instance: Instance) -> Instance:
    """The instance with the band of each gang in its priority, as the policy says."""
    policy, now = instance.policy, instance.now
    if policy.order != "shortest":
        return instance
    gangs = (in_band(g, band_of(g, policy, now, expected_left_s(g, now))) for g in instance.gangs)
    return replace(instance, gangs=tuple(gangs))


def in_band(gang: Gang, band: int) -> Gang:
    """The gang in this band of the priority that its document states."""
    own = gang.own_priority
    return replace(gang, priority=BANDS * own + BANDS - 1 - band, stated_priority=own)


def stated_priority(instance: Instance, priority: int) -> int:
    """What a document states of a gang of this priority and band."""
    return priority // BANDS if instance.policy.order == "shortest" else priority


def band_of(gang: Gang, policy: Policy, now: int, left_s: int) -> int:
    """0 for those that need the least GPU time, or have waited too long. ``left_s``: as expected.

    A running gang is one band better, so that nobody is stopped for a small difference; one that had waited
    too long when it started stays in the first.
    """
    since, limit = gang.queued_at, policy.starvation_after_s
    until = gang.started_at if gang.running else now
    if limit is not None and since is not None and until is not None and until - since > limit:
        return 0
    band = bisect_left(LIMITS_GPU_S, gang.weight_gpus * left_s)
    return max(0, band - 1) if gang.running else band


def expected_left_s(gang: Gang, now: int) -> int:
    """Seconds that the gang is expected to run from now on: as stated, else by its ``expectedDuration``.

    One that should have ended is taken to run for as long again as it is late, a minute at least.
    """
    if gang.expected_left_s is not None:
        return gang.expected_left_s
    ran = max(0, now - gang.started_at) if gang.running and gang.started_at else 0
    if gang.expected_duration_s is None:
        return max(UNKNOWN_S, ran)
    left = gang.expected_duration_s - ran
    return left if left > 0 else max(60, -left)
