"""The PodGroup of scheduler-plugins (scheduling.x-k8s.io/v1alpha1), named by a label."""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import (
    Dialect,
    GroupKey,
    GroupReader,
    PodGroup,
    label_or_annotation,
)
from planner.read.kube.dialects.elastic_quotas import PLUGINS_QUOTAS
from planner.read.kube.lookup import whole
from planner.read.kube.records import KubeObject, KubePod, Objects

GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"


def group_name(pod: KubePod) -> str | None:
    return label_or_annotation(pod, LABEL)


def describe(
    key: GroupKey, group: KubeObject | None, pods: Sequence[KubePod], api: Objects, remarks: Remarks
) -> PodGroup:
    del pods, api, remarks
    minimum = whole(group.tree, "spec", "minMember") if group is not None else None
    return PodGroup(key, group, minimum=minimum)


DIALECT = Dialect(
    "scheduler-plugins",
    groups=(GroupReader("scheduler-plugins", GROUP, group_name, describe),),
    quotas=PLUGINS_QUOTAS,
)
