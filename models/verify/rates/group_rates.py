"""B and ideal of gangs whose GPUs communicate in groups, or with a pattern of its own formula.

Written from section 3 of docs/formulation.md, "Groups"; the numbers in comments are its items. A *unit* is
a server, or an NVLink domain where it counts as one server.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.documents.gang import Parallelism
from models.hardware import ServerModel
from models.verify.facts import Gang, Pod, PodKey
from models.verify.rates import gpu_rates
from models.verify.rates.bandwidth import NO_BANDWIDTH, Bandwidth, GangBandwidths, ServerGpus
from models.verify.rates.gpu_rates import Range, RateNotKnownError

SPREAD_PATTERNS = ("all-to-all", "parameter-server")
"""Patterns in which the GPUs of a unit share its NICs."""

Parts = Mapping[Hashable, Sequence[ServerGpus]]
"""By unit, GPUs in its servers."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Groups of ``size`` GPUs whose ranks are ``stride`` apart. ``traffic``: their share of the bytes."""

    name: str
    size: int
    stride: int
    traffic: Fraction

    def groups(self, gpus: int) -> Iterator[range]:
        """The ranks of every group of a role with so many GPUs."""
        width = self.size * self.stride
        for first in range(0, gpus, width):
            for rank in range(first, first + self.stride):
                yield range(rank, rank + width, self.stride)


PIPELINE = "pipeline"
EXPERT = "expert"
TENSOR = "tensor"


def kinds_of(degrees: Parallelism, gpus: int) -> list[Kind] | None:
    """7: the kinds of a role with so many GPUs; None where the degrees do not divide them."""
    t, c, e, p = degrees.tensor, degrees.context, degrees.expert, degrees.pipeline
    if gpus % (t * c * p) or gpus // (t * p) % e:
        return None
    replicas = gpus // (t * p)  # C D
    found = [
        Kind(TENSOR, t, 1, 128 * Fraction(2 * (t - 1), t)),
        Kind("context", c, t, 32 * Fraction(c - 1, c)),
        Kind(EXPERT, e, t, 128 * Fraction(e - 1, e)),
        Kind("data", replicas, t, 8 * Fraction(2 * (replicas - 1), replicas)),
        Kind(PIPELINE, p, t * replicas, Fraction(1)),
    ]
    return [kind for kind in found if kind.size > 1]


@dataclass(frozen=True, slots=True)
class _Gpus:
    """The GPUs of a role by rank: their nodes, and bits, 0 where unknown. ``whole``: of each node."""

    nodes: Sequence[int]
    bits: Sequence[int]
    whole: Mapping[int, ServerGpus]

    def of(self, ranks: Iterable[int]) -> list[tuple[int, ServerGpus]]:
        """The GPUs of these ranks by node; unknown ones are of those that the role may have there."""
        known: Counter[int] = Counter()
        unknown: Counter[int] = Counter()
        for rank in ranks:
            node, bit = self.nodes[rank], self.bits[rank]
            known[node] += bit
            unknown[node] += not bit
        return [
            (n, ServerGpus(self.whole[n].node, mask, unknown[n], self.whole[n].candidates))
            for n, mask in known.items()
        ]


def by_ranks(gang: Gang) -> bool:
    """Whether its bandwidth depends on the ranks of its pods."""
    return gang.pattern == PIPELINE or any(role.parallelism is not None for role in gang.roles)


class GroupBandwidths(GangBandwidths):
    """Bandwidths of all gangs: those of groups by items 7 to 12, the others by 1 to 6."""

    def of(self, gang: Gang, pods: Mapping[PodKey, Pod], ranks: Ranks | None = None) -> Bandwidth:
        """B and ideal of the gang on these pods with these ranks; None: kept and plainest ones."""
        if by_ranks(gang):
            return self._of_roles(gang, pods, ranks)
        if gang.pattern in SPREAD_PATTERNS:
            return self._spread(gang, pods)
        return super().of(gang, pods)

    def split_groups(
        self, gang: Gang, number: int, pods: Mapping[PodKey, Pod], ranks: Ranks
    ) -> tuple[int, int]:
        """Tensor and expert groups of a role that lie in several units."""
        own = _of_role(pods, number)
        gpus = self._gpus(gang, number, own, ranks)
        split = Counter(
            kind.name
            for kind in (_kinds(gang, number, len(own)) or ())
            if gpus is not None
            for group in kind.groups(len(gpus.nodes))
            if len({self._unit(gang, gpus.nodes[rank]) for rank in group}) > 1
        )
        return split[TENSOR], split[EXPERT]

    def of_role(
        self, gang: Gang, number: int, pods: Mapping[PodKey, Pod], ranks: Ranks | None
    ) -> Bandwidth:
        """B and ideal of one role of a gang with groups; none below two GPUs."""
        own = _of_role(pods, number)
        kinds = _kinds(gang, number, len(own))
        ranks = plainest(gang, number, own.values()) if ranks is None else ranks
        gpus = self._gpus(gang, number, own, ranks) if kinds else None
        if gpus is None or not kinds:
            return self._priced(self._servers(gang, own), joined=gang.joined)
        reached = ideal = None
        try:
            total = self._units(gang, gpus.whole.items())
            reached = _together((kind, self._rate(gang, kind, gpus, total)) for kind in kinds)
            models = {id(one.model): one.model for one in gpus.whole.values()}.values()
            ideal = gpu_rates.smallest(
                _together((kind, ideal_of(model, kind, len(gpus.nodes), gang)) for kind in kinds)
                for model in models
            )
        except RateNotKnownError:
            pass
        return Bandwidth(reached, ideal)

    def _of_roles(self, gang: Gang, pods: Mapping[PodKey, Pod], ranks: Ranks | None) -> Bandwidth:
        """11: of the role that reaches the least of its ideal; none if a rate of any is not known."""
        counts = Counter[int]()
        for pod in pods.values():
            counts[pod.role] += gang.held(pod)
        found = [
            self.of_role(gang, number, pods, ranks)
            for number in range(len(gang.roles))
            if counts[number] > 1
        ]
        if len(found) == 1:
            return found[0]
        if not found or any(one.reached is None or one.ideal is None for one in found):
            return NO_BANDWIDTH
        return _slowest(found)

    def _gpus(
        self, gang: Gang, number: int, pods: Mapping[PodKey, Pod], ranks: Ranks
    ) -> _Gpus | None:
        """The GPUs of a role by rank; None where pods hold other numbers of them than they ask for."""
        each = gang.roles[number].gpus
        nodes, masks = [0] * (each * len(pods)), [0] * (each * len(pods))
        for key, pod in pods.items():
            if gang.held(pod) != each:
                return None
            first, mask = ranks[key], pod.gpus or 0
            for rank in range(first, first + each):
                nodes[rank], masks[rank] = pod.node, mask & -mask
                mask &= mask - 1
        servers = self._servers(gang, pods)
        if sum(server.count for server in servers) != len(nodes):
            return None
        whole = dict(zip(sorted(set(nodes)), servers, strict=True))
        return _Gpus(nodes, masks, whole)

    def _unit(self, gang: Gang, n: int) -> Hashable:
        node, level = self.facts.nodes[n], self.nvlink_level
        if gang.joined and level is not None and node.model and node.model.nvlink_domain_nodes > 1:
            return ("domain", node.domain[level])
        return n

    def _units(self, gang: Gang, servers: Iterable[tuple[int, ServerGpus]]) -> Parts:
        found: dict[Hashable, list[ServerGpus]] = {}
        for n, server in servers:
            found.setdefault(self._unit(gang, n), []).append(server)
        return found

    # 8: rates of groups

    def _rate(self, gang: Gang, kind: Kind, gpus: _Gpus, total: Parts) -> Range:
        """The least that a group of the kind gets. ``total``: all GPUs of the role by unit."""
        if kind.name == PIPELINE:
            return gpu_rates.smallest(self._pairs(gang, kind, gpus, total))
        return gpu_rates.smallest(
            rate
            for group in kind.groups(len(gpus.nodes))
            for rate in self._group(gang, kind, gpus.of(group), total)
        )

    def _group(
        self, gang: Gang, kind: Kind, servers: Sequence[tuple[int, ServerGpus]], total: Parts
    ) -> Iterator[Range]:
        units = self._units(gang, servers)
        over = self._oversubscription([server for _, server in servers])
        for unit, own in units.items():
            inside = self._inside(own)
            if inside is not None:
                yield inside
            if len(units) > 1:
                count = _count(own)
                share = Fraction(count)
                if kind.name == EXPERT:
                    share = Fraction(kind.size - 1, kind.size - count)
                each = self._fabric_network(total[unit]) / _count(total[unit])
                yield gpu_rates.exactly(each * share / over)

    def _pairs(self, gang: Gang, kind: Kind, gpus: _Gpus, total: Parts) -> Iterator[Range]:
        """Of neighbours in a pipeline: inside their unit, or by the pairs that leave or enter a unit."""
        leaving, entering = Counter[Hashable](), Counter[Hashable]()
        over = Fraction(1)
        seen = set()
        for group in kind.groups(len(gpus.nodes)):
            for rank in group[:-1]:
                pair = (rank, rank + kind.stride)
                ends = [gpus.nodes[one] for one in pair]
                first, second = (self._unit(gang, n) for n in ends)
                if first != second:
                    leaving[first] += 1
                    entering[second] += 1
                    if (*ends,) not in seen:
                        seen.add((*ends,))
                        over = max(over, self._oversubscription([gpus.whole[n] for n in ends]))
                    continue
                inside = self._inside([server for _, server in gpus.of(pair)])
                if inside is not None:
                    yield inside
        for unit in {*leaving, *entering}:
            most = max(leaving[unit], entering[unit])
            yield gpu_rates.exactly(self._fabric_network(total[unit]) / (over * most))

    # 12: patterns

    def _spread(self, gang: Gang, pods: Mapping[PodKey, Pod]) -> Bandwidth:
        servers, to_all = self._servers(gang, pods), gang.pattern == "all-to-all"
        count = _count(servers)
        return self._priced(
            servers,
            joined=gang.joined,
            factor=lambda own: (
                Fraction(count - 1, own * (count - own)) if to_all else Fraction(1, own)
            ),
            ideal_of=lambda model: self._spread_ideal(gang, model, count, to_all=to_all),
        )

    def _spread_ideal(self, gang: Gang, model: ServerModel, count: int, *, to_all: bool) -> Range:
        if count <= _widest(model, gang):
            return self._ideal(model, count, joined=gang.joined)
        if to_all:
            factor = Fraction(count - 1, count - _widest(model, gang))
            return _through_network(model, gang, factor / model.gpus)
        found = []
        models = {id(node.model): node.model for node in self.facts.nodes if node.model}
        for other in models.values():
            if other.gpus and count > _widest(other, gang):
                try:
                    found.append(_through_network(other, gang, Fraction(1, other.gpus)))
                except RateNotKnownError:
                    continue
        if not found:
            raise RateNotKnownError(f"no rate of servers for {count} GPUs is known")
        return gpu_rates.largest(found)


def _of_role(pods: Mapping[PodKey, Pod], number: int) -> dict[PodKey, Pod]:
    return {key: pod for key, pod in pods.items() if key[0] == number}


def _kinds(gang: Gang, number: int, pods: int) -> list[Kind] | None:
    """Kinds of groups of a role with so many pods; None: it counts as one all-reduce."""
    role = gang.roles[number]
    if role.parallelism is not None:
        return kinds_of(role.parallelism, role.gpus * pods)
    stages = gang.pattern == PIPELINE and all(one.parallelism is None for one in gang.roles)
    return [Kind(PIPELINE, pods, role.gpus, Fraction(1))] if stages and pods > 1 else None


def _count(servers: Iterable[ServerGpus]) -> int:
    return sum(server.count for server in servers)


def _together(rates: Iterable[tuple[Kind, Range]]) -> Range:
    """9: the same bytes in the time of all kinds together."""
    every = list(rates)
    traffic = sum((kind.traffic for kind, _ in every), Fraction(0))

    def rate_of(parts: list[tuple[Fraction, Fraction]]) -> Fraction:
        if any(not rate for _, rate in parts):
            return Fraction(0)
        return traffic / sum(bytes_ / rate for bytes_, rate in parts)

    return Range(
        rate_of([(kind.traffic, rate.low) for kind, rate in every]),
        rate_of([(kind.traffic, rate.high) for kind, rate in every]),
    )


def _slowest(found: Sequence[Bandwidth]) -> Bandwidth:
    """11: the first with the least B / ideal; what may be it, where rates are ranges."""
    ratios = [_ratio(one) for one in found]
    limit = min(high for _, high in ratios)
    possible = [one for one, (low, _) in zip(found, ratios, strict=True) if low <= limit]
    if all(low == high for low, high in ratios):
        return possible[0]
    reached = [one.reached for one in possible if one.reached is not None]
    ideals = [one.ideal for one in possible if one.ideal is not None]
    return Bandwidth(_hull(reached), _hull(ideals))


def _ratio(one: Bandwidth) -> tuple[Fraction, Fraction]:
    assert one.reached is not None, "rates of all roles are known"
    assert one.ideal is not None, "rates of all roles are known"
    if not one.ideal.low:
        return Fraction(1), Fraction(1)
    return one.reached.low / one.ideal.high, one.reached.high / one.ideal.low


def _hull(ranges: Sequence[Range]) -> Range:
    return Range(min(one.low for one in ranges), max(one.high for one in ranges))


def _widest(model: ServerModel, gang: Gang) -> int:
    """U of a gang that fits no server: GPUs of a server, or of an NVLink domain that it may use."""
    return model.gpus * (max(1, model.nvlink_domain_nodes) if gang.joined else 1)


def ideal_of(model: ServerModel, kind: Kind, gpus: int, gang: Gang) -> Range:
    """10: the ideal rate of a kind of groups of a role with so many GPUs, on servers of one model."""
    each, size = model.gpus, kind.size
    widest = _widest(model, gang) if gpus > each else each
    if gpus <= widest or size * kind.stride <= widest:
        if size > each:
            return gpu_rates.exactly(gpu_rates.fabric_rate(model))
        return gpu_rates.best_inside(model, 2 if kind.name == PIPELINE else size)
    near = min(size, max(1, widest // kind.stride))
    factor = Fraction(near, each)
    if kind.name == EXPERT:
        factor = Fraction(size - 1, each * (size - near))
    elif kind.name == PIPELINE:
        factor = Fraction(widest, each * min(kind.stride, widest))
    return _through_network(model, gang, factor)


def _through_network(model: ServerModel, gang: Gang, factor: Fraction) -> Range:
    """The smaller of inside(all) and N(all) x ``factor``, of a server or of its NVLink domain."""
    everything = (1 << model.gpus) - 1
    network = gpu_rates.network(model, model.nics, everything) * factor
    rates = [gpu_rates.exactly(network)]
    if _widest(model, gang) > model.gpus:
        rates.append(gpu_rates.exactly(gpu_rates.fabric_rate(model)))
    elif (inside := gpu_rates.inside(model, everything)) is not None:
        rates.append(inside)
    return gpu_rates.smallest(rates)


Ranks = Mapping[PodKey, int]


def ranked(gang: Gang, number: int) -> bool:
    """Whether the pods of a role have ranks."""
    role = gang.roles[number]
    if not role.gpus:
        return False
    if role.parallelism is not None or gang.ordered:
        return True
    return gang.pattern == "pipeline" and all(one.parallelism is None for one in gang.roles)


def sound(ranks: Collection[int | None], gpus: int, pods: int) -> bool:
    """Whether ranks are distinct multiples of ``gpus``, the GPUs of a pod, of a role with so many pods."""
    known = [rank for rank in ranks if rank is not None]
    every = all(0 <= rank < gpus * pods and rank % gpus == 0 for rank in known)
    return every and len(set(known)) == len(ranks)


def kept(gang: Gang, number: int, pods: Collection[Pod]) -> dict[PodKey, int]:
    """Ranks that are given: of pods that keep node and GPUs, or of all where those contradict each other.

    ``pods``: of the role, after the plan.
    """
    gpus = gang.roles[number].gpus
    keys = sorted((pod.role, pod.index) for pod in pods)
    consecutive = {key: gpus * place for place, key in enumerate(keys)}
    found = {
        key: gang.ranks.get(key, consecutive[key])
        for key, pod in sorted(((pod.role, pod.index), pod) for pod in pods)
        if gang.running_pods.get(key) == pod
    }
    return found if sound(found.values(), gpus, len(keys)) else consecutive


def plainest(gang: Gang, number: int, pods: Collection[Pod]) -> dict[PodKey, int]:
    """The ranks that are kept, and the others in the order of the indices; without kept ones consecutive."""
    gpus = gang.roles[number].gpus
    found = kept(gang, number, pods)
    taken = set(found.values())
    left = (rank for rank in range(0, gpus * len(pods), gpus) if rank not in taken)
    keys = sorted((pod.role, pod.index) for pod in pods)
    return {key: found[key] if key in found else next(left) for key in keys}
