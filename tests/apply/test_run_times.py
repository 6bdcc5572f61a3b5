"""minRunTime, evictedAt and evictionBackoff: who is left alone, who starts again when, and who says so.

Plans are made from documents as people write them, judged, and read again. The rules themselves are in
rule_cases/run_times.yaml.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from bundles import packed
from effort import first_fast
from plan_documents import sealed

from models.apply.notes import EvictNote
from models.documents.plan import PlanDocument
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.results.plan import compose
from models.units import epoch_seconds, time_text
from models.verify.check import check
from planner.pipelines.adjustments import evictions_of, with_evictions, with_previous
from planner.read.inputs import instance_from_document, load
from planner.read.instance_builder import with_granted_run_times
from planner.search.solve import solve
from planner.show.reason_words import words

Doc = dict[str, Any]

NOW = "2026-11-21T12:00:00Z"


def ago(minutes: int) -> str:
    return time_text(epoch_seconds(NOW) - 60 * minutes)


def doc(kind: str, name: str, status: Doc | None = None, **spec: object) -> Doc:
    tree: Doc = {"apiVersion": "gangplan.dev/v1alpha1", "kind": kind, "spec": spec}
    tree["metadata"] = {"name": name}
    return tree if status is None else {**tree, "status": status}


def cluster(nodes: int = 2) -> Doc:
    return doc("Cluster", "c", nodes=[{"name": f"n[1-{nodes}]", "model": "DGX H100"}])


def policy(**spec: object) -> Doc:
    return doc("Policy", "p", **{"now": NOW, **spec})


def queue(name: str, **spec: object) -> Doc:
    return doc("Queue", name, **spec)


def gang(
    name: str, pods: int = 1, *, at: str | None = None, status: Doc | None = None, **spec: object
) -> Doc:
    """``at``: the node on which its only pod runs."""
    roles = [{"name": "w", "replicas": pods, "gpus": 8}]
    stands = [{"role": "w", "index": 0, "node": at, "gpus": list(range(8))}] if at else []
    all_of_it = {"submittedAt": ago(600), "roles": roles, **spec}
    return doc("Gang", name, {"pods": stands, **(status or {})}, **all_of_it)


def victim(started: int, *, status: Doc | None = None, **spec: object) -> Doc:
    found = {"startedAt": ago(started), **(status or {})}
    return gang("low", at="n1", preemptible=True, status=found, **spec)


def read(tmp_path: Path, *documents: Doc) -> Instance:
    path = tmp_path / "input.json"
    path.write_bytes(packed(documents))
    return load([str(path)]).instance


def written(instance: Instance, solution: Solution) -> Doc:
    return compose(instance, solution, name="p", created_at=NOW, generator="test")


def planned(tmp_path: Path, *documents: Doc) -> tuple[dict[str, str], Doc]:
    """The decisions by name, and the plan, which the judge accepts and which reads as the same instance."""
    instance = read(tmp_path, *documents)
    plan = written(instance, solve(instance))
    assert check(plan) == []
    assert instance_from_document(plan["instance"]) == instance
    return {one["name"]: one["decision"] for one in plan["spec"]["gangs"]}, plan


def reason(plan: Doc, name: str) -> Doc:
    found: Doc = next(one for one in plan["spec"]["gangs"] if one["name"] == name)["reason"]
    return found


HIGH = gang("high", 2, priority=10)


@pytest.mark.parametrize(("since", "decision"), [(29, "keep"), (30, "preempt")])
def test_pods_that_start_later_do_not_prolong_the_time(
    tmp_path: Path, since: int, decision: str
) -> None:
    low = victim(1, status={"runsSince": ago(since)})
    found, _ = planned(tmp_path, cluster(), low, HIGH, policy(minRunTime="30m"))
    assert found["low"] == decision


@pytest.mark.parametrize(("own", "decision"), [("sub", "preempt"), ("all", "keep")])
def test_a_queue_grants_what_the_nearest_one_upward_states(
    tmp_path: Path, own: str, decision: str
) -> None:
    queues = [queue("all", minRunTime="60m"), queue("team", parent="all", minRunTime="20m")]
    every = [cluster(), *queues, queue("sub", parent="team"), HIGH, policy()]
    assert planned(tmp_path, *every, victim(30, queue=own))[0]["low"] == decision


def test_a_guarantee_waits_for_the_borrower_too(tmp_path: Path) -> None:
    owner = gang("owner", 2, queue="owner")
    every = [cluster(), queue("owner", guarantee={"gpus": 16}), victim(10), owner]
    found, plan = planned(tmp_path, *every, policy(minRunTime="30m"))
    assert found == {"low": "keep", "owner": "wait"}
    assert [one["gang"] for one in reason(plan, "owner")["fields"]["by"]] == ["default/low"]
    found, _ = planned(tmp_path, *every, policy())
    assert found == {"low": "preempt", "owner": "place"}


def test_the_judge_finds_a_gang_that_is_stopped_too_early(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, cluster(), victim(29), HIGH, policy(minRunTime="20m"))
    for at, rules in (("30m", {"run-time"}), ("29m", set())):
        plan["instance"]["policy"]["spec"]["minRunTime"] = at
        assert {violation.rule for violation in check(sealed(plan))} == rules


@pytest.mark.parametrize(
    ("minutes", "evictions", "starts"),
    [
        *((9, 1, False), (10, 1, True), (9, 0, False), (19, 2, False), (20, 2, True)),
        *((79, 4, False), (80, 4, True), (119, 9, False), (120, 1_000_000, True)),
    ],
)
def test_each_eviction_doubles_the_pause_up_to_the_longest(
    tmp_path: Path, minutes: int, evictions: int, starts: bool
) -> None:
    low = gang("low", status={"evictedAt": ago(minutes), "evictions": evictions})
    found, plan = planned(tmp_path, cluster(), low, policy())
    assert found["low"] == ("place" if starts else "wait")
    if not starts:
        assert reason(plan, "low")["code"] == "Backoff"


def test_a_pause_says_when_it_ends_and_can_be_switched_off(tmp_path: Path) -> None:
    low = gang("low", status={"evictedAt": ago(5), "evictions": 3})
    settings = policy(evictionBackoff={"base": "3m", "max": "1h"})
    (decision,) = solve(read(tmp_path, cluster(), low, settings)).decisions
    # 3 x 2^2 = 12 minutes after an eviction 5 minutes ago
    assert decision.reason is not None
    said = f"plans stopped or moved it; it may start again at {ago(-7)}"
    assert words(decision.reason) == said
    found, _ = planned(tmp_path, cluster(), low, policy(evictionBackoff=None))
    assert found["low"] == "place"


def test_a_preempted_gang_is_known_from_the_previous_plan(tmp_path: Path) -> None:
    _, plan = planned(tmp_path, cluster(), victim(60), HIGH, policy())
    known = evictions_of(PlanDocument.model_validate(plan))
    at = epoch_seconds(NOW)
    assert known == [EvictNote(("default", "low"), at, 1)]
    waits = read(tmp_path, cluster(), gang("low"), policy(now=ago(-5)))
    low = with_evictions(waits, known).gangs[0]
    assert (low.evicted_at, low.evictions, low.queued_at) == (at, 1, at)
    assert low.hold is not None
    assert low.hold.code == "Backoff"
    # the input states it, too: the later time and the higher count
    later = gang("low", status={"evictedAt": ago(-2), "evictions": 3})
    counted = read(tmp_path, cluster(), later, policy(now=ago(-5)))
    twice = [EvictNote(("default", "low"), at, 5)]
    assert with_evictions(counted, twice).gangs[0].evictions == 5
    assert with_evictions(counted, known).gangs[0].evictions == 3
    assert with_evictions(counted, twice).gangs[0].evicted_at == epoch_seconds(ago(-2))
    # a time without a number counts as one
    _, once = planned(tmp_path, cluster(), gang("low", status={"evictedAt": ago(2)}), policy())
    (note,) = evictions_of(PlanDocument.model_validate(once))
    assert (note.at, note.times) == (at - 120, 1)
    # not applied: it runs since before
    runs = read(tmp_path, cluster(), victim(60), policy(now=ago(-5)))
    assert with_evictions(runs, known).gangs[0].evicted_at is None


def test_nobody_is_evicted_twice_within_the_minimum_run_time(tmp_path: Path) -> None:
    """Rounds of 10 minutes: a high gang comes to the only server every other round and runs for one."""
    began, evictions = None, list[int]()
    for number in range(28):
        now = 10 * number
        status: Doc = {} if began is None else {"startedAt": ago(-began)}
        if evictions:
            status |= {"evictedAt": ago(-evictions[-1]), "evictions": len(evictions)}
        at = "n1" if began is not None else None
        low = gang("low", preemptible=True, at=at, status=status)
        high = [gang("high", priority=1)] if number % 2 else []
        instance = read(tmp_path, cluster(1), low, *high, policy(now=ago(-now), minRunTime="30m"))
        plan = written(instance, solve(instance))
        assert check(plan) == []
        decision = next(one for one in plan["spec"]["gangs"] if one["name"] == "low")["decision"]
        if decision == "preempt":
            began = None
            evictions.append(now)
        elif decision == "place":
            began = now
    # starts at 0; again at 40, 10 minutes after it was stopped, and is left alone for 2 x 30 until 100; again
    # at 140, since high is there at 130, and is left alone for 4 x 30 until 260
    assert evictions == [30, 110, 270]


@pytest.mark.parametrize(
    ("trusted", "wanted", "counts"),
    [(False, "2h", 30), (False, "5m", 5), (True, "2h", 120), (True, "5m", 5)],
)
def test_a_tenant_only_shortens_the_time_unless_the_policy_trusts_it(
    tmp_path: Path, trusted: bool, wanted: str, counts: int
) -> None:
    settings = policy(minRunTime="30m", kubernetes={"trustMinRunTime": trusted})
    instance = read(tmp_path, cluster(), victim(10, minRunTime=wanted), gang("b"), settings)
    found = with_granted_run_times(instance, {("default", "low"), ("default", "b")})
    assert [one.min_run_time_s for one in found.gangs] == [None, counts * 60]


@pytest.mark.parametrize(
    ("evictions", "left_alone", "settings"),
    [
        (3, 240, {}),
        (9, 360, {}),  # 30 x 2^9 minutes are more than starvation.after
        (9, 400, {"minRunTime": "400m"}),
        (1, 20, {"minRunTime": "0s"}),  # twice evictionBackoff.base, which is 10 minutes
        (3, 30, {"evictionBackoff": None}),
    ],
)
def test_a_gang_is_left_alone_twice_as_long_after_each_eviction_up_to_the_starvation_limit(
    tmp_path: Path, evictions: int, left_alone: int, settings: Doc
) -> None:
    rules = policy(**{"minRunTime": "30m", "starvation": {"after": "6h"}, **settings})
    for started, decision in ((left_alone - 1, "keep"), (left_alone, "preempt")):
        before = {"evictedAt": ago(started + 10), "evictions": evictions} if evictions else None
        found, plan = planned(tmp_path, cluster(), victim(started, status=before), HIGH, rules)
        assert found["low"] == decision
    plan["instance"]["policy"]["spec"]["now"] = ago(1)  # a minute earlier nobody may stop it
    assert "run-time" in {violation.rule for violation in check(sealed(plan))}


@pytest.mark.parametrize("renewed", first_fast([True, False]))
def test_who_submits_and_deletes_does_not_move_a_gang_again_and_again(
    tmp_path: Path, renewed: bool
) -> None:
    """Rounds of 20 minutes, each with another gang for the very server where the movable one stands."""
    at, began, moves = "n1", -60, list[int]()
    last: PlanDocument | None = None
    for now in range(0, 320, 20):
        low = gang("low", movable=True, at=at, status={"startedAt": ago(-began)})
        only = {"nodeSelector": {"kubernetes.io/hostname": at}}
        other = gang(f"for-{now}", roles=[{"name": "w", "replicas": 1, "gpus": 8, **only}])
        instance = read(tmp_path, cluster(), low, other, policy(now=ago(-now)))
        if last is not None:
            instance, _ = with_previous(instance, last, "last.json")
            instance = with_evictions(instance, evictions_of(last))
        plan = written(instance, solve(instance))
        assert check(plan) == []
        last = PlanDocument.model_validate(plan)
        moved = next(one for one in plan["spec"]["gangs"] if one["name"] == "low")
        if moved["decision"] == "move":
            at, began = moved["pods"][0]["node"], now if renewed else began
            moves.append(now)
    # left alone for 20, 40, 80, 160 and 320 minutes
    assert moves == [0, 20, 60, 140, 300]


@pytest.mark.parametrize(("waited", "starts"), [(361, "wide"), (359, "late")])
def test_an_aged_gang_that_is_larger_than_its_guarantee_is_not_passed_within_it(
    tmp_path: Path, waited: int, starts: str
) -> None:
    """q is promised one of two servers; wide needs both, late one, and both are of q."""
    wide = gang("wide", 2, submittedAt=ago(waited), queue="q")
    late = gang("late", submittedAt=ago(10), queue="q")
    rules = policy(starvation={"after": "6h"})
    promised = queue("q", guarantee={"gpus": 8})
    found, _ = planned(tmp_path, cluster(), promised, wide, late, rules)
    assert [name for name, decision in found.items() if decision == "place"] == [starts]
    # one of higher priority is within, and so is one of another queue
    late["spec"]["priority"] = 1
    assert planned(tmp_path, cluster(), promised, wide, late, rules)[0]["late"] == "place"
    late["spec"] |= {"priority": 0, "queue": "r"}
    two = (promised, queue("r", guarantee={"gpus": 8}))
    assert planned(tmp_path, cluster(), *two, wide, late, rules)[0]["late"] == "place"


@pytest.mark.parametrize(("made", "waits_since"), [(61, 600), (50, 600), (49, 49)])
def test_pods_that_a_controller_makes_again_after_an_eviction_keep_the_age_of_their_gang(
    tmp_path: Path, made: int, waits_since: int
) -> None:
    """Evicted an hour ago; pods made more than ten minutes later are no answer to that."""
    noted = EvictNote(("default", "low"), epoch_seconds(ago(60)), 1, since=epoch_seconds(ago(600)))
    waits = read(tmp_path, cluster(), gang("low", submittedAt=ago(made)), policy())
    low = with_evictions(waits, [noted]).gangs[0]
    assert low.submitted_at == epoch_seconds(ago(waits_since))
    # in the queue it comes after those that waited when it was stopped
    assert low.queued_at == epoch_seconds(ago(min(60, waits_since)))
