"""``gangplan snapshot`` of an API server of ours: what is recorded. With kubectl: test_snapshot_failing."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import yaml
from conftest import RunCli
from effort import first_fast
from snapshots import (
    Cluster,
    RecordedServer,
    Tree,
    cluster,
    files,
    forbidden,
    in_memory,
    more,
    objects_of,
    small,
    status,
)

from models.instance.policy import KubernetesPolicy
from planner.cluster import pages
from planner.read.findings import Remarks
from planner.read.kube.gangs.gangs import read_gangs
from planner.read.kube.kinds import ALL, file_name
from planner.read.kube.levels.levels import read_levels
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.pods import read_pods
from planner.read.kube.records import KubeObject

PAGE = "/api/v1/pods"


@pytest.fixture
def tiny(tmp_path: Path, cli: RunCli) -> Iterator[Cluster]:
    with in_memory(small(), tmp_path, cli) as served:
        yield served


def _is_history(item: Tree) -> bool:
    """A pod that has finished and that no controller has, nor any group of these clusters."""
    phase = item.get("status", {}).get("phase")
    return phase in ("Succeeded", "Failed") and "ownerReferences" not in item["metadata"]


@pytest.mark.parametrize("name", first_fast(["h100-gke", "v100-mpi", "nvl72"], 2))
def test_a_recorded_cluster_comes_back_and_everything_reads_the_same_from_it(
    name: str, tmp_path: Path, cli: RunCli
) -> None:
    server = RecordedServer.of(name)
    with in_memory(server, tmp_path, cli) as served:
        result = served.snapshot()
    assert result.code == 0, result.err
    written = files(served.out)
    file_of = {(kind.plural, kind.group): file_name(kind) for kind in ALL}
    lists = []
    for kind in server.kinds.all:
        tree, items = written.pop(file_of[kind.plural, kind.group]), server.lists[kind.resource]
        api = {"kind": f"{kind.name}List", "apiVersion": kind.api_version}
        lists.append({**api, "items": [one for one in items if not _is_history(one)]})
        assert tree == {**api, "metadata": {"resourceVersion": "4711"}, "items": tree["items"]}
        assert list(map(_identity, tree["items"])) == list(map(_identity, lists[-1]["items"]))
        if kind.name == "Namespace":
            for item in tree["items"]:
                title = item["metadata"]["name"]
                assert item["metadata"]["labels"] == {"kubernetes.io/metadata.name": title}
                assert "spec" not in item
    assert written == {}
    assert _facts(list(files(served.out).values())) == _facts(lists)
    asked = [r.path for r in server.calls if "limit" in r.query and "configmaps" not in r.path]
    pages = -(-len(server.lists["pods"]) // 500)
    assert asked[: pages + 1] == ["/api/v1/nodes", *["/api/v1/pods"] * pages]
    assert set(asked[pages + 1 :]).isdisjoint({"/api/v1/nodes", "/api/v1/pods"})
    assert {query["limit"] for query in server.asked(PAGE)} == {"500"}


def _identity(item: Tree) -> list[object]:
    return [item["metadata"].get(name) for name in ("namespace", "name", "uid", "labels")]


def _facts(lists: list[Tree]) -> list[object]:
    """Everything the readers make of the objects: nodes, pods, gangs, levels, remarks."""
    objects, policy, remarks = objects_of(lists), KubernetesPolicy(), Remarks()
    nodes = read_nodes(objects, policy, remarks)
    pods = read_pods(objects, nodes, policy, remarks)
    gangs = read_gangs(objects, pods, policy, remarks)
    parts = [part for gang in gangs for part in (gang, *gang.roles)]
    asks = {ask: None for part in parts for ask in (part.required, part.preferred) if ask}
    levels = read_levels(objects, nodes, policy, list(asks), remarks)
    return [
        _plain(nodes),
        _plain(pods),
        _plain(gangs),
        levels.found,
        levels.levels,
        [levels.domain(node.name) for node in nodes],
        [levels.resolve(ask) for ask in asks],
        remarks.lines(),
    ]


def _plain(value: object) -> object:
    """Forms as tuples that compare by value; of an object its identity, not its tree."""
    if isinstance(value, KubeObject):
        return (value.kind, value.namespace, value.name, value.uid, value.owner, value.created)
    if isinstance(value, list | tuple):
        return [_plain(entry) for entry in value]
    if isinstance(value, msgspec.Struct):
        return [(name, _plain(getattr(value, name))) for name in value.__struct_fields__]
    if dataclasses.is_dataclass(value):
        return [(one.name, _plain(getattr(value, one.name))) for one in dataclasses.fields(value)]
    return value


def test_only_kinds_that_are_served_are_asked_for(tiny: Cluster) -> None:
    tiny.server.add(*more("JobSet", "jobsets", "jobset.x-k8s.io/v1alpha2", "js"))
    tiny.server.add(*more("Widget", "widgets", "example.com/v1", "w"))
    result = tiny.snapshot("--log-format", "json")
    assert (result.code, result.out) == (0, "")
    asked = {request.path for request in tiny.server.calls}
    assert "/apis/jobset.x-k8s.io/v1alpha2/jobsets" in asked
    assert not any("kueue" in path or "example.com" in path for path in asked)
    assert sorted(files(tiny.out)) == ["jobsets.json", "namespaces.json", "nodes.json", "pods.json"]
    absent = json.loads(result.err.splitlines()[-1])["absent"]
    # One name for a group that is not there at all; the core group is there, these of it were not.
    assert "kueue.x-k8s.io" in absent
    assert "persistentvolumes" in absent
    assert not {"jobset.x-k8s.io", ""} & set(absent)


def test_what_may_not_be_listed_is_left_out_and_said(tiny: Cluster) -> None:
    tiny.server.add(*more("JobSet", "jobsets", "jobset.x-k8s.io/v1alpha2", "js"))
    tiny.server.refuse(
        "/apis/jobset.x-k8s.io/v1alpha2/jobsets", forbidden("list", "jobsets.jobset.x-k8s.io")
    )
    tiny.server.refuse("/api/v1/namespaces/kube-system", forbidden("get", "namespaces"))
    tiny.server.refuse("/api/v1/namespaces", forbidden("list", "namespaces"))
    result = tiny.snapshot()
    assert result.code == 0
    assert (
        "warning: not permitted, so left out: get namespaces/kube-system; list namespaces; "
        "list jobsets.jobset.x-k8s.io in all namespaces\n"
    ) in result.err
    assert "without the right to list namespaces, labels of namespaces are unknown" in result.err
    assert "plans of this snapshot cannot be applied" in result.err
    assert sorted(files(tiny.out)) == ["nodes.json", "pods.json"]


@pytest.mark.parametrize("resource", ["nodes", "pods"])
def test_without_the_right_to_list_nodes_or_pods_it_is_77_and_names_the_right(
    resource: str, tiny: Cluster
) -> None:
    tiny.server.refuse(f"/api/v1/{resource}", forbidden("list", resource))
    result = tiny.snapshot()
    assert result.code == 77
    where = " in all namespaces" if resource == "pods" else ""
    assert result.err.startswith(
        f"error: not permitted: list {resource}{where} ({resource} is forb"
    )
    assert 'User "tester"' in result.err
    assert ("--namespace" in result.err) == (resource == "pods")
    assert tiny.litter() == []


def test_some_namespaces_for_those_who_may_not_list_all(tiny: Cluster) -> None:
    tiny.server.refuse("/api/v1/pods", forbidden("list", "pods"))
    tiny.server.add(*more("Job", "jobs", "batch/v1", "a-job"))
    result = tiny.snapshot("-n", "team-a", "--namespace", "team-b", "-n", "team-a")
    assert result.code == 0, result.err
    written = files(tiny.out)
    assert [pod["metadata"]["name"] for pod in written["pods.json"]["items"]] == ["p1", "p2", "p3"]
    assert [node["metadata"]["name"] for node in written["nodes.json"]["items"]] == ["n1", "n2"]
    assert (
        "warning: only pods of team-a, team-b are recorded; GPUs held by others look free"
        in result.err
    )
    assert "/apis/batch/v1/namespaces/team-a/jobs" in {r.path for r in tiny.server.calls}


def test_labels_of_namespaces_are_recorded_as_far_as_they_may_be_read(tiny: Cluster) -> None:
    """All of them in pages; without the right to list them kube-system; with -n those, one by one."""
    many = [
        {"metadata": {"name": f"t{i}", "labels": {"team": "a"}, "annotations": {"secret": "x"}}}
        for i in range(pages.PAGE + 1)
    ]
    tiny.server.lists["namespaces"] += many
    assert tiny.snapshot().code == 0
    (system, *others) = files(tiny.out)["namespaces.json"]["items"]
    assert system["metadata"]["name"] == "kube-system"
    assert others == [
        {"metadata": {"name": one["metadata"]["name"], "labels": {"team": "a"}}} for one in many
    ]
    tiny.server.refuse("/api/v1/namespaces", forbidden("list", "namespaces"))
    result = tiny.snapshot("--force")
    assert "left out: list namespaces\n" in result.err
    (only,) = files(tiny.out)["namespaces.json"]["items"]
    assert only["metadata"] == system["metadata"]
    result = tiny.snapshot("--force", "-n", "t7", "-n", "gone")
    assert "not permitted" not in result.err
    named = files(tiny.out)["namespaces.json"]["items"]
    assert [one["metadata"] for one in named] == [system["metadata"], others[7]["metadata"]]


def test_the_documented_role_grants_what_is_asked_for_and_no_more() -> None:
    page = (Path(__file__).parents[2] / "docs" / "snapshot.md").read_text(encoding="utf-8")
    role = yaml.load(page.partition("```yaml\n")[2].partition("```")[0], Loader=yaml.CSafeLoader)
    granted = [
        (group, resource, verb)
        for rule in role["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    ]
    listed = {(kind.group, kind.plural, "list") for kind in ALL}
    assert len(granted) == len(set(granted))
    assert set(granted) == listed | {("", "namespaces", "get")}


def test_a_list_that_expires_half_way_begins_again(tmp_path: Path, cli: RunCli) -> None:
    server = RecordedServer.of("h100-gke")
    gone = status(410, "Expired", "The provided continue parameter is too old to display a list")
    server.fail(PAGE, gone, when=lambda call: "continue" in call.query)
    with cluster(server, tmp_path, cli) as served:
        result = served.snapshot()
    assert result.code == 0, result.err
    assert "1 list restarted" in result.err
    names = [pod["metadata"]["uid"] for pod in files(served.out)["pods.json"]["items"]]
    pods = server.lists["pods"]
    assert names == [pod["metadata"]["uid"] for pod in pods if not _is_history(pod)]
