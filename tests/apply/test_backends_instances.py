"""The back end ``dra`` and MIG instances: each claim gets one of its profile, none is given twice."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import LOST, FakeCluster
from apiserver_http import FakeWire
from apiserver_setup import GATE
from apply_runs import OWN, TOLERATE, Bench, Fault, bench, cut
from backend_world import (
    API,
    Tree,
    add_pod,
    claim,
    devices_of,
    give,
    metadata_of,
    status_of,
)
from effort import spread
from test_backends_applied import planned

from models.apply.intents import PLAN as MARK
from models.apply.requests import Conflict, Done, Rejected
from planner.cluster.backends import backend_of

DRIVER, MIG = "gpu.nvidia.com", "mig.nvidia.com"
PRODUCT = "NVIDIA H100 80GB HBM3"
SMALL, LARGE = "1g.10gb", "3g.40gb"


def instance(gpu: int, profile: str, place: int, **more: object) -> Tree:
    attributes = {
        "type": "mig",
        "profile": profile,
        "parentUUID": f"GPU-{gpu}",
        "uuid": f"MIG-{gpu}{place}",
        "productName": PRODUCT,
    }
    return {
        "name": f"gpu-{gpu}-mig-{profile.replace('.', '')}-19-{place}",
        "attributes": {name: {"string": value} for name, value in attributes.items()}
        | {"resource.kubernetes.io/pciBusID": {"string": f"0000:0{gpu + 1}:00.0"}},
        **more,
    }  # fmt: skip


def whole(gpu: int) -> Tree:
    bus = {"resource.kubernetes.io/pciBusID": {"string": f"0000:0{gpu + 1}:00.0"}}
    own = {"type": "gpu", "uuid": f"GPU-{gpu}", "productName": PRODUCT}
    return {
        "name": f"gpu-{gpu}",
        "attributes": {name: {"string": one} for name, one in own.items()} | bus,
    }


def cluster(*nodes: str) -> FakeCluster:
    """GPU 0 of each node is whole; GPU 1 has two small instances and a large one."""
    found = FakeCluster()
    for node in nodes or ("n1",):
        found.add_node(node, gpus=0)
        devices = [instance(1, SMALL, 1), instance(1, LARGE, 4), instance(1, SMALL, 0), whole(0)]
        pool = {"name": node, "generation": 1, "resourceSliceCount": 1}
        spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
        found.create(
            {
                "apiVersion": API,
                "kind": "ResourceSlice",
                "metadata": {"name": f"{node}-gpu"},
                "spec": spec,
            }
        )
    for name, kind in ((DRIVER, "gpu"), (MIG, "mig")):
        words = f"device.driver == '{DRIVER}' && device.attributes['{DRIVER}'].type == '{kind}'"
        spec = {"selectors": [{"cel": {"expression": words}}]}
        found.create(
            {"apiVersion": API, "kind": "DeviceClass", "metadata": {"name": name}, "spec": spec}
        )
    return found


def asks(profile: str = SMALL, name: str = "part") -> Tree:
    words = f"device.attributes['{DRIVER}'].profile == '{profile}'"
    exactly = {"deviceClassName": MIG, "selectors": [{"cel": {"expression": words}}]}
    return {"name": name, "exactly": exactly}


FIRST, SECOND, BIG = "gpu-1-mig-1g10gb-19-0", "gpu-1-mig-1g10gb-19-1", "gpu-1-mig-3g40gb-19-4"


def pair() -> tuple[FakeCluster, Tree]:
    found = cluster()
    found.create(claim("c", asks()))
    return found, add_pod(found, "p", "c")


def test_each_gets_one_of_its_own_until_none_is_left() -> None:
    found = cluster()
    for name, profile in (("a", SMALL), ("b", SMALL), ("c", SMALL), ("d", LARGE)):
        found.create(claim(name, asks(profile)))
    backend = backend_of("dra")
    for name in "abd":
        assert give(found, add_pod(found, f"p{name}", name), (), backend=backend) == Done()
    held = [devices_of(found, name) for name in "abd"]
    assert held == [[FIRST], [SECOND], [BIG]]
    last = add_pod(found, "pc", "c")
    refused = Conflict(f"no {SMALL} of node n1 is free for claim c")
    assert give(found, last, (), backend=backend) == refused
    assert give(found, last, ()) == refused
    found.remove("Pod", "pa")
    found.remove("ResourceClaim", "a")
    assert give(found, last, (), backend=backend) == Done()
    assert devices_of(found, "c") == [FIRST]


def test_a_pod_may_take_several_and_whole_gpus() -> None:
    found = cluster()
    found.create(claim("two", asks(LARGE, "x"), asks(SMALL, "y")))
    found.create(claim("one", asks()))
    gpu = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
    found.create(claim("whole", gpu))
    pod = add_pod(found, "p", "two", "whole", "one")
    assert give(found, pod, (0,)) == Done()
    held = [devices_of(found, name) for name in ("two", "whole", "one")]
    assert held == [[BIG, FIRST], ["gpu-0"], [SECOND]]
    found.create(claim("both", gpu, asks()))
    refused = give(found, add_pod(found, "q", "both"), (0,))
    assert refused == Rejected("claim both requests GPUs and parts of GPUs at once")


def test_an_instance_whose_write_had_no_answer_is_given_to_no_other_claim() -> None:
    """The write may still arrive when the list of claims does not show it."""
    found, pod = pair()
    found.create(claim("d", asks()))
    backend = backend_of("dra")
    lost = [lambda call: LOST if call.path.partition("?")[0].endswith("/c/status") else None]
    found.before.extend(lost)
    assert give(found, pod, (), backend=backend) != Done()
    found.before.clear()
    found.advance(60)
    assert give(found, add_pod(found, "q", "d"), (), backend=backend) == Done()
    assert devices_of(found, "d") == [SECOND]
    assert give(found, pod, (), backend=backend) == Done()
    assert devices_of(found, "c") == [FIRST]


def test_an_instance_of_another_node_is_taken_back_if_it_is_ours() -> None:
    found = cluster("n1", "n2")
    found.create(claim("c", asks()))
    pod = add_pod(found, "p", "c")
    assert give(found, pod, (), "n1") == Done()
    assert give(found, pod, (), "n2") == Done()
    assert status_of(found, "c")["allocation"]["devices"]["results"][0]["pool"] == "n2"
    assert backend_of("dra").release(FakeWire(found), pod) == Done()
    assert devices_of(found, "c") == []
    assert MARK not in metadata_of(found, "c").get("annotations", {})


def with_gangs() -> FakeCluster:
    """Gangs that take every instance, and the whole GPU: small of two pods, large and wide of one."""
    found = cluster()
    gpu = {"name": "gpu", "exactly": {"deviceClassName": DRIVER, "count": 1}}
    found.add_node("n1", gpus=0, taints=[OWN])
    for gang, size, wanted in (
        ("small", 2, asks()),
        ("large", 1, asks(LARGE)),
        ("wide", 1, gpu),
    ):
        spec = {"parallelism": size, "completions": size, "completionMode": "Indexed"}
        about = {"name": gang, "namespace": "default"}
        job = found.create(
            {"apiVersion": "batch/v1", "kind": "Job", "metadata": about, "spec": spec}
        )
        for index in range(size):
            name = f"{gang}-{index}"
            found.create(claim(f"claim-{name}", wanted))
            number = {"batch.kubernetes.io/job-completion-index": str(index)}
            found.add_pod(
                name,
                gpus=0,
                gates=[GATE],
                labels=number | {"batch.kubernetes.io/job-name": gang},
                annotations=number,
                owner=job,
                tolerations=TOLERATE,
                resourceClaims=[{"name": "gpu", "resourceClaimName": f"claim-{name}"}],
            )
    found.add_namespace("gangplan-system")
    return found


ALL = {"small-0", "small-1", "large-0", "wide-0"}


def check_all(made: Bench) -> None:
    """Every pod runs, and has a device of its kind that no other has."""
    assert made.bound() == dict.fromkeys(ALL, "n1")
    held = {name: devices_of(made.cluster, f"claim-{name}") for name in ALL}
    assert sorted(held["small-0"] + held["small-1"]) == [FIRST, SECOND]
    assert (held["large-0"], held["wide-0"]) == ([BIG], ["gpu-0"])


def test_gangs_of_instances_are_planned_and_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(with_gangs(), tmp_path, monkeypatch) as made:
        plan = planned(made)
        said = made.apply(plan)
        assert said.code == 0, said.err
        check_all(made)
        before = len(made.written())
        assert made.apply(plan).code == 0
        assert len(made.written()) == before


@pytest.mark.parametrize("kind", ["crash before", "crash after", "lost after", 409])
def test_a_run_cut_at_any_write_is_finished_by_the_next(
    kind: str | int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with bench(with_gangs(), tmp_path, monkeypatch) as first:
        plan = planned(first)
        assert first.apply(plan).code == 0
        calls = first.cluster.calls
        points = [at for at, call in enumerate(calls) if call.method == "PATCH"]
    assert len(points) >= 12  # intent, protection and allocation of each pod
    kept = plan.read_bytes()
    for at in spread(points, 3):
        folder = tmp_path / f"at-{at}"
        folder.mkdir()
        with bench(with_gangs(), folder, monkeypatch) as made:
            again = folder / "plan.json"
            again.write_bytes(kept)
            with cut(made.cluster, Fault(at, kind, every=True)):
                made.apply(again)
            for _ in range(2):
                said = made.apply(again)
            assert said.code == 0, (at, said.err)
            check_all(made)
