"""GPUs that bound pods hold: every dialect, contradictions, shares of GPUs."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube import node, objects, pod
from kube_pods import asking, one, read

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import holding_readers
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.asks import gpu_ask

VISIBLE = "topology.kubernetes.io/gpu-visible"
HIVED = "hivedscheduler.microsoft.com/"
UUIDS = [f"GPU-{place:08d}-aaaa" for place in range(8)]


def _held(gpus: int, **annotations: str) -> tuple[tuple[int, ...] | None, list[str]]:
    """Indices of one pod with these annotations on a node of 8 GPUs, and the remarks."""
    pods, lines = read(node("n1"), pod("a", gpus=gpus, on="n1", annotations=annotations))
    assert pods["a"].gpus == gpus
    return pods["a"].indices, lines


_BIND = """node: n1
leafCellIsolation:
- 2
- 5
cellChain: DGX
affinityGroupBindInfo:
- podPlacements:
  - physicalNode: n1
    physicalLeafCellIndices: [2, 5]
"""


@pytest.mark.parametrize(
    ("annotations", "indices"),
    [
        ({VISIBLE: "3,0"}, (0, 3)),
        ({VISIBLE: " 3 , 0 "}, (0, 3)),
        ({"topology.kubernetes.io/gpu-group": "6,7"}, (6, 7)),
        ({HIVED + "pod-leaf-cell-isolation": "2,5"}, (2, 5)),
        ({HIVED + "pod-gpu-isolation": "2,5"}, (2, 5)),
        ({HIVED + "pod-bind-info": _BIND}, (2, 5)),
        ({HIVED + "pod-bind-info": '{"node": "n1", "leafCellIsolation": [5, 2]}'}, (2, 5)),
        ({HIVED + "pod-bind-info": "node: n1\ngpuIsolation: [2,5]\n"}, (2, 5)),
        ({"gangplan.dev/gpus": "0,1"}, (0, 1)),
        # the table asks ACK before our own
        ({"gangplan.dev/gpus": "0,1", VISIBLE: "2,3"}, (2, 3)),
        ({}, None),
    ],
)
def test_every_dialect_tells_which_gpus_a_pod_holds(
    annotations: dict[str, str], indices: tuple[int, ...] | None
) -> None:
    assert _held(2, **annotations) == (indices, [])


@pytest.mark.parametrize(
    ("annotations", "trouble"),
    [
        ({VISIBLE: "0"}, "names another number of GPUs than the pod requests"),
        ({VISIBLE: "0,1,2"}, "names another number of GPUs than the pod requests"),
        ({VISIBLE: "0,8"}, "names a GPU that its node does not have"),
        ({VISIBLE: "0,0"}, "names a GPU twice"),
        ({VISIBLE: "0,one"}, "cannot be read"),
        ({VISIBLE: "0,-1"}, "cannot be read"),
        ({VISIBLE: "0,99999999999999999999"}, "cannot be read"),
        ({VISIBLE: "0," * 40_000}, "cannot be read"),
        ({HIVED + "pod-bind-info": "node: other\nleafCellIsolation: [0, 1]"}, "cannot be read"),
        ({HIVED + "pod-bind-info": "!!python/object:os.system [0, 1]"}, "cannot be read"),
        (
            {"hami.io/vgpu-devices-allocated": "GPU-x,NVIDIA,1,1:GPU-y,NVIDIA,1,1:;"},
            "cannot be read",
        ),
    ],
)
def test_an_annotation_that_cannot_be_true_is_reported_and_ignored(
    annotations: dict[str, str], trouble: str
) -> None:
    indices, lines = _held(2, **annotations)
    assert indices is None
    assert len(lines) == 1
    assert lines[0].startswith("Pod default/a: its ")
    assert lines[0].endswith(f"{trouble}; ignored")


def test_a_gpu_that_two_pods_claim_is_known_of_neither() -> None:
    pods, lines = read(
        node("n1"),
        pod("a", gpus=2, on="n1", annotations={VISIBLE: "0,1"}),
        pod("b", gpus=2, on="n1", annotations={VISIBLE: "1,2"}),
        pod("c", gpus=2, on="n1", annotations={VISIBLE: "3,4"}),
    )
    assert {name: found.indices for name, found in pods.items()} == {
        "a": None,
        "b": None,
        "c": (3, 4),
    }
    assert [found.gpus for found in pods.values()] == [2, 2, 2]
    what = "holds a GPU that another pod on its node holds too; which ones it has is unknown"
    (line,) = lines
    assert line.startswith("Pod default/a, ")
    assert line.endswith(f"default/b: {what}")


def test_pods_without_gpus_hold_none_whatever_they_are_annotated_with() -> None:
    found = one(node("n1"), pod("a", on="n1", annotations={VISIBLE: "0,1"}))
    assert (found.gpus, found.indices) == (0, ())


def test_more_gpus_held_than_there_are_is_said_and_still_counted() -> None:
    pods, lines = read(node("n1"), pod("a", gpus=6, on="n1"), pod("b", gpus=4, on="n1"))
    assert [found.gpus for found in pods.values()] == [6, 4]
    what = "its pods, planned ones included, hold more GPUs than it has; none is free there"
    assert lines == [f"Node n1: {what}"]


# shares


@pytest.mark.parametrize(
    "amounts",
    [
        {"amd.com/gpu": "8"},
        {"nvidia.com/gpumem": "1"},
        {"aliyun.com/gpu-mem": "1"},
        {"volcano.sh/vgpu-number": "8"},
    ],
    ids=lambda amounts: next(iter(amounts)),
)
def test_what_a_node_does_not_offer_is_not_held_there(amounts: dict[str, str]) -> None:
    """Bound by hand it starts: the kubelet leaves out extended resources that its node lacks."""
    pods, lines = read(node("n1"), pod("a", on="n1", containers=[asking(amounts)]))
    assert (pods["a"].gpus, pods["a"].indices) == (0, ())
    assert lines == [
        "Pod default/a: requests GPUs by a name that its node does not offer; it holds none"
    ]


def _registered(form: str) -> dict[str, str]:
    if form == "json":
        devices = [{"id": uuid, "index": place} for place, uuid in enumerate(UUIDS)]
        del devices[0]["index"]  # HAMi leaves zeros out
        return {"hami.io/node-nvidia-register": json.dumps(devices)}
    tail = {"old": "0,true", "new": "0,true,{place},hami-core"}[form]
    entries = [
        f"{uuid},1,80000,100,H100,{tail.format(place=place)}" for place, uuid in enumerate(UUIDS)
    ]
    return {"hami.io/node-nvidia-register": ":".join(entries) + ":"}


@pytest.mark.parametrize("form", ["old", "new", "json"])
def test_hami_devices_are_found_by_what_the_node_registered(form: str) -> None:
    tree = node("n1")
    tree["metadata"]["annotations"] = _registered(form)
    (found,) = read_nodes(objects(tree), KubernetesPolicy(), Remarks())
    (dialect,) = [one for one in holding_readers() if one.name.startswith("HAMi")]
    told = dialect.read(
        {"hami.io/vgpu-devices-allocated": f"{UUIDS[5]},NVIDIA,3000,30:;{UUIDS[0]},NVIDIA,1,1:;"},
        found,
    )
    assert told == (5, 0)
    # nothing left to allocate: what is still to come tells nothing
    assert dialect.read({"hami.io/vgpu-devices-to-allocate": ";"}, found) is None


def test_pods_on_a_node_that_shares_its_gpus_hold_none_of_them() -> None:
    sliced = node("n1", gpus=32, **{"nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.count": "8"})
    pods, lines = read(sliced, pod("a", gpus=1, on="n1"), pod("b", gpus=2, on="n1"))
    assert [(found.gpus, found.indices) for found in pods.values()] == [(0, ()), (0, ())]
    what = "holds shares of GPUs on a node with shared GPUs, none of which is planned"
    (line,) = lines
    assert line.startswith("Pod default/a, ")
    assert line.endswith(f"default/b: {what}")


def _kai(name: str, namespace: str = "default", **annotations: str) -> dict[str, Any]:
    """A pod of KAI that runs on n1 and is in the group g1."""
    group = {"runai-gpu-group": "g1"}
    return pod(
        name,
        namespace=namespace,
        labels=group,
        annotations=annotations or {"gpu-fraction": "0.5"},
        on="n1",
        schedulerName="kai-scheduler",
    )


def _reserved(gpus: int = 1, namespace: str = "kai-resource-reservation") -> dict[str, Any]:
    index = {"run.ai/reserve_for_gpu_index": "6"}
    group = {"runai-gpu-group": "g1"}
    return pod("r", namespace=namespace, gpus=gpus, on="n1", labels=group, annotations=index)


Held = tuple[int, tuple[int, ...] | None, str | None, str | None]


def _parts(*trees: dict[str, Any]) -> dict[str, Held]:
    pods, _ = read(node("n1"), *trees)
    return {
        name: (found.gpus, found.indices, found.gpu_group, found.part)
        for name, found in pods.items()
    }


HALF = "share.gangplan.dev/0.5"


def test_kais_reservation_pod_says_which_gpu_its_group_shares_and_holds_none() -> None:
    share: Held = (0, (6,), None, HALF)
    held: Held = (0, (), None, None)
    assert _parts(_kai("a"), _kai("b"), _reserved()) == {"a": share, "b": share, "r": held}


@pytest.mark.parametrize(
    ("reserving", "whole", "share"),
    [
        # a tenant's pod with that label: it reserves none for others
        ("stranger", (1, (6,), None, None), (0, (), None, None)),
        # perhaps KAI's, in a namespace of another name: what is left of its GPU is not known
        ("default", (1, (6,), None, None), (0, (), None, None)),
    ],
)
def test_a_group_is_reserved_for_others_by_kai_only(
    reserving: str, whole: Held, share: Held
) -> None:
    found = _parts(_kai("a"), _kai("b"), _reserved(namespace=reserving))
    assert found == {"a": share, "b": share, "r": whole}


def test_hived_pods_hold_what_its_annotations_say_for_they_ask_no_resource() -> None:
    enable = [asking(None, **{HIVED + "pod-scheduling-enable": "1"})]
    spec = {HIVED + "pod-scheduling-spec": "virtualCluster: vc1\nleafCellNumber: 2\n"}
    cells = {HIVED + "pod-leaf-cell-isolation": "6,7"}
    own = {"on": "n1", "containers": enable, "schedulerName": "hived"}
    pods, lines = read(
        node("n1"),
        pod("both", **own, annotations=spec | cells),
        pod("bound", **own, annotations={HIVED + "pod-leaf-cell-isolation": "0"}),
        pod("dumb", **own),
        pod("liar", on="n1", annotations=cells),
    )
    assert {name: (found.gpus, found.indices) for name, found in pods.items()} == {
        "both": (2, (6, 7)),
        "bound": (1, (0,)),
        "dumb": (1, None),
        "liar": (0, ()),
    }
    assert lines == []


@pytest.mark.parametrize(
    ("scheduler", "listed", "gpus"),
    [
        ("default-scheduler", None, 0),
        ("default-scheduler", ["default-scheduler"], 1),  # HiveD extends it
        ("hived", ["hived"], 1),
        ("hived", [], 0),  # the administrator says that there is no HiveD
    ],
)
def test_hived_s_pods_hold_gpus_if_their_scheduler_may_be_hived(
    scheduler: str, listed: list[str] | None, gpus: int
) -> None:
    enable = [asking(None, **{HIVED + "pod-scheduling-enable": "1"})]
    made = pod("p", on="n1", containers=enable, schedulerName=scheduler)
    schedulers = None if listed is None else tuple(listed)
    pods, lines = read(node("n1"), made, other_schedulers=schedulers)
    assert pods["p"].gpus == gpus
    assert any("not its scheduler" in line for line in lines) == (not gpus)


def test_ack_shares_are_found_by_container() -> None:
    (dialect,) = [one for one in holding_readers() if "share" in one.name]
    (there,) = read_nodes(objects(node("n1")), KubernetesPolicy(), Remarks())
    key = "scheduler.framework.gpushare.allocation"
    told = dialect.read({key: '{"0":{"1":1},"1":{"1":7}}'}, there)
    assert told == (1,)
    told = dialect.read({"ALIYUN_COM_GPU_MEM_IDX": "4"}, there)
    assert told == (4,)


# what asks for what


@pytest.mark.parametrize(
    ("amounts", "gpus", "part", "shares"),
    [
        ({"nvidia.com/gpu": 8}, 8, False, 0),
        ({"aliyun.com/gpu": 2}, 2, False, 0),
        ({"nvidia.com/gpu": 2, "nvidia.com/gpumem": 3000}, 0, True, 2),
        ({"nvidia.com/gpucores": 30}, 0, True, 1),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpucores": 100}, 1, False, 0),
        ({"nvidia.com/gpu": 1, "nvidia.com/gpumem-percentage": 50}, 0, True, 1),
        ({"aliyun.com/gpu-mem": 8}, 0, True, 1),
        ({"aliyun.com/gpu-mem": 8, "aliyun.com/gpu-count": 2}, 0, True, 2),
        ({"aliyun.com/gpu-core.percentage": 50}, 0, True, 1),
        ({"nvidia.com/mig-1g.10gb": 1}, 0, False, 0),
        ({"nvidia.com/gpu.shared": 1}, 0, False, 0),
        ({"amd.com/cpx_nps4": 1}, 0, False, 0),
        ({"volcano.sh/vgpu-number": 2, "volcano.sh/vgpu-memory": 3000}, 0, True, 2),
        ({"nvidia.com/gpu": 10**9}, 100_000, False, 0),
        ({"cpu": 4000}, 0, False, 0),
    ],
)
def test_resource_names_mean_whole_gpus_or_parts_of_them(
    amounts: dict[str, int], gpus: int, part: bool, shares: int
) -> None:
    found = gpu_ask(amounts, {}, KubernetesPolicy().gpu_resources, {})
    assert (found.gpus, found.shares > 0, found.shares) == (gpus, part, shares)


KEYS = sorted({key for reader in holding_readers() for key in reader.keys})


@given(st.dictionaries(st.sampled_from(KEYS), st.text(max_size=60), max_size=4))
def test_any_text_in_any_annotation_is_read_without_an_error(annotations: dict[str, str]) -> None:
    tree = node("n1")
    tree["metadata"]["annotations"] = _registered("new")
    (there,) = read_nodes(objects(tree), KubernetesPolicy(), Remarks())
    for reader in holding_readers():
        indices = reader.read(annotations, there)
        assert indices is None or all(index >= 0 for index in indices)
