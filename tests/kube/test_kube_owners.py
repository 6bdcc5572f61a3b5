"""Owners and ages of gangs: nothing of another namespace lends age, name, size or marks."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from bundles import load_all
from effort import first_fast
from kube import SNAPSHOTS, listed

Json = dict[str, Any]


# copies of everything


def _documents(snapshot: str) -> list[Json]:
    paths = sorted((SNAPSHOTS / snapshot).glob("*.json*"))
    return [tree for path in paths for tree in listed(path)]


def _copies(documents: list[Json]) -> list[Json]:
    """Every object of every namespace again in one of a stranger, with its uid, and older.

    The pods are gated by somebody, so that they take no room and make no gangs.
    """
    taken: set[tuple[str, str]] = set()
    copies = []
    for tree in documents:
        name = tree["metadata"]["name"]
        if "namespace" not in tree["metadata"] or (tree["kind"], name) in taken:
            continue
        taken.add((tree["kind"], name))
        one = copy.deepcopy(tree)
        one["metadata"] |= {
            "namespace": "a-stranger",
            "creationTimestamp": "2020-01-01T00:00:00Z",
        }
        if tree["kind"] == "Pod":
            one["spec"].pop("nodeName", None)
            one["spec"] |= {
                "schedulerName": "default-scheduler",
                "schedulingGates": [{"name": "nobody.example"}],
                "priority": 9,
            }
            one["metadata"]["uid"] = f"copy-{name}"  # API servers give no uid twice
            one["status"]["phase"] = "Pending"
        if tree["kind"] == "PodGroup":
            one["spec"] = {"minMember": 999}
        copies.append(one)
    return copies


@pytest.mark.parametrize("snapshot", first_fast(["v100-mpi", "nvl72", "h100-gke"]))
def test_a_copy_of_everything_in_another_namespace_changes_nothing(snapshot: str) -> None:
    documents = _documents(snapshot)
    copies = _copies(documents)
    assert {"Pod", "Job"} <= {tree["kind"] for tree in copies}
    alone, both = load_all(documents), load_all([*copies, *documents])
    assert both.instance.gangs == alone.instance.gangs
    assert both.instance.cluster == alone.instance.cluster
