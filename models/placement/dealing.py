"""From the admission program's pooled pods to a plan: whose pod is which, on which node.

Promises: a valid plan with exactly the admissions of the assignment; gangs stay where a liked plan has
them as far as the pools allow, the others are kept together. Called by ``pooled``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from models.instance import Instance
from models.occupancy import rooms
from models.placement.asking import Asked
from models.placement.decoding import (
    Share,
    Slot,
    carve_slots,
    decided,
    serve,
    stays_of,
    zeros_of,
)
from models.placement.demands import Demand
from models.placement.ground import placed
from models.placement.packing import Arc, SetType, SizePacking
from models.placement.pieces import Piece
from models.placement.regions import Pools
from models.placement.settling import settle
from models.placement.variables import PodPool, Variables
from models.solution import GangDecision, PodPlacement


@dataclass
class PooledClass:
    """Identical gangs. ``domains``: how many of them in each domain of the required level."""

    demands: tuple[Demand, ...]
    admits: tuple[int, ...]
    pools: tuple[PodPool, ...]
    level: int | None
    domains: dict[int, int] = field(default_factory=dict)


@dataclass
class Admissions:
    """What the admission program knows. ``base``: the gangs it does not decide about.

    ``liked``: decisions of a plan to stay close to, by gang.
    """

    instance: Instance
    asks: Asked
    base: tuple[GangDecision, ...]
    pools: Pools
    variables: Variables
    pooled: list[PooledClass]
    pods: list[PodPool]
    liked: dict[int, GangDecision] = field(default_factory=dict)

    def like(self, liked: Sequence[GangDecision]) -> None:
        """Stay close to this plan: one decision a gang."""
        self.liked = {choice.gang: liked[choice.gang] for choice in self.asks.choices}

    def is_liked(self, demand: Demand) -> bool:
        """Whether the liked plan takes this option: as many pods, those that stay where they stand."""
        pods = self.liked.get(demand.gang, GangDecision("wait")).pods
        if not pods:
            return False
        there = {(p.role, p.index): p for p in pods}
        counts = [0] * len(demand.counts)
        for pod in pods:
            counts[pod.role] += 1
        return tuple(counts) == demand.counts and all(
            there.get((p.role, p.index)) == p
            for p in placed(self.instance, demand.gang, demand.stays)
        )

    def liked_pods(self, demand: Demand) -> list[PodPlacement]:
        """Where the liked plan has the pods that this option places; none if it takes another."""
        if not self.is_liked(demand):
            return []
        wanted = {(role.role, index) for role in demand.roles for index in role.indices}
        pods = self.liked[demand.gang].pods
        return [pod for pod in pods if (pod.role, pod.index) in wanted]


class Dealer:
    """Deals one assignment out. ``values``: one integer a variable of the admission program."""

    def __init__(self, record: Admissions, values: Sequence[int]) -> None:
        self._record = record
        self._values = values
        self._region_of = {n: r.number for r in record.pools.regions for n in r.nodes}
        self._staying = stays_of(
            record.instance, record.asks, record.variables.admits, values, record.base
        )
        self._left = rooms(record.instance, self._staying)

    def decisions(self) -> tuple[GangDecision, ...]:
        """One decision a gang."""
        record, values = self._record, self._values
        shares: dict[int, tuple[Demand, Share]] = {}
        wanted: list[list[tuple[int, Piece]]] = [[] for _ in record.pools.regions]
        for demand, pieces in (*self._single(), *self._grouped(), *self._deal()):
            shares[demand.gang] = (demand, Share())
            for piece in pieces:
                wanted[piece.region].append((demand.gang, piece))
        for number, here in enumerate(wanted):
            self._seat(number, here, shares)
        for gang in record.variables.gangs:
            if values[gang.admit]:
                zeros_of(record.pools, gang, values, shares[gang.demand.gang][1])
        return decided(record.instance, self._left, self._staying, shares)

    def _single(self) -> list[tuple[Demand, list[Piece]]]:
        """Gangs with variables of their own."""
        values = self._values
        return [
            (gang.demand, [p for p in gang.pieces for _ in range(values[p.variable])])
            for gang in self._record.variables.gangs
            if values[gang.admit]
        ]

    def _grouped(self) -> list[tuple[Demand, list[Piece]]]:
        """Gangs of one piece each."""
        dealt = []
        for group in self._record.variables.groups:
            given = [p for p in group.pieces for _ in range(self._values[p.variable])]
            lucky = [d for d, a in zip(group.demands, group.admits, strict=True) if self._values[a]]
            dealt += [(d, [piece]) for d, piece in zip(lucky, given, strict=True)]
        return dealt

    def _seat(
        self, number: int, wanted: list[tuple[int, Piece]], shares: dict[int, tuple[Demand, Share]]
    ) -> None:
        """Give the pieces of one region their nodes: packed for locality, else as the flow has them."""
        region = self._record.pools.regions[number]
        counts: dict[tuple[int, int], list[Piece]] = {}
        for index, piece in wanted:
            counts.setdefault((piece.kind.gpus, index), []).append(piece)
        free = {n: self._left[n].free_gpus for n in region.nodes}
        items = [(gpus, index, len(pieces)) for (gpus, index), pieces in sorted(counts.items())]
        settled = settle(free, items) if isinstance(region.packing, SizePacking) else None
        if settled is None:
            flow = self._record.variables.flows[number]
            slots: list[dict[SetType, list[Slot]]] = [{} for _ in range(number)]
            slots.append(carve_slots(region, self._left, flow, self._values))
            for index, piece in wanted:
                serve(slots, [piece], shares[index][1], fresh=False)
            return
        masks = {n: self._left[n].mask for n in region.nodes}
        for index, n, gpus in settled.sets:
            piece = counts[gpus, index].pop()
            blind = self._left[n].blind
            chosen = None if blind else region.packing.choose(masks[n], Arc(0, piece.kind, 0))
            masks[n] &= ~(chosen or 0)
            shares[index][1].slots.append((Slot(n, piece.kind, chosen), piece.pods))

    def _deal(self) -> list[tuple[Demand, list[Piece]]]:
        """Hand pooled pods to gangs: where the liked plan has them, else large gangs first, close by."""
        stock = {
            id(pool): {p: self._values[p.variable] for p in pool.pieces if self._values[p.variable]}
            for pool in self._record.pods
        }
        turns: list[tuple[int, int, Demand, PooledClass, int | None]] = []
        dealt: list[tuple[Demand, list[Piece]]] = []
        for own in self._record.pooled:
            lucky = [d for d, a in zip(own.demands, own.admits, strict=True) if self._values[a]]
            places = self._places(own, lucky)
            for demand in lucky:
                domain = places.get(demand.gang)
                pieces = self._as_liked(demand, own, domain, stock)
                if pieces is None:
                    turns.append((-demand.gpus, demand.gang, demand, own, domain))
                else:
                    dealt.append((demand, pieces))
        for _, _, demand, own, domain in sorted(turns, key=lambda t: (t[4] is None, t[0], t[1])):
            drawn_all: list[Piece] = []
            for position, role in enumerate(demand.gpu_roles):
                pool = own.pools[position]
                drawn = self._draw(stock[id(pool)], pool, role.count, domain)
                pods = tuple(int(i == position) for i in range(len(demand.gpu_roles)))
                drawn_all += [replace(piece, pods=pods) for piece in drawn]
            dealt.append((demand, drawn_all))
        return dealt

    def _places(self, own: PooledClass, lucky: list[Demand]) -> dict[int, int]:
        """A domain of the required level for each admitted gang, the liked one where it is to be had."""
        if own.level is None:
            return {}
        of = self._record.instance.cluster.domain_of[own.level]
        left = {d: self._values[v] for d, v in sorted(own.domains.items()) if self._values[v]}
        places: dict[int, int] = {}
        for demand in lucky:
            pods = self._record.liked_pods(demand)
            if pods:
                domain = of[pods[0].node]
                if left.get(domain):
                    places[demand.gang] = domain
                    left[domain] -= 1
        rest = [d for d, count in left.items() for _ in range(count)]
        for demand in lucky:
            if demand.gang not in places:
                places[demand.gang] = rest.pop(0)
        return places

    def _as_liked(
        self,
        demand: Demand,
        own: PooledClass,
        domain: int | None,
        stock: dict[int, dict[Piece, int]],
    ) -> list[Piece] | None:
        """The liked plan's regions for the gang, if the stock has all of its pods there."""
        liked = self._record.liked_pods(demand)
        if not liked:
            return None
        region_of = self._region_of
        taken: list[tuple[dict[Piece, int], Piece]] = []
        pieces: list[Piece] = []
        for position, role in enumerate(demand.gpu_roles):
            own_stock = stock[id(own.pools[position])]
            by_region = {piece.region: piece for piece in own_stock}
            pods = tuple(int(i == position) for i in range(len(demand.gpu_roles)))
            for pod in liked:
                if pod.role != role.role:
                    continue
                piece = by_region.get(region_of.get(pod.node, -1))
                fits = piece is not None and own_stock[piece] > 0
                if (
                    piece is None
                    or not fits
                    or not self._inside(piece, own.pools[position], domain)
                ):
                    for where, one in taken:
                        where[one] += 1
                    return None
                own_stock[piece] -= 1
                taken.append((own_stock, piece))
                pieces.append(replace(piece, pods=pods))
        return pieces

    def _draw(
        self, stock: dict[Piece, int], pool: PodPool, count: int, domain: int | None
    ) -> list[Piece]:
        """So many single pods out of the stock: the tightest region that has all, else the fullest."""
        drawn: list[Piece] = []
        while count:
            open_ = [p for p, n in stock.items() if n and self._inside(p, pool, domain)]
            whole = [p for p in open_ if stock[p] >= count]
            best = (
                min(whole, key=lambda p: (stock[p], p.variable))
                if whole
                else max(open_, key=lambda p: (stock[p], -p.variable))
            )
            take = min(count, stock[best])
            stock[best] -= take
            count -= take
            drawn += [best] * take
        return drawn

    def _inside(self, piece: Piece, pool: PodPool, domain: int | None) -> bool:
        if domain is None or pool.level is None:
            return True
        return self._record.pools.regions[piece.region].domains[pool.level] == domain
