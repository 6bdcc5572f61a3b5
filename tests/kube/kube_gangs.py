"""Pods for tests of gangs, read from few fields, so that only gangs are tested."""

from __future__ import annotations

from typing import Any

from kube import objects as gathered

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.gangs.gangs import read_gangs
from planner.read.kube.lookup import at, number, objects, text, whole
from planner.read.kube.records import KubeGang, KubeObject, KubePod, LevelAsk, Objects

POLICY = KubernetesPolicy()
TRUSTING = KubernetesPolicy(trust_submitted_at=True)


def simple_pod(found: KubeObject) -> KubePod:
    """A pod as its own fields tell of it: GPUs as its containers request them, no holdings."""
    tree = found.tree
    phase, node = text(tree, "status", "phase"), text(tree, "spec", "nodeName")
    gates = tuple(
        name for gate in objects(tree, "spec", "schedulingGates") if (name := text(gate, "name"))
    )
    scheduler = text(tree, "spec", "schedulerName") or "default-scheduler"
    finished = phase if phase in {"Succeeded", "Failed"} else None
    gated = POLICY.scheduling_gate in gates
    waits = node is None and finished is None
    planned = waits and gated
    return KubePod(
        object=found,
        node=node,
        bound=node is not None and finished is None,
        finished=finished,
        terminating=text(tree, "metadata", "deletionTimestamp") is not None,
        queued=waits,
        planned=planned,
        mode="gate" if planned else None,
        gates=gates,
        scheduler=scheduler,
        priority=whole(tree, "spec", "priority") or 0,
        wants_gpus=any(_gpus(one) for one in objects(tree, "spec", "containers")),
        gpus=sum(_gpus(container) for container in objects(tree, "spec", "containers")),
        gpu_resource="nvidia.com/gpu",
        requests={},
    )


def _gpus(container: dict[str, Any]) -> int:
    asked = at(container, "resources", "requests", "nvidia.com/gpu")
    return number(asked if isinstance(asked, str) else None) or 0


def simple_pods(found: Objects) -> list[KubePod]:
    return [simple_pod(one) for one in found.of("Pod", "")]


def read(
    *trees: dict[str, Any], policy: KubernetesPolicy = POLICY
) -> tuple[dict[str, KubeGang], Remarks]:
    """The gangs of these objects by name, and what was remarked."""
    return read_all(gathered(*trees), policy)


def read_all(
    found: Objects, policy: KubernetesPolicy = POLICY
) -> tuple[dict[str, KubeGang], Remarks]:
    remarks = Remarks()
    gangs = read_gangs(found, simple_pods(found), policy, remarks)
    assert [(one.namespace, one.name) for one in gangs] == sorted(
        {(one.namespace, one.name) for one in gangs}
    )
    return {one.name: one for one in gangs}, remarks


def level(ask: LevelAsk | None) -> str | None:
    """A level as tests/expected names it; the lowest tier of these snapshots is 1."""
    if ask is None or ask.label is not None:
        return ask.label if ask is not None else None
    return f"hypernode-tier-{ask.tier or 1}"


def seats(gang: KubeGang) -> dict[str, tuple[str, int]]:
    """(role, index) by the name of the pod."""
    return {pod.name: (role.name, index) for role in gang.roles for index, pod in role.members}


def sizes(gang: KubeGang) -> list[tuple[str, int, int]]:
    """(role, size, first index) of every role, in order."""
    return [(role.name, role.size, role.first_index) for role in gang.roles]


def thing(kind: str, version: str, name: str, spec: object, **metadata: object) -> dict[str, Any]:
    """An object of the namespace ``default``, made two hours before the pods of ``kube.pod``."""
    return {
        "apiVersion": version,
        "kind": kind,
        "metadata": {
            "name": name,
            "namespace": "default",
            "uid": f"uid-{kind}-{name}",
            "creationTimestamp": "2026-11-20T06:00:00Z",
            **metadata,
        },
        "spec": spec,
    }


def owned(tree: dict[str, Any], kind: str, version: str, name: str) -> dict[str, Any]:
    """The same object with a controller."""
    tree["metadata"]["ownerReferences"] = [
        {
            "apiVersion": version,
            "kind": kind,
            "name": name,
            "uid": f"uid-{kind}-{name}",
            "controller": True,
        }
    ]
    return tree
