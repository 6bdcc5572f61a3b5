"""The exhaustive planner on gangs that run, against plans and values worked out by hand.

Switched servers of 8 GPUs (inside 370,800 MB/s), one NIC of 400 Gbit/s (50,000 MB/s), one rack unless said.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from building import build, gang, role
from effort import examples, first_fast
from exhaustive import Best, plan
from exhaustive_moves import moves_of
from test_exhaustive import SMALL, unpruned
from tiny_busy import busy

from models.documents.policy import Disruption, Objective
from models.instance.gang import Gang, PlannedPod
from models.instance.instance import Instance
from models.instance.policy import Moves
from models.program.base_state import base_decisions
from planner.search.ledger import Ledger

ALL, LOW, HIGH = 0b11111111, 0b1111, 0b11110000
OBJECTIVES = ("admission", "waiting", "disruption", "bandwidth", "growth", "span", "stranded")


def decisions(best: Best, instance: Instance) -> dict[str, str]:
    return {g.name: d.decision for g, d in zip(instance.gangs, best.decisions, strict=True)}


def nodes(best: Best, instance: Instance, name: str) -> list[int]:
    """Node of every pod of a gang, by (role, index)."""
    (g,) = (g for g, one in enumerate(instance.gangs) if one.name == name)
    return [pod.node for pod in best.decisions[g].pods]


def asked(instance: Instance, **fields: Any) -> Instance:  # noqa: ANN401
    """The instance under a policy that says more."""
    return replace(instance, policy=replace(instance.policy, **fields))


def runs(name: str, node: int, gpus: int = ALL, **fields: Any) -> Gang:  # noqa: ANN401
    """A gang of one pod that stands on a node, with GPUs of a mask."""
    stands = [(0, 0, node, gpus)]
    return replace(gang(name, 1, gpus.bit_count(), stands=stands), **fields)


@pytest.mark.parametrize(("priority", "decision"), [(1, "preempt"), (0, "keep"), (-1, "keep")])
def test_a_gang_is_stopped_for_a_strictly_higher_one_alone(priority: int, decision: str) -> None:
    low = runs("low", 0, preemptible=True)
    instance = build(gangs=[low, gang("new", gpus_per_pod=8, priority=priority)])
    assert decisions(plan(instance), instance)["low"] == decision


def test_nobody_is_stopped_where_the_higher_gang_cannot_come() -> None:
    # ``new`` asks for 8 GPUs of one server, and a fixed gang holds half of each.
    gangs = [
        *(runs(f"fixed{n}", n, LOW) for n in range(2)),
        *(runs(f"low{n}", n, HIGH, preemptible=True) for n in range(2)),
        gang("new", 2, 4, same="node", priority=9),
    ]
    instance = build(nodes_per_rack=2, gangs=gangs)
    assert decisions(plan(instance), instance) == {
        **dict.fromkeys(("fixed0", "fixed1", "low0", "low1"), "keep"),
        "new": "wait",
    }


def test_the_victims_are_those_whose_loss_is_the_least() -> None:
    gangs = [
        runs("large", 0, preemptible=True),
        runs("small", 1, LOW, preemptible=True),
        gang("new", gpus_per_pod=8, priority=1),
    ]
    instance = build(nodes_per_rack=2, gangs=gangs)
    best = plan(instance)
    assert decisions(best, instance) == {"large": "keep", "new": "place", "small": "preempt"}
    assert dict(best.tiers)["kept/0"] == 8
    assert dict(best.tiers)["disruption"] == 4


def test_lost_runtime_weighs_gpus_by_the_time_since_they_last_saved() -> None:
    # Both hold 8 GPUs. ``young`` loses 600 s of 8 GPUs; ``old`` 7,200 s, capped at 3,600.
    gangs = [
        runs("old", 0, preemptible=True, started_at=10_000),
        runs("young", 1, preemptible=True, started_at=3_000, last_checkpoint=16_600),
        gang("new", gpus_per_pod=8, priority=1, submitted=17_200),
    ]
    lost = Disruption("lostRuntime", 3_600)
    instance = asked(build(nodes_per_rack=2, gangs=gangs), disruption=lost)
    best = plan(instance)
    assert decisions(best, instance) == {"new": "place", "old": "keep", "young": "preempt"}
    assert dict(best.tiers)["disruption"] == 8 * 600
    alone = asked(build(gangs=[gangs[0], gangs[2]]), disruption=lost)
    assert dict(plan(alone).tiers)["disruption"] == 8 * 3_600


def elastic(name: str, pods: int, node: int = 0, **fields: Any) -> Gang:  # noqa: ANN401
    """Pods of two GPUs on one server, from one to four."""
    stands = [(0, i, node, 3 << 2 * i) for i in range(pods)]
    return replace(gang(name, roles=[role("worker", 1, 2, most=4)], stands=stands), **fields)


@pytest.mark.parametrize(
    ("fields", "priority", "decision"),
    [
        ({"movable": True}, 1, "resize"),
        ({"movable": True}, 0, "keep"),  # for a peer it need not: kept/0 comes before admission/0
        ({"preemptible": True}, 1, "resize"),
        ({"preemptible": True}, 0, "keep"),
        ({}, 1, "keep"),
        ({"movable": True, "resize_after": 100}, 1, "keep"),
        ({"movable": True, "resize_after": 99}, 1, "resize"),  # now: the only time named, 99
    ],
)
def test_an_elastic_gang_shrinks_for_others_where_it_may(
    fields: dict[str, Any], priority: int, decision: str
) -> None:
    old = elastic("old", 4, **fields)
    instance = build(gangs=[old, gang("new", 2, 1, priority=priority, submitted=99)])
    best = plan(instance)
    assert decisions(best, instance)["old"] == decision
    if decision == "resize":
        assert nodes(best, instance, "old") == [0, 0, 0]


def test_a_running_gang_and_a_starting_one_grow_into_idle_room() -> None:
    instance = build(nodes_per_rack=2, gangs=[elastic("old", 1), elastic("new", 0)])
    best = plan(instance)
    assert decisions(best, instance) == {"new": "place", "old": "resize"}
    # Both from one to four pods of two GPUs: 6 + 6 above ``min``, each on a server of its own.
    assert dict(best.tiers)["growth/0"] == 12
    assert dict(best.tiers)["span"] == 0


def test_a_held_size_does_not_keep_a_gang_from_moving_or_being_stopped() -> None:
    held = elastic("old", 2, movable=True, preemptible=True, resize_after=100)
    new = gang("new", gpus_per_pod=8, priority=1, submitted=50)
    blocked = runs("blocker", 1, LOW)
    roomy = build(nodes_per_rack=2, gangs=[held, new, blocked])
    assert decisions(plan(roomy), roomy) == {"blocker": "keep", "new": "place", "old": "move"}
    assert nodes(plan(roomy), roomy, "old") == [1, 1]
    full = build(gangs=[held, new])
    assert decisions(plan(full), full) == {"new": "place", "old": "preempt"}


def two_to_move() -> Instance:
    """Two servers half held by movable gangs of 4 and 3 GPUs, and a gang that asks for one whole."""
    gangs = [
        runs("a", 0, LOW, movable=True),
        runs("b", 1, 0b111, movable=True),
        gang("new", gpus_per_pod=8),
    ]
    return build(nodes_per_rack=2, gangs=gangs)


@pytest.mark.parametrize(
    ("limits", "moved", "started"),
    [
        (None, ["b"], True),
        (Moves(max_gangs=1), ["b"], True),
        (Moves(max_gpus=3), ["b"], True),
        (Moves(max_gpus=2), [], False),
        (Moves(max_gangs=0), [], False),
    ],
)
def test_the_smaller_gang_moves_as_far_as_the_limits_let_it(
    limits: Moves | None, moved: list[str], *, started: bool
) -> None:
    instance = asked(two_to_move(), moves=limits)
    best = plan(instance)
    assert [name for name, d in decisions(best, instance).items() if d == "move"] == moved
    assert (decisions(best, instance)["new"] == "place") is started
    assert dict(best.tiers)["disruption"] == (3 if moved else 0)


def test_what_the_moves_bought_is_told_against_the_best_plan_without_them() -> None:
    instance = two_to_move()
    (bought,) = moves_of(instance, plan(instance))
    # b (3 GPUs) moves, so ``new`` starts: 8 GPUs more, at the full share. No server is whole then or now.
    assert (bought.gangs, bought.moved_gpus, bought.admitted) == ((1,), 3, (2,))
    assert (bought.gpus, bought.bandwidth, bought.whole_nodes, bought.whole_domains) == (
        8,
        8000,
        0,
        0,
    )
    assert bought.gain == (8000 + 8000) // 3


def test_one_pod_of_a_gang_moves_and_the_other_stays() -> None:
    # ``new`` asks for a whole server. Pod 0 stands alone on the first; the second holds pod 1.
    pair = gang("pair", 2, 2, stands=[(0, 0, 0, 0b11), (0, 1, 1, 0b11)], movable=True)
    instance = build(nodes_per_rack=2, gangs=[pair, gang("new", gpus_per_pod=8)])
    best = plan(instance)
    places = nodes(best, instance, "pair")
    assert decisions(best, instance) == {"new": "place", "pair": "move"}
    assert places in ([0, 0], [1, 1])
    assert dict(best.tiers)["disruption"] == 4  # all of the gang restarts


def test_a_launcher_does_not_restart_for_span_alone() -> None:
    roles = [role("launcher", 1, 0), role("worker", 1, 8)]
    stands = [(0, 0, 0, None), (1, 0, 1, ALL)]
    split = gang("split", roles=roles, stands=stands, movable=True)
    instance = build(nodes_per_rack=2, gangs=[split])
    best = plan(instance)
    assert decisions(best, instance) == {"split": "keep"}
    # its move would restart all 8 GPUs: disruption stays 0, span is 8 x (2 nodes - 1)
    assert (dict(best.tiers)["disruption"], dict(best.tiers)["span"]) == (0, 8)


def test_who_stays_on_a_cordoned_server_stays_and_who_moves_may_not_come_back() -> None:
    old = runs("old", 0, LOW, movable=True)
    cordoned = build(nodes_per_rack=2, gangs=[old])
    servers = (replace(cordoned.cluster.nodes[0], unschedulable=True), cordoned.cluster.nodes[1])
    instance = replace(cordoned, cluster=replace(cordoned.cluster, nodes=servers))
    assert decisions(plan(instance), instance) == {"old": "keep"}


def test_a_failed_worker_comes_back_before_anything_new_starts() -> None:
    broken = gang("broken", 2, 4, stands=[(0, 1, 0, LOW)])
    instance = build(gangs=[broken, gang("new", gpus_per_pod=4, submitted=0)])
    assert decisions(plan(instance), instance) == {"broken": "complete", "new": "wait"}


@pytest.mark.parametrize(("until", "pods"), [(None, 4), (1, 2)])
def test_a_broken_elastic_gang_is_completed_to_as_many_as_fit_unless_its_size_is_held(
    until: int | None, pods: int
) -> None:
    roles = [role("worker", 1, 2, most=4)]
    broken = replace(gang("a", roles=roles, stands=[(0, 1, 0, 3)]), resize_after=until)
    best = plan(build(gangs=[broken]))
    assert best.decisions[0].decision == "complete"
    assert len(best.decisions[0].pods) == pods


def test_a_broken_gang_does_not_move_but_may_be_stopped() -> None:
    broken = gang("a", 3, 4, stands=[(0, 1, 0, LOW)], movable=True, preemptible=True)
    new = gang("new", gpus_per_pod=8, priority=1)
    instance = build(nodes=build(nodes_per_rack=1).cluster.nodes, gangs=[broken, new])
    assert decisions(plan(instance), instance) == {"a": "preempt", "new": "place"}
    beside = build(nodes_per_rack=2, gangs=[replace(broken, preemptible=False), new])
    assert decisions(plan(beside), beside)["a"] == "keep"


@pytest.mark.parametrize(("after", "first"), [(3_600, "small"), (7_200, "large")])
def test_an_aged_gang_goes_before_larger_peers(after: int, first: str) -> None:
    # Both fit alone. ``small`` waited two hours: more than one, not more than two.
    gangs = [
        gang("large", gpus_per_pod=8, submitted=9_000),
        gang("small", gpus_per_pod=1, submitted=1_800),
    ]
    instance = asked(build(gangs=gangs), starvation_after_s=after)
    best = plan(instance)
    assert decisions(best, instance)[first] == "place"
    names = [name for name, _ in best.tiers]
    aged = ["aged/0", "aged-waiting/0"] if first == "small" else []
    assert names[: len(aged) + 2] == [*aged, "admission/0", "waiting/0"]
    if aged:
        assert dict(best.tiers)["aged-waiting/0"] == 7_200


def test_an_aged_gang_is_no_reason_to_stop_a_peer() -> None:
    gangs = [
        runs("old", 0, preemptible=True, movable=True),
        gang("aged", gpus_per_pod=8, submitted=0),
        gang("fresh", gpus_per_pod=8, submitted=9_000),
    ]
    instance = asked(build(gangs=gangs), starvation_after_s=60)
    assert decisions(plan(instance), instance)["old"] == "keep"


def test_tidying_moves_for_whole_servers_and_racks_only_where_it_is_asked_for() -> None:
    gangs = [runs("a", 0, 0b1, movable=True), runs("b", 2, 0b1, movable=True)]
    plain = build(racks=2, nodes_per_rack=2, gangs=gangs)
    assert set(decisions(plan(plain), plain).values()) == {"keep"}
    tidy = build(
        racks=2, nodes_per_rack=2, gangs=gangs, objectives=("admission", "defragment", "disruption")
    )
    best = plan(tidy)
    assert sorted(decisions(best, tidy).values()) == ["keep", "move"]
    # Three servers of 8 are whole, and two of them are a whole rack: 24 + 16.
    assert dict(best.tiers)["defragment"] == 40


def planned(one: Gang, *places: tuple[int, int]) -> Gang:
    """The gang as an earlier plan wanted it: (index, node) of pods of its first role."""
    return replace(one, planned=tuple(PlannedPod(0, index, node) for index, node in places))


def test_ties_stay_where_an_earlier_plan_wanted_them() -> None:
    wanted = planned(gang("a", 2, 8), (0, 2), (1, 0))
    instance = build(nodes_per_rack=3, gangs=[wanted], objectives=(*OBJECTIVES, "stability"))
    best = plan(instance)
    assert nodes(best, instance, "a") == [2, 0]
    assert dict(best.tiers)["stability"] == 0


def test_stability_counts_the_gpus_of_pods_elsewhere_and_of_those_that_run() -> None:
    old = planned(runs("old", 0), (0, 1))
    wanted = planned(gang("new", 2, 4), (0, 0), (1, 1))
    instance = build(nodes_per_rack=2, gangs=[old, wanted], objectives=(*OBJECTIVES, "stability"))
    # ``old`` may not move: 8. ``new`` fits on the second server alone: its first pod is elsewhere: 4.
    assert dict(plan(instance).tiers)["stability"] == 12


def test_two_gangs_exchange_places_for_topology() -> None:
    # Each is split over both racks; exchanging one pod of each puts both into one rack.
    def split(name: str, first: int, second: int) -> Gang:
        stands = [(0, 0, first, ALL), (0, 1, second, ALL)]
        return gang(name, 2, 8, stands=stands, movable=True)

    instance = build(racks=2, nodes_per_rack=2, gangs=[split("a", 0, 2), split("b", 1, 3)])
    assert set(decisions(plan(instance), instance).values()) == {"keep"}  # disruption comes first
    first = asked(instance, objectives=(Objective("admission"), Objective("span")))
    best = plan(first)
    assert set(decisions(best, first).values()) == {"move"}
    # Two servers each, in one rack and one block: (2 - 1) x 16 each.
    assert dict(best.tiers)["span"] == 32


@pytest.mark.parametrize(("least", "moves"), [("0.134", True), ("0.135", False)])
def test_a_gang_that_moves_must_reach_its_least_share(least: str, *, moves: bool) -> None:
    # ``pair`` holds a server that ``new`` asks for, and has 4 GPUs on each of two others to go to:
    # min(370,800, 50,000) of the 370,800 that one server would give is 0.1348...
    pair = gang(
        "pair", 2, 4, stands=[(0, 0, 0, LOW), (0, 1, 0, HIGH)], movable=True, min_share=least
    )
    fixed = [runs(f"fixed{n}", n, LOW) for n in (1, 2)]
    instance = build(nodes_per_rack=3, gangs=[pair, *fixed, gang("new", gpus_per_pod=8)])
    found = decisions(plan(instance), instance)
    assert (found["pair"], found["new"]) == (("move", "place") if moves else ("keep", "wait"))


def test_growing_is_not_bound_by_the_least_share() -> None:
    # Eight GPUs on two servers reach 134 permille; the gang grows all the same.
    roles = [role("worker", 1, 4, most=2)]
    grows = gang("a", roles=roles, stands=[(0, 0, 0, LOW)], min_share="0.5")
    instance = build(nodes_per_rack=2, gangs=[grows, runs("fixed", 0, HIGH)])
    best = plan(asked(instance, objectives=(Objective("growth"),)))
    assert best.tiers == (("growth/0", 4),)


def test_gangs_that_are_to_stay_do_not_move() -> None:
    instance = two_to_move()
    best = plan(instance, immovable=frozenset([0, 1]))
    assert decisions(best, instance) == {"a": "keep", "b": "keep", "new": "wait"}


def test_a_least_gain_of_moves_is_refused() -> None:
    with pytest.raises(ValueError, match="least gain"):
        plan(asked(two_to_move(), moves=Moves(min_gain=Fraction(1, 2))))


@pytest.mark.slow
def test_the_generator_of_busy_clusters_draws_every_decision_and_its_features_can_be_switched_off() -> (
    None
):
    assert busy(5) == busy(5)
    found = {d.decision for seed in range(60) for d in plan(busy(seed)).decisions}
    assert found == {"place", "complete", "keep", "move", "resize", "preempt", "wait"}
    plain = [busy(seed, without=("movable", "preemptible", "elastic")) for seed in range(60)]
    found = {d.decision for instance in plain for d in plan(instance).decisions}
    assert found == {"place", "complete", "keep", "wait"}
    with pytest.raises(ValueError, match="no such feature"):
        busy(5, more=("color",))


def test_most_busy_clusters_are_contended() -> None:
    contended, tried = 0, examples(100, 30)
    for seed in range(tried):
        kinds = {d.decision for d in plan(busy(seed)).decisions}
        contended += bool(kinds & {"wait", "preempt", "move", "resize"})
    assert contended >= tried * 7 // 10


@pytest.mark.parametrize("seed", first_fast(range(20), 5))
def test_what_is_pruned_where_gangs_run_changes_no_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    instance = busy(seed, without=SMALL, more=("movable", "preemptible", "elastic", "stability"))
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize(
    ("limits", "kept"),
    [
        (None, True),
        (Moves(max_gangs=1, max_gpus=3), True),
        (Moves(max_gangs=0), False),
        (Moves(max_gpus=2), False),
    ],
)
def test_a_plan_that_moves_more_than_the_policy_allows_is_no_incumbent(
    limits: Moves | None, *, kept: bool
) -> None:
    """As a solution of a relaxation may be, once it is rounded."""
    moving = plan(asked(two_to_move(), moves=None)).decisions
    instance = asked(two_to_move(), moves=limits)
    ledger = Ledger(instance, base_decisions(instance))
    assert ledger.offer(moving) is kept
