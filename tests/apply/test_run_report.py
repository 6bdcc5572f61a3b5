"""The summary of a run: the line, the event, the note on the lock and the metrics agree."""

from __future__ import annotations

import io
import json
from typing import Any

import handmade

from models.apply.requests import GangVerdict, Outcome, Verdict
from models.documents.plan import PlanDocument
from planner.show.console import Console, LogFormat
from planner.show.run import RunReport, metrics_text


def decided(**effective: Any) -> PlanDocument:  # noqa: ANN401  # JSON
    """A plan of five gangs, two of which start and two wait, with gaps 0 and 12.5 %."""
    document = handmade.plan()
    entry = document["spec"]["gangs"][0]
    decisions = ("place", "complete", "keep", "wait", "preempt")
    document["spec"]["gangs"] = [{**entry, "decision": decision} for decision in decisions]
    document["status"]["objectives"] = [
        handmade.tier("admission/0", "max", 8),
        handmade.tier("span", "min", 8, 7),  # a gap of 1 / 8
    ]
    document["status"]["digests"] = {"instance": "sha256:1", "spec": "sha256:2"}
    found = {"before": 8.0, "after": 1234.56, "oneAtATime": 1200.0, **effective}
    document["status"]["effectiveGpus"] = found
    return PlanDocument.model_validate(document)


def verdict(plan: str = "gp-2", space: str = "team", **gangs: Outcome) -> tuple[GangVerdict, ...]:
    return tuple(GangVerdict((space, name), outcome, plan) for name, outcome in gangs.items())


def report(plan: PlanDocument | None = None) -> RunReport:
    """A run that finished gang a of an earlier plan, then started b; c could not be."""
    later = verdict(a=Outcome.unchanged, b=Outcome.pending, c=Outcome.skipped)
    return RunReport(
        status="stopped part-way",
        exit_code=7,
        context="prod",
        cluster="uid",
        plan="gp-2",
        decided=plan or decided(),
        recovered=Verdict(verdict("gp-1", a=Outcome.started), writes=4),
        applied=Verdict(later, writes=6, evicted=1),
        seconds={"solve": 1.5},
    )


def event(one: RunReport) -> Any:  # noqa: ANN401  # JSON
    err = io.StringIO()
    console = Console(stdout=io.StringIO(), stderr=err, environ={})
    console.log_format = LogFormat.json
    one.print_summary(console, 12.34)
    return json.loads(err.getvalue())


def test_line_event_note_and_metrics_tell_every_gang_once_and_agree() -> None:
    """a was started by the recovery and only found whole later: it counts as started."""
    assert report().line(12.34) == (
        "run stopped part-way (exit 7): plan gp-2; gangs: 1 started, 1 pending, "
        "1 skipped; 1 pod evicted; 2 waiting; 1,234.56 effective GPUs (8 before); 12.3 s"
    )
    assert event(report()) == {
        "type": "summary",
        "verb": "run",
        "status": "stopped part-way",
        "exit_code": 7,
        "context": "prod",
        "cluster": "uid",
        "plan": "gp-2",
        "replanned": False,
        "gap": 0.125,
        "placed": 2,
        "waiting": 2,
        "never": 0,
        "effective_gpus": {"before": 8.0, "after": 1234.56, "one_at_a_time": 1200.0},
        "gained_by_priority": {},
        "gangs": {"started": 1, "pending": 1, "skipped": 1},
        "writes": 10,
        "evicted": 1,
        "seconds": {"solve": 1.5, "total": 12.34},
        "digests": {"instance": "sha256:1", "spec": "sha256:2"},
        "warnings": [],
    }
    assert report().note("2026-11-21T18:00:00Z") == {
        "status": "stopped part-way",
        "exit_code": 7,
        "finished": "2026-11-21T18:00:00Z",
        "plan": "gp-2",
        "counts": {"started": 1, "pending": 1, "skipped": 1, "waiting": 2, "evicted": 1},
        "effective_gpus": 1234.56,
    }
    written = metrics_text(report(), 1000.0).splitlines()
    assert {line for line in written if not line.startswith("#")} >= {
        "gangplan_exit_code 7",
        "gangplan_pending_gangs 2",
        "gangplan_started_gangs 2",
        "gangplan_evicted_pods 1",
        "gangplan_gap_ratio 0.125",
        "gangplan_effective_gpus 1234.56",
        'gangplan_outcome_gangs{outcome="skipped"} 1',
    }


def test_a_run_that_had_nothing_to_do_says_so() -> None:
    quiet = RunReport(status="unchanged", exit_code=0, plan="gp-3", decided=decided())
    quiet.applied = Verdict(verdict(a=Outcome.unchanged))
    assert quiet.line(2) == (
        "run unchanged (exit 0): plan gp-3; nothing changed; 2 waiting; "
        "1,234.56 effective GPUs (8 before); 2.0 s"
    )
    assert RunReport(status="locked", exit_code=75).line(0.04) == (
        "run locked (exit 75): nothing changed; 0.0 s"
    )


def test_a_run_says_what_its_plan_has_for_fewer_effective_gpus() -> None:
    by = [
        {"priority": 5, "after": 34.56, "oneAtATime": 0},
        {"priority": 0, "after": 1200.0, "oneAtATime": 1300.0},
    ]
    lower = report(decided(oneAtATime=1300.0, byPriority=by))
    # 34.56 - 100 = -65.44
    fewer = "65.44 fewer than one after another: +34.56 at priority 5, -100 at priority 0"
    assert f"1,234.56 effective GPUs (8 before); its plan has {fewer}; " in lower.line(2.0)
    assert event(lower)["gained_by_priority"] == {"5": 34.56, "0": -100.0}


def test_gpus_of_gangs_that_are_not_fully_bound_are_not_effective() -> None:
    """old (2 GPUs, full speed) was not bound by an earlier run; whole (16 at 90 %) waits for its scheduler.

    pair (4) was not started after all. The plan: 2 before, 2 + 4 + 14.4 = 20.4 after. Nothing runs: 0, and
    2 + 14.4 = 16.4 once all pods are bound.
    """
    document = handmade.plan()
    speeds = {"old": 1000, "pair": 1000, "whole": 900}
    for entry in document["spec"]["gangs"]:
        if entry["name"] in speeds:
            entry["speed"] = speeds[entry["name"]]
    document["status"]["effectiveGpus"] = {"before": 2.0, "after": 20.4}
    document["status"]["digests"] = {"instance": "sha256:1", "spec": "sha256:2"}
    found = RunReport(status="done", exit_code=0, plan="gp-2")
    found.decided = PlanDocument.model_validate(document)

    def became(pair: Outcome, whole: Outcome, old: Outcome) -> str:
        found.recovered = Verdict(verdict(space="research", old=old))
        found.applied = Verdict(verdict(space="research", pair=pair, whole=whole))
        return found.line(1)

    said = became(Outcome.skipped, Outcome.pending, Outcome.pending)
    assert found.effective == {"before": 0.0, "after": 0.0}
    assert "0 effective GPUs (0 before; 16.4 more once all pods are bound)" in said
    said = became(Outcome.skipped, Outcome.started, Outcome.unchanged)
    assert "16.4 effective GPUs (2 before)" in said
    said = became(Outcome.started, Outcome.started, Outcome.unchanged)
    assert "20.4 effective GPUs (2 before)" in said
