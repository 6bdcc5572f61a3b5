"""HiveD: the leaf cells (GPUs) of a pod on its node.

The bind info is long and untrusted: it is searched, never parsed whole.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from functools import partial

from models.instance.policy import KubernetesPolicy
from planner.read.kube.dialects import base
from planner.read.kube.dialects.gpus import Ask, GpuSystem
from planner.read.kube.dialects.quotas import CellReader
from planner.read.kube.lookup import number
from planner.read.kube.pods.placement import DEFAULT_SCHEDULER
from planner.read.kube.records import Group, KubeNode, KubePod

ENABLE = "hivedscheduler.microsoft.com/pod-scheduling-enable"
"""A resource that pods of HiveD request, whatever their GPUs."""
NO_HIVED = "requests GPUs from HiveD, which is not its scheduler; it holds none"
HINT = "list HiveD's scheduler under kubernetes.otherSchedulers in a Policy"

ISOLATION = (
    "hivedscheduler.microsoft.com/pod-leaf-cell-isolation",
    "hivedscheduler.microsoft.com/pod-gpu-isolation",
)
BIND_INFO = "hivedscheduler.microsoft.com/pod-bind-info"
SPEC = "hivedscheduler.microsoft.com/pod-scheduling-spec"

_CELLS = r"\"?(?:leafCellIsolation|gpuIsolation)\"?\s{0,9}:"
_INLINE = re.compile(_CELLS + r"\s{0,9}\[([^\[\]]*)\]")
_BLOCK = re.compile(_CELLS + r"((?:[ \t\r]*\n[ \t]*-[ \t]*[0-9]{1,9})+)")
_ENTRY = re.compile(r"[0-9]{1,9}")
_NODE = re.compile(
    r"^\s{0,9}\{?\s{0,9}\"?node\"?\s{0,9}:\s{0,9}[\"']?([A-Za-z0-9._-]+)", re.MULTILINE
)
_VIRTUAL_CLUSTER = re.compile(
    r"(?:^|[{,\s])\"?virtualCluster\"?\s{0,9}:\s{0,9}[\"']?([A-Za-z0-9._-]{1,253})"
)
_PINNED = re.compile(
    r"(?:^|[{,\s])\"?(?:pinnedCellId|reservationId)\"?\s{0,9}:\s{0,9}[\"']?([A-Za-z0-9._-]{1,253})"
)
_NEGATIVE = re.compile(r"(?:^|[{,\s])\"?priority\"?\s{0,9}:\s{0,9}(-[1-9])")
_NUMBER = re.compile(r"\"?(?:leafCellNumber|gpuNumber)\"?\s{0,9}:\s{0,9}([0-9]{1,9})")


def isolation(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``"0,3"``, else ``leafCellIsolation`` of bind info (YAML or JSON) made for this node."""
    for key in ISOLATION:
        if (found := base.annotation(annotations, key)) is not None:
            return base.comma_list(found)
    info = base.annotation(annotations, BIND_INFO)
    if info is None:
        return None
    bound = _NODE.search(info) if len(info) <= base.MAX_ANNOTATION else None
    if bound is None or bound.group(1) != node.name:
        return ()
    if (inline := _INLINE.search(info)) is not None:
        return base.gpu_indices(number(part.strip()) for part in inline.group(1).split(","))
    block = _BLOCK.search(info)
    return (
        base.gpu_indices(number(part) for part in _ENTRY.findall(block.group(1))) if block else ()
    )


def _in_spec(pattern: re.Pattern[str], annotations: Mapping[str, str]) -> str | None:
    spec = base.annotation(annotations, SPEC)
    found = None if spec is None or len(spec) > base.MAX_ANNOTATION else pattern.search(spec)
    return None if found is None else found.group(1)


def _asks(amounts: Mapping[str, int], annotations: Mapping[str, str]) -> Ask | None:
    del annotations
    return Ask(by=ENABLE, problems=("GPUs requested from HiveD",)) if ENABLE in amounts else None


def _number(pod: KubePod, node: KubeNode | None) -> int:
    """GPUs of a pod: on a node at least one."""
    cells = number(_in_spec(_NUMBER, pod.annotations)) or 0
    return cells or (0 if node is None else len(isolation(pod.annotations, node) or ()) or 1)


def _missing(
    pod: KubePod, ask: Ask, there: Collection[Group], policy: KubernetesPolicy
) -> tuple[str, ...] | None:
    del there
    if ask.by != ENABLE:
        return None
    listed = policy.other_schedulers
    works = pod.scheduler != DEFAULT_SCHEDULER if listed is None else pod.scheduler in listed
    return () if works else (NO_HIVED, HINT)


DIALECT = base.Dialect(
    "HiveD",
    precedence=110,
    gpus=(GpuSystem(name=ENABLE, alone=_asks, number=_number, missing=_missing),),
    cells=CellReader(
        partial(_in_spec, _VIRTUAL_CLUSTER),
        partial(_in_spec, _PINNED),
        partial(_in_spec, _NEGATIVE),
    ),
    holdings=(
        base.HoldingReader("HiveD annotation of leaf cells", (*ISOLATION, BIND_INFO), isolation),
    ),
    annotations="hivedscheduler.microsoft.com/",
)
