"""Tenants who try to take what a queue is guaranteed, or room that is held, with gangs that can never start.

Two servers of 8 GPUs. Borrowers that may be stopped run on both. The queue of the victim is guaranteed the
8 GPUs that the victim asks for; the attacker comes before it in the order of the queue.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from itertools import product
from typing import Any

import pytest
from bundles import load_all
from effort import spread

from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.reason_words import words

Tree = dict[str, Any]
GPU = "nvidia.com/gpu"
NOW = "2026-11-23T12:00:00Z"
LABELS = {
    "gangplan": "kai.scheduler/queue",
    "kueue": "kueue.x-k8s.io/queue-name",
    "volcano": "volcano.sh/queue-name",
    "kai": "kai.scheduler/queue",
}
"""By which a pod names its queue."""

SYSTEMS = tuple(LABELS)


def thing(version: str, kind: str, name: str, spec: Tree, namespace: str | None = None) -> Tree:
    metadata = {"name": name} | ({"namespace": namespace} if namespace else {})
    return {"apiVersion": version, "kind": kind, "metadata": metadata, "spec": spec}


def queues(system: str) -> list[Tree]:
    """Queue v, guaranteed 8 GPUs, and sister, guaranteed none, with one parent where the system has them."""
    if system == "gangplan":
        return [
            thing("gangplan.dev/v1alpha1", "Queue", "top", {}),
            thing(
                "gangplan.dev/v1alpha1", "Queue", "v", {"parent": "top", "guarantee": {"gpus": 8}}
            ),
            thing("gangplan.dev/v1alpha1", "Queue", "sister", {"parent": "top"}),
        ]
    if system == "kueue":
        found = [thing("kueue.x-k8s.io/v1beta2", "ResourceFlavor", "any", {})]
        for name, gpus in (("v", 8), ("sister", 0)):
            resources = [{"name": GPU, "nominalQuota": gpus}]
            groups = [
                {"coveredResources": [GPU], "flavors": [{"name": "any", "resources": resources}]}
            ]
            found += [
                thing(
                    "kueue.x-k8s.io/v1beta2",
                    "ClusterQueue",
                    name,
                    {
                        "cohort": "all",
                        "namespaceSelector": {},
                        "preemption": {"reclaimWithinCohort": "Any"},
                        "resourceGroups": groups,
                    },
                ),
                thing("kueue.x-k8s.io/v1beta2", "LocalQueue", name, {"clusterQueue": name}, "t"),
            ]
        return found
    if system == "volcano":
        version = "scheduling.volcano.sh/v1beta1"
        return [
            thing(
                version, "Queue", "v", {"guarantee": {"resource": {GPU: "8"}}, "deserved": {GPU: 8}}
            ),
            thing(version, "Queue", "sister", {}),
        ]
    cpu = {"quota": -1, "limit": -1}
    return [
        thing("scheduling.run.ai/v2", "Queue", name, {"resources": {"gpu": gpu, "cpu": cpu}})
        for name, gpu in (("v", {"quota": 8, "limit": -1}), ("sister", {"quota": 0, "limit": -1}))
    ]


def node(name: str) -> Tree:
    amounts = {"cpu": "96", "memory": "1Ti", "pods": "110", GPU: "8"}
    labels = {"nvidia.com/gpu.product": "NVIDIA-H100-80GB-HBM3", "kubernetes.io/hostname": name}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": labels},
        "spec": {},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def pod(
    name: str, system: str, queue: str | None, *, on: str | None = None, priority: int = 0
) -> Tree:
    """A gang of one pod with 8 GPUs; one that runs may be stopped."""
    labels = {"app": name} | ({} if queue is None else {LABELS[system]: queue})
    requests = {"cpu": "4", GPU: "8"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name,
            "namespace": "t",
            "uid": f"uid-{name}",
            "creationTimestamp": "2026-11-20T08:00:00Z",
            "labels": labels,
            "annotations": {"gangplan.dev/preemptible": "true"} if on else {},
        },
        "spec": {
            "containers": [
                {"name": "main", "resources": {"requests": requests, "limits": {GPU: "8"}}}
            ],
            "priority": priority,
            **({"nodeName": on} if on else {}),
            **({} if on else {"schedulingGates": [{"name": "gangplan.dev/placement"}]}),
        },
        "status": {"phase": "Running" if on else "Pending"},
    }


def selector(spec: Tree) -> None:
    spec["nodeSelector"] = {"disk": "none"}


def cpu(spec: Tree) -> None:
    spec["containers"][0]["resources"]["requests"]["cpu"] = "5000"


def gpus(spec: Tree) -> None:
    for amounts in spec["containers"][0]["resources"].values():
        amounts[GPU] = "9"


NEVER: dict[str, Callable[[Tree], None]] = {
    "selector": selector,
    "cpu above any node": cpu,
    "more GPUs than a node has": gpus,
}


def read(*trees: Tree) -> LoadedInput:
    return load_all(trees, now=1795435200)


def decisions(found: LoadedInput) -> dict[str, Tree]:
    """What the plan says of each gang, by name; the judge agrees."""
    solution = solve(found.instance)
    plan = compose(found.instance, solution, words, name="p", created_at=NOW, generator="test")
    assert check(plan) == []
    return {one["name"]: one for one in plan["spec"]["gangs"]}


def cluster(system: str, *more: Tree, borrowing: str | None = None) -> LoadedInput:
    """The victim beside two borrowers; ``borrowing``: the queue in which they are."""
    borrowers = [pod(f"borrower-{i}", system, borrowing, on=f"n{i}") for i in range(2)]
    return read(
        node("n0"),
        node("n1"),
        *queues(system),
        *borrowers,
        pod("victim", system, "v"),
        *copy.deepcopy(more),
    )


def attacker(system: str, queue: str | None, spoil: Callable[[Tree], None]) -> Tree:
    found = pod("attacker", system, queue, priority=5)
    spoil(found["spec"])
    return found


ATTACKS = list(product(SYSTEMS, NEVER, ("v", "sister")))


@pytest.mark.parametrize(("system", "attack", "queue"), spread(ATTACKS, 5))
def test_who_can_never_start_uses_up_no_guarantee(system: str, attack: str, queue: str) -> None:
    before = decisions(cluster(system))
    after = decisions(cluster(system, attacker(system, queue, NEVER[attack])))
    assert before["victim"]["decision"] == after["victim"]["decision"] == "place"
    assert after["attacker"]["decision"] == "wait"
    # nobody asks of a gang that no guarantee is left for whether rules about pods let it start
    codes = {"Never"} | ({"Affinity", "Quota"} if queue == "sister" else set())
    # what runs may be where it could not start, so that nothing is proven next to it
    assert after["attacker"]["reason"]["code"] in codes


def cordoned() -> list[Tree]:
    down = node("n2")
    down["spec"]["unschedulable"] = True
    return [down]


def daemons() -> list[Tree]:
    """A DaemonSet that takes port 80 and a core of each node."""
    found = [thing("apps/v1", "DaemonSet", "d", {}, "t")]
    for name in ("n0", "n1"):
        made = pod(f"daemon-{name}", "gangplan", None, on=name)
        made["metadata"]["ownerReferences"] = [
            {
                "apiVersion": "apps/v1",
                "kind": "DaemonSet",
                "name": "d",
                "controller": True,
            }
        ]
        made["spec"]["containers"] = [{"name": "d", "resources": {"requests": {"cpu": "1"}}}]
        found.append(made)
    return found


def pinned(spec: Tree) -> None:
    spec["nodeSelector"] = {"kubernetes.io/hostname": "n2"}


def nearly_all(spec: Tree) -> None:
    spec["containers"][0]["resources"]["requests"]["cpu"] = "95500m"


TODAY: dict[str, tuple[Callable[[], list[Tree]], Callable[[Tree], None]]] = {
    "a cordoned node": (cordoned, pinned),
    "the core of a daemon": (daemons, nearly_all),
}
"""What the cluster has besides, and how the attacker asks for it."""


@pytest.mark.parametrize(("system", "attack"), spread(list(product(SYSTEMS, TODAY)), 3))
def test_who_asks_for_what_nobody_gets_uses_up_no_guarantee(system: str, attack: str) -> None:
    more, spoil = TODAY[attack]
    before = decisions(cluster(system, *more()))
    after = decisions(cluster(system, *more(), attacker(system, "v", spoil)))
    assert before["victim"]["decision"] == after["victim"]["decision"] == "place"
    assert after["attacker"]["decision"] == "wait"
