"""GPUs that a plan may partition: the best plan of all, what the judge refuses, and documents."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import tiny_geometries
from comparing import misstated, wrong
from conftest import RunCli
from effort import examples, first_fast
from test_gpu_shares import gangs_on
from tiny_geometries import crowded, differences, dynamic, leavable

from models.documents.canonical import canonical_instance
from models.verify.check import check
from planner.read.inputs import instance_from_document
from planner.search.solve import WHOLE_BELOW, solve

Json = dict[str, Any]

NODE = {"name": "n1", "model": "DGX H100", "dynamicMig": "H100-80"}

HOLDER = """apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: whole}
spec: {roles: [{name: w, replicas: 1, gpus: 1}]}
status: {pods: [{role: w, index: 0, node: h100-1, gpus: [7]}]}
"""

INPUT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: shared}
spec:
  nodes:
  - {name: "h100-[1-2]", model: DGX H100, dynamicMig: h100-80}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: train}
spec: {roles: [{name: worker, replicas: 1, gpus: 8}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: chat}
spec: {roles: [{name: replica, replicas: 3, gpu: {profile: 3g.40gb}}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: tune}
spec: {roles: [{name: trainer, replicas: 1, gpus: 4}, {name: tester, replicas: 9, gpu: {profile: 1g.10gb}}]}
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "input.yaml").write_text(INPUT)
    return tmp_path


def made(cli: RunCli, folder: Path) -> Json:
    done = cli("plan", str(folder / "input.yaml"), "--out", str(folder / "plan.json"))
    assert done.code == 0, done.err
    return dict(json.loads((folder / "plan.json").read_text()))


def test_a_plan_says_which_gpus_to_partition_and_how(cli: RunCli, folder: Path) -> None:
    plan = made(cli, folder)
    assert plan["status"]["outcome"] == "optimal"
    assert [gang["decision"] for gang in plan["spec"]["gangs"]] == ["place"] * 3
    # Three of 3g.40gb and nine of 1g.10gb do not fit on two GPUs: 2 x 3g, 3g with 4 x 1g, 7 x 1g.
    parts = plan["spec"]["partitions"]
    assert [one["gpu"] for one in parts] == [5, 6, 7]
    assert len({one["node"] for one in parts}) == 1
    assert sorted(sorted(one["profiles"]) for one in parts) == [
        ["1g.10gb"] * 7,
        ["1g.10gb"] * 4 + ["3g.40gb"],
        ["3g.40gb"] * 2,
    ]
    # 8 GPUs of train, 4 of tune, 3 partitioned: one is left, of no use to the mix of 8 and 4.
    (stranded,) = (t for t in plan["status"]["objectives"] if t["name"] == "stranded")
    assert stranded["value"] == 4000
    assert cli("verify", str(folder / "plan.json")).code == 0
    shown = cli("show", str(folder / "plan.json"))
    said = [line for line in shown.out.splitlines() if line.startswith("partition h100-")]
    geometries = {line.partition(" with ")[2] for line in said}
    assert geometries == {"7 x 1g.10gb", "3g.40gb + 4 x 1g.10gb", "2 x 3g.40gb"}
    page = folder / "page.html"
    assert cli("report", str(folder / "plan.json"), "--out", str(page)).code == 0
    assert all(f"P{line[1:]}." in page.read_text() for line in said)
    drawn = cli("show", str(folder / "plan.json"), "--map")
    assert "....///" not in drawn.out.split(">")[0]
    assert ".///" in drawn.out
    assert "/ partitioned (MIG)" in drawn.out


def test_parts_go_where_whole_gpus_lose_least(cli: RunCli, folder: Path) -> None:
    # Without the GPUs of tune the instances still go to one server: the other stays whole.
    text = INPUT.replace("{name: trainer, replicas: 1, gpus: 4}, ", "").replace(
        "gpus: 8", "gpus: 1"
    )
    (folder / "input.yaml").write_text(text)
    plan = made(cli, folder)
    nodes = {one["node"] for one in plan["spec"]["partitions"]}
    pods = {pod["node"] for gang in plan["spec"]["gangs"] for pod in gang["pods"]}
    assert len(nodes) == 1
    assert pods == nodes
    assert len(plan["spec"]["partitions"]) == 3


def _sabotaged(cli: RunCli, folder: Path, change: Callable[[Json], object]) -> set[str]:
    plan = made(cli, folder)
    change(plan)
    return {found.rule for found in check(plan)} - {"digest"}


def _first(plan: Json) -> Json:
    return dict(plan["spec"]["partitions"][0])


def _set(**fields: object) -> Callable[[Json], object]:
    return lambda plan: plan["spec"]["partitions"][0].update(fields)


def _one_more(gpu: int, at: int) -> Callable[[Json], object]:
    def change(plan: Json) -> None:
        one = {**_first(plan), "gpu": gpu, "profiles": ["1g.10gb"]}
        plan["spec"]["partitions"].insert(at, one)

    return change


CHANGES: dict[str, tuple[Callable[[Json], object], str]] = {
    "fewer": (lambda plan: plan["spec"]["partitions"].pop(0), "resources"),
    "held": (_set(gpu=0), "partition"),
    "twice": (lambda plan: plan["spec"]["partitions"].insert(0, _first(plan)), "partition"),
    "too much": (_set(profiles=["3g.40gb", "3g.40gb", "1g.10gb"]), "partition"),
    "nothing": (_set(profiles=[]), "partition"),
    "of another board": (_set(profiles=["1g.5gb"]), "partition"),
    "fixed": (
        lambda plan: [
            one.pop("dynamicMig") for one in plan["instance"]["cluster"]["spec"]["nodes"]
        ],
        "partition",
    ),
    "elsewhere": (_set(node="h100-9"), "reference"),
    "not sorted": (lambda plan: plan["spec"]["partitions"].reverse(), "order"),
    "beyond": (_one_more(8, 3), "partition"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_judge_refuses_partitions_that_cannot_be(name: str, cli: RunCli, folder: Path) -> None:
    change, rule = CHANGES[name]
    assert rule in _sabotaged(cli, folder, change)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("dynamicMig: h100-80", "dynamicMig: A30"), "has no board 'A30'"),
        (("dynamicMig: h100-80", "dynamicMig: 7"), "expected text"),
        (("model: DGX H100, ", ""), "partitioned GPUs on a node without a server model"),
        (("model: DGX H100", "model: DGX-1V"), "dynamicMig: no MIG profiles of 'V100' are known"),
        (
            (
                "model: DGX H100, dynamicMig: h100-80",
                "model: RTX PRO 6000 8-GPU, dynamicMig: RTX PRO 6000",
            ),
            "dynamicMig: where instances of RTX PRO 6000 may begin was not published",
        ),
        (("profile: 3g.40gb", "profile: 9g.99gb"), "9g.99gb"),
    ],
)
def test_mistakes_have_a_place_and_a_hint(
    change: tuple[str, str], said: str, cli: RunCli, folder: Path
) -> None:
    (folder / "input.yaml").write_text(INPUT.replace(*change))
    done = cli("validate", str(folder / "input.yaml"))
    assert done.code == 65
    assert said in done.err
    assert "--> " in done.err
    assert "hint: " in done.err


def test_a_reserved_start_is_judged_by_what_gpus_may_become_by_then(
    cli: RunCli, folder: Path
) -> None:
    """One server: eight GPUs are held for an hour; then four are given whole and two are partitioned."""
    run = [{"role": "w", "index": 0, "node": "n1", "gpus": [*range(8)]}]
    long = {"expectedDuration": "1h", "submittedAt": "2026-11-21T09:00:00Z"}
    asks = [
        {"name": "p", "replicas": 4, "gpu": {"profile": "3g.40gb"}},
        {"name": "w", "replicas": 1, "gpus": 4},
    ]
    documents = [
        {"kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nodes": [NODE]}},
        {"kind": "Policy", "spec": {"now": "2026-11-21T10:00:00Z", "reservations": {}}},
        {"kind": "Gang", "metadata": {"name": "runs"}}
        | {"spec": long | {"roles": [{"name": "w", "replicas": 1, "gpus": 8}]}}
        | {"status": {"pods": run, "startedAt": "2026-11-21T10:00:00Z"}},
        {"kind": "Gang", "metadata": {"name": "waits"}, "spec": long | {"roles": asks}},
    ]
    head = {"apiVersion": "gangplan.dev/v1alpha1"}
    listed = {**head, "kind": "List", "items": [{**head, **one} for one in documents]}
    (folder / "input.yaml").write_text(json.dumps(listed))
    plan = made(cli, folder)
    (waits,) = (one for one in plan["spec"]["gangs"] if one["name"] == "waits")
    assert waits["reserved"]["start"] == "2026-11-21T11:00:00Z"
    assert check(plan) == []
    roles = plan["instance"]["gangs"][1]["spec"]["roles"]
    assert [role["name"] for role in roles] == ["p", "w"]
    for pod in waits["reserved"]["pods"]:
        if pod["role"] == "w":
            pod["gpus"] = [*range(8)][:4]
    roles[1]["gpus"] = 7  # one GPU is left, and two are needed
    waits["reserved"]["pods"][-1]["gpus"] = [*range(7)]
    rules = [(one.rule, one.message) for one in check(plan)]
    assert any(
        "no room for so many instances" in what for rule, what in rules if rule == "reserved"
    )


# Beside instances in use


IN_USE = Path("tests/inputs/mig-in-use")


@pytest.fixture
def in_use(tmp_path: Path) -> Path:
    (tmp_path / "input.yaml").write_text(
        "---\n".join(p.read_text() for p in sorted(IN_USE.iterdir()))
    )
    return tmp_path


def test_instances_come_beside_those_in_use(cli: RunCli, in_use: Path) -> None:
    plan = made(cli, in_use)
    assert plan["status"]["outcome"] == "optimal"
    kinds = {gang["name"]: gang["decision"] for gang in plan["spec"]["gangs"]}
    assert kinds == {"notebook": "keep", "train": "place", "chat": "place", "batch": "wait"}
    parts = plan["spec"]["partitions"]
    assert parts == [{"node": "h100-1", "gpu": 7, "profiles": ["2g.20gb", "1g.10gb"]}]
    assert cli("verify", str(in_use / "plan.json")).code == 0
    line = "partition h100-1:7 with 2g.20gb + 1g.10gb"
    shown = cli("show", str(in_use / "plan.json"))
    assert line in shown.out.splitlines()
    page = in_use / "page.html"
    assert cli("report", str(in_use / "plan.json"), "--out", str(page)).code == 0
    assert f"P{line[1:]}." in page.read_text()
    assert "......./ > aaaaaaa/" in cli("show", str(in_use / "plan.json"), "--map").out
    again = instance_from_document(plan["instance"])
    assert canonical_instance(again) == plan["instance"]
    assert again.cluster.nodes[0].partitioned == 1 << 7


def _part(**fields: object) -> Callable[[Json], object]:
    return lambda plan: plan["spec"]["partitions"][0].update(fields)


def _notebook(**fields: object) -> Callable[[Json], object]:
    def change(plan: Json) -> None:
        (gang,) = (g for g in plan["instance"]["gangs"] if g["metadata"]["name"] == "notebook")
        gang["status"]["pods"][0].update(fields)

    return change


def _whole(plan: Json) -> None:
    (gang,) = (gang for gang in plan["spec"]["gangs"] if gang["name"] == "train")
    gang["pods"][0]["gpus"] = [1, 2, 3, 4, 5, 6, 7]


BESIDE: dict[str, tuple[Callable[[Json], object], str]] = {
    "fewer": (lambda plan: plan["spec"]["partitions"].clear(), "resources"),
    "overlapping": (_part(profiles=["2g.20gb", "2g.20gb", "1g.10gb"]), "partition"),
    "large": (_part(profiles=["3g.40gb", "1g.10gb"]), "partition"),
    "twice": (lambda plan: plan["spec"]["partitions"].append(_first(plan)), "partition"),
    "given whole": (_whole, "gpu-unhealthy"),
    "elsewhere in use": (_notebook(start=2), "form"),
    "no instance": (_notebook(gpus=[]), "reference"),
    "from the middle": (_notebook(start=4), ""),
}


@pytest.mark.parametrize("name", BESIDE)
def test_the_judge_refuses_instances_that_cannot_come_beside(
    name: str, cli: RunCli, in_use: Path
) -> None:
    change, rule = BESIDE[name]
    found = _sabotaged(cli, in_use, change)
    # from slice 4 on the notebook leaves the first four: three slices of those suffice
    assert (rule in found) if rule else not found


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("start: 0", "start: 2"), "no 3g.40gb of H100-80 begins in memory slice 2"),
        (("start: 0", "start: 16"), "the number 16 is too large"),
        (("start: 0", 'start: "0"'), "expected a whole number"),
        ((", dynamicMig: H100-80", ""), "which has no `dynamicMig`"),
        ((", gpus: [7]", ""), "the start of an instance on an unknown GPU"),
        (("gpus: [7]", "gpus: [6, 7]"), "2 GPUs held"),
        (("gpus: [7]", "gpus: [8]"), "GPU 8"),
        (("gpu: {profile: 3g.40gb}", "gpus: 1"), "that has not one instance of a GPU"),
        (("profile: 3g.40gb", "profile: 3g.20gb"), "which H100-80 does not have"),
        (
            ("dynamicMig: H100-80}", "dynamicMig: H100-80, mig: [{gpus: [7], profiles: [1g.10gb]}]}"),
            "GPU 7 of node 'h100-1' is partitioned",
        ),
        (
            (", start: 0}", ", start: 0}\n  - {role: notebook, index: 1, node: h100-1, gpus: [7], start: 0}"),
            "no room for a 3g.40gb from memory slice 0 on GPU 7",
        ),
        (
            (", start: 0}", ", start: 0}\n---\n" + HOLDER),
            "GPU 7 of node 'h100-1' is also held by pod",
        ),
    ],
)  # fmt: skip
def test_mistakes_about_instances_in_use_have_a_place_and_a_hint(
    change: tuple[str, str], said: str, cli: RunCli, in_use: Path
) -> None:
    path = in_use / "input.yaml"
    path.write_text(
        path.read_text().replace("notebook, replicas: 1", "notebook, replicas: 2").replace(*change)
    )
    done = cli("validate", str(path))
    assert done.code == 65
    assert said in done.err
    assert "--> " in done.err
    assert "hint: " in done.err


@pytest.mark.parametrize("first", first_fast(range(0, 1200, 60), 3))
def test_the_search_equals_trying_every_set_beside_instances_in_use(first: int) -> None:
    def faults(seed: int) -> list[object]:
        instance = dynamic(seed, runs=True, beside=True)
        some = any(node.shared and node.reshapable for node in instance.cluster.nodes)
        return differences(instance, runs=True) if some else []

    assert wrong(range(first, first + 60), faults) == {}


@pytest.mark.parametrize("first", first_fast(range(0, 600, 60), 2))
@pytest.mark.parametrize("runs", [False, True])
def test_gpus_in_mig_mode_get_instances_as_trying_every_set_and_are_never_given_whole(
    first: int, runs: bool
) -> None:
    """``runs``: no worse than with everything that runs where it is."""

    def faults(seed: int) -> list[object]:
        instance = dynamic(seed, runs=runs, beside=runs, mode=True)
        some = any(node.empty_mig and node.reshapable for node in instance.cluster.nodes)
        return differences(instance, runs=runs) if some else []

    assert wrong(range(first, first + examples(60, 15)), faults) == {}


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
def test_ways_of_planning_large_instances_keep_every_rule(size: int | None) -> None:
    def faults(seed: int) -> list[object]:
        instance = dynamic(seed, runs=seed % 2 == 0, beside=seed % 4 == 0)
        solve_limits = replace(instance.policy.solve, budget=3)
        policy = replace(instance.policy, solve=solve_limits)
        instance = replace(instance, policy=policy)
        return [*misstated("search", instance, solve(instance, size=size))]

    assert wrong([5, *range(examples(100, 20))], faults) == {}


@pytest.mark.parametrize("first", first_fast(range(0, 300, 20), 2))
def test_the_search_equals_trying_every_way_to_partition(first: int) -> None:
    seeds = range(first, first + 20)
    assert wrong(seeds, lambda seed: differences(dynamic(seed), runs=False)) == {}


def test_where_most_things_run_plans_are_as_good_as_without_touching_them() -> None:
    seeds = range(examples(100, 20))
    assert wrong(seeds, lambda seed: differences(dynamic(seed, runs=True), runs=True)) == {}


# GPUs that all leave


@pytest.mark.parametrize("first", first_fast(range(0, 400, 40), 2))
def test_the_search_equals_trying_who_leaves_gpus_with_instances(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_geometries, "MOST_PLANS", 400)
    seeds, released = range(first, first + examples(40, 12)), 0
    for seed in seeds:
        instance = crowded(seed)
        assert differences(instance, runs=True) == [], seed
        after = gangs_on(solve(instance).decisions)
        released += any(after.isdisjoint(own) for own in leavable(instance).values())
    assert released  # stopping who has parts costs what these count


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
def test_ways_of_planning_large_instances_free_partitioned_gpus_by_every_rule(
    size: int | None,
) -> None:
    """No plan is refused, and no bound is beaten by the best plan."""
    for seed in range(examples(130, 10)):
        instance = crowded(seed)
        limits = replace(instance.policy.solve, budget=3)
        instance = replace(instance, policy=replace(instance.policy, solve=limits))
        found = solve(instance, size=size)
        assert [*misstated("search", instance, found)] == [], seed
        for rough, exact in zip(found.tiers, solve(instance).tiers, strict=True):
            assert rough.bound is None or (
                rough.bound >= exact.value if rough.sense == "max" else rough.bound <= exact.value
            ), (seed, rough, exact)
            if rough.value != exact.value:
                break


def notebooks(start: int, **more: object) -> list[Json]:
    """Two notebooks of 1g.10gb on GPU 7 of a server; who has all of it, or another set, wants it."""
    pods = [{"role": "w", "index": 0, "node": "n1", "gpus": [7], "start": s} for s in (start, 6)]
    roles = [{"name": "w", "replicas": 1, "gpu": {"profile": "1g.10gb"}}]
    head = {"apiVersion": "gangplan.dev/v1alpha1"}
    own = [
        {**head, "kind": "Gang", "metadata": {"name": f"notebook-{i}"}}
        | {"spec": {"roles": roles, "preemptible": True, **more}, "status": {"pods": [pod]}}
        for i, pod in enumerate(pods)
    ]
    return [{**head, "kind": "Cluster", "metadata": {"name": "c"}, "spec": {"nodes": [NODE]}}, *own]


def leaving(folder: Path, cli: RunCli, *roles: Json, listed: list[Json] | None = None) -> Json:
    """The plan in which a gang of priority 100 with these roles comes."""
    head = {"apiVersion": "gangplan.dev/v1alpha1"}
    wants = {**head, "kind": "Gang", "metadata": {"name": "train"}}
    items = [*(listed or notebooks(0)), {**wants, "spec": {"priority": 100, "roles": list(roles)}}]
    (folder / "input.yaml").write_text(json.dumps({**head, "kind": "List", "items": items}))
    plan = made(cli, folder)
    assert plan["status"]["outcome"] == "optimal"
    return plan


WHOLE = {"name": "w", "replicas": 1, "gpus": 8}


def one_is_firm(listed: list[Json]) -> None:
    listed[1]["spec"]["preemptible"] = False


LEFT: dict[str, tuple[Callable[[Json], object], str]] = {
    "not said": (lambda plan: plan["spec"]["partitions"].clear(), "partition"),
    "as before": (_part(anew=False), "partition"),
    "in parts as well": (_part(profiles=["1g.10gb"]), "partition"),
    "elsewhere": (_part(gpu=6), "partition"),
}


@pytest.mark.parametrize("name", LEFT)
def test_the_judge_refuses_what_is_wrong_of_gpus_that_all_leave(
    name: str, cli: RunCli, folder: Path
) -> None:
    plan = leaving(folder, cli, WHOLE)
    change, rule = LEFT[name]
    change(plan)
    assert rule in {found.rule for found in check(plan)} - {"digest"}


def test_the_judge_refuses_a_gpu_given_whole_over_an_instance(cli: RunCli, folder: Path) -> None:
    firm = notebooks(0)
    one_is_firm(firm)
    kept = leaving(folder, cli, WHOLE, listed=firm)["spec"]["gangs"]
    plan = leaving(folder, cli, WHOLE)
    assert [one["name"] for one in kept] == ["notebook-0", "notebook-1", "train"]
    plan["spec"]["gangs"][1] = kept[1]
    assert {"gpu-unhealthy", "partition"} & {found.rule for found in check(plan)}
    plan["spec"]["partitions"].clear()
    assert "gpu-unhealthy" in {found.rule for found in check(plan)}
