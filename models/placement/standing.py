"""What the tiers get of a running gang that stays where it is, in all or in part.

Promises: the plan's own figures for those pods, as integers. Called by ``tiers``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from models.evaluating import gang_value, known_masks
from models.gang import StandingPod
from models.instance import Instance
from models.placement.ground import base_decisions, placed


@dataclass(frozen=True, slots=True)
class Standing:
    """``preference``, ``bandwidth``, ``span``: what the gang adds to these tiers."""

    preference: int
    bandwidth: int
    span: int


class Stander:
    """Values of gangs as they stand; ``known``: GPUs held now, a node."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._known = known_masks(instance, base_decisions(instance))

    def value(self, index: int, stays: Sequence[StandingPod]) -> Standing:
        """What these pods of the gang are worth by themselves."""
        instance, gang = self._instance, self._instance.gangs[index]
        pods = placed(instance, index, stays)
        value = gang_value(instance, gang, pods, self._known)
        weight, node_level = gang.weight_gpus, instance.cluster.node_level
        preference = 0
        if gang.preferred is not None and value.domains[gang.preferred] == 1:
            preference += weight
        for number, role in enumerate(gang.roles):
            if role.preferred is not None:
                of = instance.cluster.domain_of[role.preferred]
                if len({of[pod.node] for pod in pods if pod.role == number}) == 1:
                    preference += role.min * role.gpus or 1
        counted = gang.pattern != "none"
        span = sum(
            weight * (used - 1) * 4 ** (node_level - level)
            for level, used in enumerate(value.domains)
        )
        share = value.share if counted and value.share is not None else 0
        return Standing(preference, gang.weight * weight * share, span)
