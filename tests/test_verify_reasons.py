"""Reasons that the plan contradicts: codes, counts, and proofs that a gang does not fit."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    node,
    role,
    sealed,
    standing,
    stopped,
)

from models.verify import stated_reasons
from models.verify.check import check

ALL = list(range(8))
LOW = [0, 1, 2, 3]


def plan() -> Doc:
    """Two servers: ``big`` starts on one, ``old`` holds half of the other; ``wide`` asks for two servers."""
    nodes = [node(f"h{i}", "DGX H100", "b1/r1") for i in range(2)]
    gangs = [
        gang("big", role("worker", 1, 8), priority=5),
        gang("old", role("worker", 1, 4), pods=(standing("old", "h1", LOW),)),
        gang("wide", role("worker", 2, 8)),
    ]
    stated = [
        decided("big", "place", ("h0", ALL)),
        decided("old", "keep", ("h1", LOW)),
        decided("wide", "wait", why="Quota"),
    ]
    return made(cluster([dgx()], nodes), gangs, stated)


def faults(code: str, message: str) -> list[str]:
    """What is wrong with the reason of ``wide``, every violation being of that rule."""
    made_plan = plan()
    entry(made_plan, "wide")["reason"] = {"code": code, "message": message}
    found = check(sealed(made_plan))
    assert {(v.rule, v.gang) for v in found} <= {("reason", "default/wide")}
    return [v.message for v in found]


RACK = {"required": "rack", "preferred": None}
NEEDS = "needs 2 pods of 8 GPUs; "
AFTER = "after 1 gang of higher priority "
ROOM = "there is room for 0 on its nodes (4 GPUs free)"
SHORT = NEEDS + AFTER + ROOM


@pytest.mark.parametrize(
    ("code", "message"),
    [
        ("Outranked", SHORT),
        ("Outranked", SHORT.replace("priority ", "priority (most to default/big, 8 GPUs) ")),
        ("Outranked", "needs 16 GPUs; no placement was found " + AFTER),
        ("NoRoom", NEEDS + ROOM + "; default/old holds 4 GPUs there"),
        ("NoRoom", NEEDS + ROOM + "; 1 running gangs hold 4 GPUs there, most default/old (4)"),
        ("NoRoom", "the dog ate it"),
        ("Later", "needs nothing"),
        ("Outranked", "other gangs are worth more"),
    ],
)
def test_a_reason_that_the_plan_does_not_contradict_passes(code: str, message: str) -> None:
    assert faults(code, message) == []


@pytest.mark.parametrize(
    ("code", "message", "what"),
    [
        ("Selector", "no node", "every role has a node that accepts its pods"),
        ("Bandwidth", "too slow", "it has no minBandwidthShare"),
        ("RequiredTopology", "torn", "it has no topology rule"),
        ("NoRoom", SHORT, "its words mean Outranked"),
        ("Outranked", NEEDS + ROOM, "its words mean NoRoom"),
        (
            "Outranked",
            SHORT.replace("1 gang", "2 gangs"),
            "2 gangs of higher priority start, but 1 do",
        ),
        (
            "Outranked",
            NEEDS + "after 1 gang of higher priority and 3 of its priority " + ROOM,
            "3 gangs of its priority start, but 0 do",
        ),
        (
            "NoRoom",
            NEEDS + "after the running gangs " + ROOM,
            "0 gangs of higher priority start, but 1 do",
        ),
        (
            "Outranked",
            SHORT.replace("priority ", "priority (most to default/big, 9 GPUs) "),
            "default/big takes 9 GPUs there first, but it takes 8",
        ),
        (
            "Outranked",
            SHORT.replace("priority ", "priority (most to default/old, 4 GPUs) "),
            "default/old takes 4 GPUs there first, but it takes 0",
        ),
        (
            "Outranked",
            SHORT.replace("2 pods", "3 pods"),
            "role worker asks for 2 pods of 8 GPUs",
        ),
        (
            "Outranked",
            SHORT.replace("4 GPUs", "5 GPUs"),
            "there is room for 0 and 5 GPUs are free, but it is 0 and 4",
        ),
        ("Outranked", "needs 8 GPUs", "needs 8 GPUs, but it asks for 16"),
        (
            "Outranked",
            f"needs 16 GPUs and would fit {AFTER}",
            "role worker needs 2 pods, 0 fit after the plan",
        ),
        (
            "Outranked",
            f"needs 16 GPUs and would fit in place of gangs of lower priority {AFTER}",
            "no gang of lower priority starts",
        ),
        ("NoRoom", NEEDS + ROOM.replace("for 0", "for 2"), "which is enough"),
        (
            "Outranked",
            f"needs 16 GPUs; {AFTER}12 GPUs are free on its nodes, and no placement was found on them",
            "12 GPUs are free on its nodes, but 4 are",
        ),
        (
            "Selector",
            "needs nodes with a=b; those that would do (1) are cordoned, not ready or tainted",
            "1 nodes would do, but 2 would",
        ),
        ("NoRoom", "role launcher needs 1 pod of 1 GPU", "there is no role launcher"),
        (
            "NoRoom",
            NEEDS + ROOM + "; default/old holds 5 GPUs there",
            "default/old holds 5 GPUs there, but it holds 4",
        ),
        (
            "NoRoom",
            NEEDS + ROOM + "; 2 running gangs hold 4 GPUs there, most default/old (4)",
            "only 1 running gangs hold GPUs there, 4 in all",
        ),
        ("NoRoom", "never fits: needs 2 pods of 8 GPUs", "its words mean Never"),
        ("Never", "never fits: it is Tuesday", "no count says that it could not start"),
    ],
)
def test_a_reason_that_the_plan_contradicts_is_found(code: str, message: str, what: str) -> None:
    assert any(what in found for found in faults(code, message)), faults(code, message)


def test_what_the_higher_ones_leave_includes_what_lower_ones_take() -> None:
    nodes = [node(f"h{i}", "DGX H100", "b1/r1") for i in range(2)]
    gangs = [
        gang("high", role("worker", 1, 8), priority=5),
        gang("low", role("worker", 1, 8)),
        gang("wide", role("worker", 2, 8), priority=3),
    ]
    stated = [
        decided("high", "place", ("h0", ALL)),
        decided("low", "place", ("h1", ALL)),
        decided("wide", "wait", why="Outranked"),
    ]
    made_plan = made(cluster([dgx()], nodes), gangs, stated)
    for room, good in (("1 on its nodes (8", True), ("0 on its nodes (0", False)):
        entry(made_plan, "wide")["reason"]["message"] = (
            f"{NEEDS}{AFTER}there is room for {room} GPUs free)"
        )
        assert [v.rule for v in check(sealed(made_plan))] == ["reason"] * (not good)


@pytest.mark.parametrize(
    ("wanted", "more", "never"),
    [
        (role("worker", 4, 8), {}, False),
        (role("worker", 5, 8), {}, True),
        (role("worker", 1, 9), {}, True),
        (role("worker", 2, 8, topology=RACK), {}, False),
        (role("worker", 3, 8, topology=RACK), {}, True),
        (role("worker", 4, 8), {"topology": RACK | {"minBandwidthShare": None}}, True),
        (role("worker", 4, 8, slice={"size": 2, "required": "rack"}), {}, False),
        (role("worker", 3, 8, slice={"size": 3, "required": "rack"}), {}, True),
        (role("worker", 1, 8, nodeSelector={"example.com/zone": "z"}), {}, True),
        (role("worker", 1, 8, model="B200"), {}, True),
    ],
)
def test_never_stands_only_where_the_empty_cluster_is_too_small(
    wanted: Doc, more: Doc, *, never: bool
) -> None:
    """Two racks of two servers; one is cordoned, one out of order, one has a dead GPU, and one is held."""
    nodes = [node(f"h{i}", "DGX H100", f"b1/r{i // 2}") for i in range(4)]
    nodes[0]["unschedulable"], nodes[1]["ready"], nodes[2]["unhealthyGpus"] = True, False, [0]
    gangs = [
        gang("old", role("worker", 1, 8), pods=(standing("old", "h3", ALL),)),
        gang("x", wanted, **more),
    ]
    stated = [decided("old", "keep", ("h3", ALL)), decided("x", "wait", why="Never")]
    found = check(made(cluster([dgx()], nodes), gangs, stated))
    assert [v.rule for v in found] == ["reason"] * (not never)


def test_a_gang_that_fits_beside_the_others_can_start() -> None:
    nodes = [node(f"h{i}", "DGX H100", "b1/r1") for i in range(2)]
    stated = made(
        cluster([dgx()], nodes),
        [gang("a", role("worker", 1, 8))],
        [decided("a", "wait", why="NoRoom")],
    )
    assert check(stated) == []
    message = "even alone its pods do not fit together on the free GPUs, cpu, memory and pod slots"
    entry(stated, "a")["reason"]["message"] = message
    assert [(v.rule, v.message) for v in check(sealed(stated))] == [
        ("reason", "NoRoom: it fits beside the others, on h0")
    ]


def test_gangs_of_the_same_priority_do_not_outrank_what_does_not_fit_anyhow() -> None:
    nodes = [node("h0", "DGX H100", "b1/r1")]
    gangs = [gang("a", role("worker", 2, 8))]
    outranked = made(cluster([dgx()], nodes), gangs, [decided("a", "wait", why="Outranked")])
    (found,) = check(outranked)
    assert (found.rule, found.gang) == ("reason", "default/a")
    assert "no gang of its priority or a higher one starts" in found.message


def test_those_named_as_taking_the_nodes_of_a_stopped_gang_do_so() -> None:
    nodes = [node("h0", "DGX H100", "b1/r1")]
    old = gang("old", role("worker", 1, 8), preemptible=True, pods=(standing("old", "h0", ALL),))
    gangs = [gang("new", role("worker", 1, 8), priority=2), old]
    stated = [decided("new", "place", ("h0", ALL)), stopped("old", "new")]
    made_plan = made(cluster([dgx()], nodes), gangs, stated)
    reason = entry(made_plan, "old")["reason"]
    for words, good in (
        ("default/new (priority 2)", True),
        ("default/new (priority 3)", False),
        ("default/new (priority 2), default/older (priority 9)", False),
    ):
        reason["message"] = f"stopped to make room for {words}"
        assert [v.rule for v in check(sealed(made_plan))] == ["reason"] * (not good)


@pytest.mark.parametrize(("count", "good"), [(1, True), (2, False)])
def test_missing_pods_are_counted(count: int, *, good: bool) -> None:
    nodes = [node("h0", "DGX H100", "b1/r1")]
    old = gang("a", role("worker", 3, 4), pods=tuple(standing("a", "h0", [i], i) for i in (0, 2)))
    stated = decided("a", "keep", ("h0", [0]), ("h0", [2]), why="Incomplete")
    stated["pods"][1].update(name="a-worker-2", index=2)
    stated["reason"]["message"] = f"{count} pods missing: no room"
    found = check(made(cluster([dgx()], nodes), [old], [stated]))
    assert [v.rule for v in found] == ["reason"] * (not good)


def test_a_long_reason_is_read_in_part() -> None:
    assert faults("Outranked", "after " * 200_000 + "needs 8 GPUs") == []
    assert faults("Outranked", "x" * stated_reasons.MAX_WORDS + ": needs 8 GPUs") == []


def test_counting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stated_reasons, "WORK", 0)
    assert faults("Selector", "none") == []
