"""Back ends from the command line on: plans of devices and MIG instances, there or made by claims (dynamic
MIG), planned, applied, killed and applied again; and cards of HAMi.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
from apiserver import FakeCluster
from apiserver_setup import GATE
from apply_runs import OWN, TOLERATE, Bench, Fault, bench, cut, cuts, placed
from backend_world import (
    BIG,
    FINALIZER,
    FIRST,
    GPU,
    LARGE,
    SECOND,
    add_gang,
    cluster,
    devices_of,
    metadata_of,
    part,
    parted,
    planned,
    request,
    status_of,
)
from dynamic_mig import asks, asks_whole, devices, gpu_name, made
from effort import examples
from made_instances import GPUS, add, held, hold, partitionable, slices_of

from models.apply.plan_actions import InapplicablePlanError, PlanActions, actions_of
from models.documents.plan import PlanDocument
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.search.solve import solve

Tree = dict[str, Any]

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}


def of_devices() -> FakeCluster:
    """Two nodes of 8 devices; gangs a and b of two pods with a claim for 4 GPUs each: all are taken."""
    found = cluster("n1", "n2", taints=[OWN])
    for name in ("a", "b"):
        add_gang(found, name, 2, request(4), tolerations=TOLERATE)
    found.add_namespace("gangplan-system")
    return found


def check_devices(run: Bench, plan: Path) -> None:
    """Every pod has the devices of the plan, protected and reserved for it."""
    document = json.loads(plan.read_text(encoding="utf-8"))
    aim = {
        pod["name"]: (pod["node"], [f"gpu-{index}" for index in pod["gpus"]])
        for gang in document["spec"]["gangs"]
        for pod in gang["pods"]
    }
    there = {
        name: (node, devices_of(run.cluster, f"claim-{name}")) for name, node in run.bound().items()
    }
    assert there == aim
    assert len(there) == 4
    for name in there:
        assert FINALIZER in metadata_of(run.cluster, f"claim-{name}")["finalizers"]
        assert len(status_of(run.cluster, f"claim-{name}")["reservedFor"]) == 1


def of_instances() -> FakeCluster:
    """Gangs that take every instance, and the whole GPU: small of two pods, large and wide of one."""
    found = parted(taints=[OWN])
    for name, size, wanted in (("small", 2, part()), ("large", 1, part(LARGE)), ("wide", 1, GPU)):
        add_gang(found, name, size, wanted, tolerations=TOLERATE)
    found.add_namespace("gangplan-system")
    return found


def check_instances(run: Bench, _: Path) -> None:
    """Every pod runs, and has a device of its kind that no other has."""
    names = ("small-0", "small-1", "large-0", "wide-0")
    assert run.bound() == dict.fromkeys(names, "n1")
    small, other, large, wide = (devices_of(run.cluster, f"claim-{name}") for name in names)
    assert (sorted(small + other), large, wide) == ([FIRST, SECOND], [BIG], ["gpu-0"])


PARTS = {**{f"a{i}": "1g.10gb" for i in range(5)}, "z0": "4g.40gb", "z1": "4g.40gb"}
"""Profiles that pods ask for, small ones first: no way but one gives all of them room beside ``old``."""


def of_made() -> FakeCluster:
    """A server of two GPUs, of which a pod has an instance; pods that ask for all that is left."""
    found = partitionable()
    add(found, "old", asks("1g.10gb"), on="n1")
    hold(found, "old", made(0, "1g.10gb", 4, GPUS))
    for name, profile in PARTS.items():
        add(found, name, asks(profile))
    return found


def check_made(run: Bench, _: Path) -> None:
    """The only way: slices 4 to 6 of both GPUs one by one, and the first four together."""
    named = {
        one["name"]: (one["attributes"]["profile"]["string"], *slices_of(one["name"]))
        for one in devices(GPUS)
        if "profile" in one["attributes"]
    }
    assert sorted(
        (profile, own, sorted(int(one[-1]) for one in of))
        for profile, own, of in (named[name] for name in held(run.cluster).values())
    ) == [
        *[("1g.10gb", f"set-{gpu}", [slice_]) for gpu in range(2) for slice_ in (4, 5, 6)],
        *[("4g.40gb", f"set-{gpu}", [0, 1, 2, 3]) for gpu in range(2)],
    ]
    assert set(run.bound().values()) == {"n1"}


def of_made_whole() -> FakeCluster:
    """Two notebooks leave one of two GPUs; the gang that wants both starts after they are gone."""
    found = partitionable()
    for number, start in enumerate((0, 6)):
        add(found, f"low{number}", asks("1g.10gb"), on="n1", annotations=PREEMPTIBLE)
        hold(found, f"low{number}", made(1, "1g.10gb", start, GPUS))
    add(found, "high", asks_whole(2), priority=1000)
    return found


def check_made_whole(run: Bench, _: Path) -> None:
    assert run.bound() == {"high": "n1"}
    gpus = sorted(gpu_name(gpu, GPUS) for gpu in range(GPUS))
    assert sorted(devices_of(run.cluster, "claim-high")) == gpus


@dataclass(frozen=True)
class Case:
    """A cluster, how its plan ends, and options of apply. ``shown``: of the plan."""

    make: Callable[[], FakeCluster]
    check: Callable[[Bench, Path], None]
    shown: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


CASES = {
    "devices": Case(of_devices, check_devices),
    "instances": Case(of_instances, check_instances),
    "made": Case(
        of_made,
        check_made,
        tuple(
            f"by claims, partition n1:{gpu} with 4g.40gb + {small} x 1g.10gb\n"
            for gpu, small in ((0, 2), (1, 3))
        ),
    ),
    "made whole": Case(
        of_made_whole,
        check_made_whole,
        ("by claims, make whole n1:1\n",),
        ("--allow-evictions",),
    ),
}


@dataclass(frozen=True)
class Ready:
    """A case with its plan, which was carried out once, and the requests of that."""

    case: Case
    plan: Path
    calls: list[Any]


@pytest.fixture(scope="module", params=CASES)
def ready(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ready]:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch, bench(case.make(), folder, patch) as run:
        plan = planned(run)
        shown = run.run("show", str(plan)).out
        assert all(line in shown for line in case.shown)
        said = run.apply(plan, *case.words)
        assert said.code == 0, said.err
        assert "partitioned first" not in said.out + said.err
        case.check(run, plan)
        calls, written = list(run.cluster.calls), run.written()
        evicted = [n for n, call in enumerate(calls) if call.path.endswith("/eviction")]
        opened = [
            n for n, call in enumerate(calls) if call.path.endswith("/pods/high") and call.writes
        ]
        assert bool(case.words) is (evicted != [])
        assert not evicted or max(opened) > max(evicted), "a GPU is whole after the last has gone"
        assert run.apply(plan, *case.words, "-o", "json").data()["status"] == "unchanged"
        assert run.written() == written
        yield Ready(case, plan, calls)


KINDS: tuple[str | int, ...] = ("crash before", "crash after", "lost after", 409)


@pytest.mark.parametrize("kind", KINDS)
def test_a_run_cut_at_any_kind_of_write_is_finished_by_the_next(
    ready: Ready, kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for at in cuts(ready.calls, KINDS.index(kind)):
        with bench(ready.case.make(), tmp_path, monkeypatch) as run:
            with cut(run.cluster, Fault(at, kind, every=True)):
                run.apply(ready.plan, *ready.case.words)
            if "made" in ready.case.make.__name__:
                held(run.cluster)
            said = run.apply(ready.plan, *ready.case.words)
            if said.code != 0:
                said = run.apply(ready.plan, *ready.case.words)
            assert said.code == 0, (at, said.err)
            ready.case.check(run, ready.plan)


# ---- instances that claims make


def test_the_next_plan_reads_what_was_made(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And no pod of a gang gets slices before those who had them are gone."""
    with bench(of_made(), tmp_path, monkeypatch) as run:
        first = planned(run)
        aim = json.loads(first.read_text(encoding="utf-8"))["spec"]["partitions"]
        assert {one["gpu"]: len(one["profiles"]) for one in aim} == {0: 3, 1: 4}
        run.apply(first)
        add(run.cluster, "late", asks("2g.20gb"))
        document = json.loads(planned(run, name="again.json").read_text(encoding="utf-8"))
    decided = {one["name"]: one["decision"] for one in document["spec"]["gangs"]}
    assert decided == {"late": "wait", **dict.fromkeys(["old", *PARTS], "keep")}
    running = [one for gang in document["instance"]["gangs"] for one in gang["status"]["pods"]]
    assert sorted((one["gpus"][0], one["start"]) for one in running if "node" in one) == [
        (gpu, start) for gpu in range(2) for start in (0, 4, 5, 6)
    ]


def test_slices_that_another_claim_took_since_are_not_given_twice(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(of_made(), tmp_path, monkeypatch) as run:
        plan = planned(run)
        add(run.cluster, "rival", asks("2g.20gb"), on="n1")
        hold(run.cluster, "rival", made(1, "2g.20gb", 2, GPUS))
        said = run.apply(plan)
        assert said.code == 6
        assert "has instances in use on GPU 1 where the plan has others" in said.out + said.err
        assert set(held(run.cluster)) == {"old", "rival"}


def test_a_pod_that_is_evicted_leaves_its_slices_to_who_came_for_them(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = partitionable()
    for number, (profile, start) in enumerate([("4g.40gb", 0), ("3g.40gb", 4)]):
        for gpu in range(GPUS):
            add(found, f"low{gpu}{number}", asks(profile), on="n1", annotations=PREEMPTIBLE)
            hold(found, f"low{gpu}{number}", made(gpu, profile, start, GPUS))
    add(found, "high", asks("3g.40gb"), priority=1000)
    with bench(found, tmp_path, monkeypatch) as run:
        said = run.apply(planned(run), "--allow-evictions")
        assert said.code == 0, said.err
        (device,) = devices_of(found, "claim-high")
        gpu = [made(gpu, "3g.40gb", 4, GPUS) for gpu in range(GPUS)].index(device)
        left = {f"low{one}{number}" for one in range(2) for number in range(2)} - {f"low{gpu}1"}
        assert run.bound() == dict.fromkeys(["high", *left], "n1")


FULL = """
{apiVersion: gangplan.dev/v1alpha1, kind: Policy, spec: {kubernetes: {gpuBackend: BACKEND}}}
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
def test_whatever_is_planned_is_made_and_nothing_twice(
    *, seed: int, evicting: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    found = a_random_cluster(Random(seed), evicting=evicting)
    with bench(found, tmp_path, monkeypatch) as run:
        plan = planned(run)
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
            again = json.loads(planned(run, name="again.json").read_text(encoding="utf-8"))
            left = {one["decision"] for one in again["spec"]["gangs"]}
            assert left <= {"keep", "wait"}, "the first plan left nothing that fits"


# ---- HAMi

USE = "nvidia.com/use-gpuuuid"


@pytest.fixture
def hami(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Bench]:
    """A node whose 4 cards HAMi hands out in 10 shares each."""
    found = FakeCluster()
    found.add_node("n1", gpus=40)
    entries = [{"id": f"GPU-{i}", "health": True, **({"index": i} if i else {})} for i in range(4)]

    def registered(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {"hami.io/node-nvidia-register": json.dumps(entries)}
        return tree

    found.change("Node", "n1", registered)
    found.add_namespace("gangplan-system")
    with bench(found, tmp_path, monkeypatch) as run:
        yield run


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


def test_what_was_written_for_a_gang_that_cannot_be_carried_is_taken_off(hami: Bench) -> None:
    """duo: its second pod has a choice of its own, which only shows when its cards are written."""
    more = {"gpus": 1, "scheduler": "hami-scheduler", "each": {1: {USE: "GPU-0"}}}
    add_gang(hami.cluster, "duo", 2, **more)
    said = hami.apply(hami.plan(policy={"kubernetes": {"gpuBackend": "hami"}}))
    assert said.code == 7
    assert "chooses cards already" in said.out + said.err
    written = [call for call in hami.cluster.writes if call.path.endswith("/pods/duo-0")]
    assert USE in written[0].body["metadata"]["annotations"]
    assert USE not in annotations(hami, "duo-0")
    assert "gangplan.dev/plan" not in annotations(hami, "duo-0")
    assert annotations(hami, "duo-1")[USE] == "GPU-0", "what its owner wrote stays"
