"""Nodes whose running pods hold more than there is: nothing is free there, and nobody is at fault."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from building import build, gang, instance_document, mask, node
from building_servers import nvl, switched, v100
from bundles import read_all
from outcomes import document_of, planned
from plan_documents import Doc, decided, entry, restated, wanted

from models.instance.instance import Instance
from models.verify.check import check
from planner.errors import InputError
from planner.read.inputs import instance_from_document

Stands = list[tuple[int, int, int, int | None]]

OVERFULL: dict[str, list[Stands]] = {
    "unknown beside all of them": [[(0, 0, 0, 255)], [(0, 0, 0, None)]],
    "unknown twice": [[(0, 0, 0, None)], [(0, 0, 0, None)]],
    "one GPU held twice": [[(0, 0, 0, 255)], [(0, 0, 0, 255)]],
}


@pytest.mark.parametrize("case", OVERFULL)
@pytest.mark.parametrize("server", ["switch", "mesh", "rack"])
def test_nothing_is_placed_on_an_overfull_node(case: str, server: str) -> None:
    model = {"switch": switched(8), "mesh": v100(), "rack": nvl(8, 2)}[server]
    runs = [gang(f"r{i}", 1, 8, stands=stands) for i, stands in enumerate(OVERFULL[case])]
    nodes = [node("n1", model), node("n2", model)]
    level = "rack" if server == "rack" else None
    waits = [gang("a", 8, 1), gang("b", 1, 1)]
    instance = build(nodes=nodes, gangs=[*runs, *waits], nvlink=level)
    outcome = planned(instance, small=False)
    # n2 holds eight GPUs; of nine asked one gang must wait.
    assert outcome.decisions() == {"a": "place", "b": "wait", "r0": "keep", "r1": "keep"}
    assert set(outcome.nodes("a")) == {"n2"}
    assert outcome.value("admission/0") == 24


@pytest.mark.parametrize("case", OVERFULL)
def test_the_judge_finds_a_pod_placed_on_an_overfull_node(case: str) -> None:
    runs = [gang(f"r{i}", 1, 8, stands=stands) for i, stands in enumerate(OVERFULL[case])]
    instance = build(nodes=[node("n1", switched(8)), node("n2", switched(8))], gangs=[
        *runs, gang("a", 1, 1)
    ])  # fmt: skip
    plan = document_of(instance)
    assert check(plan) == []
    unknown = case != "one GPU held twice"
    entry(plan, "a")["pods"][0].update(node="n1", gpus=None if unknown else [0])
    broken = {violation.rule for violation in check(restated(plan))}
    assert broken == {"unknown-gpus" if unknown else "gpu-shared"}


def cluster() -> Doc:
    nodes = [{"name": "n1", "model": "DGX H100"}, {"name": "n2", "model": "DGX H100"}]
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"nodes": [*nodes, {"name": "n3"}]},
    }


def running(name: str, gpus_per_pod: int, *places: tuple[str, list[int] | None]) -> Doc:
    """A gang of so many pods, each on (node, GPUs)."""
    pods = [
        {"role": "w", "index": i, "node": where, "gpus": gpus}
        for i, (where, gpus) in enumerate(places)
    ]
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"roles": [{"name": "w", "replicas": len(pods), "gpus": gpus_per_pod}]},
        "status": {"pods": pods},
    }


def lenient(gangs: list[Doc]) -> Instance:
    """The instance as a plan would hold it, against the shipped catalogue's DGX H100."""
    bare = instance_document(read_all([cluster()]))
    return instance_from_document({**bare, "gangs": gangs})


def masks(instance: Instance) -> list[list[int | None]]:
    return [[pod.gpus for pod in one.pods] for one in instance.gangs]


TAKEN_AS_THEY_ARE: dict[str, tuple[list[Doc], list[list[int | None]]]] = {
    # more known and unknown ones together than the node has: nobody is doubted
    "overfull": (
        [running("a", 6, ("n1", [0, 1, 2, 3, 4, 5])), running("b", 6, ("n1", None))],
        [[63], [None]],
    ),
    # GPU 3 is claimed by both, so neither is believed; c is
    "held twice": (
        [running("a", 2, ("n1", [2, 3])), running("b", 2, ("n1", [3, 4])), running("c", 1, ("n1", [7]))],
        [[None], [None], [mask(7)]],
    ),
    "held twice within a gang": (
        [running("a", 1, ("n1", [3]), ("n1", [3]), ("n2", [3]))],
        [[None, None, mask(3)]],
    ),
    "more than the node has": ([running("a", 9, ("n1", list(range(9))))], [[None]]),
    "on a node without GPUs": ([running("a", 2, ("n3", [0, 1]))], [[None]]),
    "a GPU that is not there": ([running("a", 2, ("n1", [7, 8]))], [[None]]),
}  # fmt: skip


@pytest.mark.parametrize("case", TAKEN_AS_THEY_ARE)
def test_what_runs_is_taken_as_it_is_in_a_plan(case: str) -> None:
    gangs, expected = TAKEN_AS_THEY_ARE[case]
    for order in (gangs, gangs[::-1]):
        instance = lenient(order)
        assert masks(instance) == expected
    again = instance_from_document(instance_document(instance))
    assert again == instance
    document = document_of(instance)
    assert {one["decision"] for one in document["spec"]["gangs"]} == {"keep"}
    assert check(document) == []


@pytest.mark.parametrize("case", TAKEN_AS_THEY_ARE)
def test_people_may_not_write_the_same(case: str) -> None:
    documents = [cluster(), *TAKEN_AS_THEY_ARE[case][0]]
    with pytest.raises(InputError):
        read_all(documents)


def with_uids(gangs: list[Doc]) -> list[Doc]:
    """The gangs, every pod with a uid as a recorded one has."""
    return [
        {
            **one,
            "status": {
                "pods": [
                    {**pod, "uid": f"{one['metadata']['name']}-{i}"}
                    for i, pod in enumerate(one["status"]["pods"])
                ]
            },
        }
        for one in gangs
    ]


def read_again(instance: Instance) -> Instance:
    """The documents of an instance, given to ``gangplan plan``."""
    parts = instance_document(instance)
    items = [parts["cluster"], parts["policy"], *parts["gangs"]]
    return read_all(items)


@pytest.mark.parametrize("case", TAKEN_AS_THEY_ARE)
def test_the_instance_of_a_live_cluster_is_the_same_read_as_input(case: str) -> None:
    found = lenient(with_uids(TAKEN_AS_THEY_ARE[case][0]))
    live = replace(found, cluster=replace(found.cluster, uid="kube-system"))
    assert read_again(live) == live


def test_a_cluster_or_pods_without_uid_are_held_to_what_people_may_write() -> None:
    found = lenient(with_uids(TAKEN_AS_THEY_ARE["overfull"][0]))
    with pytest.raises(InputError):
        read_again(found)
    found = lenient(TAKEN_AS_THEY_ARE["overfull"][0])
    with pytest.raises(InputError):
        read_again(replace(found, cluster=replace(found.cluster, uid="kube-system")))


def test_live_pods_of_two_gangs_may_have_names_that_could_meet() -> None:
    # gang a with role b-w and gang a-b with role w: both would name a pod a-b-w-0
    first, second = running("a", 1, ("n1", [0])), running("a-b", 1, ("n1", [1]))
    first["spec"]["roles"][0]["name"] = first["status"]["pods"][0]["role"] = "b-w"
    for one in (first, second):
        one["status"]["pods"][0]["name"] = f"live-{one['metadata']['name']}"
    assert masks(lenient([first, second])) == [[1], [2]]
    with pytest.raises(InputError):
        read_all([cluster(), first, second])


def test_standing_pods_that_share_a_gpu_are_no_breach_and_a_moved_one_is() -> None:
    def plan(decision: str, gpus: list[int]) -> Doc:
        found = document_of(lenient([running("a", 1, ("n1", [0])), running("b", 1, ("n1", [1]))]))
        wanted(found, "b")["status"]["pods"][0]["gpus"] = [0]
        wanted(found, "b")["spec"]["movable"] = True
        stated = decided("b", decision, ("n1", gpus))["pods"][0]
        entry(found, "b").update(decision=decision, pods=[{**stated, "name": "b-w-0", "role": "w"}])
        return restated(found)

    def broken(found: Any) -> set[str]:  # noqa: ANN401  # a plan
        return {violation.rule for violation in check(found)}

    assert broken(plan("keep", [0])) == set()
    assert broken(plan("move", [1])) == set()
    gone = plan("move", [1])
    wanted(gone, "b")["status"]["pods"][0]["gpus"] = [2]
    entry(gone, "b")["pods"][0]["gpus"] = [0]
    assert broken(restated(gone)) == {"gpu-shared"}
