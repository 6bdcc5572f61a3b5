"""B and ideal of gangs with groups or with patterns of their own, at the best dealing of ranks.

Promises: own code on top of the rates of single servers, section 3 of docs/formulation.md item by item; every
order of the ranks is tried. Called by the exhaustive planner and by the valuing of plans beside it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import pairwise, permutations

from exhaustive_prices import Hold, Prices, bits, ideal_on, permille

from models.documents.gang import Parallelism
from models.hardware import ServerModel
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rates.nic_bandwidth import nics_MBps
from models.rates.server_bandwidth import inside_MBps

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
