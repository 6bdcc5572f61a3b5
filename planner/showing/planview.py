"""A plan as the tables need it: the shape of what is shown, everything else left unread.

Promises: frozen data; ``planner.showing.planfile`` reads it from a file, ``view_of`` from a plan just made.
Used by the tables.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field

Decision = Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
ADMITTED = ("place", "complete", "keep", "move", "resize")
Count = Annotated[int, Field(ge=0)]


class View(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="ignore", allow_inf_nan=False)


class PodView(View):
    """One pod after the plan; ``gpus`` None where the node decides."""

    name: str
    role: str
    index: Count
    node: str
    gpus: list[Count] | None


class ReasonView(View):
    code: str
    message: str


class GangView(View):
    """One decision."""

    namespace: str
    name: str
    decision: Decision
    pods: list[PodView]
    bandwidth: Count | None = Field(alias="bandwidthMBps")
    share: Count | None
    domains: dict[str, Count] | None
    reason: ReasonView | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.namespace, self.name)

    @property
    def incomplete(self) -> bool:
        """Running with pods missing: kept, but not admitted."""
        return self.decision == "keep" and self.reason is not None


class TierView(View):
    """One objective tier; ``gap`` in parts of one."""

    name: str
    sense: Literal["max", "min"]
    value: int
    best: int
    bound: int | None
    gap: Annotated[float, Field(ge=0)] | None
    proof: Literal["exact", "numerical"] | None

    @property
    def family(self) -> str:
        return self.name.partition("/")[0]

    @property
    def proven(self) -> bool:
        return self.gap == 0 and self.proof is not None


class ServerModelView(View):
    name: str
    gpus: Count


class LevelView(View):
    name: str


class NodeView(View):
    name: str
    model: str | None = None
    domains: dict[str, str] = Field(default_factory=dict)
    ready: bool = True
    unschedulable: bool = False
    unhealthy: list[Count] = Field(default_factory=list, alias="unhealthyGpus")
    unknown_unhealthy: Count = Field(default=0, alias="unknownUnhealthy")


class _ClusterSpec(View):
    levels: list[LevelView] = Field(default_factory=list)
    models: list[ServerModelView] = Field(default_factory=list, alias="serverModels")
    nodes: list[NodeView]


class MetadataView(View):
    name: str
    namespace: str = "default"


class _ClusterView(View):
    metadata: MetadataView
    spec: _ClusterSpec


class RangeView(View):
    min: Count


class RoleView(View):
    """``replicas`` is a count, or an elastic range."""

    name: str
    gpus: Count = 0
    replicas: Count | RangeView = 1

    @property
    def asked(self) -> int:
        """GPUs at the smallest allowed count."""
        return self.gpus * (self.replicas if isinstance(self.replicas, int) else self.replicas.min)


class _AskSpec(View):
    priority: int = 0
    roles: list[RoleView]


class StandingView(View):
    node: str | None = None


class _AskStatus(View):
    pods: list[StandingView] = Field(default_factory=list)


class AskView(View):
    """A gang as the input has it."""

    metadata: MetadataView
    spec: _AskSpec
    status: _AskStatus | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def running(self) -> bool:
        return self.status is not None and any(pod.node is not None for pod in self.status.pods)


class _Instance(View):
    cluster: _ClusterView
    gangs: list[AskView]


class _PlanMetadata(View):
    name: str
    created_at: str = Field(alias="createdAt")
    generator: str


class _Search(View):
    solver: str = ""
    seed: int = 0
    stopped_by: str = Field(alias="stoppedBy")


class _Status(View):
    outcome: Literal["optimal", "feasible"]
    objectives: list[TierView]
    search: _Search
    notes: list[str] = Field(default_factory=list)
    remarks: list[str] = Field(default_factory=list)
    digests: dict[str, str]


class _Spec(View):
    gangs: list[GangView]


class PlanView(View):
    """What the tables show of a plan."""

    metadata: _PlanMetadata
    instance: _Instance
    spec: _Spec
    status: _Status


def view_of(document: dict[str, Any]) -> PlanView:
    """The view of a plan that this process has just composed."""
    return PlanView.model_validate(document)
