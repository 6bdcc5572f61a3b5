"""The dialect of an invented scheduler, as one file of ``planner/read/kube/dialects`` would hold it.

Pods name a Crew by a label; the annotation ``toy.example.com/slots`` lists the GPUs that a pod holds.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Dialect,
    GroupKey,
    GroupReader,
    HoldingReader,
    PodGroup,
    comma_list,
)
from planner.read.kube.lookup import text, whole
from planner.read.kube.records import KubeNode, KubeObject, KubePod, LevelAsk, Objects

CREW = "toy.example.com/crew"
SLOTS = "toy.example.com/slots"


def group_name(pod: KubePod) -> str | None:
    return pod.labels.get(CREW)


def describe(
    key: GroupKey, group: KubeObject | None, pods: Sequence[KubePod], api: Objects, remarks: Remarks
) -> PodGroup:
    del pods, api, remarks
    if group is None:
        return PodGroup(key)
    level = text(group.tree, "spec", "together")
    return PodGroup(
        key,
        group,
        minimum=whole(group.tree, "spec", "hands"),
        required=LevelAsk(label=level) if level else None,
    )


def slots(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    del node
    written = annotations.get(SLOTS)
    return None if written is None else comma_list(written)


DIALECT = Dialect(
    "Toy",
    groups=(GroupReader("Toy", "toy.example.com", group_name, describe, kind="Crew"),),
    holdings=(HoldingReader(f"annotation {SLOTS}", (SLOTS,), slots),),
)
