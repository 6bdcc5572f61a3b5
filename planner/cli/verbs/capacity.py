"""``gangplan capacity PATH...``: how many gangs of each size could start. It solves nothing."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import (
    NO_NAMES,
    PathsArgument,
    PolicyOption,
    SchedulerOption,
    output_option,
    schedulers_of,
    verb,
)
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format


@verb
def capacity(
    console: Console,
    paths: PathsArgument,
    *,
    shape: Annotated[
        list[str] | None,
        typer.Option(
            "--shape",
            metavar="PODSxGPUS[@LEVEL]",
            help="Count gangs of this shape, such as 4x8@rack; repeatable. Default: the sizes of the "
            "policy's mix and of the waiting gangs.",
        ),
    ] = None,
    model: Annotated[
        str | None,
        typer.Option("--model", metavar="MODEL", help="Only nodes of this GPU or server model."),
    ] = None,
    selector: Annotated[
        list[str] | None,
        typer.Option(
            "--selector", metavar="KEY=VALUE", help="Only nodes with this label; repeatable."
        ),
    ] = None,
    tolerate: Annotated[
        list[str] | None,
        typer.Option(
            "--tolerate", metavar="KEY", help="Also count nodes with this taint; repeatable."
        ),
    ] = None,
    scheduler: SchedulerOption = None,
    policy: PolicyOption = None,
    output: Annotated[Format, output_option(": wide lists every domain", *NO_NAMES)] = Format.table,
) -> None:
    """Count the gangs that could start, now and after a plan."""
    from models.documents.answers import CapacityQuestion
    from planner.pipelines.capacity import capacity_document, read_occupied
    from planner.pipelines.plan import now

    question = CapacityQuestion.model_construct(
        model=model, node_selector=_labels(selector or ()), tolerate=tuple(tolerate or ())
    )
    occupied = read_occupied(
        paths, policy=policy, schedulers=schedulers_of(scheduler), stdin=console.stdin
    )
    found = capacity_document(occupied, question, shape or (), now(console.environ))
    if output in (Format.json, Format.yaml):
        console.document(found.to_json(), output)
    else:
        from planner.show import capacity_tables
        from planner.show.plan.short_names import shortener

        wide = output is Format.wide
        if not wide:
            console.shorten = shortener(occupied.instance)
        console.data(console.sections(capacity_tables.sections(found, wide=wide)))
    console.event(
        "summary",
        verb="capacity",
        status="done",
        exit_code=0,
        nodes=found.cluster.nodes,
        free_gpus=found.cluster.before,
        shapes={one.shape: one.before for one in found.status.shapes},
    )


def _labels(texts: list[str] | tuple[str, ...]) -> dict[str, str]:
    """Labels of ``--selector``; several may stand in one, with commas. Raises UsageError."""
    found = {}
    for text in (part for one in texts for part in one.split(",")):
        key, equals, value = text.partition("=")
        if not equals or not key:
            what = f"--selector {text}: not KEY=VALUE"
            raise UsageError(Fault(what, "write it like example.com/pool=batch"))
        found[key] = value
    return found
