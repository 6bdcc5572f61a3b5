"""Loose large slots by the nodes that gangs are held to, where these are not all nodes of a domain.

l[S, d] are the loose slots of gangs held to the nodes S in the innermost domain d. For every S and d:
    sum over d of l[S, d] + slots of their pieces that are whole in an innermost domain >= all that they take
    the same, of the domains inside of a wider one >= what pieces take that are whole in that one
    what gangs take in d that are held to S, or to a part of it <= slots of S in d
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping

from models.program.linear_program import Linear
from models.program.slots.slot_rooms import DomainSlots, Mode, Piece
from models.program.slots.slot_state import Slots

MAX_POOLED = 4000
"""Pairs of an innermost domain and a set of nodes; the sets to which the fewest slots are held go without."""

Nodes = frozenset[int]


class LoosePools:
    """The pools of one model; ``pools``: by set of nodes and domain, the variable of its loose slots."""

    def __init__(self, model: Slots, slots: DomainSlots, everywhere: Nodes) -> None:
        self._model, self._slots = model, slots
        self.pools: dict[Nodes, dict[int, int]] = {}
        cluster = model.instance.cluster
        self._inner = cluster.node_level - 1
        for nodes in self._sets(everywhere):
            pod = Piece(self._inner, (1, *(0 for _ in model.units[1:])), nodes)
            self.pools[nodes] = {
                domain: model.program.integer(0, most)
                for domain, most in slots.most_within(pod, everywhere)
                if most
            }
        if self.pools:
            self._hold_in_all()
            self._hold_in_wider()
            self._hold_on_nodes(everywhere)

    def held_to(self, mode: Mode) -> Nodes | None:
        """The set of nodes by which its loose slots are counted; None: with those of all others."""
        found = {role.nodes for role in mode.option.demand.gpu_roles}
        only = found.pop() if len(found) == 1 else None
        return only if only in self.pools else None

    def variable(self, modes: Iterable[Mode], domain: int) -> int | None:
        """The pool of a domain that has the loose slots of these modes, if one has all of them."""
        held = {self.held_to(mode) for mode in modes}
        nodes = held.pop() if len(held) == 1 else None
        return None if nodes is None else self.pools[nodes].get(domain)

    def _sets(self, everywhere: Nodes) -> list[Nodes]:
        """Sets that are only a part of some innermost domain, those first to which most slots are held."""
        model, cluster = self._model, self._model.instance.cluster
        asked = Counter[Nodes]()
        for mode in model.modes:
            found = {role.nodes for role in mode.option.demand.gpu_roles}
            if len(found) == 1:
                asked[found.pop()] += model.taken(mode)[0]
        of = cluster.domain_of[self._inner]

        def splits(nodes: Nodes) -> bool:
            return not {of[n] for n in nodes}.isdisjoint(of[n] for n in everywhere - nodes)

        domains = len(cluster.domains[self._inner])
        ordered = sorted(asked, key=lambda own: (-asked[own], len(own), min(own, default=0)))
        split = [nodes for nodes in ordered if asked[nodes] and splits(nodes)]
        return split[: MAX_POOLED // domains]

    def _hold_in_all(self) -> None:
        """What gangs held to a set take has room in its domains; what is loose in a domain is shared."""
        model, loose = self._model, dict[int, Linear]()
        total = {nodes: Linear().add_all(own.values()) for nodes, own in self.pools.items()}
        for mode in model.modes:
            nodes = self.held_to(mode)
            if nodes is not None:
                total[nodes].add(mode.variable, -model.taken(mode)[0])
        for path, homes in model.homes.items():
            if path[-1].level == self._inner and path[-1].nodes in total:
                total[path[-1].nodes].add_all(homes.values(), path[-1].slots[0])
        for own in total.values():
            model.program.at_least(own, 0)
        for pool in self.pools.values():
            for domain, variable in pool.items():
                loose.setdefault(domain, Linear()).add(variable)
        for domain, taken in loose.items():
            model.program.at_most(taken.add(model.loose[domain], -1), 0)

    def _hold_in_wider(self) -> None:
        """In each wider domain they have all slots that pieces of theirs take that are whole in it."""
        model, cluster = self._model, self._model.instance.cluster
        least: dict[tuple[Nodes, int, int], Linear] = {}
        mixed = {p for m in model.modes if self.held_to(m) is None for p, _ in model.pieces(m)}
        for path, homes in model.homes.items():
            piece = path[0]
            if len(path) > 1 or piece.nodes not in self.pools or piece in mixed:
                continue
            for domain, variable in homes.items():
                n = cluster.domains[piece.level][domain].nodes[0]
                for level in range(min(piece.level + 1, self._inner)):
                    key = piece.nodes, level, cluster.domain_of[level][n]
                    least.setdefault(key, Linear()).add(variable, piece.slots[0])
        for (nodes, level, wider), own in least.items():
            inside = {
                cluster.domain_of[self._inner][n] for n in cluster.domains[level][wider].nodes
            }
            for taken, slots in self._taken(nodes):
                own.add_all((v for d, v in taken.items() if d in inside), -slots)
            model.program.at_most(own, 0)

    def _taken(
        self, nodes: Nodes, *, parts: bool = False
    ) -> Iterator[tuple[Mapping[int, int], int]]:
        """(by innermost domain a variable, slots of one): of what is loose, and of whole pieces.

        ``parts``: also of those that are held to a part of the nodes.
        """
        for held, pool in self.pools.items():
            if held == nodes or (parts and held < nodes):
                yield pool, 1
        for path, homes in self._model.homes.items():
            held = path[-1].nodes
            if path[-1].level == self._inner and (held == nodes or (parts and held < nodes)):
                yield homes, path[-1].slots[0]

    def _hold_on_nodes(self, everywhere: Nodes) -> None:
        """In each domain a set has the slots that gangs take who are held to it, or to a part of it."""
        model, domains = self._model, self._model.instance.cluster.domains[self._inner]
        for nodes, pool in self.pools.items():
            taken = {domain: Linear() for domain in pool}
            for found, slots in self._taken(nodes, parts=True):
                for domain in found.keys() & taken.keys():
                    taken[domain].add(found[domain], slots)
            for domain, own in taken.items():
                here = everywhere.intersection(domains[domain].nodes)
                if not here <= nodes:
                    there = self._slots.there(here & nodes, 0)
                    model.program.at_most(own.add_linear(there, -1), 0)
