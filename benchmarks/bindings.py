"""Measure 1,000 bindings: the whole protocol of ``apply`` against one List through ``kubectl create -f``.

Promises: the same pods on the same server, made anew for each way; nothing of the protocol is left out.
Called as ``python -m benchmarks.bindings``; $GANGPLAN_TEST_KUBECONFIG names a real cluster.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

TESTS = Path(__file__).parent.parent / "tests"
GANG = 8
"""Pods of one GPU a gang, and GPUs a node: each gang fills a node."""

PROGRAM = (sys.executable, "-c", "from planner.cli.app import main; main()")
TIMEOUT_S = 600

Tree = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Measure bindings; print JSON")
    parser.add_argument("--pods", type=int, default=1000)
    parser.add_argument("--rounds", type=int, default=1, help="take the best of so many")
    options = parser.parse_args()
    sys.path.insert(0, str(TESTS))
    print(json.dumps(measure(options.pods, options.rounds)))


def measure(pods: int, rounds: int = 1) -> Tree:
    """Seconds of the ways to bind the pods; the best of ``rounds``. All against the same server process.

    ``list``: one List of Bindings, without preconditions, through ``kubectl create -f``. ``wire``: each
    with uid and resourceVersion over one ``kubectl proxy``, its start and end included. ``apply``: the
    command from start to end: Python, the plan's check, rights, lock, reading the cluster three times,
    intents, a dry run of every gang, the bindings, marks, release. ``gate``: the same command for pods
    born gated, until kube-scheduler has bound them. ``cpu``: seconds of the processes started for it.
    ``requests``: of one apply, by method; ``writes_a_pod``: of them those to pods, dry runs among them;
    ``in_flight``: most that the server had to answer at once. ``..._gate``: the same for ``gate``.
    """
    from live_cluster import opened

    nodes = -(-pods // GANG)
    best: dict[str, float] = {}
    cpu: dict[str, float] = {}
    with tempfile.TemporaryDirectory() as folder, opened(Path(folder), nodes=nodes) as live:
        bench = _Bench(live, pods)
        ways = {"list": bench.listed, "wire": bench.wire, "apply": bench.apply, "gate": bench.apply}
        for _ in range(rounds):
            for name, way in ways.items():
                before = _cpu_s()
                seconds = bench.timed(way, "gate" if name == "gate" else "binding")
                best[name] = min(seconds, best.get(name, seconds))
                cpu[name] = min(bench.cpu_s - before, cpu.get(name, sys.maxsize))
                if name == "apply":
                    phases = bench.phases
        server = (
            "of $GANGPLAN_TEST_KUBECONFIG" if os.environ.get("GANGPLAN_TEST_KUBECONFIG") else "fake"
        )
        counted = {"apply": bench.count("binding"), "gate": bench.count("gate")}

    def figures(way: str) -> Tree:
        found = counted[way]
        return {
            "ratio": round(best[way] / best["list"], 2),
            "cpu_ms_a_request": round(1000 * cpu[way] / sum(found.methods.values()), 3),
            "requests": found.methods,
            "writes_a_pod": round(found.writes / pods, 3),
            "in_flight": found.in_flight,
        }

    return {
        "case": "bindings",
        "instance": f"{pods:,} pods of {bench.gangs} gangs on {nodes} nodes; server: {server}",
        "seconds": {name: round(seconds, 3) for name, seconds in best.items()},
        "cpu": {name: round(cpu[name], 3) for name in ("list", "apply", "gate")},
        **figures("apply"),
        **{f"{name}_gate": found for name, found in figures("gate").items()},
        "ratio_wire": round(best["wire"] / best["list"], 2),
        "phases": phases,
    }


def _cpu_s() -> float:
    """CPU of all processes that were started and have ended, and of those that they waited for."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


@dataclass(frozen=True, slots=True)
class _Counts:
    """Requests of one ``apply``: by method, those to change a pod, and the most at once."""

    methods: dict[str, int]
    writes: int
    in_flight: int


class _Bench:
    """The same pods again and again, bound in different ways."""

    def __init__(self, live: Any, pods: int) -> None:  # noqa: ANN401  # of the tests, which are untyped here
        from live_objects import Wanted
        from snapshots import real_kubectl

        self.live = live
        self._kubectl = real_kubectl()
        self.gangs = -(-pods // GANG)
        self.phases: dict[str, float] = {}
        sizes = [min(GANG, pods - first) for first in range(0, pods, GANG)]
        self._wanted = {
            mode: [Wanted(f"g{n:03}", size, 1, mode) for n, size in enumerate(sizes)]
            for mode in ("binding", "gate")
        }
        self.cpu_s = 0.0
        self._plan = Path()
        self._err = ""
        self._bound: dict[str, str] = {}

    def timed(self, way: Any, mode: str) -> float:  # noqa: ANN401
        """Make the pods, plan them, bind them this way, see that they are bound, take them away.

        ``cpu_s``: ``_cpu_s`` right after the way, less what making and planning took.
        """
        from live_runs import placements, planned

        begun = _cpu_s()
        self.live.create(*self._wanted[mode])
        self._plan = planned(self.live)
        self._bound = {pod: node for pod, (node, _) in placements(self._plan).items()}
        assert len(self._bound) == sum(gang.pods for gang in self._wanted[mode])
        made = _cpu_s() - begun
        seconds: float = way()
        self.cpu_s = _cpu_s() - made
        found = {name: pod["spec"].get("nodeName") for name, pod in self.live.pods().items()}
        assert found == self._bound, "not every pod is bound where the plan says"
        self.live.delete_pods()
        return seconds

    def listed(self) -> float:
        tree = {"apiVersion": "v1", "kind": "List", "items": [*map(self._binding, self._bound)]}
        path = self.live.folder / "list.json"
        path.write_text(json.dumps(tree), encoding="utf-8")
        command = [self._kubectl, f"--kubeconfig={self.live.kubeconfig}", "create", "-f", str(path)]
        return self._run(command)

    def wire(self) -> float:
        from planner.cluster import api_paths as paths
        from planner.cluster.proxy import connect

        trees = self.live.pods()
        accept = ["/api/v1/namespaces/[a-z0-9.-]+/pods/[a-z0-9.-]+/binding"]
        begun = time.monotonic()
        environ = {**os.environ, "KUBECTL": self._kubectl}
        with connect(environ, kubeconfig=str(self.live.kubeconfig), accept=accept) as wire:
            for name in self._bound:
                body = self._binding(name)
                for key in ("uid", "resourceVersion"):
                    body["metadata"][key] = trees[name]["metadata"][key]
                namespace = self.live.namespace
                path = paths.core("pods", namespace=namespace, name=name, sub="binding")
                reply = wire.send("POST", f"{path}?fieldValidation=Strict", body)
                assert reply.status == 201, reply.message
        return time.monotonic() - begun

    def apply(self) -> float:
        command = [*PROGRAM, "apply", str(self._plan), "--yes", "--wait", "60s"]
        command += ["--kubeconfig", str(self.live.kubeconfig), "--log-format", "json"]
        seconds = self._run([*command, "--lock-namespace", self.live.lock_namespace])
        self.phases = json.loads(self._err.splitlines()[-1]).get("seconds", {})
        return seconds

    def count(self, mode: str) -> _Counts:
        """Requests of one ``apply``, seen by a relay; not timed."""
        from live_runs import apply_words, planned, ran

        self.live.create(*self._wanted[mode])
        lock, now, most = threading.Lock(), 0, 0

        def counted(call: Any, forward: Any) -> Any:  # noqa: ANN401, ARG001  # of the tests
            nonlocal now, most
            with lock:
                now += 1
                most = max(most, now)
            try:
                return forward()
            finally:
                with lock:
                    now -= 1

        words = apply_words(self.live, planned(self.live))
        done = ran(self.live, *words, meddler=counted, timeout=TIMEOUT_S)
        assert done.code == 0, done.err
        self.live.delete_pods()
        methods = dict(sorted(Counter(call.method for call in done.calls).items()))
        pods = sum("/pods/" in call.path and call.method != "GET" for call in done.calls)
        return _Counts(methods, pods, most)

    def _binding(self, name: str) -> Tree:
        return {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": name, "namespace": self.live.namespace},
            "target": {"apiVersion": "v1", "kind": "Node", "name": self._bound[name]},
        }

    def _run(self, command: list[str]) -> float:
        begun = time.monotonic()
        done = subprocess.run(
            command,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={
                **os.environ,
                "HOME": str(self.live.folder),
                "KUBERC": "off",
                "KUBECTL": self._kubectl,
            },
        )
        seconds = time.monotonic() - begun
        assert done.returncode == 0, done.stderr[-2000:]
        self._err = done.stderr
        return seconds


if __name__ == "__main__":
    main()
