"""MIG instances that NVIDIA's DRA driver publishes, and the claims that ask for them."""

from __future__ import annotations

import json
from typing import Any

from building import instance_document
from bundles import load_all
from kube import node, pod
from kube_nodes import device, slice_of
from kube_nodes import one as one_node
from kube_pods import asking, thing
from kube_pods import read as read_pods

from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve

Json = dict[str, Any]

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"
API, DRIVER, CLASS = "resource.k8s.io/v1", "gpu.nvidia.com", "mig.nvidia.com"
PRODUCT = "NVIDIA H100 80GB HBM3"
FRACTION = "a fraction of a GPU"
GEOMETRY = {2: ["3g.40gb", "1g.10gb", "1g.10gb"], 5: ["1g.10gb"] * 7}
"""Profiles of the partitioned GPUs of n1."""


def bus(gpu: int) -> str:
    return f"0000:{gpu + 1:02x}:00.0"


def instance(gpu: int, place: int, profile: str, **more: Any) -> Json:  # noqa: ANN401  # fields of the API
    """As the driver publishes it: with the address of its GPU, and without an index."""
    found = device(
        f"gpu-{gpu}-mig-{place}",
        "mig",
        profile=profile,
        parentUUID=f"GPU-{gpu}",
        uuid=f"MIG-{gpu}-{place}",
        productName=PRODUCT,
        pciBusID=bus(gpu),
    )
    return found | {"capacity": {f"memorySlice{place}": {"value": "1"}}} | more


def whole(gpu: int) -> Json:
    return device(f"gpu-{gpu}", uuid=f"GPU-{gpu}", productName=PRODUCT, pciBusID=bus(gpu))


def instances() -> list[Json]:
    return [
        instance(gpu, place, profile)
        for gpu, profiles in GEOMETRY.items()
        for place, profile in enumerate(profiles)
    ]


def server(*more: Json, name: str = "n1", **labels: str) -> list[Json]:
    """Eight H100 of which two are partitioned, and their devices."""
    wholes = [whole(gpu) for gpu in range(8) if gpu not in GEOMETRY]
    return [node(name, gpus=0, **labels), slice_of(name, [*wholes, *(more or instances())])]


def asks(profile: str = "1g.10gb", quote: str = "'", **more: Any) -> Json:  # noqa: ANN401  # likewise
    expression = f"device.attributes['{DRIVER}'].profile == {quote}{profile}{quote}"
    selectors = [{"cel": {"expression": expression}}]
    return {"name": "r", "exactly": {"deviceClassName": CLASS, "selectors": selectors, **more}}


def claim(name: str, *requests: Json, held: str | None = None, user: str = "p") -> Json:
    spec = {"devices": {"requests": list(requests) or [asks()]}}
    found = thing("ResourceClaim", name, API, "default", spec=spec)
    if held is not None:
        result = {"request": "r", "driver": DRIVER, "pool": "n1", "device": held}
        uid = f"uid-default-{user}"
        found["status"] = {
            "allocation": {"devices": {"results": [result]}},
            "reservedFor": [{"resource": "pods", "name": user, "uid": uid}],
        }
    return found


def user(name: str, *claims: str, **spec: Any) -> Json:  # noqa: ANN401  # any field
    entries = [{"name": f"c{i}", "resourceClaimName": one} for i, one in enumerate(claims)]
    gated = "on" not in spec
    return pod(name, gated=gated, resourceClaims=entries, **spec)


def loaded(*trees: Json) -> LoadedInput:
    return load_all(trees)


# ---- nodes


def test_tainted_instances_and_those_of_sick_gpus_are_not_offered() -> None:
    taints = [{"key": "ecc", "effect": "NoSchedule"}]
    found, _ = one_node(*server(instance(2, 0, "1g.10gb", taints=taints), *instances()[3:]))
    assert (found.gpus, found.installed, found.allocatable[SMALL]) == (6, 8, 7)


def test_instances_of_a_device_plugin_count_and_no_others() -> None:
    plugin = node("n2", gpus=4)
    plugin["status"]["allocatable"][SMALL] = "7"
    trees = [*server(), plugin, user("p", "c"), claim("c"), pod("q", gated=True)]
    trees[-1]["spec"]["containers"] = [asking({SMALL: "1"})]
    pods, _ = read_pods(*trees)
    assert pods["p"].unsupported == (FRACTION,)
    assert pods["q"].unsupported == ()
    offered = {n["name"]: n["allocatable"] for n in cluster_of(*trees)}
    assert (offered["n1"][SMALL], offered["n2"][SMALL]) == ("0", "7")


def cluster_of(*trees: Json) -> list[Json]:
    found: list[Json] = instance_document(loaded(*trees).instance)["cluster"]["spec"]["nodes"]
    return found


# ---- claims


def test_constraints_shared_claims_and_requests_by_resource_are_not_planned() -> None:
    constrained = claim("c")
    constrained["spec"]["devices"]["constraints"] = [{"matchAttribute": "x/y"}]
    named = pod("q", gated=True, containers=[asking({SMALL: "1"})])
    shared = [user("r", "s"), user("t", "s"), claim("s")]
    pods, _ = read_pods(*server(), user("p", "c"), constrained, named, *shared)
    why = {name: found.unsupported for name, found in pods.items()}
    several = ("a resource claim for a part of a GPU that several pods share",)
    assert why == {
        "p": ("constraints between the devices of a claim",),
        "q": (f"{SMALL}, which its nodes give only to claims",),
        "r": several,
        "t": several,
    }


# ---- plans


def test_whole_gpus_and_instances_are_planned_together() -> None:
    template = thing(
        "ResourceClaimTemplate", "t", API, "default", spec={"spec": claim("c")["spec"]}
    )
    entries = [{"name": "c", "resourceClaimTemplateName": "t"}]
    small = [pod(f"s{i}", gated=True, resourceClaims=entries) for i in range(9)]
    request = {"name": "r", "exactly": {"deviceClassName": DRIVER, "count": 6}}
    large = [user("big", "b"), claim("b", request)]
    running = [user("held", "h", on="n1"), claim("h", held="gpu-5-mig-3", user="held")]
    found = loaded(*server(), template, *small, *large, *running).instance
    made = compose(
        found, solve(found), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    plan = json.loads(json.dumps(made))
    assert check(plan) == []
    given = {one["pods"][0]["name"]: one for one in plan["spec"]["gangs"] if one["pods"]}
    assert given["big"]["pods"][0]["gpus"] == [0, 1, 3, 4, 6, 7]
    assert len([name for name in given if name.startswith("s")]) == 8
