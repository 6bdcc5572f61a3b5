"""Rule 2.14: while a gang waits for which the Policy holds room, nobody below it starts.

Servers of eight GPUs in one rack each; ``full`` runs on n01, may not be stopped, and leaves it two GPUs.
"""

from __future__ import annotations

from dataclasses import replace
from threading import Event

import pytest
from building import build, gang, mask, role
from bundles import read_all
from effort import examples, first_fast
from exhaustive import plan
from exhaustive_holding import holders
from exhaustive_naive import Naive
from outcomes import planned
from plan_documents import Doc, entry, restated, sealed
from test_exhaustive import SMALL
from tiny import tiny
from tiny_busy import busy

from models.documents.canonical import canonical_instance
from models.documents.policy import SolveLimits
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement
from models.program.base_state import base_decisions
from models.program.part import Standing
from models.queues.queue_shares import beyond_limit
from models.queues.room_holding import blockers, passing
from models.results.plan import compose
from models.verify.adaptor import read_case
from models.verify.check import check
from models.verify.outcome import Outcome
from models.verify.rules.hold_room import holding
from planner.errors import InputError
from planner.pipelines.required_gangs import unmet
from planner.read.inputs import instance_from_document
from planner.search.explain.shortage import EmptyCluster
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.show.explain.explanation import Explanation
from planner.show.reason_words import words

NOW = "2026-11-21T10:00:00Z"
FULL = gang("full", 1, 6, stands=[(0, 0, 0, mask(*range(6)))])
BIG = gang("big", 2, 8, priority=5)
LOW = gang("low", 1, 4, priority=1)
HELD = "room is held for default/big (priority 5), which waits"


def cluster(*gangs: Gang, least: int | None = 5) -> Instance:
    """n01 with ``full``, n02 empty: 10 GPUs are free, 8 of them on one server."""
    instance = build(nodes_per_rack=2, gangs=[FULL, *gangs])
    return replace(instance, policy=replace(instance.policy, hold_room_from=least))


def test_nobody_starts_below_a_gang_for_which_room_is_held() -> None:
    # 16 GPUs for big, 10 are free: it waits. low would fit on n02, tiny even on n01.
    found = planned(cluster(BIG, LOW, gang("tiny", 1, 2)))
    assert found.decisions() == {"big": "wait", "full": "keep", "low": "wait", "tiny": "wait"}
    for name in ("low", "tiny"):
        reason = found.of(name).reason
        assert reason is not None
        assert (reason.code, words(reason)) == ("HeldRoom", HELD)
    assert found.reason("big") == "NoRoom"
    assert not any("in the Policy" in note for note in found.solution.notes)


@pytest.mark.parametrize("least", [None, 6])
def test_without_the_field_or_below_it_lower_gangs_start(least: int | None) -> None:
    found = planned(cluster(BIG, LOW, least=least))
    assert found.decision("low") == "place"
    advice = "; holdRoom: {from: 5} in the Policy would hold it"
    advised = any(note.endswith(advice) for note in found.solution.notes)
    assert advised is (least is None)


def test_peers_start_and_what_runs_goes_on() -> None:
    # 10 GPUs are free: peer takes 4 and torn the one that it lacks, grows takes all 5 that are left.
    peer = gang("peer", 1, 4, priority=5)
    grows = gang("grows", roles=[role("worker", 1, 1, most=6)], stands=[(0, 0, 1, 1)])
    torn = gang("torn", 2, 1, stands=[(0, 0, 1, 2)])
    found = planned(cluster(BIG, peer, grows, torn, LOW))
    assert found.decisions() == {
        "big": "wait",
        "full": "keep",
        "grows": "resize",
        "low": "wait",
        "peer": "place",
        "torn": "complete",
    }


@pytest.mark.parametrize(
    "above",
    [
        gang("big", 3, 8, priority=5),  # 24 GPUs, the cluster has 16: never
        gang("big", 1, 9, priority=5),
        gang("big", 2, 8, priority=5, same="node"),
        gang("big", 2, 8, priority=5, held="Incomplete"),
        gang("big", 1, 8, priority=5),  # it starts
    ],
)
def test_who_could_never_start_or_is_held_or_starts_holds_no_room(above: Gang) -> None:
    assert planned(cluster(above, gang("low", 1, 2))).decision("low") == "place"


def test_a_gang_is_stopped_only_for_one_that_may_start() -> None:
    # low would stop idle for its four GPUs; big needs n01, which nobody clears.
    idle = gang("idle", 1, 8, stands=[(0, 0, 1, mask(*range(8)))], preemptible=True)
    assert planned(cluster(BIG, LOW, idle)).decision("idle") == "keep"
    assert planned(cluster(BIG, LOW, idle, least=None)).decision("idle") == "preempt"


def test_room_is_held_by_the_paths_for_large_clusters_too() -> None:
    many = [gang(f"low{i}", 1, 1 + i % 3, priority=i % 2) for i in range(6)]
    instance = cluster(BIG, gang("next", 1, 2, priority=6), *many)
    found = solve(instance, size=5000).decisions
    started = {g.name for g, d in zip(instance.gangs, found, strict=True) if d.decision == "place"}
    assert started == {"next"}


def test_it_is_explained_what_would_help() -> None:
    instance = cluster(BIG, LOW)
    low = Explanation(instance, solve(instance).decisions, 2)
    assert low.help[0].startswith("default/big must start or go, since room is held for it: ")


def test_a_plan_that_passes_is_repaired_and_a_part_leaves_out_who_waits() -> None:
    instance = cluster(BIG, LOW, gang("next", 1, 2, priority=6))
    big, full, low, top = base_decisions(instance)
    low = GangDecision("place", (PodPlacement(0, 0, 1, 15),))
    top = GangDecision("place", (PodPlacement(0, 0, 0, 192),))
    assert passing(instance, [one.pods for one in (big, full, low, top)]) == [2]
    ledger = Ledger(instance, base_decisions(instance))
    assert ledger.offer((big, full, low, top))
    assert [one.decision for one in ledger.incumbent.decisions] == ["wait", "keep", "wait", "place"]
    standing = Standing(instance, base_decisions(instance))
    assert standing.part([0, 1], {2, 3}, SolveLimits()).gangs == (3,)
    inside = standing.part([0, 1], {0, 2, 3}, SolveLimits())
    assert inside.gangs == (0, 2, 3)
    assert blockers(inside.instance) == (2, 0)


def passed() -> Doc:
    """A sound plan in which low starts below big, which waits."""
    instance = cluster(BIG, LOW, least=None)
    return compose(instance, solve(instance), name="p", created_at=NOW, generator="test")


def with_room(plan: Doc, least: int | None) -> Doc:
    plan["instance"]["policy"]["spec"]["holdRoom"] = None if least is None else {"from": least}
    return plan


def test_the_judge_names_who_passes_and_whom() -> None:
    plan = passed()
    assert check(plan) == []
    (found,) = check(sealed(restated(with_room(plan, 5))))
    assert (found.rule, found.gang) == ("hold-room", "default/low")
    assert found.message == ("starts, but room is held for default/big (priority 5), which waits")
    assert check(sealed(restated(with_room(plan, 6)))) == []


@pytest.mark.parametrize(
    ("least", "by", "says"),
    [
        (5, ("big", 5), None),
        (5, ("big", 6), "no room is held for default/big of priority 6"),
        (5, ("full", 5), "no room is held for default/full of priority 5"),
        (5, None, "names no gang for which room is held"),
        (6, ("big", 5), "no gang of higher priority waits for which room is held"),
    ],
)
def test_the_judge_checks_for_whom_room_is_said_to_be_held(
    least: int, by: tuple[str, int] | None, says: str | None
) -> None:
    instance = cluster(BIG, LOW)
    plan = compose(instance, solve(instance), name="p", created_at=NOW, generator="test")
    entry(plan, "low")["reason"] = held_for(by)
    found = [one.message for one in check(sealed(with_room(plan, least))) if one.rule == "reason"]
    unshown = [] if by is not None else ["HeldRoom: states nothing that shows it"]
    assert found == ([] if says is None else [f"HeldRoom: {says}", *unshown])


def held_for(by: tuple[str, int] | None) -> Doc:
    """A reason that names the gang for which room is held, and its priority."""
    named = [] if by is None else [{"gang": f"default/{by[0]}", "priority": by[1]}]
    return {"code": "HeldRoom", "message": "", "fields": {"by": named}}


def test_another_code_has_no_field_for_whom_room_is_held() -> None:
    instance = cluster(BIG, LOW)
    plan = compose(instance, solve(instance), name="p", created_at=NOW, generator="test")
    entry(plan, "low")["reason"]["code"] = "NoRoom"
    found = {one.message for one in check(sealed(plan))}
    assert found == {"NoRoom: has no field by", "NoRoom: states nothing that shows it"}


def test_program_judge_and_reference_agree_on_who_holds_room_and_it_is_who_may_ever_start() -> None:
    more = (
        "hold_room",
        "priorities",
        "selectors",
        "taints",
        "role_model",
        "slices",
        "required",
        "held",
        "resources",
        "queues",
        "launchers",
    )
    found = 0
    for seed in range(examples(200, 40)):
        instance = (busy if seed % 3 == 0 else tiny)(seed, more=more)
        least = instance.policy.hold_room_from
        if least is None:
            continue
        best = plan(instance).solution()
        document = compose(instance, best, name="p", created_at=NOW, generator="test")
        case, empty = read_case(document).case, EmptyCluster(instance)
        assert case is not None
        waiting = {
            i
            for i, one in enumerate(instance.gangs)
            if not one.running and one.hold is None and one.priority >= least
        }
        able = {
            i
            for i in waiting
            if empty.never(empty.demand(i)) is None
            and beyond_limit(instance, instance.gangs[i]) is None
        }
        assert able >= set(blockers(instance)) == holders(instance), seed
        judged = {change.label for change in holding(Outcome(case))}
        assert judged == {"/".join(instance.gangs[i].key) for i in blockers(instance)}, seed
        found += len(waiting) - len(able)
    assert found > 3


def test_the_field_is_left_out_where_it_says_nothing_and_reads_back() -> None:
    document = canonical_instance(cluster(BIG, least=None))
    assert "holdRoom" not in document["policy"]["spec"]
    document["policy"]["spec"]["holdRoom"] = None
    nothing = instance_from_document(document)
    assert nothing.policy.hold_room_from is None
    assert "holdRoom" not in canonical_instance(nothing)["policy"]["spec"]
    held = canonical_instance(cluster(BIG, least=-7))
    assert held["policy"]["spec"]["holdRoom"] == {"from": -7}
    assert instance_from_document(held).policy.hold_room_from == -7
    assert canonical_instance(instance_from_document(held)) == held


@pytest.mark.parametrize("value", [1000, {}, {"from": "high"}, {"from": 2_000_000_001}, {"at": 1}])
def test_it_takes_a_priority(value: object) -> None:
    spec = {"holdRoom": value}
    with pytest.raises(InputError, match="holdRoom"):
        read_all([{"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}])


def test_of_a_required_gang_it_is_proven_that_held_room_keeps_it_out() -> None:
    instance = cluster(BIG, LOW, gang("peer", 1, 4, priority=5))
    found = unmet((2,), instance, solve(instance), Event())
    assert [(one.name, one.proven, one.why) for one in found] == [("default/low", True, HELD)]


@pytest.mark.parametrize("seed", first_fast([127, 253, 345, 352], 2))
def test_no_plan_that_the_checker_lets_pass_is_better_and_one_is_as_good(seed: int) -> None:
    naive = Naive(tiny(seed, without=SMALL, more=("hold_room", "priorities", "required")))
    assert 20 < naive.size < 3000
    assert naive.best() == plan(naive.instance).tiers
