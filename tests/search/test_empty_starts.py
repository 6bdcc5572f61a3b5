"""Could a gang start on the empty cluster: what it uses up of a guarantee, and what the judge says."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from building import build, gang, node, role
from building_servers import switched
from outcomes import NOW, document_of, planned
from stated_cases import Case, instance_of

from models.instance.gang import Gang, NextTo
from models.instance.instance import Instance
from models.queues.queue_shares import stated_shares
from models.results.plan import compose
from models.starts import empty_starts
from models.starts.empty_starts import Answer, EmptyStarts, not_claiming
from models.verify.check import Judge, check
from planner.search.solve import solve
from planner.show.reason_words import words

APART = "3x1 apart=rack priority=5 queue=v"
STRICT = {"v": "strict"}
"""Only of gangs in line it is asked whether they could ever start."""


def cluster(gangs: dict[str, Any], queues: Case | None = None, nodes: object = "2x2") -> Instance:
    return instance_of({"nodes": nodes, "queues": queues or STRICT, "gangs": gangs})


@pytest.mark.parametrize(
    ("evil", "within"),
    [
        (APART, ["victim"]),
        ({"pods": 3, "even": {"level": "rack", "min_domains": 5}, "queue": "v"}, ["victim"]),
        ({"same": "rack", "roles": ["2x8 name=a", "1x1 name=b"], "queue": "v"}, ["victim"]),
        ({"pods": 6, "gpus_per_pod": 4, "slices": [3, "node"], "queue": "v"}, ["victim"]),
        ("1x8 queue=v", ["evil"]),
    ],
)
def test_a_guarantee_is_used_up_by_who_can_start_alone(evil: Case, within: list[str]) -> None:
    gangs = {"evil": evil, "victim": "1x8 queue=v priority=-1"}
    found = stated_shares(cluster(gangs, {"v": "guarantee=8"})).within
    assert found == {("default", name) for name in within}


@pytest.mark.parametrize(
    ("one", "able"), [("1x8", False), ("1x8 preemptible", True), ("1x8 queue=v", True)]
)
def test_a_firm_gang_of_no_queue_where_all_is_promised_claims_nothing(
    one: str, *, able: bool
) -> None:
    assert cluster({"one": one}, {"v": "guarantee=32"}).could_start.can(0) is able


def test_a_share_that_slow_networks_never_reach_claims_nothing() -> None:
    gangs = {"evil": "2x8 min_share=1 queue=v", "x": "1x1 min_share=1 queue=v"}
    starts = EmptyStarts(cluster(gangs, nodes={n: {"gpus": 8, "nic": 1} for n in ("n1", "n2")}))
    assert (starts.answer(0), starts.rule(0)) == (Answer.NEVER, "Bandwidth")
    assert starts.answer(1) is Answer.CAN


def test_the_last_slice_may_be_on_a_node_that_is_too_small_for_the_others() -> None:
    # Slices of 6 and 2 pods of a GPU: on a server of 7 and one of 2 of the same GPU model.
    gangs = {"one": {"pods": 8, "slices": [6, "node"], "queue": "v"}}
    instance = cluster(gangs, nodes={"large": 7, "small": 2})
    assert EmptyStarts(instance).answer(0) is Answer.CAN
    assert planned(instance).decision("one") == "place"


def listed(instance: Instance, *unable: dict[str, object]) -> dict[str, Any]:
    document = compose(instance, solve(instance), words, name="p", created_at=NOW, generator="test")
    document["status"]["unable"] = list(unable)
    return document


def said(document: dict[str, Any]) -> list[str]:
    return [f"{v.gang}: {v.message}" for v in check(document) if v.rule == "could-start"]


def test_the_judge_names_a_gang_that_could_start_and_one_that_could_not() -> None:
    instance = cluster({"evil": APART, "high": "4x8 priority=9", "low": "1x8"})
    evil, low, gone = ({"gang": f"default/{n}", "proven": True} for n in ("evil", "low", "gone"))
    assert check(listed(instance, evil)) == []
    apart = "is promised room, but could never start: role worker has 3 pods that are apart, in 2 domains"
    assert said(listed(instance)) == [f"default/evil: {apart}"]
    able = "default/low: is said never to be able to start, but on the empty cluster it could"
    assert said(listed(instance, evil, low)) == [able]
    (found,) = check(listed(instance, evil, gone))
    assert found.message == "status.unable: there is no gang default/gone"
    judged = Judge().check(listed(instance, evil, low | {"proven": False}))
    assert judged.violations == []
    assert any(one.startswith("default/low is not known") for one in judged.remarks)


DOWN: dict[str, dict[str, Any]] = {
    "cordoned": {"unschedulable": True},
    "not ready": {"ready": False},
    "sick": {"unhealthy": [3]},
    "sick somewhere": {"unknown_unhealthy": 1},
    "held by pods of no gang": {"allocatable": {"cpu": 7}, "held": {"cpu": 1}},
}


@pytest.mark.parametrize("slices", [None, [1, "node"]], ids=["counted", "searched"])
@pytest.mark.parametrize("down", DOWN)
def test_a_guarantee_is_not_used_up_by_who_waits_for_a_node_to_come_back(
    down: str, slices: list[object] | None
) -> None:
    evil = {"gpus_per_pod": 8, "queue": "v", "priority": 5, "requests": {"cpu": 8}}
    evil |= {"selector": {"kubernetes.io/hostname": "n1"}} | ({"slices": slices} if slices else {})
    nodes = {"n0": {"gpus": 8, "allocatable": {"cpu": 8}}, "n1": {"gpus": 8, **DOWN[down]}}
    instance = cluster({"evil": evil, "victim": "1x8 queue=v"}, {"v": "guarantee=8"}, nodes)
    assert stated_shares(instance).within == {("default", "victim")}
    assert not_claiming(instance) == {0: Answer.NOT_NOW}
    assert instance.could_start.can(0)
    document = document_of(instance)
    assert check(document) == []
    assert document["status"]["unable"] == [{"gang": "default/evil", "proven": True, "now": True}]
    document["status"]["unable"] = []
    assert said(document) == ["default/evil: uses up a guarantee, but finds no place as nodes are"]


def test_the_judge_names_a_gang_that_finds_a_place_on_nodes_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    gangs = {"one": "1x8 queue=v", "high": "2x8 priority=9 queue=v"}
    instance = cluster(gangs, {"v": "guarantee=24"}, 2)
    false: dict[str, object] = {"gang": "default/one", "proven": True, "now": True}
    as_they_are = "is said to find no place, but with nodes as they are it could if nothing ran"
    assert said(listed(instance, false)) == [f"default/one: {as_they_are}"]
    monkeypatch.setattr(EmptyStarts, "can", lambda *_: True)
    monkeypatch.setattr(EmptyStarts, "answer", lambda *_: Answer.UNKNOWN)
    instance = replace(instance, gangs=instance.gangs)
    judged = Judge().check(listed(instance, false | {"proven": False}))
    assert judged.violations == []
    assert any("could use up a guarantee" in one for one in judged.remarks)


def hard(number: int) -> Gang:
    """Two roles that are apart from each other and from themselves: more domains than there are."""
    rack, one, two = 1, f"a{number}", f"b{number}"
    first = replace(role("w", 5, 1), pod_sets=(one,), anti_affinity=(NextTo(rack, two),))
    apart = (NextTo(rack, one), NextTo(2))
    second = replace(role("x", 19, 1), pod_sets=(two,), anti_affinity=apart)
    second = replace(second, requests=(("cpu", number + 1),))
    return replace(gang(f"evil{number}", roles=[first, second], priority=5), namespace="evil")


def test_no_tenant_uses_up_the_search_for_places_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of one namespace end without an answer; the victim's needs a step for each of its 160 pods."""
    monkeypatch.setattr(empty_starts, "STEPS", 6_000)
    room = {"cpu": 99}
    nodes = [node(f"n{i:02}", switched(8), rack=f"r{i // 2}", allocatable=room) for i in range(20)]
    victim = replace(gang("victim", 160, 1, slices=(8, "node")), namespace="victim")
    same = replace(victim, namespace="evil", name="same", priority=1)
    instance = build(nodes=nodes, gangs=[*map(hard, range(6)), same, victim])
    starts = EmptyStarts(instance)
    answers = {one.key: starts.answer(i) for i, one in enumerate(instance.gangs)}
    assert sum(own is Answer.UNKNOWN for own in answers.values()) >= 3
    assert answers["victim", "victim"] is Answer.CAN
    # 3,000 steps of its own for the one namespace, and for each search its pods and a hundred
    assert starts.spent <= 3_000 + 6 * (24 + 100) + 2 * (160 + 100) + 8


def test_many_kinds_of_gangs_on_many_servers_are_answered_by_counts() -> None:
    nodes = [node(f"n{i}", switched(8), f"b{i // 64}", f"r{i // 8}") for i in range(256)]
    gangs = [gang(f"g{i}", 1 + i % 16, 8, requests={"cpu": i}) for i in range(500)]
    starts = EmptyStarts(build(nodes=nodes, gangs=gangs))
    assert {starts.answer(i) for i in range(500)} == {Answer.CAN}
    assert starts.spent == 0
