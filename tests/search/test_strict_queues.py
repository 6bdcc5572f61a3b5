"""Queues that start their gangs in order (2.23): by hand, in parts, read from Kueue, and by the judge."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from building import gang
from plan_documents import decided as decides
from plan_documents import entry, restated, role
from plan_documents import gang as gang_document
from plan_queues import queue as queue_document
from plan_queues import queues_plan
from test_kube_queues import by_name, groups, kueue, read
from test_queue_plans import cluster, decided, runs

from models.documents.gang import Hold
from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.queue import Queue
from models.instance.solution import Reason
from models.verify.check import check
from planner.search.solve import solve

STRICT = Queue("q", strict=True)


def waits(
    name: str, gpus: int, *, priority: int = 0, at: int | None = None, **more: object
) -> Gang:
    found = gang(name, 1, gpus, priority=priority, submitted=at)
    return replace(found, queue="q", **more)  # type: ignore[arg-type]  # its fields


def in_queue(gangs: Sequence[Gang], queue: Queue = STRICT, nodes: int = 2) -> Instance:
    return cluster([queue], gangs, nodes)


def test_no_gang_of_a_strict_queue_overtakes_one_that_waits_for_room() -> None:
    # 8 of 16 GPUs are free: b asks for 16 on two servers, c for 8
    big = replace(gang("b", 2, 8, submitted=1), queue="q")
    gangs = [runs("a", None, 0), big, waits("c", 8, at=2)]
    gangs[0] = replace(gangs[0], preemptible=False)
    found = solve(in_queue(gangs))
    assert decided(found) == ["keep", "wait", "wait"]
    by = [{"gang": "default/b", "priority": 0}]
    assert found.decisions[2].reason == Reason.of("QueueOrder", queue="q", by=by)
    assert decided(solve(in_queue(gangs, Queue("q")))) == ["keep", "wait", "place"]


@pytest.mark.parametrize(
    "first",
    [
        waits("a", 8, at=1, hold=Hold("Gated", "held")),
        replace(gang("a", 3, 8, submitted=1), queue="q"),  # more than the cluster has
        replace(waits("a", 8, at=1), queue=None),
    ],
    ids=["held", "never", "of another queue"],
)
def test_who_is_held_or_could_never_start_keeps_nobody_waiting(first: Gang) -> None:
    blocked = replace(runs("x", None, 0), preemptible=False)
    gangs = [first, waits("b", 8, at=2), blocked]
    found = decided(solve(in_queue(gangs)))
    assert found[1] == "place" or first.queue is None


def test_strict_fifo_of_a_cluster_queue_is_read(tmp_path: Path) -> None:
    spec = {"resourceGroups": groups(("any", {"nominalQuota": 3}))}
    found = read(
        tmp_path,
        kueue("ClusterQueue", "strict", {**spec, "queueingStrategy": "StrictFIFO"}),
        kueue("ClusterQueue", "loose", {**spec, "queueingStrategy": "BestEffortFIFO"}),
        kueue("ClusterQueue", "plain", spec),
    )
    assert [queue.name for queue in by_name(found).values() if queue.strict] == ["strict"]


@pytest.mark.parametrize(
    ("spec", "rules"),
    [
        ({"priority": 0}, []),  # younger by name
        ({"priority": 1}, ["queue-order"]),
        ({"priority": 1, "queue": "lab"}, []),
    ],
)
def test_the_judge_finds_who_overtakes(spec: dict[str, object], rules: list[str]) -> None:
    plan = queues_plan()
    wanted = {"queue": "bio", **spec}
    plan["instance"]["gangs"].append(gang_document("more", role(gpus=8), **wanted))
    plan["spec"]["gangs"].append(decides("more", "wait", why="Unknown"))
    next(q for q in plan["instance"]["queues"] if q["metadata"]["name"] == "bio")["spec"][
        "order"
    ] = "strict"
    assert [v.rule for v in check(restated(plan)) if v.rule == "queue-order"] == rules


def test_a_stated_place_in_a_queue_is_checked() -> None:
    plan = queues_plan()
    plan["instance"]["queues"].append(queue_document("zoo", order="strict"))
    for name, at in (("more", "2026-11-20T00:00:00Z"), ("next", "2026-11-21T00:00:00Z")):
        plan["instance"]["gangs"].append(
            gang_document(name, role(gpus=8), queue="zoo", submittedAt=at)
        )
        plan["spec"]["gangs"].append(decides(name, "wait", why="Unknown"))
    stated = entry(plan, "next")["reason"]
    stated["code"] = "QueueOrder"
    assert "reason" not in [v.rule for v in check(restated(plan))]
    entry(plan, "more")["reason"]["code"] = "QueueOrder"
    assert "reason" in [v.rule for v in check(restated(plan))]
