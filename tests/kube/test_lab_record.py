"""Recording: snapshots of a cluster whose history is known, and what the trace says of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import kube
import pytest
from bundles import packed
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.lab.record import record
from benchmarks.lab.trace import Job
from models.units import epoch_seconds, time_text

T0 = epoch_seconds("2026-11-20T08:00:00Z")


def pod(name: str, created: int, started: int | None, **more: object) -> dict[str, Any]:
    """A pod of 4 GPUs, created and started so many seconds after T0; it waits if it is not started."""
    tree = kube.pod(name, gpus=4, on=None if started is None else "n1", **more)  # type: ignore[arg-type]
    tree["metadata"]["creationTimestamp"] = time_text(T0 + created)
    if started is not None:
        tree["status"]["startTime"] = time_text(T0 + started)
    return tree


def snapshot(folder: Path, second: int, *pods: dict[str, Any]) -> str:
    """A file as kubectl prints it, with its time in its name; its path."""
    name = time_text(T0 + second).replace(":", "-").removesuffix("Z")
    path = folder / f"prod-{name}.json"
    items = [kube.node("n1"), kube.node("n2"), *pods]
    path.write_bytes(packed(items))
    return str(path)


def only(jobs: tuple[Job, ...]) -> Job:
    (job,) = jobs
    return job


def test_a_gang_arrives_starts_and_ends_between_snapshots(tmp_path: Path) -> None:
    gone = pod("a", 100, None)
    runs = pod("a", 100, 700)
    paths = [
        snapshot(tmp_path, 600, gone),
        snapshot(tmp_path, 1200, runs),
        snapshot(tmp_path, 1800, runs),
        snapshot(tmp_path, 2400),
    ]
    job = only(record(list(reversed(paths)))[0].jobs)
    assert (job.namespace, job.name, job.submit_s) == ("default", "a", 0)
    # It started at 700 and ended between 1800 and 2400: after 1100 to 1700 seconds.
    assert (job.at_least, job.at_most, job.duration_s) == (1100, 1700, 1400)
    assert job.spec.roles[0].requests["cpu"] == 4000


def test_gangs_that_still_run_or_wait_are_left_out_and_counted(tmp_path: Path) -> None:
    paths = [
        snapshot(tmp_path, 600, pod("a", 0, 10), pod("b", 5, None), pod("c", 6, None)),
        snapshot(tmp_path, 1200, pod("a", 0, 10), pod("b", 5, None)),
    ]
    trace, left_out = record(paths)
    assert trace.jobs == ()
    assert left_out == {"that never ran": 2, "that still run": 1}
    assert record(paths[:1])[1] == left_out


def test_a_gang_that_expects_its_duration_has_one_without_being_seen_to_end(
    tmp_path: Path,
) -> None:
    path = tmp_path / "2026-11-20T08-00.yaml"
    path.write_text(
        """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: one}
spec: {nodes: [{name: n1, model: DGX H100}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: a}
spec:
  submittedAt: 2026-11-20T07:00:00Z
  expectedDuration: 2h
  roles: [{name: w, replicas: 1, gpus: 8}]
"""
    )
    job = only(record([str(path)])[0].jobs)
    assert (job.submit_s, job.duration_s, job.at_least) == (0, 7200, None)


def test_a_later_gang_of_one_name_is_another_job(tmp_path: Path) -> None:
    later = pod("a", 1300, 1400)
    later["metadata"]["uid"] = "another"
    paths = [
        snapshot(tmp_path, 600, pod("a", 0, 0)),
        snapshot(tmp_path, 1800, later),
        snapshot(tmp_path, 2400),
    ]
    jobs = record(paths)[0].jobs
    assert [(job.name, job.submit_s, job.duration_s) for job in jobs] == [
        ("a", 0, 1200),  # ended between 600 and 1800
        ("a-2", 1300, 700),  # started at 1400, ended between 1800 and 2400
    ]


def test_a_gang_that_was_stopped_in_between_runs_until_it_is_seen_no_more(tmp_path: Path) -> None:
    paths = [
        snapshot(tmp_path, 100, pod("a", 0, 50)),
        snapshot(tmp_path, 200, pod("a", 0, None)),
        snapshot(tmp_path, 300, pod("a", 0, 250)),
        snapshot(tmp_path, 500),
    ]
    job = only(record(paths)[0].jobs)
    assert (job.at_least, job.at_most) == (250, 450)


@settings(max_examples=examples(100, 12), deadline=None)
@given(
    created=st.integers(0, 500),
    waits=st.integers(0, 500),
    runs=st.integers(1, 1500),
    times=st.lists(st.integers(0, 4000), min_size=1, max_size=8, unique=True),
)
def test_the_true_duration_is_within_what_the_trace_says(
    tmp_path_factory: pytest.TempPathFactory, created: int, waits: int, runs: int, times: list[int]
) -> None:
    folder = tmp_path_factory.mktemp("history")
    start, end = created + waits, created + waits + runs
    paths = []
    for time in sorted(times):
        there = (
            [pod("a", created, start if start <= time else None)] if created <= time < end else []
        )
        paths.append(snapshot(folder, time, *there))
    jobs = record(paths)[0].jobs
    seen_running = any(start <= time < end for time in times)
    assert bool(jobs) == (seen_running and max(times) >= end)
    for job in jobs:
        assert job.at_least is not None
        assert job.at_most is not None
        assert job.at_least <= runs <= job.at_most
