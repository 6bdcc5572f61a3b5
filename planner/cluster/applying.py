"""The machine's requests carried out one after the other, until its verdict.

Promises: nothing but what the machine asks for, in its order. Called by ``planner.live.applying``.
"""

from __future__ import annotations

from collections.abc import Callable, Generator

from models.applying.asking import Answers, Event, Request, Several
from models.applying.verdicts import Verdict
from planner.cluster.sending import Carrier

Machine = Generator[Request, Event, Verdict]
Tell = Callable[[Request, Event], None]
"""Hears of every request once it is answered."""


def carried(machine: Machine, carrier: Carrier, tell: Tell) -> Verdict:
    """Carry out everything the machine asks for; its last word."""
    try:
        request = next(machine)
        while True:
            event = carrier.answer(request)
            if isinstance(request, Several) and isinstance(event, Answers):
                for one, answer in zip(request.requests, event.events, strict=True):
                    tell(one, answer)
            else:
                tell(request, event)
            request = machine.send(event)
    except StopIteration as ended:
        verdict: Verdict = ended.value
        return verdict
