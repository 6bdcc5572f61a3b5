"""GPUs requested and held through DRA: claims, templates, allocations, device classes, fabric."""

from __future__ import annotations

from typing import Any

import pytest
from kube import node, pod
from kube_pods import one, read, thing

RESOURCE = "resource.k8s.io/v1"


def _slice(on: str, count: int = 8, driver: str = "gpu.nvidia.com") -> dict[str, Any]:
    """A ResourceSlice of whole GPUs named gpu-0, gpu-1, ..."""
    devices = [
        {
            "name": f"gpu-{place}",
            "attributes": {
                "index": {"int": place},
                "uuid": {"string": f"GPU-{on}-{place}"},
                "type": {"string": "gpu"},
            },
        }
        for place in range(count)
    ]
    pool = {"name": on, "generation": 1, "resourceSliceCount": 1}
    spec = {"driver": driver, "nodeName": on, "pool": pool, "devices": devices}
    return thing("ResourceSlice", f"{on}-gpus", RESOURCE, spec=spec)


def _request(count: object = 1, name: str = "gpu.nvidia.com", **more: object) -> dict[str, Any]:
    exactly = {"deviceClassName": name, "allocationMode": "ExactCount", "count": count, **more}
    return {"name": "r", "exactly": exactly}


def _claim(
    name: str,
    *requests: dict[str, Any],
    held: tuple[str, ...] = (),
    on: str = "n1",
    users: tuple[str, ...] = ("a",),
    driver: str = "gpu.nvidia.com",
) -> dict[str, Any]:
    """A ResourceClaim, allocated if ``held`` names devices."""
    claim = thing(
        "ResourceClaim", name, RESOURCE, "default", spec={"devices": {"requests": list(requests)}}
    )
    if held:
        results = [{"request": "r", "driver": driver, "pool": on, "device": one_} for one_ in held]
        terms = [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": [on]}]}]
        claim["status"] = {
            "allocation": {
                "devices": {"results": results},
                "nodeSelector": {"nodeSelectorTerms": terms},
            },
            "reservedFor": [{"resource": "pods", "name": user} for user in users],
        }
    return claim


def _user(name: str, *claims: str, **spec: Any) -> dict[str, Any]:  # noqa: ANN401  # any field
    """A pod that uses these claims by name."""
    entries = [{"name": f"c{place}", "resourceClaimName": one} for place, one in enumerate(claims)]
    return pod(name, resourceClaims=entries, **spec)


def _bare(name: str) -> dict[str, Any]:
    return node(name, gpus=0)


# what is asked


def test_a_waiting_pod_asks_for_the_gpus_of_its_claims() -> None:
    found = one(
        _user("a", "x", "y", gated=True),
        _claim("x", _request(2), _request(1)),
        _claim("y", _request(4)),
    )
    assert (found.gpus, found.gpu_resource, found.indices) == (7, "gpu.nvidia.com", None)
    assert found.unsupported == ()


def test_a_claim_made_from_a_template_is_found_by_status_or_by_owner() -> None:
    user = pod("a", gated=True, resourceClaims=[{"name": "c", "resourceClaimTemplateName": "t"}])
    made = _claim("a-c-7xk2", _request(5))
    stated = user | {
        "status": {"resourceClaimStatuses": [{"name": "c", "resourceClaimName": "a-c-7xk2"}]}
    }
    assert one(stated, made).gpus == 5
    made["metadata"]["annotations"] = {"resource.kubernetes.io/pod-claim-name": "c"}
    owner = {"kind": "Pod", "name": "a", "uid": "uid-default-a", "controller": True}
    made["metadata"]["ownerReferences"] = [owner]
    assert one(user, made).gpus == 5


@pytest.mark.parametrize(
    ("request_", "gpus", "unsupported"),
    [
        (_request(name="mig.nvidia.com"), 0, ("a fraction of a GPU",)),
        (_request(name="gpu.nvidia.com", adminAccess=True), 0, ()),
        (_request(name="dranet"), 0, ("devices of class dranet",)),
        (_request(name="compute-domain-daemon.nvidia.com"), 0, None),
        (_request(capacity={"requests": {"memory": "10Gi"}}), 0, ("a fraction of a GPU",)),
        (_request(count="two"), 1, ("a number of devices that cannot be read",)),
        (_request(count=10**30), 1, ("a number of devices that cannot be read",)),
        (_request(count=None), 1, ()),
        (
            _request(
                selectors=[
                    {"cel": {"expression": "device.attributes['gpu.nvidia.com'].type == 'mig'"}}
                ]
            ),
            0,
            ("a fraction of a GPU",),
        ),
        (
            _request(
                selectors=[
                    {"cel": {"expression": 'device.attributes["gpu.nvidia.com"].type=="gpu"'}}
                ]
            ),
            1,
            (),
        ),
        (
            _request(
                selectors=[{"cel": {"expression": "device.attributes['x'].productName == 'H100'"}}]
            ),
            1,
            ("selectors on the devices of a claim",),
        ),
        (
            _request(  # the type stands at both ends, and something else between
                selectors=[
                    {
                        "cel": {
                            "expression": "device.attributes['gpu.nvidia.com'].productName == 'H100'"
                            " && device.attributes['gpu.nvidia.com'].type == 'gpu'"
                        }
                    }
                ]
            ),
            1,
            ("selectors on the devices of a claim",),
        ),
    ],
)
def test_requests_are_whole_gpus_or_something_else(
    request_: dict[str, Any], gpus: int, unsupported: tuple[str, ...] | None
) -> None:
    found = one(_user("a", "x", gated=True), _claim("x", request_))
    assert found.gpus == gpus
    if unsupported is None:
        assert found.unsupported == ("devices of class compute-domain-daemon.nvidia.com",)
        assert not found.fabric
    else:
        assert found.unsupported == unsupported


def test_choices_that_differ_and_conditions_between_devices_are_not_modelled() -> None:
    def choice(*counts: int) -> dict[str, Any]:
        return {"name": "r", "firstAvailable": [_request(count)["exactly"] for count in counts]}

    found = one(_user("a", "x", gated=True), _claim("x", choice(2, 2)))
    assert (found.gpus, found.unsupported) == (2, ())
    found = one(_user("a", "x", gated=True), _claim("x", choice(4, 2)))
    assert (found.gpus, found.unsupported) == (4, ("a choice between devices (firstAvailable)",))
    claim = _claim("x", _request(2))
    claim["spec"]["devices"]["constraints"] = [
        {"matchAttribute": "resource.kubernetes.io/pcieRoot"}
    ]
    found = one(_user("a", "x", gated=True), claim)
    assert found.unsupported == ("constraints between the devices of a claim",)


def test_all_gpus_of_a_node_are_not_planned_and_hold_a_whole_node_once_bound() -> None:
    every = _request(None, allocationMode="All")
    found = one(_bare("n1"), _slice("n1"), _user("a", "x", gated=True), _claim("x", every))
    assert found.gpus == 8
    assert found.unsupported == ("all GPUs of a node (allocationMode All)",)
    found = one(_bare("n1"), _slice("n1"), _user("a", "x", on="n1"), _claim("x", every))
    assert (found.gpus, found.indices) == (8, None)


def test_device_classes_are_understood_by_their_selectors_not_by_their_names() -> None:
    def class_(name: str, expression: str, **spec: object) -> dict[str, Any]:
        selectors = [{"cel": {"expression": expression}}]
        return thing("DeviceClass", name, RESOURCE, spec={"selectors": selectors, **spec})

    whole = class_("fast", "device.driver == 'gpu.nvidia.com' && device.attributes['x'].y > 3")
    part = class_(
        "gpu.small", "device.driver == 'gpu.nvidia.com' && device.attributes['x'].type == 'mig'"
    )
    nic = class_("gpu.not", "device.driver == 'nic.example.com'")
    claims = [_claim("x", _request(2, "fast"))]
    found = one(whole, _user("a", "x", gated=True), *claims)
    assert (found.gpus, found.gpu_resource) == (2, "gpu.nvidia.com")
    found = one(part, _user("a", "x", gated=True), _claim("x", _request(1, "gpu.small")))
    assert (found.gpus, found.unsupported) == (0, ("a fraction of a GPU",))
    found = one(nic, _user("a", "x", gated=True), _claim("x", _request(1, "gpu.not")))
    assert (found.gpus, found.unsupported) == (0, ("devices of class gpu.not",))


# what is held


def test_an_allocation_says_which_gpus_a_pod_holds() -> None:
    claim = _claim("x", _request(2), held=("gpu-5", "gpu-2"))
    found = one(_bare("n1"), _slice("n1"), _user("a", "x", on="n1"), claim)
    assert (found.gpus, found.indices, found.unsupported) == (2, (2, 5), ())


def test_dra_beats_annotations() -> None:
    claim = _claim("x", _request(2), held=("gpu-0", "gpu-1"))
    own = {"gangplan.dev/gpus": "6,7"}
    lying = pod("b", gpus=2, on="n1", annotations={"gangplan.dev/gpus": "1,2"})
    named = {"extendedResourceName": "nvidia.com/gpu"}
    class_ = thing("DeviceClass", "gpu.nvidia.com", RESOURCE, spec=named)
    user = _user("a", "x", on="n1", annotations=own)
    pods, lines = read(_bare("n1"), _slice("n1"), user, claim, class_, lying)
    assert (pods["a"].indices, pods["b"].indices) == ((0, 1), None)
    assert pods["b"].gpus == 2
    what = "holds a GPU that another pod on its node holds too; which ones it has is unknown"
    assert lines == [f"Pod default/b: {what}"]


def test_pods_that_share_one_claim_hold_its_gpus_once() -> None:
    claim = _claim("x", _request(2), held=("gpu-3", "gpu-4"), users=("a", "b"))
    pods, lines = read(
        _bare("n1"), _slice("n1"), _user("a", "x", on="n1"), _user("b", "x", on="n1"), claim
    )
    held = {name: (found.gpus, found.indices) for name, found in pods.items()}
    assert held == {"a": (2, (3, 4)), "b": (0, ())}
    assert lines == []


def test_a_claim_that_is_not_there_is_said_and_holds_one_gpu() -> None:
    pods, lines = read(
        _bare("n1"), _slice("n1"), _user("a", "x", on="n1"), _user("b", "x", gated=True)
    )
    assert (pods["a"].gpus, pods["a"].indices) == (1, None)
    assert pods["b"].unsupported == ("a resource claim that is not in the input",)
    assert len(lines) == 1
    assert lines[0].startswith("Pod default/a: uses a resource claim that is not in the input;")


@pytest.mark.parametrize("users", [("a",), ("a", "b")])
def test_a_waiting_pod_that_shares_a_running_pods_claim_is_not_planned(
    users: tuple[str, ...],
) -> None:
    claim = _claim("x", _request(2), held=("gpu-5", "gpu-2"), users=users)
    pods, lines = read(
        _bare("n1"), _slice("n1"), _user("a", "x", on="n1"), _user("b", "x", gated=True), claim
    )
    assert (pods["a"].gpus, pods["a"].indices) == (2, (2, 5))
    assert pods["b"].to_place
    assert pods["b"].unsupported == ("a resource claim that is allocated already",)
    assert lines == []


# the fabric between nodes


def test_a_template_made_by_a_compute_domain_is_known_without_the_template() -> None:
    domain = thing(
        "ComputeDomain",
        "d",
        "resource.nvidia.com/v1beta1",
        "default",
        spec={"channel": {"resourceClaimTemplate": {"name": "d-channel"}}},
    )
    user = pod(
        "a",
        gpus=4,
        gated=True,
        resourceClaims=[{"name": "c", "resourceClaimTemplateName": "d-channel"}],
    )
    found = one(domain, user)
    assert (found.fabric, found.unsupported) == (True, ())


@pytest.mark.parametrize("odd", [None, 7, "x", [], [None], [{}], {"a": 1}, [[1]], [{"name": 3}]])
def test_odd_claims_are_read_without_an_error(odd: object) -> None:
    keys = ("requests", "results", "reservedFor", "resourceClaims", "resourceClaimStatuses")
    for key in keys:
        user = _user("a", "x", on="n1")
        broken: dict[str, Any] = _claim("x", _request(2), held=("gpu-5", "gpu-2"))
        if key == "requests":
            broken["spec"]["devices"][key] = odd
        elif key == "results":
            broken["status"]["allocation"]["devices"][key] = odd
        elif key == "reservedFor":
            broken["status"][key] = odd
        elif key == "resourceClaims":
            user["spec"][key] = odd
        else:
            user["status"][key] = odd
        other = _user("other", "y", on="n1")
        fine = _claim("y", _request(2), held=("gpu-0", "gpu-1"), users=("other",))
        pods, _ = read(_bare("n1"), _slice("n1"), user, broken, other, fine)
        assert pods["other"].indices == (0, 1)
