"""HTTP over the unix socket: one kept connection, whole answers, bounds of time and size."""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Iterator
from http.client import HTTPResponse
from pathlib import Path

import pytest
from effort import HANG_S, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_server import Answer, Asked, Server, answer, on_socket

from planner.cluster.proxy import BrokenError, UnixHttpConnection

_OPEN: list[UnixHttpConnection] = []


def channel(path: Path, *, seconds: float = 5.0, most: int = 10_000) -> UnixHttpConnection:
    _OPEN.append(UnixHttpConnection(lambda: str(path), timeout_s=seconds, max_bytes=most))
    return _OPEN[-1]


@pytest.fixture(autouse=True)
def ended() -> Iterator[None]:
    """Close the channels of a test."""
    yield
    while _OPEN:
        _OPEN.pop().close()


def ask(
    channel: UnixHttpConnection, target: str = "/x", method: str = "GET", body: bytes | None = None
) -> bytes:
    return channel.request(method, target, body, "application/json")[2]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


@pytest.fixture
def echo(path: Path) -> Iterator[Server]:
    """Answers with the method, the target and the body."""

    def play(asked: Asked) -> Answer:
        return answer(body=f"{asked.method} {asked.target} ".encode() + asked.body)

    with on_socket(path, play) as server:
        yield server


def test_a_connection_closed_between_requests_is_opened_anew(path: Path, echo: Server) -> None:
    wire = channel(path)
    ask(wire)
    echo.hang_up()
    time.sleep(0.05)
    assert ask(wire, "/again") == b"GET /again "
    assert (echo.connections, len(echo.asked)) == (2, 2)


HEAD = b"HTTP/1.1 200 OK\r\n"

FRAMES = {
    "chunks": HEAD
    + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
    "case": b"HTTP/1.1 200\r\ncOnTeNt-LeNgTh:5\r\n\r\nabcde",
    "bare": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde",
}


@pytest.mark.parametrize("frame", FRAMES)
@pytest.mark.parametrize("cut", [None, 1])
def test_answers_are_read_however_they_are_framed(frame: str, cut: int | None, path: Path) -> None:
    raw = FRAMES[frame]
    pieces = [raw] if cut is None else [raw[i : i + 1] for i in range(len(raw))]
    with on_socket(path, lambda _: pieces) as server:
        wire = channel(path)
        assert [ask(wire) for _ in range(3)] == [b"abcde"] * 3
        assert server.connections == 1


def test_a_server_that_closes_after_its_answer_is_asked_over_a_new_connection(path: Path) -> None:
    with on_socket(path, lambda _: answer(body=b"x", Connection="close")) as server:
        wire = channel(path)
        assert [ask(wire), ask(wire)] == [b"x", b"x"]
        assert server.connections == 2


BROKEN: dict[str, bytes | None] = {
    "closed": None,
    "no answer": b"hello\r\n\r\n",
    "no code": b"HTTP/1.1 OK\r\n\r\n",
    "cut head": b"HTTP/1.1 200 OK\r\nContent-Le",
    "cut body": HEAD + b"Content-Length: 5\r\n\r\nabc",
    "no length": HEAD + b"\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n",
    "endless length": HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "no chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n\r\n",
    "odd chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3x\r\nabc\r\n0\r\n\r\n",
    "wrong chunk": HEAD + b"Transfer-Encoding: chunked\r\n\r\n2\r\nabc\r\n0\r\n\r\n",
    "cut chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
    "endless line": HEAD + b"A: " + b"x" * 70_000 + b"\r\n\r\n",
    "endless headers": HEAD + b"A: b\r\n" * 1000 + b"\r\n",
}


@pytest.mark.parametrize("case", BROKEN)
def test_what_is_no_whole_answer_is_broken_and_does_not_spoil_the_next(
    case: str, path: Path
) -> None:
    first = [True]

    def play(asked: Asked) -> Answer:
        if first:
            first.clear()
            raw = BROKEN[case]
            if raw is None:
                return None
            # Only this connection: a quick client may have opened the next one by then.
            open_now = server.open_now()
            server.pause = lambda: server.hang_up(open_now)
            return [raw, b""]
        return answer(body=b"well")

    with on_socket(path, play) as server:
        wire = channel(path)
        with pytest.raises(BrokenError) as caught:
            ask(wire)
        assert not caught.value.too_long
        assert str(caught.value).startswith(("the connection broke: ", "not an HTTP answer: "))
        assert ask(wire) == b"well"


@pytest.mark.parametrize("stray", [b"x", b"\r\n", answer(body=b"stray")])
def test_what_comes_after_an_answer_is_not_taken_for_the_next(stray: bytes, path: Path) -> None:
    first = [True]

    def play(asked: Asked) -> Answer:
        if first:
            first.clear()
            return answer(body=b"first") + stray
        return answer(body=asked.target.encode())

    with on_socket(path, play):
        wire = channel(path)
        assert ask(wire) == b"first"
        assert ask(wire, "/second") == b"/second"
        assert ask(wire, "/third") == b"/third"


WHOLE = [answer(body=b"well"), *FRAMES.values()]


@settings(max_examples=examples(150, 50), deadline=None)
@given(data=st.data())
def test_damaged_answers_are_broken_or_read_and_never_more(data: st.DataObject) -> None:
    """A byte changed, dropped or doubled anywhere: what comes is an Answer or BrokenError, in time."""
    raw = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["change", "drop", "double"])):
            case "change":
                raw[at] = data.draw(st.integers(0, 255))
            case "drop":
                del raw[at:]
                if not raw:
                    return
            case "double":
                raw[at:at] = raw[at : at + 20]

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "s"
        with on_socket(path, lambda _: [bytes(raw), b""]) as server:
            server.pause = server.hang_up
            wire = channel(path, seconds=5)
            try:
                assert len(ask(wire)) <= len(raw)
            except BrokenError as error:
                assert str(error) != "no answer within 5 s"  # noqa: PT017  # any other will do
            wire.close()


def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one(path: Path) -> None:
    given_up = threading.Event()

    def play(asked: Asked) -> Answer:
        if asked.target == "/slow":
            given_up.wait(HANG_S)
        return answer(body=asked.target.encode())

    with on_socket(path, play):
        wire = channel(path, seconds=0.3)
        with pytest.raises(BrokenError, match=r"no answer within 0\.3 s"):
            ask(wire, "/slow")
        given_up.set()
        wire._timeout_s = 60
        for number in range(10):
            assert ask(wire, f"/{number}") == f"/{number}".encode()


@pytest.mark.parametrize("slow", ["head", "body", "chunks"])
def test_the_time_limit_is_for_the_whole_answer_however_it_trickles(slow: str, path: Path) -> None:
    raw = {
        "head": HEAD + b"A: b\r\n" * 100,
        "body": answer(body=b"x" * 200),
        "chunks": HEAD + b"Transfer-Encoding: chunked\r\n\r\n" + b"1\r\nx\r\n" * 100,
    }[slow]
    pieces = [raw[i : i + 2] for i in range(0, len(raw), 2)]
    # 2 bytes each 20 ms: each comes in time, all 200 of them would take two seconds
    with (
        on_socket(path, lambda _: pieces, pause=lambda: time.sleep(0.02)),
        pytest.raises(BrokenError, match="no answer within"),
    ):
        ask(channel(path, seconds=0.3))


def test_an_answer_may_be_as_long_as_is_read_and_no_longer(path: Path) -> None:
    bodies = [b"x" * 10_000, b"x" * 10_001]
    with on_socket(path, lambda asked: answer(body=bodies[int(asked.target[1:])])):
        wire = channel(path, most=10_000)
        assert len(ask(wire, "/0")) == 10_000
        with pytest.raises(BrokenError) as caught:
            ask(wire, "/1")
        assert caught.value.too_long
        assert len(ask(wire, "/0")) == 10_000


def test_an_interruption_leaves_no_half_read_answer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interruption(BaseException):
        """As a signal raises it."""

    wire = channel(path)

    def play(asked: Asked) -> Answer:
        return answer(body=asked.target.encode())

    with on_socket(path, play) as server:
        ask(wire)

        def interrupted(_: HTTPResponse) -> None:
            raise Interruption

        with monkeypatch.context() as patched:
            patched.setattr(HTTPResponse, "begin", interrupted)
            with pytest.raises(Interruption):
                ask(wire, "/first")
        assert ask(wire, "/second") == b"/second"
        assert server.connections == 2
