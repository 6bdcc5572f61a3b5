"""The checks of ``doctor`` one by one: boundaries, and words for what is odd."""

from __future__ import annotations

import pytest
from apiserver import Answer, Call, FakeCluster
from apiserver_http import FakeWire

from planner.cli import doctor_checks as checks
from planner.cli.doctor_checks import Finding, Level, exit_code, passed, warned
from planner.cluster.backends import backend_of


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
    there = checks.check_backend(wire, backend_of("dra"))
    assert there.level is Level.ok

    def gone(call: Call) -> Answer | None:
        return (404, {}, {}) if "resource.k8s.io" in call.path else None

    cluster.before.append(gone)
    absent = checks.check_backend(wire, backend_of("dra"))
    assert (absent.level, absent.code) == (Level.fail, 65)


# ---- all together


def test_the_exit_code_is_that_of_the_gravest_failure() -> None:
    def fail(code: int) -> Finding:
        return Finding("c", Level.fail, "f", None, code)

    assert exit_code([passed("a", "b"), warned("c", "d", "e")]) == 0
    assert exit_code([fail(66), fail(77), fail(65)]) == 77
    assert exit_code([fail(65), fail(66)]) == 66
    assert exit_code([fail(0)]) == 1
