"""What a plan states of its moves: sets of gangs that restart elsewhere, and what each set bought.

Promises: stated values as they stand, nothing is judged here. Called by ``statement``; judged by ``moves``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from fractions import Fraction

from models.checking.form import MAX_INTEGER, Form, shown

_SET_REQUIRED = ["gangs", "gpus", "bought", "gain"]
_BOUGHT_REQUIRED = ["gangs", "gpus", "bandwidth", "wholeNodes", "wholeDomains"]


@dataclass(frozen=True, slots=True)
class StatedSet:
    """One entry of ``status.moves``. ``gangs``, ``bought``: ``namespace/name`` as written.

    ``moved``: GPUs of the moved gangs. The rest is against the plan without these moves: ``gpus`` (w of
    admitted gangs), ``bandwidth`` (w x share), ``nodes`` and ``domains`` wholly free; ``gain`` a GPU moved.
    """

    gangs: tuple[str, ...]
    moved: int
    bought: tuple[str, ...]
    gpus: int
    bandwidth: int
    nodes: int
    domains: int
    gain: Fraction


def stated_moves(form: Form, value: object, where: str) -> tuple[StatedSet, ...]:
    """All sets; a plan that says nothing of moves has none."""
    return tuple(
        _set(form, item, f"{where}[{i}]")
        for i, item in enumerate(form.optional_items(value, where))
    )


def _set(form: Form, value: object, where: str) -> StatedSet:
    doc = form.mapping(value, where, required=_SET_REQUIRED)
    bought = form.mapping(doc.get("bought", {}), f"{where}.bought", required=_BOUGHT_REQUIRED)
    gpus, bandwidth, nodes, domains = (
        form.integer(bought.get(name, 0), f"{where}.bought.{name}")
        for name in ("gpus", "bandwidth", "wholeNodes", "wholeDomains")
    )
    return StatedSet(
        gangs=_names(form, doc.get("gangs", []), f"{where}.gangs"),
        moved=form.integer(doc.get("gpus", 0), f"{where}.gpus", 0),
        bought=_names(form, bought.get("gangs", []), f"{where}.bought.gangs"),
        gpus=gpus,
        bandwidth=bandwidth,
        nodes=nodes,
        domains=domains,
        gain=_gain(form, doc.get("gain", 0), f"{where}.gain"),
    )


def _names(form: Form, value: object, where: str) -> tuple[str, ...]:
    return tuple(
        form.text(item, f"{where}[{i}]") for i, item in enumerate(form.items(value, where))
    )


def _gain(form: Form, value: object, where: str) -> Fraction:
    """The decimal as written; gains may be negative."""
    if type(value) is int and abs(value) <= MAX_INTEGER:
        return Fraction(value)
    if isinstance(value, float) and math.isfinite(value) and abs(value) <= MAX_INTEGER:
        return Fraction(repr(value))
    form.fault(where, f"must be a number, not {shown(value)}")
    return Fraction(0)
