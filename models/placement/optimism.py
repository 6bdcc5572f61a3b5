"""The most an option may add to a tier, whatever the placement: bounds where pods are pooled.

Promises: exact for the tiers of who runs and what it costs; of the others no plan is better.
Called by ``pooled``.
"""

from __future__ import annotations

from models.evaluating import Tier
from models.instance import Instance
from models.placement.options import Option, standing_gpus
from models.placement.standing import Stander
from models.pricing import FULL_SHARE

PAIR = 2
"""Fewest GPUs that have a bandwidth between them."""


class Optimism:
    """What each option is worth at best (for a tier to be minimised: at least)."""

    def __init__(self, instance: Instance) -> None:
        self._instance = instance
        self._stander = Stander(instance)
        self._largest = max((node.gpus for node in instance.cluster.nodes), default=0) or 1

    def of(self, index: int, option: Option, tier: Tier) -> int:
        """What the gang of that index adds when this option comes true."""
        instance, gang = self._instance, self._instance.gangs[index]
        demand, effect = option.demand, option.effect
        if tier.family == "kept":
            return effect.kept
        if tier.family == "disruption":
            # without any option the gang is stopped and all of it is lost
            gone = effect.lost - standing_gpus(instance, index)
            return instance.harm(gang) * gone if gang.running else 0
        if not effect.admitted or (tier.family.startswith("aged") and not instance.aged(gang)):
            return 0
        match tier.family:
            case "admission" | "aged":
                worth = gang.weight_gpus
            case "waiting" | "aged-waiting":
                worth = 0 if gang.running else gang.weight_gpus * instance.age(gang)
            case "growth":
                worth = sum(
                    (count - role.min) * role.gpus
                    for role, count in zip(gang.roles, demand.counts, strict=True)
                )
                worth = worth if gang.elastic else 0
            case "preference" | "bandwidth" | "span":
                worth = self._placement(index, option, tier.family)
            case _:
                worth = 0
        return worth

    def _placement(self, index: int, option: Option, family: str) -> int:
        gang, demand = self._instance.gangs[index], option.demand
        if not demand.roles:
            standing = self._stander.value(index, demand.stays)
            return int(getattr(standing, family))
        gpus = sum(r.gpus * n for r, n in zip(gang.roles, demand.counts, strict=True))
        if family == "preference":
            worth = gang.weight_gpus if gang.preferred is not None else 0
            return worth + sum(r.min * r.gpus or 1 for r in gang.roles if r.preferred is not None)
        if family == "bandwidth":
            counted = gang.pattern != "none" and gpus >= PAIR
            return gang.weight * gang.weight_gpus * FULL_SHARE if counted else 0
        return gang.weight_gpus * max(0, -(-gpus // self._largest) - 1)
