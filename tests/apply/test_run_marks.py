"""What runs leave to later ones and read back: terms, holds, promises; what tenants forge of it."""

from __future__ import annotations

import json
from typing import Any

import pytest
from apiserver import FakeCluster
from run_bench import EVICT, PREEMPTIBLE, Benches, RunBench, nodes

from models.apply.notes import HeldNote, Promise, RunNotes, read_notes
from models.apply.terms import Terms
from models.units import epoch_seconds

pytest_plugins = ("run_fixtures",)

Tree = dict[str, Any]

PLAN = "gp-0123456789abcdef0123"
JOB = "/apis/batch/v1/namespaces/default/jobs/low"
PODS = "/api/v1/namespaces/default/pods"
HOUR = 3600


def ran_before(memory: Benches, cluster: FakeCluster) -> RunBench:
    """The pods to come are younger than the Lease, as on every cluster that has run gangplan before."""
    bench = memory(cluster)
    bench.ran()
    bench.cluster.advance(100)
    return bench


@pytest.fixture
def one(memory: Benches) -> RunBench:
    return ran_before(memory, nodes(1))


def forge(bench: RunBench, name: str) -> None:
    """What a tenant writes who may patch pods, in the name of our field manager."""
    says = {
        "plan": PLAN,
        "gang": name[:-2],
        "gang-size": "5",
        "node": "n0",
        "gpus": "0",
        "rank": "0",
    }
    notes = {f"gangplan.dev/{key}": value for key, value in says.items()}
    metadata = {"labels": {"gangplan.dev/plan": PLAN}, "annotations": notes}
    bench.patch(f"{PODS}/{name}?fieldManager=gangplan", {"metadata": metadata})


# ---- forged marks


def test_a_forged_mark_jumps_no_queue_and_holds_no_room(one: RunBench) -> None:
    """Room for one of two is left."""
    one.cluster.gang_of_pods("first", 1, gpus=1, priority=1)
    one.ran()
    one.cluster.gang_of_pods("low", 1, gpus=7, priority=1)
    one.cluster.gang_of_pods("high", 1, gpus=7, priority=100)
    forge(one, "low-0")
    one.ran()
    assert one.places() == {"first-0": "n0", "high-0": "n0", "low-0": None}
    for name in ("high", "first"):
        one.cluster.remove("Pod", f"{name}-0")
    one.ran()  # what was forged is written over at the start
    assert one.places()["low-0"] == "n0"
    assert "gangplan.dev/rank" not in one.annotations("low-0")


def test_a_pod_that_nobody_runs_keeps_no_gang_waiting(one: RunBench) -> None:
    pin = {"kubernetes.io/hostname": "n0"}
    one.cluster.add_pod("ghost", gpus=8, scheduler="ghost", nodeSelector=pin)
    one.cluster.gang_of_pods("team", 1)
    said = one.ran().err
    assert one.places() == {"ghost": None, "team-0": "n0"}
    assert "Pod default/ghost: is tied to a node, but nothing shows" in said


def test_a_gang_that_only_says_to_be_partial_fails_no_run(memory: Benches) -> None:
    bench = ran_before(memory, nodes(2))
    bench.cluster.add_pod("runs-0", gpus=1, node="n0")
    bench.cluster.add_pod("lost-0", gpus=1, node="n1")
    forge(bench, "runs-0")
    forge(bench, "lost-0")
    bench.ran("--evict-partial")
    assert bench.places() == {"lost-0": "n1", "runs-0": "n0"}


# ---- the terms of a gang


def start_low(bench: RunBench, size: int = 2) -> None:
    """A preemptible gang that fills the node, and whose pods are made again."""
    mark = {"comes_back": True, "priority": 1, "annotations": PREEMPTIBLE}
    bench.cluster.gang_of_pods("low", size, gpus=8 // size, **mark)  # type: ignore[arg-type]
    bench.ran()
    assert bench.places() == {f"low-{i}": "n0" for i in range(size)}


def come_high(bench: RunBench) -> str:
    """A gang of higher priority that needs the node, and a run that may evict; what the run says."""
    bench.cluster.gang_of_pods("high", 1, priority=100)
    bench.cluster.advance(100)
    return bench.run(EVICT).err


def terms_of(bench: RunBench, name: str) -> Terms | None:
    found = bench.recorded().get(name)
    return None if found is None else found.terms


def test_a_tenant_cannot_take_back_that_his_gang_may_be_stopped(one: RunBench) -> None:
    start_low(one)
    assert [terms_of(one, f"low-{i}") for i in range(2)] == [Terms(1, preemptible=True)] * 2
    one.annotate(JOB, preemptible=None)
    said = come_high(one)
    assert "Job default/low: was started as preemptible; that holds until it ends" in said
    assert one.places().get("low-0") is None
    one.ran(EVICT)
    assert one.places()["high-0"] == "n0"


def test_without_its_record_the_word_of_a_gang_counts(one: RunBench) -> None:
    start_low(one)
    one.annotate(JOB, preemptible=None)
    one.forget()
    assert "was started as preemptible" not in come_high(one)
    assert one.places()["high-0"] is None


def test_a_tenant_who_forges_terms_gains_nothing(one: RunBench) -> None:
    one.cluster.gang_of_pods("low", 1, priority=1, annotations=PREEMPTIBLE)
    one.annotate(f"{PODS}/low-0", terms="priority=1000", plan="gp-" + "0" * 20)
    one.ran()
    assert terms_of(one, "low-0") == Terms(1, preemptible=True)
    come_high(one)
    one.ran(EVICT)
    assert one.places()["high-0"] == "n0"


def test_a_gang_whose_pods_are_made_again_one_by_one_is_no_younger(one: RunBench) -> None:
    """Its tenant deletes one pod after the other, always before the minRunTime of the rest is over."""
    words = (EVICT, "--policy", one.file("policy.json", "Policy", {"minRunTime": "1h"}))
    start_low(one)
    begun = int(one.cluster.clock())
    one.cluster.gang_of_pods("high", 1, priority=100)
    for i in range(2):
        one.cluster.advance(1700)
        assert one.cluster.handle("DELETE", f"{PODS}/low-{i}")[0] == 200
        one.ran(*words)
        assert one.places() == {"low-0": "n0", "low-1": "n0", "high-0": None}
        assert terms_of(one, f"low-{i}") == Terms(1, preemptible=True, since=begun)
    one.cluster.advance(190)  # 3,590 s
    one.ran(*words)
    assert one.standing("low") == 2
    one.cluster.advance(20)  # the last pod runs for 210 s
    for _ in range(2):
        one.run(*words)
    assert one.places()["high-0"] == "n0"


# ---- gangs that were held


@pytest.mark.parametrize("parked", [False, True])
def test_a_gang_that_was_parked_does_not_overtake_one_that_waited(
    memory: Benches, *, parked: bool
) -> None:
    """``early`` is an hour older than ``late``, and counts so only if it could start all the time."""
    cluster = nodes(1)
    cluster.gang_of_pods("fills", 1, priority=1000)
    bench = memory(cluster)
    bench.ran()

    def an_hour() -> None:
        cluster.advance(HOUR)

    gate = {"name": "gangplan.dev/placement"}
    cluster.gang_of_pods("early", 1, priority=1)
    if parked:  # its tenant's own gate
        cluster.pod("early-0")["spec"]["schedulingGates"] = [gate, {"name": "example.com/mine"}]
    an_hour()
    cluster.gang_of_pods("late", 1, priority=1)
    an_hour()
    bench.ran()  # both wait; early is seen behind its gate
    assert ("early" in bench.noted("notes")) == parked
    cluster.pod("early-0")["spec"]["schedulingGates"] = [gate]
    for _ in range(2):
        an_hour()
        bench.ran()  # it is remembered after the release, too
    cluster.remove("Pod", "fills-0")
    bench.ran()
    first, other = ("late-0", "early-0") if parked else ("early-0", "late-0")
    assert (bench.places()[first], bench.places()[other]) == ("n0", None)
    for name in ("early", "late"):
        cluster.handle("DELETE", f"{PODS}/{name}-0")
        cluster.handle("DELETE", f"/apis/batch/v1/namespaces/default/jobs/{name}")
    bench.ran()  # what starts or goes is forgotten
    assert "early" not in bench.noted("notes")


def test_notes_of_held_gangs_are_read_as_written_and_follow_the_waiting() -> None:
    notes = RunNotes().with_held([("a", "x")], [("a", "x"), ("a", "y")], 5)
    assert read_notes(notes.text()) == notes
    later = notes.with_held([], [("a", "x")], 9)
    assert later.held == (HeldNote(("a", "x"), 5),)
    assert later.with_held([], [("a", "y")], 9).held == ()
    assert later.without_stops([]).held == later.held


def test_a_tenant_with_many_parked_gangs_crowds_out_nobody_nor_himself() -> None:
    few = [("few", "x")]
    for most, letters in ((1000, 4), (250, 250)):
        many = [("many", f"{i:0{letters}}") for i in range(most)]
        notes = RunNotes().with_held([*many, *few], [*many, *few], 7)
        assert notes.held == (HeldNote(("few", "x"), 7), HeldNote(("many", ""), 7))
        after = notes.with_held([], many[:1], 8)
        assert after.held == (HeldNote(("many", ""), 7),)
    spread = [(f"{i:063}", "x") for i in range(1000)]
    assert {one.gang for one in RunNotes().with_held(spread, spread, 7).held} == {
        (namespace, "") for namespace, _ in spread
    }


# ---- promises


@pytest.fixture
def taken(memory: Benches) -> RunBench:
    """A node that is taken for an hour; ``next`` was promised what comes then."""
    bench = memory(nodes(1))
    bench.cluster.gang_of_pods("now", 1, activeDeadlineSeconds=HOUR)
    planned(bench)
    bench.cluster.gang_of_pods("next", 1, activeDeadlineSeconds=HOUR)
    return bench


def planned(bench: RunBench) -> dict[str, Tree]:
    """A run on a host that keeps nothing; what its plan says of each gang."""
    bench.cluster.advance(60)
    out = bench.folder / "plan.json"
    words = ("--policy", bench.file("policy.json", "Policy", {"reservations": {}}))
    bench.ran(*words, "--out", str(out), GANGPLAN_STATE="off")
    gangs = json.loads(out.read_text(encoding="utf-8"))["spec"]["gangs"]
    return {gang["name"]: gang for gang in gangs}


def test_a_start_is_kept_though_the_host_kept_no_plan(taken: RunBench) -> None:
    """``high`` comes after the promise, and before ``next`` in the queue: it gets the hour behind."""
    first = planned(taken)["next"]
    assert first["decision"] == "wait"
    promises = read_notes(taken.noted("notes")).promises
    assert promises is not None
    start = epoch_seconds(first["reserved"]["start"])
    assert promises.starts == (Promise(("default", "next"), start, (("worker", 0, "n0"),)),)
    taken.cluster.gang_of_pods("high", 1, priority=9, activeDeadlineSeconds=HOUR)
    for _ in range(2):
        later = planned(taken)
        assert later["next"]["reserved"]["start"] == first["reserved"]["start"]
        assert later["high"]["reserved"]["start"] > first["reserved"]["start"]


def test_a_start_that_cannot_be_kept_has_its_cause(taken: RunBench) -> None:
    first = planned(taken)["next"]
    taken.cluster.cordon("n0")
    assert planned(taken)["next"]["delayed"] == {
        "promised": first["reserved"]["start"],
        "cause": "Failure",
        "by": ["n0"],
    }


@pytest.mark.parametrize(
    "found",
    [None, [], {}, {"at": "0", "starts": [], "due": []}, {"at": 0, "starts": {}, "due": []},
     {"at": 0, "starts": [], "due": 1}],
)  # fmt: skip
def test_a_note_in_another_form_promises_nothing(found: object) -> None:
    assert read_notes(json.dumps({"promises": found})).promises is None
