"""Gangs in several NVLink domains, each of which acts as one server: what they get, by the least share.

A gang has the network of the domain with fewest of its GPUs. One with l pods or more in each has there a
number of sets of l pods, and of other pods beside them, fewer than l for each set.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from fractions import Fraction

from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang
from models.program.packing import by_count, network_MBps
from models.rates.gang_bandwidth import ServerSet
from models.rules.demands import Demand


def nvlink_level(cluster: Cluster) -> int | None:
    """The widest level whose domains act as one server."""
    return next((level for level, spec in enumerate(cluster.levels) if spec.nvlink), None)


def joins(cluster: Cluster, gang: Gang, node: Node) -> bool:
    """Whether a gang uses NVLink between such a node and others of its domain."""
    several = node.model is not None and node.model.nvlink_domain_nodes > 1
    return several and gang.nvlink_across_nodes and nvlink_level(cluster) is not None


def domain_rates(
    gang: Gang, demand: Demand, kinds: Sequence[Node], over: Fraction
) -> Iterable[Fraction]:
    """What the network gives a gang at most with 1, 2, ... pods in the domain with fewest, MB/s.

    ``kinds``: a node of each kind that it may use; ``over``: oversubscription. Nothing if it is not known.
    """
    counted = all(node.model and by_count(node.model, node.effective_nics) for node in kinds)
    if not counted or gang.in_groups or len(demand.gpu_roles) > 1:
        return
    each = Fraction(0)
    for node in kinds:
        for gpus in range(1, node.gpus + 1):
            network = network_MBps(node, ServerSet((1 << gpus) - 1))
            if network is None:
                return
            each = max(each, network / gpus)
    (role,) = demand.gpu_roles
    for pods in range(1, role.count // 2 + 1):
        yield each * role.gpus * pods / over
