"""The simulation of a replay: times worked out by hand, and what holds in any."""

from __future__ import annotations

import random
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

import pytest
from building import build, gang, role

from benchmarks.lab.deciders import Baseline, Planner, Scheduler, limited
from benchmarks.lab.jobs import MS, JobFacts
from benchmarks.lab.orders import Moment
from benchmarks.lab.rules import RULES
from benchmarks.lab.scheduler import solution_of
from benchmarks.lab.simulation import (
    EPOCH,
    Scenario,
    Settings,
    Simulation,
)
from benchmarks.measure import Referee
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.solution import GangDecision, PodPlacement, Reason

Job = tuple[Gang, int, int]
"""(gang, submission in s, duration in s)."""


def scenario(
    instance: Instance, jobs: Sequence[Job], *, every: int = 0, restart: int = 0
) -> Scenario:
    """The jobs on a cluster; times in seconds."""
    facts = (
        JobFacts(replace(one, submitted_at=EPOCH + submit), MS * submit, MS * duration)
        for one, submit, duration in sorted(jobs, key=lambda job: (job[1], job[0].key))
    )
    settings = Settings(every_ms=MS * every, restart_ms=MS * restart)
    return Scenario(replace(instance, gangs=()), tuple(facts), EPOCH, settings)


def planner(instance: Instance) -> Planner:
    return Planner(limited(instance.policy, 1, 0))


def baseline(instance: Instance, name: str) -> Baseline:
    return Baseline(RULES[name], instance.policy)


def ends(simulation: Simulation) -> dict[str, float]:
    """Completion of every job by its name, in seconds since the start."""
    return {job.facts.gang.name: job.ended / MS for job in simulation.jobs if job.ended is not None}


def run(played: Scenario, scheduler: Scheduler) -> Simulation:
    simulation = Simulation(played, scheduler)
    simulation.run()
    return simulation


def test_jobs_start_when_gpus_are_free_and_end_after_their_duration() -> None:
    """8 GPUs: a has all of them until 100; then b and c share them for 50 s."""
    instance = build()
    jobs = [
        (gang("a", 1, 8), 0, 100),
        (gang("b", 1, 4), 10, 50),
        (gang("c", 1, 4), 20, 50),
    ]
    for name in ("tight", "kueue", "volcano"):
        assert ends(run(scenario(instance, jobs), baseline(instance, name))) == {
            "a": 100,
            "b": 150,
            "c": 150,
        }


def test_the_planner_decides_at_ticks_and_may_at_events() -> None:
    """Ticks every 60 s: b arrives at 10 and starts at 60; c, at 100 beside it, waits until 120."""
    instance = build()
    jobs = [(gang("b", 1, 4), 10, 100), (gang("c", 1, 4), 100, 10)]
    assert ends(run(scenario(instance, jobs, every=60), planner(instance))) == {"b": 160, "c": 130}
    assert ends(run(scenario(instance, jobs), planner(instance))) == {"b": 110, "c": 110}


def test_a_job_takes_longer_where_links_are_slow() -> None:
    """Half of the bandwidth between blocks and a fraction of 1/4: a step takes 3/4 + 2/4, speed 4/5."""
    instance = build(blocks=2, oversubscription=(2, 1))
    done = run(scenario(instance, [(gang("a", 2, 8), 0, 100)]), baseline(instance, "kai"))
    assert ends(done) == {"a": 125}
    (job,) = done.jobs
    assert job.held_gpu_ms == 16 * 125 * MS


DAY = 24 * 3600


def test_a_long_job_is_waited_for() -> None:
    """Nothing ends for 90 days, which is no reason to give up."""
    instance = build()
    done = run(scenario(instance, [(gang("a", 1, 8), 0, 90 * DAY)]), baseline(instance, "kai"))
    assert ends(done) == {"a": 90 * DAY}
    assert not done.gave_up


def test_a_plan_that_stops_a_job_costs_it_a_restart() -> None:
    """b outranks a at 30 for 20 s; a goes on at 50, works from 55, and has 70 s left."""
    instance = build()
    stopped = replace(gang("a", 1, 8), preemptible=True)
    jobs = [(stopped, 0, 100), (gang("b", 1, 8, priority=1), 30, 20)]
    done = run(scenario(instance, jobs, restart=5), planner(instance))
    assert ends(done) == {"a": 125, "b": 50}
    assert done.stops == 1


def test_a_move_costs_a_restart_and_a_larger_size_costs_none() -> None:
    """Moved at 40, a works again from 45 on: 105. Grown from 4 to 8 GPUs at 40, 60 s of work take 30."""
    instance = build(nodes_per_rack=2)
    elastic = gang("a", roles=[role("worker", 1, 4, most=2)])
    for second, ended in (((1, 0b1111),), 105), (((0, 0b1111), (0, 0b11110000)), 70):
        done = Simulation(
            scenario(instance, [(elastic, 0, 100), (gang("z", 1, 1), 40, 1)], restart=5),
            Scripted(instance.policy, {0: ((0, 0b1111),), 40: second}),
        )
        done.run()
        assert ends(done)["a"] == ended
        assert done.stops == (ended == 105)


@dataclass
class Scripted:
    """``pods``: of gang ``a`` from a time on, as (node, GPUs). Other gangs are on the last GPU."""

    policy: Policy
    script: dict[int, tuple[tuple[int, int], ...]]

    def stops(self, running: Iterable[Gang]) -> bool:
        return True

    def dates(self, moment: Moment) -> Iterable[int]:
        return ()

    def decide(self, moment: Moment) -> list[GangDecision]:
        instance, now = moment.instance, moment.instance.now - EPOCH
        pods = self.script[max(time for time in self.script if time <= now)]
        own = tuple(PodPlacement(0, i, node, mask) for i, (node, mask) in enumerate(pods))
        other = (PodPlacement(0, 0, 1, 0b10000000),)
        return [GangDecision("place", own if g.name == "a" else other) for g in instance.gangs]


WAITS = Reason.of("NoRoom", text="plans of a replay do not say why")


@dataclass
class Watched:
    """A scheduler whose every decision the judge checks; and GPUs are not idle if a job of one waits."""

    inner: Scheduler
    judged: int = 0
    every: int = 1
    times: int = 0

    @property
    def policy(self) -> Policy:
        return self.inner.policy

    def stops(self, running: Iterable[Gang]) -> bool:
        return self.inner.stops(running)

    def dates(self, moment: Moment) -> Iterable[int]:
        return self.inner.dates(moment)

    def decide(self, moment: Moment) -> Sequence[GangDecision]:
        instance, decisions = moment.instance, self.inner.decide(moment)
        self.times += 1
        if self.times % self.every == 0:
            self.judged += 1
            told = tuple(d if d.pods else replace(d, reason=WAITS) for d in decisions)
            solution = solution_of(instance, told, "watched")
            assert Referee(instance).figures(solution, "watched")["violations"] == []
        held = sum(
            g.roles[pod.role].gpus
            for g, decision in zip(instance.gangs, decisions, strict=True)
            for pod in decision.pods
        )
        smallest = min(
            (g.weight_gpus for g, d in zip(instance.gangs, decisions, strict=True) if not d.pods),
            default=None,
        )
        assert smallest != 1 or held == 8 * sum(one.ready for one in instance.cluster.nodes)
        return decisions


def drawn(seed: int, count: int = 60) -> list[Job]:
    """Jobs of 1 to 16 GPUs that keep four servers busy."""
    draw = random.Random(seed)
    jobs, time = [], 0
    for number in range(count):
        pods, gpus = draw.choice(((1, 1), (1, 1), (1, 2), (1, 4), (1, 8), (2, 8)))
        time += draw.randrange(30)
        jobs.append((gang(f"j{number:02}", pods, gpus), time, draw.randrange(5, 200)))
    return jobs


@pytest.mark.parametrize("name", ["planner", "tight", "kueue", "kai", "volcano"])
def test_no_work_is_lost_or_made_and_no_gpu_held_twice(name: str) -> None:
    """Every state passes the judge."""
    instance = build(blocks=2, nodes_per_rack=2, oversubscription=(4, 1))
    inner = planner(instance) if name == "planner" else baseline(instance, name)
    watched = Watched(inner, every=5)
    done = run(scenario(instance, drawn(1)), watched)
    assert watched.judged > 10
    assert len(ends(done)) == len(done.jobs)
    # of the time until the last job comes, and at the speed that it had
    until = done.scenario.window_ms
    assert 0 < done.effective <= 1000 * done.busy <= 1000 * 32 * until
    held = sum(job.held_gpu_ms for job in done.jobs)
    assert done.busy < held
    # the last millisecond of a job may be longer than its work
    work = sum(job.facts.work for job in done.jobs)
    assert work <= 1000 * held
    assert all(job.left == 0 for job in done.jobs)


def test_a_job_that_can_never_start_ends_the_replay_and_no_other() -> None:
    instance = build()
    jobs = [(gang("a", 2, 8), 0, 10), (gang("b", 1, 8), 5, 10)]
    for scheduler in (planner(instance), baseline(instance, "kai")):
        done = run(scenario(instance, jobs, every=60), scheduler)
        assert list(ends(done)) == ["b"]


def test_a_job_without_gpus_or_without_duration_ends_too() -> None:
    instance = build()
    jobs = [(gang("a", 1, 0), 0, 10), (gang("b", 1, 8), 5, 0)]
    for scheduler in (baseline(instance, "kueue"), planner(instance)):
        assert ends(run(scenario(instance, jobs), scheduler)) == {"a": 10, "b": 5}
