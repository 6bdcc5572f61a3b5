"""What ``deploy/`` ships to run gangplan: manifests as kubectl builds them, units of systemd, the image."""

from __future__ import annotations

import configparser
import copy
import importlib
import os
import re
import shlex
import shutil
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import typer
import yaml
from deploying import DEPLOY, Tree, built
from packaging.requirements import Requirement

from planner import errors
from planner.cli.app import run
from planner.show.console import Console

ROOT = DEPLOY.parent


def only(documents: tuple[Tree, ...], kind: str) -> Tree:
    (found,) = [one for one in documents if one["kind"] == kind]
    return copy.deepcopy(found)


def job_of(folder: str = "default") -> Tree:
    return only(built(folder), "CronJob")


def pod_of(folder: str = "default") -> Tree:
    pod: Tree = job_of(folder)["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    return pod


def policy_text() -> str:
    text: str = only(built("default"), "ConfigMap")["data"]["policy.yaml"]
    return text


def options_of(verb: str) -> set[str]:
    alone = typer.Typer()
    alone.command()(getattr(importlib.import_module(f"planner.cli.verbs.{verb}"), verb))
    return {name for one in typer.main.get_command(alone).params for name in one.opts}


def test_everything_that_is_shipped_is_built_into_some_folder() -> None:
    # base: namespace, account, 2 + 2 + 1 of RBAC, ConfigMap, quota, CronJob, NetworkPolicy;
    # admission: 6 policies, each bound
    counts = {
        "base": 11, "admission": 10, "default": 21, "evictions": 22, "watch": 22, "dra": 3,
        "gate": 4, "give-back": 1, "kueue": 4, "kai": 1, "shadow": 9, "tenants/example": 1,
    }  # fmt: skip
    assert {folder: len(built(folder)) for folder in counts} == counts


def test_the_shadow_can_read_and_nothing_else() -> None:
    roles = [one for one in built("shadow") if one["kind"] in {"Role", "ClusterRole"}]
    assert {verb for role in roles for rule in role["rules"] for verb in rule["verbs"]} == {
        "get",
        "list",
    }
    (container,) = pod_of("shadow")["containers"]
    assert container["args"][:3] == ["run", "--shadow", "/journal"]
    assert "/journal" in {one["mountPath"] for one in container["volumeMounts"]}


FACTS = yaml.load(
    Path(__file__).with_name("deploy_facts.yaml").read_text("utf-8"), Loader=yaml.CSafeLoader
)


def at(tree: Any, path: str) -> Any:  # noqa: ANN401
    """What is there: ``spec/containers/0/args``; None for nothing."""
    for name in path.split("/"):
        tree = (
            tree[int(name)] if isinstance(tree, list) else (tree or {}).get(name.replace("|", "/"))
        )
    return tree


@pytest.mark.parametrize(
    ("folder", "kind"), [(folder, kind) for folder in FACTS for kind in FACTS[folder]]
)
def test_what_is_shipped_holds_what_has_a_reason(folder: str, kind: str) -> None:
    tree = only(built(folder), kind)
    facts = FACTS[folder][kind]
    assert {path: at(tree, path) for path in facts} == facts


def test_no_run_goes_on_for_ever_and_quotas_suffice() -> None:
    assert len(job_of()["metadata"]["name"]) <= 52
    assert yaml.load(policy_text(), Loader=yaml.CSafeLoader)["spec"]["solve"]["timeLimit"] == "2m"
    assert job_of()["spec"]["jobTemplate"]["spec"]["activeDeadlineSeconds"] == 2 * 60 + 300
    quota = only(built("default"), "ResourceQuota")["spec"]
    assert int(quota["hard"]["pods"]) >= 2  # a run, and a Job of doctor beside it
    (term,) = quota["scopeSelector"]["matchExpressions"]
    assert term["values"] == [pod_of()["priorityClassName"]]
    (container,) = pod_of()["containers"]
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert mounts == {"/etc/gangplan": True, "/tmp": False}


def test_the_job_gives_up_on_exactly_the_codes_that_no_try_helps() -> None:
    fail, _ = job_of()["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    codes = {1, 3, 5, 64, 65, 66, 73, 77}
    name = pod_of()["containers"][0]["name"]
    exits = {"containerName": name, "operator": "In", "values": sorted(codes)}
    assert fail == {"action": "FailJob", "onExitCodes": exits}
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    known = {one.exit_code for one in classes if issubclass(one, errors.GangplanError)}
    assert known - codes <= {4, 6, 7, 69, 75, 130, 143}, "what another try may change"


def test_the_shipped_policy_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "policy.yaml").write_text(policy_text())
    nodes = ROOT / "inputs" / "quickstart"
    assert run(["validate", str(nodes), "--policy", str(tmp_path / "policy.yaml")], Console()) == 0
    assert capsys.readouterr().out.startswith("valid: ")


@pytest.mark.parametrize("folder", ["default", "evictions", "give-back"])
def test_the_container_is_called_with_options_that_there_are(folder: str) -> None:
    verb, *arguments = pod_of(folder)["containers"][0]["args"]
    named = {one.partition("=")[0] for one in arguments if one.startswith("--")}
    assert named <= options_of(verb)
    assert ("--allow-evictions" in named) == (folder == "evictions")


def test_giving_back_is_the_same_pod_that_may_do_no_more() -> None:
    ours, theirs = pod_of("give-back"), pod_of()
    assert {key for key in ours if ours[key] != theirs[key]} == {"containers", "volumes"}
    mine, other = ours["containers"][0], theirs["containers"][0]
    assert mine["securityContext"] == other["securityContext"]
    assert {one["name"]: one["mountPath"] for one in mine["volumeMounts"]} == {"tmp": "/tmp"}


def test_the_deployment_is_the_pod_of_the_job_that_goes_on() -> None:
    """Only its restarts and --watch differ. Jobs such as doctor are made from the CronJob beside it."""
    spec = only(built("watch"), "Deployment")["spec"]
    template, pod = spec["template"], pod_of()
    assert spec["selector"]["matchLabels"] == template["metadata"]["labels"]
    verb, watch, *arguments = template["spec"]["containers"][0].pop("args")
    assert [verb, *arguments] == pod["containers"][0].pop("args")
    assert watch == "--watch"
    assert {watch} < options_of(verb)
    pod.pop("restartPolicy")
    assert template["spec"] == pod


# ---- systemd


def unit_of(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)  # keys may repeat
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read(DEPLOY / "systemd" / name)
    return parser


def test_systemd_runs_the_same_with_options_that_there_are() -> None:
    service = unit_of("gangplan.service")["Service"]
    program, verb, *arguments = shlex.split(service["ExecStart"])
    assert program == "/usr/local/bin/gangplan"
    assert {one for one in arguments if one.startswith("--")} <= options_of(verb)
    assert service["SuccessExitStatus"] == "6 75 143"
    assert service["UMask"] == "0022", "node_exporter reads the metrics as somebody else"
    assert unit_of("gangplan.timer")["Timer"]["OnCalendar"] == "*:0/10"


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_reads_the_unit_and_finds_little_exposed(tmp_path: Path) -> None:
    text = (DEPLOY / "systemd" / "gangplan.service").read_text()
    unit = tmp_path / "gangplan.service"
    unit.write_text(text.replace("/usr/local/bin/gangplan", "/bin/true"))
    read = ["systemd-analyze", "verify", "--man=no", "--recursive-errors=no", str(unit)]
    done = subprocess.run(read, capture_output=True, text=True, check=False)
    assert (done.returncode, "gangplan.service" in done.stderr) == (0, False), done.stderr
    judged = ["systemd-analyze", "security", "--offline=true", "--threshold=20", str(unit)]
    done = subprocess.run(judged, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-400:]


# ---- the image


def image(name: str) -> str:
    return (DEPLOY / "image" / name).read_text()


def test_the_image_holds_pinned_packages_that_the_project_accepts() -> None:
    text = image("requirements.txt")
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+) \\$", text, re.MULTILINE))
    assert text.count("==") == len(pinned) <= text.count("--hash=sha256:")
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in map(Requirement, project["dependencies"]):
        assert pinned[one.name.lower()] in one.specifier


DIGEST = "@sha256:" + "0a" * 32


def test_the_base_images_have_no_default_and_need_a_digest() -> None:
    recipe = image("Dockerfile")
    assert not re.search(r"^(ARG \w+=|# *syntax)", recipe, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${KUBECTL}", "${PYTHON}"}
    found = re.search(r"RUN (for image in .*?done)\n", recipe, re.DOTALL)
    assert found is not None
    check = found[1].replace("\\\n", "")
    for python, kubectl, code in (
        (f"python:3.11{DIGEST}", f"kubectl:v1{DIGEST}", 0),
        (f"python:3.11{DIGEST}", "kubectl:v1", 1),
        ("python:3.11", f"kubectl:v1{DIGEST}", 1),
        (f"python:3.11{DIGEST[:-1]}", f"kubectl:v1{DIGEST}", 1),
        ("", "", 1),
    ):
        given = {"PYTHON": python, "KUBECTL": kubectl, "PATH": os.environ["PATH"]}
        done = subprocess.run(["/bin/sh", "-c", check], env=given, capture_output=True, check=False)
        assert done.returncode == code


def test_the_image_is_built_from_what_it_is_given_and_runs_as_nobody() -> None:
    lines = image("Dockerfile").splitlines()
    ignored = image("Dockerfile.dockerignore").splitlines()
    copies = [line for line in lines if line.startswith("COPY ") and "--from" not in line]
    copied = {name for line in copies for name in line.split()[1:-1]}
    assert copied == {line[1:] for line in ignored if line.startswith("!")}
    assert all((ROOT / name).exists() for name in copied)
    assert "USER 65532:65532" in lines
    assert pod_of()["securityContext"]["runAsUser"] == 65532
