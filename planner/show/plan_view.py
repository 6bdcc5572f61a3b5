"""A plan as the tables need it: the shape of what is shown, everything else left unread.

Promises: frozen data; ``planner.show.plan_file`` reads it from a file, ``view_of`` from a plan just made.
Used by the tables.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field

from models.units import epoch_seconds

Decision = Literal["place", "complete", "keep", "move", "resize", "preempt", "wait"]
ADMITTED = ("place", "complete", "keep", "move", "resize")
Count = Annotated[int, Field(ge=0)]


def _time(value: object) -> int:
    if not isinstance(value, str):
        raise ValueError("it should be an RFC 3339 time")  # noqa: TRY004  # pydantic tells of it
    return epoch_seconds(value)


Time = Annotated[int, BeforeValidator(_time)]
"""Seconds since the epoch, written as an RFC 3339 time."""


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
    aged: bool = False

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
    submitted_at: Time | None = Field(default=None, alias="submittedAt")


class StandingView(View):
    """A pod that exists; ``node`` None: it waits. ``gpus`` None: some, nobody knows which."""

    role: str = ""
    index: Count = 0
    node: str | None = None
    gpus: list[Count] | None = None


class _AskStatus(View):
    pods: list[StandingView] = Field(default_factory=list)
    started_at: Time | None = Field(default=None, alias="startedAt")
    last_checkpoint: Time | None = Field(default=None, alias="lastCheckpoint")


class AskView(View):
    """A gang as the input has it."""

    metadata: MetadataView
    spec: _AskSpec
    status: _AskStatus | None = None

    @property
    def key(self) -> tuple[str, str]:
        return (self.metadata.namespace, self.metadata.name)

    @property
    def standing(self) -> list[StandingView]:
        """Pods that run."""
        return [pod for pod in self.status.pods if pod.node is not None] if self.status else []

    @property
    def running(self) -> bool:
        return bool(self.standing)

    @property
    def since(self) -> int | None:
        """When what it has done was last safe: its last checkpoint or start, None if unknown."""
        status = self.status or _AskStatus()
        return max(
            (t for t in (status.started_at, status.last_checkpoint) if t is not None), default=None
        )


class _PolicySpec(View):
    now: Time | None = None


class _PolicyView(View):
    spec: _PolicySpec = _PolicySpec()


class _Instance(View):
    cluster: _ClusterView
    gangs: list[AskView]
    policy: _PolicyView = _PolicyView()

    @property
    def now(self) -> int:
        """The time ages are counted to: the policy's, else the latest the input names."""
        if self.policy.spec.now is not None:
            return self.policy.spec.now
        known = (time for gang in self.gangs for time in (gang.spec.submitted_at, gang.since))
        return max((time for time in known if time is not None), default=0)


class _PlanMetadata(View):
    name: str
    created_at: str = Field(alias="createdAt")
    generator: str


class _Search(View):
    solver: str = ""
    seed: int = 0
    stopped_by: str = Field(alias="stoppedBy")


class BoughtView(View):
    """What a set of moves bought; negative where it cost some. ``bandwidth``: permille-GPU."""

    gangs: list[str]
    gpus: int
    bandwidth: int
    whole_nodes: int = Field(alias="wholeNodes")
    whole_domains: int = Field(alias="wholeDomains")


class MoveSetView(View):
    """Gangs that restart elsewhere together; ``gangs`` as ``namespace/name``."""

    gangs: list[str]
    gpus: Count
    bought: BoughtView
    gain: float


class _Status(View):
    outcome: Literal["optimal", "feasible"]
    objectives: list[TierView]
    search: _Search
    moves: list[MoveSetView] = Field(default_factory=list)
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
