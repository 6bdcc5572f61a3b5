"""GPUs that bound pods hold: every dialect, contradictions, shares of GPUs."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st
from kube import node, objects
from strategies import texts

from models.instance.policy import KubernetesPolicy
from planner.read.findings import Remarks
from planner.read.kube.dialect_registry import gpu_systems, holding_readers
from planner.read.kube.nodes.nodes import read_nodes
from planner.read.kube.pods.asks import gpu_ask

UUIDS = [f"GPU-{place:08d}-aaaa" for place in range(8)]


# shares


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
    found = gpu_ask(amounts, {}, KubernetesPolicy().gpu_resources, {}, gpu_systems())
    assert (found.gpus, found.shares > 0, found.shares) == (gpus, part, shares)


KEYS = sorted({key for reader in holding_readers() for key in reader.keys})


@given(st.dictionaries(st.sampled_from(KEYS), texts(60), max_size=4))
def test_any_text_in_any_annotation_is_read_without_an_error(annotations: dict[str, str]) -> None:
    tree = node("n1")
    tree["metadata"]["annotations"] = _registered("new")
    (there,) = read_nodes(objects(tree), KubernetesPolicy(), Remarks())
    for reader in holding_readers():
        indices = reader.read(annotations, there)
        assert indices is None or all(index >= 0 for index in indices)
