"""The Plan document: the instance it was made for, the decisions, and what was proven.

Promises: the instance is read as strictly as any input; elsewhere fields this version does not
know are let through, so that an older program takes a newer plan. It is the plan's JSON schema;
called by ``planner.read.schemas`` alone, so that reading input need not build it.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import ConfigDict, Field

from models.documents.base import ApiVersion, Document, Many, Mapped, Name, Prose, Title, whole
from models.documents.cluster import ClusterDocument
from models.documents.gang import MAX_PODS, GangDocument
from models.documents.policy import PolicyDocument
from models.documents.server import GpuIndices

Natural = Annotated[int, Field(ge=0)]


class _Open(Document):
    model_config = ConfigDict(extra="allow")


class PlanMetadata(_Open):
    """Name, time and maker of a plan."""

    name: Title
    created_at: Prose
    generator: Prose


class PlanInstance(Document):
    """What was planned, canonical and complete."""

    cluster: ClusterDocument
    gangs: Many[GangDocument]
    policy: PolicyDocument


class PlanPod(_Open):
    """A pod after the plan."""

    name: Name
    role: Name
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name
    gpus: GpuIndices | None
    uid: Name | None = None


class PlanReason(_Open):
    """Why a gang waits."""

    code: Name
    message: Prose


class PlanGang(_Open):
    """One decision."""

    namespace: Name
    name: Name
    decision: Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
    aged: Literal[True] | None = Field(
        default=None, description="It has waited for longer than the policy's starvation limit"
    )
    pods: Many[PlanPod]
    bandwidth: Natural | None = Field(alias="bandwidthMBps")
    share: Natural | None
    domains: Mapped[str, Natural] | None
    reason: PlanReason | None


class PlanSpec(_Open):
    """One decision a gang, by (namespace, name)."""

    gangs: Many[PlanGang]


class PlanObjective(_Open):
    """One tier: its value and what was proven of it."""

    name: Prose
    sense: Literal["max", "min"]
    value: int
    best: int
    bound: int
    gap: float
    proof: Literal["exact", "numerical"] | None


class PlanSearch(_Open):
    """How the plan was found."""

    solver: Prose
    seed: int
    stopped_by: Literal["proof", "budget", "time", "signal"]


class PlanBought(_Open):
    """What a plan has beyond the best plan found without a set of moves."""

    gangs: Many[Prose] = Field(description="namespace/name of the gangs admitted beyond it")
    gpus: int = Field(description="GPUs of all admitted gangs")
    bandwidth: int = Field(description="GPUs times permille of their best possible bandwidth")
    whole_nodes: int = Field(description="Nodes left wholly free")
    whole_domains: int = Field(description="Innermost domains left wholly free")


class PlanMoves(_Open):
    """Gangs that restart elsewhere together, and what that bought."""

    gangs: Many[Prose] = Field(description="namespace/name of the gangs that move")
    gpus: Natural = Field(description="All GPUs that they hold")
    bought: PlanBought
    gain: float = Field(description="GPUs bought, of all kinds, for each GPU moved")


class PlanStatus(_Open):
    """What was proven, how it was found, and digests of what it is about."""

    outcome: Literal["optimal", "feasible"]
    objectives: Many[PlanObjective]
    search: PlanSearch
    moves: Many[PlanMoves] = Field(default=(), description="Only in plans that move gangs")
    digests: Mapped[str, Prose]


class PlanDocument(Document):
    """A plan: complete in itself."""

    api_version: ApiVersion
    kind: Literal["Plan"]
    metadata: PlanMetadata
    instance: PlanInstance
    spec: PlanSpec
    status: PlanStatus
