"""HAMi's cards in MIG mode: what they can have, who holds it, and what a plan gives (HAMi 2.10)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apply_runs import Fault, Tree, bench, cut
from building import instance_document
from bundles import load_all
from cluster_contents import GATE
from effort import spread
from kube import node, pod

from models.results.plan import compose
from models.verify.check import check
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve

Json = dict[str, Any]

A100 = {"nvidia.com/gpu.product": "NVIDIA-A100-SXM4-40GB"}
PLACES = {
    "1g.5gb": (4864, range(7), 1),
    "2g.10gb": (9856, (0, 2, 4), 2),
    "3g.20gb": (19968, (0, 4), 4),
    "7g.40gb": (40192, (0,), 8),
}
REGISTER, ALLOCATIONS = "hami.io/node-nvidia-register", "hami.io/vgpu-mig-allocations"
MODE, USE = "nvidia.com/vgpu-mode", "nvidia.com/use-gpuuuid"
POLICY = {
    "apiVersion": "gangplan.dev/v1alpha1",
    "kind": "Policy",
    "spec": {"kubernetes": {"gpuBackend": "hami"}},
}


def profiles(*names: str) -> list[Json]:
    return [
        {
            "name": name,
            "memoryMB": PLACES[name][0],
            "core": 14,
            "sliceCount": PLACES[name][2],
            "placements": [{"start": s, "size": PLACES[name][2]} for s in PLACES[name][1]],
        }
        for name in names or PLACES
    ]


def card(index: int, **fields: object) -> Json:
    """A card as HAMi registers it, which leaves out what is 0 or false."""
    found: Json = {
        "id": f"GPU-{index}", "index": index, "count": 7, "devmem": 40960, "devcore": 100,
        "type": "NVIDIA-A100-SXM4-40GB", "mode": "mig", "health": True, "migProfiles": profiles(),
    }  # fmt: skip
    return {key: value for key, value in (found | fields).items() if value}


def server(*cards: Json, name: str = "n1") -> Json:
    found = node(name, gpus=14, **A100)
    listed = cards or (card(0), card(1))
    found["metadata"]["annotations"] = {REGISTER: json.dumps(listed)}
    return found


def made(profile: str, start: int, uuid: str = "GPU-0", **fields: object) -> str:
    found = {
        "containerIndex": 0, "deviceIndex": 0, "gpuUUID": uuid, "profile": profile,
        "placement": {"start": start, "size": PLACES[profile][2]},
    }  # fmt: skip
    return json.dumps([found | fields])


def asks(memory: int = 0, gpus: int = 1) -> Json:
    amounts = {"nvidia.com/gpu": str(gpus)} | ({"nvidia.com/gpumem": str(memory)} if memory else {})
    return {"name": "c", "resources": {"limits": amounts, "requests": amounts}}


def user(name: str, memory: int, *, allocation: str | None = None, **spec: Any) -> Json:  # noqa: ANN401
    annotations = {MODE: "mig"} | ({ALLOCATIONS: allocation} if allocation else {})
    gated = "on" not in spec
    containers = spec.pop("containers", [asks(memory)])
    return pod(
        name, gated=gated, annotations=annotations, containers=containers,
        schedulerName="hami-scheduler", **spec,
    )  # fmt: skip


def loaded(*trees: Json, policy: Json = POLICY) -> LoadedInput:
    return load_all([policy, *trees])


def documents(*trees: Json) -> tuple[Json, dict[str, Json], list[str]]:
    """The only node, the pods of gangs, and what was remarked."""
    found = loaded(*trees)
    document = instance_document(found.instance)
    (own,) = document["cluster"]["spec"]["nodes"]
    pods = {p["name"]: p for gang in document["gangs"] for p in gang["status"]["pods"]}
    return own, pods, found.remarks


def solved(*trees: Json) -> Json:
    """The plan, which the judge has accepted."""
    instance = loaded(*trees).instance
    found: Json = json.loads(
        json.dumps(
            compose(
                instance,
                solve(instance),
                name="p",
                created_at="2026-11-21T00:00:00Z",
                generator="test",
            )
        )
    )
    assert check(found) == []
    return found


@pytest.mark.parametrize(
    "cards",
    [
        [card(0), card(1, mode="hami-core", migProfiles=None)],
        [card(0), card(1, migProfiles=profiles("1g.5gb"))],
        [card(0), card(1, migProfiles=None)],
        [card(0), card(2)],
        [card(i, migProfiles=[{**profiles("1g.5gb")[0], "placements": [{"size": 1}]}]) for i in (0, 1)],
        [card(i, migProfiles=[{**profiles("1g.5gb")[0], "name": "1g.99gb"}]) for i in (0, 1)],
        [card(i, migProfiles={"name": "1g.5gb"}) for i in (0, 1)],
        [card(i, migProfiles=[{"name": "1g.5gb", "placements": [{"size": 10**30}]}]) for i in (0, 1)],
    ],
)  # fmt: skip
def test_cards_that_are_not_understood_give_nothing(cards: list[Json]) -> None:
    own, _, _ = documents(server(*cards), user("a", 4000))
    assert "dynamicMig" not in own
    plan = solved(server(*cards), user("a", 4000), pod("w", gated=True, gpus=1))
    assert {one["decision"] for one in plan["spec"]["gangs"]} == {"wait"}


# ---- apply


def a_cluster() -> FakeCluster:
    """Two cards in MIG mode, of which one pod has half of the second; three pods wait."""
    cluster = FakeCluster()
    cluster.add_node("n1", gpus=14, labels=A100)

    def marked(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {REGISTER: json.dumps([card(0), card(1)])}
        return tree

    cluster.change("Node", "n1", marked)
    for name, memory in (("big", 39000), ("mid", 8000), ("small", 4000)):
        cluster.add_pod(
            name, gpus=0, gates=[GATE], scheduler="hami-scheduler", annotations={MODE: "mig"},
            containers=[{"image": "image", **asks(memory)}],
        )  # fmt: skip
    cluster.add_pod(
        "runs", gpus=0, scheduler="hami-scheduler", node="n1",
        annotations={MODE: "mig", ALLOCATIONS: made("3g.20gb", 4, "GPU-1")},
        containers=[{"image": "image", **asks(18000)}],
    )  # fmt: skip
    cluster.add_namespace("gangplan-system")
    return cluster


def chosen(cluster: FakeCluster) -> dict[str, str | None]:
    names = ("big", "mid", "small")
    annotations = {name: cluster.pod(name)["metadata"].get("annotations") or {} for name in names}
    return {name: own.get(USE) for name, own in annotations.items()}


def test_hami_gets_the_card_of_each_instance_and_nobody_partitions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_cluster(), tmp_path, monkeypatch) as made_:
        plan = made_.plan(policy=POLICY["spec"])
        said = made_.run("show", str(plan)).out
        assert "by HAMi, partition n1:0 with 7g.40gb" in said
        assert "by HAMi, partition n1:1 with" in said
        done = made_.apply(plan)
        assert done.code == 0, done.err
        assert chosen(made_.cluster) == {"big": "GPU-0", "mid": "GPU-1", "small": "GPU-1"}
        assert made_.apply(plan, "-o", "json").data()["status"] == "unchanged"


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost after", 409])
def test_a_run_cut_at_any_write_gives_the_same_cards(
    kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_cluster(), tmp_path, monkeypatch) as first:
        plan = first.plan(policy=POLICY["spec"])
        first.apply(plan)
        aim, writes = chosen(first.cluster), sum("/pods/" in p for _, p in first.written())
    for at in spread(range(writes), 3):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(a_cluster(), folder, monkeypatch) as made_:
            with cut(made_.cluster, Fault(at, kind)):
                made_.apply(plan)
            said = made_.apply(plan)
            assert said.code == 0, (at, said.err)
            assert chosen(made_.cluster) == aim, at
