"""Fixtures shared by the tests: running the command line in-process, and golden files."""

from __future__ import annotations

import gc
import io
import math
import signal
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Protocol

import pytest
import typer
from effort import HANG_S, THOROUGH, WHOLE, set_effort
from hypothesis import settings

from planner.cli.app import run
from planner.cluster import kubectl
from planner.search.budget import Budget
from planner.show.console import Console

settings.register_profile("repeatable", derandomize=True, deadline=None)
settings.register_profile("searching", derandomize=False, deadline=None)
settings.load_profile("repeatable")  # --hypothesis-profile=searching looks for new examples

GOLDEN = Path(__file__).parent / "golden"
SECONDS_LEFT = Budget.seconds_left


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--refresh-golden", action="store_true", help="Write tests/golden anew; review the diff."
    )
    parser.addoption(
        THOROUGH, action="store_true", help="Run slow tests too, and nearly all of each sweep."
    )
    parser.addoption(
        WHOLE, action="store_true", help="The same, and all of the longest sweeps: hours."
    )


def pytest_configure(config: pytest.Config) -> None:
    gc.disable()
    whole = config.getoption(WHOLE)
    thorough = whole or config.getoption(THOROUGH)
    set_effort(thorough=thorough, whole=whole)
    if not thorough and not config.option.markexpr:
        config.option.markexpr = "not slow"
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
        # started in the background of a shell: the program under test would ignore it, too
        signal.signal(signal.SIGINT, signal.default_int_handler)


def pytest_collection_finish() -> None:
    """What was imported and collected stays: to look for garbage in it takes a tenth of the time."""
    gc.freeze()
    gc.enable()
    gc.set_threshold(50_000, 20, 20)


@pytest.fixture(scope="session", autouse=True)
def no_search_clock() -> Iterator[None]:
    """Only the deterministic budget ends a search, so that a busy machine changes no plan."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Budget, "seconds_left", lambda _: 1e6)
        yield


@pytest.fixture(scope="session", autouse=True)
def patience_with_kubectl() -> Iterator[None]:
    """However long a kubectl takes to start: a busy machine fails no test."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(kubectl, "RUN_S", HANG_S)
        patch.setattr(kubectl, "START_S", HANG_S)
        yield


@pytest.fixture(scope="session", autouse=True)
def made_once() -> Iterator[None]:
    """What a process of the program makes once is made once for all that run in this one."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(typer.main, "get_command", cache(typer.main.get_command))
        yield


@pytest.fixture(scope="session", autouse=True)
def own_state(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Programs that tests start keep their last plan in a folder of the tests, not in the user's home."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("state")))
        yield


@pytest.fixture
def search_clock(monkeypatch: pytest.MonkeyPatch) -> None:
    """The search obeys its time limit in this test."""
    monkeypatch.setattr(Budget, "seconds_left", SECONDS_LEFT)


@dataclass(frozen=True, slots=True)
class Result:
    """What one run of the command line did."""

    code: int
    out: str
    err: str


class RunCli(Protocol):
    """Run ``gangplan ARGUMENTS`` in this process, off a terminal."""

    def __call__(
        self,
        *arguments: str,
        stdin: bytes = b"",
        environ: dict[str, str] | None = None,
        program: str = "gangplan",
    ) -> Result: ...


@pytest.fixture
def cli(monkeypatch: pytest.MonkeyPatch) -> RunCli:
    """No search is long: what is said of its first plan would depend on how busy the machine is."""
    monkeypatch.setattr("planner.pipelines.timed_search.EARLY_S", math.inf)

    def call(
        *arguments: str,
        stdin: bytes = b"",
        environ: dict[str, str] | None = None,
        program: str = "gangplan",
    ) -> Result:
        out, err = io.StringIO(), io.StringIO()
        console = Console(
            program, stdout=out, stderr=err, stdin=io.BytesIO(stdin), environ=environ or {}
        )
        code = run(arguments, console)
        return Result(code, out.getvalue(), err.getvalue())

    return call


@pytest.fixture
def golden(request: pytest.FixtureRequest) -> Callable[[str, str], None]:
    """Compare text with ``tests/golden/NAME``; ``--refresh-golden`` writes it instead."""

    def compare(name: str, text: str) -> None:
        path = GOLDEN / name
        if request.config.getoption("--refresh-golden"):
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
        assert text == path.read_text(encoding="utf-8"), f"{name}: see --refresh-golden"

    return compare
