"""The DrainOrder document: in which waves nodes are drained, so that each gang restarts once.

Written by ``gangplan drain-order``; unknown fields are kept.
"""

from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import ApiVersion, Document, GpuAmount, Many, Natural, Open, Time
from models.documents.plan import PlanMetadata

Positive = Annotated[int, Field(ge=1)]


class DrainQuestion(Open):
    """What is to be drained."""

    nodes: Many[str] = Field(description="The nodes to drain, sorted")
    at_most: Positive = Field(
        description="Nodes out at once; more only where gangs join more nodes to each other"
    )


class DrainedGang(Open):
    """A gang that a wave interrupts, whole."""

    namespace: str
    name: str
    gpus: GpuAmount
    stoppable: bool = Field(
        description="Whether it is preemptible or movable; others lose their work"
    )
    expected_end: Time | None = Field(description="When it should end by itself; null: not known")
    restarts: Literal["atOnce", "afterWave"] = Field(
        description="atOnce: on nodes that no later wave drains. afterWave: where it ran, when they return"
    )
    nodes: Many[str] = Field(description="Where it can restart, sorted")


class DrainWave(Open):
    """Nodes that are drained together, and return before the next wave."""

    nodes: Many[str]
    gangs: Many[DrainedGang]


class DrainStatus(Open):
    """The order, and what it costs."""

    waves: Many[DrainWave]
    interrupted: Natural = Field(description="Gangs that restart; each does so once")
    interrupted_gpus: GpuAmount
    waiting_gpus: GpuAmount = Field(
        description="Of them, GPUs of gangs that wait for their wave to end"
    )
    notes: Many[str]


class DrainOrderDocument(Document):
    """An order of drains in which no gang is interrupted twice."""

    api_version: ApiVersion
    kind: Literal["DrainOrder"]
    metadata: PlanMetadata
    spec: DrainQuestion
    status: DrainStatus
