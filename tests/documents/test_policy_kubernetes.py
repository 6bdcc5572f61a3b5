"""`spec.kubernetes` of a Policy: read, refused, written only when it says something."""

from __future__ import annotations

import json
from fractions import Fraction
from typing import Any

import pytest
from building import instance_document
from bundles import read_all

from models.documents.cluster import Level
from models.instance.instance import Instance
from models.instance.policy import KubernetesPolicy
from planner.errors import InputError
from planner.read.inputs import instance_from_document

CLUSTER = {
    "apiVersion": "gangplan.dev/v1alpha1",
    "kind": "Cluster",
    "metadata": {"name": "c"},
    "spec": {"nodes": [{"name": "n"}]},
}
EVERYTHING = {
    "schedulingGate": "example.com/gate",
    "gpuResources": ["example.com/gpu"],
    "levels": [{"name": "rack", "label": "example.com/rack", "oversubscription": 2}],
    "serverModels": [
        {"nodeSelector": {"b": "2", "a": "1"}, "model": "DGX H100"},
        {"model": "HGX B200"},
    ],
    "ignore": ["podAntiAffinity", "volumeZone"],
    "trustSubmittedAt": True,
    "trustCommunication": True,
    "nvlinkAcrossNodes": "claimed",
    "gpuBackend": "dra",
}


def planned_with(kubernetes: dict[str, Any] | None) -> Instance:
    spec = {} if kubernetes is None else {"kubernetes": kubernetes}
    policy = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}
    return read_all([CLUSTER, policy])


def test_every_setting_is_read_and_written_back() -> None:
    instance = planned_with(EVERYTHING)
    assert instance.policy.kubernetes == KubernetesPolicy(
        scheduling_gate="example.com/gate",
        gpu_resources=("example.com/gpu",),
        levels=(Level("rack", "example.com/rack", Fraction(2)),),
        server_models=(((("a", "1"), ("b", "2")), "DGX H100"), ((), "HGX B200")),
        ignore=("podAntiAffinity", "volumeZone"),
        trust_submitted_at=True,
        trust_communication=True,
        nvlink_across_nodes="claimed",
        gpu_backend="dra",
    )
    document = instance_document(instance)
    assert instance_from_document(json.loads(json.dumps(document))) == instance


def test_levels_may_be_left_to_be_found_or_be_none() -> None:
    assert planned_with({"schedulingGate": "example.com/gate"}).policy.kubernetes.levels is None
    none = planned_with({"levels": []})
    assert none.policy.kubernetes.levels == ()
    assert instance_from_document(instance_document(none)) == none


@pytest.mark.parametrize(
    "kubernetes", [None, {}, {"schedulingGate": "gangplan.dev/placement", "ignore": []}]
)
def test_the_usual_way_is_not_written(kubernetes: dict[str, Any] | None) -> None:
    instance = planned_with(kubernetes)
    assert instance.policy.kubernetes == KubernetesPolicy()
    assert "kubernetes" not in instance_document(instance)["policy"]["spec"]


def test_the_usual_back_end_is_not_written_so_that_older_plans_keep_their_bytes() -> None:
    usual = planned_with({"schedulingGate": "example.com/gate", "gpuBackend": "annotation"})
    written = instance_document(usual)["policy"]["spec"]["kubernetes"]
    assert "gpuBackend" not in written
    other = planned_with({"gpuBackend": "none"})
    assert instance_document(other)["policy"]["spec"]["kubernetes"]["gpuBackend"] == "none"
    assert instance_from_document(instance_document(other)) == other


@pytest.mark.parametrize(
    ("kubernetes", "what"),
    [
        ({"ignore": ["hostPort"]}, "unknown constraint 'hostPort'"),
        ({"ignore": ["volumeZone", "volumeZone"]}, "'volumeZone' is listed twice"),
        ({"levels": [{"name": "node"}]}, "the level `node` is reserved"),
        ({"levels": [{"name": "r"}, {"name": "r"}]}, "two levels are named 'r'"),
        ({"levels": [{"name": f"l{i}"} for i in range(11)]}, "11 levels"),
        ({"gpuResources": []}, "no resource name for GPUs"),
        ({"gpuResources": ["a/gpu", "a/gpu"]}, "'a/gpu' is listed twice"),
        ({"schedulerName": "x"}, "unknown field 'schedulerName'"),
        ({"serverModels": [{"nodeSelector": {"a": "b"}}]}, "missing field 'model'"),
        ({"trustSubmittedAt": "yes"}, "expected true or false"),
        ({"nvlinkAcrossNodes": "none"}, "one of: assumed, claimed"),
        ({"gpuBackend": "volcano"}, "one of: annotation, dra, hami, none"),
        ({"schedulers": []}, "unknown field 'schedulers'"),
    ],
)
def test_what_makes_no_sense_is_refused(kubernetes: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        planned_with(kubernetes)
    lines = "\n".join(line for fault in caught.value.faults for line in fault.lines())
    assert what in lines
    assert "hint:" in lines


def test_the_pending_limit_is_five_minutes_a_duration_or_null() -> None:
    def limit(kubernetes: dict[str, Any] | None) -> int | None:
        instance = planned_with(kubernetes)
        again = instance_from_document(instance_document(instance))
        assert again.policy.kubernetes == instance.policy.kubernetes
        return instance.policy.kubernetes.pending_limit_s

    assert limit(None) == limit({"pendingLimit": "5m"}) == 300
    assert limit({"pendingLimit": "90s"}) == 90
    assert limit({"pendingLimit": None}) is None
    with pytest.raises(InputError) as refused:
        limit({"pendingLimit": "500ms"})
    assert "a limit under one second" in str(refused.value.faults[0].what)
