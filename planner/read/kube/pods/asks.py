"""What a pod asks of GPUs: whole ones, or parts of them that KAI, HAMi, Volcano or a device plugin gives.

A fraction is never taken for a whole GPU, nor a whole GPU for one. KAI:
https://github.com/kai-scheduler/KAI-Scheduler, ``pkg/common/resources/gpu_sharing.go``.
HAMi and Volcano: ``resourcereqs`` of https://github.com/volcano-sh/volcano,
``pkg/scheduler/api/devices/nvidia/vgpu``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil

from models.gpu_shares import CORES, MOST_GPUS, Part
from models.mig import board_named, resource_of
from planner.read.findings import Remarks
from planner.read.kube.devices.claims import Sort
from planner.read.kube.dialects import hami, kai
from planner.read.kube.lookup import at, mapping, number, objects, text
from planner.read.kube.pods.requests import (
    KAI_FRACTION,
    KAI_MEMORY,
    container_amounts,
    is_about_gpus,
)
from planner.read.kube.records import Device, KubeNode, KubeObject, KubePod, MigKind

MAX_POD_GPUS = 100_000
"""Most GPUs of one pod: the limit of the documents."""

NVIDIA = "nvidia.com/gpu"
PART = "nvidia.com/gpu.part"
"""In plans alone: parts, all alike on a node, that are offered and requested under the name of whole GPUs."""

PARTITIONS = re.compile(r"nvidia\.com/mig-.+|nvidia\.com/gpu\.(shared|part)|amd\.com/.+_nps[0-9]+")
"""Parts of GPUs with resource names of their own: their GPUs are not among those offered whole.

All parts of one name are alike, so they are planned like any other resource that pods request.
"""

HIVED = "hivedscheduler.microsoft.com/pod-scheduling-enable"
KAI_DEVICES = "gpu-fraction-num-devices"

ANNOTATIONS = (KAI_FRACTION, KAI_MEMORY, KAI_DEVICES, hami.MODE)
"""All that ask for GPUs."""

BY_KAI, BY_HAMI, BY_VOLCANO = KAI_FRACTION, "nvidia.com/gpumem", "volcano.sh/vgpu-number"
"""Names by which parts of GPUs are requested, and by which nodes offer theirs."""

_CARDS = {
    BY_HAMI: (NVIDIA, BY_HAMI, "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    BY_VOLCANO: (
        BY_VOLCANO,
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
}
"""Resources that count the GPUs, memory in MiB, memory in percent and cores in percent of a container."""

OF_PARTS = frozenset[str]().union(*_CARDS.values()) - {NVIDIA}
"""Resources that a part, or a whole GPU, stands for."""

_COUNTERS = {
    "aliyun.com/gpu-mem": "aliyun.com/gpu-count",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-count",
    **dict.fromkeys((*_CARDS[BY_VOLCANO][1:], BY_VOLCANO), BY_VOLCANO),
    "volcano.sh/gpu-memory": "volcano.sh/gpu-number",
}
"""Resources that request a share of a GPU, and the one that counts the GPUs it lies on."""

MOST_MIB = 1 << 24
"""Memory of a part; more is a mistake."""

A_FRACTION = "a fraction of a GPU"
TWO_NAMES = "GPUs under two resource names"
NO_PROFILE = "more GPU memory than any MIG profile of the nodes has"
SEVERAL_PROFILES = "GPU memory for which nodes have different MIG profiles"
NO_MEMORY = "a MIG instance without memory in MiB"
PREFERRED = "a preference of MIG profiles"
SEVERAL = "parts of GPUs in several containers of one pod"
MALFORMED = "a part of a GPU that cannot be read"

_MOST_DIGITS = 40
_ALL = 100

WHOLE = Part(CORES, 0, CORES)
"""All of a GPU."""


@dataclass(frozen=True, slots=True)
class Ask:
    """What one pod asks of GPUs by resource names and annotations, without claims.

    ``gpus``: whole ones, by ``resource`` (None: several names). ``shares``: GPUs of which it asks for a part;
    ``part``: how much of each, None where no plan has such parts. ``by``: HIVED, whose annotations say how
    many it asks for, or BY_KAI. ``counted``: instances, and parts all alike, as other resources.
    """

    gpus: int = 0
    resource: str | None = None
    shares: int = 0
    part: Part | None = None
    by: str | None = None
    counted: tuple[tuple[str, int], ...] = ()
    problems: tuple[str, ...] = ()

    @property
    def in_requests(self) -> dict[str, int]:
        """What of it a plan has among the other resources of the pod."""
        own = {} if self.part is None else {self.part.resource: self.part.gpus}
        return {**own, **dict(self.counted)}

    def in_parts(self) -> Ask:
        """The same where the GPUs of that name are parts."""
        parts = self.gpus and self.resource == NVIDIA
        return Ask(counted=((PART, self.gpus),)) if parts else self

    def with_problem(self, problem: str) -> Ask:
        return replace(self, problems=(*self.problems, problem))


def gpu_ask(  # noqa: PLR0911  # one return a case
    amounts: Mapping[str, int],
    annotations: Mapping[str, str],
    gpu_resources: Collection[str],
    classes: Mapping[str, Sort],
) -> Ask:
    """GPUs in these requests (whole units) and annotations; of a share only of how many GPUs.

    ``gpu_resources``: names of whole GPUs, in order; ``classes``: extended resources that stand for
    DRA device classes.
    """
    whole = [(name, amounts[name]) for name in gpu_resources if name in amounts]
    others = [name for name in amounts if name not in gpu_resources and is_about_gpus(name)]
    gpus = whole[0][1] if whole else 0
    _, memory, *percents = _CARDS[BY_HAMI]
    full = _ALL * max(1, gpus)
    if memory in others or any(one in others and amounts[one] < full for one in percents):
        return _share(gpus or 1)
    for name, counter in _COUNTERS.items():
        if name in others:
            return _share(amounts.get(counter, 1))
    for name in others:  # device classes requested as extended resources
        if classes.get(name) is Sort.PART:
            return _share(amounts[name])
        if classes.get(name) is Sort.WHOLE and not whole:
            return Ask(min(amounts[name], MAX_POD_GPUS), name)
    if whole:
        problems = (TWO_NAMES,) if len(whole) > 1 else ()
        most = max(amount for _, amount in whole)
        return Ask(
            min(most, MAX_POD_GPUS), whole[0][0] if most == gpus else None, problems=problems
        )
    if HIVED in amounts:
        return Ask(by=HIVED, problems=("GPUs requested from HiveD",))
    if not annotations.keys().isdisjoint((KAI_FRACTION, KAI_MEMORY, KAI_DEVICES)):
        return _share(number(annotations.get(KAI_DEVICES)) or 1, BY_KAI)
    return Ask()


def _share(gpus: int, by: str | None = None) -> Ask:
    return Ask(shares=max(1, min(gpus, MAX_POD_GPUS)), by=by)


def with_part(ask: Ask, pod: KubeObject, scheduler: str) -> Ask:
    """What a pod asks with the part of a GPU, or the whole GPUs, that it means; else with a problem."""
    if not ask.shares or ask.by == BY_KAI:
        return _of_kai(ask, pod.annotations) if ask.shares and scheduler in kai.SCHEDULERS else ask
    for by, names in _CARDS.items():
        asking = _asking(by, pod)
        if any(name in one for one in asking for name in (*names[1:], BY_VOLCANO)):
            return _of_cards(ask, by, asking, pod)
    return ask


def _of_kai(ask: Ask, annotations: Mapping[str, str]) -> Ask:
    """``gpu-fraction`` counts before ``gpu-memory``, which is in MiB."""
    gpus = number(annotations.get(KAI_DEVICES) or "1")
    fraction, amount = annotations.get(KAI_FRACTION), number(annotations.get(KAI_MEMORY))
    part = None
    if fraction:
        permille = _permille(fraction)
        part = None if permille is None else Part.fraction(permille)
    elif amount and amount <= MOST_MIB:
        part = Part.memory(amount, 0)
    if part is None or not gpus or gpus > MOST_GPUS:
        return ask.with_problem(MALFORMED)
    return replace(ask, part=replace(part, gpus=gpus), resource=BY_KAI)


def _permille(written: str) -> int | None:
    """Thousandths of a GPU, rounded up; None for what is no part of one."""
    if len(written) > _MOST_DIGITS or not written.isascii():
        return None
    try:
        fraction = Decimal(written)
    except InvalidOperation:
        return None
    if not fraction.is_finite() or not 0 < fraction < 1:
        return None
    permille = ceil(1000 * Fraction(fraction)) if fraction.adjusted() > -_MOST_DIGITS else 1
    return permille if permille < CORES else None


def _asking(by: str, pod: KubeObject, which: str = "containers") -> list[dict[str, int]]:
    return [one for one in container_amounts(pod.tree, which) if any(map(one.get, _CARDS[by]))]


def _of_cards(ask: Ask, by: str, asking: list[dict[str, int]], pod: KubeObject) -> Ask:
    """What containers ask of HAMi's or Volcano's cards; without memory they get all of it."""
    count, *names = _CARDS[by]
    gpus = sum(amounts.get(count) or 1 for amounts in asking)
    parts = [_card_part(*(amounts.get(name, 0) for name in names)) for amounts in asking]
    part = parts[0]
    whole = all(one == WHOLE for one in parts)
    if part is None or None in parts or (gpus > MOST_GPUS and not whole):
        return ask.with_problem(MALFORMED)
    if (len(asking) > 1 and not whole) or _asking(by, pod, "initContainers"):
        return ask.with_problem(SEVERAL)
    if pod.annotations.get(hami.MODE) == "mig":
        return ask
    if whole:
        return Ask(min(gpus, MAX_POD_GPUS), count)
    return replace(ask, part=replace(part, gpus=gpus), resource=by)


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
    memory, percent = hami.held_amounts(annotations, part.gpus) or (0, 0)
    if memory > MOST_MIB or percent > _ALL or (part.permille and not memory_MiB):
        return part
    asked = part.memory_MiB or -(-part.permille * (memory_MiB or 0) // CORES)
    if memory <= asked and 10 * percent <= part.cores_permille:
        return part
    cores = max(percent, -(-part.cores_permille // 10))
    return replace(Part.memory(max(asked, memory), cores), gpus=part.gpus)


def with_instance(
    ask: Ask,
    pod: KubePod,
    node: KubeNode | None,
    kinds: Collection[tuple[MigKind, ...]],
    remarks: Remarks,
) -> Ask:
    """The instance of HAMi that a pod asks for, or has on its node; sets ``made`` of the pod.

    ``kinds``: of the instances that cards of the nodes can have. HAMi takes the profile with the least
    memory that suffices.
    """
    made = _made(pod, node, remarks)
    asking = _asking(BY_HAMI, pod.object)
    memory = asking[0].get(BY_HAMI, 0) if asking else 0
    profiles = set(_least_profiles(memory, kinds)) if made is None else {made.profile or ""}
    problem = None
    if made is None:
        several = len(asking) != 1 or asking[0].get(NVIDIA, 1) != 1
        if several or _asking(BY_HAMI, pod.object, "initContainers"):
            problem = SEVERAL
        elif not memory:
            problem = NO_MEMORY
        elif pod.annotations.get(hami.PREFERENCE) is not None:
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
    if node is None or hami.MIG_ALLOCATIONS not in pod.annotations:
        return None
    found, board = hami.mig_allocation(pod.annotations), board_named(node.board or "")
    if found is not None and board is not None:
        uuid, name, (start, size) = found
        index, profile = hami.registered(node.object.annotations).get(uuid), board.profile(name)
        there = profile is not None and size == profile.size and start in profile.starts
        if there and index is not None and index in node.mig_mode:
            slices = board.slices(name, start)
            return Device("hami", node.name, f"{uuid}/{start}", index, profile=name, slices=slices)
    what = (
        f"its annotation {hami.MIG_ALLOCATIONS} names no instance that a card of its node can have"
    )
    remarks.add(pod.subject, what, "no card of the node gets other instances")
    return None


def sharers(found: Iterable[KubeObject]) -> frozenset[str]:
    """By which of these names some pod that has not finished asks for a GPU or a part of one."""
    names, seen = set[str](), dict[int, object]()
    for pod in found:
        if text(pod.tree, "status", "phase") in ("Succeeded", "Failed"):
            continue
        shares = KAI_FRACTION in pod.annotations or KAI_MEMORY in pod.annotations
        if shares and text(pod.tree, "spec", "schedulerName") in kai.SCHEDULERS:
            names.add(BY_KAI)
        containers = at(pod.tree, "spec", "containers")
        for container in () if id(containers) in seen else objects(containers):
            for kind in ("limits", "requests"):
                for name in OF_PARTS & mapping(container, "resources", kind).keys():
                    names.add(BY_VOLCANO if name.startswith("volcano.") else BY_HAMI)
        seen[id(containers)] = containers  # pods share those that are equal
    return frozenset(names)
