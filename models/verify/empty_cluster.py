"""Which gangs could never start: counted on the cluster without any pod and with every node in order.

Nodes that are cordoned or not ready come back, and so do unhealthy GPUs and what pods of no gang hold.
Labels, the policy's selection, limits of queues and taints stay, except taints of a node's condition.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cached_property

from models.verify.eligibility import accepting, accepts
from models.verify.eligibility import in_order as repaired
from models.verify.facts import Facts, Gang, Node, Role
from models.verify.queues import ALL, Queues
from models.verify.room import Work, fitting
from models.verify.shares import unshared

MODEL = -1
"""In place of a level: nodes are counted by their GPU model."""


class EmptyCluster:
    """Counts on the empty cluster; ``work`` limits them. ``in_order``: else with the nodes as they are."""

    def __init__(self, facts: Facts, work: Work, *, in_order: bool = True) -> None:
        self.facts = facts
        self.work = work
        self.in_order = in_order
        binding = facts.policy.gpu_binding
        unheld = (unshared(one, binding, repaired=in_order) for one in facts.nodes)
        self._nodes = [repaired(node) if in_order else node for node in unheld]
        self._of: dict[object, Sequence[int]] = {}
        self._sums: dict[object, tuple[int, ...]] = {}

    def nodes_in_order(self) -> Iterator[Node]:
        """Every node as it would be if no pod ran, and, ``in_order``, it were ready and healthy."""
        if not self.in_order:
            yield from self._nodes
            return
        for node, offers in zip(self._nodes, self._offers, strict=True):
            yield replace(
                node,
                unhealthy=node.partitioned,
                unknown_unhealthy=node.unknown_partitioned,
                allocatable=offers,
                held={},
            )

    def of(self, role: Role) -> Sequence[int]:
        """Nodes that would accept pods of the role."""
        key = accepting(role)
        if key not in self._of:
            self.work.spend(len(self._nodes))
            self._of[key] = [n for n, node in enumerate(self._nodes) if accepts(node, role)]
        return self._of[key]

    def room(self, role: Role, limits: Collection[str]) -> tuple[int, int]:
        """(pods of the role, GPUs) for which there would be room. ``limits``: resources that count."""
        nodes = self.of(role)
        return sum(self._pods(role, None, tuple(limits))), sum(self._gpus[n] for n in nodes)

    def offered(self, role: Role, resource: str) -> int | None:
        """The most of a resource that one of its nodes offers; None where one does not limit it."""
        offers = [self._offers[n].get(resource) for n in self.of(role)]
        known = [most for most in offers if most is not None]
        return max(known) if known and len(known) == len(offers) else None

    def fits(self, gang: Gang) -> bool:
        """Whether no count says that the gang could not start; True if the work is used up."""
        return self.work.left <= 0 or (
            all(self._role_fits(gang, role) for role in gang.roles)
            and self._all_fit(gang)
            and not any(self.beyond_limits(gang))
        )

    def beyond_limits(self, gang: Gang) -> Iterator[tuple[str, str, int, int]]:
        """(queue, GPU model or ALL, GPUs at the least, limit) of what a queue never may hold."""
        if not self.facts.queues:
            return
        queues, asked = self.queues, Counter({ALL: gang.counts_at_min})
        for role in gang.roles:
            on = {queues.models[n] for n in self.of(role)} if role.counts else set()
            names = {model for model in on if model is not None}
            if len(names) == 1:
                asked[names.pop()] += role.counts * role.min
        for name in queues.above(gang.queue):
            for key, gpus in asked.items():
                limits = [queues.limit[name].get(key)]
                if not gang.preemptible:
                    limits.append(queues.firm_limit[name].get(key))
                yield from (
                    (name, key, gpus, limit)
                    for limit in limits
                    if limit is not None and gpus > limit
                )

    @cached_property
    def queues(self) -> Queues:
        return Queues(self.facts)

    def _role_fits(self, gang: Gang, role: Role) -> bool:
        if not role.min:
            return True
        if not self.of(role) or sum(self._pods(role, None)) < role.min:
            return False
        if role.gpus and not role.mix_models and max(self._pods(role, MODEL), default=0) < role.min:
            return False
        for level in (gang.required, role.required):
            if level is not None and max(self._pods(role, level)) < role.min:
                return False
        for size, level in role.slices:
            whole = max(0, (role.first + role.min) // size - -(-role.first // size))
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
            self._sums[key] = self._grouped({n: self._gpus[n] for n in nodes}, gang.required)
        return max(self._sums[key], default=0) >= gang.gpus_at_min

    def _pods(
        self, role: Role, level: int | None, limits: tuple[str, ...] | None = None
    ) -> Collection[int]:
        """Pods of a role for which there would be room in each domain of a level, or in all."""
        alike = (accepting(role), role.gpus, tuple(role.requests.items()), role.gpus or role.min)
        key = (alike, level, limits)
        if key not in self._sums:
            kinds = {self._kinds[n]: n for n in self.of(role)}
            caps = {kind: self._cap(role, n, limits) for kind, n in kinds.items()}
            self._sums[key] = self._grouped({n: caps[self._kinds[n]] for n in self.of(role)}, level)
        return self._sums[key]

    def _cap(self, role: Role, n: int, limits: tuple[str, ...] | None) -> int:
        offers = self._offers[n]
        if limits is not None:
            offers = {name: most for name, most in offers.items() if name in limits}
        return fitting(role, (self._gpus[n], offers), 1 << 20 if role.gpus else role.min)

    @cached_property
    def _kinds(self) -> list[int]:
        """A number for each node: those of the same one have room for as many pods."""
        found: dict[object, int] = {}
        each = zip(self._gpus, self._offers, strict=True)
        return [found.setdefault((gpus, *offers.items()), len(found)) for gpus, offers in each]

    @cached_property
    def _gpus(self) -> list[int]:
        """GPUs of each node that pods may have."""
        return [
            node.whole_gpus
            if self.in_order
            else max(0, node.healthy.bit_count() - node.unknown_unhealthy)
            for node in self._nodes
        ]

    @cached_property
    def _offers(self) -> list[dict[str, int]]:
        """What each node offers if no pod runs."""
        if not self.in_order:
            return [dict(node.allocatable) for node in self._nodes]
        return [
            {
                name: most + node.held[name] if name in node.held else most
                for name, most in node.allocatable.items()
            }
            for node in self._nodes
        ]

    def _slices(self, role: Role, size: int, level: int) -> int:
        return sum(pods // size for pods in self._pods(role, level))

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
