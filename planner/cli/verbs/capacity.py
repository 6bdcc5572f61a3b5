"""``gangplan capacity PATH...``: how many gangs of each size could start. It solves nothing."""

from __future__ import annotations

from planner.cli.options import schedulers_of, verb
from planner.errors import Fault, UsageError
from planner.show.console import Console
from planner.show.text import Format


@verb
def capacity(
    console: Console,
    paths: list[str],
    *,
    shape: list[str] | None = None,
    model: str | None = None,
    selector: list[str] | None = None,
    tolerate: list[str] | None = None,
    scheduler: str | None = None,
    policy: str | None = None,
    output: Format = Format.table,
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
