"""What the command line adds to the input: ``--defragment``, ``--previous``, gangs that stay.

Promises: the order of all other objectives stays, and so do tolerances. Called by ``planner.planning``.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import replace
from typing import TYPE_CHECKING

from models.policy import Objective, Policy

if TYPE_CHECKING:
    from models.instance import Instance

DEFRAGMENT = "defragment"
STABILITY = "stability"


def tidying(policy: Policy) -> Policy:
    """The policy with ``defragment`` before ``disruption``, so that gangs move for its sake.

    Without ``disruption`` it goes behind admission and waiting, without these to the front. Where it
    is before ``disruption`` already it stays.
    """
    names = [objective.name for objective in policy.objectives]
    own = next((one for one in policy.objectives if one.name == DEFRAGMENT), None)
    if own is not None and DEFRAGMENT not in names[_place(names) :]:
        return policy
    others = [one for one in policy.objectives if one.name != DEFRAGMENT]
    place = _place([one.name for one in others])
    others.insert(place, own or Objective(DEFRAGMENT))
    return replace(policy, objectives=tuple(others))


def _place(names: list[str]) -> int:
    if "disruption" in names:
        return names.index("disruption")
    return max(
        (i + 1 for i, name in enumerate(names) if name in ("admission", "waiting")), default=0
    )


def sticking(policy: Policy) -> Policy:
    """The policy with ``stability`` last, unless it is listed already."""
    if any(objective.name == STABILITY for objective in policy.objectives):
        return policy
    return replace(policy, objectives=(*policy.objectives, Objective(STABILITY)))


def keeping(instance: Instance, namespaces: Collection[str] | None = None) -> Instance:
    """The instance whose running gangs may neither be stopped nor moved nor shrunk.

    ``namespaces``: only the gangs of these; None: all.
    They may still grow and get pods that are missing: nothing that stands has to go for that.
    """
    gangs = tuple(
        replace(gang, preemptible=False, movable=False)
        if gang.running and (namespaces is None or gang.namespace in namespaces)
        else gang
        for gang in instance.gangs
    )
    return replace(instance, gangs=gangs)
