"""Search, judge and trying every plan agree: three statements of the rules that share nothing.

For each feature of tiny instances (``features.yaml``) there are seeds at which it decides something: without
it the best plan has other values. More of any mixture comes with ``--thorough``. A failure names its seed:
``python tests/oracle/exhaustive_sweep.py --draw busy --seeds N:N+1 --more a,b --narrow`` takes it apart.
"""

from __future__ import annotations

from functools import cache
from random import Random
from threading import Event

import pytest
from bounding import bounded, faults, honest
from building import build, gang, node, switched
from comparing import DAY, differences, misjudged, wrong
from effort import examples, spread
from exhaustive import moves_of, plan
from exhaustive_rates import covered, has_groups
from exhaustive_reserving import stated
from exhaustive_values import shares
from plan_documents import sealed
from shaking import Shaken, rank
from tiny import busy, busy_by_speed, tiny, tiny_by_speed
from tiny_draws import FEATURES
from tiny_geometries import best, dynamic
from tiny_reserving import reserved, timed, written
from tiny_shares import sharing
from tiny_shares import ways as ways_of_sharing

from models.documents.stated import unchecked
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.values.implied_bounds import ImpliedBounds
from models.values.tier_values import tiers_of
from models.verify.check import Judge, check, derive
from planner.search.solve import WHOLE_BELOW, solve
from planner.search.start.greedy import greedy

DRAWS = {"tiny": tiny, "busy": busy, "tiny_by_speed": tiny_by_speed, "busy_by_speed": busy_by_speed}
SIZES = (None, WHOLE_BELOW)
"""The ways of small instances and of large ones."""
TELLING = {name: known for name, known in FEATURES.items() if "seeds" in known}

FOUND = {  # the search was wrong there once
    "a gang without GPUs that is stopped was taken to stay": (
        *("tiny", 962297),
        ("instances", "cpu_gangs", "launchers", "resources", "priorities"),
    ),
    "a repair placed half of a gang on another GPU model": ("busy_by_speed", 921835, ()),
}


@cache
def telling(feature: str, draw: str) -> Instance:
    """An instance in which the feature decides something."""
    known = TELLING[feature]
    return DRAWS[draw](known["seeds"][draw], more=(feature, *known.get("with", ())))


def draws(feature: str, sample: int, *, after: int = 0) -> list[str]:
    """So many of the draws in which a feature tells, by default; other features have others of them."""
    able = list(TELLING[feature]["seeds"])
    first = list(FEATURES).index(feature) + after
    return [able[(first + i) % len(able)] for i in range(min(len(able), examples(4, sample)))]


@cache
def mixtures(first: int, count: int) -> dict[int, Instance]:
    """Instances with several features more, any of them, by seed."""
    names = [name for name in FEATURES if name not in ("parallelism", "wide")]
    found = {}
    for seed in range(first, first + count):
        r = Random(f"mixture/{seed}")
        more = r.sample(names, r.choice((0, 4, 8)))
        found[seed] = r.choice(list(DRAWS.values()))(seed, more=more)
    return found


@pytest.mark.parametrize("feature", TELLING)
def test_the_search_finds_the_best_plan_and_the_judge_says_the_same_of_both(feature: str) -> None:
    found = {draw: differences(telling(feature, draw)) for draw in draws(feature, 1)}
    assert {draw: what for draw, what in found.items() if what} == {}


SHARP = [
    (feature, draw, seed)
    for feature, known in FEATURES.items()
    for draw, seed in known.get("sharp", ())
]


@pytest.mark.parametrize(("feature", "draw", "seed"), SHARP)
def test_the_search_finds_the_best_plan_where_one_more_or_less_is_another_rule(
    feature: str, draw: str, seed: int
) -> None:
    known = FEATURES[feature]
    assert differences(DRAWS[draw](seed, more=(feature, *known.get("with", ())))) == []


@pytest.mark.parametrize("why", FOUND)
def test_the_search_finds_the_best_plan_where_it_did_not_once(why: str) -> None:
    draw, seed, more = FOUND[why]
    assert differences(DRAWS[draw](seed, more=more)) == []


@pytest.mark.parametrize("large", [0, 5000])
@pytest.mark.parametrize("feature", spread(list(TELLING), 4))
def test_the_ways_of_large_instances_promise_nothing_that_a_plan_beats(
    feature: str, large: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.search.bound.slot_chain.LARGE", large)
    monkeypatch.setattr("models.program.slots.slot_spread.MAX_SPREAD", large or 1)
    found = {d: bounded(telling(feature, d), WHOLE_BELOW) for d in draws(feature, 1, after=1)}
    assert {draw: what for draw, what in found.items() if what} == {}


def test_mixtures_are_planned_as_by_trying_every_plan() -> None:
    instances = mixtures(10_000, examples(2000, 8))
    assert wrong(instances, lambda seed: differences(instances[seed])) == {}


@pytest.mark.parametrize("size", SIZES)
def test_a_search_that_is_stopped_at_once_has_an_honest_plan_of_a_mixture(size: int | None) -> None:
    instances = mixtures(20_000, examples(600, 8))
    stop = Event()
    stop.set()
    assert (
        wrong(instances, lambda n: faults(instances[n], solve(instances[n], size=size, stop=stop)))
        == {}
    )


def test_no_plan_beats_the_bounds_that_need_no_search() -> None:
    # Four of weight 1 that need no GPU, and all GPUs for a gang of a lower priority.
    gangs = [gang(f"cpu-{i}", 1, 0, priority=1) for i in range(4)] + [gang("all", 1, 8)]
    instances = {one: telling(one, draws(one, 1)[0]) for one in TELLING}
    instances["no GPUs"] = build(nodes=[node("n", switched(8))], gangs=gangs)
    for feature, instance in instances.items():
        implied, kept = ImpliedBounds(instance), []
        for tier, (name, value) in zip(tiers_of(instance), plan(instance).tiers, strict=True):
            bound = implied.bound(tier, kept)
            assert (bound >= value) if tier.sense == "max" else (bound <= value), (feature, name)
            kept.append((tier, value))


@pytest.mark.parametrize("feature", spread(list(TELLING), 2))
def test_the_judge_refuses_what_would_be_better_without_a_feature(feature: str) -> None:
    """The best plan where a rule is missing is no better where it holds, or breaks it."""
    for draw in draws(feature, 1, after=1):
        known, instance = TELLING[feature], telling(feature, draw)
        others = {"without": (feature,), "more": known.get("with", ())}
        loose = DRAWS[draw](known["seeds"][draw], **others)
        if _shape(loose) == _shape(instance):
            worth = Shaken(instance).worth(plan(loose).decisions)
            assert worth is None or rank(worth) <= rank(plan(instance).tiers), draw


def _shape(instance: Instance) -> object:
    """What a plan of one instance must find in another."""
    gangs = [(gang.key, [role.name for role in gang.roles]) for gang in instance.gangs]
    return gangs, [(node.name, node.gpus) for node in instance.cluster.nodes]


@pytest.mark.parametrize("feature", spread(list(TELLING), 9))
def test_no_random_plan_that_the_judge_lets_pass_is_better(feature: str) -> None:
    for draw in draws(feature, 1, after=2):
        instance = telling(feature, draw)
        known = plan(instance)
        passed = list(Shaken(instance).plans(known.decisions, 1, examples(400, 40)))
        assert passed
        assert max(map(rank, passed)) <= rank(known.tiers)


# GPUs that are partitioned or shared: all plans, by every way to cut them beforehand


@pytest.mark.parametrize("runs", [False, True])
def test_no_plan_in_parts_beats_a_bound(runs: bool) -> None:
    def found(seed: int) -> list[str]:
        partitioned = dynamic(seed, runs=runs, beside=seed % 2 == 0)
        shared = sharing(seed, runs=runs, several=seed % 5 == 0)
        plans = [(partitioned, best(partitioned))]
        plans += [] if shared is None else [(shared, best(shared, ways_of_sharing))]
        return [
            one
            for instance, known in plans
            if known is not None
            for one in beyond(instance, dict(known))
        ]

    assert wrong(range(examples(200, 3)), found) == {}


def beyond(instance: Instance, known: dict[str, int]) -> list[str]:
    """Tiers whose bound on the way of large instances a plan beats that keeps the tiers before it."""
    found = []
    for tier in solve(instance, size=WHOLE_BELOW).tiers:
        value, up = known[tier.name], tier.sense == "max"
        if (tier.bound < value) if up else (tier.bound > value):
            found.append(f"{tier.name}: bound {tier.bound}, a plan has {value}")
        if tier.value != value:
            break
    return found


# Groups, patterns and ranks: the search proves nothing of them

GROUPS = {
    "groups": ("parallelism", "levels", "oversubscription", "nics"),
    "groups that run": ("parallelism", "running", "movable", "elastic", "unknown_gpus", "levels"),
    "groups of two kinds": (
        *("parallelism", "roles", "mixed", "mix_models", "network_only", "min_share"),
    ),
}


def with_groups(name: str, count: int) -> list[Instance]:
    """Never pods on more GPUs than their server has."""
    draw = list(DRAWS.values())
    every = [draw[n % 4](n, without=("overfull",), more=GROUPS[name]) for n in range(count)]
    return [one for one in every if any(map(has_groups, one.gangs))]


@pytest.mark.parametrize("name", GROUPS)
def test_the_stated_ranks_are_worth_what_the_best_dealing_is(name: str) -> None:
    ranked = 0
    for instance in with_groups(name, examples(400, 5)):
        decisions = tuple(greedy(instance, base_decisions(instance)))
        solution = Solution(decisions, (), "budget", "greedy")
        document = compose(instance, solution, name="p", created_at=DAY, generator="test")
        said = [one for one in check(document) if one.rule in ("ranks", "bandwidth", "share")]
        assert said == []
        _, judged, _ = Judge().derived(document)
        assert [judged[g.key].share for g in instance.gangs] == shares(instance, decisions)
        ranked += any("rank" in pod for g in document["spec"]["gangs"] for pod in g["pods"])
    assert ranked


@pytest.mark.parametrize("name", GROUPS)
def test_the_best_plan_with_groups_passes_and_the_search_claims_no_better_one(name: str) -> None:
    instances = [one for one in with_groups(name, examples(300, 12)) if covered(one)]
    instances = instances[: examples(300, 3)]
    assert instances
    assert [misjudged(one) for one in instances] == [[]] * len(instances)
    assert [honest(one) for one in instances[:2]] == [[]] * len(instances[:2])


# Reservations, drawn with places that are free when they begin if nobody starts

MORE = ("running", "priorities", "preemptible", "movable", "elastic", "incomplete")


def test_the_best_plan_that_keeps_reservations_passes_and_no_random_one_is_better() -> None:
    bound = 0
    for seed in range(examples(150, 6)):
        instance = timed(seed, MORE if seed % 3 else ())
        found = reserved(seed, instance)
        if not found:
            continue
        one = plan(instance, reserved=found)
        solution = one.solution(moves_of(instance, one))
        document = compose(instance, solution, name="p", created_at=DAY, generator="test")
        for own in found:
            document["spec"]["gangs"][own.holder]["reserved"] = written(instance, own)
        marks = [
            {"field": m.field, "codes": list(m.codes), "why": m.why} for m in unchecked(document)
        ]
        document["status"]["unchecked"] = [{k: v for k, v in m.items() if v} for m in marks]
        assert stated(instance, document) == found
        assert check(sealed(document)) == [], seed
        assert tuple(derive(document).items()) == one.tiers, seed
        bound += one.tiers != plan(instance).tiers
        said = {
            instance.gangs[own.holder].key: {"reserved": written(instance, own)} for own in found
        }
        for other in Shaken(instance, said).plans(one.decisions, seed, examples(200, 10)):
            assert rank(other) <= rank(one.tiers), seed
    assert bound


def test_bounds_of_the_slots_hold_for_plans_that_keep_the_reservations_of_the_plan() -> None:
    held = 0
    for seed in range(1000, 1000 + examples(120, 6)):
        instance = timed(seed, ("queues", *MORE) if seed % 2 else MORE)
        solution = solve(instance, size=WHOLE_BELOW)
        document = compose(instance, solution, name="p", created_at=DAY, generator="test")
        found = stated(instance, document)
        held += any(own.pods for own in found)
        known = plan(instance, reserved=found).tiers
        for tier, (_, optimum) in zip(solution.tiers, known, strict=True):
            factor = 1 if tier.sense == "max" else -1
            assert factor * tier.bound >= factor * optimum, (seed, tier)
            if tier.value != optimum:
                break
    assert held


@pytest.mark.parametrize("more", [(), ("queues",)], ids=["no queues", "queues"])
def test_the_search_finds_the_best_plan_that_keeps_what_it_reserves(more: tuple[str, ...]) -> None:
    held = turns = 0
    for seed in range(200, 200 + examples(200, 4)):
        instance = timed(seed, (*more, *(MORE if seed % 3 else ())))
        solution = solve(instance)
        document = compose(instance, solution, name="p", created_at=DAY, generator="test")
        found = stated(instance, document)
        assert check(document) == [], seed
        values = tuple((tier.name, tier.value) for tier in solution.tiers)
        assert values == plan(instance, reserved=found).tiers, seed
        held += any(own.pods for own in found)
        turns += any(not own.pods for own in found)
    assert held
    assert turns
