"""Traces of files: what is written is read again, and the published tables row by row."""

from __future__ import annotations

import gzip
from fractions import Fraction
from pathlib import Path

import pytest

from benchmarks.lab.trace import Job, Trace, read_trace, roles_of
from models.documents.gang import GangSpec, GangTopology

TRACES = Path(__file__).parents[2] / "benchmarks" / "lab" / "traces"


def job(name: str, at: int, gpus: int, **spec: object) -> Job:
    return Job(name=name, submit_s=at, duration_s=10, spec=GangSpec(roles=roles_of(gpus), **spec))


def test_what_is_written_is_read_again(tmp_path: Path) -> None:
    near = GangTopology(required="block")
    trace = Trace.of("t", [job("b", 9, 16, topology=near), job("a", 3, 20, priority=5)])
    assert [one.name for one in trace.jobs] == ["a", "b"]
    path = tmp_path / "trace.json"
    path.write_text(trace.text())
    assert read_trace(path) == trace
    with pytest.raises(ValueError, match="two jobs of one name"):
        Trace.of("t", [job("a", 0, 1), job("a", 5, 1)])
    path.write_text(trace.text().replace('"submitS": 3', '"submitS": -3'))
    with pytest.raises(ValueError, match="submitS"):
        read_trace(path)


def test_the_weeks_of_helios_and_philly() -> None:
    """Philly's queues are virtual clusters, those of Helios users."""
    helios = read_trace(TRACES / "helios" / "week.csv.gz")
    philly = read_trace(TRACES / "philly" / "week.csv.gz")
    assert (helios.name, len(helios.jobs)) == ("helios", 4675)
    assert (philly.name, len(philly.jobs)) == ("philly", 14_167)
    first = helios.jobs[0]
    assert (first.name, first.namespace, first.submit_s, first.duration_s) == (
        "hel-04309",
        "u10",
        35,
        180,
    )
    assert [(role.replicas, role.gpus) for role in first.spec.roles] == [(1, 8)]
    assert first.gang_document(1000).spec.submitted_at == 1035


def test_jobs_without_gpus_are_left_out_and_a_column_that_is_missing_is_an_error(
    tmp_path: Path,
) -> None:
    path = tmp_path / "t.csv.gz"
    path.write_bytes(
        gzip.compress(b"job_id,vc,submit_s,duration_s,num_gpus\na,v,1,5,0\nb,v,2,5,1\n")
    )
    assert [one.name for one in read_trace(path).jobs] == ["b"]
    path.write_bytes(gzip.compress(b"job_id,vc,submit_s,duration_s,num_gpus\na/b,v,1,5,1\n"))
    with pytest.raises(ValueError, match="cannot be a name"):
        read_trace(path)


def test_pods_have_all_gpus_of_a_job_and_are_as_few_as_servers_allow() -> None:
    def sizes(gpus: int) -> list[tuple[object, int]]:
        return [(role.replicas, role.gpus) for role in roles_of(gpus)]

    assert [sizes(gpus) for gpus in (4, 16, 12)] == [[(1, 4)], [(2, 8)], [(2, 6)]]
    assert sizes(20) == [(2, 8), (1, 4)]


def test_a_part_of_a_trace_and_a_wish_for_near_places() -> None:
    trace = Trace.of("t", [job(f"j{i}", 100 * i, 8 + 8 * (i % 2)) for i in range(10)])
    part = trace.part(200, 500)
    assert [(one.name, one.submit_s) for one in part.jobs] == [("j2", 0), ("j3", 100), ("j4", 200)]
    assert [one.submit_s for one in trace.part(speedup=Fraction(3, 2)).jobs[:3]] == [0, 66, 133]
    near = Trace.of("t", [job("c", 0, 16, topology=GangTopology(required="block"))])
    assert near.preferring("rack") == near
    wished = [one.spec.topology.preferred for one in trace.preferring("rack").jobs[:2]]
    assert wished == [None, "rack"]
