"""What a gang with rows of its own adds to the tiers of placement, told by which domains it is whole in.

Promises: preference exactly; no plan has more bandwidth or less span. Called by ``pooled``.
"""

from __future__ import annotations

from models.instance import Instance
from models.placement.program import Linear
from models.placement.rules.topology import Topology
from models.placement.shapes import Shaper
from models.placement.variables import GangVariables


def wholeness(
    instance: Instance, shaper: Shaper, gang: GangVariables, topology: Topology, family: str
) -> Linear:
    """The gang's part of ``preference``, ``bandwidth`` or ``span``."""
    if family == "preference":
        return _preference(gang, topology)
    if family == "bandwidth":
        return _bandwidth(instance, shaper, gang, topology)
    total = Linear()
    weight, node_level = gang.gang.weight_gpus, instance.cluster.node_level
    for level in range(node_level):
        factor = weight * 4 ** (node_level - level)
        total.add_linear(topology.count(level), factor).add(gang.admit, -factor)
    return total.add_linear(topology.nodes(), weight).add(gang.admit, -weight)


def _preference(gang: GangVariables, topology: Topology) -> Linear:
    total, spec = Linear(), gang.gang
    if spec.preferred is not None:
        total.add_linear(topology.whole(spec.preferred), spec.weight_gpus)
    for number, role in enumerate(spec.roles):
        if role.preferred is not None:
            total.add_linear(topology.whole(role.preferred, number), role.min * role.gpus or 1)
    return total


def _bandwidth(
    instance: Instance, shaper: Shaper, gang: GangVariables, topology: Topology
) -> Linear:
    """The most at the widest shape, and what each narrower one adds where it is whole there."""
    widest = -1 if gang.gang.required is None else gang.gang.required
    worth = shaper.bandwidth(gang.demand, widest)
    total = gang.admitted(worth)
    for level in range(widest + 1, instance.cluster.node_level + 1):
        narrower = shaper.bandwidth(gang.demand, level)
        if narrower > worth:
            total.add_linear(topology.whole(level, gpus_only=True), narrower - worth)
            worth = narrower
    return total
