"""Inputs whose plans were worked out by hand: the planner finds them, and one gang at a time does not."""

from __future__ import annotations

from datetime import datetime
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from expected_plans import (
    Case,
    by_hand,
    case_of,
    cases,
    fits,
    instance_of,
    name_of,
    solution_by_hand,
    values,
    vector,
)
from one_at_a_time import queue, schedule

from models.instance.instance import Instance
from models.instance.solution import GangDecision, Solution
from models.results.plan import compose
from models.units import time_text
from models.verify.check import check, derive
from planner.search.solve import solve

CASES = cases()
FAILURES = [
    case_of(name)
    for name in (
        "any-order-places-one",
        "blocker-in-the-rack",
        "one-move-opens-two-servers",
        "reclaim-over-nvlink-domains",
        "scattered-small-jobs",
        "victims-wasted-2",
        "worker-back-first",
    )
]
"""What schedulers that take one gang at a time do worse."""


def document(instance: Instance, solution: Solution) -> dict[str, Any]:
    return compose(
        instance, solution, name="expected", created_at="2026-11-21T12:00:00Z", generator="test"
    )


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_plan_worked_out_by_hand_keeps_the_rules_and_has_these_values(
    case: Case, tmp_path: Path
) -> None:
    instance = instance_of(case, tmp_path)
    assert list(case.decisions) == sorted(map(name_of, instance.gangs))
    assert values(instance, by_hand(instance, case)) == case.tiers
    stated = document(instance, solution_by_hand(instance, case))
    assert check(stated) == []
    assert derive(stated) == case.tiers
    assert aged_in(stated) == case.aged


@pytest.mark.parametrize("case", CASES, ids=str)
def test_the_planner_finds_the_plan_worked_out_by_hand_and_proves_it(
    case: Case, tmp_path: Path
) -> None:
    instance = instance_of(case, tmp_path)
    plan = document(instance, solve(instance))
    assert check(plan) == []
    stated = {tier["name"]: tier["value"] for tier in plan["status"]["objectives"]}
    assert stated == case.tiers
    assert list(stated) == list(case.tiers)
    assert plan["status"]["outcome"] == "optimal"
    for entry in plan["spec"]["gangs"]:
        name = f"{entry['namespace']}/{entry['name']}"
        assert entry["decision"] in case.decisions[name], name
        if name in case.nodes and entry["decision"] != "keep":
            assert fits([pod["node"] for pod in entry["pods"]], case.nodes[name]), (name, entry)
    assert plan["status"].get("moves", []) == list(case.moves)
    assert aged_in(plan) == case.aged
    assert reserved_in(plan) == {
        name: (_time(held["start"]), held["nodes"]) for name, held in case.reserved.items()
    }
    expected = {_name(e): e["expectedStart"] for e in plan["spec"]["gangs"] if "expectedStart" in e}
    assert expected == {name: _time(at) for name, at in case.expected.items()}


def _time(value: datetime) -> str:
    return time_text(int(value.timestamp()))


def _name(entry: dict[str, Any]) -> str:
    return f"{entry['namespace']}/{entry['name']}"


def reserved_in(plan: dict[str, Any]) -> dict[str, tuple[str, list[str]]]:
    """Start and nodes of every reservation."""
    return {
        _name(entry): (entry["reserved"]["start"], entry["reserved"]["nodes"])
        for entry in plan["spec"]["gangs"]
        if "reserved" in entry
    }


def aged_in(plan: dict[str, Any]) -> tuple[str, ...]:
    return tuple(f"{e['namespace']}/{e['name']}" for e in plan["spec"]["gangs"] if e.get("aged"))


@pytest.mark.parametrize("case", FAILURES, ids=str)
def test_whoever_takes_one_gang_at_a_time_does_worse(case: Case, tmp_path: Path) -> None:
    instance = instance_of(case, tmp_path)
    assert vector(instance, schedule(instance)) < vector(instance, by_hand(instance, case))


def one_by_one(folder: str, tmp_path: Path) -> tuple[dict[str, str], Instance]:
    """What one gang at a time decides."""
    instance = instance_of(case_of(folder), tmp_path)
    return decided(instance, schedule(instance)), instance


def decided(instance: Instance, decisions: tuple[GangDecision, ...]) -> dict[str, str]:
    names = map(name_of, instance.gangs)
    return {name: decision.decision for name, decision in zip(names, decisions, strict=True)}


def test_reclaim_by_count_frees_gpus_that_fit_nothing(tmp_path: Path) -> None:
    found, _ = one_by_one("reclaim-over-nvlink-domains", tmp_path)
    # 16 are free, 24 are asked: two sweeps of 4 make it 24, in three racks
    stopped = [name for name, what in found.items() if what == "preempt"]
    assert stopped == ["interns/sweep-1", "interns/sweep-2"]
    assert found["foundation/moe-536b"] == "wait"


def test_reclaim_by_count_leaves_the_blocker_in_the_rack(tmp_path: Path) -> None:
    found, _ = one_by_one("blocker-in-the-rack", tmp_path)
    # 14 are free, 32 are asked: three ablations of 8 make it 38, and rerank stays in their rack
    stopped = [name for name, what in found.items() if what == "preempt"]
    assert stopped == ["interns/ablation-1", "interns/ablation-2", "interns/ablation-3"]
    assert (found["foundation/llama-ft"], found["serving/rerank"]) == ("wait", "keep")


def test_any_order_places_one_of_two(tmp_path: Path) -> None:
    instance = instance_of(case_of("any-order-places-one"), tmp_path)
    orders = list(permutations(queue(instance)))
    assert len(orders) == 2
    for order in orders:
        started = schedule(instance, order)
        assert list(decided(instance, started).values()).count("place") == 1


def test_one_at_a_time_gives_the_spare_server_to_whoever_queued_first(tmp_path: Path) -> None:
    found, instance = one_by_one("worker-back-first", tmp_path)
    assert found["foundation/pretrain"] == "keep"
    assert (found["legal/finetune"], found["medical/finetune"]) == ("place", "place")
    # 24 GPUs of pretrain stand idle: only 8 + 8 + 16 work
    assert values(instance, schedule(instance))["goodput/50"] == 32 * 1000


@pytest.mark.parametrize(
    ("folder", "gang"),
    [
        ("scattered-small-jobs", "foundation/pretrain-30b"),
        ("one-move-opens-two-servers", "foundation/dpo"),
    ],
)
def test_without_moves_the_large_gang_waits_beside_idle_gpus(
    folder: str, gang: str, tmp_path: Path
) -> None:
    found, instance = one_by_one(folder, tmp_path)
    assert found[gang] == "wait"
    free = sum(node.healthy.bit_count() for node in instance.cluster.nodes)
    free -= sum((pod.gpus or 0).bit_count() for g in instance.gangs for pod in g.running_pods)
    (asked,) = (g.weight_gpus for g in instance.gangs if name_of(g) == gang)
    assert free >= asked


def test_what_was_freed_for_one_gang_goes_to_another_in_the_next_cycle(tmp_path: Path) -> None:
    found, _ = one_by_one("victims-wasted-2", tmp_path)
    # launch takes the empty rack, sft finds none, the sweeps start again elsewhere
    assert (found["product/launch"], found["foundation/sft"]) == ("place", "wait")
    assert [found[f"interns/sweep-{i}"] for i in (1, 2, 3, 4)] == ["place"] * 4


def test_a_peer_of_the_victims_profits_where_each_gang_takes_what_it_needs(tmp_path: Path) -> None:
    found, instance = one_by_one("preemption", tmp_path)
    # hotfix takes fast's server; for ranker slow stops as well, in vain, and nightly inherits
    assert found["evals/nightly"] == "place"
    assert values(instance, schedule(instance))["kept/10"] == 0


def test_the_second_cycle_begins_where_the_first_ended(tmp_path: Path) -> None:
    first, second = (instance_of(case_of(f"victims-wasted-{i}"), tmp_path) for i in (1, 2))
    assert first.cluster == second.cluster
    after = by_hand(first, case_of("victims-wasted-1"))
    wanted = {
        (pod.index, pod.node)
        for gang, decision in zip(first.gangs, after, strict=True)
        for pod in decision.pods
        if decision.decision == "place" and gang.name == "sft"
    }
    (sft,) = (gang for gang in second.gangs if gang.name == "sft")
    assert {(pod.index, pod.node) for pod in sft.planned} == wanted


def test_patterns_are_given_to_nodes_one_to_one() -> None:
    assert fits(["a1", "b1"], ("a*|b*", "a*"))
    assert not fits(["b1", "b2"], ("a*|b*", "a*"))
    assert not fits(["a1"], ("a*", "a*"))
