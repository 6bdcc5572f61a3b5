"""B(gang), ideal(gang) and share(gang) of a plan, as the contract's section 3 defines them.

Values are exact ranges of MB/s: one number, except where ``gpu_rates`` only bounds what a large or
unusual mesh of links reaches.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property
from typing import Self, TypeVar

from models.hardware import ServerModel
from models.verify.changes import Usage
from models.verify.facts import Facts, Gang, Node, Pod, PodKey
from models.verify.rates import gpu_rates
from models.verify.rates.gpu_rates import Range, RateNotKnownError

T = TypeVar("T")

FULL_SHARE = 1000


@dataclass(frozen=True)
class Bandwidth:
    """B and ideal of one gang; None: fewer than two GPUs, or a rate is not known."""

    reached: Range | None
    ideal: Range | None

    @cached_property
    def MBps(self) -> tuple[int, int] | None:
        """Least and most B in whole MB/s."""
        return None if self.reached is None else (int(self.reached.low), int(self.reached.high))

    @cached_property
    def share(self) -> tuple[int, int] | None:
        """Least and most permille of the ideal, floored once, at most 1000; 1000 if the ideal is 0."""
        if self.reached is None or self.ideal is None:
            return None
        return (
            _permille(self.reached.low, self.ideal.high),
            _permille(self.reached.high, self.ideal.low),
        )

    @property
    def exact(self) -> bool:
        """Whether both figures are one number, or none."""
        return all(one is None or one[0] == one[1] for one in (self.MBps, self.share))

    def below(self, least: Fraction) -> bool:
        """Whether B < least x ideal for certain, before any rounding."""
        if self.reached is None or self.ideal is None:
            return False
        return self.reached.high < least * self.ideal.low


def _permille(reached: Fraction, ideal: Fraction) -> int:
    return min(FULL_SHARE, int(FULL_SHARE * reached / ideal)) if ideal else FULL_SHARE


@dataclass(frozen=True, slots=True)
class ServerGpus:
    """The gang's GPUs in one server: mask ``known``, and ``unknown`` more out of ``candidates``."""

    node: Node
    known: int
    unknown: int
    candidates: int

    @property
    def count(self) -> int:
        return self.known.bit_count() + self.unknown

    @property
    def model(self) -> ServerModel:
        assert self.node.model is not None, "a node without a model has no GPUs to hold"
        return self.node.model


NO_BANDWIDTH = Bandwidth(None, None)


class GangBandwidths:
    """Computes what the pods of gangs reach, of one plan or before it. ``usage``: of every node then."""

    def __init__(self, facts: Facts, usage: Usage) -> None:
        self.facts = facts
        self.usage = usage
        # The widest nvlink level: nested ones are inside it.
        self.nvlink_level = next((i for i, level in enumerate(facts.levels) if level.nvlink), None)
        self.networks: dict[tuple[int, int, int, int, int], Fraction] = {}
        # What GPUs of known index reach in one server, by its model and their mask; ``alone``: the
        # bandwidth of one pod that has them.
        self.insides: dict[tuple[int, int], Range | None] = {}
        self.ideals: dict[tuple[int, int, bool], Range] = {}
        self.alone: dict[tuple[int, int, bool], Bandwidth] = {}

    def beside(self, usage: Usage) -> Self:
        """The same for another plan of the instance: rates do not depend on what the plan places."""
        other = copy(self)
        other.usage = usage
        return other

    def of(self, gang: Gang, pods: Mapping[PodKey, Pod]) -> Bandwidth:
        """B and ideal of the gang on these pods.

        A rate that is not known is no fault of a gang that stays: it has no bandwidth then.
        """
        joined = gang.joined
        if len(pods) != 1:
            return self._priced(self._servers(gang, pods), joined=joined)
        (pod,) = pods.values()
        if pod.gpus is None:
            return self._priced(self._servers(gang, pods), joined=joined)
        key = (id(self.facts.nodes[pod.node].model), pod.gpus, joined)
        if key not in self.alone:
            self.alone[key] = self._priced(self._servers(gang, pods), joined=joined)
        return self.alone[key]

    def _priced(
        self,
        servers: Sequence[ServerGpus],
        *,
        joined: bool,
        factor: Callable[[int], Fraction] | None = None,
        ideal_of: Callable[[ServerModel], Range] | None = None,
    ) -> Bandwidth:
        """``factor``: of the network rate of so many GPUs of a fabric. ``ideal_of``: of a pattern's own."""
        count = sum(server.count for server in servers)
        if count < 2:
            return NO_BANDWIDTH
        reached = ideal = None
        try:
            reached = self._reached(servers, joined=joined, factor=factor)
            models = {id(server.model): server.model for server in servers}
            ideal = gpu_rates.smallest(
                self._ideal(model, count, joined=joined) if ideal_of is None else ideal_of(model)
                for model in models.values()
            )
        except RateNotKnownError:
            pass
        return Bandwidth(reached, ideal)

    def _servers(self, gang: Gang, pods: Mapping[PodKey, Pod]) -> list[ServerGpus]:
        known: dict[int, int] = {}
        unknown: dict[int, int] = {}
        for pod in pods.values():
            if pod.gpus is None:
                unknown[pod.node] = unknown.get(pod.node, 0) + gang.held(pod)
            elif pod.gpus:
                known[pod.node] = known.get(pod.node, 0) | pod.gpus
        servers = []
        for position in sorted({*known, *unknown}):
            node = self.facts.nodes[position]
            own = known.get(position, 0)
            hidden = min(unknown.get(position, 0), node.gpus - own.bit_count())
            if own or hidden:
                candidates = self._candidates(position, node, own, hidden)
                servers.append(ServerGpus(node, own, hidden, candidates))
        return servers

    def _candidates(self, position: int, node: Node, own: int, hidden: int) -> int:
        """GPUs that ``hidden`` unknown ones may be: healthy and not known to be held.

        Existing pods may hold unhealthy GPUs, and more than the node has: then more GPUs qualify.
        """
        taken = self.usage.nodes[position].known
        for wider in (node.healthy & ~taken, node.all_gpus & ~taken):
            if wider.bit_count() >= hidden:
                return wider
        return node.all_gpus & ~own

    def _reached(
        self,
        servers: Sequence[ServerGpus],
        *,
        joined: bool,
        factor: Callable[[int], Fraction] | None,
    ) -> Range | None:
        fabrics = list(self._fabrics(servers)) if joined else [[server] for server in servers]
        insides = _distinct(self._inside(fabric) for fabric in fabrics)
        rates = [rate for rate in insides if rate is not None]
        if len(fabrics) > 1:
            networks = _distinct(self._fabric_network(fabric) for fabric in fabrics)
            if factor is not None:
                own = (sum(server.count for server in fabric) for fabric in fabrics)
                each = zip(map(self._fabric_network, fabrics), own, strict=True)
                networks = [network * factor(gpus) for network, gpus in each]
            rates.append(gpu_rates.exactly(min(networks) / self._oversubscription(servers)))
        return gpu_rates.smallest(rates)

    def _fabric_network(self, fabric: Sequence[ServerGpus]) -> Fraction:
        if len(fabric) == 1:
            return self._network(fabric[0])
        return sum((self._network(server) for server in fabric), Fraction(0))

    def _network(self, server: ServerGpus) -> Fraction:
        node, known, unknown = server.node, server.known, server.unknown
        key = (id(node.model), id(node.nics), known, unknown, server.candidates if unknown else 0)
        if key not in self.networks:
            self.networks[key] = gpu_rates.worst_network(
                server.model, node.nics, known, server.candidates, unknown
            )
        return self.networks[key]

    def _fabrics(self, servers: Sequence[ServerGpus]) -> Iterator[list[ServerGpus]]:
        """Servers, those of one NVLink domain together."""
        level = self.nvlink_level
        together: dict[int, list[ServerGpus]] = {}
        for server in servers:
            if level is not None and server.model.nvlink_domain_nodes > 1:
                together.setdefault(server.node.domain[level], []).append(server)
            else:
                yield [server]
        yield from together.values()

    def _oversubscription(self, servers: Sequence[ServerGpus]) -> Fraction:
        return max(
            (
                level.oversubscription
                for i, level in enumerate(self.facts.levels)
                if len({server.node.domain[i] for server in servers}) > 1
            ),
            default=Fraction(1),
        )

    def _inside(self, fabric: Sequence[ServerGpus]) -> Range | None:
        """inside of one server, or of one NVLink domain; None: one GPU."""
        if len(fabric) > 1:
            return gpu_rates.exactly(min(gpu_rates.fabric_rate(server.model) for server in fabric))
        (server,) = fabric
        key = (id(server.node.model), server.known)
        if server.unknown or key not in self.insides:
            found = gpu_rates.worst_inside(
                server.model, server.known, server.candidates, server.unknown
            )
            if server.unknown:
                return found
            self.insides[key] = found
        return self.insides[key]

    def _ideal(self, model: ServerModel, count: int, *, joined: bool) -> Range:
        key = (id(model), count, joined)
        if key not in self.ideals:
            self.ideals[key] = _ideal(model, count, joined=joined)
        return self.ideals[key]


def _distinct(found: Iterable[T]) -> list[T]:
    """The objects, each once: servers of one kind share theirs, and comparing fractions is slow."""
    return list({id(one): one for one in found}.values())


def _ideal(model: ServerModel, count: int, *, joined: bool) -> Range:
    """The best that ``count`` GPUs on servers of this model, as made, can reach."""
    if count <= model.gpus:
        return gpu_rates.best_inside(model, count)
    if joined and count <= model.gpus * model.nvlink_domain_nodes:
        return gpu_rates.exactly(gpu_rates.fabric_rate(model))
    everything = (1 << model.gpus) - 1
    network = gpu_rates.exactly(gpu_rates.network(model, model.nics, everything))
    inside = gpu_rates.inside(model, everything)
    return network if inside is None else gpu_rates.smallest((inside, network))
