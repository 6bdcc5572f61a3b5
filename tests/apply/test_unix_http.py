"""HTTP over the unix socket: whole answers, bounds of time and size."""

from __future__ import annotations

import tempfile
import threading
import time
from dataclasses import dataclass
from http.client import HTTPResponse
from pathlib import Path

import pytest
from effort import HANG_S, examples
from hypothesis import given, settings
from hypothesis import strategies as st
from wire_server import Answer, Asked, answer, on_socket

from planner.cluster.proxy import BrokenError, UnixHttp


@dataclass
class Wire:
    path: Path
    timeout_s: float
    max_bytes: int


def channel(path: Path, *, seconds: float = 5.0, most: int = 10_000) -> Wire:
    return Wire(path, seconds, most)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "s"


def ask(wire: Wire, target: str = "/x") -> bytes:
    http = UnixHttp(wire.timeout_s, wire.max_bytes)
    return http.request(str(wire.path), "GET", target, None, "application/json")[2]


def echo(asked: Asked) -> Answer:
    return answer(body=asked.target.encode())


HEAD = b"HTTP/1.1 200 OK\r\n"
CHUNKED = HEAD + b"Transfer-Encoding: chunked\r\n\r\n"
FRAMES = {
    "chunks": CHUNKED + b"3\r\nabc\r\n2;x=y\r\nde\r\n0\r\nT: 1\r\n\r\n",
    "case": b"HTTP/1.1 200\r\ncOnTeNt-LeNgTh:5\r\n\r\nabcde",
    "bare": b"HTTP/1.1 200 OK\nContent-Length: 5\n\nabcde",
}


@pytest.mark.parametrize("frame", FRAMES)
def test_answers_are_read_however_they_are_framed(frame: str, path: Path) -> None:
    raw = FRAMES[frame]
    whole, pieces = [raw], [raw[i : i + 1] for i in range(len(raw))]
    with on_socket(path, lambda asked: pieces if asked.target == "/1" else whole):
        wire = channel(path)
        assert [ask(wire, f"/{number}") for number in range(3)] == [b"abcde"] * 3


BROKEN: dict[str, bytes | None] = {
    "closed": None,
    "no answer": b"hello\r\n\r\n",
    "no code": b"HTTP/1.1 OK\r\n\r\n",
    "cut head": HEAD + b"Content-Le",
    "cut body": HEAD + b"Content-Length: 5\r\n\r\nabc",
    "no length": HEAD + b"\r\n",
    "negative length": HEAD + b"Content-Length: -1\r\n\r\n",
    "interim": b"HTTP/1.1 103 Early\r\nLink: x\r\n\r\n",
    "endless length": HEAD + b"Content-Length: " + b"9" * 5000 + b"\r\n\r\n",
    "no chunk": CHUNKED + b"\r\n",
    "odd chunk": CHUNKED + b"3x\r\nabc\r\n0\r\n\r\n",
    "wrong chunk": CHUNKED + b"2\r\nabc\r\n0\r\n\r\n",
    "cut chunks": CHUNKED + b"3\r\nabc\r\n",
    "endless line": HEAD + b"A: " + b"x" * 70_000 + b"\r\n\r\n",
    "endless headers": HEAD + b"A: b\r\n" * 1000 + b"\r\n",
}


def test_what_is_no_whole_answer_is_broken_and_does_not_spoil_the_next(path: Path) -> None:
    raws = dict(enumerate(BROKEN.values()))

    def play(asked: Asked) -> Answer:
        if asked.target == "/well":
            return answer(body=b"well")
        raw = raws[int(asked.target[1:])]
        # Only this connection: a quick client may have opened the next one by then.
        open_now = server.open_now()
        server.pause = lambda: server.hang_up(open_now)
        return None if raw is None else [raw, b""]

    with on_socket(path, play) as server:
        wire = channel(path)
        for number, case in enumerate(BROKEN):
            with pytest.raises(BrokenError) as caught:
                ask(wire, f"/{number}")
            assert not caught.value.too_long, case
            said = str(caught.value)
            assert said.startswith(("the connection broke: ", "not an HTTP answer: ")), case
            assert "URL" not in said, case
            assert ask(wire, "/well") == b"well", case


@pytest.mark.parametrize("stray", [b"x", b"\r\n", answer(body=b"stray")])
def test_what_comes_after_an_answer_is_not_taken_for_the_next(stray: bytes, path: Path) -> None:
    def play(asked: Asked) -> Answer:
        return answer(body=asked.target.encode()) + (stray if asked.target == "/1" else b"")

    with on_socket(path, play):
        wire = channel(path)
        assert [ask(wire, f"/{number}") for number in (1, 2, 3)] == [b"/1", b"/2", b"/3"]


WHOLE = [answer(body=b"well"), *FRAMES.values()]


@settings(max_examples=examples(150, 30), deadline=None)
@given(data=st.data())
def test_damaged_answers_are_broken_or_read_and_never_more(data: st.DataObject) -> None:
    """A byte changed, dropped or doubled anywhere: what comes is an Answer or BrokenError, in time."""
    raw = bytearray(data.draw(st.sampled_from(WHOLE)))
    for _ in range(data.draw(st.integers(1, 3))):
        at = data.draw(st.integers(0, len(raw) - 1))
        match data.draw(st.sampled_from(["change", "drop", "double"])):
            case "change":
                raw[at] = data.draw(st.integers(0, 255))
            case "drop" if at:
                del raw[at:]
            case "double":
                raw[at:at] = raw[at : at + 20]
    with tempfile.TemporaryDirectory(dir="/tmp") as folder:
        path = Path(folder) / "s"
        with on_socket(path, lambda _: [bytes(raw), b""]) as server:
            server.pause = server.hang_up
            wire = channel(path)
            try:
                assert len(ask(wire)) <= len(raw)
            except BrokenError as error:
                assert str(error) != "no answer within 5 s"  # noqa: PT017  # any other will do


def test_an_answer_that_comes_too_late_is_never_taken_for_the_next_one(path: Path) -> None:
    given_up = threading.Event()

    def play(asked: Asked) -> Answer:
        if asked.target == "/slow":
            given_up.wait(HANG_S)
        return echo(asked)

    with on_socket(path, play):
        wire = channel(path, seconds=0.3)
        with pytest.raises(BrokenError, match=r"no answer within 0\.3 s"):
            ask(wire, "/slow")
        given_up.set()
        wire.timeout_s = HANG_S
        assert [ask(wire, f"/{number}") for number in range(5)] == [
            b"/0",
            b"/1",
            b"/2",
            b"/3",
            b"/4",
        ]


@pytest.mark.parametrize(
    "raw",
    [HEAD + b"A: b\r\n" * 100, answer(body=b"x" * 200), CHUNKED + b"1\r\nx\r\n" * 100],
    ids=["head", "body", "chunks"],
)
def test_the_time_limit_is_for_the_whole_answer_however_it_trickles(raw: bytes, path: Path) -> None:
    pieces = [raw[i : i + 2] for i in range(0, len(raw), 2)]
    # 2 bytes each 20 ms: each comes in time, all 200 of them would take two seconds
    with (
        on_socket(path, lambda _: pieces, pause=lambda: time.sleep(0.02)),
        pytest.raises(BrokenError, match="no answer within"),
    ):
        ask(channel(path, seconds=0.3))


def test_an_answer_may_be_as_long_as_is_read_and_no_longer(path: Path) -> None:
    with on_socket(path, lambda asked: answer(body=b"x" * int(asked.target[1:]))):
        wire = channel(path, most=10_000)
        assert len(ask(wire, "/10000")) == 10_000
        with pytest.raises(BrokenError) as caught:
            ask(wire, "/10001")
        assert caught.value.too_long
        assert len(ask(wire, "/10000")) == 10_000


def test_an_interruption_leaves_no_half_read_answer(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    class Interruption(BaseException):
        """As a signal raises it."""

    def interrupted(_: HTTPResponse) -> None:
        raise Interruption

    wire = channel(path)
    with on_socket(path, echo):
        ask(wire)
        with monkeypatch.context() as patched:
            patched.setattr(HTTPResponse, "begin", interrupted)
            with pytest.raises(Interruption):
                ask(wire, "/first")
        assert ask(wire, "/second") == b"/second"
