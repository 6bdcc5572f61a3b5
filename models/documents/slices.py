"""Slices of a role: pods that share one domain, and slices around them.

Promises: types by pydantic; layers that do not nest by ``slice_complaints``. Called by ``gang``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Annotated

from pydantic import Field

from models.documents.base import Complaint, Document, whole

MAX_PODS = 1_000_000
"""Most pods of one gang."""

LevelName = Annotated[str, Field(description="`node` or a level of the cluster")]
Count = Annotated[int, whole(1, MAX_PODS)]


class SliceDocument(Document):
    """Pods with equal floor(index / size) share one domain of `required`."""

    size: Count
    required: LevelName


def slice_complaints(
    inner: SliceDocument | None, outer: Sequence[SliceDocument]
) -> Iterator[Complaint]:
    """Each layer holds several whole slices of the one inside it; paths start at the role."""
    if inner is None:
        if outer:
            what, hint = "outer slices without `slice`", "write the innermost ones as `slice`"
            yield Complaint(("outerSlices",), what, hint)
        return
    for i, (small, large) in enumerate(pairwise((inner, *outer))):
        if large.size % small.size or large.size == small.size:
            yield Complaint(
                ("outerSlices", i, "size"),
                f"slices of {large.size} pods around slices of {small.size}",
                f"write a multiple of {small.size}",
            )
