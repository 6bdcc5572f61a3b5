"""The last look: whether what was started is there, bound, and alone on its GPUs; then the marks.

Promises: waits only for schedulers, and only so often; a gang that a rival broke is told with its pods.
Called by ``machine``.
"""

from __future__ import annotations

from collections.abc import Generator
from dataclasses import replace

from models.applying.asking import Event, Request
from models.applying.desk import Desk, Failed, Squad
from models.applying.recovering import mark
from models.applying.room import overfull
from models.applying.starting import live, stuck, told
from models.applying.states import STARTED, PodState
from models.applying.verdicts import GangVerdict, Outcome


def finish(desk: Desk) -> Generator[Request, Event, None]:
    """Read again until all that was started is bound, or the rounds are over; judge; mark as whole."""
    if desk.limits.dry or not desk.squads:
        return
    yield from desk.look_around()
    for _ in range(desk.limits.wait_rounds):
        if not any(
            desk.state(order) is PodState.ungated for squad in desk.squads for order in squad.pods
        ):
            break
        yield from desk.look_around(desk.limits.tick_s)
    for squad in desk.squads:
        verdict = desk.record(_judged(desk, squad))
        if verdict.outcome in (Outcome.started, Outcome.pending):
            yield from mark(desk, squad)


def _judged(desk: Desk, squad: Squad) -> GangVerdict:
    missing = [order for order in squad.pods if desk.state(order) not in STARTED]
    if missing and not live(desk, squad):
        return replace(told(desk, squad), outcome=Outcome.skipped, why="its pods are gone again")
    if missing:
        why = f"pod {missing[0].name} is gone again, or bound to another node"
        return stuck(desk, squad, Failed(why))
    full = overfull(desk.view, {order.node for order in squad.pods if order.gpu_count})
    if full:
        return stuck(desk, squad, Failed(f"node {full[0]} has been given to others, too"))
    return told(desk, squad)
