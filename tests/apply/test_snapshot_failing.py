"""``gangplan snapshot`` where something goes wrong: servers, kubectl, folders, disks."""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

import pytest
from apiserver_http import RawAnswer
from apiserver_recorded import status
from conftest import RunCli
from kube import node, pod
from snapshots import Cluster, cluster, environment, files, small

from planner.cluster import snapshot as folder
from planner.cluster.pages import list_objects
from planner.cluster.transport import JSON, LOST, TOO_LONG, Reply
from planner.read.inputs import load

Tree = dict[str, Any]

PODS = "/api/v1/pods"


@pytest.fixture
def tiny(tmp_path: Path, cli: RunCli) -> Iterator[Cluster]:
    with cluster(small(), tmp_path, cli) as served:
        yield served


@pytest.fixture(autouse=True)
def no_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Tries follow each other at once."""
    monkeypatch.setattr("planner.cluster.retry.WAITS_S", (0.0, 0.0, 0.0))


def untouched(cluster: Cluster) -> bool:
    """Whether nobody asked the server for anything; some builds of kubectl ask for its version."""
    return {request.path for request in cluster.server.requests} <= {"/version"}


def whole(cluster: Cluster) -> bool:
    return [pod["metadata"]["name"] for pod in files(cluster.out)["pods.json"]["items"]] == [
        "p1",
        "p2",
        "p3",
    ]


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


@pytest.mark.parametrize("name", TRANSIENT)
def test_what_may_pass_is_asked_again_and_counted(name: str, tiny: Cluster) -> None:
    tiny.server.fail(PODS, TRANSIENT[name])
    result = tiny.snapshot()
    assert result.code == 0, result.err
    assert whole(tiny)
    assert "1 request sent again\n" in result.err


@pytest.mark.parametrize("name", TRANSIENT)
def test_what_does_not_pass_is_69_and_leaves_nothing(name: str, tiny: Cluster) -> None:
    tiny.server.refuse(PODS, TRANSIENT[name])
    result = tiny.snapshot()
    assert result.code == 69
    lines = result.err.splitlines()
    assert lines[0].startswith("error: GET /api/v1/pods: ")
    assert lines[1] == "hint: try again; if it persists, look at the API server"
    assert len(lines) == 2
    assert len(tiny.server.asked(PODS)) == 4
    assert tiny.litter() == []


def test_an_object_whose_number_no_server_writes_ends_the_recording(tiny: Cluster) -> None:
    pods = b'{"kind":"PodList","items":[{"metadata":{"name":"p"},"spec":{"priority":1e999}}]}'
    tiny.server.refuse(PODS, RawAnswer(200, pods))
    result = tiny.snapshot()
    assert result.code == 69
    assert "an object of a list: the answer is not whole JSON" in result.err
    assert tiny.litter() == []


def test_a_server_that_continues_with_the_same_page_for_ever_is_found_out(tiny: Cluster) -> None:
    page = {
        "kind": "PodList",
        "apiVersion": "v1",
        "metadata": {"resourceVersion": "1", "continue": "bW9yZQ"},
        "items": [],
    }
    tiny.server.refuse(PODS, RawAnswer(200, json.dumps(page, separators=(",", ":")).encode()))
    result = tiny.snapshot()
    assert result.code == 69
    assert "are not a list" in result.err
    assert tiny.litter() == []


def test_odd_items_of_a_list_are_left_out(tiny: Cluster) -> None:
    tiny.server.resource("pods").items[:] = [
        *tiny.server.resource("pods").items,
        None,
        "pod",
        [],
        {"metadata": "x", "spec": 5, "status": []},
        {"metadata": {"name": "kept"}, "spec": {"containers": {}, "volumes": [None, {"name": 5}]}},
    ]
    assert tiny.snapshot().code == 0
    names = [pod["metadata"]["name"] for pod in files(tiny.out)["pods.json"]["items"]]
    assert names == ["p1", "p2", "p3", "kept"]


@pytest.mark.slow
def test_slow_answers_end_at_the_time_out(tiny: Cluster) -> None:
    tiny.server.refuse(PODS, RawAnswer(200, b"{}", after_s=30))
    result = tiny.snapshot("--request-timeout", "1s")
    assert result.code == 69
    assert result.err.startswith("error: GET /api/v1/pods: no answer within 1 s\n")
    assert tiny.litter() == []


def test_an_unknown_context_is_69_in_kubectls_words(tiny: Cluster) -> None:
    result = tiny.snapshot("--context", "elsewhere")
    assert result.code == 69
    assert result.err.startswith(
        'error: kubectl proxy failed: context "elsewhere" does not exist\n'
    )
    assert untouched(tiny)


def test_without_kubectl_it_is_69_and_says_how_to_name_one(tiny: Cluster) -> None:
    result = tiny.snapshot(KUBECTL="", PATH=str(tiny.folder))
    assert result.code == 69
    assert result.err == (
        "error: kubectl is not a program that can be run\n"
        "hint: install kubectl, or name it: KUBECTL=/path/to/kubectl\n"
    )
    result = tiny.snapshot(KUBECTL="/nowhere/kubectl")
    assert result.code == 69
    assert result.err.startswith("error: $KUBECTL is /nowhere/kubectl, which is not a program")


def test_a_folder_that_is_not_empty_is_refused_before_anything_is_asked(tiny: Cluster) -> None:
    tiny.out.mkdir()
    (tiny.out / "pods.json").write_text("mine")
    result = tiny.snapshot()
    assert result.code == 73
    assert result.err == (
        f"error: cannot write {tiny.out}: the folder is not empty\n"
        "hint: name a new folder, or replace the snapshot in it with --force\n"
    )
    assert (tiny.out / "pods.json").read_text() == "mine"
    assert untouched(tiny)


def test_force_replaces_a_snapshot_whole(tiny: Cluster) -> None:
    tiny.out.mkdir()
    for name in ("pods.json", "jobsets.json"):
        (tiny.out / name).write_text("old")
    assert tiny.snapshot("--force").code == 0
    assert whole(tiny)
    assert sorted(files(tiny.out)) == ["namespaces.json", "nodes.json", "pods.json"]
    assert tiny.litter() == ["out"]


def test_the_old_snapshot_stays_when_the_new_one_fails(tiny: Cluster) -> None:
    tiny.out.mkdir()
    (tiny.out / "pods.json").write_text("old")
    tiny.server.refuse(PODS, TRANSIENT["500"])
    assert tiny.snapshot("--force").code == 69
    assert (tiny.out / "pods.json").read_text() == "old"
    assert tiny.litter() == ["out"]


def test_what_a_killed_run_left_behind_is_in_nobodys_way(tiny: Cluster) -> None:
    # In a container every run may have the same pid.
    left = tiny.out.with_name(f"out.partial-{os.getpid()}")
    left.mkdir()
    (left / "pods.json").write_text("half")
    assert tiny.snapshot().code == 0
    assert tiny.litter() == ["out", left.name]
    assert (left / "pods.json").read_text() == "half"


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("missing/out", "No such file or directory"),
        ("kubeconfig", "it is a file"),
        ("kubeconfig/out", "Not a directory"),
        (".", "it is in use"),
        ("/", "it is in use"),
        ("x" * 300, "File name too long"),
    ],
)
def test_places_that_cannot_be_written_are_73_before_anything_is_asked(
    out: str, why: str, tiny: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tiny.folder)
    result = tiny.cli("snapshot", "--out", out, environ=environment(tiny.folder))
    assert result.code == 73, result.err
    assert f": {why}\n" in result.err
    assert untouched(tiny)


def test_a_full_disk_leaves_nothing(tiny: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(_: folder.ListFile, items: Iterable[object]) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(folder.ListFile, "add", full)
    result = tiny.snapshot()
    assert result.code == 73
    assert "the disk is full" in result.err
    assert tiny.litter() == []


def test_the_old_snapshot_comes_back_when_the_last_rename_fails(
    tiny: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    tiny.out.mkdir()
    (tiny.out / "pods.json").write_text("old")
    rename = Path.rename

    def failing(self: Path, target: Path) -> Path:
        if ".partial-" in self.name:
            raise OSError(errno.EIO, "Input/output error")
        return rename(self, target)

    monkeypatch.setattr(Path, "rename", failing)
    result = tiny.snapshot("--force")
    assert result.code == 73
    assert (tiny.out / "pods.json").read_text() == "old"
    assert tiny.litter() == ["out"]


class NarrowServer:
    """Ten pods; a page of more than ``most`` is longer than an answer may be."""

    def __init__(self, most: int) -> None:
        self.most = most
        self.limits: list[int] = []

    def send(
        self, method: str, path: str, body: Tree | None = None, *, content_type: str = JSON
    ) -> Reply:
        del method, body, content_type
        query = parse_qs(path.partition("?")[2])
        limit, start = int(query["limit"][0]), int(query.get("continue", ["0"])[0])
        self.limits.append(limit)
        if limit > self.most:
            return Reply(LOST, {"reason": TOO_LONG}, why="the answer is larger than the limit")
        end = min(start + limit, 10)
        metadata = {"continue": str(end)} if end < 10 else {}
        return Reply(
            200, {"items": [{"number": n} for n in range(start, end)], "metadata": metadata}
        )


def test_a_page_that_is_too_long_is_asked_for_in_smaller_ones() -> None:
    server = NarrowServer(most=4)
    found = list_objects(server, PODS)
    assert [one["number"] for one in found] == list(range(10))
    # 500 halved until it fits, and never larger again
    assert server.limits == [500, 250, 125, 62, 31, 15, 7, 3, 3, 3, 3]


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
    server.resource("nodes").items = [node("n1")]
    server.resource("pods").items = [victim, *others, done]
    with cluster(server, tmp_path, cli) as served:
        result = served.snapshot()
        assert result.code == 0, result.err
    found = load([str(served.out)])
    gpus = {gang.name: gang.roles[0].gpus for gang in found.instance.gangs}
    assert gpus == {"victim": 2, "labels": 1, "notes": 1, "commas": 1, "selector": 1}
    about = {name: [line for line in found.remarks if name in line] for name in (*gpus, "done")}
    assert {name for name, lines in about.items() if lines} == {"labels", "notes", "selector"}
