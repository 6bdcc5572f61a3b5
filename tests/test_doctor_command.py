"""``gangplan doctor`` from the command line, through the real kubectl, against a served cluster."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apply_runs import OWN, TOLERATE, Bench
from conftest import Result, RunCli
from deploying import TENANT, USER, install
from fake_cluster import FakeCluster
from fake_http import serving
from fake_wire import FakeWire
from snapshots import environment

from planner.cluster.rights import Right

Tree = dict[str, Any]


@dataclass(slots=True)
class Doctor:
    """A cluster and the program. ``environ``: leads there as the shipped account.

    ``admin``: whether the next runs are an administrator's.
    """

    cluster: FakeCluster
    folder: Path
    cli: RunCli
    environ: dict[str, str]
    admin: bool = False

    def run(self, *words: str) -> Result:
        return self.cli("doctor", *words, environ=self.environ)

    def checks(self, *words: str) -> dict[str, list[Tree]]:
        """What was found, by check."""
        found: dict[str, list[Tree]] = {}
        for one in json.loads(self.run("-o", "json", *words).out)["checks"]:
            found.setdefault(one["check"], []).append(one)
        return found


def _cluster(*, mode: str = "gate", without: Right | None = None, kept: bool = True) -> FakeCluster:
    cluster = FakeCluster()
    cluster.add_node("n1", taints=[OWN] if kept else [])
    cluster.gang_of_pods("a", 1, mode=mode, namespace=TENANT, tolerations=TOLERATE)
    install(cluster, without=without)
    return cluster


class VersionedWire(FakeWire):
    """A wire as the proxy gives it."""

    version = "v1.36.2"

    @property
    def date(self) -> float:
        return self.cluster.clock()


@pytest.fixture
def examined(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Callable[..., Doctor]:
    """Such a cluster, asked without a socket: kubectl is run for its version only."""

    def made(cluster: FakeCluster | None = None, **given: Any) -> Doctor:  # noqa: ANN401
        found = _cluster(**given) if cluster is None else cluster
        doctor = Doctor(found, tmp_path, cli, environment(tmp_path))

        @contextmanager
        def opened(environ: object, **given: object) -> Iterator[FakeWire]:
            del environ, given
            yield VersionedWire(found, None if doctor.admin else USER)

        monkeypatch.setattr("planner.cluster.proxy.opened", opened)
        return doctor

    return made


@pytest.fixture
def served(tmp_path: Path, cli: RunCli) -> Iterator[Callable[..., Doctor]]:
    """Such a cluster, served over HTTPS and asked through kubectl proxy."""
    with ExitStack() as stack:

        def made(**given: Any) -> Doctor:  # noqa: ANN401
            cluster = _cluster(**given)
            cluster.add_user("t", USER)
            endpoint = stack.enter_context(serving(cluster, tmp_path))
            environ = environment(tmp_path) | {"KUBECONFIG": str(endpoint.as_user("t"))}
            return Doctor(cluster, tmp_path, cli, environ)

        yield made


def test_a_healthy_deployment_passes_every_check(served: Callable[..., Doctor]) -> None:
    doctor = served()
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


def test_a_missing_right_is_named_and_ends_with_77(served: Callable[..., Doctor]) -> None:
    doctor = served(without=Right("create", "", "pods", "binding", TENANT))
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
    doctor.admin = True
    result = doctor.run("--lock-namespace", "nowhere")
    assert result.code == 66
    assert "there is no namespace nowhere" in result.out
    assert "kubectl create namespace nowhere" in result.out


def test_who_holds_the_lock_is_said(examined: Callable[..., Doctor]) -> None:
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
    doctor.admin = True
    (found,) = doctor.checks()["admission policy"]
    assert found["is"] == "warn"


def test_without_waiting_pods_tenants_have_to_be_named(examined: Callable[..., Doctor]) -> None:
    cluster = FakeCluster()
    cluster.add_node("n1")
    install(cluster)
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


# ---- with a plan


@pytest.mark.parametrize(("kept", "code"), [(True, 0), (False, 6)])
def test_a_plan_that_binds_onto_open_nodes_would_be_refused(
    kept: bool, code: int, examined: Callable[..., Doctor]
) -> None:
    doctor = examined(mode="binding", kept=kept)
    plan = Bench(doctor.cluster, doctor.folder).plan()
    result = doctor.run(str(plan))
    assert result.code == code
    assert ("apply refuses to bind there" in result.out) == (not kept)


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
