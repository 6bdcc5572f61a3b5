"""``run --shadow`` and its journal: what is written where, and what becomes of damaged or lost records."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from event_truth import DAY_S
from run_bench import Benches, RunBench, events, nodes

from benchmarks.fortnight import START, Fortnight, Setting, kept, record
from models.documents.canonical import canonical_instance
from planner.read.inputs import instance_from_document, load
from planner.week.history import History
from planner.week.journal import KEY_FILE, Figures, Journal, append

pytest_plugins = ("run_fixtures",)

HOUR_S = 3600
SMALL = Setting(nodes=2, racks=1, gangs=8, days=2, every=HOUR_S, shapes=((1, 1, 4), (1, 1, 8)))
NONE = Figures(0, 0, 0, 0, 0, {}, 1)


@pytest.fixture
def bench(memory: Benches) -> RunBench:
    """Two nodes; gang a fits, big does not."""
    cluster = nodes(2)
    cluster.gang_of_pods("a", 1, gpus=8)
    cluster.gang_of_pods("big", 4, gpus=8)
    return memory(cluster)


def shadow(bench: RunBench, *options: str, code: int = 0) -> Any:  # noqa: ANN401
    journal = str(bench.folder / "journal")
    done = bench.verb("run", "--shadow", journal, "--budget", "2", *options)
    assert done.code == code, done.err
    return done


def records(folder: Path) -> list[dict[str, Any]]:
    """What the files hold, by other means than those of the program."""
    lines = [gzip.decompress(one.read_bytes()) for one in sorted(folder.glob("*.jsonl.gz"))]
    return [json.loads(line) for text in lines for line in text.splitlines()]


def test_a_shadow_only_reads_and_adds_one_record_a_round(bench: RunBench) -> None:
    metrics = bench.folder / "metrics.prom"
    begun = bench.asked()
    done = shadow(bench, "--metrics-file", str(metrics), "--log-format", "json")
    assert {call.method for call in bench.cluster.calls[begun:]} == {"GET"}
    assert events(done)[-1]["status"] == "recorded"
    assert events(done)[-1]["idle_gpus"] == {"now": 8.0, "restarts": 0.0, "no quotas": 0.0}
    assert 'gangplan_idle_gpus{if="now"} 8' in metrics.read_text()
    (one,) = records(bench.folder / "journal")
    assert one["figures"]["now"] == {
        "gpus": 8000, "proven": True, "gangs": [["default/a", 8000, ["n0"]]], "moved": [],
    }  # fmt: skip
    gangs = one["changes"]["gangs"]
    assert [each["metadata"]["name"] for each in gangs if "submittedAt" in each["spec"]] == [
        "a",
        "big",
    ]
    # nothing of a pod but where it belongs, and where it runs
    pods = [pod for gang in gangs for pod in gang["status"]["pods"]]
    assert pods
    assert all(set(pod) <= {"role", "index", "node", "gpus", "mode"} for pod in pods)


def test_a_record_has_what_changed_and_the_last_one_says_how_it_is(tmp_path: Path) -> None:
    made = kept(SMALL, tmp_path / "journal")
    for one in Journal(str(tmp_path / "journal")).rounds():
        assert one.state is not None
        now = one.record.time - START
        path = tmp_path / "cluster.json"
        items = made.documents(now)
        path.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
        read = load((str(path),), now=one.record.time).instance
        again = instance_from_document(one.state.document())
        assert canonical_instance(again)["gangs"] == canonical_instance(read)["gangs"]
        assert again.cluster.nodes == read.cluster.nodes
    first, *rest = records(tmp_path / "journal")[:24]
    assert first["changes"]["nodes"]
    assert not any("nodes" in one["changes"] for one in rest)


def report(cli: RunCli, folder: Path, *options: str, code: int = 0) -> Any:  # noqa: ANN401
    done = cli("report", str(folder), *options)
    assert done.code == code, done.err
    return done


def test_missed_rounds_are_a_gap_that_is_shown_and_damaged_records_a_note(
    tmp_path: Path, cli: RunCli
) -> None:
    folder, made = tmp_path / "journal", Fortnight(SMALL)
    missed = frozenset(range(10 * HOUR_S, 17 * HOUR_S, HOUR_S))
    assert record(made, folder, missed=missed) == 49 - 7
    whole = json.loads(report(cli, folder, "-o", "json").out)
    assert whole["gaps"] == [[START + 9 * HOUR_S, START + 17 * HOUR_S]]
    assert whole["covered"] == 48 - 8
    page = tmp_path / "page.html"
    said = report(cli, folder, "--out", str(page), "-o", "table").out
    gap = "2026-11-10T09:00:00Z to 2026-11-10T17:00:00Z, 8.0 hours"
    assert f"gap: {gap}" in said
    assert gap in page.read_text()
    # The last record of the first day is cut in its middle: the next day begins with a whole one.
    first = folder / "2026-11-10.jsonl.gz"
    first.write_bytes(first.read_bytes()[:-20])
    (folder / "2026-11-11.jsonl.gz.tmp").write_bytes(b"not ours")
    cut = json.loads(report(cli, folder, "-o", "json").out)
    assert cut["rounds"] == whole["rounds"] - 1
    (note,) = cut["remarks"]
    assert re.fullmatch(r"2026-11-10.jsonl.gz: [\d,]+ bytes after its last whole record .*", note)


def retold(tmp_path: Path, change: Callable[[list[Any]], list[Any]]) -> Path:
    """The journal with other gangs."""
    kept(SMALL, tmp_path / "made")
    for one in Journal(str(tmp_path / "made")).rounds():
        assert one.state is not None
        tree, time = one.state.document(), one.record.time
        tree["gangs"] = change(tree["gangs"])
        append(tmp_path / "told", time, tree, NONE, keep_s=10**9, anonymize=False)
    return tmp_path / "told"


def test_a_gang_came_with_its_last_pod_while_it_waits_and_with_its_first_once_it_runs(
    tmp_path: Path, cli: RunCli
) -> None:
    first = {"submittedAt": "2026-11-09T23:59:59Z"}
    told = retold(
        tmp_path,
        lambda gangs: [
            {**gang, "spec": gang["spec"] | (first if gang["status"]["pods"] else {})}
            for gang in gangs
        ],
    )
    starts = [
        [(one["gang"], one["started"]) for one in json.loads(done.out)["schedule"]]
        for done in (report(cli, one, "-o", "json") for one in (tmp_path / "made", told))
    ]
    assert starts[0] == starts[1]


def test_who_left_unseen_ran_from_one_round_to_the_next_at_most(
    tmp_path: Path, cli: RunCli
) -> None:
    told = retold(tmp_path, lambda gangs: [one for one in gangs if not one["status"]["pods"]])
    found = json.loads(report(cli, told, "-o", "json").out)
    left = [one for one in found["schedule"] if one["gang"] in found["sureness"]["unseen"]]
    assert left
    assert all(one["wouldEnd"] == one["wouldStart"] + HOUR_S // 2 for one in left)


def test_a_round_cuts_off_what_the_last_one_left_half_written(tmp_path: Path) -> None:
    made = kept(SMALL, tmp_path)
    path = tmp_path / "2026-11-12.jsonl.gz"
    before, time = path.read_bytes(), START + 2 * DAY_S
    path.write_bytes(before + before[: len(before) // 2])
    document = tmp_path / "cluster.json"
    items = made.documents(2 * DAY_S)
    document.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": items}))
    tree = canonical_instance(load((str(document),)).instance)
    _, size, cut = append(tmp_path, time + 60, tree, NONE, keep_s=10**9, anonymize=False)
    assert cut
    assert path.stat().st_size == len(before) + size
    journal = Journal(str(tmp_path))
    assert [one.record.time for one in journal.rounds()][-2:] == [time, time + 60]
    assert journal.remarks == []


def test_the_journal_of_the_demo_is_whole() -> None:
    journal = Journal("benchmarks/week")
    history = History.of(journal.rounds())
    assert journal.remarks == []
    assert len(history.rounds) == 1000  # of 1,009, nine of which were missed: one gap
    assert [end - start for start, end in history.gaps()] == [10 * 1200]
    assert len(history.lives) == 299  # the last one came after the end


def test_days_are_forgotten_after_their_time(tmp_path: Path) -> None:
    kept(SMALL, tmp_path)
    (tmp_path / "notes.txt").write_text("mine")
    tree = canonical_instance(load(("inputs/elastic",)).instance)
    append(tmp_path, START + 3 * DAY_S, tree, NONE, keep_s=DAY_S, anonymize=False)
    assert sorted(path.name for path in tmp_path.iterdir()) == [
        "2026-11-12.jsonl.gz",
        "2026-11-13.jsonl.gz",
        "notes.txt",
    ]


def test_an_anonymous_journal_has_no_name_and_the_same_figures(
    bench: RunBench, cli: RunCli
) -> None:
    folder = bench.folder / "journal"
    for name, value in (("team", "secret-team"), ("kubernetes.io/hostname", "n0")):
        bench.patch("/api/v1/nodes/n0", {"metadata": {"labels": {name: value}}})
    shadow(bench, "--anonymize")
    text = gzip.decompress(next(folder.glob("*.gz")).read_bytes()).decode()
    for name in ('"n0"', '"n1"', '"a"', "big", '"namespace":"default"', "secret-team"):
        assert name not in text, name
    (one,) = records(folder)
    assert one["figures"]["now"]["gpus"] == 8000
    ((gang, _, (node,)),) = one["figures"]["now"]["gangs"]
    assert node in {each["name"] for each in one["changes"]["nodes"]}
    told = [
        f"{g['metadata']['namespace']}/{g['metadata']['name']}" for g in one["changes"]["gangs"]
    ]
    assert gang in told
    alone = json.loads(report(cli, folder, "-o", "json").out)  # what one round says of hours
    assert {(one["gpuHours"], one["proof"]) for one in alone["losses"]} == {(0, "at least")}
    assert alone["remarks"] == ["no two rounds follow each other: no GPU-hours are counted"]
    assert (folder / KEY_FILE).stat().st_mode & 0o077 == 0


class Elements(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[str] = []

    def handle_starttag(self, tag: str, attrs: object) -> None:
        del attrs
        self.found.append(tag)


def edited(tmp_path: Path, old: bytes, new: bytes) -> Path:
    """A journal in which somebody has written."""
    kept(SMALL, tmp_path / "journal")
    path = tmp_path / "journal" / "2026-11-10.jsonl.gz"
    text = gzip.decompress(path.read_bytes())
    assert old in text
    lines = text.replace(old, new).splitlines()
    path.write_bytes(b"".join(gzip.compress(line + b"\n") for line in lines))
    return tmp_path / "journal"


def test_records_after_one_that_is_none_wait_for_the_next_whole_one(
    tmp_path: Path, cli: RunCli
) -> None:
    folder = edited(tmp_path, b'{"time":%d,' % (START + 20 * HOUR_S), b'{"time":"noon",')
    found = json.loads(report(cli, folder, "-o", "json").out)
    assert found["rounds"] == 49 - 4  # those of 20:00 to 23:00; at midnight a file begins
    assert found["gaps"] == [[START + 19 * HOUR_S, START + DAY_S]]
    assert found["remarks"] == [
        "2026-11-10.jsonl.gz: a record is none, and left out",
        "3 records left out: one before is missing",
    ]


def test_what_strangers_write_does_nothing_on_the_page(tmp_path: Path, cli: RunCli) -> None:
    folder = edited(tmp_path, b'"stranded":{"node":', b'"stranded":{"<img src=x>":')
    report(cli, folder, "--out", str(tmp_path / "page.html"))
    page, seen = (tmp_path / "page.html").read_text(), Elements()
    seen.feed(page)
    assert "&lt;img src=x&gt;" in page
    assert "img" not in seen.found


def test_a_document_that_is_none_is_one_error(tmp_path: Path, cli: RunCli) -> None:
    folder = edited(tmp_path, b"job-001", b"<job>-001")
    done = report(cli, folder, code=65)
    assert done.err.splitlines() == [
        "error: a document of the journal is none: metadata.name: '<job>-001' cannot be a name",
        f"  --> {folder}",
        "hint: letters, digits, '-', '_' and '.', with a letter or digit at both ends",
    ]


def test_what_is_no_journal_is_one_error_with_its_place(tmp_path: Path, cli: RunCli) -> None:
    (tmp_path / "2026-11-10.jsonl.gz").write_bytes(b"\x1f\x8b and more")
    done = report(cli, tmp_path, code=65)
    assert done.err.splitlines() == [
        "error: no journal: no file here has a record that can be read",
        f"  --> {tmp_path}",
        "hint: a journal is the folder that `gangplan run --shadow FOLDER` writes",
    ]
    assert done.out == ""


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--restarts", "2"), "error: --restarts without --shadow"),
        (("--anonymize",), "error: --anonymize without --shadow"),
        (("--shadow", "x", "--watch"), "error: --shadow does not watch"),
        (("--shadow", "x", "--allow-evictions"), "error: --allow-evictions with --shadow"),
        (("--shadow", "x", "--max-evictions", "0"), "error: --max-evictions with --shadow"),
        (("--shadow", "x", "--keep", "soon"), "error: "),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    options: tuple[str, ...], said: str, cli: RunCli
) -> None:
    done = cli("run", *options)
    assert done.code == 64
    assert done.err.startswith(said)
