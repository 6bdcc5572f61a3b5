"""Patience: what is asked again, how often and after which pauses; and what never is."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import pytest

from planner.cluster.retry import MAX_RETRY_AFTER_S, Failure, RetryingTransport, failure_of
from planner.cluster.transport import JSON, LOST, Reply

PATH = "/api/v1/namespaces/a/pods/b"
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


@pytest.mark.parametrize("status", [LOST, 500, 502, 503, 504, 429])
def test_a_read_is_asked_again_after_what_may_pass(status: int) -> None:
    wire, inner = patient(*[Reply(status)] * 3)
    assert wire.send("GET", PATH) == OK
    assert (inner.slept, wire.retries) == ([0.5, 1.0, 2.0], 3)


def test_asking_again_has_an_end() -> None:
    wire, inner = patient(*[Reply(503, why=str(n)) for n in range(9)])
    assert wire.send("GET", PATH).why == "3"
    assert len(inner.sent) == 4


@pytest.mark.parametrize("status", [200, 201, 301, 400, 403, 404, 409, 410, 422])
def test_what_is_an_answer_is_one(status: int) -> None:
    for method in ("GET", "PATCH", "POST"):
        wire, inner = patient(Reply(status))
        assert wire.send(method, PATH).status == status
        assert len(inner.sent) == 1


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
@pytest.mark.parametrize("status", [LOST, 500, 503, 504])
def test_a_write_that_may_have_been_done_is_not_sent_again(method: str, status: int) -> None:
    wire, inner = patient(Reply(status))
    assert wire.send(method, PATH, {}).status == status
    assert (len(inner.sent), inner.slept) == (1, [])


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


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"details": None},
        {"details": {"causes": None}},
        {"details": {"causes": ["DisruptionBudget", {"reason": "x"}]}},
        {"details": [{"causes": [{"reason": "DisruptionBudget"}]}]},
    ],
)
def test_only_the_cause_tells_of_a_budget(body: dict[str, Any]) -> None:
    assert failure_of(BUDGET) is Failure.hopeless
    assert failure_of(Reply(429, body)) is Failure.busy


@pytest.mark.parametrize(
    "path",
    [
        f"{PATH}/binding?dryRun=All&fieldValidation=Strict",
        "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
    ],
)
def test_a_dry_run_and_a_question_are_asked_again_like_a_read(path: str) -> None:
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


# ---- rights

NO_RIGHT = Reply(
    403,
    {"message": 'pods "b" is forbidden: User "u" cannot patch resource "pods" in API group ""'},
)
REVIEWS = "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews"


def reviewed(wire: RetryingTransport, **attributes: str) -> None:
    wire.send("POST", REVIEWS, {"spec": {"resourceAttributes": attributes}})


ALLOWED = Reply(201, {"status": {"allowed": True}})


@pytest.mark.parametrize(
    "attributes",
    [
        {"verb": "patch", "resource": "pods"},
        {"verb": "patch", "resource": "pods", "namespace": "a"},
        {"verb": "patch", "resource": "pods", "namespace": "a", "name": "b"},
    ],
)
def test_a_right_that_a_review_has_shown_is_asked_for_again(attributes: dict[str, str]) -> None:
    wire, inner = patient(ALLOWED, NO_RIGHT, NO_RIGHT)
    reviewed(wire, **attributes)
    assert wire.send("PATCH", f"{PATH}?x=y", {}) == OK
    assert inner.slept == [0.5, 1.0]


@pytest.mark.parametrize(
    "attributes",
    [
        {"verb": "get", "resource": "pods"},
        {"verb": "patch", "resource": "pods", "namespace": "z"},
        {"verb": "patch", "resource": "pods", "namespace": "a", "name": "c"},
        {"verb": "patch", "resource": "pods", "subresource": "status"},
        {"verb": "patch", "resource": "pods", "group": "apps"},
    ],
)
def test_a_right_that_was_not_shown_is_not(attributes: dict[str, str]) -> None:
    wire, inner = patient(ALLOWED, NO_RIGHT)
    reviewed(wire, **attributes)
    assert wire.send("PATCH", PATH, {}) == NO_RIGHT
    assert inner.slept == []
