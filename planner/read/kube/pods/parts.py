"""Parts of GPUs that pods ask KAI, HAMi or Volcano for, as the plan has them.

KAI: https://github.com/kai-scheduler/KAI-Scheduler, ``pkg/common/resources/gpu_sharing.go``. HAMi and
Volcano: ``resourcereqs`` of https://github.com/volcano-sh/volcano, ``pkg/scheduler/api/devices/nvidia/vgpu``.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from decimal import Decimal, InvalidOperation
from fractions import Fraction
from math import ceil

from models.gpu_shares import CORES, MOST_GPUS, Part, part_of
from models.mig import board_named, resource_of
from planner.read.findings import Remarks
from planner.read.kube.dialects import hami, kai
from planner.read.kube.lookup import mapping, number, objects, text
from planner.read.kube.pods.requests import (
    KAI_DEVICES,
    KAI_FRACTION,
    KAI_MEMORY,
    MAX_POD_GPUS,
    GpuRequest,
    container_amounts,
)
from planner.read.kube.records import Device, KubeNode, KubeObject, KubePod, MigKind

BY_KAI, BY_HAMI, BY_VOLCANO = KAI_FRACTION, "nvidia.com/gpumem", "volcano.sh/vgpu-number"
"""Names by which parts of GPUs are requested, and by which nodes offer theirs."""

_NUMBERS = {BY_HAMI: "nvidia.com/gpu", BY_VOLCANO: BY_VOLCANO}
"""The resource that counts the GPUs of a container."""

_AMOUNTS = {
    BY_HAMI: (BY_HAMI, "nvidia.com/gpumem-percentage", "nvidia.com/gpucores"),
    BY_VOLCANO: (
        "volcano.sh/vgpu-memory",
        "volcano.sh/vgpu-memory-percentage",
        "volcano.sh/vgpu-cores",
    ),
}
"""Memory in MiB, memory in percent and cores in percent of each of them."""

OF_PARTS = frozenset({BY_VOLCANO}.union(*_AMOUNTS.values()))
"""Resources that a part, or a whole GPU, stands for."""

MOST_MIB = 1 << 24
"""Memory of a part; more is a mistake."""

NO_PROFILE = "more GPU memory than any MIG profile of the nodes has"
SEVERAL_PROFILES = "GPU memory for which nodes have different MIG profiles"
NO_MEMORY = "a MIG instance without memory in MiB"
PREFERRED = "a preference of MIG profiles"
SEVERAL = "parts of GPUs in several containers of one pod"
MALFORMED = "a part of a GPU that cannot be read"

_MOST_DIGITS = 40
_ALL = 100


def sharers(found: Iterable[KubeObject]) -> frozenset[str]:
    """By which of these names some pod that has not finished asks for a GPU or a part of one."""
    names = set[str]()
    for pod in found:
        if text(pod.tree, "status", "phase") in ("Succeeded", "Failed"):
            continue
        shares = KAI_FRACTION in pod.annotations or KAI_MEMORY in pod.annotations
        if shares and text(pod.tree, "spec", "schedulerName") in kai.SCHEDULERS:
            names.add(BY_KAI)
        for container in objects(pod.tree, "spec", "containers"):
            for kind in ("limits", "requests"):
                for name in mapping(container, "resources", kind):
                    if name in OF_PARTS:
                        names.add(BY_VOLCANO if str(name).startswith("volcano.") else BY_HAMI)
    return frozenset(names)


def with_part(request: GpuRequest, pod: KubeObject, scheduler: str, remarks: Remarks) -> GpuRequest:
    """The request with the part of a GPU that it is, or the whole GPUs; with a problem if it is neither."""
    if not request.fraction:
        return request
    if request.kai:
        return _of_kai(request, pod, remarks) if scheduler in kai.SCHEDULERS else request
    for by, names in _AMOUNTS.items():
        asking = [one for one in container_amounts(pod.tree) if _asks(by, one)]
        if any(name in one for one in asking for name in (*names, BY_VOLCANO)):
            return _of_cards(request, by, asking, pod, remarks)
    return request


def _of_kai(request: GpuRequest, pod: KubeObject, remarks: Remarks) -> GpuRequest:
    gpus, part = number(pod.annotations.get(KAI_DEVICES) or "1"), _kai_part(pod.annotations)
    if part is None or not gpus or gpus > MOST_GPUS:
        return _with_problem(request, MALFORMED, pod, remarks)
    return replace(request, part=replace(part, gpus=gpus), resource=BY_KAI)


def _kai_part(annotations: Mapping[str, str]) -> Part | None:
    """``gpu-fraction`` counts before ``gpu-memory``, which is in MiB."""
    fraction, memory = annotations.get(KAI_FRACTION), annotations.get(KAI_MEMORY)
    if fraction:
        permille = _permille(fraction)
        return None if permille is None else Part.fraction(permille)
    amount = number(memory)
    return Part.memory(amount, 0) if amount and amount <= MOST_MIB else None


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


def _asks(by: str, amounts: Mapping[str, int]) -> bool:
    return any(amounts.get(name) for name in (_NUMBERS[by], *_AMOUNTS[by]))


def _of_cards(
    request: GpuRequest,
    by: str,
    asking: Sequence[Mapping[str, int]],
    pod: KubeObject,
    remarks: Remarks,
) -> GpuRequest:
    """What containers ask of HAMi's or Volcano's cards; without memory they get all of it."""
    gpus = sum(amounts.get(_NUMBERS[by]) or 1 for amounts in asking)
    parts = [_card_part(*(amounts.get(name, 0) for name in _AMOUNTS[by])) for amounts in asking]
    whole = all(part == WHOLE for part in parts)
    starting = container_amounts(pod.tree, "initContainers")
    problem = None
    if None in parts or (gpus > MOST_GPUS and not whole):
        problem = MALFORMED
    elif (len(asking) > 1 and not whole) or any(_asks(by, amounts) for amounts in starting):
        problem = SEVERAL
    if problem is not None:
        return _with_problem(request, problem, pod, remarks)
    if pod.annotations.get(hami.MODE) == "mig":
        return request
    if whole:
        return GpuRequest(min(gpus, MAX_POD_GPUS), _NUMBERS[by])
    part = parts[0]
    assert part is not None, "it can be read"
    return replace(request, part=replace(part, gpus=gpus), resource=by)


def with_instance(
    request: GpuRequest,
    pod: KubePod,
    nodes: Mapping[str, KubeNode],
    kinds: Collection[tuple[MigKind, ...]],
    remarks: Remarks,
) -> GpuRequest:
    """The request of a pod that wants an instance of HAMi, which goes to its other requests.

    ``kinds``: of the instances that cards of the nodes can have. HAMi takes the profile with the least
    memory that suffices.
    """
    asking = [one for one in container_amounts(pod.object.tree) if _asks(BY_HAMI, one)]
    starting = container_amounts(pod.object.tree, "initContainers")
    memory = asking[0].get(BY_HAMI, 0) if asking else 0
    least = (
        min(
            ((one.memory_MiB, one.profile) for one in own if one.memory_MiB >= memory), default=None
        )
        for own in kinds
    )
    profiles = {one[1] for one in least if one is not None}
    made = _made(pod, nodes.get(pod.node or ""), remarks)
    problem = None
    if made is not None:
        profiles = {made.profile or ""}
    elif (
        len(asking) != 1
        or asking[0].get(_NUMBERS[BY_HAMI], 1) != 1
        or any(_asks(BY_HAMI, one) for one in starting)
    ):
        problem = SEVERAL
    elif not memory:
        problem = NO_MEMORY
    elif pod.annotations.get(hami.PREFERENCE) is not None:
        problem = PREFERRED
    elif len(profiles) != 1:
        problem = SEVERAL_PROFILES if profiles else NO_PROFILE
    if problem is not None:
        return _with_problem(request, problem, pod.object, remarks)
    pod.requests = {name: n for name, n in pod.requests.items() if name not in OF_PARTS}
    pod.requests[resource_of(profiles.pop())] = 1
    pod.made, pod.gpu_resource = () if made is None else (made,), None
    return GpuRequest()


def _made(pod: KubePod, node: KubeNode | None, remarks: Remarks) -> Device | None:
    """The instance that HAMi has chosen for the pod; None if it has not, or nobody knows which."""
    if node is None or hami.MIG_ALLOCATIONS not in pod.annotations:
        return None
    found, board = hami.mig_allocation(pod.annotations), board_named(node.board or "")
    if found is not None and board is not None:
        uuid, name, place = found
        index, profile = hami.registered(node.object.annotations).get(uuid), board.profile(name)
        start, size = place
        there = profile is not None and (start, size) in [
            (at, profile.size) for at in profile.starts
        ]
        if there and index is not None and index in node.mig_mode:
            slices = board.slices(name, start)
            return Device("hami", node.name, f"{uuid}/{start}", index, profile=name, slices=slices)
    what = (
        f"its annotation {hami.MIG_ALLOCATIONS} names no instance that a card of its node can have"
    )
    remarks.add(pod.subject, what, "no card of the node gets other instances")
    return None


WHOLE = Part(CORES, 0, CORES)
"""All of a GPU."""


def _card_part(memory: int, percent: int, cores: int) -> Part | None:
    """The part, WHOLE for a GPU of its own, which all cores mean as well; None if there is none."""
    if cores > _ALL or percent > _ALL or memory > MOST_MIB:
        return None
    if cores == _ALL or (not memory and percent in (0, _ALL)):
        return WHOLE
    return Part.memory(memory, cores) if memory else Part.fraction(10 * percent, cores)


def _with_problem(
    request: GpuRequest, problem: str, pod: KubeObject, remarks: Remarks
) -> GpuRequest:
    if problem == MALFORMED:
        what = "asks for a part of a GPU that cannot be read; it waits, and counts as a GPU where it runs"
        hint = "a part is more than 0 and less than a GPU"
        if KAI_DEVICES in pod.annotations:
            hint += f"; {KAI_DEVICES} needs {KAI_FRACTION} or {KAI_MEMORY} beside it"
        remarks.add(pod.subject, what, hint)
    return replace(request, problems=(*request.problems, problem))


def held_part(part: Part, annotations: Mapping[str, str], memory_MiB: int | None) -> Part:  # noqa: N803
    """What a pod holds that asked for this part: what its scheduler wrote if that is more.

    ``memory_MiB``: of the card.
    """
    stated = hami.held_amounts(annotations, part.gpus)
    if (
        stated is None
        or stated[0] > MOST_MIB
        or stated[1] > _ALL
        or (part.permille and not memory_MiB)
    ):
        return part
    asked = part.memory_MiB or -(-part.permille * (memory_MiB or 0) // CORES)
    if stated[0] <= asked and 10 * stated[1] <= part.cores_permille:
        return part
    cores = max(stated[1], -(-part.cores_permille // 10))
    return replace(Part.memory(max(asked, stated[0]), cores), gpus=part.gpus)


def drop_part(pod: KubePod, instead: Part | None = None) -> None:
    """Take its part of a GPU off the requests of a pod, or put another in its place."""
    pod.requests = {name: n for name, n in pod.requests.items() if part_of(name) is None}
    if instead is not None:
        pod.requests[instead.resource] = instead.gpus
