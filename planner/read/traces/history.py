"""What the traces in an input say about its gangs: how long they run, and when those that wait may start."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace
from itertools import groupby
from operator import itemgetter

from models.instance.instance import Instance
from models.instance.start_history import Asks, StartHistory
from models.queues.lengths import Lengths, expecting
from models.values.expected_durations import Durations, expected_lefts
from models.values.expected_starts import (
    CERTAIN_S,
    RECENT,
    Waits,
    starts_by_count,
)
from planner.read.document_kinds import Documents
from planner.read.traces.trace import Job
from planner.read.traces.trace_files import trace_errors

MOST = 3 * RECENT
"""Jobs that waited whose starts are worked out, the latest: each takes as long as there are others."""

End, Start, Arrival = range(3)


def with_history(instance: Instance, documents: Documents) -> Instance:
    """The instance with what is learned, where its policy or jobs that were seen to wait ask for it."""
    durations, lengths = Durations(), Lengths()
    used = instance.policy.order == "shortest"
    installed = sum(n.healthy_gpus for n in instance.cluster.nodes if instance.schedulable(n))
    waits, offset, seen = Waits(), 0, False
    for entry in documents.traces:
        entry.report_errors(trace_errors(entry))
        jobs = [Job.of(job) for job in entry.document.spec.jobs]
        if any(_waited(job) for job in jobs):
            past, seen = _Past(jobs, installed, waits, offset), True
            offset = past.walk()
        elif not used:
            subject = f"Trace {entry.document.metadata.name}"
            documents.remarks.add(
                subject,
                "it is not used",
                "order: shortest in a Policy asks for it, or jobs that were observed to wait",
            )
        for job in jobs:
            durations.add(job.queue, job.gpus, job.duration_s)
            if job.measured:
                lengths.add(job.namespace, job.spec.queue, job.most_gpus, job.duration_s)
    if documents.findings:
        documents.findings.raise_all()
    if seen:
        left_s = expected_lefts(instance, durations)
        instance = replace(instance, history=StartHistory(waits.factors(), left_s))
    return expecting(instance, lengths) if used else instance


def _waited(job: Job) -> bool:
    """Whether it was seen to start, and not at once."""
    seen = job.observed
    return seen is not None and seen.started_seconds - job.submit_s > CERTAIN_S


class _Past:
    """Jobs of one trace, as if each event had just happened: nothing is known of what comes after it.

    ``installed``: GPUs that the cluster has now. ``offset``: seconds that come before the trace.
    """

    def __init__(self, jobs: Sequence[Job], installed: int, waits: Waits, offset: int) -> None:
        self._jobs, self._installed, self._waits, self._offset = jobs, installed, waits, offset
        self._durations = Durations()
        self._ends = dict[int, int]()
        self._starts = dict[int, int]()
        self._waiting = set[int]()

    def walk(self) -> int:
        """Tell the waits in order of time; returns a time after all events."""
        left, at = sum(_waited(job) for job in self._jobs), self._offset
        for seconds, events in groupby(sorted(self._events()), key=itemgetter(0)):
            at = seconds + self._offset
            come = [number for _, kind, number in events if self._happens(kind, number, at)]
            self._waiting.update(come)
            left -= len(come)
            if come and left < MOST:
                self._wait(come, at)
        return at + 1

    def _happens(self, kind: int, number: int, at: int) -> bool:
        """Whether a job waits from now on."""
        job = self._jobs[number]
        if kind == End:
            self._ends.pop(number, None)
            self._durations.add(job.queue, job.gpus, job.duration_s)
        elif kind == Start:
            self._waiting.discard(number)
            self._starts[number] = at
            self._ends[number] = at + self._durations.left_s(job.queue, job.gpus)
            self._waits.start((self._offset, number), at)
        return kind == Arrival and _waited(job)

    def _events(self) -> Iterator[tuple[int, int, int]]:
        for number, job in enumerate(self._jobs):
            seen = job.observed
            if seen is None:
                yield job.submit_s + job.duration_s, End, number
                continue
            yield job.submit_s, Arrival, number
            yield max(job.submit_s, seen.started_seconds), Start, number
            yield max(job.submit_s, seen.started_seconds) + job.duration_s, End, number

    def _wait(self, come: Sequence[int], at: int) -> None:
        """These have come, and wait: say when they will start."""
        jobs, lasts = self._jobs, self._durations.left_s
        for other, end in self._ends.items():
            if end <= at:
                job, ran = jobs[other], at - self._starts[other]
                self._ends[other] = at + lasts(job.queue, job.gpus, ran)
        running = [(end, jobs[n].gpus) for n, end in self._ends.items()]
        free = self._installed - sum(gpus for _, gpus in running)
        order = sorted(
            self._waiting, key=lambda n: (-jobs[n].priority, jobs[n].submit_s, jobs[n].key)
        )
        queue = [(jobs[n].gpus, lasts(jobs[n].queue, jobs[n].gpus)) for n in order]
        starts = dict(zip(order, starts_by_count(at, free, running, queue), strict=True))
        for number in sorted(come):
            job, start = jobs[number], starts[number]
            before = sum(jobs[n].gpus for n in order if jobs[n].priority >= job.priority)
            if start is not None:
                asks = Asks(job.gpus, before, self._installed, start)
                self._waits.wait((self._offset, number), at, asks)
