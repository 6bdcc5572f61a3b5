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
    policy, now, unit = instance.policy, instance.now, instance.gpu_unit
    if policy.order != "shortest":
        return instance
    left = ((gang, expected_left_s(gang, policy, now)) for gang in instance.gangs)
    gangs = tuple(in_band(gang, band_of(gang, policy, now, left_s, unit)) for gang, left_s in left)
    return replace(instance, gangs=gangs)


def in_band(gang: Gang, band: int) -> Gang:
    """The gang in this band of the priority that its document states."""
    own = gang.own_priority
    return replace(gang, priority=BANDS * own + BANDS - 1 - band, stated_priority=own)


def band_of(gang: Gang, policy: Policy, now: int, left_s: int, unit: int) -> int:
    """0 for those that need the least GPU time, or have waited too long.

    ``left_s``: as expected. ``unit``: what a GPU counts. An elastic gang counts at its largest: it would take
    that. A running gang is one band better, so that nobody is stopped for a small difference; one that had
    waited too long when it started stays in the first.
    """
    since, limit = gang.submitted_at, policy.starvation_after_s
    until = gang.begun_at if gang.running else now
    if limit is not None and since is not None and until is not None and until - since > limit:
        return 0
    band = bisect_left(LIMITS_GPU_S, -(-gang.most_gpus * left_s // unit))
    return max(0, band - 1) if gang.running else band


def expected_left_s(gang: Gang, policy: Policy, now: int) -> int:
    """Seconds that the gang is expected to run from now on: as its document says, else as it has run.

    What it says itself, its ``expectedDuration``, counts only where the policy trusts it, until it is over.
    """
    if gang.expected_left_s is not None:
        return gang.expected_left_s
    ran = max(0, now - gang.begun_at) if gang.running and gang.begun_at else 0
    stated = gang.expected_duration_s
    if policy.trust_durations and stated is not None and stated > ran:
        return stated - ran
    return max(UNKNOWN_S, ran)
