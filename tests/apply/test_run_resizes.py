"""Runs that resize Deployments, ReplicaSets and StatefulSets. Kills amid them are in test_run_killed.

Four nodes of 8 GPUs; ``low`` has one to four pods of 8, ``high`` two.
"""

from __future__ import annotations

from collections.abc import Callable

import pytest
from apiserver import Answer, Call
from run_bench import EVICT, Benches, RunBench, elastic, nodes, reviewing

from planner.cluster.writes import COST, GOES_FIRST

pytest_plugins = ("run_fixtures",)

KINDS = ("Deployment", "StatefulSet")
APPS = "/apis/apps/v1/namespaces/default"
Running = Callable[[str, int], RunBench]


@pytest.fixture
def running(memory: Benches) -> Running:
    """``low``, of that kind, runs with so many pods."""

    def made(kind: str, pods: int) -> RunBench:
        cluster = nodes(4, workloads=True, kubelets=True)
        cluster.create(elastic(kind, "low", pods, 4))
        bench = memory(cluster)
        bench.ran(EVICT)
        assert len(low(bench)) == pods
        later(bench)
        return bench

    return made


def later(bench: RunBench) -> None:
    """After a lock has run out."""
    bench.cluster.advance(100)


def low(bench: RunBench) -> dict[str, str]:
    """Its pods that are bound."""
    return {name: node for name, node in bench.places().items() if node and name[:4] == "low-"}


def replicas(bench: RunBench, kind: str = "Deployment") -> int:
    path = f"{APPS}/{kind.lower()}s/low"
    found: int = bench.cluster.handle("GET", path)[1]["spec"]["replicas"]
    return found


def scale(bench: RunBench, count: int) -> None:
    """Its owner does."""
    bench.patch(f"{APPS}/deployments/low/scale", {"spec": {"replicas": count}})


def high(bench: RunBench) -> None:
    bench.cluster.gang_of_pods("high", 2, priority=100)


def marked(bench: RunBench) -> set[str]:
    """Pods with the cost of those that go first."""
    return {
        pod["metadata"]["name"]
        for pod in bench.cluster.pods()
        if (pod["metadata"].get("annotations") or {}).get(COST) == GOES_FIRST
    }


@pytest.mark.parametrize("kind", [*KINDS, "ReplicaSet"])
def test_a_gang_shrinks_by_the_planned_pods(kind: str, running: Running) -> None:
    bench = running(kind, 4)
    before = sorted(low(bench))
    high(bench)
    assert "default/low: resized: worker from 4 to 2 pods\n" in bench.ran(EVICT).err
    assert (bench.standing("high"), sorted(low(bench))) == (2, before[:2])
    assert (replicas(bench, kind), marked(bench)) == (2, set())
    assert "nothing changed" in bench.ran(EVICT).err


def test_pods_that_wait_go_before_the_planned_ones(running: Running) -> None:
    """Of six pods four run: the number that stays is two, not six less two."""
    bench = running("Deployment", 4)
    before = sorted(low(bench))
    scale(bench, 6)
    high(bench)
    bench.ran(EVICT)
    assert (sorted(low(bench)), replicas(bench)) == (before[:2], 2)


def test_where_other_pods_went_it_is_said_and_the_next_run_goes_on(running: Running) -> None:
    """A pod that is to stay loses its readiness as the scale is set: its set removes that one."""
    bench = running("Deployment", 4)
    stays = min(low(bench))

    def fail(call: Call) -> None:
        if call.path.endswith("/scale") and call.method == "PATCH":
            bench.cluster.kubelets = False
            bench.cluster.run_pod("default", stays, "Pending")

    high(bench)
    with bench.meddled(fail):
        said = bench.ran(EVICT, code=7).err
    assert "default/low: resized" in said
    assert "removed another pod than" in said
    assert len(low(bench)) == 2
    bench.ran(EVICT)
    assert (bench.standing("high"), len(low(bench))) == (2, 2)


def test_a_refused_scale_takes_the_marks_back(running: Running) -> None:
    bench = running("Deployment", 4)
    high(bench)
    seen: list[set[str]] = []

    def refuse(call: Call) -> Answer | None:
        if call.path.endswith("/scale") and call.method == "PATCH":
            seen.append(marked(bench))
            return 403, {"kind": "Status", "message": "no"}, {}
        return None

    bench.cluster.before.append(refuse)
    bench.ran(EVICT, code=7)
    assert [len(one) for one in seen] == [2]
    assert (marked(bench), len(low(bench))) == (set(), 4)


@pytest.mark.parametrize("kind", KINDS)
def test_new_pods_of_a_controller_start_in_the_run_that_grows_it(
    kind: str, running: Running
) -> None:
    bench = running(kind, 2)
    bench.ran()  # without leave to evict, sizes stay
    assert (len(low(bench)), replicas(bench, kind)) == (2, 2)
    assert "default/low: started" in bench.ran(EVICT, "--wait", "2s").err
    assert (len(low(bench)), replicas(bench, kind)) == (4, 4)


def test_pods_that_are_not_created_yet_are_left_to_the_next_run(running: Running) -> None:
    bench = running("Deployment", 2)
    bench.cluster.writers[-1].on = False
    words = "default/low: resized: worker from 2 to 4 pods; its controller has created 0 of 2 pods"
    assert words in bench.ran(EVICT).err
    bench.cluster.writers[-1].on = True
    bench.cluster.settle()
    later(bench)
    bench.ran(EVICT)
    assert len(low(bench)) == 4


def test_an_elastic_gang_that_its_owner_shrinks_is_well(running: Running) -> None:
    """Its owner scales it from four pods to one; it was whole, and stays so."""
    bench = running("Deployment", 4)
    for number in range(4):
        bench.cluster.cordon(f"n{number}")
    scale(bench, 1)
    assert len(low(bench)) == 1
    bench.ran(EVICT, "--evict-partial")
    assert len(low(bench)) == 1


def test_where_no_scale_may_be_set_gangs_keep_their_sizes_and_others_start(
    running: Running,
) -> None:
    """Room for one more pod: low may not grow into it, so small starts there."""
    bench = running("Deployment", 3)
    bench.cluster.before.append(reviewing(("*", "deployments", "scale")))
    bench.ran(EVICT)
    assert (len(low(bench)), replicas(bench)) == (3, 3)
    bench.cluster.gang_of_pods("small", 1)
    bench.ran(EVICT)
    assert bench.standing("small") == 1


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_that_moves_and_grows_at_once_is_whole_after_the_next_run(
    kind: str, running: Running
) -> None:
    """A pod of low gives its node to one that runs nowhere else; three nodes are left for low."""
    bench = running(kind, 2)
    bench.annotate(f"{APPS}/{kind.lower()}s/low", preemptible=None, movable="true")
    place = min(low(bench).values())
    only = {"kubernetes.io/hostname": place}
    bench.cluster.gang_of_pods("high", 1, priority=100, nodeSelector=only)
    for _ in range(3):
        said = bench.run(EVICT, "--wait", "2s")
        later(bench)
    assert said.code == 0, said.err
    assert bench.placed("high") == {"high-0": place}
    assert (len(low(bench)), replicas(bench, kind)) == (3, 3)
