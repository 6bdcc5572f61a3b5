"""The dialect of an invented scheduler, as one file of ``planner/read/kube/dialects`` would hold it.

Pods name a Crew by a label; the annotation ``toy.example.com/slots`` lists the GPUs that a pod holds.
"""

from __future__ import annotations

from planner.read.kube.dialects.base import (
    Dialect,
    Grouped,
    GroupReader,
    HoldingReader,
    PodGroup,
    listed,
)
from planner.read.kube.lookup import text, whole
from planner.read.kube.records import LevelAsk

CREW = "toy.example.com/crew"
SLOTS = "toy.example.com/slots"


def describe(crew: Grouped) -> PodGroup:
    group = crew.object
    if group is None:
        return PodGroup(crew.key)
    level = text(group.tree, "spec", "together")
    return PodGroup(
        crew.key,
        group,
        minimum=whole(group.tree, "spec", "hands"),
        required=LevelAsk(label=level) if level else None,
    )


DIALECT = Dialect(
    "Toy",
    groups=(GroupReader("Toy", "toy.example.com", describe, "Crew", labels=(CREW,)),),
    holdings=(HoldingReader(f"annotation {SLOTS}", (SLOTS,), listed(SLOTS)),),
)
