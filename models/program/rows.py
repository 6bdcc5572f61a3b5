"""The rows of the full program: every rule that has some, in the order in which they are added."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

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
from models.program.variables import GangVariables, Model, StayVariables


@dataclass(frozen=True, slots=True)
class Rule:
    """``rows``: added once. ``gang_rows``: for every gang with variables of its own.

    ``stay_rows``: for every option that places nothing.
    """

    name: str
    rows: Callable[[Model], None] | None = None
    gang_rows: Callable[[Model, GangVariables, Topology], None] | None = None
    stay_rows: Callable[[Model, StayVariables], None] | None = None


RULES: tuple[Rule, ...] = (
    Rule("gpus", rows=gpus.add),
    Rule("resources", rows=resources.add),
    Rule("admission", rows=admission.add),
    Rule("running", rows=running.add),
    Rule("services", rows=services.add),
    Rule("pods of sets", rows=pod_affinity.add),
    Rule("order of queues", rows=queue_order.add),
    Rule("queue limits", rows=queue_limits.add),
    Rule("guarantees", rows=guarantees.add),
    Rule("reservations in queues", rows=reserved_quotas.add),
    Rule("cells", rows=cells.add),
    Rule("exclusive domains", rows=exclusive.add),
    Rule("spares", rows=spares.add),
    Rule("balance", gang_rows=balance.add),
    Rule("slices", gang_rows=slices.add),
    Rule("models", gang_rows=admission.one_model),
    Rule(
        "bandwidth",
        rows=bandwidth.forbid_slow_pieces,
        gang_rows=bandwidth.add_claims,
        stay_rows=bandwidth.add_stay_claims,
    ),
)


def add_rows(model: Model) -> list[Topology]:
    """Add the rows of every rule; returns the domains that the gangs with variables of their own use.

    The rows of required domains come first for each gang.
    """
    for rule in RULES:
        if rule.rows is not None:
            rule.rows(model)
    topologies = []
    for gang in model.variables.gangs:
        topology = Topology(model, gang)
        topologies.append(topology)
        for rule in RULES:
            if rule.gang_rows is not None:
                rule.gang_rows(model, gang, topology)
    for stay in model.variables.stays:
        for rule in RULES:
            if rule.stay_rows is not None:
                rule.stay_rows(model, stay)
    return topologies
