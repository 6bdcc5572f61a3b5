"""Gangs that Kueue asks to place: played Kueue, the program, and kills at every write.

What is there is read from the server's store alone. Jobs are not changed.
"""

from __future__ import annotations

import json
import random
from collections.abc import Collection
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from conftest import Result
from effort import examples, first_fast
from played_kueue import (
    NODE_LABELS,
    PODS,
    REQUESTS,
    SERVED,
    WORKLOADS,
    PlayedKueue,
    Tree,
    all_over,
    come_and_go,
    condition,
    true,
)
from run_bench import EVICT, Benches, Kill, RunBench, closed, nodes, reviewing

pytest_plugins = ("run_fixtures",)


def beside_kueue(count: int) -> FakeCluster:
    cluster = nodes(count, kubelets=True)
    for kind in SERVED:
        cluster.kinds.serve(kind)
    return cluster


def kueue(bench: RunBench, **how: Any) -> PlayedKueue:  # noqa: ANN401
    def api(method: str, path: str, body: Any, content: str) -> tuple[int, Tree]:  # noqa: ANN401
        return bench.cluster.handle(method, path, body, content or "application/json")[:2]

    return PlayedKueue(api, **how)


def bound(bench: RunBench, name: str) -> list[str]:
    """The nodes of its pods that are bound, sorted."""
    pods = (pod for pod in bench.cluster.pods() if _job(pod) == name)
    return sorted(node for pod in pods if (node := pod["spec"].get("nodeName")))


def _job(pod: Tree) -> str:
    return pod["metadata"].get("ownerReferences", [{"name": ""}])[0]["name"]


def labels(bench: RunBench) -> dict[str, dict[str, str]]:
    """Our labels by node, where there are any."""
    found = {}
    for node in bench.cluster.handle("GET", "/api/v1/nodes")[1]["items"]:
        own = {k: v for k, v in node["metadata"]["labels"].items() if k in NODE_LABELS}
        if own:
            found[node["metadata"]["name"]] = own
    return found


def sound(bench: RunBench, revoked: Collection[str] = ()) -> None:
    kueue(bench).sound(bench.cluster.pods(), revoked)


def labels_are_those_of_gangs(bench: RunBench) -> None:
    """Each gang that runs has its label on just its nodes, and there are no others."""
    stood: dict[str, set[str]] = {}
    for pod in kueue(bench).all(PODS):
        for key in NODE_LABELS:
            if (mark := pod["spec"].get("nodeSelector", {}).get(key)) is not None:
                stood.setdefault(f"{key}={mark}", set()).add(pod["spec"]["nodeName"])
    found: dict[str, set[str]] = {}
    for node, own in labels(bench).items():
        for key, mark in own.items():
            found.setdefault(f"{key}={mark}", set()).add(node)
    assert found == stood


def quiet(bench: RunBench, revoked: Collection[str] = ()) -> Result:
    """Runs, with Kueue between them, until one writes nothing."""
    for _ in range(12):
        before = bench.asked()
        done = bench.run("--wait", "2s")
        kueue(bench).step()
        sound(bench, revoked)
        bench.cluster.advance(100)
        if not bench.written(since=before):
            return done
    raise AssertionError(f"no end: {done.err}")


def test_a_gang_that_kueue_asks_to_place_starts_on_its_nodes(memory: Benches) -> None:
    bench = memory(beside_kueue(3))
    played = kueue(bench)
    played.submit("llama", (2, 8))
    played.submit("vit", (2, 8))
    played.step()
    bench.ran()
    played.step()
    sound(bench)
    started, waits = ("llama", "vit") if bound(bench, "llama") else ("vit", "llama")
    assert len(bound(bench, started)) == 2
    assert bound(bench, waits) == []
    assert sorted(labels(bench)) == bound(bench, started)
    request = played.one(REQUESTS, f"job-{waits}-gangplan-1")
    assert true(request, "Accepted")
    told = condition(request, "Provisioned")
    assert told is not None
    assert told["status"] == "False"
    check = played.one(WORKLOADS, f"job-{waits}")["status"]["admissionChecks"][0]
    assert check["message"] == told["message"]
    assert "GPU" in told["message"]
    again = bench.asked()
    bench.ran()
    assert bench.written(since=again) == []  # what is known is not told again
    played.finish(started)
    bench.ran()
    played.step()
    assert len(bound(bench, waits)) == 2
    assert sorted(labels(bench)) == bound(bench, waits)
    sound(bench)
    closed = played.one(REQUESTS, f"job-{started}-gangplan-1")
    assert true(closed, "BookingExpired")


PARTS = 6


@pytest.mark.parametrize("part", first_fast(range(PARTS)))
def test_killed_after_any_write_a_run_is_finished_by_the_next_ones(
    part: int, memory: Benches
) -> None:
    """One gang has ended, one was stopped; two of Kueue and a gated one come, and one has to wait."""
    base = memory(beside_kueue(5))
    played = kueue(base)
    played.submit("done", (2, 8), priority=3)
    played.submit("stopped", (1, 8), priority=2)
    played.step()
    quiet(base)
    assert (len(bound(base, "done")), len(bound(base, "stopped"))) == (2, 1)
    played.submit("wide", (2, 8), priority=9)
    played.submit("pair", (2, 4), priority=8)
    played.submit("late", (3, 8), priority=1)
    played.step()
    played.finish("done")
    played.evict("stopped")
    base.cluster.gang_of_pods("gated", 2, gpus=4, priority=5)
    for at in range(part, 100, PARTS):
        bench, kill = base.fork(), Kill(at)
        bench.killed(kill, ("--wait", "2s"))
        kueue(bench).step()
        sound(bench)
        if at % 2:
            bench.killed(Kill(at // 2), ("--wait", "2s"))
            kueue(bench).step()
            sound(bench)
        done = quiet(bench)
        assert done.code == 0, (at, done.err)
        counts = {name: len(bound(bench, name)) for name in ("wide", "pair", "gated", "late")}
        assert counts == {"wide": 2, "pair": 2, "gated": 2, "late": 0}, (at, done.err)
        labels_are_those_of_gangs(bench)
        for name in ("wide", "pair", "stopped"):
            kueue(bench).finish(name)
        bench.cluster.remove("Pod", "gated-0")
        bench.cluster.remove("Pod", "gated-1")
        quiet(bench)
        assert len(bound(bench, "late")) == 3
        kueue(bench).delete("late")
        quiet(bench)
        assert labels(bench) == {}, at
        assert all_over(kueue(bench))
        if not kill.struck:
            assert at > 12, "a run writes more than that"
            return


def test_many_gangs_come_and_go_while_runs_are_killed(memory: Benches) -> None:
    chance = random.Random(7)
    bench = memory(beside_kueue(8))

    def run() -> None:
        if chance.random() < 0.4:
            bench.killed(Kill(chance.randrange(25)), ("--wait", "2s"))
        else:
            bench.run("--wait", "2s")
            bench.cluster.advance(100)

    revoked = come_and_go(
        examples(200, 20),
        chance,
        lambda: kueue(bench, keeps=bool(chance.randrange(2))),
        run,
        lambda revoked: sound(bench, revoked),
    )
    quiet(bench, revoked)
    assert labels(bench) == {}
    assert all_over(kueue(bench))


def told(bench: RunBench, name: str) -> str:
    """What the request of a job was told last."""
    found = condition(kueue(bench).one(REQUESTS, f"job-{name}-gangplan-1"), "Provisioned")
    return "" if found is None else str(found["message"])


def test_a_gang_whose_pods_could_take_each_others_room_is_told_so(memory: Benches) -> None:
    """One node is half taken: were the small pod bound first where both fit, the large one had no room.

    Meanwhile others get what it cannot use, though it is first in the queue.
    """
    bench = memory(beside_kueue(2))
    bench.cluster.gang_of_pods("there", 1, gpus=4, nodes=["n0"])
    kueue(bench).submit("uneven", (1, 8), (1, 4), priority=9)
    kueue(bench).step()
    bench.cluster.gang_of_pods("other", 1)
    bench.ran(code=7)
    assert "cannot keep them apart" in told(bench, "uneven")
    assert (labels(bench), bench.standing("other")) == ({}, 0)
    bench.cluster.advance(600)
    done = bench.ran()
    assert "uneven: avoids node n0, n1, where it did not start" in done.err
    assert told(bench, "uneven").endswith(
        "; for an hour it avoids node n0, n1, where it did not start"
    )
    assert bench.standing("other") == 1
    for name in ("there-0", "other-0"):
        bench.cluster.remove("Pod", name)
    bench.cluster.advance(3000)
    quiet(bench)
    assert bound(bench, "uneven") == ["n0", "n1"]


def test_a_gang_that_waits_is_told_when_it_is_expected_to_start(memory: Benches) -> None:
    """What runs ends after an hour, at 09:03; each change of the message is a write: up to ten minutes."""
    bench = memory(beside_kueue(1))
    words = ("--policy", bench.file("policy.json", "Policy", {"reservations": {}}))
    bench.cluster.advance(180)
    bench.cluster.gang_of_pods("now", 1, activeDeadlineSeconds=3600)
    bench.ran(*words)
    kueue(bench).submit("next", (1, 8))
    kueue(bench).step()
    bench.ran(*words)
    kueue(bench).step()
    (check,) = kueue(bench).one(WORKLOADS, "job-next")["status"]["admissionChecks"]
    assert check["message"].endswith("; expected to start at 2026-11-20T09:10:00Z")
    assert check["message"] == told(bench, "next")


def test_nobody_comes_where_pods_that_are_to_come_could_take_more(memory: Benches) -> None:
    """Of a gang of three on two nodes, each with room for two, two might come where one was planned."""
    bench = memory(beside_kueue(2))
    bench.cluster.gang_of_pods("there", 2, gpus=2, nodes=["n0", "n1"])
    kueue(bench).submit("three", (3, 3))
    kueue(bench).step()
    bench.ran()
    assert sorted(labels(bench)) == ["n0", "n1"]
    bench.cluster.gang_of_pods("gated", 1, gpus=1)
    for name in ("one", "two"):
        kueue(bench).submit(name, (1, 1))
        kueue(bench).reserve(f"job-{name}")
    before = bench.asked()
    done = bench.run("--wait", "60s")
    readings = [call for call in bench.cluster.calls[before:] if call.path == "/api/v1/nodes"]
    assert (done.code, len(readings)) == (7, 2 + 5), "it waits for them once"
    assert "could take its room" in done.err
    assert bound(bench, "gated") == []
    kueue(bench).step()  # now its pods are there, wherever
    sound(bench)
    bench.ran("--wait", "2s")
    assert (len(bound(bench, "three")), len(bound(bench, "gated"))) == (3, 1)


def test_a_gang_on_several_nodes_takes_no_room_of_one_that_is_to_come(memory: Benches) -> None:
    """Both pods of alike fit on n0 while that of zeta is on its way there, and Kueue makes them first."""
    bench = memory(beside_kueue(2))
    bench.cluster.gang_of_pods("there", 1, gpus=5, nodes=["n1"])
    kueue(bench).submit("zeta", (1, 5), priority=9)
    kueue(bench).submit("alike", (2, 3))
    kueue(bench).step()
    policy = bench.file("policy.json", "Policy", {"preset": "admission"})
    for _ in range(3):
        bench.run("--wait", "2s", "--policy", policy)
        kueue(bench).step()
        sound(bench)
    assert (bound(bench, "zeta"), bound(bench, "alike")) == (["n0"], ["n0", "n1"])


def test_pods_of_kueue_that_stay_pending_are_told_of(memory: Benches) -> None:
    bench = memory(beside_kueue(2))
    kueue(bench).submit("llama", (2, 8))
    kueue(bench).step()
    bench.ran()
    bench.cluster.scheduler.refuses = {"n1": "no"}
    kueue(bench).step()
    bench.ran()
    assert bound(bench, "llama") == ["n0"]
    found = json.loads(bench.verb("status", "-o", "json").out)
    (pod,) = found["pending"]
    assert (pod["name"], pod["node"], found["gangs"]) == ("llama-main-1", "n0, n1", [])
    assert "1 Insufficient nvidia.com/gpu, 1 no" in pod["why"]
    bench.cluster.advance(301)
    (gang,) = json.loads(bench.verb("status", "-o", "json").out)["gangs"]
    assert (gang["name"], gang["state"], gang["undo"]) == ("llama", "not bound", [])
    assert (gang["size"], gang["started"], gang["bound"]) == (2, 2, 1)
    assert "its nodes stay its own; only Kueue can stop it" in bench.verb("status").out
    done = bench.ran(code=7)
    assert (
        "llama: partial: pod llama-main-1 was not bound within the pending limit of 300s: "
        in done.err
    )
    assert sorted(labels(bench)) == ["n0", "n1"]
    bench.ran(EVICT, "--evict-partial", code=7)
    assert bound(bench, "llama") == ["n0"], "Kueue's to stop"
    bench.cluster.scheduler.refuses = {}
    bench.ran()
    assert bound(bench, "llama") == ["n0", "n1"]
    assert bench.verb("status").out.count("\n") == 2


def test_nodes_that_go_while_a_gang_waits_for_others_to_come_stop_its_start(
    memory: Benches,
) -> None:
    """As above, but the one that waits is Kueue's, too; its nodes go at any reading."""
    base = memory(beside_kueue(3))
    base.cluster.gang_of_pods("there", 2, gpus=2, nodes=["n0", "n1"])
    base.cluster.gang_of_pods("full", 1, nodes=["n2"])
    kueue(base).submit("three", (3, 3))
    kueue(base).step()
    base.ran()
    kueue(base).submit("late", (1, 3))
    kueue(base).reserve("job-late")
    for at in range(5):
        bench, asked = base.fork(), [0]

        def hook(
            call: Call, bench: RunBench = bench, asked: list[int] = asked, at: int = at
        ) -> None:
            asked[0] += call.path == "/api/v1/nodes"
            if asked[0] > at:
                bench.cluster.before.clear()
                kueue(bench).step()  # nobody is on his way to them any more
                for name in ("n0", "n1"):
                    bench.cluster.remove("Node", name)

        with bench.meddled(hook):
            done = bench.run("--wait", "2s")
        assert done.code in (0, 7), (at, done.err)
        assert told(bench, "late") != "gangplan chose its nodes"


def test_what_kueue_does_not_start_gives_its_nodes_back(memory: Benches) -> None:
    bench = memory(beside_kueue(1))
    kueue(bench).submit("first", (1, 8), priority=1)
    kueue(bench).submit("second", (1, 8))
    kueue(bench).step()
    bench.ran()
    assert sorted(labels(bench)) == ["n0"]
    bench.cluster.advance(400)
    bench.ran()
    said = [str(call.body) for call in bench.cluster.writes if call.path.endswith("-1/status")]
    assert any("was not let start for 300s" in one for one in said), said
    kueue(bench).step()
    assert (bound(bench, "first"), bound(bench, "second")) == ([], ["n0"])  # its turn has passed
    sound(bench)


def test_eight_gangs_share_a_node_and_no_more(memory: Benches) -> None:
    bench = memory(beside_kueue(1))
    for number in range(9):
        kueue(bench).submit(f"one{number}", (1, number % 2), priority=9 - number)
    kueue(bench).step()
    bench.ran(code=7)
    kueue(bench).step()
    assert len(labels(bench)["n0"]) == 8
    assert "a node has the labels of 8 gangs already" in told(bench, "one8")
    labels_are_those_of_gangs(bench)


ODD_SETS: dict[str, Any] = {
    "more pods than there is memory": [{"count": 2**53, "podTemplateRef": {"name": "odd"}}],
    "more than any integer": [{"count": 10**30, "podTemplateRef": {"name": "odd"}}],
    "fewer than none": [{"count": -1, "podTemplateRef": {"name": "odd"}}],
    "no pods": [{"count": 0, "podTemplateRef": {"name": "odd"}}],
    "a count in words": [{"count": "one", "podTemplateRef": {"name": "odd"}}],
    "no template": [{"count": 1, "podTemplateRef": {"name": "nowhere"}}],
    "no reference": [{"count": 1, "podTemplateRef": 7}, None],
    "no sets": "none",
}
"""``spec.podSets`` of a request; ``odd``: a template that is there."""


@pytest.mark.parametrize("odd", ODD_SETS)
def test_an_odd_request_stops_nobody_else(odd: str, memory: Benches) -> None:
    bench = memory(beside_kueue(1))
    for name in ("good", "odd"):
        kueue(bench).submit(name, (1, 8), priority=int(name == "odd"))
    kueue(bench).step()
    template = bench.cluster.objects.get(
        bench.cluster.kinds.named("PodTemplate"), "default", "ppt-job-odd-gangplan-1-main"
    )
    bench.cluster.put({**template, "metadata": {"name": "odd"}})
    bench.cluster.change(
        "ProvisioningRequest",
        "job-odd-gangplan-1",
        lambda tree: tree | {"spec": tree["spec"] | {"podSets": ODD_SETS[odd]}},
    )
    done = bench.ran()
    assert "ProvisioningRequest default/job-odd-gangplan-1: " in done.err
    kueue(bench).step()
    assert (bound(bench, "good"), bound(bench, "odd")) == (["n0"], [])


HALF = {"resources": {"limits": {"nvidia.com/gpu": "4"}}, "name": "main", "image": "image"}


@pytest.mark.parametrize("template", [None, {}, {"spec": {"containers": [HALF]}}])
def test_a_template_that_is_another_one_by_now_stops_its_gang_alone(
    template: Tree | None, memory: Benches
) -> None:
    """It changes at the first label, which another client was quicker to write: all is read again."""
    bench = memory(beside_kueue(2))
    for name, priority in (("odd", 1), ("good", 0)):
        kueue(bench).submit(name, (1, 8), priority=priority)
    kueue(bench).step()
    about = ("PodTemplate", "ppt-job-odd-gangplan-1-main")

    def hook(call: Call) -> Answer | None:
        if call.method != "PATCH" or "/nodes/" not in call.path:
            return None
        bench.cluster.before.clear()
        if template is None:
            bench.cluster.remove(*about)
        else:
            bench.cluster.change(*about, lambda tree: tree | {"template": template})
        return 409, {"kind": "Status", "code": 409, "message": "modified"}, {}

    with bench.meddled(hook):
        done = bench.ran(code=7)
    assert "odd: skipped: request default/job-odd-gangplan-1 asks for other pods" in done.err
    kueue(bench).step()
    assert (len(bound(bench, "good")), bound(bench, "odd")) == (1, [])
    assert len(labels(bench)) == 1


@pytest.mark.parametrize("waits", [False, True], ids=["nodes", "a reason to wait"])
@pytest.mark.parametrize("anew", [False, True], ids=["changed", "made anew"])
def test_an_answer_to_a_request_as_it_was_before_is_none_to_that_which_is_there(
    anew: bool, waits: bool, memory: Benches
) -> None:
    """While the answer is on its way, Kueue tries again under the same name, or somebody says more of it."""
    bench = memory(beside_kueue(2))
    kueue(bench).submit("llama", (1, 8))
    kueue(bench).step()
    if waits:
        bench.cluster.gang_of_pods("there", 2, nodes=["n0", "n1"])
    about = ("ProvisioningRequest", "job-llama-gangplan-1")
    answers = [0]

    def hook(call: Call) -> Answer | None:
        if call.method != "PATCH" or "/provisioningrequests/" not in call.path:
            return None
        answers[0] += 1
        if answers[0] > 1:
            return None
        if anew:
            old = kueue(bench).one(REQUESTS, about[1])
            bench.cluster.remove(*about)
            metadata = {key: old["metadata"][key] for key in ("name", "ownerReferences")}
            bench.cluster.put(old | {"metadata": metadata, "status": {}})
        else:
            told = {"type": "Accepted", "status": "Unknown", "reason": "x", "message": "first"}
            bench.cluster.change(*about, lambda tree: tree | {"status": {"conditions": [told]}})
        return None

    with bench.meddled(hook):
        bench.run()
    request = kueue(bench).one(REQUESTS, about[1])
    if anew:
        assert (request["status"], len(labels(bench))) == ({}, 0 if waits else 1)
    else:
        assert (answers[0] > 1, true(request, "Provisioned")) == (True, not waits)
    bench.ran()
    bench.cluster.advance(600)
    kueue(bench).step()
    quiet(bench)
    assert len(bound(bench, "llama")) == len(labels(bench)) == (not waits)


def test_without_the_rights_for_it_nothing_of_kueue_is_planned(memory: Benches) -> None:
    bench = memory(beside_kueue(2))
    kueue(bench).submit("llama", (1, 8))
    kueue(bench).step()
    bench.cluster.gang_of_pods("gated", 1)
    with bench.meddled(reviewing(("patch", "provisioningrequests", "status"))):
        done = bench.ran("--wait", "2s")
    assert "gangplan-placing" in done.err
    assert (len(bound(bench, "gated")), told(bench, "llama"), labels(bench)) == (1, "", {})


@pytest.mark.parametrize("lost", ["/nodes/", "/provisioningrequests/"])
def test_rights_that_go_at_any_write_leave_no_gang_half_and_the_next_run_ends_it(
    lost: str, memory: Benches
) -> None:
    base = memory(beside_kueue(3))
    kueue(base).submit("llama", (2, 8), priority=9)
    kueue(base).step()
    base.cluster.gang_of_pods("gated", 1)
    for at in range(3):
        bench, seen = base.fork(), [0]

        def hook(call: Call, seen: list[int] = seen, at: int = at) -> Answer | None:
            seen[0] += call.method == "PATCH" and lost in call.path
            if seen[0] <= at or lost not in call.path or call.method == "GET":
                return None
            return 403, {"kind": "Status", "code": 403, "message": "forbidden: no more"}, {}

        with bench.meddled(hook):
            done = bench.run("--wait", "2s")
        assert (done.code == 7) == ("forbidden: no more" in done.err) == (seen[0] > at)
        kueue(bench).step()
        sound(bench)
        assert len(bound(bench, "gated")) == 1
        bench.cluster.advance(4000)
        quiet(bench)
        assert len(bound(bench, "llama")) == 2
        labels_are_those_of_gangs(bench)


@pytest.mark.parametrize("first", [True, False], ids=["while it waits", "once it runs"])
def test_more_requests_for_a_workload_get_no_more_nodes_than_it_has_quota_for(
    first: bool, memory: Benches
) -> None:
    """A tenant makes two more as Kueue made that of its workload."""
    bench = memory(beside_kueue(3))
    played = kueue(bench)
    played.submit("greedy", (1, 8), priority=9)
    played.step()
    if not first:
        bench.ran()
        played.step()
    real = played.one(REQUESTS, "job-greedy-gangplan-1")
    for name in ("a-0", "z-0"):
        about = {"name": name, "ownerReferences": real["metadata"]["ownerReferences"]}
        bench.cluster.advance(1)
        bench.cluster.put(
            {k: real[k] for k in ("apiVersion", "kind", "spec")} | {"metadata": about}
        )
    bench.cluster.gang_of_pods("other", 2)
    done = bench.ran()
    assert "default/a-0, default/z-0: with others of its workload it asks for more" in done.err
    assert len(labels(bench)) == 1
    assert bench.standing("other") == 2
    assert true(played.one(REQUESTS, "job-greedy-gangplan-1"), "Provisioned")


def test_gated_pods_in_a_closed_namespace_keep_no_request_from_its_answer(memory: Benches) -> None:
    bench = memory(beside_kueue(2))
    kueue(bench).submit("llama", (1, 8))
    kueue(bench).step()
    bench.cluster.gang_of_pods("rude", 2, namespace="closed", priority=9)
    with bench.meddled(closed("closed")):
        done = bench.ran()
    assert "not permitted to start pods in closed" in done.err
    kueue(bench).step()
    assert len(bound(bench, "llama")) == 1


def test_a_saved_plan_of_such_gangs_is_applied_once(memory: Benches) -> None:
    bench = memory(beside_kueue(2))
    kueue(bench).submit("llama", (2, 8))
    kueue(bench).step()
    folder, plan = str(bench.folder / "now"), str(bench.folder / "plan.json")
    assert bench.verb("snapshot", "--out", folder).code == 0
    assert bench.verb("plan", folder, "--out", plan).code == 0
    dry = bench.verb("apply", plan, "--dry-run=server", "--wait", "0s")
    assert (dry.code, labels(bench), told(bench, "llama")) == (0, {}, "")
    for _ in range(2):  # the second finds it done
        done = bench.verb("apply", plan, "--yes", "--wait", "0s")
        assert done.code == 0, done.err
        kueue(bench).step()
        assert bound(bench, "llama") == ["n0", "n1"]
    played = kueue(bench)
    played.finish("llama")
    stale = bench.verb("apply", plan, "--yes", "--wait", "0s")
    assert stale.code != 0
    assert bound(bench, "llama") == []


@pytest.mark.parametrize("keeps", [True, False])
def test_what_kueue_stops_gives_its_nodes_to_others(keeps: bool, memory: Benches) -> None:
    bench = memory(beside_kueue(1))
    kueue(bench).submit("first", (1, 8), priority=1)
    kueue(bench).submit("second", (1, 8))
    kueue(bench).step()
    quiet(bench)
    kueue(bench, keeps=keeps).evict("first")
    bench.ran()
    kueue(bench).step()
    assert (bound(bench, "first"), bound(bench, "second")) == ([], ["n0"])
    quiet(bench)
    labels_are_those_of_gangs(bench)
    assert "GPU" in told(bench, "first")
