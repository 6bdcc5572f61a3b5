"""The output of ``apply``: changes and the question before, outcomes and the next command after; dry runs.

Data goes to stdout, messages to stderr; JSON logs use the fixed event types.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace

from models.apply.evictions import withheld_by_budgets
from models.apply.live_state import ClusterView
from models.apply.requests import Outcome, Verdict
from models.units import first_of, plural
from planner.pipelines.apply import (
    LOCK_NAMESPACE,
    ApplyRequest,
    ApplyResult,
    Preview,
    VerifiedPlan,
    ordered,
    status_of,
)
from planner.pipelines.plan import verify_file
from planner.read.plan_files import read_bytes
from planner.show.apply import (
    MAX_NAMES,
    ApplyProgress,
    PlannedChange,
    Undo,
    announce_changes,
    announce_done,
    change_line,
    change_table,
    count_text,
    counts,
    document,
    planned_changes,
    say_undo,
    undo_commands,
    verdict_table,
)
from planner.show.console import Console
from planner.show.manifests import UNPARTITIONED, objects, yaml_stream
from planner.show.table import draw
from planner.show.text import Format
from planner.untrusted_text import one_line, safe

CHANGES = 2
"""Exit code of ``--detailed-exitcode`` where something would change."""


def can_ask(console: Console, path: str) -> bool:
    """Whether a user at a terminal can answer a question, and stdin is not the plan itself."""
    stdin = console.stdin
    if console.json_log or path == "-" or stdin is None:
        return False
    return stdin.isatty() and console.is_terminal(console.stderr)


@dataclass(frozen=True, slots=True)
class ConsoleApplyReporter:
    """Shows what an apply will change, and asks the user."""

    console: Console
    request: ApplyRequest
    output: Format
    progress: ApplyProgress

    def announce(self, plan: VerifiedPlan, view: ClusterView) -> None:
        console, request = self.console, self.request
        evictions = request.options.allow_evictions
        changing = _changes(console, request, plan, view, dry=request.dry)
        self.progress.pods = sum(len(one.starts) for one in changing)
        if changing and not (console.json_log or request.yes or request.dry):
            table = change_table(changing, evictions=evictions)
            if self.output in (Format.table, Format.wide):
                console.table(table)
                console.data("\n")
            else:
                console.say(draw(table).rstrip(), fold=False)

    def confirm(self, plan: VerifiedPlan, view: ClusterView, context: str | None) -> bool:
        """Ask, unless there is nothing to do."""
        found = planned_changes(plan.orders, view)
        if not found:
            return True
        line = change_line(found, evictions=self.request.options.allow_evictions)
        where = "this pod's cluster" if context is None else f"context {context}"
        return self.console.ask(f"apply plan {plan.orders.plan} to {where} ({line})?")


def _changes(
    console: Console, request: ApplyRequest, plan: VerifiedPlan, view: ClusterView, *, dry: bool
) -> list[PlannedChange]:
    """The gangs that change, with what is to be said of them all."""
    evictions = request.options.allow_evictions
    changing = announce_changes(console, plan.orders, view, evictions=evictions, dry=dry)
    if any(one.starts for one in changing) and _uses_partial_nodes(plan, view):
        console.say(f"note: {plan.backend.note}")
    waiting = ["/".join(key) for key in plan.orders.unpartitioned]
    if waiting:
        console.warn(f"not started: {first_of(waiting, MAX_NAMES)}: {UNPARTITIONED}")
    return changing


def _uses_partial_nodes(plan: VerifiedPlan, view: ClusterView) -> bool:
    """Whether a pod to start takes some GPUs of its node: only then their indices matter."""
    return any(
        0 < pod.gpu_count < view.nodes[pod.node].gpus
        for gang in plan.orders.gangs
        for pod in gang.starts
        if pod.node in view.nodes
    )


def show_objects(console: Console, request: ApplyRequest, output: Format) -> None:
    """Write the objects that applying the plan sends. Raises InputError for a plan that cannot be applied."""
    plan = verify_file(read_bytes(request.path, console.stdin), request.path)
    console.event("verify_done", violations=0)
    made = ordered(plan, request.path)
    found = objects(made.orders, plan.instance.cluster.spec.nodes)
    if output is Format.yaml:
        console.data(yaml_stream(made.orders, found, made.backend.note))
    else:
        console.document({"plan": made.orders.plan, "gangs": [asdict(one) for one in found]})


def show_preview(
    console: Console, request: ApplyRequest, output: Format, preview: Preview, *, detailed: bool
) -> int:
    """Print what applying would change, and the next command; the exit code, of changes if ``detailed``."""
    plan, view, options = preview.plan, preview.view, request.options
    changing = _changes(console, request, plan, view, dry=True)
    if output is Format.name:
        console.data("".join(f"gang/{safe('/'.join(one.gang.key))}\n" for one in changing))
    elif changing:
        console.table(change_table(changing, evictions=options.allow_evictions))
    for gang, why in withheld_by_budgets(plan.orders, view).items():
        console.warn(one_line(f"withheld: gang {'/'.join(gang)}: {why}"))
    if not changing:
        console.say("no changes: the plan has nothing left to start, stop or resize")
    else:
        console.say(change_line(changing, evictions=options.allow_evictions))
        evicts = options.allow_evictions or any(one.takes for one in changing)
        proposed = replace(request, options=replace(options, allow_evictions=evicts))
        console.next(f"{console.program} apply {arguments(proposed)}")
    code = CHANGES if changing and detailed else 0
    console.event(
        "summary",
        verb="apply",
        status="different" if changing else "same",
        exit_code=code,
        context=preview.context,
        cluster=plan.orders.cluster,
        plan=plan.orders.plan,
        gangs=len(changing),
    )
    return code


def report(console: Console, request: ApplyRequest, output: Format, result: ApplyResult) -> int:
    """Print what was done, what was not and how to undo it, and the next command; the exit code."""
    console.clear_live()
    if result.verdict is None:
        console.say("nothing was applied")
        _summary(console, result, "declined", Verdict())
        return result.exit_code
    verdict = result.verdict
    _print_data(console, request, output, result, verdict)
    undo = _undo_of(request, result)
    for one in verdict.gangs:
        say_undo(console, one, undo)
    writes = "dry run, nothing was written" if request.dry else plural(verdict.writes, "write")
    stopped = "" if verdict.stop is None else f"stopped: {verdict.stop}; "
    done = f"gangs{' would be' * request.dry}: {count_text(verdict.gangs)}"
    console.say(f"{stopped}{done if verdict.gangs else 'nothing to do'} ({writes})")
    console.next(next(next_commands(console.program, request, verdict)))
    announce_done(console, result.plan.orders.plan, verdict, undo)
    _summary(console, result, status_of(verdict, result.exit_code, dry=request.dry), verdict)
    return result.exit_code


def _print_data(
    console: Console, request: ApplyRequest, output: Format, result: ApplyResult, verdict: Verdict
) -> None:
    plan = result.plan.orders.plan
    if output is Format.name:
        started = (Outcome.started, Outcome.pending)
        names = ["/".join(one.gang) for one in verdict.gangs if one.outcome in started]
        console.data("".join(f"gang/{safe(name)}\n" for name in names))
    elif output in (Format.json, Format.yaml):
        facts = {
            "plan": plan,
            "cluster": result.plan.orders.cluster,
            "status": status_of(verdict, result.exit_code, dry=request.dry),
            "exitCode": result.exit_code,
            "dryRun": request.dry,
        }
        console.document(document(verdict, facts, _undo_of(request, result)), output)
    elif verdict.gangs:
        shown = None if output is Format.wide else plan
        console.table(verdict_table(verdict, shown, dry=request.dry))


def _undo_of(request: ApplyRequest, result: ApplyResult) -> Undo:
    return lambda one: undo_commands(one.undo, result.context, request.target.kubeconfig)


def _summary(console: Console, result: ApplyResult, status: str, verdict: Verdict) -> None:
    console.event(
        "summary",
        verb="apply",
        status=status,
        exit_code=result.exit_code,
        context=result.context,
        cluster=result.plan.orders.cluster,
        plan=result.plan.orders.plan,
        gangs=counts(verdict.gangs),
        writes=verdict.writes,
        evicted=verdict.evicted,
        seconds=result.seconds,
    )


# ---- the next command


def next_commands(program: str, request: ApplyRequest, verdict: Verdict) -> Iterator[str]:
    """The commands to run next, the most urgent first, quoted for a shell, and in brackets why."""
    outcomes = {one.outcome for one in verdict.gangs}
    options, again = request.options, f"{program} apply"
    if verdict.stop is not None or Outcome.halted in outcomes:
        yield f"{again} {arguments(request)}   (resumes it)"
    if Outcome.partial in outcomes and not options.evict_partial:
        evicting = replace(request, options=replace(options, evict_partial=True))
        yield f"{again} {arguments(evicting)}   (or the commands above)"
    if Outcome.withheld in outcomes and not options.allow_evictions:
        evicting = replace(request, options=replace(options, allow_evictions=True))
        yield f"{again} {arguments(evicting)}"
    if outcomes & {Outcome.skipped, Outcome.partial}:
        yield f"{program} snapshot --out DIR   (the changes need a new plan)"
    if Outcome.withheld in outcomes:
        until = "once there is room and disruption budgets allow it, or with more --max-evictions"
        yield f"{again} {arguments(request)}   ({until})"
    if request.dry:
        yield f"{again} {arguments(replace(request, dry=False))}"
    status = " ".join([program, "status", *map(shlex.quote, _cluster_flags(request))])
    waiting = sum(one.outcome is Outcome.pending for one in verdict.gangs)
    yield f"{status}   ({plural(waiting, 'gang')} to be bound)" if waiting else status


def arguments(request: ApplyRequest) -> str:
    """The arguments of ``apply`` that decide what is applied, quoted for a shell."""
    options = request.options
    flags = (
        ("--dry-run=server", request.dry),
        ("--yes", request.yes),
        ("--allow-evictions", options.allow_evictions),
        ("--evict-partial", options.evict_partial),
    )
    given = [flag for flag, on in flags if on]
    if options.max_evictions is not None:
        given.append(f"--max-evictions={options.max_evictions}")
    given += _cluster_flags(request)
    if request.path.startswith("-") and request.path != "-":
        given.append("--")
    return shlex.join([*given, request.path])


def _cluster_flags(request: ApplyRequest) -> list[str]:
    target = request.target
    flags = (("--context", target.context), ("--kubeconfig", target.kubeconfig))
    given = [f"{name}={value}" for name, value in flags if value is not None]
    if request.options.lock_namespace != LOCK_NAMESPACE:
        given.append(f"--lock-namespace={request.options.lock_namespace}")
    return given
