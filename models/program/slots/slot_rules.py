"""Rules about shapes in the slots program: gangs spread evenly (contract 2.19), and nodes kept idle (2.21).

Each gang that is spread evenly has an integer p[d] for every innermost domain d, and for each domain D of the
level of its balance a boolean u[D]; with P[D] the sum of p inside D, u[D] <= P[D], the rows of
``rules.shape``, and
    sum of p = pods of the modes that are whole in no domain of that level, inside of the home of the gang
Only pods that take the same number of large slots each; the rule is left out for all others. Nodes that rules
keep idle are counted domain by domain.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence

from models.instance.instance import Instance
from models.program.linear_program import Linear, Program
from models.program.rules.shape import share_evenly
from models.program.slots.slot_rooms import DomainSlots, Mode, Piece, SlotRooms
from models.program.slots.slot_state import Slots
from models.rules.shape import SpareNodes, spare_nodes


def even_shares(model: Slots, slots: DomainSlots) -> dict[int, EvenShares]:
    """The shares of each gang of ``even_gangs``, on large slots that are loose; adds their rows."""
    inner, held = model.instance.cluster.node_level - 1, dict[int, Linear]()
    modes: dict[int, list[Mode]] = {gang: [] for gang in model.even}
    for mode in model.modes:
        if mode.option.demand.gang in modes:
            modes[mode.option.demand.gang].append(mode)
    found = {}
    for gang, own in modes.items():
        size = model.even[gang]
        roles = (role for mode in own for role in mode.option.demand.gpu_roles)
        nodes = frozenset[int]().union(*(role.nodes for role in roles))
        pod = Piece(inner, (size, *(0 for _ in model.units[1:])), nodes)
        room = {domain: most for domain, most in slots.most_within(pod, nodes) if most}
        level = model.instance.gangs[gang].balance
        assert level is not None, "see even_gangs"
        shares = found[gang] = EvenShares(model, own, level, size, room)
        for domain, variable in shares.pods.items():
            held.setdefault(model.loose[domain], Linear()).add(variable, size)
    for variable, taken in held.items():
        model.program.at_most(taken.add(variable, -1))
    return found


class EvenShares:
    """The pods of one gang, of so many large slots each; adds its rows.

    ``pods``: the variable p of each innermost domain.
    """

    def __init__(
        self,
        model: Slots,
        modes: Sequence[Mode],
        level: int,
        slots: int,
        most: Mapping[int, int],
    ) -> None:
        """``level``: that of the balance; ``most``: pods that an innermost domain may have."""
        self._model, self.slots = model, slots
        self._modes = [mode for mode in modes if mode.shape is not None and mode.level < level]
        pods = max(map(_pods, self._modes), default=0)
        self.pods = {
            domain: model.program.integer(0, min(pods, room)) for domain, room in most.items()
        }
        total = Linear().add_all(self.pods.values())
        for mode in self._modes:
            total.add(mode.variable, -_pods(mode))
        model.program.equal(total)
        self._stay_at_home()
        self._share_evenly(level, pods)

    def taken(self, values: Sequence[int]) -> Iterator[tuple[int, int]]:
        """(innermost domain, large slots that a solution has for the gang there)."""
        for domain, variable in self.pods.items():
            if values[variable]:
                yield domain, self.slots * values[variable]

    def _stay_at_home(self) -> None:
        """The pods are inside of the domain that the gang is whole in."""
        model, cluster = self._model, self._model.instance.cluster
        of = cluster.domain_of[cluster.node_level - 1]
        for mode in self._modes:
            for piece, _ in model.pieces(mode):
                for domain, home in model.homes.get((piece,), {}).items():
                    inside = {of[n] for n in cluster.domains[piece.level][domain].nodes}
                    own = (self.pods[d] for d in sorted(inside & self.pods.keys()))
                    model.program.at_least(Linear().add_all(own).add(home, -_pods(mode)))

    def _share_evenly(self, level: int, pods: int) -> None:
        program, cluster = self._model.program, self._model.instance.cluster
        shares = dict[int, Linear]()
        for domain, variable in self.pods.items():
            n = cluster.domains[cluster.node_level - 1][domain].nodes[0]
            shares.setdefault(cluster.domain_of[level][n], Linear()).add(variable)
        used = {d: program.boolean() for d in shares}
        for d, share in shares.items():
            program.at_least(Linear().add_linear(share).add(used[d], -1))
        share_evenly(program, shares, pods, used)


def _pods(mode: Mode) -> int:
    return sum(role.count for role in mode.option.demand.gpu_roles)


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
