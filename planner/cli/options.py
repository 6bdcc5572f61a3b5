"""Options that several verbs share, and the parsing of durations."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, cast

import typer

from models.units import shown
from planner.errors import Fault, UsageError
from planner.show.console import Color, Console, LogFormat
from planner.show.text import Format

if TYPE_CHECKING:
    from planner.pipelines.apply_steps import ApplyOptions, ClusterTarget


_NAMESPACE = re.compile(r"[a-z0-9](?:[a-z0-9-]{0,61}[a-z0-9])?")


def seconds_of(option: str, text: str, *, least: int = 1) -> int:
    """Whole seconds, at least ``least``: 0 or 1. Raises UsageError that names the option."""
    from models.units import InvalidValueError, seconds

    try:
        found = seconds(text)
    except InvalidValueError as refused:
        raise UsageError(Fault(f"{option}: {refused.what}", refused.hint)) from None
    if found < least:
        raise UsageError(Fault(f"{option} is below one second", "use a value such as 90s or 5m"))
    return found


def output_option(said: str, *formats: Format) -> object:
    """``-o`` of a verb that prints these formats. ``said``: the end of its help."""
    names = [one.value for one in formats or Format]

    def parsed(text: str) -> Format:
        if text not in names:
            near = get_close_matches(text, names, 1)
            hint = f"did you mean {near[0]}? " if near else ""
            what = f"-o {shown(text)} is no format of this verb"
            raise UsageError(Fault(what, f"{hint}formats: {', '.join(names)}"))
        return Format(text)

    listing = f"[{'|'.join(names)}]"
    return typer.Option(
        *("-o", "--output"),
        help=f"Format on stdout{said}.",
        metavar=listing,
        parser=parsed,
        autocompletion=lambda: names,
    )


def namespace_of(name: str, option: str = "--namespace") -> str:
    """The name as it is. Raises UsageError for what is not the name of a namespace."""
    if not _NAMESPACE.fullmatch(name):
        hint = "lower case letters, digits and dashes, at most 63"
        raise UsageError(Fault(f"{option} {name!r} is not the name of a namespace", hint))
    return name


def schedulers_of(given: str | None) -> tuple[str, ...] | None:
    """The schedulers of ``--scheduler`` that are planned besides gangplan's; None without the option.

    Raises UsageError.
    """
    from models.instance.policy import EVERY_SCHEDULER
    from planner.read.kube.lookup import is_name

    if given is None:
        return None
    names = {name.strip() for name in given.split(",")}
    for name in sorted(names):
        if not is_name(name):
            what = f"--scheduler: {shown(name)} cannot be the name of a scheduler"
            raise UsageError(Fault(what, "write mine, all, or names such as volcano,kai-scheduler"))
    if "all" in names:
        return (EVERY_SCHEDULER,)
    return tuple(sorted(names - {"mine"}))


NO_NAMES = (Format.table, Format.wide, Format.json, Format.yaml)

ColorOption = Annotated[
    Color,
    typer.Option("--color", help="When to use colour; NO_COLOR and FORCE_COLOR are honoured."),
]
LogOption = Annotated[
    LogFormat,
    typer.Option("--log-format", help="Format of stderr: text, or one JSON object per line."),
]
DebugOption = Annotated[
    bool, typer.Option("--debug", help="Show the traceback of an unexpected error.")
]
OutputOption = Annotated[Format, output_option(": wide adds pods, name lists the gangs that start")]
GangFilter = Annotated[
    list[str] | None,
    typer.Option("--gang", metavar="[NAMESPACE/]NAME", help="Show this gang; repeatable."),
]
NamespaceFilter = Annotated[
    str | None,
    typer.Option("-n", "--namespace", metavar="NAMESPACE", help="Show the gangs of a namespace."),
]
DecisionFilter = Annotated[
    list[str] | None,
    typer.Option(
        "--decision",
        metavar="DECISION",
        help="Show the gangs that place, complete, move, resize, preempt, wait or keep; repeatable.",
    ),
]
AllOption = Annotated[
    bool, typer.Option("--all", help="Show a row for each gang, whatever its decision.")
]
PlanArgument = Annotated[
    str, typer.Argument(metavar="PLAN", help="A plan saved by `plan --out`; - reads stdin.")
]
LastPlanArgument = Annotated[
    str | None,
    typer.Argument(
        metavar="PLAN",
        help="A plan saved by `plan --out`; - reads stdin; none: the last plan that was made.",
    ),
]
LockNamespaceOption = Annotated[
    str,
    typer.Option(
        "--lock-namespace", metavar="NAME", help="Namespace of the Lease `gangplan`, the lock."
    ),
]


ContextOption = Annotated[
    str | None,
    typer.Option("--context", metavar="NAME", help="The kubectl context; default: the current."),
]
KubeconfigOption = Annotated[
    str | None,
    typer.Option("--kubeconfig", metavar="FILE", help="The kubeconfig file kubectl uses."),
]


@dataclass(frozen=True, slots=True)
class Connection:
    """The options that say how to reach the cluster."""

    kube_context: ContextOption = None
    kubeconfig: KubeconfigOption = None
    request_timeout: Annotated[
        str, typer.Option("--request-timeout", metavar="DURATION", help="Timeout of one request.")
    ] = "30s"

    def target(self, console: Console) -> ClusterTarget:
        """The cluster. Raises UsageError."""
        from planner.pipelines.apply_steps import ClusterTarget

        timeout_s = seconds_of("--request-timeout", self.request_timeout)
        return ClusterTarget(console.environ, self.kube_context, self.kubeconfig, timeout_s)


@dataclass(frozen=True, slots=True)
class Applying:
    """The options that say what an apply may do."""

    allow_evictions: Annotated[
        bool,
        typer.Option(
            "--allow-evictions", help="Evict pods of gangs that the plan stops, shrinks or moves."
        ),
    ] = False
    max_evictions: Annotated[
        int | None,
        typer.Option(
            "--max-evictions", min=0, metavar="N", help="Maximum number of evicted pods in one run."
        ),
    ] = None
    evict_partial: Annotated[
        bool,
        typer.Option(
            "--evict-partial",
            help="Evict the started pods of gangs that can no longer be completed.",
        ),
    ] = False
    wait: Annotated[
        str,
        typer.Option(
            "--wait",
            metavar="DURATION",
            help="Time for evicted pods to end and for started pods to be bound.",
        ),
    ] = "60s"

    def options(self, lock: Locking) -> ApplyOptions:
        """The same as arguments of an apply. Raises UsageError."""
        from planner.pipelines.apply_steps import ApplyOptions

        return ApplyOptions(
            lock_namespace=lock.lock_namespace,
            lock_wait_s=seconds_of("--lock-timeout", lock.lock_timeout, least=0),
            allow_evictions=self.allow_evictions,
            max_evictions=self.max_evictions,
            evict_partial=self.evict_partial,
            wait_s=seconds_of("--wait", self.wait, least=0),
        )


@dataclass(frozen=True, slots=True)
class Locking:
    """The options about the lock of a run."""

    lock_namespace: LockNamespaceOption = "gangplan-system"
    lock_timeout: Annotated[
        str,
        typer.Option(
            "--lock-timeout", metavar="DURATION", help="How long to wait for another run to end."
        ),
    ] = "0s"


MAX_BUDGET = 1_000_000

BudgetOption = Annotated[
    int | None,
    typer.Option(
        "--budget",
        min=1,
        max=MAX_BUDGET,
        metavar="N",
        help="Deterministic search budget; one unit is about a second of a core.",
    ),
]
TimeLimitOption = Annotated[
    str | None,
    typer.Option(
        "--time-limit",
        metavar="DURATION",
        help="Limit on the time after reading, such as 90s. Without --budget, the search may use all of it.",
    ),
]
MetricsOption = Annotated[
    Path | None,
    typer.Option("--metrics-file", metavar="FILE", help="Write Prometheus textfile metrics here."),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        "--scheduler",
        metavar="mine|all|NAME,...",
        help="Whose waiting pods to plan: gangplan's, every scheduler's or those of the named ones too, "
        "as a what-if; default: the policy's, and all where no pod knows gangplan.",
    ),
]
NowOption = Annotated[
    str | None,
    typer.Option(
        "--now",
        metavar="TIME",
        help="Time that ages refer to (RFC 3339) or `clock`; default: the policy's or input's.",
    ),
]
PolicyOption = Annotated[
    str | None,
    typer.Option("--policy", metavar="FILE", help="Use this Policy instead of the input's."),
]
SettingsOption = Annotated[
    str | None,
    typer.Option(
        "--policy", metavar="FILE", help="The Policy of the runs, if it has `kubernetes`."
    ),
]
SaveOption = Annotated[
    Path | None, typer.Option("--out", metavar="FILE", help="Save the plan here (JSON).")
]
KeepOption = Annotated[
    Path | None,
    typer.Option("--out", metavar="FILE", help="Write here what would go to stdout."),
]
SkipOption = Annotated[
    list[str] | None,
    typer.Option(
        "--skip", metavar="RESOURCE", help="Leave this kind out, such as jobs.batch.volcano.sh."
    ),
]
PathsArgument = Annotated[
    list[str],
    typer.Argument(metavar="PATH...", help="Files and folders of YAML or JSON; - reads stdin."),
]


@contextlib.contextmanager
def _kept(console: Console, out: Path, words: Iterable[object]) -> Iterator[None]:
    """Save in ``out`` what would go to stdout, also where the exit code is not 0; not after an error.

    Raises CannotWriteError, UsageError.
    """
    from planner.atomic_files import check_target, save

    check_target(out, (word for word in words if isinstance(word, str)))
    ended = None
    stdout, console.stdout = console.stdout, (text := io.StringIO())
    try:
        yield
    except typer.Exit as left:
        ended = left
    finally:
        console.stdout = stdout
    save(out, text.getvalue())
    console.say(f"saved {shlex.quote(str(out))}")
    if ended is not None:
        raise ended


def verb(function: Callable[..., None]) -> Callable[..., None]:
    """A verb of the command line: add --color, --log-format and --debug, and pass the console.

    A verb without a file of its own to write has --out for its stdout.

    ``function`` takes the configured Console first, then its own arguments and options. A dataclass among
    them stands for the options that its fields are.
    """
    own, groups = list[inspect.Parameter](), dict[str, Callable[..., object]]()
    for parameter in list(inspect.signature(function, eval_str=True).parameters.values())[1:]:
        if is_dataclass(parameter.annotation):
            kind = groups[parameter.name] = cast("Callable[..., object]", parameter.annotation)
            options = inspect.signature(kind, eval_str=True).parameters.values()
            own += [one.replace(kind=parameter.KEYWORD_ONLY) for one in options]
        else:
            own.append(parameter)

    def command(
        context: typer.Context,
        *,
        kept: KeepOption = None,
        color: ColorOption = Color.auto,
        log_format: LogOption = LogFormat.text,
        debug: DebugOption = False,
        **arguments: object,
    ) -> None:
        console: Console = context.obj
        console.color, console.log_format, console.debug = color, log_format, debug
        given = arguments.values()
        words = [*chain.from_iterable(one if isinstance(one, list) else (one,) for one in given)]
        for name, kind in groups.items():
            names = inspect.signature(kind).parameters
            arguments[name] = kind(**{one: arguments.pop(one) for one in names})
        if "-" in words and console.stdin is not None and console.stdin.isatty():
            console.typed = True
            console.say("reading the input from the terminal; end with Ctrl-D")
        else:
            console.doing("loading")
        keeping = contextlib.nullcontext() if kept is None else _kept(console, kept, words)
        with keeping:
            function(console, **arguments)

    context, kept, *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
    parameters = [context, *own, *([] if "out" in {one.name for one in own} else [kept]), *shared]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
