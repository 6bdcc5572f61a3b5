"""A trace in memory: jobs, each with its arrival, its duration, and the requirements of its gang.

Promises: jobs are sorted by arrival and name; nothing is random but by a seed. Reads no files.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from fractions import Fraction

from benchmarks.lab.trace_document import (
    WORKER,
    JobDocument,
    ObservedDocument,
    TraceDocument,
    TraceMetadata,
    TraceSpec,
    gang_of,
    worker,
)
from models.documents.base import API_VERSION
from models.documents.gang import GangDocument, GangMetadata, GangSpec


@dataclass(frozen=True, slots=True)
class Job:
    """A gang that arrives ``submit_s`` seconds after the start and runs ``duration_s`` at full speed.

    ``spec``: what it requests, as in a Gang document, roles always written out.
    ``observed``: what was seen of it on a real cluster, if anything.
    """

    name: str
    namespace: str
    submit_s: int
    duration_s: int
    spec: GangSpec
    observed: ObservedDocument | None = None

    @classmethod
    def of(cls, document: JobDocument) -> Job:
        """The job of a Trace document."""
        return cls(
            document.name, document.namespace, document.submit_seconds, document.duration_seconds,
            document.to_spec(), document.observed,
        )  # fmt: skip

    @property
    def key(self) -> tuple[str, str]:
        """(namespace, name), as of its gang."""
        return (self.namespace, self.name)

    @property
    def pods(self) -> int:
        """Its pods, at ``min``."""
        return sum(role.span[0] for role in self.spec.roles)

    def gang_document(self, epoch: int) -> GangDocument:
        """The waiting gang; ``epoch``: date of second 0 of the trace, in seconds since 1970."""
        spec = self.spec.model_copy(update={"submitted_at": epoch + self.submit_s})
        metadata = GangMetadata.model_construct(name=self.name, namespace=self.namespace)
        return gang_of(spec, metadata)

    def document(self) -> JobDocument:
        """The job of a Trace document, in the short form where that says everything."""
        form: dict[str, object] = {"pods": None, "gpus": None, "roles": self.spec.roles}
        if len(self.spec.roles) == 1:
            role = self.spec.roles[0]
            if role.name == WORKER and role == worker(role.span[0], role.gpus):
                form = {"pods": role.span[0], "gpus": role.gpus, "roles": ()}
        return JobDocument.of(
            self.spec,
            name=self.name,
            namespace=self.namespace,
            submit_seconds=self.submit_s,
            duration_seconds=self.duration_s,
            observed=self.observed,
            **form,
        )


@dataclass(frozen=True, slots=True)
class Trace:
    """Jobs by arrival, then namespace and name.

    ``source``: where they are from, in words. ``starts_at``: date of second 0, in seconds since 1970, None
    if unknown. ``left_out``: (why, number of jobs of the source that are not in it).
    """

    name: str
    jobs: tuple[Job, ...]
    source: str | None = None
    starts_at: int | None = None
    left_out: tuple[tuple[str, int], ...] = ()

    @classmethod
    def of(
        cls,
        name: str,
        jobs: Iterable[Job],
        *,
        source: str | None = None,
        starts_at: int | None = None,
        left_out: Iterable[tuple[str, int]] = (),
    ) -> Trace:
        """The trace of these jobs, sorted."""
        ordered = tuple(sorted(jobs, key=lambda job: (job.submit_s, job.key)))
        return cls(name, ordered, source, starts_at, tuple(pair for pair in left_out if pair[1]))

    def between(self, from_s: int, until_s: int | None) -> Trace:
        """The jobs that arrive in [from_s, until_s), with second 0 at ``from_s``."""
        jobs = tuple(
            replace(job, submit_s=job.submit_s - from_s, observed=_moved(job.observed, from_s))
            for job in self.jobs
            if from_s <= job.submit_s and (until_s is None or job.submit_s < until_s)
        )
        starts_at = None if self.starts_at is None else self.starts_at + from_s
        return replace(self, jobs=jobs, starts_at=starts_at)

    def sped_up(self, factor: Fraction) -> Trace:
        """The same jobs arriving ``factor`` times as fast; durations stay, so the load grows."""
        jobs = tuple(
            replace(job, submit_s=int(job.submit_s / factor), observed=None) for job in self.jobs
        )
        return replace(self, jobs=jobs)

    def preferring(self, level: str) -> Trace:
        """The gangs of several pods prefer one domain of the level, where they ask for no other.

        Published tables say nothing of topology; without a wish most schedulers look for no near nodes.
        """
        specs: dict[int, GangSpec] = {}
        jobs = []
        for job in self.jobs:
            own = job.spec.topology
            if job.pods > 1 and own.required is None and own.preferred is None:
                topology = own.model_copy(update={"preferred": level})
                known = job.spec.model_copy(update={"topology": topology})
                jobs.append(replace(job, spec=specs.setdefault(id(job.spec), known)))
            else:
                jobs.append(job)
        return replace(self, jobs=tuple(jobs))

    def document(self) -> TraceDocument:
        """The Trace document."""
        return TraceDocument.model_construct(
            api_version=API_VERSION,
            kind="Trace",
            metadata=TraceMetadata.model_construct(
                name=self.name, source=self.source, starts_at=self.starts_at
            ),
            spec=TraceSpec.model_construct(jobs=tuple(job.document() for job in self.jobs)),
        )


def _moved(observed: ObservedDocument | None, from_s: int) -> ObservedDocument | None:
    if observed is None:
        return None
    started = max(0, observed.started_seconds - from_s)
    return observed.model_copy(update={"started_seconds": started})
