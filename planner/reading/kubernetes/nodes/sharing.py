"""Whether the GPUs of a node are given whole, and how many are behind the shares it advertises.

Promises: what cannot be understood counts as shared, so that nothing of it is given. Called by
``node_gpus``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping

from planner.reading.kubernetes.devices.slices import NodeDevices, resource_of
from planner.reading.kubernetes.looking import number
from planner.reading.kubernetes.nodes.facts import ACK_MODE, AMD, MOST_GPUS, PRODUCT, Told
from planner.reading.remarks import Remarks

_HAMI = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")
_ACK_SHARES = ("aliyun.com/gpu-mem", "aliyun.com/gpu-core.percentage")
_ACK_COUNT = "aliyun.com/gpu-count"
_GKE_PART = "cloud.google.com/gke-gpu-partition-size"
_GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
_GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
_AMD_PART = "amd.com/gpu.compute-memory-partition"

_SLICE = re.compile(r"(?:^|[^0-9])([1-7])g\.[0-9]+gb")

WORDS = {
    "MIG": "its GPUs are partitioned (MIG)",
    "time-sliced": "its GPUs are time-sliced",
    "fractional": "its GPUs are given in fractions",
}


def why_shared(
    told: Told, resource: str, devices: NodeDevices | None, remarks: Remarks
) -> str | None:
    """Why its GPUs are not given whole; None if they are."""
    labels = told.node.labels
    if resource_of(resource) == AMD:
        parted = not labels.get(_AMD_PART, "spx").lower().startswith("spx")
    else:
        parted = _migged(labels)
    if parted:
        return "MIG"
    if devices is not None and devices.shared:
        return "fractional"
    if _time_sliced(labels):
        return "time-sliced"
    if told.cards is None and any(key in told.node.annotations for key in _HAMI):
        return "fractional"
    return _ack(told, remarks)


def _time_sliced(labels: Mapping[str, str]) -> bool:
    sharing = labels.get("nvidia.com/gpu.sharing-strategy") or "none"
    on_gke = labels.get(_GKE_SHARING) or "none"
    replicas = number(labels.get("nvidia.com/gpu.replicas")) or 1
    shared = labels.get(PRODUCT, "").endswith("-SHARED")
    return shared or replicas > 1 or sharing != "none" or on_gke.lower() != "none"


def _migged(labels: Mapping[str, str]) -> bool:
    """Whether the GPUs it names are partitions. `mixed` names partitions by names of their own."""
    product = labels.get(PRODUCT)
    if product is not None and "-MIG-" in product:
        return True
    if labels.get(_GKE_PART):
        return True
    config = labels.get("nvidia.com/mig.config", "all-disabled")
    strategy = labels.get("nvidia.com/mig.strategy")
    if config == "all-disabled" or strategy == "mixed":
        return False
    # The product tells once the change is through, but with the strategy `none` it never does.
    done = product is not None and labels.get("nvidia.com/mig.config.state") == "success"
    return not (done and strategy != "none") and _SLICE.search(config) is not None


def _ack(told: Told, remarks: Remarks) -> str | None:
    """Sharing as ACK labels it, or as its share resources show it."""
    mode = told.node.labels.get(ACK_MODE, "default")
    if mode in {"share", "cgpu"} or any(told.others.get(name) for name in _ACK_SHARES):
        return "fractional"
    if mode == "mps":
        return "time-sliced"
    if mode not in {"default", "topology", ""}:
        remarks.add(told.node.where, f"its label {ACK_MODE} has an unknown value")
        return "fractional"
    return None


def behind(told: Told, advertised: int) -> int:
    """Physical GPUs behind the shares a node advertises, where no label counts them: at least."""
    labels, annotations = told.node.labels, told.node.annotations
    registered = max(_registered(annotations.get(key)) for key in _HAMI)
    counted = max(registered, min(MOST_GPUS, told.others.get(_ACK_COUNT, 0)))
    if counted or not advertised:
        return counted
    part = _SLICE.search(
        f"{labels.get(PRODUCT, '')} {labels.get(_GKE_PART, '')}"
        f" {labels.get('nvidia.com/mig.config', '')}"
    )
    parts = 1 if part is None else 7 // int(part.group(1))
    for key in ("nvidia.com/gpu.replicas", _GKE_CLIENTS):
        parts *= max(1, number(labels.get(key)) or 1)
    return -(-advertised // parts)


def _registered(written: str | None) -> int:
    """GPUs in HAMi's list: JSON, or entries that end with a colon."""
    if written is None:
        return 0
    if written.lstrip().startswith("["):
        try:
            found = json.loads(written)
        except (ValueError, RecursionError):
            return 0
        return min(MOST_GPUS, sum(isinstance(one, dict) for one in found))
    return min(MOST_GPUS, sum("," in entry for entry in written.split(":")))
