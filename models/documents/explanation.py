"""What ``explain`` proves of one gang: why it waits, what makes it start, and why its place is its place."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import Field

from models.documents.base import Document, Many, Time, omitted
from models.tiers import Sense


class WhyCause(Document):
    """One thing that somebody can change. ``gpus``: that a gang holds, or a node has."""

    type: str
    name: str
    role: str | None = omitted()
    what: str = Field(description="What it does")
    relaxing: str = Field(description="What would end it")
    gpus: int | None = omitted()


class WhyPod(Document):
    """A pod where a remedy places it; nodes that a remedy adds are named ``~new-1`` and so on."""

    role: str
    index: int
    node: str
    gpus: Many[int] | None = Field(description="Null: the node decides")


class WhyRemedy(Document):
    """One way to make the gang start, which was tried: ``pods`` is the place that was found.

    ``change``: what is changed, by name. ``first``: gangs that wait and come before it, and would take the
    room. ``gangs``: those that stop, move or end; ``moved``: the pods of the one that moves.
    """

    type: str
    do: str
    at: Time | None = omitted(description="When it starts, if it has to wait")
    change: dict[str, Any] = omitted(default={})
    gangs: Many[str] = omitted(default=())
    first: Many[str] = omitted(default=())
    pods: Many[WhyPod]
    moved: Many[WhyPod] = omitted(default=())


class Why(Document):
    """Why a gang waits. ``standing`` says what is known of ``causes``.

    ``irreducible``: with these alone it provably cannot start, and without any one of them it can.
    ``enough``: with these alone it provably cannot start, but fewer may do. ``fits``: a place was found
    beside the plan. ``unknown``: nothing is proven. ``pods``: where it fits; ``tier``: the first tier that
    differs then.
    """

    standing: Literal["irreducible", "enough", "fits", "unknown"]
    said: str = Field(description="The same in a sentence")
    limit_seconds: int
    causes: Many[WhyCause] = ()
    remedies: Many[WhyRemedy] = ()
    complete: bool = Field(description="Whether every kind of remedy was tried in the time")
    pods: Many[WhyPod] = omitted(default=())
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

    ``possible`` False: ``why`` says what is missing there.
    """

    domain: str
    possible: bool
    tier: WhyTier | None = None
    why: str = ""


class PlaceReasons(Document):
    """Why a gang has its place. ``tried``: other domains of that level that were tried."""

    level: str
    domain: str
    tried: int
    others: Many[OtherPlace]


Why.model_rebuild()
