"""What is to be placed: the pods of a gang under one option, and the nodes each role may use."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace

from models.instance.gang import ExistingPod, has_parts
from models.rates.gang_bandwidth import ServerSet


@dataclass(frozen=True, slots=True)
class SliceCut:
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
        """Pods that a place may hold besides whole slices: sums of short slices, ascending."""
        return tuple(sorted({0, self.head, self.tail, self.head + self.tail}))

    def fits(self, pods: int) -> bool:
        """Whether so many pods may be slices that are not split."""
        return any(pods >= short and (pods - short) % self.size == 0 for short in self.sums)


def cut_of(first: int, count: int, size: int) -> SliceCut:
    """The slices of the pods first, first + 1, ..., ``count`` of them."""
    head = min(count, -first % size)
    whole, tail = divmod(count - head, size)
    return SliceCut(size, head, whole, tail)


def groups_of(indices: Iterable[int], size: int) -> list[list[int]]:
    """The indices by slice, ascending."""
    groups: dict[int, list[int]] = {}
    for index in indices:
        groups.setdefault(index // size, []).append(index)
    return [sorted(members) for _, members in sorted(groups.items())]


Groups = tuple[tuple[tuple[int, ...], int | None], ...]
"""A slice: (indices of its pods to place, the domain where other pods of it stand or None)."""


@dataclass(frozen=True, slots=True)
class RoleDemand:
    """Pods of one role to place. ``nodes``: those allowed, room aside.

    ``indices``: the pod indices to fill, ascending. ``layers``: if slices have variables of their own, the
    slices of each layer, innermost first; else empty.
    """

    role: int
    indices: tuple[int, ...]
    gpus: int
    requests: tuple[tuple[str, int], ...]
    nodes: frozenset[int]
    layers: tuple[Groups, ...] = ()

    @property
    def groups(self) -> Groups:
        """The innermost slices."""
        return self.layers[0] if self.layers else ()

    def keeps_on(self, n: int) -> int:  # noqa: ARG002
        """None: of what is asked on the empty cluster nobody shares a GPU yet."""
        return 0

    @property
    def count(self) -> int:
        return len(self.indices)

    @property
    def has_parts(self) -> bool:
        """Whether its pods ask for instances or parts of GPUs."""
        return has_parts(self.requests)

    def cut(self, size: int) -> SliceCut:
        """Its slices of that size; only for a role that waits as a whole."""
        return cut_of(self.indices[0], self.count, size)


@dataclass(frozen=True, slots=True)
class Demand:
    """One way in which a gang may run after the plan: pods that stay, and pods to place.

    ``possible`` is False where pods that stay already break a rule for those to place. ``counts``: all pods
    a role. ``stays``: standing pods left as they are. ``standing``: their GPUs, by node; ``standing_nodes``:
    their nodes, ascending. ``only_option``: this waiting gang has no other option. ``loose``: a pod that is
    placed where it stands may be one that stays.
    """

    gang: int
    roles: tuple[RoleDemand, ...]
    possible: bool
    counts: tuple[int, ...] = ()
    stays: tuple[ExistingPod, ...] = ()
    standing: tuple[tuple[int, ServerSet], ...] = ()
    standing_nodes: tuple[int, ...] = ()
    only_option: bool = True
    loose: bool = False

    def within(self, nodes: frozenset[int]) -> Demand:
        """The same demand on these nodes only."""
        roles = tuple(replace(role, nodes=role.nodes & nodes) for role in self.roles)
        return replace(self, roles=roles)

    def on_gpus(self, nodes: frozenset[int]) -> Demand:
        """The same demand with its GPUs on these nodes only."""
        roles = (
            replace(role, nodes=role.nodes & nodes) if role.gpus else role for role in self.roles
        )
        return replace(self, roles=tuple(roles))

    @property
    def nodes(self) -> frozenset[int]:
        """Nodes that some role may use."""
        return frozenset().union(*(role.nodes for role in self.roles))

    @property
    def gpu_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if role.gpus)

    @property
    def gpu_nodes(self) -> frozenset[int]:
        """Nodes that some role with GPUs may use; of one role the set itself, whose hash is known."""
        sets = [role.nodes for role in self.gpu_roles]
        return sets[0] if len(sets) == 1 else frozenset[int]().union(*sets)

    @property
    def cpu_only_roles(self) -> tuple[RoleDemand, ...]:
        return tuple(role for role in self.roles if not role.gpus)

    @property
    def gpus(self) -> int:
        """GPUs to place."""
        return sum(role.gpus * role.count for role in self.roles)

    @property
    def total_gpus(self) -> int:
        """GPUs of the whole gang, those of pods that stay included."""
        return self.gpus + sum(chosen.count for _, chosen in self.standing)
