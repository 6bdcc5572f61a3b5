"""Traces: jobs of a cluster over time, from a table that a cluster published, or as ``record`` writes them.

Times are seconds from the start of the trace.
"""

from __future__ import annotations

import csv
import gzip
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from pathlib import Path
from typing import Annotated

from pydantic import ConfigDict, TypeAdapter

from models.documents.base import API_VERSION, Document, Many, Name, omitted, whole
from models.documents.gang import GangDocument, GangMetadata, GangSpec, RoleDocument
from models.units import MAX_SECONDS

NODE_GPUS = 8
"""GPUs of a pod at most, where a table says only those of the job: the servers of all these clusters."""

QUEUES = ("vc", "user", "cluster")
"""Columns that name the queue and namespace of a job; the first that a table has."""

Seconds = Annotated[int, whole(0, MAX_SECONDS)]


class Job(Document):
    """A gang that arrives and runs for so long where nothing slows it down.

    ``at_least``, ``at_most``: between what its duration is where only snapshots saw it run.
    """

    model_config = ConfigDict(validate_by_name=True)

    name: Name
    namespace: Name = "default"
    submit_s: Seconds
    duration_s: Seconds
    at_least: Seconds | None = omitted()
    at_most: Seconds | None = omitted()
    spec: GangSpec

    def gang_document(self, epoch: int) -> GangDocument:
        """The waiting gang; ``epoch``: date of second 0 of the trace, in seconds since 1970."""
        return GangDocument.model_construct(
            api_version=API_VERSION,
            kind="Gang",
            metadata=GangMetadata.model_construct(name=self.name, namespace=self.namespace),
            spec=self.spec.model_copy(update={"submitted_at": epoch + self.submit_s}),
        )


_JOBS: TypeAdapter[Many[Job]] = TypeAdapter(Many[Job])


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs by arrival, then namespace and name."""

    name: str
    jobs: tuple[Job, ...]

    @classmethod
    def of(cls, name: str, jobs: Sequence[Job]) -> Trace:
        """The trace of these jobs, sorted. Raises ValueError for two of one name."""
        names = [(job.namespace, job.name) for job in jobs]
        if len(set(names)) < len(names):
            raise ValueError(f"{name}: two jobs of one name")
        return cls(name, tuple(sorted(jobs, key=lambda j: (j.submit_s, j.namespace, j.name))))

    def part(
        self, from_s: int = 0, until_s: int | None = None, speedup: Fraction = Fraction(1)
    ) -> Trace:
        """The jobs that arrive in [from_s, until_s), ``speedup`` times as fast; durations stay."""
        return replace(
            self,
            jobs=tuple(
                job.model_copy(update={"submit_s": int((job.submit_s - from_s) / speedup)})
                for job in self.jobs
                if from_s <= job.submit_s and (until_s is None or job.submit_s < until_s)
            ),
        )

    def preferring(self, level: str) -> Trace:
        """The gangs of several pods prefer one domain of the level, where they ask for no other.

        Published tables say nothing of topology; without a wish most schedulers look for no near nodes.
        """
        return replace(self, jobs=tuple(_preferring(job, level) for job in self.jobs))

    def text(self) -> str:
        """The trace as JSON."""
        jobs = [
            job.model_dump(mode="json", by_alias=True, exclude_defaults=True) for job in self.jobs
        ]
        return json.dumps({"name": self.name, "jobs": jobs}, indent=1, ensure_ascii=False) + "\n"


def _preferring(job: Job, level: str) -> Job:
    own, pods = job.spec.topology, sum(role.span[0] for role in job.spec.roles)
    if pods < 2 or own.required is not None or own.preferred is not None:
        return job
    topology = own.model_copy(update={"preferred": level})
    return job.model_copy(update={"spec": job.spec.model_copy(update={"topology": topology})})


def read_trace(path: Path) -> Trace:
    """The trace of a file: JSON of ``record``, or a table, packed or not. Raises OSError, ValueError."""
    content = path.read_bytes()
    if content[:2] == b"\x1f\x8b":
        content = gzip.decompress(content)
    text = content.decode()
    if text.lstrip().startswith("{"):
        document = json.loads(text)
        return Trace.of(document["name"], _JOBS.validate_json(json.dumps(document["jobs"])))
    return Trace.of(path.parent.name, tuple(_jobs(csv.DictReader(text.splitlines()))))


def _jobs(table: csv.DictReader[str]) -> Iterator[Job]:
    """The jobs of a table, without those that have no GPUs. Equal requirements are one object."""
    specs: dict[tuple[str, int], GangSpec] = {}
    queue = next(name for name in QUEUES if name in (table.fieldnames or ()))
    for row in table:
        key = (row[queue], int(row["num_gpus"]))
        if not key[1]:
            continue
        if key not in specs:
            specs[key] = GangSpec(queue=key[0], roles=roles_of(key[1]))
        submit_s, duration_s = (int(float(row[name])) for name in ("submit_s", "duration_s"))
        yield Job(
            name=row["job_id"],
            namespace=key[0],
            submit_s=submit_s,
            duration_s=duration_s,
            spec=specs[key],
        )


def roles_of(gpus: int) -> tuple[RoleDocument, ...]:
    """As few pods as servers allow: equal ones, or full ones and one with the rest."""
    pods = -(-gpus // NODE_GPUS)
    if gpus % pods == 0:
        return (RoleDocument(name="worker", replicas=pods, gpus=gpus // pods),)
    return (
        RoleDocument(name="worker", replicas=gpus // NODE_GPUS, gpus=NODE_GPUS),
        RoleDocument(name="rest", replicas=1, gpus=gpus % NODE_GPUS),
    )
