"""The one command that comes after an ``apply``.

Promises: pure; what it says can be pasted into a shell. Called by ``planner.cli.apply_report``.

What ``apply`` says and asks: the table before, the question, the table after, what to do next.

Promises: data on stdout, talk on stderr; in JSON the fixed types of events. Called by
``planner.cli.apply``.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from models.apply.outcomes import GangVerdict, Outcome, Verdict
from planner.pipelines.apply import Applied, ApplyWish, Hearing
from planner.pipelines.apply_steps import LOCK_NAMESPACE
from planner.show import apply as showing
from planner.show.apply import ApplyProgress
from planner.show.text import Format, plural
from planner.untrusted_text import json_safe, safe


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


if TYPE_CHECKING:
    from models.apply.live_state import ClusterView
    from planner.pipelines.apply_steps import Ready
    from planner.show.console import Console

MOST_NODES = 64
"""Names of nodes in one JSON log line."""


def can_ask(console: Console, path: str) -> bool:
    """Whether there is somebody at a terminal to read a question, and stdin is not the plan itself."""
    stdin = console.stdin
    if console.json_log or path == "-" or stdin is None:
        return False
    return stdin.isatty() and console.is_terminal(console.stderr)


class Ear:
    """Hears of one apply as it goes."""

    def __init__(
        self, console: Console, wish: ApplyWish, output: Format, clock: Callable[[], float]
    ) -> None:
        self._console = console
        self._wish = wish
        self._output = output
        self._progress = ApplyProgress(console, clock)

    def hearing(self) -> Hearing:
        return Hearing(self._announce, self._agree, self._progress.on_event)

    def _announce(self, plan: Ready, view: ClusterView) -> None:
        """What will happen, gang by gang."""
        found = showing.gang_changes(plan.orders, view)
        self._progress.pods = sum(one.starts for one in found)
        console = self._console
        evictions = self._wish.way.allow_evictions
        for one in found:
            if one.changes:
                _change(console, one)
        console.event(
            "apply_start",
            plan=plan.orders.plan,
            cluster=plan.orders.cluster,
            gangs=sum(one.changes for one in found),
            pods=self._progress.pods,
            evictions=sum(one.stops for one in found) if evictions else 0,
            dry_run=self._wish.dry,
        )
        changing = [one for one in found if one.changes]
        if any(one.starts for one in changing) and _shares(plan, view):
            console.say(f"note: {plan.backend.note()}")
        if changing and not (console.json_log or self._wish.sure or self._wish.dry):
            table = showing.change_table(changing, evictions=evictions)
            if self._output in (Format.table, Format.wide):
                console.table(table)
                console.data("\n")
            else:
                console.say(table.plain().rstrip(), fold=False)

    def _agree(self, plan: Ready, view: ClusterView, context: str | None) -> bool:
        """Ask. Where there is nothing to do there is nothing to ask."""
        found = showing.gang_changes(plan.orders, view)
        if not any(one.changes for one in found):
            return True
        line = showing.change_line(found, evictions=self._wish.way.allow_evictions)
        where = "this pod's cluster" if context is None else f"context {context}"
        return self._console.ask(f"apply plan {plan.orders.plan} to {where} ({line})?")


def _shares(plan: Ready, view: ClusterView) -> bool:
    """Whether a pod that is to start takes some of its node's GPUs only: then it matters which."""
    return any(
        0 < pod.gpu_count < view.nodes[pod.node].gpus
        for gang in plan.orders.gangs
        for pod in gang.starts
        if pod.node in view.nodes
    )


def _change(console: Console, one: showing.GangChange) -> None:
    nodes = [safe(name) for name in one.nodes[:MOST_NODES]]
    console.event(
        "change",
        gang=safe(one.named),
        action=one.action,
        starts=one.starts,
        evicts=one.stops,
        gpus=one.gpus,
        by=one.how or None,
        nodes=nodes,
        more_nodes=len(one.nodes) - len(nodes),
    )


def report(console: Console, wish: ApplyWish, output: Format, applied: Applied) -> int:
    """What was done, what was not and how to undo it, what to do next; the exit code."""
    console.clear_live()
    if applied.verdict is None:
        console.say("nothing was applied")
        _summary(console, applied, "declined", None)
        return applied.exit_code
    verdict = applied.verdict
    _data(console, wish, output, applied, verdict)
    _talk(console, wish, applied, verdict)
    status = _status(wish, applied, verdict)
    console.event(
        "apply_done",
        plan=applied.plan.orders.plan,
        gangs={name: float(count) for name, count in showing.counts(verdict).items()},
        partial=[safe("/".join(g.gang)) for g in _partial(verdict)],
        writes=verdict.writes,
        evicted=verdict.evicted,
        stop=None if verdict.stop is None else safe(verdict.stop),
    )
    _summary(console, applied, status, verdict)
    return applied.exit_code


def _data(
    console: Console, wish: ApplyWish, output: Format, applied: Applied, verdict: Verdict
) -> None:
    plan = applied.plan.orders.plan
    if output is Format.name:
        started = (Outcome.started, Outcome.pending)
        names = ["/".join(one.gang) for one in verdict.gangs if one.outcome in started]
        console.data("".join(f"gang/{safe(name)}\n" for name in names))
    elif output in (Format.json, Format.yaml):
        facts = {
            "plan": plan,
            "cluster": applied.plan.orders.cluster,
            "status": _status(wish, applied, verdict),
            "exitCode": applied.exit_code,
            "dryRun": wish.dry,
        }
        document = showing.document(
            verdict, facts, lambda one: _undo(one, applied.context, wish.kubeconfig)
        )
        console.data(dumped(document, output))
    elif verdict.gangs:
        shown = None if output is Format.wide else plan
        console.table(showing.verdict_table(verdict, shown, dry=wish.dry))


def dumped(
    document: Any,  # noqa: ANN401  # whatever JSON holds
    output: Format,
) -> str:
    """As JSON or YAML, harmless on a terminal."""
    if output is Format.yaml:
        from planner.show.plan_output import yaml_text

        return yaml_text(document)
    import json

    return json_safe(json.dumps(document, indent=2, ensure_ascii=False)) + "\n"


def _talk(console: Console, wish: ApplyWish, applied: Applied, verdict: Verdict) -> None:
    """Notes, commands that undo, the last lines."""
    for one in _partial(verdict):
        commands = _undo(one, applied.context, wish.kubeconfig)
        if commands:
            console.warn(showing.undo_heading(one))
            for command in commands:
                console.say(f"  {command}")
    done = showing.counted(verdict, dry=wish.dry)
    said = "dry run, nothing was written" if wish.dry else f"{plural(verdict.writes, 'write')}"
    stopped = "" if verdict.stop is None else f"stopped: {verdict.stop}; "
    console.say(f"{stopped}gangs: {done} ({said})")
    console.next(next_command(console.program, wish, verdict))


def _partial(verdict: Verdict) -> list[GangVerdict]:
    return [one for one in verdict.gangs if one.outcome is Outcome.partial]


def _undo(one: GangVerdict, context: str | None, kubeconfig: str | None) -> list[str]:
    from planner.show.apply import undo_commands

    return undo_commands(one.undo, context, kubeconfig)


def _status(wish: ApplyWish, applied: Applied, verdict: Verdict) -> str:
    """One word: what a log is searched for."""
    if verdict.stop is not None:
        return "stopped"
    if applied.exit_code:
        return "part-way"
    return "dry-run" if wish.dry else "applied" if verdict.writes else "unchanged"


def _summary(console: Console, applied: Applied, status: str, verdict: Verdict | None) -> None:
    console.event(
        "summary",
        verb="apply",
        status=status,
        exit_code=applied.exit_code,
        context=applied.context,
        cluster=applied.plan.orders.cluster,
        plan=applied.plan.orders.plan,
        gangs={}
        if verdict is None
        else {name: float(count) for name, count in showing.counts(verdict).items()},
        writes=0 if verdict is None else verdict.writes,
        evicted=0 if verdict is None else verdict.evicted,
        seconds=applied.seconds,
    )
