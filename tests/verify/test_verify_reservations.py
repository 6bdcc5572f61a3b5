"""Sabotage of rule 2.18: a plan that keeps its reservation is changed, and the judge says what broke it.

Two servers of four GPUs in one rack. ``runs`` holds n01 for another hour; ``big`` waits for both, which it
is promised then; ``short`` takes n02 until that time.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from building import build, gang, mask
from exhaustive import plan
from exhaustive_reserving import Reserved
from plan_documents import Change, Doc, both, entry, restated, sealed, server, wanted
from tiny_reserving import written

from models.documents.policy import Reservations
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.results.plan import compose
from models.units import time_text
from models.verify.check import check

NOW, HOUR = 1_800_000_000, 3600
ALL = mask(0, 1, 2, 3)


def cluster(**of_short: Any) -> Instance:  # noqa: ANN401
    runs = gang("runs", 1, 4, priority=9, stands=[(0, 0, 0, ALL)])
    runs = replace(runs, started_at=NOW - HOUR, expected_duration_s=2 * HOUR)
    big = replace(gang("big", 2, 4, priority=5, submitted=NOW - 60), expected_duration_s=HOUR)
    short = replace(gang("short", 1, 4, submitted=NOW - 60), expected_duration_s=HOUR)
    gangs = (runs, big, replace(short, **of_short))
    instance = build(nodes_per_rack=2, gpus=4, gangs=gangs)
    policy = replace(instance.policy, now=NOW, reservations=Reservations())
    return replace(instance, policy=policy)


def promise(instance: Instance, start: int = NOW + HOUR, name: str = "big") -> Reserved:
    names = [one.name for one in instance.gangs]
    pods = (PodPlacement(0, 0, 0, ALL), PodPlacement(0, 1, 1, ALL))
    return Reserved(names.index(name), start, pods)


def best(instance: Instance, *kept: Reserved) -> Doc:
    """The best plan that keeps the reservations, with everything proven."""
    solution = plan(instance, reserved=kept).solution()
    document = compose(instance, solution, name="p", created_at=time_text(NOW), generator="test")
    del document["status"]["unchecked"]  # of what is changed by hand below
    for one in kept:
        document["spec"]["gangs"][one.holder]["reserved"] = written(instance, one)
    return sealed(document)


def kept() -> Doc:
    """The plan of the module's docstring, in which the judge finds nothing."""
    instance = cluster()
    document = best(instance, promise(instance))
    assert [one["decision"] for one in document["spec"]["gangs"]] == ["wait", "keep", "place"]
    assert check(document) == []
    return document


def test_a_better_plan_that_breaks_the_promise_refutes_nothing() -> None:
    # It takes two hours: it must wait, although n02 is free.
    instance = cluster(expected_duration_s=2 * HOUR)
    document = best(instance, promise(instance))
    assert entry(document, "short")["decision"] == "wait"
    assert check(document) == []
    del entry(document, "big")["reserved"]
    (found,) = check(sealed(document))
    assert (found.rule, found.gang) == ("NotMaximal", "default/short")


COMES = ("default/short", "comes to node n02, which is reserved for default/big")
FULL = "cannot start there then: node {}: GPUs 0, 1, 2, 3 belong to several pods"


def spec(name: str, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["spec"].update(changes)


def status(name: str, **changes: object) -> Change:
    return lambda plan: wanted(plan, name)["status"].update(changes)


def start(at: int) -> Change:
    return lambda plan: entry(plan, "big")["reserved"].update(start=time_text(at))


def reservation(**changes: object) -> Change:
    return lambda plan: entry(plan, "big")["reserved"].update(changes)


N01, N02 = ("default/big", FULL.format("n01")), ("default/big", FULL.format("n02"))
CORDONED = "role worker on node n01: is cordoned, not ready or not selected by the policy"
ENDED = time_text(NOW - 4000 - 2 * HOUR)
"""Start of a gang that should have ended 4,000 seconds ago: it is taken to run for as long again."""


def cordoned(plan: Doc) -> None:
    server(plan, "n01")["unschedulable"] = True


LEAVING: dict[str, tuple[Change, list[tuple[str, str]]]] = {
    "a second too long": (spec("short", expectedDuration="3601s"), [N02, COMES]),
    "nobody knows how long": (spec("short", expectedDuration=None), [N02, COMES]),
    "it may be stopped": (spec("short", expectedDuration=None, preemptible=True), []),
    "but not by a peer": (
        spec("short", expectedDuration=None, preemptible=True, priority=5, submittedAt=None),
        [N02, COMES],
    ),
    "not even before big in the queue": (
        spec("short", expectedDuration=None, priority=6),
        [N02, COMES],
    ),
    "unless big says so": (
        both(
            spec("short", expectedDuration=None, priority=6), reservation(beside=["default/short"])
        ),
        [N02],
    ),
    "what runs ends too late": (spec("runs", expectedDuration="7201s"), [N01]),
    "nobody knows since when it runs": (status("runs", startedAt=None), [N01]),
    "a second earlier": (start(NOW + HOUR - 1), [N01, N02, COMES]),
    "overdue": (both(status("runs", startedAt=ENDED), start(NOW + 4000)), []),
    "overdue, and too early": (both(status("runs", startedAt=ENDED), start(NOW + 3999)), [N01]),
    "required": (
        spec("big", topology={"required": "node"}),
        [("default/big", "cannot start there then: the gang must stay in one node, uses 2")],
    ),
    "cordoned": (cordoned, [("default/big", f"cannot start there then: {CORDONED}")]),
}


@pytest.mark.parametrize("what", LEAVING)
def test_others_leave_in_time_and_the_holder_can_start(what: str) -> None:
    document = kept()
    change, says = LEAVING[what]
    change(document)
    found = check(restated(document))
    assert {one.rule for one in found} <= {"reserved"}
    assert [(one.gang, one.message) for one in found] == says


def rules(**changes: object) -> Change:
    def change(plan: Doc) -> None:
        plan["instance"]["policy"]["spec"]["reservations"].update(changes)

    return change


def fewer(plan: Doc) -> None:
    stated = entry(plan, "big")["reserved"]
    stated.update(pods=stated["pods"][:1], nodes=["n01"], domain="node n01")


def expected(name: str, at: int) -> Change:
    return lambda plan: entry(plan, name).update(expectedStart=time_text(at))


GIVEN: dict[str, tuple[Change, str | None]] = {
    "none": (
        lambda plan: plan["instance"]["policy"]["spec"].pop("reservations"),
        "the policy has no reservations",
    ),
    "another priority": (
        rules(priorities=[">=6"]),
        "the policy has no reservations for priority 5",
    ),
    "its priority": (rules(priorities=[">=6", "=5"]), None),
    "too far away": (rules(horizon="3599s"), "starts after the policy's horizon"),
    "at the horizon": (rules(horizon="1h"), None),
    "nodes": (reservation(nodes=["n02", "n01"]), "its nodes are not those of its pods, sorted"),
    "domain": (
        reservation(domain="block b1"),
        "says that its nodes are in 'block b1', not in 'rack r1'",
    ),
    "pods": (fewer, "its pods are not those at the least counts of its roles"),
    "two times": (
        expected("big", NOW + HOUR),
        "does not wait without a reservation: it has no expectedStart",
    ),
    "it starts": (
        expected("short", NOW + HOUR),
        "does not wait without a reservation: it has no expectedStart",
    ),
}


FIRST = spec("short", priority=6)
BEHIND = "names default/{} beside it, which does not come before it"
TWICE = "the gangs that it names beside it are not sorted, or twice the same"

GIVEN |= {
    "nobody beside it": (
        reservation(beside=["default/none"]),
        "names 'default/none' beside it, which is no gang",
    ),
    "one behind it": (reservation(beside=["default/short"]), BEHIND.format("short")),
    "a peer that came later": (
        both(
            spec("short", priority=5, submittedAt=time_text(NOW - 59)),
            reservation(beside=["default/short"]),
        ),
        BEHIND.format("short"),
    ),
    "itself": (reservation(beside=["default/big"]), BEHIND.format("big")),
    "one that runs": (
        reservation(beside=["default/runs"]),
        "names default/runs beside it, which runs",
    ),
    "one before it": (both(FIRST, reservation(beside=["default/short"])), None),
    "one before it, twice": (both(FIRST, reservation(beside=["default/short"] * 2)), TWICE),
}


@pytest.mark.parametrize("what", GIVEN)
def test_a_reservation_is_one_that_the_policy_gives(what: str) -> None:
    document = kept()
    change, says = GIVEN[what]
    change(document)
    found = [(one.rule, one.message) for one in check(restated(document))]
    assert found == ([] if says is None else [("reserved", says)])


def test_beside_a_holder_are_gangs_that_wait_or_lack_pods_by_namespace_and_name() -> None:
    # Both need more servers than there are.
    instance = cluster()
    vast = replace(gang("vast", 3, 4, priority=9), namespace="a-b")
    torn = replace(gang("torn", 3, 4, priority=9, stands=[(0, 0, 0, ALL)]), namespace="a")
    others = [one for one in instance.gangs if one.name != "runs"]
    instance = replace(instance, gangs=(torn, vast, *others))
    document = best(instance, Reserved(3, NOW, (PodPlacement(0, 0, 1, ALL),), beside=(0, 1)))
    stated = entry(document, "short")["reserved"]
    assert stated["beside"] == ["a/torn", "a-b/vast"]
    assert check(sealed(document)) == []
    stated["beside"].reverse()
    assert [(one.rule, one.message) for one in check(sealed(document))] == [("reserved", TWICE)]


@pytest.mark.parametrize(("later", "right"), [(2 * HOUR, True), (2 * HOUR - 1, False)])
def test_holders_that_share_a_node_start_one_after_another(later: int, right: bool) -> None:
    instance = cluster()
    second = replace(instance.gangs[0], name="next", submitted_at=NOW)
    instance = replace(
        instance, gangs=tuple(sorted((*instance.gangs, second), key=lambda g: g.key))
    )
    policy = replace(instance.policy, reservations=Reservations(per_priority=2))
    instance = replace(instance, policy=policy)
    document = best(instance, promise(instance), promise(instance, NOW + 2 * HOUR, "next"))
    assert check(document) == []
    entry(document, "next")["reserved"]["start"] = time_text(NOW + later)
    found = [(one.rule, one.gang, one.message) for one in check(restated(document))]
    says = "shares nodes with the reservation of default/big, which has not ended by then"
    assert found == ([] if right else [("reserved", "default/next", says)])
    document["instance"]["policy"]["spec"]["reservations"]["perPriority"] = 1
    found = [(one.rule, one.gang, one.message) for one in check(restated(document))]
    assert ("reserved", None, "2 gangs of priority 5 hold reservations, not 1") in found


def test_a_holder_that_starts_keeps_its_nodes_from_those_behind_it() -> None:
    # Nothing runs: big starts, and states what was held for it. Where others are then, is their part.
    instance = cluster()
    instance = replace(instance, gangs=tuple(one for one in instance.gangs if one.name != "runs"))
    document = best(instance, promise(instance, NOW))
    assert entry(document, "big")["decision"] == "place"
    assert check(document) == []
    waits = entry(document, "big")
    waits.update(decision="wait", pods=[], reason={"code": "NoRoom", "message": "it waits"})
    found = [(one.rule, one.message) for one in check(restated(document))]
    assert found == [("reserved", "waits, although it is said to start now")]


@pytest.mark.parametrize(
    ("by", "says"),
    [
        ([{"gang": "default/big", "priority": 5}], None),
        ([{"gang": "default/big", "priority": 6}], "default/big does not have priority 6"),
        ([{"gang": "default/runs", "priority": 5}], "default/runs holds no reservation"),
        (
            [{"gang": "default/big", "priority": 5, "start": "2031-01-01T00:00:00Z"}],
            "nodes are reserved for default/big from another time",
        ),
    ],
)
def test_a_reason_names_the_gang_that_holds_the_reservation(
    by: list[Doc], says: str | None
) -> None:
    instance = cluster(expected_duration_s=2 * HOUR)
    document = best(instance, promise(instance))
    entry(document, "short")["reason"] = {"code": "Reserved", "message": "", "fields": {"by": by}}
    found = [one.message for one in check(sealed(document))]
    assert found == ([] if says is None else [f"Reserved: {says}"])
    del entry(document, "big")["reserved"]
    (found,) = [one.message for one in check(restated(document))]
    assert found == "Reserved: no other gang holds a reservation"
