"""The tiers of the contract's section 4 as linear expressions over the formulation's variables.

Promises: for every feasible assignment the expression is no better than the decoded plan's value, and
equal at an optimum; contributions of gangs that stay whole are constants taken from the plan as it is.
"""

from __future__ import annotations

from collections.abc import Sequence

from models.bandwidth import UnknownRate
from models.evaluating import Evaluation, Tier
from models.instance import Instance
from models.leftover import gpu_models, request_domains
from models.occupancy import Room
from models.placement.packing import SetType
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.rules.bandwidth import Claims
from models.placement.rules.topology import Topology
from models.placement.variables import GangVariables, GroupVariables, Variables
from models.pricing import ideal_MBps, share_permille


class Tiers:
    """Builds and remembers the expression of every tier."""

    def __init__(
        self,
        program: Program,
        instance: Instance,
        variables: Variables,
        pools: Pools,
        rooms: Sequence[Room],
        topologies: Sequence[Topology],
        claims: Sequence[Claims],
        base: Evaluation,
    ) -> None:
        self._program = program
        self._instance = instance
        self._variables = variables
        self._pools = pools
        self._rooms = rooms
        self._topologies = topologies
        self._claims = claims
        self._base = base
        self._stranded: Linear | None = None

    def expression(self, tier: Tier) -> Linear:
        """The tier's value as an expression; constant for what this planner leaves as it is."""
        builder = {
            "admission": self._admission,
            "waiting": self._waiting,
            "preference": self._preference,
            "bandwidth": self._bandwidth,
            "growth": self._growth,
            "span": self._span,
            "stranded": self._stranded_tier,
        }.get(tier.family)
        if tier.family == "stranded":
            return self._stranded_tier(tier)
        base = Linear(constant=self._base.tier(tier))
        return base if builder is None else base.add_linear(builder(tier))

    def _members(self) -> list[tuple[int, int, GangVariables | GroupVariables]]:
        """(gang, its admit variable, owner) of every gang to place."""
        found: list[tuple[int, int, GangVariables | GroupVariables]] = [
            (gang.demand.gang, gang.admit, gang) for gang in self._variables.gangs
        ]
        for group in self._variables.groups:
            found += [
                (demand.gang, admit, group)
                for demand, admit in zip(group.demands, group.admits, strict=True)
            ]
        return found

    def _admission(self, tier: Tier) -> Linear:
        total = Linear()
        for index, admit, _ in self._members():
            gang = self._instance.gangs[index]
            if gang.priority == tier.priority:
                total.add(admit, gang.weight_gpus)
        return total

    def _waiting(self, tier: Tier) -> Linear:
        total = Linear()
        for index, admit, _ in self._members():
            gang = self._instance.gangs[index]
            if gang.priority == tier.priority and not gang.running:
                total.add(admit, gang.weight_gpus * self._instance.age(gang))
        return total

    def _growth(self, tier: Tier) -> Linear:
        total = Linear()
        for index, admit, _ in self._members():
            gang = self._instance.gangs[index]
            if gang.priority == tier.priority and gang.elastic:
                above = sum(
                    (count - role.min) * role.gpus
                    for role, count in zip(gang.roles, gang.target_counts(), strict=True)
                )
                total.add(admit, above)
        return total

    def _preference(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        for gang, topology in zip(self._variables.gangs, self._topologies, strict=True):
            spec = gang.gang
            if spec.preferred is not None:
                total.add_linear(topology.whole(spec.preferred), spec.weight_gpus)
            for number, role in enumerate(spec.roles):
                if role.preferred is not None:
                    worth = role.min * role.gpus or 1
                    total.add_linear(topology.whole(role.preferred, number), worth)
        for group in self._variables.groups:
            spec = group.gangs[0]
            worth = spec.weight_gpus if spec.preferred is not None else 0
            worth += sum(r.min * r.gpus or 1 for r in spec.roles if r.preferred is not None)
            total.add_all(group.admits, worth)
        return total

    def _bandwidth(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        for gang, claims in zip(self._variables.gangs, self._claims, strict=True):
            total.add_linear(claims.value, gang.gang.weight * gang.gang.weight_gpus)
        for group in self._variables.groups:
            spec = group.gangs[0]
            if spec.pattern == "none" or group.demands[0].total_gpus < 2:
                continue
            for piece in group.pieces:
                share = self._piece_share(group, piece.region, piece.kind)
                total.add(piece.variable, spec.weight * spec.weight_gpus * share)
        return total

    def _piece_share(self, group: GroupVariables, region: int, kind: SetType) -> int:
        model = self._pools.regions[region].model.model
        assert model is not None
        if kind.inside is None:
            return 0
        try:
            return share_permille(kind.inside, ideal_MBps((model,), group.demands[0].total_gpus))
        except UnknownRate:
            return 0

    def _span(self, tier: Tier) -> Linear:
        del tier
        total = Linear()
        node_level = self._instance.cluster.node_level
        for gang, topology in zip(self._variables.gangs, self._topologies, strict=True):
            weight = gang.gang.weight_gpus
            for level in range(node_level):
                factor = weight * 4 ** (node_level - level)
                total.add_linear(topology.count(level), factor).add(gang.admit, -factor)
            total.add_linear(topology.nodes(), weight).add(gang.admit, -weight)
        return total

    def _stranded_tier(self, tier: Tier) -> Linear:
        del tier
        if self._stranded is None:
            self._stranded = self._make_stranded()
        return self._stranded

    def _make_stranded(self) -> Linear:
        """sum over nodes of what no size of the mix can use, less what whole nodes give larger sizes."""
        mix = self._instance.policy.mix
        total = Linear()
        flowing = {n for region in self._pools.regions for n in region.nodes}
        for nodes in gpu_models(self._instance).values():
            own = set(nodes)
            largest = max(self._instance.cluster.nodes[n].gpus for n in nodes)
            small = [(size, permille) for size, permille in mix if size <= largest]
            unused = [
                sum(permille for _, permille in mix) * free
                - sum(permille * size * (free // size) for size, permille in small)
                for free in range(largest + 1)
            ]
            total.constant += sum(
                unused[self._rooms[n].free_gpus] for n in nodes if n not in flowing
            )
            for region in self._pools.regions:
                if region.nodes[0] in own:
                    for state, rest in self._variables.flows[region.number].rests.items():
                        total.add(rest, unused[region.packing.size(state)])
            for size, permille in mix:
                if size > largest:
                    self._larger(total, nodes, largest, size, permille)
        return total

    def _larger(
        self, total: Linear, nodes: Sequence[int], largest: int, size: int, permille: int
    ) -> None:
        """Requests of several whole nodes: per domain, servers x placeable <= nodes left whole."""
        servers = -(-size // largest)
        of_region = {n: region for region in self._pools.regions for n in region.nodes}
        for members in request_domains(self._instance, nodes, size):
            whole = Linear()
            seen: set[int] = set()
            for n in members:
                region = of_region.get(n)
                if region is None:
                    whole.constant += int(self._rooms[n].free_gpus == largest)
                elif region.number not in seen:
                    seen.add(region.number)
                    flow = self._variables.flows[region.number]
                    for state, rest in flow.rests.items():
                        if region.packing.size(state) == largest:
                            whole.add(rest)
            most = self._program.bound_above(whole) // servers
            if most > 0:
                count = self._program.integer(0, most)
                self._program.at_least(whole.add(count, -servers))
                total.add(count, -permille * size)
