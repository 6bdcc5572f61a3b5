"""HiveD: the leaf cells (GPUs) a pod was isolated to on its node.

Promises: facts of the annotations only; the long one is searched, never parsed whole. Called by
the table of dialects in ``holdings``, and by ``pods`` for how many GPUs HiveD was asked for.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from planner.read.kube.dialects.base import LONGEST, UNREADABLE, Told, comma_list, told, written
from planner.read.kube.lookup import number
from planner.read.kube.records import KubeNode

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
_NUMBER = re.compile(r"\"?(?:leafCellNumber|gpuNumber)\"?\s{0,9}:\s{0,9}([0-9]{1,9})")


def isolation(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``"0,3"``, else ``leafCellIsolation`` of the bind info, YAML or JSON, if made for this node."""
    for key in ISOLATION:
        if (found := written(annotations, key)) is not None:
            return comma_list(found)
    info = written(annotations, BIND_INFO)
    if info is None:
        return None
    bound = _NODE.search(info) if len(info) <= LONGEST else None
    if bound is None or bound.group(1) != node.name:
        return UNREADABLE
    if (inline := _INLINE.search(info)) is not None:
        return told(number(part.strip()) for part in inline.group(1).split(","))
    block = _BLOCK.search(info)
    return told(number(part) for part in _ENTRY.findall(block.group(1))) if block else UNREADABLE


def cells_asked(annotations: Mapping[str, str]) -> int | None:
    """How many leaf cells the scheduling spec asks for; None where it does not say."""
    spec = written(annotations, SPEC)
    if spec is None or len(spec) > LONGEST:
        return None
    found = _NUMBER.search(spec)
    return None if found is None else number(found.group(1))
