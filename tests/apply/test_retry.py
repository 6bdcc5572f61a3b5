"""Patience: what is asked again, how often and after which pauses; and what never is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from planner.cluster.retry import (
    LAST_RETRY_S,
    MAX_RETRY_AFTER_S,
    Failure,
    RetryingTransport,
    failure_of,
)
from planner.cluster.transport import JSON, LOST, STRATEGIC, ApiRequest, Reply

PATH = "/api/v1/namespaces/a/pods/b"
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"
OK = Reply(200, {"kind": "Pod"})
WAITS = (0.5, 1.0, 2.0)

BUDGET = Reply(
    429,
    {
        "kind": "Status",
        "reason": "TooManyRequests",
        "details": {"causes": [{"reason": "DisruptionBudget", "message": "needs 2 healthy pods"}]},
    },
    retry_after_s=10.0,
)


@dataclass
class Scripted:
    """Answers as told, then with 200; time passes only while somebody sleeps, or as a request says."""

    replies: list[Reply]
    takes_s: float = 0.0
    sent: list[tuple[str, str, Any, str]] = field(default_factory=list)
    slept: list[float] = field(default_factory=list)
    now: float = 0.0

    def send(self, method: str, path: str, body: Any = None, *, content_type: str = JSON) -> Reply:  # noqa: ANN401
        self.sent.append((method, path, body, content_type))
        self.now += self.takes_s
        return self.replies[len(self.sent) - 1] if len(self.sent) <= len(self.replies) else OK

    def sleep(self, seconds: float) -> None:
        self.slept.append(seconds)
        self.now += seconds


def patient(*replies: Reply, takes_s: float = 0.0) -> tuple[RetryingTransport, Scripted]:
    wire = Scripted(list(replies), takes_s)
    return RetryingTransport(wire, WAITS, wire.sleep, lambda: wire.now), wire


def test_a_read_is_asked_again_after_what_may_pass_and_not_for_ever() -> None:
    for status in (LOST, 500, 502, 503, 504, 429):
        wire, inner = patient(*[Reply(status)] * 3)
        assert wire.send("GET", PATH) == OK, status
        assert (inner.slept, wire.retries) == ([0.5, 1.0, 2.0], 3)
    wire, inner = patient(*[Reply(503, why=str(n)) for n in range(9)])
    assert wire.send("GET", PATH).why == "3"
    assert len(inner.sent) == 4


def test_no_retry_starts_later_than_ninety_seconds_after_the_first_try() -> None:
    for takes_s, sent in ((LAST_RETRY_S - 0.5, 2), (LAST_RETRY_S - 0.4, 1)):
        wire, inner = patient(*[Reply(503)] * 9, takes_s=takes_s)
        wire.send("GET", PATH)
        assert len(inner.sent) == sent


def test_what_is_an_answer_or_may_have_been_done_is_not_sent_again() -> None:
    answers = [("GET", s) for s in (200, 201, 301, 400, 403, 404, 409, 410, 422)]
    for method in ("POST", "PUT", "PATCH"):
        answers += [(method, s) for s in (200, 301, 400, 403, 404, 409, 422, LOST, 500, 503, 504)]
    for method, status in answers:
        wire, inner = patient(Reply(status))
        assert wire.send(method, PATH, {}).status == status
        assert (len(inner.sent), inner.slept) == (1, []), (method, status)


def test_a_write_that_a_busy_server_turned_away_is_sent_again_whole() -> None:
    wire, inner = patient(Reply(429, retry_after_s=3.0))
    assert wire.send("PATCH", PATH, {"a": 1}, content_type="x/y") == OK
    assert inner.sent == [("PATCH", PATH, {"a": 1}, "x/y")] * 2
    assert inner.slept == [3.0]


def test_the_pause_a_server_asks_for_is_kept_up_to_a_limit() -> None:
    wire, inner = patient(Reply(429, retry_after_s=0.0), Reply(429, retry_after_s=86400.0))
    wire.send("GET", PATH)
    assert inner.slept == [0.5, MAX_RETRY_AFTER_S]


def test_a_disruption_budget_is_no_busy_server() -> None:
    wire, inner = patient(BUDGET)
    assert wire.send("POST", f"{PATH}/eviction", {}) == BUDGET
    assert (len(inner.sent), inner.slept) == (1, [])

    assert failure_of(BUDGET) is Failure.hopeless
    causes = ["DisruptionBudget", {"reason": "x"}]
    for details in (None, {"causes": None}, {"causes": causes}, [{"causes": BUDGET.body}]):
        assert failure_of(Reply(429, {"details": details})) is Failure.busy, details
    assert failure_of(Reply(429)) is Failure.busy


def test_a_dry_run_and_a_question_are_asked_again_like_a_read() -> None:
    for path in (f"{PATH}/binding?dryRun=All&fieldValidation=Strict", REVIEWS):
        wire, _ = patient(Reply(LOST))
        assert wire.send("POST", path, {}) == OK


@pytest.mark.parametrize("method", ["GET", "PATCH"])
def test_refused_credentials_are_tried_once_more_for_kubectl_gets_new_ones_then(
    method: str,
) -> None:
    wire, inner = patient(Reply(401))
    assert wire.send(method, PATH) == OK
    assert inner.slept == []
    wire, inner = patient(*[Reply(401)] * 5)
    assert wire.send(method, PATH).status == 401
    assert len(inner.sent) == 2


# ---- side by side

WRITE = ApiRequest("PATCH", PATH, {}, STRATEGIC)
DRY = ApiRequest("POST", f"{PATH}/eviction?dryRun=All", {})


@pytest.mark.parametrize(
    ("replies", "asked", "statuses", "sent", "slept"),
    [
        ([OK, Reply(LOST), Reply(503), OK], [WRITE] * 4, [200, LOST, 503, 200], 4, []),
        ([OK, Reply(429, retry_after_s=99.0), OK], [WRITE] * 3, [200] * 3, 4, [MAX_RETRY_AFTER_S]),
        ([OK, Reply(LOST), Reply(LOST)], [DRY] * 3, [200] * 3, 5, [0.5, 0.5]),
        # three at first, and four tries of the first one
        ([Reply(LOST)] * 20, [DRY] * 3, [LOST] * 3, 7, [0.5, 0.5, 1.0, 2.0]),
    ],
    ids=["a lost write", "a busy server", "a lost dry run", "a server that is gone"],
)
def test_of_requests_sent_at_once_those_are_sent_again_that_may_be(
    replies: list[Reply],
    asked: list[ApiRequest],
    statuses: list[int],
    sent: int,
    slept: list[float],
) -> None:
    wire, inner = patient(*replies)
    assert [one.status for one in wire.send_all(asked)] == statuses
    assert (len(inner.sent), inner.slept) == (sent, slept)


# ---- rights

NO_RIGHT = Reply(
    403,
    {"message": 'pods "b" is forbidden: User "u" cannot patch resource "pods" in API group ""'},
)


PATCH = {"verb": "patch", "resource": "pods"}


@pytest.mark.parametrize(
    ("shown", "asked"),
    [
        (PATCH, True),
        (PATCH | {"namespace": "a"}, True),
        (PATCH | {"namespace": "a", "name": "b"}, True),
        (PATCH | {"verb": "get"}, False),
        (PATCH | {"namespace": "z"}, False),
        (PATCH | {"namespace": "a", "name": "c"}, False),
        (PATCH | {"subresource": "status"}, False),
        (PATCH | {"group": "apps"}, False),
    ],
)
def test_a_right_that_a_review_has_shown_is_asked_for_again(
    shown: dict[str, str], asked: bool
) -> None:
    wire, inner = patient(Reply(201, {"status": {"allowed": True}}), NO_RIGHT, NO_RIGHT)
    wire.send("POST", REVIEWS, {"spec": {"resourceAttributes": shown}})
    assert wire.send("PATCH", f"{PATH}?x=y", {}) == (OK if asked else NO_RIGHT)
    assert inner.slept == ([0.5, 1.0] if asked else [])
