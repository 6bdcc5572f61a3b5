"""Prometheus textfile metrics: the text, what a failed run keeps, what cannot be written."""

from __future__ import annotations

import re
import stat
from pathlib import Path

import handmade
import pytest
from handmade import report

from models.apply.requests import Outcome
from models.documents.plan import PlanDocument, PlanQueue
from planner.errors import CannotWriteError
from planner.show.run import MAX_QUEUES, RunReport, metrics_text, write_metrics

FAILED = RunReport(exit_code=69)
"""Without a plan."""


def test_every_gauge_has_a_help_and_a_type_before_its_samples() -> None:
    lines = metrics_text(report(), 1_795_000_000.25).splitlines()
    assert lines[:3] == [
        "# HELP gangplan_last_success_timestamp_seconds When a run last ended with exit code 0.",
        "# TYPE gangplan_last_success_timestamp_seconds gauge",
        "gangplan_last_success_timestamp_seconds 1795000000.25",
    ]
    known = [line.split()[2] for line in lines if line.startswith("# TYPE")]
    assert known == [line.split()[2] for line in lines if line.startswith("# HELP")]
    names = [re.split("[{ ]", line)[0] for line in lines if not line.startswith("#")]
    assert list(dict.fromkeys(names)) == known
    outcomes = {outcome.value: 0 for outcome in Outcome} | {"started": 1, "pending": 1}
    assert [line for line in lines if not line.startswith("#")][1:] == [
        "gangplan_exit_code 0",
        "gangplan_gap_ratio 0.014760147601476014",  # 320 of 21,680
        "gangplan_pending_gangs 1",
        "gangplan_never_gangs 0",
        "gangplan_started_gangs 2",
        "gangplan_evicted_pods 0",
        "gangplan_effective_gpus 22.5",
        "gangplan_effective_gpus_before 2",
        "gangplan_effective_gpus_one_at_a_time 20",
        "gangplan_spread_gpus 1.5",
        'gangplan_queue_guarantee_gpus{queue="a\\"b"} 8',
        'gangplan_queue_limit_gpus{queue="a\\"b"} 40',
        'gangplan_queue_held_gpus{queue="a\\"b"} 20',
        'gangplan_queue_waiting_gpus{queue="a\\"b"} 72',
        'gangplan_tier_gap_ratio{tier="admission"} 0',
        'gangplan_tier_gap_ratio{tier="bandwidth"} 0.014760147601476014',
        'gangplan_tier_gap_ratio{tier="span"} 0',
        'gangplan_waiting_gangs{reason="NoRoom"} 1',
        'gangplan_waiting_gpus{reason="NoRoom"} 72',
        'gangplan_idle_gpus{if="now"} 8',
        *(f'gangplan_outcome_gangs{{outcome="{name}"}} {n}' for name, n in outcomes.items()),
        'gangplan_phase_seconds{phase="read"} 0.5',
        'gangplan_phase_seconds{phase="solve"} 12',
    ]


def samples(path: Path) -> dict[str, str]:
    """Sample name to value, as text."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.rsplit(" ", 1) for line in lines if not line.startswith("#"))


def test_what_is_not_known_is_left_out() -> None:
    said = metrics_text(FAILED, None)
    assert [line for line in said.splitlines() if not line.startswith("#")] == [
        "gangplan_exit_code 69"
    ]


def test_of_a_family_of_tiers_the_largest_gap_counts() -> None:
    document = handmade.plan()
    document["status"]["objectives"][0] = handmade.tier("admission/10", "max", 20, 30)
    said = metrics_text(RunReport(decided=PlanDocument.model_validate(document)), None)
    assert 'gangplan_tier_gap_ratio{tier="admission"} 0.5\n' in said


def test_a_failed_run_keeps_the_time_of_the_last_success(tmp_path: Path) -> None:
    path = tmp_path / "gangplan.prom"
    write_metrics(path, report(), 1_795_000_000.25)
    for code in (7, 75, 143):
        write_metrics(path, RunReport(exit_code=code), 1_795_000_999)
        assert samples(path)["gangplan_last_success_timestamp_seconds"] == "1795000000.25"
        assert samples(path)["gangplan_exit_code"] == str(code)
    write_metrics(path, report(), 1_795_001_000)
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
    write_metrics(path, FAILED, 1_795_000_000)
    assert samples(path) == {"gangplan_exit_code": "69"}


def test_the_file_is_replaced_whole_with_its_permissions_and_nothing_beside_it(
    tmp_path: Path,
) -> None:
    path = tmp_path / "gangplan.prom"
    path.write_text("old\n", encoding="utf-8")
    path.chmod(0o604)
    write_metrics(path, report(), 1_795_000_000.25)
    assert stat.S_IMODE(path.stat().st_mode) == 0o604
    assert [entry.name for entry in tmp_path.iterdir()] == ["gangplan.prom"]


def test_a_file_that_cannot_be_written_is_an_error_of_its_own(tmp_path: Path) -> None:
    with pytest.raises(CannotWriteError, match="No such file or directory"):
        write_metrics(tmp_path / "nowhere" / "gangplan.prom", FAILED, 0)


def test_the_metrics_of_many_queues_end() -> None:
    amounts = {"guarantee": 8, "before": 1, "after": 2, "borrowed": 0, "waiting": 3}
    names = [f"q{i:04}" for i in range(MAX_QUEUES + 1)]
    queues = [PlanQueue.model_construct(name=name, limit=None, **amounts) for name in names]
    queues[0] = queues[0].model_copy(update={"limit": 9, "name": 'q"0'})
    plan = PlanDocument.model_validate(handmade.plan())
    status = plan.status.model_copy(update={"queues": queues})
    run = RunReport(decided=plan.model_copy(update={"status": status}))
    said = metrics_text(run, None)
    assert 'gangplan_queue_limit_gpus{queue="q\\"0"} 9' in said
    assert said.count("gangplan_queue_limit_gpus{") == 1
    assert 'gangplan_queue_held_gpus{queue="q0001"} 2' in said
    assert said.count("gangplan_queue_waiting_gpus{") == MAX_QUEUES
