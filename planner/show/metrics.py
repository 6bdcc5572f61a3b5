"""Prometheus textfile metrics of one run, written as a whole or not at all.

Unknown values are left out. The time of the last success survives failed runs.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import TYPE_CHECKING

from models.apply.requests import Outcome
from planner.atomic_files import save

if TYPE_CHECKING:
    from planner.show.run import RunReport

_Values = Mapping[str, float | None]

LAST_SUCCESS = "gangplan_last_success_timestamp_seconds"

_QUEUE = {
    "guarantee": "GPUs that are guaranteed to the queue and those below it.",
    "limit": "Most GPUs that the queue and those below it may hold.",
    "after": "GPUs that the queue and those below it hold after the last plan.",
    "waiting": "GPUs of gangs of the queue and those below it that wait after the last plan.",
}
"""Help of each figure of a queue."""

MAX_QUEUES = 500
"""Queues that have metrics, the first by name."""

_MAX_BYTES = 2**20
"""A larger file is not ours."""

_SAMPLE = re.compile(rf"^{LAST_SUCCESS} ([0-9]{{1,12}}(\.[0-9]{{1,9}})?)$", re.MULTILINE)


def write(path: Path, run: RunReport, finished: float) -> None:
    """Replace the file. ``finished``: seconds since the epoch; after a failed run the last success stays.

    Raises CannotWriteError, with the old file still in place.
    """
    save(path, text(run, _last_success(path) if run.exit_code else finished))


def text(run: RunReport, last_success: float | None) -> str:
    """The exposition format: HELP, TYPE and samples of each gauge, no time stamps."""
    plain = (_lines(name, said, {"": value}) for name, said, value in _plain(run, last_success))
    gauges = (*plain, *(_lines(*gauge) for gauge in _labelled(run)))
    return "".join(f"{line}\n" for gauge in gauges for line in gauge)


def _plain(run: RunReport, last_success: float | None) -> Iterator[tuple[str, str, float | None]]:
    """Name, help and value."""
    yield LAST_SUCCESS, "When a run last ended with exit code 0.", last_success
    yield "gangplan_exit_code", "Exit code of the last run.", run.exit_code
    yield "gangplan_gap_ratio", "Largest gap of a tier of the last plan.", run.gap
    yield "gangplan_pending_gangs", "Gangs that the last plan leaves waiting.", run.waiting
    yield "gangplan_never_gangs", "Waiting gangs that could never start here.", run.never
    if run.decided is not None:
        started = run.counts.get("started", 0) + run.counts.get("pending", 0)
        yield "gangplan_started_gangs", "Gangs that the last run started.", started
        yield "gangplan_evicted_pods", "Pods that the last run evicted.", run.evicted
    gpus = (run.effective or {}).get
    yield "gangplan_effective_gpus", "Effective GPUs after the last plan.", gpus("after")
    yield "gangplan_effective_gpus_before", "Effective GPUs before the last plan.", gpus("before")
    said = "Effective GPUs if gangs were taken one after another."
    yield "gangplan_effective_gpus_one_at_a_time", said, gpus("one_at_a_time")
    yield "gangplan_spread_gpus", "Running GPUs less what slower links leave of them.", run.spread


def _labelled(run: RunReport) -> Iterator[tuple[str, str, _Values, str]]:
    """Name, help, values by label, and the name of the label."""
    if run.decided is not None:
        queues = run.decided.status.queues[:MAX_QUEUES]
        for name, said in _QUEUE.items():
            metric = f"gangplan_queue_{'held' if name == 'after' else name}_gpus"
            yield metric, said, {one.name: getattr(one, name) for one in queues}, "queue"
        gaps: dict[str, float] = {}
        for tier in run.decided.status.objectives:
            gaps[tier.family] = max(gaps.get(tier.family, 0.0), tier.gap)
        yield "gangplan_tier_gap_ratio", "Largest gap of each family of tiers.", gaps, "tier"
        requests = run.decided.instance.gangs_by_key()
        gangs, gpus = Counter[str](), Counter[str]()
        for gang in run.left_waiting:
            reason = "Unknown" if gang.reason is None else gang.reason.code
            gangs[reason] += 1
            gpus[reason] += requests[gang.key].min_gpus
        yield "gangplan_waiting_gangs", "Gangs that wait, by reason.", gangs, "reason"
        yield "gangplan_waiting_gpus", "Fewest GPUs that they ask for.", gpus, "reason"
    yield "gangplan_idle_gpus", "GPUs that waiting gangs could use.", run.idle, "if"
    if run.decided is not None or run.verdicts:
        outcomes = {one.value: run.counts.get(one, 0) for one in Outcome}
        yield "gangplan_outcome_gangs", "Gangs of the last run, by outcome.", outcomes, "outcome"
    yield "gangplan_phase_seconds", "Seconds of each phase.", run.seconds, "phase"


def _lines(name: str, said: str, values: _Values, label: str = "") -> Iterator[str]:
    known = {key: value for key, value in values.items() if value is not None}
    if known:
        yield f"# HELP {name} {said}"
        yield f"# TYPE {name} gauge"
    for key, value in known.items():
        labels = f'{{{label}="{_escaped(key)}"}}' if label else ""
        yield f"{name}{labels} {int(value) if value == int(value) else value!r}"


def _escaped(label: str) -> str:
    return label.replace("\\", "\\\\").replace("\n", "\\n").replace('"', '\\"')


def _last_success(path: Path) -> float | None:
    """The time in the file; None without a valid one."""
    try:
        if not path.is_file() or path.stat().st_size > _MAX_BYTES:
            return None
        found = _SAMPLE.search(path.read_text(encoding="utf-8", errors="replace"))
    except OSError:
        return None
    return None if found is None else float(found[1])
