"""The PodGroup of scheduler-plugins (scheduling.x-k8s.io/v1alpha1), named by a label.

Promises: minMember pods are needed. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Group, GroupDialect, Link, marked
from planner.read.kube.lookup import whole
from planner.read.kube.records import KubeObject, KubePod, Objects

GROUP = "scheduling.x-k8s.io"
LABEL = "scheduling.x-k8s.io/pod-group"


def claim(pod: KubePod) -> str | None:
    return marked(pod, LABEL)


def find(found: Objects, namespace: str, name: str) -> KubeObject | None:
    return found.named(GROUP, "PodGroup", namespace, name)


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del pods, remarks
    made = find(found, link.namespace, link.name)
    minimum = whole(made.tree, "spec", "minMember") if made is not None else None
    return Group(link, made, minimum=minimum)


DIALECT = GroupDialect("scheduler-plugins", claim, find, describe)
