"""The Policy document: objectives, mix of future requests, defaults and the search budget.

Promises: types by pydantic, contradictions by ``complaints``. Called by the readers.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from fractions import Fraction
from typing import Annotated, Literal

from pydantic import Field, PlainValidator, WithJsonSchema

from models.documents.base import (
    ApiVersion,
    Complaint,
    Document,
    Duration,
    LabelKey,
    LabelValue,
    Many,
    Mapped,
    Name,
    decimal_check,
    decimal_schema,
    whole,
)
from models.documents.gang import Share
from models.documents.suggesting import suggestion
from models.policy import DEFAULT_OBJECTIVES
from models.quantities import Refused, shown

MAX_TOLERANCE = 1000
MAX_MIX_GPUS = 1_000_000_000

Tolerance = Annotated[
    Fraction, PlainValidator(decimal_check(0, MAX_TOLERANCE)), decimal_schema(0, MAX_TOLERANCE)
]


def _gpu_count(key: object) -> int:
    """A key of ``mix``: a whole number of GPUs, written as text in JSON."""
    if isinstance(key, str) and re.fullmatch(r"[1-9][0-9]{0,9}", key) and int(key) <= MAX_MIX_GPUS:
        return int(key)
    raise Refused(f"{shown(key)} is not a number of GPUs", "write it like mix: {1: 300, 8: 700}")


GpuCount = Annotated[
    int, PlainValidator(_gpu_count), WithJsonSchema({"type": "string", "pattern": "^[1-9][0-9]*$"})
]


class ObjectiveDocument(Document):
    """One tier; later tiers may give away `tolerance` of it."""

    name: str = Field(json_schema_extra={"enum": list(DEFAULT_OBJECTIVES)})
    tolerance: Tolerance = Fraction(0)


class SolveDocument(Document):
    """How long to search."""

    budget: Annotated[int, whole(1, 1_000_000)] = Field(
        default=60, description="Deterministic effort: what keeps plans equal"
    )
    time_limit: Duration = Field(
        default=120, description="A guard on the clock", json_schema_extra={"default": "120s"}
    )
    workers: Annotated[int, whole(1, 256)] = 2
    seed: Annotated[int, whole(0, 2**31 - 1)] = 0


class PolicySpec(Document):
    """What is best, and how hard to look for it."""

    objectives: Many[ObjectiveDocument] | None = Field(
        default=None, description="Tiers in order; absent: all of them in their usual order"
    )
    mix: Mapped[GpuCount, Annotated[int, whole(0, 1000)]] | None = Field(
        default=None, description="Permille of future requests by GPUs; absent: from the input"
    )
    min_bandwidth_share: Share = Field(default=Fraction(0), description="Default for every gang")
    gpu_binding: Literal["exact", "none"] = Field(
        default="exact", description="exact: the GPUs named are given; none: the node decides"
    )
    node_selector: Mapped[LabelKey, LabelValue] = Field(
        default={}, description="Which nodes are ours to use"
    )
    solve: SolveDocument = SolveDocument()


class PolicyMetadata(Document):
    """Name of a policy."""

    name: Name = "default"


class PolicyDocument(Document):
    """How to plan; without one, the defaults hold."""

    api_version: ApiVersion
    kind: Literal["Policy"]
    metadata: PolicyMetadata = PolicyMetadata()
    spec: PolicySpec = PolicySpec()

    def complaints(self) -> Iterator[Complaint]:
        """Contradictions inside the policy; paths start at its top."""
        seen: set[str] = set()
        for i, objective in enumerate(self.spec.objectives or ()):
            path = ("spec", "objectives", i, "name")
            if objective.name not in DEFAULT_OBJECTIVES:
                hint = suggestion(objective.name, DEFAULT_OBJECTIVES, "objectives")
                yield Complaint(path, f"unknown objective {shown(objective.name)}", hint)
            elif objective.name in seen:
                yield Complaint(
                    path, f"objective {shown(objective.name)} is listed twice", "list it once"
                )
            seen.add(objective.name)
        if (total := sum((self.spec.mix or {}).values())) > 1000:
            yield Complaint(
                ("spec", "mix"), f"the mix adds up to {total} permille", "the most is 1000"
            )
        if self.spec.solve.time_limit < 1:
            yield Complaint(
                ("spec", "solve", "timeLimit"), "a time limit under one second", "write 1s or more"
            )
