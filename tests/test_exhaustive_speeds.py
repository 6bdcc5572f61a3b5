"""The exhaustive planner on speeds, goodput and services, against plans and values worked out by hand.

Switched servers of 8 GPUs (inside 370,800 MB/s), one NIC of 400 Gbit/s (50,000 MB/s). H100s count 990
here, A100s 312: 312 / 990 = 0.31515..., so gangs on A100s reach 315 permille, in steps of 20: 300.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from typing import Any

import pytest
from building import build, gang, node, role
from building_servers import switched, v100
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_speeds import speed
from exhaustive_values import tier_values
from test_exhaustive import SMALL, decisions, unpruned, value
from test_exhaustive_running import ALL, LOW, runs
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.instance.cluster import Node
from models.instance.gang import Gang
from models.instance.instance import Instance

H100 = replace(switched(8), relative_speed=Fraction(990))
A100 = replace(switched(8, gpu="A100"), relative_speed=Fraction(312))
PLAIN = replace(switched(8, gpu="L40"), relative_speed=None)

OBJECTIVES = ("goodput", "waiting", "disruption", "bandwidth", "growth", "span", "stranded")


def under_goodput(gangs: Sequence[Gang], nodes: Sequence[Node] = (), **fields: Any) -> Instance:  # noqa: ANN401
    """An instance of these nodes, else of two H100 servers; ``fields``: of ``build``."""
    two = [node(f"n{n}", H100) for n in range(2)]
    return build(nodes=nodes or two, gangs=gangs, **{"objectives": OBJECTIVES, **fields})


def communicating(one: Gang, fraction: str) -> Gang:
    return replace(one, fraction=Fraction(fraction))


@pytest.mark.parametrize(
    ("share", "fraction", "relative", "expected"),
    [
        (1000, "0.25", 1000, 1000),
        (None, "0.95", 1000, 1000),
        (None, "0.95", 315, 300),
        (500, "0.25", 1000, 800),  # 1 / (0.75 + 0.5)
        (134, "0.25", 1000, 380),  # 1 / (0.75 + 1.8656) = 0.3823
        (134, "0.25", 315, 120),  # 0.1204
        (250, "0.95", 1000, 240),  # 1 / (0.05 + 3.8) = 0.2597
        (1, "0", 1000, 1000),
        (0, "0.25", 1000, 0),  # as a share of 1: 1 / (0.75 + 250) = 0.0039
        (980, "0.95", 1000, 980),  # 1 / (0.05 + 0.9693) = 0.98095
        (978, "0.95", 1000, 960),  # 1 / (0.05 + 0.97137) = 0.97908
    ],
)
def test_a_speed_is_what_links_and_gpus_leave_in_steps_of_20(
    share: int | None, fraction: str, relative: int, expected: int
) -> None:
    one = communicating(gang("a", gpus_per_pod=2), fraction)
    assert speed(one, share, relative) == expected
    silent = replace(one, pattern="none")
    assert speed(silent, share, relative) == relative // 20 * 20


def test_the_slowest_gpu_of_a_gang_counts_next_to_the_fastest_of_the_cluster() -> None:
    nodes = [node("n0", H100), node("n1", A100)]
    roles = [role("worker", 2, 8, mix_models=True)]
    alone = under_goodput([gang("a", gpus_per_pod=8)], nodes)
    assert value(plan(alone), "goodput/0") == 8 * 1000
    both = under_goodput([gang("a", gpus_per_pod=8), gang("b", gpus_per_pod=8)], nodes)
    assert value(plan(both), "goodput/0") == 8 * 1000 + 8 * 300
    mixed = under_goodput([gang("a", roles=roles)], nodes)
    assert value(plan(mixed), "goodput/0") == 16 * 300


def test_a_fast_server_that_nobody_may_use_is_still_the_fastest() -> None:
    nodes = [node("n0", H100, unschedulable=True), node("n1", A100)]
    best = plan(under_goodput([gang("a", gpus_per_pod=8)], nodes))
    assert value(best, "goodput/0") == 8 * 300


def test_gpus_of_unknown_speed_are_taken_last_and_change_no_others() -> None:
    # 990, 312 and unknown: 1000, 300 (315 in steps of 20) and again 300 permille
    nodes = [node("n0", PLAIN), node("n1", A100), node("n2", H100)]
    for gangs, worth in ((1, 1000), (2, 1300), (3, 1600)):
        waiting = [gang(f"g{n}", gpus_per_pod=8) for n in range(gangs)]
        assert value(plan(under_goodput(waiting, nodes)), "goodput/0") == 8 * worth


def test_gpus_count_the_same_where_one_speed_is_known_and_for_gangs_that_ask_for_it() -> None:
    small = gang("a", gpus_per_pod=8)
    unknown = under_goodput(
        [small, gang("b", gpus_per_pod=8)], [node("n0", PLAIN), node("n1", A100)]
    )
    assert value(plan(unknown), "goodput/0") == 16 * 1000
    ignores = replace(small, counts_speed=False)
    known = under_goodput(
        [ignores, gang("b", gpus_per_pod=8)], [node("n0", H100), node("n1", A100)]
    )
    assert value(plan(known), "goodput/0") == 16 * 1000
    cpu = under_goodput([gang("c", roles=[role("launcher", 3, 0)])], [node("n1", A100)])
    assert value(plan(cpu), "goodput/0") == 1000


@pytest.mark.parametrize(("main", "starts"), [("goodput", "small"), ("admission", "large")])
def test_fewer_gpus_that_run_are_worth_more_than_many_that_wait_for_the_network(
    main: str, starts: str
) -> None:
    # ``large`` crosses racks: 50,000 / 4 of 50,000 is 250 permille, so 16 GPUs at 240: 3840 < 8000.
    large = communicating(gang("large", 2, 8), "0.95")
    nodes = [node(f"n{n}", H100, rack=f"r{n}") for n in range(2)]
    gangs = [large, gang("small", gpus_per_pod=8)]
    instance = under_goodput(
        gangs, nodes, oversubscription=(4, 4), objectives=(main, *OBJECTIVES[1:])
    )
    assert decisions(instance)[starts] == "place"
    assert sorted(decisions(instance).values()) == ["place", "wait"]
    assert plan(instance).tiers[0] == (
        ("goodput/0", 8 * 1000) if main == "goodput" else ("admission/0", 16)
    )


def test_aged_gangs_count_their_speed_too_and_kept_gpus_do_not() -> None:
    nodes = [node("n0", A100), node("n1", A100), node("n2", H100, unschedulable=True)]
    gangs = [
        runs("old", 0, preemptible=True, submitted_at=0),
        gang("aged", gpus_per_pod=4, submitted=400),
        gang("fresh", gpus_per_pod=4, submitted=1000),
    ]
    instance = under_goodput(gangs, nodes)
    instance = replace(instance, policy=replace(instance.policy, starvation_after_s=500))
    assert plan(instance).tiers[:5] == (
        ("kept/0", 8),
        ("aged/0", 4 * 300),
        ("aged-waiting/0", 4 * 300 * 600),
        ("goodput/0", 16 * 300),
        ("waiting/0", 4 * 600),
    )


def test_a_gang_that_runs_whole_gains_no_speed_by_a_move_but_loses_it() -> None:
    pair = gang("pair", 2, 4, stands=[(0, 0, 0, LOW), (0, 1, 1, LOW)], movable=True)
    instance = under_goodput([pair], objectives=("goodput", "span"))
    # Two servers: 134 permille of what one gives, so 380; in one it would run at 1000.
    assert plan(instance).tiers == (("goodput/0", 8 * 380), ("span", 0))
    assert plan(replace(instance, gangs=(replace(pair, movable=False),))).tiers == (
        ("goodput/0", 8 * 380),
        ("span", 8),
    )
    held = gang("held", 1, 8, stands=[(0, 0, 0, ALL)], movable=True)
    urgent = replace(gang("urgent", gpus_per_pod=8), priority=1)
    slower = under_goodput([held, urgent], [node("n0", H100), node("n1", A100)])
    assert value(plan(slower), "goodput/0") == 8 * 300


def test_a_gang_with_a_pod_missing_counts_the_speed_it_is_completed_to() -> None:
    stands = [(0, 0, 0, 0b11), (0, 1, 1, 0b11)]
    broken = gang("broken", 3, 2, stands=stands)
    assert value(plan(under_goodput([broken])), "goodput/0") == 6 * 380
    whole = gang("whole", 2, 2, stands=stands)
    assert value(plan(under_goodput([whole])), "goodput/0") == 4 * 380


def test_gpus_that_nobody_named_run_at_the_worst_speed() -> None:
    # The worst pair of the mesh reaches 200 permille of the best: 1 / (0.75 + 1.25).
    hidden = gang("r", gpus_per_pod=2, stands=[(0, 0, 0, None)])
    instance = under_goodput([hidden], [node("n0", v100())])
    assert value(plan(instance), "goodput/0") == 2 * 500


def served(one: Gang, namespace: str = "default", service: str = "chat") -> Gang:
    return replace(one, namespace=namespace, service=service)


UNLIKE = (node("n0", H100), node("n1", A100))


def test_a_replica_starts_only_on_the_gpu_models_on_which_its_service_runs() -> None:
    first = served(runs("first", 1, LOW))
    second = served(gang("second", gpus_per_pod=8))
    assert decisions(under_goodput([first, second], UNLIKE))["second"] == "wait"
    alone = under_goodput([first, replace(second, service=None)], UNLIKE)
    assert decisions(alone)["second"] == "place"
    elsewhere = under_goodput([first, served(second, namespace="other")], UNLIKE)
    assert decisions(elsewhere)["second"] == "place"
    other = under_goodput([first, served(second, service="search")], UNLIKE)
    assert decisions(other)["second"] == "place"
    both = under_goodput(
        [first, served(runs("third", 0, 1)), served(gang("new", gpus_per_pod=7))], UNLIKE
    )
    assert decisions(both)["new"] == "place"


@pytest.mark.parametrize(("service", "placed"), [("chat", 1), (None, 2)])
def test_a_service_of_which_nothing_runs_settles_on_one_gpu_model(
    service: str | None, placed: int
) -> None:
    gangs = [replace(gang(name, gpus_per_pod=8), service=service) for name in ("a", "b")]
    best = plan(under_goodput(gangs, UNLIKE))
    assert sum(d.decision == "place" for d in best.decisions) == placed
    assert value(best, "goodput/0") == 8 * 1000 + (placed - 1) * 8 * 300


def test_two_roles_of_a_replica_are_on_one_gpu_model() -> None:
    roles = [role("prefill", 1, 8), role("decode", 1, 8)]
    apart = under_goodput([gang("a", roles=roles)], UNLIKE)
    assert decisions(apart) == {"a": "place"}
    assert decisions(under_goodput([served(gang("a", roles=roles))], UNLIKE)) == {"a": "wait"}
    free = [roles[0], replace(roles[1], mix_models=True)]
    assert decisions(under_goodput([served(gang("a", roles=free))], UNLIKE)) == {"a": "place"}


def test_roles_that_mix_models_and_roles_without_gpus_are_free_of_their_service() -> None:
    first = served(runs("first", 1, LOW))
    mixing = served(gang("mixing", roles=[role("worker", 1, 8, mix_models=True)]))
    assert decisions(under_goodput([first, mixing], UNLIKE))["mixing"] == "place"
    cpu = [node("n0", None), node("n1", A100)]
    launched = served(
        gang("new", roles=[role("launcher", 1, 0, same="node"), role("worker", 1, 4)])
    )
    assert decisions(under_goodput([first, launched], cpu))["new"] == "place"
    # Pods without GPUs settle nothing: ``first`` is free to choose.
    front = served(gang("front", roles=[role("launcher", 1, 0)], stands=[(0, 0, 1, None)]))
    free = under_goodput([front, served(gang("new", gpus_per_pod=8))], UNLIKE)
    assert value(plan(free), "goodput/0") == 1 * 1000 + 8 * 1000


def test_pods_of_a_service_that_stay_are_where_they_are_and_those_that_move_are_bound() -> None:
    # ``old`` would make room on the H100s by moving to the A100s, on which nothing of its service runs.
    old = served(runs("old", 0, LOW, movable=True))
    nodes = [node("n0", H100, labels={"pool": "h"}), node("n1", A100)]
    new = gang("new", roles=[role("worker", 1, 8, selector={"pool": "h"})])
    bound = under_goodput([old, replace(new, priority=1)], nodes)
    assert decisions(bound) == {"new": "wait", "old": "keep"}
    free = under_goodput([replace(old, service=None), replace(new, priority=1)], nodes)
    assert decisions(free) == {"new": "place", "old": "move"}


@pytest.mark.parametrize("seed", first_fast(range(20), 5))
def test_what_is_pruned_under_goodput_changes_no_value(
    seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    more = ("movable", "preemptible", "elastic", "services", "unknown_gpus")
    instance = busy_by_speed(seed, without=SMALL[:-1], more=more)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


@pytest.mark.parametrize("draw", [tiny_by_speed, busy_by_speed])
def test_goodput_decides_otherwise_than_the_number_of_gpus_on_many_tiny_instances(
    draw: Any,  # noqa: ANN401
) -> None:
    assert draw(5) == draw(5)
    tried = examples(100, 20)
    assert sum(_worse_by_number(draw(seed)) for seed in range(tried)) >= tried // 20


def _worse_by_number(instance: Instance) -> bool:
    """Whether the best plan under ``admission`` is not the best under ``goodput``."""
    names = [one.name for one in instance.policy.objectives]
    objectives = tuple(
        replace(one, name="admission" if name == "goodput" else name)
        for one, name in zip(instance.policy.objectives, names, strict=True)
    )
    policy = replace(instance.policy, objectives=objectives)
    by_number = plan(replace(instance, policy=policy)).decisions
    return tier_values(instance, by_number) != plan(instance).tiers
