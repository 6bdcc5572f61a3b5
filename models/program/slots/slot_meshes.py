"""Servers on which not only the number of GPUs counts: rows for the sets of GPUs that gangs have there.

Nodes whose free masks, and those of pods that may leave them, are alike are one class. It has an integer for
each pattern of disjoint sets, of so many of its nodes; a pattern with GPUs of a pod needs one that left. Of
all sets that will do for some gangs, these have at most as many as patterns have. A gang on several servers
has sets of any sizes, as many GPUs together as it asks for; single GPUs are counted with the slots of nodes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from fractions import Fraction

from models.hardware import bits
from models.program.linear_program import Linear, Program
from models.program.packing import MeshKind, MeshPatterns, Pattern, covers
from models.program.slots.slot_rooms import Mode, SlotRooms

MAX_LEAVING = 3
"""Pods of a node that may leave it and are told apart; others count as gone."""

Asked = dict[frozenset[int], Linear]
"""By the sets of GPUs that will do, how many are taken."""


@dataclass
class MeshClass:
    """Nodes that are alike, each with its pods that may leave it in the same order: 1 where one leaves.

    ``patterns``: (variable, a pattern, the positions of the pods whose GPUs it has).
    """

    nodes: list[tuple[int, list[Linear]]]
    patterns: list[tuple[int, Pattern, tuple[int, ...]]]


class SlotMeshes:
    """The rows of one kind of server. ``classes``, ``patterns``: with them a plan finds its sets."""

    def __init__(
        self,
        kind: MeshKind,
        program: Program,
        room: SlotRooms,
        modes: Iterable[tuple[Mode, Fraction | None]],
    ) -> None:
        """``modes``: each with the oversubscription between its servers, None of one that is on one."""
        self.kind = kind
        self._program = program
        own_modes = [
            (mode, over)
            for mode, over in modes
            if (roles := mode.option.demand.gpu_roles) and all(r.nodes <= kind.nodes for r in roles)
        ]
        asked = self._asked(own_modes)
        by_size = dict[int, frozenset[int]]()
        for own in asked:
            size = next(iter(own)).bit_count()
            by_size[size] = by_size.get(size, frozenset()) | own
        wanted = list(dict.fromkeys((*asked, *by_size.values())))
        self.patterns = MeshPatterns(kind.sets, wanted)
        self.classes = list(self._classes(room)) if wanted else []
        for at, own in enumerate(wanted):
            row = Linear()
            for masks, taken in asked.items():
                if masks <= own:
                    row.add_linear(taken)
            for one in self.classes:
                for variable, pattern, _ in one.patterns:
                    row.add(variable, -pattern[at])
            program.at_most(row)

    def _asked(self, modes: Iterable[tuple[Mode, Fraction | None]]) -> Asked:
        found: Asked = {}
        scattered: dict[tuple[int, int, Fraction, Fraction], Linear] = {}
        for mode, over in modes:
            shape, roles = mode.shape, mode.option.demand.gpu_roles
            if shape is None or shape.inside is None:
                for role in roles:
                    self._ask(found, role.gpus, Fraction(0), None, {mode.variable: role.count})
            elif over is None:
                gpus = sum(role.gpus * role.count for role in roles)
                self._ask(found, gpus, shape.inside, None, {mode.variable: 1})
            else:
                (role,) = roles
                key = role.gpus, role.count, shape.inside, over
                scattered.setdefault(key, Linear()).add(mode.variable)
        for (gpus, pods, least, over), gangs in scattered.items():
            self._scatter(found, gpus, pods, least, over, gangs)
        return found

    def _ask(
        self,
        found: Asked,
        gpus: int,
        least: Fraction,
        over: Fraction | None,
        taken: dict[int, int],
    ) -> None:
        if gpus > 1 and (masks := self.kind.sets.masks(gpus, least, over)):
            found.setdefault(masks, Linear()).add_linear(Linear(taken))

    def _scatter(
        self, found: Asked, gpus: int, pods: int, least: Fraction, over: Fraction, gangs: Linear
    ) -> None:
        """So many gangs of so many pods have two sets or more, of some pods each."""
        sets, program = self.kind.sets, self._program
        every = sets.masks(gpus, Fraction(0), None)
        if len(sets.masks(gpus, least, over)) == len(every):  # each pod alone will do
            self._ask(found, gpus, Fraction(0), None, {v: pods * n for v, n in gangs.terms.items()})
            return
        total, count, most = Linear(), Linear(), program.bound_above(gangs)
        for own in range(1, min(pods - 1, sets.gpus // gpus) + 1):
            if sets.masks(own * gpus, least, over):
                variable = program.integer(0, most * (pods // own))
                total.add(variable, own)
                count.add(variable)
                self._ask(found, own * gpus, least, over, {variable: 1})
        program.equal(total.add_linear(gangs, -pods))
        program.at_least(count.add_linear(gangs, -2), 0)

    def _classes(self, room: SlotRooms) -> Iterator[MeshClass]:
        found: dict[tuple[int, ...], MeshClass] = {}
        for n in sorted(self.kind.nodes):
            mask, leaving = room.free_masks(n)
            for gone, _ in leaving[MAX_LEAVING:]:
                mask |= gone
            key, order = self.kind.sets.alike(mask, [own for own, _ in leaving[:MAX_LEAVING]])
            one = found.setdefault(key, MeshClass([], []))
            one.nodes.append((n, [leaving[at][1] for at in order]))
        for key, one in found.items():
            self._choose(key, one)
            yield one

    def _choose(self, key: tuple[int, ...], one: MeshClass) -> None:
        """Variables of the patterns of a class: at most one a node, and none with GPUs of who stays."""
        every, using = Linear(), [Linear() for _ in key[1:]]
        for pattern, gone in self._patterns(*key):
            variable = self._program.integer(0, len(one.nodes))
            one.patterns.append((variable, pattern, tuple(sorted(gone))))
            every.add(variable)
            for at in gone:
                using[at].add(variable)
        if every.terms:
            self._program.at_most(every, len(one.nodes))
        for at, own in enumerate(using):
            if own.terms:
                for _, leaving in one.nodes:
                    own.add_linear(leaving[at], -1)
                self._program.at_most(own)

    def _patterns(self, mask: int, *others: int) -> list[tuple[Pattern, frozenset[int]]]:
        """The patterns of a mask and of those of pods that are gone, none for which fewer suffice."""
        found: list[tuple[Pattern, frozenset[int]]] = []
        for number in sorted(range(1 << len(others)), key=lambda own: (own.bit_count(), own)):
            gone, free = frozenset(bits(number)), mask
            for at in gone:
                free |= others[at]
            for pattern in self.patterns.of(free):
                if not any(used <= gone and covers(own, pattern) for own, used in found):
                    found.append((pattern, gone))
        return [(pattern, gone) for pattern, gone in found if any(pattern)]
