"""The admission program: which gangs can start at all, with pods pooled instead of placed one by one.

Pods of gangs that no rule ties together beyond "all or none" and one required domain only need room, so
all their pods of one size are one pool: sum over regions of x[pool, r] == sum over gangs of count x admit
(by domain D of the required level: == sum over classes of count x y[class, D]). Exact for admission and
waiting, and far smaller than the full formulation; bandwidth, span and the rest do not exist here.
Gangs with other rules keep their own pieces and rows. Called by ``planner.search.aggregated_search``.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from models.instance import Instance
from models.occupancy import PODS
from models.program.aggregated import pools as supply
from models.program.aggregated.bounds import TierBounds
from models.program.aggregated.decoder import Dealer, likeness
from models.program.aggregated.pools import Admissions, PooledClass, Shape, Shaper
from models.program.base_state import classes, ground_of
from models.program.demands import Demand, RoleDemand
from models.program.formulation import slices_by_node
from models.program.linear_program import Linear, Program
from models.program.packing import SizePacking
from models.program.regions import Pools, local, pools_of
from models.program.rules.declarations import own_variables, poolable
from models.program.rules.rows import Model, add_rows
from models.program.rules.topology import Topology
from models.program.variables import (
    GangVariables,
    GroupVariables,
    PodPool,
    Variables,
    Wishes,
    option_of,
    staying,
)
from models.solution import GangDecision
from models.tier_values import Evaluation
from models.tiers import Tier

PoolKey = tuple[int, frozenset[int], tuple[tuple[str, int], ...]]


def together(roles: Sequence[RoleDemand]) -> PoolKey:
    """All pods of these roles as one pod: on nodes that all may use."""
    requests = Counter[str]()
    for role in roles:
        asked = dict((*role.requests, (PODS, 1)))
        requests.update({name: n * role.count for name, n in asked.items()})
    nodes = frozenset.intersection(*(role.nodes for role in roles))
    gpus = sum(role.gpus * role.count for role in roles)
    return gpus, nodes, tuple(sorted(requests.items()))


class AdmissionProgram:
    """The program, its tiers' expressions, and the plan an assignment stands for.

    ``still``: gangs that must not move. ``shaped``: it is told apart how narrow a domain each gang is
    whole in, which bounds the tiers of placement too. ``complete``: whether its bounds hold for all plans.
    """

    def __init__(
        self, instance: Instance, still: frozenset[int] = frozenset(), *, shaped: bool = False
    ) -> None:
        self.instance = instance
        self._shaped = shaped
        self._stable = shaped and instance.policy.lists("stability")
        self.program = Program()
        ground = ground_of(instance, still=still)
        self._ground = ground
        self._asks = asks = ground.asks
        self.complete = all(choice.complete for choice in asks.choices)
        self.settles = all(choice.settles for choice in asks.choices)
        self._rooms = ground.rooms
        split = slices_by_node(instance, asks.demands)
        self._pools = self._sized(
            asks.demands,
            pools_of(instance, asks.demands, self._rooms, ground.contents, split=split),
        )
        self._pooled: list[PooledClass] = []
        self._groups: list[GroupVariables] = []
        self._gangs: list[GangVariables] = []
        self._topologies: list[Topology] = []
        self._shaper = Shaper(instance, self._rooms)
        self._pods: dict[PoolKey, PodPool] = {}
        self._create()
        self._bounds = TierBounds(
            self.program,
            instance,
            asks,
            self._variables,
            self._pools,
            self._rooms,
            self._pooled,
            Evaluation(instance, ground.base),
            self._shaper,
            self._topologies,
            shaped=shaped,
            stable=self._stable,
        )
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
        for members in classes(self.instance, self._asks, self._pools, planned=self._stable):
            number, first = members[0]
            rides = self._pools.riding[number]
            own: tuple[int, ...]
            alone = local(self.instance, first, rides=rides)
            if alone and not self.instance.min_share(self.instance.gangs[first.gang]):
                own = self._pool(wishes, [demand for _, demand in members], alone=True)
                if len(members) > 1:
                    ordered.append(list(zip((d for _, d in members), own, strict=True)))
            elif alone:
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
        if not rides or not demand.gpu_roles or own_variables(self.instance, gang):
            return False
        if not demand.stays and gang.required == self.instance.cluster.node_level:
            return False  # it is one piece
        return all(poolable(self.instance, gang, role) for role in demand.gpu_roles)

    def _pool(
        self, wishes: Wishes, demands: list[Demand], *, alone: bool = False
    ) -> tuple[int, ...]:
        """Their admit variables. ``alone``: each is one piece on one node, launchers and all."""
        first = demands[0]
        pools = tuple(
            self._pool_of(wishes, first, (role.gpus, role.nodes, role.requests), demands)
            for role in (() if alone else first.gpu_roles)
        )
        admits = tuple(self.program.boolean() for _ in demands)
        for demand, admit in zip(demands, admits, strict=True):
            if not demand.possible:
                self.program.fix(admit, 0)
        own = PooledClass(tuple(demands), admits, pools)
        for shape in self._alone(first) if alone else self._shapes(first):
            own.shapes.append((shape, self._places(own, shape)))
            if shape.level == self.instance.cluster.node_level:
                roles = first.roles if alone else first.gpu_roles
                own.alone = self._pool_of(wishes, first, together(roles), demands)
        everyone = Linear().add_all(v for _, places in own.shapes for v in places.values())
        self.program.equal(everyone.add_all(admits, -1))
        self._pooled.append(own)
        return admits

    def _pool_of(
        self, wishes: Wishes, first: Demand, key: PoolKey, demands: Sequence[Demand]
    ) -> PodPool:
        """The pool of such pods. ``demands``: gangs that may take from it."""
        if key not in self._pods:
            gpus, nodes, requests = key
            single = replace(
                first.gpu_roles[0],
                indices=(0,),
                gpus=gpus,
                nodes=nodes,
                requests=requests,
                layers=(),
            )
            stand_in = replace(first, roles=(single,), stays=(), standing=())
            self._pods[key] = PodPool(single, (stand_in,))
            wishes.pool(self._pods[key])
        pool = self._pods[key]
        highest = max(self.instance.gangs[d.gang].priority for d in demands)
        pool.priority = highest if pool.priority is None else max(highest, pool.priority)
        return pool

    def _shapes(self, demand: Demand) -> list[Shape]:
        """Shapes told apart, narrowest first: only the required domain where placement does not matter."""
        if demand.stays:
            # beside pods that stay its nodes are held to their domain already
            return [Shape(None, 0, 0, 0)]
        if self._shaped:
            return list(self._shaper.shapes(demand))
        return [Shape(self.instance.gangs[demand.gang].required, 0, 0, 0)]

    def _alone(self, demand: Demand) -> list[Shape]:
        """The one shape of a gang that is a piece on one node."""
        return [self._shaper.shape(demand, self.instance.cluster.node_level)]

    def _places(self, own: PooledClass, shape: Shape) -> dict[int | None, int]:
        """How many gangs of the class have the shape, by domain; one number where that is not told."""
        most = len(own.demands)
        if shape.level is None or shape.level == self.instance.cluster.node_level:
            return {None: self.program.integer(0, most)}
        domains = self._shaper.domains(own.demands[0], shape.level)
        return {domain: self.program.integer(0, most) for domain in domains}

    def _rules(self, variables: Variables, ordered: list[list[tuple[Demand, int]]]) -> None:
        model = Model(
            self.program,
            self.instance,
            self._asks,
            self._rooms,
            self._pools,
            variables,
            aggregated=True,
            domains=self._shaped,
            pod_pools=list(self._pods.values()),
            ordered=[[(self.instance.gangs[d.gang], a) for d, a in own] for own in ordered],
        )
        add_rows(model)
        self._topologies = model.topologies
        for pool in self._pods.values():
            supply.add(self.program, self.instance, self._pools, pool, self._pooled)

    def expression(self, tier: Tier) -> Linear:
        """The tier as no plan can be better than."""
        return self._bounds.expression(tier)

    def likeness(self, liked: Sequence[GangDecision]) -> Linear:
        """How much of a liked plan's places the assignment keeps; adds rows of its own."""
        self._record.like(liked)
        return likeness(self.program, self._record)

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """A valid plan with these admissions; which pods of a pool are whose is chosen for locality."""
        return Dealer(self._record, values).decisions()
