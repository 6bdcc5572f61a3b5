"""Servers that may carry GPUs of a gang, with the rates they then have: the terms of the bandwidth rule.

A piece on a server where the gang already stands has the rates of both together. A standing server that
gets nothing more is a carrier of its own: sum of its pieces + untouched == admit. With unknown GPUs whose
worth depends on the case of the server it is one carrier a rate: untouched of a rate <= sum of the cases
with that rate.

Of a gang in groups (section 3, 7 to 12) claims know, of every server in use, the GPUs of the gang and the
network rate, and the largest oversubscription that is crossed. A kind of group must leave a server that is
too small for one of its groups; of the others at least one kind does.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

from models.hardware import ServerModel
from models.instance.cluster import Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.speed import FULL_SPEED
from models.program.linear_program import Linear
from models.program.packing import SetType, network_MBps
from models.program.servers import Case
from models.program.variables import GangVariables, Model
from models.rates.gang_bandwidth import (
    ServerSet,
    exchange_factor,
    group_of,
    server_set,
    set_inside_MBps,
)
from models.rates.gang_rates import ideal_of
from models.rates.group_bandwidth import Kind, combined, role_kinds
from models.rates.server_bandwidth import best_inside_MBps, switched_MBps


@dataclass(frozen=True, slots=True, eq=False)
class Rates:
    """Rates of a server with GPUs of a gang on it; few differ, so that rules examine each once.

    ``group``: its NVLink domain, None outside any and where the gang may not use NVLink between servers.
    ``whole``: whether these are all GPUs of the gang. ``relative``: speed of its GPU model for the gang.
    ``gpus``: of the gang there. ``bounds``: where the bandwidth is that of groups. ``domain``: of a gang in
    groups, the most network rate and GPUs that it has in its NVLink domain if it needs others too.
    """

    inside: Fraction | None
    network: Fraction
    ideal: Fraction
    group: int | None
    fabric: Fraction | None
    whole: bool
    switched: bool
    relative: int
    gpus: int
    model: ServerModel
    domain: tuple[Fraction, int] | None = None
    bounds: GroupBounds | None = None

    def spread_MBps(self, over: Fraction) -> Fraction:
        if self.bounds is not None:
            return self.bounds.across(self.network, self.gpus, over)
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
    models = tuple(m for n in standing if (m := instance.cluster.nodes[n].model))
    floor = None
    if models:
        floor = ideal_of(instance, gang.gang, demand.counts, models, demand.total_gpus)
    carriers: list[Carrier] = []
    carried: dict[int, Linear] = {n: Linear() for n in standing}
    known: dict[tuple[SetType, int, int | None], Rates] = {}
    upper = program.upper
    for piece in gang.pieces:
        n, kind, server = piece.n, piece.kind, model.servers[piece.n]
        position = server.standing.get(gang.number)
        if position is not None:
            carried[n].add(piece.variable)
            both = kind.gpus + standing[n].count
            found = _rates(model, gang, n, *kind.with_standing[position], floor, gpus=both)
        else:
            key = (kind, id(server.node.model), _group(model, gang, n))
            if key not in known:
                bare = (kind.inside, kind.network)
                known[key] = _rates(model, gang, n, *bare, floor, gpus=kind.gpus)
            found = known[key]
        carriers.append(Carrier(piece.variable, upper[piece.variable], found))
    for n, chosen in standing.items():
        node = instance.cluster.nodes[n]
        rates = rates_of(node, chosen, model.cases(n))
        untouched = [gang.admit]
        if carried[n].terms or len(rates) > 1:
            untouched = [program.boolean() for _ in rates]
            program.equal(carried[n].add_all(untouched).add(gang.admit, -1))
        for variable, ((inside, network), own) in zip(untouched, rates.items(), strict=True):
            if len(rates) > 1:
                program.at_most(Linear().add(variable).add_all(own, -1))
            found = _rates(model, gang, n, inside, network, floor, gpus=chosen.count)
            carriers.append(Carrier(variable, upper[variable], found))
    return _in_groups(gang, carriers)


def _in_groups(gang: GangVariables, carriers: list[Carrier]) -> list[Carrier]:
    """The carriers with bounds, where groups decide the bandwidth; inside one server all is ideal."""
    role = bounded_role(gang.gang, gang.demand.counts)
    if role is None:
        return carriers
    kinds = {carrier.rates: None for carrier in carriers}
    # a domain counts as one server, with all the network rate that its GPUs may have
    domains = ((one.model, *one.domain) for one in kinds if one.domain is not None)
    servers = [(one.model, one.network, one.gpus) for one in kinds]
    bounds = GroupBounds(*role, [*servers, *domains])
    total = gang.demand.total_gpus
    bounded = {}
    for one in kinds:
        inside = bounds.alone(one.inside, total) if one.whole and one.inside is not None else None
        bounded[one] = replace(one, inside=inside, bounds=bounds)
    return [replace(carrier, rates=bounded[carrier.rates]) for carrier in carriers]


def rates_of(
    node: Node, chosen: ServerSet, cases: Sequence[tuple[Case, int]]
) -> dict[tuple[Fraction | None, Fraction | None], list[int]]:
    """inside and N of standing GPUs, with the cases in which they are so (none: always)."""
    if not chosen.blind or not cases:
        return {(set_inside_MBps(node, chosen), network_MBps(node, chosen)): []}
    found: dict[tuple[Fraction | None, Fraction | None], list[int]] = {}
    for case, variable in cases:
        if not chosen.known & ~case.held:
            own = server_set(node, chosen.known, chosen.blind, case.held)
            rates = (set_inside_MBps(node, own), network_MBps(node, own))
            found.setdefault(rates, []).append(variable)
    return found


def _group(model: Model, gang: GangVariables, n: int) -> int | None:
    """The NVLink domain of the node, if the gang may use it."""
    cluster = model.instance.cluster
    level, domain = group_of(cluster, n)
    return domain if gang.gang.nvlink_across_nodes and level < cluster.node_level else None


def _rates(
    model: Model,
    gang: GangVariables,
    n: int,
    inside: Fraction | None,
    network: Fraction | None,
    floor: Fraction | None,
    *,
    gpus: int,
) -> Rates:
    server = model.instance.cluster.nodes[n].model
    assert server is not None
    total = gang.demand.total_gpus
    ideal = ideal_of(model.instance, gang.gang, gang.demand.counts, (server,), total)
    group, network = _group(model, gang, n), network or Fraction(0)
    domain = None
    if gang.gang.in_groups and group is not None:
        cluster, (level, _) = model.instance.cluster, group_of(model.instance.cluster, n)
        there = sum(cluster.nodes[one].gpus for one in cluster.domains[level][group].nodes)
        most = min(there, max(1, total - 1))
        domain = network * most / gpus, most
    elif gang.gang.in_groups:
        network *= exchange_factor(gang.gang.pattern, gpus, total)
    return Rates(
        inside,
        network,
        ideal if floor is None else min(ideal, floor),
        group,
        switched_MBps(server) if group is not None else None,
        gpus == total,
        server.switched,
        relative_speed(model.instance, gang.gang, n),
        gpus,
        server,
        domain,
    )


def relative_speed(instance: Instance, gang: Gang, n: int) -> int:
    """Permille of the fastest GPUs that those of a node count for the gang; equal where none counts."""
    server = instance.cluster.nodes[n].model
    if server is None or not (instance.by_speed and gang.counts_speed):
        return FULL_SPEED
    return instance.relative_speeds.of((server,))


def bounded_role(gang: Gang, counts: Sequence[int]) -> tuple[Role, tuple[Kind, ...]] | None:
    """The one role with GPUs and its kinds of groups; None where there are several such roles."""
    every = zip(gang.roles, counts, strict=True)
    roles = [(role, count) for role, count in every if role.gpus * count]
    if len(roles) != 1:
        return None
    role, count = roles[0]
    kinds = role_kinds(gang, role, count)
    return None if kinds is None else (role, kinds)


class GroupBounds:
    """Upper bounds of the bandwidth of a gang in groups, from the servers that carry it.

    ``servers``: every one that may carry GPUs: its model, their network rate, and their number.
    """

    def __init__(
        self,
        role: Role,
        kinds: Sequence[Kind],
        servers: Sequence[tuple[ServerModel, Fraction, int]],
    ) -> None:
        self._kinds = kinds
        self._siblings = [_siblings(role, kind) for kind in kinds]
        models = {id(model): model for model, _, _ in servers}.values()
        self._best = [max((_best(m, kind) for m in models), default=Fraction(0)) for kind in kinds]
        self._free = [i for i, kind in enumerate(kinds) if role.gpus % (kind.size * kind.stride)]
        self._out = list(self._best)
        for i in self._free:
            out = max((self._leaving(i, n, own) for _, n, own in servers), default=Fraction(0))
            self._out[i], self._best[i] = out, max(self._best[i], out)

    def across(self, network: Fraction, own: int, over: Fraction) -> Fraction:
        """The most that the gang gets with ``own`` GPUs on such a server, if it crosses ``over``."""
        rates = list(self._best)
        if not self._free:  # one pod
            return combined(self._kinds, rates)
        for i in self._free:
            if self._kinds[i].size * self._siblings[i] > own:
                rates[i] = min(rates[i], self._leaving(i, network, own))
        if rates != self._best:
            return max(self._slowed(rates, i, self._out[i] / over) for i in self._free)
        # at least one kind leaves the server
        out = {i: min(self._leaving(i, network, own), self._out[i] / over) for i in self._free}
        return max(self._slowed(rates, i, rate) for i, rate in out.items())

    def _slowed(self, rates: Sequence[Fraction], kind: int, rate: Fraction) -> Fraction:
        """The bandwidth if one kind has at most this rate."""
        limited = (min(rate, known) if i == kind else known for i, known in enumerate(rates))
        return combined(self._kinds, tuple(limited))

    def alone(self, inside: Fraction, total: int) -> Fraction:
        """The most that the gang gets on ``total`` GPUs of one server with this inside(S)."""
        whole = [kind.size == total and kind.form == "ring" for kind in self._kinds]
        pairs = zip(whole, self._best, strict=True)
        return combined(self._kinds, [min(inside, best) if all_ else best for all_, best in pairs])

    def _leaving(self, kind_index: int, network: Fraction, own: int) -> Fraction:
        """The most that a kind gets of which groups leave a server with ``own`` GPUs of the role."""
        kind, siblings = self._kinds[kind_index], self._siblings[kind_index]
        near = min(kind.size - 1, max(1, own // siblings))
        if kind.form == "chain":
            return network / min(siblings, own)
        if kind.form == "exchange":
            return network * (kind.size - 1) / (own * (kind.size - near))
        return network * near / own


def _siblings(role: Role, kind: Kind) -> int:
    """How many groups of a kind have their ranks in the same pods."""
    if not kind.stride % role.gpus:
        return role.gpus
    tensor = 1 if role.parallelism is None else role.parallelism.tensor
    return 1 if role.gpus % tensor or kind.stride % tensor else tensor


def _best(model: ServerModel, kind: Kind) -> Fraction:
    """The most that a group inside a server gets."""
    size = 2 if kind.form == "chain" else kind.size
    sizes = range(2, min(size, model.gpus) + 1) if not model.switched else range(2, 3)
    if model.gpus < 2:
        return Fraction(0)
    return max(best_inside_MBps(model, k) or Fraction(0) for k in sizes)
