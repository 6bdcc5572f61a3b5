"""Traces of files: ours there and back, the published tables row by row, and files that mean harm."""

from __future__ import annotations

import gzip
import json
import time
from collections.abc import Callable
from fractions import Fraction
from pathlib import Path

import pytest
from effort import examples
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.lab import rows
from benchmarks.lab.formats import GPU_MODEL_LABEL, roles_of
from benchmarks.lab.trace import Job, Trace
from benchmarks.lab.trace_document import ObservedDocument, worker
from benchmarks.lab.trace_files import read_trace
from models.documents.gang import GangSpec, GangTopology
from planner.errors import Fault, InputError

INPUTS = Path(__file__).parent.parent / "benchmarks" / "lab" / "traces"

TABLES = (
    ("job_id,submit_time,gpu_num,duration,start_time,vc", "a,2020-04-01 08:00:00,8,60,2020-04-01 09:00:00,v"),
    ("job_id,submit_s,num_gpus,duration_s,user", "a,5,2,3600,u1"),
    ("job_id,submission_time,num_gpu,duration", "a,5,16,3600"),
    (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time",
        "pod-1,6000,12288,1,1000,V100M16|V100M32,LS,Running,5,100,7",
    ),
)  # fmt: skip

Write = Callable[[str], Path]


@pytest.fixture
def write(tmp_path: Path) -> Write:
    """Write a file; its path."""

    def write(text: str) -> Path:
        path = tmp_path / "trace.csv"
        path.write_text(text, encoding="utf-8")
        return path

    return write


def faults_of(path: Path) -> list[tuple[str, int | None, int | None]]:
    """(what, line, column) of everything that is wrong with a file."""
    with pytest.raises(InputError) as raised:
        read_trace(str(path))
    assert all(fault.file == str(path) for fault in raised.value.faults)
    return [(fault.what, fault.line, fault.column) for fault in raised.value.faults]


def sizes(job: Job) -> list[tuple[int, int]]:
    """(pods, GPUs of each) of the roles of a job."""
    return [(role.span[0], role.gpus) for role in job.spec.roles]


def test_the_short_form_is_one_role_and_is_kept(write: Write) -> None:
    text = json.dumps(
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Trace",
            "metadata": {"name": "two"},
            "spec": {
                "jobs": [
                    {"name": "b", "submitSeconds": 9, "durationSeconds": 5, "pods": 2, "gpus": 4},
                    {"name": "a", "submitSeconds": 3, "durationSeconds": 7, "pods": 1, "gpus": 0},
                ]
            },
        }
    )
    trace = read_trace(str(write(text)))
    assert [(job.name, job.pods, job.duration_s) for job in trace.jobs] == [
        ("a", 1, 7),
        ("b", 2, 5),
    ]
    assert trace.jobs[1].document().to_json() == json.loads(text)["spec"]["jobs"][0]


JOB = {"name": "a", "submitSeconds": 0, "durationSeconds": 5, "pods": 1, "gpus": 1}


@pytest.mark.parametrize(
    ("change", "what"),
    [
        ({"gpus": None}, "spec.jobs[0]: a job without roles"),
        ({"roles": [{"name": "w", "replicas": 1, "gpus": 1}]}, "both `pods` and `roles`"),
        ({"submittedAt": "2026-01-01T00:00:00Z"}, "spec.jobs[0].submittedAt: submittedAt in a job"),
        ({"submitSeconds": -1}, "spec.jobs[0].submitSeconds: the number -1 is too small"),
        ({"submitSeconds": 10**11}, "the number 100000000000 is too large"),
        ({"durationSeconds": 0.5}, "expected a whole number"),
        ({"name": "<script>"}, "'<script>' cannot be a name"),
        ({"colour": 1}, "unknown field 'colour'"),
        ({"pods": 0}, "spec.jobs[0].pods: the number 0 is too small"),
    ],
)
def test_a_job_that_cannot_be_is_one_error_at_its_place(
    write: Write, change: dict[str, object], what: str
) -> None:
    job = {name: value for name, value in (JOB | change).items() if value is not None}
    head = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Trace", "metadata": {"name": "t"}}
    path = write(json.dumps({**head, "spec": {"jobs": [job]}}, indent=0))
    ((said, line, _),) = faults_of(path)
    assert what in said
    assert line is not None
    assert line > 8  # below the head of the document


def test_two_jobs_of_one_name_and_documents_of_other_kinds_are_refused(write: Write) -> None:
    head = {"apiVersion": "gangplan.dev/v1alpha1", "kind": "Trace", "metadata": {"name": "t"}}
    twice = write(json.dumps({**head, "spec": {"jobs": [JOB, JOB, JOB]}}))
    assert [what for what, _, _ in faults_of(twice)] == [
        "spec.jobs[1].name: two jobs are named 'default/a'"
    ]
    for text, what in (
        ("kind: Gang\napiVersion: gangplan.dev/v1alpha1\n", "not a Trace: kind is 'Gang'"),
        (
            "kind: Trace\n",
            "apiVersion: nothing is not read for kind Trace",
        ),
        ("[]", "expected one Trace, not a list"),
        ('{"kind": "Trace", "kind": "Trace"}', "the field 'kind' appears twice"),
        ('{"kind": "Tra', "not JSON: unterminated string starting"),
        ('{"a": ' * 100 + "1" + "}" * 100, "not a Trace: it has no kind"),
    ):
        ((said, _, _),) = faults_of(write(text))
        assert what in said


# The first rows of the real files, worked out by hand.


def test_helios_as_it_was_published(write: Write) -> None:
    # The example of its README, with a job that never started and one without GPUs.
    trace = read_trace(
        str(
            write(
                "job_id,user,vc,jobname,gpu_num,cpu_num,node_num,state,submit_time,start_time,"
                "end_time,duration,queue\n"
                "1425511,uXBbc,vcJkd,a,1,1,1,COMPLETED,2020-06-09 18:41:01,2020-06-09 18:41:01,"
                "2020-06-10 04:55:09,36848,0\n"
                '1425513,uzqls,vcpDC,"x, ""y""",16,1,2,CANCELLED,2020-06-09 18:41:28,'
                "2020-06-09 18:41:30,2020-06-17 14:15:21,675233,2\n"
                "1425514,uzqls,vcpDC,b,8,1,1,CANCELLED,2020-06-09 18:42:00,None,None,,0\n"
                "1425515,uzqls,vcpDC,c,0,1,1,COMPLETED,2020-06-09 18:43:00,None,None,5,0\n"
            )
        )
    )
    first, second = trace.jobs
    assert (first.name, first.spec.queue, first.namespace) == ("1425511", "vcJkd", "vcJkd")
    assert (first.submit_s, first.duration_s, sizes(first)) == (0, 36848, [(1, 1)])
    assert (second.submit_s, second.duration_s, sizes(second)) == (27, 675233, [(2, 8)])
    assert second.observed == ObservedDocument.model_construct(started_seconds=29)
    assert trace.starts_at == 1591728061  # date -u -d '2020-06-09 18:41:01' +%s
    assert trace.left_out == (("without GPUs", 1), ("without a time of arrival or an end", 1))
    assert "CC BY 4.0" in str(trace.source)


def test_helios_and_philly_of_the_inputs() -> None:
    helios = read_trace(str(INPUTS / "helios" / "week.csv.gz"))
    assert (helios.name, len(helios.jobs), helios.left_out) == ("Helios", 4675, ())
    philly = read_trace(str(INPUTS / "philly" / "week.csv.gz"))
    assert (philly.name, len(philly.jobs)) == ("Philly", 14167)
    for trace, gpus, load in ((helios, 1024, 0.60), (philly, 496, 1.25)):
        assert max(job.submit_s for job in trace.jobs) < 7 * 86400
        work = sum(pods * each * job.duration_s for job in trace.jobs for pods, each in sizes(job))
        assert work / (gpus * 7 * 86400) == pytest.approx(load, abs=0.005)
    with gzip.open(INPUTS / "philly" / "week.csv.gz", "rt") as stream:
        header, row = next(stream), next(stream).strip().split(",")
    assert header == "job_id,vc,submit_s,duration_s,num_gpus\n"
    job = philly.jobs[0]
    assert [job.name, job.spec.queue, job.submit_s, job.duration_s, sum(p * g for p, g in sizes(job))] == [
        row[0], row[1], int(row[2]), int(row[3]), int(row[4]),
    ]  # fmt: skip


def test_openb_has_requests_models_and_pods_that_are_left_out(write: Write) -> None:
    head = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
    )
    trace = read_trace(
        str(
            write(
                head + "openb-pod-0000,12000,16384,1,1000,,LS,Running,0,12537496,10\n"
                "openb-pod-0001,6000,12288,1,460,,LS,Running,427061,12902960,427061\n"
                "openb-pod-0002,1500,64,8,1000,V100M32|V100M16,BE,Running,5,100,\n"
                "openb-pod-0003,1500,64,0,0,,BE,Running,5,100,7\n"
            )
        )
    )
    first, second = trace.jobs
    # It arrives at 0, starts at 10, ends at 12,537,496.
    assert (first.submit_s, first.duration_s, first.spec.queue) == (0, 12537486, "LS")
    assert first.spec.roles[0].requests == {"cpu": 12_000, "memory": 16 * 2**30}
    assert (second.submit_s, second.duration_s, sizes(second)) == (5, 95, [(1, 8)])
    ((term,),) = second.spec.roles[0].node_affinity
    assert (term.key, term.values) == (GPU_MODEL_LABEL, ("V100M16", "V100M32"))
    assert second.spec.roles[0].requests["cpu"] == 1500
    assert trace.left_out == (("with a part of a GPU", 1), ("without GPUs", 1))


@given(st.integers(1, 2000), st.sampled_from([1, 2, 4, 8, 16]))
def test_pods_have_all_gpus_of_a_job_and_are_as_few_as_servers_allow(
    gpus: int, node_gpus: int
) -> None:
    roles = roles_of(gpus, node_gpus)
    assert sum(role.span[0] * role.gpus for role in roles) == gpus
    assert max(role.gpus for role in roles) <= node_gpus
    assert sum(role.span[0] for role in roles) == -(-gpus // node_gpus)
    assert len(roles) == 1 or gpus % -(-gpus // node_gpus)


PHILLY = "job_id,vc,submit_s,duration_s,num_gpus\n"


@pytest.mark.parametrize(
    ("row", "what", "column"),
    [
        ("a,v,-5,7,1", "submit_s: expected a number of zero or more, not '-5'", 5),
        ("a,v,5,seven,1", "duration_s: expected a number of zero or more, not 'seven'", 7),
        ("a,v,5,7,1e9", "num_gpus: expected a number of zero or more, not '1e9'", 9),
        ("a,v,5,7,", "num_gpus: expected a number of zero or more, not ''", 9),
        ("a,v,5,7,2000000", "num_gpus: 2,000,000 is too large", 9),
        ("a,v,99999999999,7,1", "submit_s: 99,999,999,999 is too large", 5),
        ('"a b", v ,5,7,1', "job_id: 'a b' cannot be a name", 1),
        ("a,../../etc,5,7,1", "vc: '../../etc' cannot be a name", 3),
        ("a,v,5,7", "4 fields in a table of 5 columns", 1),
        ("a,v,2020-01-01,7,1", "submit_s: a date in a table of other times", 5),
        ("a,v,5,7,1\0", "the control character \\0 in a table", 10),
        ('a,"v,5,7,1', "a quote that is not closed, or text behind one", 3),
        ("z,v,9,9,1", "job_id: z is also in line 2", 1),
        ("\x1b[31m,v,5,7,1", "job_id: '\\x1b[31m' cannot be a name", 1),
    ],
)
def test_a_bad_row_is_an_error_with_line_and_column(
    write: Write, row: str, what: str, column: int
) -> None:
    path = write(PHILLY + "z,v,1,1,1\n" + row + "\n")
    assert faults_of(path) == [(what, 3, column)]


OPENB = TABLES[-1][0]


def test_other_tables_and_empty_ones_are_refused(write: Write) -> None:
    ((what, line, _),) = faults_of(write("time,machineId,gpu0_util\n1,2,3\n"))
    assert what.startswith("no table of jobs")
    assert line == 1
    ((what, _, _),) = faults_of(write("job_id,vc,submit_s,num_gpus\na,v,1,1\n"))
    assert what == "a table like that of Philly, but without duration_s"
    assert faults_of(write("a,b,a\n")) == [("two columns are named 'a'", 1, 5)]
    assert faults_of(write(PHILLY))[0][0] == "no job of this table can be replayed"
    ((what, _, _),) = faults_of(write(PHILLY + "a,v,1,,1\nb,v,1,1,0\n"))
    assert what.endswith("1 without a time of arrival or an end, 1 without GPUs")
    assert faults_of(write(""))[0][0].startswith("no table of jobs")


def test_a_line_without_end_is_refused_at_once(tmp_path: Path) -> None:
    """A gigabyte that a few kilobytes unpack to is not read: the first long line ends the reading."""
    path = tmp_path / "bomb.csv.gz"
    with gzip.open(path, "wb", compresslevel=1) as stream:
        stream.write(PHILLY.encode())
        for _ in range(40):
            stream.write(b"a" * 2**20)
    begun = time.monotonic()
    assert faults_of(path) == [("a line of more than 65,536 characters", 2, 1)]
    assert time.monotonic() - begun < 5


def test_rows_without_end_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rows, "MAX_ROWS", 1000)
    path = tmp_path / "many.csv.gz"
    with gzip.open(path, "wb") as stream:
        stream.write(PHILLY.encode() + b"\n" * 5000)
    assert faults_of(path) == [("more than 1,000 lines", 1002, 1)]


def test_a_part_of_a_trace() -> None:
    spec = GangSpec(roles=(worker(1, 4),))
    jobs = [Job(f"j{i}", "n", 100 * i, 10, spec) for i in range(10)]
    trace = Trace.of("t", jobs, starts_at=1000)
    part = trace.between(200, 500)
    assert [(job.name, job.submit_s) for job in part.jobs] == [("j2", 0), ("j3", 100), ("j4", 200)]
    assert part.starts_at == 1200
    fast = trace.sped_up(Fraction(3, 2))
    assert [job.submit_s for job in fast.jobs[:3]] == [0, 66, 133]


def test_gangs_of_several_pods_prefer_a_level_unless_they_ask_for_one() -> None:
    two, one = GangSpec(roles=(worker(2, 8),)), GangSpec(roles=(worker(1, 8),))
    block = GangTopology(required="block")
    near = two.model_copy(update={"topology": block})
    jobs = [Job("a", "n", 0, 1, two), Job("b", "n", 1, 1, one), Job("c", "n", 2, 1, near)]
    first, second, third = Trace.of("t", jobs).preferring("rack").jobs
    assert (first.spec.topology.preferred, first.spec.topology.required) == ("rack", None)
    assert (second, third.spec) == (jobs[1], near)


NODES_OF_OPENB = """sn,cpu_milli,memory_mib,gpu,model
openb-node-0227,32000,262144,0,
openb-node-0228,128000,786432,8,G3
openb-node-0229,96000,786432,8,V100M32
"""
"""The first lines of openb_node_list_all_node.csv with each kind of row."""

PODS_OF_OPENB = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,\
scheduled_time
openb-pod-0017,88000,327680,8,1000,,Burstable,Succeeded,9437497,9440497,9437497
openb-pod-0022,4000,15258,1,220,,BE,Running,9479175,9973826,9479175
openb-pod-0035,16000,32768,1,1000,V100M16|V100M32,LS,Running,9437500,9438500,9437503
openb-pod-0036,16000,32768,1,1000,T4,LS,Running,9437500,9438500,9437503
"""


ODD = (
    "\t", "V100\tM16", "\x01", "a\x7fb", "a\x00b", "\x1b[2J", "\u202e", "\ud7ff", " ", "", '"', '"a', '""',
    '"a,b"', '"\n"', "|", "||", "a||b", "-1", "-", "--", "9" * 12, "9" * 13, "9" * 5000, "1e9", "0.5", "inf",
    "NaN", "None", "\u00b2", "\u0663", "2020-04-01 08:00:00", "1970-01-01T00:00:00+23:59", "9999-12-31 23:59",
    "9999-12-31T23:59:59-23:59", "2020-13-01", "2020-W10", "0001-01-01", "a" * 64, "a" * 300, "=1+1", "[",
)  # fmt: skip
HOSTILE = st.one_of(st.sampled_from(ODD), st.text(max_size=6))


@st.composite
def tables(draw: st.DrawFn, known: tuple[tuple[str, str], ...]) -> bytes:
    """Rows as clusters write them, but for a cell or two, and sometimes for bytes that are no text."""
    head, ordinary = draw(st.sampled_from(known))
    lines = [head]
    for number in range(draw(st.integers(1, 3))):
        cells = ordinary.split(",")
        cells[0] += str(number)
        for _ in range(draw(st.integers(0, 2))):
            cells[draw(st.integers(0, len(cells) - 1))] = draw(HOSTILE)
        lines.append(",".join(cells))
    text = draw(st.sampled_from(["\n", "\r\n"])).join(lines).encode("utf-8")
    at = draw(st.integers(0, 4 * len(text)))
    return text if at >= len(text) else text[:at] + draw(st.binary(max_size=3)) + text[at:]


def refused_or_read(read: Callable[[str], object], path: Path) -> object:
    """What is read; None if it was refused with a place and without a traceback."""
    faults: tuple[Fault, ...]
    try:
        return read(str(path))
    except InputError as refused:
        faults = refused.faults
    assert faults
    assert {fault.file for fault in faults} == {str(path)}
    return None


def check_jobs(text: bytes, path: Path) -> None:
    path.write_bytes(text)
    trace = refused_or_read(read_trace, path)
    if isinstance(trace, Trace):  # what is read can be written, read again and planned
        path.with_suffix(".json").write_text(json.dumps(trace.document().to_json()))
        assert isinstance(read_trace(str(path.with_suffix(".json"))), Trace)
        assert [job.gang_document(0) for job in trace.jobs]


def test_whatever_one_cell_of_a_table_holds_it_is_read_or_refused(tmp_path: Path) -> None:
    for head, ordinary in TABLES:
        for place in range(head.count(",") + 1):
            for odd in ODD:
                cells = ordinary.split(",")
                cells[place] = odd
                check_jobs(f"{head}\n{','.join(cells)}\n".encode(), tmp_path / "table.csv")


@settings(
    max_examples=examples(3_000, 150), suppress_health_check=[HealthCheck.function_scoped_fixture]
)
@given(text=tables(TABLES))
def test_whatever_stands_in_a_table_of_jobs_it_is_read_or_refused(
    text: bytes, tmp_path: Path
) -> None:
    check_jobs(text, tmp_path / "jobs.csv")
