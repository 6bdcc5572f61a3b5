"""The exhaustive planner's queues against plans worked out by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from building import build, gang
from exhaustive import plan

from models.documents.policy import Objective
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Amount, Cell, Queue


def queued(instance: Instance, *queues: Queue, **named: str) -> Instance:
    """With these queues; ``named``: the queue of each gang that is in one."""
    gangs = tuple(replace(g, queue=named.get(g.name)) for g in instance.gangs)
    return replace(instance, gangs=gangs, queues=queues)


def decisions(instance: Instance) -> dict[str, str]:
    best = plan(instance).decisions
    return {g.name: d.decision for g, d in zip(instance.gangs, best, strict=True)}


def runs(name: str, node: int, *, priority: int = 0, preemptible: bool = True) -> Gang:
    """A gang on all eight GPUs of a node."""
    stands = ((0, 0, node, 255),)
    return gang(name, 1, 8, stands=stands, priority=priority, preemptible=preemptible)


def test_a_limit_makes_a_gang_wait_and_what_is_held_already_does_not_count_against_it() -> None:
    both = build(
        nodes_per_rack=2, gangs=[gang("a", 1, 8, submitted=0), gang("b", 1, 8, submitted=60)]
    )
    limit = Queue("q", limit=Amount(8))
    assert decisions(queued(both, limit, a="q", b="q")) == {"a": "place", "b": "wait"}
    running = build(nodes_per_rack=2, gangs=[runs("a", 0), gang("b", 1, 8)])
    none = Queue("q", limit=Amount(0))
    assert decisions(queued(running, none, a="q", b="q")) == {"a": "keep", "b": "wait"}


@pytest.mark.parametrize(("preemptible", "there"), [(False, "wait"), (True, "place")])
def test_only_a_gang_that_may_stop_borrows_what_is_guaranteed(
    preemptible: bool, there: str
) -> None:
    one = build(gangs=[replace(gang("a", 1, 8), preemptible=preemptible)])
    assert decisions(queued(one, Queue("q", guarantee=Amount(1)))) == {"a": there}
    assert decisions(queued(one, Queue("q", guarantee=Amount(1)), a="q")) == {"a": "place"}


def test_a_queue_reclaims_its_guarantee_from_a_gang_of_higher_priority() -> None:
    one = build(gangs=[runs("a", 0, priority=10), gang("b", 1, 8)])
    own = Queue("q", guarantee=Amount(8))
    assert decisions(queued(one, own, b="q")) == {"a": "preempt", "b": "place"}
    assert decisions(queued(one, replace(own, reclaim=False), b="q")) == {"a": "keep", "b": "wait"}
    # the gang would hold more than the guarantee
    assert decisions(queued(one, Queue("q", guarantee=Amount(7)), b="q"))["a"] == "keep"
    # the other queue holds no more than its own guarantee
    rival = Queue("r", guarantee=Amount(8))
    assert decisions(queued(one, own, rival, a="r", b="q"))["a"] == "keep"


@pytest.mark.parametrize(("gpus", "there"), [(8, "place"), (9, "wait")])
def test_cells_keep_a_rack_free_of_strangers(gpus: int, there: str) -> None:
    # two racks of one node; a pod of 1 GPU for each GPU
    strangers = gang("a", gpus, 1)
    racks = build(racks=2, gangs=[strangers])
    queue = Queue("q", cells=(Cell(1, level=1),))
    assert decisions(queued(racks, queue)) == {"a": there}
    assert decisions(queued(racks, queue, a="q")) == {"a": "place"}


def test_cells_of_a_queue_below_lie_inside_those_of_its_parent() -> None:
    racks = build(racks=2, gangs=[gang("a", 1, 8)])
    top, low = Queue("p", cells=(Cell(1, level=1),)), Queue("q", 0, cells=(Cell(1, level=2),))
    assert decisions(queued(racks, top, low)) == {"a": "place"}
    assert decisions(queued(racks, top, replace(low, parent=None))) == {"a": "wait"}


def test_fair_shares_come_before_what_they_are_listed_before() -> None:
    # of 16 GPUs q holds 8 already; f is 1/2 for each: 10^6 x (8/16) / (1/2) = 10^6
    three = build(
        nodes_per_rack=2,
        gangs=[runs("a", 0, preemptible=False), gang("b", 1, 8, priority=5), gang("c", 1, 8)],
    )
    fair = replace(three.policy, objectives=(Objective("fair"), *three.policy.objectives))
    shared = queued(replace(three, policy=fair), Queue("q"), Queue("r"), a="q", b="q", c="r")
    assert decisions(shared) == {"a": "keep", "b": "wait", "c": "place"}
    assert plan(shared).tiers[:2] == (("fair/1", 10**6), ("fair/2", 2 * 10**6))
