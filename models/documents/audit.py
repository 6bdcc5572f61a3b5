"""The Audit document: what the present placement of a cluster costs, and which moves regain most.

The loss is what a re-plan regains: the same gangs with the same pods, where each running gang may stand
elsewhere at no price. Written by ``gangplan audit``, read by ``gangplan report``; unknown fields are kept.
"""

from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Document,
    GpuAmount,
    Many,
    Mapped,
    Name,
    Natural,
    Open,
    Time,
    omitted,
)
from models.documents.plan import PlanDocument, PlanSearch
from models.instance.solution import Proof
from models.tiers import Sense

Gpus = Annotated[float, Field(ge=0)]
"""GPUs, of which parts may count: exact, with up to three digits."""

StartsIf = Literal["now", "others stood better", "others ended", "held", "never"]

MoveSearch = Literal["found", "none exists", "none found"]


class AuditMetadata(Open):
    """Name, time and maker of an audit."""

    name: str
    created_at: Time
    generator: str


class AuditLevel(Open):
    """A topology level, ``node`` last."""

    level: str
    domains: Natural


class AuditCluster(Open):
    """The cluster in figures. ``gpus``: installed."""

    name: Name
    nodes: Natural
    gpus: Natural
    levels: Many[AuditLevel] = Field(description="Its levels, widest first, `node` last")


class AuditGpus(Open):
    """GPUs of the cluster."""

    installed: Natural = Field(description="Without partitioned ones")
    healthy: Natural = Field(description="Installed, without those reported unhealthy")
    held: Natural = Field(description="Held by running pods, or taken from the node otherwise")
    free: Natural = Field(description="Installed, and held by nobody")
    stranded: Gpus = Field(
        description="Free, and of no use to the next request of the policy's mix"
    )


class AuditCause(Open):
    """Why free GPUs are of no use. The causes add up to the stranded GPUs."""

    cause: str = Field(
        description="unhealthy, not ready, cordoned, not selected, tainted, spare, cpu or memory, "
        "node (too few left on it) or domain (too few whole nodes in it)"
    )
    gpus: Gpus
    nodes: Natural = Field(description="Nodes on which they are")
    detail: str


class AuditEffectiveGpus(Open):
    """GPUs of the gangs that run whole, times their predicted speed."""

    before: Gpus = Field(description="As the gangs stand now")
    unmoved: Gpus = Field(description="With the waiting gangs that could start without any move")
    allowed: Gpus = Field(description="With the moves that the gangs themselves allow")
    possible: Gpus = Field(description="In the re-plan, where every running gang may move")
    bound: Gpus = Field(description="What no better plan of the policy's tiers exceeds")


class AuditLoss(Open):
    """What the present placement costs, in effective GPUs."""

    gpus: Gpus = Field(description="What the re-plan regains: possible less before")
    at_most: Gpus = Field(description="What any re-plan could regain: bound less before")
    slow: float = Field(description="Of gpus: what running gangs gain in speed")
    waiting: Gpus = Field(description="Of gpus: what waiting gangs are worth that start")
    startable: Gpus = Field(description="Of gpus: what is regained without any move")
    startable_at_most: Gpus | None = omitted(
        description="What any plan without a move could regain; equal to `startable` where that is proven"
    )
    placement: Gpus = Field(description="Of gpus: the rest, lost to where running gangs stand")
    allowed: Gpus = Field(description="What moves regain that the gangs themselves allow")
    by_moves: float = omitted(
        default=0.0,
        description="Effective GPUs that all listed moves regain together. More than `placement` where the "
        "re-plan has fewer, because it starts gangs of higher priority",
    )
    money_per_day: Gpus | None = omitted(
        description="The price of `gpus` for a day, in the currency of the policy's gpuHourPrice"
    )
    money_per_day_at_most: Gpus | None = omitted(description="The price of `atMost` for a day")
    startable_money_per_day: Gpus | None = omitted(description="The price of `startable` for a day")
    placement_money_per_day: Gpus | None = omitted(description="The price of `placement` for a day")
    stranded_money_per_day: Gpus | None = omitted(
        description="The price of the stranded GPUs for a day"
    )


class AuditGang(Open):
    """A gang that runs now."""

    gang: str = Field(description="namespace/name")
    priority: int
    gpus: GpuAmount = Field(description="GPUs that it holds")
    bandwidth: Natural | None = Field(alias="bandwidthMBps")
    best: Natural | None = Field(
        alias="bestMBps", description="On the best GPUs that the cluster has for it"
    )
    share: Natural | None = Field(description="Of the best bandwidth, in permille")
    speed: Natural | None = Field(
        description="Predicted, in permille; null while pods of it are missing"
    )
    best_speed: Natural | None = Field(description="With the best GPUs for itself, in permille")
    lost_gpus: Gpus = Field(description="Effective GPUs that it lacks to its best speed")
    replan_speed: Natural | None = Field(description="In the re-plan, in permille")
    regains_gpus: float = Field(description="Effective GPUs that the re-plan gives it more")
    nodes: Many[Name] = Field(description="On which it stands, sorted")
    domains: Mapped[str, Natural] = Field(description="How many it uses of each level")
    movable: bool = Field(description="Whether it says that it may move")
    complete: bool = omitted(default=True, description="False while pods of it are missing")
    unknown_gpus: bool = omitted(
        default=False, description="Which GPUs of its nodes it holds is not known: the worst count"
    )
    fixed: str | None = omitted(description="Why no plan can move it; absent: it could move")


class AuditWhole(Open):
    """Wholly free nodes, or domains, of one level."""

    level: str
    now: Natural
    possible: Natural = Field(description="If running gangs stood closer and nothing else started")
    at_most: Natural | None = omitted(
        description="No placement of the running gangs has more; equal to `possible` where that is proven"
    )
    domains: Natural = Field(description="That have GPUs, free or not")


class AuditWaiting(Open):
    """A gang that waits now, or of which pods are missing."""

    gang: str = Field(description="namespace/name")
    priority: int
    gpus: GpuAmount
    starts_if: StartsIf
    reason: str | None = omitted(description="Why it cannot start without a move")
    moves: Many[Natural] = omitted(
        default=(), description="Positions, from 1, of the moves after which it starts"
    )


class AuditMovedGang(Open):
    """One gang of a move."""

    gang: str = Field(description="namespace/name")
    gpus: GpuAmount
    movable: bool = Field(description="Whether it says that it may move")
    leaves: Many[Name] = Field(alias="from", description="Nodes on which it stands now")
    comes: Many[Name] = Field(alias="to", description="Nodes on which it stands afterwards")
    speed: Natural | None = Field(description="Now, in permille")
    speed_after: Natural | None


class AuditStart(Open):
    """A waiting gang that starts with a move."""

    gang: str = Field(description="namespace/name")
    gpus: GpuAmount
    nodes: Many[Name]
    instead_of: Many[Name] = omitted(
        default=(), description="Nodes on which it would start without the move"
    )
    speed: Natural


class AuditMove(Open):
    """Gangs that restart elsewhere together, beyond what is possible without any move.

    The moves of an audit concern different gangs and nodes.
    """

    gangs: Many[AuditMovedGang]
    starts: Many[AuditStart] = omitted(
        default=(),
        description="Waiting gangs that start because of it, or elsewhere than without it",
    )
    waits: Many[str] = omitted(
        default=(), description="namespace/name of gangs that could start without it, and wait then"
    )
    restarts: Natural = Field(description="Running gangs that restart")
    gpus: GpuAmount = Field(description="GPUs that restart")
    lost_runtime: Natural | None = Field(
        alias="lostRuntimeGpuSeconds",
        description="GPU-seconds of work since the last checkpoint or start; null: not known",
    )
    regains_gpus: float = Field(description="Effective GPUs")
    bandwidth: int = Field(description="Permille of best bandwidths gained, times GPUs")
    whole_nodes: int = Field(description="Nodes more that are wholly free")
    whole_domains: int = Field(description="Innermost domains more that are wholly free")
    allowed: bool = Field(description="Whether all of its gangs say that they may move")


class AuditWholeRegain(Open):
    """What it takes to regain as much as the re-plan; the re-plan itself may restart more gangs."""

    restarts: Natural = Field(description="Running gangs that restart elsewhere")
    gpus: GpuAmount = Field(description="Their GPUs")


class AuditObjective(Open):
    """One tier of the policy: today, in the re-plan, and what no plan exceeds."""

    name: str
    sense: Sense
    now: int
    possible: int
    bound: int
    gap: Annotated[float, Field(ge=0)]
    proof: Proof | None


class AuditStatus(Open):
    """What was found."""

    gpus: AuditGpus
    stranded_why: Many[AuditCause] = Field(description="The largest cause first")
    effective_gpus: AuditEffectiveGpus
    lost: AuditLoss
    gangs: Many[AuditGang] = Field(description="Every running gang, what is lost most first")
    whole: Many[AuditWhole]
    waiting: Many[AuditWaiting] = Field(description="By priority, then by name")
    moves: Many[AuditMove] = Field(
        description="Those that regain most, most first; each may be done without the others"
    )
    move_search: MoveSearch = Field(
        description="Whether moves that regain effective GPUs were found, are proven not to exist, "
        "or were merely not found"
    )
    whole_regain: AuditWholeRegain = Field(
        description="What it takes to regain as much as the re-plan"
    )
    objectives: Many[AuditObjective]
    search: PlanSearch = Field(description="How the re-plan was found")
    notes: Many[str] = omitted(default=())
    remarks: Many[str] = omitted(default=(), description="What was odd in the input")
    plan: PlanDocument | None = omitted(
        description="The re-plan; absent where it is large: `--out-plan` saves it"
    )


class AuditDocument(Document):
    """What the present placement costs. ``status.plan`` has the instance as it was re-planned."""

    api_version: ApiVersion
    kind: Literal["Audit"]
    metadata: AuditMetadata
    cluster: AuditCluster
    status: AuditStatus
