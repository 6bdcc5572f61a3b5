"""``gangplan audit PATH...``: what the present placement costs. It changes nothing."""

from __future__ import annotations

import shlex
from pathlib import Path

from planner.cli.options import schedulers_of, seconds_of, verb
from planner.show.console import Console
from planner.show.text import Format


@verb
def audit(
    console: Console,
    paths: list[str],
    *,
    scheduler: str = "all",
    policy: str | None = None,
    time_limit: str | None = None,
    now: str | None = None,
    out: Path | None = None,
    output: Format = Format.table,
) -> int | None:
    """State what the placement costs, and which moves would help."""
    from planner.cli.verbs.plan import time_of
    from planner.pipelines import audit as auditing
    from planner.pipelines import plan as planning
    from planner.show.audit import show
    from planner.show.plan.short_names import shortener_of_plans

    created_at = planning.now(console.environ)
    request = auditing.AuditRequest(
        paths=tuple(paths),
        out=out,
        policy=policy,
        schedulers=schedulers_of(scheduler),
        time_limit_s=None if time_limit is None else seconds_of("--time-limit", time_limit),
        now=None if now is None else time_of(now, created_at),
    )
    audited = auditing.audit(request, console, created_at=created_at, stdin=console.stdin)
    if output is Format.table:
        console.shorten = shortener_of_plans(audited.plan.instance)
    show(console, output, audited.audit)
    if audited.signal_exit is not None:
        console.say("interrupted: this is what was found so far; the loss may be larger")
    if out is not None:
        console.say(f"saved {shlex.quote(str(out))}")
    effective = audited.audit.effective
    console.event(
        "summary",
        verb="audit",
        exit_code=audited.signal_exit or 0,
        effective_gpus=effective.now,
        replanned_gpus=effective.replanned,
        stranded_gpus=audited.audit.gpus.stranded,
        steps=len(audited.audit.steps),
        seconds=audited.seconds,
    )
    return audited.signal_exit
