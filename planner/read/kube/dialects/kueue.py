"""Kueue's groups of plain pods: a label names the group, an annotation counts it.

Promises: the group needs all its pods. Called through ``gangs.table``.

Kueue's podset annotations: the levels that the pods of one role ask for.

Promises: what contradicts itself is a remark, what cannot be honoured a problem. Called by
``asking``.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from planner.read.findings import Remarks
from planner.read.kube.dialects.base import Group, GroupDialect, Link, no_object
from planner.read.kube.lookup import number, text, whole
from planner.read.kube.records import KubePod, LevelAsk, Objects, SliceAsk

NAME = "kueue.x-k8s.io/pod-group-name"
TOTAL = "kueue.x-k8s.io/pod-group-total-count"


def claim(pod: KubePod) -> str | None:
    return pod.labels.get(NAME) or None


def describe(link: Link, pods: Sequence[KubePod], found: Objects, remarks: Remarks) -> Group:
    del found
    counts = {pod.annotations.get(TOTAL) for pod in pods} - {None}
    group = Group(link, minimum=max((number(count) or 0 for count in counts), default=0) or None)
    if len(counts) > 1:
        remarks.add(group.subject, f"its pods disagree about {TOTAL}; the largest counts")
    return group


DIALECT = GroupDialect("Kueue", claim, no_object, describe)


_KEY = "kueue.x-k8s.io/podset-"
REQUIRED = f"{_KEY}required-topology"
PREFERRED = f"{_KEY}preferred-topology"
UNCONSTRAINED = f"{_KEY}unconstrained-topology"
SLICE_LEVEL = f"{_KEY}slice-required-topology"
SLICE_SIZE = f"{_KEY}slice-size"
SLICES = f"{_KEY}slice-required-topology-constraints"
GROUP = f"{_KEY}group-name"
OFFSET = "kueue.x-k8s.io/pod-index-offset"

_KEYS = (REQUIRED, PREFERRED, UNCONSTRAINED, SLICE_LEVEL, SLICE_SIZE, SLICES, GROUP, OFFSET)
_LAYERS = 3

BOTH = "asks for a required and a preferred topology at once, which Kueue refuses; both count"
FREE_AND_BOUND = (
    "asks for a topology and for none at once, which Kueue refuses; the topology counts"
)
NO_SIZE = "asks for slices without a size"
BAD_SLICES = "asks for slices in a form that cannot be read"
DEEP_SLICES = "asks for more than three layers of slices, which Kueue refuses"
NOT_NESTED = "asks for slices whose sizes do not divide each other"


@dataclass(frozen=True, slots=True)
class PodSetAsk:
    """``odd``: worth a remark; ``problems``: what cannot be honoured."""

    required: LevelAsk | None = None
    preferred: LevelAsk | None = None
    slices: tuple[SliceAsk, ...] = ()
    group: str | None = None
    offset: int | None = None
    odd: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()


NOTHING = PodSetAsk()


def asked(annotations: dict[str, str], job_size: int) -> PodSetAsk:
    """What the annotations of a pod ask; ``job_size``: slices without a size are that large (0: none)."""
    values = tuple(annotations.get(key) for key in _KEYS)
    return _read(values, job_size) if any(value is not None for value in values) else NOTHING


@lru_cache(maxsize=4096)
def _read(values: tuple[str | None, ...], job_size: int) -> PodSetAsk:
    required, preferred, free, level, size, layers, group, offset = values
    odd = []
    if required and preferred:
        odd.append(BOTH)
    if free is not None and free.lower() != "false" and (required or preferred):
        odd.append(FREE_AND_BOUND)
    slices, problem = _slices(level, size, layers, job_size)
    return PodSetAsk(
        LevelAsk(label=required) if required else None,
        LevelAsk(label=preferred) if preferred else None,
        slices,
        group or None,
        number(offset),
        tuple(odd),
        (problem,) if problem else (),
    )


def _slices(
    level: str | None, size: str | None, layers: str | None, job_size: int
) -> tuple[tuple[SliceAsk, ...], str | None]:
    if layers is not None:
        return _layered(layers)
    if not level:
        return (), NO_SIZE.replace("without a size", "without a level") if size else None
    pods = number(size) if size is not None else job_size
    if not pods:
        return (), NO_SIZE if size is None else BAD_SLICES
    return (SliceAsk(pods, LevelAsk(label=level)),), None


def _layered(written: str) -> tuple[tuple[SliceAsk, ...], str | None]:
    """Slices in slices, from the widest level to the nearest."""
    try:
        parsed = json.loads(written) if len(written) <= 65536 else None
    except (ValueError, RecursionError):
        parsed = None
    if not isinstance(parsed, list) or not parsed:
        return (), BAD_SLICES
    if len(parsed) > _LAYERS:
        return (), DEEP_SLICES
    found = []
    for entry in parsed:
        label, size = text(entry, "topology"), whole(entry, "size")
        if size is None:
            size = number(text(entry, "size"))
        if label is None or size is None or size < 1:
            return (), BAD_SLICES
        found.append(SliceAsk(size, LevelAsk(label=label)))
    if any(wide.size % near.size for wide, near in zip(found, found[1:], strict=False)):
        return (), NOT_NESTED
    return tuple(found), None
