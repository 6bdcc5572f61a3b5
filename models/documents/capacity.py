"""The Capacity document: how many gangs of each shape could start, now and after a plan.

Written by ``gangplan capacity``, read by ``gangplan report``; unknown fields are kept.
"""

from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import ApiVersion, Document, Many, Mapped, Natural, Open, omitted
from models.documents.gang import LevelName
from models.documents.plan import PlanMetadata

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
