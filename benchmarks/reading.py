"""What reading a cluster costs, as a multiple of ``json.loads`` of the same bytes.

    python -m benchmarks.reading [COPIES [COPIES OF NODES]]

The recorded cluster h100-gke, that many times (10: 10,440 pods, 44 MB), its nodes perhaps more often (96 130:
100,224 pods, 12,480 nodes): copies differ in the names of nodes and namespaces, in uids and in domains. Each
figure is of a process of its own, without kubectl and the judge; lists come from memory that is not counted.
"""

from __future__ import annotations

import gc
import gzip
import json
import multiprocessing
import re
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from urllib.parse import parse_qs, urlsplit

import msgspec

from models.instance.instance import Instance
from planner.cluster.live_view import ClusterReader
from planner.cluster.snapshot import LiveLists, SnapshotFolder, SnapshotRequest, read_lists, record
from planner.cluster.start_records import StartRecords
from planner.cluster.transport import Reply, Tree, list_object
from planner.pipelines.plan import uncollected
from planner.read.inputs import load
from planner.read.kube.kinds import ALL, Kind, file_name

RECORDED = Path(__file__).parent.parent / "inputs" / "snapshots" / "h100-gke"
ONCE = ("priorityclasses", "clusterqueues", "topologies", "resourceflavors", "daemonsets")
"""Lists of which one copy is enough: all copies name the same."""

_UID = re.compile(rb"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_NODE = re.compile(rb'"(gke-[a-z0-9-]+-[0-9a-f]{8}-[0-9a-f]{4})"')
_BLOCK = re.compile(rb'("cloud.google.com/gce-topology-(?:sub)?block":")[0-9a-f]{4}')
_NAMESPACE = re.compile(rb'"namespace":"([a-z0-9-]+)"')
_NAME = re.compile(rb'"(name|kubernetes.io/metadata.name)":"([a-z0-9-]+)"')


class _Listed(msgspec.Struct):
    items: list[msgspec.Raw]


def items_of(data: bytes) -> list[bytes]:
    return [bytes(one) for one in msgspec.json.decode(data, type=_Listed).items]


def multiplied(copies: int, folder: Path, nodes: int | None = None) -> None:
    """Write every list of the recorded cluster, so many times."""
    for path in sorted(RECORDED.glob("*.json*")):
        if path.name.startswith("expected"):
            continue
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        tree = json.loads(data)
        each = [json.dumps(one, separators=(",", ":")).encode() for one in tree.pop("items")]
        many = 1 if path.name.startswith(ONCE) else copies
        if path.name.startswith("nodes."):
            many = nodes or copies
        listed = [
            _copy(one, number, names=path.name.startswith("namespaces"))
            for number in range(many)
            for one in each
        ]
        head = json.dumps(tree)[:-1].encode()
        name = path.name.removesuffix(".gz")
        (folder / name).write_bytes(head + b',"items":[' + b",".join(listed) + b"]}")


def _copy(item: bytes, number: int, *, names: bool) -> bytes:
    if not number:
        return item
    mark = b"-c%03d" % number
    item = _UID.sub(lambda found: b"%04x" % number + found[0][4:], item)
    item = _NODE.sub(lambda found: b'"' + found[1] + mark + b'"', item)
    item = _NAMESPACE.sub(lambda found: b'"namespace":"' + found[1] + mark + b'"', item)
    if names:
        item = _NAME.sub(lambda found: b'"%b":"%b"' % (found[1], found[2] + mark), item)
    return _BLOCK.sub(lambda found: found[1] + b"%04x" % number, item)


class Server:
    """Answers lists from memory, page by page, as an API server does."""

    def __init__(self, folder: Path) -> None:
        self._lists: dict[tuple[str, str], tuple[Kind, list[bytes]]] = {}
        for kind in ALL:
            path = folder / file_name(kind)
            if path.exists():
                self._lists[kind.plural, kind.group] = kind, items_of(path.read_bytes())

    def send(self, method: str, path: str, body: Tree | None = None, **_: str) -> Reply:
        del method, body
        url = urlsplit(path)
        if path.startswith("/api/v1/namespaces/default/configmaps"):
            return Reply(200, list_object(b'{"kind":"ConfigMapList","metadata":{},"items":[]}'))
        parts, query = url.path.strip("/").split("/"), parse_qs(url.query)
        if parts[-1] == "kube-system":
            return Reply(200, {"kind": "Namespace", "metadata": {"name": parts[-1], "uid": "u"}})
        if parts == ["apis"]:
            groups = [
                {"name": group, "versions": [{"version": kind.versions[0]}]}
                for (_, group), (kind, _) in self._lists.items()
                if group
            ]
            return Reply(200, {"kind": "APIGroupList", "groups": groups})
        if parts[0] == "apis" and len(parts) == 3:
            served = [
                {"name": plural, "kind": kind.name, "verbs": ["list"]}
                for (plural, group), (kind, _) in self._lists.items()
                if group == parts[1]
            ]
            return Reply(200, {"kind": "APIResourceList", "resources": served})
        found = self._lists.get((parts[-1], "" if parts[0] == "api" else parts[1]))
        return Reply(404, {"reason": "NotFound"}) if found is None else _page(*found, query)


def _page(kind: Kind, items: list[bytes], query: dict[str, list[str]]) -> Reply:
    start, most = int(query.get("continue", ["0"])[0]), int(query.get("limit", ["500"])[0])
    left = max(0, len(items) - start - most)
    more = {"continue": str(start + most), "remainingItemCount": left} if left else {}
    version = f"{kind.group}/{kind.versions[0]}" if kind.group else kind.versions[0]
    head = {"kind": f"{kind.name}List", "apiVersion": version, "metadata": more}
    written = json.dumps(head)[:-1].encode()
    return Reply(
        200, list_object(b'%b,"items":[%b]}' % (written, b",".join(items[start : start + most])))
    )


def _loads(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: [json.loads(path.read_bytes()) for path in folder.glob("*.json")]


def _folder(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: uncollected()(load)([str(folder)])


def _folder_planned(folder: Path) -> Iterator[Callable[[], object]]:
    yield lambda: _first_plan(uncollected()(load)([str(folder)]).instance)


def _first_plan(instance: Instance) -> object:
    from models.program.base_state import base_decisions
    from planner.search.start.greedy import greedy

    return greedy(instance, base_decisions(instance))


def _snapshot(folder: Path) -> Iterator[Callable[[], object]]:
    server, place = Server(folder), folder / "recorded"
    request = SnapshotRequest(lock_namespace="default")
    with SnapshotFolder(place, force=True) as made:
        yield lambda: record(server, made, request, lambda *_: None)


def _run(folder: Path) -> Iterator[Callable[[], object]]:
    server = Server(folder)
    yield lambda: _as_run(server)


def _run_planned(folder: Path) -> Iterator[Callable[[], object]]:
    server = Server(folder)
    yield lambda: _first_plan(_as_run(server))


def _as_run(server: Server) -> Instance:
    from models.instance.policy import KubernetesPolicy

    records = StartRecords(server, "default")
    reader = ClusterReader(server, KubernetesPolicy(), records)
    reader.read_view()
    lists = LiveLists(reader.store)
    read_lists(server, lists, SnapshotRequest(starts=records.starts), lambda *_: None)
    with uncollected():
        return load([], gather=lists.gather).instance


MEASURED: dict[str, Callable[[Path], Iterator[Callable[[], object]]]] = {
    "json.loads": _loads,
    "snapshot": _snapshot,
    "plan FOLDER, until the instance": _folder,
    "plan FOLDER, until the first plan": _folder_planned,
    "run, until the instance": _run,
    "run, until the first plan": _run_planned,
}


def _measure(name: str, folder: Path) -> tuple[float, int]:
    """CPU seconds and peak of memory in MiB beyond what the process had."""
    gc.set_threshold(50_000, 50, 100)  # as the program starts
    for work in MEASURED[name](folder):
        Path("/proc/self/clear_refs").write_text("5", encoding="ascii")  # the peak begins anew
        before, begun = _kept("VmRSS"), time.process_time()
        work()
        spent = time.process_time() - begun
    return spent, (_kept("VmHWM") - before) >> 10


def _kept(what: str) -> int:
    lines = Path("/proc/self/status").read_text("ascii").splitlines()
    return int(dict(line.split(":", 1) for line in lines)[what].split()[0])


def main(copies: int, nodes: int | None = None) -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        multiplied(copies, folder, nodes)
        size = sum(path.stat().st_size for path in folder.iterdir())
        pods = len(items_of((folder / "pods.json").read_bytes()))
        print(f"{pods:,} pods, {size / 1e6:,.0f} MB")
        print("| what | CPU s | times json.loads | MiB |\n| --- | --- | --- | --- |")
        unit = 0.0
        for what in MEASURED:
            with multiprocessing.get_context("spawn").Pool(1) as apart:
                spent, peak = apart.apply(_measure, (what, folder))
            unit = unit or spent
            print(f"| {what} | {spent:.1f} | {spent / unit:.1f} | {peak:,} |", flush=True)


if __name__ == "__main__":
    main(*map(int, sys.argv[1:] or ["10"]))
