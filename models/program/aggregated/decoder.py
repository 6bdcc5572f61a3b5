"""From pooled pods to a plan: which pod belongs to which gang, on which node.

The plan is valid and has exactly the admissions of the assignment. Gangs stay where a reference plan has them
as far as the pools allow; the others are kept close together.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from itertools import groupby

from models.occupancy import rooms
from models.program.aggregated.pools import ModelRecord, Place, PooledClass
from models.program.decoder import (
    GangSlots,
    GpuSlot,
    assign_slots,
    build_decisions,
    carve_slots,
    pack_by_size,
    place_cpu_only_pods,
    staying_decisions,
)
from models.program.demands import Demand
from models.program.linear_program import Linear, Program
from models.program.options import standing_gpus
from models.program.packing import Arc, SetType, SizePacking
from models.program.variables import Piece, PodPool
from models.solution import GangDecision


def similarity(program: Program, record: ModelRecord) -> Linear:
    """Similarity to the reference plan: GPUs in the same regions, gangs in the same domains.

    Auxiliary variables and rows go into the program.
    """
    region_of = record.model.region_set.region_of
    total = Linear()
    for pool in record.model.pod_pools:
        wanted = _wanted(record, pool, region_of)
        for piece in pool.pieces:
            most = min(wanted.get(piece.region, 0), program.upper[piece.variable])
            if most:
                total.add(_capped(program, piece.variable, most), pool.role.gpus)
    for own in record.pooled:
        places = Counter(record.reference_place(own, demand) for demand in own.demands)
        for place, gangs in places.items():
            if place is not None:
                variable = own.shapes[place[0]][1][place[1]]
                total.add(_capped(program, variable, gangs), own.demands[0].gpus)
    for stay in record.model.variables.stays:
        if record.follows_reference(stay.demand):
            total.add(stay.admit, 1 + standing_gpus(record.model.instance, stay.demand.gang))
    return total


def _wanted(record: ModelRecord, pool: PodPool, region_of: dict[int, int]) -> dict[int, int]:
    """Pieces of the pool that the reference plan has in each region."""
    counts: dict[int, int] = {}
    for own in record.pooled:
        for demand in own.demands:
            for n in record.reference_nodes(own, demand, pool):
                if n in region_of:
                    counts[region_of[n]] = counts.get(region_of[n], 0) + 1
    return counts


def _capped(program: Program, variable: int, most: int) -> int:
    """A variable that is at most ``most`` and at most another variable."""
    capped = program.integer(0, most)
    program.at_most(Linear().add(capped).add(variable, -1))
    return capped


class PlanDecoder:
    """Decodes one assignment. ``values``: one integer a variable of the aggregated model."""

    def __init__(self, record: ModelRecord, values: Sequence[int]) -> None:
        self._record = record
        self._values = values
        self._region_of = record.model.region_set.region_of
        self._staying = staying_decisions(
            record.model.instance,
            record.model.requests,
            record.model.variables.admits,
            values,
            record.base,
        )
        self._left = rooms(record.model.instance, self._staying)

    def decisions(self) -> tuple[GangDecision, ...]:
        """One decision a gang."""
        record, values = self._record, self._values
        granted: dict[int, tuple[Demand, GangSlots]] = {}
        wanted: list[list[tuple[int, Piece]]] = [[] for _ in record.model.region_set.regions]
        for demand, pieces in (*self._single(), *self._grouped(), *self._assign_pooled()):
            granted[demand.gang] = (demand, GangSlots())
            for piece in pieces:
                wanted[piece.region].append((demand.gang, piece))
        for number, here in enumerate(wanted):
            self._seat(number, here, granted)
        for gang in record.model.variables.gangs:
            if values[gang.admit]:
                place_cpu_only_pods(
                    record.model.region_set, gang, values, granted[gang.demand.gang][1]
                )
        return build_decisions(record.model.instance, self._left, self._staying, granted)

    def _single(self) -> list[tuple[Demand, list[Piece]]]:
        """Gangs with variables of their own."""
        values = self._values
        return [
            (gang.demand, [p for p in gang.pieces for _ in range(values[p.variable])])
            for gang in self._record.model.variables.gangs
            if values[gang.admit]
        ]

    def _grouped(self) -> list[tuple[Demand, list[Piece]]]:
        """Gangs of one piece each."""
        assigned = []
        for group in self._record.model.variables.groups:
            given = [p for p in group.pieces for _ in range(self._values[p.variable])]
            admitted = [
                d for d, a in zip(group.demands, group.admits, strict=True) if self._values[a]
            ]
            assigned += [(d, [piece]) for d, piece in zip(admitted, given, strict=True)]
        return assigned

    def _seat(
        self,
        number: int,
        wanted: list[tuple[int, Piece]],
        granted: dict[int, tuple[Demand, GangSlots]],
    ) -> None:
        """Choose nodes for the pieces of one region: packed by size if possible, else as in the flow."""
        region = self._record.model.region_set.regions[number]
        counts: dict[tuple[int, int], list[Piece]] = {}
        for index, piece in wanted:
            counts.setdefault((piece.kind.gpus, index), []).append(piece)
        free = {n: self._left[n].free_gpus for n in region.nodes}
        items = [(gpus, index, len(pieces)) for (gpus, index), pieces in sorted(counts.items())]
        packed = pack_by_size(free, items) if isinstance(region.packing, SizePacking) else None
        if packed is None:
            flow = self._record.model.variables.flows[number]
            slots: list[dict[SetType, list[GpuSlot]]] = [{} for _ in range(number)]
            slots.append(carve_slots(region, self._left, flow, self._values))
            for index, piece in wanted:
                assign_slots(slots, [piece], granted[index][1], fresh=False)
            return
        masks = {n: self._left[n].mask for n in region.nodes}
        for index, n, gpus in packed.sets:
            piece = counts[gpus, index].pop()
            blind = self._left[n].blind
            chosen = None if blind else region.packing.choose(masks[n], Arc(0, piece.kind, 0))
            masks[n] &= ~(chosen or 0)
            granted[index][1].slots.append((GpuSlot(n, piece.kind, chosen), piece.pods))

    def _assign_pooled(self) -> list[tuple[Demand, list[Piece]]]:
        """Assign pooled pods to gangs: where the reference plan has them, else close together.

        Gangs that are held to narrow domains come first.
        """
        stock = {
            id(pool): {p: self._values[p.variable] for p in pool.pieces if self._values[p.variable]}
            for pool in self._record.model.pod_pools
        }
        turns: list[tuple[int, int, int, Demand, PooledClass, Place]] = []
        for own in self._record.pooled:
            admitted = [d for d, a in zip(own.demands, own.admits, strict=True) if self._values[a]]
            for demand, place in self._places(own, admitted):
                level = own.shapes[place[0]][0].level
                rank = -1 if level is None or place[1] is None else level
                turns.append((-rank, -demand.gpus, demand.gang, demand, own, place))
        assigned: list[tuple[Demand, list[Piece]]] = []
        ordered = sorted(turns, key=lambda t: t[:3])
        for _, equals in groupby(ordered, key=lambda t: t[0]):
            later = []
            for *_, demand, own, place in equals:
                pieces = self._as_in_reference(demand, own, place, stock)
                if pieces is None:
                    later.append((demand, own, place))
                else:
                    assigned.append((demand, pieces))
            assigned += [(turn[0], self._anywhere(*turn, stock)) for turn in later]
        return assigned

    def _places(self, own: PooledClass, admitted: list[Demand]) -> list[tuple[Demand, Place]]:
        """A shape and domain for each admitted gang, that of the reference plan if it is available."""
        left = {
            (number, domain): self._values[variable]
            for number, (_, places) in enumerate(own.shapes)
            for domain, variable in places.items()
            if self._values[variable]
        }
        found: dict[int, Place] = {}
        for demand in admitted:
            reference = self._record.reference_place(own, demand)
            if reference is not None and left.get(reference):
                found[demand.gang] = reference
                left[reference] -= 1
        rest = [place for place, count in left.items() for _ in range(count)]
        for demand in admitted:
            if demand.gang not in found:
                found[demand.gang] = rest.pop(0)
        return [(demand, found[demand.gang]) for demand in admitted]

    def _takes(
        self, demand: Demand, own: PooledClass, place: Place
    ) -> list[tuple[PodPool, int, tuple[int, ...]]]:
        """(pool, pieces, pods of each GPU role in a piece) of a gang with that shape."""
        roles = demand.gpu_roles
        if own.shapes[place[0]][0].level == self._record.model.instance.cluster.node_level:
            assert own.alone is not None
            return [(own.alone, 1, tuple(role.count for role in roles))]
        return [
            (pool, role.count, tuple(int(i == position) for i in range(len(roles))))
            for position, (role, pool) in enumerate(zip(roles, own.pools, strict=True))
        ]

    def _as_in_reference(
        self,
        demand: Demand,
        own: PooledClass,
        place: Place,
        stock: dict[int, dict[Piece, int]],
    ) -> list[Piece] | None:
        """The pieces of the reference plan for the gang, if the stock has all of them."""
        if self._record.reference_place(own, demand) != place:
            return None
        region_of = self._region_of
        taken: list[tuple[dict[Piece, int], Piece]] = []
        pieces: list[Piece] = []
        for pool, _, pods in self._takes(demand, own, place):
            own_stock = stock[id(pool)]
            by_region = {piece.region: piece for piece in own_stock}
            roles = [role.role for role, n in zip(demand.gpu_roles, pods, strict=True) if n]
            nodes = [pod.node for pod in self._record.reference_pods(demand) if pod.role in roles]
            for n in nodes[:1] if pool is own.alone else nodes:
                piece = by_region.get(region_of.get(n, -1))
                if piece is None or not own_stock[piece]:
                    for where, one in taken:
                        where[one] += 1
                    return None
                own_stock[piece] -= 1
                taken.append((own_stock, piece))
                pieces.append(replace(piece, pods=pods))
        return pieces

    def _anywhere(
        self,
        demand: Demand,
        own: PooledClass,
        place: Place,
        stock: dict[int, dict[Piece, int]],
    ) -> list[Piece]:
        """Pieces from the stock within the domain of the gang."""
        level, domain = own.shapes[place[0]][0].level, place[1]
        found: list[Piece] = []
        for pool, count, pods in self._takes(demand, own, place):
            drawn = self._draw(stock[id(pool)], count, level, domain)
            found += [replace(piece, pods=pods) for piece in drawn]
        return found

    def _draw(
        self, stock: dict[Piece, int], count: int, level: int | None, domain: int | None
    ) -> list[Piece]:
        """So many single pods from the stock: of the tightest region that has all, else the fullest."""
        drawn: list[Piece] = []
        while count:
            open_ = [p for p, n in stock.items() if n and self._inside(p, level, domain)]
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

    def _inside(self, piece: Piece, level: int | None, domain: int | None) -> bool:
        if domain is None or level is None:
            return True
        return self._record.model.region_set.regions[piece.region].domains[level] == domain
