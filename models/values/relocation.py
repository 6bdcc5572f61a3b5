"""Moves of a plan: which of them belong together, and what each set of them gains."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from models.instance.instance import Instance
from models.instance.occupancy import PODS, Room, free_after, pods_after, rooms
from models.instance.solution import GangDecision, MoveSet
from models.values.effective_gpus import effective_after
from models.values.leftover import whole_domains, whole_nodes
from models.values.tier_values import Evaluation, admitted

MOVES_UNPROVEN = (
    "moves are measured against the best plan found without them, which is not proven optimal"
)


@dataclass(frozen=True, slots=True)
class PlanWorth:
    """``admitted``: indices of the gangs that run whole. ``gpus``: their GPUs at ``min``.

    ``effective``: under goodput their effective GPUs (permille-GPU); None under admission.
    ``bandwidth``: w x share of those that count in the bandwidth tier, whatever their weight, in
    permille-GPU. ``whole_nodes``: nodes whose free GPUs are as many as the largest node of their GPU
    model has; ``whole_gpus``: the GPUs of these. ``whole_domains``: domains of the innermost level with
    two or more nodes with GPUs, all of them whole.
    """

    admitted: frozenset[int]
    gpus: int
    bandwidth: int
    whole_nodes: int
    whole_gpus: int
    whole_domains: int
    effective: int | None = None


def plan_worth(instance: Instance, decisions: Sequence[GangDecision]) -> PlanWorth:
    """The worth of one plan. ``decisions``: one for each gang."""
    evaluation = Evaluation(instance, decisions)
    values = evaluation.values
    runs = [i for i, decision in enumerate(decisions) if admitted(instance, i, decision)]
    bandwidth = 0
    for index in runs:
        gang, value = instance.gangs[index], values[index]
        if value is not None and value.share is not None and gang.pattern != "none":
            bandwidth += gang.weight_gpus * value.share
    whole = wholly_free(instance, decisions)
    return PlanWorth(
        admitted=frozenset(runs),
        gpus=sum(instance.gangs[index].least_units for index in runs),
        bandwidth=bandwidth,
        whole_nodes=len(whole),
        whole_gpus=sum(whole.values()),
        whole_domains=len(whole_domains(instance, whole)),
        effective=effective_after(evaluation) if instance.by_speed else None,
    )


def wholly_free(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, int]:
    """Nodes that are wholly free after the plan, with their GPUs."""
    return whole_nodes(instance, free_after(instance, pods_after(instance, decisions)))


def move_set(
    instance: Instance, gangs: Sequence[int], plan: PlanWorth, without: PlanWorth
) -> MoveSet:
    """The moves of ``gangs``, and what ``plan`` has beyond ``without``, the best plan without them.

    Gangs that hold no GPU count as one GPU moved in the gain.
    """
    unit = instance.gpu_unit
    moved = sum(instance.gangs[g].units_of(instance.gangs[g].running_pods) for g in gangs)
    gpus = plan.gpus - without.gpus
    effective = None
    if plan.effective is not None and without.effective is not None:
        effective = plan.effective - without.effective
    run = 1000 * gpus if effective is None else effective
    bandwidth = plan.bandwidth - without.bandwidth
    freed = unit * (plan.whole_gpus - without.whole_gpus)
    return MoveSet(
        gangs=tuple(sorted(gangs)),
        moved_gpus=moved,
        admitted=tuple(sorted(plan.admitted - without.admitted)),
        gpus=gpus,
        bandwidth=bandwidth,
        whole_nodes=plan.whole_nodes - without.whole_nodes,
        whole_domains=plan.whole_domains - without.whole_domains,
        gain=(run + 1000 * freed + bandwidth) // (moved or unit),
        effective=effective,
    )


GPUS = "GPUs"
"""Key of GPUs among the resources of a node; no resource has this name."""


@dataclass(slots=True)
class _Traffic:
    """Pods that leave and come to one node: resources and masks of known GPUs by gang.

    Departures are those of gangs that move; arrivals those of all gangs.
    """

    departures: dict[int, dict[str, int]] = field(default_factory=dict)
    arrivals: dict[int, dict[str, int]] = field(default_factory=dict)
    departing_gpus: dict[int, int] = field(default_factory=dict)
    arriving_gpus: dict[int, int] = field(default_factory=dict)


def move_sets(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[tuple[int, ...], ...]:
    """Sets of moving gangs that do not depend on one another. ``decisions``: one for each gang.

    Gangs belong together if they leave one node; if one comes to a node that would be too full without
    the departure of the other; if, on a server without a switch, one takes a GPU that the other left; or
    if they leave one innermost domain that is wholly free after the plan.
    """
    movers = [i for i, decision in enumerate(decisions) if decision.decision == "move"]
    if not movers:
        return ()
    traffic = _traffic(instance, decisions)
    left = rooms(instance, decisions)
    links = _DisjointSets(len(decisions))
    for node in sorted(traffic):
        here = traffic[node]
        if here.departures:
            links.join(here.departures)
            links.join((*sorted(here.departures)[:1], *_dependent_arrivals(here, left[node])))
            model = instance.cluster.nodes[node].model
            if model is not None and not model.switched:
                for gang, gpus in sorted(here.departing_gpus.items()):
                    takers = sorted(here.arriving_gpus.items())
                    links.join((gang, *(taker for taker, taken in takers if taken & gpus)))
    for nodes in whole_domains(instance, wholly_free(instance, decisions)):
        links.join(gang for n in nodes if n in traffic for gang in sorted(traffic[n].departures))
    sets: dict[int, list[int]] = {}
    for gang in movers:
        sets.setdefault(links.root(gang), []).append(gang)
    return tuple(tuple(gangs) for gangs in sets.values())


def _traffic(instance: Instance, decisions: Sequence[GangDecision]) -> dict[int, _Traffic]:
    """Every node that pods leave or come to. A pod that stays on its node changes only its GPUs."""
    found: dict[int, _Traffic] = {}
    for index, (gang, decision) in enumerate(zip(instance.gangs, decisions, strict=True)):
        before = {(p.role, p.index): (p.node, p.gpus) for p in gang.running_pods}
        after = {(p.role, p.index): (p.node, p.gpus) for p in decision.pods}
        for key in sorted(before.keys() | after.keys()):
            old, new = before.get(key), after.get(key)
            role = gang.roles[key[0]]
            if old == new:
                continue
            stays = old is not None and new is not None and old[0] == new[0]
            resources = {} if stays else {PODS: 1, **dict(role.requests)}
            resources[GPUS] = role.gpus
            if old is not None and decision.decision == "move":
                assert old[0] is not None
                here = found.setdefault(old[0], _Traffic())
                _add(here.departures, here.departing_gpus, index, resources, old[1])
            if new is not None:
                assert new[0] is not None
                here = found.setdefault(new[0], _Traffic())
                _add(here.arrivals, here.arriving_gpus, index, resources, new[1])
    return found


def _add(
    by_gang: dict[int, dict[str, int]],
    masks: dict[int, int],
    gang: int,
    resources: dict[str, int],
    gpus: int | None,
) -> None:
    amounts = by_gang.setdefault(gang, {})
    for resource, amount in resources.items():
        amounts[resource] = amounts.get(resource, 0) + amount
    masks[gang] = masks.get(gang, 0) | (gpus or 0)


def _dependent_arrivals(here: _Traffic, after: Room) -> list[int]:
    """Gangs that come to the node and would not all fit without what left it."""
    over = {GPUS: after.mask.bit_count() - after.unknown, **dict(after.left)}
    used = set()
    for resource, rest in over.items():
        vacated = sum(amounts.get(resource, 0) for amounts in here.departures.values())
        if rest < vacated:
            used.add(resource)
    return [
        gang
        for gang, amounts in sorted(here.arrivals.items())
        if any(amounts.get(resource) for resource in used)
    ]


class _DisjointSets:
    """Disjoint sets of gangs by index."""

    def __init__(self, count: int) -> None:
        self._above = list(range(count))

    def root(self, gang: int) -> int:
        while self._above[gang] != gang:
            self._above[gang] = self._above[self._above[gang]]
            gang = self._above[gang]
        return gang

    def join(self, gangs: Iterable[int]) -> None:
        """Put all of them into one set; the smallest index is its root."""
        roots = sorted({self.root(gang) for gang in gangs})
        for root in roots[1:]:
            self._above[root] = roots[0]
