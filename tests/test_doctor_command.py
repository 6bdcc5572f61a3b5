"""``gangplan doctor`` from the command line, through the real kubectl, against a served cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apply_runs import OWN, TOLERATE
from conftest import Result, RunCli
from deploying import TENANT, USER, install
from fake_cluster import FakeCluster
from fake_http import Endpoint, serving
from snapshots import environment

from planner.cluster.rights import Right

Tree = dict[str, Any]


@dataclass(slots=True)
class Doctor:
    """A served cluster, and the program as the shipped account."""

    cluster: FakeCluster
    endpoint: Endpoint
    folder: Path
    cli: RunCli

    def run(self, *words: str, user: bool = True) -> Result:
        environ = environment(self.folder)
        if user:
            environ["KUBECONFIG"] = str(self.endpoint.as_user("t"))
        return self.cli("doctor", *words, environ=environ)

    def checks(self, *words: str, user: bool = True) -> dict[str, list[Tree]]:
        """What was found, by check."""
        found: dict[str, list[Tree]] = {}
        for one in json.loads(self.run("-o", "json", *words, user=user).out)["checks"]:
            found.setdefault(one["check"], []).append(one)
        return found


def _cluster(*, mode: str = "gate", without: Right | None = None, kept: bool = True) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN] if kept else [])
    cluster.gang_of_pods("a", 1, mode=mode, namespace=TENANT, tolerations=TOLERATE)
    install(cluster, without=without)
    cluster.add_user("t", USER)
    return cluster


@pytest.fixture
def examined(tmp_path: Path, cli: RunCli) -> Iterator[Callable[..., Doctor]]:
    """Serve such a cluster until the test ends."""
    from contextlib import ExitStack

    with ExitStack() as stack:

        def served(cluster: FakeCluster | None = None, **given: Any) -> Doctor:  # noqa: ANN401
            made = _cluster(**given) if cluster is None else cluster
            endpoint = stack.enter_context(serving(made, tmp_path))
            return Doctor(made, endpoint, tmp_path, cli)

        yield served


def test_a_healthy_deployment_passes_every_check(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    result = doctor.run()
    assert result.code == 0, result.out
    lines = [line.split("  ", 1) for line in result.out.splitlines()[1:]]
    levels = {name: rest.split()[0] for name, rest in lines}
    # The fake server's clock stands still at 20 November 2026, and its version is not kubectl's.
    assert {levels.pop(name) for name in ("clock", "version skew")} <= {"ok", "warn"}
    assert set(levels.values()) == {"ok"}
    assert list(levels) == [
        *("gangplan", "solver", "libyaml", "kubectl", "API server", "account"),
        *("rights: reading", "rights: lock", "lock", f"rights: {TENANT}"),
        *("admission policy", "nodes", "native PodGroups", "GPU back end"),
    ]
    assert "failed" not in result.err


def test_nothing_is_written(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    doctor.run("--allow-evictions")
    reviews = {"selfsubjectreviews"}
    assert {call.path.rpartition("/")[2] for call in doctor.cluster.writes} <= reviews


def test_a_missing_right_is_named_and_ends_with_77(examined: Callable[..., Doctor]) -> None:
    doctor = examined(without=Right("create", "", "pods", "binding", TENANT))
    result = doctor.run()
    assert result.code == 77
    (line,) = [line for line in result.out.splitlines() if "missing" in line]
    assert line.split()[:3] == ["rights:", TENANT, "fail"]
    assert f"missing: create pods/binding in namespace {TENANT}" in line
    assert f"kubectl auth can-i create pods --subresource=binding -n {TENANT}" in line
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
    assert bad[0]["hint"].endswith("kubectl auth can-i list nodes")
    (event,) = map(json.loads, result.err.splitlines())
    assert (event["type"], event["verb"], event["exit_code"]) == ("summary", "doctor", 77)
    assert event["failed"] == ["rights: reading"]


def test_a_server_that_is_not_there_is_69_after_what_could_be_checked(
    tmp_path: Path, cli: RunCli
) -> None:
    from fake_http import write_kubeconfig

    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9", token="x", tls=False)
    result = cli("doctor", environ=environment(tmp_path))
    assert result.code == 69
    assert [line.split()[0] for line in result.out.splitlines()[1:]] == [
        *("gangplan", "solver", "libyaml", "kubectl", "API")
    ]


def test_without_kubectl_it_says_what_to_install(tmp_path: Path, cli: RunCli) -> None:
    result = cli("doctor", environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.code == 69
    assert "kubectl is not a program that can be run" in result.out
    assert "install kubectl, or name it" in result.out


def test_a_lock_namespace_that_is_not_there_is_66(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    result = doctor.run("--lock-namespace", "nowhere", user=False)
    assert result.code == 66
    assert "there is no namespace nowhere" in result.out
    assert "kubectl create namespace nowhere" in result.out


def test_who_holds_the_lock_is_said(examined: Callable[..., Doctor]) -> None:
    from fake_wire import FakeWire

    from planner.cluster.holders import here
    from planner.cluster.lease import acquire

    doctor = examined()
    wire = FakeWire(doctor.cluster)
    who = here({"USER": "ada"})
    lock = acquire(wire, namespace="gangplan-system", operation="run", plan=None, who=who)
    (found,) = doctor.checks()["lock"]
    assert found["is"] == "ok"
    assert lock.id in found["found"]
    assert "ada" in found["found"]


def test_nodes_open_to_other_schedulers_are_named_where_we_bind(
    examined: Callable[..., Doctor],
) -> None:
    doctor = examined(mode="binding", kept=False)
    (found,) = doctor.checks()["nodes"]
    assert found["is"] == "warn"
    assert "n1: no taint keeps other schedulers off it" in found["found"]
    assert found["hint"].startswith("keep others off: kubectl taint nodes")


def test_gated_pods_need_no_nodes_of_their_own(examined: Callable[..., Doctor]) -> None:
    (found,) = examined(kept=False).checks()["nodes"]
    assert found["is"] == "ok"


def test_native_pod_groups_are_told(examined: Callable[..., Doctor]) -> None:
    (found,) = examined().checks()["native PodGroups"]
    assert found["found"].startswith("not served")


def test_an_account_that_nothing_holds_back_is_told_so(examined: Callable[..., Doctor]) -> None:
    doctor = examined()
    (found,) = doctor.checks(user=False)["admission policy"]
    assert found["is"] == "warn"


def test_without_waiting_pods_tenants_have_to_be_named(examined: Callable[..., Doctor]) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    install(cluster)
    cluster.add_user("t", USER)
    doctor = examined(cluster)
    (found,) = doctor.checks()["rights: namespaces"]
    assert (found["is"], found["hint"]) == ("warn", "name those of your tenants: -n NAME")
    (named,) = doctor.checks("-n", TENANT)[f"rights: {TENANT}"]
    assert named["is"] == "ok"
    missing = doctor.checks("-n", "other")["rights: other"]
    assert [one["found"] for one in missing] == [
        "missing: get pods in namespace other",
        "missing: patch pods in namespace other",
        "missing: create pods/binding in namespace other",
    ]


@pytest.mark.parametrize("words", [("-n", "--help"), ("-n", "a/b"), ("--lock-namespace", "../x")])
def test_what_is_no_name_of_a_namespace_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, cli: RunCli
) -> None:
    result = cli("doctor", *words, environ=environment(tmp_path))
    assert result.code == 64
    assert "is no name of a namespace" in result.err
    assert len(result.err.splitlines()) == 2


def test_a_plan_and_a_policy_at_once_are_a_usage_error(tmp_path: Path, cli: RunCli) -> None:
    result = cli("doctor", "plan.json", "--policy", "p.yaml", environ=environment(tmp_path))
    assert result.code == 64
