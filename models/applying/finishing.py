"""The last look: whether what was started is there, bound, and alone on its GPUs; then the marks.

Promises: waits only for schedulers, and only so often; a gang that a rival broke is told with its pods.
Called by ``machine``.
"""

from __future__ import annotations

from collections.abc import Generator

from models.applying.asking import Event, Request
from models.applying.desk import Desk
from models.applying.judging import judged
from models.applying.recovering import mark
from models.applying.room import overfull
from models.applying.states import PodState
from models.applying.verdicts import Outcome


def finish(desk: Desk) -> Generator[Request, Event, None]:
    """Read again until all that was started is bound, or the rounds are over; judge; mark as whole."""
    if desk.limits.dry or not desk.squads:
        return
    yield from desk.look_around()
    for after_s in desk.limits.waits():
        if not any(
            desk.state(order) is PodState.ungated for squad in desk.squads for order in squad.pods
        ):
            break
        yield from desk.look_around(after_s)
    yield from settled(desk)


def settled(desk: Desk) -> Generator[Request, Event, None]:
    """Judge what was started in this run by what was just read, and mark what is whole."""
    full = overfull(desk.view, {order.node for squad in desk.squads for order in squad.pods})
    for squad in desk.squads:
        verdict = desk.record(judged(desk, squad, full))
        if verdict.outcome is Outcome.started:
            yield from mark(desk, squad)
