"""HAMi and Volcano's vGPU: cards by uuid, which nodes register in an annotation.

An unknown uuid makes a pod's list unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache

from planner.read.kube.dialects.base import (
    MAX_ANNOTATION,
    AnnotationBackend,
    CannotEncode,
    Dialect,
    HoldingReader,
    annotation,
    gpu_indices,
    json_value,
)
from planner.read.kube.lookup import Tree, flag, items, number, text, texts, whole
from planner.read.kube.records import MAX_GPUS, KubeNode

PODS = (
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "volcano.sh/vgpu-ids-new",
)
REGISTER = "hami.io/node-nvidia-register"
NODES = (REGISTER, "volcano.sh/node-vgpu-register")
USE = "nvidia.com/use-gpuuuid"
AVOID = "nvidia.com/nouse-gpuuuid"


@dataclass(frozen=True, slots=True)
class Card:
    """One registered card; ``index`` None: malformed. ``partitioned``: MIG."""

    uuid: str
    index: int | None
    healthy: bool
    partitioned: bool


@lru_cache(maxsize=4096)
def registration(written: str) -> tuple[Card, ...]:
    """The cards of a node's annotation.

    JSON, or of old ``uuid,count,memory,cores,type,numa,health[,index,mode]:`` for each card.
    """
    if len(written) > MAX_ANNOTATION:
        return ()
    return tuple(_json_cards(written) if written.lstrip().startswith("[") else _cards(written))


def _json_cards(written: str) -> Iterator[Card]:
    """HAMi leaves out what is 0, false or empty."""
    for entry in items({"cards": json_value(written)}, "cards"):
        tree: Tree = entry if isinstance(entry, dict) else {}
        index = whole(tree, "index") if "index" in tree else 0
        uuid, partitioned = text(tree, "id") or "", text(tree, "mode") == "mig"
        yield Card(uuid, index if uuid else None, flag(tree, "health"), partitioned)


def _cards(written: str) -> Iterator[Card]:
    for place, entry in enumerate(part for part in written.split(":") if part.strip()):
        fields = [field.strip() for field in entry.split(",")]
        uuid = fields[0] if len(fields) > 1 else ""
        index = number(fields[7]) if len(fields) > 7 else place
        healthy, partitioned = fields[6:7] == ["true"], fields[8:9] == ["mig"]
        yield Card(uuid, index if uuid else None, healthy, partitioned)


def registered(annotations: Mapping[str, str]) -> dict[str, int]:
    """Index of every uuid that a node registered."""
    return {
        card.uuid: card.index
        for key in NODES
        for card in registration(annotations.get(key) or "")
        if card.index is not None
    }


def count_registered(annotations: Mapping[str, str]) -> int:
    """How many cards a node registered, whatever their indices."""
    cards = (registration(annotations.get(key) or "") for key in NODES)
    return min(MAX_GPUS, max(sum(bool(card.uuid) for card in found) for found in cards))


@dataclass(frozen=True, slots=True)
class Cards:
    """Whole cards of a node, numbered from 0 to ``count`` - 1; ``sick``: unhealthy ones, ascending."""

    count: int
    sick: tuple[int, ...] = ()


def whole_cards(annotations: Mapping[str, str]) -> Cards | None:
    """The cards of a node; None if HAMi registered none, or some are partitioned or misnumbered."""
    cards = registration((annotations.get(REGISTER) or "").strip())
    indices = sorted(-1 if card.index is None else card.index for card in cards)
    if any(card.partitioned for card in cards) or indices != list(range(len(cards))):
        return None
    sick = sorted(card.index or 0 for card in cards if not card.healthy)
    return Cards(len(cards), tuple(sick)) if 0 < len(cards) <= MAX_GPUS else None


def indices_by_uuid(node: KubeNode) -> dict[str, int]:
    """Index of every GPU uuid that the node's registration or its ResourceSlices name."""
    slices = {device.uuid: device.index for device in node.devices if device.uuid is not None}
    return registered(node.object.annotations) | slices


def allocated(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``GPU-uuid,NVIDIA,memory,cores:`` for each device; ``;`` between containers."""
    for key in PODS:
        found = annotation(annotations, key)
        if found is None or len(found) > MAX_ANNOTATION:
            continue
        devices = (device for container in found.split(";") for device in container.split(":"))
        uuids = [device.partition(",")[0].strip() for device in devices if device.strip()]
        if uuids:
            known = indices_by_uuid(node)
            return gpu_indices(dict.fromkeys(known.get(uuid) for uuid in uuids))
    return None


def _objection(scheduler: str) -> str | None:
    """HAMi's scheduler is recognised by its name, ``hami-scheduler`` by default."""
    if "hami" in scheduler.lower():
        return None
    return f"its scheduler is {scheduler}, and only HAMi's scheduler reads a list of cards"


def _uuids(gpus: Sequence[int], node: str, node_tree: Tree, pod_tree: Tree) -> str:
    """The uuids of the GPUs, in their order."""
    cards: dict[int, list[str]] = {}
    for uuid, index in registered(texts(node_tree, "metadata", "annotations")).items():
        cards.setdefault(index, []).append(uuid)
    chosen = []
    for index in gpus:
        uuids = cards.get(index, [])
        if len(uuids) != 1:
            number_ = "no card" if not uuids else "several cards"
            raise CannotEncode(f"node {node} registered {number_} with HAMi as GPU {index}")
        chosen.append(uuids[0])
    avoided = texts(pod_tree, "metadata", "annotations").get(AVOID) or ""
    if not {part.strip() for part in avoided.split(",")}.isdisjoint(chosen):
        raise CannotEncode(f"its annotation {AVOID} forbids a card that the plan gives it")
    return ",".join(chosen)


DIALECT = Dialect(
    "HAMi",
    holdings=(HoldingReader("HAMi annotation of devices", PODS, allocated),),
    backend=AnnotationBackend(
        name="hami",
        key=USE,
        note=(
            f"{USE} limits HAMi's scheduler to the cards that the plan chose; "
            "pods of other schedulers may still use them"
        ),
        objection=_objection,
        chosen_by_owner="chooses cards already",
        value=_uuids,
    ),
)
