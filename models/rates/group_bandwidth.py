"""Bandwidth of groups within a role, and of patterns other than all-reduce (section 3, 7 to 12).

Exact rationals. Which rank a pod has is decided in ``models.rates.ranks``; here an order of places is priced.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

from models.documents.gang import Parallelism
from models.hardware import ServerModel, bits
from models.instance.cluster import Cluster
from models.instance.gang import Gang, Role
from models.rates.gang_bandwidth import (
    ServerSet,
    exchange_factor,
    group_of,
    ideal_MBps,
    oversubscription,
    set_inside_MBps,
    set_nics_MBps,
)
from models.rates.gpu_sets import UnknownRate
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import best_inside_MBps, inside_MBps, switched_MBps

Form = Literal["ring", "exchange", "chain"]
"""All-reduce or all-gather around a ring; all-to-all; every rank to the next."""

TENSOR, CONTEXT, EXPERT, DATA, PIPELINE = "tensor", "context", "expert", "data", "pipeline"

WEIGHTS = {TENSOR: 128, CONTEXT: 32, EXPERT: 128, DATA: 8, PIPELINE: 1}
"""Size of what a kind of group sends, in 1/32 of a layer's activations (docs/parallelism.md)."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Groups of ``size`` ranks, ``stride`` apart. ``traffic``: what a GPU sends next to other kinds."""

    name: str
    size: int
    stride: int
    form: Form
    traffic: Fraction

    def groups(self, gpus: int, step: int = 1) -> Iterable[range]:
        """The ranks of its groups among so many GPUs; every ``step``-th group of neighbours only."""
        block = self.size * self.stride
        for base in range(0, gpus, block):
            for first in range(base, base + self.stride, step):
                yield range(first, base + block, self.stride)


def kinds_of(degrees: Parallelism, gpus: int) -> tuple[Kind, ...] | None:
    """The kinds of groups of so many GPUs; None where the degrees do not divide them."""
    replica = degrees.tensor * degrees.pipeline * degrees.context
    shards = gpus // replica * degrees.context
    if gpus % replica or not gpus or shards % degrees.expert:
        return None
    tensor = degrees.tensor
    forms: tuple[tuple[str, int, int, Form, int], ...] = (
        (TENSOR, tensor, 1, "ring", 2),
        (CONTEXT, degrees.context, tensor, "ring", 1),
        (EXPERT, degrees.expert, tensor, "exchange", 1),
        (DATA, shards, tensor, "ring", 2),
        (PIPELINE, degrees.pipeline, tensor * shards, "chain", 1),
    )
    return tuple(
        Kind(name, n, stride, form, _traffic(WEIGHTS[name], n, form, rounds))
        for name, n, stride, form, rounds in forms
        if n > 1
    )


def _traffic(weight: int, size: int, form: Form, rounds: int) -> Fraction:
    return Fraction(weight) if form == "chain" else Fraction(weight * rounds * (size - 1), size)


def role_kinds(gang: Gang, role: Role, pods: int) -> tuple[Kind, ...] | None:
    """The kinds of groups of a role with so many pods; None if its ranks do not matter to its bandwidth."""
    if not role.gpus or not pods:
        return None
    if role.parallelism is not None:
        return kinds_of(role.parallelism, pods * role.gpus) or None
    if pods > 1 and gang.by_rank and not gang.parallel:
        return (Kind(PIPELINE, pods, role.gpus, "chain", Fraction(1)),)
    return None


@dataclass(frozen=True, slots=True)
class Place:
    """Where a pod is. ``gpus``: its GPUs, ascending; None where their indices are not known."""

    node: int
    gpus: tuple[int, ...] | None

    @staticmethod
    def of(node: int, mask: int | None) -> Place:
        return Place(node, None if mask is None else bits(mask))


Unit = tuple[int, int]
"""(level, domain) of a server, or of an NVLink domain that counts as one."""

Order = Sequence[int]
"""Index of the place of every pod, by rank."""


class GroupRates:
    """Rates of the groups of one role. ``sets``: its GPUs a node. ``gpus``: of a pod.

    Methods raise UnknownRate where a rate that they need is not known.
    """

    def __init__(
        self,
        cluster: Cluster,
        places: Sequence[Place],
        sets: Mapping[int, ServerSet],
        kinds: Sequence[Kind],
        gpus: int,
        *,
        joined: bool,
    ) -> None:
        self.kinds = tuple(kinds)
        self.places = tuple(places)
        self.gpus = gpus
        self._cluster, self._sets = cluster, sets
        of = {n: group_of(cluster, n) if joined else (cluster.node_level, n) for n in sets}
        self.units = [of[place.node] for place in places]
        self._members: dict[Unit, list[int]] = {}
        for n, unit in of.items():
            self._members.setdefault(unit, []).append(n)
        # behind switches only the number of GPUs counts, so that groups side by side are alike
        self._alike = not kinds or all(self._model(n).switched for n in sets)
        self._insides: dict[tuple[tuple[int, int, int], ...], Fraction | None] = {}
        self._networks: dict[Unit, tuple[Fraction, int]] = {}
        self._overs: dict[frozenset[int], Fraction] = {}
        self._by_pod: dict[Kind, Fraction] = {}

    def _model(self, node: int) -> ServerModel:
        model = self._cluster.nodes[node].model
        assert model is not None, "GPUs are on nodes with a model"
        return model

    def rates(self, order: Order) -> list[Fraction]:
        """MB/s of every kind with the pods in this order."""
        return [
            self._chain(kind, order) if kind.form == "chain" else self._least(kind, order)
            for kind in self.kinds
        ]

    def split(self, name: str, order: Order) -> int:
        """Number of groups of a kind that are in several units."""
        kind = next((one for one in self.kinds if one.name == name), None)
        if kind is None or self._in_pods(kind):
            return 0
        groups = kind.groups(len(order) * self.gpus)
        return sum(len({self.units[order[q // self.gpus]] for q in ranks}) > 1 for ranks in groups)

    def bandwidth(self, order: Order) -> Fraction:
        """B of the role with its pods in this order: the traffic of all kinds in the time they take."""
        return combined(self.kinds, self.rates(order))

    def place_class(self, place: int) -> object:
        """Places of one node with the same class can be exchanged without any effect on the rates."""
        own = self.places[place]
        return None if self._alike else own.gpus

    def unit_class(self, place: int) -> object:
        """Units with the same class, with one pod each, give groups the same rates."""
        if not self.kinds:
            return None
        try:
            network: object = self._network(self.units[place])
        except UnknownRate:
            network = place
        return id(self._model(self.places[place].node)), network

    def cost(self) -> int:
        """Ranks looked at to price one order."""
        return len(self.places) * self.gpus * len(self.kinds)

    def _step(self, kind: Kind) -> int:
        """How many groups that start next to each other are alike."""
        return self.gpus if self._alike and not kind.stride % self.gpus else 1

    def _least(self, kind: Kind, order: Order) -> Fraction:
        if self._in_pods(kind) and kind in self._by_pod:
            return self._by_pod[kind]
        groups = kind.groups(len(order) * self.gpus, self._step(kind))
        least = min(self._group(kind, ranks, order) for ranks in groups)
        if self._in_pods(kind):  # the same in every order
            self._by_pod[kind] = least
        return least

    def _in_pods(self, kind: Kind) -> bool:
        """Whether every group of the kind is within one pod."""
        return not self.gpus % (kind.size * kind.stride)

    def _group(self, kind: Kind, ranks: range, order: Order) -> Fraction:
        """What one group of a ring or an exchange gets."""
        parts: dict[Unit, list[int]] = {}
        for q in ranks:
            parts.setdefault(self.units[order[q // self.gpus]], []).append(q)
        if len(parts) == 1:
            inside = self._inside(ranks, order)
            assert inside is not None, "a group has two or more GPUs"
            return inside
        over = self._over(frozenset(self.places[order[q // self.gpus]].node for q in ranks))
        limits = []
        for unit, own in parts.items():
            network, total = self._network(unit)
            share = Fraction(len(own))
            if kind.form == "exchange":
                share = Fraction(kind.size - 1, kind.size - len(own))
            limits.append(network * share / (total * over))
            inside = self._inside(own, order)
            if inside is not None:
                limits.append(inside)
        return min(limits)

    def _chain(self, kind: Kind, order: Order) -> Fraction:
        """What a rank sends to the next of its group, where all send at once."""
        out: Counter[Unit] = Counter()
        into: Counter[Unit] = Counter()
        limits: list[Fraction] = []
        over = Fraction(1)
        step = self._step(kind)
        for ranks in kind.groups(len(order) * self.gpus, step):
            for q in ranks[:-1]:
                a, b = order[q // self.gpus], order[(q + kind.stride) // self.gpus]
                if self.units[a] == self.units[b]:
                    inside = self._inside((q, q + kind.stride), order)
                    assert inside is not None, "two GPUs have a rate"
                    limits.append(inside)
                else:
                    out[self.units[a]] += step
                    into[self.units[b]] += step
                    nodes = frozenset((self.places[a].node, self.places[b].node))
                    over = max(over, self._over(nodes))
        for unit in out | into:
            network, _ = self._network(unit)
            limits.append(network / (over * max(out[unit], into[unit])))
        return min(limits)

    def _inside(self, ranks: Iterable[int], order: Order) -> Fraction | None:
        """Rate among these GPUs of one unit; None for one GPU."""
        known: dict[int, int] = {}
        blind: Counter[int] = Counter()
        for q in ranks:
            place = self.places[order[q // self.gpus]]
            if place.gpus is None:
                blind[place.node] += 1
            else:
                known[place.node] = known.get(place.node, 0) | 1 << place.gpus[q % self.gpus]
        nodes = sorted({*known, *blind})
        key = tuple((n, known.get(n, 0), blind[n]) for n in nodes)
        if key not in self._insides:
            self._insides[key] = self._inside_value(key)
        return self._insides[key]

    def _inside_value(self, parts: tuple[tuple[int, int, int], ...]) -> Fraction | None:
        if len(parts) > 1:
            return min(switched_MBps(self._model(n)) for n, _, _ in parts)
        n, known, blind = parts[0]
        chosen = ServerSet(known, blind, self._sets[n].candidates)
        return set_inside_MBps(self._cluster.nodes[n], chosen)

    def _network(self, unit: Unit) -> tuple[Fraction, int]:
        """N of the role's GPUs in a unit, and their number."""
        if unit not in self._networks:
            nodes, own = self._cluster.nodes, self._members[unit]
            network = sum((set_nics_MBps(nodes[n], self._sets[n]) for n in own), Fraction(0))
            self._networks[unit] = network, sum(self._sets[n].count for n in own)
        return self._networks[unit]

    def _over(self, nodes: frozenset[int]) -> Fraction:
        if nodes not in self._overs:
            self._overs[nodes] = oversubscription(self._cluster, tuple(nodes))
        return self._overs[nodes]


def combined(kinds: Sequence[Kind], rates: Sequence[Fraction]) -> Fraction:
    """Traffic of all kinds over the time that it takes; 0 if a kind has no rate."""
    if not all(rates):
        return Fraction(0)
    time = sum((k.traffic / rate for k, rate in zip(kinds, rates, strict=True)), Fraction(0))
    return sum((kind.traffic for kind in kinds), Fraction(0)) / time


def ideal_of_kinds(
    models: Iterable[ServerModel], kinds: Sequence[Kind], gpus: int, *, joined: bool
) -> Fraction:
    """B of ``gpus`` GPUs with ranks in order on whole servers, the smallest over the models."""
    return min(
        combined(kinds, [_ideal_rate(model, kind, gpus, joined=joined) for kind in kinds])
        for model in models
    )


def _ideal_rate(model: ServerModel, kind: Kind, gpus: int, *, joined: bool) -> Fraction:
    server = model.gpus
    unit = unit_gpus(model, gpus, joined=joined)
    size = 2 if kind.form == "chain" else kind.size
    if gpus <= unit or kind.size * kind.stride <= unit:
        if size > server:
            return switched_MBps(model)
        return best_inside_MBps(model, size) or Fraction(0)
    network = nics_MBps(model, model.nics, model.all_gpus)
    if kind.form == "chain":
        out = network * unit / (server * min(kind.stride, unit))
    else:
        near = min(kind.size, max(1, unit // kind.stride))
        share = Fraction(near)
        if kind.form == "exchange":
            share = Fraction(kind.size - 1, kind.size - near)
        out = network * share / server
    return min(out, *_whole(model, unit))


def unit_gpus(model: ServerModel, gpus: int, *, joined: bool) -> int:
    """GPUs of a server, or of its NVLink domain where the server is too small and the domain may be used."""
    wide = joined and model.nvlink_domain_nodes > 1 and gpus > model.gpus
    return model.gpus * (model.nvlink_domain_nodes if wide else 1)


def _whole(model: ServerModel, unit: int) -> tuple[Fraction, ...]:
    """The rate among all GPUs of a server or an NVLink domain, if there are several."""
    if unit > model.gpus:
        return (switched_MBps(model),)
    inside = inside_MBps(model, model.all_gpus)
    return () if inside is None else (inside,)


def ideal_of_exchange(model: ServerModel, gpus: int, pattern: str, *, joined: bool) -> Fraction:
    """Ideal of ``all-to-all`` or ``parameter-server`` on servers of one model."""
    unit = unit_gpus(model, gpus, joined=joined)
    if gpus <= unit:
        return ideal_MBps((model,), gpus, joined=joined)
    network = nics_MBps(model, model.nics, model.all_gpus) * unit / model.gpus
    return min(network * exchange_factor(pattern, unit, gpus), *_whole(model, unit))
