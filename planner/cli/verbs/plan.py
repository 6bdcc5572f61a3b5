"""``gangplan plan PATH...``: read, solve, verify, show; ``--out`` also saves. It writes no other file."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING

from planner.cli.options import schedulers_of, seconds_of, verb
from planner.cli.verbs.show import explain_next
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from planner.pipelines.plan import Planned, PlanRequest
    from planner.read.instance_builder import LoadedInput

NOT_ADMITTED = 3


@verb
def plan(
    console: Console,
    paths: list[str],
    *,
    out: Path | None = None,
    scheduler: str | None = None,
    policy: str | None = None,
    require: list[str] | None = None,
    budget: int | None = None,
    time_limit: str | None = None,
    seed: int | None = None,
    workers: int | None = None,
    previous: str | None = None,
    defragment: bool = False,
    now: str | None = None,
    add: list[str] | None = None,
    drain: list[str] | None = None,
    without: list[str] | None = None,
    relax: list[str] | None = None,
    gang: list[str] | None = None,
    namespace: str | None = None,
    decision: list[str] | None = None,
    all_: bool = False,
    output: Format = Format.table,
) -> int:
    """Plan which gangs start, on which nodes and GPUs, with proof."""
    from planner import last_plan
    from planner.pipelines import plan as planning
    from planner.pipelines.what_if import Changes
    from planner.show.plan.gang_groups import Selection
    from planner.show.plan.plan_output import show

    only = Selection(tuple(gang or ()), namespace, tuple(decision or ()), all_)
    only.check_options(output)

    created_at = planning.now(console.environ)
    request = planning.PlanRequest(
        paths=tuple(paths),
        out=out,
        policy=policy,
        require=tuple(require or ()),
        budget=budget,
        time_limit_s=None if time_limit is None else seconds_of("--time-limit", time_limit),
        seed=seed,
        workers=workers,
        previous=previous,
        defragment=defragment,
        now=None if now is None else time_of(now, created_at),
        schedulers=schedulers_of(scheduler),
        changes=Changes(*(tuple(given or ()) for given in (add, drain, without, relax))),
    )

    def report(built: LoadedInput) -> None:
        only.check({gang.key for gang in built.instance.gangs})
        planning.report_reading(console, built, request)

    planned = planning.plan(
        request, console, created_at=created_at, stdin=console.stdin, on_read=report
    )
    console.doing("writing the plan")
    show(console, output, planned.plan, lambda: planned.text, only)
    code = planned.signal_exit
    if code is None:
        code = NOT_ADMITTED if any(gang.proven for gang in planned.unmet) else 0
    inputs = ("standard input" if one == "-" else shlex.quote(one) for one in request.read_paths)
    kept = last_plan.keep(console.environ, planned.text, " ".join(inputs))
    _report(console, request, planned, kept=kept)
    _summary(console, planned, code)
    return code


def _report(console: Console, request: PlanRequest, planned: Planned, *, kept: bool) -> None:
    """Report required gangs that wait, where the plan is, and one command to go on with."""
    from models.documents.policy import MAX_BUDGET

    for gang in planned.unmet:
        if gang.proven:
            console.error(Fault(f"required gang {gang.name} cannot be admitted: {gang.why}"))
        else:
            console.warn(
                f"required gang {gang.name} is not admitted; it is not proven that it cannot be"
            )
    if planned.signal_exit is not None:
        console.say("interrupted: this is the best plan found so far, verified")
    saved = None if request.out is None else shlex.quote(str(request.out))
    if saved is not None:
        console.say(f"saved {saved}")
    plan = planned.plan
    spent = plan.instance.policy.spec.solve.budget
    ran_out = plan.status.search.stopped_by == "budget" and plan.status.outcome != "optimal"
    live = plan.instance.cluster.metadata.uid and plan.instance.what_if is None
    if saved is not None and live:
        console.next(f"{console.program} apply {saved} --dry-run=client")
    elif kept and (explained := explain_next(console, plan)) is not None:
        console.next(explained)
    elif ran_out and spent < MAX_BUDGET:
        more = _again(console, request, budget=min(4 * spent, MAX_BUDGET))
        console.next(f"{more}{f' --out {saved}' if saved else ''}   (to close the gap)")
    elif saved is None:
        again = _again(console, request, budget=request.budget)
        console.next(f"{again} --out plan.json   (to keep this plan)")
    else:
        console.next(f"{console.program} verify {saved}")


def _again(console: Console, request: PlanRequest, *, budget: int | None) -> str:
    """The same command with every option that affects the plan (`--now clock` as a time), without --out."""
    from models.units import time_text

    given = (
        ("--scheduler", request.scheduler_option),
        ("--policy", request.policy),
        ("--previous", request.previous),
        ("--now", None if request.now is None else time_text(request.now)),
        *(("--require", name) for name in request.require),
        *request.changes.options(),
        ("--time-limit", None if request.time_limit_s is None else f"{request.time_limit_s}s"),
        ("--seed", request.seed),
        ("--workers", request.workers),
        ("--budget", budget),
    )
    options = ["--defragment"] if request.defragment else []
    options += [word for name, value in given if value is not None for word in (name, str(value))]
    return f"{console.program} plan {shlex.join([*request.paths, *options])}"


def _summary(console: Console, planned: Planned, code: int) -> None:
    from models.results.plan_gpus import gained

    gangs = planned.plan.spec.gangs
    status = planned.plan.status
    effective = status.effective_gpus
    console.event(
        "summary",
        verb="plan",
        status=status.outcome,
        exit_code=code,
        gap=max((tier.gap for tier in status.objectives), default=0.0),
        placed=sum(gang.decision in ("place", "complete") for gang in gangs),
        kept=sum(gang.decision == "keep" for gang in gangs),
        moved=sum(gang.decision == "move" for gang in gangs),
        resized=sum(gang.decision == "resize" for gang in gangs),
        preempted=sum(gang.decision == "preempt" for gang in gangs),
        waiting=sum(gang.decision == "wait" for gang in gangs),
        never=sum(gang.never for gang in gangs),
        effective_gpus=None if effective is None else effective.known(),
        gained_by_priority=gained(planned.plan),
        what_if=planned.plan.instance.what_if,
        seconds=planned.seconds,
        digests=status.digests.model_dump(),
    )


def time_of(text: str, clock: str) -> int:
    """Seconds since the epoch of ``--now``. ``clock``: the current time, RFC 3339."""
    from models.units import InvalidValueError, epoch_seconds

    try:
        return epoch_seconds(clock if text == "clock" else text)
    except InvalidValueError as refused:
        hint = f"{refused.hint}, or use clock"
        raise UsageError(Fault(f"--now: {refused.what}", hint)) from None
