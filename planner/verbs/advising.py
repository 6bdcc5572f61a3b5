"""The one command that comes after an ``apply``.

Promises: pure; what it says can be pasted into a shell. Called by ``planner.verbs.hearing``.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import replace

from models.applying.verdicts import Outcome, Verdict
from planner.live.applying import LOCK_NAMESPACE
from planner.live.carrying import ApplyWish
from planner.showing.text import plural


def next_command(program: str, wish: ApplyWish, verdict: Verdict) -> str:
    """What to do next, and in brackets why."""
    return next(_found(program, wish, verdict))


def _found(program: str, wish: ApplyWish, verdict: Verdict) -> Iterator[str]:
    """Everything that could be done, the most urgent first."""
    outcomes = {one.outcome for one in verdict.gangs}
    way, again = wish.way, f"{program} apply"
    if verdict.stop is not None or Outcome.halted in outcomes:
        yield f"{again} {arguments(wish)}   (resumes it)"
    if Outcome.partial in outcomes and not way.evict_partial:
        words = arguments(replace(wish, way=replace(way, evict_partial=True)))
        yield f"{again} {words}   (or the commands above)"
    if Outcome.withheld in outcomes and not way.allow_evictions:
        yield f"{again} {arguments(replace(wish, way=replace(way, allow_evictions=True)))}"
    if outcomes & {Outcome.skipped, Outcome.partial}:
        yield f"{program} snapshot --out DIR   (what changed needs a new plan)"
    if Outcome.withheld in outcomes:
        yield f"{again} {arguments(wish)}   (once there is room, or with more --max-evictions)"
    if wish.dry:
        yield f"{again} {arguments(replace(wish, dry=False))}"
    status = " ".join([program, "status", *(shlex.quote(one) for one in _where(wish))])
    waiting = sum(one.outcome is Outcome.pending for one in verdict.gangs)
    yield f"{status}   ({plural(waiting, 'gang')} to be bound)" if waiting else status


def arguments(wish: ApplyWish) -> str:
    """The words after ``apply`` that decide what is applied, quoted for a shell."""
    way = wish.way
    flags = (
        ("--dry-run=server", wish.dry),
        ("--yes", wish.sure),
        ("--allow-evictions", way.allow_evictions),
        ("--evict-partial", way.evict_partial),
        ("--allow-shared-nodes", way.shared_nodes),
    )
    given = [flag for flag, on in flags if on]
    if way.max_evictions is not None:
        given.append(f"--max-evictions={way.max_evictions}")
    given += _where(wish)
    begins = wish.path.startswith("-") and wish.path != "-"
    return shlex.join([*given, *(["--"] if begins else []), wish.path])


def _where(wish: ApplyWish) -> list[str]:
    options = (("--context", wish.context), ("--kubeconfig", wish.kubeconfig))
    given = [f"{name}={value}" for name, value in options if value is not None]
    if wish.way.lock_namespace != LOCK_NAMESPACE:
        given.append(f"--lock-namespace={wish.way.lock_namespace}")
    return given
