"""Random histories of a cluster: gangs arrive, run for as long as they said, and end.

Promises: the same seed gives the same gangs; time jumps from event to event, and at each one a planner
decides who starts; a gang that is stopped starts from the beginning. Called by the test of reservations.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from random import Random

from building import build, gang

from models.documents.policy import DAY_S, Reservations
from models.instance.cluster import Cluster
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.solution import GangDecision
from models.starts.empty_starts import EmptyStarts

NODES, LARGE = 80, 64
MINUTE_S = 60

Planner = Callable[[Instance], Sequence[GangDecision]]


@dataclass(frozen=True)
class Arrival:
    """A gang, and the second at which it comes."""

    gang: Gang
    at: int


@dataclass
class History:
    """``starts``: the last start of every gang. ``busy``: (start, end, nodes) of what ran."""

    starts: dict[str, int] = field(default_factory=dict)
    busy: list[tuple[int, int, int]] = field(default_factory=list)

    def node_seconds(self, until: int) -> int:
        """What the cluster has worked until then."""
        return sum(max(0, min(end, until) - start) * nodes for start, end, nodes in self.busy)


def arrivals(seed: int) -> tuple[Cluster, Policy, list[Arrival]]:
    """Small gangs from the start, then one that needs 64 of the 80 nodes, and small ones behind it."""
    r = Random(seed)
    blocks = r.choice((1, 2))
    instance = build(blocks=blocks, racks=1, nodes_per_rack=NODES // (2 if blocks == 2 else 1))
    large = LARGE // blocks
    came = [Arrival(_small(r, n, 0), 0) for n in range(r.randint(8, 16))]
    at = r.randint(1, 60) * MINUTE_S
    same = "block" if blocks == 2 else None
    wide = gang("large", large, 8, priority=100, submitted=at, same=same)
    came.append(Arrival(replace(wide, expected_duration_s=_minutes(r, 30, 300)), at))
    for n in range(r.randint(15, 25)):
        at += r.randint(0, 20) * MINUTE_S
        came.append(Arrival(_small(r, 100 + n, at), at))
    policy = replace(
        instance.policy,
        reservations=Reservations(per_priority=1, horizon_s=DAY_S, priorities=((">=", 100),)),
    )
    return instance.cluster, policy, came


def _small(r: Random, number: int, at: int) -> Gang:
    nodes = r.choice((1, 1, 2, 2, 4, 8, 16))
    one = gang(f"g{number:03}", nodes, 8, priority=r.choice((0, 0, 10)), submitted=at)
    lower = r.random() < 0.15
    return replace(one, expected_duration_s=_minutes(r, 10, 240), preemptible=lower)


def _minutes(r: Random, least: int, most: int) -> int:
    return r.randint(least, most) * MINUTE_S


def lived(cluster: Cluster, policy: Policy, came: Sequence[Arrival], plan: Planner) -> History:
    """What happens if this planner decides at every arrival and every end."""
    found = History()
    waiting: dict[str, Gang] = {}
    running: dict[str, Gang] = {}
    ahead = sorted(came, key=lambda one: (one.at, one.gang.name))
    ends: list[tuple[int, str, int]] = []
    while ahead or ends:
        now = min([one.at for one in ahead[:1]] + [end for end, _, _ in ends[:1]])
        while ends and ends[0][0] <= now:
            end, name, started = heapq.heappop(ends)
            if name in running and running[name].started_at == started:
                _leave(found, running.pop(name), end)
        while ahead and ahead[0].at <= now:
            one = ahead.pop(0).gang
            waiting[one.name] = one
        gangs = sorted([*waiting.values(), *running.values()], key=lambda one: one.key)
        instance = Instance(cluster, tuple(gangs), replace(policy, now=now), starts=EmptyStarts)
        for one, decision in zip(instance.gangs, plan(instance), strict=True):
            if decision.decision == "preempt":
                stopped = running.pop(one.name)
                _leave(found, stopped, now)
                waiting[one.name] = replace(stopped, pods=(), started_at=None)
            elif decision.decision == "place":
                del waiting[one.name]
                running[one.name] = _running(one, decision, now)
                found.starts[one.name] = now
                assert one.expected_duration_s is not None
                heapq.heappush(ends, (now + one.expected_duration_s, one.name, now))
    assert not waiting, "every gang fits the empty cluster"
    return found


def _leave(found: History, one: Gang, end: int) -> None:
    assert one.started_at is not None
    found.busy.append((one.started_at, end, len(one.pods)))


def _running(one: Gang, decision: GangDecision, now: int) -> Gang:
    pods = tuple(
        ExistingPod(f"{one.name}-{p.index}", p.role, p.index, node=p.node, gpus=p.gpus)
        for p in decision.pods
    )
    return replace(one, pods=pods, started_at=now)
