"""The apply machine and the volume claims of pods that gangplan binds: checked, then written, then bound."""

from __future__ import annotations

import pytest
from apply_world import Killed, World, apply, gang, killed_at, order_for, orders, recover

from models.apply.outcomes import Outcome
from models.apply.plan_actions import PlanActions
from models.apply.requests import (
    Bind,
    ChooseNode,
    Conflict,
    Event,
    NoAnswer,
    Rejected,
    RemoveIntent,
    Request,
    WriteIntent,
)
from models.apply.session import TRIES


def gang_of(mode: str = "binding", size: int = 3) -> tuple[World, PlanActions]:
    """Gang a, a pod a node, each with a claim of its own."""
    world = World()
    for number in range(size):
        world.node(f"n{number}")
    pods = [world.pod(f"a-{i}", 8, mode=mode, claims=(f"c{i}",)) for i in range(size)]
    return world, orders(world, gang("a", [order_for(p, f"n{i}") for i, p in enumerate(pods)]))


def steps(requests: list[Request]) -> list[str]:
    return [
        ("check" if one.check else "write") if isinstance(one, ChooseNode) else "bind"
        for one in requests
        if isinstance(one, ChooseNode | Bind)
    ]


@pytest.mark.parametrize("mode", ["binding", "both"])
def test_all_claims_are_checked_then_written_before_the_first_pod_is_bound(mode: str) -> None:
    world, plan = gang_of(mode)
    played = apply(world, plan)
    assert steps(played.requests) == ["check"] * 3 + ["write"] * 3 + ["bind"] * 3
    chosen = [one for one in played.requests if isinstance(one, ChooseNode)]
    assert {one.nodes for one in chosen} == {("n0", "n1", "n2")}
    assert [one.claims for one in chosen[:3]] == [("c0",), ("c1",), ("c2",)]


def test_claims_of_pods_that_kube_scheduler_binds_are_checked_alone() -> None:
    world, plan = gang_of("gate")
    assert steps(apply(world, plan).requests) == ["check"] * 3


def test_a_claim_that_excludes_its_node_skips_the_gang_and_nothing_is_written() -> None:
    world, plan = gang_of()

    def fault(number: int, request: Request, world: World) -> Event | None:
        del number, world
        refuses = isinstance(request, ChooseNode) and request.pod.name == "a-2"
        return Rejected("elsewhere") if refuses else None

    played = apply(world, plan, fault)
    assert steps(played.requests) == ["check"] * 3
    assert not any(isinstance(one, WriteIntent | RemoveIntent) for one in played.requests)
    (verdict,) = played.verdict.gangs
    assert (verdict.outcome, verdict.why) == (Outcome.skipped, "pod a-2: elsewhere")


@pytest.mark.parametrize("answer", [NoAnswer("lost"), Conflict("changed")])
def test_a_write_without_success_is_tried_again_a_few_times(answer: Event) -> None:
    world, plan = gang_of(size=1)
    failing = TRIES - 1

    def fault(number: int, request: Request, world: World) -> Event | None:
        nonlocal failing
        del number, world
        if isinstance(request, ChooseNode) and not request.check and failing:
            failing -= 1
            return answer
        return None

    played = apply(world, plan, fault)
    assert steps(played.requests) == ["check"] + ["write"] * TRIES + ["bind"]
    assert played.verdict.gangs[0].outcome is Outcome.started


def test_wherever_a_run_dies_the_next_one_completes_the_gang() -> None:
    world, plan = gang_of()
    length = len(apply(world, plan).requests)
    for at in range(length):
        world, plan = gang_of()
        with pytest.raises(Killed):
            apply(world, plan, killed_at(at))
        recover(world)
        apply(world, plan)
        assert [pod.node for pod in world.pods.values()] == ["n0", "n1", "n2"], at
