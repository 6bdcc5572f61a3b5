"""An apply that is cut off, or answered wrongly: again it comes to the same end, and nothing is given twice.

At one of each kind of write of five plans, of pods and of devices, and at any other request of the first. The
machine alone is swept in test_apply_machine_crashes; here the server answers as the recorded one does.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import backend_world as dra
import pytest
from apiserver import FakeCluster
from apply_runs import OWN, TOLERATE, Bench, Crash, Fault, bench, cuts, placed
from dynamic_mig import asks, asks_whole, devices, gpu_name, made
from effort import spread
from made_instances import GPUS, add, held, hold, of_made, partitionable, slices_of

Tree = dict[str, Any]

PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}


def of_pods() -> FakeCluster:
    """16 + 10 + 2 + 2 + 8 = 38 GPUs on five nodes of 8."""
    found = FakeCluster()
    for number in range(1, 6):
        found.add_node(f"n{number}", taints=[OWN])
    for name, gpus in (("wide", 8), ("five", 5), ("small-a", 1), ("small-b", 1), ("half", 4)):
        found.gang_of_pods(name, 2, gpus=gpus, tolerations=TOLERATE)
    found.add_namespace("gangplan-system")
    return found


def check_pods(run: Bench, plan: Path) -> None:
    assert run.bound() == placed(plan)


def of_devices() -> FakeCluster:
    """Two nodes of 8 devices; gangs a and b of two pods with a claim for 4 GPUs each: all are taken."""
    found = dra.cluster("n1", "n2", taints=[OWN])
    for name in ("a", "b"):
        dra.add_gang(found, name, 2, dra.request(4), tolerations=TOLERATE)
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
        name: (node, dra.devices_of(run.cluster, f"claim-{name}"))
        for name, node in run.bound().items()
    }
    assert there == aim
    assert len(there) == 4
    for name in there:
        assert dra.FINALIZER in dra.metadata_of(run.cluster, f"claim-{name}")["finalizers"]
        assert len(dra.status_of(run.cluster, f"claim-{name}")["reservedFor"]) == 1


def of_instances() -> FakeCluster:
    """Gangs that take every instance, and the whole GPU: small of two pods, large and wide of one."""
    found = dra.parted(taints=[OWN])
    for name, size, wanted in (
        ("small", 2, dra.part()),
        ("large", 1, dra.part(dra.LARGE)),
        ("wide", 1, dra.GPU),
    ):
        dra.add_gang(found, name, size, wanted, tolerations=TOLERATE)
    found.add_namespace("gangplan-system")
    return found


def check_instances(run: Bench, _: Path) -> None:
    """Every pod runs, and has a device of its kind that no other has."""
    names = ("small-0", "small-1", "large-0", "wide-0")
    assert run.bound() == dict.fromkeys(names, "n1")
    small, other, large, wide = (dra.devices_of(run.cluster, f"claim-{name}") for name in names)
    assert (sorted(small + other), large, wide) == ([dra.FIRST, dra.SECOND], [dra.BIG], ["gpu-0"])


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
    assert sorted(dra.devices_of(run.cluster, "claim-high")) == gpus


@dataclass(frozen=True)
class Case:
    """A cluster, how its plan ends, and options of apply. ``shown``: of the plan."""

    make: Callable[[], FakeCluster]
    check: Callable[[Bench, Path], None]
    shown: tuple[str, ...] = ()
    words: tuple[str, ...] = ()


PARTITIONS = tuple(
    f"by claims, partition n1:{gpu} with 4g.40gb + {small} x 1g.10gb\n"
    for gpu, small in ((0, 2), (1, 3))
)
CASES = {
    "pods": Case(of_pods, check_pods),
    "devices": Case(of_devices, check_devices),
    "instances": Case(of_instances, check_instances),
    "made": Case(of_made, check_made, PARTITIONS),
    "made whole": Case(
        of_made_whole, check_made_whole, ("by claims, make whole n1:1\n",), ("--allow-evictions",)
    ),
}


def state(cluster: FakeCluster) -> Tree:
    """All of each pod that applying may change."""
    keys = ("nodeName", "schedulingGates", "nodeSelector")
    return {
        pod["metadata"]["name"]: (
            *(pod["spec"].get(key) for key in keys),
            pod["metadata"].get("labels"),
            pod["metadata"].get("annotations"),
        )
        for pod in cluster.pods()
    }


@dataclass(frozen=True)
class Ready:
    """A case with its plan, which was carried out once: the requests of that, and where they lead."""

    name: str
    case: Case
    plan: Path
    calls: list[Any]
    end: Tree


@pytest.fixture(scope="module", params=CASES)
def ready(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Ready]:
    case, folder = CASES[request.param], tmp_path_factory.mktemp("planned")
    with pytest.MonkeyPatch.context() as patch, bench(case.make(), folder, patch) as run:
        plan = dra.planned(run) if request.param != "pods" else run.plan()
        shown = run.run("show", str(plan)).out
        assert all(line in shown for line in case.shown)
        said = run.apply(plan, *case.words)
        assert said.code == 0, said.err
        assert "partitioned first" not in said.out + said.err
        case.check(run, plan)
        calls, written = list(run.cluster.calls), run.written()
        evicted = [n for n, call in enumerate(calls) if call.path.endswith("/eviction")]
        opened = [
            n for n, one in enumerate(calls) if one.path.endswith("/pods/high") and one.writes
        ]
        assert bool(case.words) is (evicted != [])
        assert not evicted or max(opened) > max(evicted), "a GPU is whole after the last has gone"
        assert run.apply(plan, *case.words, "-o", "json").data()["status"] == "unchanged"
        assert run.written() == written
        yield Ready(request.param, case, plan, calls, state(run.cluster))


CUTS = ("crash before", "crash after", "lost before", "lost after")
KINDS: tuple[str | int, ...] = (*CUTS, 409, 422, 429, 500)
STEP = 53


@pytest.mark.parametrize("kind", KINDS)
def test_whatever_goes_wrong_changes_nothing_in_the_end(
    ready: Ready, kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begin, words = KINDS.index(kind), ready.case.words
    points = cuts(ready.calls, begin, 3 if ready.name == "pods" else 5)
    if (
        ready.name == "pods"
    ):  # those that read, that ask for rights, that take or give back the lock
        every = [*range(5 * begin, len(ready.calls)), *range(5 * begin)]
        points = sorted({*points, *spread(every, STEP)})
    for at in points:
        with bench(ready.case.make(), tmp_path, monkeypatch) as run:
            code = disturbed(run, Fault(at, kind, every=True), ready.plan, *words)
            if ready.name.startswith("made"):
                held(run.cluster)
            said = run.apply(ready.plan, *words)
            if said.code == 7 and ready.name != "pods":
                said = run.apply(ready.plan, *words)
            assert said.code == 0, (at, said.err)
            assert code in ((None,) if str(kind).startswith("crash") else (0, 7, 69)), (kind, at)
            ready.case.check(run, ready.plan)
            if ready.name == "pods":
                assert state(run.cluster) == ready.end, (kind, at)
                before = run.written()
                assert (run.apply(ready.plan).code, run.written()) == (0, before)


def disturbed(run: Bench, fault: Fault, plan: Path, *words: str) -> int | None:
    """Apply with the fault: the exit code, None if it was killed. Later its lock has ended."""
    run.cluster.before.append(fault.before)
    run.cluster.after.append(fault.after)
    try:
        code = run.apply(plan, *words).code
    except Crash:
        code = None
    assert fault.struck, fault.at
    run.cluster.before.clear()
    run.cluster.after.clear()
    run.cluster.advance(63)  # the lock of one that was killed lasts 60 s, and 2 s of margin
    return code
