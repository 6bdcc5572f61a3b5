"""The checks of ``doctor`` one by one: boundaries, and words for what is odd."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire

from models.apply.live_state import ClusterView, LiveNode, LivePod
from planner.cli import doctor_checks as checks
from planner.cli.doctor_checks import Finding, Level, exit_code, passed, warned
from planner.cli.verbs.doctor import findings_table, summary
from planner.cluster.backends.registry import backend_of
from planner.cluster.discovery import served_groups
from planner.cluster.kubectl import Kubectl
from planner.cluster.transport import JSON, Reply, Tree


@pytest.mark.parametrize(
    ("ours", "theirs", "level"),
    [
        ("v1.36.2", "v1.36.2", Level.ok),
        ("v1.35.9", "v1.36.0", Level.ok),
        ("v1.37.0", "v1.36.2", Level.ok),
        ("v1.34.0", "v1.36.2", Level.warn),
        ("v1.38.0", "v1.36.2", Level.warn),
        ("v1.20.5+really1.20.2", "v1.36.2", Level.warn),
        ("v1.36.2-gke.100", "v1.36.1-eks", Level.ok),
        ("v2.36.2", "v1.36.2", Level.warn),
        (None, "v1.36.2", Level.warn),
        ("v1.36.2", None, Level.warn),
    ],
)
def test_kubectl_may_be_one_minor_version_apart(
    ours: str | None, theirs: str | None, level: Level
) -> None:
    assert checks.check_skew(ours, theirs).level is level


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


def test_a_server_that_does_not_tell_its_time_is_warned() -> None:
    assert checks.check_clock(0.0, None).level is Level.warn


class Telling:
    """A wire that always answers the same."""

    def __init__(self, reply: Reply) -> None:
        self.reply = reply

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        return self.reply


def test_the_account_is_who_the_server_says() -> None:
    reply = Reply(201, {"status": {"userInfo": {"username": "ada\x1b[31m"}}})
    found, name = checks.check_account(Telling(reply))
    assert (found.found, name) == ("ada\\e[31m", "ada\x1b[31m")
    assert checks.check_account(Telling(Reply(404)))[1] is None
    assert served_groups(Telling(Reply(403))) is None


def test_without_libyaml_reading_is_slow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(yaml, "__with_libyaml__", False)
    (found,) = [one for one in checks.check_machine() if one.check == "libyaml"]
    assert found.level is Level.warn


@pytest.mark.parametrize(
    ("script", "words"),
    [
        ('echo \'{"clientVersion": {"gitVersion": "v1.36.2"}}\'', None),
        ("echo nonsense", "does not print a version"),
        ("echo '{}'", "does not print a version"),
        ("echo broken >&2; exit 1", "kubectl failed: broken"),
    ],
)
def test_kubectl_tells_its_version_or_is_no_kubectl(
    script: str, words: str | None, tmp_path: Path
) -> None:
    program = tmp_path / "kubectl"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    found, version = checks.check_kubectl(Kubectl(str(program), {"PATH": "/usr/bin:/bin"}))
    if words is None:
        assert (found.level, version) == (Level.ok, "v1.36.2")
    else:
        assert (found.level, found.code, version) == (Level.fail, 69, None)
        assert words in found.found


# ---- admission


def _probe(reply: Reply, account: str | None) -> Finding:
    return checks.check_admission(Telling(reply), ("a", "p", "u"), account)


DENIED = Reply(
    422,
    {"message": "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'gangplan-pods' with ..."},
)


def test_a_refused_probe_is_what_a_policy_is_for() -> None:
    assert _probe(DENIED, checks.ACCOUNT).level is Level.ok


def test_an_account_that_may_not_mark_pods_can_start_nothing() -> None:
    said = (
        "ValidatingAdmissionPolicy 'gangplan-marks' with binding 'x' denied request: only gangplan"
    )
    found = _probe(Reply(422, {"message": said}), "ada")
    assert (found.level, found.code) == (Level.fail, 77)
    assert "refuses this account what a plan writes: " in found.found
    assert "docs/deploy.md" in (found.hint or "")


@pytest.mark.parametrize("status", [0, 401, 403, 429, 500])
def test_a_probe_that_was_not_judged_tells_nothing(status: int) -> None:
    found = _probe(Reply(status, why="no"), checks.ACCOUNT)
    assert (found.level, found.found[:11]) == (Level.warn, "not decided")


def test_the_refusal_of_another_policy_is_not_ours() -> None:
    other = Reply(422, {"message": "ValidatingAdmissionPolicy 'others' denied request"})
    assert _probe(other, checks.ACCOUNT).level is Level.warn


def test_the_hint_fits_the_account() -> None:
    passed = Reply(200, {})
    assert "kubectl apply -k deploy/admission" in (_probe(passed, None).hint or "")
    assert "kubectl apply -k" in (_probe(passed, checks.ACCOUNT).hint or "")
    assert "fine for an administrator" in (_probe(passed, "ada").hint or "")


def _view(nodes: list[LiveNode], pods: list[LivePod]) -> ClusterView:
    return ClusterView("c", {one.name: one for one in nodes}, {one.key: one for one in pods})


# ---- groups and back ends


def test_claims_need_a_cluster_that_has_devices() -> None:
    cluster = FakeCluster()
    wire = FakeWire(cluster)
    (there,) = checks.check_backend(wire, backend_of("dra"), None, _view([], []))
    assert there.level is Level.ok

    def gone(call: Call) -> Answer | None:
        return (404, {}, {}) if "resource.k8s.io" in call.path else None

    cluster.before.append(gone)
    (absent,) = checks.check_backend(wire, backend_of("dra"), None, _view([], []))
    assert (absent.level, absent.code) == (Level.fail, 65)


def test_what_a_back_end_enforces_is_said() -> None:
    for name in ("annotation", "none", "hami"):
        chosen = backend_of(name)
        (found,) = checks.check_backend(Telling(Reply(404)), chosen, None, _view([], []))
        assert found == passed("GPU back end", f"{name}: {chosen.note()}")


# ---- all together


def test_the_exit_code_is_that_of_the_gravest_failure() -> None:
    def fail(code: int) -> Finding:
        return Finding("c", Level.fail, "f", None, code)

    assert exit_code([passed("a", "b"), warned("c", "d", "e")]) == 0
    assert exit_code([fail(6), fail(77), fail(65)]) == 77
    assert exit_code([fail(66), fail(6)]) == 66
    assert exit_code([fail(1), fail(6)]) == 6
    assert exit_code([fail(0)]) == 1


def test_findings_are_counted_and_made_harmless() -> None:
    findings = [
        passed("a", "fine"),
        warned("b", "odd\x1b[31m", "do"),
        Finding("c", Level.fail, "bad"),
    ]
    assert summary(findings) == "3 checks: 1 ok, 1 warning, 1 failed"
    assert "\x1b" not in findings_table(findings).plain()
    assert summary(findings[:1]) == "1 check: 1 ok"
