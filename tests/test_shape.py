"""Rules 2.19 to 2.21: equal shares over domains, domains of one gang, and nodes kept free for failures.

Servers of eight GPUs; every gang asks for whole servers unless it says otherwise.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import pytest
from building import LEVELS, build, gang, mask, node, role
from building_servers import switched

from models.documents.policy import SolveLimits
from models.documents.reason import ReasonFirst
from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions
from models.program.part import Standing
from models.rules.declaration import Requirement
from models.rules.registry import pooled_shapes
from models.rules.shape import EXCLUSIVE, breaking, closed_to
from planner.search.budget import Budget
from planner.search.explain.rule_reasons import RuleReasons, without_joint_rules
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.search.start.greedy import best_greedy
from planner.show.reason_words import words

ALL = mask(*range(8))


def shaped(one: Gang, **levels: str) -> Gang:
    """The gang with ``balance`` or ``exclusive`` at a level."""
    return replace(one, **{name: LEVELS.index(level) for name, level in levels.items()})


def spared(instance: Instance, **spares: int) -> Instance:
    """The instance with spares, by level."""
    return replace(instance, policy=replace(instance.policy, spares=tuple(sorted(spares.items()))))


def shares(instance: Instance, decisions: Sequence[GangDecision], name: str) -> list[int]:
    """Pods of the gang a rack, most first."""
    of = instance.cluster.domain_of[LEVELS.index("rack")]
    (own,) = (
        d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name and d.pods
    )
    return sorted(Counter(of[pod.node] for pod in own.pods).values(), reverse=True)


def started(instance: Instance, decisions: Sequence[GangDecision]) -> set[str]:
    """Names of the gangs that start or are completed."""
    pairs = zip(instance.gangs, decisions, strict=True)
    return {g.name for g, d in pairs if d.decision in ("place", "complete")}


def test_gangs_of_16_of_18_nodes_leave_the_spares() -> None:
    # 36 nodes in two racks of 18: two gangs of 16 leave two nodes each; nothing more may start there.
    gangs = [gang("a", 16, 8, same="rack"), gang("b", 16, 8, same="rack"), gang("c", 1, 8)]
    instance = build(racks=2, nodes_per_rack=18, gangs=gangs)
    assert started(instance, solve(instance).decisions) == {"a", "b", "c"}
    instance = spared(instance, rack=2)
    found = solve(instance)
    assert started(instance, found.decisions) == {"a", "b"}
    assert found.stopped_by == "proof"


PAIR = [gang("a", 1, 8, submitted=0), gang("b", 1, 8, submitted=5)]
NONE, ONE = {"higher": 0, "aged": 0, "peers": 0}, {"higher": 0, "aged": 0, "peers": 1}
"""Gangs that start before one that waits."""


@pytest.mark.parametrize(
    ("instance", "code", "gpus", "first", "rule"),
    [
        (
            spared(build(nodes_per_rack=2, gangs=PAIR), rack=1),
            "Spares",
            8,
            ONE,
            "leaves enough nodes free for failures (spares)",
        ),
        (
            build(nodes_per_rack=2, gangs=[PAIR[0], shaped(PAIR[1], exclusive="rack")]),
            "Exclusive",
            8,
            ONE,
            "keeps the exclusive domains of gangs",
        ),
        (  # racks of three and of one: 2 + 2 do not fit
            build(
                nodes=[
                    node(f"n{i}", switched(8), rack=r) for i, r in enumerate(("a", "a", "a", "b"))
                ],
                gangs=[shaped(gang("b", 4, 8), balance="rack")],
            ),
            "Balance",
            32,
            NONE,
            "gives equal shares to the domains that it uses (balance)",
        ),
    ],
)
def test_a_reason_names_the_rule(
    instance: Instance, code: str, gpus: int, first: dict[str, int], rule: str
) -> None:
    (waits,) = (d for d in solve(instance).decisions if not d.pods)
    assert waits.reason is not None
    assert waits.reason.code == code
    assert (waits.reason.fields.gpus, waits.reason.fields.first) == (gpus, ReasonFirst(**first))
    assert f"but no place was found that {rule}; " in words(waits.reason)


@pytest.mark.parametrize(("starts", "rule"), [("alone", EXCLUSIVE), ("other", None), (None, None)])
def test_exclusive_is_no_reason_while_no_such_gang_has_pods(
    starts: str | None, rule: Requirement | None
) -> None:
    # No rule alone keeps last waiting: both nodes are taken.
    runs = gang("runs", 1, 8, priority=9, stands=[(0, 0, 1, ALL)])
    alone = shaped(gang("alone", 1, 8, priority=2), exclusive="node")
    gangs = [runs, alone, gang("other", 1, 8, priority=1), gang("last", 1, 9)]
    instance = build(nodes_per_rack=2, gangs=gangs)
    here = GangDecision("place", (PodPlacement(0, 0, 0, ALL),))
    decisions = [
        here if one.name == starts else base
        for one, base in zip(instance.gangs, base_decisions(instance), strict=True)
    ]
    rules = RuleReasons(instance, decisions, without_joint_rules(instance))
    last = next(i for i, one in enumerate(instance.gangs) if one.name == "last")
    assert rules.barred(last) is rule


@pytest.mark.parametrize(
    "failed", [node("n1", switched(8), unhealthy=[0]), node("n1", switched(8), ready=False)]
)
def test_a_gang_with_a_failed_worker_is_completed_on_a_spare(failed: Node) -> None:
    # One worker is left on n2; n3 and n4 are the two spares, of which the failed node gives one back.
    torn = gang("torn", 2, 8, stands=[(0, 0, 0, ALL)])
    nodes = [node(f"n{i}", switched(8)) for i in range(2, 5)]
    whole = spared(build(nodes=nodes, gangs=[torn]), rack=2)
    assert started(whole, solve(whole).decisions) == set()
    torn = gang("torn", 2, 8, stands=[(0, 0, 1, ALL)])
    instance = spared(build(nodes=[failed, *nodes], gangs=[torn, gang("x", 1, 8)]), rack=2)
    assert started(instance, solve(instance).decisions) == {"torn"}


def test_nodes_that_run_pods_already_are_owed_to_nobody() -> None:
    # One of two nodes is idle, so one stays, though two are asked for; GPUs beside a pod are no spare.
    half = gang("half", 1, 4, stands=[(0, 0, 0, mask(0, 1, 2, 3))])
    instance = spared(
        build(nodes_per_rack=2, gangs=[half, gang("whole", 1, 8), gang("rest", 1, 4)]), rack=2
    )
    assert started(instance, solve(instance).decisions) == {"rest"}


@pytest.mark.parametrize("racks", [8, 29, 228])
def test_128_nodes_over_racks_of_18_are_equal_shares_from_the_start(racks: int) -> None:
    # 7 racks hold 126: eight take 16 each, never 7 x 18 + 2.
    big = shaped(gang("big", 128, 8), balance="rack")
    instance = build(racks=racks, nodes_per_rack=18, gangs=[big])
    start = best_greedy(instance, base_decisions(instance), Budget(SolveLimits()))
    assert shares(instance, start, "big") == [16] * 8


def test_shares_differ_by_one_at_most_and_fit_what_is_free() -> None:
    # Racks with 5, 3 and 1 free nodes. 4 fit into one; 6 = 3 + 3; 7 only as 4 + 3; 8 not at all:
    # neither 4 + 4 nor 3 + 3 + 2 fits.
    model = switched(8)
    nodes = [
        node(f"n{r}{i}", model, rack=f"r{r}") for r, n in enumerate((5, 3, 1)) for i in range(n)
    ]
    for pods, expected in ((4, [4]), (6, [3, 3]), (7, [4, 3]), (8, None)):
        instance = build(nodes=nodes, gangs=[shaped(gang("a", pods, 8), balance="rack")])
        for found in (
            best_greedy(instance, base_decisions(instance), Budget(SolveLimits())),
            solve(instance).decisions,
        ):
            assert bool(started(instance, found)) is (expected is not None)
            assert expected is None or shares(instance, found, "a") == expected


def test_slices_stay_whole_in_equal_shares() -> None:
    # Slices of two servers in a rack, racks of 4 with 3 free: 4 slices need 4 racks of 2, not 3 + 3 + 2.
    one = replace(gang("a", 8, 8, slices=(2, "rack")), balance=LEVELS.index("rack"))
    instance = build(racks=4, nodes_per_rack=3, gangs=[one])
    start = best_greedy(instance, base_decisions(instance), Budget(SolveLimits()))
    assert shares(instance, start, "a") == [2, 2, 2, 2]


def test_a_gang_grows_in_equal_shares() -> None:
    # Pods of two GPUs, two on n01 and one on n03, where one more fits: 3 + 2, though 4 + 2 would fit.
    own = role("worker", 3, 2, most=6)
    stands = [(0, 0, 0, 3), (0, 1, 0, 12), (0, 2, 2, 3)]
    full = gang("full", 1, 8, stands=[(0, 0, 3, ALL)])
    most = gang("most", 1, 4, stands=[(0, 0, 2, mask(4, 5, 6, 7))])
    one = shaped(gang("a", roles=[own], stands=stands), balance="rack")
    instance = build(racks=2, nodes_per_rack=2, gangs=[one, full, most])
    assert shares(instance, solve(instance).decisions, "a") == [3, 2]


def test_a_domain_of_one_gang_is_closed_to_others() -> None:
    # Two racks of two. alone takes one rack for one node; small shares the other with nobody it must not.
    alone = shaped(gang("alone", 1, 8, priority=1), exclusive="rack")
    gangs = [alone, *(gang(f"small{i}", 1, 8) for i in range(3))]
    instance = build(racks=2, nodes_per_rack=2, gangs=gangs)
    found = solve(instance)
    assert len(started(instance, found.decisions)) == 3
    assert "alone" in started(instance, found.decisions)
    assert breaking(instance, [one.pods for one in found.decisions]) == []


def test_who_runs_in_a_domain_may_stay_but_nobody_may_come() -> None:
    # alone stands beside other in rack 1: neither is completed there.
    alone = shaped(gang("alone", 2, 2, stands=[(0, 0, 0, 3)], same="rack"), exclusive="rack")
    other = gang("other", 2, 2, stands=[(0, 0, 0, 12)], same="rack")
    instance = build(racks=2, nodes_per_rack=2, gangs=[alone, other, gang("new", 1, 2)])
    found = solve(instance)
    assert started(instance, found.decisions) == {"new"}
    assert shares(instance, found.decisions, "new") == [1]
    assert breaking(instance, [one.pods for one in found.decisions]) == []


def test_domains_of_gangs_that_stay_are_closed_in_every_program() -> None:
    # base stays in rack 1, guest may leave rack 2; loner has rack 3 for itself and stays there.
    gangs = [
        gang("base", 1, 1, stands=[(0, 0, 0, 1)]),
        gang("guest", 1, 1, stands=[(0, 0, 2, 1)], movable=True),
        shaped(gang("loner", 1, 1, stands=[(0, 0, 4, 1)]), exclusive="rack"),
        shaped(gang("new", 1, 1), exclusive="rack"),
        gang("plain", 1, 1),
    ]
    instance = build(racks=4, nodes_per_rack=2, gangs=gangs)
    number = {g.name: i for i, g in enumerate(instance.gangs)}
    pooled = pooled_shapes(instance, [number["new"], number["loner"]])
    for one in (instance, pooled):
        closed = {g.name: sorted(closed_to(one, g)) for g in one.gangs}
        assert closed["new"] == [0, 1, 4, 5]
        assert closed["plain"] == closed["guest"] == [4, 5]
        assert closed["loner"] == [0, 1]  # it may grow where it stands
    assert not any(g.exclusive for g in pooled.gangs)
    assert pooled_shapes(instance, []) is instance


@pytest.mark.parametrize("size", [None, 5000])
def test_every_path_keeps_the_rules(size: int | None) -> None:
    gangs = [
        shaped(gang("even", 6, 8, priority=2), balance="rack"),
        shaped(gang("alone", 2, 8, priority=1), exclusive="rack"),
        shaped(gang("by-node", 3, 2), balance="node"),
        gang("low", 3, 8),
        gang("tiny", 1, 1),
    ]
    instance = spared(build(racks=5, nodes_per_rack=4, gangs=gangs), rack=1)
    limits = replace(instance.policy.solve, budget=5)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    found = solve(instance, size=size)
    assert started(instance, found.decisions) == {g.name for g in gangs}
    assert breaking(instance, [one.pods for one in found.decisions]) == []


def place(name: str, nodes: Sequence[int]) -> tuple[str, GangDecision]:
    return name, GangDecision(
        "place", tuple(PodPlacement(0, i, n, ALL) for i, n in enumerate(nodes))
    )


@pytest.mark.parametrize(
    ("plan", "left"),
    [
        ([place("even", (0, 1, 2, 4)), place("low", (8,))], {"even", "low"}),  # 3 + 1
        ([place("alone", (0,)), place("low", (1,))], {"alone", "low"}),  # low goes elsewhere
        ([place("low", (0, 1, 2, 3))], {"low"}),  # no spare in rack 1
        ([place("low", range(10))], set()),  # nine servers may be used
        ([place("even", (0, 1, 4, 5)), place("low", (8,))], {"even", "low"}),
    ],
)
def test_a_plan_that_breaks_a_rule_is_mended(
    plan: Sequence[tuple[str, GangDecision]], left: set[str]
) -> None:
    gangs = [
        shaped(gang("even", 4, 8), balance="rack"),
        shaped(gang("alone", 1, 8, priority=1), exclusive="rack"),
        *(replace(gang("low", len(d.pods), 8), priority=0) for n, d in plan if n == "low"),
    ]
    instance = spared(build(racks=3, nodes_per_rack=4, gangs=gangs), rack=1)
    decisions = [dict(plan).get(g.name, GangDecision("wait")) for g in instance.gangs]
    ledger = Ledger(instance, base_decisions(instance))
    ledger.offer(decisions)
    assert started(instance, ledger.incumbent.decisions) == left
    assert breaking(instance, [one.pods for one in ledger.incumbent.decisions]) == []


def test_a_part_keeps_what_the_whole_owes() -> None:
    # Rack 1 owes a spare; the part has two of its four nodes, and low stands on one outside.
    gangs = [
        gang("low", 1, 8, stands=[(0, 0, 0, ALL)]),
        shaped(gang("alone", 1, 8, stands=[(0, 0, 4, ALL)]), exclusive="rack"),
        gang("new", 2, 8),
        shaped(gang("proud", 1, 8), exclusive="rack"),
    ]
    instance = spared(build(racks=2, nodes_per_rack=4, gangs=gangs), rack=3)
    number = {g.name: i for i, g in enumerate(instance.gangs)}
    standing = Standing(instance, base_decisions(instance))
    freed = {number["new"], number["proud"]}
    part = standing.part([2, 3, 5, 6], freed, SolveLimits())
    assert part.instance.outside is not None
    # n02 is idle outside, so two of n03 and n04 stay; in rack 2 n08 is
    assert part.instance.outside.spares == (((0, 1), 2), ((2, 3), 2))
    closed = part.instance.outside.closed
    # proud may not join anybody; new may not come to alone
    assert closed["default", "proud"] == {0, 1, 2, 3}
    assert closed["default", "new"] == {2, 3}
    found = solve(part.instance)
    assert started(part.instance, found.decisions) == set()
