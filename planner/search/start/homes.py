"""A plan that follows a solution of the slots: who runs, and the domain in which each gang is whole.

The solution says how many slots of each domain are for whom. A gang is placed on the nodes of its domains;
one that is whole in none takes large slots in the domains that have some left for such gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from itertools import product

import numpy as np

from models.instance.instance import Instance
from models.instance.solution import GangDecision, placed
from models.program.base_state import base_decisions
from models.program.linear_program import integers
from models.program.slots.slot_program import SlotModel
from models.program.slots.slot_rooms import Mode, Piece
from models.queues.reservations import due, overtaken
from models.rules.demands import Demand
from planner.search.budget import Budget
from planner.search.free_arrays import IntArray
from planner.search.free_space import FreeSpace
from planner.search.start.flow_places import FlowPlaces
from planner.search.start.greedy import Placing, admit, place, placements, queue, queue_key
from planner.search.start.mesh_places import MeshPlaces

MAX_ORDERS = 3
"""In so many orders gangs are given the places of a solution at most, those first that found none."""

Settled = tuple[list[GangDecision], set[int]]
"""A plan, and who was to move in it and has no place."""


def settle_in(model: SlotModel, values: Sequence[int], budget: Budget, orders: int) -> Settled:
    """The plan as the solution has it; of so many orders, the one in which the least of the first is lost."""
    chosen = [mode.option.demand for mode in model.modes if values[mode.variable]]
    ranks = {demand.gang: queue_key(model.instance, demand)[:2] for demand in chosen}
    first, found = set[int](), list[tuple[list[int], Settled]]()
    while len(found) < orders and not (found and budget.exhausted()):
        decisions, homeless = _settle_in(model, values, budget, first)
        waits = {d.gang for d in chosen if not decisions[d.gang].pods} | homeless
        lost = Counter[tuple[object, ...]]()
        for demand in chosen:
            lost[ranks[demand.gang]] += demand.gpus * (demand.gang in waits)
        # one that stays where it runs may take the place of anybody
        found.append(
            ([len(homeless), *(lost[rank] for rank in sorted(lost))], (decisions, homeless))
        )
        if waits <= first:
            break
        first |= waits
    return min(found, key=lambda one: one[0])[1]


def _settle_in(
    model: SlotModel, values: Sequence[int], budget: Budget, first: Collection[int]
) -> Settled:
    """Large pods come first, those that need narrow domains before others, but these gangs before all.

    What finds no place where the solution has it is tried anywhere, and else left to others.
    """
    instance = model.instance
    chosen = {mode.option.demand.gang: mode for mode in model.modes if values[mode.variable]}
    decisions, homeless = list(base_decisions(instance)), set[int]()
    for choice in model.choices:
        mode = chosen.get(choice.gang)
        if instance.gangs[choice.gang].running and (mode is None or mode.option.effect.moved):
            decisions[choice.gang] = GangDecision("preempt")
    space = FreeSpace(instance, decisions)
    for gang, mode in chosen.items():  # what stays holds its room before anything comes
        if decisions[gang].decision == "preempt":
            space.set(gang, placed(instance.gangs[gang], mode.option.demand.stays))
    uses = _uses(instance, chosen.values())
    _keep_spares(model, values, space, uses)
    space.arrays.favour(uses)
    homes = _Homes(model, values, space)
    coming = [homes.settler(mode) for mode in chosen.values()]
    coming.sort(key=lambda one: (one.mode.option.demand.gang not in first, one.key))
    beyond = _left_to_others(model, chosen)
    for settler in coming:
        mode, moves = settler.mode, settler.mode.option.effect.moved
        if mode.shape is None and not moves:
            continue
        gang = mode.option.demand.gang
        # once the budget is over the others wait, but nobody stays away who was only to move
        found_one = not budget.exhausted() and homes.place(settler, beyond.get(gang))
        if settler.on_set and not found_one:  # first come those for whom there are sets
            settler.on_set = False
            coming.append(settler)
        elif moves and not found_one:
            homeless.add(gang)
            space.set(gang, ())
    if model.parts:
        _admit_parts(space, chosen.values(), budget)
    _start(space, chosen, budget)
    found = [
        one if space.pods[i] == one.pods and i not in homeless else space.decision(i)
        for i, one in enumerate(decisions)
    ]
    return found, homeless


def _start(space: FreeSpace, chosen: Container[int], budget: Budget) -> None:
    """Start gangs: within guarantees first, by priority, then those of the solution, in the greedy order."""

    def order(demand: Demand) -> tuple[object, ...]:
        key = queue_key(space.instance, demand)
        return *key[:2], demand.gang not in chosen, key

    for demand in sorted(queue(space), key=order):
        if budget.exhausted():
            return
        admit(space, demand)


def _uses(instance: Instance, modes: Iterable[Mode]) -> IntArray:
    """By node, GPUs of those that may come there: it is left to those who may have no others."""
    found, held = np.zeros(len(instance.cluster.nodes), np.int64), Counter[frozenset[int]]()
    for mode in modes:
        for role in mode.option.demand.gpu_roles:
            held[role.nodes] += role.gpus * role.count
    for nodes, gpus in held.items():
        found[integers(nodes)] += gpus
    return found


def _left_to_others(model: SlotModel, chosen: Mapping[int, Mode]) -> dict[int, frozenset[int]]:
    """By gang, nodes that it takes last.

    Those on which it would be faster than in the solution, since others or parts need their GPUs, and
    those of holders that it overtakes.
    """
    gangs, reserved = model.instance.gangs, model.instance.reserved
    waiting = (gang for gang in chosen if reserved and not gangs[gang].running)
    found = {gang: own for gang in waiting if (own := overtaken(model.instance, gangs[gang]))}
    for mode in model.modes if model.parts else ():
        gang = mode.option.demand.gang
        if mode.shape is not None and gang in chosen and mode.speed > chosen[gang].speed:
            nodes = frozenset[int]().union(*(r.nodes for r in mode.option.demand.gpu_roles))
            found[gang] = found.get(gang, frozenset()) | nodes
    return found


def _place_apart(
    space: FreeSpace, mode: Mode, home: frozenset[int] | None, faster: frozenset[int]
) -> bool:
    """Place a gang at home, or anywhere, but not on these nodes."""
    demand = mode.option.demand
    homes = (demand.nodes,) if home is None else (home, demand.nodes)
    held = [demand.on_gpus(nodes - faster) for nodes in homes if nodes - faster]
    return any(admit(space, one, least_speed=mode.speed) for one in held)


def _admit_parts(space: FreeSpace, modes: Iterable[Mode], budget: Budget) -> None:
    """Gangs of the solution without whole GPUs start, those of most pods first."""
    gangs = space.instance.gangs
    found = [
        mode.option.demand
        for mode in modes
        if mode.shape is None and not gangs[mode.option.demand.gang].running
    ]
    for demand in sorted(found, key=lambda own: -max(role.count for role in own.roles)):
        if budget.exhausted():
            break
        admit(space, demand)


def _keep_spares(model: SlotModel, values: Sequence[int], space: FreeSpace, uses: IntArray) -> None:
    """As many nodes of each domain are kept free as in the solution, those first of least use."""
    found, every = dict[int, set[int]](), model.instance.cluster.nodes
    for rule, variable, nodes in model.spares.idle:
        idle = [n for n in nodes if space.by_node[n].free == every[n].gpus]
        idle.sort(key=lambda n: (uses[n], n))
        found.setdefault(rule, set()).update(idle[: values[variable]])
    for rule, own in found.items():
        space.closed.prefer(rule, frozenset(own))


def _place(
    space: FreeSpace,
    mode: Mode,
    home: frozenset[int] | None,
    faster: frozenset[int] | None,
    flow: FlowPlaces | None,
) -> bool:
    """Place a gang at home, or anywhere; one that starts as fast as in the solution, if possible.

    ``faster``: nodes that are left to others as long as there are any. ``flow``: says how full its nodes are.
    """
    demand = mode.option.demand
    if faster and not mode.option.effect.moved and _place_apart(space, mode, home, faster):
        return True
    at_home = demand if home is None else demand.on_gpus(home)
    as_full = frozenset[int]() if flow is None else flow.nodes(mode, home or demand.gpu_nodes)
    ways: list[tuple[Demand, int, Placing | None]] = [
        (held, mode.speed, placing)
        for held in (*((demand.on_gpus(as_full),) if as_full else ()), at_home, demand)
        for placing in (_in_pieces(space, mode, flow), None)
    ]
    return any(_placed(space, mode, *way) for way in (*ways, (at_home, 0, None)))


def _placed(
    space: FreeSpace, mode: Mode, demand: Demand, speed: int, placing: Placing | None
) -> bool:
    """Place a gang that starts, no slower than so, or one that moves."""
    if not mode.option.effect.moved:
        return admit(space, demand, least_speed=speed, placing=placing)
    pods = (placing or place)(space, demand)
    if pods is not None:
        space.set(demand.gang, sorted((*space.pods[demand.gang], *pods)))
    return pods is not None


def _in_pieces(space: FreeSpace, mode: Mode, flow: FlowPlaces | None) -> Placing | None:
    """A way to place as many pods on each node as the solution says; None where any number does."""
    instance, demand = space.instance, mode.option.demand
    shared, piece = flow and flow.sizes.get(demand.gang), mode.shape.piece if mode.shape else 1
    piece = max(shared) // demand.gpu_roles[0].gpus if shared else piece
    if piece == 1 or demand.standing:
        return None
    (role,), roles = demand.gpu_roles, list(instance.gangs[demand.gang].roles)
    spec = roles[role.role]
    if spec.slice_layers or (role.count % piece and not shared):
        return None
    roles[role.role] = replace(spec, slice_size=piece, slice_level=instance.cluster.node_level)
    return lambda space, demand: next(placements(space, demand, roles=roles), None)


class _Settler:
    """``domains``: nodes of those that it has, None for any; ``level``: of the narrowest, -1 for none.

    ``loose``: large slots that it takes besides. ``key``: its place in the order. ``shares``: large slots by
    innermost domain, of a gang in several NVLink domains.
    """

    def __init__(
        self, model: SlotModel, mode: Mode, domains: frozenset[int] | None, level: int
    ) -> None:
        demand, units = mode.option.demand, model.units
        self.mode, self.domains, self.level = mode, domains, level
        self.shares = Counter[int]()
        taken = model.taken(mode)[0] if mode.shape is not None and units else 0
        inner = level == model.instance.cluster.node_level - 1
        self.loose = 0 if inner else taken
        alone = mode.level == model.instance.cluster.node_level
        piece = 1 if mode.shape is None else mode.shape.piece
        largest = demand.gpus if alone else piece * max([0, *(r.gpus for r in demand.gpu_roles)])
        gang = model.instance.gangs[demand.gang]
        waits = gang.key not in due(model.instance)  # those whose turn has come have to start
        place = not taken, level < 0, -largest, -level
        phase, held = 3 * (not taken), len(demand.gpu_nodes)
        # sets are not told apart by domain: a role that has to be whole in one is placed as any other
        roles = [gang.roles[role.role] for role in demand.gpu_roles if not alone]
        held_in = any(role.required is not None or role.slice_layers for role in roles)
        self.on_set = mode.shape is not None and mode.shape.inside is not None and not held_in
        if self.on_set and model.meshes:  # sets are chosen of what gangs on whole servers leave
            nodes = model.instance.cluster.nodes
            whole = any(r.gpus == nodes[next(iter(r.nodes))].gpus for r in demand.gpu_roles)
            apart = 0 if whole else 1 if model.scattered(mode) else 3
            phase = 2 if alone and demand.gpus > 1 else apart
        self.on_set &= phase in (1, 2)
        self.key = phase, *place, waits, held, -gang.priority, -demand.gpus, demand.gang


class _Homes:
    """The domains that a solution has for pieces, and the slots that it has for others, each given once."""

    def __init__(self, model: SlotModel, values: Sequence[int], space: FreeSpace) -> None:
        self._model, self._space, self._values = model, space, values
        self._sets: MeshPlaces | None = None
        flow, spread, known = model.flow, model.spread, len(values)
        self.flow = FlowPlaces(flow, values, space) if flow and known >= flow.variables else None
        self._left = {path: _values(homes, values) for path, homes in model.homes.items()}
        self._loose = [(model.everywhere, _values(model.loose, values))]
        self._loose += [(nodes, _values(own, values)) for nodes, own in model.loose_of.items()]
        self._spread = spread.pods(values) if spread and known >= spread.variables else {}
        shared = {id(own): (m, own) for m in model.modes if (own := self._spread.get(id(m)))}
        for mode, taken in shared.values():
            gang, ((_, every), *held) = mode.option.demand.gpu_nodes, self._loose
            within = [every, *(pool for nodes, pool in held if gang <= nodes)]
            for pool, (domain, slots) in product(within, taken.items()):
                _take(pool, domain, slots)

    def settler(self, mode: Mode) -> _Settler:
        """Give the gang the domains of its pieces."""
        found, level, covered, self._shares = set[int](), -1, 0, Counter[int]()
        pieces = self._model.pieces(mode)
        for piece, count in pieces:
            for _ in range(count):
                nodes, level = self._take((piece,))
                found |= nodes
                covered += piece.slots[0]
        whole = bool(pieces) and (pieces[0][0].whole or covered == self._model.taken(mode)[0])
        settler = _Settler(
            self._model, mode, frozenset(found) if whole else None, level if whole else -1
        )
        if level == self._model.instance.cluster.node_level - 1:
            settler.shares = self._shares
        return settler

    def _take(
        self, path: tuple[Piece, ...], inside: frozenset[int] | None = None
    ) -> tuple[set[int], int]:
        """The nodes of a domain for a piece, or of those of its parts; and the narrowest level of these."""
        if path[-1].even:
            return self._take_evenly(path, inside), path[-1].level
        if path[-1].least:
            return self._take_shares(path, inside), path[-1].level
        piece, left, cluster = path[-1], self._left[path], self._model.instance.cluster
        domains = cluster.domains[piece.level]
        domain = next(d for d in left if inside is None or domains[d].nodes[0] in inside)
        left[domain] -= 1
        if not left[domain]:
            del left[domain]
        nodes, level, found = set(domains[domain].nodes), piece.level, set[int]()
        for part, count in piece.parts:
            for _ in range(count):
                inner, level = self._take((*path, part), frozenset(nodes))
                found |= inner
        if sum(part.slots[0] * count for part, count in piece.parts) == piece.slots[0] and found:
            return found, level
        return nodes, piece.level

    def _take_shares(self, path: tuple[Piece, ...], inside: frozenset[int] | None) -> set[int]:
        """The nodes of several domains for the pods of a piece, the largest shares first."""
        piece, found = path[-1], set[int]()
        domains = self._model.instance.cluster.domains[piece.level]
        shares, beside = (self._left[*path, piece.of_pods(n)] for n in (piece.least, 1))
        open_ = {
            d: piece.least * count + beside.get(d, 0)
            for d, count in shares.items()
            if count and (inside is None or domains[d].nodes[0] in inside)
        }
        left = piece.pods
        for d in sorted(open_, key=lambda d: (-open_[d], d)):
            taken = min(open_[d], left)
            taken = left - piece.least if 0 < left - taken < piece.least else taken
            if taken >= piece.least:
                left -= taken
                sets = min(shares[d], taken // piece.least)
                _take(shares, d, sets)
                _take(beside, d, taken - sets * piece.least)
                self._shares[d] += taken * piece.of_pods(1).slots[0]
                found.update(domains[d].nodes)
        return found

    def _take_evenly(self, path: tuple[Piece, ...], inside: frozenset[int] | None) -> set[int]:
        """The nodes of several domains for as many pods of a piece in each, or one more."""
        domains, found = self._model.instance.cluster.domains[path[-1].level], set[int]()
        for least in range(1, 1 + path[-1].pods):
            piece, left = replace(path[-1], least=least), list[dict[int, int]]()
            for pods in (least, least + 1):
                known = self._left.get((*path[:-1], piece, piece.of_pods(pods)), {})
                left.append(
                    {d: n for d, n in known.items() if not inside or domains[d].nodes[0] in inside}
                )
            few, more = (sum(own.values()) for own in left)
            gangs = (few * least + more * (least + 1)) / piece.pods
            ways = [
                (sets, larger)
                for larger in range(more + 1)
                for sets in range(few + 1)
                if sets * least + larger * (least + 1) == piece.pods
            ]
            if not ways:
                continue
            asked = [*min(ways, key=lambda way: abs(way[1] * gangs - more))]
            both = Counter(left[0]) + Counter(left[1])
            for d in sorted(both, key=lambda d: (-both[d], d)):  # all gangs need those with most
                one = next((one for one in (1, 0) if asked[one] and left[one].get(d)), None)
                if one is not None:
                    asked[one] -= 1
                    _take(self._left[*path[:-1], piece, piece.of_pods(least + one)], d, 1)
                    self._shares[d] += (least + one) * piece.of_pods(1).slots[0]
                    found.update(domains[d].nodes)
            break
        return found

    def place(self, settler: _Settler, faster: frozenset[int] | None) -> bool:
        """Place a gang on a set of GPUs, or at home or anywhere; ``faster``: see ``_place``."""
        mode, space, gang = settler.mode, self._space, settler.mode.option.demand.gang
        before = space.pods[gang]
        if settler.on_set:
            if self._sets is None:
                self._sets = MeshPlaces(self._model, self._values, space)
            found = _placed(
                space, mode, mode.option.demand, mode.speed, partial(self._sets.take, mode)
            )
        else:
            found = _place(space, mode, self.of(settler), faster, self.flow)
        if found and self.flow is not None:
            self.flow.take(mode, {*space.pods[gang]} - {*before})
        return found

    def of(self, settler: _Settler) -> frozenset[int] | None:
        """Nodes for the gang: those of its domains, or some with slots for what is loose; None for any."""
        if self.flow is not None and (home := self.flow.home(settler.mode)) is not None:
            return home
        if settler.shares:
            shares = settler.shares.items()
            each = (self._open_nodes(settler.mode.option.demand, d, own) for d, own in shares)
            return frozenset[int]().union(*each)
        if not settler.loose:
            return settler.domains
        cluster, found, left = self._model.instance.cluster, set[int](), settler.loose
        of, demand = cluster.domain_of[cluster.node_level - 1], settler.mode.option.demand
        inside = None if settler.domains is None else {of[n] for n in settler.domains}
        own = self._spread.get(id(settler.mode), {})
        (_, every), *held = self._loose
        within = [every, *(pool for nodes, pool in held if demand.gpu_nodes <= nodes)]
        others = [pool for nodes, pool in held if not demand.gpu_nodes <= nodes]
        for pools in ([own], within):
            open_ = [d for d in pools[0] if inside is None or d in inside]
            for domain in sorted(open_):
                most = min(pool.get(domain, 0) for pool in pools)
                if pools is within:  # the rest is for those that are held to fewer nodes
                    most -= max((pool.get(domain, 0) for pool in others), default=0)
                taken = min(left, most)
                if taken > 0:
                    found |= self._open_nodes(demand, domain, taken)
                    for pool in pools:
                        _take(pool, domain, taken)
                    left -= taken
        return settler.domains if left else frozenset(found)

    def _open_nodes(self, demand: Demand, domain: int, slots: int) -> set[int]:
        """Nodes with so many free large slots, the fewest, those first to which few others are held."""
        cluster, unit = self._model.instance.cluster, self._model.units[0]
        nodes = np.array(cluster.domains[cluster.node_level - 1][domain].nodes)
        if self._space.closed.active:
            demand = self._space.closed.narrowed(demand)
        free, found = self._space.arrays.free[nodes] // unit, set[int]()
        arrays = self._space.arrays
        for at in np.lexsort((-free, arrays.order[nodes], arrays.last[nodes])).tolist():
            if slots <= 0:
                break
            if free[at] and nodes[at] in demand.gpu_roles[0].nodes:
                found.add(int(nodes[at]))
                slots -= int(free[at])
        return found


def _values(variables: Mapping[int, int], values: Sequence[int]) -> dict[int, int]:
    """By domain, what a solution has there, if it has any."""
    return {domain: values[v] for domain, v in variables.items() if values[v]}


def _take(slots: dict[int, int], domain: int, taken: int) -> None:
    """Take slots of a domain, as many as it has."""
    slots[domain] = max(0, slots.get(domain, 0) - taken)
