"""Room for a waiting gang after the plan, or after it without some gangs, by counting alone."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping
from functools import cached_property

from models.documents.reason import ReasonFields
from models.verify.facts import Facts, Gang, Pod, PodKey, Role
from models.verify.outcome import Outcome
from models.verify.room import Grounds, Left, Room, Work, fitting
from models.verify.variant import Variant

Nodes = Collection[int]
Limits = tuple[str, ...] | None
"""Resources that count besides GPUs; None: all."""


class Rooms:
    """Counts that many gangs share are made once; ``work`` limits them.

    ``reshapes``: a plan may partition GPUs: then nothing is counted, for what has room depends on which.
    """

    def __init__(self, outcome: Outcome, work: Work) -> None:
        self.outcome = outcome
        self.facts: Facts = outcome.facts
        self.work = work
        self.reshapes = outcome.facts.reshapes
        self._above: dict[int, Room] = {}
        self._alone: dict[frozenset[int], Room] = {}
        self._without: dict[frozenset[int], Room] = {}
        self._sums: dict[object, Mapping[object, int]] = {}

    @cached_property
    def after(self) -> Room:
        return Room(self.outcome, Grounds(self.facts, self.work))

    def above(self, priority: int) -> Room:
        """What the plan leaves without the gangs of lower priority that start."""
        if priority not in self._above:
            lower: dict[int, Mapping[PodKey, Pod]] = {
                i: {}
                for i, change in enumerate(self.outcome.changes)
                if change.kind == "place" and change.gang.priority < priority
            }
            self.work.spend(len(self.outcome.changes))
            self._above[priority] = self.after.beside(Variant(self.outcome, lower))
        return self._above[priority]

    def alone(self, gone: Collection[int] = ()) -> Room:
        """What the running gangs leave that may be neither stopped nor moved, and before anything starts.

        Without those that are ``gone``.
        """
        key = frozenset(gone)
        if key not in self._alone:  # kept: counts are known by the room that they are of
            self.work.spend(len(self.outcome.changes))
            stays = {
                i: change.gang.running_pods
                if not (change.gang.preemptible or change.gang.movable or i in key)
                else {}
                for i, change in enumerate(self.outcome.changes)
                if change.pods or change.gang.running
            }
            self._alone[key] = self.after.beside(Variant(self.outcome, stays))
        return self._alone[key]

    def without(self, gone: Collection[int]) -> Room:
        """What the plan leaves without some gangs."""
        key = frozenset(gone)
        if key not in self._without:
            self.work.spend(len(self.outcome.changes))
            self._without[key] = self.after.beside(Variant(self.outcome, {i: {} for i in key}))
        return self._without[key]

    def nodes(self, gang: Gang, role: Role | None) -> Nodes:
        """Nodes that accept pods of a role; of all roles with GPUs if it is None."""
        if role is not None:
            return self.after.grounds.of(role)
        return sorted({n for one in gang.roles if one.gpus for n in self.after.grounds.of(one)})

    def place(self, gang: Gang, role: Role | None, fields: ReasonFields) -> list[int]:
        """The nodes that the reason is about: of its domain or GPU model, or all."""
        nodes, level = self.nodes(gang, role), self.level(fields.level)
        self.work.spend(len(nodes))
        if fields.domain is not None and level is not None:
            return [n for n in nodes if self.domain_name(level, n) == fields.domain]
        if fields.model is not None and role is not None:
            models = ((n, self.facts.nodes[n].model) for n in nodes)
            return [n for n, model in models if model is not None and model.gpu == fields.model]
        return list(nodes)

    def level(self, name: str | None) -> int | None:
        """The index of a level; None for a name that there is not."""
        return None if name is None else self._levels.get(name)

    @cached_property
    def _levels(self) -> dict[str, int]:
        return {self.facts.level_name(i): i for i in range(self.facts.node_level + 1)}

    def domain_name(self, level: int, n: int) -> str:
        """The path of a domain; the name of a node that is alone there."""
        node = self.facts.nodes[n]
        if level == self.facts.node_level or not node.has(level):
            return node.name
        return "/".join(node.names[: level + 1])

    def free(self, room: Room, nodes: Nodes) -> int:
        """GPUs that are free on these nodes."""
        self.work.spend(len(nodes))
        free = room.outcome.free_gpus
        return sum(free[n] for n in nodes)

    def pods(
        self, room: Room, role: Role, limits: Limits, level: int | None = None
    ) -> Mapping[object, int]:
        """Pods of a role that fit by domain of a level, or in all (None), each node by itself."""
        nodes = self.after.grounds.of(role)
        asked = (id(nodes), role.gpus, tuple(role.requests.items()), role.min * (not role.gpus))
        key = (id(room), asked, limits, level)
        if key not in self._sums:
            found: defaultdict[object, int] = defaultdict(int)
            self.work.spend(len(nodes))
            for n in nodes:
                domain = None if level is None else self.facts.nodes[n].domain[level]
                found[domain] += _cap(role, room.left(n), limits)
            self._sums[key] = found
        return self._sums[key]

    def by_model(self, room: Room, role: Role) -> Mapping[object, int]:
        """Pods of a role that fit by GPU model."""
        key = (id(room), "models", role.name, id(role))
        if key not in self._sums:
            found: defaultdict[object, int] = defaultdict(int)
            nodes = self.after.grounds.of(role)
            self.work.spend(len(nodes))
            for n in nodes:
                model = self.facts.nodes[n].model
                if model is not None:
                    found[model.gpu] += _cap(role, room.left(n), None)
            self._sums[key] = found
        return self._sums[key]

    def holds(self, room: Room, gang: Gang) -> bool:
        """Whether no count of a role, in all or in a domain that it requires, denies that the gang fits."""
        return self.reshapes or all(
            max(self.pods(room, role, None, level).values(), default=0) >= role.min
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
