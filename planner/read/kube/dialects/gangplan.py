"""gangplan's own annotation: the GPUs that a plan gave to a pod."""

from __future__ import annotations

from collections.abc import Mapping

from planner.read.kube.dialects.base import Dialect, HoldingReader, annotation, comma_list
from planner.read.kube.records import KubeNode

GPUS = "gangplan.dev/gpus"


def planned_gpus(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``gangplan.dev/gpus: "0,1,2"``."""
    del node
    found = annotation(annotations, GPUS)
    return None if found is None else comma_list(found)


DIALECT = Dialect(
    "gangplan", holdings=(HoldingReader(f"annotation {GPUS}", (GPUS,), planned_gpus),)
)
