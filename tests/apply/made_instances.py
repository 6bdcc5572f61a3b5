"""A fake cluster whose GPUs claims partition (NVIDIA's DRA driver, dynamic MIG), and pods with claims."""

from __future__ import annotations

from typing import Any

from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE
from backend_world import FINALIZER, devices_of
from cluster_contents import GATE
from dynamic_mig import API, DRIVER, asks, claim, devices, gpu_class, made, mig_class, slices

Tree = dict[str, Any]

GPUS = 2
"""Of the server."""


def partitionable(listed: list[Tree] | None = None) -> FakeCluster:
    """A server of two GPUs that nobody has. ``listed``: its devices, if others than usual."""
    found = FakeCluster()
    found.add_node("n1", gpus=0, taints=[OWN])
    for one in [*slices("n1", GPUS, listed), mig_class(), gpu_class()]:
        found.create(one)
    found.add_namespace("gangplan-system")
    return found


def add(found: FakeCluster, name: str, *requests: Tree, on: str | None = None, **more: Any) -> Tree:  # noqa: ANN401
    """A pod with a claim of its own."""
    found.create(claim(f"claim-{name}", *requests))
    named = [{"name": "gpu", "resourceClaimName": f"claim-{name}"}]
    more |= {"gates": [] if on else [GATE], "node": on, "tolerations": TOLERATE}
    return found.add_pod(name, gpus=0, resourceClaims=named, **more)


def hold(found: FakeCluster, name: str, *held: str) -> None:
    """The claim of a pod holds these devices of n1, allocated by a scheduler."""
    kind = found.kinds.named("ResourceClaim")
    tree = found.objects.get(kind, "default", f"claim-{name}")
    results = [{"request": "r", "driver": DRIVER, "pool": "n1", "device": one} for one in held]
    uid = found.pod(name)["metadata"]["uid"]
    tree["metadata"]["finalizers"] = [FINALIZER]
    tree["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    found.put(tree)


def slices_of(device: str) -> tuple[str, frozenset[str]]:
    """The set of counters of a device, and its memory slices."""
    (one,) = (one for one in devices(GPUS) if one["name"] == device)
    (consumed,) = one["consumesCounters"]
    names = (name for name in consumed["counters"] if name.startswith("memory-slice"))
    return consumed["counterSet"], frozenset(names)


def held(found: FakeCluster) -> dict[str, str]:
    """The device of each claim that is allocated, none of which lies over another."""
    _, listed, _ = found.handle("GET", f"/apis/{API}/resourceclaims")
    names = [one["metadata"]["name"] for one in listed["items"]]
    result = {name: one for name in names for one in devices_of(found, name)}
    taken = [(own, one) for name in result.values() for own, of in [slices_of(name)] for one in of]
    assert len(taken) == len(set(taken)), result
    return {name.removeprefix("claim-"): device for name, device in result.items()}


PARTS = {**{f"a{i}": "1g.10gb" for i in range(5)}, "z0": "4g.40gb", "z1": "4g.40gb"}
"""Profiles that pods ask for, small ones first: no way but one gives all of them room beside ``old``."""


def of_made() -> FakeCluster:
    """A server of two GPUs, of which a pod has an instance; pods that ask for all that is left."""
    found = partitionable()
    add(found, "old", asks("1g.10gb"), on="n1")
    hold(found, "old", made(0, "1g.10gb", 4, GPUS))
    for name, profile in PARTS.items():
        add(found, name, asks(profile))
    return found
