"""How many domains gangs use that are whole in none of the narrowest: rows for ``span``, by counting slots.

The pods of such gangs take slots of innermost domains. A domain that gives p of them is used by at least
p / min(pods of a gang, its slots) gangs, and each node of it gives no more than it has to each of them. So
many gangs of one kind use at least as many domains as this says, all together, and each as many as hold its
pods if it has the cluster to itself.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from models.program.linear_program import Linear, Program
from models.program.slots.slot_rooms import DomainSlots, Mode, Piece
from models.program.slots.slot_state import Slots

MAX_SPREAD = 5000
"""Pairs of kinds and innermost domains at most.

Where each gang of a solution would be a kind of its own, and that is too much, those that are alike are one
kind. Gangs that run come first, then the largest.
"""

Key = tuple[Piece, ...] | tuple[int, ...]
"""The pieces that lead to a kind; where there are none, slots and weight of a gang (and itself, if alone)."""


@dataclass
class SpreadKind:
    """Gangs that are whole at ``level`` (-1: nowhere), each with so many large pods.

    ``pods``: by innermost domain, their slots there; ``nodes``: (variable, most) of those on each node of it.
    """

    level: int
    slots: int
    modes: list[Mode] = field(default_factory=list)
    pods: dict[int, Linear] = field(default_factory=dict)
    nodes: dict[int, list[tuple[int, int]]] = field(default_factory=dict)


class SlotSpread:
    """The kinds of one model, and their rows, which are added to its program.

    ``variables``: how many a solution that says all this has at least.
    """

    def __init__(self, model: Slots, slots: DomainSlots, known: Sequence[int]) -> None:
        """``known``: a solution, if any: only gangs that run in it are counted, each where it is there."""
        self._model = model
        self._program: Program = model.program
        self._cluster = model.instance.cluster
        self._inner = self._cluster.node_level - 1
        self._most = slots.most_in(self._inner)
        self._alone = {mode.variable for mode in model.modes if known and known[mode.variable]}
        self._running = {m.option.demand.gang for m in model.modes if m.variable in self._alone}
        domains = self._cluster.domains[self._inner]
        self._nodes = {d: list(slots.on_nodes(domains[d].nodes)) for d in self._most}
        self._taken = {d: [Linear() for _ in own] for d, own in self._nodes.items()}
        self.kinds = self._kinds(apart=True)
        for key, kind in self.kinds.items():
            kind.pods = self._pods_of(key, kind)
        self._share()
        self.variables = len(self._program.lower)

    def _kinds(self, *, apart: bool) -> dict[Key, SpreadKind]:
        """Those of the solution first; ``apart``: each gang in it is one of its own, if all are counted."""
        found, most = dict[Key, SpreadKind](), max(1, MAX_SPREAD // max(1, len(self._most)))
        for mode in self._model.modes:
            key = self._key(mode, apart=apart)
            if key is not None and (not self._alone or mode.option.demand.gang in self._running):
                slots = self._model.taken(mode)[0]
                kind = found.setdefault(key, SpreadKind(mode.level, slots))
                kind.slots = max(kind.slots, slots)
                kind.modes.append(mode)
        if apart and len(found) > most:
            return self._kinds(apart=False)

        def rank(key: Key) -> tuple[bool, int]:
            modes = found[key].modes
            known = any(mode.variable in self._alone for mode in modes)
            return known, max(map(self._weight, modes))

        return {key: found[key] for key in sorted(found, key=rank, reverse=True)[:most]}

    def _key(self, mode: Mode, *, apart: bool) -> Key | None:
        """None of a gang that is whole in an innermost domain, or whose pods are not all counted."""
        pieces, roles = self._model.pieces(mode), mode.option.demand.gpu_roles
        if mode.shape is None or mode.level >= self._inner or len(roles) != 1 or len(pieces) > 1:
            return None
        slots = self._model.taken(mode)[0]
        if slots < 2 or slots != roles[0].count:  # of small pods
            return None
        if not pieces:
            alone = (mode.variable,) if apart and mode.variable in self._alone else ()
            return slots, self._weight(mode), *alone
        path: tuple[Piece, ...] = (pieces[0][0],)
        count = pieces[0][1]
        if path[0].whole and path[0].parts:
            path, count = (path[0], path[0].parts[0][0]), path[0].parts[0][1]
        last = path[-1]
        if last.whole or (last.level == self._inner and last.slots[0] * count == slots):
            return path
        return None

    def _weight(self, mode: Mode) -> int:
        return self._model.instance.gangs[mode.option.demand.gang].weight_gpus

    def _pods_of(self, key: Key, kind: SpreadKind) -> dict[int, Linear]:
        """The slots of a kind in each innermost domain: of its slices, or variables."""
        model, domains = self._model, self._cluster.domains
        found: dict[int, Linear] = {}
        if isinstance(key[-1], int):
            total = Linear().add_all((mode.variable for mode in kind.modes), -kind.slots)
            return self._variables(self._most, total, kind)
        last = key[-1]
        if last.level == self._inner:
            for path, homes in model.homes.items():
                # of pods in several domains, all that there may be in one
                own = (replace(piece, least=0) if piece.even else piece for piece in path[:-1])
                if key in (path, (*own,)):
                    for domain, variable in homes.items():
                        found.setdefault(domain, Linear()).add(variable, path[-1].slots[0])
            return found
        of = self._cluster.domain_of[self._inner]
        for domain, variable in model.homes.get(key, {}).items():
            inside = {of[n] for n in domains[kind.level][domain].nodes} & self._most.keys()
            total = Linear({variable: -kind.slots})
            found.update(self._variables(sorted(inside), total, kind))
        return found

    def _variables(
        self, domains: Iterable[int], total: Linear, kind: SpreadKind
    ) -> dict[int, Linear]:
        """Slots in these domains that make up the total, which has them with a minus."""
        found = dict[int, Linear]()
        for domain in domains:
            kind.nodes[domain], found[domain] = [], Linear()
            for (_, most, _), taken in zip(self._nodes[domain], self._taken[domain], strict=True):
                own = self._program.integer(0, min(most, kind.slots * len(kind.modes)))
                kind.nodes[domain].append((own, min(most, kind.slots)))
                for here in (found[domain], taken, total):
                    here.add(own)
        self._program.equal(total, 0)
        return found

    def _share(self) -> None:
        """What is loose in a domain is shared by the kinds whose slots are no slices.

        Of a wider domain, those that may be elsewhere have no more than others there leave them.
        """
        held: dict[int, Linear] = {}
        for key, kind in self.kinds.items():
            if _is_loose(key, self._inner):
                for domain, pods in kind.pods.items():
                    held.setdefault(domain, Linear()).add_linear(pods)
        for domain, pods in held.items():
            loose = self._model.loose.get(domain)
            self._program.at_most(pods if loose is None else pods.add(loose, -1), 0)
        self._share_nodes()
        for (level, domain), spare in self._model.spare.items():
            others, of = Linear().add_linear(spare), self._cluster.domain_of
            inside = {of[self._inner][n] for n in self._cluster.domains[level][domain].nodes}
            for key, kind in self.kinds.items():
                if kind.level < level and _is_loose(key, self._inner):
                    for inner in inside & kind.pods.keys():
                        others.add_linear(kind.pods[inner], -1)
            self._program.at_least(others, 0)

    def _share_nodes(self) -> None:
        """A node gives all kinds together no more slots than it has."""
        for domain, nodes in self._nodes.items():
            for (now, _, cleared), taken in zip(nodes, self._taken[domain], strict=True):
                if taken.terms:
                    self._program.at_most(taken if cleared is None else taken.add(cleared, -1), now)

    def pods(self, values: Sequence[int]) -> dict[int, dict[int, int]]:
        """By id of a mode, the slots that a solution has for gangs of its kind in innermost domains.

        Gangs of one kind have one of these between them.
        """
        found = {}
        for key, kind in self.kinds.items():
            if _is_loose(key, self._inner):
                own = {domain: pods.value(values) for domain, pods in kind.pods.items()}
                here = {domain: slots for domain, slots in own.items() if slots}
                found.update(dict.fromkeys(map(id, kind.modes), here))
        return found

    def span(self) -> Linear:
        """The least that the gangs of all modes add to ``span``."""
        weights, total = self._cluster.span_weights, Linear()
        counted = {id(mode): kind for kind in self.kinds.values() for mode in kind.modes}
        for mode in self._model.modes:
            if not mode.option.effect.admitted:
                continue
            kind = counted.get(id(mode))
            if kind is None or mode.shape is None:
                total.add(mode.variable, self._model.placed_value("span", mode))
                continue
            for level, (fewest, own) in enumerate(zip(mode.shape.fewest, weights, strict=True)):
                if not kind.level < level <= self._inner:
                    total.add(mode.variable, self._weight(mode) * own * (fewest - 1))
        for kind in self.kinds.values():
            users = dict[int, dict[int, int]]()
            for level in range(kind.level + 1, self._inner + 1):
                if weights[level]:
                    users[level] = self._users(kind, level, users)
                    total.add(self._beyond_first(kind, level, users[level].values()))
        return total

    def _users(
        self, kind: SpreadKind, level: int, wider: Mapping[int, Mapping[int, int]]
    ) -> dict[int, int]:
        """By domain of a level, how many gangs of a kind use it; each uses those of wider levels as well."""
        program, of = self._program, self._cluster.domain_of
        pods, most = dict[int, Linear](), dict[int, int]()
        for domain, here in kind.pods.items():
            n = self._cluster.domains[self._inner][domain].nodes[0]
            pods.setdefault(of[level][n], Linear()).add_linear(here)
            most[of[level][n]] = most.get(of[level][n], 0) + self._most[domain]
        found = dict[int, int]()
        for domain, here in pods.items():
            gangs = found[domain] = program.integer(0, len(kind.modes))
            program.at_least(
                Linear().add(gangs, min(kind.slots, most[domain])).add_linear(here, -1), 0
            )
            nodes = self._cluster.domains[level][domain].nodes
            for outer, users in wider.items():
                around = users[of[outer][nodes[0]]]
                program.at_least(Linear({around: 1, gangs: -1}))
            for variable, own in kind.nodes.get(domain, ()) if level == self._inner else ():
                program.at_least(Linear({gangs: own, variable: -1}))
        return found

    def _beyond_first(self, kind: SpreadKind, level: int, users: Iterable[int]) -> int:
        """A variable: what the domains of a level that the gangs of a kind use add to the tier."""
        program, own = self._program, self._cluster.span_weights[level]
        used = Linear().add_all(users)
        least, alone = Linear(), Linear()
        weight = min(map(self._weight, kind.modes))
        for mode in kind.modes:
            assert mode.shape is not None, "see _key"
            least.add(mode.variable, self._weight(mode) * own)
            alone.add(mode.variable, self._weight(mode) * own * (mode.shape.fewest[level] - 1))
        most_value = program.bound_above(alone) + weight * own * program.bound_above(used)
        value = program.integer(0, most_value)
        # together at least so many, each of them less the one that is free
        program.at_least(Linear().add(value).add_linear(used, -weight * own).add_linear(least), 0)
        program.at_least(Linear().add(value).add_linear(alone, -1), 0)
        return value


def _is_loose(key: Key, inner: int) -> bool:
    """Whether such gangs take loose slots, and not those of slices that are whole in innermost domains."""
    last = key[-1]
    return isinstance(last, int) or last.level < inner
