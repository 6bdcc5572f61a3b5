"""Instances that claims make of GPUs (NVIDIA's DRA driver, dynamic MIG), planned, applied and killed."""

from __future__ import annotations

import io
import json
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from random import Random
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_setup import GATE
from apply_runs import OWN, TOLERATE, Bench, Fault, bench, cut, placed
from backend_world import FINALIZER, devices_of, give
from dynamic_mig import (
    API,
    DRIVER,
    asks,
    asks_whole,
    claim,
    devices,
    gpu_class,
    gpu_name,
    made,
    mig_class,
    slices,
)
from effort import examples, spread

from models.apply.plan_actions import InapplicablePlanError, PlanActions, actions_of
from models.apply.requests import Conflict, Done
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.search.solve import solve

Tree = dict[str, Any]

GPUS = 2
"""Of the server."""

PARTS = {**{f"a{i}": "1g.10gb" for i in range(5)}, "z0": "4g.40gb", "z1": "4g.40gb"}
"""Profiles that pods ask for, small ones first: no way but one gives all of them room beside ``old``."""


def add(
    found: FakeCluster,
    name: str,
    *requests: Tree,
    on: str | None = None,
    **more: Any,  # noqa: ANN401  # what pods of the fake cluster have
) -> None:
    """A pod with a claim of its own."""
    found.create(claim(f"claim-{name}", *requests))
    found.add_pod(
        name,
        gpus=0,
        gates=[] if on else [GATE],
        node=on,
        **more,
        tolerations=TOLERATE,
        resourceClaims=[{"name": "gpu", "resourceClaimName": f"claim-{name}"}],
    )


def hold(found: FakeCluster, name: str, *held: str) -> None:
    """The claim of a pod holds these devices of n1, allocated by a scheduler."""
    kind = found.kinds.named("ResourceClaim")
    tree = found.objects.get(kind, "default", f"claim-{name}")
    results = [{"request": "r", "driver": DRIVER, "pool": "n1", "device": one} for one in held]
    uid = found.pod(name)["metadata"]["uid"]
    tree["metadata"]["finalizers"] = [FINALIZER]
    tree["status"] = {
        "allocation": {"devices": {"results": results}},
        "reservedFor": [{"resource": "pods", "name": name, "uid": uid}],
    }
    found.put(tree)


def a_cluster() -> FakeCluster:
    """A server of two GPUs, of which a pod has an instance; pods that ask for all that is left."""
    found = FakeCluster()
    found.add_node("n1", gpus=0, taints=[OWN])
    for one in slices("n1", GPUS):
        found.create(one)
    found.create(mig_class())
    found.create(gpu_class())
    add(found, "old", asks("1g.10gb"), on="n1")
    hold(found, "old", made(0, "1g.10gb", 4, GPUS))
    for name, profile in PARTS.items():
        add(found, name, asks(profile))
    found.add_namespace("gangplan-system")
    return found


def planned(bench_: Bench, name: str = "plan.json") -> Path:
    """A plan of the cluster, its devices and claims among what is read."""
    source = bench_.folder / f"{name}.read"
    source.mkdir()
    for part in ("resourceslices", "deviceclasses", "resourceclaims"):
        _, tree, _ = bench_.cluster.handle("GET", f"/apis/{API}/{part}")
        (source / f"{part}.json").write_text(json.dumps(tree), encoding="utf-8")
    return bench_.plan(policy={"kubernetes": {"gpuBackend": "dra"}}, name=name)


def slices_of(device: str) -> tuple[str, frozenset[str]]:
    """The set of counters of a device, and its memory slices."""
    (one,) = (one for one in devices(GPUS) if one["name"] == device)
    (consumed,) = one["consumesCounters"]
    names = (name for name in consumed["counters"] if name.startswith("memory-slice"))
    return consumed["counterSet"], frozenset(names)


def held(found: FakeCluster) -> dict[str, str]:
    """The device of each claim that is allocated, none of which lies over another."""
    _, listed, _ = found.handle("GET", f"/apis/{API}/resourceclaims")
    names = [one["metadata"]["name"] for one in listed["items"]]
    result = {name: one for name in names for one in devices_of(found, name)}
    taken = [(own, one) for name in result.values() for own, of in [slices_of(name)] for one in of]
    assert len(taken) == len(set(taken)), result
    return {name.removeprefix("claim-"): device for name, device in result.items()}


@pytest.fixture
def any_mode(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    with bench(a_cluster(), tmp_path, monkeypatch) as made_:
        yield made_


def aim(plan: Path) -> dict[str, int]:
    """How many instances the plan makes on each GPU."""
    spec = json.loads(plan.read_text(encoding="utf-8"))["spec"]
    return {one["gpu"]: len(one["profiles"]) for one in spec["partitions"]}


def places(found: FakeCluster) -> list[tuple[str, int, list[int]]]:
    """(profile, GPU, slices) of each allocated instance."""
    named = {
        one["name"]: (one["attributes"]["profile"]["string"], *slices_of(one["name"]))
        for one in devices(GPUS)
        if "profile" in one["attributes"]
    }
    return sorted(
        (profile, int(own.removeprefix("set-")), sorted(int(one[-1]) for one in of))
        for profile, own, of in (named[name] for name in held(found).values())
    )


ALL = [
    ("1g.10gb", 0, [4]),
    ("1g.10gb", 0, [5]),
    ("1g.10gb", 0, [6]),
    ("1g.10gb", 1, [4]),
    ("1g.10gb", 1, [5]),
    ("1g.10gb", 1, [6]),
    ("4g.40gb", 0, [0, 1, 2, 3]),
    ("4g.40gb", 1, [0, 1, 2, 3]),
]
"""The only way."""


def test_claims_get_the_instances_of_the_plan_beside_those_in_use(any_mode: Bench) -> None:
    plan = planned(any_mode)
    shown = any_mode.run("show", str(plan)).out
    assert "by claims, partition n1:1 with 4g.40gb + 3 x 1g.10gb\n" in shown
    assert "by claims, partition n1:0 with 4g.40gb + 2 x 1g.10gb\n" in shown
    said = any_mode.apply(plan)
    assert said.code == 0, said.err
    assert "partitioned first" not in said.out + said.err
    assert aim(plan) == {0: 3, 1: 4}
    assert places(any_mode.cluster) == ALL
    assert set(any_mode.bound().values()) == {"n1"}
    assert any_mode.apply(plan, "-o", "json").data()["status"] == "unchanged"


def test_the_next_plan_reads_what_was_made(any_mode: Bench) -> None:
    any_mode.apply(planned(any_mode))
    add(any_mode.cluster, "late", asks("2g.20gb"))
    again = planned(any_mode, "again.json")
    document = json.loads(again.read_text(encoding="utf-8"))
    decided = {one["name"]: one["decision"] for one in document["spec"]["gangs"]}
    assert decided == {"late": "wait", **dict.fromkeys(["old", *PARTS], "keep")}
    running = [one for gang in document["instance"]["gangs"] for one in gang["status"]["pods"]]
    assert sorted((one["gpus"][0], one["start"]) for one in running if "node" in one) == sorted(
        (gpu, of[0]) for _, gpu, of in ALL
    )


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost after", 409])
def test_a_run_cut_anywhere_is_finished_by_the_next(
    kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_cluster(), tmp_path, monkeypatch) as first:
        plan = planned(first)
        first.apply(plan)
        calls = first.cluster.calls
        points = [at for at, call in enumerate(calls) if "/resourceclaims/" in call.path]
    assert any(calls[at].method == "PATCH" for at in points)
    kept = plan.read_bytes()
    for at in spread(points):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(a_cluster(), folder, monkeypatch) as made_:
            again = folder / "plan.json"
            again.write_bytes(kept)
            with cut(made_.cluster, Fault(at, kind, every=True)):
                made_.apply(again)
            held(made_.cluster)
            for _ in range(2):
                said = made_.apply(again)
            assert said.code == 0, (at, said.err)
            assert places(made_.cluster) == ALL, at


def test_slices_that_another_claim_took_since_are_not_given_twice(any_mode: Bench) -> None:
    plan = planned(any_mode)
    add(any_mode.cluster, "rival", asks("2g.20gb"), on="n1")
    hold(any_mode.cluster, "rival", made(1, "2g.20gb", 2, GPUS))
    said = any_mode.apply(plan)
    assert said.code != 0
    assert "has instances in use on GPU 1 where the plan has others" in said.out + said.err
    assert set(held(any_mode.cluster)) == {"old", "rival"}


FULL = """
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {kubernetes: {gpuBackend: BACKEND}}
---
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: full, uid: c}
spec: {nodes: [{name: n1, model: DGX H100, dynamicMig: H100-80}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: whole}
spec: {roles: [{name: w, replicas: 1, gpus: 7}]}
status: {pods: [{role: w, index: 0, node: n1, gpus: [0, 1, 2, 3, 4, 5, 6], uid: w}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: stays}
spec: {roles: [{name: w, replicas: 1, gpu: {profile: 2g.20gb}}]}
status: {pods: [{role: w, index: 0, node: n1, gpus: [7], start: 0, uid: s}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: low}
spec: {preemptible: true, roles: [{name: w, replicas: 1, gpu: {profile: 3g.40gb}}]}
status: {pods: [{role: w, index: 0, node: n1, gpus: [7], start: 4, uid: l}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: high}
spec:
  priority: 10
  roles:
  - {name: w, replicas: 1, gpu: {profile: 3g.40gb}}
  - {name: v, replicas: 2, gpu: {profile: 1g.10gb}}
status:
  pods:
  - {role: w, index: 0, mode: gate, uid: h}
  - {role: v, index: 0, mode: gate, uid: v0}
  - {role: v, index: 1, mode: gate, uid: v1}
"""


def orders_of(backend: str) -> PlanActions:
    found = load(["-"], stdin=io.BytesIO(FULL.replace("BACKEND", backend).encode())).instance
    outcome = solve(found)
    plan = compose(found, outcome, name="p", created_at="2026-11-21T00:00:00Z", generator="test")
    return actions_of(PlanDocument.model_validate(json.loads(json.dumps(plan))))


def test_who_comes_for_a_pod_that_leaves_gets_its_slices_and_others_new_ones() -> None:
    orders = {gang.name: gang for gang in orders_of("dra").gangs}
    assert [stop.uid for stop in orders["low"].stops] == ["l"]
    assert {start.uid: start.instances for start in orders["high"].starts} == {
        "h": (("nvidia.com/mig-3g.40gb", 7, 0b11110000),),
        "v0": (("nvidia.com/mig-1g.10gb", 7, 0b1000),),
        "v1": (("nvidia.com/mig-1g.10gb", 7, 0b100),),
    }


def test_where_no_claims_partition_gpus_a_plan_that_also_stops_gangs_is_not_applied() -> None:
    with pytest.raises(InapplicablePlanError, match="partitions GPUs, and stops or moves gangs"):
        orders_of("annotation")


def test_a_pod_that_is_evicted_leaves_its_slices_to_who_came_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = FakeCluster()
    found.add_node("n1", gpus=0, taints=[OWN])
    for one in [*slices("n1", GPUS), mig_class(), gpu_class()]:
        found.create(one)
    low = {"gangplan.dev/preemptible": "true"}
    for number, (profile, start) in enumerate([("4g.40gb", 0), ("3g.40gb", 4)]):
        for gpu in range(GPUS):
            add(found, f"low{gpu}{number}", asks(profile), on="n1", annotations=low)
            hold(found, f"low{gpu}{number}", made(gpu, profile, start, GPUS))
    add(found, "high", asks("3g.40gb"), priority=1000)
    found.add_namespace("gangplan-system")
    with bench(found, tmp_path, monkeypatch) as made_:
        plan = planned(made_)
        said = made_.apply(plan, "--allow-evictions")
        assert said.code == 0, said.err
        assert made_.bound()["high"] == "n1"
        got = devices_of(found, "claim-high")
        assert got in [[made(gpu, "3g.40gb", 4, GPUS)] for gpu in range(GPUS)]
        stays = {name for name in made_.bound() if name.startswith("low")}
        assert stays in ({"low00", "low01", "low10"}, {"low00", "low10", "low11"})


def test_gpus_are_given_whole_once_those_who_had_instances_have_gone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two notebooks leave one of two GPUs; the gang starts after both are gone, and the run may be cut."""

    def cluster() -> FakeCluster:
        found = FakeCluster()
        found.add_node("n1", gpus=0, taints=[OWN])
        for one in [*slices("n1", GPUS), mig_class(), gpu_class()]:
            found.create(one)
        for number, start in enumerate((0, 6)):
            may = {"gangplan.dev/preemptible": "true"}
            add(found, f"low{number}", asks("1g.10gb"), on="n1", annotations=may)
            hold(found, f"low{number}", made(1, "1g.10gb", start, GPUS))
        add(found, "high", asks_whole(2), priority=1000)
        found.add_namespace("gangplan-system")
        return found

    with bench(cluster(), tmp_path, monkeypatch) as made_:
        plan = planned(made_)
        shown = made_.run("show", str(plan)).out
        assert "by claims, make whole n1:1\n" in shown
        assert made_.apply(plan, "--allow-evictions").code == 0
        calls = [call for call in made_.cluster.calls if call.method in ("PATCH", "POST")]
        last = max(n for n, call in enumerate(calls) if call.path.endswith("/eviction"))
        opened = [n for n, call in enumerate(calls) if call.path.endswith("/pods/high")]
        assert max(opened) > last
        assert made_.bound() == {"high": "n1"}
        whole = sorted(devices_of(made_.cluster, "claim-high"))
        assert whole == sorted(gpu_name(gpu, GPUS) for gpu in range(GPUS))
        points = [at for at, call in enumerate(made_.cluster.calls) if call.method != "GET"]
    kept = plan.read_bytes()
    for at in spread(points):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(cluster(), folder, monkeypatch) as made_:
            again = folder / "plan.json"
            again.write_bytes(kept)
            with cut(made_.cluster, Fault(at, "crash after", every=True)):
                made_.apply(again, "--allow-evictions")
            held(made_.cluster)
            for _ in range(2):
                said = made_.apply(again, "--allow-evictions")
            assert said.code == 0, (at, said.err)
            assert made_.bound() == {"high": "n1"}, at


# ---- one claim


def waiting(found: FakeCluster, *requests: Tree) -> Tree:
    add(found, "p", *requests)
    return found.pod("p")


def test_a_gpu_is_not_given_whole_over_an_instance() -> None:
    found = a_cluster()
    pod = waiting(found, asks_whole(1))
    said = give(found, pod, (0,))
    assert said == Conflict(
        f"device {gpu_name(0, GPUS)} of node n1 is held by claim default/claim-old"
    )
    assert give(found, pod, (1,)) == Done()
    assert held(found)["p"] == gpu_name(1, GPUS)


def test_no_instance_is_made_of_a_gpu_that_is_held_whole() -> None:
    found = a_cluster()
    assert give(found, waiting(found, asks_whole(1)), (1,)) == Done()
    add(found, "q", asks("7g.80gb"))
    assert give(found, found.pod("q"), ()) == Conflict(
        "no 7g.80gb of node n1 is free for claim claim-q"
    )


def test_where_no_plan_says_it_gpus_that_have_instances_get_more_as_far_back_as_can_be() -> None:
    found = a_cluster()
    assert give(found, waiting(found, asks("1g.10gb"), asks("2g.20gb", "s")), ()) == Done()
    mine = devices_of(found, "claim-p")
    assert mine == [made(0, "1g.10gb", 6, GPUS), made(0, "2g.20gb", 2, GPUS)]


def test_instances_of_one_claim_take_different_slices() -> None:
    found = a_cluster()
    wanted = [asks(profile, f"r{i}") for i, profile in enumerate(["1g.10gb", "1g.20gb", "1g.10gb"])]
    assert give(found, waiting(found, *wanted), ()) == Done()
    assert devices_of(found, "claim-p") == [
        made(0, "1g.10gb", 6, GPUS),
        made(0, "1g.20gb", 2, GPUS),
        made(0, "1g.10gb", 5, GPUS),
    ]
    slices_held = [one for device in devices_of(found, "claim-p") for one in slices_of(device)[1]]
    assert len(set(slices_held)) == len(slices_held) == 4


def test_a_pod_with_a_whole_gpu_gets_its_instance_of_another() -> None:
    found = FakeCluster()
    found.add_node("n1", gpus=0)
    for one in [*slices("n1", GPUS), mig_class(), gpu_class()]:
        found.create(one)
    found.create(claim("claim-q", asks()))
    found.create(claim("claim-w", asks_whole(1)))
    names = [{"name": one, "resourceClaimName": f"claim-{one}"} for one in ("q", "w")]
    pod = found.add_pod("p", gpus=0, gates=[GATE], resourceClaims=names)
    assert give(found, pod, (0,)) == Done()
    assert held(found) == {"w": gpu_name(0, GPUS), "q": made(1, "1g.10gb", 6, GPUS)}


def test_a_tainted_instance_is_not_made() -> None:
    listed = devices(GPUS)
    for one in listed:
        if one["name"] in {made(0, "3g.40gb", 0, GPUS), made(1, "3g.40gb", 4, GPUS)}:
            one["taints"] = [{"key": "xid", "effect": "NoSchedule"}]
    found = a_cluster()
    for one in slices("n1", GPUS, listed):
        found.put(one)
    assert give(found, waiting(found, asks("3g.40gb")), ()) == Done()
    assert held(found)["p"] == made(1, "3g.40gb", 0, GPUS)


def a_random_cluster(random: Random, *, evicting: bool = False) -> FakeCluster:
    """A server of two GPUs with instances in use, and pods that ask for instances and whole GPUs.

    ``evicting``: most of what runs may be stopped for the others.
    """
    found = FakeCluster()
    found.add_node("n1", gpus=0, taints=[OWN])
    for one in [*slices("n1", GPUS), mig_class(), gpu_class()]:
        found.create(one)
    taken: set[tuple[str, str]] = set()
    for number, one in enumerate(random.sample(devices(GPUS), 12)):
        profile = one["attributes"].get("profile", {}).get("string")
        own, of = slices_of(one["name"])
        mine = {(own, slice_) for slice_ in of}
        if profile not in (None, "1g.10gb+me") and not mine & taken and len(of) < 8:
            taken |= mine
            gives_way = evicting and random.random() < 0.8
            may = {"annotations": {"gangplan.dev/preemptible": "true"}} if gives_way else {}
            add(found, f"old{number}", asks(profile), on="n1", **may)
            hold(found, f"old{number}", one["name"])
    profiles = random.choices(
        ["1g.10gb", "1g.20gb", "2g.20gb", "3g.40gb", "4g.40gb"], k=3 if evicting else 6
    )
    first = {"priority": 1000} if evicting else {}
    for number, profile in enumerate(profiles):
        add(found, f"new{number}", asks(profile), **first)
    if random.random() < (0.8 if evicting else 0.3):
        add(found, "whole", asks_whole(1), **first)
    found.add_namespace("gangplan-system")
    return found


@pytest.mark.parametrize("seed", range(examples(60, 8)))
def test_whatever_is_planned_with_evictions_is_made_and_nothing_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = a_random_cluster(Random(seed), evicting=True)
    with bench(cluster, tmp_path, monkeypatch) as made_:
        plan = planned(made_)
        document = json.loads(plan.read_text(encoding="utf-8"))
        assert check(document) == []
        said = made_.apply(plan, "--allow-evictions")
        assert said.code == 0, said.err
        decided = {one["name"]: one["decision"] for one in document["spec"]["gangs"]}
        runs = {name for name, decision in decided.items() if decision in ("keep", "place")}
        assert set(held(made_.cluster)) == runs


@pytest.mark.parametrize("seed", range(examples(60, 8)))
def test_whatever_is_planned_is_made_and_nothing_twice(
    seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(a_random_cluster(Random(seed)), tmp_path, monkeypatch) as made_:
        plan = planned(made_)
        document = json.loads(plan.read_text(encoding="utf-8"))
        assert check(document) == []
        said = made_.apply(plan)
        assert said.code == 0, said.err
        starts = {name for name in placed(plan) if not name.startswith("old")}
        found = held(made_.cluster)
        assert {name for name in found if not name.startswith("old")} == starts
        assert {made_.bound()[name] for name in starts} <= {"n1"}
        again = json.loads(planned(made_, "again.json").read_text(encoding="utf-8"))
        decided = Counter(one["decision"] for one in again["spec"]["gangs"])
        assert set(decided) <= {"keep", "wait"}, "the first plan left nothing that fits"
