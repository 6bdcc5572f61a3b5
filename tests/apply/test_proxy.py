"""The wire through the real ``kubectl proxy``: what gets through, and what an answer is taken for."""

from __future__ import annotations

import json
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from effort import HANG_S
from snapshots import real_kubectl
from wire_server import DATE_S, Answer, Asked, Server, answer, on_localhost

from planner.cluster.proxy import CONNECTIONS, FILTERED, ProxyTransport, connect
from planner.cluster.transport import LOST, STRATEGIC, TOO_LONG, ApiRequest, Reply

PODS = "/api/v1/namespaces/[a-z0-9-]+/pods/[a-z0-9.-]+(/binding)?"


def nothing(_: Asked) -> Answer:
    return answer()


@contextmanager
def wired(
    folder: Path,
    play: object = nothing,
    *,
    accept: tuple[str, ...] = ("/api/v1/.*",),
    seconds: float = 10.0,
    most: int = 100_000,
    **more: object,
) -> Iterator[tuple[ProxyTransport, Server]]:
    with (
        on_localhost(folder, play, **more) as (server, config),  # type: ignore[arg-type]
        connect(
            {**os.environ, "KUBECTL": real_kubectl()},
            kubeconfig=str(config),
            timeout_s=seconds,
            accept=accept,
            max_bytes=most,
        ) as wire,
    ):
        yield wire, server


def test_requests_arrive_as_they_were_sent_and_over_one_connection(tmp_path: Path) -> None:
    with wired(tmp_path) as (wire, server):
        tree = {"metadata": {"labels": {"a": 'é\u2028"\\'}}}
        reply = wire.send(
            "PATCH", "/api/v1/pods/a?fieldManager=gangplan", tree, content_type=STRATEGIC
        )
        for _ in range(20):
            wire.send("GET", "/api/v1/pods/a")
    assert (reply.status, reply.date) == (200, DATE_S)
    assert server.targets() == ["/api/v1/pods/a?fieldManager=gangplan", *["/api/v1/pods/a"] * 20]
    first = next(one for one in server.asked if one.method == "PATCH")
    assert (first.method, first.headers["content-type"]) == ("PATCH", STRATEGIC)
    assert json.loads(first.body) == tree
    # some kubectls look at the server's version first, each time over a connection of its own
    assert server.connections <= 4


def test_only_the_paths_named_get_through(tmp_path: Path) -> None:
    pods = "/api/v1/namespaces/a/pods"
    through = ["/api/v1/nodes", "/api/v1/nodes?limit=500", f"{pods}/b"]
    through.append("/api/v1/namespaces/pods/pods/exec-1/binding?dryRun=All")
    kept = ["/api/v1/nodes/", "/api/v1/nodes/n1", "/x/api/v1/nodes", "/api/v1/secrets"]
    kept += [f"{pods}/b/exec", f"{pods}/b/binding/c"]
    kept.append("/api/v1/namespaces/a/secrets/b?x=/api/v1/nodes")
    kept.append("/api/v1/namespaces/a/secrets/b%0a/api/v1/nodes")
    with wired(tmp_path, accept=(PODS, "/api/v1/nodes")) as (wire, server):
        replies = {path: wire.send("GET", path) for path in (*through, *kept)}
        tricked = wire.send("GET", f"{pods}/../secrets/b")
        replies["DELETE"] = wire.send("DELETE", "/api/v1/namespaces/a/secrets/b")
    assert [path for path, reply in replies.items() if reply.ok] == through
    assert server.targets() == through
    for path in (*kept, "DELETE"):
        # not a 403: no right is missing at the API server, nobody asked it
        assert (replies[path].status, replies[path].reason) == (400, FILTERED)
    assert tricked.status == LOST


STATUS = {"kind": "Status", "apiVersion": "v1", "status": "Failure"}
API = {"Audit_Id": "3f0ab4d0"}
UNREAD = "the answer is not whole JSON"
CUT = (
    b"HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Length: 9\r\n"
    b"Connection: close\r\n\r\n{}"
)
PAGE = b"<html><body><h1>Sign in</h1></body></html>"

ANSWERS: dict[str, tuple[Answer, Reply]] = {
    "a refusal": (
        answer(403, {**STATUS, "reason": "Forbidden", "message": "pods is forbidden"}),
        Reply(403, {**STATUS, "reason": "Forbidden", "message": "pods is forbidden"}, DATE_S),
    ),
    "a pause": (
        answer(429, {**STATUS, "message": "later"}, Retry_After="7"),
        Reply(429, {**STATUS, "message": "later"}, DATE_S, 7.0),
    ),
    "a pause that is no number": (
        answer(429, STATUS, Retry_After="Sat, 21 Nov 2026 10:00:00 GMT"),
        Reply(429, STATUS, DATE_S),
    ),
    "charset": (answer(201, {"a": 1}, "application/json; charset=utf-8"), Reply(201, {"a": 1}, DATE_S)),
    "no such API": (
        answer(404, b"404 page not found\n", "text/plain; charset=utf-8"),
        Reply(404, why="404 page not found"),
    ),
    "its own words": (
        answer(500, b"Internal Server Error: x\n", "text/plain", **API),
        Reply(500, why="Internal Server Error: x"),
    ),
    "the words of a proxy": (answer(500, b"dial tcp: EOF\n", "text/plain"), Reply(LOST, why="dial tcp: EOF")),
    "a page": (
        answer(200, PAGE, "text/html"),
        Reply(LOST, why="HTTP 200 with a body of text/html type, not from an API server"),
    ),
    "a page that forbids": (
        answer(403, PAGE, "text/html"),
        Reply(LOST, why="HTTP 403 with a body of text/html type, not from an API server"),
    ),
    "a page of a gateway": (
        answer(502, PAGE, "text/html"),
        Reply(502, why="HTTP 502 with a body of text/html type, not from an API server"),
    ),
    "text instead of an object": (answer(200, b"ok", "text/plain", **API), Reply(LOST, why="ok")),
    "nothing": (answer(200, b""), Reply(LOST, why=f"{UNREAD}: it is empty")),
    "cut JSON": (answer(201, b'{"kind": "Po'), Reply(LOST, why=f"{UNREAD} after 12 bytes")),
    "a list": (answer(200, b"[]"), Reply(LOST, why="the answer is not a JSON object")),
    "no number": (answer(200, b'{"a": NaN}'), Reply(LOST, why=f"{UNREAD} after 10 bytes")),
    "no UTF-8": (answer(200, b'{"a": "\xff"}'), Reply(200, {"a": "\ufffd"}, DATE_S)),
    "too deep": (answer(200, b"[" * 9_000), Reply(LOST, why=f"{UNREAD} after 199 bytes")),
    "closed": (None, Reply(LOST)),
    "too long": (
        answer(200, b"x" * 100_001),
        Reply(LOST, {"reason": TOO_LONG}, why="the answer is larger than the limit"),
    ),
    "half an answer": (CUT, Reply(LOST)),
}  # fmt: skip


def test_nothing_is_deleted_but_records_and_bind_requests_as_they_were_read(tmp_path: Path) -> None:
    """Whatever the account may, and the paths that get through."""
    ours = "/api/v1/namespaces/gangplan-system/configmaps/gangplan-start-0123456789abcdef0123"
    bind = "/apis/scheduling.run.ai/v1alpha2/namespaces/a/bindrequests"
    read = {"preconditions": {"uid": "u", "resourceVersion": "1"}}
    through = [ours, f"{ours}?dryRun=All", f"{bind}/vit-0"]
    kept = [
        *("/api/v1/namespaces/a/pods/b", "/api/v1/namespaces/a/pods", "/api/v1/nodes/n1"),
        "/apis/coordination.k8s.io/v1/namespaces/gangplan-system/leases/gangplan",
        *(bind, f"{bind}/vit-0/status", f"{bind}/", f"{ours}/x", ours.rpartition("/")[0]),
        *(f"{ours[:-21]}-mine", f"/api/v1/namespaces/a/configmaps/b?x={ours}"),
        "/apis/autoscaling.x-k8s.io/v1/namespaces/a/provisioningrequests/b",
    ]
    with wired(tmp_path, accept=(".*",)) as (wire, server):
        done = [wire.send("DELETE", path, read) for path in through]
        refused = [wire.send("DELETE", path, read) for path in kept]
        unread = (None, {}, {"preconditions": {"uid": "u"}})
        refused += [wire.send("DELETE", ours, body) for body in unread]
        refused += wire.send_all([ApiRequest("DELETE", path, read) for path in kept])
    assert server.targets() == through
    assert all(one.ok for one in done)
    assert {(one.status, one.reason) for one in refused} == {(400, FILTERED)}


def test_what_an_answer_is_taken_for(tmp_path: Path) -> None:
    def play(asked: Asked) -> Answer:
        name = list(ANSWERS)[int(asked.path.rpartition("/")[2])]
        if name == "half an answer":
            raw = ANSWERS[name][0]
            assert isinstance(raw, bytes)
            server.pause = server.hang_up
            return [raw, b""]
        return ANSWERS[name][0]

    with wired(tmp_path, play) as (wire, server):
        # as writes: kubectl itself sends a GET again where a kept connection broke
        found = {n: wire.send("POST", f"/api/v1/{i}", {}) for i, n in enumerate(ANSWERS)}
    for name, (_, expected) in ANSWERS.items():
        if name in {"closed", "half an answer"}:
            # how the proxy words it, and how much it passes on, is a matter of luck
            assert found[name].status == LOST, name
            assert found[name].why, name
        else:
            assert found[name] == expected, name


def test_threads_take_turns_and_each_gets_its_own_answers(tmp_path: Path) -> None:
    mixed: list[str] = []

    def work(wire: ProxyTransport, name: str) -> None:
        for number in range(40):
            path = f"/api/v1/{name}/{number}"
            if wire.send("GET", path).body != {"path": path}:
                mixed.append(path)

    with wired(tmp_path, lambda asked: answer(body={"path": asked.path})) as (wire, server):
        threads = [threading.Thread(target=work, args=(wire, name)) for name in "abcd"]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert (mixed, len(server.targets())) == ([], 160)


def test_eight_connections_carry_requests_out_at_once_and_each_gets_its_own_answer(
    tmp_path: Path,
) -> None:
    together = threading.Barrier(CONNECTIONS)

    def play(asked: Asked) -> Answer:
        together.wait(HANG_S)  # none is answered before eight have come
        code = 409 if asked.path.endswith("7") else 200
        return answer(code, json.loads(asked.body))

    paths = [f"/api/v1/pods/p{number}" for number in range(5 * CONNECTIONS)]
    with wired(tmp_path, play) as (wire, server):
        asked = [ApiRequest("PATCH", path, {"said": path}, STRATEGIC) for path in paths]
        replies = wire.send_all(asked)
    expected = [(409 if path.endswith("7") else 200, {"said": path}) for path in paths]
    assert [(reply.status, reply.body) for reply in replies] == expected
    assert sorted(server.targets()) == sorted(paths)
    patches = [one for one in server.asked if one.method == "PATCH"]
    assert {one.headers["content-type"] for one in patches} == {STRATEGIC}


def test_of_requests_sent_at_once_one_may_be_lost_and_the_next_goes_on(tmp_path: Path) -> None:
    paths = [f"/api/v1/pods/p{number}" for number in range(6)]
    with wired(tmp_path, lambda a: None if a.path.endswith("p3") else answer()) as (wire, _):
        replies = wire.send_all([ApiRequest("PATCH", path, {}, STRATEGIC) for path in paths])
        statuses = [reply.status for reply in replies]
        assert statuses[:3] == [200, 200, 200]
        assert statuses[3] in (LOST, 502)
        assert wire.send("GET", "/api/v1/pods/p1").ok


def test_a_server_behind_a_path_is_asked_below_it(tmp_path: Path) -> None:
    with wired(tmp_path, lambda _: answer(), path="/k8s/clusters/c-1") as (wire, server):
        wire.send("GET", "/api/v1/nodes?limit=1")
    assert server.asked[-1].target == "/k8s/clusters/c-1/api/v1/nodes?limit=1"
