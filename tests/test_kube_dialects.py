"""The table of dialects: a new scheduler is one file and one row."""

from __future__ import annotations

from typing import Any

import kube
import pytest
import toy_dialect

from planner.read.compact_cluster import catalogue_model
from planner.read.document_kinds import Documents
from planner.read.findings import Findings
from planner.read.instance_builder import LoadedInput, build
from planner.read.kube import dialect_registry as registry

RACK = "example.com/rack"


def built(*trees: dict[str, Any]) -> LoadedInput:
    documents = Documents(Findings())
    for tree in trees:
        documents.gatherer.add(tree, "a test")
    return build(documents, catalogue_model)


def crew() -> list[dict[str, Any]]:
    """Two nodes of one rack; a Crew of three, of which one runs on GPUs 2 and 5 of n1."""
    labels = {toy_dialect.CREW: "miners"}
    return [
        kube.node("n1", **{RACK: "r1"}),
        kube.node("n2", **{RACK: "r1"}),
        kube.node("n3", **{RACK: "r2"}),
        {
            "apiVersion": "toy.example.com/v1",
            "kind": "Crew",
            "metadata": {"name": "miners", "namespace": "default"},
            "spec": {"hands": 3, "together": RACK},
        },
        kube.pod(
            "miners-0", gpus=2, on="n1", labels=labels, annotations={toy_dialect.SLOTS: "2,5"}
        ),
        kube.pod("miners-1", gpus=2, gated=True, labels=labels),
        kube.pod("miners-2", gpus=2, gated=True, labels=labels),
    ]


def test_a_new_dialect_is_one_file_and_one_row(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(registry, "DIALECTS", (*registry.DIALECTS, toy_dialect.DIALECT))
    found = built(*crew())
    (gang,) = found.instance.gangs
    assert (gang.name, gang.hold) == ("miners", None)
    assert [(role.max, role.gpus) for role in gang.roles] == [(3, 2)]
    assert gang.required is not None
    assert found.instance.cluster.levels[gang.required].label == RACK
    # GPUs 2 and 5: bits 2 and 5
    assert [pod.gpus for pod in gang.pods] == [1 << 2 | 1 << 5, None, None]


def test_without_its_row_the_pods_are_gangs_of_one() -> None:
    found = built(*crew())
    assert [gang.name for gang in found.instance.gangs] == ["miners-0", "miners-1", "miners-2"]


def test_names_of_dialects_and_readers_are_distinct() -> None:
    for names in (
        [one.name for one in registry.DIALECTS],
        [one.name for one in registry.group_readers()],
        [one.kind for one in registry.controller_readers()],
        [one.name for one in registry.holding_readers()],
    ):
        assert len(set(names)) == len(names)
