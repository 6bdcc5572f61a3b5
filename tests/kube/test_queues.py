"""Whose waiting pods are planned: gangplan's own, and as a what-if those of other schedulers."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import kube
import pytest
from bundles import load_all, packed
from conftest import RunCli
from effort import first_fast
from kube import expected, listed, node, pod
from kube_gangs import owned, thing

from models.instance.gang import Gang
from planner.cli.options import schedulers_of
from planner.pipelines.plan import PlanRequest
from planner.read.instance_builder import LoadedInput

Tree = dict[str, Any]

HOST = "kubernetes.io/hostname"
OURS = "gangplan.dev/placement"
KUEUE = "kueue.x-k8s.io/admission"
EVERY, VOLCANO, MINE = ("*",), ("volcano",), ()
IN_TRAIN = {"scheduling.x-k8s.io/pod-group": "train"}


def planned(*trees: Tree, schedulers: tuple[str, ...] | None) -> LoadedInput:
    return load_all(trees, schedulers=schedulers)


def waiting(found: LoadedInput) -> dict[str, Gang]:
    return {gang.name: gang for gang in found.instance.gangs if not gang.running}


def gates(*names: str) -> dict[str, Any]:
    return {"schedulingGates": [{"name": name} for name in names]} if names else {}


# recorded clusters, as `kubectl get nodes,pods,namespaces` prints them


def without_gangplan(tree: Tree) -> Tree:
    """The pod as in a cluster without gangplan; other objects as they are."""
    if tree["kind"] != "Pod" or tree["spec"].get("nodeName"):
        return tree
    spec = {name: value for name, value in tree["spec"].items() if name != "schedulingGates"}
    kept = [one["name"] for one in tree["spec"].get("schedulingGates", ()) if one["name"] != OURS]
    return {**tree, "spec": {**spec, **gates(*kept)}}


@pytest.mark.parametrize("snapshot", first_fast(["v100-mpi", "nvl72", "h100-gke"], 2))
def test_the_queue_of_a_cluster_without_gangplan_is_planned(snapshot: str) -> None:
    files = [kube.SNAPSHOTS / snapshot / name for name in ("nodes", "pods", "namespaces")]
    paths = [path for file in files for path in file.parent.glob(f"{file.name}.json*")]
    trees = [without_gangplan(tree) for path in paths for tree in listed(path)]
    facts = [one for one in expected(snapshot)["gangs"] if one["state"] == "pending"]
    found = planned(*trees, schedulers=EVERY)
    schedulers = {(one["namespace"], one["name"]): one["schedulerName"] for one in facts}
    # Without its LeaderWorkerSet nobody knows that a set has one group: that keeps its number.
    numbered = {
        (one["namespace"], one["name"]): f"{one['name']}-0"
        for one in facts
        if one["kind"] == "LWS" and f"{one['name']}-0" in waiting(found)
    }
    told = {
        (gang.namespace, gang.name): (
            [(role.name, role.min, role.max, role.gpus) for role in gang.roles],
            gang.priority,
            gang.scheduler,
        )
        for gang in waiting(found).values()
    }
    assert told == {
        (one["namespace"], numbered.get((one["namespace"], one["name"]), one["name"])): (
            [(r["name"], r["replicas"], r["replicas"], r["gpusPerPod"]) for r in one["roles"]],
            one["priority"],
            schedulers[one["namespace"], one["name"]],
        )
        for one in facts
    }
    assert found.left_out == {}

    assert waiting(planned(*trees, schedulers=None)) == waiting(found), "nobody knows gangplan"
    mine = planned(*trees, schedulers=MINE)
    assert waiting(mine) == {}
    pods: Counter[str] = Counter()
    for one in facts:
        pods[schedulers[one["namespace"], one["name"]]] += one["podsPresent"]
    assert dict(mine.left_out) == dict(pods)


# what stands in a queue


def test_pods_that_are_nobodys_queue_are_neither_planned_nor_counted() -> None:
    daemon = owned(pod("dcgm", gpus=1, nodeSelector={HOST: "n1"}), "DaemonSet", "apps/v1", "dcgm")
    static = owned(pod("proxy-n1", gpus=1), "Node", "v1", "n1")
    lone = pod("shell")
    web = owned(pod("web-1"), "ReplicaSet", "apps/v1", "web")
    cleaning = [owned(pod(f"clean-{i}"), "Job", "batch/v1", "clean") for i in range(2)]
    cleaning += [pod("single", labels=IN_TRAIN)]  # the group of a pod that starts with no other
    leaving = pod("leaving", gpus=8)
    leaving["metadata"]["deletionTimestamp"] = "2026-11-20T09:00:00Z"
    done = pod("done", gpus=8)
    done["status"]["phase"] = "Succeeded"
    trees = (node("n1", gpus=0), daemon, static, lone, web, *cleaning, leaving, done)
    for schedulers in (EVERY, MINE):
        found = planned(*trees, schedulers=schedulers)
        assert (found.instance.gangs, found.left_out) == ((), {})


def test_pods_with_gpus_are_gangs_and_so_are_pods_that_start_together() -> None:
    replica = owned(pod("chat-1", gpus=1), "ReplicaSet", "apps/v1", "chat")
    share = pod("share")
    share["spec"]["containers"][0]["resources"]["limits"] = {"nvidia.com/gpumem": "4000"}
    workers = [pod(f"train-{i}", gpus=8, labels=IN_TRAIN) for i in (0, 1)]
    launcher = pod("train-launcher", labels=IN_TRAIN)
    reshard = [pod(f"r-{i}", labels={"scheduling.x-k8s.io/pod-group": "reshard"}) for i in (0, 1)]
    trees = (node("n1"), replica, share, *workers, launcher, *reshard)
    found = waiting(planned(*trees, schedulers=EVERY))
    assert {name: sum(role.min for role in gang.roles) for name, gang in found.items()} == {
        "chat-1": 1,
        "share": 1,
        "train": 3,
        "reshard": 2,
    }
    (part,) = found["share"].roles  # a part of a GPU, as for pods of gangplan
    assert dict(part.requests)["share.gangplan.dev/4000Mi"] == 1
    assert planned(*trees, schedulers=MINE).left_out == {"default-scheduler": 7}


def test_a_list_adds_the_schedulers_it_names_to_gangplans_own() -> None:
    pods = [pod(name, gpus=1, schedulerName=name) for name in ("volcano", "kai")]
    trees = (node("n1"), *pods, pod("gated", gpus=1, gated=True, schedulerName="kai"))
    for schedulers, names, left in (
        (MINE, {"gated"}, {"kai": 1, "volcano": 1}),
        (VOLCANO, {"gated", "volcano"}, {"kai": 1}),
        (EVERY, {"gated", "volcano", "kai"}, {}),
    ):
        found = planned(*trees, schedulers=schedulers)
        assert (waiting(found).keys(), found.left_out) == (names, left)
    foreign = {name: gang.scheduler for name, gang in waiting(found).items()}
    assert foreign == {"gated": None, "volcano": "volcano", "kai": "kai"}
    modes = {pod.name: pod.mode for gang in waiting(found).values() for pod in gang.pods}
    assert modes == {"gated": "gate", "volcano": None, "kai": None}


def test_gates_of_others_hold_our_pods_but_not_the_queue_that_is_a_what_if() -> None:
    both = pod("both", gpus=1, **gates(OURS, KUEUE))
    theirs = pod("theirs", gpus=1, **gates(KUEUE))
    trees = (node("n1"), both, theirs)

    def held(schedulers: tuple[str, ...]) -> dict[str, str | None]:
        found = waiting(planned(*trees, schedulers=schedulers))
        return {name: gang.hold and gang.hold.code for name, gang in found.items()}

    assert held(MINE) == {"both": "Gated"}
    assert held(("default-scheduler",)) == {"both": "Gated", "theirs": None}
    assert held(EVERY) == {"both": None, "theirs": None}


def test_a_gang_of_two_schedulers_is_whole_only_in_a_what_if() -> None:
    pods = [
        pod("train-0", gpus=8, gated=True, labels=IN_TRAIN),
        pod("train-1", gpus=8, schedulerName="volcano", labels=IN_TRAIN),
    ]
    trees = (node("n1"), node("n2"), *pods)
    mine, both = (
        waiting(planned(*trees, schedulers=schedulers))["train"] for schedulers in (MINE, VOLCANO)
    )
    assert mine.hold is not None
    assert mine.hold.message == "worker 1 left to scheduler volcano"
    assert (both.hold, both.scheduler, [one.mode for one in both.pods]) == (
        None,
        "volcano",
        [None] * 2,
    )
    assert planned(*trees, schedulers=MINE).left_out == {"volcano": 1}


# what people see


TREES = (
    node("n1"),
    *(pod(f"train-{i}", gpus=4, schedulerName="volcano", labels=IN_TRAIN) for i in (0, 1)),
    pod("big", gpus=16),
    thing("Namespace", "v1", "kube-system", {}, namespace="", uid="uid-of-the-cluster"),
)
LEFT_OUT = (
    "3 waiting pods belong to other schedulers (volcano 2, default-scheduler 1)"
    ": --scheduler all plans them"
)


def test_plan_and_validate_say_what_they_leave_out(cli: RunCli) -> None:
    mine = ("-", "--scheduler", "mine")
    shown = cli("plan", *mine, stdin=packed(TREES))
    assert LEFT_OUT in shown.out.splitlines()
    assert cli("validate", *mine, stdin=packed(TREES)).out.splitlines()[1:] == [LEFT_OUT]
    for verb in ("plan", "validate"):
        logged = cli(verb, *mine, "--log-format", "json", stdin=packed(TREES)).err.splitlines()
        (read,) = [one for one in map(json.loads, logged) if one["type"] == "read"]
        assert read["left_out"] == {"volcano": 2, "default-scheduler": 1}
    one = cli("validate", "-", "--scheduler", "volcano", stdin=packed(TREES))
    assert one.out.splitlines()[1] == (
        "1 waiting pod belongs to another scheduler (default-scheduler 1): --scheduler all plans them"
    )


def test_without_the_option_all_are_planned_where_no_pod_knows_gangplan() -> None:
    gated = pod("gated", gpus=1, gated=True)
    started = pod("started", gpus=1, node="n1", labels={"gangplan.dev/plan": "gp-1"})
    for trees, names in (
        (TREES, {"train", "big"}),
        ((*TREES, gated), {"gated"}),
        ((*TREES, started), set()),
    ):
        assert waiting(planned(*trees, schedulers=None)).keys() == names


@pytest.mark.parametrize(
    ("given", "hint"),
    [
        ("volcanoe", "did you mean 'volcano'?"),
        ("mine,research-lq", "schedulers: default-scheduler, volcano"),
    ],
)
def test_a_scheduler_that_nothing_has_is_refused(given: str, hint: str, cli: RunCli) -> None:
    for verb in ("plan", "validate", "audit", "capacity"):
        said = cli(verb, "-", "--scheduler", given, stdin=packed(TREES))
        name = given.rpartition(",")[2]
        assert (said.code, said.out) == (65, "")
        assert said.err.splitlines() == [
            f"error: --scheduler: nothing in the input has the scheduler '{name}'",
            f"hint: {hint}",
        ]


def test_a_local_queue_is_no_scheduler(cli: RunCli) -> None:
    local = {
        "apiVersion": "kueue.x-k8s.io/v1beta2",
        "kind": "LocalQueue",
        "metadata": {"name": "research-lq", "namespace": "default"},
        "spec": {"clusterQueue": "research"},
    }
    said = cli("plan", "-", "--scheduler", "research-lq", stdin=packed([*TREES, local]))
    assert (said.code, said.err.splitlines()) == (
        65,
        [
            "error: --scheduler: 'research-lq' is a LocalQueue",
            "hint: --scheduler kueue plans what Kueue suspends",
        ],
    )


def test_a_what_if_says_whose_pods_it_plans_and_is_never_applied(
    cli: RunCli, tmp_path: Path
) -> None:
    file = tmp_path / "plan.json"
    shown = cli("plan", "-", "--scheduler", "all", "--out", str(file), stdin=packed(TREES))
    assert shown.code == 0
    assert "default/train     0  volcano            place" in shown.out
    assert "default/big       0  default-scheduler  wait" in shown.out
    said = "a what-if for 1 gang of default-scheduler, 1 gang of volcano: it cannot be applied"
    assert said in shown.out.splitlines()
    assert shown.err.splitlines()[-1] == f"next: gangplan verify {file}"
    assert cli("verify", str(file)).code == 0
    dry = ("--dry-run=server", "--dry-run=client", "--dry-run=client -oyaml")
    for words in (("apply", "--yes"), *(("apply", *one.split()) for one in dry)):
        refused = cli(*words, str(file))
        assert (refused.code, refused.out) == (65, "")
        (what, where, hint) = refused.err.splitlines()
        assert what.startswith(f"error: the plan is {said.partition(':')[0]}: ")
        assert where.endswith(f"--> {file}")
        assert "with --scheduler mine" in hint


@pytest.mark.parametrize(
    ("given", "proposed"),
    [
        ("mine", "mine"),
        ("volcano, mine", "volcano"),
        ("volcano,kai", "kai,volcano"),
        ("kai,all", "all"),
    ],
)
def test_commands_that_are_proposed_plan_the_same_queue(given: str, proposed: str) -> None:
    request = PlanRequest(("monday",), schedulers=schedulers_of(given))
    assert request.scheduler_option == proposed
    assert schedulers_of(proposed) == request.schedulers


def test_run_refuses_a_policy_that_plans_others(cli: RunCli, tmp_path: Path) -> None:
    file = tmp_path / "policy.yaml"
    head = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
    file.write_text(f"{head}spec: {{kubernetes: {{schedulerNames: [volcano, kai]}}}}\n")
    for verb in ("run", "doctor"):
        refused = cli(verb, "--policy", str(file))
        assert refused.code == 65
        assert "error: the Policy plans pods of other schedulers: kai, volcano" in refused.err
    # For a plan it is the default, which --scheduler replaces.
    stated = cli("plan", "-", "--policy", str(file), "-o", "name", stdin=packed(TREES))
    assert stated.out == "gang/default/train\n"
    mine = cli("validate", "-", "--policy", str(file), "--scheduler", "mine", stdin=packed(TREES))
    assert mine.out.splitlines()[1] == LEFT_OUT


@pytest.mark.parametrize(
    ("names", "fault"),
    [
        ("[volcano, volcano]", "'volcano' is listed twice"),
        ("['a b']", "'a b' cannot be the name of a scheduler"),
        ("['*']", None),
    ],
)
def test_a_policy_lists_schedulers_or_a_star(
    cli: RunCli, tmp_path: Path, names: str, fault: str | None
) -> None:
    file = tmp_path / "policy.yaml"
    head = "apiVersion: gangplan.dev/v1alpha1\nkind: Policy\n"
    file.write_text(f"{head}spec: {{kubernetes: {{schedulerNames: {names}}}}}\n")
    read = cli("validate", "-", "--policy", str(file), stdin=packed(TREES))
    assert read.code == (0 if fault is None else 65)
    assert fault is None or fault in read.err
