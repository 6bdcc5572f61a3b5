"""Moves of small random clusters, searched for in earnest: what is stated of them holds together."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, mask
from effort import examples, first_fast

from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import Solution
from models.results.plan import compose
from models.verify.check import check
from planner.search.solve import solve

TIERS = ("admission", "waiting", "disruption", "preference", "bandwidth", "span", "stranded")


def drawn(seed: int) -> Instance:
    """Two racks of two servers of 4 GPUs; movable gangs of 1 or 2 GPUs on them, two gangs that wait.

    Every other one moves for whole servers as well (defragment).
    """
    draw = random.Random(seed)
    free = {n: [0, 1, 2, 3] for n in range(4)}
    gangs: list[Gang] = []
    for number in range(draw.randint(2, 5)):
        gpus, n = draw.choice((1, 1, 2)), draw.randrange(4)
        if len(free[n]) < gpus + 1:
            continue
        taken, free[n] = free[n][:gpus], free[n][gpus:]
        stands = [(0, 0, n, mask(*taken))]
        movable = draw.random() < 0.8
        gangs.append(gang(f"run{number}", 1, gpus, stands=stands, movable=movable))
    for number in range(2):
        pods, gpus = draw.choice(((1, 4), (2, 4), (1, 3), (2, 2)))
        same = draw.choice((None, "rack"))
        gangs.append(gang(f"new{number}", pods, gpus, same=same, priority=draw.choice((0, 5))))
    objectives = ("admission", "waiting", "defragment", *TIERS[2:]) if seed % 2 else TIERS
    made = build(racks=2, nodes_per_rack=2, gpus=4, gangs=gangs, objectives=objectives)
    limits = SolveLimits(budget=20, time_limit_s=20, workers=1)
    return replace(made, policy=replace(made.policy, solve=limits))


def planned(instance: Instance, least: str | None) -> Solution:
    moves = None if least is None else Moves(min_gain=Fraction(least))
    limited = replace(instance, policy=replace(instance.policy, moves=moves))
    solution = solve(limited)
    document = compose(
        limited, solution, name="p", created_at="2026-11-21T00:00:00Z", generator="g"
    )
    assert check(document) == []
    return solution


@pytest.mark.parametrize("seed", first_fast(range(12), 4))
def test_what_is_stated_of_moves_holds_together(seed: int) -> None:
    instance = drawn(seed)
    free = planned(instance, None)
    moved = [i for i, one in enumerate(free.decisions) if one.decision == "move"]
    assert sorted(i for move in free.moves for i in move.gangs) == moved
    # Without a least gain, or with 0, nothing is left out.
    unasked = planned(instance, "0")
    assert (unasked.decisions, unasked.moves) == (free.decisions, free.moves)
    if moved:
        middle = sorted(move.gain for move in free.moves)[len(free.moves) // 2] + 1
        for least in (middle, 1_000_000):
            some = planned(instance, f"{least / 1000}")
            assert all(move.gain >= least for move in some.moves)
            named = [note for note in some.notes if note.startswith("not moved: ")]
            assert named, "the poorest set was left out, and a note says so"
        assert some.moves == ()
        assert all(one.decision != "move" for one in some.decisions)


def test_some_of_these_clusters_move() -> None:
    tried = examples(12, 4)
    moving = sum(bool(planned(drawn(seed), None).moves) for seed in range(tried))
    assert moving >= tried // 2
