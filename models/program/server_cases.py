"""What stands on a node only as long as its gang stays: the part of the room that is to be decided.

Promises: for every node, the gangs whose options differ in what they leave there, and what each leaves;
pods that stay whatever is chosen are not among it, they are part of the node's room.
Built once per formulation; read by regions, variables, packing and resources.

What a server is left with, case by case, where it matters which GPUs are held and some are unknown.

Whether pods placed there get indices, and what the worst set of unknown GPUs is worth, hangs on who
stays. Promises: one case for every (GPUs known held, GPUs held by nobody knows whom) that the options
of the choices standing there may leave; within a case the sets of the server are worth what they are.
Called by ``regions``; read by variables, the packing rule and carriers.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.cluster import Node
from models.gang import ExistingPod
from models.instance import Instance
from models.occupancy import PODS, Room
from models.program.options import Choice
from models.program.packing import MaskPacking, SetType, by_count, inside_known_MBps, network_MBps
from models.rates.gang_bandwidth import ServerSet, server_set


@dataclass(frozen=True, slots=True)
class Left:
    """What an option leaves on a node: GPUs known, GPUs nobody knows which, and resources."""

    known: int = 0
    blind: int = 0
    use: tuple[tuple[str, int], ...] = ()


Contents = Mapping[int, Mapping[int, tuple[Left, ...]]]
"""By node and choice (its place in the sequence of choices): what each of its options leaves there."""


def contents_of(instance: Instance, choices: Sequence[Choice]) -> Contents:
    """Contents of every node on which it is decided who stays."""
    found: dict[int, dict[int, tuple[Left, ...]]] = {}
    for number, choice in enumerate(choices):
        always = set(choice.always)
        by_node: dict[int, list[Left]] = {}
        for position, option in enumerate(choice.options):
            here = left_by(
                instance, choice.gang, [p for p in option.demand.stays if p not in always]
            )
            for n in {**by_node, **here}:
                row = by_node.setdefault(n, [Left()] * len(choice.options))
                row[position] = here.get(n, Left())
        for n, row in by_node.items():
            found.setdefault(n, {})[number] = tuple(row)
    return {n: found[n] for n in sorted(found)}


def left_by(instance: Instance, index: int, pods: Sequence[ExistingPod]) -> dict[int, Left]:
    """What these pods of a gang hold, by node."""
    gang = instance.gangs[index]
    known: dict[int, int] = {}
    blind: dict[int, int] = {}
    use: dict[int, dict[str, int]] = {}
    for pod in pods:
        assert pod.node is not None
        role = gang.roles[pod.role]
        if role.gpus and pod.gpus is None:
            blind[pod.node] = blind.get(pod.node, 0) + role.gpus
        elif role.gpus:
            known[pod.node] = known.get(pod.node, 0) | (pod.gpus or 0)
        own = use.setdefault(pod.node, {})
        for resource, amount in ((PODS, 1), *role.requests):
            own[resource] = own.get(resource, 0) + amount
    return {
        n: Left(known.get(n, 0), blind.get(n, 0), tuple(sorted(amounts.items())))
        for n, amounts in use.items()
    }


MOST_CASES = 128
"""Of more cases than these none is told apart, and the server is relaxed to counts."""


@dataclass(frozen=True, slots=True)
class Case:
    """``known``, ``blind``: what the choices leave. ``held``: GPUs known held, all of them.

    ``mask``: healthy GPUs not known to be held; ``free``: how many may be given. ``hidden``: pods placed
    there get no indices.
    """

    known: int
    blind: int
    held: int
    mask: int
    free: int
    hidden: bool


def told_apart(node: Node, room: Room, content: Mapping[int, Sequence[Left]]) -> bool:
    """Whether the sets of the server are worth something else in one case than in another."""
    if node.model is None or by_count(node.model, node.effective_nics):
        return False
    lefts = [left for options in content.values() for left in options]
    if any(left.blind for left in lefts):
        return not room.blind or any(left.known for left in lefts)
    return room.blind and any(left.known for left in lefts)


def cases_of(
    node: Node, room: Room, held: int, content: Mapping[int, Sequence[Left]]
) -> tuple[Case, ...] | None:
    """Every case, the emptiest first; None if there are too many. ``held``: known whatever is chosen."""
    found = {(0, 0)}
    for options in content.values():
        plain = {(left.known, left.blind) for left in options} | {(0, 0)}
        found = {(k | known, b + blind) for k, b in found for known, blind in plain}
        if len(found) > MOST_CASES:
            return None
    return tuple(_case(node, room, held, known, blind) for known, blind in sorted(found))


def _case(node: Node, room: Room, held: int, known: int, blind: int) -> Case:
    mask = node.healthy & ~(held | known)
    free = max(0, mask.bit_count() - room.unknown - blind) if room.free_gpus else 0
    return Case(known, blind, held | known, mask, free, room.blind or blind > 0)


class CasePacking(MaskPacking):
    """One server by its GPU sets, in every case; sets of unknown GPUs are the worst they may be."""

    def __init__(
        self, node: Node, cases: tuple[Case, ...], beside: tuple[ServerSet, ...] = ()
    ) -> None:
        super().__init__(node, beside)
        self.cases = cases

    def unknown(self, case: Case, gpus: int) -> SetType:
        """So many GPUs of which nobody will know the indices."""
        own = ServerSet(0, gpus, case.mask)
        beside = tuple(self._beside_unknown(case, base, gpus) for base in self._beside)
        node = self._node
        return SetType(gpus, inside_known_MBps(node, own), network_MBps(node, own), beside)

    def _beside_unknown(
        self, case: Case, base: ServerSet, gpus: int
    ) -> tuple[Fraction | None, Fraction | None]:
        if base.known & ~case.held or base.count + gpus > self._node.gpus:
            return Fraction(0), Fraction(0)  # never both: the case is not one in which it stays
        both = server_set(self._node, base.known, base.blind + gpus, case.held)
        return inside_known_MBps(self._node, both), network_MBps(self._node, both)


def standing_in(node: Node, base: ServerSet, case: Case) -> ServerSet:
    """The set that a gang's standing GPUs are in this case."""
    return server_set(node, base.known, base.blind, case.held)
