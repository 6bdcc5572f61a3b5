"""``gangplan run``: what it starts and leaves alone, and what befalls it: other runs, lost locks, bugs."""

from __future__ import annotations

import json
import time
from functools import partial
from pathlib import Path

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import RawAnswer
from apiserver_kinds import Kind
from conftest import Result
from effort import HANG_S
from run_bench import (
    EVICT,
    LEASE,
    PREEMPTIBLE,
    Benches,
    Cut,
    Kill,
    RunBench,
    closed,
    events,
    nodes,
    pod_group,
    reviewing,
    summary,
    while_solving,
)

from models.units import epoch_seconds
from planner.cluster import lock
from planner.pipelines import run as pipeline

pytest_plugins = ("run_fixtures",)


def queue() -> FakeCluster:
    """Four nodes; gang a fills two of them, b one more, and big does not fit."""
    cluster = nodes(4)
    for name, pods, gpus in (("a", 2, 8), ("b", 2, 4), ("big", 8, 8)):
        cluster.gang_of_pods(name, pods, gpus=gpus)
    return cluster


def three() -> FakeCluster:
    """Three nodes, and three gangs of 2 x 4 GPUs."""
    cluster = nodes(3)
    for name in ("a", "b", "c"):
        cluster.gang_of_pods(name, 2, gpus=4)
    return cluster


@pytest.fixture
def four(memory: Benches) -> RunBench:
    return memory(queue())


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    return memory(three())


def everything_runs(bench: RunBench) -> bool:
    return None not in bench.places().values()


def samples(path: str) -> dict[str, float]:
    lines = Path(path).read_text(encoding="utf-8").splitlines()
    pairs = (line.rsplit(" ", 1) for line in lines if not line.startswith("#"))
    return {name: float(value) for name, value in pairs}


# ---- what it does


def test_a_run_starts_what_fits_and_a_second_one_writes_nothing_but_its_lock(
    served: Benches,
) -> None:
    bench = served(queue())
    first = bench.ran("--log-format", "json")
    assert first.out == ""
    assert (bench.standing("a"), bench.standing("b"), bench.standing("big")) == (2, 2, 0)
    found = events(first)
    types = [one["type"] for one in found]
    order = ["read", "solve_done", "verify_done", "change", "apply_start", "apply_done", "summary"]
    assert [kind for kind in dict.fromkeys(types) if kind in order] == order
    changed = {one["gang"]: one["starts"] for one in found if one["type"] == "change"}
    assert changed == {"default/a": 2, "default/b": 2}
    done, last = found[types.index("apply_done")], found[-1]
    assert (done["gangs"], done["partial"], done["stop"]) == ({"started": 2}, [], None)
    assert (last["verb"], last["status"], last["context"]) == ("run", "applied", "test")
    assert (last["gangs"], last["waiting"], last["evicted"]) == ({"started": 2}, 1, 0)
    phases = {"connect", "lock", "recover", "snapshot", "solve", "check", "apply", "total"}
    assert phases <= set(last["seconds"])
    note = bench.last_run()
    assert (note["status"], note["exit_code"], note["plan"]) == ("applied", 0, last["plan"])
    assert note["counts"] == {"started": 2, "waiting": 1, "evicted": 0}
    assert note["effective_gpus"] == 24

    before, places = bench.asked(), bench.places()
    second = bench.ran()
    assert (bench.written(since=before), bench.places()) == ([], places)
    said = "nothing changed; 1 waiting (1 can never start); 24 effective GPUs (24 before); "
    assert "run unchanged (exit 0): plan gp-" in summary(second)
    assert said in summary(second)
    paths = [call.path for call in bench.cluster.calls[before:] if call.method == "GET"]
    listed = [path for path in paths if path.endswith(("/nodes", "/pods"))]
    assert listed == ["/api/v1/nodes", "/api/v1/pods"]


def test_the_summary_of_what_starts(four: RunBench) -> None:
    said = summary(four.ran())
    assert said.startswith("run applied (exit 0): plan gp-")
    assert "gangs: 2 started; 1 waiting (1 can never start); 24 effective GPUs (0 before); " in said


def test_running_gangs_stay_unless_evictions_are_allowed(memory: Benches) -> None:
    """Two nodes are held by a preemptible gang; another of a higher priority waits for both."""
    cluster = nodes(2)
    cluster.gang_of_pods("low", 2, nodes=["n0", "n1"], annotations=PREEMPTIBLE)
    cluster.gang_of_pods("high", 2, priority=100)
    bench = memory(cluster)
    assert "1 waiting" in summary(bench.ran())
    assert bench.written() == []
    bench.ran(EVICT, "--max-evictions", "1", code=7)
    assert bench.evictions() == 0
    assert "2 pods evicted" in summary(bench.ran(EVICT, "--max-evictions", "2"))
    assert bench.standing("high") == 2
    assert "low-0" not in bench.places()


def test_a_native_pod_group_is_started(memory: Benches) -> None:
    cluster = nodes(2, groups=True)
    pod_group(cluster, "a", 2)
    cluster.gang_of_pods("a", 2, gpus=8, schedulingGroup={"podGroupName": "a"})
    bench = memory(cluster)
    bench.ran()
    assert everything_runs(bench)


def test_ages_are_counted_by_the_servers_clock(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The clock of this host is years off; that of the server stands still."""
    monkeypatch.setattr(time, "time", lambda: 4_000_000_000.0)
    out = bench.folder / "plan.json"
    bench.ran("--out", str(out))
    made = json.loads(out.read_bytes())["metadata"]["createdAt"]
    assert epoch_seconds(made) - int(bench.cluster.clock()) in (0, 1, 2)


# ---- the cluster moves


def test_a_cluster_that_moves_meanwhile_is_planned_once_more(
    four: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Two of the nodes it used are cordoned when the first search ends. The time limit stays."""
    out = four.folder / "plan.json"
    while_solving(monkeypatch, lambda: [four.cluster.cordon(name) for name in ("n0", "n1")])
    words = ("--time-limit", "7s", "--out", str(out), "--log-format", "json")
    last = events(four.ran(*words))[-1]
    assert (last["replanned"], last["status"]) == (True, "applied")
    assert {node for node in four.places().values() if node is not None} == {"n2", "n3"}
    solve = json.loads(out.read_bytes())["instance"]["policy"]["spec"]["solve"]
    assert solve["timeLimit"] == "7s"


def test_a_cluster_that_moves_again_is_left_alone(
    four: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_solving(
        monkeypatch,
        lambda: [four.cluster.cordon(name) for name in ("n0", "n1")],
        lambda: [four.cluster.cordon(name) for name in ("n2", "n3")],
    )
    result = four.ran(code=6)
    assert four.written() == []
    assert "run stale (exit 6)" in summary(result)
    assert "is cordoned" in result.err
    assert four.last_run()["exit_code"] == 6


def test_who_makes_his_pods_anew_all_the_time_stops_nobody_else(
    memory: Benches, monkeypatch: pytest.MonkeyPatch
) -> None:
    bench = memory(nodes(2))
    bench.cluster.gang_of_pods("good", 1)
    bench.cluster.gang_of_pods("restless", 1, gpus=1)

    def again() -> None:
        bench.cluster.remove("Pod", "restless-0")
        bench.cluster.add_pod("restless-0", gpus=1, gates=["gangplan.dev/placement"])

    while_solving(monkeypatch, again, again)
    result = bench.ran(code=7)
    assert "restless-0: skipped: pod default/restless-0 was replaced by another pod" in result.err
    assert bench.standing("good") == 1
    bench.ran()
    assert bench.standing("restless") == 1


def test_moves_of_the_cluster_that_the_plan_does_not_rely_on_are_none(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A new gang, a new node and an annotation that nobody reads appear while the solver works."""

    def happen() -> None:
        bench.cluster.add_node("n9")
        bench.cluster.gang_of_pods("late", 1, gpus=1)
        bench.cluster.touch("Pod", "a-0")

    while_solving(monkeypatch, happen)
    assert events(bench.ran("--log-format", "json"))[-1]["replanned"] is False
    assert bench.places()["late-0"] is None
    bench.ran()
    assert everything_runs(bench)


# ---- what it refuses


def test_a_plan_that_cannot_be_applied_is_refused_and_the_lock_given_back(four: RunBench) -> None:
    """A gang of a document has no pods in the cluster: there is nothing to start."""
    roles = [{"name": "worker", "replicas": 1, "gpus": 1}]
    summary(four.ran(four.file("imagined.json", "Gang", {"roles": roles}), code=65))
    assert four.written() == []
    assert four.last_run()["exit_code"] == 65


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("-",), 64, "run does not read stdin"),
        (("--policy", "-"), 64, "run does not read stdin"),
        (("--metrics-file", "nowhere/file"), 73, "run failed (exit 73)"),
        (("--out", "nowhere/file"), 73, "run failed (exit 73)"),
    ],
)
def test_what_cannot_be_done_is_found_before_the_cluster_is_asked(
    words: tuple[str, ...], code: int, said: str, bench: RunBench
) -> None:
    result = bench.ran(*words, code=code)
    assert said in result.err
    assert result.err.count("error: ") == 1
    assert bench.cluster.calls == []


@pytest.mark.parametrize(
    "right",
    [
        "update leases.coordination.k8s.io gangplan in namespace gangplan-system",
        "list nodes",
        "list jobs.batch in all namespaces",  # else pods of a job would be taken for gangs of one
        "patch pods in namespace default",
    ],
)
def test_a_missing_right_is_named_before_anything_of_a_gang_is_written(
    right: str, bench: RunBench
) -> None:
    verb, resource = right.split(maxsplit=1)[0], right.split()[1].partition(".")[0]
    bench.cluster.before.append(reviewing((verb, resource, "")))
    result = bench.ran(code=77)
    assert f"not permitted: {right}" in result.err
    assert bench.written() == []
    assert bench.lease_is_free()
    assert "run not permitted (exit 77)" in summary(result)
    if "jobs" in right:
        bench.ran("--skip", "jobs.batch")


@pytest.mark.parametrize("away", [False, True], ids=["run", "given back"])
def test_who_closes_his_namespace_over_a_half_started_gang_stops_nobody_else(
    away: bool, memory: Benches
) -> None:
    """Its second pod waits with a room of its own: of three nodes one is left."""
    bench = memory(nodes(3))
    bench.cluster.gang_of_pods("half", 2, namespace="closed")
    with bench.meddled(Cut(1)):
        bench.ran(code=7)
    bench.cluster.gang_of_pods("good", 1)
    bench.cluster.advance(3 * 3600)
    with bench.meddled(closed("closed")):
        result = bench.verb("status", "--give-back-after", "2h") if away else bench.run()
    assert result.code == 7, result.err
    assert "closed/half" in result.err
    assert "bind gangplan-starting" in result.err
    assert bench.standing("good") == 1
    assert bench.standing("half") == 1


@pytest.mark.parametrize(
    "kind",
    [
        Kind("Cohort", "cohorts", "kueue.x-k8s.io", "v1beta2", False, custom=True),
        Kind("ElasticQuota", "elasticquotas", "scheduling.x-k8s.io", "v1alpha1", True, custom=True),
    ],
    ids=lambda kind: kind.plural,
)
def test_a_run_goes_on_with_the_role_of_a_version_that_read_no_quotas(
    bench: RunBench, kind: Kind
) -> None:
    bench.cluster.kinds.serve(kind)
    bench.cluster.before.append(reviewing(("*", kind.plural, "")))
    bench.ran()
    assert everything_runs(bench)


@pytest.mark.parametrize(
    "odd",
    [
        b'{"a": ' + b"[" * 4000 + b"]" * 4000 + b"}",
        b'{"a": "\\ud800"}',
        b'{"\xff": "\xed\xa0\x80"}',
    ],
    ids=["nested 4,000 times", "half a character", "no characters"],
)
def test_objects_with_odd_json_count_and_end_nothing(odd: bytes, served: Benches) -> None:
    """A server hands out parameters of a claim's driver as its tenant wrote them; and a pod counts, too."""
    bench = served(nodes(2))
    bench.cluster.add_pod("deep", gpus=8, node="n0")
    bench.cluster.change("Pod", "deep", lambda tree: tree | {"managed": "ODD"})
    config = [{"opaque": {"driver": "gpu.example.com", "parameters": "ODD"}}]
    about = {"apiVersion": "resource.k8s.io/v1", "kind": "ResourceClaim"}
    bench.cluster.put(
        about | {"metadata": {"name": "deep"}, "spec": {"devices": {"config": config}}}
    )
    for name, priority in (("first", 1), ("second", 0)):
        bench.cluster.gang_of_pods(name, 1, priority=priority)
    asked = []

    def deep(call: Call) -> Answer | None:
        assert call.answer is not None
        code, tree, headers = call.answer
        written = json.dumps(tree).encode()
        if b'"ODD"' not in written:
            return None
        asked.append(call.path.rpartition("/")[2])
        return code, {"raw": RawAnswer(code, written.replace(b'"ODD"', odd))}, headers

    with bench.meddled(after=(deep,)):
        bench.ran()
    assert {"pods", "resourceclaims"} <= {*asked}
    assert bench.places() == {"deep": "n0", "first-0": "n1", "second-0": None}


# ---- locks


def test_of_two_runs_one_works_and_the_other_says_who_does(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The second one comes while the first one solves; status tells of the first, too."""
    second: list[Result] = []
    while_solving(
        monkeypatch, lambda: second.extend((bench.run(), bench.verb("status", "-o", "json")))
    )
    last = events(bench.ran("--log-format", "json"))[-1]
    assert everything_runs(bench)
    other, told = second
    assert other.code == 75
    assert "locked in namespace gangplan-system by run by tester@" in other.err
    assert "run locked (exit 75): nothing changed" in summary(other)
    held = json.loads(told.out)["lock"]
    assert (held["operation"], held["user"], held["expired"]) == ("run", "tester", False)
    assert f"gangplan status --release {held['id']}" in other.err
    assert last["plan"].startswith("gp-")


def test_a_lock_that_was_lost_during_the_search_ends_the_run_before_it_writes(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def steal() -> None:
        bench.patch(LEASE, {"spec": {"holderIdentity": "0123456789"}})

    while_solving(monkeypatch, steal)
    result = bench.ran("--log-format", "json", code=75)
    assert bench.written() == []
    assert bench.lease()["spec"]["holderIdentity"] == "0123456789"
    assert "it was taken over" in events(result)[-2]["error"]


def test_the_lock_of_a_killed_run_is_taken_two_seconds_after_its_end(bench: RunBench) -> None:
    bench.killed(Kill(4), later_s=61)
    assert not everything_runs(bench)
    assert "gangplan status --release " in bench.ran(code=75).err
    bench.cluster.advance(1)
    bench.ran()
    assert everything_runs(bench)


@pytest.mark.parametrize(("late_s", "code"), [(40, 0), (46, 75)])
def test_with_less_than_fifteen_seconds_left_on_the_lock_nothing_is_applied(
    late_s: int, code: int, bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It lasts for a minute, and from the end of the search on no renewal arrives."""
    moved = 0

    def refused(call: Call) -> Answer | None:
        renews = call.method == "PUT" and call.path == LEASE and call.body["spec"]["holderIdentity"]
        return (500, {}, {}) if moved and renews else None

    def late() -> None:
        nonlocal moved
        moved = late_s

    clock = partial(lock.acquire, clock=lambda: lock.ticking() + moved)
    monkeypatch.setattr(lock, "acquire", clock)
    bench.cluster.before.append(refused)
    while_solving(monkeypatch, late)
    said = bench.ran(code=code).err
    assert everything_runs(bench) == (code == 0)
    assert ("the lock was lost while planning: it could not be renewed" in said) == (code == 75)


@pytest.mark.slow
def test_the_lock_is_kept_alive_while_the_solver_works(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A lock of six seconds is due for renewal after two; a real one lasts a minute."""
    monkeypatch.setattr(lock, "acquire", partial(lock.acquire, duration_s=6))
    renewed: list[bool] = []

    def renewals() -> int:
        return sum(call.method == "PUT" and call.path == LEASE for call in bench.cluster.calls)

    def wait_for_one() -> None:
        before, deadline = renewals(), time.monotonic() + HANG_S
        while renewals() == before and time.monotonic() < deadline:
            time.sleep(0.02)
        renewed.append(renewals() > before)

    while_solving(monkeypatch, wait_for_one)
    bench.run()
    assert renewed == [True]


def test_the_lock_tells_which_plan_is_being_applied(bench: RunBench) -> None:
    seen: set[str] = set()

    def look(call: Call) -> None:
        if call.writes and "/pods/" in call.path:
            seen.add(bench.noted("plan"))

    bench.cluster.before.append(look)
    plan = events(bench.ran("--log-format", "json"))[-1]["plan"]
    assert seen == {plan}


# ---- gangs that are half there


def test_a_gang_that_can_no_longer_be_whole_is_reported_by_every_run(bench: RunBench) -> None:
    """Cut after one start of the first gang; then its other pod is deleted."""
    with bench.meddled(Cut(1)):
        bench.ran(code=7)
    bench.cluster.advance(120)
    (begun,) = [name for name, node in bench.places().items() if node is not None]
    bench.cluster.remove("Pod", begun[:-1] + ("1" if begun.endswith("0") else "0"))
    result = bench.ran(code=7)
    assert f"default/{begun[:-2]}: partial" in result.err
    assert "kubectl --context=test delete --raw /api/v1/namespaces/default/pods/" in result.err
    assert everything_runs(bench)  # the other gangs are started
    assert "1 partial" in summary(result)
    # once, though recovering and applying see it
    assert result.err.count("is partial; these commands undo it:") == 1


def test_a_gang_that_is_undone_counts_to_the_evictions_of_the_run(memory: Benches) -> None:
    """One eviction is allowed; undoing the partial gang takes it, so the preemption has to wait."""
    cluster = nodes(2)
    cluster.gang_of_pods("low", 1, nodes=["n0"], annotations=PREEMPTIBLE)
    cluster.gang_of_pods("a", 2, gpus=4)
    bench = memory(cluster)
    with bench.meddled(Cut(1)):
        bench.ran(code=7)
    cluster.advance(120)
    (begun,) = bench.placed("a")
    cluster.remove("Pod", "a-1" if begun == "a-0" else "a-0")
    cluster.gang_of_pods("high", 2, gpus=8, priority=9)
    allowed = (EVICT, "--evict-partial", "--max-evictions", "1")
    bench.ran(*allowed, code=7)
    assert (begun in bench.places(), bench.places()["low-0"]) == (False, "n0")
    assert bench.evictions() == 1
    bench.ran(*allowed)
    assert bench.standing("high") == 2


# ---- names that mean something to a shell, a terminal or a URL

ESCAPE = "\x1b[2J\x1b]0;owned\x07[red]"
ODD = ("--help", "../../nodes/x", "-o=json", "a..b", ESCAPE, "x?dryRun=All", "x%2f..%2fy")


def test_hostile_names_reach_no_url_and_no_terminal(bench: RunBench) -> None:
    """Annotations may hold anything, and gangs are named by them; of the others no server has such names."""
    group = "scheduling.x-k8s.io/pod-group"
    for number, called in enumerate((f"{ESCAPE}$(reboot)", "--help", "../../../etc/passwd")):
        notes = {group: called}
        bench.cluster.add_pod(f"odd-{number}", gates=["gangplan.dev/placement"], annotations=notes)

    def haunt(call: Call) -> Answer | None:
        if call.answer is None or call.path not in ("/api/v1/pods", "/api/v1/nodes"):
            return None
        code, tree, headers = call.answer
        about = tree["items"][0]["metadata"]
        more = [
            {
                **tree["items"][0],
                "metadata": {**about, "name": odd, "uid": odd, "labels": {odd: odd}},
            }
            for odd in ODD
        ]
        return code, {**tree, "items": [*tree["items"], *more]}, headers

    bench.cluster.after.append(haunt)
    for said in (bench.ran(), bench.verb("status"), bench.verb("status", "-o", "json")):
        assert said.code == 0
        assert not any(ord(letter) < 32 and letter != "\n" for letter in said.out + said.err)
        assert "Traceback" not in said.err
    assert [bench.places()[f"odd-{number}"] is not None for number in range(3)] == [True] * 3
    for call in bench.cluster.calls:
        assert not any(odd in call.path for odd in ("..", "%2f", "help", "\x1b", "dryRun")), (
            call.path
        )


# ---- metrics, bugs, servers that are gone


def test_metrics_tell_how_it_went_and_keep_the_last_success(bench: RunBench) -> None:
    path = str(bench.folder / "gangplan.prom")
    begun = time.time()
    bench.ran("--metrics-file", path)
    good = samples(path)
    success = good["gangplan_last_success_timestamp_seconds"]
    assert begun <= success <= time.time()
    assert (good["gangplan_exit_code"], good["gangplan_started_gangs"]) == (0, 3)
    assert (good["gangplan_pending_gangs"], good["gangplan_evicted_pods"]) == (0, 0)
    assert 'gangplan_phase_seconds{phase="solve"}' in good
    words = ("--metrics-file", path, "--policy", str(bench.folder / "nowhere"))
    summary(bench.ran(*words, code=66))
    assert samples(path) == {
        "gangplan_last_success_timestamp_seconds": success,
        "gangplan_exit_code": 66,
    }


def test_a_bug_gives_the_lock_back_and_is_one_summary_too(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(*_: object, **__: object) -> None:
        raise RuntimeError("a bug")

    monkeypatch.setattr(pipeline, "check_and_apply", broken)
    path = str(bench.folder / "gangplan.prom")
    result = bench.ran("--log-format", "json", "--metrics-file", path, code=1)
    assert events(result)[-2]["error"] == "unexpected RuntimeError: a bug"
    assert (bench.last_run()["status"], bench.last_run()["exit_code"]) == ("failed", 1)
    assert samples(path)["gangplan_exit_code"] == 1


def lost(_call: Call) -> Answer:
    return LOST


def test_a_server_that_is_gone_is_unavailable(bench: RunBench) -> None:
    bench.cluster.before.append(lost)
    result = bench.ran("--log-format", "json", code=69)
    assert events(result)[-1]["status"] == "unavailable"


def test_a_server_that_goes_during_the_recording_is_unavailable_and_nothing_is_written(
    bench: RunBench, monkeypatch: pytest.MonkeyPatch
) -> None:
    while_solving(monkeypatch, lambda: bench.cluster.before.append(lost))
    result = bench.run()
    assert result.code in (69, 75), result.err
    assert bench.written() == []
    assert "the lock was not released" in result.err
    summary(result)
