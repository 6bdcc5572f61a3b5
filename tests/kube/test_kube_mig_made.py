"""GPUs that claims partition (NVIDIA's DRA driver, dynamic MIG): what is read of nodes, claims and pods."""

from __future__ import annotations

import json
from typing import Any

import pytest
from building import instance_document
from dynamic_mig import (
    Json,
    asks,
    asks_whole,
    claim,
    devices,
    holding,
    loaded,
    made,
    server,
    user,
)
from kube import objects

from models.documents.policy import GPU_RESOURCES
from models.instance.policy import KubernetesPolicy
from models.results.plan import compose
from models.verify.check import check
from planner.read.findings import Remarks
from planner.read.kube.nodes.nodes import read_nodes
from planner.search.solve import solve

SMALL, LARGE = "nvidia.com/mig-1g.10gb", "nvidia.com/mig-3g.40gb"


def node_of(*trees: Json) -> tuple[Any, str]:
    remarks = Remarks()
    policy = KubernetesPolicy(gpu_resources=GPU_RESOURCES, gpu_backend="dra")
    (found,) = read_nodes(objects(*trees), policy, remarks)
    return found, "\n".join(remarks.lines())


def documents(*trees: Json, backend: str = "dra") -> tuple[Json, dict[str, Json]]:
    """The only node, and the pods that run there."""
    found = instance_document(loaded(*trees, backend=backend).instance)
    (own,) = found["cluster"]["spec"]["nodes"]
    pods = {p["name"]: p for gang in found["gangs"] for p in gang["status"]["pods"]}
    return own, pods


def solved(*trees: Json) -> Json:
    """A plan, which the judge accepts."""
    found = loaded(*trees).instance
    outcome = solve(found)
    made_ = compose(found, outcome, name="p", created_at="2026-11-21T00:00:00Z", generator="test")
    plan: Json = json.loads(json.dumps(made_))
    assert check(plan) == []
    return plan


# ---- nodes


def test_gpus_of_which_claims_make_instances_may_be_partitioned_by_plans() -> None:
    own, _ = documents(*server(), user("p", "c"), claim("c"))
    assert (own["model"], own["dynamicMig"]) == ("DGX H100", "H100-80")
    assert "mig" not in own
    assert (own["unhealthyGpus"], own["unknownUnhealthy"], own["allocatable"][SMALL]) == (
        [],
        0,
        "0",
    )


def in_mig_mode(*gpus: int) -> list[Json]:
    """Devices of an A100, whose mode a driver does not change: of a GPU in MIG mode there is no whole one."""
    return [
        one
        for one in devices()
        if one["attributes"]["type"]["string"] == "mig"
        or int(one["attributes"]["uuid"]["string"].removeprefix("GPU-")) not in gpus
    ]


def test_gpus_in_mig_mode_of_which_there_is_no_whole_device_give_instances_and_no_gpu() -> None:
    # 8 GPUs, of which 0 to 5 can be given whole; 14 instances of a seventh take the other two first
    own, _ = documents(*server(listed=in_mig_mode(6, 7)), user("p", "c"), claim("c"))
    assert (own["model"], own["dynamicMig"]) == ("DGX H100", "H100-80")
    assert own["mig"] == [{"gpus": [6], "profiles": []}, {"gpus": [7], "profiles": []}]
    assert own["unknownUnhealthy"] == own.get("unknownPartitioned", 0) == 0
    users = [one for i in range(14) for one in (user(f"p{i}", f"c{i}"), claim(f"c{i}"))]
    whole = [user("large", "whole"), claim("whole", asks_whole(6))]
    plan = solved(*server(listed=in_mig_mode(6, 7)), *users, *whole)
    assert {gang["decision"] for gang in plan["spec"]["gangs"]} == {"place"}
    assert {one["gpu"] for one in plan["spec"]["partitions"]} == {6, 7}


def without_a_start() -> list[Json]:
    return [one for one in devices() if one["name"] != made(3, "2g.20gb", 4)]


def with_an_odd_size() -> list[Json]:
    listed = devices()
    one = next(one for one in listed if one["name"] == made(3, "3g.40gb", 4))
    del one["consumesCounters"][0]["counters"]["memory-slice-7"]
    return listed


def of_other_counters() -> list[Json]:
    listed = devices()
    one = next(one for one in listed if one["name"] == made(3, "3g.40gb", 4))
    one["consumesCounters"][0]["counterSet"] = "set-4"
    return listed


def of_another_gpu() -> list[Json]:
    listed = devices()
    for one in listed:
        one["attributes"]["productName"] = {"string": "NVIDIA B300 SXM6 AC"}
    return listed


@pytest.mark.parametrize(
    "listed",
    [
        without_a_start(),
        with_an_odd_size(),
        of_other_counters(),
        of_another_gpu(),
        devices(without="2g.20gb"),
    ],
    ids=["a start is missing", "a size", "other counters", "another GPU", "a profile is missing"],
)
def test_places_other_than_those_of_the_board_are_not_planned(listed: list[Json]) -> None:
    found, said = node_of(*server(listed=listed))
    assert (found.board, found.possible, found.gpus) == (None, (), 8)
    assert (
        "the MIG instances that claims can make of its GPUs are not those of a known board" in said
    )


def test_instances_that_nobody_can_make_of_a_gpu_there_are_none_of_the_node() -> None:
    """By counters of another form."""
    listed = devices()
    for one in listed:
        counters = one["consumesCounters"][0]["counters"]
        if "memory-slice-0" in counters and "parentUUID" in one["attributes"]:
            counters["memory-slice-0"]["value"] = "2"
    found, said = node_of(*server(listed=listed))
    assert (found.instances, found.possible, found.gpus) == ((), (), 8)
    assert "not those of a known board" in said


# ---- pods that run


def test_a_pod_that_runs_has_its_gpu_and_start_from_the_counters() -> None:
    trees = [*server(), *holding("p", 2, "3g.40gb", 4), *holding("q", 2, "1g.10gb", 3)]
    own, pods = documents(*trees)
    assert {name: (one["gpus"], one["start"]) for name, one in pods.items()} == {
        "p": ([2], 4),
        "q": ([2], 3),
    }
    assert own["dynamicMig"] == "H100-80"
    assert "mig" not in own
    assert "gangplan.dev" not in json.dumps(own.get("held", {}))


def of_two_claims() -> list[Json]:
    claims = [
        claim("a", asks("3g.40gb"), held=made(2, "3g.40gb", 4), user="p"),
        claim("b", asks(), held=made(2, "1g.10gb", 3), user="p"),
    ]
    return [user("p", "a", "b", on="n1"), *claims]


def test_beside_instances_of_a_pod_with_several_no_others_come() -> None:
    trees = [*server(), *of_two_claims(), *holding("q", 2, "1g.10gb", 2)]
    own, pods = documents(*trees)
    assert own["mig"] == [{"gpus": [2], "profiles": ["1g.10gb", "1g.10gb", "3g.40gb"]}]
    assert own["dynamicMig"] == "H100-80"
    assert (own["unhealthyGpus"], own["unknownUnhealthy"]) == ([], 0)
    assert "unknownPartitioned" not in own
    assert "start" not in pods["q"]
    decided = decisions(solved(*trees, user("w", "c"), claim("c"), *wide(7)))
    # w needs one of the seven other GPUs
    assert sorted((decided["w"], decided["wide"])) == ["place", "wait"]
    assert decisions(solved(*trees, user("w", "c"), claim("c"), *wide(6)))["wide"] == "place"


def test_an_instance_whose_profile_no_plan_knows_closes_its_node_to_others() -> None:
    listed = devices()
    odd = next(one for one in listed if one["name"] == made(2, "1g.10gb", 6))
    odd["attributes"]["profile"] = {"string": "1g.10gb+gfx"}
    listed.append(
        dict(odd, name="plain", attributes={**odd["attributes"], "profile": {"string": "1g.10gb"}})
    )
    held = claim("h", asks("1g.10gb+gfx"), held=odd["name"], user="p")
    trees = [*server(listed=listed), user("p", "h", on="n1"), held, user("w", "c"), claim("c")]
    own, _ = documents(*trees)
    assert (own["dynamicMig"], own["unknownUnhealthy"]) == ("H100-80", 1)
    assert decisions(solved(*trees))["w"] == "wait"
    assert decisions(solved(*trees, *wide(8)))["wide"] == "wait"


def test_instances_of_a_sick_gpu_hold_it() -> None:
    listed = devices()
    tainted = next(one for one in listed if one["name"] == made(2, "2g.20gb", 0))
    tainted["taints"] = [{"key": "xid", "effect": "NoExecute"}]
    trees = [
        *server(listed=listed),
        *holding("p", 2, "1g.10gb", 3),
        *wide(8),
        user("w", "c"),
        claim("c"),
    ]
    own, _ = documents(*trees)
    assert own["unhealthyGpus"] == [2]
    plan = solved(*trees)
    assert decisions(plan) == {"wide": "wait", "w": "place"}
    assert [one["gpu"] for one in plan["spec"]["partitions"]] == [7]


def wide(count: int) -> list[Json]:
    """A pod that waits for whole GPUs."""
    return [user("wide", "all"), claim("all", asks_whole(count))]


def decisions(plan: Json) -> dict[str, str]:
    return {one["name"]: one["decision"] for one in plan["spec"]["gangs"]}


# ---- plans


def test_instances_come_beside_those_in_use_before_idle_gpus_are_partitioned() -> None:
    running = [*holding("p", 2, "3g.40gb", 4), *holding("q", 5, "4g.40gb", 0)]
    waiting = [user(f"w{i}", f"c{i}") for i in range(7)]
    claims = [claim(f"c{i}") for i in range(7)]
    plan = solved(*server(), *running, *waiting, *claims, *wide(6))
    assert set(decisions(plan).values()) == {"keep", "place"}
    assert plan["spec"]["partitions"] == [
        {"node": "n1", "gpu": 2, "profiles": ["1g.10gb"] * 4},
        {"node": "n1", "gpu": 5, "profiles": ["1g.10gb"] * 3},
    ]
    (given,) = (one["pods"] for one in plan["spec"]["gangs"] if one["name"] == "wide")
    assert given[0]["gpus"] == [0, 1, 3, 4, 6, 7]
