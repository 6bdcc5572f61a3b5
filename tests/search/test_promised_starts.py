"""Stated starts over several plans: guarantees come first, and nobody who comes later makes one later."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from random import Random
from threading import Event

import pytest
from bundles import packed
from effort import examples, spread
from outcomes import Outcome
from plan_documents import sealed
from played_clusters import FIRST_S, ROUND_S, History, Json, World, of, seconds_of, stamp
from stated_cases import instance_of

from models.instance.instance import Instance
from models.results.plan import compose, dumps
from models.units import time_text
from models.verify.check import check
from planner.pipelines.adjustments import with_previous
from planner.read.inputs import load
from planner.read.plan_files import read_plan
from planner.search.solve import Search, solve

DATA = Path(__file__).parents[1] / "data" / "promises"
DAY = "2026-11-23T"


def planned(instance: Instance, before: Json | None = None) -> Json:
    """The plan document, which the judge lets pass. ``before``: an earlier plan."""
    if before is not None:
        instance, _ = with_previous(instance, read_plan(dumps(before).encode(), "before"), "before")
    at = time_text(instance.now)
    document = compose(instance, solve(instance), name="p", created_at=at, generator="test")
    assert check(document) == []
    return document


def read(name: str) -> Instance:
    return load([str(DATA / f"{name}.yaml")]).instance


def written(folder: Path, documents: list[Json]) -> Instance:
    path = folder / "in.json"
    path.write_bytes(packed(documents))
    return load([str(path)]).instance


def entries(document: Json) -> dict[str, Json]:
    return {one["name"]: one for one in document["spec"]["gangs"]}


def decisions(document: Json) -> dict[str, str]:
    return {name: one["decision"] for name, one in entries(document).items()}


def start(document: Json, name: str) -> str | None:
    """Hours and minutes."""
    reserved = entries(document)[name].get("reserved")
    return None if reserved is None else str(reserved["start"])[11:16]


def gang(name: str, pods: int, lasts: str, on: list[str] | None = None, **more: object) -> Json:
    """A gang of whole servers; one that runs started at 09:30 unless said."""
    started = more.pop("started", "09:30")
    roles = [{"name": "w", "replicas": pods, "gpus": 8}]
    spec = {"submittedAt": f"{DAY}09:00:00Z", "expectedDuration": lasts, "roles": roles, **more}
    found = of("Gang", name, **spec)
    stands = [
        {"role": "w", "index": i, "node": n, "gpus": list(range(8))} for i, n in enumerate(on or ())
    ]
    if stands:
        found["status"] = {"startedAt": f"{DAY}{started}:00Z", "pods": stands}
    return found


def head(nodes: int, now: str, *queues: Json) -> list[Json]:
    servers = [{"name": f"n{i}", "model": "dgx-h100"} for i in range(nodes)]
    rules = {"now": f"{DAY}{now}:00Z", "reservations": {}, "solve": {"budget": 2, "workers": 1}}
    return [of("Cluster", "c", nodes=servers), of("Policy", "p", **rules), *queues]


def test_a_gang_within_a_guarantee_starts_before_a_borrower_that_came_first() -> None:
    first = planned(read("guarantee-over-reservation"))
    assert decisions(first) == {"big": "wait", "late": "place", "running": "keep"}
    assert start(first, "big") == "22:00"
    later = planned(read("guarantee-over-reservation-1210"))
    assert decisions(later) == {"big": "wait", "late": "place"}
    taken_back = planned(read("guarantee-over-reservation-1220"))
    assert decisions(taken_back) == {"big": "preempt", "late": "place"}


def test_the_first_in_the_queue_holds_a_reservation_whatever_it_would_do_without() -> None:
    found = planned(read("lost-reservation"))
    assert (start(found, "high"), start(found, "a-first")) == ("12:10", "14:10")
    assert sorted(decisions(found)[name] for name in ("b-later", "c-later")) == ["place", "wait"]


@pytest.mark.parametrize(
    ("change", "cause", "by"),
    [
        ("nothing", None, None),
        ("arrival", "Arrival", ["default/urgent"]),
        ("failure", "Failure", ["n0"]),
        ("overrun", "Overrun", ["default/running"]),
    ],
)
def test_a_later_start_names_its_cause(
    change: str, cause: str | None, by: list[str] | None, tmp_path: Path
) -> None:
    """What becomes of ``a-first``, promised 14:10, some minutes later."""
    before = planned(read("lost-reservation"))
    text = (DATA / "lost-reservation.yaml").read_text()
    text = text.replace("now: 2026-11-23T12:00:00Z", "now: 2026-11-23T12:05:00Z")
    for name in ("b-later", "c-later"):
        if entries(before)[name]["decision"] == "place":
            pods = [
                {k: pod[k] for k in ("role", "index", "node", "gpus")}
                for pod in entries(before)[name]["pods"]
            ]
            status = json.dumps({"startedAt": "2026-11-23T12:00:00Z", "pods": pods})
            ahead, behind = text.split(f"metadata: {{name: {name}}}\n")
            line, rest = behind.split("\n", 1)
            text = f"{ahead}metadata: {{name: {name}}}\n{line}\nstatus: {status}\n{rest}"
    if change == "arrival":
        urgent = gang("urgent", 3, "5h", priority=20, submittedAt=f"{DAY}12:04:00Z")
        text += f"---\n{json.dumps(urgent)}\n"
    elif change == "failure":
        every = "model: dgx-h100, domains: {rack: r1}}"
        out = f'{{name: n0, {every[:-1]}, unschedulable: true}}\n  - {{name: "n[1-2]", {every}'
        text = text.replace(f'{{name: "n[0-2]", {every}', out)
    elif change == "overrun":
        text = text.replace("12:05:00Z", "13:30:00Z")
    (tmp_path / "later.yaml").write_text(text)
    found = planned(load([str(tmp_path / "later.yaml")]).instance, before)
    late = entries(found)["a-first"].get("delayed")
    if cause is None:
        assert (late, start(found, "a-first")) == (None, "14:10")
    else:
        assert late == {"promised": "2026-11-23T14:10:00Z", "cause": cause, "by": by}


def test_a_promised_start_is_kept_at_its_own_nodes_alone(tmp_path: Path) -> None:
    """n1 is free three hours later than was expected: at 10:00 only n0 is, where ``first`` starts then."""

    def servers(now: str, lasts: list[str]) -> Instance:
        waiting = [gang("first", 1, "1h", priority=10), gang("second", 1, "1h")]
        runs = [gang(f"r{i}", 1, own, [f"n{i}"], priority=20) for i, own in enumerate(lasts)]
        return written(tmp_path, [*head(len(lasts), now), *waiting, *runs])

    before = planned(servers("10:00", ["1h", "1h", "9h"]))
    place = entries(before)["second"]["reserved"]["nodes"][0]
    assert [start(before, name) for name in ("first", "second")] == ["10:30", "10:30"]
    lasts = ["4h" if f"n{i}" == place else "1h" for i in range(2)]
    found = planned(servers("10:10", [*lasts, "9h"]), before)
    assert [start(found, name) for name in ("first", "second")] == ["10:30", "11:30"]


def test_a_later_plan_takes_the_nodes_that_an_earlier_one_reserved() -> None:
    gangs = {f"r{n}": f"1x8 on={n} started=-1h lasts=2h submitted=-2h" for n in ("n01", "n03")}
    big = "2x8 same=rack priority=5 submitted=-30m lasts=5h"
    policy = {"now": "0s", "reservations": {}}
    instance = instance_of({"nodes": "2x2", "gangs": gangs | {"big": big}, "policy": policy})
    document = planned(instance)
    reserved = entries(document)["big"]["reserved"]
    assert reserved["nodes"] == ["n01", "n02"]
    text = json.dumps(reserved).replace("n01", "n03").replace("n02", "n04")
    entries(document)["big"]["reserved"] = json.loads(text)
    again = planned(instance, sealed(document))
    assert entries(again)["big"]["reserved"]["nodes"] == ["n03", "n04"]


def test_what_a_stopped_search_returns_keeps_nodes_too() -> None:
    gangs = {
        "full": "1x8 on=n01 started=-1h lasts=2h submitted=-2h",
        "big": "2x8 priority=5 submitted=-30m lasts=5h",
        "later": "1x8 submitted=-30m lasts=9h",
    }
    policy = {"now": "0s", "reservations": {}}
    instance, stop = instance_of({"nodes": 2, "gangs": gangs, "policy": policy}), Event()
    search = Search(instance, stop=stop)
    stop.set()
    found = search.run()
    assert found.stopped_by == "signal"
    outcome = Outcome(instance, found)
    reserved = outcome.of("big").reserved
    assert (outcome.decision("later"), reserved and reserved.nodes) == ("wait", (0, 1))


def test_the_judge_refuses_a_start_that_a_queue_will_not_allow(tmp_path: Path) -> None:
    text = (DATA / "limit-of-a-queue.yaml").read_text()
    found = planned(read("limit-of-a-queue"))
    assert (start(found, "high"), decisions(found)["low"]) == ("13:00", "wait")
    named = "metadata: {name: low}\nspec: {"
    (tmp_path / "free.yaml").write_text(text.replace(f"{named}queue: q, ", named))
    free = entries(planned(load([str(tmp_path / "free.yaml")]).instance))["low"]
    low = {k: v for k, v in entries(found)["low"].items() if k != "reserved"}
    keys = ("decision", "pods", "bandwidthMBps", "share", "speed", "domains", "reason")
    low |= {key: free[key] for key in keys}
    gangs = [low if one["name"] == "low" else one for one in found["spec"]["gangs"]]
    said = check(sealed(found | {"spec": {"gangs": gangs}}))
    assert any(v.rule == "reserved" and "queue 'q' would hold 24 GPUs" in v.message for v in said)


def test_a_start_promised_in_a_queue_is_kept_before_gangs_ahead(tmp_path: Path) -> None:
    """Both need all of the limit. ``early``, which was held, is released and comes before ``promised``."""

    def inputs(now: str, gpus: int, *gangs: Json) -> Instance:  # n3 was out of order all the time
        cluster, *rest = head(4, now, of("Queue", "q", limit={"gpus": gpus}))
        cluster["spec"]["nodes"][3]["ready"] = False
        return written(tmp_path, [cluster, *rest, *gangs])

    runs = gang("running", 1, "1h", ["n0"], queue="q", started="12:00")
    promised = gang("promised", 2, "2h", queue="q", submittedAt=f"{DAY}12:05:00Z")
    early = gang("early", 2, "2h", queue="q", submittedAt=f"{DAY}11:00:00Z")
    held = early | {"status": {"hold": {"code": "Gated", "message": "a gate"}}}
    before = planned(inputs("12:10", 16, runs, promised, held))
    assert start(before, "promised") == "13:00"
    after = planned(inputs("12:20", 16, runs, promised, early), before)
    # it reckons with the promise, for it was known
    assert start(after, "promised") == "13:00"
    assert "delayed" not in entries(after)["promised"]
    less = planned(inputs("12:20", 8, runs, promised, held), before)
    assert entries(less)["promised"]["delayed"]["cause"] == "Input"


def test_a_start_promised_on_a_node_that_is_closed_keeps_nobody_back(tmp_path: Path) -> None:
    """``early``, which was held, is released. It is first in the queue, so it holds the only reservation."""

    def inputs(now: str, early: Json, *, closed: bool) -> Instance:
        cluster, *rest = head(2, now)
        cluster["spec"]["nodes"][0]["unschedulable"] = closed
        runs = [gang(f"r{i}", 1, lasts, [f"n{i}"]) for i, lasts in enumerate(("4h", "6h"))]
        promised = gang("promised", 1, "2h", submittedAt=f"{DAY}12:05:00Z")
        return written(tmp_path, [cluster, *rest, *runs, promised, early])

    early = gang("early", 1, "2h", submittedAt=f"{DAY}11:00:00Z")
    held = early | {"status": {"hold": {"code": "Gated", "message": "a gate"}}}
    before = planned(inputs("12:10", held, closed=False))
    assert (start(before, "promised"), start(before, "early")) == ("13:30", None)
    for closed, starts in ((False, ("13:30", None)), (True, (None, "15:30"))):
        after = planned(inputs("12:20", early, closed=closed), before)
        assert (start(after, "promised"), start(after, "early")) == starts


PLAYED = [(3, 12, True), (2, 10, False)]
LONGER = [(3, 50, False), (1, 60, True), (4, 60, True)]


@pytest.mark.parametrize(
    ("seed", "rounds", "full"),
    [*PLAYED, *(pytest.param(*one, marks=pytest.mark.slow) for one in LONGER)],
)
def test_every_plan_of_a_cluster_that_lives_on_is_saved_and_every_slip_has_a_cause(
    seed: int, rounds: int, tmp_path: Path, *, full: bool
) -> None:
    """Seed 3: two gangs were reserved the same nodes from round 10 on, and nothing was saved for an hour."""
    history = History(World(seed, full=full), tmp_path)
    history.play(rounds)
    assert history.counts["place"] > rounds // 4
    assert history.counts["wait"] or not full
    assert [one for one in history.broken if one[1] != "aged"] == []


@pytest.mark.parametrize("seed", spread(range(40), 40))
def test_without_arrivals_no_start_moves_back_and_nobody_overtakes(
    seed: int, tmp_path: Path
) -> None:
    """No plan knows the one before."""
    world, r, now = World(3 * seed, full=False), Random(f"{seed}/alone"), FIRST_S
    jobs = [one for n in range(12) for one in world.arrivals(n, now, 0)]
    jobs = [
        replace(one, priority=0, preemptible=False, submitted=now - r.randrange(3000))
        for one in jobs
    ]
    promised, stated = dict[str, int](), 0
    for _ in range(examples(40, 3)):
        found = entries(planned(written(tmp_path, world.documents(jobs, now, set()))))
        waiting = {name: one for name, one in found.items() if one["decision"] == "wait"}
        held = {
            n: seconds_of(w["reserved"]["start"]) for n, w in waiting.items() if w.get("reserved")
        }
        for name, at in promised.items():
            if name in waiting:
                assert held[name] <= at, name
        promised, stated = held, stated + len(held)
        for job in jobs:
            if found[job.name]["decision"] == "place":
                job.started = now
                job.pods = [(pod["node"], pod["gpus"]) for pod in found[job.name]["pods"]]
        now += ROUND_S
        jobs = [one for one in jobs if one.started is None or one.started + one.duration > now]
    assert (stated > 0, stamp(now) > stamp(FIRST_S)) == (True, True)
