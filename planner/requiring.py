"""``--require``: which gangs the user means, and whether one left out provably cannot be admitted.

Promises: pure but for the one small search that asks about a gang alone; never changes the plan.
Called by ``planner.planning``.
"""

from __future__ import annotations

import difflib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from planner.errors import Fault, UsageError

if TYPE_CHECKING:
    from models.gang import Gang
    from models.instance import Instance
    from models.solution import GangDecision, Solution

_ADMITTED = ("place", "complete", "keep", "move", "resize")


@dataclass(frozen=True, slots=True)
class Required:
    """A required gang that the plan leaves out. ``proven``: no plan as good above it admits it."""

    name: str
    proven: bool
    why: str


def resolve(name: str, instance: Instance) -> int:
    """Index of the gang that ``[NAMESPACE/]NAME`` means.

    Raises UsageError if there is none, or a bare name stands in several namespaces.
    """
    namespace, slash, bare = name.rpartition("/")
    found = [
        index
        for index, gang in enumerate(instance.gangs)
        if gang.name == bare and (not slash or gang.namespace == namespace)
    ]
    if len(found) == 1:
        return found[0]
    full = [f"{gang.namespace}/{gang.name}" for gang in instance.gangs]
    if found:
        meant = ", ".join(full[index] for index in found[:5])
        raise UsageError(Fault(f"--require {name} is ambiguous", f"say which: {meant}"))
    names = full if slash else [gang.name for gang in instance.gangs]
    close = difflib.get_close_matches(name, names, n=1)
    hint = f"did you mean {close[0]}?" if close else "the input has no gang of that name"
    raise UsageError(Fault(f"--require {name}: no such gang", hint))


def unmet(
    required: tuple[int, ...], instance: Instance, solution: Solution
) -> tuple[Required, ...]:
    """The required gangs that the plan does not admit, in the order asked."""
    left_out = []
    for index in dict.fromkeys(required):
        gang, decision = instance.gangs[index], solution.decisions[index]
        if admitted(gang, decision):
            continue
        why = decision.reason.message if decision.reason else "the plan leaves it out"
        proven = _tiers_proven(gang, solution) or _proven_alone(index, instance)
        left_out.append(Required(f"{gang.namespace}/{gang.name}", proven, why))
    return tuple(left_out)


def admitted(gang: Gang, decision: GangDecision) -> bool:
    """Whether the gang runs whole after the plan; one kept with pods missing does not."""
    if decision.decision == "keep":
        return not gang.missing()
    return decision.decision in _ADMITTED


def _tiers_proven(gang: Gang, solution: Solution) -> bool:
    """Whether kept and admission are proven down to the gang's priority."""
    tiers = [
        tier
        for tier in solution.tiers
        if tier.name.partition("/")[0] in ("kept", "admission")
        and int(tier.name.partition("/")[2]) >= gang.priority
    ]
    return bool(tiers) and all(tier.bound == tier.best and tier.proof for tier in tiers)


def _proven_alone(index: int, instance: Instance) -> bool:
    """Whether the gang has no room even with every other waiting gang away (a proof at any size)."""
    from models.policy import Objective
    from planner.solving import solve

    gangs = tuple(g for i, g in enumerate(instance.gangs) if i == index or g.running)
    policy = replace(instance.policy, objectives=(Objective("admission"),))
    solution = solve(replace(instance, gangs=gangs, policy=policy))
    place = gangs.index(instance.gangs[index])
    return not admitted(gangs[place], solution.decisions[place]) and _tiers_proven(
        gangs[place], solution
    )
