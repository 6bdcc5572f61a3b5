"""What-if: the changes of an input under which a plan was made, which therefore cannot be applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``added``: files. ``drained``: nodes. ``without``: gangs. ``relaxed``: (gang, what of it).

    Sorted, gangs as ``namespace/name``. ``what``: a level, or a word of ``models.rules.registry.relaxable``.
    """

    added: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    relaxed: tuple[tuple[str, str], ...] = ()
