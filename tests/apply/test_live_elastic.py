"""Elastic gangs of Deployments and StatefulSets: they start small, grow into room and shrink for others."""

from __future__ import annotations

import re
import signal

import pytest
from live_checks import overfull, placed
from live_cluster import Live
from live_objects import Wanted, workload
from live_runs import Killer, Ran, killed, ran, run_words

pytest_plugins = ("live_fixtures",)

KINDS = ["Deployment", "StatefulSet"]


def outcome(done: Ran, gang: str) -> str:
    """What a run said of the gang."""
    found = re.findall(rf"/{gang}: (\w+)", done.err)
    assert found, done.err
    last: str = found[-1]
    return last


def running(live: Live, gang: str) -> set[str]:
    return placed(live.pods()).keys() & live.of(gang).keys()


def replicas(live: Live, kind: str, name: str) -> int:
    path = f"/apis/apps/v1/namespaces/{live.namespace}/{kind.lower()}s/{name}"
    found: int = live.get(path)["spec"]["replicas"]
    return found


def settled(live: Live, gang: str, pods: int) -> None:
    live.wait_until(lambda: len(running(live, gang)) == pods, f"{pods} pods of {gang} to run")
    assert overfull(live.pods()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_starts_with_what_fits_grows_later_and_shrinks_for_a_higher_one(
    live: Live, kind: str
) -> None:
    """Seven nodes, three of them taken: four of six pods start."""
    live.create(Wanted("wide", 3, 8, "rival"))
    live.wait_until(lambda: len(placed(live.pods())) == 3, "the rivals to be bound")
    low = Wanted("low", 6, 8, preemptible=True)
    live.create_workload(workload(kind, low, live.run, least=2, most=6))
    words = run_words(live, "--allow-evictions")
    first = ran(live, *words)
    assert (first.code, outcome(first, "low")) == (0, "started"), first.err
    settled(live, "low", 4)
    started = running(live, "low")

    live.delete_pods("wide-0", "wide-1", "wide-2")
    grown = ran(live, *words)
    assert (grown.code, outcome(grown, "low")) == (0, "started"), grown.err
    settled(live, "low", 6)
    assert running(live, "low") > started

    live.create(Wanted("high", 3, 8, high=True))
    shrunk = ran(live, *words)
    assert (shrunk.code, outcome(shrunk, "low")) == (0, "resized"), shrunk.out + shrunk.err
    settled(live, "high", 3)
    settled(live, "low", 4)
    assert (replicas(live, kind, "low"), len(live.of("low"))) == (4, 4)
    if kind == "StatefulSet":
        assert running(live, "low") == {"low-0", "low-1", "low-2", "low-3"}
    assert ran(live, *words).code == 0
    assert len(running(live, "low")) == 4


@pytest.mark.parametrize("kind", KINDS)
def test_a_gang_grows_beyond_its_pods_by_the_scale_of_its_controller(live: Live, kind: str) -> None:
    low = Wanted("low", 2, 8)
    live.create_workload(workload(kind, low, live.run, least=2, most=4, on_template=True))
    assert ran(live, *run_words(live)).code == 0
    settled(live, "low", 2)
    kept = ran(live, *run_words(live))
    assert (kept.code, replicas(live, kind, "low")) == (0, 2), kept.err
    for _ in range(2):  # its controller may take longer than the run waits
        grown = ran(live, *run_words(live, "--allow-evictions"))
        assert grown.code == 0, grown.err
    settled(live, "low", 4)
    assert replicas(live, kind, "low") == 4


@pytest.mark.slow
@pytest.mark.parametrize("after", [False, True])
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_while_it_shrinks_a_gang_is_continued_by_the_next(
    live: Live, kind: str, after: bool
) -> None:
    """At each mark of a pod that is to go, then at the scale: one run after the other dies."""
    low = Wanted("low", 7, 8, preemptible=True)
    live.create_workload(workload(kind, low, live.run, least=2, most=7))
    words = run_words(live, "--allow-evictions")
    assert ran(live, *words).code == 0
    live.create(Wanted("high", 3, 8, "gate", high=True))
    for at in (1, 2, 3) if kind == "Deployment" else (1,):
        killer = Killer(at, after, of=lambda call: call.resizes)
        ended = killed(live, killer, *words)
        if killer.struck is None:  # an earlier one has come that far
            break
        assert ended.code == -signal.SIGKILL, ended.err
        assert overfull(live.pods()) == []
    done = ran(live, *words)
    assert done.code == 0, done.err
    settled(live, "high", 3)
    settled(live, "low", 4)
    assert (replicas(live, kind, "low"), len(live.of("low"))) == (4, 4)
    assert "partial" not in done.err


@pytest.mark.slow
@pytest.mark.parametrize("kind", KINDS)
def test_a_run_killed_while_it_grows_a_gang_is_continued_by_the_next(live: Live, kind: str) -> None:
    low = Wanted("low", 2, 8)
    live.create_workload(workload(kind, low, live.run, least=2, most=6))
    assert ran(live, *run_words(live)).code == 0
    words = run_words(live, "--allow-evictions")
    for at in (1, 2, 6, 8):
        killer = Killer(at, True, of=lambda call: call.resizes or call.writes_pods)
        killed(live, killer, *words)
        assert overfull(live.pods()) == []
    done = ran(live, *words)
    assert done.code == 0, done.err
    settled(live, "low", 6)
    assert replicas(live, kind, "low") == 6
    assert "partial" not in done.err
