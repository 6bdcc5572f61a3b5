"""Prometheus textfile metrics of one run, written as a whole or not at all.

Unknown values are left out. The time of the last success survives failed runs.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from models.documents.plan import PlanQueue
from planner.atomic_files import save

LAST_SUCCESS = "gangplan_last_success_timestamp_seconds"

_EFFECTIVE = {
    "after": "GPUs times predicted speed of the gangs that run after its plan.",
    "before": "The same before its plan.",
    "one_at_a_time": "The same if gangs were taken one after another.",
}
"""Said of each figure; they are metrics of their own, since their sum means nothing."""

_QUEUE = {
    "guarantee": "GPUs that a queue and those below it are promised.",
    "limit": "The most GPUs that they may hold.",
    "after": "GPUs that they hold after its plan.",
    "waiting": "GPUs of their gangs that do not run after its plan.",
}
"""Said of each figure of a queue."""

_BY_LABEL = {
    "tier_gaps": ("gangplan_tier_gap_ratio", "tier", "Largest gap of each family of tiers."),
    "waiting_gangs": ("gangplan_waiting_gangs", "reason", "Gangs that wait, by reason."),
    "waiting_gpus": ("gangplan_waiting_gpus", "reason", "GPUs that they ask for, at least."),
    "outcomes": ("gangplan_outcome_gangs", "outcome", "Gangs of its apply, by outcome."),
}
"""Metric, label and what is said of each mapping of ``Metrics``."""

MAX_QUEUES = 500
"""Queues that have metrics, the first by name."""

_MAX_BYTES = 2**20
"""A larger file is not ours."""

_SAMPLE = re.compile(rf"^{LAST_SUCCESS} ([0-9][0-9.eE+]{{0,30}})$", re.MULTILINE)


@dataclass(frozen=True, slots=True)
class Metrics:
    """``finished``: seconds since the epoch. ``gap``: largest of all tiers.

    ``pending``, ``started``: gangs; ``never``: of the pending ones, those that can never start.
    ``seconds``: of each phase. ``effective``: effective GPUs ``before`` and ``after`` the plan, and
    ``one_at_a_time``. ``tier_gaps``: by family of tiers. ``waiting_gangs``, ``waiting_gpus``: by code of
    the reason. ``outcomes``: gangs by outcome.
    """

    exit_code: int
    finished: float
    gap: float | None = None
    pending: int | None = None
    never: int | None = None
    started: int | None = None
    evicted: int | None = None
    seconds: Mapping[str, float] = field(default_factory=dict)
    effective: Mapping[str, float] = field(default_factory=dict)
    queues: Sequence[PlanQueue] = ()
    tier_gaps: Mapping[str, float] = field(default_factory=dict)
    waiting_gangs: Mapping[str, int] = field(default_factory=dict)
    waiting_gpus: Mapping[str, int] = field(default_factory=dict)
    outcomes: Mapping[str, int] = field(default_factory=dict)


def write(path: Path, metrics: Metrics) -> None:
    """Replace the file; a failed run keeps its time of the last success.

    Raises CannotWriteError, with the old file still in place.
    """
    success = metrics.finished if metrics.exit_code == 0 else _last_success(path)
    save(path, text(metrics, success))


def _labelled(
    name: str, said: str, samples: Sequence[tuple[Mapping[str, str], float]]
) -> Iterator[str]:
    if samples:
        yield from _head(name, said)
        for labels, value in samples:
            words = ",".join(f'{key}="{_escaped(label)}"' for key, label in labels.items())
            yield f"{name}{{{words}}} {_number(value)}"


def text(metrics: Metrics, last_success: float | None) -> str:
    """The exposition format: HELP, TYPE and samples of each gauge, no time stamps."""
    return "".join(line + "\n" for line in _lines(metrics, last_success))


def _lines(metrics: Metrics, last_success: float | None) -> Iterator[str]:
    for name, said, value in (
        (LAST_SUCCESS, "When a run last ended with exit code 0.", last_success),
        ("gangplan_exit_code", "Exit code of the last run.", metrics.exit_code),
        ("gangplan_gap_ratio", "Largest gap of its plan between value and bound.", metrics.gap),
        ("gangplan_pending_gangs", "Gangs that its plan leaves waiting.", metrics.pending),
        ("gangplan_never_gangs", "Of those, gangs that could never start here.", metrics.never),
        ("gangplan_started_gangs", "Gangs that it started.", metrics.started),
        ("gangplan_evicted_pods", "Pods that it evicted.", metrics.evicted),
    ):
        yield from _gauge(name, said, value)
    for name, said in _EFFECTIVE.items():
        suffix = "" if name == "after" else f"_{name}"
        yield from _gauge(f"gangplan_effective_gpus{suffix}", said, metrics.effective.get(name))
    for name, said in _QUEUE.items():
        known = [({"queue": one.name}, getattr(one, name)) for one in metrics.queues[:MAX_QUEUES]]
        metric = f"gangplan_queue_{'held' if name == 'after' else name}_gpus"
        yield from _labelled(metric, said, [sample for sample in known if sample[1] is not None])
    for name, (metric, label, said) in _BY_LABEL.items():
        values = getattr(metrics, name)
        yield from _labelled(metric, said, [({label: word}, one) for word, one in values.items()])
    phases = [({"phase": name}, seconds) for name, seconds in metrics.seconds.items()]
    yield from _labelled("gangplan_phase_seconds", "Seconds of each phase.", phases)


def _gauge(name: str, said: str, value: float | None) -> Iterator[str]:
    if value is not None and math.isfinite(value):
        yield from _head(name, said)
        yield f"{name} {_number(value)}"


def _head(name: str, said: str) -> Iterator[str]:
    yield f"# HELP {name} {said}"
    yield f"# TYPE {name} gauge"


def _number(value: float) -> str:
    """Integers without a fraction; others exactly as read back."""
    return str(int(value)) if float(value).is_integer() else repr(float(value))


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _last_success(path: Path) -> float | None:
    """The time in the file; None without a valid one."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        found = _SAMPLE.search(path.read_text(encoding="utf-8", errors="replace"))
        time = math.nan if found is None else float(found[1])
        return time if math.isfinite(time) else None
    except (OSError, ValueError):
        return None
