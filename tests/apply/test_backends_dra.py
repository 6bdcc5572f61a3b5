"""The back end ``dra``: claims are protected, allocated and reserved, whatever happens in between."""

from __future__ import annotations

from collections.abc import Callable

import backend_world as dra
import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire
from cluster_contents import GATE

from models.apply.requests import Conflict, Done, Rejected
from models.apply.terms import PLAN as MARK
from planner.cluster.backends import backend_of
from planner.cluster.transport import MERGE
from planner.read.kube.dialects.base import CannotEncode


class Killed(BaseException):
    """Stands for SIGKILL."""


def pair() -> tuple[FakeCluster, dra.Tree]:
    """A gated pod with one claim for two GPUs."""
    found = dra.cluster()
    found.create(dra.claim("c"))
    return found, dra.add_pod(found, "p", "c")


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
            guarded = dra.FINALIZER in dra.metadata_of(found, "c").get("finalizers", [])
            steps.append((guarded, bool(dra.devices_of(found, "c"))))

    found.after.append(look)
    dra.give(found, pod, (2, 3))
    assert steps == [(True, False), (True, True)]
    assert dra.metadata_of(found, "c")["annotations"] == {MARK: dra.PLAN}


@pytest.mark.parametrize("number", [0, 1])
def test_what_a_crash_leaves_is_finished_by_the_same_call(number: int) -> None:
    found, pod = pair()
    found.after.append(nth_patch(number, killed))
    with pytest.raises(Killed):
        dra.give(found, pod, (2, 3))
    assert dra.give(found, pod, (2, 3)) == Done()
    undisturbed, other = pair()
    dra.give(undisturbed, other, (2, 3))
    assert dra.status_of(found, "c") == dra.status_of(undisturbed, "c")
    assert (
        dra.metadata_of(found, "c")["finalizers"] == dra.metadata_of(undisturbed, "c")["finalizers"]
    )
    found.after[:] = [nth_patch(number, killed)]
    with pytest.raises(Killed):
        dra.release(found, pod)
    assert dra.release(found, pod) == Done()
    assert dra.status_of(found, "c").get("allocation") is None
    assert MARK not in dra.metadata_of(found, "c").get("annotations", {})


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
    assert dra.give(found, pod, (2, 3)) == Done()
    assert dra.devices_of(found, "c") == ["gpu-2", "gpu-3"]
    assert [one["name"] for one in dra.status_of(found, "c")["reservedFor"]] == ["p"]


def test_a_claim_keeps_what_it_holds_of_the_plan() -> None:
    """Claim b holds GPU 1 already, as a scheduler dealt it: a gets the other one."""
    found = dra.cluster()
    for name in ("a", "b"):
        found.create(dra.claim(name, dra.request(1)))
    held = {"request": "gpu", "driver": dra.DRIVER, "pool": "pool-n1", "device": "gpu-1"}
    path = f"/apis/{dra.API}/namespaces/default/resourceclaims/b/status"
    body = {"status": {"allocation": {"devices": {"results": [held]}}}}
    assert FakeWire(found).send("PATCH", path, body, content_type=MERGE).ok
    assert dra.give(found, dra.add_pod(found, "p", "a", "b"), (1, 4)) == Done()
    assert (dra.devices_of(found, "a"), dra.devices_of(found, "b")) == (["gpu-4"], ["gpu-1"])
    assert "annotations" not in dra.metadata_of(found, "b"), "we did not allocate it"
    assert dra.status_of(found, "b")["reservedFor"][0]["name"] == "p"


def test_what_an_earlier_plan_of_ours_gave_to_the_pod_is_taken_back_and_no_other() -> None:
    found = dra.cluster("n1", "n2")
    found.create(dra.claim("c"))
    pod = dra.add_pod(found, "p", "c")
    dra.give(found, pod, (0, 1), "n1")
    assert dra.give(found, pod, (4, 5), "n2") == Done()
    assert dra.devices_of(found, "c") == ["gpu-4", "gpu-5"]
    results = dra.status_of(found, "c")["allocation"]["devices"]["results"]
    assert {one["pool"] for one in results} == {"pool-n2"}
    assert dra.FINALIZER in dra.metadata_of(found, "c")["finalizers"]

    def without_mark(tree: dra.Tree) -> dra.Tree:
        tree["metadata"].pop("annotations")
        return tree

    found.change("ResourceClaim", "c", without_mark)  # as if somebody else had given them
    assert dra.give(found, pod, (0, 1)) == Rejected("claim c holds other devices already")
    assert dra.devices_of(found, "c") == ["gpu-4", "gpu-5"]


def test_a_device_that_another_claim_holds_is_not_given_twice() -> None:
    found = dra.cluster()
    for name in ("c", "d"):
        found.create(dra.claim(name))
    assert dra.give(found, dra.add_pod(found, "p", "c"), (2, 3)) == Done()
    backend = backend_of("dra")
    rival = dra.add_pod(found, "q", "d")
    answer = dra.give(found, rival, (3, 4), backend=backend)
    assert answer == Conflict("device gpu-3 of node n1 is held by claim default/c")
    assert dra.devices_of(found, "d") == []
    found.remove("Pod", "p")
    found.remove("ResourceClaim", "c")
    assert dra.give(found, rival, (3, 4), backend=backend) == Done(), "holders are read again"


@pytest.mark.parametrize("again", [False, True])
def test_devices_of_a_pod_that_is_gone_are_free_before_its_claim_says_so(*, again: bool) -> None:
    """``again``: another pod has its name by then, but not its uid."""
    found = dra.cluster()
    found.controllers.on = False  # the one that takes devices back is late
    for name in ("c", "d"):
        found.create(dra.claim(name))
    dra.give(found, dra.add_pod(found, "p", "c"), (2, 3))
    rival = dra.add_pod(found, "q", "d")
    assert isinstance(dra.give(found, rival, (3, 4)), Conflict)
    found.remove("Pod", "p")
    if again:
        dra.add_pod(found, "p")
    assert dra.devices_of(found, "c") == ["gpu-2", "gpu-3"]
    assert dra.give(found, rival, (3, 4)) == Done()


@pytest.mark.parametrize("case", dra.CASES["dra"], ids=str)
def test_a_claim_that_chosen_gpus_cannot_answer_is_refused_untouched(case: dra.Tree) -> None:
    found = dra.cluster()
    requests = [dra.request(**{"count": 2, **one}) for one in case.get("requests", ())]
    if "choice" in case:
        requests = [{"name": "gpu", "firstAvailable": case["choice"]}]
    found.put(dra.claim("c", *requests, **case.get("devices", {})))
    said = dra.give(found, dra.add_pod(found, "p", "c"), (2, 3))
    assert (said, found.writes) == (Rejected(case["why"]), [])


def test_a_claim_that_is_not_made_yet_is_asked_for_later() -> None:
    found = dra.cluster()
    named = [{"name": "gpu", "resourceClaimTemplateName": "t"}]
    made = dra.add_pod(found, "p", resourceClaims=named)
    assert dra.give(found, made, (0, 1)) == Conflict("its claim gpu is not created yet")
    found.create(dra.claim("p-gpu-x7"))
    stated = [{"name": "gpu", "resourceClaimName": "p-gpu-x7"}]
    found.change(
        "Pod",
        "p",
        lambda tree: tree | {"status": tree["status"] | {"resourceClaimStatuses": stated}},
    )
    assert dra.give(found, made, (0, 1)) == Done(), "the old tree of the pod does not matter"
    assert dra.devices_of(found, "p-gpu-x7") == ["gpu-0", "gpu-1"]


def test_a_pod_without_claims_takes_whole_nodes_or_nothing() -> None:
    found = dra.cluster()
    pod = found.add_pod("p", gpus=4, gates=[GATE])
    node = {"status": {"capacity": {"nvidia.com/gpu": "8"}}}
    backend = backend_of("dra")
    with pytest.raises(CannotEncode, match="without a ResourceClaim"):
        backend.annotations(dra.ordered(pod, (0, 1, 2, 3)), node, pod)
    whole = tuple(range(8))
    assert backend.annotations(dra.ordered(pod, whole), node, pod) == {}
    assert backend.annotations(dra.ordered(pod, None, count=4), node, pod) == {}
    assert dra.give(found, pod, whole) == Done()


def test_releasing_gives_the_devices_back_and_takes_the_mark_off() -> None:
    found, pod = pair()
    backend = backend_of("dra")
    dra.give(found, pod, (0, 1), backend=backend)
    assert dra.release(found, pod, backend) == Done()
    assert dra.status_of(found, "c").get("allocation") is None
    assert MARK not in dra.metadata_of(found, "c").get("annotations", {})
    before = len(found.writes)
    assert dra.release(found, pod, backend) == Done()
    assert len(found.writes) == before
    assert dra.give(found, pod, (4, 5), backend=backend) == Done()


def test_devices_that_are_in_use_are_not_taken_back() -> None:
    found, pod = pair()
    dra.give(found, pod, (0, 1))
    other = {"resource": "pods", "name": "q", "uid": found.add_pod("q")["metadata"]["uid"]}
    both = {**dra.status_of(found, "c"), "reservedFor": [other]}
    found.change("ResourceClaim", "c", lambda tree: {**tree, "status": both})
    assert (dra.release(found, pod), len(dra.devices_of(found, "c"))) == (Done(), 2)
    found.change("Pod", "p", lambda tree: tree | {"spec": tree["spec"] | {"nodeName": "n1"}})
    assert isinstance(dra.release(found, pod), Conflict)
