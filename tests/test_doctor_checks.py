"""The checks of ``doctor`` one by one: boundaries, and words for what is odd."""

from __future__ import annotations

from pathlib import Path

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire

from models.apply.live_state import ClusterView, LiveNode, LivePod
from planner.cli import doctor_checks as checks
from planner.cli.doctor_checks import Finding, Level, exit_code, passed, warned
from planner.cluster.backends.registry import backend_of
from planner.cluster.kubectl import Kubectl
from planner.cluster.transport import Reply


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


DENIED = Reply(
    422,
    {"message": "pods \"p\" is forbidden: ValidatingAdmissionPolicy 'gangplan-pods' with ..."},
)


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


# ---- all together


def test_the_exit_code_is_that_of_the_gravest_failure() -> None:
    def fail(code: int) -> Finding:
        return Finding("c", Level.fail, "f", None, code)

    assert exit_code([passed("a", "b"), warned("c", "d", "e")]) == 0
    assert exit_code([fail(6), fail(77), fail(65)]) == 77
    assert exit_code([fail(66), fail(6)]) == 66
    assert exit_code([fail(1), fail(6)]) == 6
    assert exit_code([fail(0)]) == 1
