"""Sessions shown in the documents, replayed with the real kubectl; plan ids, uids and seconds are masked."""

from __future__ import annotations

import shlex
import subprocess
import time
from collections.abc import Iterator
from contextlib import chdir, contextmanager
from dataclasses import dataclass
from pathlib import Path

from apiserver import FakeCluster
from apiserver_http import serving
from conftest import RunCli
from effort import HANG_S
from live_objects import Tree, Wanted, pods
from snapshots import environment

TAINT = "example.com/gangplan"


@dataclass(frozen=True, slots=True)
class Stage:
    """Four DGX H100 and three waiting gangs, as the pages show them; plan.json is there already."""

    cluster: FakeCluster
    folder: Path
    cli: RunCli

    def play(self, session: str) -> str:
        """The same session with what its commands print now."""
        commands = [line for line in session.splitlines() if line.startswith("$ ")]
        return "".join(f"{line}\n{self.run(line[2:])}" for line in commands)

    def run(self, command: str) -> str:
        """What a command prints, on stdout and then on stderr."""
        program, *words = shlex.split(command)
        environ = environment(self.folder, USER="kim")
        if program == "gangplan":
            with chdir(self.folder):
                done = self.cli(*words, environ=environ)
            return done.out + done.err
        assert program == "kubectl"
        ended = subprocess.run(
            [environ["KUBECTL"], *words],
            env=environ,
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=True,
        )
        return ended.stdout + ended.stderr


@contextmanager
def staged(folder: Path, cli: RunCli) -> Iterator[Stage]:
    cluster = FakeCluster(clock=time.time)
    for name in ("research", "gangplan-system"):
        cluster.add_namespace(name)
    for number in range(1, 5):
        cluster.put(_server(f"gpu-{number:02}"))
    for gang in (
        Wanted("bert", 2, 4),
        Wanted("llama", 2, 8),
        Wanted("vit", 2, 2),
    ):
        for pod in pods(gang, "research", "docs"):
            pod["spec"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
            cluster.create(pod)
    with serving(cluster, folder, tls=False):
        stage = Stage(cluster, folder, cli)
        policy = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
        (folder / "policy.yaml").write_text(policy, encoding="utf-8")
        stage.run("gangplan snapshot --out monday")
        stage.run("gangplan plan monday --out plan.json")
        assert (folder / "plan.json").exists()
        yield stage


def _server(name: str) -> Tree:
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": name,
            "labels": {"kubernetes.io/hostname": name},
            "annotations": {"gangplan.dev/server-model": "DGX H100"},
        },
        "spec": {"taints": [{"key": TAINT, "value": "only", "effect": "NoSchedule"}]},
        "status": {
            "capacity": amounts,
            "allocatable": amounts,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }
