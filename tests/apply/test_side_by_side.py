"""Requests sent at once: each gets its own answer, or none at all."""

from __future__ import annotations

import json
import threading
from pathlib import Path

from effort import HANG_S
from test_proxy import wired
from test_retry import OK, patient
from wire_server import Answer, Asked, answer

from planner.cluster.proxy import CONNECTIONS
from planner.cluster.retry import MAX_RETRY_AFTER_S
from planner.cluster.transport import LOST, STRATEGIC, Reply
from planner.cluster.transport import ApiRequest as Question

# ---- through the real kubectl


def test_eight_connections_carry_them_out_at_once_and_each_gets_its_own_answer(
    tmp_path: Path,
) -> None:
    together = threading.Barrier(CONNECTIONS)

    def play(asked: Asked) -> Answer:
        if asked.method == "PATCH":
            together.wait(HANG_S)  # none is answered before eight have come
        return answer(
            code=409 if asked.path.endswith("7") else 200, body=json.loads(asked.body or b"{}")
        )

    paths = [f"/api/v1/pods/p{number}" for number in range(5 * CONNECTIONS)]
    with wired(tmp_path, play) as (wire, server):
        replies = wire.send_all(
            [Question("PATCH", path, {"said": path}, STRATEGIC) for path in paths]
        )
    assert [reply.body for reply in replies] == [{"said": path} for path in paths]
    assert [reply.status for reply in replies] == [409 if p.endswith("7") else 200 for p in paths]
    assert sorted(server.targets()) == sorted(paths)
    assert {one.headers["content-type"] for one in server.asked if one.method == "PATCH"} == {
        STRATEGIC
    }


def test_what_kubectl_cannot_get_an_answer_to_is_lost(tmp_path: Path) -> None:
    def play(asked: Asked) -> Answer:
        return None if asked.path.endswith("p3") else answer()

    paths = [f"/api/v1/pods/p{number}" for number in range(6)]
    with wired(tmp_path, play) as (wire, _):
        replies = wire.send_all([Question("PATCH", path, {}, STRATEGIC) for path in paths])
        statuses = [reply.status for reply in replies]
        assert statuses[:3] == [200, 200, 200]
        assert statuses[3] in (LOST, 502)
        assert wire.send("GET", "/api/v1/pods/p1").ok


# ---- with patience

WRITE = Question("PATCH", "/api/v1/namespaces/a/pods/b", {}, STRATEGIC)
DRY = Question("POST", "/api/v1/namespaces/a/pods/b/eviction?dryRun=All", {})


def test_a_lost_write_is_not_sent_again() -> None:
    wire, inner = patient(OK, Reply(LOST), Reply(503), OK)
    assert [one.status for one in wire.send_all([WRITE] * 4)] == [200, LOST, 503, 200]
    assert (len(inner.sent), inner.slept) == (4, [])


def test_what_a_busy_server_did_not_do_is_sent_again() -> None:
    wire, inner = patient(OK, Reply(429, retry_after_s=99.0), OK)
    assert [one.status for one in wire.send_all([WRITE] * 3)] == [200, 200, 200]
    assert (len(inner.sent), inner.slept) == (4, [MAX_RETRY_AFTER_S])


def test_a_lost_dry_run_is_asked_again() -> None:
    wire, inner = patient(OK, Reply(LOST), Reply(LOST))
    assert [one.status for one in wire.send_all([DRY] * 3)] == [200, 200, 200]
    assert (len(inner.sent), inner.slept) == (5, [0.5, 0.5])


def test_a_server_that_is_gone_is_not_asked_for_each() -> None:
    wire, inner = patient(*[Reply(LOST)] * 20)
    assert [one.status for one in wire.send_all([DRY] * 3)] == [LOST] * 3
    # three at first, and four tries of the first one
    assert len(inner.sent) == 7
