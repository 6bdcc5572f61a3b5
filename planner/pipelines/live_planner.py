"""Plans of a live cluster for ``run``: reads what ``snapshot`` reads and searches as ``plan`` does."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import replace

from models.units import epoch_seconds, shown_of
from planner.cluster import retry
from planner.cluster.snapshot import LiveLists, SnapshotRequest, read_lists
from planner.cluster.store import Store
from planner.cluster.transport import Transport
from planner.pipelines import plan as planning
from planner.pipelines.plan import Phases, Planned, PlanRequest
from planner.read.instance_builder import LoadedInput
from planner.show.console import Console

MAX_WARNINGS = 4
"""Remarks of a reading that are shown: every run finds the same ones again."""

LEAST_TIME_S = 10
"""Least time limit of the second plan; otherwise it gets what the first left."""


class LivePlanner:
    """Makes plans of one cluster. ``clock``: monotonic; ``date``: seconds since the epoch.

    ``reading``: what to read of it, at each plan. ``store``: what was read of it before; what was
    listed a moment ago is not listed for the first plan.
    ``seconds``: of each phase, summed over plans. ``warnings``: those that were shown.
    """

    def __init__(
        self,
        request: PlanRequest,
        wire: Transport,
        reading: Callable[[], SnapshotRequest],
        console: Console,
        store: Store,
        clock: Callable[[], float],
        *,
        date: Callable[[], float] = time.time,
    ) -> None:
        self._request = request
        self._wire, self._reading = retry.RetryingTransport(wire), reading
        self._store = store
        self._console = console
        self._clock = clock
        self._date = date
        self._reported = False
        self.warnings: list[str] = []
        self.seconds: dict[str, float] = {}

    def plan(self, before: Planned | None = None) -> Planned:
        """Record the cluster as it is now and plan it. ``before``: the plan that became stale.

        Raises what reading the cluster and ``planning.plan`` raise.
        """
        created_at = planning.now(self._console.environ, self._date)
        request = replace(self._request, now=epoch_seconds(created_at))
        if before is not None:
            request = replace(request, time_limit_s=time_left(before))
            self._store.listed.clear()
        phases = Phases(self._clock)
        try:
            with phases.phase("snapshot"):
                lists = self._listed()
        finally:
            self._add(phases.seconds)
        planned = planning.plan(
            replace(request, gather=lists.gather),
            self._console,
            created_at=created_at,
            clock=self._clock,
            on_read=self._report_remarks,
        )
        self._add(planned.seconds)
        return planned

    def _listed(self) -> LiveLists:
        """What planning needs of the cluster as it is now."""
        lists = LiveLists(self._store)
        recorded = read_lists(self._wire, lists, self._reading(), lambda *_: None)
        if recorded.forbidden and not self._reported:
            self._warn(f"not permitted, so not planned with: {'; '.join(recorded.forbidden)}")
            for line in recorded.consequences():
                self._warn(line)
        return lists

    def _report_remarks(self, built: LoadedInput) -> None:
        """Show the first remarks, once: the plan contains all of them."""
        if self._reported:
            return
        self._reported = True
        shown = shown_of(len(built.remarks), MAX_WARNINGS)
        for line in built.remarks[:shown]:
            self._warn(line)
        if rest := len(built.remarks) - shown:
            self._warn(f"and {rest:,} more, all in the plan: --out FILE")

    def _warn(self, line: str) -> None:
        self._console.warn(line)
        self.warnings.append(line)

    def _add(self, seconds: Mapping[str, float]) -> None:
        for phase, spent in seconds.items():
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + spent, 3)


def time_left(before: Planned) -> int:
    """Seconds of the time limit that a plan's search left, at least LEAST_TIME_S."""
    limit = before.plan.instance.policy.spec.solve.time_limit_s
    return min(limit, max(LEAST_TIME_S, limit - int(before.seconds.get("solve", 0.0))))
