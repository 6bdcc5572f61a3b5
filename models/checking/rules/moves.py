"""Moves: no more restarts elsewhere than the policy allows.

A gang moves if any of its standing pods changes node or GPUs, pods without GPUs included. Such gangs are
at most maxGangs, all GPUs they stand on together at most maxGPUs. What they must gain: ``checking.moves``.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from models.checking.changes import Change
from models.checking.facts import Facts
from models.checking.violation import Violation


def check(facts: Facts, changes: Sequence[Change]) -> Iterator[Violation]:
    moved = [change for change in changes if change.moved]
    limits = facts.policy.moves
    for what, count, most in (
        ("gangs that move", len(moved), limits.gangs),
        ("their GPUs", sum(change.gpus_standing for change in moved), limits.gpus),
    ):
        if most is not None and count > most:
            yield Violation("moves", None, f"{what}: {count}, at most {most} may be")
