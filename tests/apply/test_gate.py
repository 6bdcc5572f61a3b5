"""The gate of ``deploy/gate``: which pods get it, and what ``gangplan doctor`` says of it.

The policy's own expressions, run by Google's CEL; ``test_live_gate.py`` asks a real API server.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from admission import gates
from apiserver import FakeCluster
from apiserver_http import FakeWire
from deploying import TENANT, USER, a_cluster, built, grant

from models.documents.policy import GPU_RESOURCES
from models.instance.policy import KubernetesPolicy
from planner.cli.doctor_checks import Finding, check_gate
from planner.cluster.live_view import ClusterReader
from planner.cluster.rights import GATE
from planner.cluster.start_records import StartRecords
from planner.read.kube.dialect_registry import gpu_systems

Tree = dict[str, Any]

CASES = yaml.load(
    Path(__file__).with_name("gate_cases.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)
QUEUES = {"gangplan.dev/placement-queues": "research, vision,"}


def pod(case: Tree) -> Tree:
    """The pod that a case describes."""
    metadata: Tree = {name: case[name] for name in ("labels", "annotations") if name in case}
    if "owner" in case:
        metadata["ownerReferences"] = [{"kind": case["owner"], "name": "o", "controller": True}]
    spec = {"containers": [{"name": "c", "resources": case.get("container", {})}]}
    if "init" in case:
        spec["initContainers"] = [{"name": "i", "resources": case["init"]}]
    return {"metadata": {"name": "p", **metadata}, "spec": spec | case.get("spec", {})}


@pytest.mark.parametrize(
    ("queues", "gated", "name"),
    [
        (queues, gated, name)
        for queues in ("all", "some")
        for gated in (True, False)
        for name in CASES[queues][gated]
    ],
)
def test_pods_with_gpus_of_the_queues_that_opted_in_get_the_gate(
    queues: str, gated: bool, name: str
) -> None:
    annotations = {} if queues == "all" else QUEUES
    case = CASES[queues][gated][name]
    assert gates(pod(case), annotations, case.get("by", "tenant")) is gated


@pytest.mark.parametrize(
    "name", sorted({*GPU_RESOURCES, *(part for one in gpu_systems() for part in one.parts)})
)
def test_every_resource_that_planning_takes_for_gpus_gets_the_gate(name: str) -> None:
    assert gates(pod({"container": {"limits": {name: "1"}}}), {}, "tenant")


def opt_in(cluster: FakeCluster, annotations: Tree) -> None:
    space = cluster.objects.get(cluster.kinds.named("Namespace"), "", TENANT)
    labels = {"gangplan.dev/placement": "enabled"}
    space["metadata"] |= {"labels": labels, "annotations": annotations}


def examined(cluster: FakeCluster) -> list[Finding]:
    """What doctor finds as the shipped account."""
    wire, settings = FakeWire(cluster, USER), KubernetesPolicy()
    records = StartRecords(wire, "gangplan-system", optional=True)
    view = ClusterReader(wire, settings, records).read_view()
    return list(check_gate(wire, view, settings))


@pytest.mark.parametrize("name", CASES["doctor"])
def test_doctor_says_how_the_gate_stands(name: str) -> None:
    case, cluster = CASES["doctor"][name], a_cluster()
    kind, old, new = case.get("replace", ("", "", ""))
    for tree in built("gate") if case.get("installed", True) else ():
        if tree["kind"].startswith("Mutating"):
            text = json.dumps(tree)
            assert old in text or tree["kind"] != kind
            cluster.put(json.loads(text.replace(old, new) if tree["kind"] == kind else text))
    if case.get("labelled"):
        opt_in(
            cluster, {"gangplan.dev/placement-queues": case["queues"]} if "queues" in case else {}
        )
    if not case.get("served", True):
        gone = [one for one in cluster.kinds.all if one.name.startswith("Mutating")]
        cluster.kinds.all = [one for one in cluster.kinds.all if one not in gone]
    if case.get("without"):
        grant(cluster, without=GATE[0])
    (found,) = examined(cluster)
    assert (found.check, found.level) == ("gate", case["level"])
    assert found.found.startswith(case["says"])
    assert (found.hint is None) == (case["level"] == "ok")


def test_doctor_names_pods_that_the_gate_came_too_late_for() -> None:
    cluster = a_cluster()
    for tree in built("gate"):
        cluster.put(tree)
    for name, gpus in (("late", 2), ("cpu", 0)):
        cluster.add_pod(name, TENANT, gpus=gpus, gates=[])
    cluster.add_pod("elsewhere", "default", gpus=2, gates=[])
    opt_in(cluster, {})
    _, found = examined(cluster)
    assert (found.level, found.found) == (
        "warn",
        f"1 pod with GPUs left to another scheduler: {TENANT}/late",
    )
    opt_in(cluster, {"gangplan.dev/placement-queues": "research"})
    assert len(examined(cluster)) == 1  # it may be of another queue
