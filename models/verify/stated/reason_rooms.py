"""Room for a waiting gang after the plan, or after it without some gangs, by counting alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from functools import cached_property

from models.documents.reason import ReasonFields
from models.verify.facts import Facts, Gang, Pod, PodKey, Role
from models.verify.outcome import Outcome, Variant
from models.verify.room import Grounds, Left, Room, Work, fitting

Nodes = Collection[int]
Limits = tuple[str, ...] | None
"""Resources that count besides GPUs; None: all."""

MODELS = -1
"""In place of a level: pods are counted by the GPU model of their nodes."""


class Rooms:
    """Counts that many gangs share are made once; ``work`` limits them.

    ``reshapes``: a plan may partition GPUs: then nothing is counted, for what has room depends on which.
    """

    def __init__(self, outcome: Outcome, work: Work) -> None:
        self.outcome = outcome
        self.facts: Facts = outcome.facts
        self.work = work
        self.reshapes = outcome.facts.reshapes
        self._beside: dict[object, Room] = {}
        self._sums: dict[object, Mapping[object, int]] = {}

    @cached_property
    def after(self) -> Room:
        return Room(self.outcome, Grounds(self.facts, self.work))

    def above(self, priority: int) -> Room:
        """What the plan leaves without the gangs of lower priority that start."""
        if priority not in self._beside:
            starts = ((i, one) for i, one in enumerate(self.outcome.changes) if one.kind == "place")
            lower = (i for i, change in starts if change.gang.priority < priority)
            self._beside[priority] = self.without(lower)
        return self._beside[priority]

    def alone(self, gone: Collection[int] = ()) -> Room:
        """What the running gangs leave that may be neither stopped nor moved, and before anything starts.

        Without those that are ``gone``.
        """
        key = frozenset(gone)
        if key not in self._beside:
            stays: dict[int, Mapping[PodKey, Pod]] = {
                i: change.gang.running_pods
                if not (change.gang.preemptible or change.gang.movable or i in key)
                else {}
                for i, change in enumerate(self.outcome.changes)
                if change.pods or change.gang.running
            }
            self._beside[key] = self._with(stays)
        return self._beside[key]

    def without(self, gone: Iterable[int]) -> Room:
        """What the plan leaves without some gangs."""
        return self._with({i: {} for i in gone})

    def _with(self, pods: Mapping[int, Mapping[PodKey, Pod]]) -> Room:
        self.work.spend(len(self.outcome.changes))
        return self.after.beside(Variant(self.outcome, pods))

    def nodes(self, gang: Gang, role: Role | None) -> Nodes:
        """Nodes that accept pods of a role; of all roles with GPUs if it is None."""
        if role is not None:
            return self.after.grounds.of(role)
        return sorted({n for one in gang.roles if one.gpus for n in self.after.grounds.of(one)})

    def place(self, gang: Gang, role: Role | None, fields: ReasonFields) -> list[int]:
        """The nodes that the reason is about: of its domain or GPU model, or all."""
        nodes, level = self.nodes(gang, role), self.levels.get(fields.level)
        self.work.spend(len(nodes))
        if fields.domain is not None and level is not None:
            return [n for n in nodes if self._domain_name(level, n) == fields.domain]
        if fields.model is not None and role is not None:
            return [n for n in nodes if self._domain(n, MODELS) == fields.model]
        return list(nodes)

    @cached_property
    def levels(self) -> Mapping[str | None, int]:
        """The index of every level, by its name."""
        return {self.facts.level_name(i): i for i in range(self.facts.node_level + 1)}

    def _domain_name(self, level: int, n: int) -> str:
        """The path of a domain; the name of a node that is alone there."""
        node = self.facts.nodes[n]
        if level == self.facts.node_level or not node.has(level):
            return node.name
        return "/".join(node.names[: level + 1])

    def _domain(self, n: int, level: int | None) -> object:
        node = self.facts.nodes[n]
        if level != MODELS:
            return None if level is None else node.domain[level]
        return None if node.model is None else node.model.gpu

    def pods(
        self, role: Role, limits: Limits = None, level: int | None = None
    ) -> Mapping[object, int]:
        """Pods of a role that fit after the plan by domain of a level, or in all (None), node by node."""
        nodes = self.after.grounds.of(role)
        key = (self.after.grounds.alike(role), role.min * (not role.gpus), limits, level)
        if key not in self._sums:
            found: defaultdict[object, int] = defaultdict(int)
            self.work.spend(len(nodes))
            for n in nodes:
                found[self._domain(n, level)] += _cap(role, self.after.left(n), limits)
            if level == MODELS:
                found.pop(None, None)
            self._sums[key] = found
        return self._sums[key]

    def holds(self, room: Room, gang: Gang) -> bool:
        """Whether no count of a role, in all or in a domain that it requires, denies that the gang fits."""
        return self.reshapes or all(
            max(room.sums(role, -1 if level is None else level).values(), default=0) >= role.min
            for role in gang.roles
            for level in {None, gang.required, role.required}
        )


def _cap(role: Role, left: Left, limits: Limits) -> int:
    """Pods of a role that fit on a node; of one without GPUs at most all of them."""
    free, resources = left
    kept: Mapping[str, int] = resources
    if limits is not None:
        kept = {name: amount for name, amount in resources.items() if name in limits}
    return fitting(role, (free, kept), 1 << 20 if role.gpus else role.min)


def role_named(gang: Gang, name: str | None) -> Role | None:
    """The role of that name; without a name the only one."""
    if name is None:
        return gang.roles[0] if len(gang.roles) == 1 else None
    return next((role for role in gang.roles if role.name == name), None)
