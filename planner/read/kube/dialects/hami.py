"""HAMi and Volcano's vGPU: cards by uuid, which nodes register in an annotation.

An unknown uuid makes a pod's list unreadable.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import replace
from functools import lru_cache, partial

from msgspec import Struct, structs

from models.gpu_shares import CORES, MOST_GPUS, Part
from models.mig import board_named, resource_of
from planner.read.findings import Remarks
from planner.read.kube.dialects import base
from planner.read.kube.dialects.gpus import (
    MALFORMED,
    MAX_POD_GPUS,
    MOST_MIB,
    NVIDIA,
    WHOLE,
    Ask,
    CardReader,
    Cards,
    GpuSystem,
    indices_by_uuid,
)
from planner.read.kube.lookup import Tree, flag, items, mapping, number, objects, text, whole
from planner.read.kube.pods.requests import container_amounts
from planner.read.kube.records import MAX_GPUS, Device, KubeNode, KubeObject, KubePod, MigKind

PODS = (
    "hami.io/vgpu-devices-allocated",
    "hami.io/vgpu-devices-to-allocate",
    "volcano.sh/vgpu-ids-new",
)
REGISTER = "hami.io/node-nvidia-register"
VOLCANO_REGISTER = "volcano.sh/node-vgpu-register"
USE = "nvidia.com/use-gpuuuid"
AVOID = "nvidia.com/nouse-gpuuuid"
MODE = "nvidia.com/vgpu-mode"
"""Annotation of a pod: how it shares a card; ``mig``: HAMi partitions it."""

MIG_ALLOCATIONS = "hami.io/vgpu-mig-allocations"
PREFERENCE = "nvidia.com/mig-profile-preference"

GPUMEM, VGPU = "nvidia.com/gpumem", "volcano.sh/vgpu-number"
_RESOURCES = {
    GPUMEM: (NVIDIA, GPUMEM, "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    VGPU: (
        VGPU,
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
}
"""Resources that count the GPUs, memory in MiB, memory in percent and cores in percent of a container."""

NO_PROFILE = "more GPU memory than any MIG profile of the nodes has"
SEVERAL_PROFILES = "GPU memory for which nodes have different MIG profiles"
PREFERRED = "a preference of MIG profiles"
SEVERAL = "parts of GPUs in several containers of one pod"

_ALL = 100
"""Percent."""


class Card(Struct, frozen=True):
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
        cores = _ALL if volcano else cores
        yield Card(uuid, index if uuid else None, healthy, partitioned, memory, cores, pods)


def _fields(written: str) -> Iterator[list[str]]:
    for entry in written.split(":"):
        if entry.strip():
            yield [field.strip() for field in entry.split(",")]


def _registered(key: str, annotations: Mapping[str, str]) -> tuple[Card, ...]:
    return registration((annotations.get(key) or "").strip(), volcano=key == VOLCANO_REGISTER)


def registered(key: str, annotations: Mapping[str, str]) -> dict[str, int]:
    """Index of every uuid that a node registered under an annotation."""
    cards = _registered(key, annotations)
    return {card.uuid: card.index for card in cards if card.index is not None}


def _count(key: str, annotations: Mapping[str, str]) -> int:
    return sum(bool(card.uuid) for card in _registered(key, annotations))


def whole_cards(
    key: str, annotations: Mapping[str, str], *, in_mig_mode: bool = False
) -> Cards | None:
    """The cards of a node; None if none are registered there, some are partitioned, or misnumbered.

    ``in_mig_mode``: None if some are not in MIG mode, or have other instances.
    """
    cards = _registered(key, annotations)
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
        VGPU if key == VOLCANO_REGISTER else NVIDIA,
        tuple(sorted(card.index or 0 for card in cards if not card.healthy)),
        min(memories),
        min(card.cores for card in cards),
        min(card.pods for card in cards),
        alike=len(memories) == 1,
        kinds=cards[0].kinds,
    )


def mig_allocation(annotations: Mapping[str, str]) -> tuple[str, str, tuple[int, int]] | None:
    """The uuid of the card, the profile and the place of a pod's only instance; None if it has not one."""
    found = items({"made": base.json_value(annotations.get(MIG_ALLOCATIONS) or "")}, "made")
    if len(found) != 1 or not isinstance(found[0], dict):
        return None
    uuid, profile = text(found[0], "gpuUUID"), text(found[0], "profile")
    place = _place(mapping(found[0], "placement"))
    return (uuid, profile, place) if uuid and profile and place[1] else None


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


# What pods ask, as ``resourcereqs`` in pkg/scheduler/api/devices/nvidia/vgpu of volcano-sh/volcano has it


def _asks_beside(amounts: Mapping[str, int], gpus: int) -> bool:
    """Whether a pod asks for parts of HAMi's cards: all of their memory or cores are no parts."""
    _, memory, *percents = _RESOURCES[GPUMEM]
    full = _ALL * max(1, gpus)
    return memory in amounts or any(amounts.get(one, full) < full for one in percents)


def _asking(by: str, pod: KubeObject, which: str = "containers") -> list[dict[str, int]]:
    names = _RESOURCES[by]
    return [one for one in container_amounts(pod.tree, which) if any(map(one.get, names))]


def _part(by: str, ask: Ask, pod: KubeObject, scheduler: str) -> Ask | None:
    """What containers ask of the cards; without memory they get all of it. None if they ask for none."""
    del scheduler
    asking, (count, *names) = _asking(by, pod), _RESOURCES[by]
    if ask.by is not None or not any(name in one for one in asking for name in (*names, VGPU)):
        return None
    gpus = sum(amounts.get(count) or 1 for amounts in asking)
    parts = [_card_part(*(amounts.get(name, 0) for name in names)) for amounts in asking]
    part = parts[0]
    whole = all(one == WHOLE for one in parts)
    if part is None or None in parts or (gpus > MOST_GPUS and not whole):
        return ask.with_problem(MALFORMED)
    if (len(asking) > 1 and not whole) or _asking(by, pod, "initContainers"):
        return ask.with_problem(SEVERAL)
    if pod.annotations.get(MODE) == "mig":
        return ask
    if whole:
        return Ask(min(gpus, MAX_POD_GPUS), count)
    return structs.replace(ask, part=replace(part, gpus=gpus), resource=by)


def _card_part(memory: int, percent: int, cores: int) -> Part | None:
    """The part, WHOLE for a GPU of its own, which all cores mean as well; None if there is none."""
    if cores > _ALL or percent > _ALL or memory > MOST_MIB:
        return None
    if cores == _ALL or (not memory and percent in (0, _ALL)):
        return WHOLE
    return Part.memory(memory, cores) if memory else Part.fraction(10 * percent, cores)


def held_part(part: Part, annotations: Mapping[str, str], memory_MiB: int | None) -> Part:  # noqa: N803
    """What a pod holds that asked for this part: what its scheduler wrote if that is more.

    ``memory_MiB``: of the card.
    """
    memory, percent = held_amounts(annotations, part.gpus) or (0, 0)
    if memory > MOST_MIB or percent > _ALL or (part.permille and not memory_MiB):
        return part
    asked = part.memory_MiB or -(-part.permille * (memory_MiB or 0) // CORES)
    if memory <= asked and 10 * percent <= part.cores_permille:
        return part
    cores = max(percent, -(-part.cores_permille // 10))
    return replace(Part.memory(max(asked, memory), cores), gpus=part.gpus)


def _instance(
    ask: Ask,
    pod: KubePod,
    node: KubeNode | None,
    kinds: Collection[tuple[MigKind, ...]],
    remarks: Remarks,
) -> Ask | None:
    """The instance that a pod asks for, or has on its node; sets ``made`` of the pod. None for others.

    ``kinds``: of the instances that cards of the nodes can have. HAMi takes the profile with the least
    memory that suffices.
    """
    if pod.annotations.get(MODE) != "mig" and MIG_ALLOCATIONS not in pod.annotations:
        return None
    made = _made(pod, node, remarks)
    asking = _asking(GPUMEM, pod.object)
    memory = asking[0].get(GPUMEM, 0) if asking else 0
    profiles = set(_least_profiles(memory, kinds)) if made is None else {made.profile or ""}
    problem = None
    if made is None:
        several = len(asking) != 1 or asking[0].get(NVIDIA, 1) != 1
        if several or _asking(GPUMEM, pod.object, "initContainers"):
            problem = SEVERAL
        elif not memory:
            problem = "a MIG instance without memory in MiB"
        elif pod.annotations.get(PREFERENCE) is not None:
            problem = PREFERRED
        elif len(profiles) != 1:
            problem = SEVERAL_PROFILES if profiles else NO_PROFILE
    if problem is not None:
        return ask.with_problem(problem)
    pod.made = () if made is None else (made,)
    return Ask(counted=((resource_of(profiles.pop()), 1),))


def _least_profiles(memory: int, kinds: Collection[tuple[MigKind, ...]]) -> Iterator[str]:
    for own in kinds:
        enough = [(one.memory_MiB, one.profile) for one in own if one.memory_MiB >= memory]
        if enough:
            yield min(enough)[1]


def _made(pod: KubePod, node: KubeNode | None, remarks: Remarks) -> Device | None:
    """The instance that HAMi has chosen for the pod; None if it has not, or nobody knows which."""
    if node is None or MIG_ALLOCATIONS not in pod.annotations:
        return None
    found, board = mig_allocation(pod.annotations), board_named(node.board or "")
    if found is not None and board is not None:
        uuid, name, (start, size) = found
        index, profile = node.cards.get(uuid), board.profile(name)
        there = profile is not None and size == profile.size and start in profile.starts
        if there and index is not None and index in node.mig_mode:
            slices = board.slices(name, start)
            return Device("hami", node.name, f"{uuid}/{start}", index, profile=name, slices=slices)
    what = f"its annotation {MIG_ALLOCATIONS} names no instance that a card of its node can have"
    remarks.add(pod.subject, what, "no card of the node gets other instances")
    return None


def _cards_of(key: str, backend: str = "") -> CardReader:
    return CardReader(
        key,
        partial(registered, key),
        partial(_count, key),
        partial(whole_cards, key),
        partial(whole_cards, key, in_mig_mode=True),
        backend,
    )


DIALECT = base.Dialect(
    "HAMi",
    precedence=120,
    holdings=(base.HoldingReader("HAMi annotation of devices", PODS, allocated),),
    gpus=(
        GpuSystem(
            name=GPUMEM,
            annotations=(MODE,),
            parts=_RESOURCES[GPUMEM][1:],
            beside=_asks_beside,
            part=partial(_part, GPUMEM),
            held=held_part,
            instance=_instance,
            chosen=chosen,
            cards=_cards_of(REGISTER, "hami"),
        ),
        GpuSystem(
            name=VGPU,
            parts=_RESOURCES[VGPU],
            counter=VGPU,
            part=partial(_part, VGPU),
            held=held_part,
            cards=_cards_of(VOLCANO_REGISTER),
        ),
    ),
    annotations=f"{USE} {AVOID} {MODE} {PREFERENCE} {MIG_ALLOCATIONS} {REGISTER}",
)
