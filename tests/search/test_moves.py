"""Moves: what each set bought, which are left out, and that what is stated of them holds together."""

from __future__ import annotations

import random
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from building import build, gang, mask, role
from comparing import DAY, misstated
from effort import examples
from moves_made import decide, small

from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import MoveSet, Solution
from models.results.plan import compose
from models.rules.giving_way import unjustified_victims
from models.verify.check import check
from planner.read.inputs import read
from planner.search.improve.exchange import justified
from planner.search.solve import solve

TIERS = ("admission", "waiting", "disruption", "preference", "bandwidth", "span", "stranded")


def planned(instance: Instance, least: str | None = None) -> Solution:
    """A plan that passes the judge; ``least``: gain of a set of moves."""
    moves = None if least is None else Moves(min_gain=Fraction(least))
    limited = replace(instance, policy=replace(instance.policy, moves=moves))
    solution = solve(limited)
    document = compose(limited, solution, name="p", created_at=DAY, generator="g")
    assert check(document) == []
    return solution


def crowded() -> Instance:
    """Two independent moves: a (1 GPU) leaves n01 to big (8 GPUs), c (4 GPUs) leaves n03 to new (1 GPU).

    Servers of 8 GPUs: 7 free on n01, none on n02, 4 taken by a fixed gang on n03, 3 free on n04.
    """
    fixed = {"full": (1, mask(*range(8))), "fix": (2, mask(4, 5, 6, 7)), "fox": (3, mask(4, 5))}
    runs = [
        gang(name, 1, own.bit_count(), stands=[(0, 0, n, own)]) for name, (n, own) in fixed.items()
    ]
    moves = [small("a", 0, mask(0)), small("c", 2, mask(0, 1, 2, 3))]
    new = gang("new", roles=[role("w", selector={"kubernetes.io/hostname": "n03"})])
    return build(nodes_per_rack=4, gangs=[*runs, *moves, gang("big", 1, 8), new])


A, C = MoveSet((0,), 1, (1,), 8, 8000, 0, 0, 16000), MoveSet((2,), 4, (6,), 1, 0, 0, 0, 250)
"""a bought big, 8 GPUs at their best, for 1 GPU: 16. c bought new, 1 GPU, for 4: 0.25."""


@pytest.mark.parametrize(
    ("least", "moves"), [(None, (A, C)), ("0.25", (A, C)), ("0.251", (A,)), ("0.5", (A,))]
)
def test_a_set_of_moves_below_the_least_gain_is_left_out_and_named(
    least: str | None, moves: tuple[MoveSet, ...]
) -> None:
    found = planned(crowded(), least)
    assert found.moves == moves
    kinds = [one.decision for one in found.decisions]
    c, new = ("move", "place") if C in moves else ("keep", "wait")
    assert kinds == ["move", "place", c, "keep", "keep", "keep", new]
    notes = [note for note in found.notes if note.startswith("not moved")]
    assert notes == [
        "not moved: default/c (4 GPUs); that would gain +1 GPU admitted (default/new): a gain of 0.250, "
        f"below minGain {least}; bounds apply to plans without this move"
        for one in (A, C)
        if one not in moves
    ]
    if least == "0.5":
        page = (Path(__file__).parents[2] / "docs" / "plan.md").read_text(encoding="utf-8")
        assert f"\nnote: {notes[0]}\n" in page


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


def test_what_is_stated_of_moves_holds_together() -> None:
    moving = 0
    for seed in range(examples(12, 3)):
        instance = drawn(seed)
        free = planned(instance)
        moved = [i for i, one in enumerate(free.decisions) if one.decision == "move"]
        assert sorted(i for move in free.moves for i in move.gangs) == moved
        # Without a least gain, or with 0, nothing is left out.
        unasked = planned(instance, "0")
        assert (unasked.decisions, unasked.moves) == (free.decisions, free.moves)
        if moved:
            moving += 1
            middle = sorted(move.gain for move in free.moves)[len(free.moves) // 2] + 1
            for least in (middle, 1_000_000):
                some = planned(instance, f"{least / 1000}")
                assert all(move.gain >= least for move in some.moves)
                assert any(note.startswith("not moved: ") for note in some.notes)
            assert some.moves == ()
            assert all(one.decision != "move" for one in some.decisions)
    assert moving


def test_who_is_stopped_makes_room_for_one_that_may_take_it() -> None:
    """A gang comes where one was stopped that only another may stop: the two exchange nodes."""
    full = mask(*range(8))
    low = gang("low", stands=[(0, 0, 0, mask(0))], preemptible=True)
    mover = gang("mover", 1, 8, stands=[(0, 0, 2, full)], movable=True)
    instance = build(nodes_per_rack=3, gangs=[low, mover, gang("high", priority=1)])
    plan = decide(instance, low=None, mover=[(0, full)], high=[(1, mask(0))])
    assert unjustified_victims(instance, plan) == [1]  # in order of names: high, low, mover
    found = justified(instance, plan, lambda: False)
    assert [[pod.node for pod in one.pods] for one in found] == [[0], [], [1]]
    assert unjustified_victims(instance, found) == []
    assert justified(instance, plan, lambda: True) == plan


def test_launchers_do_not_restart_their_gangs_for_span_alone() -> None:
    """Three launchers stand alone on node1, their workers fill node0; the queue is at its limit."""
    instance = read([str(Path(__file__).parents[1] / "data" / "launchers.json")])
    solution = solve(instance)
    assert list(misstated("search", instance, solution)) == []
    assert [one.decision for one in solution.decisions] == ["wait", "keep", "keep", "keep"]
    values = {tier.name: tier.value for tier in solution.tiers}
    # each gang of 2 GPUs is on 2 nodes
    assert (values["disruption"], values["span"]) == (0, 6)
