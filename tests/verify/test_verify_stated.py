"""Sabotage of what a plan states: one thing is changed, exactly that violation is found."""

from __future__ import annotations

import copy

import pytest
from plan_busy import TIERS, busy_plan
from plan_documents import (
    Change,
    Doc,
    best_is,
    closed,
    entry,
    objective,
    off,
    rules_broken,
    sealed,
    tier,
    wanted,
)

from models.documents.plan import PlanDocument
from models.verify.check import Judge, check, derive


def test_a_good_plan_has_no_violation() -> None:
    assert check(busy_plan()) == []


def test_the_tiers_worked_out_by_hand_are_those_derived() -> None:
    assert list(derive(busy_plan()).items()) == [(name, value) for name, value, _ in TIERS]


def _tier(name: str, /, **changes: object) -> Change:
    return lambda plan: objective(plan, name).update(changes)


def _entry(name: str, /, **changes: object) -> Change:
    return lambda plan: entry(plan, name).update(changes)


def _pod(name: str, position: int, /, **changes: object) -> Change:
    return lambda plan: entry(plan, name)["pods"][position].update(changes)


def _swap(rows: list[object], a: int, b: int) -> None:
    rows[a], rows[b] = rows[b], rows[a]


def _level_left_out(plan: Doc) -> None:
    del entry(plan, "ball")["domains"]["node"]


def _spare_model(plan: Doc) -> None:
    spare = dict(plan["instance"]["cluster"]["spec"]["serverModels"][1], name="spare", aliases=[])
    plan["instance"]["cluster"]["spec"]["serverModels"].append(spare)


STATED: list[tuple[str, str, Change]] = [
    # figures of a gang
    ("bandwidth one too high", "bandwidth", _entry("ball", bandwidthMBps=370801)),
    ("bandwidth missing", "bandwidth", _entry("ball", bandwidthMBps=None)),
    ("bandwidth of a gang without GPUs", "bandwidth", _entry("kilo", bandwidthMBps=0)),
    ("bandwidth of one GPU", "bandwidth", _entry("just", bandwidthMBps=40000)),
    ("bandwidth of a waiting gang", "bandwidth", _entry("idle", bandwidthMBps=0)),
    ("bandwidth of unknown GPUs", "bandwidth", _entry("host", bandwidthMBps=None)),
    ("share too high", "share", _entry("fixr", share=501)),
    ("share of a waiting gang", "share", _entry("idle", share=0)),
    ("share of one GPU", "share", _entry("just", share=1000)),
    ("domains off by one", "domains", lambda p: entry(p, "dual")["domains"].update(rack=1)),
    ("a level left out", "domains", _level_left_out),
    ("a level too many", "domains", lambda p: entry(p, "ball")["domains"].update(row=1)),
    (
        "domains of a waiting gang",
        "domains",
        _entry("idle", domains={"block": 0, "rack": 0, "node": 0}),
    ),
    ("domains of a running gang missing", "domains", _entry("just", domains=None)),
    # decisions
    ("a placed gang stated as kept", "decision", _entry("ball", decision="keep")),
    ("a kept gang stated as placed", "decision", _entry("core", decision="place")),
    ("a kept gang stated as moved", "decision", _entry("even", decision="move")),
    ("a kept gang stated as resized", "decision", _entry("even", decision="resize")),
    ("a completed gang stated as resized", "decision", _entry("fixr", decision="resize")),
    ("an incomplete gang stated as complete", "decision", _entry("gone", decision="complete")),
    ("a waiting gang stated as stopped", "decision", _entry("idle", decision="preempt")),
    ("a waiting gang stated as placed", "decision", _entry("idle", decision="place")),
    # reasons
    ("a gang waits and does not say why", "reason", _entry("idle", reason=None)),
    (
        "a waiting gang called incomplete",
        "reason",
        lambda p: entry(p, "idle")["reason"].update(code="Incomplete"),
    ),
    ("an incomplete gang without a reason", "reason", _entry("gone", reason=None)),
    (
        "an incomplete gang with another reason",
        "reason",
        lambda p: entry(p, "gone")["reason"].update(code="NoRoom"),
    ),
    (
        "a placed gang with a reason",
        "reason",
        _entry("ball", reason={"code": "NoRoom", "message": "no"}),
    ),
    (
        "a placed gang called unsupported",
        "reason",
        _entry("ball", reason={"code": "Unsupported", "message": "no"}),
    ),
    (
        "a kept whole gang called incomplete",
        "reason",
        _entry("core", reason={"code": "Incomplete", "message": "no"}),
    ),
    # names
    ("a new pod has a name of its own", "names", _pod("ball", 0, name="ball-worker-9")),
    ("a standing pod loses its name", "names", _pod("core", 0, name="core-worker-0")),
    ("a standing pod loses its uid", "names", lambda p: entry(p, "core")["pods"][0].pop("uid")),
    ("a standing pod changes its uid", "names", _pod("core", 0, uid="u-other")),
    ("a new pod has a uid", "names", _pod("ball", 0, uid="u-ball")),
    # order
    ("gangs out of order", "order", lambda p: _swap(p["spec"]["gangs"], 0, 1)),
    ("pods out of order", "order", lambda p: _swap(entry(p, "ball")["pods"], 0, 1)),
    ("roles out of order", "order", lambda p: _swap(entry(p, "dual")["pods"], 0, 1)),
    ("GPUs out of order", "order", lambda p: _swap(entry(p, "ball")["pods"][0]["gpus"], 0, 1)),
    ("gangs of the instance out of order", "order", lambda p: _swap(p["instance"]["gangs"], 0, 1)),
    (
        "nodes out of order",
        "order",
        lambda p: _swap(p["instance"]["cluster"]["spec"]["nodes"], 1, 2),
    ),
    # references
    ("a gang left out", "reference", lambda p: p["spec"]["gangs"].pop(3)),
    ("a gang stated twice", "reference", lambda p: p["spec"]["gangs"].insert(1, entry(p, "ball"))),
    (
        "a gang that was not requested",
        "reference",
        lambda p: p["spec"]["gangs"].append(dict(entry(p, "kilo"), name="zulu")),
    ),
    (
        "a pod stated twice",
        "reference",
        lambda p: entry(p, "ball")["pods"].insert(0, entry(p, "ball")["pods"][0]),
    ),
    ("a node that is not there", "reference", _pod("ball", 0, node="h9")),
    ("a role that is not there", "reference", _pod("ball", 0, role="server")),
    ("a GPU that is not there", "reference", _pod("ball", 0, gpus=[1, 2, 3, 4, 5, 6, 7, 8])),
    ("GPUs of a server without", "reference", _pod("kilo", 0, gpus=[0])),
    ("an unused server model", "reference", _spare_model),
    # tiers
    ("a tier left out", "tiers", lambda p: p["status"]["objectives"].pop(2)),
    (
        "a tier that was not requested",
        "tiers",
        lambda p: p["status"]["objectives"].append(tier("growth/0", 0)),
    ),
    (
        "a tier stated twice",
        "tiers",
        lambda p: p["status"]["objectives"].append(tier("stranded", 13500, "min")),
    ),
    ("tiers out of order", "tiers", lambda p: _swap(p["status"]["objectives"], 0, 1)),
    ("the sense of a tier turned", "tier-sense", _tier("span", sense="max")),
    ("best above value without tolerance", "tier-best", _tier("admission/0", **best_is(9))),
    (
        "best below value without tolerance",
        "tier-best",
        _tier("preference", best=19, bound=20, gap=1 / 19),
    ),
    ("more given away than tolerated", "tier-best", _tier("bandwidth", **best_is(37778))),
    ("a bound below a maximum", "BoundBeaten", _tier("bandwidth", bound=33999, gap=1 / 34000)),
    ("a bound above a minimum", "BoundBeaten", _tier("span", bound=37, gap=1 / 36)),
    ("a bound the final plan beats", "BoundBeaten", _tier("bandwidth", **best_is(33000))),
    ("a gap of nothing", "tier-gap", _tier("waiting/5", gap=0.1)),
    ("a seed that was not requested", "search", lambda p: p["status"]["search"].update(seed=7)),
    (
        "an optimal plan called feasible",
        "outcome",
        lambda p: closed(p)["status"].update(outcome="feasible"),
    ),
    ("a feasible plan called optimal", "outcome", lambda p: p["status"].update(outcome="optimal")),
    ("nothing proves that a bound is best", "proof", _tier("kept/0", bound=4, gap=0.0)),
    (
        "a proof that ended a search with gaps",
        "search",
        lambda p: p["status"]["search"].update(stoppedBy="proof"),
    ),
]


@pytest.mark.parametrize(("rule", "change"), [s[1:] for s in STATED], ids=[s[0] for s in STATED])
def test_a_wrong_statement_is_found(rule: str, change: Change) -> None:
    plan = busy_plan()
    change(plan)
    assert rules_broken(sealed(plan)) == {rule}


@pytest.mark.parametrize("name", [name for name, *_ in TIERS])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_tier_value_off_by_one_is_found(name: str, by: int) -> None:
    plan = busy_plan()
    off(plan, name, by)
    assert [v.rule for v in check(plan)] == ["tier-value"]


def test_a_gap_makes_the_plan_feasible_and_not_optimal() -> None:
    plan = busy_plan()
    # 36 stated, 18 proven: (36 - 18) / 36
    objective(plan, "span").update(bound=18, gap=0.5, proof="numerical")
    assert check(plan) == []
    plan["status"]["outcome"] = "optimal"
    assert rules_broken(plan) == {"outcome"}


def test_a_gap_is_relative_to_best_and_at_least_to_one() -> None:
    plan = busy_plan()
    # |2 - 0| / max(1, |0|)
    objective(plan, "waiting/0").update(bound=2, gap=2.0, proof=None)
    assert check(plan) == []


def test_value_may_fall_within_the_tolerance_of_best_and_no_further() -> None:
    plan = busy_plan()
    # value 34000; best 37777 keeps ceil(37777 - 3777.7) = 34000, best 37778 keeps 34001.
    objective(plan, "bandwidth").update(best_is(37777))
    assert check(plan) == []
    objective(plan, "bandwidth").update(best_is(37778))
    assert rules_broken(plan) == {"tier-best"}


def test_a_minimum_may_rise_within_its_tolerance_and_no_further() -> None:
    plan = busy_plan()
    plan["instance"]["policy"]["spec"]["objectives"][6]["tolerance"] = 0.1  # span
    sealed(plan)
    # value 36; best 33 keeps floor(33 + 3.3) = 36, best 32 keeps 35.
    objective(plan, "span").update(best=33, bound=0, gap=1.0)
    assert check(plan) == []
    objective(plan, "span").update(best=32, bound=0, gap=1.0)
    assert rules_broken(plan) == {"tier-best"}


@pytest.mark.parametrize(("rule", "change"), [pytest.param(*one[1:], id=one[0]) for one in STATED])
def test_a_judge_that_knows_the_instance_finds_the_same(rule: str, change: Change) -> None:
    plan = busy_plan()
    judge = Judge()
    assert judge.check(plan).violations == []
    other = {**copy.deepcopy(plan), "instance": plan["instance"]}
    entry(other, "ball")["share"] = 1
    assert [v.rule for v in judge.check(other).violations] == ["digest", "share"]
    # another object is read anew, equal or not
    change(other := copy.deepcopy(plan))
    assert judge.check(sealed(other)).violations == check(other)
    assert rule in {v.rule for v in check(other)}
    verdict = judge.check(plan)
    assert (verdict.violations, verdict.document) == ([], PlanDocument.model_validate(plan))


def test_a_judge_repeats_what_is_wrong_with_the_instance() -> None:
    plan = busy_plan()
    _spare_model(plan)
    judge, found = Judge(), check(sealed(plan))
    assert [v.rule for v in found] == ["reference"]
    assert judge.check(plan).violations == judge.check(plan).violations == found
    assert judge.check({**plan, "spec": {}}).violations == check({**plan, "spec": {}})


@pytest.mark.parametrize("part", ["instance", "spec"])
def test_a_digest_that_does_not_fit_is_found(part: str) -> None:
    plan = busy_plan()
    plan["status"]["digests"][part] = "sha256:" + "0" * 64
    assert [(v.rule, part in v.message) for v in check(plan)] == [("digest", True)]


def test_a_field_added_for_users_is_no_violation_but_changes_the_digest() -> None:
    plan = busy_plan()
    entry(plan, "ball")["note"] = "shares its NICs with nobody"
    assert rules_broken(plan) == {"digest"}
    assert check(sealed(plan)) == []


def test_violations_are_sorted_and_name_their_gang() -> None:
    plan = busy_plan()
    entry(plan, "fixr")["share"] = 1
    entry(plan, "ball")["share"] = 1
    entry(plan, "core")["decision"] = "move"
    found = [(v.rule, v.gang) for v in check(sealed(plan))]
    assert found == [
        ("decision", "default/core"),
        ("share", "default/ball"),
        ("share", "default/fixr"),
    ]


def test_a_known_uid_of_a_waiting_pod_must_be_carried_over() -> None:
    plan = busy_plan()
    pod = {
        "name": "host-a",
        "uid": "u1",
        "role": "worker",
        "index": 0,
        "node": None,
        "mode": "gate",
    }
    wanted(plan, "host")["status"]["pods"] = [pod]
    assert rules_broken(sealed(plan)) == {"names"}
    entry(plan, "host")["pods"][0].update(name="host-a", uid="u1")
    assert check(sealed(plan)) == []
