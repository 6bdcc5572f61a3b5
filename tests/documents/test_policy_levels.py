"""Levels that a Policy writes out node by node, and the Policy that says what levels were found."""

from __future__ import annotations

import json
from fractions import Fraction
from pathlib import Path
from typing import Any

import kube
import pytest
from building import instance_document
from bundles import load_all
from conftest import RunCli
from kube_levels import found, labelled

from models.documents.cluster import Level
from models.host_ranges import host_ranges
from models.instance.instance import Instance
from models.instance.policy import KubernetesPolicy
from planner.errors import InputError
from planner.read.inputs import instance_from_document, read
from planner.read.instance_builder import LoadedInput

API = "gangplan.dev/v1alpha1"


def policy(*levels: dict[str, Any]) -> dict[str, Any]:
    return {"apiVersion": API, "kind": "Policy", "spec": {"kubernetes": {"levels": levels}}}


def built(*trees: dict[str, Any]) -> LoadedInput:
    return load_all(trees)


def places(instance: Instance) -> dict[str, tuple[str | None, ...]]:
    """The domains of every node, widest level first."""
    return {one.name: one.domains for one in instance.cluster.nodes}


def test_domains_of_a_policy_are_where_it_says() -> None:
    row = {"name": "row", "oversubscription": 2, "domains": {"east": ["n[1-4]"]}}
    rack = {"name": "rack", "nvlink": True, "domains": {"a": ["n[1-2]"], "b": ["n3", "n4"]}}
    nodes = [kube.node(f"n{i}") for i in range(1, 6)]
    instance = built(policy(row, rack), *nodes).instance
    assert instance.cluster.levels == (
        Level("row", None, Fraction(2)),
        Level("rack", None, nvlink=True),
    )
    assert places(instance) == {
        "n1": ("east", "a"),
        "n2": ("east", "a"),
        "n3": ("east", "b"),
        "n4": ("east", "b"),
        "n5": (None, None),  # not named: it stands alone
    }


def test_nodes_that_are_not_there_are_remarked_once() -> None:
    levels = (Level("rack"),)
    domains = (("rack", (("a", ("n1", "n2")), ("b", ("gone-1", "gone-2")))),)
    trees = labelled(n1={}, n2={}, n3={})
    own = KubernetesPolicy(levels=levels, level_domains=domains)
    read_, _, said = found(trees, policy=own)
    assert [read_.domain(f"n{i}") for i in (1, 2, 3)] == [("a",), ("a",), (None,)]
    assert "Policy level rack: names nodes that are not in the input; ignored" in said


def test_domains_are_read_and_written_back_with_their_nodes_sorted() -> None:
    written = policy({"name": "rack", "domains": {"b": ["n[4,3]"], "a": ["n1"]}})
    instance = built(written, kube.node("n1")).instance
    own = instance.policy.kubernetes
    assert own.level_domains == (("rack", (("a", ("n1",)), ("b", ("n3", "n4")))),)
    document = json.loads(json.dumps(instance_document(instance)))
    (level,) = document["policy"]["spec"]["kubernetes"]["levels"]
    assert level["domains"] == {"a": ["n1"], "b": ["n3", "n4"]}
    assert instance_from_document(document) == instance


def test_a_level_without_label_and_domains_is_one_where_every_node_stands_alone() -> None:
    instance = built(policy({"name": "rack"}), kube.node("n1"), kube.node("n2")).instance
    assert instance.policy.kubernetes.level_domains == ()
    assert places(instance) == {"n1": (None,), "n2": (None,)}
    empty = built(policy({"name": "rack", "domains": {}}), kube.node("n1")).instance
    assert empty.policy.kubernetes.level_domains == (("rack", ()),)


@pytest.mark.parametrize(
    ("level", "what"),
    [
        ({"label": "a/b", "domains": {"a": ["n1"]}}, "level 'rack' has a label and domains"),
        ({"domains": {"a": ["n[1-3]"], "b": ["n3"]}}, "node 'n3' is also in 'a'"),
        ({"domains": {"a": ["n[1-3]", "n2"]}}, "node 'n2' is twice"),
        ({"domains": {"-": ["n1"]}}, "'-' cannot be a name"),
        ({"domains": {"a": ["n["]}}, "'n[' cannot be a node name or host range"),
        ({"domains": {"a": ["n[3-1]"]}}, "the range '3-1' in 'n[3-1]' runs backwards"),
        ({"domains": {"a": ["n[1-200000]"], "b": ["m"]}}, "200,001 nodes in the domains"),
        ({"domains": {"a": ["n[1-900000]"]}}, "has 900,000 names"),
        ({"domains": ["n1"]}, "expected an object"),
        ({"domains": {"a": "n1"}}, "expected a list"),
    ],
)
def test_domains_that_make_no_sense_are_refused(level: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        built(policy({"name": "rack", **level}), kube.node("n1"))
    lines = "\n".join(line for fault in caught.value.faults for line in fault.lines())
    assert what in lines
    assert "hint:" in lines


# --- saved


@pytest.mark.parametrize("name", ["h100-gke", "nvl72", "v100-mpi"])
def test_planning_with_the_saved_policy_has_the_same_levels_and_domains(
    name: str, cli: RunCli, tmp_path: Path
) -> None:
    folder, saved = str(kube.SNAPSHOTS / name), tmp_path / "policy.yaml"
    assert cli("validate", folder, "--save-policy", str(saved)).code == 0
    first, again = read([folder]), read([folder], policy=str(saved))
    assert again.cluster == first.cluster
    assert again.gangs == first.gangs
    assert again.policy.kubernetes.levels == first.cluster.levels


def test_the_saved_policy_of_a_topology_file_does_without_it(cli: RunCli, tmp_path: Path) -> None:
    topology, saved = tmp_path / "topology.conf", tmp_path / "policy.yaml"
    nodes, own = tmp_path / "nodes.json", [kube.node(f"n{i:02}") for i in range(1, 7)]
    nodes.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": own}))
    topology.write_text(
        "SwitchName=leaf1 Nodes=n[01-03]\nSwitchName=leaf2 Nodes=n[04-06]\n"
        "SwitchName=spine Switches=leaf[1-2]\n"
    )
    both = [str(nodes), str(topology)]
    assert cli("validate", *both, "--save-policy", str(saved)).code == 0
    first, again = read(both), read([str(nodes)], policy=str(saved))
    assert len(first.cluster.levels) > 0
    assert again.cluster == first.cluster
    assert places(again)["n02"][-1] == "leaf1"


# --- host ranges


@pytest.mark.parametrize(
    ("names", "ranges"),
    [
        ((), ()),
        (("a", "b"), ("a", "b")),
        (("n7",), ("n7",)),
        (("n08", "n09", "n10"), ("n[08-10]",)),
        (("n1", "n2", "n4"), ("n[1-2,4]",)),
        (("n9", "n10", "n11"), ("n9", "n[10-11]")),
        (("r1-n1", "r1-n2", "r2-n1"), ("r1-n[1-2]", "r2-n1")),
        (("1", "2"), ("[1-2]",)),
        (("n2", "n2", "n1"), ("n[1-2]",)),
    ],
)
def test_names_are_written_as_ranges(names: tuple[str, ...], ranges: tuple[str, ...]) -> None:
    assert host_ranges(names) == ranges
