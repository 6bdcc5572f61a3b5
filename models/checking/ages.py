"""What time makes of a gang: whether it is aged, whether its size is held, what a stop would cost it.

All of it is counted to ``now``: the policy's, else the latest submittedAt, startedAt or lastCheckpoint.
Promises: whole seconds, no clock. Called by the rules, the tiers and the comparison with what is stated.
"""

from __future__ import annotations

from models.checking.facts import Facts, Gang


class Ages:
    """Times of one instance."""

    def __init__(self, facts: Facts) -> None:
        self.policy = facts.policy
        # T of the contract
        self.latest_submission = max(
            (gang.submitted for gang in facts.gangs if gang.submitted is not None), default=0
        )
        named = (t for g in facts.gangs for t in (g.submitted, g.started, g.checkpoint))
        latest = max((time for time in named if time is not None), default=0)
        self.now = latest if self.policy.now is None else self.policy.now

    def aged(self, gang: Gang) -> bool:
        """It waits, and has waited for longer than the limit."""
        limit = self.policy.starvation
        if limit is None or gang.running or gang.submitted is None:
            return False
        return self.now - gang.submitted > limit

    def size_held(self, gang: Gang) -> bool:
        """It runs, and its number of pods stays until a checkpoint that is yet to come."""
        return gang.running and gang.resize_after is not None and gang.resize_after > self.now

    def harm(self, gang: Gang) -> int:
        """What one of its GPUs counts in disruption: 1, or the seconds of runtime it would lose.

        Seconds since it started or last wrote a checkpoint, whichever is later, from 1 to the cap; the
        cap where neither is known.
        """
        cap = self.policy.lost_cap
        if cap is None:
            return 1
        times = [time for time in (gang.started, gang.checkpoint) if time is not None]
        lost = self.now - max(times) if times else cap
        return max(1, min(cap, lost))
