"""What the documents say is there, is there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
import yaml
from apiserver import FakeCluster
from bundles import load_all
from conftest import RunCli
from kube import node
from pages import KUBERNETES, ROOT, code_blocks, text
from played_workloads import Workloads

from models.rules.registry import requirements
from planner.cli.app import app

DOCUMENTS = sorted([*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("inputs/**/*.md")])
VERBS = {command.name for command in app.registered_commands if command.name}


def test_links_resolve_and_no_verb_is_told_of_that_is_not_there() -> None:
    for path in DOCUMENTS:
        content = text(path)
        for target in re.findall(r"\]\(([^)]+)\)", content):
            if not target.startswith(("https://", "http://")):
                assert (path.parent / target.partition("#")[0]).exists(), (path, target)
        commands = "\n".join(code_blocks(content))
        called = re.findall(
            r"^(?:\$ )?(?:kubectl )?gangplan ([a-z][a-z-]+)", commands, re.MULTILINE
        )
        called += re.findall(r"`(?:kubectl )?gangplan ([a-z][a-z-]+)", content)
        assert set(called) <= VERBS, path
    readme = text(ROOT / "README.md")
    assert set(re.findall(r"^\| `gangplan ([a-z][a-z-]+)", readme, re.MULTILINE)) == VERBS


def test_the_quickstart_is_two_commands_of_the_makefile() -> None:
    quickstart = text(ROOT / "README.md").partition("## Quickstart")[2].partition("\n## ")[0]
    commands = code_blocks(quickstart)[0].split("\n")[:-1]
    assert commands == ["make demo", "make test"]
    targets = re.findall(r"^([a-z]+):", text(ROOT / "Makefile"), re.MULTILINE)
    assert {"demo", "test", "check", "bench"} <= set(targets)


def test_options_told_of_are_options(cli: RunCli, capsys: pytest.CaptureFixture[str]) -> None:
    cli("--help")
    for verb in sorted(VERBS):
        cli(verb, "--help")
    offered = set(re.findall(r"--[a-z-]+", capsys.readouterr().out))
    others = {"--strict", "--refresh-golden", "--thorough", "--whole"}  # of mypy, of pytest
    others |= {"--raw", "--from", "--patch-file", "--field-selector", "--minify"}  # of kubectl
    others |= {"--flatten", "--token", "--user", "--current"}
    others |= {"--nnodes", "--nproc-per-node", "--node-rank", "--master-addr"}  # of torchrun
    others |= {"--by-speed"}  # of tests/oracle/exhaustive_sweep.py
    others |= {"--fixed"}  # of benchmarks/effective.py
    others |= {"--json", "--gpus-per-node", "--gres", "--gpus-per-task", "--gpus"}  # of Slurm
    others |= {"--constraint", "--nodelist", "--exclude", "--partition", "--exclusive"}
    others |= {"--segment", "--switches", "--contiguous"}
    ours = [
        path for path in DOCUMENTS if path.parent.name != "lingjun"
    ]  # tells of a script's options
    for path in ours:
        told = set(re.findall(r"(?<![\w-])--[a-z][a-z-]+", text(path)))
        assert told <= offered | others | {"--help", "--version"}, path


def test_yaml_in_the_documents_is_yaml() -> None:
    for path in ROOT.glob("docs/*.md"):
        for block in code_blocks(text(path), "yaml"):
            assert list(yaml.safe_load_all(block)), path


def test_the_documented_inputs_are_valid_input(cli: RunCli, tmp_path: Path) -> None:
    blocks = code_blocks(text(ROOT / "docs" / "inputs.md"), "yaml")
    documents = [block for block in blocks if block.startswith("apiVersion")]
    kinds = [next(yaml.safe_load_all(block))["kind"] for block in documents]
    assert kinds == ["Cluster", "Gang", "Queue", "Policy"]
    (tmp_path / "documented.yaml").write_text("---\n".join(documents), encoding="utf-8")
    result = cli("validate", str(tmp_path))
    assert (result.code, result.err.count("error")) == (0, 0), result.err
    # gpu-01 to gpu-16 and gpu-17, eight GPUs each
    assert result.out == "valid: 17 nodes, 136 GPUs, 1 gang (0 running, 1 waiting), 2 queues\n"


H100 = str(ROOT / "inputs" / "snapshots" / "h100-gke")


@pytest.mark.slow
def test_the_documented_what_if_and_policies_are_valid_beside_a_recorded_cluster(
    cli: RunCli, tmp_path: Path
) -> None:
    what_if, for_slurm, _, policy = code_blocks(text(KUBERNETES), "yaml")
    (tmp_path / "what-if.yaml").write_text(what_if, encoding="utf-8")
    result = cli("validate", H100, str(tmp_path / "what-if.yaml"))
    assert (result.code, "error" in result.err) == (0, False), result.err
    # 96 servers of 8 and 16 on order; 86 gangs and one imagined
    assert result.out.splitlines()[0] == (
        "valid: 112 nodes, 896 GPUs, 87 gangs (42 running, 45 waiting), 5 queues"
    )
    for document in (for_slurm, policy):
        (tmp_path / "policy.yaml").write_text(document, encoding="utf-8")
        assert cli("validate", H100, "--policy", str(tmp_path / "policy.yaml")).code == 0


def test_the_documented_deployment_is_an_elastic_gang() -> None:
    cluster = FakeCluster()
    cluster.writers.append(Workloads(cluster.objects))
    cluster.add_namespace("rl")
    made = cluster.create(
        yaml.load(code_blocks(text(KUBERNETES), "yaml")[2], Loader=yaml.CSafeLoader)
    )
    sets = cluster.handle("GET", "/apis/apps/v1/replicasets")[1]["items"]
    kinds = {"kind": "ReplicaSet", "apiVersion": "apps/v1"}
    pods = [{"kind": "Pod", "apiVersion": "v1", **one} for one in cluster.pods("rl")]
    nodes = [node(f"n{number}") for number in range(6)]
    (gang,) = load_all([*nodes, *(kinds | one for one in sets), *pods]).instance.gangs
    (role,) = gang.roles
    assert (gang.name, gang.preemptible) == (made["metadata"]["name"], True)
    assert (role.min, role.max, role.step, len(gang.pods)) == (2, 6, 2, 6)


def test_warnings_told_of_are_warnings_of_the_readers() -> None:
    sources = "\n".join(text(path) for path in sorted((ROOT / "planner").rglob("*.py")))
    said = re.sub(r'"\s*\n\s*f?"', "", sources)  # a sentence written over two lines
    table = text(KUBERNETES).partition("## Warnings")[2].partition("\n## ")[0]
    told = re.findall(r"^\| `([^`]+)` \|", table, re.MULTILINE)
    assert len(told) >= 7
    for warning in told:
        for part in re.split(r"\.\.\.|\d+", warning):
            assert part.strip() in said, warning


def test_the_policy_that_is_told_of_holds_every_setting_and_its_default() -> None:
    from models.documents import base, policy

    block = yaml.load(code_blocks(text(KUBERNETES), "yaml")[3], Loader=yaml.CSafeLoader)
    told = block["spec"]["kubernetes"]
    settings = policy.PolicyDocument.model_validate(
        {"apiVersion": block["apiVersion"], "kind": "Policy"}
    ).spec.kubernetes
    fields = dict(zip(base.fields_of(type(settings)), type(settings).__match_args__, strict=True))
    assert set(told) == set(fields)
    read = policy.PolicyDocument.model_validate(block).spec.kubernetes
    # Defaults that the canonical form leaves out, to keep the bytes of older plans, count too.
    for name in set(told) - {"levels", "serverModels", "ignore", "otherSchedulers"}:
        assert getattr(read, fields[name]) == getattr(settings, fields[name]), name


def test_exit_codes_told_of_are_those_of_the_errors() -> None:
    from planner import errors
    from planner.signals import CAUGHT

    told = set(re.findall(r"^\| ([\d, ]+) \|", text(ROOT / "README.md"), re.MULTILINE))
    codes = {int(code) for row in told for code in row.split(",")}
    known = {
        error.exit_code
        for error in vars(errors).values()
        if isinstance(error, type) and issubclass(error, errors.GangplanError)
    }
    assert codes == known | {0, 2, 3, 7, *(128 + number for number in CAUGHT)}


def test_the_page_of_explain_has_all_that_anybody_may_ask_for(
    request: pytest.FixtureRequest,
) -> None:
    path, rows = ROOT / "docs" / "explain.md", []
    for one in requirements():
        who = "operator" if one.operator else "owner"
        code, word = (f"`{said}`" if said else "-" for said in (one.code, one.word))
        rows.append(f"| `{one.name}` | {one.asks.format('...')} | {who} | {code} | {word} |")
    page = text(path)
    first, head, rest = page.partition("| `--relax` |\n|---|---|---|---|---|\n")
    made = first + head + "\n".join(rows) + "".join(rest.partition("\n\n")[1:])
    if request.config.getoption("--refresh-golden"):
        path.write_text(made, encoding="utf-8")
    else:
        assert made == page
