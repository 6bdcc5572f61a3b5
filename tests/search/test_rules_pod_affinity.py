"""Anti-affinity, affinity and spread of the pods of a gang: in the search, in parts, in reasons.

Two racks of two servers of four GPUs, unless a test says otherwise: n01 and n02 in r1, n03 and n04 in r2.
"""

from __future__ import annotations

from dataclasses import replace

import pytest
from bounding import alone
from building import LEVELS, build, gang, role
from comparing import differences
from effort import examples
from outcomes import NOW, planned
from tiny import tiny
from tiny_busy import busy
from tiny_pods import POD_RULES

from models.documents.policy import SolveLimits
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from models.program import options
from models.program.base_state import base_decisions
from models.results.plan import compose
from models.rules.declaration import without
from models.rules.pod_rules import DECLARED as PODS_OF_SETS
from models.rules.pod_rules import breaking, pod_rules
from models.verify.check import check
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.search.start.greedy import greedy

RACK, NODE = LEVELS.index("rack"), LEVELS.index("node")


def worker(
    pods: int = 1,
    gpus: int = 1,
    *sets: str,
    apart: NextTo | None = None,
    join: NextTo | None = None,
    even: Spread | None = None,
    most: int | None = None,
) -> Role:
    return replace(
        role("worker", pods, gpus, most=most),
        pod_sets=sets,
        anti_affinity=() if apart is None else (apart,),
        affinity=() if join is None else (join,),
        spread=() if even is None else (even,),
    )


def racks(*gangs: Gang) -> Instance:
    return build(racks=2, nodes_per_rack=2, gpus=4, gangs=gangs)


def test_one_pod_a_node() -> None:
    """Three pods of one GPU on three servers, and none if there are only two."""
    apart = worker(3, apart=NextTo(NODE))
    assert planned(racks(gang("a", roles=[apart]))).per_node("a") == [1, 1, 1]
    few = build(nodes_per_rack=2, gpus=4, gangs=[gang("a", roles=[apart])])
    assert planned(few).decision("a") == "wait"
    assert planned(few).reason("a") == "AntiAffinity"


def test_pods_that_stay_break_no_rule() -> None:
    """Two that stand together may stay so; if one of them moves, it moves away."""
    apart = worker(2, 1, apart=NextTo(NODE))
    runs = gang("a", roles=[apart], stands=[(0, 0, 0, 1), (0, 1, 0, 2)], movable=True)
    assert planned(racks(runs)).decision("a") == "keep"
    wide = gang("b", 1, 4, priority=1)
    rooms = [gang(f"full{n}", 1, 4, stands=[(0, 0, n, 15)]) for n in (1, 2)]
    assert planned(racks(runs, wide, *rooms)).nodes("b") == ["n04"]
    outcome = planned(racks(runs, wide, *rooms, gang("last", 1, 3, stands=[(0, 0, 3, 7)])))
    assert outcome.decision("b") == "wait", "on n04 there is room for one of the two pods only"


def test_pods_without_gpus_count() -> None:
    pods = [worker(1, 1), replace(worker(4, 0, apart=NextTo(NODE)), name="tool")]
    outcome = planned(racks(gang("a", roles=pods)))
    assert sorted(outcome.nodes("a")[1:]) == ["n01", "n02", "n03", "n04"]


def test_a_gang_that_attracts_itself_starts_in_one_domain() -> None:
    joins = worker(3, 4, join=NextTo(RACK))
    assert planned(racks(gang("a", roles=[joins]))).decision("a") == "wait"
    outcome = planned(racks(gang("a", roles=[worker(2, 4, join=NextTo(RACK))])))
    assert outcome.domains("a", "rack") == 1


def test_pods_are_spread_over_racks() -> None:
    """Two in each; three pods that already are in r1 must not become four there."""
    outcome = planned(racks(gang("a", roles=[worker(4, 1, even=Spread(RACK))])))
    assert outcome.domains("a", "rack") == 2
    assert (
        planned(racks(gang("a", roles=[worker(3, 4, even=Spread(RACK))]))).decision("a") == "place"
    )
    full = [gang(f"full{n}", 1, 4, stands=[(0, 0, n, 15)]) for n in (2, 3)]
    outcome = planned(racks(gang("a", roles=[worker(3, 1, even=Spread(RACK))]), *full))
    assert (outcome.decision("a"), outcome.reason("a")) == ("wait", "Spread")


def test_few_domains_count_as_an_empty_one() -> None:
    even = [worker(4, 1, even=Spread(RACK, min_domains=most)) for most in (2, 3)]
    assert [planned(racks(gang("a", roles=[one]))).decision("a") for one in even] == [
        "place",
        "wait",
    ]


def test_rules_that_hold_anyway_have_no_rows() -> None:
    """Pods of more than half of a server are one a node; a single pod is alone."""
    gangs = [
        gang("half", roles=[worker(2, 3, apart=NextTo(NODE))]),
        gang("one", roles=[worker(1, 1, apart=NextTo(RACK))]),
        gang("even", roles=[worker(2, 1, even=Spread(RACK, 2))]),
        gang("some", roles=[worker(2, 2, apart=NextTo(NODE))]),
    ]
    instance = racks(*gangs)
    assert pod_rules(instance).gangs == {("default", "some")}


def test_without_rules_nothing_is_distinguished() -> None:
    plain = racks(gang("a", roles=[worker(2, 1, "red")]), gang("b", roles=[worker(2, 1)]))
    assert without(plain, PODS_OF_SETS.requirements) is plain
    assert pod_rules(plain).rules == ()


@pytest.mark.parametrize("seed", range(examples(300, 8)))
def test_random_instances_are_planned_best(seed: int) -> None:
    assert differences(busy(seed, more=POD_RULES)) == []
    assert differences(tiny(seed, more=POD_RULES)) == []


@pytest.mark.parametrize("seed", range(examples(100, 5)))
def test_bounds_hold_without_the_sets_of_pods_that_stay(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With more sets than are listed a relaxation takes their place."""
    monkeypatch.setattr(options, "MAX_WAYS", 1)
    assert alone(busy(seed, more=POD_RULES)) == []


def test_plans_of_the_slots_keep_the_rules() -> None:
    """Gangs of every rule, which ask for more than there is; the slots know none of the rules."""
    rules: list[Role] = [
        worker(3, 1, apart=NextTo(NODE)),
        worker(2, 2, "red", apart=NextTo(NODE, "red")),
        worker(2, 2, join=NextTo(RACK)),
        worker(2, 1, "red", join=NextTo(RACK, "red")),
        worker(2, 1, even=Spread(RACK)),
        role("worker", 1, 4),
    ]
    gangs = [gang(f"g{i}", roles=[rules[i % 6]], priority=i % 2) for i in range(9)]
    runs = gang("old", roles=[rules[0]], stands=[(0, i, i, 1) for i in range(3)], movable=True)
    instance = racks(*gangs, runs)
    limits = SolveLimits(budget=1, workers=1)
    solution = solve(replace(instance, policy=replace(instance.policy, solve=limits)), size=5000)
    assert check(compose(instance, solution, name="p", created_at=NOW, generator="test")) == []


def test_the_ledger_takes_off_what_breaks_a_rule() -> None:
    apart = worker(2, 1, apart=NextTo(RACK))
    instance = racks(gang("a", roles=[apart]), gang("b", 1, 4))
    packed = greedy(without(instance, PODS_OF_SETS.requirements), base_decisions(instance))
    assert breaking(instance, [one.pods for one in packed]) == [0]
    ledger = Ledger(instance, base_decisions(instance))
    assert ledger.offer(packed)
    assert ledger.incumbent.decisions[1].decision == "place"
