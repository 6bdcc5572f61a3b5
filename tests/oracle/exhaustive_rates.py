"""B, ideal, share and speed of GPU sets in tiny instances, from section 3 of docs/formulation.md.

Promises: exact rationals; own code on top of the rates of single servers; slow and plain. Of gangs with
groups every order of the ranks is tried.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from functools import cache, cached_property
from itertools import combinations, pairwise, permutations
from math import floor

from models.documents.gang import Parallelism
from models.hardware import Nic, ServerModel
from models.instance.cluster import Cluster, Node
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps

# B, ideal and share of GPU sets in tiny instances, straight from section 3 of the contract.


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


# B and ideal of gangs with groups or with patterns of their own, at the best dealing of ranks.


OWN = ("all-to-all", "parameter-server", "pipeline")

Kind = tuple[str, int, int, Fraction]
"""Name, size n, stride s and traffic t."""

Order = tuple[PodPlacement, ...]
"""The pods of a role by rank."""


def has_groups(gang: Gang) -> bool:
    return gang.pattern in OWN or any(role.parallelism for role in gang.roles)


def covered(instance: Instance) -> bool:
    """Whether the exhaustive planner tries everything that matters.

    It does not try which pod of a gang with groups has which GPUs of a server, or is of which of two roles.
    """
    models = {node.model for node in instance.cluster.nodes if node.model is not None}
    roles = [
        sum(role.gpus > 0 for role in gang.roles) for gang in instance.gangs if has_groups(gang)
    ]
    return all(model.fabric == "nvswitch" for model in models) and max(roles, default=0) <= 1


def best_share(prices: Prices, gang: Gang, pods: Sequence[PodPlacement]) -> int | None:
    """Permille of the ideal that a gang with groups reaches; None below two GPUs."""
    found = best_rates(prices, gang, pods)
    return None if found is None else permille(*found)


def best_rates(
    prices: Prices, gang: Gang, pods: Sequence[PodPlacement]
) -> tuple[Fraction, Fraction] | None:
    """(B, ideal) of a gang with groups; None below two GPUs."""
    if gang.pattern in OWN[:2] and not any(role.parallelism for role in gang.roles):
        return _spread(prices, gang, pods)
    found = []
    for number, role in enumerate(gang.roles):
        own = [pod for pod in pods if pod.role == number]
        if role.gpus * len(own) < 2:
            continue
        kinds, holds = _kinds(gang, number, len(own)), _holds(gang, own)
        if kinds is None or list(holds.values()) != list(_capped(prices, holds)):
            rate = prices.bandwidth(holds)
            assert rate is not None
            found.append((rate, prices.ideal(holds)))
        else:
            found.append(_of_role(prices, gang, own, kinds))
    return min(found, key=lambda one: one[0] / one[1] if one[1] else 1, default=None)


def _kinds(gang: Gang, number: int, pods: int) -> list[Kind] | None:
    """7, and the pipeline of 12."""
    role = gang.roles[number]
    if role.parallelism is None:
        stages = gang.pattern == "pipeline" and pods > 1
        stages = stages and not any(one.parallelism for one in gang.roles)
        return [("pipeline", pods, role.gpus, Fraction(1))] if stages else None
    return _by_degrees(role.parallelism, role.gpus * pods)


def _by_degrees(said: Parallelism, gpus: int) -> list[Kind] | None:
    tensor, context, pipeline = said.tensor, said.context, said.pipeline
    data = Fraction(gpus, tensor * context * pipeline)
    if data.denominator > 1 or (context * data) % said.expert:
        return None
    over = context * int(data)
    every = [
        ("tensor", tensor, 1, 2 * 128),
        ("context", context, tensor, 32),
        ("expert", said.expert, tensor, 128),
        ("data", over, tensor, 2 * 8),
    ]
    found = [(name, n, s, Fraction(t * (n - 1), n)) for name, n, s, t in every if n > 1]
    last = ("pipeline", pipeline, tensor * over, Fraction(1))
    return [*found, last] if pipeline > 1 else found


def _of_role(
    prices: Prices, gang: Gang, pods: list[PodPlacement], kinds: list[Kind]
) -> tuple[Fraction, Fraction]:
    holds, gpus = _holds(gang, pods), gang.roles[pods[0].role].gpus * len(pods)
    orders = {_likeness(prices, order): order for order in _orders(gang, pods)}
    best = min(
        (_split(prices, gang, kinds, order), -_together(kinds, prices, gang, order, holds))
        for order in orders.values()
    )
    models = {prices.cluster.nodes[n].model for n in holds}
    ideals = []
    for model in models:
        assert model is not None
        rates = [(kind[3], _ideal(model, kind, gpus, joins=prices.joins)) for kind in kinds]
        ideals.append(_harmonic(rates))
    return -best[1], min(ideals)


def _orders(gang: Gang, pods: list[PodPlacement]) -> Iterator[Order]:
    """Every order of the pods in which those that stay have their ranks."""
    pods = sorted(pods, key=lambda pod: pod.index)
    each = gang.roles[pods[0].role].gpus
    stand = {(p.role, p.index): (p.node, p.gpus, p.rank) for p in gang.pods if p.node is not None}
    given: dict[int, PodPlacement] = {}
    for place, pod in enumerate(pods):
        node, mask, rank = stand.get((pod.role, pod.index), (None, None, None))
        if (node, mask) == (pod.node, pod.gpus) and node is not None:
            mine = place * each if rank is None else rank
            if mine in given or mine % each or not 0 <= mine < each * len(pods):
                yield tuple(pods)
                return
            given[mine] = pod
    others = [pod for pod in pods if pod not in given.values()]
    for chosen in permutations(others):
        left = iter(chosen)
        yield tuple(given.get(place * each) or next(left) for place in range(len(pods)))


def _likeness(prices: Prices, order: Order) -> tuple[object, ...]:
    """Equal for orders that have the same rates: behind a switch all GPUs of a server are alike."""
    models = [prices.cluster.nodes[pod.node].model for pod in order]
    return tuple(
        pod.node if model is not None and model.fabric == "nvswitch" else pod
        for pod, model in zip(order, models, strict=True)
    )


def _holds(gang: Gang, pods: Sequence[PodPlacement]) -> dict[int, Hold]:
    holds: dict[int, Hold] = {}
    for pod in pods:
        each = gang.roles[pod.role].gpus
        if each:
            mask, blind = holds.get(pod.node, (0, 0))
            more = (mask, blind + each) if pod.gpus is None else (mask | pod.gpus, blind)
            holds[pod.node] = more
    return holds


def _capped(prices: Prices, holds: Mapping[int, Hold]) -> Iterator[Hold]:
    for n, (mask, blind) in holds.items():
        yield mask, min(blind, prices.cluster.nodes[n].gpus - mask.bit_count())


# 8: rates of groups. A GPU is (node, index), index None where unknown.

Gpu = tuple[int, int | None]


def _gpus(gang: Gang, order: Order) -> list[Gpu]:
    """By rank."""
    found: list[Gpu] = []
    for pod in order:
        known = bits(pod.gpus) if pod.gpus is not None else [None] * gang.roles[pod.role].gpus
        found += [(pod.node, gpu) for gpu in known]
    return found


def _groups(kind: Kind, gpus: Sequence[Gpu]) -> list[list[Gpu]]:
    _, n, s, _ = kind
    found: dict[tuple[int, int], list[Gpu]] = {}
    for q, gpu in enumerate(gpus):
        found.setdefault((q // (n * s), q % s), []).append(gpu)
    return list(found.values())


def _split(prices: Prices, gang: Gang, kinds: list[Kind], order: Order) -> list[int]:
    """Tensor groups, then expert groups, in several units."""
    gpus = _gpus(gang, order)
    return [
        sum(
            len({prices.units[n] for n, _ in group}) > 1
            for kind in kinds
            if kind[0] == name
            for group in _groups(kind, gpus)
        )
        for name in ("tensor", "expert")
    ]


def _together(
    kinds: list[Kind], prices: Prices, gang: Gang, order: Order, holds: Mapping[int, Hold]
) -> Fraction:
    gpus = _gpus(gang, order)
    counts = Counter(prices.units[n] for n, _ in gpus)
    network: dict[object, Fraction] = {}
    for n, hold in holds.items():
        unit = prices.units[n]
        network[unit] = network.get(unit, Fraction(0)) + prices.rates(n, hold)[1]
    share = {unit: rate / counts[unit] for unit, rate in network.items()}
    return _harmonic(
        [
            (kind[3], min(_pipeline(prices, kind, gpus, network)))
            if kind[0] == "pipeline"
            else (
                kind[3],
                min(r for one in _groups(kind, gpus) for r in _group(prices, kind, one, share)),
            )
            for kind in kinds
        ]
    )


def _harmonic(rates: Sequence[tuple[Fraction, Fraction]]) -> Fraction:
    """9."""
    if any(rate == 0 for _, rate in rates):
        return Fraction(0)
    return sum((t for t, _ in rates), Fraction(0)) / sum(t / rate for t, rate in rates)


def _inside(prices: Prices, gpus: Sequence[Gpu]) -> Fraction | None:
    """Of GPUs in one unit."""
    holds: dict[int, Hold] = {}
    for n, gpu in gpus:
        mask, blind = holds.get(n, (0, 0))
        holds[n] = (mask, blind + 1) if gpu is None else (mask | 1 << gpu, blind)
    return None if len(gpus) < 2 else prices.bandwidth(holds)


def _group(
    prices: Prices, kind: Kind, group: Sequence[Gpu], share: Mapping[object, Fraction]
) -> Iterator[Fraction]:
    parts: dict[object, list[Gpu]] = {}
    for gpu in group:
        parts.setdefault(prices.units[gpu[0]], []).append(gpu)
    over = prices.oversubscription(frozenset(n for n, _ in group))
    for unit, own in parts.items():
        inside = _inside(prices, own)
        if inside is not None:
            yield inside
        if len(parts) > 1:
            n = len(group)
            factor = Fraction(n - 1, n - len(own)) if kind[0] == "expert" else len(own)
            yield share[unit] * factor / over


def _pipeline(
    prices: Prices, kind: Kind, gpus: Sequence[Gpu], network: Mapping[object, Fraction]
) -> Iterator[Fraction]:
    pairs = [pair for group in _groups(kind, gpus) for pair in pairwise(group)]
    far = [(a, b) for a, b in pairs if prices.units[a[0]] != prices.units[b[0]]]
    for pair in pairs:
        if pair not in far:
            inside = _inside(prices, pair)
            assert inside is not None
            yield inside
    out = Counter(prices.units[a[0]] for a, _ in far)
    into = Counter(prices.units[b[0]] for _, b in far)
    over = max(
        (prices.oversubscription(frozenset((a[0], b[0]))) for a, b in far), default=Fraction(1)
    )
    for unit in out | into:
        yield network[unit] / (over * max(out[unit], into[unit]))


# 10: ideals


def _unit(model: ServerModel, gpus: int, *, joins: bool) -> int:
    domain = model.gpus * model.nvlink_domain_nodes
    return domain if joins and gpus > model.gpus else model.gpus


def _ideal(model: ServerModel, kind: Kind, gpus: int, *, joins: bool) -> Fraction:
    name, n, s, _ = kind
    unit = _unit(model, gpus, joins=joins)
    if gpus <= unit or n * s <= unit:
        return ideal_on(model, 2 if name == "pipeline" and n <= model.gpus else n, joins)
    x = min(n, max(1, unit // s))
    factor = Fraction(x, model.gpus)
    if name == "expert":
        factor = Fraction(n - 1, model.gpus * (n - x))
    if name == "pipeline":
        factor = Fraction(unit, model.gpus * min(s, unit))
    return _out(model, factor)


def _out(model: ServerModel, factor: Fraction) -> Fraction:
    """min(inside(all), N(all) x factor)."""
    inside = inside_MBps(model, model.all_gpus)
    network = nics_MBps(model, model.nics, model.all_gpus) * factor
    return network if inside is None else min(inside, network)


# 12: all-to-all and parameter-server


def _spread(
    prices: Prices, gang: Gang, pods: Sequence[PodPlacement]
) -> tuple[Fraction, Fraction] | None:
    every = _holds(gang, pods)
    holds = {n: one for n, one in zip(every, _capped(prices, every), strict=True) if any(one)}
    counts = {n: mask.bit_count() + blind for n, (mask, blind) in holds.items()}
    k, units = sum(counts.values()), {prices.units[n] for n in holds}
    if k < 2:
        return None
    rates = []
    for unit in units:
        own = {n: hold for n, hold in holds.items() if prices.units[n] == unit}
        size = sum(counts[n] for n in own)
        if size > 1:
            inside = prices.bandwidth(own)
            assert inside is not None
            rates.append(inside)
        if len(units) > 1:
            network = sum(prices.rates(n, hold)[1] for n, hold in own.items())
            network /= size * prices.oversubscription(frozenset(holds))
            rates.append(network * Fraction(k - 1, k - size) if gang.pattern == OWN[0] else network)
    return min(rates), min(_spread_ideal(prices, gang, n, k) for n in holds)


def _spread_ideal(prices: Prices, gang: Gang, node: int, k: int) -> Fraction:
    model = prices.cluster.nodes[node].model
    assert model is not None
    unit = _unit(model, k, joins=prices.joins)
    if k <= unit:
        return ideal_on(model, k, prices.joins)
    if gang.pattern == OWN[0]:
        return _out(model, Fraction(k - 1, model.gpus * (k - unit)))
    models = {one.model for one in prices.cluster.nodes if one.model is not None}
    return max(_out(m, Fraction(1, m.gpus)) for m in models if k > _unit(m, k, joins=prices.joins))


# How fast a gang of a tiny instance runs on the GPUs it has, straight from section 8 of the contract.


def by_speed(instance: Instance) -> bool:
    """Whether the policy counts GPUs by the speed at which they run."""
    return any(objective.name == "goodput" for objective in instance.policy.objectives)


def speed(gang: Gang, share: int | None, relative: int) -> int:
    """Permille, in steps of 20; ``share``: permille of the ideal bandwidth, None if nothing has one."""
    communicates = share is not None and gang.pattern != "none"
    c = 1000 * gang.fraction if communicates else Fraction(0)
    s = max(1, share or 0)
    x = floor(1000 * relative / (1000 - c + 1000 * c / s))
    return 20 * floor(Fraction(x, 20))


def relative_speed(instance: Instance, gang: Gang, nodes: Collection[int]) -> int:
    """Permille of the fastest GPU of the cluster that the slowest of the gang reaches.

    ``nodes``: those on which it holds GPUs. GPUs of unknown speed are as slow as any that is known; 1000
    where none is.
    """
    cluster = instance.cluster
    stated = [n.model.relative_speed for n in cluster.nodes if n.model is not None and n.gpus]
    known = [speed for speed in stated if speed is not None]
    if not gang.counts_speed or not nodes or not known:
        return 1000
    of_gang = [model.relative_speed for n in nodes if (model := cluster.nodes[n].model) is not None]
    slowest = min(min(known) if speed is None else speed for speed in of_gang)
    return floor(1000 * slowest / max(known))


def holds_of(roles: Sequence[Role], pods: Iterable[PodPlacement]) -> dict[int, Hold]:
    """GPUs a node, only nodes where the gang has some."""
    holds: dict[int, Hold] = {}
    for pod in pods:
        if roles[pod.role].gpus:
            mask, blind = holds.get(pod.node, (0, 0))
            if pod.gpus is None:
                holds[pod.node] = (mask, blind + roles[pod.role].gpus)
            else:
                holds[pod.node] = (mask | pod.gpus, blind)
    return holds
