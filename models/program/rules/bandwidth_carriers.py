"""Servers that may carry GPUs of a gang, with the rates they then have: the terms of the bandwidth rule.

A piece on a server where the gang already stands has the rates of both together. A standing server that
gets nothing more is a carrier of its own: sum of its pieces + untouched == admit. With unknown GPUs whose
worth depends on the case of the server it is one carrier a rate: untouched of a rate <= sum of the cases
with that rate.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.cluster import Node
from models.gang import Gang
from models.instance import Instance
from models.program.linear_program import Linear
from models.program.packing import network_MBps
from models.program.server_cases import Case, standing_set
from models.program.variables import GangVariables, Model
from models.rates.gang_bandwidth import ServerSet, ideal_MBps, set_inside_MBps
from models.rates.server_bandwidth import switched_MBps
from models.rates.speed import FULL_SPEED


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Rates of a server with GPUs of a gang on it; few differ, so that rules examine each once.

    ``group``: its NVLink domain, None outside any and where the gang may not use NVLink between servers.
    ``whole``: whether these are all GPUs of the gang. ``relative``: speed of its GPU model for the gang.
    """

    inside: Fraction | None
    network: Fraction
    ideal: Fraction
    group: int | None
    fabric: Fraction | None
    whole: bool
    switched: bool
    relative: int

    def spread_MBps(self, over: Fraction) -> Fraction:
        limit = self.network / over
        return limit if self.inside is None else min(limit, self.inside)


@dataclass(frozen=True, slots=True)
class Carrier:
    """A server in use if ``variable`` is not 0. ``most``: upper bound of the variable."""

    variable: int
    most: int
    rates: Rates


def carriers_of(model: Model, gang: GangVariables) -> list[Carrier]:
    """Every server that may carry GPUs of the gang, and those that already do.

    Raises UnknownRate where a link rate or NIC speed that the ideal needs is not known.
    """
    program, instance, demand = model.program, model.instance, gang.demand
    standing = dict(demand.standing)
    floor = _standing_ideal(instance, gang)
    carriers: list[Carrier] = []
    carried: dict[int, Linear] = {n: Linear() for n in standing}
    known: dict[tuple[int, int, int | None], Rates] = {}
    upper = program.upper
    for piece in gang.pieces:
        region = model.region_set.regions[piece.region]
        n, kind = region.nodes[0], piece.kind
        position = region.standing_demands.get(gang.number)
        if position is not None:
            carried[n].add(piece.variable)
            whole = kind.gpus + standing[n].count == demand.total_gpus
            found = _rates(model, gang, n, *kind.with_standing[position], floor, whole=whole)
        else:
            # equal types of GPU sets are one object (PieceBuilder)
            key = (id(kind), id(region.model.model), _group(model, gang, n))
            if key not in known:
                whole = kind.gpus == demand.total_gpus
                known[key] = _rates(model, gang, n, kind.inside, kind.network, floor, whole=whole)
            found = known[key]
        carriers.append(Carrier(piece.variable, upper[piece.variable], found))
    for n, chosen in standing.items():
        node = instance.cluster.nodes[n]
        rates = rates_of(node, chosen, model.cases.get(n, ()))
        untouched = [gang.admit]
        if carried[n].terms or len(rates) > 1:
            untouched = [program.boolean() for _ in rates]
            program.equal(carried[n].add_all(untouched).add(gang.admit, -1))
        for variable, ((inside, network), own) in zip(untouched, rates.items(), strict=True):
            if len(rates) > 1:
                program.at_most(Linear().add(variable).add_all(own, -1))
            whole = chosen.count == demand.total_gpus
            found = _rates(model, gang, n, inside, network, floor, whole=whole)
            carriers.append(Carrier(variable, upper[variable], found))
    return carriers


def rates_of(
    node: Node, chosen: ServerSet, cases: Sequence[tuple[Case, int]]
) -> dict[tuple[Fraction | None, Fraction | None], list[int]]:
    """inside and N of standing GPUs, with the cases in which they are so (none: always)."""
    if not chosen.blind or not cases:
        return {(set_inside_MBps(node, chosen), network_MBps(node, chosen)): []}
    found: dict[tuple[Fraction | None, Fraction | None], list[int]] = {}
    for case, variable in cases:
        if not chosen.known & ~case.held:
            own = standing_set(node, chosen, case)
            rates = (set_inside_MBps(node, own), network_MBps(node, own))
            found.setdefault(rates, []).append(variable)
    return found


def _standing_ideal(instance: Instance, gang: GangVariables) -> Fraction | None:
    nodes = instance.cluster.nodes
    models = tuple(m for n, _ in gang.demand.standing if (m := nodes[n].model))
    joined = gang.gang.nvlink_across_nodes
    return ideal_MBps(models, gang.demand.total_gpus, joined=joined) if models else None


def _group(model: Model, gang: GangVariables, n: int) -> int | None:
    """The NVLink domain of the node, if the gang may use it."""
    cluster = model.instance.cluster
    server = cluster.nodes[n].model
    if server is None or server.nvlink_domain_nodes < 2 or not gang.gang.nvlink_across_nodes:
        return None
    level = next((i for i, spec in enumerate(cluster.levels) if spec.nvlink), None)
    return None if level is None else cluster.domain_of[level][n]


def _rates(
    model: Model,
    gang: GangVariables,
    n: int,
    inside: Fraction | None,
    network: Fraction | None,
    floor: Fraction | None,
    *,
    whole: bool,
) -> Rates:
    server = model.instance.cluster.nodes[n].model
    assert server is not None
    joined = gang.gang.nvlink_across_nodes
    ideal = ideal_MBps((server,), gang.demand.total_gpus, joined=joined)
    group = _group(model, gang, n)
    return Rates(
        inside,
        network or Fraction(0),
        ideal if floor is None else min(ideal, floor),
        group,
        switched_MBps(server) if group is not None else None,
        whole,
        server.switched,
        relative_speed(model.instance, gang.gang, n),
    )


def relative_speed(instance: Instance, gang: Gang, n: int) -> int:
    """Permille of the fastest GPUs that those of a node count for the gang; equal where none counts."""
    server = instance.cluster.nodes[n].model
    if server is None or not (instance.by_speed and gang.counts_speed):
        return FULL_SPEED
    return instance.relative_speeds.of((server,))
