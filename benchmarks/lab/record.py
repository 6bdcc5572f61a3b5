"""Snapshots of a live cluster to a Trace: when its gangs arrived, started and ended.

A snapshot shows an instant. What happened between two of them is known up to that interval, and the trace
says so. Gangs whose end nobody saw are left out and counted. Reads only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from benchmarks.lab.trace import Job, Trace
from models.documents.canonical import gang_document
from models.documents.gang import GangSpec
from models.instance.gang import Gang
from models.instance.policy import EVERY_SCHEDULER
from models.units import epoch_seconds
from planner.read.inputs import load

RUNS_ON = "that still run"
WAIT = "that never ran"
NO_GPUS = "without GPUs"
_LONGEST_NAME = 253

_IN_NAME = re.compile(
    r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)[T_ -](\d\d)[:-]?(\d\d)(?:[:-]?(\d\d))?(?!\d)"
)


@dataclass(slots=True)
class _Sighting:
    """A gang over several snapshots, whose times these are.

    ``before``: the last snapshot in which it did not run yet. ``gone``: the first after it ran.
    """

    name: str
    gang: Gang
    spec: GangSpec
    first_seen: int
    uids: frozenset[str]
    before: int | None = None
    first_running: int | None = None
    last_running: int | None = None
    started_at: int | None = None
    gone: int | None = None


def record(paths: Sequence[str]) -> tuple[Trace, Counter[str]]:
    """The trace of these snapshots, and how many gangs are left out by the reason.

    Raises ValueError for two of one time, InputError, MissingPathError.
    """
    times = sorted((_time(path), path) for path in paths)
    watch = _Watch()
    for asked, path in times:
        instance = load([path], schedulers=(EVERY_SCHEDULER,)).instance
        dates = [date for gang in instance.gangs for date in (gang.submitted_at, gang.started_at)]
        time = max([asked, *(date for date in dates if date is not None)])
        if watch.latest is not None and time <= watch.latest:
            raise ValueError(f"{path} is not younger than the snapshot before it")
        gangs = [(gang, gang_document(gang, instance.cluster).spec) for gang in instance.gangs]
        watch.see(time, gangs)
    return watch.trace()


def _time(path: str) -> int:
    """The time in the name of a path; without one that of the youngest file. Raises OSError."""
    whole = Path(path)
    if (found := _IN_NAME.search(whole.name)) is not None:
        year, month, day, hour, minute, second = found.groups(default="00")
        return epoch_seconds(f"{year}-{month}-{day}T{hour}:{minute}:{second}Z")
    files = [file for file in whole.iterdir() if file.is_file()] if whole.is_dir() else [whole]
    return max((int(file.stat().st_mtime) for file in files), default=0)


@dataclass(slots=True)
class _Watch:
    """Gangs as they come and go.

    A gang of a known name is another one if it shares no pod with that and was submitted at another time.
    """

    latest: int | None = None
    current: dict[tuple[str, str], _Sighting] = field(default_factory=dict)
    all: list[_Sighting] = field(default_factory=list)
    names: Counter[tuple[str, str]] = field(default_factory=Counter)

    def see(self, time: int, gangs: Iterable[tuple[Gang, GangSpec]]) -> None:
        """Take the next snapshot into account."""
        seen: dict[tuple[str, str], _Sighting] = {}
        for gang, spec in gangs:
            known = self.current.get(gang.key)
            if known is None or not _same(known, gang):
                known = self._new(gang, spec, time)
            known.uids = _uids(gang)
            if gang.running:
                self._runs(known, gang, spec, time)
            elif known.last_running is not None and known.gone is None:
                known.gone = time
            seen[gang.key] = known
        for key, known in self.current.items():
            if seen.get(key) is not known and known.gone is None:
                known.gone = time
        self.current, self.latest = seen, time

    def _new(self, gang: Gang, spec: GangSpec, time: int) -> _Sighting:
        self.names[gang.key] += 1
        number = self.names[gang.key]
        suffix = f"-{number}" if number > 1 else ""
        name = gang.name[: _LONGEST_NAME - len(suffix)] + suffix
        known = _Sighting(name, gang, spec, time, _uids(gang))
        self.all.append(known)
        return known

    def _runs(self, known: _Sighting, gang: Gang, spec: GangSpec, time: int) -> None:
        if known.first_running is None:
            known.gang, known.spec = gang, spec  # its size as it starts
            known.first_running, known.before = time, self.latest
            known.started_at = gang.started_at
        known.last_running = time
        known.gone = None  # it was stopped and started again: it runs until it is seen no more

    def trace(self) -> tuple[Trace, Counter[str]]:
        """Every gang whose arrival and duration are known, and how many others there are."""
        left_out, found = Counter[str](), list[tuple[_Sighting, int, tuple[int, int] | None]]()
        for known in self.all:
            arrival = known.first_seen
            if known.gang.submitted_at is not None:
                arrival = min(known.gang.submitted_at, arrival)
            span = _span(known, arrival)
            if not sum(role.min * role.gpus for role in known.gang.roles):
                left_out[NO_GPUS] += 1
            elif span is not None or known.gang.expected_duration_s is not None:
                found.append((known, arrival, span))
            else:
                left_out[WAIT if known.first_running is None else RUNS_ON] += 1
        start = min((arrival for _, arrival, _ in found), default=0)
        return Trace.of("recorded", [_job(*one, start) for one in found]), left_out


def _uids(gang: Gang) -> frozenset[str]:
    return frozenset(pod.uid for pod in gang.pods if pod.uid is not None)


def _same(known: _Sighting, gang: Gang) -> bool:
    if known.uids & _uids(gang):
        return True
    return known.gang.submitted_at == gang.submitted_at


def _span(known: _Sighting, arrival: int) -> tuple[int, int] | None:
    """(least, most) seconds that it ran; None if nobody saw it run, or end."""
    if known.first_running is None or known.last_running is None or known.gone is None:
        return None
    earliest = arrival if known.before is None else max(arrival, known.before)
    start = latest = known.first_running
    if known.started_at is not None:
        start = earliest = latest = max(arrival, min(known.started_at, latest))
    return max(0, known.last_running - latest), max(0, known.gone - min(earliest, start))


def _job(
    known: _Sighting,
    arrival: int,
    span: tuple[int, int] | None,
    start: int,
) -> Job:
    """The job. Of an end between two snapshots it takes the middle; of no end what the gang expects."""
    roles = tuple(
        role.model_copy(update={"node_affinity": tuple(own.node_affinity)})
        for role, own in zip(known.spec.roles, known.gang.roles, strict=True)
    )
    least, most = span if span is not None else (known.gang.expected_duration_s or 1,) * 2
    return Job(
        name=known.name,
        namespace=known.gang.namespace,
        submit_s=arrival - start,
        duration_s=max(1, (least + most) // 2),
        at_least=None if span is None else least,
        at_most=None if span is None else most,
        spec=known.spec.model_copy(
            update={"submitted_at": None, "resize_after": None, "roles": roles}
        ),
    )
