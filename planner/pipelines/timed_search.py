"""The search of ``plan`` against the clock: an early plan, the time limit, and signals.

The search runs in a thread of its own and publishes what it has. This thread keeps the time, so that the
limit and signals hold whatever the search is doing.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from models.instance.instance import Instance
from models.instance.solution import Solution
from planner.show.console import Console
from planner.show.progress import FIRST_PLAN, STOPPING, SearchProgress

TICK_S = 0.05

EARLY_S = 1.0
"""A search that has taken so long gets its first plan verified while it goes on."""

GRACE_S = 1.0
"""Seconds a search that has a plan may take to end once its time is up; then it is left behind."""

FINISH_S_PER_OBJECT = 1.5e-4
"""Seconds to explain, check and save a plan, for each node and gang, until the first plan was timed."""

BESIDE = 4
"""So many times that may pass until the first plan is checked beside the search, and the last one then."""

FINISH_FACTOR = 1.25
"""The last plan may take so much longer to finish, and to be shown, than the first one.

Until that was timed, so much longer than the first one took to be found.
"""


class TimedSearch:
    """A search whose time runs from here on, though it begins with ``run``.

    ``early``: verifies and keeps a plan; called once, with the first one, if the search takes long. It
    returns the seconds for which it waited for what no later plan waits for.

    ``spent``: seconds of the time limit that went by before. ``frequent``: as in ``Search``.
    """

    def __init__(
        self,
        instance: Instance,
        console: Console,
        stop: threading.Event,
        clock: Callable[[], float],
        early: Callable[[Solution], float],
        *,
        spent: float = 0.0,
        frequent: bool = False,
    ) -> None:
        from models.values.tier_values import tiers_of
        from planner.search.solve import Search

        self._clock, self._started = clock, clock()
        self._stop, self._console = stop, console
        self._early = early
        self._limit = instance.policy.solve.time_limit_s - spent
        self._progress = SearchProgress(
            console, clock, [tier.name for tier in tiers_of(instance)], self._limit
        )
        size = len(instance.cluster.nodes) + len(instance.gangs)
        self._finish = FINISH_S_PER_OBJECT * size
        self._search = Search(instance, progress=self._progress, stop=stop, frequent=frequent)
        self._search.finish_by(self._limit - self._finish)
        self._timed = False
        self._found: list[Solution] = []
        self._failed: list[BaseException] = []

    def run(self) -> Solution:
        """The best plan found within the time limit, or until a signal.

        A signal alone ends the search before the first plan, which is waited for.
        """
        start = self._started
        thread = threading.Thread(target=self._work, name="search", daemon=True)
        thread.start()
        ended: float | None = None
        kept = False
        while thread.is_alive():
            thread.join(TICK_S)
            self._tick()
            now = self._clock()
            if not kept and self._keeps_first(now - start):
                kept = True
                before = self._clock()
                with self._ticking():
                    waited = self._early(self._search.best())
                self._finish = FINISH_FACTOR * (self._clock() - before - waited)
                self._search.finish_by(self._limit - self._finish)
                continue
            late = self._search.started and now - start > self._limit - self._finish
            if ended is None and (late or self._stop.is_set()):
                ended = now
            ends = self._search.phase == STOPPING  # what it does then, ``best`` would do again
            if ended is not None and now - ended > (self._finish if ends else GRACE_S):
                break
        if self._stop.is_set():  # it may have ended before this thread looked
            self._tick()
        self._console.clear_live()
        if self._failed:
            raise self._failed[0]
        return self._found[0] if self._found else self._search.best()

    def _tick(self) -> None:
        phase = STOPPING if self._stop.is_set() else self._search.phase
        self._progress.effective = self._search.effective_gpus
        self._progress.tick(phase, self._search.effort_left)

    def _keeps_first(self, seconds: float) -> bool:
        """Whether there is a first plan to keep, and time to check it and the last one after so long.

        Until one was timed, what a plan needs to finish follows from how long the first one was looked for.
        """
        if self._search.phase != FIRST_PLAN and not self._timed:
            self._timed = True
            self._finish = max(self._finish, FINISH_FACTOR * seconds)
            self._search.finish_by(self._limit - self._finish)
        in_time = EARLY_S < seconds < self._limit - BESIDE * self._finish
        return in_time and self._search.started and not self._stop.is_set()

    @contextmanager
    def _ticking(self) -> Iterator[None]:
        """The progress goes on, so that tier and bound stay in sight, while this thread verifies."""
        done = threading.Event()

        def tick() -> None:
            while not done.wait(TICK_S):
                self._tick()

        ticker = threading.Thread(target=tick, name="progress", daemon=True)
        ticker.start()
        try:
            yield
        finally:
            done.set()
            ticker.join()

    def _work(self) -> None:
        try:
            self._found.append(self._search.run())
        except BaseException as error:  # noqa: BLE001  # raised again in the caller's thread
            self._failed.append(error)
