"""A live cluster under test: the one of $GANGPLAN_TEST_KUBECONFIG, or the test API server over HTTP.

It creates its own nodes, namespaces and pods, keeps the nodes of a real cluster alive, and deletes everything
at the end. The program under test reaches the server only through a relay (``live_relay``).
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import secrets
import subprocess
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from apiserver import FakeCluster
from apiserver_http import serving, write_kubeconfig
from effort import HANG_S
from live_objects import (
    LEASE_PATH,
    LEASES,
    TAINT,
    Wanted,
    budget,
    high_class,
    listed,
    namespace,
    node,
    node_lease,
    pods,
    priority_class,
)
from live_relay import Relay, relaying
from played_workloads import Workloads
from snapshots import real_kubectl

Tree = dict[str, Any]

VARIABLE = "GANGPLAN_TEST_KUBECONFIG"
HEARTBEAT_S = 10.0
"""The node lifecycle controller gives a node 40 to 50 s."""
_LEASES = f"/apis/coordination.k8s.io/v1/namespaces/{LEASES}/leases"


@dataclass(slots=True)
class Live:
    """``kubeconfig``: the cluster's own; ``relayed``: one that leads through ``relay``, for the program.

    ``run``: short and unlike any other's, part of every name. ``nodes``: ours. ``url``: of an
    authenticated way to the server, for reading. ``tests``: how many namespaces of pods there have been.
    """

    folder: Path
    kubeconfig: Path
    relayed: Path
    relay: Relay
    url: str
    run: str
    nodes: list[str] = field(default_factory=list)
    tests: int = 0

    @property
    def namespace(self) -> str:
        return f"{self.run}-team-{self.tests}"

    @property
    def lock_namespace(self) -> str:
        return f"{self.run}-lock"

    def kubectl(self, *arguments: str, given: Tree | None = None, check: bool = True) -> str:
        """Run the real kubectl straight against the cluster; its stdout."""
        return kubectl(self.kubeconfig, self.folder, *arguments, given=given, check=check)

    def get(self, path: str) -> Tree:
        """An object or list, as the API server gives it."""
        while True:
            try:
                with urllib.request.urlopen(self.url + path, timeout=HANG_S) as reply:
                    found: Tree = json.load(reply)
            except urllib.error.HTTPError as error:
                if error.code != 502:  # kubectl's proxy on the way lost its connection
                    raise
            else:
                return found

    def send(self, method: str, path: str, tree: Tree | None = None) -> None:
        """It has to succeed: urllib raises HTTPError."""
        kind = "strategic-merge-patch+json" if method == "PATCH" else "json"
        request = urllib.request.Request(
            self.url + path,
            data=None if tree is None else json.dumps(tree).encode(),
            method=method,
            headers={"Content-Type": f"application/{kind}"},
        )
        with urllib.request.urlopen(request, timeout=HANG_S) as reply:
            reply.read()

    def make(self, *trees: Tree) -> None:
        """Create objects."""
        for tree in trees:
            version, plural = tree["apiVersion"], tree["kind"].lower()
            root = f"/apis/{version}" if "/" in version else f"/api/{version}"
            space = tree["metadata"].get("namespace")
            plural += "es" if plural.endswith("s") else "s"
            self.send("POST", f"{root}/{f'namespaces/{space}/' if space else ''}{plural}", tree)

    def pods(self) -> dict[str, Tree]:
        """Our pods by name."""
        items = self.get(f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {pod["metadata"]["name"]: pod for pod in items}

    def create(self, *gangs: Wanted) -> dict[str, Tree]:
        """Create the pods of gangs; all pods there are."""
        self.make(*(pod for gang in gangs for pod in pods(gang, self.namespace, self.run)))
        return self.pods()

    def add_nodes(self, *names: str) -> None:
        """Nodes of ours, once the cluster takes them for alive."""
        made = [node(name, self.run) for name in names]
        self.make(*made)
        for tree in made:  # what is said of it at creation need not count
            path = f"/api/v1/nodes/{tree['metadata']['name']}/status"
            self.send("PATCH", path, {"status": tree["status"]})
        self.nodes += [name for name in names if name not in self.nodes]
        self.beat()
        self.wait_until(lambda: all(map(self._usable, names)), "our nodes to be schedulable")

    def _usable(self, name: str) -> bool:
        """New nodes are tainted not-ready until the node lifecycle controller has looked at them."""
        spec = self.get(f"/api/v1/nodes/{name}")["spec"]
        return [taint["key"] for taint in spec.get("taints", ())] == [TAINT]

    def report_ready(self, *names: str) -> None:
        """Say of pods what their kubelets report once they run."""
        ready = [{"type": "Ready", "status": "True"}]
        status = {"phase": "Running", "conditions": ready, "startTime": "2026-11-22T10:00:00Z"}
        for name in names:
            path = f"/api/v1/namespaces/{self.namespace}/pods/{name}/status"
            self.send("PATCH", path, {"status": status})

    def guard(self, name: str, gang: str, counted: Tree, **spec: object) -> None:
        """A disruption budget over a gang, once its status says so."""
        self.make(budget(name, self.namespace, gang, **spec))
        path = f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets/{name}"
        self.wait_until(
            lambda: counted.items() <= self.get(path).get("status", {}).items(),
            "the budget's status",
        )

    def open_namespace(self) -> None:
        """One of its own for the pods of a test: what a kubelet still says of pods of the last one, by their
        names, is said of none of this one.
        """
        self.tests += 1
        self.make(namespace(self.namespace, self.run))
        if (
            VARIABLE in os.environ
        ):  # pods need it, and its controller takes a moment; it may have been faster
            self.kubectl("create", "serviceaccount", "default", "-n", self.namespace, check=False)

    def forget_runs(self) -> None:
        """What runs noted on their Lease goes: whom they stopped, for one."""
        with contextlib.suppress(urllib.error.HTTPError):  # there is none yet
            self.send("DELETE", LEASE_PATH.format(self.lock_namespace))

    def unguard(self) -> None:
        """All budgets of ours go."""
        self.send("DELETE", f"/apis/policy/v1/namespaces/{self.namespace}/poddisruptionbudgets")

    def create_workload(self, tree: Tree) -> None:
        """A controller, once it has made its pods."""
        spec, name = tree["spec"], tree["metadata"]["name"]
        self.make(tree | {"metadata": tree["metadata"] | {"namespace": self.namespace}})
        self.wait_until(lambda: len(self.of(name)) == spec["replicas"], f"the pods of {name}")

    def of(self, gang: str) -> dict[str, Tree]:
        """The pods whose label names the gang, without those that are being deleted."""
        return {
            name: pod
            for name, pod in self.pods().items()
            if pod["metadata"]["labels"]["gang"] == gang
            and "deletionTimestamp" not in pod["metadata"]
        }

    def delete_workloads(self) -> None:
        """All controllers of ours that make pods."""
        for plural in ("deployments", "statefulsets"):
            self.send("DELETE", f"/apis/apps/v1/namespaces/{self.namespace}/{plural}")

    def delete_pods(self, *names: str) -> None:
        """These pods, or all of ours, at once; back when they are gone."""
        old = {pod["metadata"]["uid"] for n, pod in self.pods().items() if not names or n in names}
        path = f"/api/v1/namespaces/{self.namespace}/pods"
        for one in [f"{path}/{name}" for name in names] or [path]:
            self.send("DELETE", f"{one}?gracePeriodSeconds=0")
        self.wait_until(
            lambda: not old & {pod["metadata"]["uid"] for pod in self.pods().values()}, "pods to go"
        )

    def wait_until(self, holds: Callable[[], bool], what: str) -> None:
        deadline = time.monotonic() + HANG_S
        while not holds():
            assert time.monotonic() < deadline, f"waited {HANG_S:g} s for {what}"
            time.sleep(0.05)

    @contextmanager
    def cordoned(self, name: str) -> Iterator[None]:
        self.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": True}})
        try:
            yield
        finally:
            self.send("PATCH", f"/api/v1/nodes/{name}", {"spec": {"unschedulable": None}})

    @contextmanager
    def without(self, name: str) -> Iterator[None]:
        """As if the node had gone."""
        self.send("DELETE", f"/api/v1/nodes/{name}")
        try:
            yield
        finally:
            self.add_nodes(name)

    def beat(self) -> None:
        """As kubelets of a real cluster: nothing of ours asks whether nodes are alive."""
        if VARIABLE not in os.environ:
            return
        beats = [node_lease(name, _now()) for name in self.nodes]
        self.kubectl("apply", "--validate=false", "-f", "-", given=listed(beats))

    def clean(self) -> None:
        """Take everything of ours away; each step is tried whatever became of the others."""
        paths = [f"/api/v1/namespaces/{self.namespace}/pods"]
        spaces = (f"{self.run}-team-{number}" for number in range(1, self.tests + 1))
        paths += [f"/api/v1/namespaces/{name}" for name in (*spaces, self.lock_namespace)]
        paths.append(f"/apis/scheduling.k8s.io/v1/priorityclasses/{high_class(self.run)}")
        for name in self.nodes:
            paths += [f"/api/v1/nodes/{name}", f"{_LEASES}/{name}"]
        for path in paths:
            with contextlib.suppress(urllib.error.HTTPError):
                self.send("DELETE", f"{path}?gracePeriodSeconds=0")


def kubectl(
    kubeconfig: Path, home: Path, *arguments: str, given: Tree | None = None, check: bool = True
) -> str:
    """``home``: where kubectl keeps what it learns of the server."""
    done = subprocess.run(
        [
            real_kubectl(),
            f"--kubeconfig={kubeconfig}",
            f"--request-timeout={HANG_S:g}s",
            *arguments,
        ],
        input=None if given is None else json.dumps(given),
        stdin=subprocess.DEVNULL if given is None else None,
        capture_output=True,
        text=True,
        timeout=HANG_S,
        check=False,
        env={**os.environ, "HOME": str(home), "KUBERC": "off"},
    )
    assert done.returncode == 0 or not check, f"kubectl {' '.join(arguments)}: {done.stderr}"
    return done.stdout


@contextmanager
def opened(folder: Path, *, nodes: int = 4) -> Iterator[Live]:
    """A cluster with so many nodes of ours, of 8 GPUs each, while the block runs."""
    with contextlib.ExitStack() as stack:
        own = os.environ.get(VARIABLE)
        kubeconfig = Path(own) if own else stack.enter_context(_fake(folder))
        url = stack.enter_context(_reached(kubeconfig, folder))
        relay = stack.enter_context(relaying(url))
        run = f"gpt-{secrets.token_hex(3)}"
        live = Live(folder, kubeconfig, _relayed(folder, relay), relay, url, run)
        stack.callback(live.clean)
        live.make(namespace(live.lock_namespace, run), priority_class(run))
        live.open_namespace()
        live.add_nodes(*(f"{run}-n{number}" for number in range(1, nodes + 1)))
        if own:
            stack.enter_context(_heartbeats(live))
        yield live


@contextmanager
def _fake(folder: Path) -> Iterator[Path]:
    cluster = FakeCluster(clock=time.time)
    cluster.writers.append(Workloads(cluster.objects))
    cluster.add_namespace(LEASES)
    with serving(cluster, folder, tls=False) as endpoint:
        yield endpoint.kubeconfig


@contextmanager
def _reached(kubeconfig: Path, home: Path) -> Iterator[str]:
    """A server that asks for credentials is behind a ``kubectl proxy`` of ours: kubectl has them."""
    plain = re.search(r"http://127[.0-9]+:\d+", kubeconfig.read_text(encoding="utf-8"))
    if plain is not None:
        yield plain[0]
        return
    process = subprocess.Popen(
        [real_kubectl(), f"--kubeconfig={kubeconfig}", "proxy", "--port=0"],
        stdout=subprocess.PIPE,
        text=True,
        env={**os.environ, "HOME": str(home), "KUBERC": "off"},
    )
    try:
        assert process.stdout is not None
        said = process.stdout.readline()
        found = re.search(r"127\.0\.0\.1:\d+", said)
        assert found is not None, f"kubectl proxy said {said!r}"
        yield f"http://{found[0]}"
    finally:
        process.kill()
        process.communicate()


def _relayed(folder: Path, relay: Relay) -> Path:
    """A kubeconfig whose only context, ``live test``, leads to the relay."""
    # a blank must do no harm
    return write_kubeconfig(folder / "relayed.kubeconfig", relay.url, name="live test")


@contextmanager
def _heartbeats(live: Live) -> Iterator[None]:
    over = threading.Event()

    def go_on() -> None:
        while not over.wait(HEARTBEAT_S):
            live.beat()

    thread = threading.Thread(target=go_on, daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()


def _now() -> str:
    return datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
