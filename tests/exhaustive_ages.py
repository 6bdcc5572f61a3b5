"""What time makes of the gangs of a tiny instance: who is aged, whose size is held, what a stop costs.

Promises: straight from the words of the policy; takes nothing from the methods of ``Instance``; no clock.
Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from fractions import Fraction

from models.gang import Gang
from models.instance import Instance


def now(instance: Instance) -> int:
    """The policy's, or the latest time at which the input says that anything happened."""
    if instance.policy.now is not None:
        return instance.policy.now
    happened = [0]
    for gang in instance.gangs:
        happened += [gang.submitted_at or 0, gang.started_at or 0, gang.last_checkpoint or 0]
    return max(happened)


def aged(instance: Instance, gang: Gang) -> bool:
    """It waits, and has for longer than the limit."""
    after = instance.policy.starvation_after_s
    runs = any(pod.node is not None for pod in gang.pods)
    if after is None or runs or gang.submitted_at is None:
        return False
    return gang.submitted_at + after < now(instance)


def size_held(instance: Instance, gang: Gang) -> bool:
    """Its next checkpoint is yet to come, and until then its number of pods stays."""
    return gang.resize_after is not None and gang.resize_after > now(instance)


def patient_share(instance: Instance, gang: Gang) -> Fraction:
    """Of its ideal bandwidth, what a gang insists on that has not waited for long, and waits."""
    patience = gang.patience or instance.policy.patience
    runs = any(pod.node is not None for pod in gang.pods)
    if patience is None or runs or gang.submitted_at is None:
        return Fraction(0)
    until = gang.submitted_at + patience.for_s
    return patience.share if now(instance) < until else Fraction(0)


def harm(instance: Instance, gang: Gang) -> int:
    """What each of its GPUs counts in disruption: 1, nothing, or the seconds of work lost with it."""
    disruption = instance.policy.disruption
    if disruption.weight in ("gpus", "none"):
        return int(disruption.weight == "gpus")
    begun = max(gang.started_at or 0, gang.last_checkpoint or 0)
    known = gang.started_at is not None or gang.last_checkpoint is not None
    lost = now(instance) - begun if known else disruption.cap_s
    return sorted((1, lost, disruption.cap_s))[1] if disruption.cap_s > 1 else 1
