"""Tiers of what runs, waits too long or was planned before, on plans worked out by hand."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
from building import build, gang, mask, role
from moves_made import decide

from models.documents.policy import Disruption, Objective
from models.instance.gang import Gang, PlannedPod
from models.instance.instance import Instance
from models.instance.solution import GangDecision
from models.values.tier_values import Evaluation, tiers_of

ALL8 = mask(*range(8))


def ruled(instance: Instance, **policy: object) -> Instance:
    return replace(instance, policy=replace(instance.policy, **policy))  # type: ignore[arg-type]


def aimed(instance: Instance, *names: str) -> Instance:
    return ruled(instance, objectives=tuple(Objective(name) for name in names))


def value(instance: Instance, decisions: Sequence[GangDecision], name: str) -> int:
    (tier,) = [tier for tier in tiers_of(instance) if tier.name == name]
    return Evaluation(instance, decisions).tier(tier)


def queue(starvation: int | None = 3600, now: int | None = 10_000) -> Instance:
    """Two servers; three gangs of priority 5, one of which has waited since 1000; one of priority 1."""
    instance = build(
        nodes_per_rack=2,
        gangs=[
            gang("a", 1, 8, priority=5, submitted=1000),
            gang("b", 1, 4, priority=5, submitted=9000),
            gang("run", 1, 2, priority=5, submitted=500, stands=[(0, 0, 0, mask(0, 1))]),
            gang("z", 1, 1, priority=1),
        ],
    )
    return ruled(instance, starvation_after_s=starvation, now=now)


def names(instance: Instance) -> list[str]:
    return [tier.name for tier in tiers_of(instance)]


def test_aged_gangs_have_a_band_of_their_own_just_above_their_peers() -> None:
    instance = queue()
    stoppable = replace(instance.gangs[2], preemptible=True)
    instance = replace(instance, gangs=(*instance.gangs[:2], stoppable, instance.gangs[3]))
    # z never said since when it waits, so nobody of priority 1 is aged
    assert names(instance)[:7] == [
        "kept/5", "aged/5", "aged-waiting/5", "admission/5", "waiting/5", "admission/1", "waiting/1",
    ]  # fmt: skip


def test_without_a_limit_or_the_admission_objective_nobody_has_a_band() -> None:
    assert not any(name.startswith("aged") for name in names(queue(starvation=None)))
    assert names(aimed(queue(), "waiting")) == ["waiting/5", "waiting/1"]
    assert "aged-waiting/5" not in names(aimed(queue(), "admission"))
    assert "aged/5" in names(aimed(queue(), "admission"))


def test_aged_tiers_count_aged_gangs_alone_and_the_others_all() -> None:
    instance = queue()
    plan = decide(instance, a=[(1, ALL8)], b=[(0, mask(4, 5, 6, 7))])
    assert value(instance, plan, "aged/5") == 8
    # T is the latest submission, 9000, whatever time it is now: 8 GPUs x 8000 s
    assert value(instance, plan, "aged-waiting/5") == 64_000
    assert value(instance, plan, "admission/5") == 8 + 4 + 2
    # and 4 GPUs x 0 s; run was submitted but runs already
    assert value(instance, plan, "waiting/5") == 64_000
    without = decide(instance, b=[(0, mask(4, 5, 6, 7))])
    assert value(instance, without, "aged/5") == 0
    assert value(instance, without, "aged-waiting/5") == 0


def running(**fields: object) -> Gang:
    """Two pods of four GPUs on n01 and n02, that may be moved and stopped."""
    made = gang(
        "run",
        roles=[role("worker", 1, 4, most=2)],
        stands=[(0, 0, 0, mask(0, 1, 2, 3)), (0, 1, 1, mask(0, 1, 2, 3))],
        preemptible=True,
        movable=True,
    )
    return replace(made, **fields)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fields", "seconds"),
    [
        ({"started_at": 1000}, 9000),
        ({"started_at": 1000, "last_checkpoint": 9400}, 600),
        # restored from a checkpoint of an earlier run: what it lost since is since its start
        ({"started_at": 9000, "last_checkpoint": 400}, 1000),
        ({"last_checkpoint": 9999}, 1),
        ({"last_checkpoint": 20_000}, 1),  # yet to come: nothing is lost, and still a GPU is one
        ({"started_at": 1}, 9500),  # capped
        ({}, 9500),  # unknown: the cap
    ],
)
def test_lost_runtime_counts_each_gpu_with_the_seconds_it_would_lose(
    fields: dict[str, object], seconds: int
) -> None:
    weighing = {"disruption": Disruption("lostRuntime", 9500), "now": 10_000}
    instance = ruled(build(nodes_per_rack=3, gangs=[running(**fields)]), **weighing)
    moved = decide(instance, run=[(2, mask(0, 1, 2, 3)), (1, mask(0, 1, 2, 3))])
    stopped = decide(instance, run=None)
    shrunk = decide(instance, run=[(0, mask(0, 1, 2, 3))])
    stays = decide(instance)
    for plan, gpus in ((moved, 8), (stopped, 8), (shrunk, 4), (stays, 0)):
        assert value(instance, plan, "disruption") == gpus * seconds
        assert value(ruled(instance, disruption=Disruption()), plan, "disruption") == gpus


def test_defragment_counts_whole_nodes_and_again_those_of_whole_domains() -> None:
    instance = aimed(build(racks=2, nodes_per_rack=2, gangs=[running()]), "defragment")
    # n01 and n02 are in use, rack r2 is free: two nodes, and the same two as a domain
    assert value(instance, decide(instance), "defragment") == 16 + 16
    # both on n02: n01 is whole too, its rack is not
    together = decide(instance, run=[(1, mask(4, 5, 6, 7)), (1, mask(0, 1, 2, 3))])
    assert value(instance, together, "defragment") == 24 + 16
    # one in each rack: no domain
    apart = decide(instance, run=[(0, mask(0, 1, 2, 3)), (2, mask(0, 1, 2, 3))])
    assert value(instance, apart, "defragment") == 16
    assert value(instance, decide(instance, run=None), "defragment") == 32 + 32


def test_stability_counts_gpus_of_pods_that_are_not_where_they_were_planned() -> None:
    wanted = gang(
        "new",
        roles=[role("worker", 3, 4), role("launcher", 1, 0)],
        priority=1,
    )
    planned = (PlannedPod(0, 0, 0), PlannedPod(0, 1, 1), PlannedPod(1, 0, 1))
    instance = aimed(build(nodes_per_rack=2, gangs=[replace(wanted, planned=planned)]), "stability")
    half, other = mask(0, 1, 2, 3), mask(4, 5, 6, 7)
    as_it_was = decide(instance, new=[(0, half), (1, half), (1, other)])
    assert value(instance, as_it_was, "stability") == 0  # the third pod was never planned
    swapped = decide(instance, new=[(1, half), (0, half), (0, other)])
    assert value(instance, swapped, "stability") == 8
    assert value(instance, decide(instance), "stability") == 0  # it waits: no pod stands wrong


def test_senses_are_those_of_the_contract() -> None:
    instance = aimed(build(gangs=[gang("a")]), "defragment", "disruption", "stability")
    assert [(tier.name, tier.sense) for tier in tiers_of(instance)] == [
        ("defragment", "max"),
        ("disruption", "min"),
        ("stability", "min"),
    ]
