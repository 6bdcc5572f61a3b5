"""Requests that go together: what is sent is what each alone would send, and each gets its own answer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from test_apply_sending import INTENT, ORDER, POD, Script, sender, told

from models.apply.requests import (
    Conflict,
    Done,
    EventGroup,
    NoAnswer,
    Rejected,
    RequestGroup,
    WriteIntent,
)
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
