"""Which gangs could never start: counted on the cluster without any pod and with every node in order.

Nodes that are cordoned or not ready come back, and so do unhealthy GPUs; labels, the policy's selection and
taints stay, except taints of a node's condition. Resources do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import replace

from models.verify.eligibility import accepting, accepts
from models.verify.facts import Facts, Gang, Role
from models.verify.room import Work

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Beginnings of taints that go when a node's condition does."""

MODEL = -1
"""In place of a level: nodes are counted by their GPU model."""


class EmptyCluster:
    """Counts on the empty cluster; ``work`` limits them."""

    def __init__(self, facts: Facts, work: Work) -> None:
        self.facts = facts
        self.work = work
        self._nodes = [
            replace(
                node,
                usable=node.selected,
                taints=tuple(t for t in node.taints if not t.key.startswith(PASSING)),
            )
            for node in facts.nodes
        ]
        self._of: dict[object, Sequence[int]] = {}
        self._sums: dict[object, tuple[int, ...]] = {}

    def of(self, role: Role) -> Sequence[int]:
        """Nodes that would accept pods of the role."""
        key = accepting(role)
        if key not in self._of:
            self.work.spend(len(self._nodes))
            self._of[key] = [n for n, node in enumerate(self._nodes) if accepts(node, role)]
        return self._of[key]

    def room(self, role: Role) -> tuple[int, int]:
        """(pods of the role, GPUs) for which there would be room."""
        nodes = self.of(role)
        pods = sum(self._pods(role, None)) if role.gpus else len(nodes) * role.min
        return pods, sum(self._nodes[n].gpus for n in nodes)

    def fits(self, gang: Gang) -> bool:
        """Whether no count says that the gang could not start; True if the work is used up."""
        return self.work.left <= 0 or (
            all(self._role_fits(gang, role) for role in gang.roles) and self._all_fit(gang)
        )

    def _role_fits(self, gang: Gang, role: Role) -> bool:
        if not (role.min and role.gpus):
            return not role.min or bool(self.of(role))
        if sum(self._pods(role, None)) < role.min:
            return False
        if not role.mix_models and max(self._pods(role, MODEL), default=0) < role.min:
            return False
        for level in (gang.required, role.required):
            if level is not None and max(self._pods(role, level)) < role.min:
                return False
        for size, level in role.slices:
            last = (role.first + role.min) // size
            whole = max(0, last - -(-role.first // size))
            if self._slices(role, size, level) < whole:
                return False
        return True

    def _all_fit(self, gang: Gang) -> bool:
        """The GPUs of all roles, in one domain if the gang must be in one."""
        if not gang.gpus_at_min:
            return True
        roles = {accepting(role): role for role in gang.roles if role.gpus}
        key = ("all", frozenset(roles), gang.required)
        if key not in self._sums:
            nodes = {n for role in roles.values() for n in self.of(role)}
            self._sums[key] = self._grouped({n: self._nodes[n].gpus for n in nodes}, gang.required)
        return max(self._sums[key], default=0) >= gang.gpus_at_min

    def _pods(self, role: Role, level: int | None) -> Collection[int]:
        """Pods of a role with GPUs for which there would be room in each domain of a level, or in all."""
        key = (accepting(role), role.gpus, level)
        if key not in self._sums:
            caps = {n: self._nodes[n].gpus // role.gpus for n in self.of(role)}
            self._sums[key] = self._grouped(caps, level)
        return self._sums[key]

    def _slices(self, role: Role, size: int, level: int) -> int:
        key = ("slices", accepting(role), role.gpus, size, level)
        if key not in self._sums:
            self._sums[key] = (sum(pods // size for pods in self._pods(role, level)),)
        return sum(self._sums[key])

    def _grouped(self, amounts: Mapping[int, int], level: int | None) -> tuple[int, ...]:
        """Sums of the nodes' amounts in every domain of a level, in all, or for every GPU model."""
        self.work.spend(len(amounts))
        if level is None:
            return (sum(amounts.values()),)
        found: defaultdict[object, int] = defaultdict(int)
        for n, amount in amounts.items():
            node = self._nodes[n]
            if level != MODEL:
                found[node.domain[level]] += amount
            elif node.model is not None:
                found[node.model.gpu] += amount
        return tuple(found.values())
