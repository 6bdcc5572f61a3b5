"""The Plan document: the instance that was planned, the decisions, and what was proven.

The schema of a plan and its only reader. The instance is read as strictly as any input; elsewhere unknown
fields are kept, so that an older program reads the plans of a newer one.
"""

from collections import Counter
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
    Title,
    omitted,
    whole,
)
from models.documents.cluster import ClusterDocument
from models.documents.gang import MAX_PODS, MAX_RANK, GangDocument
from models.documents.policy import NO_COST, PolicyDocument, WhatIf
from models.documents.queue import QueueDocument
from models.documents.reason import ReasonFields
from models.documents.server import GpuIndices
from models.instance.policy import EVERY_SCHEDULER, kubernetes_policy
from models.instance.solution import NEVER, Cause, Decision, PassedOver, Proof, StoppedBy
from models.tiers import Sense
from models.units import SHOWN_SCHEDULERS, plural

EffectiveGpus = Annotated[float, Field(ge=0)]
GangKey = tuple[str, str]
"""(namespace, name)."""


class PlanMetadata(Open):
    """Name, time and maker of a plan."""

    name: str
    created_at: Time
    generator: str


class PlanInstance(Document):
    """What was planned, canonical and complete."""

    cluster: ClusterDocument
    gangs: Many[GangDocument]
    policy: PolicyDocument
    queues: Many[QueueDocument] = omitted(())
    changes: WhatIf | None = omitted(None, alias="whatIf")
    """How it differs from the input of the plan, which then cannot be applied"""

    @property
    def now(self) -> int:
        """The time ages are counted to: the policy's ``now``, else the latest time of a gang."""
        if self.policy.spec.now is not None:
            return self.policy.spec.now
        known = (time for gang in self.gangs for time in (gang.queued_at, gang.safe_since))
        return max((time for time in known if time is not None), default=0)

    @property
    def what_if(self) -> str | None:
        """What makes it a what-if, in words that follow "a what-if ": such a plan cannot be applied."""
        said = [] if self.others is None else [f"for {self.others}"]
        if self.policy.spec.disruption.weight == NO_COST:
            said.append("with restarts that cost nothing")
        return ", ".join([*said, *([] if self.changes is None else self.changes.words())]) or None

    @property
    def others(self) -> str | None:
        """Whose pods it plans besides gangplan's, in words."""
        gangs = Counter(gang.status.scheduler for gang in self.gangs if gang.status.scheduler)
        if gangs:
            named = sorted(gangs, key=lambda name: (-gangs[name], name))
            words = [
                f"{plural(gangs[name], 'gang')} of {name}" for name in named[:SHOWN_SCHEDULERS]
            ]
            rest = sum(gangs[name] for name in named[SHOWN_SCHEDULERS:])
            return ", ".join([*words, *([f"{plural(rest, 'gang')} of others"] if rest else [])])
        settings = kubernetes_policy(self.policy.spec.kubernetes)
        if settings.plans(EVERY_SCHEDULER):
            return "every scheduler"
        return ", ".join(settings.scheduler_names) if settings.plans_others else None

    def gangs_by_key(self) -> dict[GangKey, GangDocument]:
        return {gang.key: gang for gang in self.gangs}

    def installed_gpus(self) -> dict[str, int]:
        """GPUs of every node by its name, healthy or not."""
        gpus = {model.name: model.gpus for model in self.cluster.spec.server_models}
        return {node.name: gpus.get(node.model or "", 0) for node in self.cluster.spec.nodes}


class PlanPod(Open):
    """A pod after the plan."""

    name: Name
    role: Name
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name
    gpus: GpuIndices | None = Field(description="Indices of its GPUs; null: the node decides")
    uid: Name | None = omitted()
    rank: Annotated[int, whole(0, MAX_RANK)] | None = omitted(None)
    """Rank of its first GPU among those of its role"""


class PlanReservation(Open):
    """When and where a gang starts at the latest, if gangs that run end as expected.

    Of a gang that the plan places: what was held for it, so that others did not take it; without nodes, it
    had to start, for its turn had come.
    """

    start: Time
    domain: str | None = Field(
        description='The narrowest domain that holds its nodes, such as "rack r1"'
    )
    nodes: Many[Name] = Field(description="Its nodes, sorted")
    pods: Many[PlanPod] = Field(description="Its pods, at their least number")
    beside: Many[str] = omitted(())
    """namespace/name of gangs before it that may come to the nodes, sorted"""


class PlanDelay(Open):
    """A start that an earlier plan stated, and why it is later now, or dropped."""

    promised: Time
    cause: Cause
    """Arrival: gangs came since that go before it, or run where it was to start, or are within the
    guarantee of a queue, or need less by now (order: shortest). Failure: nodes there, or others since,
    are out of order or gone. Overrun: gangs end later than was expected. Input: none of these, the
    input is another"""
    by: Many[str] = omitted(())
    """namespace/name of the gangs, or names of the nodes; at most 8, sorted"""


class PlanReason(Open):
    """Why a gang waits, is stopped or lacks pods."""

    code: Name
    message: str = Field(description="The fields in words, for people; no program reads them")
    fields: ReasonFields | None = omitted(None, "Absent where there is nothing but the code")


class PlanGang(Open):
    """One decision."""

    namespace: Name
    name: Name
    decision: Decision
    aged: bool = omitted(default=False)
    """It has waited for longer than the policy's starvation limit"""
    pods: Many[PlanPod]
    gpus: GpuAmount | None = omitted(None)
    """Of a gang with parts of GPUs, how many it counts: after the plan; at its smallest if it waits; before
    the plan if it is stopped"""
    bandwidth: Natural | None = Field(alias="bandwidthMBps")
    share: Natural | None
    speed: Natural | None = None
    """The predicted speed that counts, in permille; null where it does not run"""
    speed_after: Natural | None = omitted(None)
    """The speed that it will have, where a lower one before the plan counts"""
    domains: Mapped[str, Natural] | None
    reason: PlanReason | None
    reserved: PlanReservation | None = omitted()
    expected_start: Time | None = omitted(None)
    """An estimate, if nothing new arrives; of gangs that wait without a reservation"""
    passed_over: PassedOver | None = omitted(None)
    """Why a gang behind it, of its priority, holds a reservation and it does not. NoStart: no start was found
    within the horizon. Promised: an earlier plan promised that gang a start"""
    delayed: PlanDelay | None = omitted(None)
    """With --previous: it starts later than that plan stated, or has no reservation now"""

    @property
    def key(self) -> GangKey:
        return (self.namespace, self.name)

    @property
    def speed_to_come(self) -> int | None:
        """The speed that it will have, whatever counts."""
        return self.speed if self.speed_after is None else self.speed_after

    @property
    def never(self) -> bool:
        """Waiting, and too large or too particular for the cluster even if nothing else ran."""
        return self.decision == "wait" and self.reason is not None and self.reason.code == NEVER

    @property
    def incomplete(self) -> bool:
        """Running with pods missing: kept, but not admitted."""
        return self.decision == "keep" and self.reason is not None


class PlanPartition(Open):
    """A GPU of a node with `dynamicMig`, and the instances that it is to get, beside those in use."""

    node: Name
    gpu: Natural
    profiles: Many[Title]
    anew: bool = omitted(default=False)
    """The instances that it has are all gone first; without `profiles` it is whole then"""


class PlanShare(Open):
    """A GPU of a node with `sharing`, and the parts of it that the plan gives."""

    node: Name
    gpu: Natural | None = Field(description="Its index; null: not known, or the node decides")
    gpu_group: Title | None = omitted(None)
    """Its name, where pods share it already and its index is not known"""
    parts: Many[Title]
    """Fractions as `0.25`, memory and cores in percent as `12288Mi-30` or `0.5-30`"""


class PlanSpec(Open):
    """One decision a gang, by (namespace, name)."""

    gangs: Many[PlanGang]
    partitions: Many[PlanPartition] = omitted(())
    """GPUs to partition before the plan is applied, by node and GPU"""
    shares: Many[PlanShare] = omitted(())
    """GPUs that pods which come share, by node; first those that are shared already"""


class PlanObjective(Open):
    """One tier: its value and what was proven of it."""

    name: str
    sense: Sense
    value: int
    best: int
    bound: int
    gap: Annotated[float, Field(ge=0)]
    proof: Proof | None

    @property
    def family(self) -> str:
        """The name without the priority: ``admission`` of ``admission/10``."""
        return self.name.partition("/")[0]

    @property
    def proven(self) -> bool:
        return self.gap == 0 and self.proof is not None

    @property
    def bounded(self) -> bool:
        """Whether the search found its bound; otherwise ``bound`` follows from the queue alone."""
        return self.gap == 0 or self.proof is not None


class PlanSearch(Open):
    """How the plan was found."""

    solver: str
    seed: int
    effort: float = 0.0
    solver_calls: Annotated[int, Field(ge=0)] | None = omitted(None)
    """Calls of solvers in the search"""
    stopped_by: StoppedBy


class PlanPriorityGpus(Open):
    """Effective GPUs of the gangs of one priority."""

    priority: int
    after: EffectiveGpus = Field(description="Of the gangs that run after the plan")
    one_at_a_time: EffectiveGpus = Field(description="If gangs are taken one after another")


class PlanEffectiveGpus(Open):
    """GPUs of the gangs that run whole, times their predicted speed; exact, with up to three digits."""

    before: EffectiveGpus = Field(description="Of the gangs that run now")
    after: EffectiveGpus = Field(description="Of the gangs that run after the plan")
    one_at_a_time: EffectiveGpus | None = omitted(None)
    """What the same queue gives if gangs are taken one after another"""
    by_priority: Many[PlanPriorityGpus] = omitted(())
    """Only in plans with fewer than `oneAtATime`: which priorities have more and which fewer, the highest
    first; priorities with none are left out"""

    def known(self) -> dict[str, float]:
        """The figures that it has, by name."""
        figures = {"before": self.before, "after": self.after}
        if self.one_at_a_time is not None:
            figures["one_at_a_time"] = self.one_at_a_time
        return figures


class PlanBought(Open):
    """What a plan has beyond the best plan found without a set of moves."""

    gangs: Many[str] = Field(description="namespace/name of the gangs admitted beyond it")
    gpus: int | float = Field(description="GPUs of all admitted gangs")
    effective_gpus: float | None = omitted(None)
    """Effective GPUs of all admitted gangs; only where the policy lists goodput"""
    bandwidth: int | float
    """GPUs times permille of their best possible bandwidth"""
    whole_nodes: int = Field(description="Nodes left wholly free")
    whole_domains: int = Field(description="Innermost domains left wholly free")


class PlanMoves(Open):
    """Gangs that restart elsewhere together, and what that bought."""

    gangs: Many[str] = Field(description="namespace/name of the gangs that move")
    gpus: GpuAmount = Field(description="All GPUs that they hold")
    bought: PlanBought
    gain: float
    """GPUs bought, of all kinds, for each GPU moved; effective ones under goodput"""


class PlanQueueModel(Open):
    """GPUs of one model that a queue is promised, may hold and holds."""

    model: str
    guarantee: GpuAmount
    limit: GpuAmount | None = omitted()
    before: GpuAmount
    after: GpuAmount


class PlanQueueCell(Open):
    """Equal cells of a queue."""

    count: Natural
    level: str | None = omitted()
    gpus: Natural | None = omitted()
    model: str | None = omitted()
    domain: str | None = omitted(None, "Of a pinned cell: the very domain of the level")
    nodes: Many[Name] = omitted((), "Of a pinned cell: the very nodes")


class PlanQueue(Open):
    """GPUs that gangs in a queue, and in those below it, are promised, may hold and hold."""

    name: str
    parent: str | None = omitted()
    guarantee: GpuAmount = Field(description="Promised, of all models together")
    limit: GpuAmount | None = omitted(None, "The most that they may hold; absent: no limit")
    before: GpuAmount = Field(description="Held before the plan")
    after: GpuAmount = Field(description="Held after the plan")
    borrowed: GpuAmount = Field(description="Of them, beyond the guarantee")
    waiting: GpuAmount = Field(description="GPUs of its gangs that do not run after the plan")
    models: Many[PlanQueueModel] = omitted(())
    """The same of each GPU model that its guarantee or its limit names"""
    cells: Many[PlanQueueCell] = omitted((), "Its cells, equal ones together")


class PlanUnchecked(Open):
    """A field of the plan that ``verify`` does not check, or not wholly."""

    field: str = Field(description="Its path, such as `spec.gangs[].expectedStart`")
    codes: Many[str] = omitted((), "Of a field of reasons: codes for which that is so; absent: all")
    why: str = Field(description="Why not, for people; no program reads it")


class PlanDigests(Open):
    """``sha256:<hex>`` of parts of the plan, as compact JSON with sorted keys."""

    instance: str
    spec: str


class PlanUnable(Open):
    """A gang that waits and is not known to be able to start on the empty cluster: it uses up no guarantee.

    Nobody in a strict queue waits for it either, but where ``now`` is true.
    """

    gang: str = Field(description="namespace/name")
    proven: bool = Field(description="Whether it is proven that it cannot")
    now: bool = omitted(default=False)
    """true: it could if every node were in order and free of pods of no gang; as they are, no"""


class PlanStatus(Open):
    """What was proven, how it was found, and digests of what it is about."""

    outcome: Literal["optimal", "feasible"]
    gpu_unit: Literal[1, 1000] = omitted(1)
    """What tiers count a whole GPU as: 1000, so thousandths, where pods have parts of GPUs"""
    objectives: Many[PlanObjective]
    search: PlanSearch
    effective_gpus: PlanEffectiveGpus | None = omitted()
    queues: Many[PlanQueue] = omitted((), "By name; only with Queues")
    unable: Many[PlanUnable] = omitted(())
    """Gangs that go on waiting, are in a strict queue or would use up a guarantee, and are not known to be
    able to start on the empty cluster: by namespace and name"""
    unclaiming: Many[str] = omitted(())
    """Gangs that the plan starts though they are not known to be able to start on the empty cluster (queues
    hold more than they may, or cells are broken into): namespace/name, sorted. While they waited they used
    up no guarantee"""
    moves: Many[PlanMoves] = omitted((), "Only in plans that move gangs")
    notes: Many[str] = Field(default=(), description="What the plan assumes")
    remarks: Many[str] = omitted((), "What was odd in the input")
    left_out: Mapped[Name, Natural] = omitted({})
    """Waiting pods of other schedulers that are not planned, by scheduler"""
    unchecked: Many[PlanUnchecked] = omitted(())
    """What `verify` does not check, or not wholly; all of it, if anything"""
    digests: PlanDigests


class PlanDocument(Document):
    """A plan: complete in itself."""

    api_version: ApiVersion
    kind: Literal["Plan"]
    metadata: PlanMetadata
    instance: PlanInstance
    spec: PlanSpec
    status: PlanStatus
