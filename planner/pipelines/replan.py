"""From a live cluster to a checked plan, once or once more: the planning half of ``run``.

Promises: the same reading as ``snapshot`` and the same search as ``plan``; what is recorded lies in a
folder that only we can enter, and is gone afterwards. Called by ``planner.pipelines.run``.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from planner.errors import CannotWriteError, Fault
from planner.pipelines import plan as planning
from planner.pipelines.plan import Phases, Planned, PlanRequest

if TYPE_CHECKING:
    from collections.abc import Mapping

    from models.apply.intents import SealKey
    from planner.cluster.snapshot import Recorded
    from planner.read.instance_builder import Built
    from planner.show.console import Console

MOST_WARNINGS = 4
"""Remarks of a reading that are told: every run finds the same ones again."""

LEAST_TIME_S = 10
"""A plan made once more gets what the first left of the time limit, but at least this."""


@dataclass(frozen=True, slots=True)
class Source:
    """The cluster to record. ``skip``: resources that are not read. ``timeout_s``: of a request.

    ``seal_key``: of the lock that is held. ``leave``: which pods are left out.
    """

    environ: Mapping[str, str]
    context: str | None = None
    kubeconfig: str | None = None
    timeout_s: float = 60.0
    skip: frozenset[str] = frozenset()
    seal_key: SealKey | None = None
    leave: Callable[[dict[str, Any]], bool] = lambda _: False


class Planner:
    """Makes plans of one cluster. ``clock``: seconds that pass; ``date``: seconds since the epoch.

    ``seconds``: of each phase, those of several plans added up. ``warnings``: those that were told.
    """

    def __init__(
        self,
        wish: PlanRequest,
        source: Source,
        console: Console,
        *,
        clock: Callable[[], float],
        date: Callable[[], float] = time.time,
    ) -> None:
        self._wish = wish
        self._source = source
        self._console = console
        self._clock = clock
        self._date = date
        self._told = False
        self.warnings: list[str] = []
        self.seconds: dict[str, float] = {}

    def plan(self, before: Planned | None = None) -> Planned:
        """Record the cluster as it is now and plan it. ``before``: the plan that was too late.

        Raises what recording and ``planning.plan`` raise; CannotWriteError without a folder to record to.
        """
        from models.units import epoch_seconds

        created_at = planning.now(self._source.environ, self._date)
        wish = replace(self._wish, now=epoch_seconds(created_at))
        if before is not None:
            wish = replace(wish, time_limit_s=time_left(before))
        with private_folder() as folder:
            with self._phase("snapshot"):
                self._record(folder / "cluster")
            wish = replace(wish, paths=(str(folder / "cluster"), *wish.paths))
            planned = planning.plan(
                wish, self._console, created_at=created_at, clock=self._clock, on_read=self._tell
            )
        self._add(planned.seconds)
        return planned

    def _record(self, folder: Path) -> Recorded:
        from planner.cluster import proxy
        from planner.cluster.retry import RetryingTransport
        from planner.cluster.snapshot import ACCEPT, SnapshotRequest, folder_for, record

        source = self._source
        request = SnapshotRequest(skip=source.skip, seal_key=source.seal_key, leave=source.leave)
        with (
            folder_for(folder, force=False) as made,
            proxy.connect(
                source.environ,
                context=source.context,
                kubeconfig=source.kubeconfig,
                timeout_s=source.timeout_s,
                accept=ACCEPT,
            ) as transport,
        ):
            recorded = record(RetryingTransport(transport), made, request, lambda *_: None)
        if recorded.forbidden and not self._told:
            self._warn(f"not permitted, so not planned with: {'; '.join(recorded.forbidden)}")
        return recorded

    def _tell(self, built: Built) -> None:
        """The first remarks, once: the plan holds them all."""
        if self._told:
            return
        self._told = True
        for line in built.remarks[:MOST_WARNINGS]:
            self._warn(line)
        rest = len(built.remarks) - MOST_WARNINGS
        if rest > 0:
            self._warn(f"and {rest:,} more, all in the plan: --out FILE")

    def _warn(self, line: str) -> None:
        self._console.warn(line)
        self.warnings.append(line)

    @contextmanager
    def _phase(self, name: str) -> Iterator[None]:
        phases = Phases(self._clock)
        try:
            with phases.phase(name):
                yield
        finally:
            self._add(phases.seconds)

    def _add(self, seconds: Mapping[str, float]) -> None:
        for phase, spent in seconds.items():
            self.seconds[phase] = round(self.seconds.get(phase, 0.0) + spent, 3)


def time_left(before: Planned) -> int:
    """Seconds of the time limit that a plan's search left, at least LEAST_TIME_S but never more."""
    limit = before.plan.instance.policy.spec.solve.time_limit
    return min(limit, max(LEAST_TIME_S, limit - int(before.seconds.get("solve", 0.0))))


@contextmanager
def private_folder() -> Iterator[Path]:
    """A new folder that nobody else may enter, gone with all in it at the end.

    Raises CannotWriteError where there is no place for one.
    """
    try:
        folder = tempfile.TemporaryDirectory(prefix="gangplan-")
    except OSError as error:
        hint = "name a folder that can be written to: TMPDIR=/path"
        said = error.strerror or str(error)
        raise CannotWriteError(Fault(f"cannot make a folder to work in: {said}", hint)) from error
    with folder as name:
        yield Path(name)
