"""What is to be placed: the pods of a gang under one option, and the nodes each role may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from models.gang import ExistingPod
from models.rates.gang_bandwidth import ServerSet


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
    stays: tuple[ExistingPod, ...] = ()
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
