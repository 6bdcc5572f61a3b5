"""Levels: required domains (contract 2.4) and the domains a gang uses.

For a gang (or role) with required level L: sum over domains D of L of d[D] == admit, and for each of
its roles pods placed in D == count x d[D].
used[l, D] >= pods in D / min(count, room of D) for every level l, and used[inner] <= used[outer];
sum over D of used[l, D] >= admit x (fewest domains of l that can hold the role).
whole(l) = sum over D of w[D], w[D] <= pods in D / count for each role: 1 only if all are in one domain.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.program.linear_program import Linear
from models.program.variables import GangVariables, Model

Scope = tuple[int, ...] | None
"""Roles of a gang; None for all."""


class Topology:
    """Domains of one gang: which it uses, and whether it is whole in one.

    ``lean``: required domains only.
    """

    def __init__(
        self,
        model: Model,
        gang: GangVariables,
        *,
        lean: bool = False,
    ) -> None:
        self._model = model
        self._program = model.program
        self._instance = model.instance
        self._region_set = model.region_set
        self._gang = gang
        self.used: dict[int, dict[int, int]] = {}
        self._whole: dict[tuple[int, Scope, bool], Linear] = {}
        self._by_domain: dict[int, dict[int, list[int]]] = {}
        self._required = gang.gang.required
        self._require()
        if not lean:
            self._use()

    def regions_by_domain(self, level: int) -> dict[int, list[int]]:
        """Regions the gang may use, by domain of a level; at the node level by region."""
        if level not in self._by_domain:
            found = self._by_domain[level] = {}
            above = level < self._instance.cluster.node_level
            for number in self._gang.regions:
                domain = self._region_set.regions[number].domains[level] if above else number
                assert domain is not None
                found.setdefault(domain, []).append(number)
        return self._by_domain[level]

    def standing_domains(self, level: int, role: int | None = None) -> set[int]:
        """Domains of the pods that stay, of the gang or of one of its roles."""
        of = self._instance.cluster.domain_of[level]
        return {
            of[pod.node]
            for pod in self._gang.demand.stays
            if pod.node is not None and (role is None or pod.role == role)
        }

    def _require(self) -> None:
        gang, node_level = self._gang.gang, self._instance.cluster.node_level
        level = self._required
        if level is not None and not self._gang.demand.stays:
            gpu = range(len(self._gang.demand.gpu_roles))
            cpu_only = (
                () if self._gang.cpu_only_follow else range(len(self._gang.demand.cpu_only_roles))
            )
            self._one_domain(level, list(gpu), list(cpu_only))
        for position, role in enumerate(self._gang.demand.gpu_roles):
            own = gang.roles[role.role].required
            # at the node level a piece carries all pods of the role or none
            stands = own is not None and self.standing_domains(own, role.role)
            if own is not None and own != node_level and not stands:
                self._one_domain(own, [position], [])
        for position, role in enumerate(self._gang.demand.cpu_only_roles):
            own = gang.roles[role.role].required
            if (
                own is not None
                and not self._gang.cpu_only_follow
                and not self.standing_domains(own, role.role)
            ):
                self._one_domain(own, [], [position])

    def _one_domain(self, level: int, gpu: list[int], cpu_only: list[int]) -> None:
        if level == self._instance.cluster.node_level and gpu and not cpu_only:
            return  # pieces are whole already
        domains = self.regions_by_domain(level)
        chosen = {domain: self._program.boolean() for domain in domains}
        for domain, regions in domains.items():
            for position, placed, count in self._placed(gpu, cpu_only, regions):
                del position
                self._program.equal(placed.add(chosen[domain], -count))
        everything = Linear().add_all(chosen.values()).add(self._gang.admit, -1)
        self._program.equal(everything)
        if level == self._required and level < self._instance.cluster.node_level:
            self.used[level] = chosen

    def _placed(
        self, gpu: Sequence[int], cpu_only: Sequence[int], regions: list[int]
    ) -> list[tuple[int, Linear, int]]:
        demand = self._gang.demand
        return [
            (position, self._gang.gpu_pods(position, regions), demand.gpu_roles[position].count)
            for position in gpu
        ] + [
            (
                position,
                self._gang.cpu_only_pods(position, regions),
                demand.cpu_only_roles[position].count,
            )
            for position in cpu_only
        ]

    def _use(self) -> None:
        node_level = self._instance.cluster.node_level
        first = 0 if self._required is None else self._required + 1
        for level in range(first, node_level):
            standing = self.standing_domains(level)
            self.used[level] = {
                domain: self._program.boolean()
                for domain in self.regions_by_domain(level)
                if domain not in standing
            }
            self._link(level)
            self._nest(level)
            self._fewest(level, standing)

    def _link(self, level: int) -> None:
        gang, demand = self._gang, self._gang.demand
        for domain, regions in self.regions_by_domain(level).items():
            if domain not in self.used[level]:
                continue
            used = self.used[level][domain]
            for position, role in enumerate(demand.gpu_roles):
                placed = gang.gpu_pods(position, regions)
                room = min(role.count, self._room(regions, role.gpus))
                if placed.terms:
                    self._program.at_most(placed.add(used, -room))
            for position, role in enumerate(demand.cpu_only_roles):
                placed = gang.cpu_only_pods(position, regions)
                if placed.terms:
                    self._program.at_most(placed.add(used, -role.count))

    def _nest(self, level: int) -> None:
        if level - 1 not in self.used:
            return
        outer = {r: d for d, regions in self.regions_by_domain(level - 1).items() for r in regions}
        for domain, regions in self.regions_by_domain(level).items():
            wide = outer[regions[0]]
            if domain in self.used[level] and wide in self.used[level - 1]:
                pair = Linear().add(self.used[level][domain])
                self._program.at_most(pair.add(self.used[level - 1][wide], -1))

    def _fewest(self, level: int, standing: set[int]) -> None:
        if standing:
            return
        for role in self._gang.demand.gpu_roles:
            rooms = sorted(
                (self._room(r, role.gpus) for r in self.regions_by_domain(level).values()),
                reverse=True,
            )
            need, left = 0, role.count
            while left > 0 and need < len(rooms) and rooms[need]:
                left -= rooms[need]
                need += 1
            if need > 1 and left <= 0:
                total = Linear().add_all(self.used[level].values())
                self._program.at_least(total.add(self._gang.admit, -need))

    def _room(self, regions: list[int], gpus: int) -> int:
        return sum(self._model.pods_that_fit(number, gpus) for number in regions)

    def count(self, level: int) -> Linear:
        """Domains used at a level above the node's, by all pods; 0 if the gang is not admitted."""
        if self._required is not None and level <= self._required:
            return self._gang.admitted()
        total = Linear().add_all(self.used[level].values())
        return total.add(self._gang.admit, len(self.standing_domains(level)))

    def nodes(self) -> Linear:
        """Nodes used by all pods (an upper bound that is met when it is minimised)."""
        gang, standing = self._gang, self.standing_domains(self._instance.cluster.node_level)
        of = self._instance.cluster.domain_of[self._instance.cluster.node_level]
        total = gang.admitted(len(standing))
        for number in gang.regions:
            nodes = self._region_set.regions[number].nodes
            if len(nodes) == 1 and of[nodes[0]] in standing:
                continue
            pieces = Linear().add_all(p.variable for p in gang.by_region.get(number, ()))
            cpu_only_counts = [
                (i, gang.cpu_only_counts[i, number])
                for i in range(len(gang.demand.cpu_only_roles))
                if (i, number) in gang.cpu_only_counts
            ]
            if not cpu_only_counts:
                total.add_linear(pieces)
                continue
            here = self._program.integer(0, max(1, len(nodes)))
            self._program.at_least(Linear().add(here).add_linear(pieces, -1))
            for position, variable in cpu_only_counts:
                count = gang.demand.cpu_only_roles[position].count
                self._program.at_least(Linear().add(here, count).add(variable, -1))
            total.add(here)
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
        """By domain (at the node level by region), 1 only if all pods are in it, standing ones included."""
        gpu, cpu_only = self._to_place(None, gpus_only=gpus_only)
        standing = self._standing(level, None, gpus_only=gpus_only)
        if gpu or cpu_only:
            return self._chosen(level, standing, gpu, cpu_only)
        found = {self._model.place_of(level, domain) for domain in standing}
        return {domain: self._gang.admitted() for domain in found} if len(standing) == 1 else {}

    def _make_whole(self, level: int, scope: Scope, *, gpus_only: bool) -> Linear:
        gang = self._gang.gang
        if gang.required is not None and level <= gang.required:
            return self._gang.admitted()
        gpu, cpu_only = self._to_place(scope, gpus_only=gpus_only)
        standing = self._standing(level, scope, gpus_only=gpus_only)
        if len(standing) > 1:
            return Linear()
        if not gpu and not cpu_only:
            return self._gang.admitted()
        chosen = Linear()
        for own in self._chosen(level, standing, gpu, cpu_only).values():
            chosen.add_linear(own)
        return chosen

    def _to_place(self, scope: Scope, *, gpus_only: bool) -> tuple[list[int], list[int]]:
        """Positions of the demand's roles with GPUs, and of those without that have places of their own."""
        demand = self._gang.demand
        gpu, cpu_only = (
            [i for i, role in enumerate(roles) if scope is None or role.role in scope]
            for roles in (demand.gpu_roles, demand.cpu_only_roles)
        )
        return gpu, [] if gpus_only or self._gang.cpu_only_follow else cpu_only

    def _chosen(
        self, level: int, standing: set[int], gpu: list[int], cpu_only: list[int]
    ) -> dict[int, Linear]:
        """By domain, 1 only if these pods are all in it; at most one, of an admitted gang."""
        found: dict[int, Linear] = {}
        for domain, regions in self.regions_by_domain(level).items():
            if not standing or (len(standing) == 1 and self._stands_in(level, domain, standing)):
                found[domain] = self._whole_in(level, domain, regions, gpu, cpu_only)
        total = Linear()
        for own in found.values():
            total.add_linear(own)
        self._program.at_most(total.add(self._gang.admit, -1))
        return found

    def _whole_in(
        self, level: int, domain: int, regions: list[int], gpu: list[int], cpu_only: list[int]
    ) -> Linear:
        """A boolean that is 1 only if all these pods are in the domain; nothing if they cannot be."""
        placed = self._placed(gpu, cpu_only, regions)
        if any(self._program.bound_above(row) < count for _, row, count in placed):
            return Linear()
        whole = self._program.boolean()
        if level == self._instance.cluster.node_level and gpu:
            counts = [self._gang.demand.gpu_roles[i].count for i in gpu]
            pieces = Linear().add_all(
                piece.variable
                for piece in self._gang.by_region.get(domain, ())
                if [piece.pods[i] for i in gpu] == counts
            )
            self._program.at_least(pieces.add(whole, -1))
            placed = self._placed([], cpu_only, regions)
        for _, row, count in placed:
            self._program.at_least(row.add(whole, -count))
        return Linear().add(whole)

    def _standing(self, level: int, scope: Scope, *, gpus_only: bool) -> set[int]:
        gang, of = self._gang.gang, self._instance.cluster.domain_of[level]
        return {
            of[pod.node]
            for pod in self._gang.demand.stays
            if pod.node is not None
            and (scope is None or pod.role in scope)
            and not (gpus_only and not gang.roles[pod.role].gpus)
        }

    def _stands_in(self, level: int, domain: int, standing: set[int]) -> bool:
        if level < self._instance.cluster.node_level:
            return domain in standing
        of = self._instance.cluster.domain_of[level]
        nodes = self._region_set.regions[domain].nodes
        return len(nodes) == 1 and of[nodes[0]] in standing
