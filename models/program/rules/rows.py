"""The rows of the program: every rule that has some, in the order in which they are added."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from models.gang import Gang
from models.instance import Instance
from models.occupancy import Room
from models.program.base_state import PlacementRequests
from models.program.linear_program import Program
from models.program.regions import RegionSet
from models.program.rules import admission, bandwidth, gpus, resources, running, slices
from models.program.rules.bandwidth import Claims
from models.program.rules.bandwidth_carriers import CaseVariables
from models.program.rules.topology import Topology
from models.program.variables import GangVariables, PodPool, Variables


@dataclass
class Model:
    """A program under construction, as the rules see it.

    ``moved``: gangs and GPUs that move besides the choices of the program. ``aggregated``: pods of many
    gangs are pooled, and bandwidth matters only where a gang must have some. ``domains``: whether
    anything but a required domain depends on which domains a gang uses. ``ordered``: identical gangs
    that are pooled, with their admit variables.
    """

    program: Program
    instance: Instance
    requests: PlacementRequests
    rooms: Sequence[Room]
    pools: RegionSet
    variables: Variables
    moved: tuple[int, int] = (0, 0)
    aggregated: bool = False
    domains: bool = True
    pod_pools: Sequence[PodPool] = ()
    ordered: Sequence[list[tuple[Gang, int]]] = ()
    topologies: list[Topology] = field(default_factory=list)
    claims: list[Claims] = field(default_factory=list)

    @cached_property
    def cases(self) -> CaseVariables:
        """By node, the cases of a server whose GPU sets depend on who stays."""
        flows = zip(self.pools.regions, self.variables.flows, strict=True)
        return {region.nodes[0]: flow.cases for region, flow in flows if flow.cases}


@dataclass(frozen=True, slots=True)
class Rule:
    """``rows``: added once. ``gang_rows``: added for every gang that has variables of its own."""

    name: str
    rows: Callable[[Model], None] | None = None
    gang_rows: Callable[[Model, GangVariables, Topology], None] | None = None


def _gpus(model: Model) -> None:
    pooled = [pool.pieces for pool in model.pod_pools]
    gpus.add(model.program, model.variables, model.pools, pooled)


def _resources(model: Model) -> None:
    resources.add(model.program, model.variables, model.pools, model.rooms, model.pod_pools)


def _running(model: Model) -> None:
    pooled = [(pool.priority, pool.pieces) for pool in model.pod_pools]
    running.add(
        model.program,
        model.instance,
        model.requests,
        model.variables,
        model.pools,
        moved=model.moved,
        pooled=pooled,
    )


def _pooled_order(model: Model) -> None:
    for members in model.ordered:
        admission.in_order(model.program, model.instance, members)


def _slices(model: Model, gang: GangVariables, topology: Topology) -> None:
    slices.add(model.program, model.instance, model.pools, gang, topology)


def _models(model: Model, gang: GangVariables, topology: Topology) -> None:
    del topology
    admission.one_model(model.program, model.pools, gang)


def _claims(model: Model, gang: GangVariables, topology: Topology) -> None:
    if not model.aggregated:
        cases = model.cases
        claims = Claims(model.program, model.instance, model.pools, gang, topology, cases)
        model.claims.append(claims)
    elif model.instance.min_share(gang.gang):
        Claims(model.program, model.instance, model.pools, gang, topology)


def _least_bandwidth(model: Model) -> None:
    bandwidth.forbid_slow_pieces(model.program, model.instance, model.pools, model.variables)


RULES: tuple[Rule, ...] = (
    Rule("gpus", rows=_gpus),
    Rule("resources", rows=_resources),
    Rule(
        "admission",
        rows=lambda model: admission.add(model.program, model.instance, model.variables),
    ),
    Rule("running", rows=_running),
    Rule("order of pooled gangs", rows=_pooled_order),
    Rule("slices", gang_rows=_slices),
    Rule("models", gang_rows=_models),
    Rule("bandwidth", rows=_least_bandwidth, gang_rows=_claims),
)


def add_rows(model: Model) -> None:
    """The rows of every rule; topology's own, required domains, come first for each gang."""
    for rule in RULES:
        if rule.rows is not None:
            rule.rows(model)
    for gang in model.variables.gangs:
        topology = Topology(
            model.program, model.instance, model.pools, model.rooms, gang, lean=not model.domains
        )
        model.topologies.append(topology)
        for rule in RULES:
            if rule.gang_rows is not None:
                rule.gang_rows(model, gang, topology)
