"""Parts of GPUs by KAI, HAMi and Volcano: two recorded clusters, requests, nodes, holdings and an apply."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Bench, Fault, Tree, bench, cut
from building import instance_document
from bundles import load_all
from cluster_contents import GATE
from effort import spread
from kube import node, pod
from kube_nodes import one as one_node
from kube_pods import asking
from kube_pods import read as read_pods

from models.gpu_shares import SHARE
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve

Json = dict[str, Any]

HERE = Path(__file__).parents[1]
REGISTER, VOLCANO_REGISTER = "hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register"
ALLOCATED, VOLCANO_ALLOCATED = "hami.io/vgpu-devices-allocated", "volcano.sh/vgpu-ids-new"
USE = "nvidia.com/use-gpuuuid"
KAI, HAMI, VOLCANO = "kai-scheduler", "hami-scheduler", "volcano"


def plan_of(loaded: LoadedInput) -> Json:
    """The plan, which the judge has accepted."""
    instance = loaded.instance
    made = compose(
        instance, solve(instance), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    found: Json = json.loads(json.dumps(made))
    assert check(found) == []
    return found


def loaded(*trees: Json) -> LoadedInput:
    return load_all(trees)


# ---- recorded clusters


def gang(namespace: str, name: str, times: Json, role: Json, status: Json) -> Json:
    """A Gang of one pod as it is read; ``times``: more of its spec, ``role``: more of its role."""
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Gang",
        "metadata": {"name": name, "namespace": namespace},
        "spec": {
            **times,
            "priority": 0,
            "preemptible": False,
            "movable": False,
            "topology": {},
            "roles": [
                {
                    "name": "worker",
                    "replicas": 1,
                    "gpus": 0,
                    "topology": {},
                    "nodeSelector": {},
                    "tolerations": [],
                    "mixModels": False,
                    **role,
                }
            ],
            "communication": {"pattern": "all-reduce", "weight": 1, "fraction": 0.25},
        },
        "status": status,
    }


def waiting(name: str, uid: str) -> Json:
    return {"name": name, "uid": uid, "role": "worker", "index": 0, "mode": "gate"}


KAI_NODE = {
    "name": "i-0b498db53280b86a6",
    "model": "AWS g4dn.12xlarge",
    "domains": {},
    # 234 pods less the reservation pod, which stands for the group, and is in no gang
    "allocatable": {"cpu": "47810m", "memory": "192762200Ki", "pods": "233"},
    "held": {"pods": "1"},
    "unschedulable": False,
    "ready": True,
    "unhealthyGpus": [],
    "unknownUnhealthy": 0,
    # KAI counts whole hundreds of the 15,360 MiB
    "sharing": {"memory": "15300Mi", "pods": 100},
    "labels": {},
    "taints": [],
}

KAI_GANGS = [
    gang(
        "runai-pa",
        "gpu-memory",
        {"queue": "test", "submittedAt": "2024-03-31T10:01:00Z"},
        {"requests": {"share.gangplan.dev/2000Mi": "1"}},
        {"pods": [waiting("gpu-memory", "6f0a4d1e-0000-0000-0000-000000000002")]},
    ),
    gang(
        "runai-pa",
        "gpu-sharing",
        {"queue": "test", "submittedAt": "2024-03-31T10:00:00Z"},
        {"requests": {"share.gangplan.dev/0.5": "1"}},
        {"pods": [waiting("gpu-sharing", "6f0a4d1e-0000-0000-0000-000000000001")]},
    ),
    gang(
        "runai-pa",
        "gpu-sharing-two",
        {"submittedAt": "2024-03-31T10:02:00Z"},
        {"requests": {"share.gangplan.dev/0.1x2": "2"}},
        {"pods": [waiting("gpu-sharing-two", "6f0a4d1e-0000-0000-0000-000000000003")]},
    ),
    gang(
        "runai-pa",
        "pg-frac-1-0-2237ca39-cac0-4601-b658-8a3c5f406a4f",
        {"service": "RunaiJob/frac-1", "submittedAt": "2024-03-31T09:03:22Z"},
        {
            "requests": {"cpu": "100m", "memory": "100000000", "share.gangplan.dev/0.5": "1"},
            "nodeAffinity": [
                [{"key": "runai/node-pool", "operator": "DoesNotExist", "values": []}]
            ],
        },
        {
            "pods": [
                {
                    "name": "frac-1-0-0",
                    "uid": "a801b3c7-b9be-4830-821c-2456cad2234f",
                    "role": "worker",
                    "index": 0,
                    "node": "i-0b498db53280b86a6",
                    "gpus": None,
                    # the uuid of the reservation pod is known, but no index of it
                    "gpuGroup": "df7c0dd3-9795-443c-85b9-acbf49c8fb6b",
                }
            ],
            "startedAt": "2024-03-31T09:03:27Z",
        },
    ),
]

HAMI_NODE = {
    "name": "node-1",
    "model": "unknown 2x V100",
    "domains": {},
    "allocatable": {"cpu": "64", "memory": "98611916Ki", "pods": "110"},
    "unschedulable": False,
    "ready": True,
    "unhealthyGpus": [],
    "unknownUnhealthy": 0,
    "sharing": {"memory": "32768Mi", "pods": 10},
    "labels": {},
    "taints": [],
}


def running(name: str, uid: str) -> Json:
    return {
        "name": name,
        "uid": uid,
        "role": "worker",
        "index": 0,
        "node": "node-1",
        "gpus": [1],
    }


HAMI_GANGS = [
    gang(
        "default",
        "gpu-pod",
        {"submittedAt": "2024-05-20T10:02:00Z"},
        {"requests": {"share.gangplan.dev/3000Mi": "1"}},
        {
            "pods": [running("gpu-pod", "0d9c1f6e-0000-0000-0000-000000000001")],
            "startedAt": "2024-05-20T10:02:05Z",
        },
    ),
    gang(
        "dev",
        "abc-68d778dd6f-tfcrs",
        {"submittedAt": "2025-06-05T15:41:27Z"},
        # 16,384 MiB is what half of the memory is; no cores are bounded
        {"requests": {"share.gangplan.dev/0.5-0": "1"}},
        {
            "pods": [running("abc-68d778dd6f-tfcrs", "0d9c1f6e-0000-0000-0000-000000000002")],
            "startedAt": "2025-06-05T15:41:30Z",
        },
    ),
    gang(
        "t-maas",
        "instance-test",
        {"submittedAt": "2024-08-21T14:08:51Z"},
        {"requests": {"share.gangplan.dev/10240Mi-40": "1"}},
        {"pods": [waiting("instance-test", "0d9c1f6e-0000-0000-0000-000000000003")]},
    ),
    gang(
        "t-maas",
        "whole",
        {"submittedAt": "2024-08-21T14:09:51Z"},
        {"gpus": 1, "requests": {}},
        {"pods": [waiting("whole", "0d9c1f6e-0000-0000-0000-000000000004")]},
    ),
]


@pytest.mark.parametrize(
    ("name", "server", "gangs"),
    [("shares_kai", KAI_NODE, KAI_GANGS), ("shares_hami", HAMI_NODE, HAMI_GANGS)],
    ids=["KAI", "HAMi"],
)
def test_a_recorded_cluster_reads_as_worked_out_by_hand(
    name: str, server: Json, gangs: list[Json]
) -> None:
    found = load([str(HERE / f"{name}.yaml")])
    document = json.loads(json.dumps(instance_document(found.instance)))
    assert document["cluster"]["spec"]["nodes"] == [server]
    assert document["gangs"] == gangs


def test_parts_go_to_the_gpu_of_kais_group_and_to_one_more() -> None:
    found = plan_of(load([str(HERE / "shares_kai.yaml")]))
    here = {"node": "i-0b498db53280b86a6", "gpu": None}
    # half of the group's GPU is left; who has a tenth of each of two GPUs is on both
    assert found["spec"]["shares"] == [
        {**here, "gpuGroup": "df7c0dd3-9795-443c-85b9-acbf49c8fb6b", "parts": ["2000Mi", "0.1x2"]},
        {**here, "parts": ["0.5", "0.1x2"]},
    ]


# ---- what pods ask for


def _card(prefix: str, number: object = None, **amounts: object) -> Json:
    """A container that asks for so many cards of HAMi or Volcano, and parts of each."""
    hami = prefix == "nvidia.com"
    names = {
        "memory": "gpumem" if hami else "vgpu-memory",
        "percent": "gpumem-percentage" if hami else "vgpu-memory-percentage",
        "cores": "gpucores" if hami else "vgpu-cores",
    }
    limits = {f"{prefix}/{names[key]}": str(amount) for key, amount in amounts.items()}
    if number is not None:
        limits[f"{prefix}/{'gpu' if hami else 'vgpu-number'}"] = str(number)
    return asking(None, **limits)


# ---- nodes

T4 = {"nvidia.com/gpu.memory": "15360", "nvidia.com/gpu.product": "Tesla-T4"}


def cards(*memories: int, mode: str = "hami-core", count: int = 10, cores: int = 100) -> str:
    """A registration in HAMi's JSON of cards GPU-0, GPU-1, ... with so many MiB each."""
    found = [
        {"id": f"GPU-{i}", "index": i, "count": count, "devmem": memory, "devcore": cores,
         "type": "NVIDIA-Tesla T4", "mode": mode, "health": True}
        for i, memory in enumerate(memories)
    ]  # fmt: skip
    return json.dumps([{k: v for k, v in one.items() if v} for one in found])


def registered(key: str, written: str, gpus: int = 20) -> Json:
    found = node("n1", gpus=gpus if key == REGISTER else 0, **T4)
    found["metadata"]["annotations"] = {key: written}
    if key == VOLCANO_REGISTER:
        for amounts in ("capacity", "allocatable"):
            found["status"][amounts] |= {
                "volcano.sh/vgpu-number": str(gpus),
                "volcano.sh/vgpu-memory": "30720",
                "volcano.sh/vgpu-cores": "200",
            }
    return found


OLD = "GPU-0,10,15360,100,NVIDIA-Tesla T4,0,true:GPU-1,10,15360,100,NVIDIA-Tesla T4,0,true:"
VGPU = (
    "GPU-0,10,15360,NVIDIA-Tesla T4,true,hami-core:GPU-1,10,15360,NVIDIA-Tesla T4,true,hami-core:"
)
A_PART = {
    REGISTER: pod("p", gated=True, containers=[_card("nvidia.com", 1, memory=3000)]),
    VOLCANO_REGISTER: pod("p", gated=True, containers=[_card("volcano.sh", 1, memory=3000)]),
}


@pytest.mark.parametrize(
    ("key", "written", "sharing"),
    [
        (REGISTER, cards(15360, 15360), (15360, 10)),
        (REGISTER, OLD, (15360, 10)),
        (VOLCANO_REGISTER, VGPU, (15360, 10)),
        (REGISTER, cards(15360, 12288), (12288, 10)),
        (REGISTER, cards(15360, 15360, count=1), (15360, 1)),
        (REGISTER, cards(15360, 15360, count=500), (15360, 100)),
        (REGISTER, cards(15360, 15360, cores=300), (15360, 10)),  # more cores than there are
        (REGISTER, cards(15360, 15360, cores=50), None),
        (REGISTER, cards(15360, 15360, count=0), None),
    ],
)
def test_registered_cards_are_given_whole_and_in_parts(
    key: str, written: str, sharing: tuple[int, int] | None
) -> None:
    found, said = one_node(registered(key, written), A_PART[key])
    # 20 shares of 2 cards
    assert (found.gpus, found.installed, found.shared) == (2, 2, None)
    stated = None if found.sharing is None else (found.sharing.memory, found.sharing.pods)
    assert stated == sharing
    assert ("differ in memory" in said) == (sharing == (12288, 10))
    assert ("none is shared" in said) == (sharing is None)


@pytest.mark.parametrize(
    "written",
    ["", "[", "[]", "nonsense", '[{"id": 3}]', "GPU-0,10,1:GPU-1", cards(15360, 15360, mode="mig")],
)
@pytest.mark.parametrize("key", [REGISTER, VOLCANO_REGISTER])
def test_cards_that_are_not_understood_or_partitioned_are_not_given(key: str, written: str) -> None:
    found, _ = one_node(registered(key, written), A_PART[key])
    assert found.sharing is None
    assert found.gpus == 0 or found.shared == "fractional"


# ---- what pods hold


def holding(*trees: Json, on: Json | None = None) -> dict[str, tuple[object, ...]]:
    there = registered(REGISTER, cards(15360, 15360)) if on is None else on
    pods, _ = read_pods(there, *trees)
    return {
        name: (one.gpus, one.indices, (one.part or "").removeprefix(SHARE) or None)
        for name, one in pods.items()
    }


def runs(name: str, container: Json, stated: str | None = None, key: str = ALLOCATED) -> Json:
    """A pod that runs on n1, and what its scheduler wrote."""
    annotations = {} if stated is None else {key: stated}
    scheduler = HAMI if key == ALLOCATED else VOLCANO
    return pod(
        name, on="n1", annotations=annotations, containers=[container], schedulerName=scheduler
    )


def test_a_card_of_which_a_pod_holds_parts_in_several_containers_is_held_whole() -> None:
    two = runs(
        "b", _card("nvidia.com", 1, memory=1000), "GPU-0,NVIDIA,1000,0:GPU-1,NVIDIA,1000,0:;"
    )
    two["spec"]["containers"] *= 2
    one = runs("a", _card("nvidia.com", 1, memory=1000), "GPU-1,NVIDIA,1000,0:;")
    # as today: b, the only one of them with GPU 0, counts both, and a is on one of them
    found = holding(one, two)
    assert {name: held[2] for name, held in found.items()} == {"a": None, "b": None}
    assert sum(int(str(held[0])) for held in found.values()) == 2


# ---- apply


def a_cluster() -> FakeCluster:
    """Two cards of 15,360 MiB, of which one pod holds 10,000 MiB of the second; three parts wait."""
    cluster = FakeCluster()
    cluster.add_node("n1", gpus=20)

    def marked(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {REGISTER: cards(15360, 15360)}
        return tree

    cluster.change("Node", "n1", marked)
    for name, memory in (("big", 9000), ("mid", 5000), ("small", 6000)):
        container = {"image": "image", **_card("nvidia.com", 1, memory=memory)}
        cluster.add_pod(name, gpus=0, gates=[GATE], scheduler=HAMI, containers=[container])
    container = {"image": "image", **_card("nvidia.com", 1, memory=10000)}
    stated = {ALLOCATED: "GPU-1,NVIDIA,10000,0:;"}
    cluster.add_pod(
        "runs", gpus=0, scheduler=HAMI, node="n1", containers=[container], annotations=stated
    )
    cluster.add_namespace("gangplan-system")
    return cluster


@pytest.fixture
def shared(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(a_cluster(), tmp_path, monkeypatch) as made:
        yield made


def written(made: Bench) -> dict[str, str | None]:
    annotations = {
        name: made.cluster.pod(name)["metadata"].get("annotations") or {}
        for name in ("big", "mid", "small")
    }
    return {name: own.get(USE) for name, own in annotations.items()}


def test_hami_gets_the_card_of_each_part(shared: Bench) -> None:
    plan = shared.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    spec = json.loads(plan.read_text(encoding="utf-8"))["spec"]
    # 5,360 MiB are left of GPU 1, which is enough for mid alone; the others share GPU 0
    assert spec["shares"] == [
        {"node": "n1", "gpu": 1, "parts": ["5000Mi"]},
        {"node": "n1", "gpu": 0, "parts": ["9000Mi", "6000Mi"]},
    ]
    dry = shared.apply(plan, "--dry-run", "server")
    assert dry.code == 0, dry.err
    assert written(shared) == dict.fromkeys(("big", "mid", "small"))
    said = shared.apply(plan)
    assert said.code == 0, said.err
    assert written(shared) == {"big": "GPU-0", "mid": "GPU-1", "small": "GPU-0"}
    assert shared.apply(plan, "-o", "json").data()["status"] == "unchanged"


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost after", 409])
def test_a_run_cut_at_any_write_gives_no_part_twice(
    kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_cluster(), tmp_path, monkeypatch) as first:
        plan = first.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
        first.apply(plan)
        aim, writes = written(first), sum("/pods/" in path for _, path in first.written())
    assert writes == 3, "a start of each pod"
    for at in spread(range(writes), 3):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(a_cluster(), folder, monkeypatch) as made:
            with cut(made.cluster, Fault(at, kind)):
                made.apply(plan)
            said = made.apply(plan)
            assert said.code == 0, (at, said.err)
            assert written(made) == aim, at
            gated = [name for name in aim if "schedulingGates" in made.cluster.pod(name)["spec"]]
            assert gated == [], at


def test_nothing_starts_where_somebody_else_took_the_card_meanwhile(shared: Bench) -> None:
    plan = shared.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    whole = {"image": "image", **_card("nvidia.com", 1)}
    stated = {ALLOCATED: "GPU-0,NVIDIA,15360,0:;"}
    shared.cluster.add_pod(
        "late", gpus=0, scheduler=HAMI, node="n1", containers=[whole], annotations=stated
    )
    said = shared.apply(plan)
    assert said.code != 0
    assert "has 0 free GPUs, the plan needs 1" in said.out + said.err
    assert shared.cluster.pod("big")["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_whole_gpu_is_not_started_on_one_that_pods_share_meanwhile(shared: Bench) -> None:
    for name in ("big", "mid", "small"):
        shared.cluster.remove("Pod", name)
    shared.cluster.add_pod("whole", gpus=1, gates=[GATE], scheduler=HAMI)
    plan = shared.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    part = {"image": "image", **_card("nvidia.com", 1, memory=100)}
    stated = {ALLOCATED: "GPU-0,NVIDIA,100,0:;"}
    shared.cluster.add_pod(
        "late", gpus=0, scheduler=HAMI, node="n1", containers=[part], annotations=stated
    )
    said = shared.apply(plan)
    assert said.code != 0
    assert "free GPUs" in said.out + said.err
    assert shared.cluster.pod("whole")["spec"]["schedulingGates"] == [{"name": GATE}]


def test_a_whole_card_starts_once_the_pod_that_shared_it_is_evicted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One card, which only a pod shares that may be stopped."""
    cluster = FakeCluster()
    cluster.add_node("n1", gpus=10)

    def marked(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {REGISTER: cards(15360)}
        return tree

    cluster.change("Node", "n1", marked)
    container = {"image": "image", **_card("nvidia.com", 1, memory=10000)}
    notes = {ALLOCATED: "GPU-0,NVIDIA,10000,0:;", "gangplan.dev/preemptible": "true"}
    cluster.add_pod(
        "notebook", gpus=0, scheduler=HAMI, node="n1", containers=[container], annotations=notes
    )
    cluster.add_pod("whole", gpus=1, gates=[GATE], scheduler=HAMI, priority=10)
    cluster.add_namespace("gangplan-system")
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
        spec = json.loads(plan.read_text(encoding="utf-8"))["spec"]
        decided = {one["name"]: one["decision"] for one in spec["gangs"]}
        assert decided == {"notebook": "preempt", "whole": "place"}
        refused = made.apply(plan)
        assert refused.code != 0
        assert made.cluster.pod("whole")["spec"]["schedulingGates"] == [{"name": GATE}]
        said = made.apply(plan, "--allow-evictions")
        assert said.code == 0, said.err
        order = [
            (call.method, call.path.rsplit("/", 1)[-1])
            for call in made.cluster.calls
            if call.method != "GET" and "/pods/" in call.path and "dryRun" not in call.query
        ]
        whole = made.cluster.pod("whole")
    assert order.index(("POST", "eviction")) < [path for _, path in order].index("whole")
    assert not whole["spec"].get("schedulingGates")
    assert whole["metadata"]["annotations"][USE] == "GPU-0"
