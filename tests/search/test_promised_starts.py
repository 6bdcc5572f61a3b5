"""Stated starts over several rounds: guarantees come first, and nobody who comes later makes one later."""

from __future__ import annotations

import json
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import Any

import pytest
import round_histories
from effort import examples, spread
from round_histories import History, World, seconds_of, stamp

from models.instance.instance import Instance
from models.results.plan import compose, dumps
from models.units import time_text
from models.verify.check import check
from planner.pipelines.previous_plan import with_previous
from planner.read.inputs import load
from planner.read.plan_files import read_plan
from planner.search.solve import solve

DATA = Path(__file__).parents[1] / "data" / "promises"
Json = dict[str, Any]


def planned(instance: Instance, before: Json | None = None) -> Json:
    """The plan document, which the judge lets pass. ``before``: an earlier plan."""
    if before is not None:
        instance, _ = with_previous(instance, read_plan(dumps(before).encode(), "before"), "before")
    found = solve(instance)
    document = compose(
        instance, found, name="p", created_at=time_text(instance.now), generator="test"
    )
    assert check(document) == []
    return document


def read(name: str) -> Instance:
    return load([str(DATA / f"{name}.yaml")]).instance


def entries(document: Json) -> dict[str, Json]:
    return {one["name"]: one for one in document["spec"]["gangs"]}


def decisions(document: Json) -> dict[str, str]:
    return {name: one["decision"] for name, one in entries(document).items()}


def start(document: Json, name: str) -> str | None:
    reserved = entries(document)[name].get("reserved")
    return None if reserved is None else str(reserved["start"])


def test_a_gang_within_a_guarantee_starts_before_a_borrower_that_came_first() -> None:
    first = planned(read("guarantee-over-reservation"))
    assert decisions(first) == {"big": "wait", "late": "place", "running": "keep"}
    assert start(first, "big") == "2026-11-23T22:00:00Z"
    later = planned(read("guarantee-over-reservation-1210"))
    assert decisions(later) == {"big": "wait", "late": "place"}
    taken_back = planned(read("guarantee-over-reservation-1220"))
    assert decisions(taken_back) == {"big": "preempt", "late": "place"}


def test_the_first_in_the_queue_holds_a_reservation_whatever_it_would_do_without() -> None:
    found = planned(read("lost-reservation"))
    assert start(found, "high") == "2026-11-23T12:10:00Z"
    assert start(found, "a-first") == "2026-11-23T14:10:00Z"
    waiting = [name for name in ("b-later", "c-later") if decisions(found)[name] == "wait"]
    assert len(waiting) == 1


@dataclass
class Delay:
    """What becomes of ``a-first``, promised 14:10, ten minutes later."""

    change: str
    cause: str | None
    by: list[str] | None


@pytest.mark.parametrize(
    "case",
    [
        Delay("nothing", None, None),
        Delay("arrival", "Arrival", ["default/urgent"]),
        Delay("failure", "Failure", ["n0"]),
        Delay("overrun", "Overrun", ["default/running"]),
    ],
    ids=lambda case: case.change,
)
def test_a_later_start_names_its_cause(case: Delay, tmp_path: Path) -> None:
    before = planned(read("lost-reservation"))
    text = (DATA / "lost-reservation.yaml").read_text()
    text = text.replace("now: 2026-11-23T12:00:00Z", "now: 2026-11-23T12:05:00Z")
    started = entries(before)
    for name in ("b-later", "c-later"):
        if started[name]["decision"] == "place":
            pods = [
                {k: pod[k] for k in ("role", "index", "node", "gpus")}
                for pod in started[name]["pods"]
            ]
            status = json.dumps({"startedAt": "2026-11-23T12:00:00Z", "pods": pods})
            head, tail = text.split(f"metadata: {{name: {name}}}\n")
            line, rest = tail.split("\n", 1)
            text = f"{head}metadata: {{name: {name}}}\n{line}\nstatus: {status}\n{rest}"
    if case.change == "arrival":
        text += (
            "---\napiVersion: gangplan.dev/v1alpha1\nkind: Gang\nmetadata: {name: urgent}\n"
            "spec: {priority: 20, submittedAt: 2026-11-23T12:04:00Z, expectedDuration: 5h, "
            "roles: [{name: w, gpus: 8, replicas: 3}]}\n"
        )
    elif case.change == "failure":
        text = text.replace(
            '{name: "n[0-2]", model: dgx-h100, domains: {rack: r1}}',
            "{name: n0, model: dgx-h100, domains: {rack: r1}, unschedulable: true}\n"
            '  - {name: "n[1-2]", model: dgx-h100, domains: {rack: r1}}',
        )
    elif case.change == "overrun":
        text = text.replace("12:05:00Z", "13:30:00Z")
    path = tmp_path / "later.yaml"
    path.write_text(text)
    found = entries(planned(load([str(path)]).instance, before))
    late = found["a-first"].get("delayed")
    if case.cause is None:
        assert late is None
        assert found["a-first"]["reserved"]["start"] == "2026-11-23T14:10:00Z"
        return
    assert late["promised"] == "2026-11-23T14:10:00Z"
    assert (late["cause"], late["by"]) == (case.cause, case.by)


def minutes(text: str, minutes: int) -> str:
    """The time so many minutes after another."""
    return time_text(seconds_of(text) + 60 * minutes)


TEN = "2026-11-23T10:00:00Z"


def servers(folder: Path, at: str, lasts: list[str]) -> Instance:
    """Servers of 8 GPUs, each busy since 09:30 for so long; two gangs wait."""
    head: Json = {"apiVersion": "gangplan.dev/v1alpha1"}
    nodes = [{"name": f"n{i}", "model": "dgx-h100"} for i in range(len(lasts))]
    rules: Json = {
        "now": at,
        "reservations": {"perPriority": 1},
        "solve": {"budget": 2, "workers": 1},
    }
    found = [
        {**head, "kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nodes": nodes}},
        {**head, "kind": "Policy", "metadata": {"name": "p"}, "spec": rules},
    ]
    waiting = [("first", 10, "1h", None), ("second", 0, "1h", None)]
    runs = [(f"r{i}", 20, long, i) for i, long in enumerate(lasts)]
    for name, priority, lasting, on in (*waiting, *runs):
        spec = {
            "priority": priority,
            "submittedAt": "2026-11-23T09:00:00Z",
            "expectedDuration": lasting,
            "roles": [{"name": "w", "replicas": 1, "gpus": 8}],
        }
        status: Json = {}
        if on is not None:
            pod = {"role": "w", "index": 0, "node": f"n{on}", "gpus": list(range(8))}
            status = {"status": {"startedAt": "2026-11-23T09:30:00Z", "pods": [pod]}}
        found.append({**head, "kind": "Gang", "metadata": {"name": name}, "spec": spec, **status})
    path = folder / "servers.json"
    path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": found}))
    return load([str(path)]).instance


def test_a_promised_start_is_kept_at_its_own_nodes_alone(tmp_path: Path) -> None:
    """n1 is free three hours later than was expected: at 10:30 only n0 is, where ``first`` starts then."""
    before = planned(servers(tmp_path, TEN, ["1h", "1h", "9h"]))
    places = {name: entries(before)[name]["reserved"]["nodes"][0] for name in ("first", "second")}
    assert {start(before, name) for name in places} == {minutes(TEN, 30)}
    lasts = ["4h" if f"n{i}" == places["second"] else "1h" for i in range(2)]
    found = planned(servers(tmp_path, minutes(TEN, 10), [*lasts, "9h"]), before)
    assert start(found, "first") == minutes(TEN, 30)
    assert start(found, "second") == minutes(TEN, 90)


class Rounds(History):
    """Every plan is made with the one before."""

    last: Json | None = None

    def _plan(self, documents: list[Json]) -> Json:
        self.file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
        self.last = planned(load([str(self.file)]).instance, self.last)
        return self.last


@pytest.mark.parametrize("seed", spread(range(12), 6))
def test_a_start_is_later_only_for_a_cause_that_the_plan_names(seed: int, tmp_path: Path) -> None:
    history = Rounds(
        World.of(seed, examples(60, 16), perturbed=seed % 2 == 1),
        tmp_path,
        previous=True,
        show=False,
    )
    history.play()
    assert [one for one in history.broken if one[1] in ("slip", "verify")] == []
    assert history.counts["wait"]


def one_queue(seed: int) -> tuple[list[Json], list[Json]]:
    """Gangs of one priority, in no queue, all there from the start; and the other documents."""
    world, r = World.of(3 * seed, 1, perturbed=False), Random(f"{seed}/alone")
    now, jobs = round_histories.FIRST_S, []
    for number in range(30):
        jobs += list(world.arrivals(number, now - r.randrange(3000), 0))
    for job in jobs:
        job.priority, job.preemptible, job.submitted = 0, False, now - r.randrange(3000)
    return [job.document() for job in jobs], world.documents([], now, set())


@pytest.mark.parametrize("seed", spread(range(40), 20))
def test_without_arrivals_no_start_moves_back_and_nobody_overtakes(
    seed: int, tmp_path: Path
) -> None:
    """No plan knows the one before."""
    gangs, head = one_queue(seed)
    promised: dict[str, int] = {}
    now, stated = round_histories.FIRST_S, 0
    for _ in range(examples(40, 8)):
        head[-1]["spec"]["now"] = stamp(now)
        path = tmp_path / "round.json"
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*head, *gangs]}))
        found = entries(planned(load([str(path)]).instance))
        for name, at in promised.items():
            one = found.get(name)
            if one is not None and one["decision"] == "wait":
                assert one.get("reserved"), name
                assert seconds_of(one["reserved"]["start"]) <= at, name
        promised = {
            name: seconds_of(one["reserved"]["start"])
            for name, one in found.items()
            if one["decision"] == "wait" and one.get("reserved")
        }
        stated += len(promised)
        now += round_histories.ROUND_S
        gangs = [one for gang in gangs if (one := _went_on(gang, found, now)) is not None]
        if not gangs:
            break
    assert stated


def _went_on(gang: Json, found: dict[str, Json], now: int) -> Json | None:
    """The gang in the next round; None once it has ended."""
    own = found[gang["metadata"]["name"]]
    if own["decision"] == "place":
        gang["status"] = {
            "startedAt": stamp(now - round_histories.ROUND_S),
            "pods": [{k: pod[k] for k in ("role", "index", "node", "gpus")} for pod in own["pods"]],
        }
    if "status" not in gang:
        return gang
    lasts = int(gang["spec"]["expectedDuration"].removesuffix("s"))
    return gang if seconds_of(gang["status"]["startedAt"]) + lasts > now else None
