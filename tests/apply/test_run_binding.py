"""``gpuBackend: kai``: KAI is played by a binder that binds what BindRequests name, as its source does."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_kinds import Kind
from effort import first_fast, spread
from live_checks import overfull
from run_bench import Benches, Kill, RunBench, is_start, nodes

pytest_plugins = ("run_fixtures",)
Tree = dict[str, Any]

SERVED = Kind("BindRequest", "bindrequests", "scheduling.run.ai", "v1alpha2", subs=("status",))
REQUESTS = "/apis/scheduling.run.ai/v1alpha2/namespaces/default/bindrequests"
KAI: dict[str, Any] = {"scheduler": "kai-scheduler"}


def beside_kai(count: int, *, version: str = SERVED.version) -> FakeCluster:
    cluster = nodes(count)
    cluster.kinds.serve(replace(SERVED, version=version))
    return cluster


def settings(bench: RunBench) -> str:
    return bench.file("policy.json", "Policy", {"kubernetes": {"gpuBackend": "kai"}})


def requests(bench: RunBench) -> dict[str, Tree]:
    items = bench.cluster.handle("GET", REQUESTS)[1]["items"]
    return {one["metadata"]["name"]: one for one in items}


def bind(bench: RunBench) -> None:
    """What the binder does, and what Kubernetes does with requests whose pods are gone."""
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in bench.cluster.pods()}
    for name, one in requests(bench).items():
        (owner,) = one["metadata"]["ownerReferences"]
        if uids.get(name) != owner["uid"]:
            bench.cluster.handle("DELETE", f"{REQUESTS}/{name}")
            continue
        pod = bench.cluster.pod(name)
        if not {"nodeName", "schedulingGates"} & pod["spec"].keys():
            bench.cluster.objects.bind(pod, one["spec"]["selectedNode"])


def sound(bench: RunBench) -> None:
    """No GPU twice, each request for the node that is recorded for its pod, none without a record."""
    pods = {pod["metadata"]["name"]: pod for pod in bench.cluster.pods()}
    assert overfull(pods) == []
    recorded = bench.recorded()
    for name, one in requests(bench).items():
        assert name in pods
        assert recorded[name].pod.node == one["spec"]["selectedNode"], name


def all_before_the_first_gate(bench: RunBench, gang: str, size: int) -> Any:  # noqa: ANN401
    def look(call: Call) -> None:
        if is_start(call) and f"/pods/{gang}-" in call.path:
            assert sum(name.startswith(f"{gang}-") for name in requests(bench)) == size

    return look


def foreign(bench: RunBench, name: str, node: str = "n9", **metadata: Any) -> None:  # noqa: ANN401
    """A request that KAI's scheduler wrote."""
    uid = bench.cluster.pod(name)["metadata"]["uid"]
    owner = {"apiVersion": "v1", "kind": "Pod", "name": name, "uid": uid}
    about = {"name": name, "namespace": "default", "ownerReferences": [owner], **metadata}
    spec = {"podName": name, "selectedNode": node}
    kind = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
    bench.cluster.create({**kind, "metadata": about, "spec": spec})


def test_every_pod_of_kai_gets_a_request_before_a_gate_goes(memory: Benches) -> None:
    bench = memory(beside_kai(3))
    bench.cluster.gang_of_pods("llama", 2, **KAI)
    bench.cluster.gang_of_pods("plain", 1)
    with bench.meddled(all_before_the_first_gate(bench, "llama", 2)):
        bench.ran("--policy", settings(bench))
    assert sorted(requests(bench)) == ["llama-0", "llama-1"]
    one = requests(bench)["llama-0"]
    pod, recorded = bench.cluster.pod("llama-0"), bench.recorded()["llama-0"]
    assert one["spec"] == {
        "podName": "llama-0",
        "selectedNode": recorded.pod.node,
        "receivedResourceType": "Regular",
        "receivedGPU": {"count": 8, "portion": "1.00"},
        "backoffLimit": 1000,
    }
    owner = {"apiVersion": "v1", "kind": "Pod", "name": "llama-0", "uid": pod["metadata"]["uid"]}
    assert one["metadata"]["ownerReferences"] == [owner]
    bind(bench)
    sound(bench)
    assert bench.standing("llama") == 2


def test_without_it_nothing_is_asked_of_kai(memory: Benches) -> None:
    bench = memory(beside_kai(2))
    bench.cluster.gang_of_pods("llama", 2, **KAI)
    bench.ran()
    assert not any("bindrequests" in call.path for call in bench.cluster.calls)
    assert requests(bench) == {}
    assert "schedulingGates" not in bench.cluster.pod("llama-0")["spec"]


def test_a_cluster_that_serves_another_version_is_refused(served: Benches) -> None:
    bench = served(beside_kai(2, version="v1alpha1"))
    bench.cluster.gang_of_pods("llama", 2, **KAI)
    done = bench.ran("--policy", settings(bench), code=65)
    assert "this cluster does not serve scheduling.run.ai/v1alpha2 bindrequests" in done.err
    assert "gpuBackend" in done.err
    assert bench.written() == []
    said = bench.verb("doctor", "-o", "json", "--policy", settings(bench)).out
    assert "kai: this cluster does not serve scheduling.run.ai/v1alpha2" in said


def test_a_request_of_somebody_else_stops_its_gang_and_stays(memory: Benches) -> None:
    bench = memory(beside_kai(3))
    bench.cluster.gang_of_pods("llama", 2, **KAI)
    bench.cluster.gang_of_pods("vit", 1, **KAI)
    foreign(bench, "llama-1")
    written = requests(bench)["llama-1"]
    done = bench.ran("--policy", settings(bench), code=7)
    assert "there is a BindRequest of its name that is not gangplan's" in done.err
    assert sorted(requests(bench)) == ["llama-1", "vit-0"]
    assert requests(bench)["llama-1"] == written
    assert "schedulingGates" in bench.cluster.pod("llama-0")["spec"]
    assert "llama-0" not in bench.recorded()
    bench.cluster.remove("BindRequest", "llama-1")
    bind(bench)
    bench.cluster.advance(3700)  # for an hour it avoids nodes on which it could not start
    bench.ran("--policy", settings(bench))
    bind(bench)
    sound(bench)
    assert (bench.standing("llama"), bench.standing("vit")) == (2, 1)


@pytest.mark.parametrize("failed", [False, True])
def test_a_request_that_an_earlier_plan_of_ours_left_is_made_anew(
    *, failed: bool, memory: Benches
) -> None:
    """For another node, or one that the binder gave up."""
    base = memory(beside_kai(1))
    base.cluster.gang_of_pods("vit", 1, **KAI)
    if failed:
        before = base.fork()
        before.ran("--policy", settings(before))
        (made,) = requests(before).values()
        bench = base.fork()
        about = {"apiVersion": "scheduling.run.ai/v1alpha2", "kind": "BindRequest"}
        bench.cluster.create({**about, **made})
        bench.cluster.change(
            "BindRequest", "vit-0", lambda one: one | {"status": {"phase": "Failed"}}
        )
    else:
        bench = base.fork()
        foreign(bench, "vit-0", labels={"app.kubernetes.io/managed-by": "gangplan"})
    left = requests(bench)["vit-0"]["metadata"]["uid"]
    bench.ran("--policy", settings(bench))
    assert requests(bench)["vit-0"]["metadata"]["uid"] != left
    sound(bench)
    bind(bench)
    assert bench.standing("vit") == 1


ANSWERS = (200, 400, 403, 404, 409, 422, 429, 500, 0)
"""200: without a word; 0: none at all."""


@pytest.mark.parametrize("scheduler", ["kai-scheduler", "default-scheduler"])
@pytest.mark.parametrize("answer", spread(ANSWERS, 2))
def test_whatever_is_answered_about_the_objects_of_one_gang_the_others_start(
    answer: int, scheduler: str, memory: Benches
) -> None:
    base = memory(beside_kai(4))
    for name, priority in (("odd", 9), ("good", 5)):
        base.cluster.gang_of_pods(name, 2, priority=priority, scheduler=scheduler)
    policy = settings(base)
    for verb in ("GET", "POST", "PATCH", "DELETE"):
        bench = base.fork()

        def hook(call: Call, verb: str = verb) -> Answer | None:
            about = "odd-" in call.path or (call.method == "POST" and "'odd" in str(call.body))
            read = verb == "GET" and call.method in ("PATCH", "POST")  # only after a doubt
            if not about or (call.method != verb and not read):
                return None
            return (409 if call.method != verb else answer), {}, {}

        with bench.meddled(
            hook, all_before_the_first_gate(bench, "good", 2 * (scheduler[0] == "k"))
        ):
            done = bench.run("--policy", policy)
        bind(bench)
        sound(bench)
        assert done.code in (0, 7), done.err
        assert bench.standing("good") == 2, (verb, done.err)


PARTS = 4


@pytest.mark.parametrize("lost", [False, True])
@pytest.mark.parametrize("part", first_fast(range(PARTS)))
def test_killed_after_any_write_a_run_is_finished_or_withdrawn(
    *, part: int, lost: bool, memory: Benches
) -> None:
    """``lost``: a node is gone when the next run comes, so what has not begun goes elsewhere."""
    base = memory(beside_kai(4))
    base.cluster.gang_of_pods("llama", 2, priority=5, **KAI)
    base.cluster.gang_of_pods("vit", 1, gpus=4, **KAI)
    policy = settings(base)
    for at in range(part, 100, PARTS):
        bench, kill = base.fork(), Kill(at)
        bench.killed(kill, ("--policy", policy))
        sound(bench)
        bind(bench)
        if lost:
            noted = bench.recorded().get("llama-1")
            if noted and not bench.standing("llama"):
                bench.cluster.remove("Node", noted.pod.node)
        with bench.meddled(all_before_the_first_gate(bench, "llama", 2)):
            for _ in range(3):
                bench.run("--policy", policy)
                bind(bench)
                sound(bench)
        counts = (bench.standing("llama"), bench.standing("vit"))
        assert counts == (2, 1), (at, bench.places())
        if not kill.struck:
            assert at > 6, "a run writes more than that"
            return


def test_through_kubectl_what_was_written_is_deleted_again(served: Benches) -> None:
    bench = served(beside_kai(2))
    bench.cluster.gang_of_pods("llama", 2, **KAI)
    foreign(bench, "llama-1")
    bench.ran("--policy", settings(bench), code=7)
    deleted = [path for method, path in bench.written() if method == "DELETE"]
    assert f"{REQUESTS}/llama-0" in deleted
    assert sorted(requests(bench)) == ["llama-1"]
