"""The benchmark of bindings: what it counts, at a size that takes a moment."""

from __future__ import annotations

from benchmarks.bindings import measure
from benchmarks.report import lines
from benchmarks.run import misses


def test_every_way_binds_every_pod_and_the_whole_protocol_is_counted() -> None:
    found = measure(12)  # a gang of eight and one of four, on two nodes
    assert list(found["seconds"]) == ["list", "wire", "apply"]
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
