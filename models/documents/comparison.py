"""The Comparison document: what differs between two plans, tier by tier and gang by gang.

Written by ``gangplan compare``; unknown fields are kept.
"""

from typing import Literal

from pydantic import Field

from models.documents.base import (
    ApiVersion,
    Document,
    GpuAmount,
    Many,
    Natural,
    Open,
    Time,
    omitted,
)
from models.documents.plan import PlanMetadata
from models.tiers import Sense

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
