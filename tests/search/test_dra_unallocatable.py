"""What the back end ``dra`` would refuse waits in the plan, with the reason, and takes no room."""

from __future__ import annotations

from json import dumps
from pathlib import Path
from typing import Any

import pytest
from backend_world import API, DRIVER, add_pod, claim, cluster, give, request, slice_of
from kube import node, pod
from kube_pods import read
from outcomes import planned

from models.apply.requests import Done, Rejected
from planner.read.inputs import load
from planner.read.kube.devices.wants import SHARED

Tree = dict[str, Any]

CLASS = {
    "apiVersion": API,
    "kind": "DeviceClass",
    "metadata": {"name": DRIVER},
    "spec": {"selectors": [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]},
}
CHANNEL = {"name": "c", "exactly": {"deviceClassName": "compute-domain-default-channel.nvidia.com"}}
NIC = {"name": "nic", "exactly": {"deviceClassName": "nic.example.org", "count": 1}}


def user(name: str, *claims: str, **spec: Any) -> Tree:  # noqa: ANN401  # any field
    """A waiting pod that uses these claims by name."""
    entries = [{"name": f"c{place}", "resourceClaimName": one} for place, one in enumerate(claims)]
    return pod(name, gated="schedulerName" not in spec, resourceClaims=entries, **spec)


def held(*trees: Tree, backend: str = "dra") -> dict[str, tuple[str, ...]]:
    """What of each pod cannot be planned."""
    bare = [node("n1", gpus=0), slice_of("n1"), CLASS]
    pods, _ = read(*bare, *trees, gpu_backend=backend)
    return {name: found.unsupported for name, found in pods.items()}


@pytest.mark.parametrize(
    "devices",
    [
        claim("c"),
        claim("c", request(2, selectors=[{"cel": {"expression": "device.x == 1"}}])),
        claim("c", request(2), NIC),
        claim("c", request(2), CHANNEL),
        claim("c", request(2, allocationMode="All")),
        claim("c", request(1), {"name": "see", "exactly": request(1, adminAccess=True)["exactly"]}),
        claim("c", {"name": "g", "firstAvailable": [{"name": "a", "deviceClassName": DRIVER}]}),
        claim("c", constraints=[{"matchAttribute": "example.com/root"}]),
        claim("c", request(2, capacity={"requests": {}})),
    ],
    ids=str,
)
def test_a_claim_is_planned_if_and_only_if_it_can_be_allocated(devices: Tree) -> None:
    found = cluster()
    found.put(devices)
    answer = give(found, add_pod(found, "p", "c"), (2, 3))
    reasons = held(user("p", "c"), devices)["p"]
    assert (answer == Done()) == (reasons == ()), reasons
    assert isinstance(answer, Done | Rejected)


def test_pods_that_share_a_claim_for_gpus_wait_where_nobody_could_allocate_it() -> None:
    pods = [user("p", "c"), user("q", "c")]
    assert held(*pods, claim("c")) == {"p": (SHARED,), "q": (SHARED,)}
    # kube-scheduler allocates it
    assert held(*pods, claim("c"), backend="annotation") == {"p": (), "q": ()}
    # a pod that has finished uses it no more; another namespace has claims of its own
    done = user("q", "c")
    done["status"]["phase"] = "Succeeded"
    other = user("r", "c", namespace="other")
    assert held(user("p", "c"), done, other, claim("c"))["p"] == ()


def test_a_claim_that_a_group_will_make_is_shared_before_it_exists() -> None:
    entry = {"name": "g", "resourceClaimTemplateName": "t"}
    group = {
        "apiVersion": "scheduling.k8s.io/v1alpha2",
        "kind": "PodGroup",
        "metadata": {"name": "pg", "namespace": "default"},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 1}}, "resourceClaims": [entry]},
    }
    template = {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": "t", "namespace": "default"},
        "spec": {"spec": claim("c")["spec"]},
    }
    member = {"schedulingGroup": {"podGroupName": "pg"}}
    pods = [
        pod("p", gated=True, resourceClaims=[entry], **member),
        pod("q", gated=True, resourceClaims=[{**entry, "name": "own"}], **member),
    ]
    assert held(*pods, group, template) == {"p": (SHARED,), "q": ()}


def test_a_gang_with_a_shared_claim_waits_and_takes_no_room(tmp_path: Path) -> None:
    """Ten GPUs of eight are asked for; the younger pod gets its two."""
    group = {"scheduling.x-k8s.io/pod-group": "g"}
    shared = [user(name, "c", annotations=dict(group)) for name in ("p", "q")]
    late = user("late", "d")
    late["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z"
    policy = {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"kubernetes": {"gpuBackend": "dra"}},
    }
    claims = [claim("c", request(4)), claim("d", request(2))]
    trees = [node("n1", gpus=0), slice_of("n1"), CLASS, *shared, late, *claims]
    for number, tree in enumerate([policy, *trees]):
        (tmp_path / f"{number}.json").write_text(dumps(tree), encoding="utf-8")
    instance = load([str(tmp_path)]).instance
    outcome = planned(instance)
    assert outcome.decisions() == {"g": "wait", "late": "place"}
    (hold,) = [gang.hold for gang in instance.gangs if gang.name == "g"]
    assert hold is not None
    assert (hold.code, hold.message) == ("Unsupported", SHARED)
