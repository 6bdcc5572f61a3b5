"""Who goes first under the rules of others: times worked out by hand, and a bound for all of them."""

from __future__ import annotations

import random
from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import pytest
from building import build, gang, role
from test_replay_simulation import baseline, drawn, ends, planner, run, scenario

from models.instance.gang import Gang
from models.instance.solution import GangDecision
from models.values.tier_values import known_masks
from planner.baselines.orders import Moment, Profile, multifactor
from planner.baselines.scheduler import schedule
from planner.replay.jobs import MS
from planner.replay.schedulers import RULES, Baseline
from planner.replay.simulation import EPOCH
from planner.replay.summary import least_mean_ms


def of(queue: str, name: str, pods: int, gpus: int) -> Gang:
    return replace(gang(name, pods, gpus), queue=queue)


@pytest.mark.parametrize("name", ["kai", "volcano", "kueue-fair"])
def test_the_queue_that_holds_the_least_goes_first(name: str) -> None:
    """8 GPUs, free at 10: both of x were there first, but x gets one half and y the other."""
    jobs = [
        (of("z", "first", 1, 8), 0, 10),
        (of("x", "x1", 1, 4), 1, 100),
        (of("x", "x2", 1, 4), 2, 100),
        (of("y", "y1", 1, 4), 3, 100),
    ]
    played = scenario(build(), jobs)
    assert ends(run(played, baseline(played.instance, name))) == {
        "first": 10,
        "x1": 110,
        "y1": 110,
        "x2": 210,
    }
    in_turn = ends(run(played, baseline(played.instance, "kueue")))
    assert in_turn == {"first": 10, "x1": 110, "x2": 110, "y1": 210}


def test_what_a_queue_holds_counts_from_start_to_start() -> None:
    """x holds 2 of 8 GPUs when 6 become free: y1 (0 held) starts, then x2 (2 against 4 held)."""
    jobs = [
        (of("x", "x1", 1, 2), 0, 100),
        (of("z", "z1", 1, 6), 0, 10),
        (of("x", "x2", 1, 2), 1, 50),
        (of("y", "y1", 1, 4), 2, 50),
        (of("y", "y2", 1, 2), 3, 50),
    ]
    played = scenario(build(), jobs)
    found = ends(run(played, baseline(played.instance, "kai")))
    assert found == {"x1": 100, "z1": 10, "y1": 60, "x2": 60, "y2": 110}


def test_tiresias_stops_who_had_much_and_lets_him_go_on() -> None:
    """a has had 8 x 400 = 3,200 GPU seconds at 400: b, which comes at 500, takes its place for 10 s.

    a has 500 s of work left, and works again from 515 on.
    """
    played = scenario(build(), [(gang("a", 1, 8), 0, 1000), (gang("b", 1, 8), 500, 10)], restart=5)
    done = run(played, baseline(played.instance, "tiresias"))
    assert ends(done) == {"b": 510, "a": 1015}
    assert done.measures.preemptions == 1


def test_tiresias_stops_nobody_before_he_had_much() -> None:
    """At 100 a has had 800 GPU seconds: b waits, until a has had 3,200 at 400; c comes as a goes on."""
    played = scenario(build(), [(gang("a", 1, 8), 0, 1000), (gang("b", 1, 8), 100, 10)])
    assert ends(run(played, baseline(played.instance, "tiresias"))) == {"b": 410, "a": 1010}


@pytest.mark.parametrize("name", ["shortest-remaining", "least-remaining"])
def test_with_perfect_knowledge_the_shortest_goes_first(name: str) -> None:
    """b (30 s) is shorter than what is left of a (90 s) at 10, c (200 s) is not."""
    jobs = [(gang("a", 1, 8), 0, 100), (gang("b", 1, 8), 10, 30), (gang("c", 1, 8), 11, 200)]
    played = scenario(build(), jobs)
    assert ends(run(played, baseline(played.instance, name))) == {"b": 40, "a": 130, "c": 330}


def test_remaining_time_and_remaining_work_differ() -> None:
    """At 10, b has 60 s on 8 GPUs and c 80 s on 1: the shorter one first, or the one with less work."""
    jobs = [(gang("a", 1, 8), 0, 10), (gang("b", 1, 8), 1, 60), (gang("c", 1, 1), 2, 80)]
    played = scenario(build(), jobs)
    by_time = ends(run(played, baseline(played.instance, "shortest-remaining")))
    by_work = ends(run(played, baseline(played.instance, "least-remaining")))
    assert by_time == {"a": 10, "b": 70, "c": 150}
    # c starts when b, which it leaves no room, is behind it
    assert by_work == {"a": 10, "c": 90, "b": 150}


def test_kai_moves_who_runs_so_that_all_of_them_run() -> None:
    """a and b hold half a server each at 20, when d wants a whole one: b, which started last, moves to a.

    Consolidation commits only if all that were evicted find places:
    https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/developer/action-framework.md
    """
    jobs = [
        (gang("a", 1, 4), 0, 1000),
        (gang("c", 1, 4), 0, 10),
        (gang("b", 1, 4), 1, 1000),
        (gang("d", 1, 8), 20, 100),
    ]
    played = scenario(build(nodes_per_rack=2), jobs, restart=5)
    assert ends(run(played, baseline(played.instance, "kai")))["d"] == 1100
    done = run(played, baseline(played.instance, "kai-reclaim"))
    assert ends(done) == {"a": 1000, "b": 1006, "c": 10, "d": 120}
    assert (done.measures.moves, done.measures.preemptions) == (1, 0)


def test_kai_moves_nobody_who_has_no_other_place() -> None:
    """2 GPUs are free on each server, and a and b have 6 each: nobody can make 4 free on one."""
    jobs = [(gang("a", 1, 6), 0, 100), (gang("b", 1, 6), 1, 200), (gang("d", 1, 4), 20, 10)]
    played = scenario(build(nodes_per_rack=2), jobs)
    done = run(played, baseline(played.instance, "kai-reclaim"))
    assert ends(done) == {"a": 100, "b": 201, "d": 110}
    assert done.measures.moves == 0


def test_a_queue_reclaims_up_to_its_fair_share() -> None:
    """x holds both servers. y gets one at 10 from x2, which started last, and not the other at 20.

    A queue reclaims only what keeps it within its fair share, from those above theirs:
    https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/fairness/README.md
    """
    jobs = [
        (of("x", "x1", 1, 8), 0, 100),
        (of("x", "x2", 1, 8), 1, 100),
        (of("y", "y1", 1, 8), 10, 50),
        (of("y", "y2", 1, 8), 20, 50),
    ]
    played = scenario(build(nodes_per_rack=2), jobs, restart=5)
    done = run(played, baseline(played.instance, "kai-reclaim"))
    # y2 is the one of the queue that holds less, x2 starts at 100 with 91 s to go
    assert ends(done) == {"y1": 60, "x1": 100, "y2": 110, "x2": 196}
    assert done.measures.preemptions == 1


def test_a_job_gives_way_to_a_higher_priority_of_its_queue() -> None:
    """https://github.com/NVIDIA/KAI-Scheduler/blob/main/docs/developer/action-framework.md, Preempt."""
    low, high = gang("low", 1, 8), replace(gang("high", 1, 8), priority=1)
    for name in ("kai-reclaim", "kueue-reclaim"):
        played = scenario(build(), [(low, 0, 100), (high, 10, 50)])
        assert ends(run(played, baseline(played.instance, name))) == {"high": 60, "low": 150}


def test_kueue_reclaims_nominal_quota_from_who_uses_the_most() -> None:
    """24 GPUs, 8 for each queue. a holds 8, b 12, c 4: four more for c come from b, its last one.

    https://kueue.sigs.k8s.io/docs/concepts/preemption/#fair-sharing
    """
    jobs = [
        *((of("a", f"a{i}", 1, 4), i, 1000) for i in range(2)),
        *((of("b", f"b{i}", 1, 4), i, 1000) for i in range(3)),
        (of("c", "c0", 1, 4), 0, 1000),
        (of("c", "c1", 1, 4), 10, 500),
    ]
    played = scenario(build(nodes_per_rack=3), jobs)
    done = ends(run(played, baseline(played.instance, "kueue-reclaim")))
    assert done.pop("c1") == 510
    # 8 s of the work of b2 are done at 10, and its place is free again at 510
    assert done.pop("b2") == 510 + 992
    assert done == {"a0": 1000, "a1": 1001, "b0": 1000, "b1": 1001, "c0": 1000}


@pytest.mark.parametrize(("gpus", "starts"), [(4, 10), (8, 501)])
def test_kueue_takes_from_who_borrows_more_and_never_turns_the_tables(
    gpus: int, starts: int
) -> None:
    """24 GPUs, 8 for each queue: a holds 15, b 8, c 1, and b wants more at 10.

    With 4 more b borrows 4. Without one of its jobs a would borrow nothing, so LessThanOrEqualToFinalShare
    allows none; a borrows 7 now, so LessThanInitialShare does. With 8 more b would borrow 8.
    https://kueue.sigs.k8s.io/docs/concepts/preemption/#preemption-strategies
    """
    jobs = [
        (of("a", "a8", 1, 8), 0, 1000),
        (of("b", "b8", 1, 8), 0, 1000),
        (of("a", "a7", 1, 7), 1, 500),
        (of("c", "c1", 1, 1), 2, 499),
        (of("b", "b+", 1, gpus), 10, 10),
    ]
    played = scenario(build(nodes_per_rack=3), jobs)
    done = run(played, baseline(played.instance, "kueue-reclaim"))
    (job,) = (one for one in done.jobs if one.facts.gang.name == "b+")
    assert job.started == starts * MS


def test_kueue_lends_what_nobody_asks_for_and_takes_back_as_much_alone() -> None:
    """16 GPUs, 8 for each queue: x borrows 4. With 8 more y would borrow 4 as well, and waits for x.

    With 4 more it holds what is its own, and gets them.
    https://kueue.sigs.k8s.io/docs/concepts/cluster_queue/#cohort
    """
    jobs = [
        (of("y", "y1", 1, 4), 0, 100),
        (of("x", "x1", 1, 8), 0, 100),
        (of("x", "x2", 1, 4), 1, 99),
    ]
    for gpus, starts in ((8, 100), (4, 10)):
        played = scenario(build(nodes_per_rack=2), [*jobs, (of("y", "y2", 1, gpus), 10, 10)])
        done = run(played, baseline(played.instance, "kueue-reclaim"))
        (job,) = (one for one in done.jobs if one.facts.gang.name == "y2")
        assert job.started == starts * MS
        assert {one.started for one in done.jobs[:3]} == {0, 1000}


def test_slurm_halves_the_fair_share_factor_of_who_used_just_its_share() -> None:
    """F = 2^(-U/S) is 0.5 where usage equals the share, 1 without usage.

    https://slurm.schedmd.com/priority_multifactor.html#fairshare
    """
    waiting = [of("x", "a", 1, 4), of("y", "b", 1, 4)]
    instance = build(gangs=waiting)
    policy = replace(instance.policy, now=EPOCH)

    def worth(x: int, y: int) -> list[float]:
        moment = Moment(replace(instance, policy=policy), count=lambda: {"x": x, "y": y})
        return [-multifactor(moment, index)[1] for index in range(2)]

    # 4 of 8 GPUs: half of the weight of size; nobody has waited
    assert worth(0, 0) == [10_500, 10_500]
    assert worth(7, 7) == [5_500, 5_500]
    assert worth(14, 0) == [3_000, 10_500]  # twice its share: 2^-2


def test_who_is_expected_to_need_the_least_gpu_time_goes_first() -> None:
    """Jobs of x took 10 s, of y 1,000 s: x2 goes first, though y2 came before and both last as long.

    In seconds at 1,110, begun with 600: of all jobs (600 + 1,110) / 4 = 427, of those with 8 GPUs
    (427 + 1,110) / 4 = 384, of x (384 + 10) / 2 = 197, of y (384 + 1,000) / 2 = 692. Nobody had 4 GPUs, so s
    is expected to need 4 x 427 GPU seconds, x2 8 x 197, y2 8 x 692. Nobody is stopped.
    https://arxiv.org/abs/2109.01313
    """
    jobs = [
        (of("x", "x1", 1, 8), 0, 10),
        (of("y", "y1", 1, 8), 10, 1000),
        (of("z", "z1", 1, 8), 20, 100),
        (of("y", "y2", 1, 8), 1020, 50),
        (of("z", "s", 1, 4), 1030, 50),
        (of("x", "x2", 1, 8), 1040, 50),
    ]
    played = scenario(build(), jobs)
    found = ends(run(played, baseline(played.instance, "qssf")))
    assert found == {"x1": 10, "y1": 1010, "z1": 1110, "x2": 1160, "s": 1210, "y2": 1260}


def test_backfill_delays_nobody_that_waits() -> None:
    """4 of 8 GPUs are free until 100, when b, which needs all, starts: c ends before, d does not."""
    jobs = [
        (gang("a", 1, 4), 0, 100),
        (gang("b", 1, 8), 1, 50),
        (gang("c", 1, 4), 2, 60),
        (gang("d", 1, 4), 3, 300),
    ]
    played = scenario(build(), jobs)
    for name in ("slurm", "slurm-easy"):
        found = ends(run(played, baseline(played.instance, name)))
        assert found == {"a": 100, "b": 150, "c": 62, "d": 450}
    # without a reservation b waits for d
    assert ends(run(played, baseline(played.instance, "tight")))["b"] > 300


def test_conservative_backfill_keeps_the_second_that_waits_and_easy_does_not() -> None:
    """Two servers. a holds all of one until 100, b all of the other until 300.

    c (16 GPUs) can start at 300; then d (16 GPUs) at 310. e (8 GPUs, 210 s) would end at 310 if it started at
    100: too late for c in both. f (8 GPUs, 190 s) ends at 290 and delays neither.
    """
    jobs = [
        (gang("a", 1, 8), 0, 100),
        (gang("b", 1, 8), 0, 300),
        (gang("c", 2, 8), 1, 10),
        (gang("d", 2, 8), 2, 10),
        (gang("e", 1, 8), 3, 210),
        (gang("f", 1, 8), 4, 190),
    ]
    played = scenario(build(nodes_per_rack=2), jobs)
    for name in ("slurm", "slurm-easy"):
        found = ends(run(played, baseline(played.instance, name)))
        assert (found["c"], found["f"]) == (310, 290)
        assert found["e"] > 310


def test_a_gang_waits_a_while_for_one_rack() -> None:
    """Two racks of two servers, of which one each is busy until 2,000 s.

    g prefers one rack and comes at 20: it takes both halves at once, after 15 minutes, or a rack at 2,000.
    """
    instance = build(blocks=1, racks=2, nodes_per_rack=2)
    jobs = [(gang(f"x{i}", 1, 8), i, 2000 - i if i % 2 == 0 else 10 - i) for i in range(4)]
    wish = replace(gang("g", 2, 8), preferred=instance.cluster.node_level - 1)
    played = scenario(instance, [*jobs, (wish, 20, 100)])
    starts = {}
    for name in ("tight", "delay", "delay-day"):
        done = run(played, baseline(instance, name))
        (job,) = (one for one in done.jobs if one.facts.gang.name == "g")
        assert job.started is not None
        starts[name] = job.started / MS
    assert starts == {"tight": 20, "delay": 920, "delay-day": 2000}


class SlowProfile:
    """``Profile`` by lists, every step looked at."""

    def __init__(self, times: list[int], free: list[int]) -> None:
        self.times, self.free = times, free

    def earliest(self, gpus: int, seconds: int) -> int | None:
        for begin, date in enumerate(self.times):
            end = date + max(1, seconds)
            steps = [i for i, time in enumerate(self.times) if i >= begin and time < end]
            if all(self.free[i] >= gpus for i in steps):
                return date
        return None

    def reserve(self, begin: int, seconds: int, gpus: int) -> None:
        end = begin + max(1, seconds)
        for date in {begin, end} - set(self.times):
            before = max(i for i, time in enumerate(self.times) if time < date)
            self.times.insert(before + 1, date)
            self.free.insert(before + 1, self.free[before])
        self.free = [
            free - gpus * (begin <= time < end)
            for time, free in zip(self.times, self.free, strict=True)
        ]


@pytest.mark.parametrize("seed", range(100))
def test_a_profile_of_free_gpus_answers_as_one_that_looks_at_every_step(seed: int) -> None:
    draw = random.Random(seed)
    now = draw.randint(0, 50)
    instance = replace(build(), gangs=())
    profile = Profile(Moment(replace(instance, policy=replace(instance.policy, now=now))))
    slow = SlowProfile([now], [8])
    found = 0
    for _ in range(15):
        gpus, seconds = draw.randint(0, 9), draw.randint(0, 30)
        begin = slow.earliest(gpus, seconds)
        assert profile.earliest(gpus, seconds) == begin
        assert profile.fits_now(gpus, seconds) == (begin == now)
        if begin is not None:
            found += 1
            begin = max(begin, now + draw.randint(0, 9))
            profile.reserve(begin, seconds, gpus)
            slow.reserve(begin, seconds, gpus)
            assert (list(profile.times), list(profile.free)) == (slow.times, slow.free)
    assert found


@dataclass
class Forgetful(Baseline):
    """What is decided with what is kept of earlier moments, and without, must be the same."""

    decided: int = 0

    def decide(self, moment: Moment) -> Sequence[GangDecision]:
        found = super().decide(moment)
        assert found == schedule(moment.instance, self.rules, moment)
        pods = [pod for decision in found for pod in decision.pods]
        masks = [sum(pod.gpus or 0 for pod in pods if pod.node == node) for node in range(4)]
        assert masks == known_masks(moment.instance, found)  # nobody has what another one has
        self.decided += 1
        return found


@pytest.mark.parametrize("name", sorted(RULES))
def test_what_is_kept_from_moment_to_moment_changes_no_decision(name: str) -> None:
    instance = build(blocks=2, nodes_per_rack=2)
    scheduler = Forgetful(RULES[name], instance.policy)
    jobs = [(replace(j, queue=f"q{i % 3}"), at, s) for i, (j, at, s) in enumerate(drawn(4))]
    played = scenario(instance, jobs, mtbf=2000, repair=300, checkpoint=60)
    assert len(ends(run(played, scheduler))) == len(played.jobs)
    assert scheduler.decided > 20


@pytest.mark.parametrize(
    "name", ["tight", "kai-reclaim", "tiresias", "shortest-remaining", "slurm"]
)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_nobody_is_better_than_the_bound_that_knows_the_future(name: str, seed: int) -> None:
    instance = build(blocks=2, nodes_per_rack=2)
    played = scenario(instance, drawn(seed))
    done = run(played, baseline(instance, name))
    completions = [job.ended - job.facts.submit_ms for job in done.jobs if job.ended is not None]
    assert len(completions) == len(done.jobs)
    least = least_mean_ms(played.jobs, 32)
    assert least <= Fraction(sum(completions), len(completions))


def test_the_bound_is_what_the_best_schedule_reaches_where_one_job_runs_at_a_time() -> None:
    """8 GPUs, jobs of 8 for 30 and 10 s at once: the short one first completes after 10, the long after 40.

    Done in the mean at 5 and at 25, plus half the durations: 10 and 40.
    """
    played = scenario(build(), [(gang("a", 1, 8), 0, 30), (gang("b", 1, 8), 0, 10)])
    assert least_mean_ms(played.jobs, 8) == 25_000


def test_an_elastic_job_may_take_less_than_its_duration() -> None:
    """Alone on 8 GPUs a job of 4 to 8 takes half as long; the bound is not above that."""
    elastic = gang("a", roles=[role("worker", 1, 4, most=2)])
    played = scenario(build(), [(elastic, 0, 100)])
    done = run(played, planner(played.instance))
    assert ends(done) == {"a": 50}
    assert least_mean_ms(played.jobs, 8) == 50_000


def test_a_cluster_without_gpus_has_a_bound() -> None:
    played = scenario(build(), [(gang("a", 1, 0), 0, 10)])
    assert least_mean_ms(played.jobs, 0) == 10_000
