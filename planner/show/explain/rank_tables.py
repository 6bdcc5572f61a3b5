"""What the groups of a gang's ranks get, and which pods have which ranks, for ``explain``."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby

from models.documents.gang import Parallelism
from models.documents.plan import PlanGang, PlanPod
from models.instance.gang import Role
from models.rates.gang_rates import own_sets
from models.rates.gpu_sets import UnknownRate
from models.rates.group_bandwidth import GroupRates, Place
from models.rates.ranks import placed_kinds
from models.values.tier_values import known_masks
from planner.show.explain.explanation import Explanation
from planner.show.table import Cell
from planner.show.text import gigabytes

MAX_RUNS = 12
"""Nodes in a row that are listed with the ranks on them."""


def degrees_text(degrees: Parallelism) -> str:
    """``tensor 8, pipeline 2``: what it states beyond 1."""
    names = ("tensor", "context", "expert", "data", "pipeline")
    stated = [(name, getattr(degrees, name)) for name in names]
    return ", ".join(f"{name} {value}" for name, value in stated if (value or 1) > 1)


def rank_rows(found: Explanation, stated: PlanGang) -> Iterator[tuple[str, Cell]]:
    """One row for the groups and one for the ranks of each role that has them."""
    several = sum(1 for role in found.gang.roles if role.gpus) > 1
    for number, role in enumerate(found.gang.roles):
        pods = [pod for pod in stated.pods if pod.role == role.name and pod.rank is not None]
        pods.sort(key=lambda pod: pod.rank or 0)
        if not pods:
            continue
        prefix = f"{role.name}: " if several else ""
        groups = _groups(found, number, pods)
        if groups:
            yield "groups", Cell(prefix + groups)
        yield "ranks", Cell(prefix + _ranks(role, pods))


def _groups(found: Explanation, number: int, pods: list[PlanPod]) -> str:
    """``tensor 8 at 370.8 GB/s, data 2 at 50.0 GB/s``: size and rate of every kind of group."""
    instance, gang = found.instance, found.gang
    by_index = {pod.index: pod for pod in found.decision.pods if pod.role == number}
    own = [by_index[pod.index] for pod in pods if pod.index in by_index]
    sets = own_sets(instance, gang, own, known_masks(instance, found.decisions))
    kinds = placed_kinds(gang, number, own, sets)
    if kinds is None:
        return ""
    places = [Place.of(pod.node, pod.gpus) for pod in own]
    gpus, joined = gang.roles[number].gpus, gang.nvlink_across_nodes
    rates = GroupRates(instance.cluster, places, sets, kinds, gpus, joined=joined)
    try:
        found_rates = rates.rates(range(len(own)))
    except UnknownRate:
        return ""
    pairs = zip(kinds, found_rates, strict=True)
    return ", ".join(
        f"{kind.name} {kind.size} at {gigabytes(int(rate))} GB/s" for kind, rate in pairs
    )


def _ranks(role: Role, pods: list[PlanPod]) -> str:
    """``0-15 n1, 16-31 n2``: the ranks on each node in turn, in order."""
    runs = []
    for node, there in groupby(pods, key=lambda pod: pod.node):
        ranks = [pod.rank or 0 for pod in there]
        first, last = ranks[0], ranks[-1] + role.gpus - 1
        runs.append(f"{node} {first}-{last}" if last > first else f"{node} {first}")
    more = f", and {len(runs) - MAX_RUNS:,} more" if len(runs) > MAX_RUNS else ""
    return ", ".join(runs[:MAX_RUNS]) + more
