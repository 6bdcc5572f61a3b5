"""Malformed gangs of Kubernetes objects: their instance and their plan."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kube import node, pod
from kube_gangs import owned, thing
from outcomes import planned

from models.instance.gang import Gang
from models.instance.instance import Instance
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


KUEUE = "kueue.x-k8s.io/admission"


def held_by(tree: dict[str, Any], *gates: str) -> dict[str, Any]:
    """The pod with more scheduling gates, before its own."""
    more = [{"name": gate} for gate in gates]
    tree["spec"]["schedulingGates"] = [*more, *tree["spec"].get("schedulingGates", [])]
    return tree


def test_a_gang_that_another_gate_holds_waits_and_takes_no_room(tmp_path: Path) -> None:
    """It is older than one that takes all four nodes."""
    gated = [held_by(worker(i, gated=True), KUEUE) for i in (0, 1)]
    other = [pod(f"all-{i}", gpus=8, gated=True) for i in range(4)]
    for one in other:
        one["metadata"]["creationTimestamp"] = "2026-11-20T09:00:00Z"
    outcome = planned(instance(tmp_path, job(2), *gated, *other))
    assert outcome.decision("j") == "wait"
    reason = outcome.of("j").reason
    assert reason is not None
    gated = f"its pods have the scheduling gate {KUEUE}"
    assert (reason.code, reason.fields.text) == ("Gated", gated)
    assert [outcome.decision(f"all-{i}") for i in range(4)] == ["place"] * 4
    free = planned(instance(tmp_path, job(2), *(worker(i, gated=True) for i in (0, 1)), *other))
    assert free.decision("j") == "place"
