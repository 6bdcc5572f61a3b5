"""Instances that claims make (dynamic MIG), planned and made, whatever is asked for; and cards of HAMi."""

from __future__ import annotations

import io
import json
from pathlib import Path
from random import Random
from typing import Any

import backend_world as dra
import pytest
from apiserver import FakeCluster
from apply_runs import Bench, OnCluster, placed
from cluster_contents import GATE
from dynamic_mig import asks, asks_whole, devices, made
from effort import examples
from made_instances import GPUS, PARTS, add, held, hold, of_made, partitionable, slices_of

from models.apply.plan_actions import InapplicablePlanError, PlanActions, actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.search.solve import solve

Tree = dict[str, Any]
pytest_plugins = ("apply_fixtures",)

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}

# ---- instances that claims make


def test_the_next_plan_reads_what_was_made(on_cluster: OnCluster) -> None:
    """And no pod of a gang gets slices before those who had them are gone."""
    run = on_cluster(of_made())
    first = dra.planned(run)
    aim = json.loads(first.read_text(encoding="utf-8"))["spec"]["partitions"]
    assert {one["gpu"]: len(one["profiles"]) for one in aim} == {0: 3, 1: 4}
    run.apply(first)
    add(run.cluster, "late", asks("2g.20gb"))
    document = json.loads(dra.planned(run, name="again.json").read_text(encoding="utf-8"))
    decided = {one["name"]: one["decision"] for one in document["spec"]["gangs"]}
    assert decided == {"late": "wait", **dict.fromkeys(["old", *PARTS], "keep")}
    running = [one for gang in document["instance"]["gangs"] for one in gang["status"]["pods"]]
    assert sorted((one["gpus"][0], one["start"]) for one in running if "node" in one) == [
        (gpu, start) for gpu in range(2) for start in (0, 4, 5, 6)
    ]


def test_slices_taken_since_are_not_given_twice(on_cluster: OnCluster) -> None:
    run = on_cluster(of_made())
    plan = dra.planned(run)
    add(run.cluster, "rival", asks("2g.20gb"), on="n1")
    hold(run.cluster, "rival", made(1, "2g.20gb", 2, GPUS))
    said = run.apply(plan)
    assert said.code == 6
    assert "has instances in use on GPU 1 where the plan has others" in said.out + said.err
    assert set(held(run.cluster)) == {"old", "rival"}


def test_an_evicted_pod_leaves_its_slices(on_cluster: OnCluster) -> None:
    found = partitionable()
    for number, (profile, start) in enumerate([("4g.40gb", 0), ("3g.40gb", 4)]):
        for gpu in range(GPUS):
            add(found, f"low{gpu}{number}", asks(profile), on="n1", annotations=PREEMPTIBLE)
            hold(found, f"low{gpu}{number}", made(gpu, profile, start, GPUS))
    add(found, "high", asks("3g.40gb"), priority=1000)
    run = on_cluster(found)
    said = run.apply(dra.planned(run), "--allow-evictions")
    assert said.code == 0, said.err
    (device,) = dra.devices_of(found, "claim-high")
    gpu = [made(gpu, "3g.40gb", 4, GPUS) for gpu in range(GPUS)].index(device)
    left = {f"low{one}{number}" for one in range(2) for number in range(2)} - {f"low{gpu}1"}
    assert run.bound() == dict.fromkeys(["high", *left], "n1")


FULL = Path(__file__).with_name("instances_given_way.yaml").read_text("utf-8")


def orders_of(backend: str) -> PlanActions:
    found = load(["-"], stdin=io.BytesIO(FULL.replace("BACKEND", backend).encode())).instance
    plan = compose(
        found, solve(found), name="p", created_at="2026-11-21T00:00:00Z", generator="test"
    )
    return actions_of(PlanDocument.model_validate(json.loads(json.dumps(plan))))


def test_who_comes_for_a_pod_that_leaves_gets_its_slices_and_others_new_ones() -> None:
    """Where no claims partition GPUs, that is not applied."""
    orders = {gang.name: gang for gang in orders_of("dra").gangs}
    assert [stop.uid for stop in orders["low"].stops] == ["l"]
    assert {start.uid: start.instances for start in orders["high"].starts} == {
        "h": (("nvidia.com/mig-3g.40gb", 7, 0b11110000),),
        "v0": (("nvidia.com/mig-1g.10gb", 7, 0b1000),),
        "v1": (("nvidia.com/mig-1g.10gb", 7, 0b100),),
    }
    with pytest.raises(InapplicablePlanError, match="partitions GPUs, and stops or moves gangs"):
        orders_of("annotation")


def a_random_cluster(random: Random, *, evicting: bool = False) -> FakeCluster:
    """A server of two GPUs with instances in use, and pods that ask for instances and whole GPUs.

    ``evicting``: most of what runs may be stopped for the others.
    """
    found = partitionable()
    taken: set[tuple[str, str]] = set()
    for number, one in enumerate(random.sample(devices(GPUS), 12)):
        profile = one["attributes"].get("profile", {}).get("string")
        own, of = slices_of(one["name"])
        mine = {(own, slice_) for slice_ in of}
        if profile not in (None, "1g.10gb+me") and not mine & taken and len(of) < 8:
            taken |= mine
            gives_way = evicting and random.random() < 0.8
            may = {"annotations": PREEMPTIBLE} if gives_way else {}
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
    return found


@pytest.mark.parametrize("evicting", [False, True])
@pytest.mark.parametrize("seed", range(examples(60, 2)))
def test_what_is_planned_is_made_and_nothing_twice(
    *, seed: int, evicting: bool, on_cluster: OnCluster
) -> None:
    found = a_random_cluster(Random(seed), evicting=evicting)
    run = on_cluster(found)
    plan = dra.planned(run)
    document = json.loads(plan.read_text(encoding="utf-8"))
    assert check(document) == []
    said = run.apply(plan, *(["--allow-evictions"] if evicting else []))
    assert said.code == 0, said.err
    decided = {one["name"]: one["decision"] for one in document["spec"]["gangs"]}
    runs = {name for name, decision in decided.items() if decision in ("keep", "place")}
    assert set(held(found)) == runs
    starts = {name for name in placed(plan) if name.startswith(("new", "whole"))}
    assert {run.bound()[name] for name in starts} <= {"n1"}
    if not evicting:
        again = json.loads(dra.planned(run, name="again.json").read_text(encoding="utf-8"))
        left = {one["decision"] for one in again["spec"]["gangs"]}
        assert left <= {"keep", "wait"}, "the first plan left nothing that fits"


# ---- HAMi

USE = "nvidia.com/use-gpuuuid"


@pytest.fixture
def hami(on_cluster: OnCluster) -> Bench:
    """A node whose 4 cards HAMi hands out in 10 shares each."""
    found = FakeCluster()
    found.add_node("n1", gpus=40)
    entries = [{"id": f"GPU-{i}", "health": True, **({"index": i} if i else {})} for i in range(4)]

    def registered(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(entries)}
        return tree

    found.change("Node", "n1", registered)
    found.add_namespace("gangplan-system")
    return on_cluster(found)


def annotations(run: Bench, name: str) -> dict[str, str]:
    found: dict[str, str] = run.cluster.pod(name)["metadata"].get("annotations") or {}
    return found


def test_hami_gets_whole_cards_and_others_wait(hami: Bench) -> None:
    """``big`` wants 3 cards, ``odd`` 1."""
    hami.cluster.add_pod("big", gpus=3, gates=[GATE], scheduler="hami-scheduler", priority=9)
    hami.cluster.add_pod("odd", gpus=1, gates=[GATE], scheduler="default-scheduler")
    plan = hami.plan(policy={"kubernetes": {"gpuBackend": "hami"}})
    said = hami.apply(plan)
    document = json.loads(plan.read_text(encoding="utf-8"))
    pods = {gang["name"]: gang["pods"] for gang in document["spec"]["gangs"]}
    assert annotations(hami, "big")[USE] == ",".join(f"GPU-{n}" for n in pods["big"][0]["gpus"])
    assert "schedulingGates" not in hami.cluster.pod("big")["spec"]
    assert len(pods["odd"]) == 1, "its scheduler is not known to the plan, only to the pod"
    assert said.code == 7
    assert "only HAMi's scheduler reads a list of cards" in said.out + said.err
    assert hami.cluster.pod("odd")["spec"]["schedulingGates"] == [{"name": GATE}]
    assert "gangplan.dev/plan" not in annotations(hami, "odd")


def test_nothing_is_written_for_a_gang_of_which_a_pod_cannot_be_told_its_cards(hami: Bench) -> None:
    """duo: its second pod has a choice of its own."""
    more = {"gpus": 1, "scheduler": "hami-scheduler", "each": {1: {USE: "GPU-0"}}}
    dra.add_gang(hami.cluster, "duo", 2, **more)
    said = hami.apply(hami.plan(policy={"kubernetes": {"gpuBackend": "hami"}}))
    assert said.code == 7
    assert "chooses cards already" in said.out + said.err
    assert not [call for call in hami.cluster.writes if "/pods/duo-" in call.path]
    assert annotations(hami, "duo-1")[USE] == "GPU-0", "what its owner wrote stays"
