"""``gangplan doctor`` as the shipped account: checks, options, formats, exit codes."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire, serving, write_kubeconfig
from conftest import Result, RunCli
from deploying import TENANT, USER, a_cluster, install
from played_kueue import SERVED
from snapshots import environment

from planner.cli import doctor_checks as checks
from planner.cli.doctor_checks import Finding, Level, exit_code, passed, warned
from planner.cluster.backends import backend_of
from planner.cluster.lock import acquire, this_run
from planner.cluster.transport import Right

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


class VersionedWire(FakeWire):
    """A wire as the proxy gives it."""

    version = "v1.36.2"

    @property
    def date(self) -> float:
        return self.cluster.clock()


Examined = Callable[..., Doctor]


@pytest.fixture
def examined(tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch) -> Examined:
    """Such a cluster, asked without a socket: kubectl is run for its version only."""

    def made(cluster: FakeCluster | None = None, **given: Any) -> Doctor:  # noqa: ANN401
        found = a_cluster(**given) if cluster is None else cluster
        doctor = Doctor(found, tmp_path, cli, environment(tmp_path))

        @contextmanager
        def opened(environ: object, **given: object) -> Iterator[FakeWire]:
            del environ, given
            yield VersionedWire(found, None if doctor.admin else USER)

        monkeypatch.setattr("planner.cluster.proxy.connect", opened)
        return doctor

    return made


def test_a_healthy_deployment_passes_every_check_and_one_without_a_right_is_told_which(
    tmp_path: Path, cli: RunCli
) -> None:
    """Served over HTTPS and asked through kubectl proxy."""
    for right, code in ((None, 0), (Right("patch", "", "pods", "", TENANT), 77)):
        cluster, folder = a_cluster(without=right), tmp_path / str(code)
        folder.mkdir()
        cluster.tokens["t"] = USER
        with serving(cluster, folder) as endpoint:
            environ = environment(folder) | {"KUBECONFIG": str(endpoint.as_user("t"))}
            result = cli("doctor", environ=environ)
        assert result.code == code, result.out
        rows = [line for line in result.out.splitlines()[1:] if not line.startswith(" ")]
        lines = [line.split("  ", 1) for line in rows]
        levels = {name: rest.split()[0] for name, rest in lines}
        # The fake server's clock stands still at 20 November 2026.
        assert levels.pop("clock") in {"ok", "warn"}
        assert levels == {
            **dict.fromkeys(("API server", "account", "rights: reading", "rights: lock"), "ok"),
            "lock": "ok",
            f"rights: {TENANT}": "fail" if code else "ok",
            "admission policy": "warn" if code else "ok",
            "gate": "ok",
            "GPU back end": "ok",
        }
        assert list(levels)[-4:] == [
            f"rights: {TENANT}",
            "admission policy",
            "gate",
            "GPU back end",
        ]
        missing = f"missing: patch pods in namespace {TENANT}"
        assert (missing in result.out) == (code == 77)
        assert result.err.splitlines()[-1].endswith("1 failed") == (code == 77)
        assert {call.path.rpartition("/")[2] for call in cluster.writes} <= {"selfsubjectreviews"}


def test_evicting_is_asked_about_only_where_it_is_allowed(examined: Examined) -> None:
    doctor = examined(without=Right("create", "", "pods", "eviction", TENANT))
    assert doctor.run().code == 0
    assert doctor.run("--allow-evictions").code == 77


def test_json_says_the_same_and_the_exit_code(examined: Examined) -> None:
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


def test_a_right_that_runs_go_on_without_is_a_warning_with_what_follows(examined: Examined) -> None:
    doctor = examined(without=Right("list", "policy", "poddisruptionbudgets"))
    assert doctor.run().code == 0
    found = doctor.checks()["rights: reading"][0]
    assert found["is"] == "warn"
    assert found["found"] == (
        "missing: list poddisruptionbudgets.policy in all namespaces; without it plans may stop or move"
        " gangs that disruption budgets protect, and evictions of their pods then fail"
    )


def test_without_a_server_or_kubectl_it_is_69_and_says_so(
    tmp_path: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("planner.cluster.retry.WAITS_S", (0.0,) * 4)
    write_kubeconfig(tmp_path / "kubeconfig", "http://127.0.0.1:9", token="x", tls=False)
    result = cli("doctor", environ=environment(tmp_path))
    assert result.code == 69
    assert result.out.splitlines()[1].split()[:3] == ["API", "server", "fail"]
    result = cli("doctor", environ={"PATH": str(tmp_path), "HOME": str(tmp_path)})
    assert result.code == 69
    assert "kubectl is not a program that can be run" in result.out
    assert "install kubectl, or name it" in result.out


def test_a_lock_namespace_that_is_not_there_is_66(examined: Examined) -> None:
    doctor = examined()
    doctor.admin = True
    result = doctor.run("--lock-namespace", "nowhere")
    assert result.code == 66
    assert "there is no namespace nowhere" in result.out
    assert "kubectl create namespace nowhere" in result.out


def test_who_holds_the_lock_is_said(examined: Examined) -> None:
    doctor = examined()
    wire = FakeWire(doctor.cluster)
    lock = acquire(wire, this_run({"USER": "ada"}, "run"), namespace="gangplan-system")
    (found,) = doctor.checks()["lock"]
    assert (found["is"], lock.id in found["found"], "ada" in found["found"]) == ("ok", True, True)


def test_an_account_that_nothing_holds_back_is_told_so(examined: Examined) -> None:
    doctor = examined()
    doctor.admin = True
    (found,) = doctor.checks()["admission policy"]
    assert found["is"] == "warn"


def test_without_waiting_pods_tenants_have_to_be_named(examined: Examined) -> None:
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
        f"missing: {verb} pods in namespace other" for verb in ("get", "patch")
    ]


@pytest.mark.parametrize("words", [("-n", "--help"), ("-n", "a/b"), ("--lock-namespace", "../x")])
def test_what_is_no_name_of_a_namespace_is_a_usage_error(
    words: tuple[str, ...], tmp_path: Path, cli: RunCli
) -> None:
    result = cli("doctor", *words, environ=environment(tmp_path))
    assert (result.code, len(result.err.splitlines())) == (64, 2)
    assert "is not the name of a namespace" in result.err


def test_the_policy_says_which_pods_are_ours_and_which_back_end(examined: Examined) -> None:
    doctor = examined()
    kubernetes = {"gpuBackend": "dra", "schedulingGate": "example.com/gate"}
    tree = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Policy"}
    policy = doctor.folder / "policy.yaml"
    policy.write_text(json.dumps({**tree, "spec": {"kubernetes": kubernetes}}), encoding="utf-8")
    found = doctor.checks("--policy", str(policy))
    assert "rights: namespaces" in found  # nothing of ours waits behind that gate
    assert found["GPU back end"][0]["found"].startswith("dra: ")


def test_names_that_no_server_would_have_taken_do_nothing(examined: Examined) -> None:
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


def test_where_kueue_may_ask_rights_and_policy_for_labels_of_nodes_are_checked(
    examined: Examined,
) -> None:
    """Before the first request; without Kueue nothing is said of it."""
    assert "requests" not in examined().checks()
    for without in (None, Right("patch", "", "nodes")):
        cluster = a_cluster(without=without)
        for kind in SERVED:
            cluster.kinds.serve(kind)
        doctor = examined(cluster)
        found = doctor.checks()
        (said,) = found["requests"]
        policies = [one["found"] for one in found["admission policy"]]
        if without is None:
            assert (said["is"], said["hint"]) == ("ok", None)
            assert "the server refuses an annotation on a node that is not gangplan's" in policies
        else:
            assert "not permitted to patch nodes" in said["found"]
            assert "deploy/kueue" in said["hint"]
        assert doctor.run().code == 0
        assert {call.path.rpartition("/")[2] for call in cluster.writes} <= {"selfsubjectreviews"}
    install(cluster)
    del cluster.objects.policies["gangplan-nodes"]
    assert [one["is"] for one in examined(cluster).checks()["admission policy"]] == ["ok", "warn"]


# ---- checks one by one


@pytest.mark.parametrize(
    ("drift", "level", "words"),
    [
        (0.0, Level.ok, "within 30 s"),
        (30.0, Level.ok, "within 30 s"),
        (-30.0, Level.ok, "within 30 s"),
        (30.5, Level.warn, "30 s ahead of the server's"),
        (-3600.0, Level.warn, "3,600 s behind the server's"),
    ],
)
def test_clocks_may_differ_by_half_a_minute(drift: float, level: Level, words: str) -> None:
    found = checks.check_clock(1000.0 + drift, 1000.0)
    assert (found.level, words in found.found) == (level, True)


def test_claims_need_a_cluster_that_has_devices() -> None:
    cluster = FakeCluster()
    wire = FakeWire(cluster)
    assert checks.check_backend(wire, backend_of("dra")).level is Level.ok

    def gone(call: Call) -> Answer | None:
        return (404, {}, {}) if "resource.k8s.io" in call.path else None

    cluster.before.append(gone)
    absent = checks.check_backend(wire, backend_of("dra"))
    assert (absent.level, absent.code) == (Level.fail, 65)


def test_the_exit_code_is_that_of_the_gravest_failure() -> None:
    def fail(code: int) -> Finding:
        return Finding("c", Level.fail, "f", None, code)

    assert exit_code([passed("a", "b"), warned("c", "d", "e")]) == 0
    assert exit_code([fail(66), fail(77), fail(65)]) == 77
    assert exit_code([fail(65), fail(66)]) == 66
    assert exit_code([fail(0)]) == 1
