"""The search finds and proves the best plan of every tiny instance under goodput: equal to trying every plan.

A failure names the seed: ``python exhaustive_sweep.py --by-speed --busy --seeds N:N+1 --narrow`` takes
it apart (with ``--more a,b,c`` for the series that have more of a kind).
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from bounding import alone, dishonest, faults
from building import build, gang, node
from building_servers import switched
from comparing import differences, misjudged, wrong
from effort import examples, first_fast
from test_bounds import hold_implied_bounds
from tiny_instances import INSTANCES
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.documents.policy import Objective
from models.instance.instance import Instance
from models.tiers import TIERS
from planner.search.solve import WHOLE_BELOW, solve

SIZES = (None, WHOLE_BELOW)
"""Sizes that choose the full program alone, with the slots before it, and the slots alone."""

CHUNK = 10
SEEDS = 200
BUSY_CHUNK = 25
BUSY_SEEDS = 500

SPEEDS = {
    "generations": ("generations", "mix_models", "unknown_speeds", "role_model", "roles"),
    "links": ("levels", "gaps", "network_only", "min_share", "pattern_none", "binding_none"),
    "services": ("services", "generations", "mix_models", "roles", "launchers", "movable"),
    "moves": ("running", "movable", "moves_limit", "defragment"),
    "stops": ("running", "preemptible", "priorities", "elastic", "elastic_running"),
    "ages": ("starvation", "clock", "submitted", "checkpoints"),
    "failures": ("incomplete", "unknown_gpus", "unknown_unhealthy", "sick_holders", "overfull"),
    "instances": INSTANCES,
    "policies": ("objectives", "stability", "lost_runtime", "weights", "speed_ignored"),
}
"""What each series of busy clusters has three times as much of."""

SERVICES = {
    "none runs": (1063, ("running", "role_model", "mix_models")),
    "some run": (1126, ("role_model", "mix_models")),
}
"""Series in which services bind: the first seed, and the features that would make that seldom."""

FOUND = (921835,)
"""Busy seeds on which the search was wrong once: a repair placed half of a gang on another GPU model."""

FAMILIES = tuple(row.name for row in TIERS)


@pytest.mark.parametrize("first", first_fast(range(0, SEEDS, CHUNK), 2))
def test_the_search_equals_trying_every_plan_by_speed(first: int) -> None:
    seeds = range(first, first + CHUNK)
    assert wrong(seeds, lambda seed: differences(tiny_by_speed(seed))) == {}


@pytest.mark.parametrize("first", first_fast(range(0, BUSY_SEEDS, BUSY_CHUNK), 2))
def test_the_search_equals_trying_every_plan_by_speed_where_most_things_run(first: int) -> None:
    seeds = range(first, first + BUSY_CHUNK)
    assert wrong(seeds, lambda seed: differences(busy_by_speed(seed))) == {}


def test_the_search_equals_trying_every_plan_by_speed_where_it_did_not_once() -> None:
    assert wrong(FOUND, lambda seed: differences(busy_by_speed(seed))) == {}


@pytest.mark.parametrize("name", SPEEDS)
def test_the_search_equals_trying_every_plan_by_speed_with_more_of_a_kind(name: str) -> None:
    seeds = range(1000, 1000 + examples(40, 8))
    assert wrong(seeds, lambda seed: differences(busy_by_speed(seed, more=SPEEDS[name]))) == {}


@pytest.mark.parametrize("name", SPEEDS)
def test_gangs_that_compete_as_equals_are_settled_as_by_trying_every_plan(name: str) -> None:
    seeds = range(2000, 2000 + examples(30, 5))
    more = tuple(feature for feature in SPEEDS[name] if feature != "priorities")
    assert wrong(seeds, lambda seed: differences(_equals(seed, more))) == {}


def _equals(seed: int, more: tuple[str, ...]) -> Instance:
    return busy_by_speed(seed, without=("priorities", "running"), more=more)


@pytest.mark.parametrize("name", SERVICES)
def test_services_are_settled_as_by_trying_every_plan(name: str) -> None:
    first = SERVICES[name][0]
    seeds = range(first, first + examples(200, 40))
    assert wrong(seeds, lambda seed: differences(_services(name, seed))) == {}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SERVICES)
def test_services_are_kept_however_the_search_goes(name: str, size: int | None) -> None:
    met = FAMILIES if size is None else ()

    def found(seed: int) -> list[str]:
        instance = _services(name, seed)
        return faults(instance, solve(instance, size=size), met=met)

    first = SERVICES[name][0]
    assert wrong(range(first, first + examples(60, 8)), found) == {}


def _services(name: str, seed: int) -> Instance:
    return busy_by_speed(seed, without=SERVICES[name][1], more=("services", "generations"))


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", SPEEDS)
def test_the_ways_of_planning_large_instances_promise_nothing_that_a_plan_beats(
    name: str, size: int | None
) -> None:
    met = FAMILIES if size is None else ()

    def found(seed: int) -> list[str]:
        instance = busy_by_speed(seed, more=SPEEDS[name])
        return faults(instance, solve(instance, size=size), met=met)

    assert wrong(range(3000, 3000 + examples(8, 3)), found) == {}


@pytest.mark.parametrize("first", first_fast(range(300, 360, 4), 1))
def test_they_do_so_on_meshes_and_larger_servers(first: int) -> None:
    def found(seed: int) -> list[str]:
        instance = tiny_by_speed(seed)
        return [
            fault
            for size in (None, WHOLE_BELOW)
            for fault in faults(instance, solve(instance, size=size))
        ]

    assert wrong(range(first, first + 4), found) == {}


@pytest.mark.parametrize("first", first_fast(range(400, 520, 10), 1))
def test_the_whole_program_finds_the_best_plan_by_itself(first: int) -> None:
    seeds = range(first, first + 10)
    assert wrong(seeds, lambda seed: alone(busy_by_speed(seed), met=FAMILIES)) == {}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize(("tolerance", "goodput", "span"), [("0.1", 8960, 80), ("0.11", 8000, 0)])
def test_goodput_is_given_away_as_far_as_its_tolerance_lets_it(
    tolerance: str, goodput: int, span: int, size: int | None
) -> None:
    # ``large`` crosses racks: 250 permille, 1 / (0.75 + 1), so 16 GPUs at 560, and two racks on two
    # nodes. ``small`` alone has 8 at 1000: 960 less, which is 0.107 of 8960.
    nodes = [node(f"n{n}", switched(8), rack=f"r{n}") for n in range(2)]
    gangs = [gang("large", 2, 8), gang("small", 1, 8)]
    plain = build(nodes=nodes, gangs=gangs, oversubscription=(4, 4), objectives=["goodput", "span"])
    objectives = (Objective("goodput", Fraction(tolerance)), Objective("span"))
    instance = replace(plain, policy=replace(plain.policy, objectives=objectives))
    solution = solve(instance, size=size)
    assert dishonest(instance, solution) == []
    assert [(t.value, t.best) for t in solution.tiers] == [(goodput, 8960), (span, span)]


@pytest.mark.parametrize("name", SPEEDS)
def test_no_plan_by_speed_beats_the_bounds_without_a_search(name: str) -> None:
    for seed in range(5000, 5000 + examples(30, 6)):
        hold_implied_bounds(busy_by_speed(seed, more=SPEEDS[name]))


@pytest.mark.parametrize("name", SPEEDS)
def test_the_checker_lets_every_best_plan_pass_and_values_it_the_same(name: str) -> None:
    seeds = range(4000, 4000 + examples(40, 5))
    assert wrong(seeds, lambda seed: misjudged(busy_by_speed(seed, more=SPEEDS[name]))) == {}
