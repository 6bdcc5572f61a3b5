"""Parts that several canonical documents share.

Promises: one way to write every quantity; what is absent is not written. Called by this package.
"""

from __future__ import annotations

from typing import Any

from models.cluster import Level
from models.quantities import number, quantity_text

Json = dict[str, Any]


def present(**fields: object) -> Json:
    """The fields that have a value: an absent one is not written as null."""
    return {name: value for name, value in fields.items() if value is not None}


def level_document(level: Level) -> Json:
    return {
        "name": level.name,
        **present(label=level.label),
        "oversubscription": number(level.oversubscription),
        "nvlink": level.nvlink,
    }


def quantities(amounts: tuple[tuple[str, int], ...]) -> dict[str, str]:
    return {resource: quantity_text(resource, units) for resource, units in amounts}


def gpu_indices(mask: int) -> list[int]:
    """Indices of a bit mask, ascending."""
    return [gpu for gpu in range(mask.bit_length()) if mask >> gpu & 1]
