"""What the recordings do not show: hooks, field managers, controllers and evictions of the fake cluster."""

from __future__ import annotations

import pytest
from apiserver import LOST, Answer, Call, FakeCluster
from apiserver_http import FakeWire
from apiserver_kinds import Json, Kind, Tree
from apiserver_objects import Review
from apiserver_setup import GATE

from planner.cluster.transport import MERGE, STRATEGIC

PODS = "/api/v1/namespaces/default/pods"


@pytest.fixture
def cluster() -> FakeCluster:
    """Nodes n1 and n2 of 8 GPUs, a gated gang g of 2 x 8."""
    found = FakeCluster()
    found.add_node("n1")
    found.add_node("n2")
    found.gang_of_pods("g", 2)
    return found


def ungate(node: str) -> Tree:
    gates = [{"$patch": "delete", "name": GATE}]
    return {"spec": {"schedulingGates": gates, "nodeSelector": {"kubernetes.io/hostname": node}}}


def test_a_wire_hands_out_copies(cluster: FakeCluster) -> None:
    wire = FakeWire(cluster)
    wire.send("GET", f"{PODS}/g-0").body["metadata"]["labels"].clear()
    assert wire.send("GET", f"{PODS}/g-0").body["metadata"]["labels"] != {}


def test_the_clock_of_an_answer_is_the_clusters(cluster: FakeCluster) -> None:
    wire = FakeWire(cluster)
    before = wire.send("GET", f"{PODS}/g-0").date
    cluster.advance(90)
    after = wire.send("GET", f"{PODS}/g-0").date
    assert before is not None
    assert after == before + 90


def test_a_request_lost_on_its_way_does_nothing(cluster: FakeCluster) -> None:
    cluster.before.append(lambda call: LOST if call.writes else None)
    wire = FakeWire(cluster)
    assert wire.send("PATCH", f"{PODS}/g-0", ungate("n1"), content_type=STRATEGIC).status == 0
    assert cluster.node_of("g-0") is None


def test_an_answer_lost_on_its_way_back_was_carried_out(cluster: FakeCluster) -> None:
    cluster.after.append(lambda call: LOST if call.writes else None)
    wire = FakeWire(cluster)
    assert wire.send("PATCH", f"{PODS}/g-0", ungate("n1"), content_type=STRATEGIC).status == 0
    assert cluster.node_of("g-0") == "n1"


def test_a_hook_sees_each_call_and_its_answer(cluster: FakeCluster) -> None:
    seen: list[tuple[str, str, int]] = []

    def watching(call: Call) -> Answer | None:
        assert call.place is not None
        assert call.answer is not None
        seen.append((call.method, call.place.name, call.answer[0]))
        return None

    cluster.after.append(watching)
    cluster.handle("GET", f"{PODS}/g-0")
    cluster.handle("GET", f"{PODS}/nobody")
    assert seen == [("GET", "g-0", 200), ("GET", "nobody", 404)]


def test_a_field_belongs_to_whoever_changed_it_last(cluster: FakeCluster) -> None:
    def owners(key: str) -> list[str]:
        return [
            entry["manager"]
            for entry in cluster.pod("g-0")["metadata"]["managedFields"]
            if f"f:{key}" in entry["fieldsV1"].get("f:metadata", {}).get("f:labels", {})
        ]

    for manager, value in (("gangplan", "gp-1"), ("somebody", "gp-2"), ("gangplan", "gp-3")):
        body = {"metadata": {"labels": {"gangplan.dev/plan": value}}}
        path = f"{PODS}/g-0?fieldManager={manager}"
        assert cluster.handle("PATCH", path, body, MERGE)[0] == 200
        assert owners("gangplan.dev/plan") == [manager]
    gone = {"metadata": {"labels": {"gangplan.dev/plan": None}}}
    assert cluster.handle("PATCH", f"{PODS}/g-0?fieldManager=gangplan", gone, MERGE)[0] == 200
    assert owners("gangplan.dev/plan") == []


def test_a_dry_run_changes_nothing(cluster: FakeCluster) -> None:
    before = cluster.pods()
    code, tree, _ = cluster.handle("PATCH", f"{PODS}/g-0?dryRun=All", ungate("n1"), STRATEGIC)
    assert code == 200
    assert "schedulingGates" not in tree["spec"]
    assert cluster.handle("DELETE", f"{PODS}/g-0?dryRun=All")[0] == 200
    assert cluster.pods() == before


def test_a_patch_with_an_unknown_field_is_refused_where_that_is_asked(cluster: FakeCluster) -> None:
    body = {"spec": {"schedulingGate": []}}
    path = f"{PODS}/g-0?fieldValidation=Strict"
    code, tree, _ = cluster.handle("PATCH", path, body, STRATEGIC)
    assert code == 422
    assert 'unknown field "spec.schedulingGate"' in tree["message"]


def test_an_admission_policy_sees_both_states_and_refuses_in_the_servers_words(
    cluster: FakeCluster,
) -> None:
    seen: list[tuple[str, str, str]] = []

    def policy(review: Review) -> str | None:
        assert review.old is not None
        assert review.new is not None
        seen.append((review.operation, review.name, review.user))
        before = review.old["spec"].get("priority")
        gone = review.old["metadata"].get("labels") != review.new["metadata"].get("labels")
        return "labels are not yours" if gone and before == 0 else None

    cluster.admission.add(policy, name="ours", binding="bound")
    body = {"metadata": {"labels": {"a": "b"}}}
    code, tree, _ = cluster.handle("PATCH", f"{PODS}/g-0", body, MERGE)
    assert (code, tree["reason"]) == (422, "Invalid")
    assert tree["message"] == (
        "pods \"g-0\" is forbidden: ValidatingAdmissionPolicy 'ours' with binding 'bound' denied "
        "request: labels are not yours"
    )
    assert cluster.handle("PATCH", f"{PODS}/g-0", ungate("n1"), STRATEGIC)[0] == 200
    assert seen == [("UPDATE", "g-0", "system:admin")] * 2


def evict(cluster: FakeCluster, name: str, uid: str | None = None) -> tuple[int, Tree]:
    options: Tree = {"preconditions": {"uid": uid}} if uid else {}
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"name": name, "namespace": "default"},
        "deleteOptions": options,
    }
    code, tree, _ = cluster.handle("POST", f"{PODS}/{name}/eviction", body)
    return code, tree


@pytest.fixture
def running() -> FakeCluster:
    """A gang r of 2 that runs, and a budget that wants one of its pods to stay."""
    found = FakeCluster()
    found.add_node("n1")
    found.add_node("n2")
    found.gang_of_pods("r", 2, nodes=["n1", "n2"], comes_back=True)
    found.create(
        {
            "apiVersion": "policy/v1",
            "kind": "PodDisruptionBudget",
            "metadata": {"name": "keep"},
            "spec": {
                "minAvailable": 1,
                "selector": {"matchLabels": {"batch.kubernetes.io/job-name": "r"}},
            },
        }
    )
    return found


def test_a_budget_forbids_one_eviction_too_many(running: FakeCluster) -> None:
    # 2 healthy, 1 has to stay: one may go, and what comes in its place does not run yet
    assert evict(running, "r-0")[0] == 201
    code, tree = evict(running, "r-1")
    assert (code, tree["reason"]) == (429, "TooManyRequests")
    [cause] = tree["details"]["causes"]
    assert cause["reason"] == "DisruptionBudget"
    assert cause["message"] == "The disruption budget keep needs 1 healthy pods and has 1 currently"
    assert running.node_of("r-1") == "n2"


def test_an_evicted_pod_comes_back_gated_with_another_uid(running: FakeCluster) -> None:
    old = running.pod("r-0")["metadata"]["uid"]
    assert evict(running, "r-0", old)[0] == 201
    again = running.pod("r-0")
    assert again["metadata"]["uid"] != old
    assert again["spec"]["schedulingGates"] == [{"name": GATE}]
    assert "nodeName" not in again["spec"]
    code, tree = evict(running, "r-0", old)
    assert code == 409
    assert "the UID in the precondition" in tree["message"]


def test_a_budget_says_nothing_of_pods_that_do_not_run(running: FakeCluster) -> None:
    for name in ("r-0", "r-1"):
        running.run_pod("default", name, "Pending")
        assert evict(running, name)[0] == 201


def test_a_pod_with_a_grace_period_holds_its_room_until_it_is_gone() -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    cluster.add_pod("old", gpus=8, node="n1", grace=30)
    cluster.add_pod("new", gpus=8)
    assert evict(cluster, "old")[0] == 201
    assert "deletionTimestamp" in cluster.pod("old")["metadata"]
    assert cluster.node_of("new") is None
    assert cluster.finish_terminating() == 1
    assert cluster.node_of("new") == "n1"


def test_pods_go_with_their_owner(cluster: FakeCluster) -> None:
    path = "/apis/batch/v1/namespaces/default/jobs/g"
    assert cluster.handle("DELETE", path)[0] == 200
    assert cluster.pods() == []


def test_everything_goes_with_its_namespace(cluster: FakeCluster) -> None:
    cluster.add_pod("x", "team")
    assert cluster.handle("DELETE", "/api/v1/namespaces/team")[0] == 200
    assert cluster.pods("team") == []
    assert cluster.handle("GET", "/api/v1/namespaces/team")[0] == 404
    code, tree, _ = cluster.handle("POST", "/api/v1/namespaces/team/pods", {"metadata": {}})
    assert (code, tree["message"]) == (404, 'namespaces "team" not found')


def test_a_scale_changes_how_many_pods_there_are() -> None:
    cluster = FakeCluster()
    owner = cluster.create(
        {
            "apiVersion": "apps/v1",
            "kind": "StatefulSet",
            "metadata": {"name": "s"},
            "spec": {"replicas": 3},
        }
    )
    for index in range(3):
        cluster.add_pod(f"s-{index}", owner=owner, gates=[GATE])
    cluster.controllers.recreate(cluster.kinds.named("StatefulSet"), owner)
    path = "/apis/apps/v1/namespaces/default/statefulsets/s/scale"
    assert cluster.handle("GET", path)[1]["spec"] == {"replicas": 3}

    def scale(replicas: int) -> list[str]:
        body = {"spec": {"replicas": replicas}}
        code, tree, _ = cluster.handle("PATCH", path, body, MERGE)
        assert (code, tree["kind"], tree["spec"]["replicas"]) == (200, "Scale", replicas)
        return [pod["metadata"]["name"] for pod in cluster.pods()]

    assert scale(1) == ["s-0"]
    assert scale(3) == ["s-0", "s-1", "s-2"]


def test_a_pod_gets_the_priority_of_its_class() -> None:
    cluster = FakeCluster()
    cluster.create(
        {
            "apiVersion": "scheduling.k8s.io/v1",
            "kind": "PriorityClass",
            "metadata": {"name": "high"},
            "value": 700,
        }
    )
    body: Json = {
        "metadata": {"name": "p"},
        "spec": {"priorityClassName": "high", "containers": [{"name": "c", "image": "i"}]},
    }
    assert cluster.handle("POST", PODS, body)[1]["spec"]["priority"] == 700
    body = {"metadata": {"name": "q"}, "spec": body["spec"] | {"priorityClassName": "none"}}
    code, tree, _ = cluster.handle("POST", PODS, body)
    assert (code, tree["message"]) == (
        403,
        'pods "q" is forbidden: no PriorityClass with name none was found',
    )


def test_kubelets_run_what_is_bound() -> None:
    cluster = FakeCluster(kubelets=True)
    cluster.add_node("n1")
    cluster.add_pod("p", grace=30)
    assert cluster.pod("p")["status"]["phase"] == "Running"
    cluster.handle("DELETE", f"{PODS}/p")
    assert cluster.pods() == []


def test_the_higher_priority_is_placed_first_and_the_lower_when_there_is_room() -> None:
    cluster = FakeCluster()
    cluster.scheduler.on = False
    cluster.add_pod("low", gpus=8)
    cluster.add_pod("high", gpus=8, priority=5)
    cluster.add_node("n1")
    cluster.scheduler.on = True
    cluster.settle()
    assert (cluster.node_of("high"), cluster.node_of("low")) == ("n1", None)
    cluster.remove("Pod", "high")
    assert cluster.node_of("low") == "n1"


def test_a_cordoned_node_is_tainted_until_it_is_not(cluster: FakeCluster) -> None:
    def taints() -> list[str]:
        spec = cluster.handle("GET", "/api/v1/nodes/n1")[1]["spec"]
        return [taint["key"] for taint in spec.get("taints", [])]

    cluster.cordon("n1")
    assert taints() == ["node.kubernetes.io/unschedulable"]
    body = {"spec": {"unschedulable": None}}
    assert cluster.handle("PATCH", "/api/v1/nodes/n1", body, STRATEGIC)[0] == 200
    assert taints() == []


@pytest.mark.parametrize("grace", [0, 30])
def test_a_pod_of_lower_priority_makes_room_on_the_node_a_higher_one_is_pinned_to(
    grace: int,
) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    cluster.add_node("n2")
    for name, priority in (("least", 1), ("less", 2), ("peer", 5)):
        # 8 GPUs: 2 + 2 + 4 are taken; a pod of priority 5 that asks for 2 needs one of them to go
        gpus = 4 if name == "peer" else 2
        cluster.add_pod(name, gpus=gpus, node="n1", priority=priority, grace=grace)
    pin = {"kubernetes.io/hostname": "n1"}
    cluster.add_pod("new", gpus=2, priority=5, nodeSelector=pin)
    if grace:
        assert cluster.node_of("new") is None
        assert cluster.pod("new")["status"]["nominatedNodeName"] == "n1"
        assert cluster.finish_terminating() == 1
    assert cluster.node_of("new") == "n1"
    assert sorted(pod["metadata"]["name"] for pod in cluster.pods()) == ["less", "new", "peer"]


def test_custom_resources_take_no_strategic_merge_patch(cluster: FakeCluster) -> None:
    kind = Kind("Widget", "widgets", "example.com", custom=True)
    cluster.kinds.serve(kind)
    path = "/apis/example.com/v1/namespaces/default/widgets"
    assert cluster.handle("POST", path, {"metadata": {"name": "w"}, "spec": {"size": 1}})[0] == 201
    body = {"spec": {"size": 2}}
    assert cluster.handle("PATCH", f"{path}/w", body, STRATEGIC)[0] == 415
    code, tree, _ = cluster.handle("PATCH", f"{path}/w", body, MERGE)
    assert (code, tree["spec"], tree["metadata"]["generation"]) == (200, {"size": 2}, 2)
    [item] = cluster.handle("GET", path)[1]["items"]
    assert item["kind"] == "Widget"


def a_set(kind: str, replicas: int, **more: object) -> dict[str, object]:
    template = {
        "metadata": {"labels": {"app": "s"}},
        "spec": {"containers": [{"name": "c", "image": "i"}], "terminationGracePeriodSeconds": 0},
    }
    spec = {"replicas": replicas, "selector": {"matchLabels": {"app": "s"}}, "template": template}
    metadata = {"name": "s", "namespace": "default", "annotations": {"note": "x"}}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec | more}


def test_a_deployment_makes_a_replica_set_with_its_annotations_and_that_makes_pods() -> None:
    cluster = FakeCluster(workloads=True)
    cluster.scheduler.on = False
    cluster.create(a_set("Deployment", 2))
    (made,) = cluster.handle("GET", "/apis/apps/v1/replicasets")[1]["items"]
    assert made["metadata"]["annotations"] == {"note": "x"}
    owners = [pod["metadata"]["ownerReferences"][0]["uid"] for pod in cluster.pods()]
    assert owners == [made["metadata"]["uid"]] * 2
    cluster.handle("DELETE", "/apis/apps/v1/namespaces/default/deployments/s")
    assert cluster.pods() == []


def test_a_replica_set_that_shrinks_keeps_bound_running_ready_and_costly_pods() -> None:
    """Each pod lacks one thing more than the next; costs count only among equals."""
    cluster = FakeCluster(workloads=True)
    cluster.scheduler.on = False
    cluster.add_node("n1", gpus=0)
    cluster.create(a_set("ReplicaSet", 5))
    names = [pod["metadata"]["name"] for pod in cluster.pods()]
    cost = "controller.kubernetes.io/pod-deletion-cost"

    def cheap(tree: Tree) -> Tree:
        tree["metadata"]["annotations"] = {cost: "-5"}
        return tree

    waits, pending, cheapest, first, second = names
    for name in names[1:]:
        body = {"metadata": {"name": name}, "target": {"kind": "Node", "name": "n1"}}
        path = f"/api/v1/namespaces/default/pods/{name}/binding"
        assert cluster.handle("POST", path, body)[0] == 201
    for name in (cheapest, first, second):
        cluster.run_pod("default", name)
    cluster.change("Pod", cheapest, cheap)

    def left(replicas: int) -> set[str]:
        path = "/apis/apps/v1/namespaces/default/replicasets/s/scale"
        cluster.handle("PATCH", path, {"spec": {"replicas": replicas}}, MERGE)
        return {pod["metadata"]["name"] for pod in cluster.pods()}

    assert left(4) == {pending, cheapest, first, second}, waits
    assert left(3) == {cheapest, first, second}
    assert left(2) == {first, second}


def test_a_stateful_set_makes_pods_in_turn_unless_it_is_parallel() -> None:
    cluster = FakeCluster(workloads=True)
    cluster.scheduler.on = False
    cluster.create(a_set("StatefulSet", 3))
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["s-0"]
    cluster = FakeCluster(workloads=True)
    cluster.scheduler.on = False
    cluster.create(a_set("StatefulSet", 3, podManagementPolicy="Parallel", ordinals={"start": 4}))
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["s-4", "s-5", "s-6"]
    path = "/apis/apps/v1/namespaces/default/statefulsets/s/scale"
    cluster.handle("PATCH", path, {"spec": {"replicas": 1}}, MERGE)
    assert [pod["metadata"]["name"] for pod in cluster.pods()] == ["s-4"]
