"""``gangplan doctor`` from the command line: checks, options, formats, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire
from conftest import RunCli
from deploying import TENANT, install
from doctored import Doctor
from snapshots import environment

from planner.cluster.transport import Right

pytest_plugins = ("doctor_fixtures",)


def test_a_healthy_deployment_passes_every_check(served: Callable[..., Doctor]) -> None:
    doctor = served()
    result = doctor.run()
    assert result.code == 0, result.out
    rows = [line for line in result.out.splitlines()[1:] if not line.startswith(" ")]
    lines = [line.split("  ", 1) for line in rows]
    levels = {name: rest.split()[0] for name, rest in lines}
    # The fake server's clock stands still at 20 November 2026.
    assert levels.pop("clock") in {"ok", "warn"}
    assert set(levels.values()) == {"ok"}
    assert list(levels) == [
        *("API server", "account"),
        *("rights: reading", "rights: lock", "lock", f"rights: {TENANT}"),
        *("admission policy", "GPU back end"),
    ]
    assert "failed" not in result.err


def test_nothing_is_written(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    doctor.run("--allow-evictions")
    reviews = {"selfsubjectreviews"}
    assert {call.path.rpartition("/")[2] for call in doctor.cluster.writes} <= reviews


def test_a_missing_right_is_named_and_ends_with_77(served: Callable[..., Doctor]) -> None:
    doctor = served(without=Right("patch", "", "pods", "", TENANT))
    result = doctor.run()
    assert result.code == 77
    (line,) = [line for line in result.out.splitlines() if "missing" in line]
    assert line.split()[:3] == ["rights:", TENANT, "fail"]
    assert f"missing: patch pods in namespace {TENANT}" in line
    assert result.err.splitlines()[-1].endswith("1 failed")


def test_evicting_is_asked_about_only_where_it_is_allowed(
    examined: Callable[..., Doctor],
) -> None:
    doctor = examined(without=Right("create", "", "pods", "eviction", TENANT))
    assert doctor.run().code == 0
    assert doctor.run("--allow-evictions").code == 77


def test_json_says_the_same_and_the_exit_code(examined: Callable[..., Doctor]) -> None:
    doctor = examined(without=Right("list", "", "nodes"))
    result = doctor.run("-o", "json", "--log-format", "json")
    tree = json.loads(result.out)
    assert (result.code, tree["exitCode"]) == (77, 77)
    bad = [one for one in tree["checks"] if one["is"] == "fail"]
    assert [(one["check"], one["found"]) for one in bad] == [
        ("rights: reading", "missing: list nodes")
    ]
    (event,) = map(json.loads, result.err.splitlines())
    assert (event["type"], event["verb"], event["exit_code"]) == ("summary", "doctor", 77)
    assert event["failed"] == ["rights: reading"]


def test_a_right_that_runs_go_on_without_is_a_warning_with_what_follows(
    examined: Callable[..., Doctor],
) -> None:
    doctor = examined(without=Right("list", "policy", "poddisruptionbudgets"))
    result = doctor.run("-o", "json")
    assert result.code == 0
    (found,) = [
        one for one in json.loads(result.out)["checks"] if one["check"] == "rights: reading"
    ]
    assert found["is"] == "warn"
    assert found["found"] == (
        "missing: list poddisruptionbudgets.policy in all namespaces; without it plans may stop or move"
        " gangs that disruption budgets protect, and evictions of their pods then fail"
    )


def test_a_server_that_is_not_there_is_69(tmp_path: Path, cli: RunCli) -> None:
    from apiserver_http import write_kubeconfig

    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9", token="x", tls=False)
    result = cli("doctor", environ=environment(tmp_path))
    assert result.code == 69
    assert result.out.splitlines()[1].split()[:3] == ["API", "server", "fail"]


def test_without_kubectl_it_says_what_to_install(tmp_path: Path, cli: RunCli) -> None:
    result = cli("doctor", environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.code == 69
    assert "kubectl is not a program that can be run" in result.out
    assert "install kubectl, or name it" in result.out


def test_a_lock_namespace_that_is_not_there_is_66(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    doctor.admin = True
    result = doctor.run("--lock-namespace", "nowhere")
    assert result.code == 66
    assert "there is no namespace nowhere" in result.out
    assert "kubectl create namespace nowhere" in result.out


def test_who_holds_the_lock_is_said(examined: Callable[..., Doctor]) -> None:
    from planner.cluster.lock import acquire, this_run

    doctor = examined()
    wire = FakeWire(doctor.cluster)
    lock = acquire(wire, this_run({"USER": "ada"}, "run"), namespace="gangplan-system")
    (found,) = doctor.checks()["lock"]
    assert found["is"] == "ok"
    assert lock.id in found["found"]
    assert "ada" in found["found"]


def test_an_account_that_nothing_holds_back_is_told_so(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    doctor.admin = True
    (found,) = doctor.checks()["admission policy"]
    assert found["is"] == "warn"


def test_without_waiting_pods_tenants_have_to_be_named(examined: Callable[..., Doctor]) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    install(cluster)
    doctor = examined(cluster)
    (found,) = doctor.checks()["rights: namespaces"]
    assert (found["is"], found["hint"]) == ("warn", "name the namespaces of your tenants: -n NAME")
    (named,) = doctor.checks("-n", TENANT)[f"rights: {TENANT}"]
    assert named["is"] == "ok"
    missing = doctor.checks("-n", "other")["rights: other"]
    assert [one["found"] for one in missing] == [
        "missing: get pods in namespace other",
        "missing: patch pods in namespace other",
    ]


@pytest.mark.parametrize("words", [("-n", "--help"), ("-n", "a/b"), ("--lock-namespace", "../x")])
def test_what_is_no_name_of_a_namespace_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, cli: RunCli
) -> None:
    result = cli("doctor", *words, environ=environment(tmp_path))
    assert result.code == 64
    assert "is not the name of a namespace" in result.err
    assert len(result.err.splitlines()) == 2


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


def test_help_is_as_agreed(
    cli: RunCli,
    golden: Callable[[str, str], None],
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert cli("doctor", "--help").code == 0
    golden("help-doctor.txt", capsys.readouterr().out)
