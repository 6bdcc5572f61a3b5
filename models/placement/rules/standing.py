"""Bandwidth of gangs that place nothing where unknown GPUs of theirs may be worth more or less.

What the worst of them are hangs on which other gangs stay beside them on the server: one case of it comes
true, and the option's claims (``bandwidth``) carry its standing servers at the rates of that case.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.instance import Instance
from models.occupancy import Room
from models.placement.program import Program
from models.placement.regions import Pools
from models.placement.rules.bandwidth import Claims
from models.placement.rules.carriers import CaseVariables, rates_of
from models.placement.rules.topology import Topology
from models.placement.variables import GangVariables, StayVariables

NO_DEMAND = -1


def standing_claims(
    program: Program,
    instance: Instance,
    pools: Pools,
    rooms: Sequence[Room],
    stays: Sequence[StayVariables],
    cases: CaseVariables,
) -> dict[int, Claims]:
    """By admit variable, the claims of every option that is worth more in one case than in another."""
    found: dict[int, Claims] = {}
    nodes = instance.cluster.nodes
    for stay in stays:
        servers = [(nodes[n], chosen, cases.get(n, ())) for n, chosen in stay.demand.standing]
        if stay.effect.admitted and any(len(rates_of(*server)) > 1 for server in servers):
            # what stays may break its own required level, which then tells nothing of where it is
            free = replace(stay.gang, required=None)
            gang = GangVariables(NO_DEMAND, stay.demand, free, stay.admit, stay.effect)
            topology = Topology(program, instance, pools, rooms, gang, lean=True)
            found[stay.admit] = Claims(program, instance, pools, gang, topology, cases)
    return found
