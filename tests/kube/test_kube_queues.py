"""Queues of Kueue, KAI, Volcano and scheduler-plugins as queues of the instance."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kube
import pytest
from bundles import packed

from models.instance.queue import Queue
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.read.kube import queues
from planner.read.kube.dialects import kueue_quotas, scheduler_plugins

Tree = dict[str, Any]
GPU = "nvidia.com/gpu"
H100 = {"pool": "h100", "nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3"}
A100 = {"pool": "a100", "nvidia.com/gpu.product": "NVIDIA-A100-SXM4-80GB"}
NODES = [kube.node("h1", **H100), kube.node("h2", **H100), kube.node("a1", **A100)]


def thing(
    version: str, kind: str, name: str, spec: Tree, namespace: str = "", **about: object
) -> Tree:
    metadata = {"name": name, **({"namespace": namespace} if namespace else {}), **about}
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def kueue(kind: str, name: str, spec: Tree, namespace: str = "", version: str = "v1beta2") -> Tree:
    return thing(f"kueue.x-k8s.io/{version}", kind, name, spec, namespace)


def groups(*amounts: tuple[str, Tree]) -> list[Tree]:
    """Resource groups with quotas of GPUs by flavor, beside some of cpu."""
    cpu = {"name": "cpu", "nominalQuota": "100"}
    flavors = [{"name": of, "resources": [cpu, {"name": GPU, **quota}]} for of, quota in amounts]
    return [{"coveredResources": ["cpu", GPU], "flavors": flavors}]


FLAVORS = [
    kueue("ResourceFlavor", "h100", {"nodeLabels": {"pool": "h100"}}),
    kueue("ResourceFlavor", "a100", {"nodeLabels": {"pool": "a100"}}, version="v1beta1"),
    kueue("ResourceFlavor", "any", {}),
]


def wanting(name: str, namespace: str = "research", **labels: str) -> Tree:
    """A waiting pod of one GPU, which is a gang."""
    return kube.pod(name, namespace=namespace, gpus=1, gated=True, labels=labels)


def read(tmp_path: Path, *trees: Tree) -> LoadedInput:
    path = tmp_path / "in.json"
    items = [*NODES, *trees]
    path.write_bytes(packed(items))
    return load([str(path)])


def by_name(found: LoadedInput) -> dict[str, Queue]:
    return {queue.name: queue for queue in found.instance.queues}


def queue_of(found: LoadedInput) -> dict[str, str | None]:
    return {gang.name: gang.queue for gang in found.instance.gangs}


def parent(found: LoadedInput, name: str) -> str | None:
    above = by_name(found)[name].parent
    return None if above is None else found.instance.queues[above].name


def said(found: LoadedInput, what: str) -> bool:
    return any(what in line for line in found.remarks)


def kai(name: str, above: str | None = None, **gpu: float) -> Tree:
    spec: Tree = {"resources": {"gpu": gpu, "cpu": {"quota": -1, "limit": -1}}}
    return thing(
        "scheduling.run.ai/v2", "Queue", name, spec | {"parentQueue": above} if above else spec
    )


def elastic(name: str, namespace: str, spec: Tree) -> Tree:
    return thing(f"{scheduler_plugins.GROUP}/v1alpha1", "ElasticQuota", name, spec, namespace)


MINE = elastic("mine", "research", {"min": {GPU: 20}, "max": {GPU: 4}})


def test_circles_and_towers_of_parents_are_cut(tmp_path: Path) -> None:
    tower = [kai(f"t{i}", f"t{i + 1}", quota=1) for i in range(queues.MAX_DEPTH + 2)]
    found = read(
        tmp_path,
        kai("a", "b", quota=1),
        kai("b", "a", quota=1),
        kai("c", "lost", quota=1),
        kueue("Cohort", "x", {"parentName": "y"}),
        kueue("Cohort", "y", {"parent": "x"}, version="v1alpha1"),
        kueue("ClusterQueue", "in-x", {"cohortName": "x"}),
        *tower,
    )
    assert sorted(filter(None, (parent(found, name) for name in "ab"))) in (["a"], ["b"])
    assert parent(found, "c") is None
    assert sorted(filter(None, (parent(found, f"cohort-{name}") for name in "xy"))) in (
        ["cohort-x"],
        ["cohort-y"],
    )
    heights = []
    for queue in found.instance.queues:
        at, height = queue.parent, 0
        while at is not None:
            at, height = found.instance.queues[at].parent, height + 1
        heights.append(height)
    assert max(heights) == queues.MAX_DEPTH
    for what in (queues.CIRCLE, queues.TOO_DEEP, queues.NO_PARENT, kueue_quotas.CIRCLE):
        assert said(found, what), what


def test_queues_beyond_the_bound_are_left_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(queues, "MAX_QUOTAS", 2)
    found = read(
        tmp_path,
        MINE,
        *(kai(name, quota=1) for name in ("a", "b", "c")),
        wanting("one", **{"kai.scheduler/queue": "c"}),
        wanting("two"),
    )
    assert set(by_name(found)) == {"a", "b"}
    assert queue_of(found) == {"one": "c", "two": None}  # a name that limits nothing
    assert said(found, queues.TOO_MANY)
