"""Slices in slices, as Kueue's constraints of several layers ask for them."""

from __future__ import annotations

import json

import kube

from planner.read.compact_cluster import catalogue_model
from planner.read.document_kinds import Documents
from planner.read.findings import Findings
from planner.read.instance_builder import LoadedInput, build

BLOCK, RACK = "example.com/block", "example.com/rack"


def test_three_layers_of_an_annotation_become_slices_in_slices() -> None:
    named = (BLOCK, 8), (RACK, 4), ("kubernetes.io/hostname", 2)
    layers: list[dict[str, object]] = [{"topology": key, "size": size} for key, size in named]
    gang = jobs_of(layers).instance.gangs[0]
    (role,) = gang.roles
    # levels: block 0, rack 1, node 2; the only slice of 8 is the gang
    assert (role.slice_size, role.slice_level, role.outer_slices) == (2, 2, ((4, 1),))
    assert (gang.required, gang.hold) == (0, None)


def test_layers_that_do_not_nest_hold_the_gang() -> None:
    layers = [{"topology": BLOCK, "size": 4}, {"topology": RACK, "size": 3}]
    gang = jobs_of(layers).instance.gangs[0]
    assert gang.hold is not None
    assert gang.hold.code == "Unsupported"


def jobs_of(layers: list[dict[str, object]]) -> LoadedInput:
    """Eight racks of four nodes, two racks a block; a Job of eight pods cut as the layers say."""
    documents = Documents(Findings())
    for i in range(32):
        node = kube.node(f"n{i:02}")
        node["metadata"]["labels"].update({BLOCK: f"b{i // 8}", RACK: f"r{i // 4}"})
        documents.gatherer.add(node, "a test")
    documents.gatherer.add(
        {
            "apiVersion": "kueue.x-k8s.io/v1beta2",
            "kind": "Topology",
            "metadata": {"name": "t"},
            "spec": {"levels": [{"nodeLabel": BLOCK}, {"nodeLabel": RACK}]},
        },
        "a test",
    )
    written = json.dumps(layers)
    for i in range(8):
        tree = kube.pod(
            f"job-{i}",
            gpus=8,
            gated=True,
            labels={
                "batch.kubernetes.io/job-name": "job",
                "batch.kubernetes.io/job-completion-index": str(i),
            },
            annotations={"kueue.x-k8s.io/podset-slice-required-topology-constraints": written},
        )
        owner = {
            "apiVersion": "batch/v1",
            "kind": "Job",
            "name": "job",
            "uid": "u",
            "controller": True,
        }
        tree["metadata"]["ownerReferences"] = [owner]
        documents.gatherer.add(tree, "a test")
    return build(documents, catalogue_model)
