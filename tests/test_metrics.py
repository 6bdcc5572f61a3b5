"""Prometheus textfile metrics: the text, what a failed run keeps, what cannot be written."""

from __future__ import annotations

import stat
from pathlib import Path

import pytest

from planner.errors import CannotWriteError
from planner.show.metrics import Metrics, text, write

WHOLE = Metrics(
    exit_code=0,
    finished=1_795_000_000.25,
    gap=0.0,
    pending=3,
    never=1,
    started=2,
    evicted=0,
    seconds={"read": 0.5, "solve": 12.0},
    effective={"before": 3120.0, "after": 3699.28, "one_at_a_time": 3643.0},
    tier_gaps={"goodput": 0.0, "span": 0.125},
    waiting_gangs={"Capacity": 3},
    waiting_gpus={"Capacity": 24},
    outcomes={"started": 2, "partial": 0},
)


def test_the_text_has_a_help_and_a_type_for_every_gauge() -> None:
    assert text(WHOLE, 1_795_000_000.25).splitlines() == [
        "# HELP gangplan_last_success_timestamp_seconds When a run last ended with exit code 0.",
        "# TYPE gangplan_last_success_timestamp_seconds gauge",
        "gangplan_last_success_timestamp_seconds 1795000000.25",
        "# HELP gangplan_exit_code Exit code of the last run.",
        "# TYPE gangplan_exit_code gauge",
        "gangplan_exit_code 0",
        "# HELP gangplan_gap_ratio Largest gap of its plan between value and bound.",
        "# TYPE gangplan_gap_ratio gauge",
        "gangplan_gap_ratio 0",
        "# HELP gangplan_pending_gangs Gangs that its plan leaves waiting.",
        "# TYPE gangplan_pending_gangs gauge",
        "gangplan_pending_gangs 3",
        "# HELP gangplan_never_gangs Of those, gangs that could never start here.",
        "# TYPE gangplan_never_gangs gauge",
        "gangplan_never_gangs 1",
        "# HELP gangplan_started_gangs Gangs that it started.",
        "# TYPE gangplan_started_gangs gauge",
        "gangplan_started_gangs 2",
        "# HELP gangplan_evicted_pods Pods that it evicted.",
        "# TYPE gangplan_evicted_pods gauge",
        "gangplan_evicted_pods 0",
        "# HELP gangplan_effective_gpus GPUs times predicted speed of the gangs that run after its plan.",
        "# TYPE gangplan_effective_gpus gauge",
        "gangplan_effective_gpus 3699.28",
        "# HELP gangplan_effective_gpus_before The same before its plan.",
        "# TYPE gangplan_effective_gpus_before gauge",
        "gangplan_effective_gpus_before 3120",
        "# HELP gangplan_effective_gpus_one_at_a_time The same if gangs were taken one after another.",
        "# TYPE gangplan_effective_gpus_one_at_a_time gauge",
        "gangplan_effective_gpus_one_at_a_time 3643",
        "# HELP gangplan_tier_gap_ratio Largest gap of each family of tiers.",
        "# TYPE gangplan_tier_gap_ratio gauge",
        'gangplan_tier_gap_ratio{tier="goodput"} 0',
        'gangplan_tier_gap_ratio{tier="span"} 0.125',
        "# HELP gangplan_waiting_gangs Gangs that wait, by reason.",
        "# TYPE gangplan_waiting_gangs gauge",
        'gangplan_waiting_gangs{reason="Capacity"} 3',
        "# HELP gangplan_waiting_gpus GPUs that they ask for, at least.",
        "# TYPE gangplan_waiting_gpus gauge",
        'gangplan_waiting_gpus{reason="Capacity"} 24',
        "# HELP gangplan_outcome_gangs Gangs of its apply, by outcome.",
        "# TYPE gangplan_outcome_gangs gauge",
        'gangplan_outcome_gangs{outcome="started"} 2',
        'gangplan_outcome_gangs{outcome="partial"} 0',
        "# HELP gangplan_phase_seconds Seconds of each phase.",
        "# TYPE gangplan_phase_seconds gauge",
        'gangplan_phase_seconds{phase="read"} 0.5',
        'gangplan_phase_seconds{phase="solve"} 12',
    ]


def samples(path: Path) -> dict[str, str]:
    """Sample name to value, as text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_what_is_not_known_is_left_out() -> None:
    said = text(Metrics(exit_code=69, finished=10), None)
    assert [line for line in said.splitlines() if not line.startswith("#")] == [
        "gangplan_exit_code 69"
    ]
    assert "NaN" not in text(Metrics(0, 10, gap=float("nan")), None)


def test_a_failed_run_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    path = tmp_path / "gangplan.prom"
    write(path, WHOLE)
    for code in (7, 75, 143):
        write(path, Metrics(exit_code=code, finished=1_795_000_999))
        assert samples(path)["gangplan_last_success_timestamp_seconds"] == "1795000000.25"
        assert samples(path)["gangplan_exit_code"] == str(code)
    write(path, Metrics(exit_code=0, finished=1_795_001_000))
    assert samples(path)["gangplan_last_success_timestamp_seconds"] == "1795001000"


@pytest.mark.parametrize(
    "before",
    [
        b"",
        b"gangplan_last_success_timestamp_seconds soon\n",
        b"gangplan_last_success_timestamp_seconds 9e999\n",
        b'gangplan_last_success_timestamp_seconds{cluster="x"} 5\n',
        b"\xff\xfe" * 100,
        b"x" * (2**20 + 1),
    ],
)
def test_a_file_of_another_making_is_replaced_and_not_believed(
    before: bytes, tmp_path: Path
) -> None:
    path = tmp_path / "gangplan.prom"
    path.write_bytes(before)
    write(path, Metrics(exit_code=6, finished=1_795_000_000))
    assert samples(path) == {"gangplan_exit_code": "6"}


def test_the_file_is_replaced_whole_with_its_permissions_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gangplan.prom"
    path.write_text("old\n", encoding="utf-8")
    path.chmod(0o604)
    write(path, WHOLE)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert [entry.name for entry in tmp_path.iterdir()] == ["gangplan.prom"]


def test_a_file_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match="No such file or directory"):
        write(tmp_path / "nowhere" / "gangplan.prom", WHOLE)
