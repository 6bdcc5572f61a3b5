"""What is there of a gang: its pods, when they started, what holds it back, where they were wanted.

Promises: types by pydantic; what contradicts the gang's roles by ``standing_complaints``; nodes are
the builder's matter. Called by ``gang``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

from pydantic import Field

from models.documents.base import Complaint, Document, Many, Name, Path, Sentence, Time, whole
from models.documents.server import GpuIndices
from models.documents.slices import MAX_PODS
from models.documents.suggesting import suggestion
from models.quantities import shown


class PodDocument(Document):
    """A pod that exists: with a node it runs, without it waits."""

    name: Name | None = Field(default=None, description="Absent: <gang>-<role>-<index>")
    uid: Name | None = None
    role: str
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name | None = None
    gpus: GpuIndices | None = Field(
        default=None,
        description="GPUs it holds; null: as many as its role says, nobody knows which",
    )
    mode: Literal["gate", "binding"] | None = Field(
        default=None, description="How a waiting pod can be started"
    )


class HoldDocument(Document):
    """Why pods of the gang must not be started, whatever room there is."""

    code: Literal["Unsupported", "Incomplete"]
    message: Sentence


class PlannedDocument(Document):
    """Where an earlier plan wanted a pod, there or not."""

    role: str
    index: Annotated[int, whole(0, MAX_PODS - 1)]
    node: Name


class GangStatus(Document):
    """Pods of the gang that exist, since when, and what holds the others back."""

    pods: Many[PodDocument] = ()
    hold: HoldDocument | None = Field(
        default=None, description="While it is there no pod of the gang is placed"
    )
    started_at: Time | None = Field(default=None, description="When its pods started")
    last_checkpoint: Time | None = Field(
        default=None, description="What it did until then is not lost when it stops"
    )
    planned: Many[PlannedDocument] = Field(
        default=(), description="Where an earlier plan wanted its pods"
    )


@dataclass(frozen=True, slots=True)
class Seats:
    """What a role says of its pods: the indices they may have, and the GPUs each holds."""

    indices: range
    gpus: int


def standing_complaints(
    status: GangStatus, gang: str, roles: Mapping[str, Seats]
) -> Iterator[Complaint]:
    """Contradictions between the pods of a gang and its roles; paths start at the gang's top."""
    slots: set[tuple[str, int]] = set()
    for i, pod in enumerate(status.pods):
        path: Path = ("status", "pods", i)
        yield from _seat_complaints(path, pod, roles)
        if pod.role not in roles:
            continue
        if (pod.role, pod.index) in slots:
            yield Complaint(
                (*path, "index"),
                f"two pods are {pod.role} {pod.index} of gang {shown(gang)}",
                "give each its own index",
            )
        slots.add((pod.role, pod.index))
        yield from _gpu_complaints(path, pod, roles[pod.role].gpus)
    wanted: set[tuple[str, int]] = set()
    for i, planned in enumerate(status.planned):
        path = ("status", "planned", i)
        yield from _seat_complaints(path, planned, roles)
        if (planned.role, planned.index) in wanted:
            what = f"pod {planned.role} {planned.index} is planned twice"
            yield Complaint((*path, "index"), what, "keep one of the two")
        wanted.add((planned.role, planned.index))


def _seat_complaints(
    path: Path, pod: PodDocument | PlannedDocument, roles: Mapping[str, Seats]
) -> Iterator[Complaint]:
    """A pod that no role has."""
    seats = roles.get(pod.role)
    if seats is None:
        hint = suggestion(pod.role, roles, "roles")
        yield Complaint((*path, "role"), f"unknown role {shown(pod.role)}", hint)
    elif pod.index not in seats.indices:
        yield Complaint(
            (*path, "index"),
            f"there is no pod {pod.index} of role {shown(pod.role)}",
            f"indices are {seats.indices[0]} to {seats.indices[-1]}",
        )


def _gpu_complaints(path: Path, pod: PodDocument, asked: int) -> Iterator[Complaint]:
    """GPUs that a pod cannot hold; ``asked``: how many its role asks for."""
    if pod.gpus is None:
        return
    if pod.node is None and pod.gpus:
        yield Complaint((*path, "gpus"), "a waiting pod holds no GPUs", "add its node")
    elif len(pod.gpus) != asked and pod.node is not None:
        yield Complaint(
            (*path, "gpus"),
            f"{len(pod.gpus)} GPUs held, but role {shown(pod.role)} asks for {asked}",
            f"list {asked} of them, or null where nobody knows which",
        )
    for gpu, times in Counter(pod.gpus).items():
        if times > 1:
            last = max(i for i, other in enumerate(pod.gpus) if other == gpu)
            yield Complaint((*path, "gpus", last), f"GPU {gpu} is listed twice", "list it once")
