"""NVLink between servers for gangs of Kubernetes pods with and without ComputeDomain claims."""

from __future__ import annotations

import json
from typing import Any

import kube
import pytest
from bundles import load_all
from kube import node, pod
from kube_pods import thing
from outcomes import NOW

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import instance_from_document, load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve

CLIQUE = {"nvidia.com/gpu.clique": "d1.1", "nvidia.com/gpu.product": "NVIDIA-GB200"}
CHANNEL = [{"name": "channel", "resourceClaimTemplateName": "domain-channel"}]
WARNING = "has no ComputeDomain claim"


def policy(setting: str | None) -> dict[str, Any]:
    settings = {} if setting is None else {"nvlinkAcrossNodes": setting}
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Policy",
        "spec": {"kubernetes": settings},
    }


def trays(*, network_only: bool = False) -> list[dict[str, Any]]:
    """Two trays of 4 GB200 in one clique, and the ComputeDomain that makes the claim template."""
    annotations = {"gangplan.dev/server-model": "GB200 NVL72 compute tray"}
    found = [node("t1", gpus=4), node("t2", gpus=4)]
    for tree in found:
        tree["metadata"]["annotations"] = annotations
        tree["metadata"]["labels"] |= {} if network_only else CLIQUE
    spec = {"channel": {"resourceClaimTemplate": {"name": "domain-channel"}}}
    version = "resource.nvidia.com/v1beta1"
    return [*found, thing("ComputeDomain", "domain", version, "default", spec=spec)]


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


def built(*trees: dict[str, Any]) -> LoadedInput:
    return load_all(trees)


def gang_of(found: LoadedInput) -> Gang:
    (gang,) = found.instance.gangs
    return gang


def warnings(found: LoadedInput) -> list[str]:
    return [line for line in found.remarks if WARNING in line]


def rates(instance: Instance) -> tuple[int, int]:
    """(bandwidthMBps, share) of the only gang, placed by a plan that the judge passes."""
    plan = compose(instance, solve(instance), name="p", created_at=NOW, generator="gangplan test")
    assert check(plan) == []
    (stated,) = plan["spec"]["gangs"]
    assert stated["decision"] == "place"
    assert instance_from_document(plan["instance"]) == instance
    return stated["bandwidthMBps"], stated["share"]


@pytest.mark.parametrize("setting", [None, "assumed"])
def test_usually_nvlink_counts_all_the_same_and_the_hint_names_the_setting(
    setting: str | None,
) -> None:
    found = built(policy(setting), *trays(), *pods())
    assert gang_of(found).nvlink_across_nodes
    (line,) = warnings(found)
    assert "the plan counts NVLink between servers" in line
    assert "nvlinkAcrossNodes: claimed" in line
    # 18 links of 40,100
    assert rates(found.instance) == (721_800, 1000)


def test_by_claims_a_gang_without_them_has_the_network_only() -> None:
    found = built(policy("claimed"), *trays(), *pods())
    assert not gang_of(found).nvlink_across_nodes
    (line,) = warnings(found)
    assert line.startswith("PodGroup default/train: ")
    assert "the plan counts the network between its servers, not NVLink" in line
    # four NICs of 400 Gbit/s a tray, and the best there is without NVLink
    assert rates(found.instance) == (200_000, 1000)


def test_by_claims_a_gang_with_them_has_nvlink_and_no_warning() -> None:
    found = built(policy("claimed"), *trays(), *pods(claims=(True, True)))
    assert gang_of(found).nvlink_across_nodes
    assert warnings(found) == []
    assert rates(found.instance) == (721_800, 1000)


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
