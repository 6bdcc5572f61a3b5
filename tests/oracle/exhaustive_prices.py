"""B, ideal and share of GPU sets in tiny instances, straight from section 3 of the contract.

Promises: exact rationals; own code on top of the rates of single servers; slow and plain.
Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations

from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.instance import Instance
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps

Hold = tuple[int, int]
"""GPUs of one gang on one node: (mask of those known, number of those nobody named)."""


def bits(mask: int) -> tuple[int, ...]:
    """Indices in a mask, ascending."""
    return tuple(i for i in range(mask.bit_length()) if mask >> i & 1)


def subsets(mask: int, count: int) -> Iterator[int]:
    """Every mask of ``count`` GPUs within ``mask``."""
    for chosen in combinations(bits(mask), count):
        yield sum(1 << i for i in chosen)


def domain(cluster: Cluster, level: int, node: int) -> tuple[str, ...]:
    """Whole path of the node's domain; a node without a value stands alone from there inwards."""
    path: list[str] = []
    for value in cluster.nodes[node].domains[: level + 1]:
        if value is None:
            return (*path, f"alone/{node}")
        path.append(value)
    return (*path, f"node/{node}") if level == len(cluster.levels) else tuple(path)


def domains_used(cluster: Cluster, level: int, nodes: Iterable[int]) -> int:
    return len({domain(cluster, level, n) for n in nodes})


def usable(instance: Instance, node: Node) -> bool:
    """Ready, not cordoned, and given to us by the policy's nodeSelector."""
    return ours(instance, node) and node.ready and not node.unschedulable


def ours(instance: Instance, node: Node) -> bool:
    """Given to us by the policy's nodeSelector."""
    labels = labels_of(instance.cluster, node)
    return all(labels.get(key) == value for key, value in instance.policy.node_selector)


def labels_of(cluster: Cluster, node: Node) -> dict[str, str]:
    """The labels written on the node over those implied by its domains and name."""
    implied = {
        level.label: value
        for level, value in zip(cluster.levels, node.domains, strict=True)
        if level.label is not None and value is not None
    }
    return {"kubernetes.io/hostname": node.name, **implied, **dict(node.labels)}


@cache
def worst_rates(
    model: ServerModel, nics: tuple[Nic, ...], own: int, blind: int, candidates: int
) -> tuple[Fraction | None, Fraction]:
    """(inside, N) of ``own`` with the worst ``blind`` further GPUs of ``candidates``; None: unlimited.

    inside and N may be worst at different sets: B is a minimum of both, so each counts on its own.
    """
    sets = [own | extra for extra in subsets(candidates & ~own, blind)]
    inside = [inside_MBps(model, chosen) for chosen in sets]
    limited = [rate for rate in inside if rate is not None]
    return (min(limited) if limited else None), min(nics_MBps(model, nics, s) for s in sets)


@cache
def ideal_on(model: ServerModel, gpus: int, joins: bool) -> Fraction:
    """The best ``gpus`` GPUs can reach on servers of one model as made."""
    if gpus <= model.gpus:
        rates = [inside_MBps(model, chosen) for chosen in subsets(model.all_gpus, gpus)]
        return max(rate for rate in rates if rate is not None)
    if joins and gpus <= model.gpus * model.nvlink_domain_nodes:
        return _fabric(model)
    inside = inside_MBps(model, model.all_gpus)
    network = nics_MBps(model, model.nics, model.all_gpus)
    return network if inside is None else min(inside, network)


def _fabric(model: ServerModel) -> Fraction:
    """Rate of one GPU into its NVLink fabric."""
    assert model.links_per_gpu is not None
    assert model.link_MBps is not None
    return Fraction(model.links_per_gpu * model.link_MBps)


class Prices:
    """B, ideal and share of the GPU sets of one gang in one instance.

    ``known``: per node the GPUs known to be held once the plan is carried out. ``joins``: whether
    NVLink between servers counts for the gang.
    """

    def __init__(self, instance: Instance, known: Sequence[int], *, joins: bool) -> None:
        self.cluster = instance.cluster
        self.known = tuple(known)
        self.joins = joins
        self._spans: dict[frozenset[int], Fraction] = {}
        self._rates: dict[tuple[int, Hold], tuple[Fraction | None, Fraction]] = {}

    @cached_property
    def units(self) -> tuple[tuple[str, ...], ...]:
        """Per node what counts as its server: itself, or its domain of the widest NVLink level."""
        cluster = self.cluster
        shared = [i for i, level in enumerate(cluster.levels) if level.nvlink and self.joins]
        fabric = shared[0] if shared else None
        return tuple(
            domain(cluster, fabric, n)
            if fabric is not None and node.model and node.model.nvlink_domain_nodes > 1
            else ("server", str(n))
            for n, node in enumerate(cluster.nodes)
        )

    def fabric(self, node: int) -> bool:
        """Whether the node's GPUs are priced by their NVLink domain."""
        return self.units[node][0] != "server"

    def rates(self, node: int, hold: Hold) -> tuple[Fraction | None, Fraction]:
        """(inside, N) of what a gang holds on one node."""
        if (node, hold) not in self._rates:
            server = self.cluster.nodes[node]
            assert server.model is not None
            self._rates[node, hold] = worst_rates(
                server.model, server.effective_nics, *hold, self._candidates(node, hold)
            )
        return self._rates[node, hold]

    def _candidates(self, node: int, hold: Hold) -> int:
        """What the blind GPUs may be: nobody's and healthy; where too few are, nobody's; else any."""
        server, (own, blind) = self.cluster.nodes[node], hold
        assert server.model is not None
        nobodys = server.model.all_gpus & ~self.known[node]
        options = [nobodys & ~server.unhealthy, nobodys, server.model.all_gpus & ~own]
        return next(mask for mask in options if mask.bit_count() >= blind)

    def _credible(self, holds: Mapping[int, Hold]) -> dict[int, Hold]:
        """No more GPUs a node than it has; without the nodes that have none."""
        most = {n: self.cluster.nodes[n].gpus - own.bit_count() for n, (own, _) in holds.items()}
        found = {n: (own, min(blind, most[n])) for n, (own, blind) in holds.items()}
        return {n: hold for n, hold in found.items() if any(hold)}

    def bandwidth(self, holds: Mapping[int, Hold]) -> Fraction | None:
        """B of the GPUs held, exact; None below two GPUs."""
        holds = self._credible(holds)
        counts = {n: known.bit_count() + blind for n, (known, blind) in holds.items()}
        if sum(counts.values()) < 2:
            return None
        units: dict[tuple[str, ...], list[int]] = {}
        for node in sorted(holds):
            units.setdefault(self.units[node], []).append(node)
        inside = [self._inside(members, counts, holds) for members in units.values()]
        if len(units) == 1:
            assert inside[0] is not None
            return inside[0]
        over = self.oversubscription(frozenset(holds))
        network = [
            sum((self.rates(n, holds[n])[1] for n in members), Fraction(0)) / over
            for members in units.values()
        ]
        return min([*network, *(rate for rate in inside if rate is not None)])

    def _inside(
        self, members: list[int], counts: Mapping[int, int], holds: Mapping[int, Hold]
    ) -> Fraction | None:
        """inside of one server or NVLink domain; None: unlimited, a single GPU."""
        if not self.fabric(members[0]):
            return self.rates(members[0], holds[members[0]])[0]
        if sum(counts[n] for n in members) == 1:
            return None
        models = [self.cluster.nodes[n].model for n in members]
        return min(_fabric(model) for model in models if model is not None)

    def oversubscription(self, nodes: frozenset[int]) -> Fraction:
        """The largest oversubscription of a level at which these nodes are in several domains."""
        if nodes not in self._spans:
            crossed = [
                level.oversubscription
                for i, level in enumerate(self.cluster.levels)
                if domains_used(self.cluster, i, nodes) > 1
            ]
            self._spans[nodes] = max(crossed, default=Fraction(1))
        return self._spans[nodes]

    def ideal(self, holds: Mapping[int, Hold]) -> Fraction:
        """The smallest ideal over the models of the servers that hold the GPUs."""
        holds = self._credible(holds)
        gpus = sum(known.bit_count() + blind for known, blind in holds.values())
        models = {self.cluster.nodes[n].model for n in holds}
        return min(ideal_on(m, gpus, self.joins) for m in models if m is not None)

    def share(self, holds: Mapping[int, Hold]) -> int | None:
        """Permille of the ideal that B reaches; None below two GPUs."""
        rate = self.bandwidth(holds)
        return None if rate is None else permille(rate, self.ideal(holds))


def permille(rate: Fraction, ideal: Fraction) -> int:
    return 1000 if ideal == 0 else min(1000, int(1000 * rate / ideal))
