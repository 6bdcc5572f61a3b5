"""The judge: a plan document in, every violation out.

Promises: uses no solver and no code of the formulation; no exception on any document, however hostile.
Called by ``verify`` and by ``plan`` before anything is saved.

The solver-free judge: feasibility, stated figures and tiers, re-derived from the plan document alone.

Promises: no solver, no formulation code, no exception on hostile documents.
Called by ``verify``, by ``plan`` before anything is saved, and by tests.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from models.verify import stated_gangs as gangs
from models.verify import stated_moves as moves
from models.verify import stated_tiers as status
from models.verify.adaptor import check_digests, read_case
from models.verify.outcome import Figures, Outlook
from models.verify.rules import gpus, nodes, topology
from models.verify.rules import running as gang_rules
from models.verify.rules import running as move_rules
from models.verify.rules import running as sizes
from models.verify.tier_values import tiers
from models.verify.violation import RULES, Violation, ordered

CHECKS: tuple[Callable[[Outlook], Iterable[Violation]], ...] = (
    lambda outlook: gpus.check(outlook.facts, outlook.changes, outlook.usage),
    lambda outlook: nodes.check(outlook.facts, outlook.changes, outlook.usage),
    lambda outlook: topology.check(outlook.facts, outlook.changes),
    lambda outlook: gang_rules.check(outlook.changes, outlook.arrivals),
    lambda outlook: sizes.check_of_sizes(outlook.changes, outlook.ages),
    lambda outlook: move_rules.check_of_moves(outlook.facts, outlook.changes),
    gangs.check_of_gangs,
    moves.check,
    status.check,
)
"""Every rule of a plan, then what the plan states."""


def check(plan: dict[str, object]) -> list[Violation]:
    """Every difference between what the plan says and what follows from its instance; [] = fine.

    A document whose form is broken is judged by its form alone.
    """
    case, faults = read_case(plan)
    if case is None:
        return ordered(faults)
    outlook = Outlook(case)
    found = [*faults, *check_digests(plan, case.status)]
    for rule in CHECKS:
        found += rule(outlook)
    return ordered(found)


def derive(plan: dict[str, object]) -> dict[str, int]:
    """Value of every tier the policy asks for, by name, in order. Raises ValueError on a broken form."""
    return {tier.name: tier.value for tier in tiers(_outlook(plan))}


def figures(plan: dict[str, object]) -> dict[tuple[str, str], Figures]:
    """bandwidthMBps, share and domains of every gang, by (namespace, name). Raises ValueError likewise."""
    outlook = _outlook(plan)
    return {
        gang.key: found for gang, found in zip(outlook.facts.gangs, outlook.figures, strict=True)
    }


def _outlook(plan: dict[str, object]) -> Outlook:
    case, faults = read_case(plan)
    if case is None:
        raise ValueError("; ".join(fault.message for fault in faults[:3]))
    return Outlook(case)


__all__ = ["RULES", "Figures", "Violation", "check", "derive", "figures"]
