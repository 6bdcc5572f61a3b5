"""Which gangs could never start: counted on the cluster without any pod and with every node in order.

Nodes that are cordoned or not ready come back, and so do unhealthy GPUs; labels, the policy's selection and
taints stay, except taints of a node's condition. Resources do not count.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace

from models.verify.facts import Facts, Gang, Role
from models.verify.room import Work
from models.verify.rules.eligibility import accepts

PASSING = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Beginnings of taints that go when a node's condition does."""


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

    def of(self, role: Role) -> Sequence[int]:
        """Nodes that would accept pods of the role."""
        key = (tuple(role.selector.items()), role.affinity, role.tolerations, role.model)
        if key not in self._of:
            self.work.spend(len(self._nodes))
            self._of[key] = [n for n, node in enumerate(self._nodes) if accepts(node, role)]
        return self._of[key]

    def room(self, role: Role) -> tuple[int, int]:
        """(pods of the role, GPUs) for which there would be room."""
        nodes = self.of(role)
        return sum(self._caps(role).values()), sum(self._nodes[n].gpus for n in nodes)

    def fits(self, gang: Gang) -> bool:
        """Whether no count says that the gang could not start; True if the work is used up."""
        return self.work.left <= 0 or (
            all(self._role_fits(gang, role) for role in gang.roles) and self._all_fit(gang)
        )

    def _caps(self, role: Role) -> Mapping[int, int]:
        self.work.spend(len(self.of(role)))
        if not role.gpus:
            return dict.fromkeys(self.of(role), role.min)
        return {n: self._nodes[n].gpus // role.gpus for n in self.of(role)}

    def _role_fits(self, gang: Gang, role: Role) -> bool:
        if not role.min:
            return True
        caps = self._caps(role)
        if sum(caps.values()) < role.min:
            return False
        if role.gpus and not role.mix_models:
            names = {n: self._nodes[n].model for n in caps}
            by_model = _summed(caps, {n: model.gpu for n, model in names.items() if model})
            if max(by_model.values(), default=0) < role.min:
                return False
        for level in (gang.required, role.required):
            if level is not None and max(self._by_domain(caps, level).values()) < role.min:
                return False
        for size, level in role.slices:
            last = (role.first + role.min) // size
            whole = max(0, last - -(-role.first // size))
            if sum(cap // size for cap in self._by_domain(caps, level).values()) < whole:
                return False
        return True

    def _all_fit(self, gang: Gang) -> bool:
        """The GPUs of all roles, in one domain if the gang must be in one."""
        nodes = {n for role in gang.roles if role.gpus for n in self.of(role)}
        gpus = {n: self._nodes[n].gpus for n in nodes}
        if not gang.gpus_at_min:
            return True
        if gang.required is None:
            return sum(gpus.values()) >= gang.gpus_at_min
        return max(self._by_domain(gpus, gang.required).values()) >= gang.gpus_at_min

    def _by_domain(self, amounts: Mapping[int, int], level: int) -> Mapping[object, int]:
        return _summed(amounts, {n: self._nodes[n].domain[level] for n in amounts})


def _summed(amounts: Mapping[int, int], group: Mapping[int, object]) -> Mapping[object, int]:
    """Sums of the amounts by group; those in no group do not count."""
    found: defaultdict[object, int] = defaultdict(int)
    for n, name in group.items():
        found[name] += amounts[n]
    return found
