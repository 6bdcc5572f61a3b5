"""Why gangs wait or stop: true with all that may give way, and never only where it is proven.

Servers have 8 GPUs; every plan is judged by the checker.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest
from building import build, gang, mask, node, role
from building_servers import switched
from by_steps import by_search, by_steps
from effort import examples
from exhaustive import plan
from outcomes import planned
from tiny import tiny
from tiny_busy import busy

from models.documents.policy import LOST_RUNTIME, Disruption, Objective, SolveLimits
from models.instance.cluster import Taint
from models.instance.gang import ExistingPod, Role
from models.instance.instance import Instance
from models.instance.solution import Reason, Solution
from models.program.base_state import base_decisions
from models.program.demand_builder import remaining_demand
from models.queues.queue_shares import beyond_limit
from models.results.notes import notes_of
from models.results.plan import compose
from models.verify.adaptor import read_case
from models.verify.empty_cluster import EmptyCluster as JudgedCluster
from models.verify.room import Work
from planner.search.budget import Budget
from planner.search.explain import reasons
from planner.search.explain.reasons import with_reasons
from planner.search.explain.shortage import FreeCounts, never
from planner.search.solve import solve

FULL = mask(*range(8))
NEEDS = {"pods": 2, "gpus": 16}
NOW = "2026-11-21T10:00:00Z"


def why(instance: Instance, name: str, proven: tuple[int, ...] = ()) -> Reason:
    """Why a gang waits in the plan that changes nothing."""
    base = base_decisions(instance)
    found = with_reasons(instance, base, Budget(SolveLimits(), Event()), proven)
    (reason,) = (
        d.reason for g, d in zip(instance.gangs, found, strict=True) if g.name == name and d.reason
    )
    return reason


def test_a_stopped_gang_names_the_highest_who_come() -> None:
    low = gang("low", 1, 8, stands=[(0, 0, 0, FULL)], preemptible=True)
    queue = [gang(f"q{i}", 1, 2, priority=i) for i in (1, 2, 3, 4)]
    made = by_search(build(gangs=[low, *queue]))
    by = [
        {"gang": f"default/q{i}", "priority": i} for i in (4, 3, 2, 1)
    ]  # a single other one is named, too
    assert made.of("low").reason == Reason.of("Preempted", by=by)


def test_nodes_that_are_out_are_not_now_and_not_never() -> None:
    nodes = [node("n0", switched()), node("n1", switched(), unschedulable=True)]
    room = {"room_pods": 1, "room_gpus": 8, "proven": True}
    assert why(build(nodes=nodes, gangs=[gang("a", 2, 8)]), "a") == Reason.of(
        "NoRoom", **NEEDS, **room
    )
    only = [role("worker", 1, 8, selector={"kubernetes.io/hostname": "n1"})]
    assert why(build(nodes=nodes, gangs=[gang("a", roles=only)]), "a") == Reason.of(
        "Selector", nodes_with="kubernetes.io/hostname=n1"
    )


@pytest.mark.parametrize(
    ("spec", "fields"),
    [
        (role("worker", 1, 16), {"pods": 1, "gpus": 16, "offered": "8"}),
        (
            role("worker", 40, 8),
            {
                "pods": 40,
                "gpus": 320,
                "room_pods": 4,
                "room_gpus": 32,
            },
        ),
        (
            role("worker", 3, 8, same="rack"),
            {
                "pods": 3,
                "gpus": 24,
                "level": "rack",
                "domain": "b1/r0",
                "room_pods": 2,
                "room_gpus": 16,
            },
        ),
        (role("worker", 1, 8, model="B200"), {"nodes_with": "model B200"}),
        (role("worker", 1, 8, selector={"zone": "a"}), {"nodes_with": "zone=a"}),
    ],
)
def test_what_could_not_start_if_nothing_ran_never_fits(
    spec: Role, fields: dict[str, object]
) -> None:
    # The cluster is full and has a cordoned node: neither is why these cannot start.
    nodes = [node(f"n{i}", switched(), rack=f"r{i // 2}", unschedulable=i == 3) for i in range(4)]
    full = gang("full", 3, 8, stands=[(0, i, i, FULL) for i in range(3)])
    made = by_search(build(nodes=nodes, gangs=[full, gang("a", roles=[spec], priority=9)]))
    assert made.of("a").reason == Reason.of("Never", **fields)


def test_it_is_noted_who_starts_below_a_gang_that_waits() -> None:
    queue = [gang("top", 1, 8, priority=9), gang("mid", 2, 8, priority=5)]
    low = [gang("l1", 1, 4, preemptible=True), gang("l2", 1, 4), gang("huge", 3, 8, priority=6)]
    instance = build(nodes_per_rack=2, gangs=[*queue, *low])
    note = solve(instance).notes[-1]
    assert note == (
        "default/mid (priority 5) waits while 2 gangs of lower priority start on nodes that it may use; no "
        "room is held: a lower gang makes room later only if it is preemptible (1 is not); "
        'with reservations: {priorities: [">=5"]} in the Policy, room may be held for it'
    )
    notes = solve(build(nodes_per_rack=2, gangs=[*queue, low[2]])).notes
    assert not any("no room is held" in note for note in notes)


NEVERS = (
    "selectors",
    "taints",
    "role_model",
    "ours",
    "cordons",
    "resources",
    "queues",
    "launchers",
)


def test_program_and_judge_agree_on_what_can_never_start_and_it_never_does() -> None:
    found = 0
    for seed in range(examples(150, 40)):
        instance = tiny(seed, more=NEVERS)
        nothing = Solution(base_decisions(instance), (), "budget", "made up")
        document = compose(instance, nothing, name="p", created_at=NOW, generator="test")
        reading = read_case(document).instance
        assert reading is not None
        judged, best = JudgedCluster(reading.facts, Work(1 << 30)), FreeCounts.at_best(instance)
        for index, one in enumerate(instance.gangs):
            if one.running:
                continue
            demand = remaining_demand(instance, index, one.target_counts)
            impossible = never(best, demand) or beyond_limit(instance, one)
            assert judged.fits(reading.facts.gangs[index]) is (impossible is None), (seed, one.name)
            if impossible:
                found += 1
                alone = replace(in_order(instance), gangs=(replace(one, hold=None),))
                assert solve(alone).decisions[0].decision == "wait", (seed, one.name)
    assert found > 10


def in_order(instance: Instance) -> Instance:
    """The instance with every node ready and healthy, and no pods of no gang."""
    changes = {"ready": True, "unschedulable": False, "unhealthy": 0, "unknown_unhealthy": 0}
    nodes = (
        replace(n, allocatable=tuple(sorted(n.at_most.items())), held=(), **changes)
        for n in instance.cluster.nodes
    )
    return replace(instance, cluster=replace(instance.cluster, nodes=tuple(nodes)))


def test_a_taint_of_a_condition_passes_and_others_stay() -> None:
    for key, code in (("node.kubernetes.io/unreachable", "Selector"), ("dedicated", "Never")):
        nodes = [node("n0", switched(), taints=[Taint(key, "", "NoSchedule")])]
        made = by_search(build(nodes=nodes, gangs=[gang("a", 1, 8)]))
        assert made.reason("a")[0] == code
    assert made.of("a").reason == Reason.of("Never", taints=["dedicated"])


def test_gangs_that_start_on_nodes_of_another_pool_do_not_come_first() -> None:
    # top and peer start on h1, which old and new may not use: of those one gets a1, the other waits.
    nodes = [node(n, switched(), labels={"pool": n[0]}) for n in ("h1", "a1")]
    on_h, on_a = (role(gpus_per_pod=gpus, selector={"pool": p}) for p, gpus in (("h", 4), ("a", 8)))
    queue = [
        gang("top", roles=[on_h], priority=9),
        gang("peer", roles=[on_h], priority=5),
        gang("new", roles=[on_a], priority=5, submitted=3600),
        gang("old", roles=[on_a], priority=5, submitted=0),
    ]
    made = by_search(build(nodes=nodes, gangs=queue))
    found = made.of("new").reason
    assert found is not None
    assert (found.code, [one.gang for one in found.fields.by]) == ("NoRoom", ["default/old"])


def test_where_counts_allow_it_an_exact_search_says_no() -> None:
    # 5 and 3 GPUs of 8, 3 cores each of 5: either role alone fits, both together do not.
    heavy = role("head", 1, 5, requests={"cpu": 3000})
    light = role("worker", 1, 3, requests={"cpu": 3000})
    nodes = [node("n", switched(), allocatable={"cpu": 5000})]
    low = gang("low", 1, 1, stands=[(0, 0, 0, 1)], preemptible=True)
    waits = gang("a", roles=[heavy, light], priority=3)
    assert why(build(nodes=nodes, gangs=[low, waits]), "a") == Reason.of(
        "NoRoom", gpus=8, proven=True
    )


def test_what_the_search_proved_is_said_where_no_count_knows() -> None:
    # Without hop there is room for high; but hop may not stop, only move, and has nowhere to go.
    hop = gang("hop", 1, 1, stands=[(0, 0, 0, 1)], movable=True, priority=9)
    stay = gang("stay", 1, 8, stands=[(0, 0, 1, FULL)])
    nodes = [node(f"n{i}", switched()) for i in range(2)]
    instance = build(nodes=nodes, gangs=[hop, stay, gang("high", 1, 8, priority=9)])
    found = why(instance, "high")
    assert (found.code, found.fields.proven) == ("NoRoom", False)
    assert [(one.gang, one.gpus) for one in found.fields.by] == [("default/stay", 8)]
    assert why(instance, "high", proven=(9,)).fields.proven


def test_a_gang_that_fits_at_no_speed_is_told_so() -> None:
    slow = gang("slow", 2, 8)
    instance = build(racks=2, oversubscription=(1, 1000), gangs=[slow], objectives=["goodput"])
    assert why(instance, "slow", proven=(0,)) == Reason.of("Outranked", gpus=16, proven=True)
    # not proven: perhaps it was not tried
    assert why(instance, "slow") == Reason.of("Outranked", gpus=16)


def test_a_gang_that_fits_and_waits_is_told_what_counts_more() -> None:
    # Two servers of 8, all requests are for 8: one GPU taken leaves seven that no request can use.
    made = build(racks=1, nodes_per_rack=2, gangs=[gang("a", 1, 1)])
    for names, proven in (
        (("stranded", "admission"), True),
        (("span", "stranded", "waiting"), False),
        (("stranded",), False),
    ):
        objectives = tuple(Objective(name) for name in names)
        policy = replace(made.policy, objectives=objectives, mix=((8, 1000),))
        (decision,) = solve(replace(made, policy=policy)).decisions
        assert decision.reason == Reason.of("Outranked", gpus=1, proven=proven)


def test_after_the_time_is_up_gangs_wait_for_a_cause_that_is_not_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    # Of two nodes broken, which lacks a pod, keeps one; high takes that of low, so that last waits.
    low = gang("low", 1, 8, stands=[(0, 0, 0, FULL)], preemptible=True)
    broken = gang("broken", 2, 8, stands=[(0, 0, 1, FULL)])
    high, last = gang("high", 1, 8, priority=9), gang("last", 1, 8, priority=1)
    made = by_search(build(racks=1, nodes_per_rack=2, gangs=[low, broken, high, last]))
    stopped = Event()
    stopped.set()
    for grace, causes in ((0.0, False), (60.0, True)):
        monkeypatch.setattr(reasons, "GRACE_S", grace)
        found = with_reasons(made.instance, made.decisions, Budget(SolveLimits(), stopped))
        by_name = {
            g.name: d.reason for g, d in zip(made.instance.gangs, found, strict=True) if d.reason
        }
        assert {name: one.code for name, one in by_name.items()} == {
            "low": "Preempted",
            "broken": "Incomplete",
            "last": "Outranked",
        }
        ended = Reason.of("Outranked", gpus=8)
        lacks = ended.with_fields("Incomplete", cause="Outranked")
        assert (by_name["last"] == ended) is not causes
        assert (by_name["broken"] == lacks) is not causes


def test_a_peer_that_waited_too_long_is_named_as_what_outranks() -> None:
    hour = 3600
    old = gang("old", 1, 8, priority=5, submitted=0)
    new = gang("new", 1, 8, priority=5, submitted=30 * hour)
    instance = build(racks=1, nodes_per_rack=1, gangs=[new, old])
    ageing = replace(instance, policy=replace(instance.policy, starvation_after_s=24 * hour))
    instance = replace(instance, policy=replace(instance.policy, starvation_after_s=None))
    for given, code in ((ageing, "Outranked"), (instance, "NoRoom")):
        found = by_steps(given).of("new").reason
        assert found is not None
        assert (found.code, [one.gang for one in found.fields.by]) == (code, ["default/old"])


def test_notes_name_unknown_runtimes_and_ages() -> None:
    low = replace(
        gang("low", 1, 8, preemptible=True),
        pods=(ExistingPod("low-worker-0", 0, 0, node=0, gpus=FULL),),
    )
    instance = build(gangs=[low, gang("high", 1, 8, priority=9)])
    policy = replace(
        instance.policy, disruption=Disruption(LOST_RUNTIME, 7200), starvation_after_s=60
    )
    instance = replace(instance, policy=policy)
    made = by_search(instance)
    runtime, age = notes_of(instance, made.decisions, exact=True)
    assert runtime == (
        "1 gang stopped, moved or shrunk without a known start or checkpoint: each GPU counts as 7200 s of "
        "lost runtime, the maximum"
    )
    assert age == (
        "1 waiting gang without submittedAt: a gang ages only if it is known since when it waits"
    )
    assert notes_of(instance, base_decisions(instance), exact=True)[1:] == ()


def test_what_is_said_never_to_start_starts_in_no_best_plan() -> None:
    said, tried = 0, examples(80, 20)
    for seed in range(tried):
        instance = busy(seed)
        base = base_decisions(instance)
        reasoned = with_reasons(instance, base, Budget(SolveLimits(), Event()))
        best = plan(instance).solution().decisions
        for gang_, decision, chosen in zip(instance.gangs, reasoned, best, strict=True):
            reason = decision.reason
            if reason is None or gang_.hold is not None or not reason.fields.proven:
                continue
            said += 1
            assert chosen.decision in ("wait", "keep", "preempt"), (seed, gang_.name, reason)
    assert said > tried // 4


def test_a_gang_that_fits_on_two_models_only_is_told_that_it_must_fit_on_one() -> None:
    nodes = [node("h", switched(gpu="H100")), node("a", switched(gpu="A100"))]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=8)]))
    reason = outcome.of("a").reason
    assert reason is not None
    room = {"model": "H100", "room_pods": 1, "room_gpus": 8}
    assert reason == Reason.of("Never", **NEEDS, **room)
