"""What may be left on a node by the gangs that run there, and the cases of a server that follow.

Pods that stay under every option are part of the node's room instead. Where GPU indices matter and
some are unknown, the value of a GPU set depends on which pods stay: one case for every combination
of known and unknown GPUs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from models.instance.cluster import Node
from models.instance.gang import ExistingPod
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room
from models.program.options import MAX_WAYS, Choice
from models.program.packing import MaskSets, SetType, by_count, inside_known_MBps, network_MBps
from models.rates.gang_bandwidth import ServerSet, server_set


@dataclass(frozen=True, slots=True)
class NodeUsage:
    """What an option leaves on a node: known GPUs, the number of unknown ones, and resources."""

    known: int = 0
    blind: int = 0
    use: tuple[tuple[str, int], ...] = ()


NodeUsages = Mapping[int, Mapping[int, tuple[NodeUsage, ...]]]
"""By node and choice (its position among the choices): what each of its options leaves there."""


def node_usages(instance: Instance, choices: Sequence[Choice]) -> NodeUsages:
    """Usages of every node on which it is decided who stays."""
    found: dict[int, dict[int, tuple[NodeUsage, ...]]] = {}
    for number, choice in enumerate(choices):
        always = set(choice.always)
        by_node: dict[int, list[NodeUsage]] = {}
        for position, option in enumerate(choice.options):
            here = usage_by_node(
                instance, choice.gang, [p for p in option.demand.stays if p not in always]
            )
            for n in {**by_node, **here}:
                row = by_node.setdefault(n, [NodeUsage()] * len(choice.options))
                row[position] = here.get(n, NodeUsage())
        for n, row in by_node.items():
            found.setdefault(n, {})[number] = tuple(row)
    return {n: found[n] for n in sorted(found)}


def usage_by_node(
    instance: Instance, index: int, pods: Sequence[ExistingPod]
) -> dict[int, NodeUsage]:
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
        n: NodeUsage(known.get(n, 0), blind.get(n, 0), tuple(sorted(amounts.items())))
        for n, amounts in use.items()
    }


@dataclass(frozen=True, slots=True)
class Case:
    """``known``, ``blind``: what the choices leave. ``held``: all GPUs known to be held.

    ``mask``: healthy GPUs not known to be held; ``free``: how many may be given. ``hidden``: pods
    placed there get no indices.
    """

    known: int
    blind: int
    held: int
    mask: int
    free: int
    hidden: bool


def needs_cases(node: Node, room: Room, usages: Mapping[int, Sequence[NodeUsage]]) -> bool:
    """Whether the worth of the sets of the server differs between cases."""
    lefts = [left for options in usages.values() for left in options]
    known, blind = any(left.known for left in lefts), any(left.blind for left in lefts)
    if not (known if room.blind else blind):
        return False
    return node.model is not None and not by_count(node.model, node.effective_nics)


def server_cases(
    node: Node, room: Room, held: int, usages: Mapping[int, Sequence[NodeUsage]]
) -> tuple[Case, ...] | None:
    """Every case, the emptiest first; None beyond MAX_WAYS. ``held``: known under every option."""
    found = {(0, 0)}
    for options in usages.values():
        plain = {(left.known, left.blind) for left in options} | {(0, 0)}
        found = {(k | known, b + blind) for k, b in found for known, blind in plain}
        if len(found) > MAX_WAYS:
            return None
    return tuple(_case(node, room, held, known, blind) for known, blind in sorted(found))


def _case(node: Node, room: Room, held: int, known: int, blind: int) -> Case:
    mask = node.givable & ~(held | known)
    free = max(0, mask.bit_count() - room.unknown - blind) if room.free_gpus else 0
    return Case(known, blind, held | known, mask, free, room.blind or blind > 0)


class CaseSets(MaskSets):
    """One server by its GPU sets, in every case; unknown GPUs are the worst they may be."""

    def __init__(
        self, node: Node, cases: tuple[Case, ...], with_standing: tuple[ServerSet, ...] = ()
    ) -> None:
        super().__init__(node, with_standing)
        self.cases = cases

    def unknown(self, case: Case, gpus: int) -> SetType:
        """The given number of GPUs with unknown indices."""
        own = ServerSet(0, gpus, case.mask)
        with_standing = tuple(
            self._combined_unknown(case, base, gpus) for base in self._with_standing
        )
        node = self._node
        return SetType(gpus, inside_known_MBps(node, own), network_MBps(node, own), with_standing)

    def _combined_unknown(
        self, case: Case, base: ServerSet, gpus: int
    ) -> tuple[Fraction | None, Fraction | None]:
        if base.known & ~case.held or base.count + gpus > self._node.gpus:
            return Fraction(0), Fraction(0)  # never both: it does not stay in this case
        both = server_set(self._node, base.known, base.blind + gpus, case.held)
        return inside_known_MBps(self._node, both), network_MBps(self._node, both)


def standing_set(node: Node, base: ServerSet, case: Case) -> ServerSet:
    """The set that the standing GPUs of a gang are in this case."""
    return server_set(node, base.known, base.blind, case.held)
