"""What the admission policy on marks keeps everybody but the planner's account from."""

from __future__ import annotations

import copy

import pytest
from admission import Asked, Tree, policies, refused
from admitted_pods import BACK_ENDS, INTENT, a_pod, intended
from apiserver import FakeCluster
from deploying import TENANT, install

from models.apply.intents import KEYS, PLAN

TENANTS = "ana@example.com"
MERGE = "application/merge-patch+json"

THEIRS = (
    "gangplan.dev/last-checkpoint",
    "gangplan.dev/resize-after",
    "gangplan.dev/submitted-at",
    "gangplan.dev/preemptible",
    "gangplan.dev/communication-pattern",
    "gangplan.dev/mix-models",
    "gangplan.dev/server-model",
    "gangplan.dev/planned",
    *BACK_ENDS,
)


def asked(new: Tree, old: Tree | None, *, user: str = TENANTS, group: str = "dev") -> Asked:
    operation = "CREATE" if old is None else "UPDATE"
    return Asked("pods", operation, new, old, user=user, groups=("system:authenticated", group))


def written(pod: Tree, part: str, key: str, value: str | None) -> Tree:
    found = copy.deepcopy(pod)
    notes = found["metadata"].setdefault(part, {})
    if value is None:
        del notes[key]
    else:
        notes[key] = value
    return found


def test_nobody_else_makes_a_pod_with_marks() -> None:
    label = written(a_pod(), "labels", PLAN, INTENT.plan)
    assert len(refused(asked(label, None))) == 1
    for key in KEYS:
        assert len(refused(asked(written(a_pod(), "annotations", key, "x"), None))) == 1, key
    bare: Tree = {"metadata": {"name": "p"}, "spec": {}}
    assert refused(asked(bare, None)) == []


@pytest.mark.parametrize("key", KEYS)
def test_nobody_else_writes_changes_or_removes_an_annotation_of_an_intent(key: str) -> None:
    marked = written(intended(a_pod()), "annotations", key, "x")
    assert refused(asked(marked, marked)) == []
    assert len(refused(asked(marked, a_pod()))) >= 1
    assert len(refused(asked(written(marked, "annotations", key, "y"), marked))) == 1
    assert len(refused(asked(written(marked, "annotations", key, None), marked))) == 1


def test_nobody_else_writes_changes_or_removes_the_label_of_a_plan() -> None:
    marked = intended(a_pod())
    unlabelled = written(marked, "labels", PLAN, None)
    assert len(refused(asked(marked, unlabelled))) == 1
    assert len(refused(asked(unlabelled, marked))) == 1
    other = written(marked, "labels", PLAN, "gp-00000000000000000000")
    assert len(refused(asked(other, marked))) == 1
    stripped = copy.deepcopy(marked)
    del stripped["metadata"]["labels"], stripped["metadata"]["annotations"]
    assert len(refused(asked(stripped, marked))) == 2


def test_what_is_the_users_own_stays_so_on_a_marked_pod_too() -> None:
    for pod in (a_pod(), intended(a_pod())):
        for key in THEIRS:
            assert refused(asked(written(pod, "annotations", key, "x"), pod)) == []
            assert refused(asked(written(pod, "labels", key, "x"), pod)) == []
        status = copy.deepcopy(pod)
        status["status"]["phase"] = "Running"
        kubelet = Asked("pods", "UPDATE", status, pod, sub="status", user="system:node:n1")
        assert refused(kubelet) == []


def test_a_status_and_a_binding_of_others_bring_no_marks_either() -> None:
    status = Asked("pods", "UPDATE", intended(a_pod()), a_pod(), sub="status", user=TENANTS)
    assert len(refused(status)) == 2
    body = {"metadata": {"name": "p"}, "target": {"kind": "Node", "name": "n1"}}
    for resource, sub in (("pods", "binding"), ("bindings", "")):
        plain = Asked(resource, "CREATE", body, sub=sub, user="system:kube-scheduler")
        assert refused(plain) == []
        metadata = {"name": "p", "annotations": INTENT.annotations()}
        forged = Asked(resource, "CREATE", {**body, "metadata": metadata}, sub=sub, user=TENANTS)
        assert len(refused(forged)) == 1


def test_administrators_and_the_account_write_them() -> None:
    for group in ("system:masters", "kubeadm:cluster-admins"):
        assert refused(asked(intended(a_pod()), None, group=group)) == []
    (policy,) = [one for one in policies() if one.name == "gangplan-marks"]
    patch = Asked("pods", "UPDATE", intended(a_pod()), a_pod())
    assert policy.refusals(patch) == []


def test_the_marks_kept_from_others_are_those_that_are_written() -> None:
    (policy,) = [one for one in policies() if one.name == "gangplan-marks"]
    listed = dict(policy.variables)["marks"].eval(data={}).plain_value()
    assert listed == [PLAN, *(key for key in listed if key != PLAN)]
    assert set(listed) == set(KEYS)


def test_a_server_with_the_policy_refuses_a_forged_pod() -> None:
    cluster = FakeCluster()
    install(cluster)
    cluster.add_pod("p", TENANT)
    cluster.rights.off = True
    path = f"/api/v1/namespaces/{TENANT}/pods/p?fieldManager=gangplan"
    body = {"metadata": {"labels": INTENT.labels(), "annotations": INTENT.annotations()}}
    code, tree, _ = cluster.handle("PATCH", path, body, MERGE, TENANTS)
    assert (code, "'gangplan-marks'" in tree["message"]) == (422, True)
