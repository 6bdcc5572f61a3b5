"""Could a gang start on the empty cluster, within its limits: one question, three answers that agree.

Servers of eight GPUs, two in each rack; racks r1 and r2 in block b1.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, role
from building import node as server
from building_servers import switched
from effort import examples
from exhaustive import plan
from exhaustive_starting import could_start
from outcomes import NOW, planned
from tiny import tiny
from tiny_busy import busy

from models.empty_starts import Answer, EmptyStarts, not_claiming
from models.gang import Gang, NextTo, Role, Spread
from models.hardware import Nic
from models.instance import Instance
from models.plan import compose
from models.queue import Amount, Queue
from models.queue_shares import stated_shares
from models.room_holding import blockers
from models.verify.check import Judge, check
from planner.search.solve import solve
from planner.show.reason_words import words

NODE, RACK = 2, 1


def cluster(*gangs: Gang, least: int | None = 5, queues: Sequence[Queue] = ()) -> Instance:
    """Four servers; room is held from priority 5 on."""
    instance = build(racks=2, nodes_per_rack=2, gangs=list(gangs))
    policy = replace(instance.policy, hold_room_from=least)
    return replace(instance, policy=policy, queues=tuple(queues))


def of(*roles: Role, **about: object) -> Gang:
    return replace(gang("evil", roles=list(roles), priority=5), **about)  # type: ignore[arg-type]


def ruled(pods: int, gpus: int, **rules: object) -> Role:
    return replace(role("w", pods, gpus), **rules)  # type: ignore[arg-type]


SERVER = {"cpu": 100}

NEVER: dict[str, tuple[Gang, str | None]] = {
    "apart": (of(ruled(3, 1, anti_affinity=(NextTo(RACK),))), "AntiAffinity"),
    "next to nobody": (of(ruled(1, 1, affinity=(NextTo(RACK, "ghost"),))), "Affinity"),
    "too few domains": (of(ruled(3, 1, spread=(Spread(RACK, 1, None, 5),))), "Spread"),
    "roles together": (of(role("a", 2, 8), role("b", 1, 1), required=RACK), None),
    "slices": (of(ruled(6, 4, slice_size=3, slice_level=NODE)), None),
}
"""Gangs that can never start, and the rule that is named; None where counts say so, or no single rule."""


@pytest.mark.parametrize("attack", NEVER)
def test_who_can_never_start_holds_no_room_and_says_why(attack: str) -> None:
    evil, rule = NEVER[attack]
    instance = cluster(evil, gang("low", 1, 8))
    found = planned(instance)
    assert found.decisions() == {"evil": "wait", "low": "place"}
    reason = found.of("evil").reason
    assert reason is not None
    assert (reason.code, reason.fields.rule) == ("Never", rule)
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


def test_who_must_be_next_to_another_claims_room_if_both_can_start_together() -> None:
    friend = replace(gang("friend", roles=[ruled(1, 8, pod_sets=("s",))]), priority=0)
    asks = of(ruled(1, 8, affinity=(NextTo(RACK, "s"),)))
    assert blockers(cluster(asks, friend)) == (0,)
    server_too = of(ruled(1, 8, affinity=(NextTo(NODE, "s"),)))
    assert blockers(cluster(server_too, friend)) == ()


def test_a_gang_of_no_queue_where_all_is_promised_claims_nothing() -> None:
    queues = (Queue("v", guarantee=Amount(32)),)
    evil = gang("evil", 1, 8, priority=5)
    assert blockers(cluster(evil, queues=queues)) == ()
    assert blockers(cluster(replace(evil, preemptible=True), queues=queues)) == (0,)
    assert blockers(cluster(replace(evil, queue="v"), queues=queues)) == (0,)


def test_a_guarantee_is_used_up_by_who_can_start_alone() -> None:
    queues = (Queue("v", guarantee=Amount(8)),)
    victim = replace(gang("victim", 1, 8), queue="v")
    for evil, _ in NEVER.values():
        instance = cluster(replace(evil, queue="v"), victim, queues=queues, least=None)
        assert stated_shares(instance).within == {victim.key}
    able = replace(gang("able", 1, 8, priority=5), queue="v")
    assert stated_shares(cluster(able, victim, queues=queues)).within == {able.key}


MORE = (
    *("hold_room", "priorities", "selectors", "required", "slices", "roles", "resources", "queues"),
    *("cells", "apart", "together", "even", "pods_of_no_gang", "balance", "exclusive", "spares"),
    *("min_share", "elastic", "mixed", "mix_models"),
)


def test_program_and_exhaustive_search_agree_on_who_could_start() -> None:
    never = 0
    for seed in range(examples(300, 24)):
        instance = (busy if seed % 3 == 0 else tiny)(seed, more=MORE)
        starts = EmptyStarts(instance)
        for g, one in enumerate(instance.gangs):
            if not one.running and one.hold is None:
                can = could_start(instance, g)
                assert (starts.answer(g) is Answer.CAN) == can, (seed, one.name)
                never += not can
    assert never > 10


def listed(instance: Instance, unable: list[dict[str, object]]) -> dict[str, object]:
    document = compose(instance, solve(instance), words, name="p", created_at=NOW, generator="test")
    document["status"]["unable"] = unable
    return document


def test_the_judge_names_a_gang_that_could_start_and_one_that_could_not() -> None:
    instance = cluster(NEVER["next to nobody"][0], gang("low", 1, 8))
    true = [{"gang": "default/evil", "proven": True}]
    assert check(listed(instance, true)) == []
    (found,) = [v for v in check(listed(instance, [])) if v.rule == "could-start"]
    assert (found.gang, found.message) == (
        "default/evil",
        "is promised room, but could never start: nobody has the pods that role w must be next to",
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
    instance = cluster(NEVER["next to nobody"][0], gang("low", 1, 99))
    assert not_claiming(instance) == {0: Answer.NEVER}
    assert plan(instance).decisions[1].decision == "wait"


def test_two_thousand_kinds_of_gangs_on_many_servers_are_answered_by_counts() -> None:
    nodes = [server(f"n{i}", switched(8), f"b{i // 64}", f"r{i // 8}") for i in range(256)]
    gangs = [gang(f"g{i}", 1 + i % 16, 8, requests={"cpu": i}) for i in range(500)]
    starts = EmptyStarts(build(nodes=nodes, gangs=gangs))
    assert all(starts.answer(i) is Answer.CAN for i in range(500))
    assert starts.spent == 0
