"""Could a gang start on the empty cluster, within its limits: one question, three answers that agree.

Servers of eight GPUs, two in each rack; racks r1 and r2 in block b1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction
from types import SimpleNamespace
from typing import Any

import pytest
from building import build, gang, role
from building import node as server
from building_servers import switched
from effort import briefly, examples
from exhaustive import plan
from exhaustive_starting import could_start, could_start_now
from outcomes import NOW, planned
from tiny import tiny
from tiny_busy import busy

from models.hardware import Nic
from models.instance.cluster import Node
from models.instance.gang import Gang, NextTo, Role, Spread
from models.instance.instance import Instance
from models.instance.queue import Amount, Queue
from models.queues.queue_shares import stated_shares
from models.results.plan import compose
from models.starts import empty_starts
from models.starts.empty_starts import Answer, EmptyStarts, not_claiming
from models.verify.check import Judge, check
from planner.search.solve import solve
from planner.show.reason_words import words

NODE, RACK = 2, 1


STRICT = (Queue("v", strict=True),)
"""Only of gangs in line it is asked whether they could ever start."""


def cluster(*gangs: Gang, queues: Sequence[Queue] = STRICT) -> Instance:
    """Four servers."""
    instance = build(racks=2, nodes_per_rack=2, gangs=list(gangs))
    return replace(instance, queues=tuple(queues))


def of(*roles: Role, **about: object) -> Gang:
    return replace(gang("evil", roles=list(roles), priority=5), **{"queue": "v", **about})  # type: ignore[arg-type]


def ruled(pods: int, gpus: int, **rules: object) -> Role:
    return replace(role("w", pods, gpus), **rules)  # type: ignore[arg-type]


NEVER: dict[str, tuple[Gang, str | None]] = {
    "apart": (of(ruled(3, 1, anti_affinity=(NextTo(RACK),))), "AntiAffinity"),
    "too few domains": (of(ruled(3, 1, spread=(Spread(RACK, 1, None, 5),))), "Spread"),
    "roles together": (of(role("a", 2, 8), role("b", 1, 1), required=RACK), None),
    "slices": (of(ruled(6, 4, slice_size=3, slice_level=NODE)), None),
}
"""Gangs that can never start, and the rule that is named; None where counts say so, or no single rule."""


@pytest.mark.parametrize("attack", NEVER)
def test_who_can_never_start_says_why(attack: str) -> None:
    evil, rule = NEVER[attack]
    instance = cluster(evil, replace(gang("low", 1, 8), queue="v"))
    found = planned(instance)
    assert found.decisions() == {"evil": "wait", "low": "place"}
    reason = found.of("evil").reason
    assert reason is not None
    assert (reason.code, reason.fields.cause) == ("Never", rule)
    assert could_start(instance, 0) is False


def test_a_share_that_slow_networks_never_reach_claims_nothing() -> None:
    slow = (Nic("eth0", 1),)
    nodes = [server(f"n{i}", switched(8), nics=slow) for i in range(2)]
    evil = of(role("w", 2, 8), min_bandwidth_share=Fraction(1))
    starts = EmptyStarts(
        build(nodes=nodes, gangs=[evil, replace(evil, name="x", roles=(role("w"),))])
    )
    assert (starts.answer(0), starts.rule(0)) == (Answer.NEVER, "Bandwidth")
    assert starts.answer(1) is Answer.CAN


def test_a_gang_of_no_queue_where_all_is_promised_claims_nothing() -> None:
    queues = (Queue("v", guarantee=Amount(32)),)
    evil = gang("evil", 1, 8, priority=5)
    assert not cluster(evil, queues=queues).could_start.can(0)
    assert cluster(replace(evil, preemptible=True), queues=queues).could_start.can(0)
    assert cluster(replace(evil, queue="v"), queues=queues).could_start.can(0)


def test_a_guarantee_is_used_up_by_who_can_start_alone() -> None:
    queues = (Queue("v", guarantee=Amount(8)),)
    victim = replace(gang("victim", 1, 8), queue="v")
    for evil, _ in NEVER.values():
        instance = cluster(replace(evil, queue="v"), victim, queues=queues)
        assert stated_shares(instance).within == {victim.key}
    able = replace(gang("able", 1, 8, priority=5), queue="v")
    assert stated_shares(cluster(able, victim, queues=queues)).within == {able.key}


MORE = (
    *("priorities", "selectors", "required", "slices", "roles", "resources", "queues"),
    *("cells", "apart", "together", "even", "pods_of_no_gang", "balance", "exclusive", "spares"),
    *("min_share", "elastic", "mixed", "mix_models"),
)


def test_program_and_exhaustive_search_agree_on_who_could_start() -> None:
    never = not_now = 0
    for seed in range(examples(300, 24)):
        instance = (busy if seed % 3 == 0 else tiny)(seed, more=MORE)
        starts = EmptyStarts(instance)
        for g, one in enumerate(instance.gangs):
            if one.running or one.hold is not None:
                continue
            with briefly():
                can, now = could_start(instance, g), could_start_now(instance, g)
                assert (starts.answer(g) is Answer.CAN) == can, (seed, one.name)
                assert starts.can_now(g) == now, (seed, one.name)
                never += not can
                not_now += can and not now
    assert never > 10
    assert not_now > 1


def listed(instance: Instance, unable: list[dict[str, object]]) -> dict[str, object]:
    document = compose(instance, solve(instance), words, name="p", created_at=NOW, generator="test")
    document["status"]["unable"] = unable
    return document


def test_the_judge_names_a_gang_that_could_start_and_one_that_could_not() -> None:
    all_servers = gang("high", 4, 8, priority=9)
    instance = cluster(NEVER["apart"][0], all_servers, gang("low", 1, 8))
    true = [{"gang": "default/evil", "proven": True}]
    assert check(listed(instance, true)) == []
    (found,) = [v for v in check(listed(instance, [])) if v.rule == "could-start"]
    assert (found.gang, found.message) == (
        "default/evil",
        "is promised room, but could never start: role w has 3 pods that are apart, in 2 domains",
    )
    more = [*true, {"gang": "default/low", "proven": True}]
    (found,) = check(listed(instance, more))
    assert (found.gang, found.message) == (
        "default/low",
        "is said never to be able to start, but on the empty cluster it could",
    )
    (found,) = check(listed(instance, [*true, {"gang": "default/gone", "proven": True}]))
    assert found.message == "status.unable: there is no gang default/gone"
    said = Judge().check(listed(instance, [*true, {"gang": "default/low", "proven": False}]))
    assert said.violations == []
    assert any(one.startswith("default/low is not known") for one in said.remarks)


def test_what_is_listed_is_what_claims_and_is_not_known_to_start() -> None:
    instance = cluster(NEVER["apart"][0], gang("low", 1, 99))
    assert not_claiming(instance) == {0: Answer.NEVER}
    assert plan(instance).decisions[1].decision == "wait"


DOWN: dict[str, dict[str, Any]] = {
    "cordoned": {"unschedulable": True},
    "not ready": {"ready": False},
    "sick": {"unhealthy": (3,)},
    "sick somewhere": {"unknown_unhealthy": 1},
    "held by pods of no gang": {"allocatable": {"cpu": 7}, "held": {"cpu": 1}},
}


def nodes_of(down: dict[str, Any]) -> list[Node]:
    return [server("n0", switched(8), allocatable={"cpu": 8}), server("n1", switched(8), **down)]


def test_the_last_slice_may_be_on_a_node_that_is_too_small_for_the_others() -> None:
    # Slices of 6 and 2 pods of a GPU: on a server of 7 and one of 2 of the same GPU model.
    small = server("small", switched(2), 0, 0)
    one = replace(
        build(nodes=[server("large", switched(7), 0, 0), small]),
        gangs=(of(ruled(8, 1, slice_size=6, slice_level=NODE)),),
    )
    assert {node.model.gpu for node in one.cluster.nodes if node.model} == {"H100"}
    assert EmptyStarts(one).answer(0) is Answer.CAN
    assert could_start(one, 0)
    assert [found.decision for found in solve(one).decisions] == ["place"]


@pytest.mark.parametrize("slices", [None, (1, "node")], ids=["counted", "searched"])
@pytest.mark.parametrize("down", DOWN.values(), ids=DOWN)
def test_a_guarantee_is_not_used_up_by_who_waits_for_a_node_to_come_back(
    down: dict[str, Any], slices: tuple[int, str] | None
) -> None:
    asks = role("w", 1, 8, selector={"kubernetes.io/hostname": "n1"}, slices=slices)
    evil = replace(of(replace(asks, requests=(("cpu", 8),))), queue="v")
    victim = replace(gang("victim", 1, 8), queue="v")
    instance = build(nodes=nodes_of(down), gangs=[evil, victim])
    instance = replace(instance, queues=(Queue("v", guarantee=Amount(8)),))
    assert stated_shares(instance).within == {victim.key}
    assert not_claiming(instance) == {0: Answer.NOT_NOW}
    assert instance.could_start.can(0)
    document = compose(instance, solve(instance), words, name="p", created_at=NOW, generator="test")
    assert check(document) == []
    assert document["status"]["unable"] == [{"gang": "default/evil", "proven": True, "now": True}]
    document["status"]["unable"] = []
    assert "uses up a guarantee, but finds no place as nodes are" in {
        one.message for one in check(document) if one.rule == "could-start"
    }


def test_the_judge_names_a_gang_that_finds_a_place_on_nodes_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    one = replace(gang("one", 1, 8), queue="v")
    both_servers = replace(gang("high", 2, 8, priority=9), queue="v")
    instance = build(nodes=nodes_of({}), gangs=[both_servers, one])
    instance = replace(instance, queues=(Queue("v", guarantee=Amount(24)),))
    false = {"gang": "default/one", "proven": True, "now": True}
    (found,) = [v for v in check(listed(instance, [false])) if v.rule == "could-start"]
    assert found.message == (
        "is said to find no place, but with nodes as they are it could if nothing ran"
    )
    no_place = SimpleNamespace(answer=lambda _index: Answer.UNKNOWN)
    monkeypatch.setattr(EmptyStarts, "_as_nodes_are", no_place)
    instance = replace(instance, gangs=instance.gangs)
    said = Judge().check(listed(instance, [{**false, "proven": False}]))
    assert said.violations == []
    assert any("could use up a guarantee" in one for one in said.remarks)


def hard(number: int, namespace: str) -> Gang:
    """Two roles that are apart from each other and from themselves: more domains than there are."""
    name = f"{namespace}{number}"
    first = ruled(5, 1, pod_sets=(f"a{name}",), anti_affinity=(NextTo(RACK, f"b{name}"),))
    second = ruled(19, 1, pod_sets=(f"b{name}",), anti_affinity=(NextTo(RACK, f"a{name}"),))
    apart = (*second.anti_affinity, NextTo(NODE))
    roles = (first, replace(second, name="x", anti_affinity=apart, requests=(("cpu", number + 1),)))
    return replace(gang(name, roles=list(roles), priority=5), namespace=namespace)


def test_no_tenant_uses_up_the_search_for_places_of_another(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Those of one namespace end without an answer; the victim's needs a step for each of its 160 pods."""
    monkeypatch.setattr(empty_starts, "STEPS", 6_000)
    nodes = [
        server(f"n{i:02}", switched(8), "b1", f"r{i // 2}", allocatable={"cpu": 99})
        for i in range(20)
    ]
    victim = replace(gang("victim", 160, 1, slices=(8, "node")), namespace="victim")
    evil = [hard(number, "evil") for number in range(6)]
    same = replace(victim, namespace="evil", name="same", priority=1)
    instance = build(nodes=nodes, gangs=[*evil, same, victim])
    starts, names = EmptyStarts(instance), [one.name for one in instance.gangs]
    answers = [starts.answer(i) for i, one in enumerate(instance.gangs) if one.namespace == "evil"]
    assert answers.count(Answer.UNKNOWN) >= 3
    assert starts.answer(names.index("victim")) is Answer.CAN
    # 3,000 steps of its own for the one namespace, and for each search its pods and a hundred
    assert starts.spent <= 3_000 + 6 * (24 + 100) + 2 * (160 + 100) + 8


def test_two_thousand_kinds_of_gangs_on_many_servers_are_answered_by_counts() -> None:
    nodes = [server(f"n{i}", switched(8), f"b{i // 64}", f"r{i // 8}") for i in range(256)]
    gangs = [gang(f"g{i}", 1 + i % 16, 8, requests={"cpu": i}) for i in range(500)]
    starts = EmptyStarts(build(nodes=nodes, gangs=gangs))
    assert all(starts.answer(i) is Answer.CAN for i in range(500))
    assert starts.spent == 0
