"""``gangplan doctor`` about a plan, a Policy, and a cluster with names that are none."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

from apiserver import Answer, Call
from apply_runs import Bench
from conftest import RunCli
from deploying import TENANT
from doctored import Doctor
from snapshots import environment

pytest_plugins = ("doctor_fixtures",)


def test_a_plan_of_another_cluster_would_be_refused(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    plan = Bench(doctor.cluster, doctor.folder).plan()
    document = json.loads(plan.read_text())
    live = document["instance"]["cluster"]["metadata"]["uid"]
    kind = doctor.cluster.kinds.named("Namespace")
    system = doctor.cluster.objects.get(kind, "", "kube-system")
    assert system["metadata"]["uid"] == live
    doctor.cluster.put({**system, "metadata": {**system["metadata"], "uid": "another"}})
    result = doctor.run(str(plan))
    assert result.code == 65
    assert f"of the cluster with uid {live}, this one has another" in result.out


def test_a_plan_names_the_namespaces_that_are_asked_about(
    examined: Callable[..., Doctor],
) -> None:
    doctor = examined()
    plan = Bench(doctor.cluster, doctor.folder).plan()
    doctor.cluster.gang_of_pods("b", 1, namespace="other")
    assert f"rights: {TENANT}" in doctor.checks(str(plan))
    assert "rights: other" not in doctor.checks(str(plan))
    assert {f"rights: {TENANT}", "rights: other"} <= set(doctor.checks())


def test_what_is_no_plan_is_said_before_anything_is_looked_at(tmp_path: Path, cli: RunCli) -> None:
    (tmp_path / "plan.json").write_text("{}")
    result = cli("doctor", str(tmp_path / "plan.json"), environ=environment(tmp_path))
    assert (result.code, result.out) == (65, "")
    missing = cli("doctor", str(tmp_path / "none.json"), environ=environment(tmp_path))
    assert (missing.code, missing.out) == (66, "")


def test_the_policy_says_which_pods_are_ours_and_which_back_end(
    examined: Callable[..., Doctor],
) -> None:
    doctor = examined()
    policy = doctor.folder / "policy.yaml"
    policy.write_text(
        "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\nmetadata: {name: p}\n"
        "spec: {kubernetes: {gpuBackend: dra, schedulingGate: example.com/gate}}\n"
    )
    checks = doctor.checks("--policy", str(policy))
    assert "rights: namespaces" in checks  # nothing of ours waits behind that gate
    assert checks["GPU back end"][0]["found"].startswith("dra: ")


def test_names_that_no_server_would_have_taken_do_nothing(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    names = ((TENANT, "--help"), ("../x", "a"), ("e\x1b[2J", "b"))

    def haunt(call: Call) -> Answer | None:
        if call.path != "/api/v1/pods" or call.answer is None:
            return None
        code, tree, headers = call.answer
        (pod,) = tree["items"]
        more = [
            {**pod, "metadata": {**pod["metadata"], "namespace": one, "name": name, "uid": name}}
            for one, name in names
        ]
        return code, {**tree, "items": [*more, pod]}, headers

    doctor.cluster.after.append(haunt)
    result = doctor.run()
    assert result.code == 0, result.out
    assert "\x1b" not in result.out
    asked = {call.path for call in doctor.cluster.calls}
    assert not any(odd in path for path in asked for odd in ("--help", "..", "\x1b"))
