"""Malformed gangs of Kubernetes objects: their instance and their plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kube import node, pod
from kube_gangs import owned, thing
from outcomes import planned

from models.gang import Gang
from models.instance import Instance
from planner.read.inputs import load

RACK = "example.com/rack"


def instance(folder: Path, *trees: dict[str, Any]) -> Instance:
    """The instance of these objects, on two racks of two nodes with 8 GPUs."""
    nodes = [node(f"n{i}") for i in range(4)]
    for i, one in enumerate(nodes):
        one["metadata"]["labels"][RACK] = f"r{i // 2}"
    items = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *trees]}
    (folder / "objects.json").write_text(json.dumps(items))
    return load([str(folder)]).instance


def gang_of(found: Instance, name: str) -> Gang:
    (gang,) = [gang for gang in found.gangs if gang.name == name]
    return gang


def job(size: int) -> dict[str, Any]:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    return thing("Job", "batch/v1", "j", spec)


def worker(
    index: int,
    *,
    on: str | None = None,
    gated: bool = False,
    annotations: dict[str, str] | None = None,
) -> dict[str, Any]:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    made = pod(f"j-{index}", gpus=4, on=on, gated=gated, labels=labels, annotations=annotations)
    return owned(made, "Job", "batch/v1", "j")


def test_slices_that_take_in_the_whole_role_stay_slices(tmp_path: Path) -> None:
    notes = {
        "kueue.x-k8s.io/podset-slice-required-topology": RACK,
        "kueue.x-k8s.io/podset-slice-size": "2",
    }
    found = instance(tmp_path, job(2), *(worker(i, gated=True, annotations=notes) for i in (0, 1)))
    (role,) = gang_of(found, "j").roles
    assert (role.slice_size, role.slice_level, role.required) == (2, 0, None)
    assert found.cluster.levels[0].label == RACK


def test_a_gang_with_one_pod_bound_is_completed_by_those_that_wait_for_us(tmp_path: Path) -> None:
    pods = [worker(0, on="n0"), worker(1, gated=True), worker(2, gated=True)]
    found = instance(tmp_path, job(3), *pods)
    assert gang_of(found, "j").hold is None
    assert planned(found).decision("j") == "complete"


def test_a_gang_is_not_completed_while_a_pod_of_it_is_another_schedulers(tmp_path: Path) -> None:
    found = instance(tmp_path, job(3), worker(0, on="n0"), worker(1, gated=True), worker(2))
    assert planned(found).decision("j") == "keep"
    hold = gang_of(found, "j").hold
    assert hold is not None
    assert hold.message == "worker 2 left to scheduler default-scheduler"


def test_a_gang_whose_nodes_are_gone_waits_and_says_so(tmp_path: Path) -> None:
    found = instance(tmp_path, job(2), worker(0, on="gone"), worker(1, on="gone"))
    gang = gang_of(found, "j")
    assert (gang.running, planned(found).decision("j")) == (False, "wait")
    assert gang.hold is not None
    assert gang.hold.message == "worker 0, worker 1 bound to a node that is not in the input"
