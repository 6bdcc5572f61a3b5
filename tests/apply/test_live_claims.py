"""Gangs whose GPUs come through ResourceClaims, with the back end ``dra``: what it cannot allocate waits."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import pytest
from backend_world import API, DRIVER, claim, slice_of
from live_cluster import Live
from live_objects import Wanted, listed, pods
from live_runs import policy_of, ran, run_words

from planner.read.kube.devices.wants import SHARED

pytest_plugins = ("live_fixtures",)

Tree = dict[str, Any]


@pytest.fixture
def devices(live: Live) -> Iterator[Live]:
    """The GPUs of the first of our nodes are devices that claims give out, and no resource of its own."""
    published = slice_of(live.nodes[0])
    published["spec"]["pool"]["name"] = live.nodes[0]
    about = {"name": DRIVER}
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    made = {"apiVersion": API, "kind": "DeviceClass", "metadata": about}
    made["spec"] = {"selectors": selectors}
    trees = named_for(live, [published, made])
    live.kubectl("create", "--validate=false", "-f", "-", given=trees)
    set_gpus(live, None)
    try:
        yield live
    finally:
        set_gpus(live, "8")
        live.delete_pods()
        live.kubectl("delete", "resourceclaims", "--all", "-n", live.namespace)
        live.kubectl("delete", "-f", "-", given=trees)


def named_for(live: Live, trees: list[Tree]) -> Tree:
    """As one List, with a driver that no other run has."""
    own = json.dumps(listed(trees)).replace(DRIVER, f"gpu.{live.run}.example.com")
    found: Tree = json.loads(own)
    return found


def set_gpus(live: Live, count: str | None) -> None:
    """GPUs of the first node that are a resource."""
    amounts = {name: {"nvidia.com/gpu": count} for name in ("capacity", "allocatable")}
    live.send("PATCH", f"/api/v1/nodes/{live.nodes[0]}/status", {"status": amounts})


def create(live: Live, gang: Wanted, *claims: str) -> None:
    """The pods of the gang with these claims for two GPUs each; the last is that of all other pods."""
    made = pods(gang, live.namespace, live.run)
    for index, tree in enumerate(made):
        for container in tree["spec"]["containers"]:
            container["resources"] = {"claims": [{"name": "gpus"}]}
        name = claims[min(index, len(claims) - 1)]
        tree["spec"]["resourceClaims"] = [{"name": "gpus", "resourceClaimName": name}]
    for name in claims:
        one = claim(name)
        one["metadata"]["namespace"] = live.namespace
        made.insert(0, one)
    live.kubectl("create", "--validate=false", "-f", "-", given=named_for(live, made))


def test_a_gang_with_a_shared_claim_waits_and_the_others_start(devices: Live) -> None:
    live = devices
    create(live, Wanted("shared", 2, 0), "both")
    create(live, Wanted("own", 2, 0), "own-0", "own-1")
    plan = live.folder / "claims.json"
    words = run_words(live, "--out", str(plan))
    policy_of(live, gpuBackend="dra")
    done = ran(live, *words)
    assert done.code == 0, done.err
    live.wait_until(
        lambda: (
            {n for n, p in live.pods().items() if "nodeName" in p["spec"]} == {"own-0", "own-1"}
        ),
        "the gang with claims of its own",
    )
    gangs = json.loads(plan.read_text(encoding="utf-8"))["spec"]["gangs"]
    (reason,) = [gang["reason"] for gang in gangs if gang["name"] == "shared"]
    assert reason == {"code": "Unsupported", "message": SHARED, "fields": {"text": SHARED}}
