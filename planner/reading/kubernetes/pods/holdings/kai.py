"""KAI and Run:ai: a reservation pod holds each GPU that fraction pods share.

Promises: facts of labels and annotations only. Called by the table of dialects in ``holdings`` and
by ``pods`` for the groups of fraction pods.
"""

from __future__ import annotations

from collections.abc import Mapping

from planner.reading.kubernetes.forms import KubeNode
from planner.reading.kubernetes.looking import number
from planner.reading.kubernetes.pods.holdings.hami import indices_of
from planner.reading.kubernetes.pods.holdings.telling import Told, told, written

RESERVED = "run.ai/reserve_for_gpu_index"
GROUP = "runai-gpu-group"


def reserved(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """The GPU of a reservation pod, by index or by uuid."""
    found = written(annotations, RESERVED)
    if found is None:
        return None
    index = number(found.strip())
    return told([indices_of(node).get(found.strip()) if index is None else index])


def groups(labels: Mapping[str, str]) -> tuple[str, ...]:
    """Groups of fraction pods that a pod belongs to: each shares one GPU."""
    found = {labels[GROUP]: None} if labels.get(GROUP) else {}
    prefix = GROUP + "/"
    more = sorted(key.removeprefix(prefix) for key in labels if key.startswith(prefix))
    return tuple(found | dict.fromkeys(more))
