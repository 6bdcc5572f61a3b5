"""The Gang document: roles, topology rules, elastic range, and the pods that exist.

Promises: types by pydantic, contradictions inside the gang by ``complaints``; levels, nodes and
other gangs are the builder's matter. Called by the readers.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Discriminator, Field, PlainValidator, Tag

from models.documents.base import (
    ApiVersion,
    Complaint,
    Document,
    Duration,
    LabelKey,
    LabelValue,
    Many,
    Mapped,
    Name,
    Path,
    Quantity,
    ShortName,
    Time,
    Title,
    decimal_check,
    decimal_schema,
    whole,
)
from models.documents.choosing import NodeExpressionDocument, TolerationDocument
from models.documents.cluster import resource_complaints
from models.documents.slices import (
    MAX_PODS,
    Count,
    LevelName,
    SliceDocument,
    slice_complaints,
)
from models.documents.standing import GangStatus, PodDocument, Seats, standing_complaints
from models.quantities import shown

MAX_GPUS_A_POD = 100_000
MAX_PRIORITY = 2_000_000_000

Share = Annotated[Fraction, PlainValidator(decimal_check(0, 1)), decimal_schema(0, 1)]


class ReplicaRange(Document):
    """Elastic: min, min + step, ... not above max pods."""

    min: Count
    max: Count
    step: Count = 1


def _form(value: object) -> str:
    return "range" if isinstance(value, dict | ReplicaRange) else "count"


Replicas = Annotated[
    Annotated[Count, Tag("count")] | Annotated[ReplicaRange, Tag("range")], Discriminator(_form)
]


class RoleTopology(Document):
    """Where pods go: all in one domain of `required`, rather in one of `preferred`."""

    required: LevelName | None = None
    preferred: LevelName | None = None


class GangTopology(RoleTopology):
    """The same for all pods of the gang, with the least share of the ideal bandwidth."""

    min_bandwidth_share: Share | None = Field(
        default=None, description="Wait rather than run below this share of the ideal bandwidth"
    )


class RoleDocument(Document):
    """Pods of one kind within a gang."""

    name: ShortName
    replicas: Replicas = Field(description="How many pods, or {min, max, step}")
    first_index: Annotated[int, whole(0, MAX_PODS - 1)] = Field(
        default=0, description="Index of its first pod"
    )
    gpus: Annotated[int, whole(0, MAX_GPUS_A_POD)] = Field(
        description="Whole GPUs a pod; 0 for a launcher"
    )
    requests: Mapped[LabelKey, Quantity] = Field(default={}, description="Other resources, a pod")
    topology: RoleTopology = RoleTopology()
    slice: SliceDocument | None = None
    outer_slices: Many[SliceDocument] = Field(
        default=(), description="Slices around those of `slice`, each wider than the one before"
    )
    node_selector: Mapped[LabelKey, LabelValue] = Field(
        default={}, description="Labels its nodes must have"
    )
    node_affinity: Many[Many[NodeExpressionDocument]] = Field(
        default=(), description="Any of these terms must hold, all expressions of one"
    )
    tolerations: Many[TolerationDocument] = ()
    model: Title | None = Field(default=None, description="A GPU model or a server model")
    mix_models: bool = Field(default=False, description="Its pods may run on several GPU models")

    @property
    def span(self) -> tuple[int, int, int]:
        """(min, max, step) of its pod count."""
        if isinstance(self.replicas, int):
            return self.replicas, self.replicas, 1
        return self.replicas.min, self.replicas.max, self.replicas.step

    def complaints(self) -> Iterator[Complaint]:
        """Contradictions inside the role; paths start at the role."""
        least, most, _ = self.span
        if least > most:
            yield Complaint(
                ("replicas", "min"), f"min {least} is above max {most}", "swap them, or raise max"
            )
        if self.first_index + most > MAX_PODS:
            last = self.first_index + most - 1
            yield Complaint(
                ("firstIndex",), f"indices up to {last:,}", f"the largest is {MAX_PODS - 1:,}"
            )
        yield from slice_complaints(self.slice, self.outer_slices)
        yield from resource_complaints(self.requests, ("requests",))
        if "pods" in self.requests:
            yield Complaint(
                ("requests", "pods"), "pods cannot be requested", "every pod takes one; remove it",
                at_key=True,
            )  # fmt: skip
        for t, term in enumerate(self.node_affinity):
            for e, expression in enumerate(term):
                for fault in expression.complaints():
                    yield Complaint(("nodeAffinity", t, e, *fault.path), fault.what, fault.hint)
        for i, toleration in enumerate(self.tolerations):
            for fault in toleration.complaints():
                yield Complaint(("tolerations", i, *fault.path), fault.what, fault.hint)


class Communication(Document):
    """How its GPUs talk; `none`: no bandwidth is counted, other patterns count as all-reduce."""

    pattern: ShortName = "all-reduce"
    weight: Annotated[int, whole(0, 1000)] = 1
    nvlink_across_nodes: bool = Field(
        default=True,
        description="false: its pods reach other servers over the network only, NVLink domain or not",
    )


class GangSpec(Document):
    """What the gang asks for."""

    queue: Title | None = None
    priority: Annotated[int, whole(-MAX_PRIORITY, MAX_PRIORITY)] = Field(
        default=0, description="Larger goes first"
    )
    submitted_at: Time | None = None
    expected_duration: Duration | None = None
    resize_after: Time | None = Field(
        default=None, description="While it runs its number of pods stays until then"
    )
    preemptible: bool = Field(default=False, description="May be stopped for a higher priority")
    movable: bool = Field(default=False, description="May be restarted elsewhere")
    topology: GangTopology = GangTopology()
    roles: Many[RoleDocument] = Field(json_schema_extra={"minItems": 1})
    communication: Communication = Communication()


class GangMetadata(Document):
    """Name of a gang."""

    name: Name
    namespace: Name = "default"


class GangDocument(Document):
    """A gang: all its pods start together or none does."""

    api_version: ApiVersion
    kind: Literal["Gang"]
    metadata: GangMetadata
    spec: GangSpec
    status: GangStatus = GangStatus()

    def pod_name(self, pod: PodDocument) -> str:
        """The name the pod goes by."""
        return pod.name or f"{self.metadata.name}-{pod.role}-{pod.index}"

    def level_names(self) -> Iterator[tuple[Path, str]]:
        """Every level the gang names, with its place."""
        for field in ("required", "preferred"):
            if (level := getattr(self.spec.topology, field)) is not None:
                yield ("spec", "topology", field), level
        for i, role in enumerate(self.spec.roles):
            path: Path = ("spec", "roles", i)
            for field in ("required", "preferred"):
                if (level := getattr(role.topology, field)) is not None:
                    yield (*path, "topology", field), level
            if role.slice is not None:
                yield (*path, "slice", "required"), role.slice.required
            for j, outer in enumerate(role.outer_slices):
                yield (*path, "outerSlices", j, "required"), outer.required

    def complaints(self) -> Iterator[Complaint]:
        """Contradictions inside the gang; paths start at its top."""
        if not self.spec.roles:
            yield Complaint(("spec", "roles"), "a gang without roles", "write at least one role")
        names: set[str] = set()
        for i, role in enumerate(self.spec.roles):
            path: Path = ("spec", "roles", i)
            if role.name in names:
                yield Complaint(
                    (*path, "name"), f"two roles are named {shown(role.name)}", "rename one"
                )
            names.add(role.name)
            for fault in role.complaints():
                yield Complaint((*path, *fault.path), fault.what, fault.hint, fault.at_key)
        if (pods := sum(role.span[1] for role in self.spec.roles)) > MAX_PODS:
            yield Complaint(
                ("spec", "roles"), f"{pods:,} pods in one gang", f"the most is {MAX_PODS:,}"
            )
        yield from standing_complaints(self.status, self.metadata.name, _seats(self.spec.roles))


def _seats(roles: Sequence[RoleDocument]) -> dict[str, Seats]:
    """By name; of two roles of one name the first counts."""
    found: dict[str, Seats] = {}
    for role in roles:
        last = role.first_index + role.span[1]
        found.setdefault(role.name, Seats(range(role.first_index, last), role.gpus))
    return found
