"""What a gang asks of its bandwidth, and near whom it wants to be."""

from __future__ import annotations

from collections.abc import Hashable, Iterator
from fractions import Fraction

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.rules.declaration import Asked, Declaration, Requirement, dropping
from models.values.nearness import tied

_NOTHING = Fraction(0)


def _share(instance: Instance, gang: Gang) -> Iterator[Asked[Gang]]:
    least = float(instance.min_share(gang))
    if least:
        yield Asked(f"{least:g}", dropping(min_bandwidth_share=_NOTHING))


SHARE = Requirement(
    "minBandwidthShare",
    "it must get {} of its best bandwidth",
    of_gang=_share,
    code="Bandwidth",
    on_empty=True,
    word="bandwidth",
    relaxes="its least share of the ideal bandwidth",
)


def _beside_key(instance: Instance, gang: Gang) -> Hashable:
    if tied(instance, gang):
        return gang.key
    return None if gang.near is None else gang.near.level


DECLARED = Declaration(
    "bandwidth",
    (SHARE,),
    gang_key=lambda instance, gang: (
        instance.min_share(gang).as_integer_ratio(),
        gang.pattern == "none",
        gang.weight,
        gang.nvlink_across_nodes,
        (gang.fraction.as_integer_ratio(), gang.counts_speed) if instance.by_speed else None,
        (gang.pattern, gang.ordered, tuple(role.parallelism for role in gang.roles))
        if gang.in_groups
        else gang.ordered,
    ),
)

NEAR = Declaration("gangs beside each other", gang_key=_beside_key, own_variables=tied)
