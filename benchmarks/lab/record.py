"""Snapshots of a live cluster to a Trace: when its gangs arrived, started and ended.

A snapshot shows an instant. What happened between two of them is known up to that interval, and the trace
says so: ``observed``. Gangs whose end nobody saw are left out and counted. Reads only.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

from benchmarks.lab.trace import Job, Trace
from benchmarks.lab.trace_document import ObservedDocument
from models.documents.canonical import gang_document
from models.documents.cluster import HOSTNAME_LABEL
from models.documents.gang import GangSpec, NodeExpression, Toleration
from models.instance.gang import Gang
from models.instance.policy import EVERY_SCHEDULER
from models.units import InvalidValueError, epoch_seconds, time_text
from planner.errors import Fault, InputError, MissingPathError
from planner.read.inputs import load
from planner.read.sources import printable

RUNS_ON = "that still run"
WAIT = "that never ran"
NO_GPUS = "without GPUs"
_LONGEST_NAME = 253

PUBLIC_TAINTS = frozenset(
    {"", "nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aliyun.com/gpu"}
) | {
    f"node.kubernetes.io/{name}"
    for name in (
        "not-ready",
        "unreachable",
        "unschedulable",
        "memory-pressure",
        "disk-pressure",
        "pid-pressure",
        "network-unavailable",
    )
}
"""Keys of tolerations that Kubernetes and the vendors of GPUs chose, not the site; "" means every taint."""

PUBLIC_VALUES = frozenset({"", "present", "true"})

_IN_NAME = re.compile(
    r"(?<!\d)(\d{4})-?(\d\d)-?(\d\d)[T_ -](\d\d)[:-]?(\d\d)(?:[:-]?(\d\d))?(?!\d)"
)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A path and its time, in seconds since 1970. ``origin``: where the time is from."""

    path: str
    time: int
    origin: str


@dataclass(frozen=True, slots=True)
class Recorded:
    """The trace, and remarks."""

    trace: Trace
    remarks: tuple[str, ...]


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


def record(
    paths: Sequence[str],
    *,
    name: str = "recorded",
    anonymize: bool = False,
) -> Recorded:
    """The trace of these snapshots: folders of ``gangplan snapshot``, or files of Kubernetes objects.

    Raises InputError, also for two snapshots of one time, and MissingPathError.
    """
    snapshots = sorted((_timed(path) for path in paths), key=lambda one: (one.time, one.path))
    watch = _Watch()
    remarks: list[str] = []
    for done, snapshot in enumerate(snapshots):
        built = load([snapshot.path], queue=(EVERY_SCHEDULER,))
        instance = built.instance
        snapshots[done] = own = _not_before(snapshot, instance.gangs)
        if own != snapshot:
            what = "objects are younger than its time; the time of the youngest is taken"
            remarks.append(f"{printable(snapshot.path)}: {what}")
        if done and own.time <= snapshots[done - 1].time:
            raise _no_order(snapshots[done - 1], own)
        watch.see(
            own.time,
            [(gang, gang_document(gang, instance.cluster).spec) for gang in instance.gangs],
        )
    trace = watch.trace(name)
    return Recorded(_anonymous(trace) if anonymize else trace, tuple(remarks))


def _timed(path: str) -> Snapshot:
    """The time in the name of a path; without one that of the youngest file. Raises MissingPathError."""
    if path == "-":
        hint = "save it to a file; its name, or its date, is the time of the snapshot"
        raise InputError(Fault("a snapshot on stdin has no time", hint))
    if (found := _IN_NAME.search(Path(path).name)) is not None:
        year, month, day, hour, minute, second = found.groups(default="00")
        try:
            text = f"{year}-{month}-{day}T{hour}:{minute}:{second}Z"
            return Snapshot(path, epoch_seconds(text), "its name")
        except InvalidValueError:
            pass  # digits that are no time
    try:
        whole = Path(path)
        files = [file for file in whole.iterdir() if file.is_file()] if whole.is_dir() else [whole]
        time = max((int(file.stat().st_mtime) for file in files), default=0)
    except (OSError, ValueError):
        shown = printable(path) or repr(path)
        hint = "check the spelling, or the folder you are in"
        raise MissingPathError(Fault(f"no such file or folder: {shown}", hint)) from None
    return Snapshot(path, max(0, time), "the date of its files")


def _not_before(snapshot: Snapshot, gangs: Iterable[Gang]) -> Snapshot:
    """The snapshot, not older than what it shows."""
    times = (time for gang in gangs for time in (gang.submitted_at, gang.started_at))
    youngest = max((time for time in times if time is not None), default=0)
    if youngest <= snapshot.time:
        return snapshot
    return replace(snapshot, time=youngest, origin="its youngest object")


def _no_order(first: Snapshot, second: Snapshot) -> InputError:
    one, two = printable(first.path), printable(second.path)
    what = f"{two} is not younger than {one}: {time_text(second.time)}, by {second.origin}"
    hint = "put the time of a snapshot into its name, such as 2026-11-20T08-00, in UTC"
    return InputError(Fault(what, hint))


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

    def trace(self, name: str) -> Trace:
        """Every gang whose arrival and duration are known."""
        left_out: Counter[str] = Counter()
        found: list[tuple[_Sighting, int, tuple[int, int, int] | None]] = []
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
        start = min((arrival for _, arrival, _ in found), default=self.latest or 0)
        jobs = [_job(known, arrival, span, start) for known, arrival, span in found]
        return Trace.of(
            name, jobs, source="snapshots of a live cluster", starts_at=start,
            left_out=sorted(left_out.items()),
        )  # fmt: skip


def _uids(gang: Gang) -> frozenset[str]:
    return frozenset(pod.uid for pod in gang.pods if pod.uid is not None)


def _same(known: _Sighting, gang: Gang) -> bool:
    if known.uids & _uids(gang):
        return True
    return known.gang.submitted_at == gang.submitted_at


def _span(known: _Sighting, arrival: int) -> tuple[int, int, int] | None:
    """(start, least, most seconds that it ran); None if nobody saw it run, or end."""
    if known.first_running is None or known.last_running is None or known.gone is None:
        return None
    earliest = arrival if known.before is None else max(arrival, known.before)
    start = latest = known.first_running
    if known.started_at is not None:
        start = earliest = latest = max(arrival, min(known.started_at, latest))
    return start, max(0, known.last_running - latest), max(0, known.gone - min(earliest, start))


def _job(known: _Sighting, arrival: int, span: tuple[int, int, int] | None, start: int) -> Job:
    """The job. Of an end between two snapshots it takes the middle; of no end what the gang expects."""
    roles = tuple(
        role.model_copy(update={"node_affinity": tuple(own.node_affinity)})
        for role, own in zip(known.spec.roles, known.gang.roles, strict=True)
    )
    spec = known.spec.model_copy(
        update={"submitted_at": None, "resize_after": None, "roles": roles}
    )
    expected = known.gang.expected_duration_s
    if span is None:
        assert expected is not None  # otherwise it is left out
        return Job(known.name, known.gang.namespace, arrival - start, expected, spec)
    begun, least, most = span
    observed = ObservedDocument.model_construct(
        started_seconds=begun - start, duration_at_least=least, duration_at_most=most
    )
    duration = max(1, (least + most) // 2)
    return Job(known.name, known.gang.namespace, arrival - start, duration, spec, observed)


class _Numbers:
    """Names in place of others: ``team-1``, ``team-2``, in the order in which they are asked for."""

    def __init__(self) -> None:
        self._known: dict[str, dict[str, str]] = {}

    def of(self, kind: str, name: str) -> str:
        known = self._known.setdefault(kind, {})
        return known.setdefault(name, f"{kind}-{len(known) + 1}")


def _anonymous(trace: Trace) -> Trace:
    """The trace with numbers for names of gangs, namespaces, queues, services, roles, sets, taints and nodes.

    Numbers and no hashes: a hash of a name that can be guessed reveals it. Labels that jobs ask for stay.
    """
    numbers = _Numbers()
    jobs = [
        replace(
            job,
            name=numbers.of("job", "/".join(job.key)),
            namespace=numbers.of("namespace", job.namespace),
            spec=_unnamed(job.spec, numbers),
        )
        for job in trace.jobs
    ]
    return Trace.of(
        trace.name, jobs, source=trace.source, starts_at=trace.starts_at, left_out=trace.left_out
    )


def _unnamed_taint(one: Toleration, numbers: _Numbers) -> Toleration:
    """A site writes its teams and projects into taints; those that vendors and Kubernetes set stay."""
    key = one.key if one.key in PUBLIC_TAINTS else numbers.of("taint", one.key)
    value = one.value if one.value in PUBLIC_VALUES else numbers.of("value", one.value)
    return replace(one, key=key, value=value)


def _unnamed_nodes(one: NodeExpression, numbers: _Numbers) -> NodeExpression:
    if not one.field and one.key != HOSTNAME_LABEL:
        return one
    return replace(one, values=tuple(numbers.of("node", v) for v in one.values))


def _unnamed(spec: GangSpec, numbers: _Numbers) -> GangSpec:
    queue = None if spec.queue is None else numbers.of("queue", spec.queue)
    service = None if spec.service is None else numbers.of("service", spec.service)
    roles = []
    for number, role in enumerate(spec.roles):
        rules = {
            kind: tuple(
                rule
                if rule.pod_set is None
                else rule.model_copy(update={"pod_set": numbers.of("set", rule.pod_set)})
                for rule in getattr(role, kind)
            )
            for kind in ("affinity", "anti_affinity", "spread")
        }
        changed: dict[str, object] = {
            "name": f"role-{number + 1}",
            "pod_sets": tuple(numbers.of("set", one) for one in role.pod_sets),
            "tolerations": tuple(_unnamed_taint(one, numbers) for one in role.tolerations),
            "node_affinity": tuple(
                tuple(_unnamed_nodes(one, numbers) for one in term) for term in role.node_affinity
            ),
            **rules,
        }
        if HOSTNAME_LABEL in role.node_selector:
            node = numbers.of("node", role.node_selector[HOSTNAME_LABEL])
            changed["node_selector"] = {**role.node_selector, HOSTNAME_LABEL: node}
        roles.append(role.model_copy(update=changed))
    return spec.model_copy(update={"queue": queue, "service": service, "roles": tuple(roles)})
