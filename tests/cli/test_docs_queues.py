"""The pages docs/beside-*.md: five steps, and manifests whose pods get the gate and are gangs of gangplan."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
import yaml
from admission import gates
from apiserver import FakeCluster
from apiserver_kinds import Kind
from bundles import load_all
from kube import node
from pages import ROOT, code_blocks, text

from models.documents.policy import PolicyDocument

Tree = dict[str, Any]

PAGES = ("beside-kueue", "beside-volcano", "beside-kai", "beside-slurm")
SERVED = (
    ("ResourceFlavor", "kueue.x-k8s.io", "v1beta2", False),
    ("ClusterQueue", "kueue.x-k8s.io", "v1beta2", False),
    ("LocalQueue", "kueue.x-k8s.io", "v1beta2", True),
    ("Queue", "scheduling.volcano.sh", "v1beta1", False),
    ("Job", "batch.volcano.sh", "v1alpha1", True),
    ("Queue", "scheduling.run.ai", "v2", False),
)
"""Custom kinds: name, group, version, whether they have namespaces. Their own webhooks are not here."""


def documents(page: str) -> list[Tree]:
    blocks = code_blocks(text(ROOT / "docs" / f"{page}.md"), "yaml")
    return [one for block in blocks for one in yaml.safe_load_all(block)]


def templates(tree: Tree) -> Iterator[tuple[int, Tree]]:
    """(pods, template) of a Job of Kubernetes or Volcano."""
    spec = tree["spec"]
    if tree["apiVersion"] == "batch/v1":
        yield spec["parallelism"], spec["template"]
    for task in spec.get("tasks", ()):
        yield task["replicas"], task["template"]


def cluster() -> FakeCluster:
    made = FakeCluster()
    for name, group, version, namespaced in SERVED:
        plural = f"{name.lower()}s"
        made.kinds.serve(Kind(name, plural, group, version, namespaced, custom=True))
    made.add_namespace("research")
    return made


ADDED = {
    "beside-kueue": {"kueue.x-k8s.io/local-queue-name": "research"},
    "beside-volcano": {"volcano.sh/queue-name": "research"},
}
"""Labels that the controllers of a page give to pods."""


def opted_in(page: str) -> Tree:
    """The annotations of the namespace after the commands of the page; it has to be labelled."""
    written = text(ROOT / "docs" / f"{page}.md")
    assert "kubectl label namespace research gangplan.dev/placement=enabled" in written
    found = re.search(r"kubectl annotate namespace research (\S+)=(\S+)", written)
    return {} if found is None else {found[1]: found[2]}


def pods_of(job: Tree, made: FakeCluster, page: str) -> list[Tree]:
    """The pods of a job as its controller makes them, gated as the policy of deploy/gate does it."""
    owner = {name: job[name] for name in ("apiVersion", "kind")}
    owner |= {name: job["metadata"][name] for name in ("name", "uid")}
    pods = []
    for count, template in templates(job):
        for index in range(count):
            metadata = {
                "labels": template.get("metadata", {}).get("labels", {}) | ADDED.get(page, {}),
                "name": f"{job['metadata']['name']}-{index}",
                "namespace": "research",
                "ownerReferences": [{**owner, "controller": True}],
            }
            tree = {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": dict(template["spec"]),
            }
            assert gates(tree, opted_in(page), "tenant")
            tree["spec"]["schedulingGates"] = [{"name": "gangplan.dev/placement"}]
            pods.append(made.create(tree))
    return pods


@pytest.mark.parametrize("page", PAGES)
def test_manifests_are_accepted_and_make_one_gang_that_waits_for_gangplan(page: str) -> None:
    made = cluster()
    pods: list[Tree] = []
    for tree in documents(page):
        if tree["kind"] == "Policy":
            assert PolicyDocument.model_validate(tree)
            continue
        kept = made.create(tree)
        assert kept["spec"].items() >= tree["spec"].items()
        pods += pods_of(kept, made, page) if tree["kind"] == "Job" else []
    selected = pods[0]["spec"].get("nodeSelector", {})
    trees = [*(node(f"n{number}", **selected) for number in range(4)), *pods]
    found = load_all(trees)
    (gang,) = found.instance.gangs
    assert (gang.name, gang.scheduler, gang.hold) == ("llama", None, None)
    assert [(role.min, role.gpus) for role in gang.roles] == [(4, 8)]
    assert {pod.mode for pod in gang.pods} == {"gate"}


@pytest.mark.parametrize("page", PAGES)
def test_a_page_has_five_steps_with_what_to_expect_and_the_first_only_reads(page: str) -> None:
    _, *steps = re.split(r"^## [1-5]\. ", text(ROOT / "docs" / f"{page}.md"), flags=re.MULTILINE)
    assert len(steps) == 5
    assert all("Expect: " in step and "```\n" in step for step in steps)
    lines = [one for block in code_blocks(steps[0], "") for one in block.splitlines()]
    reading = r"(gangplan (snapshot|plan|audit|explain|capacity)|scontrol show|squeue) "
    assert lines
    assert [one for one in lines if not re.match(reading, one)] == []


@pytest.mark.parametrize("page", PAGES)
def test_the_way_back_is_documented(page: str) -> None:
    assert (
        "(apply.md#giving-pods-back)"
        in text(ROOT / "docs" / f"{page}.md").partition("## Go back")[2]
    )


def test_pods_that_are_given_back_have_no_gate_of_ours() -> None:
    written = text(ROOT / "docs" / "apply.md").partition("## Giving pods back")[2]
    patch = re.search(r"-p '(.*)'", written)
    assert patch is not None
    made = cluster()
    (job,) = [made.create(one) for one in documents("beside-kueue") if one["kind"] == "Job"]
    first, *_ = pods_of(job, made, "beside-kueue")
    path = f"/api/v1/namespaces/research/pods/{first['metadata']['name']}"
    strategic = "application/strategic-merge-patch+json"
    for _ in range(2):  # the second time there is nothing to take away
        status, answer, *_ = made.handle("PATCH", path, json.loads(patch[1]), strategic)
        assert (status, answer["spec"].get("schedulingGates", [])) == (200, [])
