"""What a Policy says of gangs that run or wait too long: moves, disruption, starvation.

Promises: types by pydantic; values as ``models.policy`` holds them. Called by ``policy``.
"""

from __future__ import annotations

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, PlainValidator

from models.documents.base import Document, Duration, decimal_check, decimal_schema, whole
from models.policy import DAY_S, Disruption, Moves

MAX_GAIN = 1_000_000
MAX_MOVED = 1_000_000_000

Gain = Annotated[Fraction, PlainValidator(decimal_check(0, MAX_GAIN)), decimal_schema(0, MAX_GAIN)]
Limit = Annotated[int, whole(0, MAX_MOVED)]


class MovesDocument(Document):
    """How much may restart elsewhere in one plan, and what it must be worth."""

    max_gangs: Limit | None = Field(
        default=None, description="Most gangs of which any pod moves; absent: no limit"
    )
    max_gpus: Limit | None = Field(
        default=None,
        alias="maxGPUs",
        description="Most GPUs of those gangs together; absent: no limit",
    )
    min_gain: Gain = Field(
        default=Fraction(0),
        description="GPUs that a set of moves must buy for each GPU that it restarts",
    )

    def to_moves(self) -> Moves | None:
        """The limits; None where none is set."""
        found = Moves(self.max_gangs, self.max_gpus, self.min_gain)
        return None if found == Moves() else found


class DisruptionDocument(Document):
    """What it costs to stop, move or shrink a gang."""

    weight: Literal["gpus", "lostRuntime"] = Field(
        default="gpus", description="gpus: its GPUs; lostRuntime: GPUs times seconds of lost work"
    )
    cap: Duration = Field(
        default=DAY_S,
        description="The most lost work that counts, and what an unknown start counts",
        json_schema_extra={"default": "24h"},
    )

    def to_disruption(self) -> Disruption:
        return Disruption(self.weight, self.cap)


class StarvationDocument(Document):
    """When a gang has waited for too long."""

    after: Duration = Field(description="One that waited longer goes before its priority peers")
