"""How the gangs of Kubernetes objects communicate, and what their annotations say of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from building_servers import DGX1_V100
from bundles import load_all
from conftest import RunCli
from kube import node, pod
from kube_gangs import owned, thing

from models.documents.communication import DEFAULT_FRACTION
from models.instance.gang import Gang
from planner.read.instance_builder import LoadedInput

PATTERN = "gangplan.dev/communication-pattern"
FRACTION = "gangplan.dev/communication-fraction"
SPEED = "gangplan.dev/communication-speed"
MIX_MODELS = "gangplan.dev/mix-models"
ALL = {PATTERN: "none", FRACTION: "0.4", SPEED: "ignore"}

PLAIN = ("all-reduce", DEFAULT_FRACTION, True)
STATED = ("none", Fraction(2, 5), False)

Tree = dict[str, Any]


def v100() -> Tree:
    made = node("n")
    made["metadata"]["annotations"] = {"gangplan.dev/server-model": "DGX-1 V100"}
    return made


def compact_cluster() -> Tree:
    nodes = [{"name": "n", "model": "DGX-1 V100"}]
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Cluster",
        "metadata": {"name": "c"},
        "spec": {"nodes": nodes},
    }


def lone_pod(name: str) -> Tree:
    return pod(name, gpus=2, gated=True)


def compact_gang(name: str) -> Tree:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name},
        "spec": {"roles": [{"name": "server", "replicas": 1, "gpus": 2}]},
    }


@pytest.mark.parametrize("count", [1, 3])
@pytest.mark.parametrize(
    ("server", "waiting"),
    [
        pytest.param(v100(), lone_pod, id="ungrouped pods"),
        pytest.param(v100(), compact_gang, id="one-pod roles"),
        pytest.param(compact_cluster(), compact_gang, id="compact"),
    ],
)
def test_two_gpus_of_a_pod_in_an_empty_mesh_are_a_pair_with_two_links(
    cli: RunCli, server: Tree, waiting: Callable[[str], Tree], count: int
) -> None:
    trees = [server, *(waiting(f"a{i}") for i in range(count))]
    items = {"apiVersion": "v1", "kind": "List", "items": trees}
    result = cli("plan", "-", "-o", "json", stdin=json.dumps(items).encode())
    assert result.code == 0, result.err
    plan = json.loads(result.out)
    assert len(plan["spec"]["gangs"]) == count
    for gang in plan["spec"]["gangs"]:
        ((one, other),) = [found["gpus"] for found in gang["pods"]]
        assert DGX1_V100[one][other] == "NV2"
        assert (gang["bandwidthMBps"], gang["share"]) == (40_000, 1000)
    assert plan["status"]["outcome"] == "optimal"


TRUSTING = {
    "apiVersion": "gangplan.dev/v1alpha1",
    "kind": "Policy",
    "spec": {"kubernetes": {"trustCommunication": True}},
}


def built(*objects: Tree) -> LoadedInput:
    """What is read where the Policy trusts what tenants say of their communication."""
    return load_all([node("n1"), TRUSTING, *objects])


def doubted(*objects: Tree) -> LoadedInput:
    return load_all([node("n1"), *objects])


def gang_of(found: LoadedInput) -> Gang:
    (gang,) = found.instance.gangs
    return gang


def told(gang: Gang) -> tuple[str, Fraction, bool]:
    return (gang.pattern, gang.fraction, gang.counts_speed)


def worker(
    index: int, *, gpus: int = 2, notes: dict[str, str] | None = None, on: str | None = None
) -> Tree:
    labels = {"batch.kubernetes.io/job-completion-index": str(index)}
    made = pod(
        f"j-{index}", gpus=gpus, gated=on is None, on=on, labels=labels, annotations=notes or {}
    )
    return owned(made, "Job", "batch/v1", "j")


def job(size: int = 2, **metadata: object) -> Tree:
    spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
    return thing("Job", "batch/v1", "j", spec, **metadata)


@pytest.mark.parametrize("on", [None, "n1"])
@pytest.mark.parametrize(
    ("key", "written", "counts"),
    [
        (PATTERN, "none", False),
        (PATTERN, "all-to-all", True),
        (SPEED, "ignore", False),
        (SPEED, "count", True),
        (FRACTION, "0", False),
        (FRACTION, "0.2499", False),
        (FRACTION, "0.25", True),
        (FRACTION, "0.95", True),
    ],
)
def test_without_trust_no_word_makes_a_gang_faster_than_one_that_says_nothing(
    key: str, written: str, *, counts: bool, on: str | None
) -> None:
    found = doubted(pod("a", gpus=2, on=on, gated=on is None, annotations={key: written}))
    said = told(gang_of(found))
    trusted = told(
        gang_of(built(pod("a", gpus=2, on=on, gated=on is None, annotations={key: written})))
    )
    assert said == (trusted if counts else PLAIN)
    remarks = [line for line in found.remarks if "annotation" in line]
    ignored = f"Pod default/a: annotation {key} may make it count as faster than others; ignored"
    hint = "kubernetes: {trustCommunication: true} in a Policy, if tenants may say so"
    assert remarks == ([] if counts else [f"{ignored} (hint: {hint})"])


def test_a_gang_says_it_on_its_controller_its_group_or_every_pod_with_gpus() -> None:
    plain = [worker(i) for i in range(2)]
    marked = [worker(i, notes=ALL) for i in range(2)]
    assert told(gang_of(built(job(), *plain))) == PLAIN
    assert told(gang_of(built(job(annotations=ALL), *plain))) == STATED
    assert told(gang_of(built(job(), *marked))) == STATED
    launcher = worker(2, gpus=0)
    assert told(gang_of(built(job(3), *marked, launcher))) == STATED
    group = thing(
        "PodGroup", "scheduling.x-k8s.io/v1alpha1", "g", {"minMember": 2}, annotations=ALL
    )
    member = {"scheduling.x-k8s.io/pod-group": "g"}
    pods = [pod(name, gpus=2, gated=True, labels=member) for name in ("a", "b")]
    assert told(gang_of(built(group, *pods))) == STATED


PATTERNS = "all-reduce, all-gather, all-to-all, broadcast, parameter-server, pipeline, reduce-scatter, none"
NO_FRACTIONS = [
    "", " ", "a quarter", "25%", "0,25", "nan", "inf", "-0.1", "0.951", "1", "\u0660", "0x1", "1_0", "1/4",
    "0.25\n", "1e999", "1e999999999", "9" * 5000, "0." + "1" * 39,
]  # fmt: skip
NOT_A_PATTERN = f"annotation {PATTERN} is not one of {PATTERNS}; ignored"
NOT_A_FRACTION = f"annotation {FRACTION} is not a number from 0 to 0.95; ignored"
NOT_A_SPEED = f"annotation {SPEED} is not count or ignore; ignored"


@pytest.mark.parametrize(
    ("key", "written", "remark"),
    [
        (PATTERN, "", NOT_A_PATTERN),
        (PATTERN, "None", NOT_A_PATTERN),
        (PATTERN, "ring\x1b[31m", NOT_A_PATTERN),
        *((FRACTION, written, NOT_A_FRACTION) for written in NO_FRACTIONS),
        (SPEED, "fast", NOT_A_SPEED),
        (SPEED, "true", NOT_A_SPEED),
    ],
)
def test_a_value_that_cannot_be_read_is_a_remark(key: str, written: str, remark: str) -> None:
    found = built(
        pod("a", gpus=2, gated=True, annotations={key: written}), pod("b", gpus=2, gated=True)
    )
    assert [told(gang) for gang in found.instance.gangs] == [PLAIN, PLAIN]
    assert [line for line in found.remarks if "annotation" in line] == [f"Pod default/a: {remark}"]


def test_a_role_mixes_gpu_models_where_its_pods_or_its_controller_say_so() -> None:
    mark = {MIX_MODELS: "true"}

    def mixing(*objects: Tree) -> list[bool]:
        return [role.mix_models for role in gang_of(built(*objects)).roles]

    pods = [worker(i) for i in range(2)]
    assert mixing(job(), *pods) == [False]
    assert mixing(job(annotations=mark), *pods) == [True]
    assert mixing(job(), worker(0, notes=mark), worker(1)) == [False]
    assert mixing(job(), worker(0, notes=mark), worker(1, notes=mark)) == [True]
    assert mixing(job(), *(worker(i, notes={MIX_MODELS: "yes"}) for i in range(2))) == [False]
    # roles by number of GPUs: each has pods of its own
    assert mixing(job(), worker(0, gpus=4, notes=mark), worker(1, notes={})) == [True, False]
    assert mixing(pod("a", gpus=2, on="n1", annotations=mark)) == [True]
