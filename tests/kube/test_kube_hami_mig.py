"""HAMi's cards in MIG mode: what they can have, who holds it, and what a plan gives (HAMi 2.10)."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_setup import GATE
from apply_runs import Fault, Tree, bench, cut
from building import instance_document
from kube import node, pod

from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
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
SMALL, MIDDLE, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb", "nvidia.com/mig-3g.20gb"
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
    listed = {"apiVersion": "v1", "kind": "List", "items": [policy, *trees]}
    return load(["-"], stdin=io.BytesIO(json.dumps(listed).encode()))


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


def asked(tree: Json) -> tuple[dict[str, str], str | None]:
    """What a pod that waits requests, and why it is not planned."""
    document = instance_document(loaded(server(), tree).instance)
    (gang,) = document["gangs"]
    requests = gang["spec"]["roles"][0].get("requests", {})
    return requests, gang["status"].get("hold", {}).get("message")


def test_cards_in_mig_mode_get_instances_and_are_never_given_whole() -> None:
    own, _, _ = documents(server(), user("a", 8000))
    assert own["dynamicMig"] == "A100-40"
    assert own["mig"] == [{"gpus": [0], "profiles": []}, {"gpus": [1], "profiles": []}]
    assert own.get("unknownUnhealthy", 0) == 0
    whole = pod("w", gated=True, gpus=1, schedulerName="hami-scheduler")
    plan = solved(server(), whole, user("a", 8000), user("b", 18000))
    decided = {one["name"]: one["decision"] for one in plan["spec"]["gangs"]}
    assert decided == {"w": "wait", "a": "place", "b": "place"}
    parts = [part for one in plan["spec"]["partitions"] for part in one["profiles"]]
    assert {"2g.10gb", "3g.20gb"} <= set(parts)


def test_an_instance_in_use_keeps_its_slices() -> None:
    runs = user("r", 8000, allocation=made("2g.10gb", 2, "GPU-1"), on="n1")
    own, pods, remarks = documents(server(), runs, user("a", 4000))
    assert own["mig"] == [{"gpus": [gpu], "profiles": []} for gpu in (0, 1)]
    assert (pods["r"]["gpus"], pods["r"]["start"]) == ([1], 2)
    assert [line for line in remarks if "annotation" in line] == []
    # from slice 2 on it leaves no half in front: of three large instances two are on the other card
    large = [user(f"l{i}", 18000) for i in range(4)]
    plan = solved(server(), runs, *large)
    assert [one["decision"] for one in plan["spec"]["gangs"]].count("place") == 3
    on = {one["gpu"]: one["profiles"] for one in plan["spec"]["partitions"]}
    assert on == {0: ["3g.20gb"] * 2, 1: ["3g.20gb", "2g.10gb"]}  # and one that nobody has yet


@pytest.mark.parametrize(
    ("tree", "requests", "why"),
    [
        (user("a", 4864), {SMALL: "1"}, None),
        (user("a", 4865), {MIDDLE: "1"}, None),
        (user("a", 10000), {LARGE: "1"}, None),
        (user("a", 40193), None, "more GPU memory than any MIG profile"),
        (user("a", 0), None, "without memory"),
        (user("a", 0, containers=[asks(4000, gpus=2)]), None, "several containers"),
        (user("a", 0, containers=[asks(4000), asks(4000)]), None, "several containers"),
    ],
)
def test_a_pod_gets_the_profile_with_the_least_memory_that_suffices(
    tree: Json, requests: dict[str, str] | None, why: str | None
) -> None:
    found, hold = asked(tree)
    if why is None:
        assert (found, hold) == (requests, None)
    else:
        assert why in str(hold)


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


@pytest.mark.parametrize(
    "allocation",
    [
        "[",
        "[" * 100_000,
        "[]",
        "{}",
        '[{"gpuUUID": "GPU-0"}]',
        made("2g.10gb", 0, "GPU-9"),
        made("2g.10gb", 0).replace("2g.10gb", "9g.99gb"),
        made("2g.10gb", 1),
        made("2g.10gb", 0, placement={"start": 0, "size": 3}),
        made("2g.10gb", 0, placement={"start": 10**40, "size": 2}),
        json.dumps([*json.loads(made("1g.5gb", 0)), *json.loads(made("1g.5gb", 1))]),
    ],
)
def test_where_nobody_knows_its_slices_no_card_of_its_node_gets_more(allocation: str) -> None:
    runs = user("r", 8000, allocation=allocation, on="n1")
    own, _, remarks = documents(server(), runs, user("a", 4000))
    assert (own["unknownUnhealthy"], own.get("mig")) == (2, None)
    said = [line for line in remarks if ALLOCATIONS in line]
    kept = len(allocation) < 50_000  # longer ones are dropped when the input is read
    assert len(said) == kept
    what = "Pod default/r: its annotation hami.io/vgpu-mig-allocations names no instance that"
    assert all(line.startswith(what) for line in said)
    plan = solved(server(), runs, user("a", 4000))
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
    for at in range(writes):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(a_cluster(), folder, monkeypatch) as made_:
            with cut(made_.cluster, Fault(at, kind)):
                made_.apply(plan)
            said = made_.apply(plan)
            assert said.code == 0, (at, said.err)
            assert chosen(made_.cluster) == aim, at
