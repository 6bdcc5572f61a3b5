"""A journal and its report: the figures of a made-up fortnight are those that its events give."""

from __future__ import annotations

import fcntl
import json
import pickle
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from effort import first_fast
from event_truth import Free, fits, gpus, lost

from benchmarks.fortnight import DAY_S, START, Fortnight, Job, Setting, kept, record
from benchmarks.lab.deciders import Planner, limited
from benchmarks.lab.jobs import MS, JobFacts
from benchmarks.lab.simulation import Scenario, Settings, Simulation
from planner.read.inputs import load
from planner.week import pages
from planner.week.journal import Journal, append
from planner.week.week import Case, Week, week_of

HOUR_S = 3600

SETTING = Setting(
    nodes=4,
    gangs=32,
    load=0.6,
    limits=(("a", 24), ("b", 24)),
    price=2.5,
    every=2 * HOUR_S,
    grid=2 * HOUR_S,
    shapes=((2, 1, 1), (2, 1, 2), (3, 1, 4), (3, 1, 8), (2, 2, 8)),
)
"""Two racks of two nodes, two queues of 24 GPUs. Whatever happens, happens at a round."""

NEAR = 0.02


Played = tuple[Path, Fortnight, Week]


@pytest.fixture(scope="module")
def played(tmp_path_factory: pytest.TempPathFactory, worker_id: str, testrun_uid: str) -> Played:
    """Made by one process of the tests, read by the others."""
    base = tmp_path_factory.getbasetemp()
    base = base if worker_id == "master" else base.parent
    folder = base / f"week-{testrun_uid}"
    folder.mkdir(exist_ok=True)
    known = folder / "known"
    with (folder / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not known.exists():
            made = kept(SETTING, folder / "journal")
            known.write_bytes(pickle.dumps((made, week_of(str(folder / "journal")))))
    made, week = pickle.loads(known.read_bytes())
    return folder / "journal", made, week


@pytest.fixture(scope="module")
def folder(played: Played) -> Path:
    return played[0]


@pytest.fixture(scope="module")
def made(played: Played) -> Fortnight:
    return played[1]


@pytest.fixture(scope="module")
def week(played: Played) -> Week:
    assert played[1].jobs
    return played[2]


def key(job: Job) -> str:
    return f"{job.queue}/{job.name}"


def cases(week: Week) -> dict[str, Case]:
    return {one.gang: one for one in week.schedule}


def test_what_was_lost_to_each_cause_is_what_the_events_say(made: Fortnight, week: Week) -> None:
    truth = lost(made, restarts=1)
    assert min(truth.values()) > 100
    for one in week.losses:
        assert one.gpu_hours == pytest.approx(truth[one.cause], rel=NEAR), one.cause
        assert (one.proof, one.proven_hours) == ("proven", 1000), one.cause
        assert one.price == pytest.approx(2.5 * truth[one.cause], rel=NEAR)
        # a covered hour of fourteen days
        assert one.gpus == pytest.approx(truth[one.cause] / (14 * 24), rel=NEAR)


def test_gangs_came_and_started_when_they_did(made: Fortnight, week: Week) -> None:
    found = cases(week)
    seen = [job for job in made.jobs if job.submit < 14 * DAY_S]
    assert set(found) == {key(job) for job in seen}
    for job in seen:
        one, last = found[key(job)], 14 * DAY_S
        assert one.gpus == gpus(job)
        assert one.arrived == START + job.submit
        assert job.start is not None
        assert one.started == (START + job.start if job.start <= last else None)
        if one.ended is not None and job.end is not None:  # between two rounds
            assert abs(one.ended - START - job.end) <= SETTING.every


def would(made: Fortnight, week: Week) -> list[tuple[Job, Case]]:
    """The gangs that start in the replay."""
    found = cases(week)
    pairs = [(job, found[key(job)]) for job in made.jobs if key(job) in found]
    return [(job, one) for job, one in pairs if one.would_start is not None]


def free_then(pairs: list[tuple[Job, Case]], time: int) -> Free:
    """Free GPUs of each node in the replay."""
    free = [8] * SETTING.nodes
    for job, one in pairs:
        assert one.would_start is not None
        if one.would_start <= time and (one.would_end is None or one.would_end > time):
            nodes = [int(name.removeprefix("gpu-")) for name in one.would_be_on]
            for node in nodes * (job.pods // len(nodes)):
                free[node] -= job.gpus
    return tuple(free)


def held_then(pairs: list[tuple[Job, Case]], queue: str, time: int) -> int:
    return sum(
        gpus(job)
        for job, one in pairs
        if job.queue == queue
        and (one.would_start or 0) <= time
        and (one.would_end is None or one.would_end > time)
    )


def test_the_replay_could_have_been_and_leaves_nobody_waiting_that_fits(
    made: Fortnight, week: Week
) -> None:
    pairs, limits = would(made, week), dict(SETTING.limits)
    times = {t for _, one in pairs for t in (one.would_start, one.would_end) if t is not None}
    for time in sorted(times | {one.arrived for _, one in pairs}):
        free = free_then(pairs, time)
        assert min(free) >= 0
        room = {name: most - held_then(pairs, name, time) for name, most in limits.items()}
        assert min(room.values()) >= 0
        late = [job for job, one in pairs if one.arrived <= time < (one.would_start or 0)]
        assert not any(fits(free, job) and gpus(job) <= room[job.queue] for job in late)
    for job, one in pairs:
        assert one.would_start is not None
        assert one.would_start >= START + job.submit
        if one.would_end is not None:  # it runs as long as it did
            assert abs(one.would_end - one.would_start - job.seconds) <= SETTING.every


def test_waits_are_those_of_the_events_and_of_the_schedule(made: Fortnight, week: Week) -> None:
    found, end = cases(week), START + 14 * DAY_S
    sizes = {"part of a node": (1, 7), "one node": (8, 8), "up to 4 nodes": (9, 32)}
    assert [one.size for one in week.classes] == list(sizes)
    for one in week.classes:
        least, most = sizes[one.size]
        jobs = [job for job in made.jobs if least <= gpus(job) <= most and key(job) in found]
        truly = [min(START + (job.start or 0), end) - START - job.submit for job in jobs]
        starts = [found[key(job)].would_start for job in jobs]
        replayed = [
            (end if t is None else t) - START - j.submit for t, j in zip(starts, jobs, strict=True)
        ]
        pairs = list(zip(truly, replayed, strict=True))
        assert one.gangs == len(jobs)
        assert one.waited == pytest.approx(sum(truly) / HOUR_S, rel=NEAR)
        assert one.would == pytest.approx(sum(replayed) / HOUR_S, rel=NEAR)
        assert one.longer == pytest.approx(sum(max(0, a - b) for a, b in pairs) / HOUR_S, rel=NEAR)
        assert one.later == pytest.approx(
            sum(max(0, b - a) for a, b in pairs) / HOUR_S, rel=NEAR, abs=0.01
        )


def test_the_gangs_that_suffered_most_lost_most_gpu_hours_by_waiting(week: Week) -> None:
    assert len(week.worst) == 10
    by_loss = sorted(week.schedule, key=lambda one: (-one.longer * one.gpus, one.gang))
    assert list(week.worst) == by_loss[:10]


def test_allocated_is_what_gangs_held(made: Fortnight, week: Week) -> None:
    end, whole = 14 * DAY_S, 14 * DAY_S * 8 * SETTING.nodes
    # An end counts in the middle between two rounds, which is here an hour before it.
    truly = sum(
        gpus(job) * max(0, (job.end - HOUR_S if job.end <= end else end) - job.start)
        for job in made.jobs
        if job.start is not None and job.end is not None
    )
    assert week.allocated == pytest.approx(1000 * truly / whole, rel=NEAR)
    replayed = sum(
        gpus(job) * ((one.would_end or START + end) - (one.would_start or 0))
        for job, one in would(made, week)
    )
    assert week.would_be == pytest.approx(1000 * replayed / whole, rel=NEAR)


def test_a_replay_does_not_know_who_comes_later(
    made: Fortnight, week: Week, tmp_path: Path
) -> None:
    half = Fortnight(SETTING)
    half.jobs = half.jobs[:20]  # who came first was not held up by who came later
    assert half.jobs[-1].submit < half.setting.days * DAY_S
    record(half, tmp_path)
    before = cases(week_of(str(tmp_path)))
    until = START + made.jobs[20].submit
    told = {
        name: one.would_start
        for name, one in cases(week).items()
        if (one.would_start or until) < until
    }
    assert len(told) > 10
    assert {name: before[name].would_start for name in told} == told


@pytest.mark.parametrize("gap_h", first_fast([(60, 6), (124, 12), (124, 36), (200, 100)]))
def test_what_a_gap_hides_is_in_no_figure_and_the_rest_is_at_least_so_much(
    gap_h: tuple[int, int], made: Fortnight, week: Week, folder: Path, tmp_path: Path
) -> None:
    start, end = gap_h[0] * HOUR_S, sum(gap_h) * HOUR_S
    for one in Journal(str(folder)).rounds():
        assert one.state is not None
        if not START + start < one.record.time < START + end:
            tree, figures = one.state.document(), one.record.figures
            append(tmp_path, one.record.time, tree, figures, keep_s=10**9, anonymize=False)
    cut = week_of(str(tmp_path))
    assert cut.gaps == ((START + start, START + end),)
    for whole, loss in zip(week.losses, cut.losses, strict=True):
        assert loss.proof == "at least"
        assert loss.gpu_hours <= whole.gpu_hours
    passed = [
        job for job in made.jobs if job.submit <= start < (job.start or 0) and (job.end or 0) <= end
    ]
    assert set(cut.sureness.unseen) == set(map(key, passed))
    found, waited = cases(cut), 0
    for job in made.jobs:
        for since, until in ((0, start), (end, 14 * DAY_S)):
            if key(job) in found:
                waited += max(0, min(until, job.start or until) - max(since, job.submit))
    assert sum(one.waited for one in cut.classes) == pytest.approx(waited / HOUR_S, rel=0.001)
    longer, whole_longer = (sum(one.longer - one.later for one in w.classes) for w in (cut, week))
    assert 0 < longer <= whole_longer


def test_a_replay_of_one_rack_is_what_a_simulation_of_the_same_gangs_says(tmp_path: Path) -> None:
    setting = replace(SETTING, racks=1, limits=(), days=7, gangs=20, every=1800, grid=1)
    made = kept(setting, tmp_path)
    found = cases(week_of(str(tmp_path)))
    document = tmp_path / "cluster.json"
    items = [*made.documents(0)[:2], *(gang for job in made.jobs for gang in waits(made, job))]
    document.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    built = load((str(document),)).instance
    gangs = {"/".join(gang.key): gang for gang in built.gangs}
    facts = tuple(JobFacts(gangs[key(j)], MS * j.submit, MS * j.seconds) for j in made.jobs)
    policy = limited(built.policy, 1, 0)
    base = Scenario(
        built.with_gangs((), policy), facts, START, Settings(), own_mix=True, own_max_gangs=True
    )
    simulation = Simulation(base, Planner(policy))
    simulation.run()
    end, ours, theirs, truly = 7 * DAY_S, 0, 0, 0
    for job, state in zip(made.jobs, simulation.jobs, strict=True):
        if job.submit >= end:
            continue
        assert state.started is not None
        theirs += min(end, state.started // MS) - job.submit
        ours += (found[key(job)].would_start or START + end) - START - job.submit
        truly += min(end, job.start or end) - job.submit
    assert truly - theirs > 50 * HOUR_S
    error = abs(ours - theirs) / (truly - theirs)
    assert error <= float(pages.REPLAY_ERROR.removesuffix(" %")) / 100


def test_hours_are_scaled_by_speed_where_a_gang_states_its_fraction(tmp_path: Path) -> None:
    made = kept(
        replace(
            SETTING,
            gangs=10,
            days=3,
            limits=(),
            load=0.5,
            fraction=0.5,
            shapes=((1, 1, 4), (2, 2, 8)),
        ),
        tmp_path,
    )
    week = week_of(str(tmp_path))
    assert week.sureness.scaled == 5
    found, moved = cases(week), 0
    for job in made.jobs:
        one = found.get(key(job))
        if one is None or one.would_end is None or one.would_start is None:
            continue
        racks = [len({int(name[-1]) // 2 for name in on}) for on in (one.nodes, one.would_be_on)]
        moved += racks == [2, 1]
        # 1000 / (0.5 + 0.5 / 0.269) = 423, in steps of 20: 420 on two racks
        speed = 0.42 if racks == [2, 1] else 1
        assert one.would_end - one.would_start == speed * (job.seconds - HOUR_S)
    assert moved == 5


def waits(made: Fortnight, job: Job) -> list[dict[str, Any]]:
    """The gang as it waits."""
    gangs = [one for one in made.documents(job.submit) if one["metadata"]["name"] == job.name]
    for one in gangs:
        one.pop("status", None)
    return gangs
