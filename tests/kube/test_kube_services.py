"""Services: which gangs of Kubernetes objects are replicas of one controller."""

from __future__ import annotations

from typing import Any

import pytest
from bundles import load_all
from kube import node, pod
from kube_gangs import owned, read, thing

from planner.read.instance_builder import LoadedInput

Tree = dict[str, Any]


def replica(
    name: str,
    kind: str,
    version: str,
    owner: str,
    *,
    namespace: str = "default",
    on: str | None = None,
    labels: dict[str, str] | None = None,
    annotations: dict[str, str] | None = None,
) -> Tree:
    """A pod with GPUs of a controller; it waits unless it is ``on`` a node."""
    made = pod(
        name,
        gpus=2,
        namespace=namespace,
        on=on,
        gated=on is None,
        labels=labels,
        annotations=annotations,
    )
    return owned(made, kind, version, owner)


def replica_set(name: str, deployment: str | None = None) -> Tree:
    made = thing("ReplicaSet", "apps/v1", name, {"replicas": 2})
    return owned(made, "Deployment", "apps/v1", deployment) if deployment else made


def services(*objects: Tree) -> dict[str, str | None]:
    """The service of every gang of the instance, by name."""
    return {gang.name: gang.service for gang in built(*objects).instance.gangs}


def built(*objects: Tree) -> LoadedInput:
    return load_all([node("n1"), *objects])


def test_pods_of_a_deployment_are_one_service_whichever_replica_set_made_them() -> None:
    label = {"pod-template-hash": "6f8d"}
    pods = [
        replica("llm-1", "ReplicaSet", "apps/v1", "llm-server-old", on="n1"),
        replica("llm-2", "ReplicaSet", "apps/v1", "llm-server-6f8d", labels=label),
        replica("other", "ReplicaSet", "apps/v1", "lone"),
    ]
    objects = [replica_set("llm-server-old", "llm-server"), replica_set("lone")]
    assert services(*objects, *pods) == {
        "llm-1": "Deployment/llm-server",
        "llm-2": "Deployment/llm-server",
        "other": "ReplicaSet/lone",
    }


@pytest.mark.parametrize(
    ("name", "hash_", "service"),
    [
        ("llm-server-6f8d", "6f8d", "Deployment/llm-server"),
        ("llm-server-6f8d", "", "ReplicaSet/llm-server-6f8d"),
        ("llm-server-6f8d", "8d", "ReplicaSet/llm-server-6f8d"),
        ("6f8d", "6f8d", "ReplicaSet/6f8d"),
        ("-6f8d", "6f8d", None),
    ],
)
def test_a_deployment_is_known_by_the_hash_in_the_name_of_its_replica_set(
    name: str, hash_: str, service: str | None
) -> None:
    made = replica("a", "ReplicaSet", "apps/v1", name, labels={"pod-template-hash": hash_})
    orphan = replica_set(name)  # as recorded: nothing says who owns it
    assert services(made) == services(orphan, made) == {"a": service}


VOLCANO = ("scheduling.volcano.sh/v1beta1", "scheduling.k8s.io/group-name")
KAI = ("scheduling.run.ai/v2alpha2", "pod-group-name")
TIER = {"networkTopology": {"mode": "hard", "highestTierAllowed": 1}}
LEVEL = {"topologyConstraint": {"requiredTopologyLevel": "example.com/rack"}}


@pytest.mark.parametrize(
    ("dialect", "required", "kind"),
    [
        (VOLCANO, {}, "Pod"),
        (VOLCANO, TIER, "PodGroup"),
        (KAI, {}, "Pod"),
        (KAI, LEVEL, "PodGroup"),
    ],
)
def test_a_group_of_one_that_a_scheduler_makes_for_a_replica_keeps_its_service(
    dialect: tuple[str, str], required: Tree, kind: str
) -> None:
    """Volcano and KAI put every pod of a Deployment into a group of its own."""
    version, key = dialect
    names = ("g-0", "g-1")
    groups = [thing("PodGroup", version, name, {"minMember": 1, **required}) for name in names]
    pods = [
        replica(f"pod-{name}", "StatefulSet", "apps/v1", "s", annotations={key: name})
        for name in names
    ]
    gangs, _ = read(*groups, *pods)
    assert [gang.kind for gang in gangs.values()] == [kind] * 2
    assert [gang.service for gang in gangs.values()] == ["StatefulSet/s"] * 2


@pytest.mark.parametrize("replicas", [1, 2])
def test_the_groups_of_a_leader_worker_set_are_replicas_of_one_service(replicas: int) -> None:
    spec = {"replicas": replicas, "leaderWorkerTemplate": {"size": 2}}
    made = thing("LeaderWorkerSet", "leaderworkerset.x-k8s.io/v1", "lws", spec)
    prefix = "leaderworkerset.sigs.k8s.io"
    pods = [
        pod(name, gpus=2, gated=True, labels={
            f"{prefix}/name": "lws",
            f"{prefix}/group-index": str(group),
            f"{prefix}/worker-index": str(index),
        })
        for group in range(replicas)
        for index, name in enumerate((f"lws-{group}", f"lws-{group}-1"))
    ]  # fmt: skip
    found = services(made, *pods)
    assert len(found) == replicas
    assert set(found.values()) == {"LeaderWorkerSet/lws"}
