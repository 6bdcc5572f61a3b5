"""Bandwidth: gangs that are placed, moved or completed reach their minBandwidthShare."""

from __future__ import annotations

from collections.abc import Iterator

from models.documents.gang import GangDocument
from models.documents.policy import PolicySpec
from models.verify.outcome import Outcome
from models.verify.rule import Judged
from models.verify.violation import Violation

BOUND = ("place", "move", "complete")
"""Growing and shrinking gangs are exempt."""


def check(outcome: Outcome) -> Iterator[Violation]:
    for change, found in zip(outcome.changes, outcome.bandwidths, strict=True):
        least = change.gang.min_share
        if change.kind in BOUND and found.below(least):
            yield change.violation(
                "min-share",
                f"reaches {found.share[1] if found.share else 0} permille of its ideal bandwidth, "
                f"at least {float(least):g} of it is required",
            )


def _binds(gang: GangDocument, policy: PolicySpec) -> bool:
    own = gang.spec.topology.min_bandwidth_share
    least = policy.min_bandwidth_share if own is None else own
    return least > 0


RULE = Judged(
    check,
    {"min-share": "no gang is placed below its minBandwidthShare"},
    on_empty=True,
    binds={"bandwidth": _binds},
)
