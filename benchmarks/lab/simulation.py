"""The simulation: jobs arrive, start where a scheduler says, run at their predicted speed, and end.

An event simulation in integer milliseconds: the same scenario and scheduler give the same result anywhere.
Reads no files. Who is stopped or moved saves the work first, and takes a pause to start again.
"""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from benchmarks.lab.deciders import Scheduler
from benchmarks.lab.jobs import MS, JobFacts, JobState, Present, Run
from benchmarks.lab.orders import Moment, Seen
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.policy import Moves, Policy, default_max_gangs
from models.instance.solution import Decision, PodPlacement
from models.instance.speed import FULL_SPEED
from models.program.base_state import moves_pods
from models.queues.bands import banded
from models.values.tier_values import gang_value, known_masks
from planner.read.instance_builder import largest_nodes, mix_of

EPOCH = 1_577_836_800
"""2020-01-01: date of the start of a trace that does not know its own."""

IDLE_MS = 30 * 24 * 60 * 60 * MS
"""A replay ends once nothing has run or come for so long: what waits never starts."""

PATIENCE = 10
"""It ends, too, once none of the jobs that are left has ended for so many times as long as one would take:
plans then interrupt them again and again.
"""

UNCHANGED: tuple[Decision, ...] = ("keep", "wait")
"""Decisions that leave a gang as it is."""

End, Arrival = range(2)
"""Kinds of events; those of one moment happen in this order."""


@dataclass(frozen=True, slots=True)
class Settings:
    """``every_ms``: between plans; 0: at events. ``restart_ms``: what a start after an interruption takes."""

    every_ms: int = 0
    restart_ms: int = 0


@dataclass(frozen=True)
class Scenario:
    """What happens, whoever decides. ``instance``: cluster and queues, without gangs; ``jobs``: by arrival.

    ``epoch``: date of the start. ``own_mix``, ``own_max_gangs``: the policy states its mix, and how many
    gangs may move; otherwise those of the moment count.
    """

    instance: Instance
    jobs: tuple[JobFacts, ...]
    epoch: int
    settings: Settings
    own_mix: bool = False
    own_max_gangs: bool = False

    @property
    def window_ms(self) -> int:
        """The last submission: until then load comes in."""
        return max((job.submit_ms for job in self.jobs), default=0)


class Simulation:
    """One scheduler in a scenario. ``jobs``: the state of each.

    ``stops``: how often jobs were stopped or moved. ``busy``, ``effective``: GPU-milliseconds that jobs held
    until the last submission, and these in permille times their speed. ``gave_up``: why jobs are unfinished.
    """

    def __init__(self, scenario: Scenario, scheduler: Scheduler) -> None:
        self.scenario, self.scheduler = scenario, scheduler
        self.jobs = [JobState(facts, facts.work) for facts in scenario.jobs]
        self.stops = self.busy = self.effective = 0
        self.now_ms = 0
        self.usable = _usable(scenario.instance)
        self._events: list[tuple[int, int, int, int]] = []
        self._number = {job.facts.gang.key: i for i, job in enumerate(self.jobs)}
        self._node_sizes = largest_nodes(scenario.instance.cluster.nodes)
        self._present = Present(self.jobs)
        self._waiting, self._running = self._present.waiting, self._present.running
        self._left = self._to_come = len(self.jobs)
        self._tick_ms: int | None = None
        self._last_ms = self._ended_ms = 0
        self._longest_ms = [job.facts.duration_ms for job in self.jobs]
        self.gave_up: str | None = None

    def run(self) -> None:
        """To the end of the last job that can end."""
        for number, job in enumerate(self.jobs):
            self._at(job.facts.submit_ms, Arrival, number)
        while self._left:
            due = [event[0] for event in self._events[:1]]
            due += [] if self._tick_ms is None else [self._tick_ms]
            self.gave_up = self._hopeless(min(due, default=None))
            if self.gave_up is not None:
                return
            self._moment(min(due))

    def _hopeless(self, due_ms: int | None) -> str | None:
        """Why the jobs that are left would never end; None as long as they may. ``due_ms``: the next event.

        Where nothing runs and nothing more comes, only ages may still let jobs start.
        """
        if due_ms is None:
            return "idle"
        if self._to_come or due_ms - self._ended_ms <= IDLE_MS:
            return None
        if not self._running and due_ms - self._last_ms > IDLE_MS:
            return "idle"
        longest_ms = max(self._longest_ms[number] for number in self._waiting | self._running)
        return "stalled" if due_ms - self._ended_ms > IDLE_MS + PATIENCE * longest_ms else None

    def _moment(self, now_ms: int) -> None:
        """Everything that happens at a time, and what is decided then."""
        past_ms = max(0, min(now_ms, self.scenario.window_ms) - self.now_ms)
        self.busy += past_ms * self._present.busy
        self.effective += past_ms * self._present.effective
        self.now_ms = now_ms
        changed = False
        while self._events and self._events[0][0] == now_ms:
            _, kind, number, turn = heapq.heappop(self._events)
            changed |= self._happens(kind, number, turn)
        if changed:
            self._answer(now_ms)
        if self._tick_ms == now_ms:
            self._tick_ms = None
            self._decide()

    def _at(self, time_ms: int, kind: int, number: int, turn: int = 0) -> None:
        heapq.heappush(self._events, (time_ms, kind, number, turn))

    def _answer(self, event_ms: int) -> None:
        """Have the scheduler decide at once, or at the next tick; it may do so before."""
        every_ms = self.scenario.settings.every_ms
        due_ms = -(-event_ms // every_ms) * every_ms if every_ms else event_ms
        self._tick_ms = due_ms if self._tick_ms is None else min(self._tick_ms, due_ms)

    def _happens(self, kind: int, number: int, turn: int) -> bool:
        """Whether an event changes anything that a scheduler knows."""
        if kind == End:
            return self._end(number, turn)
        self._present.enter(number)
        self._to_come -= 1
        self._last_ms = self._ended_ms = self.now_ms
        return True

    # what jobs do

    def _end(self, number: int, turn: int) -> bool:
        job = self.jobs[number]
        if job.run is None or job.starts != turn or job.run.end_ms != self.now_ms:
            return False  # of a run that was interrupted
        self._present.leave(number)
        job.held_gpu_ms += (self.now_ms - job.run.since_ms) * job.run.gpus
        job.run, job.ended, job.left = None, self.now_ms, 0
        self._present.enter(number)
        self._left -= 1
        self._last_ms = self._ended_ms = self.now_ms
        return True

    def _start(self, number: int, run: Run) -> None:
        job = self.jobs[number]
        self._present.leave(number)
        job.run = run
        self._present.enter(number)
        job.starts += 1
        if job.started is None:
            job.started = self.now_ms
        self._last_ms = self.now_ms
        self._longest_ms[number] = max(self._longest_ms[number], run.end_ms - self.now_ms)
        self._at(run.end_ms, End, number, job.starts)

    def _interrupt(self, number: int, run: Run) -> None:
        """The job gives its GPUs back."""
        job = self.jobs[number]
        self._present.leave(number)
        job.left = run.left_at(self.now_ms)
        job.held_gpu_ms += (self.now_ms - run.since_ms) * run.gpus
        job.run = None
        self._present.enter(number)

    # decisions

    def _decide(self) -> None:
        """Ask the scheduler, and do what it says: first who gives GPUs back, then who takes some."""
        if self._settled():
            self._look_again(None)
            return
        instance = self.instance()
        moment = Moment(instance, self._see, self._count)
        decisions = self.scheduler.decide(moment)
        changes = [
            (self._number[gang.key], gang, decision)
            for gang, decision in zip(instance.gangs, decisions, strict=True)
            if decision.decision not in UNCHANGED
            and decision.pods != _pods_of(self.jobs[self._number[gang.key]])
        ]
        before = {number: self.jobs[number].run for number, _, _ in changes}
        for number, run in before.items():
            if run is not None:
                pods = next(decision.pods for n, _, decision in changes if n == number)
                self.stops += not pods or moves_pods(run.pods, pods)
                self._interrupt(number, run)
        known = known_masks(instance, decisions)
        for number, _gang, decision in changes:
            if decision.pods:
                run = self._placed(instance, number, decision.pods, known, before[number])
                self._start(number, run)
        self._look_again(moment)

    def _settled(self) -> bool:
        """Whether no decision can change anything: nobody gives way, and what waits needs more GPUs."""
        running = (job.run.gang for n in self._running if (job := self.jobs[n]).run is not None)
        if self.scheduler.stops(running):
            return False
        if not self._waiting:
            return True
        least = min(gpus for gpus, count in self._present.asked.items() if count)
        return least > self.usable - self._present.busy

    def _placed(
        self,
        instance: Instance,
        number: int,
        pods: tuple[PodPlacement, ...],
        known: Sequence[int],
        before: Run | None,
    ) -> Run:
        """The run of a job on these pods."""
        job, settings = self.jobs[number], self.scenario.settings
        gang = job.facts.gang
        value = gang_value(instance, gang, pods, known)
        gpus = sum(gang.roles[pod.role].gpus for pod in pods)
        resized = before is not None and not moves_pods(before.pods, pods)
        pause = settings.restart_ms if job.starts and not resized else 0
        speed = max(1, value.speed)
        return Run(
            self._with_pods(gang, pods),
            pods,
            gpus,
            speed,
            speed * (gpus or gang.weight_gpus),
            self.now_ms,
            self.now_ms + pause,
            job.left,
        )

    def _with_pods(self, gang: Gang, pods: tuple[PodPlacement, ...]) -> Gang:
        """The gang as it runs from now on."""
        existing = tuple(
            ExistingPod(
                f"{gang.name}-{gang.roles[pod.role].name}-{pod.index}",
                pod.role,
                pod.index,
                node=pod.node,
                gpus=pod.gpus if gang.roles[pod.role].gpus else None,
            )
            for pod in pods
        )
        return replace(gang, pods=existing, started_at=self._date(self.now_ms))

    def _look_again(self, moment: Moment | None) -> None:
        """A tick when time alone changes what is decided. ``moment``: None to look first."""
        if not self._waiting:
            return
        moment = moment or Moment(self.instance(), self._see, self._count)
        later = [date for date in self.scheduler.dates(moment) if date > moment.instance.now]
        if later:
            self._answer((min(later) - self.scenario.epoch) * MS)

    # what the scheduler sees

    def _date(self, time_ms: int) -> int:
        return self.scenario.epoch + time_ms // MS

    def _see(self, gang: Gang) -> Seen:
        """What is known of a job."""
        job = self.jobs[self._number[gang.key]]
        run = job.run
        left = job.left if run is None else run.left_at(self.now_ms)
        left_ms = -(-left // (FULL_SPEED * job.facts.gang.weight_gpus))
        ends = None if run is None else self._date(run.end_ms)
        return Seen(self._held_gpu_ms(job) // MS, -(-left_ms // MS), ends)

    def _held_gpu_ms(self, job: JobState) -> int:
        run = job.run
        return job.held_gpu_ms + (0 if run is None else (self.now_ms - run.since_ms) * run.gpus)

    def _count(self) -> Counter[str]:
        """GPU seconds by queue."""
        found = Counter(self._present.used_gpu_s)
        for number in self._running:
            job = self.jobs[number]
            found[job.facts.queue] += self._held_gpu_ms(job) // MS
        return found

    def instance(self) -> Instance:
        """The cluster of the moment: running gangs with their pods, and waiting ones."""
        gangs = tuple(self._present.gangs)
        return banded(self.scenario.instance.with_gangs(gangs, self._policy()))

    def _policy(self) -> Policy:
        policy = self.scheduler.policy
        mix = policy.mix
        if not self.scenario.own_mix:
            mix = mix_of(self._present.sizes + self._node_sizes)
        moves = policy.moves
        if not self.scenario.own_max_gangs:
            moves = replace(moves or Moves(), max_gangs=default_max_gangs(len(self._running)))
        return replace(policy, now=self._date(self.now_ms), mix=mix, moves=moves)


def _usable(base: Instance) -> int:
    """Healthy GPUs of the nodes that take pods."""
    return sum(node.healthy_gpus for node in base.cluster.nodes if base.schedulable(node))


def _pods_of(job: JobState) -> tuple[PodPlacement, ...]:
    return () if job.run is None else job.run.pods
