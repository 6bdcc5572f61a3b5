"""Kubernetes objects that live tests create, valid on any real API server: nodes and pods of gangs."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

Tree = dict[str, Any]

GATE = "gangplan.dev/placement"
MARK = "gangplan-test"
"""Label of everything we make; its value is the test run's."""
TAINT = "example.com/gangplan-test"
"""On each of our nodes: no pod of anybody else comes there."""
LEASES = "kube-node-lease"
LEASE_PATH = "/apis/coordination.k8s.io/v1/namespaces/{}/leases/gangplan"
"""Of the lock, in that namespace."""
HIGH = 1000
"""Priority of gangs that others may have to give way to."""


@dataclass(frozen=True, slots=True)
class Wanted:
    """A gang of plain pods, ``NAME-0`` and on. ``mode``: gate or rival.

    Or rival: pods of the cluster's own scheduler, bound to ``node`` as they are made if it is given.
    ``high``: of our PriorityClass.
    """

    name: str
    pods: int
    gpus: int
    mode: str = "gate"
    node: str | None = None
    high: bool = False
    preemptible: bool = False
    movable: bool = False


def ten_gangs() -> list[Wanted]:
    """Ten gangs that fill seven nodes of 8 GPUs to the last one, three of them over two nodes each.

    2 x 8; 2 x 5, 2 x 5 and six times 2 x 1; 2 x 4: 16 + 20 + 12 + 8 = 56 GPUs.
    """
    wide = [Wanted("wide", 2, 8), Wanted("five-a", 2, 5), Wanted("five-b", 2, 5)]
    small = [Wanted(f"small-{letter}", 2, 1) for letter in "abcdef"]
    return [*wide, *small, Wanted("half", 2, 4)]


def namespace(name: str, run: str) -> Tree:
    return {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": name, "labels": {MARK: run}},
    }


def high_class(run: str) -> str:
    return f"{run}-high"


def priority_class(run: str) -> Tree:
    return {
        "apiVersion": "scheduling.k8s.io/v1",
        "kind": "PriorityClass",
        "metadata": {"name": high_class(run), "labels": {MARK: run}},
        "value": HIGH,
        "preemptionPolicy": "Never",
    }


def node(name: str, run: str, *, gpus: int = 8) -> Tree:
    """A Node as a kubelet would register it."""
    amounts = {"cpu": "64", "memory": "512Gi", "pods": "110", "nvidia.com/gpu": str(gpus)}
    ready = {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "a test"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {"kubernetes.io/hostname": name, MARK: run}},
        "spec": {"taints": [{"key": TAINT, "value": run, "effect": "NoSchedule"}]},
        "status": {"capacity": amounts, "allocatable": amounts, "conditions": [ready]},
    }


def node_lease(name: str, renewed: str) -> Tree:
    """What a kubelet renews so that its node counts as alive. ``renewed``: RFC 3339 with microseconds."""
    return {
        "apiVersion": "coordination.k8s.io/v1",
        "kind": "Lease",
        "metadata": {"name": name, "namespace": LEASES},
        "spec": {"holderIdentity": name, "leaseDurationSeconds": 40, "renewTime": renewed},
    }


def pods(gang: Wanted, namespace: str, run: str) -> list[Tree]:
    return [_pod(gang, index, namespace, run) for index in range(gang.pods)]


def _pod(gang: Wanted, index: int, namespace: str, run: str) -> Tree:
    amounts = {"cpu": "1", "memory": "1Gi", "nvidia.com/gpu": str(gang.gpus)}
    spec: Tree = {
        "containers": [
            {
                "name": "main",
                "image": "registry.invalid/nothing:1",
                "resources": {"requests": amounts, "limits": amounts},
            }
        ],
        "terminationGracePeriodSeconds": 0,
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "tolerations": [{"key": TAINT, "operator": "Exists"}],
    }
    if gang.mode == "gate":
        spec["schedulingGates"] = [{"name": GATE}]
    if gang.high:
        spec |= {"priorityClassName": high_class(run), "priority": HIGH}
    metadata: Tree = {
        "name": f"{gang.name}-{index}",
        "namespace": namespace,
        "labels": {MARK: run, "gang": gang.name},
    }
    if gang.mode == "rival":
        spec["nodeSelector"] = {MARK: run}
        if gang.node is not None:
            spec["nodeName"] = gang.node
    else:
        metadata["labels"]["gangplan.dev/gang"] = gang.name
        marks = {"preemptible": gang.preemptible, "movable": gang.movable}
        notes = {f"gangplan.dev/{mark}": "true" for mark, holds in marks.items() if holds}
        metadata["annotations"] = notes
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def workload(
    kind: str, gang: Wanted, run: str, *, least: int, most: int, on_template: bool = False
) -> Tree:
    """A Deployment or StatefulSet of so many pods that are one elastic gang.

    ``on_template``: the range stands on the pods, else on the controller.
    """
    pod = _pod(gang, 0, "", run)
    kept = {"gangplan.dev/preemptible": "true"} if gang.preemptible else {}
    stated = {"gangplan.dev/min": str(least), "gangplan.dev/max": str(most)}
    labels = pod["metadata"]["labels"]
    spec: Tree = {
        "replicas": gang.pods,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": stated if on_template else {}},
            "spec": pod["spec"] | {"restartPolicy": "Always"},
        },
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": gang.name, "podManagementPolicy": "Parallel"}
    notes = kept if on_template else kept | stated
    metadata = {"name": gang.name, "labels": {MARK: run}, "annotations": notes}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


def policy(run: str) -> Tree:
    """Only our nodes, whatever else is in the cluster; gangs count that are slow, since no node has a NIC."""
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"preset": "admission", "nodeSelector": {MARK: run}, "kubernetes": {"levels": []}},
    }


def budget(name: str, namespace: str, gang: str, **spec: object) -> Tree:
    """A disruption budget over the pods of a gang."""
    return {
        "apiVersion": "policy/v1",
        "kind": "PodDisruptionBudget",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {"selector": {"matchLabels": {"gang": gang}}, **spec},
    }


def listed(items: Sequence[Tree]) -> Tree:
    return {"apiVersion": "v1", "kind": "List", "items": list(items)}
