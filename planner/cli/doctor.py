"""``gangplan doctor [PLAN]``: whether this machine, this account and this cluster are fit for applying.

Promises: changes nothing; every check says ok, warn or fail, and what to do. The work is done in
``planner.cli``.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Annotated

import typer

from planner.cli.options import (
    ColorOption,
    DebugOption,
    KubeconfigOption,
    KubeContextOption,
    LockNamespaceOption,
    LogOption,
    RequestTimeoutOption,
    console_of,
)
from planner.errors import Fault, UsageError
from planner.show.console import Color, LogFormat


class Output(StrEnum):
    """``-o``."""

    table = "table"
    json = "json"


def doctor(  # the options of the verb
    context: typer.Context,
    path: Annotated[
        str | None,
        typer.Argument(
            metavar="PLAN", help="A saved plan whose needs are looked at; - reads stdin."
        ),
    ] = None,
    *,
    policy: Annotated[
        str | None,
        typer.Option("--policy", metavar="FILE", help="The Policy that plans will be made with."),
    ] = None,
    namespaces: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--namespace",
            metavar="NAME",
            help="Whether pods can be started here; repeatable. Default: where pods of ours wait.",
        ),
    ] = None,
    allow_evictions: Annotated[
        bool,
        typer.Option("--allow-evictions", help="Ask for the rights to evict and to resize, too."),
    ] = False,
    kube_context: KubeContextOption = None,
    kubeconfig: KubeconfigOption = None,
    request_timeout: RequestTimeoutOption = "30s",
    lock_namespace: LockNamespaceOption = "gangplan-system",
    output: Annotated[
        Output, typer.Option("-o", "--output", help="Format on stdout.")
    ] = Output.table,
    color: ColorOption = Color.auto,
    log_format: LogOption = LogFormat.text,
    debug: DebugOption = False,
) -> None:
    """Check kubectl, rights, clock, lock and nodes; say what to do."""
    console = console_of(context, color=color, log_format=log_format, debug=debug)
    from planner.cli.doctor_checks import Level, exit_code
    from planner.cli.doctor_examination import Wish, examine
    from planner.cli.options import timeout_of
    from planner.pipelines.apply_steps import ApplyOptions, ClusterTarget
    from planner.show import doctor as doctoring

    if path is not None and policy is not None:
        raise UsageError(Fault("a plan has its own Policy", "leave out --policy, or the plan"))
    wish = Wish(
        ClusterTarget(console.environ, kube_context, kubeconfig, timeout_of(request_timeout)),
        ApplyOptions(lock_namespace=_name(lock_namespace), allow_evictions=allow_evictions),
        plan=path,
        policy=policy,
        namespaces=tuple(dict.fromkeys(map(_name, namespaces or []))),
    )
    findings = list(examine(wish, stdin=console.stdin))
    code = exit_code(findings)
    if output is Output.json:
        console.data(doctoring.as_json(findings))
    else:
        console.table(doctoring.table(findings))
    console.say(doctoring.counted(findings))
    console.event(
        "summary",
        verb="doctor",
        status="failed" if code else "ok",
        exit_code=code,
        failed=[one.check for one in findings if one.level is Level.fail],
        warned=[one.check for one in findings if one.level is Level.warn],
    )
    if code:
        raise typer.Exit(code)


def _name(namespace: str) -> str:
    """Raises UsageError for what is no name of a namespace."""
    from planner.cluster.api_paths import checked

    try:
        if len(namespace) <= 63 and "." not in namespace:
            return checked(namespace)
    except ValueError:
        pass
    hint = "lower case letters, digits and dashes, at most 63"
    raise UsageError(Fault(f"{namespace!r} is no name of a namespace", hint))
