"""The shipped account on a live cluster: what it needs it may, and nothing else of a pod."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from typing import Any

import pytest
from live_account import Account, account, kubectl_said
from live_checks import partial, placed
from live_objects import Wanted, namespace, pods
from live_runs import placements, planned

from models.apply.requests import Ungate
from planner.cluster import request_sender

Tree = dict[str, Any]

PLAN = "gp-0123456789abcdef0123"
DENIED = "denied request: "


@pytest.fixture(scope="module")
def ours(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """Two nodes of 8 GPUs. A real server takes a moment before new policies hold."""
    with account(tmp_path_factory.mktemp("account"), nodes=2) as found:
        live = found.live
        live.create(Wanted("probe", 1, 1))
        live.wait_until(lambda: DENIED in _patched(found, _labels("app", "x"))[1], "the policies")
        live.delete_pods()
        yield found


@pytest.fixture
def one(ours: Account) -> Iterator[Account]:
    """A gated pod ``probe-0``, gone afterwards."""
    ours.live.create(Wanted("probe", 1, 1))
    yield ours
    ours.live.delete_pods()


def _patched(ours: Account, patch: Tree) -> tuple[bool, str]:
    """A server-side dry run of a patch, by the account."""
    return ours.kubectl(*_patch_words(ours, patch))


def _patch_words(ours: Account, patch: Tree) -> list[str]:
    words = ["patch", "pod", "probe-0", "-n", ours.live.namespace, "--dry-run=server"]
    return [*words, "-p", json.dumps(patch)]


def _labels(key: str, value: str) -> Tree:
    return {"metadata": {"labels": {key: value}}}


def _annotations(key: str, value: str) -> Tree:
    return {"metadata": {"annotations": {key: value}}}


def _spec(**fields: object) -> Tree:
    return {"spec": fields}


OPEN = {"$patch": "delete", "name": "gangplan.dev/placement"}
TERM = {"matchExpressions": [{"key": "x", "operator": "Exists"}]}
PREFERS = {"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 1, "preference": TERM}]}

FORBIDDEN: dict[str, Tree] = {
    "a label": _labels("app", "x"),
    "no plan's id": _labels("gangplan.dev/plan", "x"),
    "an annotation": _annotations("example.com/x", "y"),
    "a tenant's own": _annotations("gangplan.dev/preemptible", "true"),
    "a finalizer": {"metadata": {"finalizers": ["example.com/x"]}},
    "an image": _spec(containers=[{"name": "main", "image": "registry.invalid/other:1"}]),
    "a deadline": _spec(activeDeadlineSeconds=1),
    "a pin behind the gate": _spec(nodeSelector={"kubernetes.io/hostname": "n"}),
    "another selector": _spec(schedulingGates=[OPEN], nodeSelector={"pool": "x"}),
    "a preference": _spec(affinity={"nodeAffinity": PREFERS}),
}


@pytest.mark.slow
def test_what_the_server_would_take_from_others_it_refuses_the_account(one: Account) -> None:
    live = one.live
    has = live.pods()["probe-0"]["spec"]["tolerations"]
    more = _spec(tolerations=[*has, {"key": "x", "operator": "Exists"}])
    for name, patch in {**FORBIDDEN, "a toleration": more}.items():
        taken, said = kubectl_said(live.kubeconfig, live.folder, *_patch_words(one, patch))
        assert taken, (name, said)
        allowed, why = _patched(one, patch)
        assert not allowed, name
        assert DENIED in why, (name, why)
        installed = "ValidatingAdmissionPolicy 'gangplan-pods'"
        assert f"ValidatingAdmissionPolicy 'gangplan-pods-{live.run}'" in why or installed in why


def test_marks_gate_and_pin_are_the_accounts_to_change(one: Account) -> None:
    marks = {"labels": {"gangplan.dev/plan": PLAN}, "annotations": {"gangplan.dev/node": "n"}}
    pin = _spec(schedulingGates=[OPEN], nodeSelector={"kubernetes.io/hostname": "n"})
    for patch in ({"metadata": marks}, pin, {"metadata": marks, **pin}):
        taken, said = _patched(one, patch)
        assert taken, said


def test_the_account_applies_a_plan_whole_and_doctor_finds_nothing_amiss(ours: Account) -> None:
    live = ours.live
    live.create(Wanted("a", 2, 4), Wanted("b", 1, 8))
    plan = planned(live)
    code, out, err = ours.program("doctor", "-n", live.namespace, "-o", "json")
    assert code == 0, out + err
    checks = {check["check"]: check for check in json.loads(out)["checks"]}
    assert checks["admission policy"]["is"] == "ok"
    assert checks["account"]["found"] in (ours.name, "the server does not say")
    code, _, err = ours.program("apply", str(plan), "--yes")
    assert code == 0, err
    assert (placed(live.pods()), partial(live.pods())) == (placements(plan), [])
    live.delete_pods()


@pytest.mark.slow
def test_a_right_taken_away_while_gangs_start_is_named_and_the_same_command_resumes(
    ours: Account, monkeypatch: pytest.MonkeyPatch
) -> None:
    live = ours.live
    live.create(*(Wanted(name, 4, 1) for name in "abcd"))
    plan = planned(live)
    run_machine = request_sender.run_machine
    starts = 0
    with contextlib.ExitStack() as stack:

        def watched(machine: Any, sender: Any, on_event: Any) -> Any:  # noqa: ANN401  # passed on
            def on_start(request: object, event: object) -> None:
                nonlocal starts
                on_event(request, event)
                starts += isinstance(request, Ungate)
                if starts == 4 and isinstance(request, Ungate):
                    stack.enter_context(ours.without("patch", "", "pods", live.namespace))

            return run_machine(machine, sender, on_start)

        with monkeypatch.context() as patched:
            patched.setattr(request_sender, "run_machine", watched)
            code, out, err = ours.program("apply", str(plan), "--yes")
        assert code == 7, err
        assert "not permitted: " in out + err
        assert "does not answer" not in out + err
        code, _, err = ours.program("apply", str(plan), "--yes")
        assert code == 77, err
    code, _, err = ours.program("apply", str(plan), "--yes")
    assert code == 0, err
    assert placed(live.pods()) == placements(plan)
    live.delete_pods()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "group", "resource"),
    [("patch", "", "pods"), ("update", "coordination.k8s.io", "leases"), ("list", "", "nodes")],
)
def test_without_a_right_nothing_is_written_and_doctor_names_it(
    verb: str, group: str, resource: str, one: Account
) -> None:
    live = one.live
    plan = planned(live)
    before = live.pods()
    namespace = live.lock_namespace if group else live.namespace
    with one.without(verb, group, resource, namespace):
        code, _, err = one.program("apply", str(plan), "--yes")
        assert (code, "not permitted: " in err) == (77, True), err
        code, out, _ = one.program("doctor", "-n", live.namespace)
        assert code == 77, out
        assert f"missing: {verb} {resource}" in out.replace(f".{group}", "" if group else ".")
    assert live.pods() == before


@pytest.mark.slow
def test_a_namespace_that_is_gone_with_its_rights_makes_the_plan_stale(ours: Account) -> None:
    live = ours.live
    name = f"{live.run}-gone"
    (role,) = [one for one in ours.roles if "gangplan-starting" in one["metadata"]["name"]]
    group = "rbac.authorization.k8s.io"
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "RoleBinding",
        "metadata": {"name": "starting", "namespace": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": role["metadata"]["name"]},
        "subjects": [{"kind": "ServiceAccount", "name": "gangplan", "namespace": ours.home}],
    }
    for tree in (namespace(name, live.run), binding, *pods(Wanted("lost", 1, 1), name, live.run)):
        live.kubectl("create", "--validate=false", "-f", "-", given=tree)
    live.wait_until(lambda: ours.may("patch", "pods", "", name), "the rights")
    live.create(Wanted("stays", 1, 1))
    plan = planned(live)
    live.kubectl("delete", "namespace", name)
    live.wait_until(lambda: not ours.may("patch", "pods", "", name), "the rights to go")
    code, _, err = ours.program("apply", str(plan), "--yes")
    assert (code, f"stale: namespace {name} is gone" in err) == (6, True), err
    assert placed(live.pods()) == {}
    # what the others do is in the next plan
    code, _, err = ours.program("apply", str(planned(live)), "--yes")
    assert code == 0, err
    live.delete_pods()
