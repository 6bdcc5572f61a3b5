"""The aggregated model: pods that only need room are pooled instead of placed one by one.

Pods of one size with the same nodes are one pool: sum over regions of x[pool, r] == sum over gangs of count x
admit (by domain D of the required level: == sum over classes of count x y[class, D]). Exact for the admission
tiers; the other tiers are bounds. Gangs that cannot be pooled keep variables and rows of their own.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Hashable, Iterator, Sequence
from dataclasses import replace

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.occupancy import PODS
from models.instance.queue import Holder
from models.instance.solution import GangDecision
from models.program.aggregated import pools, spread
from models.program.aggregated.bounds import TierBounds
from models.program.aggregated.decoder import PlanDecoder
from models.program.aggregated.pools import ModelRecord, PooledClass, Shape, ShapeBounds, Take
from models.program.base_state import build_base_state, classes, victims
from models.program.demand_builder import placing
from models.program.formulation import slices_by_node
from models.program.interruption import Question, never
from models.program.linear_program import Linear, Program
from models.program.packing import SizePacking
from models.program.regions import RegionSet, build_regions, is_single_piece
from models.program.rows import add_rows
from models.program.rules.cells import too_many
from models.program.rules.running import may_come_alone
from models.program.rules.topology import Topology
from models.program.variables import (
    GangVariables,
    GroupVariables,
    Model,
    PieceBuilder,
    PodPool,
    Variables,
    option_of,
    staying,
)
from models.queues.queue_shares import holder_of, shares
from models.rules.demands import Demand, RoleDemand
from models.rules.giving_way import claim
from models.rules.queue_rules import user_of_cells
from models.rules.registry import own_variables, poolable
from models.rules.services import open_service
from models.rules.topology import pooled_slices
from models.tiers import Tier
from models.values.tier_values import Evaluation, ValueCache, most_speed

SPREAD_SHARE = 1.0
"""The variables that count where wide gangs have their pods are at most as many as the others."""

PoolKey = tuple[int, frozenset[int], tuple[tuple[str, int], ...]]


def together(roles: Sequence[RoleDemand]) -> PoolKey:
    """The pool of all pods of these roles as one pod, on nodes that all roles may use."""
    requests = Counter[str]()
    for role in roles:
        requested = dict((*role.requests, (PODS, 1)))
        requests.update({name: n * role.count for name, n in requested.items()})
    nodes = frozenset.intersection(*(role.nodes for role in roles))
    gpus = sum(role.gpus * role.count for role in roles)
    return gpus, nodes, tuple(sorted(requests.items()))


def _sized(region_set: RegionSet) -> RegionSet:
    sized = (replace(r, packing=SizePacking(r.packing)) for r in region_set.regions)
    return replace(region_set, regions=tuple(sized))


class AggregatedModel:
    """The program, the expressions of its tiers, and the plan that an assignment stands for.

    ``immovable``: gangs that must not move. ``shaped``: families of tiers for which gangs have variables for
    the domains in which they are whole. ``cache``: values of gangs, shared between plans.
    ``complete``: whether its bounds hold for all plans. Raises Interrupted if ``interrupted`` says so while
    it is built.
    """

    def __init__(
        self,
        instance: Instance,
        immovable: frozenset[int] = frozenset(),
        *,
        shaped: Collection[str] = (),
        cache: ValueCache | None = None,
        interrupted: Question = never,
    ) -> None:
        self.instance = instance
        self._shaped = frozenset((*shaped, "goodput") if instance.by_speed else shaped)
        self._stable = "stability" in self._shaped and instance.policy.lists("stability")
        self.program = Program(interrupted)
        base_state = build_base_state(instance, immovable=immovable, interrupted=interrupted)
        self._ground = base_state
        self.requests = requests = base_state.requests
        self._rooms = base_state.rooms
        # only the size of GPU sets matters unless a gang needs a minimum bandwidth
        sized = not any(instance.min_share(instance.gangs[d.gang]) for d in requests.demands)
        region_set = build_regions(
            instance,
            requests.demands,
            self._rooms,
            base_state.node_usages,
            split=slices_by_node(instance, requests.demands),
            movers=[n for n, choice in enumerate(requests.choices) if not choice.yields]
            if sized
            else (),
            interrupted=interrupted,
        )
        self._region_set = _sized(region_set) if sized else region_set
        counted = not may_come_alone(instance, requests, region_set.cpu_only_follow)
        self.complete = counted and all(choice.complete for choice in requests.choices)
        self.covers_admission = counted and all(c.covers_admission for c in requests.choices)
        self._pooled: list[PooledClass] = []
        self._groups: list[GroupVariables] = []
        self._gangs: list[GangVariables] = []
        self._topologies: list[Topology] = []
        self._shape_bounds = ShapeBounds(instance, self._rooms)
        self._pods: dict[tuple[PoolKey, Hashable, Holder | None, Hashable], PodPool] = {}
        self._victims = victims(instance, requests.choices)
        self._create()
        self._bounds = TierBounds(
            self._model,
            self._pooled,
            Evaluation(instance, base_state.base, cache),
            self._shape_bounds,
            self._topologies,
            shaped=self._shaped,
            stable=self._stable,
        )
        self._record = ModelRecord(self._model, base_state.base, self._pooled)
        self.program.interrupted = never

    def _create(self) -> None:
        preferences = PieceBuilder(self.instance, self._region_set, self._rooms)
        siblings: list[tuple[int, ...]] = []
        ordered: list[list[tuple[Demand, int]]] = []
        admits = [[-1] * len(choice.options) for choice in self.requests.choices]
        for members in self._classes():
            number, first = members[0]
            cpu_only_follow = self._region_set.cpu_only_follow[number]
            own: tuple[int, ...]
            alone = is_single_piece(self.instance, first, cpu_only_follow=cpu_only_follow)
            if alone and not self.instance.min_share(self.instance.gangs[first.gang]):
                own = self._pool(preferences, [demand for _, demand in members], alone=True)
                if len(members) > 1:
                    ordered.append(list(zip((d for _, d in members), own, strict=True)))
            elif alone:
                own = tuple(self.program.boolean() for _ in members)
                demands = tuple(demand for _, demand in members)
                gangs = tuple(self.instance.gangs[d.gang] for d in demands)
                group = GroupVariables(demands, gangs, own)
                self._groups.append(group)
                preferences.is_single_piece(group)
            elif self._poolable(first, cpu_only_follow=cpu_only_follow):
                own = self._pool(preferences, [demand for _, demand in members])
                if len(members) > 1 and first.only_option:
                    ordered.append(list(zip((d for _, d in members), own, strict=True)))
            else:
                start = len(self._gangs)
                if len(members) > 1:
                    siblings.append(tuple(range(start, start + len(members))))
                for position, _ in members:
                    gang = option_of(
                        self.instance,
                        self.program,
                        self.requests,
                        position,
                        cpu_only_follow=cpu_only_follow,
                    )
                    self._gangs.append(gang)
                    preferences.alone(self.program, gang)
                own = tuple(gang.admit for gang in self._gangs[start:])
            for (position, _), admit in zip(members, own, strict=True):
                choice, option = self.requests.origin[position]
                admits[choice][option] = admit
        stays = staying(self.instance, self.program, self.requests, admits)
        partitions = preferences.partitions()
        keeping = [self.program.boolean() for _ in self.requests.keeping]
        flows = preferences.flows(self.program, [*admits, *([one] for one in keeping)])
        preferences.pieces(self.program)
        variables = Variables(
            self._gangs, self._groups, stays, flows, siblings, admits, partitions, keeping
        )
        self.variables = variables
        self._rules(variables, ordered)

    def _classes(self) -> list[list[tuple[int, Demand]]]:
        """Identical gangs; also options of gangs that have several, if pooled pods cannot tell them apart.

        Whether such an option is chosen depends on its gang, so that these are in no order.
        """
        found: dict[object, list[tuple[int, Demand]]] = {}
        for members in classes(
            self.instance, self.requests, self._region_set, planned=self._stable
        ):
            number, first = members[0]
            gang = self.instance.gangs[first.gang]
            follows = self._region_set.cpu_only_follow[number]
            key: object = number
            if not (first.only_option or first.stays or (self._stable and gang.planned)) and (
                self._poolable(first, cpu_only_follow=follows)
            ):
                most = most_speed(self.instance, first.gang) if self.instance.by_speed else None
                rank, holder = self._victims.rank(first.gang), self._holder(first)
                key = (placing(self.instance, first), follows, most, rank, holder)
            found.setdefault(key, []).extend(members)
        return list(found.values())

    def _poolable(self, demand: Demand, *, cpu_only_follow: bool) -> bool:
        """Whether the pods only need room and one required domain."""
        gang = self.instance.gangs[demand.gang]
        if not cpu_only_follow or not demand.gpu_roles or own_variables(self.instance, gang):
            return False
        if self._holder(demand) is not None and any(r.has_parts for r in demand.roles):
            return False  # queues count parts by GPU model
        if not demand.stays and gang.required == self.instance.cluster.node_level:
            return False  # the gang is one piece
        if self._slices(demand) is not None and demand.gpus <= self._shape_bounds.largest(demand):
            return False  # it may be one
        return all(poolable(self.instance, gang, role) for role in demand.gpu_roles)

    def _slices(self, demand: Demand) -> tuple[int, int] | None:
        """(size, level) of the slices of a gang that are counted by domain."""
        gang, (first, *_) = self.instance.gangs[demand.gang], demand.gpu_roles
        return pooled_slices(self.instance, gang, first)

    def _pool(
        self, preferences: PieceBuilder, demands: list[Demand], *, alone: bool = False
    ) -> tuple[int, ...]:
        """Admit variables. ``alone``: each gang is one piece on one node, with its pods without GPUs."""
        admits = tuple(self.program.boolean() for _ in demands)
        for demand, admit in zip(demands, admits, strict=True):
            if not demand.possible:
                self.program.fix(admit, 0)
        everyone = Linear().add_all(admits, -1)
        for nodes in self._models(demands[0], alone=alone):
            held = demands if nodes is None else [demand.on_gpus(nodes) for demand in demands]
            first = held[0]
            pools = tuple(
                self._pool_of(preferences, first, (role.gpus, role.nodes, role.requests), held)
                for role in (() if alone else first.gpu_roles)
            )
            own = PooledClass(tuple(held), admits, pools)
            for shape in self._alone(first) if alone else self._shapes(first):
                own.shapes.append((shape, self._places(own, shape)))
                own.takes.append(self._takes(preferences, own, shape))
                everyone.add_all(own.shapes[-1][1].values())
            self._pooled.append(own)
        self.program.equal(everyone)
        return admits

    def _models(self, demand: Demand, *, alone: bool) -> list[frozenset[int] | None]:
        """Sets of nodes, in one of which the pods are: of one GPU model, or of one speed and all above it.

        None: wherever they may be.
        """
        found: list[frozenset[int] | None] = [None]
        gang = self.instance.gangs[demand.gang]
        if any(gang.roles[pod.role].gpus for pod in demand.stays):
            return found  # the pods that stay hold it to their model
        nodes = frozenset[int]().union(*(role.nodes for role in demand.gpu_roles))
        parts = [nodes]
        first = demand.gpu_roles[0]
        one_model = first.count > 1 and not gang.roles[first.role].mix_models
        one_model = one_model and not alone and len(demand.gpu_roles) == 1
        if one_model or open_service(self.instance, gang) is not None:
            names = sorted(self.instance.gpu_names(nodes))
            parts = [self.instance.nodes_of_model(nodes, name) for name in names]
        speeds = self._shape_bounds.by_speed(demand)
        if len(parts) > 1 or len(speeds) > 1:
            found = []
            for part in parts:
                held = [own & part for _, own in speeds if own & part]
                found += [frozenset().union(*held[slowest:]) for slowest in range(len(held))]
        return [own for own in found if own is None or all(own & r.nodes for r in demand.gpu_roles)]

    def _takes(self, preferences: PieceBuilder, own: PooledClass, shape: Shape) -> list[Take]:
        """What a gang of the shape takes from the pools."""
        first = own.demands[0]
        counts = tuple(role.count for role in first.gpu_roles)
        if shape.level == self.instance.cluster.node_level:
            # without pools of its roles the gang is on one node with its pods without GPUs
            key = together(first.gpu_roles if own.pools else first.roles)
            own.alone = self._pool_of(preferences, first, key, own.demands)
            return [Take(own.alone, 1, counts)]
        if shape.piece > 1:
            (role,) = first.gpu_roles
            # with fewer, a piece would have room for two of them, or more pods than a node
            most = min(2 * shape.piece - 1, self._shape_bounds.most_pods(role))
            sets = min(-(-role.count // most), role.count // shape.piece)
            key = together([replace(role, indices=role.indices[: shape.piece])])
            found = [
                Take(self._pool_of(preferences, first, key, own.demands), sets, (shape.piece,))
            ]
            left = role.count - sets * shape.piece
            return [*found, Take(own.pools[0], left, (1,))] if left else found
        single = [tuple(int(i == at) for i in range(len(counts))) for at in range(len(counts))]
        takes = zip(own.pools, counts, single, strict=True)
        return [Take(pool, count, pods) for pool, count, pods in takes]

    def _holder(self, demand: Demand) -> Holder | None:
        """In whose name the gang holds GPUs, if that matters where they are."""
        known = shares(self.instance)
        if known is None or not known.models:
            return None
        return holder_of(self.instance, demand.gang)

    def _pool_of(
        self, preferences: PieceBuilder, first: Demand, key: PoolKey, demands: Sequence[Demand]
    ) -> PodPool:
        """The pool of such pods. ``demands``: gangs that may take from it.

        Where a pod of a pool comes, the same gangs may be stopped, whichever gang it belongs to.
        """
        cells: Hashable = ()
        if not too_many(self.instance):
            cells = user_of_cells(self.instance, self.instance.gangs[first.gang])
        known = (key, self._victims.rank(first.gang), self._holder(first), cells)
        if known not in self._pods:
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
            self._pods[known] = PodPool(single, (stand_in,), holder=known[2])
            preferences.pool(self._pods[known])
        pool = self._pods[known]
        own = claim(self.instance, first.gang)
        highest = max(self.instance.gangs[d.gang].priority for d in demands)
        highest = highest if pool.claim is None else max(highest, pool.claim.priority)
        pool.claim = own._replace(priority=highest)
        return pool

    def _shapes(self, demand: Demand) -> list[Shape]:
        """Shapes with a variable, narrowest first: the widest, and those that some tier values more."""
        if demand.stays:
            # the pods that stay hold its nodes to their domain already
            fastest = self._shape_bounds.fastest(demand)
            return [Shape(None, speed=self._shape_bounds.speed(demand, fastest))]
        if not self._shaped:
            return [Shape(self.instance.gangs[demand.gang].required)]
        found: list[Shape] = []
        # pods that were planned or are spread are counted one by one
        fits = demand.gpus <= self._shape_bounds.largest(demand)
        pieces = not self._shaped.isdisjoint(("bandwidth", "goodput")) and (
            "span" not in self._shaped or (fits and not self._stable)
        )
        pieces = pieces and self._slices(demand) is None
        shapes = list(self._shape_bounds.shapes(demand, pieces=pieces))
        if fits and self._shaped == {"goodput"}:
            shapes = self._loosened(demand, shapes)
        for shape in reversed(shapes):
            looser = (other for other in found if other.holds(shape))
            if not any(other.as_good(shape, self._shaped) for other in looser):
                found.insert(0, shape)
        return found

    def _loosened(self, demand: Demand, shapes: list[Shape]) -> list[Shape]:
        """Gangs torn into single pods are as fast wherever these are: those that fit on a node rarely are."""
        torn = [s for s in shapes if s.piece == 1 and s.level != self.instance.cluster.node_level]
        required = self.instance.gangs[demand.gang].required
        fastest = max((shape.speed for shape in torn), default=0)
        loose = [replace(shape, level=required, speed=fastest) for shape in torn[-1:]]
        return [*(shape for shape in shapes if shape not in torn), *loose]

    def _alone(self, demand: Demand) -> list[Shape]:
        """The single shape of a gang that is one piece on one node."""
        return [self._shape_bounds.shape(demand, self.instance.cluster.node_level)]

    def _places(self, own: PooledClass, shape: Shape) -> dict[int | None, int]:
        """Gangs of the class with the shape, by domain; one number where the domain does not matter."""
        most = len(own.demands)
        if shape.level is None or shape.level == self.instance.cluster.node_level:
            return {None: self.program.integer(0, most)}
        room = self._shape_bounds.gangs(own.demands[0], shape.level)
        return {domain: self.program.integer(0, min(most, fit)) for domain, fit in room.items()}

    def _rules(self, variables: Variables, ordered: list[list[tuple[Demand, int]]]) -> None:
        self._model = Model(
            self.program,
            self.instance,
            self.requests,
            self._rooms,
            self._region_set,
            variables,
            aggregated=True,
            domains=bool(self._shaped),
            pod_pools=list(self._pods.values()),
            by_gpu=list(self._by_gpu()),
            ordered=[[(self.instance.gangs[d.gang], a) for d, a in own] for own in ordered],
            base=self._ground.base,
        )
        self._topologies = add_rows(self._model)
        self._spread()
        for pool in self._pods.values():
            pools.add(self._model, pool, self._pooled)

    def _by_gpu(self) -> Iterator[tuple[Gang, str, Linear, int]]:
        """The gangs of open services in each pooled class, which is of one GPU model."""
        for own in self._pooled:
            first = own.demands[0]
            gang = self.instance.gangs[first.gang]
            for name in self.instance.gpu_names(first.gpu_roles[0].nodes):
                if open_service(self.instance, gang) is not None:
                    total = Linear().add_all(v for _, by in own.shapes for v in by.values())
                    yield gang, name, total, len(own.demands)

    def _spread(self) -> None:
        """Count where gangs have their slices, and, for ``span``, where wide ones have their pods.

        The latter at the narrowest level that adds few variables.
        """
        by_span, wide = "span" in self._shaped, []
        for own in self._pooled:
            slices = self._slices(own.demands[0]) if own.pools else None
            if slices is not None:
                size, level = slices
                spread.add(
                    self.program,
                    self.instance,
                    self._shape_bounds,
                    own,
                    level,
                    unit=size,
                    uses=by_span,
                )
            elif by_span and spread.spreads(self.instance, own):
                wide.append(own)
        most = len(self.program.lower) * SPREAD_SHARE
        for level in range(self.instance.cluster.node_level - 1, -1, -1):
            if len(wide) * spread.cost(self.instance, level) <= most:
                for own in wide:
                    spread.add(self.program, self.instance, self._shape_bounds, own, level)
                return

    @property
    def admits(self) -> list[list[int]]:
        """The variable of every option of every choice of ``requests``."""
        return self.variables.admits

    def expression(self, tier: Tier) -> Linear:
        """The value of a tier, or a bound that no plan beats."""
        return self._bounds.expression(tier)

    def decode(self, values: Sequence[int]) -> tuple[GangDecision, ...]:
        """A valid plan with these admissions, pods of a gang close together."""
        return PlanDecoder(self._record, values).decisions()
