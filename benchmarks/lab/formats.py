"""The tables of jobs that clusters have published, each known by its columns.

A row becomes a Job, or is counted among those left out. What the tables do not say is assumed here and
stated in README.md: how many pods share the GPUs of a job.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime

from benchmarks.lab.rows import Row
from benchmarks.lab.trace import Job
from benchmarks.lab.trace_document import ObservedDocument, worker
from models.documents.gang import GangSpec, NodeExpression, RoleDocument
from models.units import MAX_SECONDS, YEAR_3000, shown
from planner.read.sources import Malformed

NODE_GPUS = 8
"""GPUs of a pod at most, where the user says nothing else: those of the servers of all these clusters."""

MAX_JOB_GPUS = 100_000

GPU_MODEL_LABEL = "gangplan.dev/gpu-model"
"""Label of nodes by which openb's pods choose GPU models; ``machines`` writes it."""

NO_GPUS = "without GPUs"
FRACTION = "with a part of a GPU"
NO_TIMES = "without a time of arrival or an end"
TWICE = "that appear twice"


@dataclass(frozen=True, slots=True)
class Format:
    """Columns of a table; None where it has none.

    ``submit``: seconds from the start of the trace, or dates. ``duration``: seconds; without it ``end``
    less ``start``, or less ``submit`` where that is not known. ``queue`` is also the namespace.
    """

    title: str
    source: str
    name: str
    submit: str
    gpus: str
    duration: str | None = None
    end: str | None = None
    start: str | None = None
    queue: str | None = None
    openb: bool = False

    @property
    def columns(self) -> tuple[str, ...]:
        """Columns that a table of this format has."""
        own = (self.name, self.submit, self.gpus, self.duration, self.end, self.start, self.queue)
        return tuple(column for column in own if column is not None)


_HELIOS = "SenseTime Helios 2020, github.com/S-Lab-System-Group/HeliosData, CC BY 4.0"
_PHILLY = "Microsoft Philly 2017, github.com/msr-fiddle/philly-traces, CC BY 4.0"
_ITP = "Microsoft ITP 2021, github.com/microsoft/elasticflow-traces, MIT"
_OPENB = "Alibaba cluster-trace-gpu-v2023 (openb), github.com/alibaba/clusterdata"

FORMATS = (
    Format(
        "Helios", _HELIOS, "job_id", "submit_time", "gpu_num", "duration",
        start="start_time", queue="vc",
    ),
    Format("Helios", _HELIOS, "job_id", "submit_s", "num_gpus", "duration_s", queue="user"),
    Format("Philly", _PHILLY, "job_id", "submit_s", "num_gpus", "duration_s", queue="vc"),
    Format("ITP", _ITP, "job_id", "submit_s", "num_gpus", "duration_s", queue="cluster"),
    Format("ITP", _ITP, "job_id", "submission_time", "num_gpu", "duration"),
    Format(
        "openb", _OPENB, "name", "creation_time", "num_gpu",
        end="deletion_time", start="scheduled_time", queue="qos", openb=True,
    ),
)  # fmt: skip
"""Of two that fit, the first counts."""

_OPENB_MORE = ("cpu_milli", "memory_mib", "gpu_milli", "gpu_spec")


def format_of(columns: Mapping[str, int]) -> Format:
    """The format of a table with these columns. Raises Malformed with the nearest ones."""
    for one in FORMATS:
        wanted = (*one.columns, *(_OPENB_MORE if one.openb else ()))
        if all(column in columns for column in wanted):
            return one
    nearest = max(FORMATS, key=lambda one: sum(column in columns for column in one.columns))
    lacking = [column for column in nearest.columns if column not in columns]
    known = "; ".join(f"{one.title}: {', '.join(one.columns)}" for one in FORMATS)
    if len(lacking) == len(nearest.columns):
        raise Malformed("no table of jobs: none of its columns is known", 1, 1, known)
    what = f"a table like that of {nearest.title}, but without {', '.join(lacking)}"
    raise Malformed(what, 1, 1, f"columns of {known}")


@dataclass(slots=True)
class JobReader:
    """Rows to jobs. ``origin``: date of second 0, None where times are seconds, or none is read yet.

    ``left_out``: number of jobs by the reason.
    """

    format: Format
    node_gpus: int = NODE_GPUS
    left_out: Counter[str] = field(default_factory=Counter)
    dated: bool | None = None
    _specs: dict[tuple[object, ...], GangSpec] = field(default_factory=dict)
    _rows: dict[str, tuple[int, int]] = field(default_factory=dict)

    def job(self, row: Row) -> Job | None:
        """The job of a row, with the seconds of its dates since 1970; None if it is left out.

        Raises Malformed.
        """
        name = row.name(self.format.name)
        line, text = self._rows.setdefault(name, (row.line, hash(row.text)))
        if line != row.line:
            if text == hash(row.text):
                return self._without(TWICE)
            what = f"{self.format.name}: {name} is also in line {line}"
            raise row.malformed(self.format.name, what, "every job has its own name")
        gpus = row.whole(self.format.gpus, MAX_JOB_GPUS)
        if not gpus:
            return self._without(NO_GPUS)
        if self.format.openb and row.whole("gpu_milli") < 1000:
            return self._without(FRACTION)
        submit, duration = self._time(row, self.format.submit), self._duration(row)
        if submit is None or duration is None:
            return self._without(NO_TIMES)
        queue = None
        if self.format.queue is not None and row.field(self.format.queue):
            queue = row.name(self.format.queue)
        return Job(
            name, queue or "default", submit, duration, self._spec(row, gpus, queue),
            self._observed(row, submit),
        )  # fmt: skip

    def _without(self, why: str) -> Job | None:
        self.left_out[why] += 1
        return None

    def _time(self, row: Row, column: str) -> int | None:
        """Seconds, since 1970 in a table of dates; None if it is not known."""
        text = row.field(column)
        if not text:
            return None
        dated = not text[:5].isdigit() and "-" in text[1:]
        if self.dated is None:
            self.dated = dated
        if dated != self.dated:
            what = f"{column}: a {'date' if dated else 'number'} in a table of other times"
            raise row.malformed(column, what, "write all times as seconds, or all as dates")
        return _date(row, column) if dated else row.whole(column, MAX_SECONDS)

    def _duration(self, row: Row) -> int | None:
        form = self.format
        if form.duration is not None:
            return row.whole(form.duration, MAX_SECONDS) if row.field(form.duration) else None
        assert form.end is not None
        end = self._time(row, form.end)
        start = self._time(row, form.start) if form.start is not None else None
        start = self._time(row, form.submit) if start is None else start
        if end is None or start is None:
            return None
        if end < start:
            what = f"{form.end}: it ends {start - end:,} s before it starts"
            raise row.malformed(form.end, what, "correct one of the two")
        return end - start

    def _observed(self, row: Row, submit: int) -> ObservedDocument | None:
        if self.format.start is None:
            return None
        started = self._time(row, self.format.start)
        if started is None:
            return None
        # Where clocks differ a job may start before it arrives.
        return ObservedDocument.model_construct(started_seconds=max(started, submit))

    def _spec(self, row: Row, gpus: int, queue: str | None) -> GangSpec:
        """Requirements; equal ones are one object."""
        more = tuple(row.field(column) for column in _OPENB_MORE) if self.format.openb else ()
        key = (gpus, queue, *more)
        if key not in self._specs:
            roles = roles_of(gpus, self.node_gpus)
            if self.format.openb:
                roles = tuple(_openb_role(row, role) for role in roles)
            self._specs[key] = GangSpec(queue=queue, roles=roles)
        return self._specs[key]


def roles_of(gpus: int, node_gpus: int) -> tuple[RoleDocument, ...]:
    """As few pods as nodes of ``node_gpus`` GPUs allow: equal ones, or full ones and one with the rest."""
    pods = -(-gpus // node_gpus)
    if gpus % pods == 0:
        return (worker(pods, gpus // pods),)
    rest = RoleDocument(name="rest", replicas=1, gpus=gpus % node_gpus)
    return (worker(gpus // node_gpus, node_gpus), rest)


def _openb_role(row: Row, role: RoleDocument) -> RoleDocument:
    """The role with the amounts and the GPU models of a pod of openb; models are labels of nodes."""
    requests = {
        "cpu": row.amount("cpu", "cpu_milli", "m"),
        "memory": row.amount("memory", "memory_mib", "Mi"),
    }
    models = row.label_values("gpu_spec")
    term = NodeExpression(key=GPU_MODEL_LABEL, operator="In", values=models)
    return role.model_copy(
        update={"requests": requests, "node_affinity": ((term,),) if models else ()}
    )


def _date(row: Row, column: str) -> int:
    """Seconds since 1970 of a date without a zone, taken as UTC. Raises Malformed."""
    text = row.field(column)
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        found = None
    if found is not None:
        seconds = math.floor((found if found.tzinfo else found.replace(tzinfo=UTC)).timestamp())
        if 0 <= seconds < YEAR_3000:
            return seconds
    what = f"{column}: expected a date of the years 1970 to 2999, not {shown(text)}"
    raise row.malformed(column, what, "write it like 2020-04-01 08:00:00")
