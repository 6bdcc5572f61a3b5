"""``gangplan verify PLAN``: check everything a plan states, from its document alone."""

from __future__ import annotations

import gc
import shlex

from planner.cli.options import verb
from planner.show.console import Console
from planner.show.text import Format


@verb
def verify(console: Console, path: str, *, output: Format = Format.table) -> None:
    """Check a saved plan by every rule, without a solver."""
    from planner.pipelines.plan import judge_file
    from planner.read import plan_files
    from planner.show.plan.proofs import proofs

    gc.disable()  # the whole document stays in use until the end
    plan, verdict = judge_file(plan_files.read_bytes(path, console.stdin), path)
    console.event("verify_done", violations=0)
    console.remarks(verdict.remarks)
    first, *more = proofs(plan, verdict.unchecked)
    console.data(console.lines([first, *more] if output is Format.wide else [first]))
    console.next(f"{console.program} show {shlex.quote(path)}")
