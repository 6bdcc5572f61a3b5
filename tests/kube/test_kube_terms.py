"""What a gang was started under holds until it ends, whatever its tenant writes later."""

from __future__ import annotations

import json
from typing import Any

import pytest
from bundles import load_all
from conftest import RunCli
from kube import node, pod
from kube_gangs import owned, thing

from models.apply.intents import Intent, Terms, read_intent, read_terms
from models.instance.gang import Gang
from models.units import epoch_seconds, time_text
from planner.read.instance_builder import LoadedInput
from planner.read.kube.pods.placement import PROVEN

Json = dict[str, Any]

PLAN = "gp-" + "0" * 20
NOON = epoch_seconds("2026-11-24T12:00:00Z")
HOUR = 3600


def queue(name: str) -> Json:
    return {
        "apiVersion": "gangplan.dev/v1alpha1",
        "kind": "Queue",
        "metadata": {"name": name},
        "spec": {"guarantee": {"gpus": 8}},
    }


def policy(**spec: object) -> Json:
    return {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy", "spec": spec}


def job(notes: dict[str, str] | None = None, **spec: object) -> Json:
    stated = {"parallelism": 2, "completions": 2, "completionMode": "Indexed", **spec}
    return thing("Job", "batch/v1", "j", stated, annotations=notes or {})


def started(
    *each: Terms | None, proven: bool = True, priority: int = 0, queued: str | None = None
) -> list[Json]:
    """Pods that run since noon, with the terms that a run sealed on them."""
    made = []
    for index, terms in enumerate(each):
        intent = Intent(PLAN, "j", len(each), "n1", None, terms=terms)
        labels = {"batch.kubernetes.io/job-completion-index": str(index), **intent.labels()}
        if queued is not None:
            labels["kai.scheduler/queue"] = queued
        one = pod(f"j-{index}", gpus=1, on="n1", labels=labels, annotations=intent.annotations())
        one["status"]["startTime"] = time_text(NOON)
        one["spec"]["priority"] = priority
        if proven:
            one[PROVEN] = True
        made.append(owned(one, "Job", "batch/v1", "j"))
    return made


def built(*objects: Json, now: int | None = None) -> LoadedInput:
    spec: Json = {"reservations": {}} | ({} if now is None else {"now": time_text(now)})
    return load_all([node("n1"), queue("mine"), queue("theirs"), policy(**spec), *objects])


def gang_of(found: LoadedInput) -> Gang:
    (gang,) = found.instance.gangs
    return gang


@pytest.mark.parametrize(
    "terms",
    [
        Terms(0),
        Terms(-10, preemptible=True),
        Terms(2_000_000_000, movable=True, until=NOON),
        Terms(5, preemptible=True, movable=True, until=NOON, queue="a.b-c"),
        Terms(5, preemptible=True, until=NOON + HOUR, queue="a.b-c", since=NOON),
    ],
)
def test_terms_are_read_as_they_were_written(terms: Terms) -> None:
    assert read_terms(terms.text()) == terms
    intent = Intent(PLAN, "j", 1, "n1", None, terms=terms)
    assert read_intent(intent.labels(), intent.annotations()) == intent


@pytest.mark.parametrize(
    "written",
    ["", "priority=", "priority=01", "priority=1 ", "preemptible", "priority=1 movable preemptible",
     "priority=1 until=2026-11-24", "priority=1 until=2026-99-24T12:00:00Z", "priority=1 queue=",
     "priority=1 since=2026-11-24", "priority=1 until=2026-11-24T12:00:00Z since=2026-11-24T12:00:00Z",
     "priority=1 queue=a b", "priority=\u0661", "priority=1\n"],
)  # fmt: skip
def test_anything_else_is_no_terms_and_no_intent(written: str) -> None:
    assert read_terms(written) is None
    intent = Intent(PLAN, "j", 1, "n1", None)
    notes = {**intent.annotations(), "gangplan.dev/terms": written}
    assert read_intent(intent.labels(), notes) is None


@pytest.mark.parametrize("proven", [True, False])
def test_what_it_gave_at_its_start_cannot_be_taken_back(*, proven: bool) -> None:
    terms = Terms(3, preemptible=True, movable=True, until=NOON + HOUR, queue="mine")
    found = built(job(), *started(terms, terms, proven=proven, priority=9))
    gang = gang_of(found)
    assert (gang.preemptible, gang.movable, gang.priority) == (True, True, 3)
    assert gang.expected_duration_s == HOUR
    said = (
        "Job default/j: was started as preemptible, as movable, with priority 3, to end by"
        " 2026-11-24T13:00:00Z; that holds until it ends, whatever it says now"
    )
    assert said in found.remarks


def test_a_longer_deadline_does_not_count_and_the_end_stays_when_a_pod_is_made_again() -> None:
    terms = Terms(0, until=NOON + HOUR)
    pods = started(terms, terms)
    pods[1]["status"]["startTime"] = time_text(NOON + 1800)
    gang = gang_of(built(job(activeDeadlineSeconds=10 * HOUR), *pods))
    assert gang.started_at == NOON + 1800
    assert gang.expected_duration_s == HOUR - 1800


@pytest.mark.parametrize(
    ("proven", "counts"), [(True, "mine"), (False, "theirs")], ids=["sealed", "forged"]
)
def test_it_stays_in_the_queue_that_it_was_started_in(*, proven: bool, counts: str) -> None:
    terms = Terms(0, queue="mine")
    found = built(job(), *started(terms, terms, proven=proven, queued="theirs"))
    assert gang_of(found).queue == counts
    assert ("was started in queue mine;" in " ".join(found.remarks)) is proven


@pytest.mark.parametrize(("late", "said"), [(0, False), (60, True)])
def test_what_runs_past_its_end_is_reported_with_the_command_that_ends_it(
    late: int, *, said: bool
) -> None:
    terms = Terms(0, until=NOON + HOUR)
    found = built(job(), *started(terms, terms), now=NOON + HOUR + late)
    lines = [line for line in found.remarks if "past its end" in line]
    what = "Job default/j: runs past its end, 2026-11-24T13:00:00Z, by 60s"
    hint = "to end it: kubectl delete job.batch -n default j"
    assert lines == [f"{what} (hint: {hint})"] * said


def budget(name: str, healthy: int, desired: int, **status: object) -> Json:
    spec = {"minAvailable": desired, "selector": {"matchLabels": {"app": "low"}}}
    made = thing("PodDisruptionBudget", "policy/v1", name, spec)
    made["metadata"]["generation"] = 1
    made["status"] = {
        "observedGeneration": 1,
        "disruptionsAllowed": max(0, healthy - desired),
        "currentHealthy": healthy,
        "desiredHealthy": desired,
        **status,
    }
    return made


FREE, FULL = budget("free", 0, 0), budget("full", 0, 1)
MARK = {"gangplan.dev/preemptible": "true"}


def waiting() -> list[Json]:
    low = pod("low", gpus=8, gated=True, labels={"app": "low"}, annotations=MARK)
    return [low]


@pytest.mark.parametrize(
    ("budgets", "named"),
    [
        ([], None),
        ([FREE], None),
        ([budget("more", 3, 2)], None),
        ([FULL], "default/full"),
        ([budget("old", 0, 0, observedGeneration=0)], "default/old"),
        ([FREE, budget("too", 0, 0)], "default/free and default/too"),
    ],
    ids=["none", "0 needed", "enough without it", "1 needed", "not counted yet", "two"],
)
def test_what_could_not_be_evicted_once_it_runs_is_not_taken_for_preemptible(
    budgets: list[Json], named: str | None
) -> None:
    found = built(*waiting(), *budgets)
    assert gang_of(found).preemptible is (named is None)
    lines = [line for line in found.remarks if "not taken for preemptible" in line]
    assert len(lines) == (named is not None)
    assert all(f"for the disruption budget {named} " in line for line in lines)


@pytest.mark.parametrize(
    ("budgets", "decision", "code"),
    [([], "place", None), ([FREE], "place", None), ([FULL], "wait", "Quota")],
)
def test_a_gang_that_a_budget_would_keep_borrows_nothing(
    cli: RunCli, budgets: list[Json], decision: str, code: str | None
) -> None:
    """All 8 GPUs are promised to ``mine``, so only what may be stopped starts beyond that."""
    items = [node("n1"), queue("mine"), *waiting(), *budgets]
    bundle = json.dumps({"apiVersion": "v1", "kind": "List", "items": items}).encode()
    result = cli("plan", "-", "-o", "json", stdin=bundle)
    assert result.code == 0, result.err
    (gang,) = json.loads(result.out)["spec"]["gangs"]
    assert (gang["decision"], (gang["reason"] or {}).get("code")) == (decision, code)
