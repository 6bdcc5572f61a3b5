"""The questions that ``explain`` asks about one gang of a plan, within a limit of time."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

from models.documents.answers import PlaceReasons, Why, WhyPod, WhyRemedy, WhyTier
from models.documents.plan import PlanDocument
from models.documents.policy import MAX_BUDGET, SolveLimits
from models.hardware import bits
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement, Reserved
from models.program.base_state import outcome
from models.queues.reservations import queue_place
from models.values.tier_values import Evaluation, tiers_of
from planner.search.budget import Budget
from planner.search.explain.alternatives import alternatives, first_difference
from planner.search.explain.remedies import RemedyFinder
from planner.search.explain.trial import Remedy
from planner.search.explain.world import TURNS_A_SEARCH, Replan, World, affordable
from planner.search.free_space import FreeSpace
from planner.search.solve import new_plan

MAX_REPLANS = 100
"""New plans that remedies are tried with at most."""

LEAST_S = 0.5
"""With less time left no new plan is begun."""


def world_of(
    plan: PlanDocument, instance: Instance, decisions: Sequence[GangDecision], gang: int
) -> World:
    """The plan as the questions see it: with its reservations, and a gang that it stops as one that waits."""
    reserved = tuple(_reserved(plan, instance))
    world = World(replace(instance, reserved=reserved), tuple(decisions), gang)
    if decisions[gang].decision == "preempt":
        return world.with_gang(replace(world.spec, pods=()))
    return world


def _reserved(plan: PlanDocument, instance: Instance) -> list[Reserved]:
    by_key = {gang.key: gang for gang in instance.gangs}
    nodes = {node.name: n for n, node in enumerate(instance.cluster.nodes)}
    found = []
    for stated in plan.spec.gangs:
        held = stated.reserved
        if held is None or stated.decision != "wait" or stated.key not in by_key:
            continue
        beside = tuple(tuple(name.split("/", 1)) for name in held.beside)
        there = tuple(sorted(nodes[name] for name in held.nodes if name in nodes))
        gang = by_key[stated.key]
        found.append(
            Reserved(stated.key, queue_place(instance, gang), held.start, None, there, (), beside)  # type: ignore[arg-type]  # pairs
        )
    return found


def sound(world: World) -> bool:
    """Whether the pods of the plan are there once each, and fit on their nodes."""
    pods = (
        (index, pod.role, pod.index)
        for index, one in enumerate(world.decisions)
        for pod in one.pods
    )
    if any(count > 1 for count in Counter(pods).values()):
        return False
    space = FreeSpace(world.instance, world.decisions)
    return all(space.is_valid(n) for n in range(len(space.by_node)))


def _budget(seconds: float, stop: threading.Event) -> Budget:
    """A budget of so many seconds on one worker, whose effort never ends it."""
    return Budget(SolveLimits(workers=1, budget=MAX_BUDGET), stop, seconds=seconds)


def why_waiting(world: World, seconds: int, stop: threading.Event) -> Why:
    """What makes the gang start, as far as so many seconds go; or where it fits beside the plan."""
    budget = _budget(seconds, stop)

    def late() -> bool:
        return stop.is_set() or budget.seconds_left() <= 0

    if world.spec.hold is not None:
        return Why.model_construct(limit_seconds=seconds, complete=True)
    pods = world.placement()
    if pods is not None:
        placed, tier = _pods(world, world.gang, pods), _first_tier(world, pods)
        return Why.model_construct(limit_seconds=seconds, complete=True, fits=placed, tier=tier)
    plans = affordable(world.instance)
    replan = Replan(
        partial(_new_plan, budget),
        MAX_REPLANS if plans >= 1 else 0,
        min(MAX_REPLANS, int(TURNS_A_SEARCH * plans)),
    )
    found = RemedyFinder(world, replan, late).remedies()
    remedies = tuple(_remedy(world, one) for one in found)
    return Why.model_construct(limit_seconds=seconds, complete=not late(), remedies=remedies)


def _new_plan(budget: Budget, instance: Instance) -> tuple[GangDecision, ...] | None:
    """The plan of another instance that one worker finds; None if too little time is left for it."""
    if budget.seconds_left() < LEAST_S or budget.stop.is_set():
        return None
    seconds = max(1, int(budget.seconds_left()))
    return new_plan(instance, budget.stop, seconds)[0]


def _remedy(world: World, one: Remedy) -> WhyRemedy:
    moved: tuple[WhyPod, ...] = ()
    if one.moved:
        keys = [gang.key for gang in one.world.instance.gangs]
        moved = _pods(one.world, keys.index(one.gangs[0]), one.moved)
    return WhyRemedy.of(
        one,
        type=one.kind,
        change=dict(one.change),
        gangs=tuple("/".join(key) for key in one.gangs),
        first=tuple("/".join(key) for key in one.first),
        pods=_pods(one.world, world.gang, one.pods),
        moved=moved,
    )


def _pods(world: World, gang: int, pods: Sequence[PodPlacement]) -> tuple[WhyPod, ...]:
    nodes, roles = world.instance.cluster.nodes, world.instance.gangs[gang].roles
    return tuple(
        WhyPod(
            role=roles[pod.role].name,
            index=pod.index,
            node=nodes[pod.node].name,
            gpus=None if pod.gpus is None else tuple(bits(pod.gpus)),
        )
        for pod in pods
    )


def _first_tier(world: World, pods: tuple[PodPlacement, ...]) -> WhyTier | None:
    """The first tier in which the plan differs if the gang has these pods, too."""
    decisions = list(world.decisions)
    decisions[world.gang] = outcome(world.instance, world.gang, pods)
    here, there = (
        Evaluation(world.instance, plan).vector() for plan in (world.decisions, decisions)
    )
    return first_difference(tiers_of(world.instance), here, there)


def why_there(world: World, seconds: int, stop: threading.Event) -> PlaceReasons | None:
    """Why the gang has its place and not another; None for a gang without pods."""
    budget = _budget(seconds, stop)
    return alternatives(world, lambda: stop.is_set() or budget.seconds_left() <= 0)
