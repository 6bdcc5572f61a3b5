"""What waiting gangs could use of a cluster at one moment: as it is, with few restarts, without quotas.

Each figure is that of a plan that the judge has accepted, so that it could have been. A better one is
possible unless the search has proven that there is none.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from models.apply.plan_actions import plan_id
from models.documents.canonical import canonical_instance
from models.documents.policy import Objective, SolveLimits
from models.instance.policy import EVERY_SCHEDULER
from models.instance.queue import Amount, Queue
from models.instance.solution import STARTS, GangDecision, Reason
from models.tiers import family
from models.units import time_text
from planner import last_plan
from planner.atomic_files import check_target
from planner.cluster.snapshot import ACCEPT, SnapshotRequest
from planner.cluster.store import Store
from planner.errors import RefusedPlanError
from planner.pipelines.adjustments import at_no_price, starting_from
from planner.pipelines.plan import Maker, Phases, PlanRequest
from planner.pipelines.run import LivePlanner, RunRequest
from planner.pipelines.timed_search import TimedSearch
from planner.show.console import Console
from planner.show.run import RunReport
from planner.show.text import number
from planner.signals import Stop
from planner.week.journal import Figures, Idle, Start, append

if TYPE_CHECKING:
    from models.documents.plan import PlanDocument
    from models.instance.gang import Gang
    from models.instance.instance import Instance
    from models.instance.solution import Solution
    from models.values.tier_values import Evaluation
    from planner.read.instance_builder import LoadedInput
    from planner.show.console import Console


RESTARTS = 2
"""Gangs that restart at most, unless the command line says otherwise."""

SEARCH_S = 6
"""Seconds of each search beside the plan, and its budget: what is not proven by then is "at least"."""

LARGE = 10_000
"""With more nodes and gangs together only the plan is made: each search beside it takes as long."""

MILLI = 1000


@dataclass(frozen=True, slots=True)
class Look:
    """What a round knows beside the cluster. ``restarts``: most gangs that restart. ``created_at``: when."""

    restarts: int
    created_at: str
    console: Console
    stop: threading.Event
    clock: Callable[[], float] = time.monotonic


def figures_of(built: LoadedInput, solution: Solution, plan: PlanDocument, look: Look) -> Figures:
    """The figures of a cluster. ``solution``, ``plan``: in which nothing that runs is moved or stopped."""
    from models.program.base_state import base_decisions
    from models.results.audit import free_to_move
    from models.values.effective_gpus import gpus_at_speed
    from models.values.leftover import free_gpus, stranded_by_cause
    from models.values.tier_values import Evaluation

    instance = built.instance
    base = base_decisions(instance)
    installed = sum(node.whole_gpus for node in instance.cluster.nodes)
    free = sum(free_gpus(instance, base).unheld)
    causes = stranded_by_cause(instance, base)
    lines = Evaluation(instance, base)
    left = any(
        one.decision not in STARTS and not gang.running and gang.least_units and gang.hold is None
        for gang, one in zip(instance.gangs, solution.decisions, strict=True)
    )
    gpus, gangs = _started(instance, solution.decisions)
    now, moving, quotas = Idle(gpus, not left or _proven(plan), gangs), Idle(), Idle()
    if left and len(instance.cluster.nodes) + len(instance.gangs) > LARGE:
        moving = quotas = Idle(proven=False)
    elif free and left:
        most = partial(_most, built, solution.decisions, look)
        # The plan goes by priority, age and speed: others may have more GPUs.
        found = most(at_no_price(instance, ()))
        now = found if found.gpus >= now.gpus else now
        if look.restarts:
            wish = at_no_price(instance, free_to_move(instance))
            moving = _beyond(now, most(wish, look.restarts))
        if any(queue.limit != Amount() or not queue.borrowing for queue in instance.queues):
            queues = tuple(map(_unlimited, instance.queues))
            wish = at_no_price(replace(instance, queues=queues, shares=None), ())
            quotas = _beyond(now, most(wish))
    return Figures(
        installed=installed * MILLI,
        held=int((installed - free) * MILLI),
        free=int(free * MILLI),
        effective=sum(gpus_at_speed(lines)) // instance.gpu_unit,
        spread=_spread(instance, lines),
        stranded={cause: round(MILLI * sum(nodes.values())) for cause, nodes in causes.items()},
        restarts=look.restarts,
        now=now,
        moving=moving,
        quotas=quotas,
    )


def _gpus(instance: Instance, gang: Gang) -> int:
    return MILLI * gang.least_units // instance.gpu_unit


def _name(gang: Gang) -> str:
    return "/".join(gang.key)


def _started(
    instance: Instance, decisions: Sequence[GangDecision]
) -> tuple[int, tuple[Start, ...]]:
    """GPUs of gangs that wait and that a plan starts, and who they are."""
    nodes = instance.cluster.nodes
    found = tuple(
        Start(
            _name(gang),
            _gpus(instance, gang),
            tuple(nodes[n].name for n in sorted({pod.node for pod in one.pods})),
        )
        for gang, one in zip(instance.gangs, decisions, strict=True)
        if one.decision in STARTS and not gang.running and gang.least_units
    )
    return sum(one.gpus for one in found), found


def _proven(plan: PlanDocument) -> bool:
    """Whether no plan is better in the tiers about which gangs run."""
    deciding = [
        one
        for one in plan.status.objectives
        if (kind := family(one.family)).fused and not kind.name.endswith("waiting")
    ]
    return all(one.proof is not None and one.gap == 0 for one in deciding)


def _unlimited(queue: Queue) -> Queue:
    none = Amount()
    return replace(
        queue, limit=none, lending_limit=none, non_preemptible_limit=none, borrowing=True
    )


def _most(
    built: LoadedInput,
    known: Sequence[GangDecision],
    look: Look,
    wish: Instance,
    restarts: int | None = None,
) -> Idle:
    """Most GPUs of waiting gangs that start under these rules: none goes before another one."""
    wish = starting_from(wish, known, max_gangs=restarts)
    policy = replace(
        wish.policy,
        objectives=(Objective("admission"),),
        starvation_after_s=None,
        solve=SolveLimits(SEARCH_S, SEARCH_S, 1, wish.policy.solve.seed),
    )
    level = tuple(replace(gang, priority=0, stated_priority=None) for gang in wish.gangs)
    wish = replace(wish, gangs=level, policy=policy)
    search = TimedSearch(wish, look.console, look.stop, look.clock, lambda _: 0.0, frequent=True)
    found = unexplained(wish, search.run())
    maker = Maker(PlanRequest(()), replace(built, instance=wish), look.created_at, look.console)
    try:
        plan, _ = maker.made(found, Phases(look.clock), refute=False)
    except RefusedPlanError:
        return Idle(proven=False)  # it counts nothing that the judge does not accept
    moved = tuple(
        (_name(gang), _gpus(wish, gang), _lost(built.instance, index))
        for index, (gang, one) in enumerate(zip(wish.gangs, found.decisions, strict=True))
        if one.decision == "move"
    )
    gpus, gangs = _started(wish, found.decisions)
    return Idle(gpus, _proven(plan), gangs, moved)


def _beyond(now: Idle, most: Idle) -> Idle:
    """What starts under other rules beyond what starts now."""
    if most.gpus <= now.gpus:
        return Idle(proven=most.proven)
    known = {one.gang for one in now.gangs}
    more = tuple(one for one in most.gangs if one.gang not in known)
    return Idle(most.gpus - now.gpus, most.proven, more, most.moved)


def unexplained(instance: Instance, solution: Solution) -> Solution:
    """The solution of a frequent search as a plan that says of gangs that wait only that they do."""
    waits = GangDecision("wait", (), Reason("NoRoom", bare=True))
    decisions = tuple(
        waits if one.decision == "wait" and gang.hold is None else replace(one, expected_start=None)
        for one, gang in zip(solution.decisions, instance.gangs, strict=True)
    )
    ended = all(one.best == one.bound for one in solution.tiers)
    stopped_by = solution.stopped_by if ended or solution.stopped_by != "proof" else "budget"
    return replace(solution, decisions=decisions, stopped_by=stopped_by)


def _lost(instance: Instance, index: int) -> int | None:
    """GPU-seconds since its last checkpoint or its start."""
    gang = instance.gangs[index]
    seconds = instance.lost_work_s(gang)
    return None if seconds is None else _gpus(instance, gang) * max(0, seconds) // MILLI


def _spread(instance: Instance, lines: Evaluation) -> int:
    """What whole running gangs lose to links that are slower than those of the best placement."""
    from models.values.tier_values import gang_speed

    lost = 0
    for line in lines.lines:
        if not line.admitted or line.value is None or line.value.share is None:
            continue
        pods = (pod for pod in line.decision.pods if line.gang.roles[pod.role].units)
        models = (instance.cluster.nodes[pod.node].model for pod in pods)
        ideal = gang_speed(instance, line.gang, MILLI, [one for one in models if one is not None])
        lost += line.gang.least_units * max(0, ideal - (line.speed or 0))
    return lost // instance.gpu_unit


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
