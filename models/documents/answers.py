"""What verbs other than plan answer: gangs that could start, two plans side by side, why a gang waits.

Capacities and comparisons keep unknown fields.
"""

from typing import Annotated, Any, Literal

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Document,
    GpuAmount,
    Many,
    Mapped,
    Natural,
    Open,
    Time,
    omitted,
)
from models.documents.gang import LevelName
from models.documents.plan import PlanMetadata
from models.documents.reason import ReasonFields
from models.tiers import Sense

Positive = Annotated[int, Field(ge=1)]
After = Annotated[Natural | None, Field(description="After the plan; null where no plan was given")]


class CapacityQuestion(Open):
    """Which nodes count: those that are ready, not cordoned, selected by the policy, and of this kind."""

    model: str | None = omitted(None, "A GPU model or a server model")
    node_selector: Mapped[str, str] = omitted({}, "Labels the nodes must have")
    tolerate: Many[str] = omitted(())
    """Keys of taints that the pods tolerate besides those of GPU resources"""


class CapacityCluster(Open):
    """The nodes that count, and their GPUs."""

    name: str
    nodes: Natural = Field(description="Nodes that count")
    gpus: Natural = Field(description="Installed GPUs of these nodes")
    before: Natural = Field(description="Of them, GPUs that a new pod could have now")
    after: After


class CapacityLevel(Open):
    """Gangs of a shape that could start together, each in one domain of a level."""

    level: LevelName
    domain: str | None
    """Path of the domain, such as b1/r2; null: all domains of the level together"""
    before: Natural
    after: After


class CapacityShape(Open):
    """Equal gangs: ``4x8@rack`` is four pods of eight GPUs in one rack."""

    shape: str
    pods: Positive
    gpus: Positive = Field(description="GPUs of each pod")
    level: LevelName | None = Field(description="The level that a gang may not leave; null: none")
    before: Natural
    """The most that could start together now, none sharing a GPU"""
    after: After
    levels: Many[CapacityLevel]
    """All domains of every level together, then each domain with room of the levels above node, widest
    first"""


class CapacityLargest(Open):
    """The largest gang of pods of one size that could start alone inside one domain of a level."""

    gpus: Positive = Field(description="GPUs of each pod")
    level: LevelName | None = Field(description="null: anywhere in the cluster")
    before: Natural = Field(description="Pods")
    after: After
    domain: str | None
    """Where: after the plan, else now; null for the whole cluster and where none fits"""


class CapacityOfPart(Open):
    """Pods with one instance (MIG) or part of a GPU each that could start inside one domain of a level."""

    part: str = Field(description="The profile of the instance, or what is asked of a shared GPU")
    level: LevelName | None = Field(description="null: anywhere in the cluster")
    before: Natural
    """Pods, beside whole GPUs and parts that are given; on GPUs that are shared at least so many, for these
    parts stay where they are"""
    after: After
    domain: str | None
    """Where: after the plan, else now; null for the whole cluster and where none fits"""


class CapacityStatus(Open):
    """What was counted."""

    shapes: Many[CapacityShape]
    largest: Many[CapacityLargest] = Field(description="By GPUs of a pod, then widest level first")
    parts: Many[CapacityOfPart] = omitted(())
    """By part, as one that gangs ask for or nodes offer, then widest level first"""
    notes: Many[str] = omitted((), "What the counts leave out")


class CapacityDocument(Document):
    """Gangs that could start, counted exactly: pods are equal, and a gang stays on one GPU model."""

    api_version: ApiVersion
    kind: Literal["Capacity"]
    metadata: PlanMetadata
    spec: CapacityQuestion
    cluster: CapacityCluster
    status: CapacityStatus


Side = Literal["first", "second"]
Effect = Literal["runs", "waits", "stops", "moves", "elsewhere", "new", "gone", "other"]
Change = Literal["presence", "decision", "pods", "nodes", "gpus", "bandwidth", "share", "speed"]


class ComparedPlan(Open):
    """One of the plans."""

    file: str
    name: str
    created_at: Time
    outcome: str
    what_if: str | None = omitted(None, "What it supposes, in words")
    instance: str = Field(description="Digest of its input")
    nodes: Natural
    gangs: Natural
    effective_gpus: float | None = Field(description="After the plan; null where it does not say")


class ComparedValue(Open):
    """A tier of one plan."""

    value: int
    bound: int | None = Field(description="null where the search found none")
    proven: bool


class ComparedTier(Open):
    """A tier of either plan."""

    name: str
    sense: Sense
    first: ComparedValue | None = Field(description="null where the plan does not have the tier")
    second: ComparedValue | None
    better: Side | None = Field(description="Whose value is better; null where neither is")


class ComparedDecision(Open):
    """What one plan decides of a gang."""

    decision: str
    pods: Natural
    gpus: GpuAmount | None
    """null where the node decides and the request is unknown"""
    nodes: Many[str] = Field(description="Its nodes, as host ranges")
    bandwidth: Natural | None = Field(alias="bandwidthMBps")
    share: Natural | None
    speed: Natural | None
    reason: str | None


class ComparedGang(Open):
    """A gang that differs."""

    gang: str = Field(description="namespace/name")
    first: ComparedDecision | None = Field(description="null where the plan does not have the gang")
    second: ComparedDecision | None
    changed: Many[Change]
    effect: Effect
    """From the base, else the first, to the other plan: `runs` instead of waiting, `waits` instead of
    running, `stops`, `moves`, is `elsewhere`, `new` or `gone`, or differs in something else"""


class ComparedQueue(Open):
    """GPUs that a queue holds after each plan, and waits for; null where the plan does not have it."""

    queue: str
    first: Natural | None
    second: Natural | None
    first_waiting: Natural | None
    second_waiting: Natural | None


class ComparedNodes(Open):
    """Nodes that only one plan has, and nodes that differ, as host ranges."""

    first: Many[str]
    second: Many[str]
    changed: Many[str]


class ComparedInput(Open):
    """How the inputs of the plans differ, besides what the what-if states; nodes as host ranges."""

    same: bool = Field(description="Both have the same nodes, gangs and queues")
    first_nodes: Many[str] = omitted((), "Of the first alone")
    second_nodes: Many[str] = omitted(())
    changed_nodes: Many[str] = omitted(())
    first_gangs: Many[str] = omitted((), "Of the first alone")
    second_gangs: Many[str] = omitted(())
    changed_gangs: Many[str] = omitted((), "That ask for something else, or run elsewhere")
    queues: Many[str] = omitted((), "That differ")
    policy: Many[str] = omitted((), "Fields of the Policy that differ")


class ComparisonStatus(Open):
    """What differs."""

    same: bool = Field(description="Nothing below differs")
    base: Side | None
    """Which one the other, a what-if, changes; null if neither states so"""
    input: ComparedInput
    better: Side | None
    """Better at the first tier of both that differs; null where the inputs differ"""
    decided_by: str | None = Field(description="That tier")
    tiers: Many[ComparedTier] = Field(description="All of them, in order")
    gangs: Many[ComparedGang] = Field(description="Those that differ")
    queues: Many[ComparedQueue] = omitted((), "Those that differ")
    nodes: ComparedNodes
    remarks: Many[str] = omitted((), "What makes values hard to compare")


class ComparisonDocument(Document):
    """Two plans side by side."""

    api_version: ApiVersion
    kind: Literal["Comparison"]
    metadata: PlanMetadata
    first: ComparedPlan
    second: ComparedPlan
    status: ComparisonStatus


class WhyPod(Document):
    """A pod where a remedy places it; nodes that a remedy adds are named ``~new-1`` and so on."""

    role: str
    index: int
    node: str
    gpus: Many[int] | None = Field(description="Null: the node decides")


class WhyRemedy(Document):
    """One way to make the gang start, which was tried: ``pods`` is the place that was found.

    ``change``: what is to be done, as fields of its type. ``byHand``: no plan does it. ``first``: gangs that
    would take the room first. ``replanned``: a new plan says so, with everything else free. ``gangs``: those
    that stop, move or end; ``moved``: the pods of the one that moves.
    """

    type: str
    by_hand: bool = omitted(default=False)
    replanned: bool = omitted(default=False)
    at: Time | None = omitted(None, "When it starts, if it has to wait")
    change: dict[str, Any] = omitted({})
    gangs: Many[str] = omitted(())
    first: Many[str] = omitted(())
    pods: Many[WhyPod]
    moved: Many[WhyPod] = omitted(())


class WhyTier(Document):
    """A tier in which two plans differ: its value in this plan, and in the other one."""

    name: str
    sense: Sense
    here: int
    there: int

    @property
    def better(self) -> bool:
        """Whether the other plan is better."""
        return self.there > self.here if self.sense == "max" else self.there < self.here


class Why(Document):
    """What makes a gang start that waits: ways that were tried, the cheapest first; none if it is held.

    ``fits``: where it has a place beside the plan, so that none are needed; ``tier``: the first tier that
    differs then.
    """

    limit_seconds: int
    remedies: Many[WhyRemedy] = ()
    complete: bool = Field(description="Whether every kind of remedy was tried in the time")
    fits: Many[WhyPod] = omitted(())
    tier: WhyTier | None = omitted()


class OtherPlace(Document):
    """The gang in another domain with everything else as planned. ``tier`` null: as good in every tier.

    ``possible`` False: ``code`` and ``fields``, as of a reason, say what is missing there, if that is known.
    """

    domain: str
    possible: bool
    tier: WhyTier | None = None
    code: str | None = None
    fields: ReasonFields = ReasonFields()


class PlaceReasons(Document):
    """Why a gang has its place. ``tried``: other domains of that level that were tried."""

    level: str
    domain: str
    tried: int
    others: Many[OtherPlace]


class Excluded(Document):
    """Nodes that are no candidates: a word for the cause, and what of the role, node or queue it is about."""

    cause: str
    about: Many[str]
    nodes: int


class Candidates(Document):
    """The nodes for one role; each is excluded by the first cause that holds for it.

    ``eligible_nodes``: that accept the role and are large enough. ``free_gpus``: there after the plan;
    ``pods``: that fit beside it, each node by itself. ``needed_pods``: that the gang lacks.
    """

    role: str
    needed_pods: int
    excluded: Many[Excluded]
    eligible_nodes: int
    free_gpus: int
    pods: int
