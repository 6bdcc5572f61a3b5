"""Kueue's priority: the same for a workload that waits and for one that runs, whatever its pods say."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from kube import node, pod
from kube_gangs import owned, thing

from models.instance.gang import Gang
from planner.read.inputs import load

Tree = dict[str, Any]

KUEUE = "kueue.x-k8s.io/v1beta2"
QUEUE = {"kueue.x-k8s.io/queue-name": "main"}
CLASSED = {**QUEUE, "kueue.x-k8s.io/priority-class": "prod"}
PROD: Tree = {
    "apiVersion": KUEUE,
    "kind": "WorkloadPriorityClass",
    "metadata": {"name": "prod"},
    "value": 1000,
}
INDEX = "batch.kubernetes.io/job-completion-index"


def gangs(*trees: Tree) -> dict[str, Gang]:
    nodes = [node(f"n{n}") for n in range(1, 5)]
    bundle = {"apiVersion": "v1", "kind": "List", "items": [*nodes, *trees]}
    found = load(["-"], schedulers=("*",), stdin=io.BytesIO(json.dumps(bundle).encode()))
    return {gang.name: gang for gang in found.instance.gangs}


def workload(name: str, owner: Tree | None, *conditions: str, **spec: object) -> Tree:
    """Kueue's Workload of an owner, as its reconciler names and fills it."""
    made = thing("Workload", KUEUE, name, {"queueName": "main", "podSets": [], **spec})
    made["status"] = {"conditions": [{"type": one, "status": "True"} for one in conditions]}
    if owner is None:
        return made
    return owned(made, owner["kind"], owner["apiVersion"], owner["metadata"]["name"])


def job(*, suspend: bool, labels: Tree) -> Tree:
    container = {"name": "main", "resources": {"requests": {"nvidia.com/gpu": "8"}}}
    spec = {
        "suspend": suspend,
        "parallelism": 2,
        "completions": 2,
        "completionMode": "Indexed",
        "template": {"spec": {"containers": [container]}},
    }
    return thing("Job", "batch/v1", "vit", spec, labels=labels)


def pods(owner: Tree, **spec: object) -> list[Tree]:
    """Two running pods of an owner; ``spec``: further fields."""
    found = [
        pod(f"vit-{n}", gpus=8, on=f"n{n + 1}", labels={INDEX: str(n)}, **spec) for n in (0, 1)
    ]
    return [
        owned(one, owner["kind"], owner["apiVersion"], owner["metadata"]["name"]) for one in found
    ]


ADMITTED = ("QuotaReserved", "Admitted")


@pytest.mark.parametrize("own", [0, 50, 5000])
def test_a_job_that_runs_has_the_priority_that_it_had_in_the_queue(own: int) -> None:
    """``own``: the PriorityClass of its pods, which kube-scheduler goes by; Kueue evicts by its own."""
    stated = {
        "priority": 1000,
        "priorityClassRef": {"kind": "WorkloadPriorityClass", "name": "prod"},
    }
    made = job(suspend=True, labels=CLASSED)
    waits = gangs(made, PROD, workload("job-vit-a1b2c", made, **stated))
    assert {one.priority for one in waits.values()} == {1000}
    made = job(suspend=False, labels=CLASSED)
    runs = gangs(
        made, PROD, workload("job-vit-a1b2c", made, *ADMITTED, **stated), *pods(made, priority=own)
    )
    assert runs["vit"].running
    assert runs["vit"].priority == 1000


@pytest.mark.parametrize(
    "stated",
    [
        {
            "priorityClassRef": {
                "group": "kueue.x-k8s.io",
                "kind": "WorkloadPriorityClass",
                "name": "prod",
            }
        },
        {
            "priorityClassName": "prod",
            "priorityClassSource": "kueue.x-k8s.io/workloadpriorityclass",
        },
        {},  # the label of the Job names the class
    ],
)
def test_a_workload_without_a_number_has_that_of_its_class(stated: Tree) -> None:
    made = job(suspend=False, labels=CLASSED)
    found = gangs(made, PROD, workload("job-vit-a1b2c", made, *ADMITTED, **stated), *pods(made))
    assert found["vit"].priority == 1000


def test_the_workload_is_that_of_the_owner_of_the_controller() -> None:
    """Of a RayCluster its RayJob, of a JobSet its TrainJob."""
    ray = thing("RayJob", "ray.io/v1", "tune", {"rayClusterSpec": {}})
    cluster = thing("RayCluster", "ray.io/v1", "tune-x7k2p", {"headGroupSpec": {}})
    labels = {"ray.io/cluster": "tune-x7k2p", "ray.io/node-type": "head"}
    head = owned(
        pod("tune-x7k2p-head", gpus=8, on="n1", labels=labels),
        "RayCluster",
        "ray.io/v1",
        "tune-x7k2p",
    )
    found = gangs(
        ray,
        owned(cluster, "RayJob", "ray.io/v1", "tune"),
        head,
        workload("rayjob-tune-1", ray, *ADMITTED, priority=40),
    )
    assert found["tune"].priority == 40
    train = thing("TrainJob", "trainer.kubeflow.org/v1alpha1", "llama", {})
    node_job = {"parallelism": 1, "completions": 1}
    spec = {"replicatedJobs": [{"name": "node", "replicas": 1, "template": {"spec": node_job}}]}
    jobset = thing("JobSet", "jobset.x-k8s.io/v1alpha2", "llama", spec)
    labels = {
        "jobset.sigs.k8s.io/jobset-name": "llama",
        "jobset.sigs.k8s.io/replicatedjob-name": "node",
    }
    worker = pod("llama-node-0-0", gpus=8, on="n2", labels={**labels, INDEX: "0"})
    found = gangs(
        train,
        owned(jobset, "TrainJob", "trainer.kubeflow.org/v1alpha1", "llama"),
        owned(worker, "Job", "batch/v1", "llama-node-0"),
        workload("trainjob-llama-1", train, *ADMITTED, priority=41),
    )
    assert found["llama"].priority == 41


def test_a_class_that_kueue_did_not_read_raises_nobody() -> None:
    """Where Workloads are in the input, a Job without one is not Kueue's: its label is only a label."""
    made = job(suspend=False, labels=CLASSED)
    other = thing("Job", "batch/v1", "other", {"suspend": True}, labels=QUEUE)
    elsewhere = workload("job-other-1", other, priority=1)
    assert gangs(made, PROD, elsewhere, *pods(made))["vit"].priority == 0
    # Without any Workload, as in some lists of kubectl, the label of a queued Job is what is known ...
    assert gangs(made, PROD, *pods(made))["vit"].priority == 1000
    # ... and that of a Job in no queue counts for nothing.
    made["metadata"]["labels"].pop("kueue.x-k8s.io/queue-name")
    assert gangs(made, PROD, *pods(made))["vit"].priority == 0


@pytest.mark.parametrize(("priority", "said"), [(0, True), (5, False)])
def test_a_plan_says_that_an_admitted_gang_waits_for_one_that_kueue_suspends(
    cli: RunCli, tmp_path: Path, priority: int, said: bool
) -> None:
    file = tmp_path / "input.yaml"
    file.write_text(
        f"""\
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {{name: c}}
spec: {{nodes: [{{name: "n[1-3]", model: dgx-h100}}]}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Queue
metadata: {{name: team}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {{name: admitted}}
spec: {{queue: team, roles: [{{name: worker, replicas: 2, gpus: 8}}]}}
status:
  scheduler: default-scheduler
  pods:
  - {{name: admitted-worker-0, role: worker, index: 0}}
  - {{name: admitted-worker-1, role: worker, index: 1}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {{name: suspended}}
spec: {{queue: team, priority: {priority}, roles: [{{name: worker, replicas: 3, gpus: 8}}]}}
status: {{scheduler: kueue}}
"""
    )
    # 24 GPUs start rather than 16; one of higher priority would go first in Kueue, too
    shown = " ".join(cli("plan", str(file), "--budget", "1").out.split())
    assert ("default/admitted waits while default/suspended starts, which Kueue" in shown) == said
