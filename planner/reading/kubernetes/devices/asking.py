"""How many GPUs a pod asks for, whole or in part, in any of the dialects that name resources.

Promises: a fraction is never taken for a whole GPU nor the other way round; one table says which
resource means what. Called by ``nodes`` and ``pods``.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from planner.reading.kubernetes.devices.classes import Sort
from planner.reading.kubernetes.looking import number

MOST = 100_000
"""Most GPUs of one pod: what the documents take."""

A_FRACTION = "a fraction of a GPU"
TWO_NAMES = "GPUs under two resource names"
HIVED = "hivedscheduler.microsoft.com/pod-scheduling-enable"
KAI_SCHEDULERS = ("kai-scheduler", "runai-scheduler")
KAI_FRACTION, KAI_MEMORY = "gpu-fraction", "gpu-memory"
KAI_DEVICES = "gpu-fraction-num-devices"

_HAMI_MEMORY = "nvidia.com/gpumem"
_HAMI_PERCENTS = ("nvidia.com/gpumem-percentage", "nvidia.com/gpucores")
_SHARES = {
    # resource that asks for a share of a GPU -> the one that counts the GPUs it lies on
    "aliyun.com/gpu-mem": "aliyun.com/gpu-count",
    "aliyun.com/gpu-core.percentage": "aliyun.com/gpu-count",
    "volcano.sh/vgpu-memory": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-memory-percentage": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-cores": "volcano.sh/vgpu-number",
    "volcano.sh/vgpu-number": "volcano.sh/vgpu-number",
    "volcano.sh/gpu-memory": "volcano.sh/gpu-number",
}
KOORDINATOR = ("koordinator.sh/", "kubernetes.io/")
KOORDINATOR_PERCENTS = ("gpu", "gpu-core", "gpu-memory-ratio")
"""Koordinator's resources, now and of old: percents of GPUs, by cores and by memory."""

CUT_UP = re.compile(r"nvidia\.com/mig-.+|nvidia\.com/gpu\.shared|amd\.com/.+_nps[0-9]+")
"""Parts with resource names of their own: their GPUs are not among those offered whole."""

_TELLTALE = ("gpu", "mig-", "_nps")


@dataclass(frozen=True, slots=True)
class Asking:
    """GPUs a pod asks for by resource names and annotations, without DRA.

    ``gpus``: whole ones, under ``resource`` (None: several names). ``part``: asks for a
    part of a GPU; ``shares``: of so many GPUs, 0 if those are offered to nobody as whole ones.
    ``hived``: asks through HiveD, whose annotations alone say how many. ``kai``: shares as KAI
    writes them, in annotations.
    """

    gpus: int = 0
    resource: str | None = None
    part: bool = False
    shares: int = 0
    hived: bool = False
    kai: bool = False
    problems: tuple[str, ...] = ()


NONE = Asking()


def is_gpu_name(resource: str) -> bool:
    """Whether a resource is GPUs by its name: the documents keep those apart from the others."""
    return resource.endswith("/gpu")


def read_asking(
    amounts: Mapping[str, int],
    annotations: Mapping[str, str],
    gpu_resources: Collection[str],
    classes: Mapping[str, Sort],
) -> Asking:
    """GPUs asked by these requests (whole units) and annotations.

    ``gpu_resources``: names that mean whole GPUs, in order; ``classes``: extended resources that
    stand for DRA device classes.
    """
    whole = [(name, amounts[name]) for name in gpu_resources if name in amounts]
    others = [
        name
        for name in amounts
        if name not in gpu_resources and any(telltale in name for telltale in _TELLTALE)
    ]
    if others:
        special = _special(amounts, others, whole, classes)
        if special is not None:
            return special
    if whole:
        name, count = whole[0]
        problems = (TWO_NAMES,) if len(whole) > 1 else ()
        most = max(amount for _, amount in whole)
        return Asking(min(most, MOST), name if most == count else None, problems=problems)
    if HIVED in amounts:
        return Asking(hived=True, problems=("GPUs asked of HiveD",))
    if KAI_FRACTION in annotations or KAI_MEMORY in annotations:
        shares = _bounded(number(annotations.get(KAI_DEVICES)) or 1)
        return Asking(part=True, shares=shares, kai=True)
    return NONE


def _special(
    amounts: Mapping[str, int],
    others: list[str],
    whole: list[tuple[str, int]],
    classes: Mapping[str, Sort],
) -> Asking | None:
    """What the names that are no plain GPU names say; None if they say nothing of GPUs."""
    asked = whole[0][1] if whole else 0
    if _HAMI_MEMORY in amounts or any(
        name in amounts and amounts[name] < 100 * max(1, asked) for name in _HAMI_PERCENTS
    ):
        return Asking(part=True, shares=_bounded(asked or 1))
    for name, counter in _SHARES.items():
        if name in amounts:
            return Asking(part=True, shares=_bounded(amounts.get(counter, 1)))
    if not whole:
        for prefix in KOORDINATOR:
            if (found := _koordinator(amounts, prefix)) is not None:
                return found
    return _of_classes(amounts, others, classes, whole=bool(whole))


def _of_classes(
    amounts: Mapping[str, int], others: list[str], classes: Mapping[str, Sort], *, whole: bool
) -> Asking | None:
    """Device classes asked as extended resources, and parts with names of their own."""
    for name in others:
        if classes.get(name) is Sort.PART:
            return Asking(part=True, shares=_bounded(amounts[name]))
        if classes.get(name) is Sort.WHOLE and not whole:
            return Asking(min(amounts[name], MOST), name)
    if not whole and any(CUT_UP.fullmatch(name) for name in others):
        return Asking(part=True, shares=0)
    return None


def _koordinator(amounts: Mapping[str, int], prefix: str) -> Asking | None:
    """Percents of cores and of memory: equal hundreds are whole GPUs."""
    percents = [amounts[prefix + name] for name in KOORDINATOR_PERCENTS if prefix + name in amounts]
    bytes_ = prefix + "gpu-memory" in amounts
    if not percents and not bytes_:
        return None
    spread = amounts.get(prefix + "gpu-shared") or amounts.get(prefix + "gpu.shared") or 0
    most = max(percents, default=0)
    count = most // 100
    alike = count > 0 and all(percent == 100 * count for percent in percents)
    if alike and spread in (0, count):
        return Asking(min(count, MOST), prefix + "gpu")
    return Asking(part=True, shares=_bounded(spread or -(-most // 100) or 1))


def _bounded(shares: int) -> int:
    return max(1, min(shares, MOST))
