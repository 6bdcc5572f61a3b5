"""NVLink between servers for gangs of Kubernetes pods with and without ComputeDomain claims."""

from __future__ import annotations

import json
from typing import Any

import kube
import pytest
from kube import pod
from kube_pods import thing

from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput

CHANNEL = [{"name": "channel", "resourceClaimTemplateName": "domain-channel"}]
WARNING = "has no ComputeDomain claim"


def policy(setting: str | None) -> dict[str, Any]:
    settings = {} if setting is None else {"nvlinkAcrossNodes": setting}
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"kubernetes": settings},
    }


def pods(claims: tuple[bool, ...] = (False, False)) -> list[dict[str, Any]]:
    """A pod group of pods of 4 GPUs; ``claims``: which of them hold a claim."""
    group = thing(
        "PodGroup",
        "train",
        "scheduling.x-k8s.io/v1alpha1",
        "default",
        spec={"minMember": len(claims)},
    )
    label = {"scheduling.x-k8s.io/pod-group": "train"}
    members = [pod(f"train-{i}", gpus=4, gated=True, labels=label) for i, _ in enumerate(claims)]
    for member, claim in zip(members, claims, strict=True):
        if claim:
            member["spec"]["resourceClaims"] = CHANNEL
    return [group, *members]


def warnings(found: LoadedInput) -> list[str]:
    return [line for line in found.remarks if WARNING in line]


@pytest.mark.parametrize(
    ("setting", "phrase"),
    [("assumed", "counts NVLink between servers"), ("claimed", "not NVLink")],
)
def test_of_a_recorded_cluster_one_gang_holds_claims(
    setting: str, phrase: str, tmp_path_factory: pytest.TempPathFactory
) -> None:
    path = tmp_path_factory.mktemp("policy") / "policy.json"
    path.write_text(json.dumps(policy(setting)))
    found = load([str(kube.SNAPSHOTS / "nvl72")], policy=str(path))
    (line,) = warnings(found)
    assert phrase in line
    facts = {(g["namespace"], g["name"]): g for g in kube.expected("nvl72")["gangs"]}
    several = {
        key
        for key, gang in facts.items()
        if sum(pod["gpus"] > 0 and not finished(pod) for pod in gang["pods"]) > 1
    }
    claiming = {key for key, gang in facts.items() if "IMEX channel" in str(gang["notes"])}
    assert claiming == {("research", "nvl-bench-alltoall")}
    apart = {gang.key for gang in found.instance.gangs if not gang.nvlink_across_nodes}
    known = {gang.key for gang in found.instance.gangs}
    assert apart == ((several - claiming) & known if setting == "claimed" else set())


def finished(fact: dict[str, Any]) -> bool:
    return fact["phase"] in ("Succeeded", "Failed")
