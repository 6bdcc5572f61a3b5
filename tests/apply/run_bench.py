"""``gangplan run`` in this process against a fake cluster: over HTTP with the real kubectl, or in memory.

Served, nothing of the program is replaced; in memory only the proxy and the pauses are, so that hundreds of
runs take seconds. Used by test_run_* and test_status_*, whose fixtures are in ``run_fixtures``.
"""

from __future__ import annotations

import contextlib
import copy
import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from apiserver import LOST, Answer, Call, FakeCluster, Hook
from apiserver_http import Endpoint, FakeWire, serving
from apiserver_kinds import Kind
from apply_runs import Crash, Fault, Hasty
from conftest import Result, RunCli
from played_workloads import Workloads
from snapshots import environment

from models.apply.records import StartRecord
from models.instance.solution import Solution
from planner.cluster.request_sender import RequestSender
from planner.cluster.start_records import StartRecords
from planner.pipelines.timed_search import TimedSearch

Tree = dict[str, Any]

LOCK = "gangplan-system"
RECORDS = "/api/v1/namespaces/gangplan-system/configmaps"
LEASE = f"/apis/coordination.k8s.io/v1/namespaces/{LOCK}/leases/gangplan"
MERGE = "application/merge-patch+json"
EVICT = "--allow-evictions"
PREEMPTIBLE = {"gangplan.dev/preemptible": "true"}
MOVABLE = {"gangplan.dev/movable": "true"}

LOG_TYPES = (
    "read first_plan solve_progress saving solve_done verify_done change apply_start apply_done"
)
LOG_TYPES += " error summary"
"""Types of JSON log lines: there are no others."""


@dataclass(slots=True)
class RunBench:
    """A served cluster and the program."""

    cluster: FakeCluster
    folder: Path
    cli: RunCli
    endpoint: Endpoint | None = None

    def run(self, *options: str, **environ: str) -> Result:
        """``gangplan run``, with a small budget, waiting for nothing."""
        return self.verb("run", "--budget", "5", "--wait", "0s", *options, **environ)

    def ran(self, *options: str, code: int = 0, **environ: str) -> Result:
        """A run that ends with that exit code."""
        done = self.run(*options, **environ)
        assert done.code == code, done.err
        return done

    def verb(self, *words: str, **environ: str) -> Result:
        return self.cli(*words, environ=environment(self.folder, USER="tester", **environ))

    def places(self) -> dict[str, str | None]:
        """Where each pod is."""
        return {pod["metadata"]["name"]: pod["spec"].get("nodeName") for pod in self.cluster.pods()}

    def placed(self, gang: str) -> dict[str, str]:
        """The pods of a gang that are bound."""
        found = self.places().items()
        return {name: node for name, node in found if node and name.rpartition("-")[0] == gang}

    def standing(self, gang: str) -> int:
        return len(self.placed(gang))

    def written(self, since: int = 0) -> list[tuple[str, str]]:
        """(method, path) of the writes from that call on, those of the lock left out."""
        return [
            (call.method, call.path)
            for call in self.cluster.writes
            if call.number >= since and "/leases" not in call.path
        ]

    def evictions(self) -> int:
        return sum(path.endswith("/eviction") for _, path in self.written())

    def asked(self) -> int:
        """How many requests there were so far."""
        return len(self.cluster.calls)

    def patch(self, path: str, body: Tree, kind: str = MERGE) -> None:
        """What somebody else writes, with kubectl perhaps."""
        code, tree, _ = self.cluster.handle("PATCH", path, body, kind)
        assert code == 200, tree

    def annotate(self, path: str, **written: str | None) -> None:
        """What a tenant writes under our keys."""
        notes = {f"gangplan.dev/{key}": value for key, value in written.items()}
        self.patch(path, {"metadata": {"annotations": notes}})

    def annotations(self, name: str) -> Tree:
        """Ours on a pod."""
        found: Tree = self.cluster.pod(name)["metadata"].get("annotations", {})
        return {key: value for key, value in found.items() if key.startswith("gangplan.dev/")}

    def recorded(self) -> dict[str, StartRecord]:
        """What is recorded of the start of each pod that is there."""
        records = StartRecords(FakeWire(self.cluster), "gangplan-system")
        records.read()
        found = ((pod["metadata"]["name"], pod["metadata"]["uid"]) for pod in self.cluster.pods())
        return {name: records.starts[uid] for name, uid in found if uid in records.starts}

    def forget(self) -> None:
        """Somebody deletes every record."""
        for tree in self.cluster.handle("GET", RECORDS)[1]["items"]:
            assert self.cluster.handle("DELETE", f"{RECORDS}/{tree['metadata']['name']}")[0] == 200

    def file(self, name: str, kind: str, spec: Tree) -> str:
        """A document of ours in a file."""
        tree = {"apiVersion": "gangplan.dev/v1alpha1", "kind": kind, "spec": spec}
        if kind != "Policy":
            tree["metadata"] = {"name": Path(name).stem}
        path = self.folder / name
        path.write_text(json.dumps(tree), encoding="utf-8")
        return str(path)

    def lease(self) -> Tree:
        code, tree, _ = self.cluster.handle("GET", LEASE)
        assert code == 200, tree
        return tree

    def noted(self, name: str) -> str:
        """An annotation of ours on the Lease; empty where there is none."""
        found: str = self.lease()["metadata"]["annotations"].get(f"gangplan.dev/{name}", "")
        return found

    def lease_is_free(self) -> bool:
        """Whether the lock is free, or was never taken."""
        code, tree, _ = self.cluster.handle("GET", LEASE)
        return code == 404 or tree["spec"]["holderIdentity"] == ""

    def last_run(self) -> Tree:
        """What the lock says of the last run; the lock has to be free."""
        assert self.lease()["spec"]["holderIdentity"] == "", "the lock was not released"
        found: Tree = json.loads(self.noted("last-run"))
        return found

    @contextmanager
    def meddled(self, *before: Hook, after: tuple[Hook, ...] = ()) -> Iterator[None]:
        """Hooks while the block runs."""
        cluster = self.cluster
        cluster.before += before
        cluster.after += after
        try:
            yield
        finally:
            cluster.before.clear()
            cluster.after.clear()

    def killed(
        self, kill: Kill | Fault, options: tuple[str, ...] = (EVICT,), *, later_s: float = 100
    ) -> None:
        """A run that it may end, and some time, in which its lock ends."""
        with self.meddled(kill.before, after=(kill.after,)), contextlib.suppress(Crash):
            self.run(*options)
        self.cluster.advance(later_s)

    def fork(self) -> RunBench:
        """The same cluster once more, to go another way."""
        mine = self.cluster
        lock, mine.lock, mine.calls = mine.lock, None, []  # type: ignore[assignment]
        try:
            kinds = mine.kinds.all  # and what is stored is never changed in place
            shared = [
                mine.kinds,
                *kinds,
                *(tree for kind in kinds for tree in mine.objects.all(kind)),
            ]
            other = copy.deepcopy(mine, {id(one): one for one in shared})
        finally:
            mine.lock = lock
        other.lock = threading.RLock()
        _CLUSTERS[str(self.folder)] = other
        return RunBench(other, self.folder, self.cli)


Benches = Callable[[FakeCluster], RunBench]
"""Makes benches: see ``run_fixtures``."""

_CLUSTERS: dict[str, FakeCluster] = {}
"""The cluster that the program finds, by its home."""


class Restless(RequestSender):
    """Sends, and lets time pass at once."""

    def __post_init__(self) -> None:
        super().__post_init__()
        self.sleep = lambda _: None


@contextmanager
def run_bench(
    cluster: FakeCluster, folder: Path, cli: RunCli, *, tls: bool = False
) -> Iterator[RunBench]:
    """Serve the cluster while the block runs. ``tls``: where accounts matter."""
    cluster.add_namespace(LOCK)
    with serving(cluster, folder, tls=tls) as endpoint:
        yield RunBench(cluster, folder, cli, endpoint)


@contextmanager
def memory_bench(
    cluster: FakeCluster, folder: Path, cli: RunCli, monkeypatch: pytest.MonkeyPatch
) -> Iterator[RunBench]:
    """The same without a socket: a wire into the cluster."""
    cluster.add_namespace(LOCK)
    _CLUSTERS[str(folder)] = cluster

    @contextmanager
    def opened(environ: Mapping[str, str], **_: object) -> Iterator[FakeWire]:
        yield FakeWire(_CLUSTERS[environ["HOME"]])

    with monkeypatch.context() as patched:
        patched.setattr("planner.cluster.proxy.connect", opened)
        patched.setattr("planner.cluster.retry.RetryingTransport", Hasty)
        patched.setattr("planner.cluster.request_sender.RequestSender", Restless)
        patched.setattr("planner.cluster.lock._PAUSE_S", 0.001)
        yield RunBench(cluster, folder, cli)


# ---- what is in the cluster


def nodes(
    count: int, *, groups: bool = False, kubelets: bool = False, workloads: bool = False
) -> FakeCluster:
    """A cluster of nodes n0, n1, ... of 8 GPUs each. Its clock stands still."""
    made = FakeCluster(kubelets=kubelets)
    made.writers += [Workloads(made.objects)] if workloads else []
    if groups:
        made.kinds.serve(Kind("PodGroup", "podgroups", "scheduling.k8s.io", "v1alpha2"))
    for number in range(count):
        made.add_node(f"n{number}")
    return made


def budget(cluster: FakeCluster, app: str = "low", name: str = "b", **spec: object) -> None:
    """A disruption budget over the pods with that label."""
    wanted = {"selector": {"matchLabels": {"app": app}}, **spec}
    about = {"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name}}
    cluster.create({**about, "spec": wanted})


def pod_group(cluster: FakeCluster, name: str, least: int) -> None:
    """A native group of pods that name it in their schedulingGroup."""
    about = {"apiVersion": "scheduling.k8s.io/v1alpha2", "kind": "PodGroup"}
    spec = {"schedulingPolicy": {"gang": {"minCount": least}}}
    cluster.put({**about, "metadata": {"name": name}, "spec": spec})


def elastic(kind: str, name: str, replicas: int, most: int) -> Tree:
    """A controller of gated, preemptible pods of 8 GPUs, of one at least."""
    labels, amounts = {"app": name}, {"nvidia.com/gpu": "8"}
    containers = [{"name": "main", "image": "image", "resources": {"limits": amounts}}]
    pod: Tree = {"containers": containers, "terminationGracePeriodSeconds": 0}
    pod["schedulingGates"] = [{"name": "gangplan.dev/placement"}]
    notes = {"gangplan.dev/min": "1", "gangplan.dev/max": str(most), **PREEMPTIBLE}
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": pod},
    }
    if kind == "StatefulSet":
        spec |= {"serviceName": name, "podManagementPolicy": "Parallel"}
    metadata = {"name": name, "namespace": "default", "annotations": notes}
    return {"apiVersion": "apps/v1", "kind": kind, "metadata": metadata, "spec": spec}


# ---- what a run says


def events(result: Result) -> list[Tree]:
    """JSON log lines: of the fixed types, the last one the only summary."""
    found: list[Tree] = [json.loads(line) for line in result.err.splitlines()]
    assert {one["type"] for one in found} <= set(LOG_TYPES.split())
    assert [one["type"] for one in found].count("summary") == 1
    assert found[-1]["type"] == "summary"
    assert found[-1]["exit_code"] == result.code
    return found


def summary(result: Result) -> str:
    """The one summary line, which is the last one."""
    lines = [line for line in result.err.splitlines() if line.startswith("run ")]
    assert len(lines) == 1, result.err
    assert result.err.splitlines()[-1] == lines[0]
    assert f"(exit {result.code})" in lines[0]
    return lines[0]


# ---- what happens meanwhile


def while_solving(monkeypatch: pytest.MonkeyPatch, *happen: Callable[[], object]) -> None:
    """Let something happen at the end of the first search, something else at that of the second."""
    ahead = list(happen)
    search = TimedSearch.run  # the moment that a test needs

    def solved(timed: TimedSearch) -> Solution:
        found = search(timed)
        if ahead:
            ahead.pop(0)()
        return found

    monkeypatch.setattr(TimedSearch, "run", solved)


def is_write(call: Call) -> bool:
    """Whether a request changes a pod."""
    return call.writes and "/pods/" in call.path


def is_start(call: Call) -> bool:
    """Whether it takes a gate off."""
    return is_write(call) and "schedulingGates" in str(call.body)


def reviewing(*denied: tuple[str, str, str]) -> Hook:
    """Reviews say that these rights are missing: (verb, resource, subresource); ``*`` is any verb."""

    def hook(call: Call) -> Answer | None:
        if not call.path.endswith("/selfsubjectaccessreviews"):
            return None
        asked = call.body["spec"]["resourceAttributes"]
        rest = (asked["resource"], asked.get("subresource", ""))
        allowed = (asked["verb"], *rest) not in denied and ("*", *rest) not in denied
        return 201, {**call.body, "status": {"allowed": allowed}}, {}

    return hook


def closed(namespace: str) -> Hook:
    """A tenant has taken the account's rights to pods of its namespace away."""
    words = 'pods "x" is forbidden: User "u" cannot patch resource "pods" in API group ""'
    refused = {"kind": "Status", "code": 403, "reason": "Forbidden", "message": words}

    def hook(call: Call) -> Answer | None:
        if not call.path.endswith("/selfsubjectaccessreviews"):
            own = f"/namespaces/{namespace}/pods/" in call.path
            return (403, refused, {}) if own and call.method != "GET" else None
        asked = call.body["spec"]["resourceAttributes"]
        denied = asked["verb"] == "patch" and asked["resource"] == "pods"
        allowed = not denied or asked.get("namespace", namespace) != namespace
        return 201, {**call.body, "status": {"allowed": allowed}}, {}

    return hook


class Kill:
    """Ends the program once the server has carried out its ``at``-th write of all, the lock's too.

    A server's state changes by writes alone: to die at a request between two is to die after the first.
    """

    def __init__(self, at: int) -> None:
        self.at, self.seen = at, 0

    @property
    def struck(self) -> bool:
        return self.seen > self.at

    def before(self, call: Call) -> None:
        if self.struck:
            raise Crash

    def after(self, call: Call) -> None:
        self.seen += call.writes and "/authorization.k8s.io/" not in call.path
        if self.struck:
            raise Crash


class Cut:
    """The server is gone from the ``at``-th write to the pods of one gang on, the first that is written to.

    Gangs are applied side by side: to the pods of the others the server is gone from the start.
    """

    def __init__(self, at: int) -> None:
        self.at = at
        self.gang: list[str] = []
        self.seen = 0

    def __call__(self, call: Call) -> Answer | None:
        if is_write(call):
            gang = call.path.split("/pods/")[1].split("/")[0].rpartition("-")[0]
            self.gang.append(gang)
            if gang != self.gang[0]:
                return LOST
            self.seen += 1
        return LOST if self.seen > self.at else None
