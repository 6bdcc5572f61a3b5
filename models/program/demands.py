"""How the slices of a role cut its pods: by floor(index / size), whatever the first index is.

Promises: pods are interchangeable, so of a waiting gang's slices only the numbers are told: a short one
at the head (where the first index is no multiple of the size), whole ones, a short one at the tail.
Called by the slice rules, the pieces, the decoding and the greedy start.

Which pods of a gang stay where they are while the others are placed anew (contract 2.6, 2.8).

A pod placed where it stands is as good as one that stays, so only two things make a difference: pods that
could not be placed there again, and roles or slices that break a rule as they stand, which they may do
only as a whole. Promises: every set that some best plan may need; pods that nothing tells apart are told
by their number. ``complete`` False: there would be too many. Called by ``options``.

What is to be placed: a gang's pods, beside those of its standing ones that stay.

Promises: everything a rule needs of a gang, in dense integers, with the nodes each role may use;
pods that stay already narrow those nodes (contract 2.6, 2.8, section 7).
Built by ``options`` and the greedy start, which use the same records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from itertools import product

from models.gang import Gang, Role, StandingPod
from models.instance import Instance
from models.occupancy import Room
from models.program.packing import by_count
from models.rates.gang_bandwidth import ServerSet, server_set


@dataclass(frozen=True, slots=True)
class Cut:
    """``head`` and ``tail``: pods of the short first and last slice, 0 where there is none.

    head + whole x size + tail pods in all; 0 <= head, tail < size.
    """

    size: int
    head: int
    whole: int
    tail: int

    @property
    def shorts(self) -> tuple[int, ...]:
        """Pods of each short slice."""
        return tuple(short for short in (self.head, self.tail) if short)

    @property
    def sums(self) -> tuple[int, ...]:
        """What a place may hold beside whole slices: sums of short slices, ascending."""
        return tuple(sorted({0, self.head, self.tail, self.head + self.tail}))

    def fits(self, pods: int) -> bool:
        """Whether so many pods may be slices that are not torn apart."""
        return any(pods >= short and (pods - short) % self.size == 0 for short in self.sums)


def cut_of(first: int, count: int, size: int) -> Cut:
    """The slices of the pods first, first + 1, ..., ``count`` of them."""
    head = min(count, -first % size)
    whole, tail = divmod(count - head, size)
    return Cut(size, head, whole, tail)


def groups_of(indices: Iterable[int], size: int) -> list[list[int]]:
    """The indices by slice, ascending."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(index // size, []).append(index)
    return [sorted(members) for _, members in sorted(groups.items())]


MOST_SETS = 256
"""Sets of pods that stay of one gang at one size; of more only none and all of the odd ones."""

Pods = tuple[StandingPod, ...]


class Remaining:
    """The pods of one gang. ``rooms``: beside all that runs."""

    def __init__(self, instance: Instance, rooms: Sequence[Room], index: int) -> None:
        self._instance = instance
        self._rooms = rooms
        self._gang = instance.gangs[index]

    def sets(self, there: Sequence[StandingPod]) -> tuple[list[Pods], bool]:
        """Sets of these pods that stay, never all; False if some were left out.

        Beside them those with all GPUs in place: moving pods without GPUs disturbs nothing.
        """
        units = self._units(there)
        number = 1
        for unit in units:
            number *= len(unit)
        complete = number <= MOST_SETS
        if not complete:
            units = [[(), tuple(p for unit in units for p in unit[-1])]]
        with_gpus = [p for p in there if self._gang.roles[p.role].gpus]
        found: dict[Pods, None] = {}
        for chosen in product(*units):
            some = [p for part in chosen for p in part]
            for stays in ([], with_gpus):
                pods = tuple(p for p in there if p in some or p in stays)
                if len(pods) < len(there):
                    found[pods] = None
        return list(found), complete

    def _units(self, there: Sequence[StandingPod]) -> list[list[Pods]]:
        """What may stay or not, each by itself: as many of some alike pods, or a whole group or none."""
        units: list[list[Pods]] = [[(), group] for group in self._broken(there)]
        alike: dict[object, list[StandingPod]] = {}
        for pod in there:
            if not self._placeable(pod):
                alike.setdefault(self._kind(pod, there), []).append(pod)
        return units + [[tuple(pods[:n]) for n in range(len(pods) + 1)] for pods in alike.values()]

    def _broken(self, there: Sequence[StandingPod]) -> list[Pods]:
        """Roles and slices that break a rule as they stand."""
        found: dict[Pods, None] = {}
        for number, role in enumerate(self._gang.roles):
            own = tuple(p for p in there if p.role == number)
            groups: list[tuple[int | None, Pods]] = [(role.required, own)]
            for size, level in role.slice_layers:
                numbers = sorted({p.index // size for p in own})
                groups += [(level, tuple(p for p in own if p.index // size == n)) for n in numbers]
            for within, pods in groups:
                if within is not None and self._several(within, pods):
                    found[pods] = None
            if self._mixed(role, own):
                found[own] = None
        return list(found)

    def _several(self, level: int, pods: Sequence[StandingPod]) -> bool:
        """Whether the pods stand in several domains of the level."""
        of = self._instance.cluster.domain_of[level]
        return len({of[p.node] for p in pods if p.node is not None}) > 1

    def _mixed(self, role: Role, own: Sequence[StandingPod]) -> bool:
        """Whether the role stands on several GPU models although it must not."""
        if not role.gpus or role.mix_models:
            return False
        nodes = self._instance.cluster.nodes
        models = [nodes[p.node].model for p in own if p.node is not None]
        return len({model.gpu for model in models if model is not None}) > 1

    def _placeable(self, pod: StandingPod) -> bool:
        """Whether the pod, taken away, could be put where it stands."""
        instance, role = self._instance, self._gang.roles[pod.role]
        assert pod.node is not None
        node, room = instance.cluster.nodes[pod.node], self._rooms[pod.node]
        if pod.node not in instance.eligible_nodes(role) or (pod.gpus or 0) & ~node.healthy:
            return False
        hidden = room.blind and node.model and not by_count(node.model, node.effective_nics)
        if hidden and pod.gpus:
            return False  # its GPUs are known as long as it stays, those of a new pod would not be
        # where what stands is too much already it may stay, but nothing may be added
        return room.mask.bit_count() >= room.unknown and all(left >= 0 for _, left in room.left)

    def _kind(self, pod: StandingPod, there: Sequence[StandingPod]) -> object:
        """Equal for pods of which it does not matter which stay."""
        assert pod.node is not None
        role, node = self._gang.roles[pod.role], self._instance.cluster.nodes[pod.node]
        where: object = pod.node
        gpus: object = pod.gpus
        if node.model is None or by_count(node.model, node.effective_nics):
            # what is free of a node that takes no pods is worth nothing, wherever it is
            alone = sum(p.node == pod.node for p in there) == 1
            if alone and not self._instance.schedulable(node):
                of = self._instance.cluster.domain_of[:-1]
                where = (node.model, node.nics, tuple(level[pod.node] for level in of))
                gpus = None
            elif pod.gpus is not None:
                gpus = (pod.gpus & node.healthy).bit_count()
        slices = tuple(pod.index // size for size, _ in role.slice_layers)
        planned = tuple(
            p.node for p in self._gang.planned if (p.role, p.index) == (pod.role, pod.index)
        )
        return pod.role, where, gpus, slices, planned


TOLD_APART_NODES = 16
"""Up to so many nodes slices planned before are told apart, one by one."""

Groups = tuple[tuple[tuple[int, ...], int | None], ...]
"""(indices of the pods to place of one slice, the domain where others of it stand or None), a slice."""


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """Pods of one role to place. ``nodes``: those allowed, ascending, room aside.

    ``indices``: the pod indices to fill, ascending. ``layers``: where slices are told apart, their
    groups for each layer, innermost first; else empty.
    """

    role: int
    indices: tuple[int, ...]
    gpus: int
    requests: tuple[tuple[str, int], ...]
    nodes: frozenset[int]
    layers: tuple[Groups, ...] = ()

    @property
    def groups(self) -> Groups:
        """Those of the innermost slices."""
        return self.layers[0] if self.layers else ()

    @property
    def count(self) -> int:
        return len(self.indices)

    def cut(self, size: int) -> Cut:
        """Its slices of that size; only for a role that waits as a whole."""
        return cut_of(self.indices[0], self.count, size)


@dataclass(frozen=True, slots=True)
class Demand:
    """One way in which a gang may run after the plan: pods that stay, and pods to place.

    ``possible`` is False where pods that stay already break a rule of those to place. ``counts``: pods a
    role, all of them. ``stays``: standing pods left as they are. ``standing``: their GPUs, by node;
    ``standing_nodes``: their nodes, ascending. ``sole``: no other way exists for this waiting gang.
    """

    gang: int
    roles: tuple[RoleDemand, ...]
    possible: bool
    counts: tuple[int, ...] = ()
    stays: tuple[StandingPod, ...] = ()
    standing: tuple[tuple[int, ServerSet], ...] = ()
    standing_nodes: tuple[int, ...] = ()
    sole: bool = True

    def within(self, nodes: frozenset[int]) -> Demand:
        """The same demand, held to these nodes."""
        roles = tuple(replace(role, nodes=role.nodes & nodes) for role in self.roles)
        return replace(self, roles=roles)

    @property
    def gpu_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if role.gpus)

    @property
    def zero_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if not role.gpus)

    @property
    def gpus(self) -> int:
        """GPUs to place."""
        return sum(role.gpus * role.count for role in self.roles)

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang, those of pods that stay included."""
        return self.gpus + sum(chosen.count for _, chosen in self.standing)


def demands_of(instance: Instance, known: list[int]) -> tuple[Demand, ...]:
    """Every gang that waits or runs with pods missing, at its smallest size; held ones are left out.

    ``known``: mask of GPUs known held, a node.
    """
    return tuple(
        demand_for(instance, index, gang.target_counts(), gang.standing, known)
        for index, gang in enumerate(instance.gangs)
        if gang.hold is None and (not gang.running or gang.missing())
    )


def demand_for(
    instance: Instance,
    index: int,
    counts: Sequence[int],
    stays: Sequence[StandingPod],
    known: Sequence[int],
) -> Demand:
    """The gang with so many pods a role, of which these standing ones stay and the others are placed.

    Pods to place are held to the domains and models of those that stay (contract 2.6, section 7).
    """
    gang = instance.gangs[index]
    there = {(pod.role, pod.index) for pod in stays}
    nodes_all = {pod.node for pod in stays if pod.node is not None}
    possible = True
    roles = []
    for number, count in enumerate(counts):
        indices = [i for i in gang.roles[number].indices(count) if (number, i) not in there]
        if not indices:
            continue
        own = [pod for pod in stays if pod.role == number]
        if own:
            role, fine = _beside(instance, gang, number, indices, own)
        else:
            role, fine = _whole(instance, gang, number, count), True
        allowed, same = _same_domain(instance, gang.required, nodes_all, role.nodes)
        possible &= fine and same
        roles.append(replace(role, nodes=allowed))
    return Demand(
        index,
        tuple(roles),
        possible,
        tuple(counts),
        tuple(stays),
        _standing_sets(instance, gang, stays, known),
        tuple(sorted(nodes_all)),
    )


def _whole(instance: Instance, gang: Gang, number: int, count: int) -> RoleDemand:
    """All pods of a role of which none stays."""
    role = gang.roles[number]
    pods = tuple(role.indices(count))
    demand = RoleDemand(number, pods, role.gpus, role.requests, instance.eligible_nodes(role))
    if _told_apart(instance, gang, demand):
        layers = (groups_of(pods, size) for size, _ in role.slice_layers)
        apart = tuple(tuple((tuple(group), None) for group in groups) for groups in layers)
        return replace(demand, layers=apart)
    return demand


def _told_apart(instance: Instance, gang: Gang, demand: RoleDemand) -> bool:
    """Whether it matters which slice is where, not only how many are."""
    role, cluster = gang.roles[demand.role], instance.cluster
    if role.outer_slices and role.slice_level == cluster.node_level:
        # Two short slices on nodes cannot be counted by pieces and be held to their outer slices.
        size, _ = role.slice_layers[0]
        if len(demand.cut(size).shorts) > 1:
            return True
    # in large clusters it is left to luck which slice meets the nodes planned for it before
    few = bool(role.gpus and role.slice_layers) and len(cluster.nodes) <= TOLD_APART_NODES
    return few and _sticks(instance) and any(p.role == demand.role for p in gang.planned)


def _sticks(instance: Instance) -> bool:
    return any(objective.name == "stability" for objective in instance.policy.objectives)


def _beside(
    instance: Instance, gang: Gang, number: int, indices: list[int], own: Sequence[StandingPod]
) -> tuple[RoleDemand, bool]:
    """Pods of a role beside those of it that stay; False if these break a rule of the role already."""
    cluster, role = instance.cluster, gang.roles[number]
    nodes = {pod.node for pod in own if pod.node is not None}
    allowed, possible = _same_domain(instance, role.required, nodes, instance.eligible_nodes(role))
    if role.gpus and not role.mix_models:
        gpu_models = {m.gpu for n in nodes if (m := cluster.nodes[n].model) is not None}
        possible &= len(gpu_models) <= 1
        if gpu_models:
            allowed = frozenset(
                n for n in allowed if (m := cluster.nodes[n].model) and m.gpu in gpu_models
            )
    layers = []
    for size, level in role.slice_layers:
        groups, fine = _slice_groups(instance, own, indices, size, level)
        possible &= fine
        layers.append(groups)
    apart = tuple(layers) if possible else ()
    return RoleDemand(number, tuple(indices), role.gpus, role.requests, allowed, apart), possible


def _same_domain(
    instance: Instance, level: int | None, stand: set[int], allowed: frozenset[int]
) -> tuple[frozenset[int], bool]:
    """Allowed nodes within the one domain the standing pods use; False if they use several."""
    if level is None or not stand:
        return allowed, True
    of = instance.cluster.domain_of[level]
    used = {of[n] for n in stand}
    if len(used) > 1:
        return allowed, False
    return frozenset(n for n in allowed if of[n] in used), True


def _slice_groups(
    instance: Instance, own: Sequence[StandingPod], indices: list[int], size: int, level: int
) -> tuple[Groups, bool]:
    """The slices of one layer that miss pods; False if the pods that stay of one use several domains."""
    of = instance.cluster.domain_of[level]
    used: dict[int, set[int]] = {}
    for pod in own:
        if pod.node is not None:
            used.setdefault(pod.index // size, set()).add(of[pod.node])
    result: list[tuple[tuple[int, ...], int | None]] = []
    for members in groups_of(indices, size):
        domains = used.get(members[0] // size, set())
        if len(domains) > 1:
            return (), False
        result.append((tuple(members), next(iter(domains), None)))
    return tuple(result), True


def _standing_sets(
    instance: Instance, gang: Gang, stays: Sequence[StandingPod], known: Sequence[int]
) -> tuple[tuple[int, ServerSet], ...]:
    masks: dict[int, int] = {}
    blind: dict[int, int] = {}
    for pod in stays:
        gpus = gang.roles[pod.role].gpus
        if gpus and pod.node is not None:
            masks[pod.node] = masks.get(pod.node, 0) | (pod.gpus or 0)
            if pod.gpus is None:
                blind[pod.node] = blind.get(pod.node, 0) + gpus
    nodes = instance.cluster.nodes
    found = (
        (n, server_set(nodes[n], mask, blind.get(n, 0), known[n] | mask))
        for n, mask in sorted(masks.items())
    )
    return tuple((n, chosen) for n, chosen in found if chosen.count)


def identity(instance: Instance, demand: Demand, *, planned: bool = True) -> tuple[object, ...]:
    """Equal for waiting gangs that differ in nothing but name, priority and submit time.

    ``planned``: those that an earlier plan placed are like no other.
    """
    gang = instance.gangs[demand.gang]
    if gang.running or (planned and gang.planned):
        return ("by itself", demand.gang)
    roles = tuple(
        (
            role.count,
            role.gpus,
            role.requests,
            role.nodes,
            gang.roles[role.role].required,
            gang.roles[role.role].preferred,
            gang.roles[role.role].slice_size,
            gang.roles[role.role].slice_level,
            gang.roles[role.role].outer_slices,
            role.indices[0]
            % max((size for size, _ in gang.roles[role.role].slice_layers), default=1),
            gang.roles[role.role].mix_models,
            gang.roles[role.role].min,
            gang.roles[role.role].max,
            gang.roles[role.role].step,
        )
        for role in demand.roles
    )
    share: Fraction = instance.min_share(gang)
    talk = (gang.pattern == "none", gang.weight, gang.nvlink_across_nodes)
    return (gang.required, gang.preferred, share, talk, roles)
