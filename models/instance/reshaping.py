"""GPUs that pods with instances or parts of GPUs take from whole ones.

On a node with ``dynamic_mig`` an idle GPU is given whole or partitioned, on one with ``sharing`` whole or to
several pods. Instances of one profile are alike, and parts of one size: the pods of a node take the fewest
GPUs that have what is wanted beyond what is there. A GPU of which pods that run have instances or parts stays
so in a plan while any pod of their roles is on the node, and who stops leaves room for another part of the
same size alone. Once all have left, and its index is known, it is idle.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import lru_cache
from typing import Protocol, cast

from models.gpu_shares import (
    SHARE,
    Size,
    all_times_in,
    amount_of,
    fillings,
    less,
    packed,
    part_of,
    shared_by,
    size_on,
    whole,
)
from models.hardware import bits, mask_of
from models.instance.cluster import Node, SharedGpu
from models.instance.instance import Instance, once
from models.instance.solution import PodPlacement
from models.mig import (
    IDLE,
    RESOURCE,
    Board,
    InUse,
    board_named,
    cover,
    fewest,
    resource_of,
)

NO_ROOM: Size = (0, 0, 0)

MOST_PROBES = 8
"""Sizes of parts for which GPUs are packed anew to see whether one more has room."""

MOST_ALIKE = 1 << 12
"""Nodes without some of their shared GPUs that are remembered."""

MOST_KNOWN = 1 << 18
"""Amounts in the answers that nodes which are alike remember."""

Amounts = tuple[int, ...]
"""How many of each resource of a ``Reshaping``."""

GpuRoom = Size | InUse
"""What is left of a GPU that is shared, or what instances have of one that is partitioned."""


@dataclass(frozen=True, slots=True)
class Reshaping(ABC):
    """What a node's GPUs may become. ``resources``: of instances and parts, the largest first.

    ``there``: how many of each no GPU is needed for; ``most``: how many there can be. ``rooms``: of GPUs of
    which pods have parts, ``held``: these. ``known``: answers of ``left``. Nodes that are alike share one.
    """

    resources: tuple[str, ...]
    there: Amounts
    most: Amounts
    rooms: tuple[GpuRoom, ...] = field(default=(), kw_only=True)
    held: tuple[Amounts, ...] = field(default=(), kw_only=True)
    known: dict[tuple[int, Amounts], tuple[int, dict[str, int]]] = field(
        default_factory=dict, compare=False, repr=False, kw_only=True
    )

    def taken(self, used: Mapping[str, int], enough: int | None = None) -> int:
        """GPUs that pods with these requests take.

        ``enough``: with little effort, and perhaps not the fewest if these are no more.
        """
        return self._taken(self._wanted(self._amounts(used)), enough)

    def left(self, idle: int, used: Mapping[str, int]) -> tuple[int, Mapping[str, int]]:
        """Whole GPUs, and how many of each resource, that are left of so many idle GPUs; below 0: too few.

        Of parts there may be more, were others on other GPUs; but one if there can be one at all.
        """
        amounts = self._amounts(used)
        found = self.known.get((idle, amounts))
        if found is None:
            if len(self.known) * len(amounts) >= MOST_KNOWN:
                self.known.clear()
            free = idle - self._taken(self._wanted(amounts), idle)
            more = self._more(amounts, idle) if free >= 0 else [-1] * len(amounts)
            found = free, dict(zip(self.resources, more, strict=True))
            self.known[idle, amounts] = found
        return found

    def _amounts(self, used: Mapping[str, int]) -> Amounts:
        return tuple([used.get(resource, 0) for resource in self.resources])

    def _wanted(self, amounts: Amounts) -> Amounts:
        """What is needed beyond what is there."""
        return tuple([max(0, a - b) for a, b in zip(amounts, self.there, strict=True)])

    def without(self, gone: frozenset[int]) -> Reshaping:
        """The same without some of the GPUs of which pods have parts, by position: they are idle."""
        return _without(self, gone) if gone else self

    @abstractmethod
    def fillings(self, room: GpuRoom | None) -> tuple[Amounts, ...] | None:
        """Largest sets of parts that a GPU with this room can get; None: one that is idle.

        None where there are too many.
        """

    @abstractmethod
    def _taken(self, wanted: Amounts, enough: int | None = None) -> int: ...

    @abstractmethod
    def _more(self, amounts: Amounts, gpus: int) -> list[int]:
        """How many more of each the node has for pods if they take at most so many GPUs."""


@dataclass(frozen=True, slots=True)
class Partitioning(Reshaping):
    """GPUs may be partitioned (MIG). ``profiles``: of the ``resources``.

    Beside instances in use others may come. Their geometries: sets of instances, as numbers of each profile.
    """

    board: str
    profiles: tuple[str, ...]

    def fillings(self, room: GpuRoom | None) -> tuple[Amounts, ...]:
        return self._geometries(room or IDLE)

    def on(self, used: Mapping[str, int]) -> list[Amounts | None] | None:
        """New instances of each GPU, for pods with these requests; None if no GPUs have them.

        First of those in use, None where none come; then of those that become partitioned.
        """
        beside = tuple(map(self._geometries, self.rooms))
        found = cover(self._geometries(IDLE), self._wanted(self._amounts(used)), beside)
        return None if found is None else [*found[0], *found[1]]

    def _geometries(self, room: GpuRoom) -> tuple[Amounts, ...]:
        board = board_named(self.board)
        assert board is not None, "reading has refused unknown boards"
        return board.geometries(self.profiles, cast(InUse, room))

    def _taken(self, wanted: Amounts, enough: int | None = None) -> int:  # noqa: ARG002
        return fewest(self._geometries(IDLE), wanted, tuple(map(self._geometries, self.rooms)))

    def _more(self, amounts: Amounts, gpus: int) -> list[int]:
        return [self._more_of(amounts, k, gpus) for k in range(len(amounts))]

    def _more_of(self, amounts: Amounts, k: int, gpus: int) -> int:
        least, most = 0, self.there[k] + self.most[k] + 1
        while most - least > 1:
            middle = (least + most) // 2
            mine = (*amounts[:k], amounts[k] + middle, *amounts[k + 1 :])
            if self._taken(self._wanted(mine)) <= gpus:
                least = middle
            else:
                most = middle
        return least


@dataclass(frozen=True, slots=True)
class Sharing(Reshaping):
    """Idle GPUs may be shared, and others by more pods. ``sizes``: of the ``resources``.

    ``each``: how many of them a pod has, on as many GPUs. ``empty``: what a GPU has.
    """

    sizes: tuple[Size, ...]
    each: Amounts
    empty: Size

    @property
    def shared(self) -> tuple[Size, ...]:
        """What is left of GPUs that are shared."""
        return cast(tuple[Size, ...], self.rooms)

    def fillings(self, room: GpuRoom | None) -> tuple[Amounts, ...] | None:
        return fillings(self.sizes, self.empty if room is None else room)

    def packed(self, used: Mapping[str, int]) -> tuple[Amounts, ...]:
        """Parts of each size that are new on each GPU: those that are shared first, then idle ones."""
        return self._packed(self._wanted(self._amounts(used)))

    def _packed(
        self, wanted: Amounts, enough: int = 0, *, roughly: bool = False
    ) -> tuple[Amounts, ...]:
        rooms, empty, sizes = self.shared, self.empty, self.sizes
        return packed(rooms, empty, sizes, wanted, enough, each=self.each, roughly=roughly)

    def _taken(self, wanted: Amounts, enough: int | None = None) -> int:
        return len(self._on(wanted, enough)) - len(self.rooms)

    def _on(self, wanted: Amounts, enough: int | None) -> tuple[Amounts, ...]:
        """Parts on each GPU. ``enough``: with little effort, unless more idle GPUs are needed so."""
        if enough is not None:
            on = self._packed(wanted, enough, roughly=True)
            if len(on) <= len(self.rooms) + enough:
                return on
        return self._packed(wanted, enough or 0)

    def _more(self, amounts: Amounts, gpus: int) -> list[int]:
        """What has room where the parts are that are there already; one more also if those were elsewhere.

        The latter of a few sizes, the smallest for which it matters.
        """
        wanted = self._wanted(amounts)
        on = self._on(wanted, gpus)
        rooms = [*self.shared, *[self.empty] * gpus]
        for gpu, counts in enumerate(on):
            for size, count in zip(self.sizes, counts, strict=True):
                if count:
                    rooms[gpu] = less(rooms[gpu], size, count)
        spare = tuple(map(sum, zip(*rooms, strict=True))) or NO_ROOM
        beside, probes = all_times_in(self.sizes, rooms, self.each), 0
        for k, size in reversed(list(enumerate(self.sizes))):
            there = max(0, self.there[k] - amounts[k])
            if beside[k] or there or probes >= MOST_PROBES:
                pass
            elif all(have >= need * self.each[k] for have, need in zip(spare, size, strict=True)):
                probes += 1
                mine = (*wanted[:k], wanted[k] + self.each[k], *wanted[k + 1 :])
                one_more = self._packed(mine, gpus, roughly=True)
                beside[k] = self.each[k] * (len(one_more) <= len(rooms))
            beside[k] += there
        return beside


@lru_cache(maxsize=MOST_ALIKE)
def _without(one: Reshaping, gone: frozenset[int]) -> Reshaping:
    own = [counts for k, counts in enumerate(one.held) if k in gone]
    there = tuple(a - sum(b) for a, b in zip(one.there, zip(*own, strict=True), strict=True))
    return replace(
        one,
        there=there,
        rooms=tuple(room for k, room in enumerate(one.rooms) if k not in gone),
        held=tuple(counts for k, counts in enumerate(one.held) if k not in gone),
        known={},
    )


def beside(one: Reshaping, node: Node, kept: int) -> Reshaping:
    """What a node's GPUs may become. ``kept``: mask of those of which some pod with a part is left."""
    if not node.releasable & ~kept:
        return one
    still = node.still_shared(kept)
    return one.without(frozenset(k for k, gpu in enumerate(node.shared) if gpu not in still))


@once
def reshaping(instance: Instance) -> Mapping[int, Reshaping]:
    """By node, for the instances and parts that roles request."""
    found: dict[int, Reshaping] = {}
    alike: dict[Reshaping, Reshaping] = {}
    for n, node in enumerate(instance.cluster.nodes):
        if node.reshapable:
            made = _partitioning(node) if node.sharing is None else _sharing(node)
            found[n] = alike.setdefault(made, made)
    return found


def _partitioning(node: Node) -> Partitioning:
    board = board_named(node.dynamic_mig or "")
    assert board is not None, "reading has refused unknown boards"
    could, offered = dict(node.reshapable), dict(node.allocatable)
    sizes = {
        r: max(p.size for p in board.profiles if r in map(resource_of, p.names)) for r in could
    }
    resources = tuple(sorted(could, key=lambda r: (-sizes[r], r)))
    return Partitioning(
        resources,
        tuple(offered[r] - could[r] for r in resources),
        tuple(could[r] for r in resources),
        board.name,
        tuple(board.named(r) for r in resources),
        rooms=tuple(_in_use(board, one) for one in node.shared),
        held=_held(node, resources),
    )


def _held(node: Node, resources: Iterable[str]) -> tuple[Amounts, ...]:
    return tuple(tuple(dict(one.used).get(r, 0) for r in resources) for one in node.shared)


def _in_use(board: Board, gpu: SharedGpu) -> InUse:
    found = board.in_use(gpu.instances)
    assert found is not None, "reading has refused instances that cannot be there"
    return found


def _sharing(node: Node) -> Sharing:
    could, offered = dict(node.reshapable), dict(node.allocatable)
    sizes = {r: _size(node, r) or NO_ROOM for r in could}
    resources = tuple(sorted(could, key=lambda r: (*(-s for s in sizes[r]), r)))
    return Sharing(
        resources,
        tuple(offered[r] - could[r] for r in resources),
        tuple(could[r] for r in resources),
        tuple(sizes[r] for r in resources),
        tuple(map(amount_of, resources)),
        _whole(node),
        rooms=tuple(_room_of(node, one) for one in node.shared),
        held=_held(node, resources),
    )


def _size(node: Node, resource: str) -> Size | None:
    part = part_of(resource)
    assert part is not None, "reading has refused other names"
    return size_on(part, None if node.sharing is None else node.sharing.memory)


def _whole(node: Node) -> Size:
    assert node.sharing is not None, "its GPUs may be shared"
    return whole(node.sharing.memory, node.sharing.pods)


def _room_of(node: Node, shared: SharedGpu) -> Size:
    """What is left of a GPU that is shared; nothing where it is not known what a part takes of it."""
    room = _whole(node)
    for resource, count in shared.used:
        size = _size(node, resource)
        room = NO_ROOM if size is None else less(room, size, count)
    return room


def with_reshapable(instance: Instance) -> Instance:
    """The instance whose nodes say what their GPUs could have of what roles request.

    No instances where the indices of GPUs are not known, or pods hold instances that the node does not
    state: nobody could say which GPU to partition. What the nodes say of other gangs is forgotten.
    """
    if any(node.shared or node.reshapable for node in instance.cluster.nodes):
        nodes = tuple(map(as_stated, instance.cluster.nodes))
        instance = _with_keeps(instance, {})
        instance = replace(instance, cluster=replace(instance.cluster, nodes=nodes))
    roles = (role for gang in instance.gangs for role in gang.roles)
    requested = {r for role in roles for r, _ in role.requests if r.startswith((RESOURCE, SHARE))}
    if not requested:
        return instance
    hidden, unstated, shared = _in_parts(instance, requested)
    unclear = hidden | unstated
    keeps = _keeps(instance, hidden, unstated, shared)
    releasable = Counter[int]()
    for (_, _, n), mask in keeps.items():
        releasable[n] |= mask
    made = (
        _reshaped(
            instance,
            _with_shared(node, shared.get(n, {}), releasable[n]),
            requested,
            clear=n not in unclear,
        )
        for n, node in enumerate(instance.cluster.nodes)
    )
    instance = _with_keeps(instance, keeps)
    return replace(instance, cluster=replace(instance.cluster, nodes=tuple(made)))


def _in_parts(
    instance: Instance, requested: Iterable[str]
) -> tuple[set[int], set[int], dict[int, Sharers]]:
    """Nodes where pods hold GPUs of unknown index, or instances that none state; and who has parts.

    Nobody of a GPU in MIG mode without instances.
    """
    hidden, held = set[int](), dict[int, Counter[str]]()
    shared: dict[int, Sharers] = {}
    for n, node in enumerate(instance.cluster.nodes):
        for index in node.empty_mig if node.mig else ():
            shared.setdefault(n, {})[index] = []
    for gang in instance.gangs:
        for pod in gang.running_pods:
            assert pod.node is not None, "it runs"
            role = gang.roles[pod.role]
            held.setdefault(pod.node, Counter()).update(dict(role.requests))
            if pod.gpus is None and role.gpus:
                hidden.add(pod.node)
            for part in filter(part_of, dict(role.requests)):
                name = f"{gang.namespace}/{pod.name}"
                for gpu in shared_by(bits(pod.gpus or 0), pod.gpu_group, name, part):
                    shared.setdefault(pod.node, {}).setdefault(gpu, []).append((part, None))
            if pod.start is not None:
                (resource,) = (r for r, _ in role.requests if r.startswith(RESOURCE))
                (gpu,) = bits(pod.gpus or 0)
                shared.setdefault(pod.node, {}).setdefault(gpu, []).append((resource, pod.start))
                held[pod.node][resource] -= 1
    unstated = {
        n
        for n, amounts in held.items()
        for offered in (dict(instance.cluster.nodes[n].allocatable),)
        if any(amounts[r] > offered.get(r, 0) for r in requested if r.startswith(RESOURCE))
    }
    return hidden, unstated, shared


Keeps = Mapping[tuple[int, int, int], int]
"""By gang, role and node, mask of the GPUs that stay in parts while a pod of the role is there."""


def _keeps(
    instance: Instance,
    hidden: Collection[int],
    unstated: Collection[int],
    shared: Mapping[int, Sharers],
) -> Keeps:
    """Of GPUs all of whose pods may leave, on nodes where no GPU of unknown index is held or sick.

    None of which a pod has a part that has parts of others as well, and none that stays in MIG mode.
    """
    able = {
        n
        for n, own in shared.items()
        if ((node := instance.cluster.nodes[n]).sharing is not None or n not in unstated)
        and n not in hidden
        and not any(isinstance(gpu, str) for gpu in own)
        and not is_blind(instance, node)
    }
    found, fixed = Counter[tuple[int, int, int]](), Counter[int]()
    for index, gang in enumerate(instance.gangs) if able else ():
        for pod in gang.running_pods:
            part = pod.start is not None or any(map(part_of, dict(gang.roles[pod.role].requests)))
            if pod.node in able and part:
                found[index, pod.role, pod.node] |= pod.gpus or 0
                parts_ = filter(part_of, dict(gang.roles[pod.role].requests))
                if any(amount_of(r) > 1 for r in parts_) or not (gang.movable or gang.preemptible):
                    fixed[pod.node] |= pod.gpus or 0
    healthy = {n: instance.cluster.nodes[n].healthy & ~fixed[n] for n in able}
    return {key: own for key, mask in found.items() if (own := mask & healthy[key[2]])}


def _with_keeps(instance: Instance, keeps: Keeps) -> Instance:
    """The instance whose roles keep these GPUs, and no others."""
    own: dict[int, dict[int, list[tuple[int, int]]]] = {}
    for (gang, role, n), mask in sorted(keeps.items()):
        own.setdefault(gang, {}).setdefault(role, []).append((n, mask))
    gangs = list(instance.gangs)
    for number, one in enumerate(instance.gangs):
        if number in own or any(role.keeps for role in one.roles):
            kept = own.get(number, {})
            roles = enumerate(one.roles)
            named = tuple(replace(role, keeps=tuple(kept.get(r, ()))) for r, role in roles)
            gangs[number] = replace(one, roles=named)
    return replace(instance, gangs=tuple(gangs))


def _reshaped(instance: Instance, node: Node, requested: Iterable[str], *, clear: bool) -> Node:
    if node.sharing is not None:
        return with_parts(node, requested)
    dynamic = node.dynamic_mig is not None and clear and not is_blind(instance, node)
    return _with_instances(node, requested) if dynamic else node


Sharers = dict[int | str, list[tuple[str, int | None]]]
"""By the index of a GPU, or by the name of one of unknown index: each part, and where an instance begins."""


def _with_shared(node: Node, shared: Sharers, releasable: int) -> Node:
    """The node of whose GPUs pods have such parts; it offers these. ``releasable``: mask of them."""
    if not shared:
        return node
    listed = sorted(shared.items(), key=lambda pair: (isinstance(pair[0], str), str(pair[0])))
    board = board_named(node.dynamic_mig or "")
    found = tuple(
        SharedGpu(
            None if isinstance(gpu, str) else gpu,
            gpu if isinstance(gpu, str) else None,
            tuple(sorted(Counter(part for part, _ in used).items())),
            tuple(sorted((board.named(part), start) for part, start in used if start is not None))
            if board is not None
            else (),
        )
        for gpu, used in listed
    )
    offered = Counter(dict(node.allocatable))
    offered.update(part for used in shared.values() for part, _ in used)
    unknown = sum(one.gpu is None for one in found)
    return replace(
        node,
        shared=found,
        releasable=releasable,
        allocatable=tuple(sorted(offered.items())),
        unhealthy=node.unhealthy | mask_of(one.gpu for one in found if one.gpu is not None),
        unknown_unhealthy=node.unknown_unhealthy + unknown,
        unknown_partitioned=node.unknown_partitioned + unknown,
    )


def with_parts(node: Node, requested: Iterable[str]) -> Node:
    """The node that offers what its GPUs have room for of these parts."""
    released = [one for one in node.shared if one not in node.still_shared(0)]
    rooms = [_room_of(node, one) for one in node.still_shared(0)]
    rooms += [_whole(node)] * (node.healthy_gpus + len(released))
    held = Counter[str]()
    for one in released:
        held.update(dict(one.used))
    parts = [r for r in sorted(requested) if r.startswith(SHARE) and _size(node, r) is not None]
    sizes = [_size(node, resource) or NO_ROOM for resource in parts]
    found = all_times_in(sizes, rooms, [amount_of(resource) for resource in parts])
    could = {r: most - held[r] for r, most in zip(parts, found, strict=True) if most}
    return _offering(node, could)


def _offering(node: Node, could: Mapping[str, int]) -> Node:
    """The node that offers, too, what its GPUs could have."""
    offered = dict(node.allocatable)
    more = {r: offered.get(r, 0) + most for r, most in could.items()}
    return replace(
        node,
        allocatable=tuple(sorted({**offered, **more}.items())),
        reshapable=tuple(could.items()),
    )


def as_stated(node: Node) -> Node:
    """The node without what gangs request of its GPUs, or have of those that are shared."""
    if not node.shared and not node.reshapable:
        return node
    lasting = set(node.empty_mig)
    mine = mask_of(one.gpu for one in node.shared if one.gpu is not None and one.gpu not in lasting)
    none = {name: 0 for name, _ in node.allocatable if name.startswith(SHARE)}
    return replace(
        node,
        shared=tuple(SharedGpu(gpu, None, ()) for gpu in node.empty_mig),
        unhealthy=node.unhealthy & ~mine,
        unknown_unhealthy=node.unknown_unhealthy - node.unknown_shared,
        unknown_partitioned=node.unknown_partitioned - node.unknown_shared,
        allocatable=tuple(sorted({**none, **node.stated}.items())),
        reshapable=(),
        releasable=0,
    )


def unshared(instance: Instance, node: Node, *, repaired: bool = False) -> Node:
    """The node if no pod of a gang ran on it; ``repaired``: and if all its GPUs were healthy."""
    if node.sharing is None and node.dynamic_mig is None:
        return node
    alone = as_stated(node)
    if repaired:
        alone = replace(
            alone, unhealthy=alone.partitioned, unknown_unhealthy=alone.unknown_partitioned
        )
    requested = [name for name, _ in node.allocatable if name.startswith((RESOURCE, SHARE))]
    if node.sharing is not None:
        return with_parts(alone, requested)
    return alone if is_blind(instance, alone) else _with_instances(alone, requested)


def _with_instances(node: Node, requested: Iterable[str]) -> Node:
    board = board_named(node.dynamic_mig or "")
    assert board is not None, "reading has refused unknown boards"
    still = node.still_shared(0)
    gpus = node.healthy.bit_count() + len(node.shared) - len(still)
    rooms = [_in_use(board, one) for one in still]
    held = Counter[str]()
    for one in node.shared:
        held.update({} if one in still else dict(one.used))
    most = {
        resource_of(name): p.most * gpus + sum(_most_beside(board, name, room) for room in rooms)
        for p in board.profiles
        for name in p.names
        if p.starts
    }
    return _offering(node, {r: most[r] - held[r] for r in sorted(requested) if most.get(r)})


def _most_beside(board: Board, profile: str, room: InUse) -> int:
    """Instances of a profile that a GPU can have beside those in use."""
    return max((count for (count,) in board.geometries((profile,), room)), default=0)


def is_blind(instance: Instance, node: Node, unknown: int | None = None) -> bool:
    """Whether pods placed on the node get no GPU indices.

    ``unknown``: GPUs of unknown index; None: whoever holds some, the unhealthy ones.
    """
    unswitched = node.model is not None and not node.model.switched
    sick = node.unknown_unhealthy if unknown is None else unknown
    return sick > 0 or (instance.policy.gpu_binding == "none" and unswitched)


class Uses(Protocol):
    """What a pod uses: a role is one."""

    @property
    def gpus(self) -> int: ...

    @property
    def requests(self) -> tuple[tuple[str, int], ...]: ...

    def keeps_on(self, n: int) -> int: ...


def taken_gpus(
    instance: Instance, pods: Iterable[tuple[Uses, PodPlacement]], nodes: Iterable[int]
) -> dict[int, int]:
    """GPUs that pods with instances take on each of these nodes where they take some."""
    known = reshaping(instance)
    if not known:
        return {}
    wanted, kept = {n: Counter[str]() for n in nodes if n in known}, Counter[int]()
    for role, pod in pods:
        if pod.node in wanted:
            wanted[pod.node].update(dict(role.requests))
            kept[pod.node] |= role.keeps_on(pod.node)
    every = instance.cluster.nodes
    found = {n: beside(known[n], every[n], kept[n]).taken(used) for n, used in wanted.items()}
    return {n: gpus for n, gpus in found.items() if gpus}


def parts(
    instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]]
) -> list[tuple[int, int | None, str | None, tuple[str, ...]]]:
    """(node, GPU, group, names of the parts) of all GPUs that pods which start share, given all after a plan.

    GPUs that are shared already come first, then of those that no pod holds those with the highest indices;
    neither index nor group where the node decides.
    """
    found = []
    for n, one, used, kept, free in _used(instance, pods):
        if not isinstance(one, Sharing):
            continue
        node = instance.cluster.nodes[n]
        names = [resource.removeprefix(SHARE) for resource in one.resources]
        idle = sorted(bits(free), reverse=True)
        still = node.still_shared(kept)
        places = [*((own.gpu, own.group) for own in still), *((gpu, None) for gpu in idle)]
        for k, counts in enumerate(one.packed(used)):
            if any(counts):
                gpu, group = places[k] if k < len(places) else (None, None)
                mine = (p for p, count in zip(names, counts, strict=True) for _ in range(count))
                found.append((n, gpu, group, tuple(mine)))
    return found


def partitions(
    instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]]
) -> list[tuple[int, int, tuple[str, ...], bool]]:
    """(node, GPU, profiles of its new instances, whether all before are gone), given all pods after a plan.

    Of all GPUs that get some, or are whole once theirs are gone. Those in use come first, then of those that
    no pod holds those with the highest indices.
    """
    found, kept_of = [], dict[int, int]()
    for n, one, used, kept, free in _used(instance, pods):
        if not isinstance(one, Partitioning):
            continue
        node, geometries = instance.cluster.nodes[n], one.on(used)
        assert geometries is not None, "the pods fit"
        gone, kept_of[n] = node.releasable & ~kept, kept
        in_use = (own.gpu for own in node.still_shared(kept) if own.gpu is not None)
        gpus = (*in_use, *sorted(bits(free), reverse=True))
        for gpu, geometry in zip(gpus, geometries, strict=False):
            if geometry is not None:
                pairs = zip(one.profiles, geometry, strict=True)
                profiles = tuple(p for p, count in pairs for _ in range(count))
                found.append((n, gpu, profiles, bool(gone >> gpu & 1)))
    given = {(n, gpu) for n, gpu, *_ in found}
    for n, node in enumerate(instance.cluster.nodes):
        gone = 0 if node.dynamic_mig is None else node.releasable & ~kept_of.get(n, 0)
        found += [(n, gpu, (), True) for gpu in bits(gone) if (n, gpu) not in given]
    return sorted(found)


def _used(
    instance: Instance, pods: Sequence[tuple[Uses, PodPlacement]]
) -> Iterator[tuple[int, Reshaping, Counter[str], int, int]]:
    """By node with pods: what they use, and the GPUs that they keep shared, and that none holds, as masks.

    None of the latter where indices are not known.
    """
    known, kept = reshaping(instance), Counter[int]()
    used: dict[int, Counter[str]] = {}
    free: dict[int, int] = {}
    hidden = {n for n in known if is_blind(instance, instance.cluster.nodes[n])}
    for role, pod in pods:
        if pod.node in known:
            if pod.gpus is None:
                hidden.add(pod.node)
            used.setdefault(pod.node, Counter()).update(dict(role.requests))
            givable = instance.cluster.nodes[pod.node].givable
            kept[pod.node] |= role.keeps_on(pod.node)
            free[pod.node] = free.get(pod.node, givable) & ~(pod.gpus or 0)
    for n in sorted(used):
        free[n] &= ~kept[n]
        one = beside(known[n], instance.cluster.nodes[n], kept[n])
        yield n, one, used[n], kept[n], 0 if n in hidden else free[n]
