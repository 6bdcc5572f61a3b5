"""Malformed objects of a real cluster: a remark or a clear error, never a traceback, never a lost pod."""

from __future__ import annotations

import copy
from collections.abc import Callable
from functools import cache

import kube
import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from kube_mutations import ODD, Tree, broken, places, recorded

from models.documents.gang import Hold
from planner.errors import InputError
from planner.read.compact_cluster import catalogue_model
from planner.read.document_kinds import Documents
from planner.read.findings import Findings
from planner.read.instance_builder import LoadedInput, build

# a whole cluster is a long example; it must not hide what failed
pytestmark = pytest.mark.filterwarnings("ignore:Generating overly large repr")


def read_trees(trees: list[Tree]) -> LoadedInput:
    documents = Documents(Findings())
    for tree in trees:
        documents.gatherer.add(tree, "a test")
    return build(documents, catalogue_model)


@cache
def untouched(name: str) -> LoadedInput:
    return read_trees([copy.deepcopy(tree) for tree in recorded(name)])


@st.composite
def mutated(
    draw: st.DrawFn, name: str, chosen: Callable[[Tree], bool]
) -> tuple[list[Tree], set[int]]:
    """The objects of a snapshot with one to four of them broken, and which."""
    trees = list(recorded(name))
    candidates = [i for i, tree in enumerate(trees) if chosen(tree)]
    hit: set[int] = set()
    for _ in range(draw(st.integers(1, 4))):
        i = draw(st.sampled_from(candidates))
        spots = places(trees[i])
        if spots:
            path = draw(st.sampled_from(spots))
            how = draw(st.sampled_from(["remove", "replace", "replace", "rename", "double"]))
            trees[i] = broken(trees[i], path, draw(st.sampled_from(ODD)), how)
            hit.add(i)
    return trees, hit


def is_pod(tree: Tree) -> bool:
    return bool(tree["kind"] == "Pod")


def held(found: LoadedInput) -> dict[tuple[str, str], str]:
    """Node of every standing pod."""
    nodes = found.instance.cluster.nodes
    return {
        (gang.namespace, pod.name): nodes[pod.node].name
        for gang in found.instance.gangs
        for pod in gang.pods
        if pod.node is not None
    }


@settings(max_examples=examples(60, 8), deadline=None)
@given(mutated("v100-mpi", is_pod))
def test_a_broken_pod_is_never_fatal_and_never_hides_another(
    case: tuple[list[Tree], set[int]],
) -> None:
    trees, hit = case
    before, after = held(untouched("v100-mpi")), held(read_trees(trees))
    broken_ones = [recorded("v100-mpi")[i]["metadata"] for i in hit]
    own = {(one["namespace"], one["name"]) for one in broken_ones}
    for pod, node in before.items():
        if pod not in own:
            assert after.get(pod) == node, pod


@settings(max_examples=examples(60, 8), deadline=None)
@given(mutated("v100-mpi", lambda tree: True))
def test_any_broken_object_is_remarked_or_refused_in_plain_words(
    case: tuple[list[Tree], set[int]],
) -> None:
    trees, _ = case
    try:
        lines = read_trees(trees).remarks
    except InputError as error:
        lines = tuple(fault.what for fault in error.faults)
    assert all(0 < len(line) < 2_000 and line.isprintable() for line in lines)


@settings(max_examples=examples(12, 2), deadline=None)
@given(mutated("nvl72", lambda tree: tree["kind"] != "Pod"))
def test_broken_groups_controllers_and_slices_leave_every_pod_where_it_stands(
    case: tuple[list[Tree], set[int]],
) -> None:
    trees, hit = case
    if any(recorded("nvl72")[i]["kind"] == "Node" for i in hit):
        read_trees(trees)
        return
    assert held(read_trees(trees)) == held(untouched("nvl72"))


def test_a_request_or_rule_that_no_document_takes_holds_a_gang_back_and_hides_none_of_its_pods() -> (
    None
):
    group = {"scheduling.x-k8s.io/pod-group": "g"}
    for waiting in (False, True):
        for name, rule, what in (
            ("nodeSelector", {"../x": "y"}, "a nodeSelector that"),
            ("tolerations", [{"key": "../x", "operator": "Exists"}], "a toleration that"),
            (None, None, "a resource whose name"),
        ):
            pods = [
                kube.pod(one, gpus=2, on=None if waiting else "n", gated=waiting, labels=group)
                for one in ("a", "b")
            ]
            for pod in pods:
                if name is None:
                    pod["spec"]["containers"][0]["resources"]["requests"]["../x"] = "1"
                else:
                    pod["spec"][name] = rule
            found = read_trees([kube.node("n"), *pods])
            (gang,) = found.instance.gangs
            assert [pod.name for pod in gang.pods] == ["a", "b"]
            assert held(found) == ({} if waiting else {("default", one): "n" for one in ("a", "b")})
            assert gang.hold == (Hold("Unsupported", f"{what} cannot be read") if waiting else None)
