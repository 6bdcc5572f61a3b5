"""The command line: registers the verbs and maps every outcome to an exit code.

Clock, signals, streams and environment enter here. No solver is imported until a verb needs it.
"""

from __future__ import annotations

import contextlib
import gc
import io
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, NoReturn

import typer
from typer.core import TyperGroup

from planner import __version__
from planner.cli.verbs.apply import apply
from planner.cli.verbs.audit import audit
from planner.cli.verbs.capacity import capacity
from planner.cli.verbs.compare import compare
from planner.cli.verbs.doctor import doctor
from planner.cli.verbs.explain import explain
from planner.cli.verbs.plan import plan
from planner.cli.verbs.report import report
from planner.cli.verbs.run import run as run_unattended
from planner.cli.verbs.show import show
from planner.cli.verbs.snapshot import snapshot
from planner.cli.verbs.status import status
from planner.cli.verbs.topo import topo
from planner.cli.verbs.validate import validate
from planner.cli.verbs.verify import verify
from planner.errors import Fault, GangplanError, UsageError
from planner.show.console import Console, LogFormat
from planner.signals import Interrupted, interruptible

BUG = 1
USAGE = UsageError.exit_code

WIDE = "10000"
"""COLUMNS while completing: a description that wraps would be two candidates."""


class Grouped(TyperGroup):
    """Lists verbs in their groups: without markup typer lists them in one."""

    # typer keeps its types of these private
    def format_commands(self, ctx: Any, formatter: Any) -> None:  # noqa: ANN401, ARG002
        longest = max(map(len, self.commands))
        panels: dict[str, list[tuple[str, str]]] = {}
        for name, command in self.commands.items():
            said = command.get_short_help_str(formatter.width - 6 - longest)
            panel = str(getattr(command, "rich_help_panel", ""))
            panels.setdefault(panel, []).append((name.ljust(longest), said))
        for title, rows in panels.items():
            with formatter.section(title):
                formatter.write_dl(rows)


app = typer.Typer(
    name="gangplan",
    cls=Grouped,
    rich_markup_mode=None,  # plain help: the same text on a terminal, in a pipe and in the docs
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)


@app.callback(invoke_without_command=True)
def gangplan(
    context: typer.Context,
    *,
    version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """Plan gangs onto a GPU cluster, with proof, and apply the plan, safely."""
    if version:
        context.obj.data(f"gangplan {__version__}\n")
        raise typer.Exit
    if context.invoked_subcommand is None:
        context.obj.say(context.get_help())
        raise typer.Exit(USAGE)


_VERBS: dict[str, tuple[Callable[..., int | None], ...]] = {
    "Plan": (validate, plan, show, explain, compare, report, verify),
    "Look at a cluster": (audit, capacity, topo, snapshot),
    "Apply": (apply, run_unattended, status, doctor),
}

_EXAMPLES = """
gangplan validate monday
gangplan validate monday --save-policy levels.yaml
kubectl get nodes,pods,namespaces -A -o json | gangplan plan -
gangplan plan monday --out plan.json
gangplan show -o wide
gangplan show plan.json -o name
gangplan explain research/llama-70b
gangplan explain plan.json llama-70b -o json
gangplan compare monday.json tuesday.json
gangplan compare plan.json drained.json --detailed-exitcode
gangplan report plan.json --out report.html
gangplan report journal --out week.html
gangplan verify plan.json
gangplan plan monday -o json | gangplan verify -
gangplan audit monday
gangplan audit monday --out replan.json
gangplan capacity monday --shape 4x8@rack
gangplan capacity plan.json -o wide
gangplan topo h100
ssh gpu-01 nvidia-smi topo -m | gangplan topo -
gangplan snapshot --out monday
gangplan snapshot --out monday --context prod -n research
gangplan apply plan.json --dry-run=client
gangplan apply plan.json --yes --allow-evictions --max-evictions 8
gangplan run --policy policy.yaml
gangplan run --shadow journal --policy policy.yaml
gangplan status
gangplan status --release 4f2a9c01d7
gangplan doctor
gangplan doctor -n research --allow-evictions
"""
"""For the help: two of each verb, in their order."""

_LINES = iter(_EXAMPLES.strip().split("\n"))
for panel, verbs in _VERBS.items():
    for verb in verbs:
        # After \b Typer keeps the lines as they are.
        shown = "\n  ".join(("\b\nExamples:", next(_LINES), next(_LINES)))
        app.command(verb.__name__, epilog=shown, rich_help_panel=panel)(verb)

_NO_COMMAND = "No such command "  # typer's
COLLECTS = (50_000, 50, 50)
"""Thresholds of the garbage collector: JSON trees hold no cycles, and the defaults scan them too often."""


def main() -> NoReturn:
    """Run the command line of this process and exit."""
    gc.set_threshold(*COLLECTS)
    _take_standard_descriptors()
    if "_GANGPLAN_COMPLETE" in os.environ:  # set by the shell's script for completion
        os.environ["COLUMNS"] = WIDE
    called = Path(sys.argv[0]).stem
    program = "kubectl gangplan" if called.replace("_", "-") == "kubectl-gangplan" else "gangplan"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            # Escape characters that the terminal's encoding lacks instead of failing.
            stream.reconfigure(errors="backslashreplace")
    _exit(run(sys.argv[1:], Console(program)))


def _take_standard_descriptors() -> None:
    """Reserve descriptors 0 to 2 if the caller closed them (`>&-`).

    Otherwise an engine that prints on descriptor 1 would write into a file opened later, such as
    the plan.
    """
    for descriptor in range(3):
        try:
            os.fstat(descriptor)
        except OSError:
            os.open(os.devnull, os.O_RDWR)  # opens the lowest free descriptor, which is this one


def _exit(code: int) -> NoReturn:
    """End the process at once: freeing what a large plan is made of takes a second.

    And a stopped search leaves native calls behind that cannot be interrupted. Unwinding the interpreter
    under them aborts the process (seen with HiGHS: signal 6 in place of exit 143).
    """
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, AttributeError):
            stream.flush()
    os._exit(code)


def run(arguments: Sequence[str], console: Console) -> int:
    """Run one command; returns its exit code."""
    match arguments:
        case ["version"]:
            arguments = ["--version"]
        case ["help", *words]:
            arguments = [*words, "--help"]
    console.arguments = tuple(arguments)
    # Usage errors occur before the options are parsed.
    pairs = zip(arguments, arguments[1:], strict=False)
    if "--log-format=json" in arguments or ("--log-format", "json") in pairs:
        console.log_format = LogFormat.json
    try:
        with interruptible():
            code = app(
                args=list(arguments), prog_name=console.program, standalone_mode=False, obj=console
            )
        console.clear_live()
        console.say_next()
    except (Exception, Interrupted) as error:  # noqa: BLE001  # anything unexpected is a bug: exit 1
        return _ended(console, error, arguments)
    return code if isinstance(code, int) else 0


def _ended(console: Console, error: BaseException, arguments: Sequence[str]) -> int:
    """Report the error; returns its exit code."""
    console.clear_live()
    match error:
        case GangplanError():
            return _failed(console, error.exit_code, *error.faults)
        case typer.TyperException():
            return _failed(console, USAGE, _usage_fault(error, console.program, arguments))
        case Interrupted():
            return _failed(console, error.exit_code, Fault("interrupted; nothing was saved"))
        case MemoryError():
            hint = "plan a part of the cluster at a time"
            return _failed(console, BUG, Fault("out of memory", hint))
        case _:
            if console.debug:
                import traceback

                console.say("".join(traceback.format_exception(error)).rstrip(), fold=False)
            said = f"unexpected {type(error).__name__}: {str(error)[:500] or 'no message'}"
            hint = (
                "this is a bug; please report it with the input and the output of the same command"
                " with --debug"
            )
            return _failed(console, BUG, Fault(said, None if console.debug else hint))


def _failed(console: Console, code: int, *faults: Fault) -> int:
    for fault in faults:
        console.error(fault)
    console.event("summary", status="failed", exit_code=code)
    return code


def _usage_fault(error: typer.TyperException, program: str, arguments: Sequence[str]) -> Fault:
    """Typer's message in our format: lower case, no full stop, with a hint."""
    message = error.format_message().strip()
    known = sorted(command.name or "" for command in app.registered_commands)
    if message.startswith(_NO_COMMAND):
        word, _, close = message.removeprefix(_NO_COMMAND).partition(" Did you mean ")
        hint = f"did you mean {close} " if close else ""
        return Fault(f"unknown verb {word.removesuffix('.')}", f"{hint}verbs: {', '.join(known)}")
    verb = next((word for word in arguments if word in known), None)  # if the error has no context
    context = getattr(error, "ctx", None)
    path = getattr(context, "command_path", program if verb is None else f"{program} {verb}")
    message = message.replace("Value error, ", "").replace("Input should be", "it should be")
    lowered = message[:1].lower() + message[1:]
    if "option: --queue " in message + " ":
        hint = f"{program} plan --scheduler NAME says whose pods are planned"
        return Fault("there is no option --queue", hint)
    return Fault(" ".join(lowered.rstrip(".").split()), f"see {path} --help")
