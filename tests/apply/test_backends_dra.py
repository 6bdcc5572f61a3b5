"""The back end ``dra``: claims are protected, allocated and reserved, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire
from apiserver_setup import GATE
from backend_world import (
    API,
    DRIVER,
    FINALIZER,
    PLAN,
    Tree,
    add_pod,
    claim,
    cluster,
    devices_of,
    give,
    metadata_of,
    ordered,
    release,
    request,
    status_of,
)

from models.apply.intents import PLAN as MARK
from models.apply.requests import Conflict, Done, Rejected
from planner.cluster.backends import backend_of
from planner.cluster.transport import MERGE
from planner.read.kube.dialects.base import CannotEncode


class Killed(BaseException):
    """Stands for SIGKILL."""


def pair() -> tuple[FakeCluster, Tree]:
    """A gated pod with one claim for two GPUs."""
    found = cluster()
    found.create(claim("c"))
    return found, add_pod(found, "p", "c")


def nth_patch(number: int, what: Callable[[], Answer | None]) -> Callable[[Call], Answer | None]:
    """Once, something else at write ``number``."""
    made: list[Call] = []

    def hook(call: Call) -> Answer | None:
        if call.method != "PATCH":
            return None
        made.append(call)
        return what() if len(made) == number + 1 else None

    return hook


def killed() -> Answer:
    raise Killed


def test_a_claim_is_protected_before_it_is_allocated() -> None:
    found, pod = pair()
    steps: list[tuple[bool, bool]] = []

    def look(call: Call) -> None:
        if call.method == "PATCH":
            guarded = FINALIZER in metadata_of(found, "c").get("finalizers", [])
            steps.append((guarded, bool(devices_of(found, "c"))))

    found.after.append(look)
    give(found, pod, (2, 3))
    assert steps == [(True, False), (True, True)]
    assert metadata_of(found, "c")["annotations"] == {MARK: PLAN}


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_crash_leaves_of_giving_or_releasing_is_finished_by_the_same_call(
    number: int,
) -> None:
    found, pod = pair()
    found.after.append(nth_patch(number, killed))
    with pytest.raises(Killed):
        give(found, pod, (2, 3))
    assert give(found, pod, (2, 3)) == Done()
    undisturbed, other = pair()
    give(undisturbed, other, (2, 3))
    assert status_of(found, "c") == status_of(undisturbed, "c")
    assert metadata_of(found, "c")["finalizers"] == metadata_of(undisturbed, "c")["finalizers"]
    found.after[:] = [nth_patch(number, killed)]
    with pytest.raises(Killed):
        release(found, pod)
    assert release(found, pod) == Done()
    assert status_of(found, "c").get("allocation") is None
    assert MARK not in metadata_of(found, "c").get("annotations", {})


@pytest.mark.parametrize("number", [0, 1])
@pytest.mark.parametrize("code", [0, 409, 500, None])
def test_a_write_that_failed_once_is_made_again(number: int, code: int | None) -> None:
    """``code`` None: the claim was changed in between, and is read again."""
    found, pod = pair()

    def fails() -> Answer | None:
        if code is None:
            found.touch("ResourceClaim", "c")
        return None if code is None else (code, {"message": "no", "kind": "Status"}, {})

    found.before.append(nth_patch(number, fails))
    assert give(found, pod, (2, 3)) == Done()
    assert devices_of(found, "c") == ["gpu-2", "gpu-3"]
    assert [one["name"] for one in status_of(found, "c")["reservedFor"]] == ["p"]


def test_a_claim_keeps_what_it_holds_of_the_plan() -> None:
    """Claim b holds GPU 1 already, as a scheduler dealt it: a gets the other one."""
    found = cluster()
    for name in ("a", "b"):
        found.create(claim(name, request(1)))
    held = {"request": "gpu", "driver": DRIVER, "pool": "pool-n1", "device": "gpu-1"}
    path = f"/apis/{API}/namespaces/default/resourceclaims/b/status"
    body = {"status": {"allocation": {"devices": {"results": [held]}}}}
    assert FakeWire(found).send("PATCH", path, body, content_type=MERGE).ok
    assert give(found, add_pod(found, "p", "a", "b"), (1, 4)) == Done()
    assert (devices_of(found, "a"), devices_of(found, "b")) == (["gpu-4"], ["gpu-1"])
    assert "annotations" not in metadata_of(found, "b"), "we did not allocate it"
    assert status_of(found, "b")["reservedFor"][0]["name"] == "p"


def test_what_an_earlier_plan_of_ours_gave_to_the_pod_is_taken_back_and_no_other() -> None:
    found = cluster("n1", "n2")
    found.create(claim("c"))
    pod = add_pod(found, "p", "c")
    give(found, pod, (0, 1), "n1")
    assert give(found, pod, (4, 5), "n2") == Done()
    assert devices_of(found, "c") == ["gpu-4", "gpu-5"]
    results = status_of(found, "c")["allocation"]["devices"]["results"]
    assert {one["pool"] for one in results} == {"pool-n2"}
    assert FINALIZER in metadata_of(found, "c")["finalizers"]

    def without_mark(tree: Tree) -> Tree:
        tree["metadata"].pop("annotations")
        return tree

    found.change("ResourceClaim", "c", without_mark)  # as if somebody else had given them
    assert give(found, pod, (0, 1)) == Rejected("claim c holds other devices already")
    assert devices_of(found, "c") == ["gpu-4", "gpu-5"]


def test_a_device_that_another_claim_holds_is_not_given_twice() -> None:
    found = cluster()
    for name in ("c", "d"):
        found.create(claim(name))
    assert give(found, add_pod(found, "p", "c"), (2, 3)) == Done()
    backend = backend_of("dra")
    rival = add_pod(found, "q", "d")
    answer = give(found, rival, (3, 4), backend=backend)
    assert answer == Conflict("device gpu-3 of node n1 is held by claim default/c")
    assert devices_of(found, "d") == []
    found.remove("Pod", "p")
    found.remove("ResourceClaim", "c")
    assert give(found, rival, (3, 4), backend=backend) == Done(), "holders are read again"


@pytest.mark.parametrize("again", [False, True])
def test_devices_of_a_pod_that_is_gone_are_free_before_its_claim_says_so(*, again: bool) -> None:
    """``again``: another pod has its name by then, but not its uid."""
    found = cluster()
    found.controllers.on = False  # the one that takes devices back is late
    for name in ("c", "d"):
        found.create(claim(name))
    give(found, add_pod(found, "p", "c"), (2, 3))
    rival = add_pod(found, "q", "d")
    assert isinstance(give(found, rival, (3, 4)), Conflict)
    found.remove("Pod", "p")
    if again:
        add_pod(found, "p")
    assert devices_of(found, "c") == ["gpu-2", "gpu-3"]
    assert give(found, rival, (3, 4)) == Done()


NIC = {"name": "nic", "exactly": {"deviceClassName": "nic.example.org", "count": 1}}
CHOICE = {"name": "gpu", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]}
OWN = [{"cel": {"expression": "device.x == 1"}}]


@pytest.mark.parametrize(
    ("tree", "why"),
    [
        (claim("c", request(3)), "its claims request 3 GPUs, the plan gives 2"),
        (claim("c", request(2), NIC), "claim c requests GPUs and other devices at once"),
        (claim("c", request(2, allocationMode="All")), "claim c requests all devices of a node"),
        (claim("c", request(2, selectors=OWN)), "claim c selects devices by conditions of its own"),
        (claim("c", CHOICE), "claim c leaves a choice between devices (firstAvailable)"),
        (
            claim("c", constraints=[{"matchAttribute": "example.com/root"}]),
            "claim c has constraints between its devices",
        ),
        (claim("c", request(2, capacity={"requests": {}})), "claim c requests parts of GPUs"),
    ],
)
def test_a_claim_that_chosen_gpus_cannot_answer_is_refused_untouched(tree: Tree, why: str) -> None:
    found = cluster()
    found.put(tree)
    assert give(found, add_pod(found, "p", "c"), (2, 3)) == Rejected(why)
    assert found.writes == []


def test_a_claim_that_is_not_made_yet_is_asked_for_later() -> None:
    found = cluster()
    named = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    made = add_pod(found, "p", resourceClaims=named)
    assert give(found, made, (0, 1)) == Conflict("its claim gpu is not created yet")
    found.create(claim("p-gpu-x7"))
    stated = [{"name": "gpu", "resourceClaimName": "p-gpu-x7"}]
    found.change(
        "Pod",
        "p",
        lambda tree: tree | {"status": tree["status"] | {"resourceClaimStatuses": stated}},
    )
    assert give(found, made, (0, 1)) == Done(), "the old tree of the pod does not matter"
    assert devices_of(found, "p-gpu-x7") == ["gpu-0", "gpu-1"]


def test_a_pod_without_claims_takes_whole_nodes_or_nothing() -> None:
    found = cluster()
    pod = found.add_pod("p", gpus=4, gates=[GATE])
    node = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
    backend = backend_of("dra")
    with pytest.raises(CannotEncode, match="without a ResourceClaim"):
        backend.annotations(ordered(pod, (0, 1, 2, 3)), node, pod)
    whole = tuple(range(8))
    assert backend.annotations(ordered(pod, whole), node, pod) == {}
    assert backend.annotations(ordered(pod, None, count=4), node, pod) == {}
    assert give(found, pod, whole) == Done()


def test_releasing_gives_the_devices_back_and_takes_the_mark_off() -> None:
    found, pod = pair()
    backend = backend_of("dra")
    give(found, pod, (0, 1), backend=backend)
    assert release(found, pod, backend) == Done()
    assert status_of(found, "c").get("allocation") is None
    assert MARK not in metadata_of(found, "c").get("annotations", {})
    before = len(found.writes)
    assert release(found, pod, backend) == Done()
    assert len(found.writes) == before
    assert give(found, pod, (4, 5), backend=backend) == Done()
