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

from models.verify.check import check
from models.verify.stated import stated_reasons

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


Fields = dict[str, object]


def faults(code: str, fields: Fields | None, words: str = "") -> list[str]:
    """What is wrong with the reason of ``wide``, every violation being of that rule."""
    made_plan = plan()
    reason: Doc = {"code": code, "message": words}
    entry(made_plan, "wide")["reason"] = reason | ({} if fields is None else {"fields": fields})
    found = check(sealed(made_plan))
    assert {(v.rule, v.gang) for v in found} <= {("reason", "default/wide")}
    return [v.message for v in found]


RACK = {"required": "rack", "preferred": None}
NEEDS: Fields = {"pods": 2, "gpus": 16}
SHORT = NEEDS | {"roomPods": 0, "roomGpus": 4}


def holding(**named: tuple[int, int]) -> Fields:
    """(priority, GPUs) by name."""
    return {
        "by": [
            {"gang": f"default/{name}", "priority": priority, "gpus": gpus}
            for name, (priority, gpus) in named.items()
        ]
    }


@pytest.mark.parametrize(
    ("code", "fields"),
    [
        ("Outranked", SHORT),
        ("Outranked", {"gpus": 16}),
        ("NoRoom", SHORT | {"proven": True}),
        ("Outranked", SHORT | holding(big=(5, 8), old=(0, 4))),
        ("NoRoom", None),
        ("NoRoom", {"text": "the dog ate it"}),
        ("Later", {"newField": 3}),
        ("Outranked", {"gpus": 16, "roomGpus": 4}),
    ],
)
def test_a_reason_that_the_plan_does_not_contradict_passes(
    code: str, fields: Fields | None
) -> None:
    assert faults(code, fields) == []


@pytest.mark.parametrize(
    ("code", "fields", "what"),
    [
        ("Selector", {}, "nodes in order accept its pods"),
        ("Selector", None, "nodes in order accept its pods"),
        ("Bandwidth", {}, "it has no minBandwidthShare"),
        ("RequiredTopology", {}, "it has no topology rule"),
        ("Outranked", SHORT | {"pods": 3}, "role worker asks for 2 pods of 8 GPUs"),
        ("Outranked", SHORT | {"gpus": 8}, "role worker asks for 2 pods of 8 GPUs"),
        ("Outranked", SHORT | {"roomGpus": 5}, "5 GPUs are free on its nodes, but 4 are"),
        ("Outranked", SHORT | {"roomPods": 1}, "there is room for 1 pods, but it is 0"),
        ("Outranked", {"gpus": 8, "roomGpus": 4}, "needs 8 GPUs, but it asks for 16"),
        ("NoRoom", SHORT | {"roomPods": 2}, "which is enough"),
        ("Outranked", {"gpus": 16, "roomGpus": 12}, "12 GPUs are free on its nodes, but 4 are"),
        ("QueueOrder", {"queue": "a", "by": []}, "no earlier gang of a strict queue waits"),
        ("NoRoom", SHORT, "it is Outranked"),
        ("NoRoom", {"role": "launcher", "pods": 1}, "there is no role launcher"),
        # old holds 4 GPUs of h1: no number but that is its own, and it stays there
        ("NoRoom", SHORT | holding(old=(0, 5)), "default/old has 4 GPUs, not 5"),
        ("NoRoom", SHORT | holding(old=(1, 4)), "default/old does not have priority 1"),
        ("NoRoom", SHORT | holding(wide=(0, 16)), "default/wide has no pods after the plan"),
        ("NoRoom", SHORT | holding(big=(5, 8)), "without those that it names it would not fit"),
        ("Reserved", {"by": []}, "no other gang holds a reservation"),
        ("AntiAffinity", {"gpus": 16, "proven": True}, "no tier of priority 0 is stated as proven"),
        ("NoRoom", {"queue": "a"}, "has no field queue"),
        ("Quota", {"queue": "a"}, "no queue limits it"),
        ("Never", {}, "no count says that it could not start"),
    ],
)
def test_a_reason_that_the_plan_contradicts_is_found(
    code: str, fields: Fields | None, what: str
) -> None:
    assert any(what in found for found in faults(code, fields)), faults(code, fields)


def test_the_sentence_is_not_read() -> None:
    words = "needs 99 pods of 7 GPUs; after 12 gangs of higher priority there is room for 98"
    for text in (words, "after " * 200_000, ""):
        assert faults("Outranked", SHORT, text) == []
        assert faults("Outranked", None, text) == []


@pytest.mark.parametrize(
    ("named", "what"),
    [
        # either server is free once those on it end; wide needs one
        (("a", "b"), None),
        (("c",), None),
        (("a",), "without those that it names it would not fit"),
    ],
)
def test_holders_are_enough(named: tuple[str, ...], what: str | None) -> None:
    """a and b hold h0, c half of h1: wide asks for a whole server."""
    nodes = [node(f"h{i}", "DGX H100", "b1/r1") for i in range(2)]
    high = [4, 5, 6, 7]
    gangs = [
        gang("a", role("worker", 1, 4), pods=(standing("a", "h0", LOW),)),
        gang("b", role("worker", 1, 4), pods=(standing("b", "h0", high),)),
        gang("c", role("worker", 1, 4), pods=(standing("c", "h1", LOW),)),
        gang("wide", role("worker", 1, 8)),
    ]
    stated = [
        decided("a", "keep", ("h0", LOW)),
        decided("b", "keep", ("h0", high)),
        decided("c", "keep", ("h1", LOW)),
        decided("wide", "wait", why="NoRoom"),
    ]
    made_plan = made(cluster([dgx()], nodes), gangs, stated)
    fields = {"pods": 1, "gpus": 8, "roomPods": 0, "roomGpus": 4}
    by = holding(**dict.fromkeys(named, (0, 4)))
    entry(made_plan, "wide")["reason"]["fields"] = fields | by
    found = [v.message for v in check(sealed(made_plan))]
    assert found == ([] if what is None else [f"NoRoom: {what}"])


@pytest.mark.parametrize(
    ("fields", "what"),
    [
        ({}, None),
        ({"domain": "h0", "roomPods": 3, "roomGpus": 3}, "there is room for 3 pods, but it is 4"),
        ({"domain": "h0", "roomPods": 4, "roomGpus": 3}, "there is more room elsewhere"),
        ({"domain": "h2"}, "4 GPUs are free on its nodes, but 0 are"),
        ({"level": "row"}, "no rule of it is about the level row"),
        ({"level": "rack"}, "no rule of it is about the level rack"),
        ({"roomGpus": 7}, "7 GPUs are free on its nodes, but 4 are"),
    ],
)
def test_room_is_counted_in_the_domain_that_is_named(fields: Fields, what: str | None) -> None:
    """Of h0 five GPUs are held and of h1 four: h1 has most room for eight pods of one GPU on one node."""
    nodes = [node(f"h{i}", "DGX H100") for i in range(2)]
    five = [0, 1, 2, 3, 4]
    gangs = [
        gang("a", role("worker", 1, 5), pods=(standing("a", "h0", five),)),
        gang("b", role("worker", 1, 4), pods=(standing("b", "h1", LOW),)),
        gang("wide", role("worker", 8, 1), topology={"required": "node", "preferred": None}),
    ]
    stated = [
        decided("a", "keep", ("h0", five)),
        decided("b", "keep", ("h1", LOW)),
        decided("wide", "wait", why="RequiredTopology"),
    ]
    made_plan = made(cluster([dgx()], nodes), gangs, stated)
    right = {"pods": 8, "gpus": 8, "level": "node"}
    right |= {"domain": "h1", "roomPods": 4, "roomGpus": 4}
    entry(made_plan, "wide")["reason"]["fields"] = right | fields
    found = [v.message for v in check(sealed(made_plan))]
    assert (not found) if what is None else any(what in one for one in found), found


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
    entry(stated, "a")["reason"]["fields"] = {"gpus": 8, "proven": True}
    assert [(v.rule, v.message) for v in check(sealed(stated))] == [
        ("reason", "NoRoom: it fits beside the others, on h0")
    ]


def test_gangs_of_the_same_priority_do_not_outrank_what_does_not_fit_anyhow() -> None:
    nodes = [node("h0", "DGX H100", "b1/r1")]
    gangs = [gang("a", role("worker", 2, 8))]
    outranked = made(cluster([dgx()], nodes), gangs, [decided("a", "wait", why="Outranked")])
    entry(outranked, "a")["reason"]["fields"] = NEEDS | {"roomPods": 1, "roomGpus": 8}
    found = check(sealed(outranked))
    assert {(one.rule, one.gang) for one in found} == {("reason", "default/a")}
    what = "no gang of higher priority, and none that waited too long, starts"
    assert any(what in one.message for one in found)


def test_those_named_as_taking_the_nodes_of_a_stopped_gang_do_so() -> None:
    nodes = [node("h0", "DGX H100", "b1/r1")]
    old = gang("old", role("worker", 1, 8), preemptible=True, pods=(standing("old", "h0", ALL),))
    gangs = [gang("new", role("worker", 1, 8), priority=2), old]
    stated = [decided("new", "place", ("h0", ALL)), stopped("old", "new")]
    made_plan = made(cluster([dgx()], nodes), gangs, stated)
    reason = entry(made_plan, "old")["reason"]
    new, older = {"gang": "default/new", "priority": 2}, {"gang": "default/older", "priority": 9}
    for by, faulty in (
        ([new], 0),
        ([new | {"priority": 3}], 1),
        ([new, older], 2),  # nobody of that name, and one too many
    ):
        reason["fields"] = {"by": by}
        assert [v.rule for v in check(sealed(made_plan))] == ["reason"] * faulty


def test_counting_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stated_reasons, "WORK", 0)
    assert faults("Selector", {}) == ["Selector: nodes in order accept its pods"]
