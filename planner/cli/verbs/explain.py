"""``gangplan explain [PLAN] GANG``: one gang of a plan in full, and why it waits or is where it is."""

from __future__ import annotations

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from planner.cli.options import seconds_of, verb
from planner.cli.shown_plan import complete_gangs, shown_plan
from planner.cli.verbs.show import changed_digest, warn_if_changed
from planner.errors import Fault, InputError, UsageError
from planner.show.console import Console
from planner.show.text import Format

if TYPE_CHECKING:
    from models.documents.answers import PlaceReasons, Why
    from models.documents.plan import PlanDocument
    from models.results.explanation import Explanation


@verb
def explain(
    console: Console,
    path: Annotated[str | None, complete_gangs] = None,
    gang: Annotated[str | None, complete_gangs] = None,
    *,
    namespace: str | None = None,
    time_limit: str = "5s",
    output: Format = Format.table,
) -> int | None:
    """Explain one gang: why it waits, and what makes it start."""
    from models.results.explanation import Explanation, decisions_of
    from planner.read import plan_files
    from planner.read.inputs import instance_from_document
    from planner.show.explain import explanation_tables
    from planner.show.plan.gang_groups import matching
    from planner.show.plan.short_names import shortener_of_plans

    seconds = seconds_of("--time-limit", time_limit, least=0)
    file, gang = _arguments(path, gang)
    chosen = shown_plan(console, file)
    plan = plan_files.read_plan(chosen.content, chosen.path)
    document = plan_files.parse(chosen.content, chosen.path)
    by_key = {one.key: one for one in plan.spec.gangs}
    keys = matching(gang, namespace, by_key, "GANG")
    if len(keys) > 1:
        meant = ", ".join("/".join(key) for key in keys[:5])
        raise UsageError(Fault(f"GANG {gang} is ambiguous", f"say which: {meant}"))
    stated = by_key[keys[0]]
    instance = instance_from_document(document["instance"])
    index = next((i for i, one in enumerate(instance.gangs) if one.key == stated.key), None)
    if index is None:
        what = f"the plan decides on gang {'/'.join(stated.key)}, which its instance does not have"
        raise InputError(Fault(what, "verify lists what else was changed"))
    found = Explanation(instance, decisions_of(plan, instance), index)
    seconds = 0 if changed_digest(document, plan) else seconds  # nothing follows from a broken plan
    why, place, code = _asked(console, plan, found, seconds)
    if output is not Format.table:
        shown = explanation_tables.document(found, plan, stated, why, place)
        console.document(shown, output)
    else:
        console.shorten = shortener_of_plans(plan.instance)
        tables = explanation_tables.tables(found, plan, stated, why, place)
        console.data("\n".join(console.drawn(table) for table in tables))
    warn_if_changed(console, document, plan, chosen)
    if chosen.file is not None:
        console.next(chosen.command(console.program, "verify"))
    return code


def _arguments(path: str | None, gang: str | None) -> tuple[str | None, str]:
    """(file, gang): two words are a file and a gang, one is a gang of the last plan. Raises UsageError."""
    if path is None:
        hint = "gangplan show lists the gangs of the last plan"
        raise UsageError(Fault("explain needs the name of a gang", hint))
    if gang is not None:
        return path, gang
    if path == "-" or Path(path).is_file():
        found = "standard input" if path == "-" else "a file"
        what = f"explain needs the name of a gang: {path} is {found}"
        raise UsageError(Fault(what, f"gangplan explain {shlex.quote(path)} [NAMESPACE/]NAME"))
    return None, path


def _asked(
    console: Console, plan: PlanDocument, found: Explanation, seconds: int
) -> tuple[Why | None, PlaceReasons | None, int | None]:
    """Why it waits, or why it is where it is; neither in no time; the exit code of a signal that ended it."""
    if not seconds:
        return None, None, None
    from planner.pipelines import explain as asking
    from planner.signals import stop_on_signal

    world = asking.world_of(plan, found.instance, found.decisions, found.index)
    if not asking.sound(world):
        what = "pods of the plan do not fit where it has them, so that nothing is proven of it"
        console.warn(f"{what}: {console.program} verify lists why")
        return None, None, None
    console.doing("looking for causes, and for what would change them")
    with stop_on_signal(b"stopping: what is known is shown\n") as stop:
        out = found.waits or found.decision.decision == "preempt"
        why = asking.why_waiting(world, seconds, stop.event) if out else None
        place = None if out else asking.why_there(world, seconds, stop.event)
    console.clear_live()
    if stop.exit_code is not None:
        console.say("interrupted: this is what was known by then")
    return why, place, stop.exit_code
