"""Moves: what each set bought, and which are left out; searches are made up."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from fractions import Fraction
from pathlib import Path

import pytest
from building import build, gang, mask, node, role
from building_servers import switched
from moves_made import decide, small, solved

from models.documents.policy import Objective
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.instance.solution import GangDecision, MoveSet, Solution, TierResult
from models.program.aggregated.model import AggregatedModel
from models.program.base_state import base_decisions
from models.values.relocation import MOVES_UNPROVEN
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.improve import moves as moving
from planner.search.improve.moves import keep_worthwhile
from planner.search.start.guided import follow


def with_least(instance: Instance, gain: str) -> Instance:
    return replace(instance, policy=replace(instance.policy, moves=Moves(min_gain=Fraction(gain))))


class Runs:
    """A search that knows its answers: by the names of the movable gangs that may still move."""

    def __init__(self, instance: Instance, plans: Mapping[str, Solution]) -> None:
        self.instance = instance
        self.plans = plans
        self.asked: list[str] = []

    def __call__(self, immovable: frozenset[int]) -> Solution:
        free = [
            one.name
            for i, one in enumerate(self.instance.gangs)
            if one.movable and one.running and i not in immovable
        ]
        self.asked.append(" ".join(free))
        return self.plans[self.asked[-1]]


def never(immovable: frozenset[int]) -> Solution:
    raise AssertionError(f"nothing moves, yet a search without {sorted(immovable)} is asked for")


def crowded(least: str | None = None) -> tuple[Instance, dict[str, Solution]]:
    """Two independent moves: a (1 GPU) leaves n01 to big (8 GPUs), c (4 GPUs) leaves n03 to new (1 GPU).

    n01 to n04 of 8 GPUs each: 7 free on n01, 4 taken by a fixed gang on n03 and 3 on n04.
    """
    instance = build(
        nodes_per_rack=4,
        gangs=[
            small("a", 0, mask(0)),
            gang("big", 1, 8),
            small("c", 2, mask(0, 1, 2, 3)),
            gang("fix", 1, 4, stands=[(0, 0, 2, mask(4, 5, 6, 7))]),
            gang("fox", 1, 2, stands=[(0, 0, 3, mask(4, 5))]),
            gang("full", 1, 8, stands=[(0, 0, 1, mask(*range(8)))]),
            gang("new", roles=[role("w", 1, 1, requests={})]),
        ],
    )
    if least is not None:
        instance = with_least(instance, least)
    a, c = [(3, mask(6))], [(3, mask(0, 1, 2, 3))]
    big, new = [(0, mask(*range(8)))], [(2, mask(0))]
    plans = {
        "a c": decide(instance, a=a, big=big, c=c, new=new),
        "a": decide(instance, a=a, big=big),
        "c": decide(instance, c=c, new=new),
        "": decide(instance),
    }
    return instance, {name: solved(instance, plan) for name, plan in plans.items()}


def test_a_plan_without_moves_is_returned_without_a_search() -> None:
    instance, plans = crowded()
    assert keep_worthwhile(instance, plans[""], never) == plans[""]


def test_each_set_is_told_by_the_plan_in_which_only_the_others_move() -> None:
    instance, plans = crowded()
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, plans["a c"], runs)
    assert runs.asked == ["c", "a"]
    assert found.decisions == plans["a c"].decisions
    # a bought big, 8 GPUs at their best, for 1 GPU: 16. c bought new, 1 GPU, for 4: 0.25.
    assert found.moves == (
        MoveSet((0,), 1, (1,), 8, 8000, 0, 0, 16000),
        MoveSet((2,), 4, (6,), 1, 0, 0, 0, 250),
    )
    assert found.notes == ()


def test_a_set_below_the_least_gain_is_left_out_and_named() -> None:
    instance, plans = crowded("0.5")
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, plans["a c"], runs)
    # Judged: c alone and a alone; then solved again without c: the same plan as a alone; then a judged.
    assert runs.asked == ["c", "a", ""]
    assert found.decisions == plans["a"].decisions
    assert found.tiers == plans["a"].tiers
    assert found.moves == (MoveSet((0,), 1, (1,), 8, 8000, 0, 0, 16000),)
    (note,) = found.notes
    page = (Path(__file__).parent.parent / "docs" / "plan.md").read_text(encoding="utf-8")
    assert f"\nnote: {note}\n" in page
    assert note == (
        "not moved: default/c (4 GPUs); that would gain +1 GPU admitted (default/new): a gain of 0.250, "
        "below minGain 0.5; bounds apply to plans without this move"
    )


@pytest.mark.parametrize(("least", "kept"), [("0.25", 2), ("0.251", 1), ("16", 1), ("16.001", 0)])
def test_a_set_that_just_reaches_the_least_gain_stays(least: str, kept: int) -> None:
    instance, plans = crowded(least)
    found = keep_worthwhile(instance, plans["a c"], Runs(instance, plans))
    assert len(found.moves) == kept
    assert len(found.notes) == 2 - kept


def test_a_least_gain_that_thousandths_cannot_show_is_taken_rounded_down() -> None:
    # A third: c would need 2/3 of a GPU more. 0.25 is told; 0.2504 asks for 0.250 as it is told.
    instance, plans = crowded("0.2504")
    assert len(keep_worthwhile(instance, plans["a c"], Runs(instance, plans)).moves) == 2


def negative() -> tuple[Instance, Solution, Solution]:
    """A move by which a higher gang of 1 GPU comes and a lower one of 2 GPUs does not."""
    instance = build(
        nodes=[node("n01", switched(2)), node("n02", switched(2))],
        gangs=[
            gang("high", 1, 1, roles=[role("w", 1, 1, selector={"on": "n01"})], priority=9),
            gang("low", 1, 2),
            small("own", 0, mask(0)),
            gang("pal", 1, 1, stands=[(0, 0, 0, mask(1))]),
        ],
    )
    plan = decide(instance, high=[(0, mask(0))], own=[(1, mask(0))])
    return (
        instance,
        solved(instance, plan),
        solved(instance, decide(instance, low=[(1, mask(0, 1))])),
    )


def test_a_gain_below_zero_is_stated_and_left_out_only_if_a_least_gain_is_asked_for() -> None:
    instance, plan, without = negative()
    # -1 GPU admitted, low's 2 x 1000 permille lost; for 1 GPU: -3
    lost = MoveSet((2,), 1, (0,), -1, -2000, 0, 0, -3000)
    for limits in (None, Moves(max_gangs=2), Moves(min_gain=Fraction(0))):
        limited = replace(instance, policy=replace(instance.policy, moves=limits))
        found = keep_worthwhile(limited, plan, lambda _: without)
        assert (found.decisions, found.moves) == (plan.decisions, (lost,))
        assert found.notes == ("default/own moves to improve admission/9: 1 with, 0 without",)
    found = keep_worthwhile(with_least(instance, "0.001"), plan, lambda _: without)
    assert (found.decisions, found.moves) == (without.decisions, ())
    assert "gain -1 GPU admitted (default/high), -2.000 GPUs' worth of bandwidth" in found.notes[0]


def test_a_set_whose_figures_do_not_tell_what_it_is_for_is_said_to_be_for_that_tier() -> None:
    # own moves so that a gang of priority 5 keeps its GPU: nothing that is counted was gained.
    instance, plan, _ = negative()
    kept = replace(plan.tiers[0], name="kept/5", value=1, best=1, bound=1)
    with_it = replace(plan, tiers=(kept,))
    without = replace(plan, decisions=base_decisions(instance), tiers=(replace(kept, value=0),))
    found = keep_worthwhile(instance, with_it, lambda _: without)
    assert found.notes == ("default/own moves to improve kept/5: 1 with, 0 without",)
    # A tier of which less is better, and gains of 16 and 0.25 (see above).
    instance, plans = crowded()
    less = replace(kept, name="stranded", sense="min")
    made = {k: replace(p, tiers=(replace(less, value=9 - len(k)),)) for k, p in plans.items()}
    found = keep_worthwhile(instance, made["a c"], Runs(instance, made))
    assert [move.gain for move in found.moves] == [16000, 250]
    assert found.notes == tuple(
        f"default/{one} moves to improve stranded: 6 with, 8 without" for one in "ac"
    )


def test_figures_against_an_unproven_plan_are_marked_so() -> None:
    instance, plans = crowded()
    loose = solved(instance, plans["c"].decisions, slack=1)
    found = keep_worthwhile(instance, plans["a c"], Runs(instance, {**plans, "c": loose}))
    assert [move.gain for move in found.moves] == [16000, 250]
    assert found.notes == (MOVES_UNPROVEN,)


def test_a_plan_that_is_as_good_without_a_set_takes_its_place() -> None:
    # A search that was cut: its plan with a and c moving lacks new, so that c moves for nothing.
    instance, plans = crowded()
    cut = decide(instance, a=[(3, mask(6))], big=[(0, mask(*range(8)))], c=[(3, mask(0, 1, 2, 3))])
    first = solved(instance, cut, slack=5)
    runs = Runs(instance, plans)
    found = keep_worthwhile(instance, first, runs)
    # "c" lacks big and is no better; "a" is as good in all tiers and less disruptive; then a is judged.
    assert runs.asked == ["c", "a", ""]
    assert found.decisions == plans["a"].decisions
    assert [move.gangs for move in found.moves] == [(0,)]
    # What was proven of the first plan is proven of this one, not what holds while c stays.
    bounds = {tier.name: (tier.value, tier.bound) for tier in found.tiers}
    assert bounds["admission/0"] == (27, 32)  # 1 + 8 + 4 + 4 + 2 + 8 GPUs
    assert bounds["disruption"] == (1, 0)  # 5 with c's move
    assert found.stopped_by == "budget"
    assert found.notes == ()


def test_bounds_after_the_first_worse_tier_are_those_of_the_smaller_plan_and_said_so() -> None:
    instance, plans = crowded()

    def stated(decisions: Sequence[GangDecision], *tiers: tuple[int, int]) -> Solution:
        names = ("preference", "span", "growth/0")
        made = zip(names, ("max", "min", "max"), tiers, strict=True)
        results = tuple(TierResult(n, s, v, v, b, "exact") for n, s, (v, b) in made)  # type: ignore[arg-type]
        return Solution(tuple(decisions), results, "time", "made up")

    # The plan without a's move is better in a (6 > 5), worse in b (4 > 3), whatever c is.
    first = stated(decide(instance, a=[(3, mask(6))]), (5, 8), (3, 2), (2, 7))
    other = stated(plans[""].decisions, (6, 6), (4, 4), (9, 9))
    found = keep_worthwhile(instance, first, lambda _: other)
    assert found.decisions == other.decisions
    # Plans that are as good in a: the first one's bounds of a and b. As good in b: no bound of the first one.
    assert [(t.value, t.best, t.bound) for t in found.tiers] == [(6, 6, 8), (4, 4, 2), (9, 9, 9)]
    assert found.stopped_by == "time"
    assert found.notes == ("some bounds apply only to plans in which fewer gangs may move",)
    # Had the first plan been better in a already, it would stay.
    assert (
        keep_worthwhile(
            instance,
            replace(first, tiers=other.tiers[:0] + first.tiers),
            lambda _: replace(other, tiers=(replace(other.tiers[0], value=4), *other.tiers[1:])),
        ).decisions
        == first.decisions
    )


def test_a_search_that_was_cut_gives_way_to_a_better_plan_found_before() -> None:
    # fox may move, too, but does not. c is not worth it. Searched again without c, the plan lacks big,
    # but the one in which neither c nor fox might move had it.
    given, _ = crowded("0.5")
    gangs = tuple(replace(g, movable=g.movable or g.name == "fox") for g in given.gangs)
    instance = replace(given, gangs=gangs)
    plans = {k: solved(instance, plan.decisions) for k, plan in crowded()[1].items()}
    cut = solved(instance, plans[""].decisions, slack=40)
    runs = Runs(instance, {**plans, "a fox": cut})
    found = keep_worthwhile(instance, plans["a c"], runs)
    assert runs.asked == ["c", "a", "a fox", ""]
    assert found.decisions == plans["a"].decisions
    assert [move.gain for move in found.moves] == [16000]
    # What the cut search proved holds for all plans without c: 1 + 4 + 4 + 2 + 8 GPUs run, and 40 more.
    (admission,) = [tier for tier in found.tiers if tier.name == "admission/0"]
    assert (admission.value, admission.bound) == (27, 19 + 40)
    # In disruption the plan is worse than the cut one: what is proven after that is of its own search.
    assert found.tiers[-1].bound == plans["a"].tiers[-1].bound
    assert any(note.startswith("some bounds apply only to plans") for note in found.notes)


def test_where_a_tolerance_is_given_no_plan_takes_the_place_of_another() -> None:
    instance, _ = crowded()
    lax = replace(
        instance,
        policy=replace(
            instance.policy,
            objectives=(Objective("admission", Fraction(1, 2)), Objective("disruption")),
        ),
    )
    first = solved(lax, decide(lax, a=[(3, mask(6))]))
    found = keep_worthwhile(lax, first, lambda _: solved(lax, decide(lax)))
    assert found.decisions == first.decisions
    assert [move.gangs for move in found.moves] == [(0,)]


def alike(count: int, least: str) -> Instance:
    """So many movable gangs of 2 GPUs, each on a node of its own, and one free node."""
    return with_least(
        build(
            nodes_per_rack=count + 1,
            gangs=[small(f"g{i:02}", i, mask(0, 1)) for i in range(count)] + [gang("new", 1, 1)],
            objectives=["bandwidth"],
        ),
        least,
    )


def eager(instance: Instance, asked: list[frozenset[int]]) -> Callable[[frozenset[int]], Solution]:
    """A search that moves the first gang it may, for nothing but a tier that rises by the move."""
    last = len(instance.cluster.nodes) - 1

    def run(immovable: frozenset[int]) -> Solution:
        asked.append(immovable)
        free = [i for i, one in enumerate(instance.gangs) if one.movable and i not in immovable]
        pods = {instance.gangs[i].name: [(last, mask(0, 1))] for i in free[:1]}
        plan = solved(instance, decide(instance, **pods))
        return replace(plan, tiers=(TierResult("preference", "max", len(pods), 1, 1, "exact"),))

    return run


def test_others_may_stand_in_for_what_was_left_out_but_not_for_ever() -> None:
    # Each move frees one node and takes another: a gain of 0. There are twenty to try.
    instance = alike(20, "0.5")
    asked: list[frozenset[int]] = []
    run = eager(instance, asked)
    found = keep_worthwhile(instance, run(frozenset()), run)
    assert found.moves == ()
    assert all(d.decision != "move" for d in found.decisions)
    # Three rounds with another, then nobody was worth it: none may move.
    assert [note.partition(" (")[0] for note in found.notes] == [
        f"not moved: default/g{i:02}" for i in range(moving.MAX_ROUNDS + 1)
    ]
    assert all("gain nothing of that kind: a gain of 0.000" in note for note in found.notes)
    assert len(asked) <= 2 + (moving.MAX_ROUNDS + 1) * 2


def test_the_same_search_is_asked_for_once() -> None:
    instance = alike(20, "0.5")
    asked: list[frozenset[int]] = []
    run = eager(instance, asked)
    first = run(frozenset())
    asked.clear()
    keep_worthwhile(instance, first, run)
    assert len(asked) == len(set(asked))


def test_a_stubborn_search_ends_with_no_moves_and_names_all() -> None:
    # No node is ever whole (GPU 7 is sick). g00 and g01 each bring a gang of 1 GPU: a gain of 1 / 2. Another
    # moves along for nothing, until only g00 and g01 may move: then old comes without g01 as well.
    nodes = [node(f"n{i:02}", switched(8), unhealthy=[7]) for i in range(31)]
    movable = [small(f"g{i:02}", i, mask(0, 1)) for i in range(30)]
    waiting = [gang("new", 1, 1), gang("old", 1, 1)]
    instance = with_least(build(nodes=nodes, gangs=[*movable, *waiting]), "0.2")

    def run(immovable: frozenset[int]) -> Solution:
        free = [
            one.name for i, one in enumerate(instance.gangs) if one.movable and i not in immovable
        ]
        others = [name for name in free if name > "g01"][:1]
        moving = [name for name in free if name <= "g01"] + others
        pods = {name: [(30, mask(2 * k, 2 * k + 1))] for k, name in enumerate(moving)}
        pods |= {"new": [(0, mask(0))]} if "g00" in free else {}
        pods |= {"old": [(1, mask(0))]} if "g01" in free or not others else {}
        plan = solved(instance, decide(instance, **pods))
        return replace(plan, tiers=(TierResult("preference", "max", len(pods), 9, 9, "exact"),))

    found = keep_worthwhile(instance, run(frozenset()), run)
    assert found.moves == ()
    assert all(d.decision != "move" for d in found.decisions)
    tried = [f"default/g{i:02}" for i in range(2, 3 + moving.MAX_ROUNDS)]
    said = [note.partition(" (")[0].rpartition(" ")[2] for note in found.notes]
    assert said == [*tried, "default/g01", "default/g00"]
    assert found.notes[-1] == (
        "not moved, since the gangs that moved instead also gained too little: default/g00 (2 GPUs); "
        "that would gain +1 GPU admitted (default/new): a gain of 0.500"
    )


def test_many_sets_are_judged_as_few() -> None:
    instance = alike(10, "0")
    sets = tuple((i,) for i in range(10))
    few = moving.bounded(instance, sets)
    assert few == ((0,), (1,), (2,), (3,), (4,), (5, 6, 7, 8, 9))
    assert moving.bounded(instance, sets[:6]) == sets[:6]
    # The largest are told apart: the last gang holds two pods, the others one.
    doubled = (*instance.gangs[:9], replace(instance.gangs[9], pods=instance.gangs[9].pods * 2))
    wide = replace(instance, gangs=(*doubled, *instance.gangs[10:]))
    assert moving.bounded(wide, sets) == ((0,), (1,), (2,), (3,), (4, 5, 6, 7, 8), (9,))


def test_a_search_that_moves_what_must_stay_is_caught() -> None:
    instance, plans = crowded("0.5")
    with pytest.raises(AssertionError, match="must not"):
        keep_worthwhile(instance, plans["a c"], lambda _: plans["a c"])


def test_under_goodput_a_note_of_a_left_out_set_names_effective_gpus() -> None:
    # a (1 GPU) leaves n01 to big, whose two servers are in two racks: share 250, speed 560.
    instance = build(
        racks=3,
        oversubscription=(1, 4),
        gangs=[small("a", 0, mask(0)), gang("big", 2, 8)],
        objectives=["goodput"],
    )
    whole = mask(*range(8))
    plan = solved(instance, decide(instance, a=[(2, mask(0))], big=[(0, whole), (1, whole)]))
    without = solved(instance, decide(instance))
    (kept,) = keep_worthwhile(instance, plan, lambda _: without).moves
    # 8.96 effective GPUs, 4 GPUs' worth of bandwidth, 16 whole GPUs fewer
    assert (kept.gpus, kept.effective, kept.gain) == (16, 8960, -3040)
    found = keep_worthwhile(with_least(instance, "0.5"), plan, lambda _: without)
    assert found.moves == ()
    assert (
        "gain +16 GPUs admitted (default/big), +8.960 effective GPUs, +4.000 GPUs' worth"
        in (found.notes[0])
    )


def test_a_pod_that_moves_after_an_lp_has_no_room_where_the_others_of_its_gang_stay() -> None:
    """n1 takes two pods, which are there already; the one on a sick GPU stays, the other is placed anew."""
    roles = [role("worker", 2, 1, same="rack"), role("launcher", 1, 0)]
    one = gang("one", roles=roles, stands=[(0, 0, 0, 1), (0, 1, 0, 2), (1, 0, 1, 0)], movable=True)
    nodes = [
        node("n1", switched(2), allocatable={"pods": 2}, unhealthy=[0]),
        node("n2", switched(2), allocatable={"pods": 2}),
    ]
    instance = build(nodes=nodes, gangs=[one])
    model = AggregatedModel(instance)
    (choice,), (admits,) = model.requests.choices, model.admits
    values = [0.0] * len(model.program.lower)
    (moves,) = (
        o for o, option in enumerate(choice.options) if option.demand.stays and option.demand.roles
    )
    values[admits[moves]] = 1.0
    budget = Budget(instance.policy.solve)
    space = FreeSpace(instance, follow(instance, model.requests, model.admits, values, budget))
    assert all(map(space.is_valid, range(2)))
    assert [pod.node for pod in space.pods[0]] == [0, 0, 1]
