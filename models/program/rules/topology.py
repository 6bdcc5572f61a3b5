"""Levels: required domains (contract 2.4) and the domains a gang uses.

For a gang (or role) with required level L: sum over domains D of L of d[D] == admit, and for each of
its roles pods placed in D == count x d[D].
used[l, D] >= pods in D / min(count, room of D) for every level l.
whole(l) = sum over D of w[D], w[D] <= pods in D / count for each role: 1 only if all are in one domain.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.program.linear_program import Linear
from models.program.variables import GangVariables, Model
from models.rules.demands import RoleDemand

Scope = tuple[int, ...] | None
"""Roles of a gang; None for all."""


class Topology:
    """Domains of one gang: which it uses, and whether it is whole in one."""

    def __init__(self, model: Model, gang: GangVariables) -> None:
        self._program = model.program
        self._instance = model.instance
        self._servers = model.servers
        self._gang = gang
        self.used: dict[int, dict[int, int]] = {}
        self._whole: dict[tuple[int, Scope, bool], Linear] = {}
        self._by_domain: dict[int, dict[int, list[int]]] = {}
        self._required = gang.gang.required
        if not gang.group:  # one piece on one node needs no rows
            self._require()
            self._use()

    def nodes_by_domain(self, level: int) -> dict[int, list[int]]:
        """Nodes that the gang may use, by domain of a level."""
        if level not in self._by_domain:
            found = self._by_domain[level] = {}
            for n in self._gang.nodes:
                found.setdefault(self._instance.cluster.domain_of[level][n], []).append(n)
        return self._by_domain[level]

    def _require(self) -> None:
        specs, node_level = self._gang.gang.roles, self._instance.cluster.node_level
        roles = self._to_place(None, gpus_only=False)
        if self._required is not None and not self._gang.demand.stays:
            self._one_domain(self._required, roles)
        for role in roles:
            own = specs[role.role].required
            if own is None or self._standing(own, (role.role,)):
                continue
            if own != node_level or not role.gpus:  # a piece carries all pods of the role or none
                self._one_domain(own, [role])

    def _one_domain(self, level: int, roles: Sequence[RoleDemand]) -> None:
        node_level = self._instance.cluster.node_level
        if level == node_level and all(role.gpus for role in roles):
            return  # pieces are whole already
        domains = self.nodes_by_domain(level)
        chosen = {domain: self._program.boolean() for domain in domains}
        for domain, nodes in domains.items():
            for role in roles:
                placed = self._gang.pods(role, nodes)
                self._program.equal(placed.add(chosen[domain], -role.count))
        self._program.equal(Linear().add_all(chosen.values()).add(self._gang.admit, -1))
        if level == self._required and level < node_level:
            self.used[level] = chosen

    def _use(self) -> None:
        node_level = self._instance.cluster.node_level
        first = 0 if self._required is None else self._required + 1
        for level in range(first, node_level):
            standing = self._standing(level)
            new = (domain for domain in self.nodes_by_domain(level) if domain not in standing)
            self.used[level] = {domain: self._program.boolean() for domain in new}
            self._link(level)

    def _link(self, level: int) -> None:
        for domain, used in self.used[level].items():
            nodes = self.nodes_by_domain(level)[domain]
            for role in self._gang.roles.values():
                placed = self._gang.pods(role, nodes)
                room = role.count
                if role.gpus:
                    room = sum(self._servers[n].room.free_gpus // role.gpus for n in nodes)
                if placed.terms:
                    self._program.at_most(placed.add(used, -min(role.count, room)))

    def count(self, level: int) -> Linear:
        """Domains used at a level above the node's, by all pods; 0 if the gang is not admitted."""
        if self._gang.group or (self._required is not None and level <= self._required):
            return Linear().add_all(self._gang.admits)
        total = Linear().add_all(self.used[level].values())
        return total.add(self._gang.admit, len(self._standing(level)))

    def nodes(self) -> Linear:
        """Nodes used by all pods (an upper bound that is met when it is minimised)."""
        gang, standing = self._gang, set(self._gang.demand.standing_nodes)
        total = Linear().add(gang.admit, len(standing))
        for n in gang.nodes:
            if n in standing:
                continue
            here = Linear().add_all(piece.variable for piece in gang.by_node.get(n, ()))
            light = [
                (gang.cpu_only_counts[role.role, n], role.count)
                for role in gang.demand.cpu_only_roles
                if (role.role, n) in gang.cpu_only_counts
            ]
            if light:
                used = self._program.boolean()
                self._program.at_most(here.add(used, -1))
                for variable, count in light:
                    self._program.at_most(Linear().add(variable).add(used, -count))
                here = Linear().add(used)
            total.add_linear(here)
        return total

    def whole(self, level: int, scope: Scope = None, *, gpus_only: bool = False) -> Linear:
        """1 only if the pods share one domain of the level, standing ones included.

        ``scope``: roles of the gang, or None for all its pods; ``gpus_only``: of these the pods with GPUs.
        """
        key = (level, scope, gpus_only)
        if key not in self._whole:
            self._whole[key] = self._make_whole(level, scope, gpus_only=gpus_only)
        return self._whole[key]

    def homes(self, level: int, *, gpus_only: bool) -> dict[int, Linear]:
        """By domain, 1 only if all pods are in it, standing ones included."""
        roles = self._to_place(None, gpus_only=gpus_only)
        standing = self._standing(level, None, gpus_only=gpus_only)
        if roles:
            return self._chosen(level, standing, roles)
        return {d: Linear().add(self._gang.admit) for d in standing} if len(standing) == 1 else {}

    def _make_whole(self, level: int, scope: Scope, *, gpus_only: bool) -> Linear:
        required = self._gang.gang.required
        roles = self._to_place(scope, gpus_only=gpus_only)
        standing = self._standing(level, scope, gpus_only=gpus_only)
        held = self._gang.group or (required is not None and level <= required)
        if held or (len(standing) < 2 and not roles):
            return Linear().add_all(self._gang.admits)
        if len(standing) > 1:
            return Linear()
        return Linear.total(self._chosen(level, standing, roles).values())

    def _to_place(self, scope: Scope, *, gpus_only: bool) -> list[RoleDemand]:
        return [
            role
            for role in self._gang.roles.values()
            if (scope is None or role.role in scope) and (role.gpus or not gpus_only)
        ]

    def _chosen(
        self, level: int, standing: set[int], roles: Sequence[RoleDemand]
    ) -> dict[int, Linear]:
        """By domain, 1 only if these pods are all in it; at most one, of an admitted gang."""
        found = {
            domain: self._whole_in(level, nodes, roles)
            for domain, nodes in self.nodes_by_domain(level).items()
            if not standing or standing == {domain}
        }
        self._program.at_most(Linear.total(found.values()).add(self._gang.admit, -1))
        return found

    def _whole_in(self, level: int, nodes: list[int], roles: Sequence[RoleDemand]) -> Linear:
        """A boolean that is 1 only if all these pods are on these nodes; nothing if they cannot be."""
        placed = [(role, self._gang.pods(role, nodes)) for role in roles]
        if any(self._program.bound_above(pods) < role.count for role, pods in placed):
            return Linear()
        whole, alone = self._program.boolean(), level == self._instance.cluster.node_level
        if alone and any(role.gpus for role in roles):
            own = enumerate(self._gang.demand.gpu_roles)
            counts = [(at, role.count) for at, role in own if role in roles]
            pieces = Linear().add_all(
                piece.variable
                for piece in self._gang.by_node.get(nodes[0], ())
                if all(piece.pods[at] == count for at, count in counts)
            )
            self._program.at_least(pieces.add(whole, -1))
        for role, pods in placed:
            if not alone or not role.gpus:
                self._program.at_least(pods.add(whole, -role.count))
        return Linear().add(whole)

    def _standing(self, level: int, scope: Scope = None, *, gpus_only: bool = False) -> set[int]:
        """Domains of the pods that stay."""
        roles, of = self._gang.gang.roles, self._instance.cluster.domain_of[level]
        return {
            of[pod.node]
            for pod in self._gang.demand.stays
            if pod.node is not None and (scope is None or pod.role in scope)
            if roles[pod.role].gpus or not gpus_only
        }
