"""Gangs that start side by side: their requests are on their way together, over several connections.

At most LANES gangs are begun and unfinished at any request, so a crash leaves no more of them half-way. The
order of the requests depends on the gangs and on the answers alone.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

from models.apply.plan_actions import PodStart
from models.apply.requests import (
    Event,
    EventGroup,
    RequestGroup,
    Single,
    Steps,
    Ungate,
    WriteIntent,
)
from models.apply.session import LOCK_CHECK_EVERY, ApplySession, Halted

LANES = 8
"""Gangs under way at once, at most."""


@dataclass(slots=True, eq=False)
class _Lane:
    """One gang under way. ``waiting``: what it sends with the next group; None until it has begun."""

    pods: tuple[PodStart, ...]
    steps: Steps[Any]
    waiting: Single | None = None


@dataclass(slots=True)
class Lanes:
    """``halted``: why no other gang may begin."""

    session: ApplySession
    halted: Halted | None = None
    _lanes: list[_Lane] = field(default_factory=list)
    _sent: int = 0

    @property
    def empty(self) -> bool:
        return not self._lanes

    @property
    def pods(self) -> Iterable[PodStart]:
        """All pods of the gangs under way: their room is taken, started or not."""
        return (pod for lane in self._lanes for pod in lane.pods)

    def free_one(self) -> Steps[None]:
        """Wait until another gang may begin. Raises Halted if none may."""
        while len(self._lanes) >= LANES:
            yield from self._send_next()
        if self.halted is not None:
            yield from self.finish()

    def add(self, pods: tuple[PodStart, ...], steps: Steps[Any]) -> Steps[None]:
        """Begin a gang, after ``free_one``."""
        lane = _Lane(pods, steps)
        self._lanes.append(lane)
        yield from self._go_on(lane, None)

    def finish(self) -> Steps[None]:
        """Wait until no gang is under way. Raises Halted if one was."""
        while self._lanes:
            yield from self._send_next()
        if self.halted is not None:
            raise self.halted

    def end(self, halted: Halted) -> Steps[None]:
        """Halt: after a signal the gangs that have begun are finished, else all stop here."""
        self._halt(halted)
        yield from self.finish()

    def _send_next(self) -> Steps[None]:
        """Send what all wait for; then let each go on with its answer."""
        going = list(self._lanes)
        yield from self._check_lock(len(going))
        if not self._lanes:
            return
        answers = yield from _together([one.waiting for one in going if one.waiting is not None])
        for lane, answer in zip(going, answers, strict=True):
            if lane in self._lanes:
                yield from self._go_on(lane, answer)

    def _check_lock(self, ahead: int) -> Steps[None]:
        """Check the lock every LOCK_CHECK_EVERY requests; a gang alone does that itself."""
        self._sent += ahead
        if self._sent <= LOCK_CHECK_EVERY or self.session.stopping or len(self._lanes) < 2:
            return
        self._sent = ahead
        try:
            yield from self.session.check_lock()
        except Halted as halted:
            self._halt(halted)

    def _go_on(self, lane: _Lane, event: Event | None) -> Steps[None]:
        """Let a gang go on until its next request that may go with those of others."""
        try:
            request = next(lane.steps) if event is None else lane.steps.send(event)
            while not isinstance(request, WriteIntent | Ungate):
                request = lane.steps.send((yield request))
        except StopIteration:
            self._lanes.remove(lane)
        except Halted as halted:
            self._lanes.remove(lane)
            self._halt(halted)
        else:
            lane.waiting = request

    def _halt(self, halted: Halted) -> None:
        self.halted = self.halted or halted
        if self.session.stopping:
            return  # each of the others sees at its next step whether it may go on
        for lane in self._lanes:
            with contextlib.suppress(Halted):
                lane.steps.throw(halted)  # it records how far it is
        self._lanes = []


def _together(requests: list[Single]) -> Steps[tuple[Event, ...]]:
    """Their events, in order."""
    if len(requests) == 1:
        return ((yield requests[0]),)
    answer = yield RequestGroup(tuple(requests))
    return answer.events if isinstance(answer, EventGroup) else (answer,) * len(requests)
