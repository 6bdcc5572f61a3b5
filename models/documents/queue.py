"""The Queue document: what a part of the users of a cluster is promised, and the most they may hold."""

from collections.abc import Iterator
from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Document,
    Duration,
    FieldError,
    GpuAmount,
    Mapped,
    Title,
    omitted,
    whole,
    within,
)
from models.hardware import slug
from models.units import shown

MAX_WEIGHT = 1_000_000


class AmountDocument(Document):
    """GPUs in all, and of single GPU models."""

    gpus: GpuAmount | None = omitted(description="GPUs of all models together; absent: not said")
    models: Mapped[Title, GpuAmount] = omitted(default={}, description="GPUs by GPU model")

    def field_errors(self) -> Iterator[FieldError]:
        """Two spellings of one GPU model; paths start at the amount."""
        seen: dict[str, str] = {}
        for name in self.models:
            if slug(name) in seen:
                what = f"{shown(name)} and {shown(seen[slug(name)])} are one GPU model"
                yield FieldError(("models", name), what, "keep one of them", at_key=True)
            seen[slug(name)] = name


class QueueMetadata(Document):
    """Name of a queue."""

    name: Title


class QueueSpec(Document):
    """What it is promised, and the most that it may hold."""

    parent: Title | None = omitted(description="The queue that it is a part of")
    guarantee: AmountDocument = omitted(
        AmountDocument.model_construct(), description="GPUs that its gangs may always have"
    )
    limit: AmountDocument = omitted(
        AmountDocument.model_construct(),
        description="Most GPUs that its gangs, and those of queues below it, hold together",
    )
    lending_limit: AmountDocument = omitted(
        AmountDocument.model_construct(),
        description="Most GPUs of its guarantee that others may hold, preemptible gangs too; absent: all",
    )
    non_preemptible_limit: AmountDocument = omitted(
        AmountDocument.model_construct(),
        description="Most GPUs that its gangs without `preemptible`, also of queues below it, hold",
    )
    borrowing: bool = Field(
        default=True, description="false: it never holds more than its guarantee"
    )
    reclaim: bool = Field(
        default=True,
        description="Within its guarantee its gangs may stop preemptible gangs of queues that hold more "
        "than theirs, whatever their priority",
    )
    weight: Annotated[int, whole(1, MAX_WEIGHT)] = Field(
        default=1, description="Of its fair share, next to other queues of its parent"
    )
    order: Literal["strict", "bestEffort"] = omitted(
        default="bestEffort",
        description="strict: no gang that names it starts while an earlier one waits that could ever start; "
        "bestEffort: it may",
    )
    min_run_time_s: Duration | None = omitted(
        alias="minRunTime",
        description="`minRunTime` of gangs that state none; absent: that of the queue above, else of the "
        "policy",
    )


class QueueDocument(Document):
    """A queue: gangs name it in `queue`."""

    api_version: ApiVersion
    kind: Literal["Queue"]
    metadata: QueueMetadata
    spec: QueueSpec = QueueSpec.model_construct()

    def field_errors(self) -> Iterator[FieldError]:
        """Contradictions inside the queue; paths start at its top."""
        amounts = {
            "guarantee": self.spec.guarantee,
            "limit": self.spec.limit,
            "lendingLimit": self.spec.lending_limit,
            "nonPreemptibleLimit": self.spec.non_preemptible_limit,
        }
        for name, amount in amounts.items():
            yield from within(("spec", name), amount.field_errors())
