"""Rule 2.17: whatever gangs run that cannot be stopped, places are left for the cells of every queue.

Servers of eight GPUs, two in each rack, unless a test says otherwise.
"""

from __future__ import annotations

import random
from dataclasses import replace

import pytest
from building import LEVELS, build, gang, mask, node
from building_servers import switched
from celled import celled, firm_pods, lost, most_admitted, only_cells
from effort import examples, spread

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Cell, Queue
from models.instance.solution import GangDecision, PodPlacement, Solution
from models.program.base_state import base_decisions
from models.queues.cell_places import Reach, allowed_losses
from models.queues.cells import cells_by_model
from planner.search.solve import solve
from planner.search.start.greedy import greedy
from planner.show.reason_words import words

RACK, NODE = LEVELS.index("rack"), LEVELS.index("node")


def shared(*gangs: Gang, cells: dict[str, tuple[Cell, ...]], racks: int = 2) -> Instance:
    """Racks of two servers. ``cells``: of each queue, by its name."""
    queues = tuple(Queue(name, cells=own) for name, own in sorted(cells.items()))
    built = build(racks=racks, nodes_per_rack=2, gangs=gangs)
    return only_cells(replace(built, queues=queues))


def of(queue: str | None, one: Gang) -> Gang:
    return replace(one, queue=queue)


def decisions(instance: Instance) -> dict[str, str]:
    """What is decided about each gang; the plan is proven best and keeps the rule."""
    found = solve(instance)
    assert found.stopped_by == "proof"
    assert not over(instance, found.decisions)
    return {g.name: d.decision for g, d in zip(instance.gangs, found.decisions, strict=True)}


def over(instance: Instance, after: tuple[GangDecision, ...]) -> dict[str, int]:
    """GPUs of cells that a plan takes away, by model: after it less before it."""

    def counted(pods: list[list[tuple[int, int]]]) -> dict[str, int]:
        return lost(instance, firm_pods(instance, pods))

    before = counted([[(p.role, p.node) for p in own] for own in instance.standing])
    now = counted([[(p.role, p.node) for p in one.pods] for one in after])
    return {model: now[model] - most for model, most in before.items() if now[model] > most}


def test_the_last_rack_is_left_to_the_queue_that_is_promised_one() -> None:
    # "first" takes a server of one rack, "second" its other one; nobody else gets one of the last rack
    others = [gang(name, 1, 8, priority=2) for name in ("first", "second", "third")]
    instance = shared(*others, cells={"a": (Cell(1, RACK),)})
    found = solve(instance)
    assert [d.decision for d in found.decisions] == ["place", "place", "wait"]
    reason = found.decisions[2].reason
    assert reason is not None
    assert reason.code == "Quota"
    assert words(reason) == (
        "needs 8 GPUs; where there is room, it would take a whole rack that is promised to queue 'a'"
    )
    # the queue itself gets it, and so does a gang that may be stopped
    assert decisions(
        shared(*others, of("a", gang("own", 2, 8, same="rack")), cells={"a": (Cell(1, RACK),)})
    ) == {
        "first": "place",
        "own": "place",
        "second": "place",
        "third": "wait",
    }
    lent = replace(others[2], preemptible=True)
    assert decisions(shared(*others[:2], lent, cells={"a": (Cell(1, RACK),)}))["third"] == "place"


def test_the_cells_of_a_queue_lie_in_those_of_its_parent() -> None:
    queues = (
        Queue("a", cells=(Cell(1, RACK),)),
        Queue("b", parent=0, cells=(Cell(2, NODE),)),
    )
    others = [gang(f"g{i}", 1, 8) for i in range(3)]
    nested = replace(build(racks=2, nodes_per_rack=2, gangs=others), queues=queues)
    assert list(decisions(nested).values()) == ["place", "place", "wait"]
    beside = replace(nested, queues=(queues[0], replace(queues[1], parent=None)))
    assert list(decisions(beside).values()) == ["wait", "wait", "wait"]


def test_a_place_is_wholly_in_order_and_what_is_lost_before_binds_nobody() -> None:
    nodes = [node(f"n{i}", switched(), "b1", f"r{i // 2}", ready=i != 0) for i in range(4)]
    cells = (Queue("a", cells=(Cell(1, RACK),)),)
    one = replace(build(nodes=nodes, gangs=[gang("g", 1, 8)]), queues=cells)
    # r0 has lost a server, r1 is the only place for the cell
    assert allowed_losses(one) == (0,)
    found = solve(one).decisions
    assert [pod.node for pod in found[0].pods] == [1]
    # a stranger has run in r1 all along: there is no place before, and the plan is free
    ran = gang("ran", 1, 8, stands=[(0, 0, 2, mask(*range(8)))])
    built = build(nodes=nodes, gangs=[ran, *(gang(f"g{i}", 1, 8) for i in range(2))])
    late = only_cells(replace(built, queues=cells))
    assert allowed_losses(late) == (16,)
    assert list(decisions(late).values()) == ["place", "place", "keep"]


def test_the_places_that_are_found_are_the_most_of_all_ways() -> None:
    for seed in range(examples(1000, 120)):
        instance = celled(seed)
        pods = [[(p.role, p.node) for p in own] for own in instance.standing]
        expected = lost(instance, firm_pods(instance, pods))
        models = (cells.model for cells in cells_by_model(instance))
        found = dict(zip(models, allowed_losses(instance), strict=True))
        assert {model: gpus for model, gpus in expected.items() if model in found} == found, seed
        assert not any(gpus for model, gpus in expected.items() if model not in found), seed


@pytest.mark.parametrize("first", spread(range(0, 300, 10), 10))
def test_the_best_plan_is_that_of_trying_every_plan(first: int) -> None:
    for seed in range(first, first + 10):
        instance = celled(seed, waiting=3)
        found = solve(instance)
        assert found.stopped_by == "proof", seed
        assert not over(instance, found.decisions), seed
        most = most_admitted(instance)
        assert {p: _admitted(found, p) for p in most} == most, seed
        assert not over(instance, greedy(instance, base_decisions(instance))), seed


def _admitted(found: Solution, priority: int) -> int:
    return next(tier.value for tier in found.tiers if tier.name == f"admission/{priority}")


def test_what_is_kept_after_many_changes_is_what_trying_every_way_keeps() -> None:
    for seed in range(examples(100, 12)):
        instance, r = celled(seed), random.Random(seed)
        pods = [list(own) for own in instance.standing]
        waiting = [g for g, own in enumerate(pods) if not own]
        before = lost(
            instance, firm_pods(instance, [[(p.role, p.node) for p in own] for own in pods])
        )
        reach = Reach(instance, enumerate(pods))
        for _ in range(25):
            gang, n = r.choice(waiting), r.randrange(len(instance.cluster.nodes))
            reach.closed(gang)
            if pods[gang] and r.random() < 0.5:
                reach.add(gang, [pods[gang].pop()], -1)
                continue
            pod = PodPlacement(0, len(pods[gang]), n, 1)
            if r.random() < 0.5 and not reach.allows(gang, [pod]):
                continue
            reach.add(gang, [pod])
            pods[gang].append(pod)
            now = lost(
                instance, firm_pods(instance, [[(p.role, p.node) for p in own] for own in pods])
            )
            kept = all(now[model] <= most for model, most in before.items())
            assert reach.keep() is kept, seed
            if not kept:
                reach.add(gang, [pods[gang].pop()], -1)
