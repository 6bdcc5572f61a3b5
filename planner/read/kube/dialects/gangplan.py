"""Our own annotations: the GPUs a plan gave to a pod.

Promises: facts of the annotation only. Called by the table of dialects in ``holdings``.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects.base import Told, comma_list, written
from planner.read.kube.records import KubeNode

GPUS = "gangplan.dev/gpus"


def given(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``gangplan.dev/gpus: "0,1,2"``."""
    del node
    found = written(annotations, GPUS)
    return None if found is None else comma_list(found)
