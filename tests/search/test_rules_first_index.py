"""Roles whose indices start above 0: names, holes, slices that begin inside one, the judge."""

from __future__ import annotations

import json
from typing import Any

import pytest
from building import build, gang, node, role
from building_servers import switched
from bundles import read_all
from outcomes import document_of, planned
from plan_documents import entry, restated, wanted

from models.instance.instance import Instance
from models.verify.check import check
from planner.errors import InputError


def indices(instance: Instance, name: str = "a") -> list[int]:
    return [pod.index for pod in planned(instance).of(name).pods]


def test_pods_are_placed_from_the_first_index_on() -> None:
    assert indices(build(gangs=[gang("a", roles=[role(pods=3, first=1)])])) == [1, 2, 3]


def test_holes_are_filled_up_to_the_highest_index_that_stands() -> None:
    # 1, 3 or 5 pods from index 2 on: 2, 2-4 or 2-6. Index 5 stands, so it takes five.
    broken = gang("a", roles=[role(pods=1, most=6, step=2, first=2)], stands=[(0, 5, 0, 1)])
    assert indices(build(gangs=[broken])) == [2, 3, 4, 5, 6]


def slices_of(instance: Instance, size: int) -> list[set[str]]:
    """Nodes of every slice of gang a."""
    outcome = planned(instance)
    found: dict[int, set[str]] = {}
    for pod, where in zip(outcome.of("a").pods, outcome.nodes("a"), strict=True):
        found.setdefault(pod.index // size, set()).add(where)
    return [found[number] for number in sorted(found)]


# (first index, pods, slice size, GPUs a node): the slices just fill the nodes, one each or packed.
EXACT = [
    (1, 3, 4, [3]),  # one short slice
    (1, 7, 4, [3, 4]),  # a short one and a whole one
    (1, 8, 4, [3, 4, 1]),  # 1-3, 4-7, 8: short ones of 3 and 1, which make 4 together
    (1, 8, 4, [4, 4]),  # the two short ones on one node
    (2, 4, 4, [2, 2]),  # 2-3, 4-5: short ones of one size, half a slice each
    (2, 4, 4, [4]),
    (3, 6, 4, [1, 4, 1]),  # 3, 4-7, 8
    (3, 6, 4, [2, 4]),  # 3 and 8 on one node
    (3, 6, 4, [5, 1]),  # 3 and 4-7 on one node
    (1, 5, 3, [2, 3]),  # 1-2, 3-5
    (2, 6, 3, [1, 3, 2]),  # 2, 3-5, 6-7
    (1, 7, 3, [2, 3, 2]),  # 1-2, 3-5, 6-7: together more than one slice
    (1, 7, 3, [7]),
    (1, 7, 3, [4, 3]),
]


@pytest.mark.parametrize("level", ["node", "rack"])
@pytest.mark.parametrize(("first", "pods", "size", "servers"), EXACT)
def test_slices_that_just_fit_are_placed(
    first: int, pods: int, size: int, servers: list[int], level: str
) -> None:
    workers = role(pods=pods, slices=(size, level), first=first)
    nodes = [node(f"n{i}", switched(gpus), rack=f"r{i}") for i, gpus in enumerate(servers)]
    found = slices_of(build(nodes=nodes, gangs=[gang("a", roles=[workers])]), size)
    assert all(len(where) == 1 for where in found)


# The same GPUs in all, but no way to keep every slice together.
TORN = [
    (1, 7, 4, [4, 2, 1]),  # the short one of 3 has no node
    (1, 7, 4, [3, 3, 1]),
    (1, 8, 4, [2, 2, 4]),
    (2, 4, 4, [1, 3]),
    (3, 6, 4, [3, 3]),
    (1, 7, 3, [1, 3, 3]),
]


@pytest.mark.parametrize("level", ["node", "rack"])
@pytest.mark.parametrize(("first", "pods", "size", "servers"), TORN)
def test_slices_that_would_be_torn_wait(
    first: int, pods: int, size: int, servers: list[int], level: str
) -> None:
    workers = role(pods=pods, slices=(size, level), first=first)
    nodes = [node(f"n{i}", switched(gpus), rack=f"r{i}") for i, gpus in enumerate(servers)]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=[workers])]))
    assert outcome.decision("a") == "wait"


def test_the_judge_counts_indices_from_the_first_one() -> None:
    plan = document_of(build(gangs=[gang("a", roles=[role(pods=2, first=1)])]))
    assert wanted(plan, "a")["spec"]["roles"][0]["firstIndex"] == 1
    assert [pod["name"] for pod in entry(plan, "a")["pods"]] == ["a-worker-1", "a-worker-2"]
    assert check(plan) == []
    for shift, rule in ((-1, "all-or-nothing"), (1, "all-or-nothing")):
        shifted = json.loads(json.dumps(plan))
        for pod in entry(shifted, "a")["pods"]:
            pod["index"] += shift
            pod["name"] = f"a-worker-{pod['index']}"
        assert {violation.rule for violation in check(restated(shifted))} == {rule}


def test_the_judge_cuts_slices_by_index() -> None:
    nodes = [node("n1", switched(3)), node("n2", switched(4))]
    workers = role(pods=7, slices=(4, "node"), first=1)
    plan = document_of(build(nodes=nodes, gangs=[gang("a", roles=[workers])]))
    assert check(plan) == []
    wanted(plan, "a")["spec"]["roles"][0]["firstIndex"] = 0
    stated = entry(plan, "a")
    for pod in stated["pods"]:
        pod["index"] -= 1
        pod["name"] = f"a-worker-{pod['index']}"
    # From 0 on the slices are 0-3 and 4-6: pod 3 stands with 4-6.
    assert {violation.rule for violation in check(restated(plan))} == {"slice"}


def read_gang(role_: dict[str, Any], pods: list[dict[str, Any]]) -> Instance:
    documents = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"nodes": [{"name": "n", "model": "DGX H100"}]},
        },
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "a"},
            "spec": {"roles": [{"name": "w", "replicas": 2, "gpus": 1, **role_}]},
            "status": {"pods": pods},
        },
    ]
    return read_all(documents)


@pytest.mark.parametrize(
    ("first", "index", "what", "hint"),
    [
        (3, 2, "there is no pod 2 of role 'w'", "indices are 3 to 4"),
        (3, 5, "there is no pod 5 of role 'w'", "indices are 3 to 4"),
        (0, 2, "there is no pod 2 of role 'w'", "indices are 0 to 1"),
        (999_999, 999_999, "indices up to 1,000,000", "the largest is 999,999"),
    ],
)
def test_an_index_outside_its_role_is_refused(first: int, index: int, what: str, hint: str) -> None:
    with pytest.raises(InputError) as caught:
        read_gang({"firstIndex": first}, [{"role": "w", "index": index}])
    (fault,) = caught.value.faults
    assert fault.what.endswith(f": {what}")
    assert fault.hint == hint
