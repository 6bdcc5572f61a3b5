"""The pipeline of ``drain-order``: read, choose the nodes, find the waves, compose the document."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from models.documents.base import API_VERSION
from models.documents.drain_order import (
    DrainedGang,
    DrainOrderDocument,
    DrainQuestion,
    DrainStatus,
    DrainWave,
)
from models.documents.plan import PlanMetadata
from models.units import epoch_seconds, first_of, plural, shown
from planner import __version__
from planner.errors import Fault, UsageError
from planner.pipelines.what_if import nodes_named
from planner.search.drain_order import Restart, Wave, drain_order, end_of, gpus_of, stoppable

if TYPE_CHECKING:
    from models.instance.instance import Instance

DEFAULT_SHARE = 10
"""Without ``--at-most`` one node of so many is out at once, rounded up."""

_SHOWN = 3
"""Names in a note; the rest are counted."""


def drain_order_document(
    instance: Instance, named: Sequence[str], at_most: int | None, created_at: str
) -> DrainOrderDocument:
    """The order of these nodes and host ranges; of every node that the policy selects where none is named.

    Raises UsageError for a node that is not there.
    """
    nodes = nodes_named(named, instance, "--node") if named else _selected(instance)
    if not nodes:
        raise UsageError(Fault("there is no node to drain", "the policy selects none; name some"))
    most = at_most or -(-len(nodes) // DEFAULT_SHARE)
    waves = drain_order(instance, nodes, most)
    restarts = [one for wave in waves for one in wave.restarts]
    names = [node.name for node in instance.cluster.nodes]
    later = [one for one in restarts if not one.at_once]
    return DrainOrderDocument.model_construct(
        api_version=API_VERSION,
        kind="DrainOrder",
        metadata=PlanMetadata.model_construct(
            name=f"{instance.cluster.name}-drain-order",
            created_at=epoch_seconds(created_at),
            generator=f"gangplan {__version__}",
        ),
        spec=DrainQuestion.model_construct(
            nodes=tuple(sorted(names[n] for n in nodes)), at_most=most
        ),
        status=DrainStatus.model_construct(
            waves=tuple(_wave(instance, wave, names) for wave in waves),
            interrupted=len(restarts),
            interrupted_gpus=instance.in_gpus(sum(gpus_of(instance, one.gang) for one in restarts)),
            waiting_gpus=instance.in_gpus(sum(gpus_of(instance, one.gang) for one in later)),
            notes=tuple(_notes(instance, waves, most)),
        ),
    )


def _selected(instance: Instance) -> set[int]:
    nodes = instance.cluster.nodes
    return {n for n, node in enumerate(nodes) if node.gpus and instance.ours(node)}


def _wave(instance: Instance, wave: Wave, names: Sequence[str]) -> DrainWave:
    gangs = tuple(_gang(instance, one, names) for one in wave.restarts)
    return DrainWave.model_construct(nodes=tuple(sorted(names[n] for n in wave.nodes)), gangs=gangs)


def _gang(instance: Instance, one: Restart, names: Sequence[str]) -> DrainedGang:
    gang = instance.gangs[one.gang]
    return DrainedGang.model_construct(
        namespace=gang.namespace,
        name=gang.name,
        gpus=instance.in_gpus(gpus_of(instance, one.gang)),
        stoppable=stoppable(instance, one.gang),
        expected_end=end_of(instance, one.gang),
        restarts="atOnce" if one.at_once else "afterWave",
        nodes=tuple(sorted(names[n] for n in one.nodes)),
    )


def _notes(instance: Instance, waves: Sequence[Wave], at_most: int) -> Iterator[str]:
    """What an administrator has to know before the first drain."""
    large = [number for number, wave in enumerate(waves, 1) if len(wave.nodes) > at_most]
    if large:
        waves_named = first_of([str(number) for number in large], _SHOWN)
        yield f"gangs join more than {plural(at_most, 'node')} to each other: wave {waves_named}"
    fixed = [
        "/".join(instance.gangs[one.gang].key)
        for wave in waves
        for one in wave.restarts
        if not stoppable(instance, one.gang)
    ]
    if fixed:
        yield (
            f"{plural(len(fixed), 'gang')} neither preemptible nor movable: a drain ends the run; wait for"
            f" its end, or ask: {first_of(fixed, _SHOWN)}"
        )
    yield from _budget_notes(instance, waves)
    waiting = sum(not gang.running and gang.hold is None for gang in instance.gangs)
    if waiting:
        yield f"{plural(waiting, 'gang')} that wait are left out: start none on nodes that are still to drain"


def _budget_notes(instance: Instance, waves: Sequence[Wave]) -> Iterator[str]:
    """Disruption budgets that refuse some of the evictions of a wave."""
    for budget in instance.cluster.budgets:
        leaving = Counter(
            number
            for number, wave in enumerate(waves, 1)
            for one in wave.restarts
            if instance.gangs[one.gang].namespace == budget.namespace
            for pod in instance.gangs[one.gang].running_pods
            if budget.name in pod.budgets
        )
        over = [str(number) for number, count in sorted(leaving.items()) if count > budget.allowed]
        if over:
            yield (
                f"the disruption budget {shown('/'.join(budget.key))} allows"
                f" {plural(budget.allowed, 'eviction')}: kubectl drain waits in wave {first_of(over, _SHOWN)}"
            )
