"""Requests that go together: what is sent is what each alone would send, and each gets its own answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

import pytest
from apply_world import World, gang, order_for, orders
from test_apply_sending import INTENT, ORDER, POD, Script, sender, told

from models.apply.outcomes import ApplyLimits, Outcome
from models.apply.requests import (
    CheckLock,
    Conflict,
    Done,
    Event,
    EventGroup,
    NoAnswer,
    Rejected,
    Request,
    RequestGroup,
    Ungate,
    WriteIntent,
)
from models.apply.state_machine import apply_plan
from planner.cluster.transport import LOST, ApiRequest, Reply

OTHER = replace(ORDER, name="vit-1", uid="u-2")
BOTH = (WriteIntent(ORDER, INTENT, "7"), WriteIntent(OTHER, INTENT, "9"))


@dataclass(slots=True)
class Ahead(Script):
    """Answers several at once, with ``replies`` in turn."""

    replies: list[Reply] = field(default_factory=list)
    groups: list[int] = field(default_factory=list)

    def send_all(self, asked: Sequence[ApiRequest]) -> list[Reply]:
        self.groups.append(len(asked))
        self.sent += [(one.method, one.path, one.body, one.content_type) for one in asked]
        return self.replies[: len(asked)]


def test_each_is_sent_as_it_would_be_alone() -> None:
    alone = Script()
    made = sender(alone)
    for request in BOTH:
        made.answer(request)
    wire = Ahead(replies=[Reply(200, POD)] * 2)
    sender(wire).answer(RequestGroup(BOTH))
    assert wire.sent == alone.sent
    assert wire.groups == [2]


def test_each_gets_its_own_answer() -> None:
    after = {**POD, "metadata": {**POD["metadata"], "resourceVersion": "8"}}
    wire = Ahead(replies=[Reply(200, after), told(409), Reply(LOST), told(422)])
    requests = (*BOTH, *BOTH)
    event = sender(wire).answer(RequestGroup(requests))
    assert isinstance(event, EventGroup)
    done, *others = event.events
    assert isinstance(done, Done)
    assert done.pod is not None
    assert done.pod.version == "8"
    assert [type(one) for one in others] == [Conflict, NoAnswer, Rejected]


def test_a_dry_run_writes_nothing_and_shows_no_pod() -> None:
    wire = Ahead(replies=[Reply(200, POD)] * 2)
    assert sender(wire, dry=True).answer(RequestGroup(BOTH)) == EventGroup((Done(), Done()))
    assert all(path.endswith("&dryRun=All") for _, path, _, _ in wire.sent)


def test_a_name_that_is_none_spoils_no_other() -> None:
    odd = WriteIntent(replace(ORDER, name=".."), INTENT, "7")
    wire = Ahead(replies=[Reply(200, POD)])
    event = sender(wire).answer(RequestGroup((odd, BOTH[0])))
    assert isinstance(event, EventGroup)
    assert [type(one) for one in event.events] == [Rejected, Done]
    assert [path.partition("?")[0] for _, path, _, _ in wire.sent] == [
        "/api/v1/namespaces/team/pods/vit-0"
    ]


# ---- what the machine asks for together


def run(world: World, size: int) -> tuple[list[Request], Outcome]:
    """Everything it asks for a gang of so many pods; the verdict."""
    for number in range(-(-size // 8)):
        world.node(f"n{number}")
    starts = [order_for(world.pod(f"big-{n}"), f"n{n // 8}", [n % 8]) for n in range(size)]
    machine = apply_plan(
        orders(world, gang("big", starts)), world.view(), ApplyLimits(backend="dra")
    )
    asked: list[Request] = []
    event: Event
    try:
        request = next(machine)
        while True:
            asked.append(request)
            if isinstance(request, RequestGroup):
                event = EventGroup(tuple(map(world.answer, request.requests)))
            else:
                event = world.answer(request)
            request = machine.send(event)
    except StopIteration as ended:
        (verdict,) = ended.value.gangs
        return asked, verdict.outcome


@pytest.mark.parametrize(("size", "groups"), [(1, []), (2, [2]), (16, [16]), (40, [16, 16, 8])])
def test_intents_of_a_gang_go_together_and_its_starts_one_by_one(
    size: int, groups: list[int]
) -> None:
    asked, outcome = run(World(backend="dra"), size)
    assert outcome is Outcome.started
    several = [one.requests for one in asked if isinstance(one, RequestGroup)]
    intents = [
        len(some)
        for some in several
        if all(isinstance(one, WriteIntent) and not one.intent.whole for one in some)
    ]
    assert intents == groups
    assert not any(isinstance(one, Ungate) for some in several for one in some)
    assert sum(type(one).__name__ == "Ungate" for one in asked) == size


def test_the_lock_is_looked_at_every_sixteen_writes_however_they_are_sent() -> None:
    asked, _ = run(World(backend="dra"), 40)
    writes = 0
    for request in asked:
        if isinstance(request, CheckLock):
            writes = 0
        elif isinstance(request, RequestGroup):
            writes += sum(isinstance(one, WriteIntent) for one in request.requests)
        elif type(request).__name__ in {"WriteIntent", "Ungate", "AllocateDevices"}:
            writes += 1
        assert writes <= 16
