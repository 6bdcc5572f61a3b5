"""A large cluster: 1,000 nodes and 8,000 pods, recorded about as fast as kubectl alone reads them."""

from __future__ import annotations

import copy
import json
import subprocess
import time
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from apiserver_http import serving
from apiserver_recorded import RecordedServer
from effort import HANG_S
from interactive import started
from snapshots import environment, files, real_kubectl

from planner.read.kube.objects import belongs_to_nothing

NODES, PODS = 1_000, 8_000

PEAK = """
import atexit, pathlib
atexit.register(lambda: pathlib.Path("peak").write_text(
    pathlib.Path("/proc/self/status").read_text().partition("VmHWM:")[2].split()[0]))
"""
"""Writes the most memory the process ever had, in KiB."""


def large() -> RecordedServer:
    """The H100 cluster over and over; nodes with the fifty images that real ones list."""
    server = RecordedServer.of("h100-gke")
    server.cached = True
    images = [{"names": [f"registry.example.com/i-{i}@sha256:{i:064x}"]} for i in range(50)]
    for plural, count in (("nodes", NODES), ("pods", PODS)):
        resource = server.resource(plural)
        once = resource.items
        resource.items = [_copy(once[i % len(once)], i // len(once)) for i in range(count)]
    for node in server.resource("nodes").items:
        node["status"]["images"] = images
    return server


def _copy(item: dict[str, Any], number: int) -> dict[str, Any]:
    found = copy.copy(item)
    found["metadata"] = {**item["metadata"], "name": f"{item['metadata']['name']}-{number}"}
    found["metadata"]["uid"] = f"{item['metadata']['uid'][:-4]}{number:04x}"
    found["metadata"]["managedFields"] = [{"fieldsV1": {f"f:{i}": {} for i in range(300)}}]
    found["spec"] = dict(item["spec"])
    if "nodeName" in item["spec"]:
        found["spec"]["nodeName"] = f"{item['spec']['nodeName']}-{number}"
    found["status"] = dict(item["status"])
    return found


def paged_raw(folder: Path) -> float:
    """Seconds that ``kubectl get --raw`` takes for the same pages of nodes and pods, one by one."""
    begun = time.monotonic()
    for plural in ("nodes", "pods"):
        path = f"/api/v1/{plural}?limit=500"
        following = ""
        while following is not None:
            page = subprocess.run(
                [real_kubectl(), "get", "--raw", path + following],
                env=environment(folder),
                capture_output=True,
                check=True,
            ).stdout
            token = json.loads(page[: page.index(b',"items"')] + b"}")["metadata"].get("continue")
            following = f"&continue={quote(token, safe='')}" if token else None
    return time.monotonic() - begun


@pytest.mark.slow
def test_a_large_cluster_is_recorded_fast_in_bounded_memory(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = large()
    with serving(server, tmp_path, tls=False):
        for name, value in environment(tmp_path).items():
            monkeypatch.setenv(name, value)
        paged_raw(tmp_path)  # makes the answers
        alone = paged_raw(tmp_path)
        begun = time.monotonic()
        with started("snapshot", "--out", "out", before=PEAK, cwd=tmp_path) as process:
            _, err = process.communicate(timeout=HANG_S)
        took = time.monotonic() - begun
    assert process.returncode == 0, err
    served = sum(len(answer.body) for answer in server.answers.values())
    assert served > 60e6
    written = files(tmp_path / "out")
    left_out = sum(map(belongs_to_nothing, server.resource("pods").items))
    assert 0 < left_out < PODS / 100
    assert (len(written["nodes.json"]["items"]), len(written["pods.json"]["items"])) == (
        NODES,
        PODS - left_out,
    )
    # The thirteen other kinds, Python and pruning come on top, in part at the same time.
    assert took < 3 * alone + 5, (took, alone)
    peak_mib = int((tmp_path / "peak").read_text()) / 1024
    # The answers are 60 MB; the trees of all of them would be 500.
    assert peak_mib < 200
