"""``deploy/gate`` on a real API server: pods of six controllers get the gate where a namespace opted in.

The test server evaluates no MutatingAdmissionPolicy: ``test_gate.py`` has its expressions.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

import pytest
from deploying import built
from effort import examples
from live_checks import placed
from live_cluster import VARIABLE, Live
from live_objects import GATE, MARK, TAINT, listed, namespace
from live_runs import ran, run_words

pytest_plugins = ("live_fixtures",)
pytestmark = pytest.mark.skipif(VARIABLE not in os.environ, reason="needs a real API server")

Tree = dict[str, Any]

OPT_IN = "gangplan.dev/placement"
QUEUES = "gangplan.dev/placement-queues"
GPUS = {"limits": {"nvidia.com/gpu": "4"}}


@pytest.fixture(scope="module")
def gate(cluster: Live) -> Iterator[Live]:
    """The policy as shipped; where it is installed already, that one."""
    found = cluster.kubectl(
        "get", "mutatingadmissionpolicies", "gangplan-gate", "-o", "name", check=False
    )
    ours = [one for one in built("gate") if one["kind"].startswith("Mutating")] if not found else []
    if ours:
        cluster.kubectl("create", "-f", "-", given=listed(ours))
    yield cluster
    if ours:
        cluster.kubectl("delete", "-f", "-", given=listed(ours))


@pytest.fixture
def spaces(gate: Live) -> Iterator[tuple[str, str, str]]:
    """Three namespaces: one that opted in, one with a single queue, one that did not."""
    names = tuple(f"{gate.run}-{name}" for name in ("in", "queue", "out"))
    made = [namespace(name, gate.run) for name in names]
    for tree in made[:2]:
        tree["metadata"]["labels"][OPT_IN] = "enabled"
    made[1]["metadata"]["annotations"] = {QUEUES: "research"}
    gate.kubectl("create", "-f", "-", given=listed(made))
    for name in names:  # pods need it, and its controller takes a moment
        gate.kubectl("create", "serviceaccount", "default", "-n", name, check=False)
    probe = _pod("probe", names[0], {})
    probe["spec"]["containers"][0]["resources"] = GPUS

    def holds() -> bool:  # a new policy takes a moment
        said = gate.kubectl("create", "--dry-run=server", "-o", "json", "-f", "-", given=probe)
        return GATE in said

    gate.wait_until(holds, "the policy")
    yield names[0], names[1], names[2]
    gate.kubectl(
        "delete", "namespace", *names
    )  # gone, so that no run of another test plans its pods


def _template(labels: Tree, **spec: object) -> Tree:
    container = {"name": "main", "image": "registry.invalid/none:1", "resources": GPUS}
    tolerations = [{"key": TAINT, "operator": "Exists"}]
    full = {"containers": [container], "tolerations": tolerations, **spec}
    return {"metadata": {"labels": labels}, "spec": full}


def _pod(name: str, space: str, labels: Tree, **spec: object) -> Tree:
    made = _template(labels, restartPolicy="Never", **spec)
    metadata = made["metadata"] | {"name": name, "namespace": space}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": made["spec"]}


def _job(name: str, space: str, count: int, labels: Tree, **spec: object) -> Tree:
    fields = {"completionMode": "Indexed", "completions": count, "parallelism": count}
    template = _template(labels, restartPolicy="Never", **spec)
    metadata = {"name": name, "namespace": space, "labels": labels}
    return {"apiVersion": "batch/v1", "kind": "Job", "metadata": metadata} | {
        "spec": {**fields, "template": template}
    }


def _set(kind: str, space: str, count: int) -> Tree:
    labels = {"set": kind.lower()}
    more = {"serviceName": "x", "podManagementPolicy": "Parallel"} if kind == "StatefulSet" else {}
    spec = {"replicas": count, "selector": {"matchLabels": labels}, "template": _template(labels)}
    metadata = {"name": kind.lower(), "namespace": space}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec | more}


def _controllers(space: str, count: int) -> list[Tree]:
    """Six kinds of controllers, or none, with so many pods each; labels as Kueue, KAI and JobSet set them."""
    kueue = {"kueue.x-k8s.io/local-queue-name": "research"}
    kai = {"kai.scheduler/queue": "research"}
    jobset = {"jobset.sigs.k8s.io/jobset-name": "set", "jobset.sigs.k8s.io/replicatedjob-name": "w"}
    held = [{"name": "kueue.x-k8s.io/admission"}]
    bare = [
        _pod(
            f"bare-{number}", space, {"kueue.x-k8s.io/queue-name": "research"}, schedulingGates=held
        )
        for number in range(count)
    ]
    return [
        _job("kueue", space, count, kueue),
        _job("kai", space, count, kai, schedulerName="kai-scheduler"),
        *(_job(f"set-w-{number}", space, count // 2, jobset) for number in range(2)),
        *(_set(kind, space, count) for kind in ("Deployment", "StatefulSet")),
        *bare,
    ]


def _gates(live: Live, space: str) -> dict[str, list[str]]:
    """Scheduling gates of each pod."""
    return {
        pod["metadata"]["name"]: [one["name"] for one in pod["spec"].get("schedulingGates", ())]
        for pod in live.get(f"/api/v1/namespaces/{space}/pods")["items"]
    }


def test_no_pod_of_six_controllers_is_without_a_gate_where_it_is_wanted_and_none_has_one_elsewhere(
    gate: Live, spaces: tuple[str, str, str]
) -> None:
    """1,000 pods with --thorough: 3 namespaces x 6 controllers x 56."""
    inside, queue, outside = spaces
    count = examples(56, 4)
    for space in spaces:
        gate.kubectl("create", "-f", "-", given=listed(_controllers(space, count)))
    for space in spaces:
        gate.wait_until(lambda s=space: len(_gates(gate, s)) == 6 * count, f"pods of {space}")
    assert [name for name, found in _gates(gate, inside).items() if GATE not in found] == []
    assert [name for name, found in _gates(gate, outside).items() if GATE in found] == []
    wanted = {"kueue", "kai", "bare"}
    got = {name.partition("-")[0] for name, found in _gates(gate, queue).items() if GATE in found}
    rest = {
        name.partition("-")[0] for name, found in _gates(gate, queue).items() if GATE not in found
    }
    assert (got, rest) == (wanted, {"set", "deployment", "statefulset"})
    bare = [found for name, found in _gates(gate, inside).items() if name.startswith("bare")]
    assert all(sorted(found) == [GATE, "kueue.x-k8s.io/admission"] for found in bare)


def test_a_daemon_set_gets_no_gate_and_who_only_names_it_as_owner_does(
    gate: Live, spaces: tuple[str, str, str]
) -> None:
    space, labels = spaces[0], {"set": "daemons"}
    template = _template(labels, nodeSelector={MARK: gate.run})
    made = {"apiVersion": "apps/v1", "kind": "DaemonSet"} | {
        "metadata": {"name": "daemons", "namespace": space},
        "spec": {"selector": {"matchLabels": labels}, "template": template},
    }
    gate.kubectl("create", "-f", "-", given=made)
    gate.wait_until(lambda: len(_gates(gate, space)) == len(gate.nodes), "a pod on each node")
    assert set(map(tuple, _gates(gate, space).values())) == {()}
    uid = gate.get(f"/apis/apps/v1/namespaces/{space}/daemonsets/daemons")["metadata"]["uid"]
    claims, owner = _pod("claims", space, {}), {"apiVersion": "apps/v1", "kind": "DaemonSet"}
    claims["metadata"]["ownerReferences"] = [owner | {"name": "daemons", "uid": uid}]
    gate.kubectl("create", "-f", "-", given=claims)
    assert _gates(gate, space)["claims"] == [GATE]


def test_a_job_without_a_word_of_gangplan_is_planned_started_and_later_given_back(
    gate: Live, live: Live
) -> None:
    space = live.namespace
    live.kubectl("label", "namespace", space, f"{OPT_IN}=enabled")
    try:
        here = {"nodeSelector": {MARK: live.run}}
        live.kubectl("create", "-f", "-", given=_job("first", space, 2, {"gang": "first"}, **here))
        live.wait_until(lambda: len(live.pods()) == 2, "the pods of first")
        done = ran(live, *run_words(live))
        assert done.code == 0, done.err
        live.wait_until(lambda: len(placed(live.pods())) == 2, "first to be bound")
        code = ran(live, "doctor", "--lock-namespace", live.lock_namespace, "-o", "json")
        assert f"gangplan-gate, for 1 namespace: {space}" in code.out
        live.kubectl("create", "-f", "-", given=_job("late", space, 2, {"gang": "late"}, **here))
        live.wait_until(lambda: len(live.pods()) == 4, "the pods of late")
        words = ("status", "--give-back-after", "2h", "--lock-namespace", live.lock_namespace)
        assert "less than 2h: nothing was given back" in ran(live, *words).err
        long_ago = "gangplan.dev/planned=2026-01-01T00:00:00Z"
        live.kubectl(
            "annotate", "lease", "gangplan", "-n", live.lock_namespace, "--overwrite", long_ago
        )
        done = ran(live, *words)
        assert (done.code, "2 pods given back" in done.err) == (0, True), done.err
        live.wait_until(lambda: len(placed(live.pods())) == 4, "late to be bound")
    finally:
        live.kubectl("label", "namespace", space, f"{OPT_IN}-")
        live.send("DELETE", f"/apis/batch/v1/namespaces/{space}/jobs?propagationPolicy=Background")
    live.delete_pods()
    live.kubectl("create", "-f", "-", given=_pod("free", space, {"gang": "free"}, **here))
    assert _gates(live, space) == {"free": []}
