"""Reservations in queues: what queues may hold and promise when one begins is left to its holder (2.18)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from plan_documents import sealed

from models.results.plan import compose, dumps
from models.units import time_text
from models.verify.check import check
from planner.pipelines.previous_plan import with_previous
from planner.read.inputs import load
from planner.read.plan_files import read_plan
from planner.search.solve import solve
from planner.show.reason_words import words

LIMIT = Path(__file__).parents[1] / "data" / "promises" / "limit-of-a-queue.yaml"
HEAD = "apiVersion: gangplan.dev/v1alpha1\nkind: "
Json = dict[str, Any]


def cluster(nodes: str = "n[0-3]", more: str = "") -> str:
    return (
        f"{HEAD}Cluster\nmetadata: {{name: c}}\nspec: {{levels: [{{name: rack}}], nodes: "
        f'[{{name: "{nodes}", model: dgx-h100, domains: {{rack: r1}}{more}}}]}}\n'
    )


def queue(name: str, spec: str) -> str:
    return f"{HEAD}Queue\nmetadata: {{name: {name}}}\nspec: {{{spec}}}\n"


def gang(name: str, spec: str, pods: int = 1, status: str = "") -> str:
    own = f"{spec}, roles: [{{name: w, gpus: 8, replicas: {pods}}}]"
    return f"{HEAD}Gang\nmetadata: {{name: {name}}}\nspec: {{{own}}}\n{status}"


def on(started: str, *nodes: str) -> str:
    pods = [
        {"role": "w", "index": i, "node": n, "gpus": list(range(8))} for i, n in enumerate(nodes)
    ]
    return f"status: {json.dumps({'startedAt': f'2026-11-23T{started}:00Z', 'pods': pods})}\n"


def policy(now: str) -> str:
    return f"{HEAD}Policy\nspec: {{reservations: {{}}, now: 2026-11-23T{now}:00Z}}\n"


def planned(folder: Path, *texts: str, before: Json | None = None) -> Json:
    """The plan document, which the judge lets pass. ``before``: an earlier plan."""
    (folder / "in.yaml").write_text("---\n".join(texts))
    instance = load([str(folder / "in.yaml")]).instance
    if before is not None:
        instance, _ = with_previous(instance, read_plan(dumps(before).encode(), "before"), "before")
    now = time_text(instance.now)
    found = compose(
        instance, solve(instance), name="p", created_at=now, generator="test", words=words
    )
    assert check(found) == []
    return found


def entries(document: Json) -> dict[str, Json]:
    return {one["name"]: one for one in document["spec"]["gangs"]}


def start(document: Json, name: str) -> str | None:
    reserved = entries(document)[name].get("reserved")
    return None if reserved is None else str(reserved["start"])[11:16]


def test_a_later_gang_leaves_the_holder_what_a_limit_lets_it_have(tmp_path: Path) -> None:
    found = planned(tmp_path, LIMIT.read_text())
    assert start(found, "high") == "13:00"
    low = entries(found)["low"]
    assert low["decision"] == "wait"
    assert low["reason"]["code"] == "Reserved"
    assert low["reason"]["message"] == (
        "where it would fit, nodes or shares of queues are reserved for default/high (priority 10, from"
        " 2026-11-23T13:00:00Z); it would run beyond that, or nobody knows how long it runs"
    )


@pytest.mark.parametrize(
    "low",
    ["expectedDuration: 50m", "expectedDuration: 10h, preemptible: true"],
    ids=["ends", "stops"],
)
def test_who_ends_in_time_or_may_be_stopped_starts(low: str, tmp_path: Path) -> None:
    text = LIMIT.read_text().replace("expectedDuration: 10h", low)
    found = planned(tmp_path, text)
    assert start(found, "high") == "13:00"
    assert entries(found)["low"]["decision"] == "place"


def test_who_cannot_be_stopped_leaves_the_holder_what_nobody_is_promised(tmp_path: Path) -> None:
    """Of four servers one is promised; a firm gang may have three of them."""
    texts = [
        cluster(),
        queue("owner", "guarantee: {gpus: 8}"),
        gang("running", "expectedDuration: 1h", 1, on("12:00", "n0")),
        gang("high", "priority: 10, expectedDuration: 2h", 3),
        gang("low", "expectedDuration: 10h", 1),
        policy("12:10"),
    ]
    found = planned(tmp_path, *texts)
    assert start(found, "high") == "13:00"
    assert entries(found)["low"]["reason"]["code"] == "Reserved"


def test_the_judge_refuses_a_start_that_a_queue_will_not_allow(tmp_path: Path) -> None:
    found = planned(tmp_path, LIMIT.read_text())
    asked = LIMIT.read_text().replace(
        "metadata: {name: low}\nspec: {queue: q, ", "metadata: {name: low}\nspec: {"
    )
    free = planned(tmp_path, asked)
    entry = entries(found)["low"] | {
        key: entries(free)["low"][key]
        for key in ("decision", "pods", "bandwidthMBps", "share", "speed", "domains", "reason")
    }
    entry.pop("reserved", None)
    gangs = [entry if one["name"] == "low" else one for one in found["spec"]["gangs"]]
    said = check(sealed(found | {"spec": {"gangs": gangs}}))
    assert any(
        one.rule == "reserved" and "queue 'q' would hold 24 GPUs" in one.message for one in said
    ), said


def test_a_start_promised_in_a_queue_is_kept_before_gangs_ahead(tmp_path: Path) -> None:
    """The first of the queue, which could not hold the reservation, waits for the promised one's GPUs.

    Both need all of the limit. ``long`` came later and was promised 13:00; since then ``early``, which was
    held, is released and comes before it.
    """
    own = "queue: q, expectedDuration"
    running = gang("running", f"{own}: 1h", 1, on("12:00", "n0"))
    promised = gang("promised", f"{own}: 2h, submittedAt: 2026-11-23T12:05:00Z", 2)
    head = [cluster(), queue("q", "limit: {gpus: 16}"), running, promised]
    held = 'status: {hold: {code: Gated, message: "a gate"}}\n'
    early = f"{own}: 2h, submittedAt: 2026-11-23T11:00:00Z"
    before = planned(tmp_path, *head, gang("early", early, 2, held), policy("12:10"))
    assert start(before, "promised") == "13:00"
    after = planned(tmp_path, *head, gang("early", early, 2), policy("12:20"), before=before)
    # it reckons with the promise, for it was known
    assert start(after, "promised") == "13:00"
    assert "delayed" not in entries(after)["promised"]
