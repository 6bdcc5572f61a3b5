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
from functools import cached_property

from models.evaluating import Evaluation, Tier
from models.instance import Instance
from models.placement.asking import classes
from models.placement.dealing import Admissions, Dealer, PooledClass
from models.placement.demands import Demand, RoleDemand
from models.placement.formulation import slices_by_node
from models.placement.ground import ground_of
from models.placement.leaving import Rests, defragmented
from models.placement.optimism import Optimism
from models.placement.options import standing_gpus
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
    running,
    slices,
)
from models.placement.rules.topology import Topology
from models.placement.variables import (
    GangVariables,
    GroupVariables,
    PodPool,
    Variables,
    Wishes,
    option_of,
    staying,
)
from models.solution import GangDecision

PoolKey = tuple[int, frozenset[int], tuple[tuple[str, int], ...], int | None]


class AdmissionProgram:
    """The program, its tiers' expressions, and the plan an assignment stands for.

    ``still``: gangs that must not move. ``complete``: whether its bounds hold for all plans.
    """

    def __init__(self, instance: Instance, still: frozenset[int] = frozenset()) -> None:
        self.instance = instance
        self.program = Program()
        ground = ground_of(instance, still=still)
        self._ground = ground
        self._asks = asks = ground.asks
        self.complete = all(choice.complete for choice in asks.choices)
        self._values = Evaluation(instance, ground.base)
        self._rooms = ground.rooms
        split = slices_by_node(instance, asks.demands)
        self._pools = self._sized(
            asks.demands,
            pools_of(instance, asks.demands, self._rooms, ground.contents, split=split),
        )
        self._pooled: list[PooledClass] = []
        self._groups: list[GroupVariables] = []
        self._gangs: list[GangVariables] = []
        self._pods: dict[PoolKey, PodPool] = {}
        self._region_of = {n: r.number for r in self._pools.regions for n in r.nodes}
        self._create()
        self._record = Admissions(
            instance,
            asks,
            ground.base,
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

    def _create(self) -> None:
        wishes = Wishes(self.instance, self._pools, self._rooms)
        siblings: list[tuple[int, ...]] = []
        ordered: list[list[tuple[Demand, int]]] = []
        admits = [[-1] * len(choice.options) for choice in self._asks.choices]
        for members in classes(self.instance, self._asks, self._pools):
            number, first = members[0]
            rides = self._pools.riding[number]
            own: tuple[int, ...]
            if local(self.instance, first, rides=rides):
                own = tuple(self.program.boolean() for _ in members)
                demands = tuple(demand for _, demand in members)
                gangs = tuple(self.instance.gangs[d.gang] for d in demands)
                group = GroupVariables(demands, gangs, own)
                self._groups.append(group)
                wishes.local(group)
            elif self._poolable(first, rides=rides):
                own = self._pool(wishes, [demand for _, demand in members])
                if len(members) > 1:
                    ordered.append(list(zip((d for _, d in members), own, strict=True)))
            else:
                start = len(self._gangs)
                if len(members) > 1:
                    siblings.append(tuple(range(start, start + len(members))))
                for position, _ in members:
                    gang = option_of(self.instance, self.program, self._asks, position, rides=rides)
                    self._gangs.append(gang)
                    wishes.alone(self.program, gang)
                own = tuple(gang.admit for gang in self._gangs[start:])
            for (position, _), admit in zip(members, own, strict=True):
                choice, option = self._asks.origin[position]
                admits[choice][option] = admit
        stays = staying(self.instance, self.program, self._asks, admits)
        flows = wishes.flows(self.program, admits)
        wishes.pieces(self.program)
        variables = Variables(self._gangs, self._groups, stays, flows, siblings, admits)
        self._variables = variables
        self._rules(variables, ordered)

    def _poolable(self, demand: Demand, *, rides: bool) -> bool:
        """Whether nothing but room and one required domain ties the pods to place together."""
        gang = self.instance.gangs[demand.gang]
        if not rides or not demand.gpu_roles or self.instance.min_share(gang):
            return False
        if not demand.stays and gang.required == self.instance.cluster.node_level:
            return False  # it is one piece
        return all(self._loose(demand, role) for role in demand.gpu_roles)

    def _loose(self, demand: Demand, role: RoleDemand) -> bool:
        spec = self.instance.gangs[demand.gang].roles[role.role]
        if spec.required is not None or spec.slice_size is not None:
            return False
        if spec.mix_models or role.count == 1:
            return True
        nodes = self.instance.cluster.nodes
        return len({m.gpu for n in role.nodes if (m := nodes[n].model) is not None}) <= 1

    def _pool(self, wishes: Wishes, demands: list[Demand]) -> tuple[int, ...]:
        first = demands[0]
        # beside pods that stay its nodes are held to their domain already
        level = None if first.stays else self.instance.gangs[first.gang].required
        pools = []
        for role in first.gpu_roles:
            key = (role.gpus, role.nodes, role.requests, level)
            if key not in self._pods:
                single = replace(role, indices=(0,))
                stand_in = replace(first, roles=(single,), stays=(), standing=())
                self._pods[key] = PodPool(single, level, (stand_in,))
                wishes.pool(self._pods[key])
            highest = max(self.instance.gangs[d.gang].priority for d in demands)
            pool = self._pods[key]
            pool.priority = highest if pool.priority is None else max(highest, pool.priority)
            pools.append(pool)
        admits = tuple(self.program.boolean() for _ in demands)
        for demand, admit in zip(demands, admits, strict=True):
            if not demand.possible:
                self.program.fix(admit, 0)
        self._pooled.append(PooledClass(tuple(demands), admits, tuple(pools), level))
        return admits

    def _rules(self, variables: Variables, ordered: list[list[tuple[Demand, int]]]) -> None:
        program, instance = self.program, self.instance
        packing.add(program, variables, self._pools, [pool.pieces for pool in self._pods.values()])
        resources.add(program, variables, self._pools, self._rooms, list(self._pods.values()))
        admission.add(program, instance, variables)
        pods = [(pool.priority, pool.pieces) for pool in self._pods.values()]
        running.add(program, instance, self._asks, variables, self._pools, pooled=pods)
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
        """Tiers of who runs and what it costs exactly; the others as no plan can be better than."""
        if tier.family == "defragment":
            flows = self._variables.flows
            return defragmented(self.program, self.instance, Rests(self._pools, self._rooms, flows))
        total = Linear(constant=0 if tier.family == "stranded" else self._values.tier(tier))
        for choice, admits in zip(self._asks.choices, self._variables.admits, strict=True):
            gang = self.instance.gangs[choice.gang]
            if tier.priority in (None, gang.priority):
                for option, admit in zip(choice.options, admits, strict=True):
                    total.add(admit, self._optimism.of(choice.gang, option, tier))
        return total

    @cached_property
    def _optimism(self) -> Optimism:
        return Optimism(self.instance)

    def likeness(self, liked: Sequence[GangDecision]) -> Linear:
        """How many GPUs stand in the regions, and gangs in the domains, where a liked plan has them."""
        self._record.like(liked)
        total = Linear()
        for pool in self._pods.values():
            wanted = self._liked_counts(pool)
            for piece in pool.pieces:
                most = min(wanted.get(piece.region, 0), self.program.upper[piece.variable])
                if most:
                    total.add(self._capped(piece.variable, most), pool.role.gpus)
        for own in self._pooled:
            for demand in own.demands:
                chosen = self._liked_domain(own, demand)
                if chosen is not None:
                    total.add(self._capped(chosen, 1), demand.gpus)
        for stay in self._variables.stays:
            if self._record.is_liked(stay.demand):
                total.add(stay.admit, 1 + standing_gpus(self.instance, stay.demand.gang))
        return total

    def _liked_domain(self, own: PooledClass, demand: Demand) -> int | None:
        """The variable of the domain of the required level where the liked plan has the gang."""
        pods = self._record.liked_pods(demand)
        if own.level is None or not pods:
            return None
        return own.domains.get(self.instance.cluster.domain_of[own.level][pods[0].node])

    def _liked_counts(self, pool: PodPool) -> dict[int, int]:
        counts: dict[int, int] = {}
        for own in self._pooled:
            for role, used in zip(own.demands[0].gpu_roles, own.pools, strict=True):
                if used is not pool:
                    continue
                for demand in own.demands:
                    for pod in self._record.liked_pods(demand):
                        if pod.role == role.role and pod.node in self._region_of:
                            region = self._region_of[pod.node]
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
