"""What-if: the changes of an input under which a plan was made, which therefore cannot be applied."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class WhatIf:
    """``added``: files. ``drained``: nodes. ``without``: gangs. ``relaxed``: (gang, what of it).

    Sorted, gangs as ``namespace/name``. ``what``: a level, or a word of RELAXABLE.
    """

    added: tuple[str, ...] = ()
    drained: tuple[str, ...] = ()
    without: tuple[str, ...] = ()
    relaxed: tuple[tuple[str, str], ...] = ()


RELAXABLE = {
    "required": "every level that is required",
    "slice": "the slices of its roles",
    "selector": "node selector and node affinity",
    "model": "the GPU or server model that is asked for",
    "one-model": "that the pods of a role run on one GPU model",
    "tolerations": "taints, which it then tolerates all",
    "requests": "CPU, memory and other resources",
    "affinity": "rules about other pods: affinity, anti-affinity and spread",
    "bandwidth": "its least share of the ideal bandwidth, and its patience",
    "balance": "equal shares over domains",
    "exclusive": "domains of its own",
    "hold": "why it must not start even if there is room",
}
"""What of a gang can be relaxed besides the levels of the cluster, by word."""
