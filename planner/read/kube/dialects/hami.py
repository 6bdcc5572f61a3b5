"""HAMi and Volcano's vGPU: cards by uuid, which nodes register in an annotation.

An unknown uuid makes a pod's list unreadable.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache, partial

from models.mig import Board
from planner.read.kube.dialects import base
from planner.read.kube.lookup import Tree, flag, items, mapping, number, objects, text, whole
from planner.read.kube.records import MAX_GPUS, KubeNode, MigKind

PODS = (
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "volcano.sh/vgpu-ids-new",
)
REGISTER = "hami.io/node-nvidia-register"
VOLCANO_REGISTER = "volcano.sh/node-vgpu-register"
NODES = (REGISTER, VOLCANO_REGISTER)
USE = "nvidia.com/use-gpuuuid"
AVOID = "nvidia.com/nouse-gpuuuid"
MODE = "nvidia.com/vgpu-mode"
"""Annotation of a pod: how it shares a card; ``mig``: HAMi partitions it."""

MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"
PREFERENCE = "nvidia.com/mig-profile-preference"

ALL_CORES = 100
"""Percent."""


@dataclass(frozen=True, slots=True)
class Card:
    """One registered card; ``index`` None: malformed. ``partitioned``: MIG.

    ``memory_MiB``, ``cores`` (percent), ``pods``: what pods share of it, 0 where it is malformed. ``kinds``:
    of the instances that it can have.
    """

    uuid: str
    index: int | None
    healthy: bool
    partitioned: bool
    memory_MiB: int = 0  # noqa: N815  # a unit
    cores: int = 0
    pods: int = 0
    kinds: tuple[MigKind, ...] = ()


@lru_cache(maxsize=4096)
def registration(written: str, *, volcano: bool = False) -> tuple[Card, ...]:
    """The cards of a node's annotation.

    JSON, or of old ``uuid,count,memory,cores,type,numa,health[,index,mode]:`` for each card. ``volcano``:
    ``uuid,count,memory,type,health[,mode]:``.
    """
    if len(written) > base.MAX_ANNOTATION:
        return ()
    if written.lstrip().startswith("["):
        return tuple(_json_cards(written))
    return tuple(_cards(written, volcano=volcano))


def _json_cards(written: str) -> Iterator[Card]:
    """HAMi leaves out what is 0, false or empty."""
    for entry in items({"cards": base.json_value(written)}, "cards"):
        tree: Tree = entry if isinstance(entry, dict) else {}
        index = whole(tree, "index") if "index" in tree else 0
        uuid, partitioned = text(tree, "id") or "", text(tree, "mode") == "mig"
        memory, cores, pods = (whole(tree, key) or 0 for key in ("devmem", "devcore", "count"))
        healthy, kinds = flag(tree, "health"), tuple(_kinds(tree)) if partitioned else ()
        yield Card(uuid, index if uuid else None, healthy, partitioned, memory, cores, pods, kinds)


def _kinds(card: Tree) -> Iterator[MigKind]:
    for one in objects(card, "migProfiles"):
        places = frozenset(map(_place, objects(one, "placements")))
        yield MigKind(text(one, "name") or "", whole(one, "memoryMB") or 0, places)


def _place(tree: Tree) -> tuple[int, int]:
    """Where an instance begins, and its slices; a size of 0 where it cannot be read."""
    start, size = (whole(tree, key) if key in tree else 0 for key in ("start", "size"))
    return (start, size) if start is not None and size is not None else (0, 0)


def _cards(written: str, *, volcano: bool) -> Iterator[Card]:
    """Of Volcano's cards all cores count as 100 percent; they are numbered as they are listed."""
    for place, fields in enumerate(_fields(written)):
        uuid, health, mode = fields[0] if len(fields) > 1 else "", *((4, 5) if volcano else (6, 8))
        index = number(fields[7]) if len(fields) > 7 and not volcano else place
        healthy, partitioned = fields[health : health + 1] == ["true"], fields[mode:][:1] == ["mig"]
        pods, memory, cores = (number(one) or 0 for one in (*fields[1:4], "", "", "")[:3])
        cores = ALL_CORES if volcano else cores
        yield Card(uuid, index if uuid else None, healthy, partitioned, memory, cores, pods)


def _fields(written: str) -> Iterator[list[str]]:
    """Those of each card."""
    for entry in written.split(":"):
        if entry.strip():
            yield [field.strip() for field in entry.split(",")]


def _registrations(annotations: Mapping[str, str]) -> Iterator[tuple[Card, ...]]:
    for key in NODES:
        yield registration(annotations.get(key) or "", volcano=key == VOLCANO_REGISTER)


def registered(annotations: Mapping[str, str]) -> dict[str, int]:
    """Index of every uuid that a node registered."""
    cards = (card for cards in _registrations(annotations) for card in cards)
    return {card.uuid: card.index for card in cards if card.index is not None}


def count_registered(annotations: Mapping[str, str]) -> int:
    """How many cards a node registered, whatever their indices."""
    found = _registrations(annotations)
    return min(MAX_GPUS, max(sum(bool(card.uuid) for card in cards) for cards in found))


@dataclass(frozen=True, slots=True)
class Cards:
    """Cards of a node, numbered from 0 to ``count`` - 1, all whole or all in MIG mode.

    ``sick``: unhealthy ones, ascending. ``memory_MiB``, ``cores``, ``pods``: the least that any of them has;
    ``alike``: all have as much memory. ``key``: the annotation that registers them. ``kinds``: what each can
    have.
    """

    count: int
    sick: tuple[int, ...] = ()
    memory_MiB: int = 0  # noqa: N815  # a unit
    cores: int = 0
    pods: int = 0
    alike: bool = True
    key: str = REGISTER
    kinds: tuple[MigKind, ...] = ()

    def board(self, boards: Sequence[Board]) -> Board | None:
        """The one of these boards that has such instances just there; None if several have, or none."""
        found = [board for board in boards if all(map(partial(_is_of, board), self.kinds))]
        return found[0] if len(found) == 1 else None


def whole_cards(
    annotations: Mapping[str, str], key: str = REGISTER, *, in_mig_mode: bool = False
) -> Cards | None:
    """The cards of a node; None if none are registered there, some are partitioned, or misnumbered."""
    cards = registration((annotations.get(key) or "").strip(), volcano=key == VOLCANO_REGISTER)
    indices = sorted(-1 if card.index is None else card.index for card in cards)
    if indices != list(range(len(cards))) or not 0 < len(cards) <= MAX_GPUS:
        return None
    kinds = {frozenset(card.kinds) for card in cards}
    same = len(kinds) == 1 and frozenset() not in kinds
    if any(card.partitioned != in_mig_mode for card in cards) or (in_mig_mode and not same):
        return None
    memories = {card.memory_MiB for card in cards}
    return Cards(
        len(cards),
        tuple(sorted(card.index or 0 for card in cards if not card.healthy)),
        min(memories),
        min(card.cores for card in cards),
        min(card.pods for card in cards),
        alike=len(memories) == 1,
        key=key,
        kinds=cards[0].kinds,
    )


def mig_cards(annotations: Mapping[str, str]) -> Cards | None:
    """The cards of a node; None if some are not in MIG mode, are misnumbered, or have other instances."""
    return whole_cards(annotations, in_mig_mode=True)


def _is_of(board: Board, kind: MigKind) -> bool:
    profile = board.profile(kind.profile)
    places = () if profile is None else [(start, profile.size) for start in profile.starts]
    return bool(places) and kind.places == frozenset(places)


def wants_instance(annotations: Mapping[str, str]) -> bool:
    """Whether a pod asks for an instance, or HAMi has chosen one for it."""
    return annotations.get(MODE) == "mig" or MIG_ALLOCATIONS in annotations


def mig_allocation(annotations: Mapping[str, str]) -> tuple[str, str, tuple[int, int]] | None:
    """The uuid of the card, the profile and the place of a pod's only instance; None if it has not one."""
    found = items({"made": base.json_value(annotations.get(MIG_ALLOCATIONS) or "")}, "made")
    if len(found) != 1 or not isinstance(found[0], dict):
        return None
    uuid, profile = text(found[0], "gpuUUID"), text(found[0], "profile")
    place = _place(mapping(found[0], "placement"))
    return (uuid, profile, place) if uuid and profile and place[1] else None


def indices_by_uuid(node: KubeNode) -> dict[str, int]:
    """Index of every GPU uuid that the node's registration or its ResourceSlices name."""
    slices = {device.uuid: device.index for device in node.devices if device.uuid is not None}
    return registered(node.object.annotations) | slices


def allocated(annotations: Mapping[str, str], node: KubeNode) -> tuple[int, ...] | None:
    """``GPU-uuid,NVIDIA,memory,cores:`` for each device; ``;`` between containers."""
    devices = _devices(annotations)
    if not devices:
        return None
    known = indices_by_uuid(node)
    return base.gpu_indices(dict.fromkeys(known.get(fields[0]) for fields in devices))


def _devices(annotations: Mapping[str, str]) -> list[list[str]]:
    """The fields of each device that annotations name: ``uuid,type,MiB,percent``.

    HAMi has written ``,,0,0`` for containers without one.
    """
    for key in PODS:
        found = base.annotation(annotations, key)
        if found is not None and len(found) <= base.MAX_ANNOTATION:
            devices = [fields for fields in _fields(found.replace(";", ":")) if fields[0]]
            if devices:
                return devices
    return []


def held_amounts(annotations: Mapping[str, str], gpus: int) -> tuple[int, int] | None:
    """MiB and percent of the cores that a pod has most of a device, None if it has not so many."""
    devices = _devices(annotations)
    amounts = [(number(fields[2]), number(fields[3])) for fields in devices if len(fields) > 3]
    if not len(devices) == len(amounts) == gpus:
        return None
    memory = [one for one, _ in amounts if one is not None]
    cores = [one for _, one in amounts if one is not None]
    return (max(memory), max(cores)) if len(memory) == len(cores) == gpus else None


def chosen(annotations: Mapping[str, str], node: KubeNode, gpus: int) -> tuple[int, ...] | None:
    """The cards that a pod may use, as the annotation USE says; None if those are not just so many."""
    uuids, known = (annotations.get(USE) or "").split(","), indices_by_uuid(node)
    found = {known.get(uuid.strip()) for uuid in uuids[: gpus + 1]}
    indices = sorted(index for index in found if index is not None)
    return tuple(indices) if len(indices) == len(uuids) == gpus else None


DIALECT = base.Dialect(
    "HAMi",
    precedence=120,
    holdings=(base.HoldingReader("HAMi annotation of devices", PODS, allocated),),
    annotations=f"{USE} {AVOID} {MODE} {PREFERENCE} {MIG_ALLOCATIONS} {REGISTER}",
)
