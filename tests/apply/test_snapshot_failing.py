"""``gangplan snapshot`` where something goes wrong: servers, kubectl, folders, disks."""

from __future__ import annotations

import errno
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import SimpleNamespace
from urllib.parse import parse_qs

import pytest
from apiserver_http import RawAnswer
from conftest import RunCli
from kube import node, pod
from snapshots import Cluster, cluster, environment, files, in_memory, small, status

from planner.cluster import snapshot as folder
from planner.cluster.pages import list_objects
from planner.cluster.transport import LOST, TOO_LONG, Reply
from planner.read.inputs import load

PODS = "/api/v1/pods"


@pytest.fixture
def tiny(tmp_path: Path, cli: RunCli) -> Iterator[Cluster]:
    with cluster(small(), tmp_path, cli) as served:
        yield served


@pytest.fixture
def held(tmp_path: Path, cli: RunCli) -> Iterator[Cluster]:
    with in_memory(small(), tmp_path, cli) as found:
        yield found


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr("planner.cluster.retry.WAITS_S", (0.0, 0.0, 0.0))


def names(cluster: Cluster) -> list[str]:
    return [pod["metadata"]["name"] for pod in files(cluster.out)["pods.json"]["items"]]


def whole(cluster: Cluster) -> bool:
    return names(cluster) == ["p1", "p2", "p3"]


TRANSIENT = {
    "500": status(500, "InternalError", "etcdserver: leader changed"),
    "503": status(
        503, "ServiceUnavailable", "the server is currently unable to handle the request"
    ),
    "504": status(504, "Timeout", "Timeout: request did not complete within requested timeout"),
    "429": status(429, "TooManyRequests", "Too many requests, please try again later."),
    "a proxy's page": RawAnswer(502, b"<html><body>Bad Gateway</body></html>"),
    "half an answer": RawAnswer(200, b'{"kind":"PodList","items":[{"meta', missing=4000),
    "half an answer that looks whole": RawAnswer(200, b'{"kind":"PodList","items":[{"meta'),
    "nothing": RawAnswer(200, b""),
    "no object": RawAnswer(200, b"[]"),
    "no number": RawAnswer(200, b'{"kind":"PodList","items":[{"spec":{"priority":NaN}}]}'),
}


@pytest.mark.parametrize("first", range(0, len(TRANSIENT), 3))
def test_what_may_pass_is_asked_again_and_counted(first: int, tiny: Cluster) -> None:
    answers = list(TRANSIENT.values())[first : first + 3]
    tiny.server.fail(PODS, *answers)
    result = tiny.snapshot()
    assert result.code == 0, result.err
    assert whole(tiny)
    many = f"{len(answers)} requests" if len(answers) > 1 else "1 request"
    assert f"{many} sent again\n" in result.err


@pytest.mark.parametrize("name", ["503", "half an answer", "no object"])
def test_what_does_not_pass_is_69_and_leaves_the_old_snapshot(name: str, tiny: Cluster) -> None:
    tiny.out.mkdir()
    (tiny.out / "pods.json").write_text("old")
    tiny.server.refuse(PODS, TRANSIENT[name])
    result = tiny.snapshot("--force")
    assert result.code == 69
    lines = result.err.splitlines()
    assert lines[0].startswith("error: GET /api/v1/pods: ")
    assert lines[1:] == ["hint: try again; if it persists, look at the API server"]
    assert len(tiny.server.asked(PODS)) == 4
    assert (tiny.out / "pods.json").read_text() == "old"
    assert tiny.litter() == ["out"]


ENDLESS = b'{"kind":"PodList","apiVersion":"v1","metadata":{"continue":"bW9yZQ"},"items":[]}'
HUGE = b'{"kind":"PodList","items":[{"metadata":{"name":"p"},"spec":{"priority":1e999}}]}'


@pytest.mark.parametrize(
    ("answer", "said"),
    [
        (RawAnswer(200, HUGE), "an object of a list: the answer is not whole JSON"),
        (RawAnswer(200, ENDLESS), "are not a list"),
        (RawAnswer(200, b"{}", after_s=30), "error: GET /api/v1/pods: no answer within 1 s\n"),
    ],
    ids=["a number that no server writes", "the same page for ever", "too slow"],
)
def test_answers_that_end_the_recording(
    answer: RawAnswer, said: str, tiny: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    if answer.after_s:
        monkeypatch.setattr("planner.cluster.retry.WAITS_S", ())
    tiny.server.refuse(PODS, answer)
    result = tiny.snapshot("--request-timeout", "1s" if answer.after_s else "60s")
    assert result.code == 69
    assert said in result.err
    assert len(tiny.server.asked(PODS)) <= 2
    assert tiny.litter() == []


def test_odd_items_of_a_list_are_left_out(held: Cluster) -> None:
    held.server.lists["pods"][:] = [
        *held.server.lists["pods"],
        None,
        "pod",
        [],
        {"metadata": "x", "spec": 5, "status": []},
        {"metadata": {"name": "kept"}, "spec": {"containers": {}, "volumes": [None, {"name": 5}]}},
    ]
    assert held.snapshot().code == 0
    assert names(held) == ["p1", "p2", "p3", "kept"]


NO_KUBECTL = "error: kubectl is not a program that can be run\n"
NO_KUBECTL += "hint: install kubectl, or name it: KUBECTL=/path/to/kubectl\n"


@pytest.mark.parametrize(
    ("out", "options", "environ", "code", "said"),
    [
        ("out", "", {"KUBECTL": "", "PATH": "/nowhere"}, 69, NO_KUBECTL),
        (
            "out",
            "",
            {"KUBECTL": "/nowhere/k"},
            69,
            "error: $KUBECTL is /nowhere/k, which is not a pro",
        ),
        (
            "out",
            "--context elsewhere",
            {},
            69,
            'kubectl proxy failed: context "elsewhere" does not exi',
        ),
        ("full", "", {}, 73, "error: cannot write full: the folder is not empty\n"),
        (
            "full",
            "",
            {},
            73,
            "hint: name a new folder, or replace the snapshot in it with --force\n",
        ),
        ("missing/out", "", {}, 73, ": No such file or directory\n"),
        ("kubeconfig", "", {}, 73, ": it is a file\n"),
        ("kubeconfig/out", "", {}, 73, ": Not a directory\n"),
        (".", "", {}, 73, ": it is in use\n"),
        ("/", "", {}, 73, ": it is in use\n"),
        ("x" * 300, "", {}, 73, ": File name too long\n"),
    ],
)
def test_what_is_wrong_with_kubectl_or_the_folder_is_said_before_anything_is_asked(
    out: str,
    options: str,
    environ: dict[str, str],
    code: int,
    said: str,
    tiny: Cluster,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tiny.folder)
    Path("full").mkdir()
    Path("full/pods.json").write_text("mine")
    words = ("snapshot", "--out", out, *options.split())
    result = tiny.cli(*words, environ=environment(tiny.folder, **environ))
    assert result.code == code, result.err
    assert said in result.err
    assert Path("full/pods.json").read_text() == "mine"
    # Nobody asked the server for anything; some builds of kubectl ask for its version.
    assert {request.path for request in tiny.server.calls} <= {"/version"}


def test_force_replaces_a_snapshot_whole_and_leaves_what_a_killed_run_left(tiny: Cluster) -> None:
    # In a container every run may have the same pid.
    left = tiny.out.with_name(f"out.partial-{os.getpid()}")
    for place, name in ((tiny.out, "pods.json"), (tiny.out, "jobsets.json"), (left, "pods.json")):
        place.mkdir(exist_ok=True)
        (place / name).write_text("old")
    result = tiny.snapshot("--force")
    assert (result.code, result.out) == (0, "")
    lines = result.err.splitlines()
    assert lines[0] == "recorded context test: 2 nodes, 3 pods, 1 namespaces"
    assert lines[-2].startswith(f"saved {tiny.out} (0.0 MB in ")
    assert lines[-1] == f"next: gangplan plan {tiny.out}"
    assert whole(tiny)
    assert sorted(files(tiny.out)) == ["namespaces.json", "nodes.json", "pods.json"]
    assert tiny.litter() == ["out", left.name]
    assert (left / "pods.json").read_text() == "old"


def test_a_full_disk_leaves_nothing(held: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: folder.ListFile, items: Iterable[object]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder.ListFile, "add", full)
    result = held.snapshot()
    assert result.code == 73
    assert "the disk is full" in result.err
    assert held.litter() == []


def test_the_old_snapshot_comes_back_when_the_last_rename_fails(
    held: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    held.out.mkdir()
    (held.out / "pods.json").write_text("old")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".partial-" in self.name:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    result = held.snapshot("--force")
    assert result.code == 73
    assert (held.out / "pods.json").read_text() == "old"
    assert held.litter() == ["out"]


@pytest.mark.parametrize(
    ("most", "expires", "limits"),
    [
        # 500 halved until it fits, and never larger again
        (4, False, [500, 250, 125, 62, 31, 15, 7, 3, 3, 3, 3]),
        (500, True, [500, 500, 500]),
    ],
)
def test_a_list_whose_pages_are_too_long_or_expire_is_read_whole(
    most: int, expires: bool, limits: list[int]
) -> None:
    """Ten pods. ``most``: of those an answer may hold; ``expires``: the list does after its first page."""
    asked: list[int] = []

    def send(method: str, path: str, body: object = None, *, content_type: str = "") -> Reply:
        query = parse_qs(path.partition("?")[2])
        limit, start = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        asked.append(limit)
        if limit > most:
            return Reply(LOST, {"reason": TOO_LONG}, why="the answer is larger than the limit")
        if expires and start:
            return Reply(410)
        end = min(start + limit, 6 if expires and len(asked) == 1 else 10)
        metadata = {"continue": str(end)} if end < 10 else {}
        items = [{"number": number} for number in range(start, end)]
        return Reply(200, {"items": items, "metadata": metadata})

    found = list_objects(SimpleNamespace(send=send), PODS)
    assert [one["number"] for one in found] == list(range(10))
    assert asked == limits


def test_pods_past_every_bound_are_recorded_and_stop_nobody(tmp_path: Path, cli: RunCli) -> None:
    many = {f"k{i}": "v" for i in range(10_001)}
    victim = pod("victim", gpus=2, on="n1")
    others = [
        pod("labels", gpus=1, on="n1", labels=many),
        pod("notes", gpus=1, on="n1", annotations={f"gangplan.dev/{key}": "v" for key in many}),
        pod("commas", gpus=1, on="n1", annotations={"example.com/note": "," * 262_000}),
        pod("selector", gpus=1, on="n1", nodeSelector=many),
    ]
    done = pod("done", labels=many)
    done["status"]["phase"] = "Failed"
    server = small()
    server.lists["nodes"] = [node("n1")]
    server.lists["pods"] = [victim, *others, done]
    with in_memory(server, tmp_path, cli) as served:
        result = served.snapshot()
        assert result.code == 0, result.err
    found = load([str(served.out)])
    gpus = {gang.name: gang.roles[0].gpus for gang in found.instance.gangs}
    assert gpus == {"victim": 2, "labels": 1, "notes": 1, "commas": 1, "selector": 1}
    about = {name: [line for line in found.remarks if name in line] for name in (*gpus, "done")}
    assert {name for name, lines in about.items() if lines} == {"labels", "notes", "selector"}
