"""The search against the clock: an early plan, the time limit, a stop, and a search that looks at neither.

The clock is the test's: it stands still until the search is stuck, then every look at it takes a second.
"""

from __future__ import annotations

import io
import itertools
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace

import pytest
from building import build, gang
from effort import HANG_S
from outcomes import NOW

from models.documents.policy import SolveLimits
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.results.plan import compose
from models.verify.check import check
from planner.pipelines.timed_search import TimedSearch
from planner.search.solve import Search
from planner.show.console import Console

LIMIT_S = 20


class Stuck(Search):
    """A search that has a plan and never ends."""

    reached = threading.Event()
    waits = threading.Event()

    def run(self) -> Solution:
        super().run()
        self.reached.set()
        self.waits.wait()
        raise AssertionError("left behind")


class Timed:
    """A timed search of two gangs for one server, and the early plans that it was given."""

    def __init__(self, limit: int = LIMIT_S) -> None:
        instance = build(gangs=[gang("a", 1, 8, priority=5), gang("b", 1, 8)])
        limits = SolveLimits(time_limit_s=limit, workers=1)
        self.instance: Instance = replace(instance, policy=replace(instance.policy, solve=limits))
        self.stop = threading.Event()
        self.early: list[Solution] = []
        self.looks = itertools.count()
        self.console = Console("gangplan", stdout=io.StringIO(), stderr=io.StringIO(), environ={})

    def clock(self) -> float:
        """A second more each time once the search is stuck."""
        return float(next(self.looks)) if Stuck.reached.is_set() else 0.0

    def keep(self, solution: Solution) -> float:
        """Keep an early plan."""
        self.early.append(solution)
        return 0.0

    def run(self) -> Solution:
        search = TimedSearch(self.instance, self.console, self.stop, self.clock, self.keep)
        return search.run()

    def decided(self, solution: Solution) -> list[str]:
        """The decisions of a plan that the judge accepts."""
        document = compose(
            self.instance, solution, name="t", created_at=NOW, generator="gangplan test"
        )
        assert check(document) == []
        return [decision.decision for decision in solution.decisions]


@pytest.fixture
def stuck(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setattr(Stuck, "reached", threading.Event())
    monkeypatch.setattr(Stuck, "waits", threading.Event())
    monkeypatch.setattr("planner.search.solve.Search", Stuck)
    yield
    Stuck.waits.set()


class Terminal(io.StringIO):
    """A terminal that tells when something is written."""

    def __init__(self) -> None:
        super().__init__()
        self.shown = threading.Event()

    def isatty(self) -> bool:
        return True

    def write(self, text: str) -> int:
        self.shown.set()
        return super().write(text)


@pytest.mark.usefixtures("stuck")
def test_progress_goes_on_while_the_first_plan_is_verified() -> None:
    timed, err = Timed(limit=10_000), Terminal()
    timed.console = Console(
        "gangplan", stdout=io.StringIO(), stderr=err, environ={"COLUMNS": "200"}
    )

    def early(solution: Solution) -> float:
        err.shown.clear()
        assert err.shown.wait(HANG_S)
        timed.early.append(solution)
        timed.stop.set()
        return 0.0

    TimedSearch(timed.instance, timed.console, timed.stop, timed.clock, early).run()
    assert len(timed.early) == 1
    assert "s left" in err.getvalue()


@pytest.mark.usefixtures("stuck")
def test_a_first_plan_is_not_verified_where_that_would_take_the_time_of_the_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("planner.pipelines.timed_search.FINISH_S_PER_OBJECT", 3.5)  # of three
    timed = Timed()
    assert timed.decided(timed.run()) == ["place", "wait"]
    assert timed.early == []


class Slow(Search):
    """A search whose first plan comes long after the limit, on a clock that then goes on."""

    looks: Callable[[], float]

    def run(self) -> Solution:
        while self.looks() < 3 * LIMIT_S:
            time.sleep(0.001)
        return super().run()


@pytest.mark.parametrize("spent", [0, 10 * LIMIT_S])
def test_a_first_plan_starts_who_fits_however_late_it_is(
    spent: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Three times the limit passes before the search begins, or reading alone took ten times as much.
    timed, ticks = Timed(), itertools.count()
    monkeypatch.setattr("planner.search.solve.Search", Slow)
    monkeypatch.setattr(Slow, "looks", staticmethod(lambda: float(next(ticks))), raising=False)

    def clock() -> float:
        return float(next(ticks))

    search = TimedSearch(timed.instance, timed.console, timed.stop, clock, timed.keep, spent=spent)
    assert timed.decided(search.run()) == ["place", "wait"]


@pytest.mark.usefixtures("stuck")
@pytest.mark.parametrize(("waited", "begun"), [(0.0, 125), (40.0, 175)])
def test_what_takes_long_to_finish_is_begun_earlier(waited: float, begun: int) -> None:
    # The early plan takes some 60 of 200 seconds to finish, so that the last one is begun 75 before. For 40
    # of them it waits for what the last one does not: then 25 before. Each step of the search is a few looks.
    timed = Timed(limit=200)

    def slow(solution: Solution) -> float:
        timed.early.append(solution)
        for _ in range(59):
            timed.clock()
        return waited

    search = TimedSearch(timed.instance, timed.console, timed.stop, timed.clock, slow)
    search.run()
    assert begun - 10 < next(timed.looks) < begun + 20


def test_what_goes_wrong_in_the_search_is_raised_here(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(_search: Search) -> Solution:
        raise ZeroDivisionError("a bug")

    monkeypatch.setattr(Search, "run", broken)
    with pytest.raises(ZeroDivisionError, match="a bug"):
        Timed().run()
