"""The benchmark of bindings: what it counts, at a size that takes a moment."""

from __future__ import annotations

import pytest

from benchmarks.bindings import measure
from benchmarks.report import lines
from benchmarks.run import misses


@pytest.mark.slow
def test_every_way_binds_every_pod_and_the_whole_protocol_is_counted() -> None:
    found = measure(12)  # a gang of eight and one of four, on two nodes
    assert list(found["seconds"]) == ["list", "wire", "apply", "gate"]
    assert all(spent > 0 for spent in found["seconds"].values())
    # an intent, a dry run and a binding for each pod, at the least; the rest are reads, rights, the lock
    assert found["requests"]["PATCH"] >= 12
    assert found["requests"]["POST"] >= 24
    text = "\n".join(lines(found))
    assert "12 pods of 2 gangs on 2 nodes" in text
    assert f"{found['ratio']:.2f} x" in text


def test_bindings_that_take_too_long_are_named() -> None:
    expected = {"cases": {}, "ratios": [], "startup_seconds": {}, "bindings": {"ratio_wire": 3}}
    found = {"case": "bindings", "ratio": 9.0, "ratio_wire": 3.01}
    assert list(misses({"bindings": found}, {}, expected)) == [
        "bindings: 3.01 x the time of one List, limit 3"
    ]
    assert list(misses({"bindings": found | {"ratio_wire": 3.0}}, {}, expected)) == []


def test_an_apply_that_takes_too_long_or_works_too_much_is_named() -> None:
    limits = {"ratio_wire": 3, "ratio": 8, "ratio_gate": 8, "cpu_ms_a_request": 1.5}
    expected = {"cases": {}, "ratios": [], "startup_seconds": {}, "bindings": limits}
    found = {"case": "bindings", "ratio_wire": 3.0, "ratio": 8.0, "ratio_gate": 8.0}
    limits["writes_a_pod_gate"] = 1.375
    found |= {"cpu_ms_a_request": 1.5, "writes_a_pod_gate": 1.375}
    assert list(misses({"bindings": found}, {}, expected)) == []
    worse = {key: value + 0.1 for key, value in found.items() if isinstance(value, float)}
    assert list(misses({"bindings": found | worse}, {}, expected)) == [
        "bindings: 3.1 x the time of one List, limit 3",
        "the whole apply: 8.1 x the time of one List, limit 8",
        "apply of gated pods: 8.1 x the time of one List, limit 8",
        "bindings: 1.6 ms of CPU a request, limit 1.5",
        "bindings_gate: 1.475 writes a pod, limit 1.375",
    ]
