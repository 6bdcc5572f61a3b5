"""``gangplan drain-order PATH...``: in which order nodes are drained so that no gang restarts twice."""

from __future__ import annotations

from typing import Annotated

import typer

from planner.cli.options import PathsArgument, PolicyOption, QueueOption, schedulers_of, verb
from planner.show.console import Console
from planner.show.text import Format


@verb
def drain_order(
    console: Console,
    paths: PathsArgument,
    *,
    node: Annotated[
        list[str] | None,
        typer.Option(
            "--node",
            metavar="NODE",
            help="Drain this node, or a range such as gpu-[01-04]; repeatable. Default: all nodes with GPUs.",
        ),
    ] = None,
    at_most: Annotated[
        int | None,
        typer.Option(
            "--at-most",
            min=1,
            metavar="N",
            help="Nodes that are out at once. Default: a tenth of those to drain.",
        ),
    ] = None,
    queue: QueueOption = None,
    policy: PolicyOption = None,
    output: Annotated[
        Format,
        typer.Option(
            "-o",
            "--output",
            help="Format on stdout: wide lists the gangs, name the nodes in order.",
        ),
    ] = Format.table,
) -> None:
    """Order the drains of nodes so that each gang restarts once."""
    from planner.pipelines.drain_order import drain_order_document
    from planner.pipelines.plan import now
    from planner.read.inputs import load
    from planner.untrusted_text import safe

    loaded = load(paths, policy=policy, queue=schedulers_of(queue), stdin=console.stdin)
    console.remarks(loaded.remarks)
    found = drain_order_document(loaded.instance, node or (), at_most, now(console.environ))
    if output in (Format.json, Format.yaml):
        console.document(found.to_json(), output)
    elif output is Format.name:
        names = (name for wave in found.status.waves for name in wave.nodes)
        console.data("".join(f"node/{safe(name)}\n" for name in names))
    else:
        from planner.show import drain_tables as tables
        from planner.show.plan.short_names import shortener

        wide = output is Format.wide
        if not wide:
            console.shorten = shortener(loaded.instance)
        drawn = [tables.waves(found), *([tables.gangs(found)] if wide else [])]
        parts = [console.drawn(one) for one in drawn if one.rows]
        console.data("\n".join([console.lines(tables.facts(found)), *parts]))
        console.data("\n" + console.lines(tables.ending(found)))
    console.event(
        "summary",
        verb="drain-order",
        status="done",
        exit_code=0,
        waves=len(found.status.waves),
        interrupted=found.status.interrupted,
        waiting_gpus=found.status.waiting_gpus,
    )
