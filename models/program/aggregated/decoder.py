"""From pooled pods to a plan: which pod belongs to which gang, on which node.

The plan has exactly the admissions of the assignment; the pods of a gang are kept close together.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from models.instance.occupancy import rooms
from models.instance.solution import GangDecision
from models.program.aggregated.pools import ModelRecord, Place, PooledClass, Spread
from models.program.decoder import (
    GangSlots,
    GpuSlot,
    assign_slots,
    beside_kept,
    build_decisions,
    carve_slots,
    pack_by_size,
    place_cpu_only_pods,
    staying_decisions,
)
from models.program.packing import Arc, SetType, SizePacking
from models.program.variables import Piece
from models.rules.demands import Demand


@dataclass(eq=False)
class _Assigned:
    """The pieces of a gang. ``place``, ``level``: its shape, with the domain in which it is whole."""

    demand: Demand
    level: int | None
    place: Place
    pieces: list[Piece]


class PlanDecoder:
    """Decodes one assignment. ``values``: one integer a variable of the aggregated model."""

    def __init__(self, record: ModelRecord, values: Sequence[int]) -> None:
        self._record = record
        self._values = values
        self._staying = staying_decisions(
            record.model.instance,
            record.model.requests,
            record.model.variables.admits,
            values,
            record.base,
        )
        self._left = beside_kept(
            rooms(record.model.instance, self._staying),
            record.model.requests,
            record.model.variables,
            values,
        )
        self._spread_left: dict[int, int] = {}

    def decisions(self) -> tuple[GangDecision, ...]:
        """One decision a gang."""
        record, values = self._record, self._values
        granted: dict[int, tuple[Demand, GangSlots]] = {}
        wanted: list[list[tuple[int, Piece]]] = [[] for _ in record.model.region_set.regions]
        pooled = self._assign_pooled()
        own = [(one.demand, one.pieces) for one in pooled]
        for demand, pieces in (*self._single(), *self._grouped(), *own):
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

    def _assign_pooled(self) -> list[_Assigned]:
        """Assign pooled pods to gangs, close together. Gangs that are held to narrow domains come first."""
        stock = {
            id(pool): {p: self._values[p.variable] for p in pool.pieces if self._values[p.variable]}
            for pool in self._record.model.pod_pools
        }
        turns: list[tuple[int, int, int, int, Demand, PooledClass, Place]] = []
        for alike in self._alike():
            for demand, own, place in self._places(alike):
                level = own.shapes[place[0]][0].level
                rank = -1 if level is None or place[1] is None else level
                pinned = rank if own.spread is None else max(rank, own.spread.level)
                turns.append((-pinned, -rank, -demand.gpus, demand.gang, demand, own, place))
        return [
            _Assigned(
                demand,
                own.shapes[place[0]][0].level,
                place,
                self._pieces(own, place, stock),
            )
            for *_, demand, own, place in sorted(turns, key=lambda turn: turn[:4])
        ]

    def _alike(self) -> list[list[PooledClass]]:
        """Classes of the same gangs, one for each GPU model that they may use."""
        found: dict[tuple[int, ...], list[PooledClass]] = {}
        for own in self._record.pooled:
            found.setdefault(own.admits, []).append(own)
        return list(found.values())

    def _places(self, alike: Sequence[PooledClass]) -> Iterator[tuple[Demand, PooledClass, Place]]:
        """A shape and domain for each admitted gang; the first ones get the fastest."""
        places = [
            (own, (number, domain))
            for own in alike
            for number, (_, by_domain) in enumerate(own.shapes)
            for domain, variable in by_domain.items()
            for _ in range(self._values[variable])
        ]
        places.sort(key=lambda one: -one[0].shapes[one[1][0]][0].speed)
        admitted = [i for i, admit in enumerate(alike[0].admits) if self._values[admit]]
        for i, (own, place) in zip(admitted, places, strict=True):
            yield own.demands[i], own, place

    def _pieces(
        self, own: PooledClass, place: Place, stock: dict[int, dict[Piece, int]]
    ) -> list[Piece]:
        """Pieces from the stock within the domain of the gang, and where the class has its pods."""
        level, domain = own.shapes[place[0]][0].level, place[1]
        found: list[Piece] = []
        for take in own.takes[place[0]]:
            here = stock[id(take.pool)]
            if own.spread is not None:
                drawn = self._draw_spread(here, own.spread, take.sets, level, domain)
            else:
                # single pods join the larger pieces
                near = {piece.region for piece in found}
                local = {piece: sets for piece, sets in here.items() if piece.region in near}
                drawn = self._draw(local, min(take.sets, sum(local.values())), level, domain)
                for piece in drawn:
                    here[piece] -= 1
                drawn += self._draw(here, take.sets - len(drawn), level, domain)
            found += [replace(piece, pods=take.pods) for piece in drawn]
        return found

    def _draw_spread(
        self,
        stock: dict[Piece, int],
        spread: Spread,
        count: int,
        level: int | None,
        domain: int | None,
    ) -> list[Piece]:
        """So many pods where the class has them, in few domains; of a domain only whole units."""
        allowed = {
            key[1]: self._spread_left.setdefault(variable, self._values[variable] * spread.unit)
            for key, variable in spread.pods.items()
        }
        regions = self._record.model.region_set.regions
        own: dict[Piece, int] = {}
        for piece, most in stock.items():
            here = regions[piece.region].domains[spread.level]
            if here is not None and allowed.get(here) and self._inside(piece, level, domain):
                own[piece] = min(most, allowed[here])
                allowed[here] -= own[piece]
        drawn = self._draw(own, count, level, domain)
        for piece in drawn:
            stock[piece] -= 1
            here = regions[piece.region].domains[spread.level]
            assert here is not None
            self._spread_left[spread.pods[spread.level, here]] -= 1
        return drawn

    def _draw(
        self, stock: dict[Piece, int], count: int, level: int | None, domain: int | None
    ) -> list[Piece]:
        """So many single pods from the stock, in few domains of every level."""
        open_ = [p for p, n in stock.items() if n and self._inside(p, level, domain)]
        drawn = self._gather(stock, open_, count, 0 if level is None else level)
        for piece in drawn:
            stock[piece] -= 1
        return drawn

    def _gather(
        self, stock: dict[Piece, int], pieces: Sequence[Piece], count: int, level: int
    ) -> list[Piece]:
        """From the smallest domain of the level that has all, else from the fullest ones."""
        if level >= self._record.model.instance.cluster.node_level:
            fullest = sorted(pieces, key=lambda p: (-stock[p], p.variable))
            return [piece for piece in fullest for _ in range(stock[piece])][:count]
        groups: dict[int | None, list[Piece]] = {}
        for piece in pieces:
            region = self._record.model.region_set.regions[piece.region]
            groups.setdefault(region.domains[level], []).append(piece)
        totals = {d: sum(stock[p] for p in own) for d, own in groups.items()}
        fitting = [d for d, total in totals.items() if total >= count]
        if fitting:
            best = min(fitting, key=lambda d: (totals[d], d or 0))
            return self._gather(stock, groups[best], count, level + 1)
        drawn: list[Piece] = []
        for d in sorted(groups, key=lambda d: (-totals[d], d or 0)):
            drawn += self._gather(stock, groups[d], count - len(drawn), level + 1)
            if len(drawn) == count:
                break
        return drawn

    def _inside(self, piece: Piece, level: int | None, domain: int | None) -> bool:
        if domain is None or level is None:
            return True
        return self._record.model.region_set.regions[piece.region].domains[level] == domain
