"""``run --shadow``: reads and plans the cluster as a run does, writes nothing to it, adds to a journal."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

from models.apply.plan_actions import plan_id
from models.documents.canonical import canonical_instance
from models.instance.policy import EVERY_SCHEDULER
from models.units import time_text
from planner import last_plan
from planner.atomic_files import check_target
from planner.cluster.snapshot import ACCEPT, SnapshotRequest
from planner.cluster.store import Store
from planner.pipelines.live_planner import LivePlanner
from planner.pipelines.plan import Phases
from planner.pipelines.run import RunRequest
from planner.show.console import Console
from planner.show.run import RunReport
from planner.show.text import number
from planner.signals import Stop
from planner.week.journal import append
from planner.week.rounds import MILLI, RESTARTS, Look, figures_of

TIME_LIMIT_S = 15
"""Of the plan, unless the command line says otherwise."""

KEEP_S = 35 * 24 * 60 * 60


@dataclass(frozen=True, slots=True)
class Shadow:
    """What a shadow does in the place of a run. ``keep_s``: how long a day stays in the journal."""

    journal: Path
    restarts: int = RESTARTS
    keep_s: int = KEEP_S
    anonymize: bool = False

    def __call__(
        self,
        request: RunRequest,
        console: Console,
        report: RunReport,
        stop: Stop,
        clock: Callable[[], float],
    ) -> None:
        """One round. Raises what reading the cluster, planning and writing raise."""
        for file in (request.planning.out, request.metrics):
            if file is not None:
                check_target(file)
        own = request.planning
        planning = replace(
            own,
            keep_running=True,
            schedulers=(EVERY_SCHEDULER,),
            time_limit_s=own.time_limit_s or (TIME_LIMIT_S if own.budget is None else None),
        )
        with request.target.connect(ACCEPT) as proxy:
            reading = SnapshotRequest(skip=request.skip, starts={})
            planner = LivePlanner(planning, proxy, lambda: reading, console, Store(), clock)
            try:
                planned = planner.plan()
            finally:
                report.seconds = planner.seconds
                report.warnings += planner.warnings
        report.decided, report.plan = planned.plan, plan_id(planned.plan)
        report.cluster = planned.plan.instance.cluster.metadata.uid
        last_plan.keep(console.environ, planned.text, "the cluster as it was seen by --shadow")
        if planned.signal_exit is not None:
            stop.exit_code = planned.signal_exit
            stop.event.set()
        stop.check()
        assert planned.made_of is not None
        built, solution = planned.made_of
        phases = Phases(clock)
        with phases.phase("figures"):
            created_at = planned.plan.metadata.created_at
            look = Look(self.restarts, time_text(created_at), console, stop.event, clock)
            figures = figures_of(built, solution, planned.plan, look)
        stop.check()
        with phases.phase("journal"):
            path, size, cut = append(
                self.journal,
                created_at,
                canonical_instance(built.instance),
                figures,
                keep_s=self.keep_s,
                anonymize=self.anonymize,
            )
        report.seconds.update(phases.seconds)
        if cut:
            console.warn(f"{path}: a half-written record at its end was cut off")
        report.idle = {
            "now": figures.now.gpus / MILLI,
            "restarts": figures.moving.gpus / MILLI,
            "no quotas": figures.quotas.gpus / MILLI,
        }
        report.spread = figures.spread / MILLI
        now, restarts, quotas = map(number, report.idle.values())
        console.say(f"recorded in {path}: {size:,} bytes")
        console.say(
            f"GPUs idle that waiting gangs could use: {now}; {restarts} more with restarts, "
            f"{quotas} without quotas"
        )
        report.status, report.exit_code = "recorded", 0
