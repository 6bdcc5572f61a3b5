"""What a plan states of its moves: every figure that follows from it is changed, and every impossible one."""

from __future__ import annotations

import pytest
from plan_documents import (
    Change,
    Doc,
    cluster,
    decided,
    dgx,
    gang,
    made,
    moves,
    node,
    role,
    rules_broken,
    sealed,
    standing,
)
from plan_reclaim import reclaim_plan

from models.verify.check import check


def _all(*changes: Change) -> Change:
    return lambda plan: [change(plan) for change in changes]


def _add(*names: str, **stated: object) -> Change:
    """Another set of moves."""
    return lambda plan: plan["status"]["moves"].append(moves(list(names), 4 * len(names), **stated))


def _no_least(plan: Doc) -> None:
    """No gain is asked for, and sets may lose."""
    plan["instance"]["policy"]["spec"]["moves"]["minGain"] = 0


def _set(**changes: object) -> Change:
    return lambda plan: plan["status"]["moves"][0].update(changes)


def _bought(**changes: object) -> Change:
    return lambda plan: plan["status"]["moves"][0]["bought"].update(changes)


TOLD: list[tuple[str, str, Change]] = [
    ("no moves are stated", "bought", lambda p: p["status"].pop("moves")),
    ("no set of moves", "bought", lambda p: p["status"].update(moves=[])),
    ("a set without gangs", "bought", _add(gangs=["default/high"], gpus=16, gain=16.0)),
    (
        "a moved gang twice",
        "bought",
        _add("default/move", gpus=2, gangs=["default/high"], gain=0.5),
    ),
    ("a moved gang twice in a set", "bought", _set(gangs=["default/move"] * 2, gpus=8, gain=2.5)),
    ("a gang that stays", "bought", _set(gangs=["default/move", "default/size"])),
    ("an unknown gang", "bought", _set(gangs=["default/move", "default/moved"])),
    ("a GPU too many", "bought", _set(gpus=5, gain=4.0)),
    ("a GPU too few", "bought", _set(gpus=3, gain=6.666)),
    ("a gain too high", "bought", _set(gain=5.001)),
    ("a gain too low", "bought", _set(gain=4.999)),
    ("a gain finer than thousandths", "bought", _set(gain=5.0001)),
    ("more GPUs than the gangs bought ask for", "bought", _all(_bought(gpus=17), _set(gain=5.25))),
    # beta (32) and idle (16) wait, stop (8) is stopped: no more can have been given up for high
    (
        "fewer GPUs than can have been given up",
        "bought",
        _all(_bought(gpus=-41), _set(gain=-9.25), _no_least),
    ),
    ("GPUs without a gang", "bought", _bought(gangs=[])),
    ("a gang bought that waits", "bought", _bought(gangs=["default/beta"])),
    (
        "a gang bought that runs in any plan",
        "bought",
        _all(_bought(gangs=["default/grow"], gpus=4), _set(gain=2.0)),
    ),
    ("an unknown gang bought", "bought", _bought(gangs=["default/higher"])),
    ("a gang bought twice", "order", _bought(gangs=["default/high"] * 2)),
    ("gangs bought out of order", "order", _bought(gangs=["default/high", "default/aged"])),
    (
        "more bandwidth than the plan has",
        "bought",
        _all(_bought(bandwidth=36469), _set(gain=11.117)),
    ),
    (
        "more whole servers than the plan has",
        "bought",
        _all(_bought(wholeNodes=4), _set(gain=15.0)),
    ),
    (
        "fewer whole servers than there are",
        "bought",
        _all(_bought(wholeNodes=-8), _set(gain=-9.0), _no_least),
    ),
    ("more whole racks than the plan has", "bought", _bought(wholeDomains=2)),
    ("fewer whole racks than there are", "bought", _bought(wholeDomains=-4)),
]


@pytest.mark.parametrize(("rule", "change"), [t[1:] for t in TOLD], ids=[t[0] for t in TOLD])
def test_a_wrong_statement_about_moves_is_found(rule: str, change: Change) -> None:
    plan = reclaim_plan()
    change(plan)
    assert rules_broken(sealed(plan)) == {rule}


@pytest.mark.parametrize(
    ("least", "gain", "enough"),
    [
        (5, 5.0, True),
        (5.0009, 5.0, True),
        (5.001, 5.0, False),
        (0.001, 0.0, False),
        (0, -5.0, True),
    ],
)
def test_a_set_of_moves_gains_at_least_what_is_asked_for_in_thousandths(
    least: float, gain: float, *, enough: bool
) -> None:
    plan = reclaim_plan()
    plan["instance"]["policy"]["spec"]["moves"]["minGain"] = least
    # 16 GPUs and 12 by bandwidth, but for what else it cost: 4 GPUs a gain of 1
    gpus = {5.0: 16, 0.0: -4, -5.0: -24}[gain]
    _bought(gpus=gpus)(plan)
    _set(gain=gain)(plan)
    assert rules_broken(sealed(plan)) == (set() if enough else {"moves"})


ALL = list(range(8))
LOW, HIGH = ALL[:4], ALL[4:]


def _servers(*models: Doc) -> Doc:
    """Two servers of each model in a rack of its own: a1, a2, b1, b2, ..."""
    nodes = [
        node(f"{letter}{i}", model["name"], f"b/r{letter}")
        for letter, model in zip("abc", models, strict=False)
        for i in (1, 2)
    ]
    return cluster(list(models), nodes)


def _one_moves(clusters: Doc, **stated: object) -> Doc:
    """A gang of four GPUs moves from a1 to a2."""
    wanted = gang("a", role("worker", 1, 4), movable=True, pods=(standing("a", "a1", LOW),))
    plan = made(clusters, [wanted], [decided("a", "move", ("a2", LOW))])
    plan["status"]["moves"] = [moves(["default/a"], 4, **stated)]
    return plan


@pytest.mark.parametrize(
    ("gain", "possible"), [(1.999, False), (2.0, True), (4.0, True), (6.0, True), (6.001, False)]
)
def test_whole_servers_of_two_sizes_leave_the_gain_a_range(gain: float, *, possible: bool) -> None:
    # Whole are a1 of 8 GPUs, b1 and b2 of 16. One more than without the move: a1, or b2, or b1 and b2
    # for one of a: 8, 16 or 24 GPUs for the 4 moved.
    two_sizes = _servers(dgx(), dgx("big", 16, gpu="H200"))
    plan = _one_moves(two_sizes, wholeNodes=1, gain=gain)
    assert rules_broken(plan) == (set() if possible else {"bought"})


@pytest.mark.parametrize(
    ("bandwidth", "possible"), [(4001, False), (4000, True), (-8000, True), (-8001, False)]
)
def test_bandwidth_bought_lies_between_all_that_there_is_and_all_that_there_could_be(
    bandwidth: int, *, possible: bool
) -> None:
    # a has 4 x 1000 after its move, b waits with 8 x 1000; pattern none counts nothing, weight neither.
    gangs = [
        gang(
            "a",
            role("worker", 1, 4),
            movable=True,
            pods=(standing("a", "a1", LOW),),
            communication={"pattern": "all-reduce", "weight": 3},
        ),
        gang("b", role("worker", 1, 8)),
        gang("c", role("worker", 1, 4), communication={"pattern": "none", "weight": 1}),
    ]
    decisions = [
        decided("a", "move", ("a2", LOW)),
        decided("b", "wait", why="NoRoom"),
        decided("c", "place", ("a2", HIGH)),
    ]
    plan = made(_servers(dgx()), gangs, decisions)
    stated = moves(["default/a"], 4, bandwidth=bandwidth, gain=bandwidth // 4 / 1000)
    plan["status"]["moves"] = [stated]
    assert rules_broken(plan) == (set() if possible else {"bought"})


def test_every_gang_that_moves_is_in_one_of_several_sets() -> None:
    gangs = [
        gang(n, role("worker", 1, 4), movable=True, pods=(standing(n, "a1", gpus),))
        for n, gpus in (("a", LOW), ("b", HIGH))
    ]
    plan = made(
        _servers(dgx()),
        gangs,
        [decided("a", "move", ("a2", LOW)), decided("b", "move", ("a2", HIGH))],
    )
    one, other = moves(["default/a"], 4), moves(["default/b"], 4)
    for stated in ([one, other], [other, one]):
        plan["status"]["moves"] = stated
        assert check(plan) == []
    plan["status"]["moves"] = [one]
    assert [(v.rule, v.gang) for v in check(plan)] == [("bought", "default/b")]
    plan["status"]["moves"] = [moves(["default/b", "default/a"], 8)]
    assert rules_broken(plan) == {"order"}
