"""From the choices of the exhaustive planner to decisions: pods with GPUs, what it is called, and why.

Promises: a decision is named after what its pods do, as a reader of the plan would name it.
Called by the exhaustive planner alone.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from exhaustive_ages import paused_until
from exhaustive_footing import Step
from exhaustive_ground import Ground
from exhaustive_prices import subsets
from exhaustive_queues import arrived, promises
from exhaustive_values import places, running, standing, whole

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import Decision, GangDecision, PodPlacement, Reason
from models.units import time_text


def decided(instance: Instance, ground: Ground, last: Step | None) -> tuple[GangDecision, ...]:
    """The plan that a chain of steps describes."""
    steps: dict[int, Step] = {}
    while last is not None:
        steps[last.gang] = last
        last = last.before
    pods = [
        tuple(sorted((*ground.stays[g], *_named(ground, gang, steps[g]))))
        for g, gang in enumerate(instance.gangs)
    ]
    return tuple(
        GangDecision(kind, pods[g], _reason(instance, pods, g, kind))
        for g, gang in enumerate(instance.gangs)
        for kind in (_kind(gang, pods[g]),)
    )


def _named(ground: Ground, gang: Gang, step: Step) -> Iterator[PodPlacement]:
    """The new pods with their GPUs: on each node the lowest go to the first pod."""
    left = list(step.taken)
    for r, index, n in step.way.spread.pods:
        count = gang.roles[r].gpus
        if count == 0:
            yield PodPlacement(r, index, n, 0)
        elif not ground.blind[n]:
            own = next(subsets(left[n], count))
            left[n] &= ~own
            yield PodPlacement(r, index, n, own)
        elif ground.unknown[n] == 0 and count == ground.nodes[n].gpus:
            yield PodPlacement(r, index, n, ground.nodes[n].healthy)
        else:
            yield PodPlacement(r, index, n, None)


def _kind(gang: Gang, pods: Sequence[PodPlacement]) -> Decision:
    before, after = places(standing(gang)), places(pods)
    if not running(gang):
        return "place" if after else "wait"
    if not after:
        return "preempt"
    if before == after:
        return "keep"
    if any(after.get(key, place) != place for key, place in before.items()):
        return "move"
    return "resize" if whole(gang, before) else "complete"


def _reason(
    instance: Instance, pods: Sequence[Sequence[PodPlacement]], g: int, kind: Decision
) -> Reason | None:
    gang = instance.gangs[g]
    if kind == "preempt":
        by = [
            {"gang": "/".join(instance.gangs[i].key), "priority": instance.gangs[i].priority}
            for i in _above(instance, pods, g)
        ]
        return Reason.of("Preempted", by=by)
    missing = not whole(gang, places(standing(gang)))
    if gang.hold is not None and (kind == "wait" or (kind == "keep" and missing)):
        if gang.hold.code == "Backoff" and (again := paused_until(instance, gang)) is not None:
            return Reason.of(gang.hold.code, until=time_text(again))
        return Reason.of(gang.hold.code, text=gang.hold.message)
    if kind == "wait":
        return Reason.of("NoRoom", text="it is left out")
    return Reason("Incomplete") if kind == "keep" and missing else None


def _above(instance: Instance, pods: Sequence[Sequence[PodPlacement]], g: int) -> list[int]:
    """The gangs that come to nodes of a gang that is stopped, of higher priority or to reclaim."""
    found = []
    nodes = {pod.node for pod in standing(instance.gangs[g])}
    for other, gang in enumerate(instance.gangs):
        stood: Mapping[tuple[int, int], tuple[int, int | None]] = places(standing(gang))
        come = {p.node for p in pods[other] if stood.get((p.role, p.index), (-1, 0))[0] != p.node}
        higher = gang.priority > instance.gangs[g].priority and bool(come & nodes)
        if higher or any(
            n in nodes and promises(instance).reclaims(g, other, n, gpus=gpus)
            for n, gpus in arrived(gang, [(p.role, p.index, p.node) for p in pods[other]])
        ):
            found.append(other)
    assert found, f"nobody comes for {instance.gangs[g].name}"
    return found
