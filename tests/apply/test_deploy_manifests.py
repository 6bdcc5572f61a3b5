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

import pytest
import typer
import yaml
from deploying import DEPLOY, Tree, built

from planner import errors
from planner.cli.app import run
from planner.show.console import Console

ROOT = DEPLOY.parent


def _one(documents: tuple[Tree, ...], kind: str) -> Tree:
    (found,) = [one for one in documents if one["kind"] == kind]
    return found


FOLDERS = ("base", "admission", "default", "evictions", "watch")


def _job() -> Tree:
    return _one(built("default"), "CronJob")


def _pod() -> Tree:
    pod: Tree = copy.deepcopy(_job()["spec"]["jobTemplate"]["spec"]["template"]["spec"])
    return pod


def test_everything_that_is_shipped_is_built_into_some_folder() -> None:
    counts = {folder: len(built(folder)) for folder in (*FOLDERS, "dra", "tenants/example")}
    # base: namespace, account, 2 + 2 + 1 of RBAC, ConfigMap, quota, CronJob, NetworkPolicy;
    # admission: 5 policies, each bound
    assert counts == {
        "base": 11,
        "admission": 10,
        "default": 21,
        "evictions": 22,
        "watch": 22,
        "dra": 3,
        "tenants/example": 1,
    }


def test_two_runs_are_never_at_once_and_none_goes_on_for_ever() -> None:
    spec = _job()["spec"]
    assert len(_job()["metadata"]["name"]) <= 52
    assert spec["concurrencyPolicy"] == "Forbid"
    assert spec["timeZone"] == "Etc/UTC"
    assert spec["startingDeadlineSeconds"] == 300
    assert (spec["successfulJobsHistoryLimit"], spec["failedJobsHistoryLimit"]) == (3, 3)
    job = spec["jobTemplate"]["spec"]
    policy = yaml.safe_load(_one(built("default"), "ConfigMap")["data"]["policy.yaml"])
    assert policy["spec"]["solve"]["timeLimit"] == "2m"
    assert job["activeDeadlineSeconds"] == 2 * 60 + 300
    assert (job["backoffLimit"], _pod()["restartPolicy"]) == (2, "Never")


def test_the_job_gives_up_on_exactly_the_codes_that_no_try_helps() -> None:
    rules = _job()["spec"]["jobTemplate"]["spec"]["podFailurePolicy"]["rules"]
    fail, ignore = rules
    assert fail["action"] == "FailJob"
    codes = set(fail["onExitCodes"]["values"])
    assert fail["onExitCodes"]["containerName"] == _pod()["containers"][0]["name"]
    classes = [one for one in vars(errors).values() if isinstance(one, type)]
    known = {one.exit_code for one in classes if issubclass(one, errors.GangplanError)}
    again = {4, 6, 7, 69, 75, 130, 143}  # what another try may change
    assert codes == {1, 3, 5, 64, 65, 66, 73, 77}
    assert known <= codes | again
    assert not codes & again
    assert ignore["action"] == "Ignore"
    assert ignore["onPodConditions"] == [{"type": "DisruptionTarget", "status": "True"}]


def test_the_pod_may_do_nothing_but_write_to_tmp() -> None:
    pod, (container,) = _pod(), _pod()["containers"]
    assert pod["securityContext"]["runAsNonRoot"] is True
    assert pod["securityContext"]["seccompProfile"] == {"type": "RuntimeDefault"}
    assert container["securityContext"] == {
        "allowPrivilegeEscalation": False,
        "readOnlyRootFilesystem": True,
        "capabilities": {"drop": ["ALL"]},
    }
    mounts = {one["mountPath"]: one.get("readOnly", False) for one in container["volumeMounts"]}
    assert mounts == {"/etc/gangplan": True, "/tmp": False}
    enforced = _one(built("base"), "Namespace")["metadata"]["labels"]
    assert enforced["pod-security.kubernetes.io/enforce"] == "restricted"


def test_the_pod_asks_for_the_memory_that_was_measured_and_goes_first() -> None:
    pod, (container,) = _pod(), _pod()["containers"]
    assert container["resources"] == {
        "requests": {"cpu": "2", "memory": "2Gi"},  # 1.3 GB at 12,500 nodes
        "limits": {"memory": "4Gi"},
    }
    quota = _one(built("default"), "ResourceQuota")["spec"]
    (term,) = quota["scopeSelector"]["matchExpressions"]
    assert term["scopeName"] == "PriorityClass"
    assert term["values"] == [pod["priorityClassName"]] == ["system-cluster-critical"]
    assert int(quota["hard"]["pods"]) >= 2  # a run, and a Job of doctor beside it


def test_only_the_api_server_can_be_talked_to() -> None:
    spec = _one(built("base"), "NetworkPolicy")["spec"]
    assert spec["policyTypes"] == ["Ingress", "Egress"]
    assert "ingress" not in spec
    (rule,) = spec["egress"]
    assert {(one["protocol"], one["port"]) for one in rule["ports"]} == {
        ("TCP", 443),
        ("TCP", 6443),
    }


def test_the_shipped_policy_is_valid(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    text = _one(built("default"), "ConfigMap")["data"]["policy.yaml"]
    (tmp_path / "policy.yaml").write_text(text)
    nodes = ROOT / "inputs" / "quickstart"
    assert run(["validate", str(nodes), "--policy", str(tmp_path / "policy.yaml")], Console()) == 0
    assert capsys.readouterr().out.startswith("valid: ")


def _options(verb: str) -> set[str]:
    alone = typer.Typer()
    alone.command()(getattr(importlib.import_module(f"planner.cli.verbs.{verb}"), verb))
    return {name for one in typer.main.get_command(alone).params for name in one.opts}


@pytest.mark.parametrize("folder", ["default", "evictions"])
def test_the_container_is_called_with_options_that_there_are(folder: str) -> None:
    job = _one(built(folder), "CronJob")["spec"]["jobTemplate"]["spec"]["template"]["spec"]
    verb, *arguments = job["containers"][0]["args"]
    named = {one.partition("=")[0] for one in arguments if one.startswith("--")}
    assert named <= _options(verb)
    assert ("--allow-evictions" in named) == (folder == "evictions")


def test_the_deployment_is_the_pod_of_the_job_that_goes_on() -> None:
    """Only its restarts and --watch differ. Jobs such as doctor are made from the CronJob beside it."""
    deployment, job = (
        copy.deepcopy(_one(built("watch"), kind)) for kind in ("Deployment", "CronJob")
    )
    assert (deployment["spec"]["replicas"], deployment["spec"]["strategy"]) == (
        1,
        {"type": "Recreate"},
    )
    assert job["spec"]["suspend"] is True
    template, pod = deployment["spec"]["template"], _pod()
    assert deployment["spec"]["selector"]["matchLabels"] == template["metadata"]["labels"]
    verb, watch, *arguments = template["spec"]["containers"][0].pop("args")
    assert [verb, *arguments] == pod["containers"][0].pop("args")
    assert watch == "--watch"
    assert {watch} < _options(verb)
    pod.pop("restartPolicy")
    assert template["spec"] == pod


def test_systemd_runs_the_same_with_options_that_there_are() -> None:
    unit = _unit("gangplan.service")
    program, verb, *arguments = shlex.split(unit["Service"]["ExecStart"])
    assert program == "/usr/local/bin/gangplan"
    assert {one for one in arguments if one.startswith("--")} <= _options(verb)
    assert unit["Service"]["SuccessExitStatus"] == "6 75 143"
    assert unit["Service"]["UMask"] == "0022", "node_exporter reads the metrics as somebody else"
    assert _unit("gangplan.timer")["Timer"]["OnCalendar"] == "*:0/10"


def _unit(name: str) -> configparser.ConfigParser:
    parser = configparser.ConfigParser(interpolation=None, strict=False)  # keys may repeat
    parser.optionxform = str  # type: ignore[assignment,method-assign]  # keys keep their case
    parser.read(DEPLOY / "systemd" / name)
    return parser


def test_the_image_holds_pinned_packages_that_the_project_accepts() -> None:
    from packaging.requirements import Requirement

    text = (DEPLOY / "image" / "requirements.txt").read_text()
    pinned = dict(re.findall(r"^([a-z0-9-]+)==([^ ]+) \\$", text, re.MULTILINE))
    assert text.count("==") == len(pinned)
    assert text.count("--hash=sha256:") >= len(pinned)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for one in map(Requirement, project["dependencies"]):
        assert pinned[one.name.lower()] in one.specifier


def test_the_base_images_have_no_default_and_need_a_digest() -> None:
    recipe = (DEPLOY / "image" / "Dockerfile").read_text()
    assert not re.search(r"^(ARG \w+=|# *syntax)", recipe, re.MULTILINE)
    assert set(re.findall(r"^FROM (\S+)", recipe, re.MULTILINE)) == {"${KUBECTL}", "${PYTHON}"}
    found = re.search(r"RUN (for image in .*?done)\n", recipe, re.DOTALL)
    assert found is not None
    check = found[1].replace("\\\n", "")
    digest = "@sha256:" + "0a" * 32
    cases = {
        (f"python:3.11{digest}", f"kubectl:v1{digest}"): 0,
        (f"python:3.11{digest}", "kubectl:v1"): 1,
        ("python:3.11", f"kubectl:v1{digest}"): 1,
        (f"python:3.11{digest[:-1]}", f"kubectl:v1{digest}"): 1,
        ("", ""): 1,
    }
    for (python, kubectl), code in cases.items():
        done = subprocess.run(
            ["/bin/sh", "-c", check],
            env={"PYTHON": python, "KUBECTL": kubectl, "PATH": os.environ["PATH"]},
            capture_output=True,
            check=False,
        )
        assert done.returncode == code


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


def test_the_image_is_built_from_what_it_is_given_and_runs_as_nobody() -> None:
    lines = (DEPLOY / "image" / "Dockerfile").read_text().splitlines()
    ignored = (DEPLOY / "image" / "Dockerfile.dockerignore").read_text().splitlines()
    given = {line[1:] for line in ignored if line.startswith("!")}
    copied = {
        name
        for line in lines
        if line.startswith("COPY ") and "--from" not in line
        for name in line.split()[1:-1]
    }
    assert copied == given
    assert all((ROOT / name).exists() for name in copied)
    assert "USER 65532:65532" in lines
    assert _pod()["securityContext"]["runAsUser"] == 65532
