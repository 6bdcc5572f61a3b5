"""The tiers of the contract's section 4 as linear expressions over the formulation's variables.

Promises: for every feasible assignment the expression is no better than the decoded plan's value, and
equal at an optimum; contributions of gangs that nothing is decided about are constants.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from models.bandwidth import UnknownRate
from models.evaluating import Evaluation, Tier
from models.gang import Gang
from models.instance import Instance
from models.occupancy import Room
from models.placement.demands import Demand
from models.placement.leaving import Rests, defragmented, unusable
from models.placement.matching import matched, matched_alone
from models.placement.options import PLACED, Effect, standing_gpus
from models.placement.packing import SetType
from models.placement.program import Linear, Program
from models.placement.regions import Pools
from models.placement.rules.bandwidth import Claims
from models.placement.rules.topology import Topology
from models.placement.standing import Stander, Standing
from models.placement.variables import GroupVariables, StayVariables, Variables
from models.pricing import ideal_MBps, share_permille


class Tiers:
    """Builds and remembers the expression of every tier.

    ``doubted``: by admit variable, claims of gangs that stay, where what they are worth hangs on others.
    """

    def __init__(
        self,
        program: Program,
        instance: Instance,
        variables: Variables,
        pools: Pools,
        rooms: Sequence[Room],
        topologies: Sequence[Topology],
        claims: Sequence[Claims],
        doubted: Mapping[int, Claims],
        base: Evaluation,
    ) -> None:
        self._program = program
        self._instance = instance
        self._variables = variables
        self._pools = pools
        self._topologies = topologies
        self._claims = claims
        self._doubted = doubted
        self._base = base
        self._ground = Rests(pools, rooms, variables.flows)
        self._stranded: Linear | None = None
        self._stood: list[tuple[StayVariables, Standing]] | None = None

    def expression(self, tier: Tier) -> Linear:
        """The tier's value as an expression; constant for what this planner leaves as it is."""
        if tier.family == "stranded":
            return self._stranded_tier()
        if tier.family == "defragment":
            return defragmented(self._program, self._instance, self._ground)
        builder = {
            "kept": self._kept,
            "aged": self._aged,
            "aged-waiting": self._aged_waiting,
            "admission": self._admission,
            "waiting": self._waiting,
            "disruption": self._disruption,
            "preference": self._preference,
            "bandwidth": self._bandwidth,
            "growth": self._growth,
            "span": self._span,
            "stability": self._stability,
        }[tier.family]
        return Linear(constant=self._base.tier(tier)).add_linear(builder(tier))

    def _members(self) -> list[tuple[Gang, Demand, int, Effect]]:
        """(gang, demand, its admit variable, effect) of every option."""
        found = [(g.gang, g.demand, g.admit, g.effect) for g in self._variables.gangs]
        found += [(s.gang, s.demand, s.admit, s.effect) for s in self._variables.stays]
        for group in self._variables.groups:
            found += [
                (gang, demand, admit, PLACED)
                for gang, demand, admit in zip(
                    group.gangs, group.demands, group.admits, strict=True
                )
            ]
        return found

    def _weighted(self, tier: Tier, worth: Callable[[Gang], int], *, aged: bool = False) -> Linear:
        """Sum of worth over admitted gangs of the tier's priority."""
        total = Linear()
        for gang, _, admit, effect in self._members():
            counts = effect.admitted and (not aged or self._instance.aged(gang))
            if gang.priority == tier.priority and counts:
                total.add(admit, worth(gang))
        return total

    def _waited(self, gang: Gang) -> int:
        return 0 if gang.running else gang.weight_gpus * self._instance.age(gang)

    def _aged(self, tier: Tier) -> Linear:
        return self._weighted(tier, lambda gang: gang.weight_gpus, aged=True)

    def _aged_waiting(self, tier: Tier) -> Linear:
        return self._weighted(tier, self._waited, aged=True)

    def _admission(self, tier: Tier) -> Linear:
        return self._weighted(tier, lambda gang: gang.weight_gpus)

    def _waiting(self, tier: Tier) -> Linear:
        return self._weighted(tier, self._waited)

    def _kept(self, tier: Tier) -> Linear:
        total = Linear()
        for gang, _, admit, effect in self._members():
            if gang.priority == tier.priority:
                total.add(admit, effect.kept)
        return total

    def _disruption(self, tier: Tier) -> Linear:
        """Without any option a gang is stopped, and all of it is lost: the base says so."""
        del tier
        total = Linear()
        for gang, demand, admit, effect in self._members():
            if gang.running:
                gone = effect.lost - standing_gpus(self._instance, demand.gang)
                total.add(admit, self._instance.harm(gang) * gone)
        return total

    def _growth(self, tier: Tier) -> Linear:
        total = Linear()
        for gang, demand, admit, effect in self._members():
            if gang.priority == tier.priority and gang.elastic and effect.admitted:
                above = sum(
                    (count - role.min) * role.gpus
                    for role, count in zip(gang.roles, demand.counts, strict=True)
                )
                total.add(admit, above)
        return total

    def _stability(self, tier: Tier) -> Linear:
        """Pods planned before that are elsewhere: all that are there, less those on the planned node."""
        del tier
        total = Linear()
        for gang, demand, admit, _ in self._members():
            if gang.planned:
                stays = {(p.role, p.index): p.node for p in demand.stays}
                comes = {(role.role, index) for role in demand.roles for index in role.indices}
                for pod in gang.planned:
                    key = (pod.role, pod.index)
                    if (key in stays or key in comes) and stays.get(key) != pod.node:
                        total.add(admit, gang.roles[pod.role].gpus)
        for owner in self._variables.gangs:
            total.add_linear(matched(self._program, self._pools, owner), -1)
        for group in self._variables.groups:
            total.add_linear(matched_alone(self._pools, group), -1)
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
        for stay, value in self._standing():
            total.add(stay.admit, value.preference)
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
        for stay, value in self._standing():
            if stay.admit in self._doubted:
                own = self._doubted[stay.admit].value
                total.add_linear(own, stay.gang.weight * stay.gang.weight_gpus)
            else:
                total.add(stay.admit, value.bandwidth)
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
        for stay, value in self._standing():
            total.add(stay.admit, value.span)
        return total

    def _standing(self) -> list[tuple[StayVariables, Standing]]:
        """What the tiers get of gangs that place nothing."""
        if self._stood is None:
            stander = Stander(self._instance)
            self._stood = [
                (stay, stander.value(stay.demand.gang, stay.demand.stays))
                for stay in self._variables.stays
                if stay.effect.admitted
            ]
        return self._stood

    def _stranded_tier(self) -> Linear:
        if self._stranded is None:
            self._stranded = unusable(self._program, self._instance, self._ground)
        return self._stranded
