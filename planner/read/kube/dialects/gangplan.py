"""gangplan's own words on pods: the GPUs that a plan gave, the gang of a pod, the range of a role."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Dialect,
    GroupKey,
    GroupReader,
    HoldingReader,
    PodGroup,
    annotation,
    comma_list,
)
from planner.read.kube.records import KubeNode, KubeObject, KubePod, Objects

GPUS = "gangplan.dev/gpus"
GANG = "gangplan.dev/gang"
"""Label that names the gang of a pod; the annotation of that name is part of an intent."""

MIN, MAX, STEP = RANGE = ("gangplan.dev/min", "gangplan.dev/max", "gangplan.dev/step")
"""Annotations with the numbers of pods that a role may have."""


def is_elastic(annotations: Mapping[str, str]) -> bool:
    """Whether any annotation of a range is there."""
    return not annotations.keys().isdisjoint(RANGE)


def group_name(pod: KubePod) -> str | None:
    return pod.labels.get(GANG) or None


def describe(
    key: GroupKey, group: KubeObject | None, pods: Sequence[KubePod], api: Objects, remarks: Remarks
) -> PodGroup:
    del pods, api, remarks
    return PodGroup(key, group)


def planned_gpus(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``gangplan.dev/gpus: "0,1,2"``."""
    del node
    found = annotation(annotations, GPUS)
    return None if found is None else comma_list(found)


DIALECT = Dialect(
    "gangplan",
    precedence=140,
    groups=(GroupReader("gangplan", None, group_name, describe),),
    holdings=(HoldingReader(f"annotation {GPUS}", (GPUS,), planned_gpus),),
    annotations="gangplan.dev/",
)
