"""gangplan's own words on pods: the GPUs that a plan gave, the gang of a pod, the range of a role."""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects.base import Dialect, GroupReader, HoldingReader, PodGroup, listed

GPUS = "gangplan.dev/gpus"
GANG = "gangplan.dev/gang"
"""Label that names the gang of a pod; the annotation of that name is part of an intent."""

MIN, MAX, STEP = RANGE = ("gangplan.dev/min", "gangplan.dev/max", "gangplan.dev/step")
"""Annotations with the numbers of pods that a role may have."""


def is_elastic(annotations: Mapping[str, str]) -> bool:
    """Whether any annotation of a range is there."""
    return not annotations.keys().isdisjoint(RANGE)


planned_gpus = listed(GPUS)


DIALECT = Dialect(
    "gangplan",
    precedence=140,
    groups=(GroupReader("gangplan", None, lambda of: PodGroup(of.key), labels=(GANG,)),),
    holdings=(HoldingReader(f"annotation {GPUS}", (GPUS,), planned_gpus),),
    annotations="gangplan.dev/",
)
