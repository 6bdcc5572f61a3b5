"""A run killed after any write, or cut off by the server: later runs bring all to the same end.

What is there is read from the server's store alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from apiserver import FakeCluster
from apply_runs import Fault
from conftest import Result
from effort import examples, spread
from live_checks import overfull
from run_bench import (
    EVICT,
    MOVABLE,
    PREEMPTIBLE,
    Benches,
    Kill,
    RunBench,
    Tree,
    budget,
    elastic,
    nodes,
    summary,
)

from models.apply.session import LANES
from models.apply.terms import Terms

pytest_plugins = ("run_fixtures",)

PARTS, SAMPLE = 9, 48
"""Every so-many-th write is struck in one test, so that every other time it is an odd one. ``make test-long``
takes half of these tests, ``make test`` one of fewer writes; of another scene others.
"""


def nothing(_bench: RunBench) -> None:
    """Nothing comes or happens."""


@dataclass(frozen=True)
class Scene:
    """``before``: the cluster before the first run, ``arrive``: what the run finds that is killed.

    ``later``: what happens after the kill, ``at_last``: what is taken back once all is quiet. ``end``: what
    is there in the end.
    """

    before: Callable[[], FakeCluster]
    arrive: Callable[[RunBench], object]
    end: Callable[[RunBench], object]
    options: tuple[str, ...] = (EVICT, "--wait", "2s")
    later: Callable[[RunBench], object] = nothing
    at_last: Callable[[RunBench], object] = nothing


def stands(**counts: int) -> Callable[[RunBench], None]:
    """So many pods of each gang are bound."""

    def check(bench: RunBench) -> None:
        assert {gang: bench.standing(gang) for gang in counts} == counts, bench.places()

    return check


# ---- a gang starts


def start(bench: RunBench) -> None:
    mark = {"annotations": PREEMPTIBLE, "priority": 1}
    bench.cluster.gang_of_pods("low", 3, gpus=8, **mark)  # type: ignore[arg-type]


def take_back(bench: RunBench) -> None:
    """The tenant takes his word back, that the gang may be stopped."""
    begun = str(bool(bench.standing("low")))
    bench.annotate("/apis/batch/v1/namespaces/default/jobs/low", preemptible=None, begun=begun)


def whole_as_it_began(bench: RunBench) -> None:
    """One plan put it there, with the terms of its first start."""
    assert bench.placed("low").keys() == {"low-0", "low-1", "low-2"}
    assert set(bench.placed("low").values()) == {"n0", "n1", "n2"}
    found = [bench.recorded()[f"low-{i}"] for i in range(3)]
    assert len({one.plan for one in found}) == 1
    job = bench.cluster.objects.get(bench.cluster.kinds.named("Job"), "default", "low")
    begun = job["metadata"]["annotations"]["gangplan.dev/begun"] == "True"
    terms = {one.terms for one in found}
    assert len(terms) == 1
    assert not begun or terms == {Terms(1, preemptible=True)}


# ---- a gang gives way, or moves


def standing(pods: int, count: int, gpus: int = 8, **marks: str) -> Callable[[], FakeCluster]:
    """So many pods of ``low`` run on the first of so many nodes; the nodes behind are closed."""

    def made() -> FakeCluster:
        cluster = nodes(count, workloads=True, kubelets=True)
        where = [f"n{number}" for number in range(pods)]
        notes = marks or PREEMPTIBLE
        low = {"nodes": where, "comes_back": True, "annotations": notes, "labels": {"app": "low"}}
        cluster.gang_of_pods("low", pods, gpus=gpus, **low)  # type: ignore[arg-type]
        for number in range(pods, count):
            cluster.cordon(f"n{number}")
        return cluster

    return made


def spread_out() -> FakeCluster:
    """``low`` (4 x 4 GPUs) may move and is started beside ``wide``, which keeps half of four nodes."""
    cluster = nodes(5, kubelets=True)
    cluster.gang_of_pods("wide", 4, gpus=4, nodes=["n0", "n1", "n2", "n3"])
    cluster.gang_of_pods("low", 4, gpus=4, comes_back=True, annotations=MOVABLE)
    cluster.cordon("n4")
    return cluster


def wide_goes(bench: RunBench) -> None:
    for index in range(4):
        bench.cluster.remove("Pod", f"wide-{index}")
    high_comes(bench)


def high_comes(bench: RunBench) -> None:
    open_all(bench)
    bench.cluster.gang_of_pods("high", 3, priority=100, labels={"app": "high"})


def open_all(bench: RunBench) -> None:
    for node in bench.cluster.handle("GET", "/api/v1/nodes")[1]["items"]:
        name = node["metadata"]["name"]
        bench.cluster.change("Node", name, lambda tree: {**tree, "spec": {}})


def whole_or_gone(bench: RunBench) -> None:
    assert bench.standing("low") in (0, 4), bench.places()
    assert bench.standing("high") == 3, bench.places()


def guard(needed: int) -> Callable[[RunBench], None]:
    return lambda bench: budget(bench.cluster, minAvailable=needed)


def unguard(bench: RunBench) -> None:
    """An hour later: a gang that a killed run was about to stop is left alone for a while."""
    bench.cluster.remove("PodDisruptionBudget", "b")
    an_hour_later(bench)


def an_hour_later(bench: RunBench) -> None:
    """Where one pod of low had gone, low is left alone for a while."""
    bench.cluster.advance(3600)


# ---- a gang is resized


def sized(kind: str, pods: int) -> Callable[[], FakeCluster]:
    def made() -> FakeCluster:
        cluster = nodes(4, workloads=True, kubelets=True)
        cluster.create(elastic(kind, "low", pods, 4))
        return cluster

    return made


def two_come(bench: RunBench) -> None:
    bench.cluster.gang_of_pods("high", 2, priority=100)


def of_size(kind: str, low: int, high: int) -> Callable[[RunBench], None]:
    def check(bench: RunBench) -> None:
        path = f"/apis/apps/v1/namespaces/default/{kind.lower()}s/low"
        assert bench.cluster.handle("GET", path)[1]["spec"]["replicas"] == low
        found = [name.partition("-")[0] for name, node in bench.places().items() if node]
        assert (found.count("low"), found.count("high")) == (low, high)

    return check


# ---- everything at once


def all_come(bench: RunBench) -> None:
    """``high`` needs the room of ``low``; ``set`` fills what is left."""
    open_all(bench)
    for name, pods, priority in (("mid", 2, 50), ("tail", 2, 40), ("high", 3, 100)):
        bench.cluster.gang_of_pods(name, pods, priority=priority, comes_back=True)
    bench.cluster.create(elastic("StatefulSet", "set", 1, 3))


def lose_a_pod(bench: RunBench) -> None:
    bench.cluster.remove("Pod", "tail-1")


def nobody_half(bench: RunBench) -> None:
    assert (half(bench), half_started(bench)) == ([], [])


# ---- a gang that stays pending is undone


def refusing(bound: int) -> Callable[[], FakeCluster]:
    """Of the four pods of ``a`` so many are bound; the nodes of the others refuse them."""

    def made() -> FakeCluster:
        cluster = nodes(8, workloads=True, kubelets=True)
        cluster.scheduler.refuses = {f"n{number}": "no" for number in range(bound, 4)}
        cluster.gang_of_pods("a", 4, comes_back=True)
        return cluster

    return made


def past_the_limit(bench: RunBench) -> None:
    bench.cluster.advance(301)


UNDOING = (EVICT, "--wait", "2s", "--evict-partial")

STAYS = stands(low=4, high=3)
HALVES = standing(4, 5, 4, **MOVABLE)
NINE = standing(3, 9)

SCENES = {
    "a gang starts": Scene(lambda: nodes(3), start, whole_as_it_began, later=take_back),
    "a gang gives way": Scene(standing(4, 4), high_comes, stands(low=0, high=3)),
    "there is room for both": Scene(standing(4, 6), high_comes, whole_or_gone),
    "a budget for three comes": Scene(
        standing(4, 6), high_comes, whole_or_gone, later=guard(3), at_last=unguard
    ),
    "a budget for all comes": Scene(
        standing(4, 4), high_comes, whole_or_gone, later=guard(4), at_last=unguard
    ),
    "a gang moves": Scene(HALVES, high_comes, STAYS, at_last=an_hour_later),
    "a budget comes amid a move": Scene(HALVES, high_comes, STAYS, later=guard(3), at_last=unguard),
    "a pinned gang moves": Scene(spread_out, wide_goes, STAYS, at_last=an_hour_later),
    "a Deployment shrinks": Scene(sized("Deployment", 4), two_come, of_size("Deployment", 2, 2)),
    "a StatefulSet shrinks": Scene(sized("StatefulSet", 4), two_come, of_size("StatefulSet", 2, 2)),
    "a Deployment grows": Scene(sized("Deployment", 2), nothing, of_size("Deployment", 4, 0)),
    "a StatefulSet grows": Scene(sized("StatefulSet", 2), nothing, of_size("StatefulSet", 4, 0)),
    "none of a pending gang is bound": Scene(refusing(0), past_the_limit, stands(a=4), UNDOING),
    "most of a pending gang is bound": Scene(refusing(3), past_the_limit, stands(a=4), UNDOING),
    "all at once": Scene(NINE, all_come, nobody_half),
    "all at once, then a budget": Scene(
        NINE, all_come, nobody_half, later=guard(2), at_last=unguard
    ),
    "all at once, then a lost pod": Scene(NINE, all_come, nobody_half, later=lose_a_pod),
}


@pytest.mark.parametrize(
    ("name", "first", "step"),
    [
        *((name, number * 7 % 12, SAMPLE) for number, name in enumerate(SCENES)),
        *(
            pytest.param(name, part, PARTS, marks=pytest.mark.slow)
            for number, name in enumerate(SCENES)
            for part in spread(range(number % 2 * examples(0, 1), PARTS), 2)
        ),
    ],
)
def test_killed_after_any_write_a_run_is_finished_by_the_next_ones(
    name: str, first: int, step: int, memory: Benches
) -> None:
    """Every other time the next run is killed, too. No run is content with half a gang."""
    scene = SCENES[name]
    base = begun(memory, scene)
    for at in range(first, 200, step):
        bench, kill = base.fork(), Kill(at)
        bench.killed(kill, scene.options)
        if not kill.struck:
            assert at > 5, "a run writes more than that"
            return
        finished(bench, scene, at)


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["lost after", 403, 500])
@pytest.mark.parametrize("name", ["all at once", "a pinned gang moves", "a Deployment shrinks"])
def test_cut_off_at_any_request_a_run_is_finished_by_the_next_ones(
    name: str, kind: str | int, memory: Benches
) -> None:
    """The program goes on after it, as it can."""
    scene = SCENES[name]
    base = begun(memory, scene)
    for at in range(3, 200, 11 * examples(1, 2)):
        bench, fault = base.fork(), Fault(at, kind, every=True)
        bench.killed(fault, scene.options)
        if not fault.struck:
            return
        finished(bench, scene, at)


def test_killed_before_the_first_eviction_a_run_leaves_a_victim_that_the_next_one_stops(
    memory: Benches,
) -> None:
    """It had noted whom it was about to stop; nobody went, so nothing is to be waited for."""
    bench = begun(memory, SCENES["a gang gives way"])
    bench.killed(Fault(0, "crash before"))
    going = ["deletionTimestamp" in pod["metadata"] for pod in bench.cluster.pods()]
    assert (any(going), bench.standing("low")) == (False, 4)
    assert '"counts"' in bench.noted("notes")
    quiet(bench, EVICT, "--wait", "2s")
    assert (bench.standing("low"), bench.standing("high")) == (0, 3)


def begun(memory: Benches, scene: Scene) -> RunBench:
    """A first run has made the Lease; the pods to come are younger than that."""
    base = memory(scene.before())
    base.ran("--wait", "2s")
    base.cluster.advance(100)
    scene.arrive(base)
    return base


def finished(bench: RunBench, scene: Scene, at: int) -> None:
    try:
        assert overfull({pod["metadata"]["name"]: pod for pod in bench.cluster.pods()}) == []
        assert len(half_started(bench)) <= LANES
        scene.later(bench)
        if at % 2:
            bench.killed(Kill(at // 2), scene.options)
        done = quiet(bench, *scene.options)
        if scene.at_last is not nothing:
            scene.at_last(bench)
            done = quiet(bench, *scene.options)
        if half(bench):
            done = quiet(bench, *scene.options, "--evict-partial")
        assert done.code == 0, done.err
        nobody_half(bench)
        scene.end(bench)
    except AssertionError as error:
        raise AssertionError(f"killed after write {at}: {error}") from error


def quiet(bench: RunBench, *options: str) -> Result:
    """Runs until one writes nothing; none is content with half a gang."""
    for _ in range(8):
        before = bench.asked()
        done = bench.run(*options)
        assert overfull({pod["metadata"]["name"]: pod for pod in bench.cluster.pods()}) == []
        if half(bench):
            assert done.code != 0, (half(bench), bench.places(), done.err)
            assert "unchanged" not in summary(done), done.err
        bench.cluster.advance(100)
        if not bench.written(since=before):
            return done
    raise AssertionError(f"no end: {bench.places()}: {done.err}")


def half(bench: RunBench) -> list[str]:
    """Gangs of which some pods are bound and others are not; elastic ones may be."""
    return mixed(bench, lambda pod: "nodeName" in pod["spec"])


def half_started(bench: RunBench) -> list[str]:
    """Gangs of which some pods are gated and others are not."""
    return mixed(bench, lambda pod: bool(pod["spec"].get("schedulingGates")))


def mixed(bench: RunBench, holds: Callable[[Tree], bool]) -> list[str]:
    """Jobs of which it holds for some pods and not for others."""
    states: dict[str, set[bool]] = {}
    for pod in bench.cluster.pods():
        (owner,) = pod["metadata"]["ownerReferences"]
        if owner["kind"] == "Job":
            states.setdefault(owner["name"], set()).add(holds(pod))
    return [gang for gang, found in states.items() if len(found) == 2]
