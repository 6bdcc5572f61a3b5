"""HAMi (and Volcano's vGPU): devices by uuid, told apart by what the node registered.

Promises: facts of annotations and of the node's slices; an unknown uuid cannot be read. Called by
the table of dialects in ``holdings`` and by the back end that writes uuids.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import lru_cache

from planner.reading.kubernetes.forms import KubeNode
from planner.reading.kubernetes.looking import number, objects, text, whole
from planner.reading.kubernetes.pods.holdings.telling import (
    LONGEST,
    Told,
    told,
    tree,
    written,
)

PODS = (
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "volcano.sh/vgpu-ids-new",
)
NODES = ("hami.io/node-nvidia-register", "volcano.sh/node-vgpu-register")


def devices(annotations: Mapping[str, str], node: KubeNode) -> Told | None:
    """``GPU-uuid,NVIDIA,memory,cores:`` a device; ``;`` between containers."""
    for key in PODS:
        found = written(annotations, key)
        if found is None or len(found) > LONGEST:
            continue
        uuids = [
            device.partition(",")[0].strip()
            for container in found.split(";")
            for device in container.split(":")
            if device.strip()
        ]
        if not uuids:
            continue
        known = indices_of(node)
        return told(dict.fromkeys(known.get(uuid) for uuid in uuids))
    return None


def indices_of(node: KubeNode) -> dict[str, int]:
    """Index of every uuid that the node's slices or its registration name."""
    found = registered(node.object.annotations)
    found |= {device.uuid: device.index for device in node.devices if device.uuid is not None}
    return found


def registered(annotations: Mapping[str, str]) -> dict[str, int]:
    """Index of every uuid that a node registered, from the node's annotations."""
    found: dict[str, int] = {}
    for key in NODES:
        register = written(annotations, key)
        if register is not None:
            found |= _registered(register)
    return found


@lru_cache(maxsize=4096)
def _registered(register: str) -> dict[str, int]:
    """Uuid to index: JSON, or ``uuid,count,memory,cores,type,numa,health[,index,mode]:`` each."""
    if len(register) > LONGEST:
        return {}
    if register.lstrip().startswith("["):
        # an absent index is 0: HAMi leaves zeros out
        stated_ = {
            text(entry, "id"): whole(entry, "index") if "index" in entry else 0
            for entry in objects({"devices": tree(register)}, "devices")
        }
        return {
            uuid: index for uuid, index in stated_.items() if uuid is not None and index is not None
        }
    found = {}
    for place, device in enumerate(part for part in register.split(":") if part.strip()):
        fields = [field.strip() for field in device.split(",")]
        stated = number(fields[7]) if len(fields) > 7 else None
        found[fields[0]] = place if stated is None else stated
    return found
