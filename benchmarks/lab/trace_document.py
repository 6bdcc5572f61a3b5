"""The Trace document: jobs of a cluster over time, each a gang with its arrival and its duration."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Document,
    FieldError,
    Many,
    Name,
    Prose,
    Time,
    Title,
    omitted,
    whole,
)
from models.documents.gang import (
    MAX_GPUS_A_POD,
    Count,
    GangDocument,
    GangMetadata,
    GangSpec,
    RoleDocument,
)
from models.units import MAX_SECONDS

WORKER = "worker"
"""Role of the pods of a job that says only how many there are."""

_NOT_OF_A_JOB = {
    "submitted_at": ("submittedAt", "write submitSeconds"),
    "resize_after": ("resizeAfter", "remove it: no time of a trace is a date"),
}

Seconds = Annotated[int, whole(0, MAX_SECONDS)]


class ObservedDocument(Document):
    """What was seen of a job on a real cluster, in seconds of the trace."""

    started_seconds: Seconds = Field(description="When it was first seen running")
    duration_at_least: Seconds | None = omitted(description="Seconds between sightings of it")
    duration_at_most: Seconds | None = omitted(
        description="Seconds from the sighting before the first to the one after the last"
    )


class JobDocument(GangSpec):
    """A gang, or in place of its roles the number of its pods and the GPUs of each."""

    name: Name
    namespace: Name = "default"
    submit_seconds: Seconds = Field(description="Arrival, in seconds from the start of the trace")
    duration_seconds: Seconds = Field(description="How long it runs where nothing slows it down")
    pods: Count | None = omitted(description="In place of `roles`: number of equal pods")
    gpus: Annotated[int, whole(0, MAX_GPUS_A_POD)] | None = omitted(
        description="In place of `roles`: GPUs of each pod"
    )
    roles: Many[RoleDocument] = ()
    observed: ObservedDocument | None = omitted()

    def to_spec(self) -> GangSpec:
        """What the job requests, in the long form."""
        roles = self.roles or (worker(self.pods or 1, self.gpus or 0),)
        return GangSpec.of(self, roles=roles)

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the job; paths start at the job."""
        for field, (name, hint) in _NOT_OF_A_JOB.items():
            if getattr(self, field) is not None:
                yield FieldError((name,), f"{name} in a job", hint, at_key=True)
        short = self.pods is not None or self.gpus is not None
        if short and self.roles:
            given = "pods" if self.pods is not None else "gpus"
            yield FieldError(
                (given,), f"both `{given}` and `roles`", "keep one of them", at_key=True
            )
        elif not self.roles and (self.pods is None or self.gpus is None):
            yield FieldError((), "a job without roles", "write `roles`, or `pods` and `gpus`")
        else:
            gang = gang_of(self.to_spec(), GangMetadata.of(self))
            for error in gang.field_errors():  # all of them below `spec`: it has no pods
                yield replace(error, path=error.path[1:])

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON object, in the short form where that says everything."""
        fields = self.model_dump(mode="json", by_alias=True, exclude_defaults=True)
        first = ("name", "namespace", "submitSeconds", "durationSeconds", "pods", "gpus")
        return {name: fields[name] for name in first if name in fields} | fields


class TraceMetadata(Document):
    """Name of a trace, where it is from, and the date of its start."""

    name: Title
    source: Prose | None = omitted(description="Where the jobs are from, and their licence")
    starts_at: Time | None = omitted(description="Date of second 0; absent: not known")


class TraceSpec(Document):
    """The jobs, in any order."""

    jobs: Many[JobDocument]


class TraceDocument(Document):
    """Jobs of a cluster over time."""

    api_version: ApiVersion
    kind: Literal["Trace"]
    metadata: TraceMetadata
    spec: TraceSpec

    def to_json(self) -> dict[str, Any]:
        """The canonical JSON object."""
        jobs = [job.to_json() for job in self.spec.jobs]
        metadata = self.metadata.to_json()
        return {
            "apiVersion": self.api_version,
            "kind": self.kind,
            "metadata": metadata,
            "spec": {"jobs": jobs},
        }


def worker(pods: int, gpus: int) -> RoleDocument:
    """The role of equal pods that request nothing but GPUs."""
    return RoleDocument(name=WORKER, replicas=pods, gpus=gpus)


def gang_of(spec: GangSpec, metadata: GangMetadata) -> GangDocument:
    """A waiting gang with these requirements."""
    return GangDocument.model_construct(
        api_version="gangplan.dev/v1alpha1", kind="Gang", metadata=metadata, spec=spec
    )
