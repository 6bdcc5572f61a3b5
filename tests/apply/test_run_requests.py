"""Gangs that Kueue asks to place: played Kueue, the program, and kills at every write.

What is there is read from the server's store alone. Jobs are not changed.
"""

from __future__ import annotations

from typing import Any

from apiserver import FakeCluster
from apiserver_kinds import Kind
from live_checks import overfull
from played_kueue import NODE_LABELS, REQUESTS, WORKLOADS, PlayedKueue, Tree, condition, true
from run_bench import Benches, RunBench, nodes

pytest_plugins = ("run_fixtures",)

SERVED = (
    Kind("ProvisioningRequest", "provisioningrequests", "autoscaling.x-k8s.io", subs=("status",)),
    Kind("Workload", "workloads", "kueue.x-k8s.io", "v1beta2", subs=("status",)),
    Kind("PodTemplate", "podtemplates"),
)


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


def sound(bench: RunBench) -> None:
    """No GPU twice, no gang half there, none given up by Kueue, no request said to have failed."""
    pods = bench.cluster.pods()
    assert overfull({pod["metadata"]["name"]: pod for pod in pods}) == []
    states: dict[str, set[bool]] = {}
    for pod in pods:
        states.setdefault(_job(pod), set()).add("nodeName" in pod["spec"])
    assert [job for job, found in states.items() if len(found) == 2] == []
    played = kueue(bench)
    assert [w["metadata"]["name"] for w in played.all(WORKLOADS) if not w["spec"]["active"]] == []
    requests = played.all(REQUESTS)
    assert not any(true(one, kind) for one in requests for kind in ("Failed", "CapacityRevoked"))


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
