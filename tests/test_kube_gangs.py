"""Gangs of the recorded snapshots are those that expected.facts lists."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest
from kube import expected, load, without_done
from kube_gangs import TRUSTING, level, read_all, seats, simple_pods, sizes

from models.units import epoch_seconds
from planner.read.kube.records import KubeGang, Objects

SNAPSHOTS = ("h100-gke", "nvl72", "v100-mpi")
KINDS = {"LWS": "LeaderWorkerSet"}


@cache
def gangs(snapshot: str) -> dict[tuple[str, str], KubeGang]:
    found, _ = read_all(load(snapshot), TRUSTING)
    return {(gang.namespace, gang.name): gang for gang in found.values()}


def facts(snapshot: str) -> list[dict[str, Any]]:
    """Those of expected.facts that are for us: all but the waiting ones of another scheduler."""
    waiting_elsewhere = {"bio-fm", "moe-pretrain-small"}
    listed = expected(snapshot)["gangs"]
    return [without_done(fact) for fact in listed if fact["name"] not in waiting_elsewhere]


def key(fact: dict[str, Any]) -> tuple[str, str]:
    return fact["namespace"], fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_the_gangs_are_those_expected_and_the_lone_pods_with_gpus(snapshot: str) -> None:
    wanted = {(key(fact), KINDS.get(fact["kind"], fact["kind"])) for fact in facts(snapshot)}
    lone = {
        ((pod["namespace"], pod["name"]), "Pod")
        for pod in expected(snapshot)["otherPods"]
        if pod["holdsGpus"]
    }
    assert {(name, gang.kind) for name, gang in gangs(snapshot).items()} == wanted | lone


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_every_pod_has_its_role_and_index(snapshot: str) -> None:
    for fact in facts(snapshot):
        wanted = {pod["name"]: (pod["role"], pod["index"]) for pod in fact["pods"]}
        assert seats(gangs(snapshot)[key(fact)]) == wanted, fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_roles_have_their_full_size_in_their_order(snapshot: str) -> None:
    for fact in facts(snapshot):
        gang = gangs(snapshot)[key(fact)]
        wanted = [(role["name"], role["replicas"]) for role in fact["roles"]]
        assert [(name, size) for name, size, _ in sizes(gang)] == wanted, fact["name"]
        for role, stated in zip(gang.roles, fact["roles"], strict=True):
            assert {pod.gpus for _, pod in role.members} == {stated["gpusPerPod"]}


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_ranks_follow_the_order_of_roles(snapshot: str) -> None:
    for fact in facts(snapshot):
        # Rank: place of the pod when all roles, each at its full size, stand in a row.
        rank, before = {}, 0
        for role in gangs(snapshot)[key(fact)].roles:
            for index, pod in role.members:
                rank[pod.name] = before + index - role.first_index
            before += role.size
        assert rank == {pod["name"]: pod["rank"] for pod in fact["pods"]}, fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_levels_are_the_gangs_own(snapshot: str) -> None:
    for fact in facts(snapshot):
        gang = gangs(snapshot)[key(fact)]
        assert level(gang.required) == fact["required"], fact["name"]
        assert level(gang.preferred) == fact["preferred"], fact["name"]
        assert [(role.required, role.preferred) for role in gang.roles] == [(None, None)] * len(
            gang.roles
        )


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_slices_are_those_asked_for(snapshot: str) -> None:
    for fact in facts(snapshot):
        wanted = [fact["slice"]] if fact["slice"] else []
        wanted += [
            {
                "size": part["subGroupSize"],
                "required": f"hypernode-tier-{part['networkTopology']['highestTierAllowed']}",
            }
            for part in fact.get("subGroups", [])
        ]
        for role in gangs(snapshot)[key(fact)].roles:
            found = [{"size": one.size, "required": level(one.level)} for one in role.slices]
            assert found == wanted, fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_priority_and_time_of_submission_are_stated(snapshot: str) -> None:
    for fact in facts(snapshot):
        gang = gangs(snapshot)[key(fact)]
        assert gang.priority == fact["priority"], fact["name"]
        assert gang.submitted_at == epoch_seconds(fact["submittedAt"]), fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_running_gangs_have_a_pod_that_stands(snapshot: str) -> None:
    for fact in facts(snapshot):
        pods = gangs(snapshot)[key(fact)].pods()
        running = any(pod.bound for pod in pods)
        assert running == (fact["state"] == "running"), fact["name"]
        assert running or any(pod.to_place for pod in pods)


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_only_gangs_that_lack_pods_or_have_failed_ones_miss_something(snapshot: str) -> None:
    for fact in facts(snapshot):
        gang = gangs(snapshot)[key(fact)]
        failed = any(pod["phase"] == "Failed" for pod in fact["pods"])
        assert (gang.missing is None) == (fact["complete"] and not failed), gang.missing
        assert gang.problems == ()


@pytest.mark.parametrize(
    ("snapshot", "name", "missing"),
    [
        # The notes of expected.facts: "worker 1 not created yet: 3 of minMember 4 pods exist".
        ("h100-gke", "ocr-multilingual", "worker 1 has not been created (3 of 4 pods exist)"),
        ("nvl72", "diff-lm", "worker 0 has not been created (2 of 3 pods exist)"),
        ("v100-mpi", "swin-l-cascade", "worker 2 has not been created (4 of 5 pods exist)"),
        # One of its pods succeeded as well; its Job does not make that one again.
        ("h100-gke", "clip-eval", "1 pod has finished (1 Failed)"),
        ("h100-gke", "eval-harness", None),
        ("nvl72", "kernel-tuning", "1 pod has finished (1 Failed)"),
        ("v100-mpi", "bert-squad-sweep", None),
    ],
)
def test_what_is_missing_is_told_by_name(snapshot: str, name: str, missing: str | None) -> None:
    (gang,) = [gang for (_, own), gang in gangs(snapshot).items() if own == name]
    assert gang.missing == missing


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_the_queue_is_the_one_an_object_names(snapshot: str) -> None:
    pods = {pod.key: pod for pod in simple_pods(load(snapshot))}
    for fact in facts(snapshot):
        labels = pods[fact["namespace"], fact["pods"][0]["name"]].labels
        volcano = (fact["podGroup"] or {}).get("api", "").startswith("scheduling.volcano.sh")
        named = volcano or "kueue.x-k8s.io/queue-name" in labels
        # Some queues of expected.facts stand on no object: nobody can read those.
        assert gangs(snapshot)[key(fact)].queue == (fact["queue"] if named else None), fact["name"]


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_a_clean_snapshot_gives_no_remarks(snapshot: str) -> None:
    assert read_all(load(snapshot), TRUSTING)[1].lines() == []


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_the_order_of_objects_does_not_matter(snapshot: str) -> None:
    forward = load(snapshot)
    backward = Objects()
    for kind in sorted(forward.by_kind, reverse=True):
        for one in reversed(forward.by_kind[kind]):
            assert backward.add(one)
    found, _ = read_all(backward, TRUSTING)
    assert {(gang.namespace, gang.name): gang.subject for gang in found.values()} == {
        name: gang.subject for name, gang in gangs(snapshot).items()
    }
    for gang in found.values():
        same = gangs(snapshot)[gang.namespace, gang.name]
        assert (seats(gang), sizes(gang)) == (seats(same), sizes(same))
        assert (gang.required, gang.preferred) == (same.required, same.preferred)
        assert (gang.missing, gang.queue) == (same.missing, same.queue)
        assert gang.submitted_at == same.submitted_at


@pytest.mark.parametrize("snapshot", SNAPSHOTS)
def test_without_trust_a_gang_waits_since_its_controller_was_made(snapshot: str) -> None:
    found, _ = read_all(load(snapshot))
    for gang in found.values():
        earliest = min(pod.object.created or 0 for pod in gang.pods())
        # All objects of a snapshot were recorded within minutes of each other.
        assert gang.submitted_at is not None
        assert abs(gang.submitted_at - earliest) < 600
