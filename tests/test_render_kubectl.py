"""What ``render`` tells people to run does what it says, with the real kubectl; and what not, does not."""

from __future__ import annotations

import shlex
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from apiserver_http import serving
from apply_runs import Bench, a_cluster, bench
from effort import HANG_S
from snapshots import environment, real_kubectl


@dataclass(slots=True)
class Hands:
    """Somebody with kubectl in a folder of ``render --to``."""

    bench: Bench
    folder: Path
    kubeconfig: Path

    def run(self, *words: str) -> subprocess.CompletedProcess[str]:
        """A command line of kubectl."""
        kubectl, *rest = words
        assert kubectl == "kubectl"
        return subprocess.run(
            [real_kubectl(), f"--kubeconfig={self.kubeconfig}", *rest],
            cwd=self.folder,
            env=environment(self.folder.parent),
            capture_output=True,
            text=True,
            timeout=HANG_S,
            check=False,
        )

    def commands(self) -> dict[str, list[str]]:
        """Commands of the folder's index, by file."""
        lines = (self.folder / "RENDERED").read_text("utf-8").splitlines()
        pairs = [line.split("\t") for line in lines if not line.startswith("#")]
        return {path: shlex.split(command) for path, command in pairs}


@pytest.fixture
def hands(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Hands]:
    """Gangs a (2 pods of 8 GPUs) and b (2 pods of 4) on three nodes, and their plan rendered."""
    cluster = a_cluster()
    with bench(cluster, tmp_path, monkeypatch) as made:
        plan = made.plan()
        folder = tmp_path / "rendered"
        assert made.run("render", str(plan), "--to", str(folder)).code == 0
        with serving(cluster, tmp_path) as endpoint:
            yield Hands(made, folder, endpoint.kubeconfig)


def test_the_commands_start_every_pod_where_the_plan_says(hands: Hands) -> None:
    document = hands.bench.run("show", str(hands.bench.folder / "plan.json"), "-o", "json").data()
    wanted = {pod["name"]: pod["node"] for g in document["spec"]["gangs"] for pod in g["pods"]}
    commands = hands.commands()
    assert len(commands) == len(wanted) == 4
    for command in commands.values():
        done = hands.run(*command)
        assert done.returncode == 0, done.stderr
    assert hands.bench.bound() == wanted
    for name in wanted:
        assert "gangplan.dev/plan" in hands.bench.cluster.pod(name)["metadata"]["labels"]


def test_another_pod_under_the_name_is_refused(hands: Hands) -> None:
    cluster = hands.bench.cluster
    old = cluster.pod("a-0")
    cluster.remove("Pod", "a-0")
    spec = {
        key: old["spec"][key] for key in ("schedulerName", "schedulingGates") if key in old["spec"]
    }
    gates = [gate["name"] for gate in spec.pop("schedulingGates", [])]
    cluster.add_pod("a-0", gpus=8, gates=gates, scheduler=spec["schedulerName"])
    (path,) = (one for one in hands.commands() if "/a-0." in one)
    done = hands.run(*hands.commands()[path])
    assert done.returncode == 1
    assert "uid" in done.stderr.lower()
    assert cluster.node_of("a-0") is None
