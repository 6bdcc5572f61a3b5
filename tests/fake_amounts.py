"""Resource quantities as integers, and what a pod asks for in all.

Promises: thousandths of the unit, so that 1500m and 1.5 are one number; the larger of init containers
and containers, plus overhead. Called by ``fake_scheduler``.
"""

from __future__ import annotations

from decimal import Decimal
from functools import lru_cache

from fake_trees import Tree

_UNITS = {
    "m": Decimal("0.001"),
    "": Decimal(1),
    "k": Decimal(1000),
    "M": Decimal(1000**2),
    "G": Decimal(1000**3),
    "T": Decimal(1000**4),
    "P": Decimal(1000**5),
    "Ki": Decimal(1024),
    "Mi": Decimal(1024**2),
    "Gi": Decimal(1024**3),
    "Ti": Decimal(1024**4),
    "Pi": Decimal(1024**5),
}


@lru_cache(maxsize=4096)
def thousandths(quantity: str | int) -> int:
    """``"1500m"`` is 1500, ``"2"`` is 2000. Raises ValueError for what is no quantity."""
    text = str(quantity)
    number = text.rstrip("mkKMGTPEi")
    unit = text[len(number) :]
    if unit not in _UNITS:
        raise ValueError(f"no quantity: {text!r}")
    return int((Decimal(number) * _UNITS[unit]) * 1000)


def asked(pod: Tree) -> dict[str, int]:
    """What a pod asks for, in thousandths; one of ``pods`` included."""
    spec = pod["spec"]
    total: dict[str, int] = {"pods": 1000}
    for container in spec.get("containers") or []:
        _add(total, _requests(container))
    first: dict[str, int] = {}
    for container in spec.get("initContainers") or []:
        if container.get("restartPolicy") == "Always":
            _add(total, _requests(container))
            continue
        for name, amount in _requests(container).items():
            first[name] = max(first.get(name, 0), amount)
    for name, amount in first.items():
        total[name] = max(total.get(name, 0), amount)
    _add(total, {name: thousandths(value) for name, value in (spec.get("overhead") or {}).items()})
    return total


def _requests(container: Tree) -> dict[str, int]:
    found = (container.get("resources") or {}).get("requests") or {}
    return {name: thousandths(value) for name, value in found.items()}


def _add(total: dict[str, int], more: dict[str, int]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, 0) + amount
