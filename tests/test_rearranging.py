"""Gangs that start are placed once more, small ones first: what that is good for, and that it costs nothing.

Servers have 8 GPUs; racks and blocks are those of ``building``.
"""

from __future__ import annotations

from random import Random
from threading import Event

from building import build, gang, node
from building_servers import switched
from by_steps import better, faults, values
from effort import examples
from tiny import tiny
from tiny_busy import busy

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.program.base_state import base_decisions
from planner.search.budget import Budget
from planner.search.explain.reasons import with_reasons
from planner.search.improve.rearranging import rearrange
from planner.search.start.greedy import greedy

SEEDS = examples(200, 40)


def uneven_racks() -> Instance:
    """Two servers in one rack and three more in racks of their own; a gang of three and one of two."""
    racks = ["r1", "r1", "r2", "r3", "r4"]
    nodes = [node(f"n{i}", switched(8), "b1", rack) for i, rack in enumerate(racks)]
    return build(nodes=nodes, gangs=[gang("big", 3, 8), gang("small", 2, 8, prefer="rack")])


def test_a_small_gang_gets_the_domain_that_a_large_one_took_without_need() -> None:
    instance = uneven_racks()
    start = greedy(instance, base_decisions(instance))
    # The large gang is first and takes few racks: r1 and another. The small one is left with two racks.
    assert values(instance, start)["preference"] == 0
    again = rearrange(instance, start)
    # 2 pods of 8 GPUs within one rack; the large gang is in three racks instead.
    assert values(instance, again)["preference"] == 16
    assert {pod.node for pod in again[1].pods} == {0, 1}


def test_random_plans_stay_valid_and_get_no_worse() -> None:
    changed = 0
    for seed in range(SEEDS):
        r = Random(f"rearranging/{seed}")
        more = ["running", "elastic", "priorities"]
        more += [f for f in ("incomplete", "unknown_gpus", "slices") if r.random() < 0.25]
        instance = tiny(seed, more=more) if seed % 2 else busy(seed)
        start = greedy(instance, base_decisions(instance))
        again = rearrange(instance, start)
        assert better(instance, again) >= better(instance, start), seed
        reasoned = with_reasons(instance, again, Budget(SolveLimits(), Event()))
        assert faults(instance, reasoned) == [], seed
        changed += again != start
    assert changed < SEEDS
