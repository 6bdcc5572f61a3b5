"""Nodes that rules keep idle, domain by domain, in the slots program."""

from __future__ import annotations

from collections.abc import Iterator

from models.instance.instance import Instance
from models.program.linear_program import Linear, Program
from models.program.slots.slot_rooms import SlotRooms
from models.rules.shape import SpareNodes, spare_nodes


class Spares:
    """``rules``: by its number in ``spare_nodes``, each rule that counts, with the nodes that may be idle.

    ``idle``: (rule, variable, nodes of one innermost domain of which so many stay idle). ``emptied``:
    variables of those that are idle only if a gang stops there, which it may only for one that comes.
    """

    def __init__(self, instance: Instance, room: SlotRooms) -> None:
        self._instance = instance
        self._stopping = room.stopping
        self.rules: dict[int, SpareNodes] = {}
        self.idle: list[tuple[int, int, frozenset[int]]] = []
        self.emptied: list[int] = []
        known = set[int]()
        for number, rule in enumerate(spare_nodes(instance)):
            if known.isdisjoint(rule.nodes):
                gpus = instance.cluster.nodes
                nodes = tuple(n for n in rule.nodes if room.most(n) == gpus[n].gpus)
                self.rules[number] = SpareNodes(nodes, rule.least)
                known.update(rule.nodes)

    def slots(self, nodes: frozenset[int], size: int) -> int:
        """Slots on these nodes that nobody takes, at least."""
        return sum(least * slots[0] for _, _, least, slots in self._inside(nodes, (size,)))

    def keep(
        self, program: Program, nodes: frozenset[int], level: int, units: tuple[int, ...]
    ) -> Iterator[tuple[list[int], int, tuple[int, ...]]]:
        """(nodes of a domain of the level, a variable: how many stay idle, slots of each unit of one)."""
        of = self._instance.cluster.domain_of[level]
        for number, inside, least, slots in self._inside(nodes, units):
            total, found = Linear(), dict[tuple[int, bool], list[int]]()
            for n in inside:
                found.setdefault((of[n], n in self._stopping), []).append(n)
            for (_, stopping), own in sorted(found.items()):
                variable = program.integer(0, min(least, len(own)))
                total.add(variable)
                if stopping:
                    self.emptied.append(variable)
                else:
                    self.idle.append((number, variable, frozenset(own)))
                yield own, variable, slots
            program.equal(total, least)

    def _inside(
        self, nodes: frozenset[int], sizes: tuple[int, ...]
    ) -> Iterator[tuple[int, list[int], int, tuple[int, ...]]]:
        """(rule, its nodes among these, how many of them stay idle, slots of each size of one)."""
        gpus = self._instance.cluster.nodes
        for number, rule in self.rules.items():
            inside = [n for n in rule.nodes if n in nodes]
            least = rule.least - (len(rule.nodes) - len(inside))
            if least > 0:
                fewest = min(gpus[n].gpus for n in inside)
                yield number, inside, least, tuple(fewest // size for size in sizes)
