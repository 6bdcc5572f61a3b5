"""A journal of ``run --shadow`` to a Trace: when the gangs of a live cluster arrived, and how long they ran.

What happened between two rounds is known up to that interval, and the trace says so. Gangs whose end nobody
saw are left out and counted.
"""

from __future__ import annotations

from collections import Counter

from benchmarks.lab.trace import Job, Trace
from models.documents.gang import GangDocument
from planner.week.history import History, Life
from planner.week.journal import Journal

RUNS_ON = "that still run"
WAIT = "that never ran"
NO_GPUS = "without GPUs"


def record(folder: str) -> tuple[Trace, Counter[str]]:
    """The trace of a journal, and how many gangs are left out by the reason.

    Raises MissingPathError, InputError.
    """
    left_out, found = Counter[str](), list[tuple[Life, GangDocument, tuple[int, int] | None]]()
    for life in History.of(Journal(folder).rounds()).lives:
        gang = GangDocument.model_validate(life.document, context={})
        span = _span(life)
        if not sum(role.span[0] * role.gpus for role in gang.spec.roles):
            left_out[NO_GPUS] += 1
        elif span is not None or gang.spec.expected_duration_s is not None:
            found.append((life, gang, span))
        else:
            left_out[WAIT if life.started is None else RUNS_ON] += 1
    start = min((_arrival(life) for life, _, _ in found), default=0)
    return Trace.of("recorded", [_job(*one, start) for one in found]), left_out


def _arrival(life: Life) -> int:
    """When it came; of one that ran at the first round, when it started, as far as is known."""
    return life.arrived if life.started is None else min(life.arrived, life.started[0])


def _span(life: Life) -> tuple[int, int] | None:
    """(least, most) seconds that it ran; None if nobody saw it run, or end."""
    if life.started is None or life.seen is None or life.gone is None:
        return None
    earliest, latest = life.started
    spans = life.seen - latest - life.paused, life.gone - earliest
    return max(0, spans[0]), max(0, spans[1])


def _job(life: Life, gang: GangDocument, span: tuple[int, int] | None, start: int) -> Job:
    """The job. Of an end between two rounds it takes the middle; of no end what the gang expects."""
    least, most = span if span is not None else (gang.spec.expected_duration_s or 1,) * 2
    namespace, _, name = life.name.partition("/")
    return Job(
        name=name,
        namespace=namespace,
        submit_s=_arrival(life) - start,
        duration_s=max(1, (least + most) // 2),
        at_least=None if span is None else least,
        at_most=None if span is None else most,
        spec=gang.spec.model_copy(update={"submitted_at": None, "resize_after": None}),
    )
