"""Sabotage of a plan that moves, stops, resizes and completes: exactly the rule that is broken is found."""

from __future__ import annotations

import pytest
from plan_documents import (
    Change,
    Doc,
    decided,
    entry,
    moves,
    objective,
    off,
    restated,
    rules_broken,
    sealed,
    standing_gpus,
    stopped,
    wanted,
)
from plan_reclaim import ALL, HIGH, LOW, TIERS, reclaim_plan

from models.verify.check import check, derive
from models.verify.judged_rules import guards


def test_the_good_plan_has_no_violation() -> None:
    assert check(reclaim_plan()) == []


def test_the_tiers_worked_out_by_hand_are_those_derived_in_order() -> None:
    assert list(derive(reclaim_plan()).items()) == [(name, value) for name, value, _ in TIERS]


@pytest.mark.parametrize("name", [name for name, *_ in TIERS])
@pytest.mark.parametrize("by", [-1, 1])
def test_a_tier_value_off_by_one_is_found(name: str, by: int) -> None:
    plan = reclaim_plan()
    off(plan, name, by)
    assert [v.rule for v in check(plan)] == ["tier-value"]


@pytest.mark.parametrize("name", [name for name, *_ in TIERS])
def test_a_tier_left_out_or_turned_is_found(name: str) -> None:
    plan = reclaim_plan()
    found = objective(plan, name)
    found["sense"] = "min" if found["sense"] == "max" else "max"
    assert rules_broken(plan) == {"tier-sense"}
    plan["status"]["objectives"].remove(found)
    assert rules_broken(plan) == {"tiers"}


@pytest.mark.parametrize("position", range(len(TIERS) - 1))
def test_two_neighbouring_tiers_in_the_wrong_order_are_found(position: int) -> None:
    plan = reclaim_plan()
    rows = plan["status"]["objectives"]
    rows[position], rows[position + 1] = rows[position + 1], rows[position]
    assert rules_broken(plan) == {"tiers"}


def _all(*changes: Change) -> Change:
    return lambda plan: [change(plan) for change in changes]


def _spec(name: str, /, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"].update(changes)


def _entry(name: str, /, **changes: object) -> Change:
    return lambda plan: entry(plan, name).update(changes)


def _reason(code: str) -> Doc:
    """With nothing but words."""
    return {"code": code, "message": "gives a2 to high."}


def _unmarked(plan: Doc) -> None:
    """The aged gang loses its mark."""
    del entry(plan, "aged")["aged"]


def _limits(**changes: object) -> Change:
    return lambda plan: plan["instance"]["policy"]["spec"]["moves"].update(changes)


def _policy(**changes: object) -> Change:
    return lambda plan: plan["instance"]["policy"]["spec"].update(changes)


def _put(name: str, position: int, where: str, gpus: list[int] | None) -> Change:
    return lambda plan: entry(plan, name)["pods"][position].update(node=where, gpus=gpus)


def _pods(name: str, decision: str, *places: tuple[str, list[int]]) -> Change:
    """New workers for a gang, its launcher as it is."""

    def change(plan: Doc) -> None:
        stated = entry(plan, name)
        kept = [pod for pod in stated["pods"] if pod["role"] == "launcher"]
        stated["pods"] = kept + decided(name, decision, *places)["pods"]
        stated["decision"] = decision

    return change


HIGH_STARTS: Doc = {"gangs": ["default/high"], "gpus": 16}


def _told(*names: str) -> Change:
    """One set of these moves, which bought ``high``."""

    def change(plan: Doc) -> None:
        gpus = sum(standing_gpus(wanted(plan, name)) for name in names)
        gain = 16 * 1000 // gpus / 1000
        listed = [f"default/{name}" for name in names]
        plan["status"]["moves"] = [moves(listed, gpus, gain=gain, **HIGH_STARTS)]

    return change


SIZE_MOVES = _all(
    _put("size", 0, "c2", []),
    _entry("size", decision="move"),
    _told("move", "size"),
)
"""Nothing of size moves but its launcher, and all of its 8 GPUs restart."""

SIZE_MOVES_WHOLE = _all(
    _pods("size", "move", ("a8", LOW), ("a8", HIGH)), _told("move", "size"), _policy(moves={})
)

PART = (("a5", [4, 5]), ("a5", [6, 7]), ("a6", [4, 5]), ("a6", [6, 7]))

BROKEN: list[tuple[str, str, Change]] = [
    # moves
    ("a gang more than may move", "moves", _limits(maxGangs=0)),
    ("a launcher counts as a moved gang", "moves", _all(SIZE_MOVES, _limits(maxGangs=1))),
    ("a GPU more than may move", "moves", _limits(maxGPUs=3)),
    ("no GPU may move", "moves", _limits(maxGPUs=0)),
    ("GPUs of a gang whose launcher moves", "moves", _all(SIZE_MOVES, _limits(maxGPUs=11))),
    ("a set of moves that gains too little", "moves", _limits(minGain=5.001)),
    # size
    (
        "a held gang grows",
        "size",
        _pods("size", "resize", ("a5", LOW), ("a6", LOW), ("a8", LOW)),
    ),
    ("a held gang shrinks", "size", _pods("size", "resize", ("a5", LOW))),
    (
        "a held gang moves and grows",
        "size",
        _all(SIZE_MOVES, _pods("size", "move", ("a5", LOW), ("a6", LOW), ("a8", LOW))),
    ),
    (
        "a held gang is completed to more than it must be",
        "size",
        _pods("part", "complete", *PART, ("a8", [0, 1]), ("a8", [2, 3])),
    ),
    # what runs
    ("a moved gang may not move", "standing", _spec("move", movable=False)),
    ("a gang that shrinks may not", "standing", _spec("slim", preemptible=False)),
    ("a gang that is stopped may not be", "standing", _spec("stop", preemptible=False)),
    (
        "a gang that is stopped may only move",
        "standing",
        _spec("stop", preemptible=False, movable=True),
    ),
    ("a gang stops for its peer", "preemption", _spec("high", priority=3)),
    (
        "a gang stops for a gang elsewhere",
        "preemption",
        _all(_put("high", 1, "a8", ALL), _spec("high", topology={})),
    ),
    (
        "a gang shrinks for a gang elsewhere",
        "preemption",
        _all(_put("high", 0, "a8", ALL), _spec("high", topology={})),
    ),
    (
        "a gang loses its lowest pod",
        "shrinking",
        _all(
            lambda p: entry(p, "slim")["pods"].pop(0),
            lambda p: entry(p, "slim")["pods"].append(
                {
                    "name": "slim-worker-2",
                    "role": "worker",
                    "index": 2,
                    "node": "a1",
                    "gpus": HIGH,
                }
            ),
            _spec("slim", movable=True),
            _put("high", 0, "a8", ALL),
            _spec("high", topology={}),
        ),
    ),
    (
        "a gang grows above its max",
        "all-or-nothing",
        _pods("grow", "resize", ("a7", LOW), ("a7", HIGH), ("a8", LOW)),
    ),
    (
        "half of the missing pods come back",
        "completion",
        _all(_pods("part", "complete", *PART[:3]), _spec("part", resizeAfter=None)),
    ),
    (
        "a gang with a pod too many loses it",
        "standing",
        _all(
            _spec("grow", roles=[{"name": "worker", "replicas": 1, "gpus": 4}]),
            lambda p: wanted(p, "grow")["status"]["pods"].append(
                {"name": "grow-worker-1", "role": "worker", "index": 1, "node": "a7", "gpus": HIGH}
            ),
            _pods("grow", "resize", ("a7", LOW)),
        ),
    ),
    # statements
    ("an aged gang is not marked", "aged", _unmarked),
    ("an aged gang is marked as not aged", "aged", _entry("aged", aged=False)),
    ("a young gang is marked", "aged", _entry("beta", aged=True)),
    ("a running gang is marked", "aged", _entry("move", aged=True)),
    ("no gang is aged without a limit", "aged", _policy(starvation=None)),
    (
        "a gang is stopped for another reason",
        "reason",
        _entry("stop", **stopped("stop", "high", "Outranked")),
    ),
    ("a gang is stopped for no reason", "reason", _entry("stop", reason=None)),
    (
        "a gang is stopped without naming another",
        "reason",
        _entry("stop", **stopped("stop", "beta")),
    ),
    (
        "a name is a part of the name of who comes",
        "reason",
        _entry("stop", **stopped("stop", "highest")),
    ),
    ("a waiting gang is called preempted", "reason", _entry("beta", reason=_reason("Preempted"))),
    ("a resized gang with a reason", "reason", _entry("slim", reason=_reason("Preempted"))),
    ("a moved gang stated as kept", "decision", _entry("move", decision="keep")),
    ("a resized gang stated as moved", "decision", _entry("grow", decision="move")),
    ("a stopped gang stated as waiting", "decision", _entry("stop", decision="wait")),
]


@pytest.mark.parametrize(("rule", "change"), [b[1:] for b in BROKEN], ids=[b[0] for b in BROKEN])
def test_a_breach_is_found(rule: str, change: Change) -> None:
    plan = reclaim_plan()
    change(plan)
    assert rules_broken(restated(plan)) == {rule}


ALLOWED: list[tuple[str, Change]] = [
    ("exactly as many gangs and GPUs as may move", _limits(maxGangs=1, maxGPUs=4, minGain=5)),
    ("limits that say nothing", _policy(moves={})),
    ("a launcher moves", SIZE_MOVES),
    ("a held gang moves whole", SIZE_MOVES_WHOLE),
    (
        "its checkpoint is written",
        _all(
            _spec("size", resizeAfter="2026-11-21T12:00:00Z"),
            _pods("size", "resize", ("a5", LOW), ("a6", LOW), ("a8", LOW)),
        ),
    ),
    (
        "a held gang is stopped",
        _all(
            _spec("stop", resizeAfter="2026-11-22T00:00:00Z"),
        ),
    ),
    (
        "a held gang with pods missing stays as it is",
        _all(
            _pods("part", "keep", ("a5", [4, 5])),
            lambda p: entry(p, "part")["pods"].append(
                {
                    "name": "part-worker-2",
                    "role": "worker",
                    "index": 2,
                    "node": "a6",
                    "gpus": [4, 5],
                }
            ),
            _entry("part", reason=_reason("Incomplete")),
        ),
    ),
    ("a gang waited exactly the limit", _all(_policy(starvation={"after": "14400s"}), _unmarked)),
    ("no gang is aged", _all(_policy(starvation=None), _unmarked)),
    (
        "the reason of a stopped gang has only words, which are not read",
        _entry("stop", reason=_reason("Preempted")),
    ),
    ("a gain of an integer", lambda p: p["status"]["moves"][0].update(gain=5)),
    (
        "a gang with a pod too many stays as it is",
        _all(
            _spec("grow", roles=[{"name": "worker", "replicas": 1, "gpus": 4}]),
            lambda p: wanted(p, "grow")["status"]["pods"].append(
                {"name": "grow-worker-1", "role": "worker", "index": 1, "node": "a7", "gpus": HIGH}
            ),
            _pods("grow", "keep", ("a7", LOW), ("a7", HIGH)),
            _entry("grow", reason=_reason("Incomplete")),
        ),
    ),
]


@pytest.mark.parametrize("change", [a[1] for a in ALLOWED], ids=[a[0] for a in ALLOWED])
def test_what_is_allowed_passes(change: Change) -> None:
    plan = reclaim_plan()
    change(plan)
    assert check(restated(plan)) == []


def test_a_launcher_that_moves_disrupts_its_whole_gang() -> None:
    plan = reclaim_plan()
    SIZE_MOVES(plan)
    # 8 GPUs x 7200 s, the cap, for it has no start
    assert derive(restated(plan))["disruption"] == 74400 + 57600


def test_every_rule_of_running_gangs_is_sabotaged_here() -> None:
    broken = {rule for _, rule, _ in BROKEN}
    assert broken >= {"moves", "size", "aged", "reason", "standing", "shrinking", "preemption"}
    assert broken <= guards().keys()


def test_messages_name_the_limit_and_what_passes_it() -> None:
    plan = reclaim_plan()
    _limits(maxGangs=0, maxGPUs=3)(plan)
    said = sorted(v.message for v in check(sealed(plan)))
    assert said == ["gangs that move: 1, the policy allows 0", "their GPUs: 4, the policy allows 3"]
