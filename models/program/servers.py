"""Servers: the nodes that gangs may use or leave, each with what its GPU sets are worth."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Protocol

from models.hardware import Nic, ServerModel
from models.instance.cluster import Node
from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room
from models.instance.reshaping import reshaping
from models.program.base_state import BaseState
from models.program.interruption import Question, check, never
from models.program.packing import LARGEST_MESH_STATE, CountSets, MaskSets, Rate, by_count
from models.program.server_cases import CaseSets, NodeUsage, needs_cases, server_cases
from models.rates.gang_bandwidth import ServerSet
from models.rules.demands import Demand


class GpuSets(Protocol):
    """The sets of GPUs of a server. ``exact`` False: a relaxation."""

    exact: bool

    def fastest(self, mask: int, gpus: int, rate: Rate) -> int | None: ...


@dataclass(frozen=True, slots=True)
class Server:
    """``room``: next to the pods that stay under every option. ``tight``: some resource of it may bind.

    ``standing``: demands (by index) with GPUs that stay there, and their position in
    ``SetType.with_standing``. ``usages``: what each choice may leave there.
    """

    n: int
    node: Node
    room: Room
    sets: GpuSets
    tight: bool
    standing: Mapping[int, int] = field(default_factory=dict)
    usages: Mapping[int, tuple[NodeUsage, ...]] = field(default_factory=dict)

    @property
    def gpu_name(self) -> str | None:
        return self.node.model.gpu if self.node.model else None

    @property
    def most_left(self) -> int:
        """The most GPUs that the choices may leave there."""
        options = self.usages.values()
        return sum(max(gpus_used(left, self.room.mask) for left in one) for one in options)


def gpus_used(left: NodeUsage, mask: int) -> int:
    """GPUs that could be free but are held under this usage."""
    return (left.known & mask).bit_count() + left.blind


def build_servers(
    instance: Instance, base: BaseState, shares: Mapping[str, int], interrupted: Question = never
) -> dict[int, Server]:
    """By node, every one that a demand may use or a choice may empty.

    ``shares``: what a GPU that is left free needs of each resource.
    """
    demands, nodes = base.demands, instance.cluster.nodes
    standing: dict[int, dict[ServerSet, int]] = {}
    positions: dict[int, dict[int, int]] = {}
    for number, demand in enumerate(demands):
        for n, own in demand.standing:
            found = standing.setdefault(n, {})
            positions.setdefault(n, {})[number] = found.setdefault(own, len(found))
    used = frozenset(base.node_usages).union(*(role.nodes for d in demands for role in d.roles))
    loads, packings, servers = _Loads(demands, shares), Packings(), dict[int, Server]()
    for n in sorted(used):
        check(interrupted)
        room, usages = base.rooms[n], base.node_usages.get(n, {})
        sets = sets_of(
            nodes[n],
            room,
            tuple(standing.get(n, ())),
            usages=usages,
            held=base.held[n],
            packings=packings,
        )
        server = Server(
            n, nodes[n], room, sets, n in reshaping(instance), positions.get(n, {}), usages
        )
        tight = server.tight or loads.may_bind(server)
        servers[n] = replace(server, tight=tight)
    return servers


class _Loads:
    """What may come to a node: to each GPU the most that one may need, and all pods without GPUs."""

    def __init__(self, demands: Sequence[Demand], shares: Mapping[str, int]) -> None:
        self._shares = shares
        kinds = {(r.nodes, r.gpus, r.requests) for d in demands for r in d.gpu_roles}
        self._gpu_roles = [(nodes, gpus, dict(requests)) for nodes, gpus, requests in kinds]
        self._light: dict[int, list[list[tuple[frozenset[int], int, dict[str, int]]]]] = {}
        for demand in demands:
            roles = [(r.nodes, r.count, dict(r.requests)) for r in demand.cpu_only_roles]
            if roles:
                self._light.setdefault(demand.gang, []).append(roles)

    def may_bind(self, server: Server) -> bool:
        """Whether some resource may not suffice, whatever comes to the server and stays there."""
        room = server.room
        if server.most_left > room.free_gpus:
            return True  # more stands there than fits already
        here = [own for own in self._gpu_roles if server.n in own[0]]
        return any(self._most(server, here, resource) > left for resource, left in room.left)

    def _most(
        self,
        server: Server,
        here: Sequence[tuple[frozenset[int], int, dict[str, int]]],
        resource: str,
    ) -> int:
        each, beside = self._shares.get(resource, 0), 0
        for _, gpus, requests in here:
            each = max(each, -(-_amount(requests, resource) // gpus))
        for options in server.usages.values():
            most = 0
            for left in options:
                gpus, use = gpus_used(left, server.room.mask), dict(left.use).get(resource, 0)
                if gpus:
                    each = max(each, -(-use // gpus))
                else:
                    most = max(most, use)
            beside += most
        for demands in self._light.values():  # of the options of a gang only one is chosen
            beside += max(
                sum(_amount(own, resource) * n for nodes, n, own in roles if server.n in nodes)
                for roles in demands
            )
        return each * server.room.free_gpus + beside


def _amount(requests: Mapping[str, int], resource: str) -> int:
    return 1 if resource == PODS else requests.get(resource, 0)


Packings = dict[tuple[ServerModel, tuple[Nic, ...]], GpuSets]
"""Sets that depend on the hardware alone, which servers share: they remember what they compute."""


def sets_of(
    node: Node,
    room: Room,
    with_standing: tuple[ServerSet, ...] = (),
    *,
    usages: Mapping[int, tuple[NodeUsage, ...]] | None = None,
    held: int = 0,
    packings: Packings | None = None,
) -> GpuSets:
    """The sets of the free GPUs of such a node.

    ``usages``: what the choices leave there. ``held``: mask of GPUs known to be held under every option.
    """
    if node.model is None:
        return CountSets(node, 0, blind=False, relaxed=False)
    counted, blind, mask = by_count(node.model, node.effective_nics), room.blind, room.mask
    relaxed = not counted and not blind and mask.bit_count() > LARGEST_MESH_STATE
    if usages and needs_cases(node, room, usages):
        cases = server_cases(node, room, held, usages)
        indexed = [case.mask.bit_count() for case in cases or () if not case.hidden]
        if cases is not None and max(indexed, default=0) <= LARGEST_MESH_STATE:
            return CaseSets(node, cases, with_standing)
        relaxed = True
    if blind or relaxed:
        return CountSets(node, mask, blind=blind, relaxed=relaxed, with_standing=with_standing)
    found: GpuSets = MaskSets(node, with_standing)
    if counted:
        found = CountSets(node, 0, blind=False, relaxed=False, with_standing=with_standing)
    if packings is None or with_standing:
        return found
    return packings.setdefault((node.model, node.effective_nics), found)
