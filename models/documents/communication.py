"""How a gang communicates: pattern and weight, and the part of a step that it takes."""

from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import Document, decimal, omitted, whole

DEFAULT_FRACTION = Fraction(1, 4)
"""Part of a step that a gang spends in communication, unless it says otherwise (contract 8)."""

Pattern = Literal[
    "all-reduce",
    "all-gather",
    "all-to-all",
    "broadcast",
    "parameter-server",
    "pipeline",
    "reduce-scatter",
    "none",
]
"""Patterns; those without a formula of their own (``models.instance.gang``) count as all-reduce."""


MOST_FRACTION = Fraction("0.95")
"""Largest fraction of a gang (contract 8)."""

CommunicatingPart = Annotated[Fraction, *decimal(0, MOST_FRACTION)]


class Communication(Document):
    """How its GPUs communicate; `none`: no bandwidth counts, other patterns count as all-reduce."""

    pattern: Pattern = "all-reduce"
    weight: Annotated[int, whole(0, 1000)] = 1
    nvlink_across_nodes: bool = omitted(
        default=True,
        description="false: its pods use only the network between servers, even in an NVLink domain",
    )
    fraction: CommunicatingPart = Field(
        default=DEFAULT_FRACTION,
        description="Part of a step spent in communication where links are ideal",
    )
    speed: Literal["count", "ignore"] = omitted(
        default="count", description="ignore: as fast on slower GPU models"
    )
