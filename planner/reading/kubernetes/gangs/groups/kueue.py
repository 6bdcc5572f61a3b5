"""Kueue's groups of plain pods: a label names the group, an annotation counts it.

Promises: the group needs all its pods. Called through ``gangs.table``.
"""

from __future__ import annotations

from collections.abc import Sequence

from planner.reading.kubernetes.forms import KubePod, Objects
from planner.reading.kubernetes.gangs.forms import Group, GroupDialect, Link, no_object
from planner.reading.kubernetes.looking import number
from planner.reading.remarks import Remarks

NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


def claim(pod: KubePod) -> str | None:
    return pod.labels.get(NAME) or None


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del found
    counts = {pod.annotations.get(TOTAL) for pod in pods} - {None}
    group = Group(link, minimum=max((number(count) or 0 for count in counts), default=0) or None)
    if len(counts) > 1:
        remarks.add(group.subject, f"its pods disagree about {TOTAL}; the largest counts")
    return group


DIALECT = GroupDialect("Kueue", claim, no_object, describe)
