"""Random tiny instances whose policy counts GPUs by the speed at which they run.

Promises: the instance of the same seed that ``tiny`` or ``busy`` draws with more of what makes placements
differ in speed, and with GPU generations, communication, services and goodput added; deterministic.
Called by the comparison with the exhaustive planner and by its sweep.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import replace
from fractions import Fraction

from tiny import tiny
from tiny_busy import busy
from tiny_counts import counted
from tiny_draws import Draws

from models.documents.cluster import DisruptionBudget
from models.documents.policy import Objective
from models.hardware import ServerModel
from models.instance.cluster import Cluster
from models.instance.gang import Gang
from models.instance.instance import Instance

UNEQUAL = ("mixed", "nics", "own_nics", "oversubscription", "starvation", "submitted")
"""Features drawn three times as often here."""

PEAKS = (125, 312, 500, 990)
"""relativeSpeed of GPU generations."""


def tiny_by_speed(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """The tiny instance of a seed, under goodput."""
    return _by_speed(tiny(seed, without, (*more, *UNEQUAL)), Draws(seed, without, more))


def busy_by_speed(seed: int, without: Collection[str] = (), more: Collection[str] = ()) -> Instance:
    """The busy instance of a seed, under goodput."""
    return _by_speed(busy(seed, without, (*more, *UNEQUAL)), Draws(seed, without, more))


def _by_speed(instance: Instance, draws: Draws) -> Instance:
    objectives = tuple(
        replace(one, name="goodput") if one.name == "admission" else one
        for one in instance.policy.objectives
    )
    if not any(one.name == "goodput" for one in objectives):
        objectives = (Objective("goodput"), *objectives)
    gangs = [
        _served(draws, _communicating(draws, gang))
        for gang in instance.gangs
        if not _finished(draws, gang)
    ]
    made = replace(
        instance,
        cluster=_generations(draws, _with_budgets(instance.cluster, gangs)),
        gangs=tuple(sorted(gangs, key=lambda gang: gang.key)),
        policy=replace(instance.policy, objectives=objectives),
    )
    return counted(made)


def _with_budgets(cluster: Cluster, gangs: Sequence[Gang]) -> Cluster:
    """The cluster with a disruption budget in each namespace where a pod names it."""
    allowed = {budget.name: budget.allowed for budget in cluster.budgets}
    keys = {(g.namespace, name) for g in gangs for pod in g.pods for name in pod.budgets}
    return replace(
        cluster, budgets=tuple(DisruptionBudget(*key, allowed[key[1]]) for key in sorted(keys))
    )


def _generations(draws: Draws, cluster: Cluster) -> Cluster:
    """The cluster with some servers of an older generation, and the speed of most models."""
    r = draws.random("generations")
    several, named = draws.on("generations", r, 0.8), r.random() < 0.7
    nodes = [
        replace(
            node, model=_timed(draws, node.model, old=r.random() < 0.5 and several, named=named)
        )
        if node.model
        else node
        for node in cluster.nodes
    ]
    return replace(cluster, nodes=tuple(nodes))


def _timed(draws: Draws, model: ServerModel, *, old: bool, named: bool) -> ServerModel:
    """A model with its speed, known or not; ``named``: the GPUs of old ones are called otherwise."""
    name = f"{model.name} old" if old else model.name
    gpu = f"{model.gpu} old" if old and named else model.gpu
    r = draws.random(f"peak/{name}")
    peak, unknown = Fraction(r.choice(PEAKS)), draws.on("unknown_speeds", r, 0.25)
    return replace(model, name=name, gpu=gpu, relative_speed=None if unknown else peak)


def _finished(draws: Draws, gang: Gang) -> bool:
    """Whether a running gang has gone; without room to choose from, speeds decide nothing."""
    return draws.on("finished", draws.random(f"finished/{gang.name}"), 0.5) and gang.running


def _communicating(draws: Draws, gang: Gang) -> Gang:
    """The gang with the part of a step that it communicates."""
    r = draws.random(f"speeds/{gang.name}")
    fraction = Fraction(r.choice((0, 25, 60, 95, 95)), 100)
    return replace(
        gang,
        fraction=fraction if draws.on("fractions", r, 0.8) else gang.fraction,
        counts_speed=not draws.on("speed_ignored", r, 0.15),
    )


def _served(draws: Draws, gang: Gang) -> Gang:
    """The gang, in most of some instances, as one of a service; most of them in one namespace."""
    r = draws.random(f"service/{gang.name}")
    service, namespace = r.choice(("chat", "chat", "search", None)), r.choice("aaaab")
    if not draws.on("services", draws.random("services"), 0.4) or service is None:
        return gang
    return replace(gang, service=service, namespace=namespace)
