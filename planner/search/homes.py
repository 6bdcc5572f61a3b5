"""A plan that follows a solution of the slots: who runs, and the domain in which each gang is whole.

The solution says how many slots of each domain are for whom. A gang is placed on the nodes of its domains;
one that is whole in none takes large slots in the domains that have some left for such gangs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence

import numpy as np

from models.program.base_state import base_decisions
from models.program.demands import Demand
from models.program.slot_rooms import Piece
from models.program.slots import Mode, SlotModel
from models.solution import GangDecision, placed
from planner.search.budget import Budget
from planner.search.free_space import FreeSpace
from planner.search.greedy import admit, place
from planner.search.guided import start
from planner.search.repair import back_in_place


def settle_in(model: SlotModel, values: Sequence[int], budget: Budget) -> tuple[GangDecision, ...]:
    """The plan. Large pods come first, those that need narrow domains before others.

    What finds no place where the solution has it is tried anywhere, and else left to others.
    """
    instance = model.instance
    decisions, homeless = list(base_decisions(instance)), set[int]()
    chosen = {mode.option.demand.gang: mode for mode in model.modes if values[mode.variable]}
    for choice in model.requests.choices:
        mode = chosen.get(choice.gang)
        if instance.gangs[choice.gang].running and (mode is None or mode.option.effect.moved):
            decisions[choice.gang] = GangDecision("preempt")
    space = FreeSpace(instance, decisions)
    for gang, mode in chosen.items():  # what stays holds its room before anything comes
        if decisions[gang].decision == "preempt":
            space.set(gang, placed(instance.gangs[gang], mode.option.demand.stays))
    homes = _Homes(model, values, space)
    coming = sorted(map(homes.settler, chosen.values()), key=lambda one: one.key)
    for settler in coming:
        mode, moves = settler.mode, settler.mode.option.effect.moved
        if mode.shape is None and not moves:
            continue
        # once the budget is over the others wait, but nobody stays away who was only to move
        found_one = not budget.exhausted() and _place(space, mode, homes.of(settler))
        if moves and not found_one:
            homeless.add(mode.option.demand.gang)
            space.set(mode.option.demand.gang, ())
    start(space, dict.fromkeys(chosen, 1.0), budget)
    found = [
        one if space.pods[i] == one.pods and i not in homeless else space.decision(i)
        for i, one in enumerate(decisions)
    ]
    return back_in_place(instance, found, sorted(homeless))


def _place(space: FreeSpace, mode: Mode, home: frozenset[int] | None) -> bool:
    """Place a gang at home, or anywhere; one that starts only where it is as fast as in the solution."""
    demand = mode.option.demand
    for held in (demand if home is None else demand.on_gpus(home), demand):
        if not mode.option.effect.moved:
            if admit(space, held, least_speed=mode.speed):
                return True
        elif (pods := place(space, held)) is not None:
            space.set(demand.gang, sorted((*space.pods[demand.gang], *pods)))
            return True
    return False


class _Settler:
    """``domains``: nodes of those that it has, None for any; ``level``: of the narrowest, -1 for none.

    ``loose``: large slots that it takes besides. ``key``: its place in the order.
    """

    def __init__(
        self, model: SlotModel, mode: Mode, domains: frozenset[int] | None, level: int
    ) -> None:
        demand, units = mode.option.demand, model.units
        self.mode, self.domains, self.level = mode, domains, level
        taken = model.taken(mode)[0] if mode.shape is not None and units else 0
        inner = level == model.instance.cluster.node_level - 1
        self.loose = 0 if inner else taken
        alone = mode.level == model.instance.cluster.node_level
        piece = 1 if mode.shape is None else mode.shape.piece
        largest = (
            demand.gpus if alone else max((piece * r.gpus for r in demand.gpu_roles), default=0)
        )
        priority = model.instance.gangs[demand.gang].priority
        self.key = not taken, level < 0, -largest, -level, -priority, -demand.gpus, demand.gang


class _Homes:
    """The domains that a solution has for pieces, and the slots that it has for others, each given once."""

    def __init__(self, model: SlotModel, values: Sequence[int], space: FreeSpace) -> None:
        self._model, self._space = model, space
        self._left = {
            path: {domain: values[v] for domain, v in homes.items() if values[v]}
            for path, homes in model.homes.items()
        }
        self._loose = {domain: values[v] for domain, v in model.loose.items() if values[v]}
        self._spread = {} if model.spread is None else model.spread.pods(values)
        for own in {id(own): own for own in self._spread.values()}.values():
            for domain, slots in own.items():
                _take(self._loose, domain, slots)

    def settler(self, mode: Mode) -> _Settler:
        """Give the gang the domains of its pieces."""
        found, level, covered = set[int](), -1, 0
        pieces = self._model.pieces(mode)
        for piece, count in pieces:
            for _ in range(count):
                nodes, level = self._take((piece,))
                found |= nodes
                covered += piece.slots[0]
        whole = bool(pieces) and (pieces[0][0].whole or covered == self._model.taken(mode)[0])
        return _Settler(
            self._model, mode, frozenset(found) if whole else None, level if whole else -1
        )

    def _take(
        self, path: tuple[Piece, ...], inside: frozenset[int] | None = None
    ) -> tuple[set[int], int]:
        """The nodes of a domain for a piece, or of those of its parts; and the narrowest level of these."""
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

    def of(self, settler: _Settler) -> frozenset[int] | None:
        """Nodes for the gang: those of its domains, or some with slots for what is loose; None for any."""
        if not settler.loose or not self._loose:
            return settler.domains
        cluster, found, left = self._model.instance.cluster, set[int](), settler.loose
        of, demand = cluster.domain_of[cluster.node_level - 1], settler.mode.option.demand
        inside = None if settler.domains is None else {of[n] for n in settler.domains}
        own = self._spread.get(id(settler.mode), {})
        for slots in (own, self._loose):
            open_ = [d for d in slots if inside is None or d in inside]
            # one that is alone leaves the domains with many slots to others
            order = self._narrowly(own, open_) if slots is own else self._closest(left, open_)
            for domain in order:
                taken = min(left, slots[domain])
                if taken:
                    found |= self._open_nodes(demand, domain, taken)
                    _take(slots, domain, taken)
                    left -= taken
        return settler.domains if left else frozenset(found)

    def _closest(self, slots: int, domains: Iterable[int]) -> list[int]:
        """Domains with about so many slots first."""
        return sorted(domains, key=lambda d: (abs(self._loose[d] - slots), d))

    def _narrowly(self, slots: Mapping[int, int], domains: Iterable[int]) -> list[int]:
        """Domains in an order in which few wider ones have many slots."""
        cluster = self._model.instance.cluster
        inner, wider = cluster.node_level - 1, max(0, cluster.node_level - 2)

        def around(d: int) -> int:
            return cluster.domain_of[wider][cluster.domains[inner][d].nodes[0]]

        total = Counter[int]()
        for d, count in slots.items():
            total[around(d)] += count
        return sorted(domains, key=lambda d: (-total[around(d)], around(d), -slots[d], d))

    def _open_nodes(self, demand: Demand, domain: int, slots: int) -> set[int]:
        """Nodes with so many free large slots, the fewest."""
        cluster, unit = self._model.instance.cluster, self._model.units[0]
        nodes = np.array(cluster.domains[cluster.node_level - 1][domain].nodes)
        free, found = self._space.arrays.free[nodes] // unit, set[int]()
        for at in np.argsort(-free, kind="stable").tolist():
            if slots <= 0 or not free[at]:
                break
            if nodes[at] in demand.gpu_roles[0].nodes:
                found.add(int(nodes[at]))
                slots -= int(free[at])
        return found


def _take(slots: dict[int, int], domain: int, taken: int) -> None:
    """Take slots of a domain, which is left out once it has none."""
    slots[domain] -= taken
    if not slots[domain]:
        del slots[domain]
