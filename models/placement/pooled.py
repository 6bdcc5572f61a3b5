"""The admission program: which gangs can start at all, with pods pooled instead of placed one by one.

Pods of gangs that no rule ties together beyond "all or none" and one required domain only need room, so
all their pods of one size are one pool: sum over regions of x[pool, r] == sum over gangs of count x admit
(by domain D of the required level: == sum over classes of count x y[class, D]). Exact for admission and
waiting, and far smaller than the full formulation; bandwidth, span and the rest do not exist here.
Gangs with other rules keep their own pieces and rows. Called by ``planner.solving.admitting``.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from models.evaluating import Evaluation, Tier, known_masks
from models.gang import Gang
from models.instance import Instance
from models.occupancy import rooms
from models.placement.dealing import Admissions, Dealer, PooledClass
from models.placement.demands import Demand, RoleDemand, demands_of
from models.placement.formulation import base_decisions, slices_by_node
from models.placement.packing import SizePacking
from models.placement.program import Linear, Program
from models.placement.regions import Pools, local, pools_of
from models.placement.rules import (
    admission,
    bandwidth,
    local_share,
    models,
    packing,
    resources,
    slices,
)
from models.placement.rules.topology import Topology
from models.placement.variables import (
    GangVariables,
    GroupVariables,
    PodPool,
    Variables,
    Wishes,
    classes,
)
from models.pricing import FULL_SHARE
from models.solution import GangDecision

PAIR = 2
"""Fewest GPUs that have a bandwidth between them."""

PoolKey = tuple[int, frozenset[int], tuple[tuple[str, int], ...], int | None]


class AdmissionProgram:
    """The program, its tiers' expressions, and the plan an assignment stands for."""

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.program = Program()
        self._base = base_decisions(instance)
        self._values = Evaluation(instance, self._base)
        self._rooms = rooms(instance, self._base)
        demands = demands_of(instance, known_masks(instance, self._base))
        self._pools = self._sized(
            demands,
            pools_of(instance, demands, self._rooms, split=slices_by_node(instance, demands)),
        )
        self._pooled: list[PooledClass] = []
        self._groups: list[GroupVariables] = []
        self._gangs: list[GangVariables] = []
        self._pods: dict[PoolKey, PodPool] = {}
        self._region_of = {n: r.number for r in self._pools.regions for n in r.nodes}
        self._create(demands)
        self._record = Admissions(
            instance,
            self._base,
            self._rooms,
            self._pools,
            self._variables,
            self._pooled,
            list(self._pods.values()),
        )

    def _sized(self, demands: Sequence[Demand], pools: Pools) -> Pools:
        """GPU sets count by size alone unless some gang wants a minimum bandwidth."""
        if any(self.instance.min_share(self.instance.gangs[d.gang]) for d in demands):
            return pools
        return replace(
            pools, regions=tuple(replace(r, packing=SizePacking(r.packing)) for r in pools.regions)
        )

    def _create(self, demands: Sequence[Demand]) -> None:
        wishes = Wishes(self.instance, self._pools, self._rooms)
        siblings: list[tuple[int, ...]] = []
        ordered: list[list[tuple[Demand, int]]] = []
        for members in classes(self.instance, demands, self._pools):
            number, first = members[0]
            rides = self._pools.riding[number]
            if local(self.instance, first, rides=rides):
                own = tuple(demand for _, demand in members)
                gangs = tuple(self.instance.gangs[d.gang] for d in own)
                group = GroupVariables(own, gangs, tuple(self.program.boolean() for _ in own))
                self._groups.append(group)
                wishes.local(group)
            elif self._poolable(first, rides=rides):
                ordered.append(self._pool(wishes, [demand for _, demand in members]))
            else:
                start = len(self._gangs)
                siblings.append(tuple(range(start, start + len(members))))
                for position, demand in members:
                    admit = self.program.boolean()
                    if not demand.possible:
                        self.program.fix(admit, 0)
                    gang = GangVariables(
                        position, demand, self.instance.gangs[demand.gang], admit, rides=rides
                    )
                    self._gangs.append(gang)
                    wishes.alone(self.program, gang)
        flows = wishes.flows(self.program)
        wishes.pieces(self.program)
        variables = Variables(self._gangs, self._groups, flows, siblings)
        self._variables = variables
        self._rules(variables, ordered)

    def _poolable(self, demand: Demand, *, rides: bool) -> bool:
        """Whether nothing but room and one required domain ties the gang's pods together."""
        gang = self.instance.gangs[demand.gang]
        if gang.running or not rides or not demand.gpu_roles or self.instance.min_share(gang):
            return False
        return all(self._loose(demand, role) for role in demand.gpu_roles)

    def _loose(self, demand: Demand, role: RoleDemand) -> bool:
        spec = self.instance.gangs[demand.gang].roles[role.role]
        if spec.required is not None or spec.slice_size is not None:
            return False
        if spec.mix_models or role.count == 1:
            return True
        nodes = self.instance.cluster.nodes
        return len({m.gpu for n in role.nodes if (m := nodes[n].model) is not None}) <= 1

    def _pool(self, wishes: Wishes, demands: list[Demand]) -> list[tuple[Demand, int]]:
        first = demands[0]
        level = self.instance.gangs[first.gang].required
        pools = []
        for role in first.gpu_roles:
            key = (role.gpus, role.nodes, role.requests, level)
            if key not in self._pods:
                single = replace(role, indices=(0,))
                stand_in = replace(first, roles=(single,))
                self._pods[key] = PodPool(single, level, (stand_in,))
                wishes.pool(self._pods[key])
            pools.append(self._pods[key])
        admits = tuple(self.program.boolean() for _ in demands)
        self._pooled.append(PooledClass(tuple(demands), admits, tuple(pools), level))
        return list(zip(demands, admits, strict=True))

    def _rules(self, variables: Variables, ordered: list[list[tuple[Demand, int]]]) -> None:
        program, instance = self.program, self.instance
        packing.add(program, variables, self._pools, [pool.pieces for pool in self._pods.values()])
        resources.add(program, variables, self._pools, self._rooms, list(self._pods.values()))
        admission.add(program, instance, variables)
        for members in ordered:
            gangs = [(instance.gangs[d.gang], admit) for d, admit in members]
            admission.in_order(program, instance, gangs)
        for gang in self._gangs:
            topology = Topology(program, instance, self._pools, self._rooms, gang, lean=True)
            slices.add(program, instance, self._pools, gang, topology)
            models.add(program, self._pools, gang)
            if instance.min_share(gang.gang):
                bandwidth.Claims(program, instance, self._pools, gang, topology)
        local_share.add(program, instance, self._pools, variables)
        self._supply()

    def _supply(self) -> None:
        """Pods of every pool equal those its admitted gangs ask, by required domain where there is one."""
        for pool in self._pods.values():
            users = [(c, i) for c in self._pooled for i, p in enumerate(c.pools) if p is pool]
            if pool.level is None:
                row = pool.pods()
                for own, position in users:
                    row.add_all(own.admits, -own.demands[0].gpu_roles[position].count)
                self.program.equal(row)
                continue
            for domain, regions in self._regions_by_domain(pool).items():
                row = pool.pods(regions)
                for own, position in users:
                    row.add(self._here(own, domain), -own.demands[0].gpu_roles[position].count)
                self.program.equal(row)
        for own in self._pooled:
            if own.level is not None:
                chosen = Linear().add_all(own.domains.values())
                self.program.equal(chosen.add_all(own.admits, -1))
                known = [set(self._regions_by_domain(pool)) for pool in own.pools]
                for domain, variable in own.domains.items():
                    if not all(domain in found for found in known):
                        self.program.fix(variable, 0)

    def _here(self, own: PooledClass, domain: int) -> int:
        if domain not in own.domains:
            own.domains[domain] = self.program.integer(0, len(own.demands))
        return own.domains[domain]

    def _regions_by_domain(self, pool: PodPool) -> dict[int, list[int]]:
        assert pool.level is not None
        found: dict[int, list[int]] = {}
        for number in sorted({piece.region for piece in pool.pieces}):
            domain = self._pools.regions[number].domains[pool.level]
            assert domain is not None
            found.setdefault(domain, []).append(number)
        return found

    def expression(self, tier: Tier) -> Linear:
        """Admission and waiting exactly; the other tiers as no plan can be better than, gang by gang."""
        total = Linear(constant=0 if tier.family == "stranded" else self._values.tier(tier))
        for index, admit in self.admits():
            gang = self.instance.gangs[index]
            if tier.priority in (None, gang.priority):
                total.add(admit, optimism(self.instance, gang, tier))
        return total

    def admits(self) -> list[tuple[int, int]]:
        """(gang, its admit variable) of every gang to place or complete."""
        found = [(g.demand.gang, g.admit) for g in self._gangs]
        several = [(group.demands, group.admits) for group in self._groups]
        several += [(own.demands, own.admits) for own in self._pooled]
        for demands, admits in several:
            found += [(d.gang, a) for d, a in zip(demands, admits, strict=True)]
        return sorted(found)

    def likeness(self, liked: Sequence[GangDecision]) -> Linear:
        """How many GPUs stand in the regions, and gangs in the domains, where a liked plan has them."""
        self._record.liked = {i: d for i, d in enumerate(liked) if d.pods != self._base[i].pods}
        total = Linear()
        for pool in self._pods.values():
            wanted = self._liked_counts(pool)
            for piece in pool.pieces:
                most = min(wanted.get(piece.region, 0), self.program.upper[piece.variable])
                if most:
                    total.add(self._capped(piece.variable, most), pool.role.gpus)
        for own in self._pooled:
            if own.level is not None:
                of = self.instance.cluster.domain_of[own.level]
                for demand in own.demands:
                    if demand.gang in self._record.liked:
                        domain = of[self._record.liked[demand.gang].pods[0].node]
                        if domain in own.domains:
                            total.add(self._capped(own.domains[domain], 1), demand.gpus)
        return total

    def _liked_counts(self, pool: PodPool) -> dict[int, int]:
        counts: dict[int, int] = {}
        region_of = self._region_of
        for own in self._pooled:
            for role in (
                r for r, p in zip(own.demands[0].gpu_roles, own.pools, strict=True) if p is pool
            ):
                for demand in own.demands:
                    for pod in self._record.liked.get(demand.gang, GangDecision("wait")).pods:
                        if pod.role == role.role and pod.node in region_of:
                            region = region_of[pod.node]
                            counts[region] = counts.get(region, 0) + 1
        return counts

    def _capped(self, variable: int, most: int) -> int:
        """A variable that is at most ``most`` and at most another variable."""
        capped = self.program.integer(0, most)
        self.program.at_most(Linear().add(capped).add(variable, -1))
        return capped

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """A valid plan with these admissions; which pods of a pool are whose is chosen for locality."""
        return Dealer(self._record, values).decisions()


def optimism(instance: Instance, gang: Gang, tier: Tier) -> int:
    """The most (for span: the least) a gang may add to a tier when it is admitted."""
    gpus = sum(r.gpus * n for r, n in zip(gang.roles, gang.target_counts(), strict=True))
    match tier.family:
        case "admission":
            worth = gang.weight_gpus
        case "waiting":
            worth = 0 if gang.running else gang.weight_gpus * instance.age(gang)
        case "preference":
            worth = gang.weight_gpus if gang.preferred is not None else 0
            worth += sum(r.min * r.gpus or 1 for r in gang.roles if r.preferred is not None)
        case "growth":
            worth = gpus - sum(r.min * r.gpus for r in gang.roles) if gang.elastic else 0
        case "bandwidth":
            counted = gang.pattern != "none" and gpus >= PAIR
            worth = gang.weight * gang.weight_gpus * FULL_SHARE if counted else 0
        case "span":
            largest = max((node.gpus for node in instance.cluster.nodes), default=0) or 1
            worth = gang.weight_gpus * max(0, -(-gpus // largest) - 1)
        case _:
            worth = 0
    return worth
