"""Single gangs: marks, PodGroups, foreign gates, undoing, and the order of requests."""

from __future__ import annotations

import json
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from apply_world import (
    LIMITS,
    OTHER_PLAN,
    PLAN,
    WRITES,
    Killed,
    World,
    apply,
    bound,
    gang,
    killed_after,
    order_for,
    orders,
    recover,
)

from models.apply.plan_actions import PlanActions
from models.apply.recovery import evict_partial
from models.apply.requests import (
    CheckLock,
    Event,
    GangVerdict,
    Outcome,
    ReadCluster,
    Request,
    Ungate,
)
from models.apply.session import LOCK_CHECK_EVERY, ApplySession
from models.apply.starts import REQUIRED
from planner.show.apply import undo_commands


def gang_of(count: int, backend: str = "annotation", gpus: int = 4) -> tuple[World, PlanActions]:
    """Gang a, two pods a node."""
    world = World(backend=backend)
    for number in range((count + 1) // 2):
        world.node(f"n{number}")
    pods = [world.pod(f"a-{i}", gpus) for i in range(count)]
    return world, orders(world, gang("a", [order_for(p, f"n{i // 2}") for i, p in enumerate(pods)]))


def one(verdict: object) -> GangVerdict:
    (found,) = verdict.gangs  # type: ignore[attr-defined]
    return found  # type: ignore[no-any-return]


def kinds(requests: list[Request]) -> str:
    """A word for each run of equal kinds."""
    names: list[str] = []
    for request in requests:
        if not names or names[-1] != type(request).__name__:
            names.append(type(request).__name__)
    return " ".join(names)


# ---- the course of a start


@pytest.mark.parametrize(
    ("backend", "course"),
    [
        ("annotation", "CheckLock Ungate ReadCluster WriteIntent"),
        ("dra", "CheckLock WriteIntent AllocateDevices Ungate ReadCluster WriteIntent"),
    ],
)
def test_intents_come_first_then_what_can_be_taken_back_then_the_start(
    backend: str, course: str
) -> None:
    world, plan = gang_of(4, backend)
    assert kinds(apply(world, plan).requests) == course


def test_the_scarcest_node_is_taken_first() -> None:
    world = World()
    for number in range(3):
        world.node(f"n{number}")
    # After the gang n0 has 8 - 2 = 6 GPUs left, n1 8 - 5 - 2 = 1, n2 8 - 3 - 2 = 3.
    world.pod("r-0", 5, mode="none", node="n1")
    world.pod("r-1", 3, mode="none", node="n2")
    pods = [world.pod(f"a-{i}", 2) for i in range(3)]
    plan = orders(world, gang("a", [order_for(p, f"n{i}") for i, p in enumerate(pods)]))
    started = [r.pod.node for r in apply(world, plan).requests if isinstance(r, Ungate)]
    assert started == ["n1", "n2", "n0"]


def test_gangs_start_by_priority_then_by_age_then_by_name() -> None:
    world = World()
    world.node("n0")
    given: dict[str, dict[str, int]] = {
        "d": {"priority": 1}, "c": {"priority": 1, "submitted_at": 9},
        "b": {"priority": 1, "submitted_at": 5}, "a": {"priority": 0}, "e": {"priority": 1},
    }  # fmt: skip
    gangs = [
        gang(name, [order_for(world.pod(f"{name}-0"), "n0")], **more)
        for name, more in given.items()
    ]
    played = apply(world, orders(world, *gangs))
    assert [r.pod.name[0] for r in played.requests if isinstance(r, Ungate)] == list("bcdea")


def test_the_lock_is_looked_at_before_each_gang_and_every_few_writes() -> None:
    world, plan = gang_of(40, "dra", gpus=1)
    since, begun = 0, []
    for request in apply(world, plan).requests:
        since = 0 if isinstance(request, CheckLock) else since + isinstance(request, WRITES)
        assert since <= LOCK_CHECK_EVERY
        if isinstance(request, CheckLock):
            begun.append(request.begun)
    # 40 intents, 40 allocations, 40 starts: a look at the start and after every 16.
    assert begun == [*[False] * 6, True, True]


# ---- whole, and what came after


def test_a_gang_that_lost_pods_after_it_was_whole_is_left_alone() -> None:
    world, plan = gang_of(4)
    apply(world, plan)
    world.delete(("default", "a-0"))
    assert recover(world).verdict.gangs == ()
    again = one(apply(world, plan).verdict)
    assert (again.outcome, again.why) == (Outcome.unchanged, "1 of its pods are gone since")


def test_a_gang_that_its_owner_deletes_while_it_starts_is_let_go() -> None:
    world, plan = gang_of(4)

    def gone(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Ungate) and len(bound(world)) == 2:
            for key in list(world.pods):
                world.change(key, terminating=True)
        return None

    found = one(apply(world, plan, gone).verdict)
    assert (found.outcome, found.undo) == (Outcome.skipped, ())


def test_a_pod_that_another_plan_put_in_the_place_of_a_lost_one_makes_the_gang_whole() -> None:
    world, plan = gang_of(4)
    with pytest.raises(Killed):
        apply(world, plan, killed_after(2, Ungate))
    # n0 and n1 go round: whichever waits, a-3 is made anew and placed by the next plan.
    world.recreates = {("default", "a-3")}
    world.delete(("default", "a-3"))
    assert one(recover(world).verdict).outcome is Outcome.partial
    anew = world.pods["default", "a-3"]
    node = next(n for n in ("n0", "n1") if list(bound(world).values()).count(n) < 2 or n == "n1")
    complete = orders(world, gang("a", [order_for(anew, node)], "complete"), plan=OTHER_PLAN)
    apply(world, complete)
    assert len(bound(world)) == 4
    assert recover(world).verdict.writes == 0


# ---- pins that came to nothing


def filled(world: World) -> None:
    world.pod("r-0", 8, mode="none", node="n1")


def cordoned(world: World) -> None:
    world.nodes["n1"] = replace(world.nodes["n1"], unschedulable=True)


def broken(world: World) -> None:
    world.nodes["n1"] = replace(world.nodes["n1"], ready=False)


def tainted(world: World) -> None:
    world.nodes["n1"] = replace(world.nodes["n1"], taints=(("down", "", "NoSchedule"),))


def removed(world: World) -> None:
    del world.nodes["n1"]


def test_room_that_a_leaving_pod_holds_is_only_waited_for() -> None:
    world, plan = gang_of(2)
    world.pod("r-0", 4, mode="none", node="n0", terminating=True)

    def unseen(count: int, request: Request, world: World) -> Event | None:
        return None

    # At the start the room is not there: nothing is begun.
    assert one(apply(world, plan, unseen).verdict).outcome is Outcome.skipped
    world.wait()
    assert one(apply(world, plan).verdict).outcome is Outcome.started


# ---- pins that cannot be


@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({"selector": (("kubernetes.io/hostname", "n9"),)}, "its node selector requires"),
        (
            {"node_affinity": json.dumps({REQUIRED: {"nodeSelectorTerms": [{}]}})},
            "its required node affinity matches no node",
        ),
    ],
)
def test_nothing_of_a_gang_is_written_where_one_of_its_pods_cannot_be_pinned(
    more: dict[str, Any], why: str
) -> None:
    world, plan = gang_of(4)
    world.nodes["n1"] = replace(world.nodes["n1"], hostname=None)  # pinned by name
    world.change(("default", "a-3"), **more)  # the last of all to be started
    played = apply(world, plan)
    found = one(played.verdict)
    assert (found.outcome, found.undo) == (Outcome.skipped, ())
    assert found.why.startswith(f"pod a-3 cannot be pinned to n1: {why}")
    assert not any(isinstance(request, WRITES) for request in played.requests)


# ---- strangers


def test_a_gate_of_somebody_else_holds_the_whole_gang_back() -> None:
    world, plan = gang_of(4)
    pod = world.pods["default", "a-2"]
    world.change(pod.key, gates=(*pod.gates, "kueue.x-k8s.io/admission"))
    found = one(apply(world, plan).verdict)
    assert found.outcome is Outcome.skipped
    assert "kueue.x-k8s.io/admission" in found.why
    assert all(pod.intent is None for pod in world.pods.values())
    assert bound(world) == {}


def test_undoing_takes_no_more_evictions_than_allowed() -> None:
    world, plan = gang_of(3)
    apply(world, plan, lambda n, r, w: w.pods.pop(("default", "a-0"), None) and None
          if isinstance(r, ReadCluster) else None)  # fmt: skip
    few = replace(LIMITS, evict_partial=True, max_evictions=1)
    found = one(recover(world, limits=few).verdict)
    assert found.outcome is Outcome.partial
    assert "--max-evictions" in found.why
    enough = replace(few, max_evictions=2)
    assert one(recover(world, limits=enough).verdict).outcome is Outcome.undone


# ---- words


@pytest.mark.parametrize("shell", ["sh", "bash"])
def test_commands_delete_each_started_pod_by_its_uid_and_quote_every_name(
    tmp_path: Path, shell: str
) -> None:
    undo = (("ns", "a-0", "u-0"), ("n s", "$(touch x)", "u'1\\n"), ("ns", "..", "u-2"))
    first, second = undo_commands(undo, "my ctx", "/k c")  # no line for a step in a path
    kubectl = "kubectl '--kubeconfig=/k c' '--context=my ctx'"
    options = '{"apiVersion":"v1","kind":"DeleteOptions","preconditions":{"uid":"u-0"}}'
    assert first == (
        f"printf %s '{options}' | {kubectl} delete --raw /api/v1/namespaces/ns/pods/a-0 -f - "
        ">/dev/null"
    )
    # A kubectl that prints its arguments one per line, and its stdin.
    told = "kubectl() { printf '%s\\n' \"$@\" >&2; cat >&2; }"
    run = subprocess.run(
        [shell, "-c", f"{told}\n{second}"],
        capture_output=True,
        text=True,
        check=True,
        cwd=tmp_path,
    )
    *words, given = run.stderr.splitlines()
    assert words == [
        "--kubeconfig=/k c", "--context=my ctx", "delete", "--raw",
        "/api/v1/namespaces/n%20s/pods/%24%28touch%20x%29", "-f", "-",
    ]  # fmt: skip
    assert json.loads(given)["preconditions"] == {"uid": "u'1\\n"}
    assert (run.stdout, list(tmp_path.iterdir())) == ("", [])


def test_a_gpu_that_dies_under_a_whole_gang_does_not_make_it_partial() -> None:
    world, plan = gang_of(4)
    apply(world, plan)
    world.nodes["n0"] = replace(world.nodes["n0"], gpus=7)
    assert one(apply(world, plan).verdict).outcome is Outcome.unchanged
    assert recover(world).verdict.gangs == ()


def test_pods_of_the_gang_that_stood_before_do_not_make_up_for_one_it_was_to_grow_by() -> None:
    world, plan = gang_of(4, gpus=1)
    apply(world, plan)
    more = [world.pod(f"a-{i}", 1) for i in (4, 5)]
    grow = orders(world, gang("a", [order_for(p, "n0") for p in more], "resize"), plan=OTHER_PLAN)
    with pytest.raises(Killed):
        apply(world, grow, killed_after(1, Ungate))
    left = next(pod for pod in world.pods.values() if pod.node is None)
    del world.pods[left.key]
    found = one(recover(world).verdict)
    assert (found.plan, found.outcome, len(found.undo)) == (OTHER_PLAN, Outcome.partial, 1)


def test_a_pod_whose_owner_took_our_intent_off_meanwhile_is_not_started() -> None:
    world, plan = gang_of(4, "dra")

    def strip(count: int, request: Request, world: World) -> Event | None:
        if isinstance(request, Ungate) and request.pod.name == "a-3":
            world.change(("default", "a-3"), intent=None, intent_is_ours=False)
        return None

    found = one(apply(world, plan, strip).verdict)
    assert (found.outcome, found.why) == (Outcome.partial, "pod a-3 lost its intent")
    assert sorted(bound(world)) == ["a-0", "a-1", "a-2"]
    assert [name for _, name, _ in found.undo] == ["a-0", "a-1", "a-2"]


def test_a_pod_that_changed_hands_after_it_was_reported_is_not_evicted() -> None:
    world, plan = gang_of(2)
    apply(world, plan)
    world.change(("default", "a-0"), intent_is_ours=False)
    uids = tuple((pod.namespace, pod.name, pod.uid) for pod in world.pods.values())
    session = ApplySession(world.view(), replace(LIMITS, evict_partial=True))
    session.record(GangVerdict(("default", "a"), Outcome.partial, PLAN, undo=uids))
    assert list(evict_partial(session)) == []
    assert "does not carry an intent of this plan" in session.verdicts[PLAN, ("default", "a")].why
