"""Plans of a live cluster for ``run``: record a snapshot in a private folder, then plan it.

Reads what ``snapshot`` reads and searches as ``plan`` does; the folder is removed afterwards.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import CannotWriteError, Fault
from planner.pipelines import plan as planning
from planner.pipelines.apply_steps import ClusterTarget
from planner.pipelines.plan import Phases, Planned, PlanRequest

if TYPE_CHECKING:
    from models.apply.intents import SealKey
    from planner.cluster.retry import KnownRights
    from planner.read.instance_builder import LoadedInput
    from planner.show.console import Console

MAX_WARNINGS = 4
"""Remarks of a reading that are shown: every run finds the same ones again."""

LEAST_TIME_S = 10
"""Least time limit of the second plan; otherwise it gets what the first left."""


@dataclass(frozen=True, slots=True)
class ClusterSource:
    """The cluster to record. ``skip``: resources that are not read.

    ``seal_key``: of the lock that is held. ``leave``: which pods are left out. ``known``: rights that the
    account has shown, so that a server that has just restarted and denies them is asked again.
    """

    target: ClusterTarget
    skip: frozenset[str] = frozenset()
    seal_key: SealKey | None = None
    leave: Callable[[dict[str, Any]], bool] = lambda _: False
    known: KnownRights | None = None


class LivePlanner:
    """Makes plans of one cluster. ``clock``: monotonic; ``date``: seconds since the epoch.

    ``seconds``: of each phase, summed over plans. ``warnings``: those that were shown.
    """

    def __init__(
        self,
        request: PlanRequest,
        source: ClusterSource,
        console: Console,
        *,
        clock: Callable[[], float],
        date: Callable[[], float] = time.time,
    ) -> None:
        self._request = request
        self._source = source
        self._console = console
        self._clock = clock
        self._date = date
        self._reported = False
        self.warnings: list[str] = []
        self.seconds: dict[str, float] = {}

    def plan(self, before: Planned | None = None) -> Planned:
        """Record the cluster as it is now and plan it. ``before``: the plan that became stale.

        Raises what recording and ``planning.plan`` raise, and CannotWriteError without a folder.
        """
        from models.units import epoch_seconds

        created_at = planning.now(self._source.target.environ, self._date)
        request = replace(self._request, now=epoch_seconds(created_at))
        if before is not None:
            request = replace(request, time_limit_s=time_left(before))
        with private_folder() as folder:
            phases = Phases(self._clock)
            try:
                with phases.phase("snapshot"):
                    self._record(folder / "cluster")
            finally:
                self._add(phases.seconds)
            request = replace(request, paths=(str(folder / "cluster"), *request.paths))
            planned = planning.plan(
                request,
                self._console,
                created_at=created_at,
                clock=self._clock,
                on_read=self._report_remarks,
            )
        self._add(planned.seconds)
        return planned

    def _record(self, folder: Path) -> None:
        from planner.cluster.retry import RetryingTransport
        from planner.cluster.snapshot import ACCEPT, SnapshotFolder, SnapshotRequest, record

        source = self._source
        request = SnapshotRequest(skip=source.skip, seal_key=source.seal_key, leave=source.leave)
        with (
            SnapshotFolder(folder, force=False) as made,
            source.target.connect(ACCEPT) as transport,
        ):
            recorded = record(
                RetryingTransport(transport, known=source.known), made, request, lambda *_: None
            )
        if recorded.forbidden and not self._reported:
            self._warn(f"not permitted, so not planned with: {'; '.join(recorded.forbidden)}")
            for line in recorded.consequences():
                self._warn(line)

    def _report_remarks(self, built: LoadedInput) -> None:
        """Show the first remarks, once: the plan contains all of them."""
        if self._reported:
            return
        self._reported = True
        from models.units import shown_of

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


@contextmanager
def private_folder() -> Iterator[Path]:
    """A temporary folder that only this user can enter. Raises CannotWriteError."""
    with ExitStack() as stack:
        try:
            folder = stack.enter_context(tempfile.TemporaryDirectory(prefix="gangplan-run-"))
        except OSError as error:
            hint = "name a folder that can be written to: TMPDIR=/path"
            what = f"cannot create a temporary folder: {error.strerror or error}"
            raise CannotWriteError(Fault(what, hint)) from error
        yield Path(folder)
