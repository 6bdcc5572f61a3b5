"""HAMi (and Volcano's vGPU): devices by uuid, told apart by what the node registered.

Promises: facts of annotations and of the node's slices; an unknown uuid cannot be read. Called by
the table of dialects in ``holdings`` and by the back end that writes uuids.

Whole cards of a node that HAMi hands out: what its registration lists.

Promises: a registration in which any card is cut up, or numbered oddly, lists none. Called by ``reading``
where the Policy's back end is HAMi; elsewhere such nodes count as giving fractions.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import lru_cache

from planner.read.kube.dialects.base import LONGEST, Told, told, tree, written
from planner.read.kube.lookup import Tree, flag, number, objects, text, whole
from planner.read.kube.nodes.gpus import MOST_GPUS
from planner.read.kube.records import KubeNode

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


REGISTER = "hami.io/node-nvidia-register"
_LONGEST = 1_000_000


@dataclass(frozen=True, slots=True)
class Cards:
    """``count``: indices are 0 to count - 1. ``sick``: those HAMi counts as unhealthy, ascending."""

    count: int
    sick: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class _Card:
    index: int | None
    healthy: bool
    cut: bool


def read_cards(annotations: Mapping[str, str]) -> Cards | None:
    """The cards of a node; None where HAMi registered none, or some of them are not given whole."""
    written = annotations.get(REGISTER, "").strip()
    if not written or len(written) > _LONGEST:
        return None
    cards = list(_json(written) if written.startswith("[") else _text(written))
    indices = sorted(-1 if card.index is None else card.index for card in cards)
    if any(card.cut for card in cards) or indices != list(range(len(cards))):
        return None
    sick = sorted(card.index or 0 for card in cards if not card.healthy)
    return Cards(len(cards), tuple(sick)) if 0 < len(cards) <= MOST_GPUS else None


def _json(written: str) -> Iterator[_Card]:
    """A list of objects; HAMi leaves out what is 0, false or empty."""
    try:
        entries = json.loads(written)
    except (ValueError, RecursionError):
        return
    for entry in entries:
        tree: Tree = entry if isinstance(entry, dict) else {}
        index = whole(tree, "index") if "index" in tree else 0
        named = text(tree, "id") is not None
        yield _Card(index if named else None, flag(tree, "health"), text(tree, "mode") == "mig")


def _text(written: str) -> Iterator[_Card]:
    """``uuid,count,memory,cores,type,numa,health[,index,mode]``, a colon after each."""
    for place, entry in enumerate(part for part in written.split(":") if part.strip()):
        fields = [field.strip() for field in entry.split(",")]
        stated = number(fields[7]) if len(fields) > 7 else place
        healthy = len(fields) > 6 and fields[6] == "true"
        yield _Card(stated if fields[0] else None, healthy, fields[8:9] == ["mig"])
