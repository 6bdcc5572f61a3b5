"""The rows of the full program: every rule that has some, in the order in which they are added."""

from __future__ import annotations

from models.program.rules import (
    admission,
    balance,
    bandwidth,
    cells,
    exclusive,
    gpus,
    guarantees,
    pod_affinity,
    queue_limits,
    queue_order,
    reserved_quotas,
    resources,
    running,
    services,
    slices,
    spares,
)
from models.program.rules.topology import Topology
from models.program.variables import Model

ROWS = (
    gpus.add,
    resources.add,
    admission.add,
    running.add,
    services.add,
    pod_affinity.add,
    queue_order.add,
    queue_limits.add,
    guarantees.add,
    reserved_quotas.add,
    cells.add,
    exclusive.add,
    spares.add,
)
"""Added once."""

GANG_ROWS = (balance.add, slices.add, admission.one_model, bandwidth.add_claims)
"""Added for every gang with variables of its own."""


def add_rows(model: Model) -> list[Topology]:
    """Add the rows of every rule; returns the domains that the gangs with variables of their own use.

    The rows of required domains come first for each gang.
    """
    for add in ROWS:
        add(model)
    topologies = [Topology(model, gang) for gang in model.variables.gangs]
    for topology, gang in zip(topologies, model.variables.gangs, strict=True):
        for add_to in GANG_ROWS:
            add_to(model, gang, topology)
    for group in model.variables.groups:
        bandwidth.add_group_rates(model, group)
    for stay in model.variables.stays:
        bandwidth.add_stay_claims(model, stay)
    return topologies
