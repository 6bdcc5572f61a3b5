"""Parts of an instance: what is found in one is a plan of the whole, whichever nodes and gangs it has.

Random nodes and gangs of random tiny instances; every plan of the whole is judged by the checker.
"""

from __future__ import annotations

from random import Random

from by_steps import better, faults
from effort import examples
from exhaustive import plan
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import tiny
from tiny_busy import busy

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions, standing_pods
from models.program.part import Part, Standing
from planner.search.improve.growth import grow
from planner.search.improve.large_neighborhood import solve_part
from planner.search.improve.repair import back_in_place, unjustified_victims
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy

LIMITS = SolveLimits(budget=4, workers=1)
MORE = ("running", "movable", "preemptible", "elastic", "priorities", "incomplete", "unknown_gpus")

some = settings(max_examples=examples(100, 40))
seeds = st.integers(0, 10**6)


def drawn(seed: int) -> Instance:
    """Half of them with everything that runs, half with more kinds of rules."""
    return busy(seed) if seed % 2 else tiny(seed, more=MORE)


def without_reasons(instance: Instance, decisions: tuple[GangDecision, ...]) -> list[str]:
    """What the checker says of a plan of which nobody explained who waits."""
    return [found for found in faults(instance, decisions) if not found.startswith("reason ")]


def any_part(standing: Standing, r: Random) -> Part:
    """Some nodes, and some gangs that are there with all pods, or nowhere."""
    every = range(len(standing.instance.cluster.nodes))
    nodes = {n for n in every if r.random() < 0.7}
    inside = {
        index
        for index, gang_ in enumerate(standing.instance.gangs)
        if gang_.hold is None and standing.nodes(index) <= nodes and r.random() < 0.8
    }
    return standing.part(nodes, standing.returnable(inside), LIMITS)


@some
@given(seeds, st.integers(0, 10**6))
def test_what_is_found_in_parts_is_a_plan_and_never_worse(seed: int, choice: int) -> None:
    instance, r = drawn(seed), Random(choice)
    ledger = Ledger(instance, grow(instance, greedy(instance, base_decisions(instance))))
    standing = Standing(instance, ledger.incumbent.decisions)
    for _ in range(3):
        before = ledger.incumbent.decisions
        part = any_part(standing, r)
        assert part.merged(part.start) == {index: before[index] for index in part.gangs}
        found = solve_part(part, 60).decisions
        assert better(part.instance, found) >= better(part.instance, part.start)
        changed = part.merged(found)
        whole = tuple(changed.get(index, one) for index, one in enumerate(before))
        assert without_reasons(instance, whole) == []
        ledger.offer(whole)
        assert better(instance, ledger.incumbent.decisions) >= better(instance, before)
        standing.update(ledger.incumbent.decisions)
        fresh = Standing(instance, ledger.incumbent.decisions)
        assert (standing.by_node, standing.moves) == (fresh.by_node, fresh.moves)


@some
@given(seeds)
def test_a_part_of_everything_is_solved_as_the_whole(seed: int) -> None:
    instance = drawn(seed)
    base = base_decisions(instance)
    standing = Standing(instance, base)
    free = {index for index, gang_ in enumerate(instance.gangs) if gang_.hold is None}
    part = standing.part(range(len(instance.cluster.nodes)), free, LIMITS)
    assert part.gangs == tuple(sorted(free))
    assert part.start == tuple(base[index] for index in part.gangs)
    held_out = len(free) < len(instance.gangs)
    if not held_out:
        assert plan(part.instance).tiers == plan(instance).tiers


@some
@given(seeds, st.integers(0, 10**6))
def test_gangs_go_back_to_where_they_run_and_the_plan_stays_valid(seed: int, choice: int) -> None:
    instance, r = busy(seed), Random(choice)
    decisions = plan(instance).decisions
    changed = [
        index
        for index, (before, one) in enumerate(zip(standing_pods(instance), decisions, strict=True))
        if before and one.pods != before
    ]
    back = [index for index in changed if r.random() < 0.6]
    found = back_in_place(instance, decisions, back)
    assert without_reasons(instance, found) == []
    assert unjustified_victims(instance, found) == []
    for index in back:
        assert found[index].pods == standing_pods(instance)[index], index
    assert back or found == decisions
