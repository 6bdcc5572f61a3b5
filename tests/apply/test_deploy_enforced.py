"""The shipped rights and admission policies, enforced: enough to work with, and each of them needed."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import FakeCluster
from apiserver_http import FakeWire, serving
from apply_runs import OWN, TOLERATE, Bench, OnCluster, bench
from backend_world import claim, cluster, ordered, seen
from cluster_contents import GATE
from conftest import Result, RunCli
from deploying import TENANT, USER, grant, granted, install, shipped
from snapshots import environment

from models.apply.requests import Done
from planner.cluster import rights
from planner.cluster.backends import backend_of
from planner.cluster.rights import describe
from planner.cluster.transport import Right

pytest_plugins = ("apply_fixtures",)
PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}


def _cluster() -> FakeCluster:
    """Three nodes of 8 GPUs kept for us, two gangs that fill them, in the example tenant."""
    cluster = FakeCluster()
    for number in (1, 2, 3):
        zone = {"topology.kubernetes.io/zone": "z1", "topology.kubernetes.io/region": "r1"}
        cluster.add_node(f"n{number}", taints=[OWN], labels=zone)
    for name, size, gpus in (("a", 2, 8), ("b", 2, 4)):
        cluster.gang_of_pods(name, size, gpus=gpus, namespace=TENANT, tolerations=TOLERATE)
    install(cluster)
    return cluster


@pytest.fixture
def benched(on_cluster: OnCluster) -> Bench:
    return on_cluster(_cluster())


def test_what_is_shipped_allows_to_preempt(on_cluster: OnCluster) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN])
    low = {"namespace": TENANT, "tolerations": TOLERATE}
    cluster.gang_of_pods("low", 1, nodes=["n1"], annotations=PREEMPTIBLE, priority=1, **low)
    cluster.gang_of_pods("high", 1, priority=100, **low)
    install(cluster)
    made = on_cluster(cluster)
    plan = made.plan()
    made.user = USER
    said = made.apply(plan, "--allow-evictions", "--wait", "5s")
    assert said.code == 0, said.err
    assert made.bound() == {"high-0": "n1"}


def test_claims_are_allocated_and_freed_with_only_what_is_shipped() -> None:
    found = cluster("n1")
    install(found)
    tree = claim("c")
    tree["metadata"]["namespace"] = TENANT
    found.create(tree)
    named = [{"name": "gpu", "resourceClaimName": "c"}]
    pod = found.add_pod("p", TENANT, gpus=0, gates=[GATE], resourceClaims=named)
    wire, backend = FakeWire(found, USER), backend_of("dra")

    def status() -> dict[str, object]:
        kind = found.kinds.named("ResourceClaim")
        return found.objects.get(kind, TENANT, "c").get("status") or {}

    given = backend.allocate(wire, ordered(pod, (2, 3)), seen(pod, (2, 3)), pod)
    assert (given, sorted(status())) == (Done(), ["allocation", "reservedFor"])
    moved = backend.allocate(wire, ordered(pod, (4, 5)), seen(pod, (4, 5)), pod)
    assert moved == Done()
    assert backend.release(wire, pod) == Done()
    assert "allocation" not in status()


# ---- each right is needed

GRANTS = granted(shipped())
"""Everything that is granted: one verb on one resource each."""


@pytest.fixture(scope="module")
def ready(tmp_path_factory: pytest.TempPathFactory) -> tuple[FakeCluster, Path]:
    """A cluster, and a plan of it. What is refused leaves both as they are."""
    folder, cluster = tmp_path_factory.mktemp("ready"), _cluster()
    with pytest.MonkeyPatch.context() as patch, bench(cluster, folder, patch) as made:
        return cluster, made.plan()


APPLIED = [
    right
    for right in GRANTS
    if right.namespace is not None
    or right == Right("get", "", "namespaces", name="kube-system")
    or right.resource in {"nodes", "pods", "resourceslices", "resourceclaims"}
    or right.resource == "deviceclasses"
]


@pytest.mark.parametrize("right", APPLIED, ids=[describe(right) for right in APPLIED])
def test_without_any_one_right_apply_ends_before_its_first_write(
    right: Right, ready: tuple[FakeCluster, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The plan resizes nothing, has no claims and no pods of Kueue and KAI: make it ask as if it did.
    needed = rights.plan_rights

    def asked(*given: object, **options: object) -> tuple[Right, ...]:
        extra = rights.work_rights([TENANT], evictions=True, backend="dra", resized=[TENANT])
        extra += (*rights.PLACING, *rights.work_rights([TENANT], evictions=False, backend="kai"))
        return (*needed(*given, **options), *extra)  # type: ignore[arg-type]  # passed on

    monkeypatch.setattr(rights, "plan_rights", asked)
    cluster, plan = ready
    grant(cluster, without=right)
    cluster.calls.clear()
    with bench(cluster, tmp_path, monkeypatch) as made:
        made.user = USER
        said = made.apply(plan, "--allow-evictions")
    assert said.code == 77
    assert cluster.writes == []
    if right.resource != "namespaces":  # the identity is asked for before the rights are
        assert f"not permitted: {describe(right)}" in said.err


# ---- unattended


def run_once(cluster: FakeCluster, folder: Path, cli: RunCli, *more: str) -> Result:
    """``gangplan run`` by the shipped account."""
    cluster.tokens["t"] = USER
    with serving(cluster, folder) as endpoint:
        environ = environment(folder, KUBECONFIG=str(endpoint.as_user("t")))
        said = cli("run", "--budget", "1", "--wait", "0s", *more, environ=environ)
    assert said.code == 0, said.err
    return said


def places(cluster: FakeCluster) -> dict[str, str | None]:
    return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in cluster.pods()}


def test_waiting_pods_without_rights_stop_no_run(tmp_path: Path, cli: RunCli) -> None:
    """Anybody with a namespace may fill it with gated pods."""
    cluster = _cluster()
    more = {"priority": 100, "namespace": "elsewhere", "tolerations": TOLERATE}
    cluster.gang_of_pods("rude", 3, gpus=8, **more)
    said = run_once(cluster, tmp_path, cli)
    line = "warning: not permitted to start pods in elsewhere: pods that wait there are not planned"
    assert f"{line}; bind gangplan-starting there" in said.err.splitlines()
    waiting = {name for name, node in places(cluster).items() if node is None}
    assert waiting == {"rude-0", "rude-1", "rude-2"}


def test_gangs_not_to_be_evicted_stop_no_run(tmp_path: Path, cli: RunCli) -> None:
    """high would need the node of low; small fits beside it."""
    cluster = FakeCluster()
    for name in ("n1", "n2"):
        cluster.add_node(name, taints=[OWN])
    low = {"nodes": ["n1"], "annotations": PREEMPTIBLE, "namespace": "elsewhere"}
    cluster.gang_of_pods("low", 1, priority=1, tolerations=TOLERATE, **low)
    for name, size, priority in (("high", 2, 100), ("small", 1, 1)):
        more = {"namespace": TENANT, "priority": priority, "tolerations": TOLERATE}
        cluster.gang_of_pods(name, size, **more)
    install(cluster)
    run_once(cluster, tmp_path, cli, "--allow-evictions")
    assert places(cluster) == {"low-0": "n1", "high-0": None, "high-1": None, "small-0": "n2"}


def test_run_needs_nothing_but_what_is_shipped(tmp_path: Path, cli: RunCli) -> None:
    cluster = _cluster()
    cluster.gang_of_pods("late", 1, gpus=8, namespace=TENANT, tolerations=TOLERATE)
    run_once(cluster, tmp_path, cli)
    # a takes two nodes of the three; b or late takes the third
    assert len(set(places(cluster).values()) - {None}) == 3
    assert {call.user for call in cluster.calls} == {USER}
    assert len(cluster.calls) > 50
    begun = len(cluster.writes)
    run_once(cluster, tmp_path, cli)
    assert {call.path.rpartition("/")[2] for call in cluster.writes[begun:]} == {"gangplan"}
    assert [call.path for call in cluster.calls if call.answer and call.answer[0] == 403] == []
