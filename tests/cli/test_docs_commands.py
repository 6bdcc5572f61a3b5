"""Every gangplan command in a code block of the README and of docs/ parses, and one of each kind runs.

There are four DGX H100 with three waiting gangs behind the test API server, a snapshot ``monday`` and a
``plan.json`` of them, and the other inputs that pages name. With --thorough every command runs, in the order
of its page; otherwise the first with the same verb and options.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
import time
from contextlib import chdir
from pathlib import Path

import pytest
import typer
from apiserver import FakeCluster
from apiserver_http import serving
from conftest import Result, RunCli
from effort import HANG_S, examples
from live_objects import Wanted, pods
from pages import KUBERNETES, ROOT, code_blocks, text
from snapshots import environment

from planner.cli.app import app

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
SAMPLE = ROOT / "tests" / "data" / "nvidia-smi" / "07-a100x4-direct-4nic.txt"
CODES = {"plan": {0, 3}, "apply": {0, 6, 7}, "run": {0, 6, 7}, "status": {0, 4, 75}}
"""Exit codes of verbs, where not 0 alone: those that change a cluster meet what earlier commands left."""

LARGE = {"inputs/h100", "inputs/lingjun", "inputs/snapshots/h100-gke", "inputs/snapshots/nvl72"}
"""Without --thorough these are read and checked, not planned, and no gang of their plans is explained."""

WORDS = {
    "/etc/gangplan/kubeconfig": "kubeconfig",
    "/etc/gangplan/policy.yaml": "policy.yaml",
    "/var/lib/node_exporter/gangplan.prom": "gangplan.prom",
}
"""Places of a machine, and where they are here."""

TAINT = "example.com/gangplan"
POLICY = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
MORE = """
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: more, namespace: research}
spec: {roles: [{name: worker, replicas: 2, gpus: 8}]}
"""
COMMAND = re.compile(
    r"(?:\$ )?((?:(?:kubectl|ssh) [^|#]*\| )?(?:kubectl )?gangplan [a-z-].*)"
    r"|\*/5 [* ]+ \w+ .*?(gangplan [a-z].*?)(?: \d?>>.*)?$"
)


def blocks(path: Path) -> list[tuple[str, str]]:
    return re.findall(r"^```(\w*)\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL)


def commands(path: Path) -> list[str]:
    """Lines of code blocks with a gangplan command in them, without prompts, schedules and redirections."""
    lines = [
        line
        for language, block in blocks(path)
        if language in ("", "bash", "console", "sh")
        for line in re.sub(r"\\\n\s*", "", block).splitlines()
    ]
    return [match[1] or match[2] for line in lines if (match := COMMAND.match(line))]


def words_of(command: str) -> list[str]:
    """Arguments of gangplan in a command, after the verb too."""
    words = shlex.split(command.rpartition("| ")[2], comments=True)
    return words[words.index("gangplan") + 1 :]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_line_that_begins_with_the_program_is_found_and_has_options_of_its_verb(
    path: Path,
) -> None:
    begins = r"^(?:\$ )?gangplan [a-z]+\b(?! {2,}(?:ok|warning|failed))"
    found = commands(path)
    assert len(found) >= sum(len(re.findall(begins, one, re.MULTILINE)) for _, one in blocks(path))
    group = typer.main.get_command(app)
    for command in found:
        verb, *rest = words_of(command)
        group.commands[verb].make_context(verb, rest)  # type: ignore[attr-defined]


def staged() -> FakeCluster:
    cluster = FakeCluster(clock=time.time)
    for name in ("research", "gangplan-system"):
        cluster.add_namespace(name)
    amounts = {"cpu": "192", "memory": "2Ti", "pods": "110", "nvidia.com/gpu": "8"}
    for number in range(1, 5):
        name = f"gpu-{number:02}"
        labels = {
            "kubernetes.io/hostname": name,
            "node.coreweave.cloud/rack": f"r{(number + 1) // 2}",
        }
        about = {"name": name, "labels": labels}
        about["annotations"] = {"gangplan.dev/server-model": "DGX H100"}
        taint = {"key": TAINT, "value": "only", "effect": "NoSchedule"}
        ready = [{"type": "Ready", "status": "True"}]
        status = {"capacity": amounts, "allocatable": amounts, "conditions": ready}
        cluster.put(
            {"apiVersion": "v1", "kind": "Node", "metadata": about}
            | {"spec": {"taints": [taint]}, "status": status}
        )
    for gang in (Wanted("bert", 2, 4), Wanted("llama", 2, 8), Wanted("vit", 2, 2)):
        for pod in pods(gang, "research", "docs"):
            pod["spec"]["tolerations"] = [{"key": TAINT, "operator": "Exists"}]
            cluster.create(pod)
    return cluster


def prepare(folder: Path) -> None:
    """Inputs that pages name without making them."""
    for name in ("inputs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    stability, slurm = ROOT / "tests/inputs/stability", ROOT / "inputs/slurm"
    for source, name in (
        *((SAMPLE, name) for name in ("nvidia-smi.txt", "gpu-07.txt")),
        *((stability / "queue.yaml", name) for name in ("queue.yaml", "queue-now.yaml")),
        *((slurm / name, name) for name in ("nodes.json", "queue.json")),
        (stability / "cluster.yaml", "cluster.yaml"),
        (Path(environment(folder)["KUBECONFIG"]), "as-gangplan"),
        (folder / "plan.json", "kept.json"),
    ):
        shutil.copy(source, folder / name)
    (folder / "gangs.yaml").write_text(MORE, encoding="utf-8")
    (folder / "topology.conf").write_text("SwitchName=s1 Nodes=gpu-[01-04]\n", encoding="utf-8")


def large(words: list[str]) -> bool:
    """Whether to plan that input takes too long for a short run of the tests."""
    return bool(LARGE.intersection(words)) and not examples(1, 0)


def run(command: str, folder: Path, cli: RunCli) -> Result:
    """Run it in the folder; a plan gets a small budget, and no question is asked."""
    before, piped, _ = command.rpartition("| ")
    environ = environment(folder, USER="kim")
    given = SAMPLE.read_bytes() if piped else b""
    if piped and before.startswith("kubectl"):
        words = [environ["KUBECTL"], *shlex.split(before)[1:]]
        done = subprocess.run(words, env=environ, capture_output=True, timeout=HANG_S, check=True)
        given = done.stdout
    words = [WORDS.get(word, word) for word in words_of(command)]
    words = [
        one
        for word in words
        for one in (
            (word,)
            if "*" not in word
            else sorted(str(p.relative_to(folder)) for p in folder.glob(word))
        )
    ]
    if words[0] in ("plan", "audit") and large(words):
        words = ["validate", *LARGE.intersection(words)]
    elif words[0] == "plan" and "--budget" not in words:
        words += ["--budget", "1"]
    elif words[0] == "audit" and "--time-limit" not in words:
        words += ["--time-limit", "2s"]
    elif words[0] == "snapshot":
        out = folder / words[words.index("--out") + 1]
        shutil.rmtree(out, ignore_errors=True)
        out.parent.mkdir(exist_ok=True)
    if words[0] == "apply" and not {"--yes", "--dry-run"} & set(words):
        words.append("--yes")  # it would ask
    with chdir(folder):
        return cli(*words, stdin=given, environ=environ)


def plans_to_file(words: list[str]) -> bool:
    return words[0] == "plan" and "--out" in words


def kind(words: list[str], makes: list[str]) -> tuple[str, ...]:
    """What commands have in common of which one is run in a short run."""
    if examples(1, 0):
        return (*words, *makes)
    return (words[0], *sorted({word.partition("=")[0] for word in words if word[0] == "-"}))


@pytest.mark.slow
def test_the_commands_of_the_pages_do_what_they_say(cli: RunCli, tmp_path: Path) -> None:
    failed, seen = [], set()
    (tmp_path / "policy.yaml").write_text(POLICY, encoding="utf-8")
    with serving(staged(), tmp_path, tls=False):
        for command in ("snapshot --out monday", "plan monday --out plan.json"):
            assert run(f"gangplan {command}", tmp_path, cli).code == 0
        prepare(tmp_path)
        for path in PAGES:
            made: list[str] = []
            shutil.copy(tmp_path / "kept.json", tmp_path / "plan.json")
            # the documented what-if belongs to a recorded cluster with blocks
            what_if = code_blocks(text(KUBERNETES), "yaml")[0] if path == KUBERNETES else MORE
            (tmp_path / "whatif.yaml").write_text(what_if, encoding="utf-8")
            for command in commands(path):
                words = words_of(command)
                writes = words[words.index("--out") + 1] if plans_to_file(words) else ""
                key = kind(words, made if not writes else words)
                again = key in seen and not (writes and examples(1, 0))
                if writes and again:
                    shutil.copy(tmp_path / "kept.json", tmp_path / writes)  # for the next commands
                made = [] if writes and again else words if writes else made
                about_another = words[0] == "explain" and (not made or large(made))
                if again or about_another:
                    continue
                seen.add(key)
                done = run(command, tmp_path, cli)
                if done.code not in CODES.get(words[0], {0}):
                    failed.append(f"{path.name}: {command}: exit {done.code}: {done.err}")
    assert not failed, "\n".join(failed)
    assert len({words[0] for words in seen}) >= 13
