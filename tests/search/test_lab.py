"""The lab of the benchmarks: traces, the schedulers compared with, and the simulation of a replay by hand."""

from __future__ import annotations

import gzip
import random
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import partial
from pathlib import Path

import pytest
from building import build, gang, node, role
from effort import first_fast

from benchmarks.building import DGX_H100
from benchmarks.generator import busy
from benchmarks.lab.deciders import Baseline, Planner, Scheduler, limited
from benchmarks.lab.jobs import MS, JobFacts
from benchmarks.lab.orders import Moment
from benchmarks.lab.rules import AT_ONCE, RULES
from benchmarks.lab.scheduler import schedule, signed_values, solution_of
from benchmarks.lab.simulation import EPOCH, Scenario, Settings, Simulation
from benchmarks.lab.trace import Job, Trace, read_trace, roles_of
from benchmarks.measure import Referee
from models.documents.gang import GangSpec, GangTopology
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.policy import Policy
from models.instance.solution import GangDecision, PodPlacement, Reason
from planner.search.solve import solve

# Traces: what is written is read again, and the published tables row by row

TRACES = Path(__file__).parents[2] / "benchmarks" / "lab" / "traces"


def job(name: str, at: int, gpus: int, **spec: object) -> Job:
    return Job(name=name, submit_s=at, duration_s=10, spec=GangSpec(roles=roles_of(gpus), **spec))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    near = GangTopology(required="block")
    trace = Trace.of("t", [job("b", 9, 16, topology=near), job("a", 3, 20, priority=5)])
    assert [one.name for one in trace.jobs] == ["a", "b"]
    path = tmp_path / "trace.json"
    path.write_text(trace.text())
    assert read_trace(path) == trace
    with pytest.raises(ValueError, match="two jobs of one name"):
        Trace.of("t", [job("a", 0, 1), job("a", 5, 1)])
    path.write_text(trace.text().replace('"submitS": 3', '"submitS": -3'))
    with pytest.raises(ValueError, match="submitS"):
        read_trace(path)


def test_a_published_week_is_read_row_by_row(tmp_path: Path) -> None:
    helios = read_trace(TRACES / "helios" / "week.csv.gz")
    assert (helios.name, len(helios.jobs)) == ("helios", 4675)
    first = helios.jobs[0]
    facts = (first.name, first.namespace, first.submit_s, first.duration_s)
    assert facts == ("hel-04309", "u10", 35, 180)
    assert [(role.replicas, role.gpus) for role in first.spec.roles] == [(1, 8)]
    assert first.gang_document(1000).spec.submitted_at == 1035
    path = tmp_path / "t.csv.gz"
    head = b"job_id,vc,submit_s,duration_s,num_gpus\n"
    path.write_bytes(gzip.compress(head + b"a,v,1,5,0\nb,v,2,5,1\n"))  # a has no GPUs
    assert [one.name for one in read_trace(path).jobs] == ["b"]
    path.write_bytes(gzip.compress(head + b"a/b,v,1,5,1\n"))
    with pytest.raises(ValueError, match="cannot be a name"):
        read_trace(path)


@pytest.mark.parametrize(
    ("gpus", "pods"),
    [(4, [(1, 4)]), (16, [(2, 8)]), (12, [(2, 6)]), (20, [(2, 8), (1, 4)])],
)
def test_pods_have_all_gpus_of_a_job_and_are_as_few_as_servers_allow(
    gpus: int, pods: list[tuple[int, int]]
) -> None:
    assert [(role.replicas, role.gpus) for role in roles_of(gpus)] == pods


def test_a_part_of_a_trace_and_a_wish_for_near_places() -> None:
    trace = Trace.of("t", [job(f"j{i}", 100 * i, 8 + 8 * (i % 2)) for i in range(10)])
    part = trace.part(200, 500)
    assert [(one.name, one.submit_s) for one in part.jobs] == [("j2", 0), ("j3", 100), ("j4", 200)]
    assert [one.submit_s for one in trace.part(speedup=Fraction(3, 2)).jobs[:3]] == [0, 66, 133]
    near = Trace.of("t", [job("c", 0, 16, topology=GangTopology(required="block"))])
    assert near.preferring("rack") == near
    wished = [one.spec.topology.preferred for one in trace.preferring("rack").jobs[:2]]
    assert wished == [None, "rack"]


# The schedulers compared with: their published examples, valid plans, and never a better one

V100 = {"servers": {"DGX-1 V100": 1}, "largest": 8}
NVL72 = {"servers": {"GB200 NVL72 compute tray": 1}, "racks": (18, 18), "nvlink": True}
DRAWS = {
    "busy": partial(busy, 12, 12, 6),
    "mesh": partial(busy, 4, 5, 2, **V100),
    "nvl72": partial(busy, 36, 10, 0, **NVL72),
    "tight": partial(busy, 16, 14, 2, tight=True, odd=True, preemptible=0.3, movable=0.3),
}


@pytest.mark.parametrize("draw", first_fast(DRAWS, 2))
def test_every_plan_of_a_baseline_passes_the_judge_and_none_is_better(draw: str) -> None:
    instance = DRAWS[draw]()
    limits = replace(instance.policy.solve, budget=2)
    ours = solve(replace(instance, policy=replace(instance.policy, solve=limits)))
    referee = Referee(instance)
    for name, rules in AT_ONCE.items():
        decisions = schedule(instance, rules)
        theirs = solution_of(instance, decisions, name)
        assert (name, referee.figures(theirs, name)["violations"]) == (name, [])
        assert sum(decision.decision == "place" for decision in decisions) > 0
        assert signed_values(ours) >= signed_values(theirs), name


def servers(*free: int, racks: Sequence[str] = ()) -> list:
    """DGX H100 with so many GPUs free each, the others sick; all in one rack unless named."""
    return [
        node(f"n{i}", DGX_H100, rack=racks[i] if racks else "r1", unhealthy=range(count, 8))
        for i, count in enumerate(free)
    ]


def placed(instance: Instance, scheduler: str, name: str) -> list[int]:
    """Pods of the gang on each node, in the order of the nodes."""
    decisions = schedule(instance, AT_ONCE[scheduler])
    (decision,) = (d for g, d in zip(instance.gangs, decisions, strict=True) if g.name == name)
    counts = Counter(pod.node for pod in decision.pods)
    return [counts[n] for n in range(len(instance.cluster.nodes))]


def test_kueue_takes_the_domains_of_its_published_example() -> None:
    """The example of its enhancement 2724: nodes for 3, 3, 2 and 1 pods, a gang of seven."""
    instance = build(nodes=servers(3, 3, 2, 1), gangs=[gang("a", pods=7, prefer="rack")])
    assert placed(instance, "kueue", "a") == [3, 3, 0, 1]


@pytest.mark.parametrize("scheduler", AT_ONCE)
def test_a_gang_that_wants_one_rack_gets_the_tightest_that_holds_it(scheduler: str) -> None:
    nodes = servers(8, 8, 8, 8, 8, racks=("r1", "r1", "r1", "r2", "r2"))
    instance = build(nodes=nodes, gangs=[gang("a", pods=2, gpus_per_pod=8, prefer="rack")])
    assert placed(instance, scheduler, "a") == [0, 0, 0, 1, 1]


@pytest.mark.parametrize("scheduler", ["kai", "volcano"])
def test_one_layer_of_slices_is_known(scheduler: str) -> None:
    sliced = gang("a", pods=4, gpus_per_pod=8, slices=(2, "rack"))
    within = gang("b", pods=2, gpus_per_pod=8, same="rack", priority=-1)
    instance = build(nodes=servers(*(8,) * 8), gangs=[sliced, within])
    assert [sum(placed(instance, scheduler, name)) for name in ("a", "b")] == [4, 2]


# The simulation: times worked out by hand, and what holds in any

Played = tuple[Gang, int, int]
"""(gang, submission in s, duration in s)."""

DAY = 24 * 3600


def ends(
    instance: Instance,
    jobs: Sequence[Played],
    scheduler: Scheduler | str,
    *,
    every: int = 0,
    restart: int = 0,
) -> tuple[dict[str, float], Simulation]:
    """Completion of every job by its name, in seconds since the start, as are all times; and the replay."""
    facts = (
        JobFacts(replace(one, submitted_at=EPOCH + submit), MS * submit, MS * duration)
        for one, submit, duration in sorted(jobs, key=lambda job: (job[1], job[0].key))
    )
    settings = Settings(every_ms=MS * every, restart_ms=MS * restart)
    played = Scenario(replace(instance, gangs=()), tuple(facts), EPOCH, settings)
    done = Simulation(played, decider(instance, scheduler))
    done.run()
    found = {j.facts.gang.name: j.ended / MS for j in done.jobs if j.ended is not None}
    return found, done


def decider(instance: Instance, scheduler: Scheduler | str) -> Scheduler:
    if scheduler == "planner":
        return Planner(limited(instance.policy, 1, 0))
    if isinstance(scheduler, str):
        return Baseline(RULES[scheduler], instance.policy)
    return scheduler


B, C = gang("b", 1, 4), gang("c", 1, 4)
STOPPED = replace(gang("a", 1, 8), preemptible=True)
TIMES: dict[str, tuple[Sequence[Played], str, dict[str, int], dict[str, int]]] = {
    # 8 GPUs: a has all of them until 100; then b and c share them for 50 s
    **{
        f"free GPUs are given, {name}": (
            [(gang("a", 1, 8), 0, 100), (B, 10, 50), (C, 20, 50)],
            name,
            {},
            {"a": 100, "b": 150, "c": 150},
        )
        for name in ("tight", "kueue", "volcano")
    },
    # b arrives at 10 and starts at 60; c, at 100 beside it, waits until 120
    "ticks": ([(B, 10, 100), (C, 100, 10)], "planner", {"every": 60}, {"b": 160, "c": 130}),
    "events": ([(B, 10, 100), (C, 100, 10)], "planner", {}, {"b": 110, "c": 110}),
    # nothing ends for 90 days, which is no reason to give up
    "a long job": ([(gang("a", 1, 8), 0, 90 * DAY)], "kai", {}, {"a": 90 * DAY}),
    # b outranks a at 30 for 20 s; a goes on at 50, works from 55, and has 70 s left
    "a stop costs a restart": (
        [(STOPPED, 0, 100), (gang("b", 1, 8, priority=1), 30, 20)],
        "planner",
        {"restart": 5},
        {"a": 125, "b": 50},
    ),
    **{
        f"a job that can never start ends no other, {name}": (
            [(gang("a", 2, 8), 0, 10), (gang("b", 1, 8), 5, 10)],
            name,
            {"every": 60},
            {"b": 70},
        )
        for name in ("planner", "kai")
    },
    **{
        f"jobs without GPUs or duration end, {name}": (
            [(gang("a", 1, 0), 0, 10), (gang("b", 1, 8), 5, 0)],
            name,
            {},
            {"a": 10, "b": 5},
        )
        for name in ("planner", "kueue")
    },
}


@pytest.mark.parametrize("why", TIMES)
def test_jobs_end_when_they_should(why: str) -> None:
    jobs, scheduler, settings, expected = TIMES[why]
    found, done = ends(build(), jobs, scheduler, **settings)
    assert found == expected
    assert done.stops == (why == "a stop costs a restart")


def test_a_job_takes_longer_where_links_are_slow() -> None:
    """Half of the bandwidth between blocks and a fraction of 1/4: a step takes 3/4 + 2/4, speed 4/5."""
    instance = build(blocks=2, oversubscription=(2, 1))
    found, done = ends(instance, [(gang("a", 2, 8), 0, 100)], "kai")
    assert found == {"a": 125}
    assert done.jobs[0].held_gpu_ms == 16 * 125 * MS


@dataclass
class Scripted:
    """``script``: (node, GPUs) of gang ``a`` from a time on. Other gangs are on the last GPU."""

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


@pytest.mark.parametrize(
    ("second", "ended"), [(((1, 0b1111),), 105), (((0, 0b1111), (0, 0b11110000)), 70)]
)
def test_a_move_costs_a_restart_and_a_larger_size_costs_none(
    second: tuple[tuple[int, int], ...], ended: int
) -> None:
    """Moved at 40, a works again from 45 on: 105. Grown from 4 to 8 GPUs at 40, 60 s of work take 30."""
    instance = build(nodes_per_rack=2)
    elastic = gang("a", roles=[role("worker", 1, 4, most=2)])
    script = Scripted(instance.policy, {0: ((0, 0b1111),), 40: second})
    found, done = ends(instance, [(elastic, 0, 100), (gang("z", 1, 1), 40, 1)], script, restart=5)
    assert (found["a"], done.stops) == (ended, ended == 105)


WAITS = Reason.of("NoRoom", text="plans of a replay do not say why")


@dataclass
class Watched:
    """A scheduler of which the judge checks decisions; and GPUs are not idle if a job of one waits."""

    inner: Scheduler
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
        if self.times % 5 == 0:
            told = tuple(d if d.pods else replace(d, reason=WAITS) for d in decisions)
            solution = solution_of(instance, told, "watched")
            assert Referee(instance).figures(solution, "watched")["violations"] == []
        pairs = list(zip(instance.gangs, decisions, strict=True))
        held = sum(g.roles[pod.role].gpus for g, decision in pairs for pod in decision.pods)
        waits = [g.weight_gpus for g, d in pairs if not d.pods]
        assert 1 not in waits or held == 8 * sum(one.ready for one in instance.cluster.nodes)
        return decisions


def drawn(seed: int, count: int) -> list[Played]:
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
    instance = build(blocks=2, nodes_per_rack=2, oversubscription=(4, 1))
    watched = Watched(decider(instance, name))
    found, done = ends(instance, drawn(1, 25), watched)
    assert watched.times > 25
    assert len(found) == len(done.jobs)
    # of the time until the last job comes, and at the speed that it had
    assert 0 < done.effective <= 1000 * done.busy <= 1000 * 32 * done.scenario.window_ms
    held = sum(job.held_gpu_ms for job in done.jobs)
    assert done.busy < held
    # the last millisecond of a job may be longer than its work
    assert sum(job.facts.work for job in done.jobs) <= 1000 * held
    assert all(job.left == 0 for job in done.jobs)
