"""Random reservations in tiny instances: how long gangs run, and what some that wait are promised.

Promises: deterministic by the seed; with nobody started each holder can start when it is promised.
Called by the comparison of the judge with trying every plan.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from random import Random
from typing import Any

from exhaustive_gangs import queued_since, running, standing, whole
from exhaustive_queues import NOTHING
from exhaustive_rates import bits, subsets
from exhaustive_reserving import Reserved, Reserving
from exhaustive_ways import Option, Spreading, options
from tiny import busy
from tiny_draws import HOUR

from models.documents.policy import Reservations
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.units import time_text

WITHOUT = ("unknown_gpus", "unknown_unhealthy", "overfull", "binding_none", "min_share")
"""No GPU is of unknown index, and no holder insists on a bandwidth."""


def timed(seed: int, more: Collection[str] = ()) -> Instance:
    """A busy instance in which most gangs are expected to end some time."""
    instance = busy(seed, without=WITHOUT, more=more)
    r = Random(f"{seed}/durations")
    gangs = tuple(_timed(r, instance, gang) for gang in instance.gangs)
    policy = replace(instance.policy, reservations=Reservations(per_priority=3))
    return replace(instance, gangs=gangs, policy=replace(policy, now=instance.now))


def _timed(r: Random, instance: Instance, gang: Gang) -> Gang:
    lasts, ago = r.choice((1, 2, 3, 6)) * HOUR, r.choice((0, 1, 2, 5)) * HOUR + r.choice((0, 90))
    lasts = lasts if r.random() < 0.8 else 0
    if gang.movable and ago >= lasts:  # a move that changes nothing would count as another end
        ago = 0
    return replace(
        gang,
        expected_duration_s=lasts or None,
        started_at=instance.now - ago if running(gang) and r.random() < 0.9 else None,
    )


def reserved(seed: int, instance: Instance) -> tuple[Reserved, ...]:
    """One or two reservations, where any can be found."""
    r = Random(f"{seed}/reservations")
    waiting = [g for g, gang in enumerate(instance.gangs) if not running(gang) and not gang.hold]
    r.shuffle(waiting)
    found: list[Reserved] = []
    for g in waiting[: r.choice((1, 1, 2))]:
        start = instance.now + r.choice((1, 2, 3, 5)) * HOUR
        for _ in range(8):
            one = _placed(r, instance, g, start)
            if one is not None and _stands(instance, (*found, one)):
                found.append(one)
                break
    return tuple(sorted(found, key=lambda one: one.holder))


def _placed(r: Random, instance: Instance, g: int, start: int) -> Reserved | None:
    """The gang at its least counts on random nodes and GPUs."""
    gang = instance.gangs[g]
    least = tuple((n, i) for n, role in enumerate(gang.roles) for i in role.indices(role.min))
    spreads = list(Spreading(instance).of(g, Option((), least)))
    if not spreads:
        return None
    pods, left = [], {n: node.healthy for n, node in enumerate(instance.cluster.nodes)}
    for number, index, n in r.choice(spreads).pods:
        own = r.choice(list(subsets(left[n], gang.roles[number].gpus)))
        left[n] &= ~own
        pods.append(PodPlacement(number, index, n, own))
    first = [n for n, other in enumerate(instance.gangs) if _first(other, gang)]
    return Reserved(g, start, tuple(pods), tuple(n for n in first if r.random() < 0.5))


def _first(gang: Gang, holder: Gang) -> bool:
    """Whether the gang comes before the holder in the queue, and is in it."""
    lacks = not whole(gang, [(pod.role, pod.index) for pod in standing(gang)])
    turns = [
        (-one.priority, float("inf") if (t := queued_since(one)) is None else t, one.key)
        for one in (gang, holder)
    ]
    return turns[0] < turns[1] and (not running(gang) or lacks)


def _stands(instance: Instance, found: tuple[Reserved, ...]) -> bool:
    """Whether the reservations hold if nobody starts."""
    reserving = Reserving(instance, found)
    kept = reserving.nothing
    for g, gang in enumerate(instance.gangs):
        idle = next(iter(options(instance, gang)))
        taken, known = [0] * len(instance.cluster.nodes), reserving.promises
        part = NOTHING if known is None else known.standing(g)
        kept = reserving.with_gang(g, idle, (), taken, kept, part)
    return reserving.hold(kept)


def written(instance: Instance, one: Reserved) -> dict[str, Any]:
    """The reservation as a plan states it."""
    gang, nodes = instance.gangs[one.holder], instance.cluster.nodes
    known = {(pod.role, pod.index): pod for pod in gang.pods}
    pods = []
    for pod in sorted(one.pods):
        role, existing = gang.roles[pod.role].name, known.get((pod.role, pod.index))
        entry: dict[str, Any] = {
            "name": f"{gang.name}-{role}-{pod.index}" if existing is None else existing.name,
            "role": role,
            "index": pod.index,
            "node": nodes[pod.node].name,
            "gpus": list(bits(pod.gpus or 0)),
        }
        if existing is not None and existing.uid is not None:
            entry["uid"] = existing.uid
        pods.append(entry)
    found: dict[str, Any] = {
        "start": time_text(one.start),
        "domain": _domain(instance, one.nodes),
        "nodes": sorted(nodes[n].name for n in one.nodes),
        "pods": pods,
    }
    if one.beside:
        found["beside"] = ["/".join(instance.gangs[g].key) for g in one.beside]
    return found


def _domain(instance: Instance, where: tuple[int, ...]) -> str | None:
    cluster = instance.cluster
    if len(where) == 1:
        return f"node {cluster.nodes[where[0]].name}"
    for level in reversed(range(len(cluster.levels))):
        paths = {cluster.nodes[n].domains[: level + 1] for n in where}
        if len(paths) == 1 and None not in (path := next(iter(paths))):
            return f"{cluster.levels[level].name} {path[-1]}"
    return None
