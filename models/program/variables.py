"""Every variable of the program and what it means; rules read them through the records here.

A piece is what a gang puts on one node: a number of pods of each GPU role, and the type of GPU set they use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import TypeVar, cast

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.reshaping import Partitioning, Sharing, reshaping
from models.program.base_state import BaseState, classes
from models.program.linear_program import MAX_VARIABLES, Linear, Program, TooLarge
from models.program.options import Choice, Effect
from models.program.packing import SetType
from models.program.servers import Case, Server, Supply, supply_of
from models.rules.demands import Demand, RoleDemand
from models.rules.pod_rules import most_on_a_node
from models.rules.registry import own_variables

Found = TypeVar("Found")


@dataclass(frozen=True, slots=True)
class Piece:
    """``pods``: pods of each GPU role of the demand, in its order; ``n``: the node.

    ``variable``: whether it is there; of gangs that share it, how many are.
    """

    n: int
    pods: tuple[int, ...]
    kind: SetType
    variable: int


Group = tuple[tuple[Demand, int], ...]
"""(demand, admit) of gangs that are equal but for name, priority and submit time, as they start."""

SliceVariables = list[tuple[tuple[int, ...], list[tuple[set[int], int]]]]
"""Slices with variables of their own: the indices of each, and its boolean for every domain (as nodes)."""


@dataclass
class GangVariables:
    """One option of a gang. ``number``: of its demand, -1 for none; ``admit``: whether it is chosen.

    ``group``: if the whole gang is one piece on one node, it and those that equal it: they share the pieces,
    since numbers suffice.

    ``cpu_only_counts[(role, n)]``: pods of a role without GPUs on node n, apart from those of whole pieces.
    ``slices[role]``: for each layer, innermost first, slices with variables of their own.
    """

    number: int
    demand: Demand
    gang: Gang
    admit: int
    effect: Effect
    group: Group = ()
    pieces: list[Piece] = field(default_factory=list)
    cpu_only_counts: dict[tuple[int, int], int] = field(default_factory=dict)
    slices: dict[int, list[SliceVariables]] = field(default_factory=dict)

    @property
    def members(self) -> Group:
        """It, and the gangs that share its pieces."""
        return self.group or ((self.demand, self.admit),)

    @property
    def admits(self) -> list[int]:
        return [admit for _, admit in self.members]

    @cached_property
    def by_node(self) -> dict[int, list[Piece]]:
        """The pieces by node, ascending, once there are all of them."""
        found: dict[int, list[Piece]] = {}
        for piece in self.pieces:
            found.setdefault(piece.n, []).append(piece)
        return dict(sorted(found.items()))

    @cached_property
    def nodes(self) -> list[int]:
        """Nodes on which some pod may be."""
        return sorted(self.by_node.keys() | {n for _, n in self.cpu_only_counts})

    @cached_property
    def roles(self) -> dict[int, RoleDemand]:
        """The roles to place by number, those with GPUs first."""
        found = (*self.demand.gpu_roles, *self.demand.cpu_only_roles)
        return {role.role: role for role in found}

    def pods(self, role: RoleDemand, nodes: Iterable[int]) -> Linear:
        """Pods of a role on these nodes."""
        if self.group:
            whole = (piece.variable for n in sorted(nodes) for piece in self.by_node.get(n, ()))
            return Linear().add_all(whole, role.count)
        if not role.gpus:
            here = (self.cpu_only_counts.get((role.role, n)) for n in sorted(nodes))
            return Linear().add_all(variable for variable in here if variable is not None)
        at = list(self.roles).index(role.role)
        pieces = (self.by_node.get(n, ()) for n in sorted(nodes))
        return Linear({p.variable: p.pods[at] for own in pieces for p in own if p.pods[at]})


@dataclass
class Partition:
    """GPUs of a node that get one geometry: pieces of one GPU. ``supply``: instances of each GPU."""

    supply: tuple[tuple[str, int], ...]
    pieces: list[Piece] = field(default_factory=list)


@dataclass
class SharedGpus:
    """GPUs of a node that become shared: pieces of one GPU. ``most``: how many there can be."""

    sharing: Sharing
    n: int
    most: int
    pieces: list[Piece] = field(default_factory=list)


Owner = GangVariables | Partition | SharedGpus

Placed = tuple[GangVariables, int, int, list[tuple[RoleDemand, int]]]
"""Whose pods, the node, the variable, and the pods of each role that come with one of it."""


@dataclass
class Variables:
    """All variables. ``gangs``: options with pods to place; ``stays``: the others.

    ``siblings``: every group, also of gangs of several pieces.
    ``admits[c][o]``: whether option o of choice c is chosen. ``supplies``: what each server has.
    ``partitions``: of GPUs. ``keeping``: whether each GPU of ``BaseState.keeping`` stays shared.
    """

    admits: list[list[int]]
    gangs: list[GangVariables] = field(default_factory=list)
    stays: list[GangVariables] = field(default_factory=list)
    siblings: list[Group] = field(default_factory=list)
    supplies: dict[int, Supply] = field(default_factory=dict)
    partitions: list[Partition | SharedGpus] = field(default_factory=list)
    keeping: list[int] = field(default_factory=list)

    @property
    def placed(self) -> Iterator[Placed]:
        """Everything that may be placed on nodes."""
        for gang in self.gangs:
            whole = [(role, role.count) for role in gang.demand.roles]
            for piece in gang.pieces:
                own = list(zip(gang.demand.gpu_roles, piece.pods, strict=True))
                yield gang, piece.n, piece.variable, whole if gang.group else own
            for (role, n), variable in gang.cpu_only_counts.items():
                yield gang, n, variable, [(gang.roles[role], 1)]

    @property
    def pieces(self) -> Iterator[Piece]:
        for owner in (*self.gangs, *self.partitions):
            yield from owner.pieces


@dataclass(frozen=True)
class GangBandwidth:
    """What a gang reaches if it is admitted, in permille: of its ideal bandwidth and of its ideal speed.

    Of gangs that share pieces: what all reach together.
    ``exact`` False: upper bounds.
    """

    share: Linear
    speed: Linear
    exact: bool


@dataclass
class Model:
    """A program under construction, as the rules see it.

    ``bandwidth``: by admit variable. ``loads``: what is used of a resource of a server by pods that
    come and those that may stay.
    """

    program: Program
    instance: Instance
    state: BaseState
    servers: Mapping[int, Server]
    variables: Variables
    bandwidth: dict[int, GangBandwidth] = field(default_factory=dict)
    loads: dict[tuple[int, str], Linear] = field(default_factory=dict)
    _kept: dict[object, object] = field(default_factory=dict)

    def once(self, find: Callable[[Model], Found]) -> Found:
        """What a function finds in the model once all variables are there, computed once."""
        if find not in self._kept:
            self._kept[find] = find(self)
        return cast("Found", self._kept[find])

    @property
    def decided(self) -> Iterator[tuple[Choice, list[int]]]:
        """Every choice, and the variables of its options."""
        return zip(self.state.choices, self.variables.admits, strict=True)

    def cases(self, n: int) -> list[tuple[Case, int]]:
        """Every case that a server may be in, with its boolean."""
        return self.variables.supplies[n].cases if n in self.variables.supplies else []


def staying(model: Model) -> list[tuple[int, int, int, Linear]]:
    """(gang, role, node, 1 if it stays) of pods that run: once, or for each option under which they stay."""
    found, decided = list[tuple[int, int, int, Linear]](), set[int]()
    for choice, admits in model.decided:
        decided.add(choice.gang)
        pods = [(pod, Linear(constant=1)) for pod in choice.always]
        for option, admit in zip(choice.options, admits, strict=True):
            stays = (pod for pod in option.demand.stays if pod not in choice.always)
            pods += [(pod, Linear({admit: 1})) for pod in stays]
        found += [(choice.gang, p.role, p.node, own) for p, own in pods if p.node is not None]
    for index, decision in enumerate(model.state.base):
        if index not in decided:
            found += [(index, pod.role, pod.node, Linear(constant=1)) for pod in decision.pods]
    return found


def create(
    instance: Instance, program: Program, state: BaseState, servers: Mapping[int, Server]
) -> Variables:
    found = Variables([[-1] * len(choice.options) for choice in state.choices])
    pieces = _Pieces(instance, servers)
    for members in classes(instance, state):
        admits = [program.integer(0, int(demand.possible)) for _, demand in members]
        for (number, _), admit in zip(members, admits, strict=True):
            chooser, position = state.origin[number]
            found.admits[chooser][position] = admit
        alike = tuple((demand, admit) for (_, demand), admit in zip(members, admits, strict=True))
        found.siblings.append(alike)
        group = alike if is_single_piece(instance, alike[0][0]) else ()
        for (number, demand), admit in zip(members[: 1 if group else None], admits, strict=False):
            gang, effect = instance.gangs[demand.gang], state.effect(number)
            own = GangVariables(number, demand, gang, admit, effect, group)
            found.gangs.append(own)
            pieces.want(own)
            for role in () if group else demand.cpu_only_roles:
                for n in sorted(role.nodes):
                    own.cpu_only_counts[role.role, n] = program.integer(0, role.count)
    for one, own_admits in zip(state.choices, found.admits, strict=True):
        for position, option in enumerate(one.options):
            if not option.demand.roles:  # nothing is placed
                admit = own_admits[position] = program.boolean()
                gang = instance.gangs[one.gang]
                found.stays.append(GangVariables(-1, option.demand, gang, admit, option.effect))
    found.partitions = pieces.partitions()
    found.keeping = [program.boolean() for _ in state.keeping]
    stays = [*found.admits, *([one] for one in found.keeping)]
    found.supplies = pieces.create(program, stays)
    return found


def is_single_piece(instance: Instance, demand: Demand) -> bool:
    """Whether the whole gang is one piece on one node: by its own rule, or as one pod."""
    gang, pods = instance.gangs[demand.gang], sum(role.count for role in demand.roles)
    if gang.running or not demand.only_option or not demand.gpu_roles:
        return False
    single = pods == 1 or gang.required == instance.cluster.node_level
    return single and not own_variables(instance, gang)


class _Pieces:
    """Collects the pieces that each owner may put on each server, whose supply then gives their set types."""

    def __init__(self, instance: Instance, servers: Mapping[int, Server]) -> None:
        self._instance = instance
        self._servers = servers
        self._wanted: dict[int, list[tuple[Owner, tuple[int, ...], int, int]]] = {
            n: [] for n in servers
        }

    def want(self, gang: GangVariables) -> None:
        """The pieces of an option: one on a node at most, of each gang that shares them."""
        roles, most = gang.demand.gpu_roles, len(gang.admits)
        every = gang.demand.roles if gang.group else ()
        kinds: dict[tuple[int, tuple[bool, ...]], list[tuple[tuple[int, ...], int]]] = {}
        for n, server in self._servers.items():
            if any(n not in role.nodes for role in every):
                continue
            free = server.room.free_gpus
            key = (free, tuple(n in role.nodes for role in roles))
            if key not in kinds:
                kinds[key] = [
                    (pods, sum(r.gpus * k for r, k in zip(roles, pods, strict=True)))
                    for pods in vectors(self._instance, gang.demand, n, free)
                ]
            self._wanted[n] += ((gang, pods, gpus, most) for pods, gpus in kinds[key])

    def partitions(self) -> list[Partition | SharedGpus]:
        """GPUs that may be partitioned, in each geometry, or shared, where resources are counted."""
        found = list[Partition | SharedGpus]()
        for n, one in reshaping(self._instance).items():
            free = self._servers[n].room.free_gpus if n in self._servers else 0
            made: list[Partition | SharedGpus] = []
            if isinstance(one, Sharing) and n in self._servers:
                made = [SharedGpus(one, n, free)]
            elif isinstance(one, Partitioning) and free:
                pairs = (zip(one.resources, counts, strict=True) for counts in one.fillings(None))
                made = [Partition(tuple((r, c) for r, c in counts if c)) for counts in pairs]
            for owner in made:
                self._wanted[n].append((owner, (1,), 1, free))
            found += made
        return found

    def create(self, program: Program, admits: Sequence[Sequence[int]]) -> dict[int, Supply]:
        found: dict[int, Supply] = {}
        for n, server in self._servers.items():
            sizes = {gpus for _, _, gpus, _ in self._wanted[n]}
            supply = found[n] = supply_of(program, server, admits, sizes)
            for owner, pods, gpus, most in self._wanted[n]:
                for kind in supply.kinds.get(gpus, ()):
                    owner.pieces.append(Piece(n, pods, kind, program.integer(0, most)))
        return found


def vectors(instance: Instance, demand: Demand, n: int, most_gpus: int) -> list[tuple[int, ...]]:
    """Pods of each GPU role that one node may carry.

    Raises TooLarge where their numbers, one a role each, are more than MAX_VARIABLES.
    """
    gang = instance.gangs[demand.gang]
    roles = demand.gpu_roles
    partial: list[tuple[tuple[int, ...], int]] = [((), 0)]  # pods of the first roles, their GPUs
    for role in roles:
        counts = tuple(_counts(instance, demand, role, n, most_gpus))
        partial = [
            ((*pods, count), gpus + count * role.gpus)
            for pods, gpus in partial
            for count in counts
            if gpus + count * role.gpus <= most_gpus
        ]
        if len(partial) * len(roles) > MAX_VARIABLES:
            raise TooLarge
    found = [pods for pods, gpus in partial if gpus]
    if gang.required == instance.cluster.node_level:
        found = [pods for pods in found if pods == tuple(role.count for role in roles)]
    return found


def _counts(
    instance: Instance, demand: Demand, role: RoleDemand, n: int, most_gpus: int
) -> Iterable[int]:
    """How many pods of the role one node may carry under its node-level rules."""
    if n not in role.nodes:
        return (0,)
    most = min(role.count, most_gpus // role.gpus)
    apart = None if demand.loose else most_on_a_node(instance, demand.gang, role.role)
    if apart is not None:
        most = min(most, apart)
    spec = instance.gangs[demand.gang].roles[role.role]
    node_level = instance.cluster.node_level
    if spec.required == node_level:
        return (0, role.count) if most == role.count else (0,)
    if spec.slice_level == node_level and spec.slice_size is not None:
        if not role.groups:
            cut = role.cut(spec.slice_size)
            return [c for c in range(most + 1) if cut.fits(c)]
        sums = {0}
        for size in (len(indices) for indices, _ in role.groups):
            sums |= {total + size for total in sums}
        return sorted(c for c in sums if c <= most)
    return range(most + 1)
