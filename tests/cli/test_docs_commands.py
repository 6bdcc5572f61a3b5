"""Every gangplan command in a code block of the README and of docs/ is run, in the order of its page.

There are four DGX H100 with three waiting gangs behind the test API server, a snapshot ``monday`` and a
``plan.json`` of them, and the other inputs that pages name.
"""

from __future__ import annotations

import re
import shlex
import shutil
import subprocess
from contextlib import chdir
from pathlib import Path

import pytest
import typer
from conftest import Result, RunCli
from effort import HANG_S, examples
from live_pictures import Stage, staged
from snapshots import environment
from test_docs import KUBERNETES, ROOT, code_blocks, text

from planner.cli.app import app

PAGES = [ROOT / "README.md", *sorted(ROOT.glob("docs/*.md"))]
SAMPLE = ROOT / "tests" / "data" / "nvidia-smi" / "07-a100x4-direct-4nic.txt"
SETTLED = {"plan": {0, 3}}
"""Exit codes of verbs that read, where not 0 alone."""

CHANGING = {"apply": {0, 6, 7}, "run": {0, 6, 7}, "status": {0, 4, 75}}
"""Of verbs that change a cluster: they meet what earlier commands of the page left."""

LARGE = {"inputs/h100", "inputs/lingjun", "inputs/snapshots/h100-gke", "inputs/snapshots/nvl72"}
"""Without --thorough these are read and checked, not planned, and no gang of their plans is explained."""

WORDS = {
    "/etc/gangplan/kubeconfig": "kubeconfig",
    "/etc/gangplan/policy.yaml": "policy.yaml",
    "/var/lib/node_exporter/gangplan.prom": "gangplan.prom",
}
"""Places of a machine, and where they are here."""


MORE = """
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: more, namespace: research}
spec: {roles: [{name: worker, replicas: 2, gpus: 8}]}
"""


def commands(path: Path) -> list[str]:
    """Lines of code blocks with a gangplan command in them, without prompts, schedules and redirections."""
    found = []
    for language, block in re.findall(
        r"^```(\w*)\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL
    ):
        if language not in ("", "bash", "console", "sh"):
            continue
        for line in re.sub(r"\\\n\s*", "", block).splitlines():
            called = re.match(
                r"(?:\$ )?((?:(?:kubectl|ssh) [^|#]*\| )?(?:kubectl )?gangplan [a-z-].*)", line
            )
            scheduled = re.match(r"\*/5 [* ]+ \w+ .*?(gangplan [a-z].*?)(?: \d?>>.*)?$", line)
            if match := called or scheduled:
                found.append(match[1])
    return found


def words_of(command: str) -> list[str]:
    """Arguments of gangplan in a command, after the verb too."""
    words = shlex.split(command.rpartition("| ")[2], comments=True)
    return words[words.index("gangplan") + 1 :]


@pytest.mark.parametrize("path", PAGES, ids=lambda path: path.name)
def test_every_line_that_begins_with_the_program_is_found_and_has_options_of_its_verb(
    path: Path,
) -> None:
    blocks = re.findall(r"^```\w*\n(.*?)^```$", text(path), re.MULTILINE | re.DOTALL)
    begun = sum(
        len(
            re.findall(
                r"^(?:\$ )?gangplan [a-z]+\b(?! {2,}(?:ok|warning|failed))", one, re.MULTILINE
            )
        )
        for one in blocks
    )
    found = commands(path)
    assert len(found) >= begun
    group = typer.main.get_command(app)
    for command in found:
        verb, *rest = words_of(command)
        group.commands[verb].make_context(verb, rest)  # type: ignore[attr-defined]


def prepare(stage: Stage) -> None:
    """Inputs that pages name without making them."""
    folder = stage.folder
    for name in ("inputs", "tests"):
        (folder / name).symlink_to(ROOT / name)
    for name in ("nvidia-smi.txt", "gpu-07.txt"):
        shutil.copy(SAMPLE, folder / name)
    shutil.copy(ROOT / "tests/inputs/stability/cluster.yaml", folder)
    (folder / "gangs.yaml").write_text(MORE, encoding="utf-8")
    for name in ("queue.yaml", "queue-now.yaml"):
        shutil.copy(ROOT / "tests/inputs/stability/queue.yaml", folder / name)
    for name in ("nodes.json", "queue.json"):
        shutil.copy(ROOT / "inputs/slurm" / name, folder)
    shutil.copy(environment(folder)["KUBECONFIG"], folder / "as-gangplan")
    (folder / "topology.conf").write_text("SwitchName=s1 Nodes=gpu-[01-04]\n", encoding="utf-8")


def what_if(path: Path) -> str:
    """The documented one belongs to a recorded cluster with blocks."""
    return code_blocks(text(KUBERNETES), "yaml")[0] if path == KUBERNETES else MORE


def large(words: list[str]) -> bool:
    """Whether to plan that input takes too long for a short run of the tests."""
    return bool(LARGE.intersection(words)) and not examples(1, 0)


def expanded(pattern: str) -> list[str]:
    """As a shell does."""
    return sorted(str(path) for path in Path().glob(pattern))


def run(command: str, stage: Stage) -> Result:
    """Run it in the folder of the stage; a plan gets a small budget, and no question is asked."""
    before, piped, _ = command.rpartition("| ")
    environ = environment(stage.folder, USER="kim")
    given = b""
    if piped and before.startswith("kubectl"):
        words = [environ["KUBECTL"], *shlex.split(before)[1:]]
        given = subprocess.run(
            words, env=environ, capture_output=True, timeout=HANG_S, check=True
        ).stdout
    elif piped:
        given = SAMPLE.read_bytes()
    words = [WORDS.get(word, word) for word in words_of(command)]
    with chdir(stage.folder):
        words = [one for word in words for one in ((word,) if "*" not in word else expanded(word))]
    if words[0] in ("plan", "audit") and large(words):
        words = ["validate", *LARGE.intersection(words)]
    elif words[0] == "plan" and "--budget" not in words:
        words += ["--budget", "1"]
    elif words[0] == "audit" and "--time-limit" not in words:
        words += ["--time-limit", "2s"]
    elif words[0] == "snapshot":
        folder = stage.folder / words[words.index("--out") + 1]
        shutil.rmtree(folder, ignore_errors=True)
        folder.parent.mkdir(exist_ok=True)
    if words[0] == "apply" and not {"--yes", "--dry-run"} & set(words):
        words.append("--yes")  # it would ask
    with chdir(stage.folder):
        return stage.cli(*words, stdin=given, environ=environ)


def test_the_commands_of_the_pages_do_what_they_say(cli: RunCli, tmp_path: Path) -> None:
    failed, seen = [], set()
    with staged(tmp_path, cli) as stage:
        for node in range(1, 5):
            stage.run(
                f"kubectl label node gpu-0{node} node.coreweave.cloud/rack=r{(node + 1) // 2}"
            )
        stage.run("gangplan snapshot --out monday --force")
        stage.run("gangplan plan monday --out plan.json")
        prepare(stage)
        shutil.copy(tmp_path / "plan.json", tmp_path / "kept.json")
        for path in PAGES:
            made: list[str] = []
            shutil.copy(tmp_path / "kept.json", tmp_path / "plan.json")
            (tmp_path / "whatif.yaml").write_text(what_if(path), encoding="utf-8")
            for command in commands(path):
                words = words_of(command)
                writes = words[0] == "plan" and "plan.json" in words
                made = words if writes else made
                skipped = words[0] == "explain" and large(made)
                if skipped or ((*words, *made) in seen and not writes):
                    continue
                seen.add((*words, *made))
                done = run(command, stage)
                if done.code not in (SETTLED | CHANGING).get(words[0], {0}):
                    failed.append(f"{path.name}: {command}: exit {done.code}: {done.err}")
    assert not failed, "\n".join(failed)
    assert len(seen) > 60
