"""What ``explain`` proves of one gang: why it waits, what makes it start, and why its place is its place."""

from __future__ import annotations

from typing import Any

from pydantic import Field

from models.documents.base import Document, Many, Time, omitted
from models.documents.reason import ReasonFields
from models.tiers import Sense


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


Why.model_rebuild()
