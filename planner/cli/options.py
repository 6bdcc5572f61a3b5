"""The table of arguments and options, how verbs take them, and the parsing of their values."""

from __future__ import annotations

import contextlib
import inspect
import io
import re
import shlex
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, is_dataclass
from difflib import get_close_matches
from functools import cache, partial
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, cast, get_args, get_origin

import typer

from models.units import shown
from planner.errors import Fault, UsageError
from planner.show.console import Color, Console, LogFormat
from planner.show.text import Format

if TYPE_CHECKING:
    from planner.pipelines.apply import ApplyOptions, ClusterTarget


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


OPTIONS = """
* --color  When to use colour; NO_COLOR and FORCE_COLOR are honoured.
* --log-format  Format of stderr: text, or one JSON object per line.
* --debug  Show the traceback of an unexpected error.
* --out FILE  Write here what would go to stdout.

* paths=PATH...  Files and folders of YAML or JSON; - reads stdin.
run paths=PATH  Files and folders that go with the cluster, such as a Policy or levels.
show,explain path=PLAN  A plan saved by `plan --out`; - reads stdin; none: the last plan that was
    made.
explain gang=GANG  The gang: [NAMESPACE/]NAME, as `show` lists it.
* path=PLAN  A plan saved by `plan --out`; - reads stdin.
report path=PLAN|FOLDER  A plan saved by `plan --out`, or the journal of `run --shadow`; - reads a
    plan from stdin; none: the last plan that was made.
* first=PLAN  A saved plan; - reads stdin.
* second=PLAN  The plan to compare it with; none: the last plan.
topo model=NAME|FILE  A model of the catalogue, an alias, or a GPU; a file of server models, or of
    the output of nvidia-smi topo -m or rocm-smi --showtopo; - reads stdin. None lists the
    catalogue.

plan,run,audit --out FILE  Save the plan here (JSON).
report --out FILE  Write the page here (HTML).
snapshot --out DIR  The folder to create, with one file per kind.
* --scheduler mine|all|NAME,...  Whose waiting pods to plan: gangplan's, every scheduler's or those
    of the named ones too, as a what-if; default: the policy's, and all where no pod knows gangplan.
audit --scheduler mine|all|NAME,...  Whose waiting pods count: gangplan's, every scheduler's, or
    gangplan's and those of the named schedulers.
* --policy FILE  Use this Policy instead of the input's.
doctor,status --policy FILE  The Policy of the runs, if it has `kubernetes`.
* --save-policy FILE  Save the levels that were found as a Policy.
* --require [NAMESPACE/]NAME  Exit 3 if this gang provably cannot be admitted; repeatable.
* --budget N 1..1000000  Deterministic search budget; one unit is about a second of a core.
* --time-limit DURATION  Limit on the time after reading, such as 90s. Without --budget, the search
    may use all of it.
audit --time-limit DURATION  Limit on the time after reading, such as 90s; default: the policy's, at
    most 45s.
explain --time-limit DURATION  Limit on proofs and trials after reading; 0s: counts alone.
* --seed N 0..2147483647  Search seed.
* --workers N 1..256  Threads that search.
* --previous PLAN  Of equally good plans, take the nearest to this one; - reads stdin.
* --defragment  Move movable gangs to free whole nodes and racks, within the policy's `moves`.
* --now TIME  Time that ages refer to (RFC 3339) or `clock`; default: the policy's or input's.
* --add FILE  What if this was in the input, too; repeatable.
* --drain NODE  What if this node, or a range such as gpu-[01-04], was drained; repeatable.
* --without GANG  What if this gang was not there; repeatable.
* --relax GANG:WHAT  What if this requirement, such as rack, did not bind this gang; repeatable.

* --gang [NAMESPACE/]NAME  Show this gang; repeatable.
* -n --namespace NAMESPACE  Show the gangs of a namespace.
explain -n --namespace NAMESPACE  The namespace of the gang.
* --decision DECISION  Show the gangs that place, complete, move, resize, preempt, wait or keep;
    repeatable.
* --all  Show a row for each gang, whatever its decision.
* --map  Draw the cluster: who holds which GPUs before and after the plan.
compare --detailed-exitcode  Exit 2 if the plans differ.
* --shape PODSxGPUS[@LEVEL]  Count gangs of this shape, such as 4x8@rack; repeatable. Default: the
    sizes of the policy's mix and of the waiting gangs.
capacity --model MODEL  Only nodes of this GPU or server model.
* --selector KEY=VALUE  Only nodes with this label; repeatable.
* --tolerate KEY  Also count nodes with this taint; repeatable.
* --gpu  The GPU model, such as H100, where the output leaves it open.
* --name  Name of the server model made from the output.

* --context NAME  The kubectl context; default: the current.
* --kubeconfig FILE  The kubeconfig file kubectl uses.
* --request-timeout DURATION  Timeout of one request.
* --skip RESOURCE  Leave this kind out, such as jobs.batch.volcano.sh.
snapshot -n --namespace NAME  Only this namespace's pods and gangs; repeatable. Nodes are always
    read.
* --force  Replace the snapshot in the folder.

* --lock-namespace NAME  Namespace of the Lease `gangplan`, the lock.
* --lock-timeout DURATION  How long to wait for another run to end.
* --allow-evictions  Evict pods of gangs that the plan stops, shrinks or moves.
* --max-evictions N 0..  Maximum number of evicted pods in one run.
* --evict-partial  Evict the started pods of gangs that can no longer be completed.
* --wait DURATION  Time for evicted pods to end and for started pods to be bound.
* --dry-run  Write nothing. client: show what would change; -o yaml: the objects that would be sent,
    without a cluster. server: have the server check every request.
* --detailed-exitcode  With --dry-run=client: exit 2 if anything would change.
* --yes -y  Do not ask.
* --max-age DURATION  Refuse an older plan, such as 1h.
* --metrics-file FILE  Write Prometheus textfile metrics here.
* --shadow FOLDER  Write nothing to the cluster: add what is seen and could run to this journal.
* --restarts N 0..100  With --shadow: also what could run if at most N gangs restarted; default: 2.
* --keep DURATION  With --shadow: how long a day stays in the journal; default: 35d.
* --anonymize  With --shadow: no name of the cluster in the journal.
* --watch  Run again when pods come or go, and from time to time, until a signal.
* --min-interval DURATION  With --watch: the least time from the end of one run to the next;
    default: 30s.
* --max-interval DURATION  With --watch: run after this time even if nothing changed; default: 10m.
* --release ID  Release the lock with this ID, of a run that died, and show nothing else.
* --give-back-after DURATION  If no run has made a plan for so long, take the gate off the pods that
    wait, for the schedulers that they name; show nothing else.
doctor -n --namespace NAME  Check whether pods can start here; repeatable. Default: where pods wait
    for gangplan.
doctor --allow-evictions  Check the rights to evict and resize as well.

* -o --output table|wide|json|yaml|name  Format on stdout: wide adds pods, name lists the gangs that
    start.
apply -o --output table|wide|json|yaml|name  Format on stdout: wide adds plans, name lists gangs.
audit -o --output table|wide|json|yaml  Format on stdout: wide names every gang that waits.
capacity -o --output table|wide|json|yaml  Format on stdout: wide lists every domain.
compare -o --output table|wide|json|yaml|name  Format on stdout: name lists the gangs that differ.
doctor -o --output table|json|yaml  Format on stdout.
explain -o --output table|json|yaml  Format on stdout.
report -o --output table|wide|json|yaml  Format on stdout, of a journal alone.
status -o --output table|json|yaml  Format on stdout.
topo -o --output table|wide|json|yaml|name  Format on stdout: yaml is ready for serverModels.
verify -o --output table|wide  Format on stdout: wide says what each proof rests on.
"""
"""A row each: the verbs, * for others; names, or ``PARAMETER=`` of an argument; metavar; bounds of a number;
after two blanks what it is. A parameter is called as its option, with ``_`` after the name of a builtin."""


@cache
def _rows() -> dict[tuple[str, str], tuple[list[str], str]]:
    """By verb and parameter the words that stand before what it is, and that."""
    found = {}
    for row in filter(None, OPTIONS.strip().replace("\n ", " ").split("\n")):
        said, what = row.split("  ", 1)
        verbs, *words = said.split()
        name = [word for word in words if word.startswith("--")] or [words[0].partition("=")[0]]
        for verb in verbs.split(","):
            key = verb, name[0].removeprefix("--").replace("-", "_")
            found[key] = words, " ".join(what.split())
    return found


def _described(verb: str, parameter: inspect.Parameter) -> inspect.Parameter:
    """A parameter of a verb as Typer reads it. What completes it for shells may stand in its annotation."""
    kind, name, more = parameter.annotation, parameter.name.rstrip("_"), dict[str, Any]()
    if get_origin(kind) is Annotated:
        kind, more["autocompletion"] = get_args(kind)
    words, what = _rows().get((verb, name)) or _rows()["*", name]
    names = [word for word in words if word.startswith("-")]
    metavar, bounds, *_ = [*words[len(names) :], None, None]
    if name == "output" and metavar is not None:
        formats = metavar.split("|")
        more |= {"parser": partial(_format_of, formats), "autocompletion": lambda: formats}
        metavar = f"[{metavar}]"
    if bounds is not None:
        least, most = bounds.split("..")
        more |= {"min": int(least), "max": int(most) if most else None}
    if names:
        described = typer.Option(*names, help=what, metavar=metavar, **more)
    else:
        described = typer.Argument(help=what, metavar=words[0].partition("=")[2], **more)
    return parameter.replace(annotation=Annotated[kind, described])


def _format_of(formats: Sequence[str], text: str) -> Format:
    if text not in formats:
        near = get_close_matches(text, formats, 1)
        hint = f"did you mean {near[0]}? " if near else ""
        what = f"-o {shown(text)} is no format of this verb"
        raise UsageError(Fault(what, f"{hint}formats: {', '.join(formats)}"))
    return Format(text)


@dataclass(frozen=True, slots=True)
class Connection:
    """The options that say how to reach the cluster, and where the lock is. Raises UsageError."""

    context_: str | None = None
    kubeconfig: str | None = None
    request_timeout: str = "30s"
    lock_namespace: str = "gangplan-system"

    def __post_init__(self) -> None:
        namespace_of(self.lock_namespace, "--lock-namespace")

    def target(self, console: Console) -> ClusterTarget:
        """The cluster. Raises UsageError."""
        from planner.pipelines.apply import ClusterTarget

        timeout_s = seconds_of("--request-timeout", self.request_timeout)
        return ClusterTarget(console.environ, self.context_, self.kubeconfig, timeout_s)


@dataclass(frozen=True, slots=True)
class Applying:
    """The options that say what an apply may do."""

    allow_evictions: bool = False
    max_evictions: int | None = None
    evict_partial: bool = False
    wait: str = "60s"

    def options(self, connection: Connection, lock_timeout: str) -> ApplyOptions:
        """The same as arguments of an apply. Raises UsageError."""
        from planner.pipelines.apply import ApplyOptions

        return ApplyOptions(
            lock_namespace=connection.lock_namespace,
            lock_wait_s=seconds_of("--lock-timeout", lock_timeout, least=0),
            allow_evictions=self.allow_evictions,
            max_evictions=self.max_evictions,
            evict_partial=self.evict_partial,
            wait_s=seconds_of("--wait", self.wait, least=0),
        )


@contextlib.contextmanager
def _kept(console: Console, out: Path, words: Iterable[object]) -> Iterator[None]:
    """Save in ``out`` what would go to stdout, whatever the exit code; not after an error.

    Raises CannotWriteError, UsageError.
    """
    from planner.atomic_files import check_target, save

    check_target(out, (word for word in words if isinstance(word, str)))
    stdout, console.stdout = console.stdout, (text := io.StringIO())
    try:
        yield
    finally:
        console.stdout = stdout
    save(out, text.getvalue())
    console.say(f"saved {shlex.quote(str(out))}")


def verb(function: Callable[..., int | None]) -> Callable[..., int | None]:
    """A verb of the command line: add --color, --log-format and --debug, and pass the console.

    A verb without a file of its own to write has --out for its stdout.

    ``function`` takes the configured Console first, then its own arguments and options, which stand in
    OPTIONS, and returns the exit code. A dataclass among them stands for the options that its fields are.
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
        out_: Path | None = None,
        color: Color = Color.auto,
        log_format: LogFormat = LogFormat.text,
        debug: bool = False,
        **arguments: object,
    ) -> int | None:
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
        keeping = contextlib.nullcontext() if out_ is None else _kept(console, out_, words)
        with keeping:
            return function(console, **arguments)

    context, kept, *shared, _ = inspect.signature(command, eval_str=True).parameters.values()
    own += [*([] if "out" in {one.name for one in own} else [kept]), *shared]
    parameters = [context, *(_described(function.__name__, one) for one in own)]
    command.__name__, command.__doc__ = function.__name__, function.__doc__
    command.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]  # Typer reads it
    command.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return command
