"""Recording: the journal of a cluster whose history is known, and what the trace says of it."""

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
from models.documents.canonical import canonical_instance
from models.instance.policy import EVERY_SCHEDULER
from models.units import epoch_seconds, time_text
from planner.read.inputs import load
from planner.week.journal import Figures, append

T0 = epoch_seconds("2026-11-20T08:00:00Z")
NONE = Figures(0, 0, 0, 0, 0, {}, 1)


def pod(name: str, created: int, started: int | None, **more: object) -> dict[str, Any]:
    """A pod of 4 GPUs, created and started so many seconds after T0; it waits if it is not started."""
    tree = kube.pod(name, gpus=4, on=None if started is None else "n1", **more)  # type: ignore[arg-type]
    tree["metadata"]["creationTimestamp"] = time_text(T0 + created)
    if started is not None:
        tree["status"]["startTime"] = time_text(T0 + started)
    return tree


def journal(folder: Path, rounds: dict[int, list[dict[str, Any]]]) -> str:
    """A journal with these pods so many seconds after T0; its path."""
    for second, pods in rounds.items():
        path = folder / "objects.json"
        path.write_bytes(packed([kube.node("n1"), kube.node("n2"), *pods]))
        instance = load((str(path),), schedulers=(EVERY_SCHEDULER,), now=T0 + second).instance
        document = canonical_instance(instance)
        append(folder, T0 + second, document, NONE, keep_s=10**9, anonymize=False)
    return str(folder)


def only(jobs: tuple[Job, ...]) -> Job:
    (job,) = jobs
    return job


def test_a_gang_arrives_starts_and_ends_between_rounds(tmp_path: Path) -> None:
    runs = pod("a", 100, 700)
    rounds = {0: [], 600: [pod("a", 100, None)], 1200: [runs], 1800: [runs], 2400: []}
    job = only(record(journal(tmp_path, rounds))[0].jobs)
    assert (job.namespace, job.name, job.submit_s) == ("default", "a", 0)
    # It started at 700 and ended between 1800 and 2400: after 1100 to 1700 seconds.
    assert (job.at_least, job.at_most, job.duration_s) == (1100, 1700, 1400)
    assert job.spec.roles[0].requests["cpu"] == 4000


def test_gangs_that_still_run_or_wait_are_left_out_and_counted(tmp_path: Path) -> None:
    first = [pod("a", 0, 10), pod("b", 5, None), pod("c", 6, None)]
    trace, left_out = record(journal(tmp_path, {600: first, 1200: first[:2]}))
    assert trace.jobs == ()
    assert left_out == {"that never ran": 2, "that still run": 1}


def test_a_later_gang_of_one_name_is_another_job(tmp_path: Path) -> None:
    rounds = {600: [pod("a", 0, 0)], 1800: [pod("a", 1300, 1400)], 2400: []}
    jobs = record(journal(tmp_path, rounds))[0].jobs
    assert [(job.name, job.submit_s, job.duration_s) for job in jobs] == [
        ("a", 0, 1200),  # ended between 600 and 1800
        ("a.2", 1300, 700),  # started at 1400, ended between 1800 and 2400
    ]


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
    rounds = {
        time: [pod("a", created, start if start <= time else None)] if created <= time < end else []
        for time in sorted(times)
    }
    jobs = record(journal(folder, rounds))[0].jobs
    seen_running = any(start <= time < end for time in times)
    assert bool(jobs) == (seen_running and max(times) >= end)
    for job in jobs:
        assert job.at_least is not None
        assert job.at_most is not None
        assert job.at_least <= runs <= job.at_most
