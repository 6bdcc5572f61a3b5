"""Fractions of GPUs: which GPUs are shared, by whom, and what is said of it (contract 2.2, 4)."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from random import Random
from shutil import copytree
from typing import Any

import pytest
import tiny_geometries
from comparing import misstated, wrong
from conftest import RunCli
from effort import examples, first_fast
from plan_documents import sealed
from tiny_geometries import differences
from tiny_shares import PARTS, SEVERAL, crowded, leavable, sharing, ways

from models.documents.canonical import canonical_instance
from models.documents.cluster import GpuSharing
from models.gpu_shares import amount_of, packed, part_of, size_on, whole
from models.instance.solution import GangDecision
from models.verify.adaptor import read_case
from models.verify.check import check
from models.verify.shares import fewest_shared
from planner.read.inputs import instance_from_document
from planner.search.solve import WHOLE_BELOW, solve

Json = dict[str, Any]

INPUT = Path("tests/inputs/shares")


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    copytree(INPUT, tmp_path / "input")
    return tmp_path


def made(cli: RunCli, folder: Path) -> Json:
    done = cli("plan", str(folder / "input"), "--out", str(folder / "plan.json"))
    assert done.code == 0, done.err
    return dict(json.loads((folder / "plan.json").read_text()))


def test_a_plan_says_which_gpus_are_shared_and_by_what(cli: RunCli, folder: Path) -> None:
    plan = made(cli, folder)
    assert plan["status"]["outcome"] == "optimal"
    assert [gang["decision"] for gang in plan["spec"]["gangs"]].count("place") == 3
    # Two testers fit on a GPU, for each needs half of the cores; GPU 3 is shared already, by 0.6.
    # On the third server one of the replicas joins the demo's GPU, and two each share three others.
    assert plan["spec"]["shares"] == [
        {"node": "h100-1", "gpu": 7, "parts": ["20480Mi-50"] * 2},
        {"node": "h100-1", "gpu": 6, "parts": ["20480Mi-50"]},
        {"node": "h100-3", "gpu": None, "gpuGroup": "a7c3", "parts": ["0.4"]},
        *[{"node": "h100-3", "gpu": None, "parts": ["0.4"] * 2}] * 3,
    ]
    assert cli("verify", str(folder / "plan.json")).code == 0
    shown = cli("show", str(folder / "plan.json"))
    said = [line for line in shown.out.splitlines() if line.startswith("share ")]
    assert said == [
        "share h100-1:7 with 2 x 20480Mi-50",
        "share h100-1:6 with 20480Mi-50",
        "share h100-3:a7c3 with 0.4",
        "share h100-3:any,any,any with 2 x 0.4",
    ]
    page = folder / "page.html"
    assert cli("report", str(folder / "plan.json"), "--out", str(page)).code == 0
    assert all(f"S{line[1:]}." in page.read_text() for line in said)
    drawn = cli("show", str(folder / "plan.json"), "--map").out
    assert ".../.... > aaa/a.//" in drawn
    assert "......./ > ....////" in drawn
    assert "/ partitioned (MIG) or shared" in drawn


# The judge


def _share(number: int, **fields: object) -> Callable[[Json], object]:
    return lambda plan: plan["spec"]["shares"][number].update(fields)


def _node(number: int, **fields: object) -> Callable[[Json], object]:
    return lambda plan: plan["instance"]["cluster"]["spec"]["nodes"][number].update(fields)


def _again(number: int, **fields: object) -> Callable[[Json], object]:
    def change(plan: Json) -> None:
        shares = plan["spec"]["shares"]
        shares.insert(number, {**shares[number], **fields})

    return change


CHANGES: dict[str, tuple[Callable[[Json], object], str]] = {
    "fewer": (lambda plan: plan["spec"]["shares"].pop(0), "resources"),
    "held": (_share(0, gpu=0), "gpu-part"),
    "twice": (_again(0), "gpu-part"),
    "cores": (_share(0, parts=["20480Mi-50"] * 3), "gpu-part"),
    "beside those that run": (_share(1, gpu=3, parts=["20480Mi-50"]), "gpu-part"),
    "nothing": (_share(1, parts=[]), "gpu-part"),
    "no part": (_share(1, parts=["a quarter"]), "gpu-part"),
    "whole": (_share(1, parts=["1.0"]), "gpu-part"),
    "not known": (_share(1, gpu=None), "unknown-gpus"),
    "known": (_share(3, gpu=0), "gpu-part"),
    "another name": (_share(2, gpuGroup="b"), "gpu-part"),
    "too many GPUs": (
        lambda plan: [_again(3)(plan) for _ in range(5)],
        "gpu-part",
    ),
    "not shared": (_node(0, sharing=None), "gpu-part"),
    "memory that nobody knows": (_node(0, sharing={"memory": None, "pods": 10}), "gpu-part"),
    "alone": (_node(0, sharing={"memory": "81920Mi", "pods": 1}), "gpu-part"),
    "elsewhere": (_share(0, node="h100-9"), "reference"),
    "not sorted": (lambda plan: plan["spec"]["shares"].reverse(), "order"),
    "beyond": (_share(1, gpu=8), "gpu-part"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_the_judge_refuses_shares_that_cannot_be(name: str, cli: RunCli, folder: Path) -> None:
    plan = made(cli, folder)
    assert check(plan) == []
    change, rule = CHANGES[name]
    change(plan)
    assert rule in {found.rule for found in check(plan)}


def test_the_judge_packs_pods_with_parts_of_several_gpus_on_its_own(
    cli: RunCli, folder: Path
) -> None:
    case = read_case(made(cli, folder)).case
    assert case is not None
    r, apart = Random("several"), 0
    for _ in range(examples(1000, 200)):
        names = [*r.sample(sorted(SEVERAL), 2), *r.sample(sorted(PARTS), 1)]
        each = tuple(amount_of(f"share.gangplan.dev/{name}") for name in names)
        pods = [r.randint(0, 2) for _ in names]
        counts = tuple(a * b for a, b in zip(pods, each, strict=True))
        wanted = {f"share.gangplan.dev/{n}": c for n, c in zip(names, counts, strict=True)}
        node = replace(case.facts.nodes[0], sharing=GpuSharing(81920, 3), sharers=())
        sizes = tuple(size_on(part_of(name), 81920) for name in wanted)
        on = packed((), whole(81920, 3), sizes, counts, each=each)
        assert [sum(own) for own in zip(*on, strict=True)] == list(counts) or not on
        for own in on:
            assert all(here <= most for here, most, a in zip(own, pods, each, strict=True) if a > 1)
        assert fewest_shared(node, wanted) == len(on)
        apart += len(on) > len(packed((), whole(81920, 3), sizes, counts))
    assert apart > 20


# Mistakes


@pytest.mark.parametrize(
    ("change", "said"),
    [
        (("fraction: 0.4", "fraction: 1.5"), "1.5 is out of range"),
        (("fraction: 0.4", "fraction: 0"), "0 is out of range"),
        (("fraction: 0.4", 'fraction: "0.4"'), "expected a number"),
        (("{fraction: 0.4}", "0.4"), "expected an object with fields"),
        (("{fraction: 0.4}", "{}"), "no part of a GPU"),
        (("{fraction: 0.4}", "{fraction: 0.4, memory: 1Gi}"), "fraction and memory"),
        (("{fraction: 0.4}", "{cores: 4}"), "cores without memory"),
        (("{fraction: 0.4}", "{fraction: 0.4, cores: 101}"), "100"),
        (("memory: 20Gi", "memory: 0"), "less than 1Mi"),
        (("cores: 50", "cores: 101"), "100"),
        (("cores: 50", "count: 0"), "count"),
        (("cores: 50", "count: 129"), "128"),
        (("{memory: 20Gi, cores: 50}", "{profile: 1g.10gb, count: 2}"), "several instances"),
        (("gpu: {fraction: 0.4}", "gpus: 0, requests: {share.gangplan.dev/0.4x2: 1}"), "one part of a GPU"),
        (("gpu: {fraction: 0.4}", "gpus: 0, requests: {share.gangplan.dev/0.4x1: 1}"), "is named"),
        (("gpu: {fraction: 0.4}", "gpus: 0, requests: {share.gangplan.dev/0.40: 1}"), "is named"),
        (("gpu: {fraction: 0.4}", "gpus: 0, requests: {share.gangplan.dev/0.4: 2}"), "one part of a GPU"),
        (("gpu: {fraction: 0.4}", "gpus: 1, gpu: {fraction: 0.4}"), "GPUs and a part of one"),
        (("pods: 10}", "pods: 0}"), "pods"),
        (("memory: 80Gi", "memory: 1k"), "less than 1Mi"),
        (("sharing: {", "dynamicMig: H100-80, sharing: {"), "GPUs that are shared, and that may be"),
        (("model: DGX H100, ", ""), "shared GPUs on a node without a server model"),
        (("sharing: {", "allocatable: {share.gangplan.dev/0.4: 2}, sharing: {"), "are not counted"),
        (("gpus: [3]", "gpus: [3, 4]"), "2 GPUs held"),
        (("gpus: [3]", "gpus: [9]"), "GPU 9"),
    ],
)  # fmt: skip
def test_mistakes_have_a_place_and_a_hint(
    change: tuple[str, str], said: str, cli: RunCli, folder: Path
) -> None:
    for path in (folder / "input").iterdir():
        path.write_text(path.read_text().replace(*change))
    done = cli("validate", str(folder / "input"))
    assert done.code == 65
    assert said in done.err
    assert "--> " in done.err
    assert "hint: " in done.err


def in_pairs(cli: RunCli, folder: Path) -> Json:
    """The plan of two replicas with 0.4 of each of two GPUs, and of one with 0.7 of each of three."""
    queue = folder / "input" / "queue.yaml"
    roles = "[{name: replica, replicas: 7, gpu: {fraction: 0.4}}]"
    some = (
        "[{name: pair, replicas: 2, gpu: {fraction: 0.4, count: 2}},"
        " {name: three, replicas: 1, gpu: {fraction: 0.7, count: 3}}]"
    )
    assert roles in queue.read_text()
    queue.write_text(queue.read_text().replace(roles, some))
    return made(cli, folder)


def test_a_pod_may_have_parts_of_several_gpus_of_one_server(cli: RunCli, folder: Path) -> None:
    plan = in_pairs(cli, folder)
    assert plan["status"]["outcome"] == "optimal"
    assert check(plan) == []
    parts = [part for one in plan["spec"]["shares"] for part in one["parts"]]
    assert Counter(parts) == {"20480Mi-50": 3, "0.4x2": 4, "0.7x3": 3}
    assert all(one["parts"].count("0.4x2") <= 2 for one in plan["spec"]["shares"])
    shown = cli("show", str(folder / "plan.json"))
    assert (
        "share h100-3:a7c3,any,any with 0.7x3\nshare h100-3:any,any with 2 x 0.4x2\n" in shown.out
    )
    again = instance_from_document(plan["instance"])
    assert canonical_instance(again) == plan["instance"]
    said = cli("capacity", str(folder / "input"), "-o", "json").out
    rows = json.loads(said)["status"]["parts"]
    anywhere = {one["part"]: one["before"] for one in rows if one["level"] is None}
    # Of 15, 16 and 15 parts of 0.4, two on a GPU but for one; of 7, 8 and 7 of 0.7 each on its own.
    assert (anywhere["0.4x2"], anywhere["0.7x3"]) == (7 + 8 + 7, 2 + 2 + 2)


def test_the_judge_refuses_parts_of_one_pod_on_one_gpu(cli: RunCli, folder: Path) -> None:
    plan = in_pairs(cli, folder)
    shares = plan["spec"]["shares"]
    pair = [one for one in shares if "0.4x2" in one["parts"]]
    others = [one for one in shares if one not in pair]
    one = {**pair[-1], "parts": ["0.4x2"]}
    changed = [*others, {**pair[0], "parts": ["0.4x2"] * 2}, one, one]
    plan["spec"]["shares"] = sorted(changed, key=lambda share: str(share["node"]))
    assert check(sealed(plan)) == []
    alone = [two for two in changed if two is not one]
    plan["spec"]["shares"] = sorted(alone, key=lambda share: str(share["node"]))
    said = {found.message for found in check(sealed(plan)) if found.rule == "gpu-part"}
    where = f"spec.shares[{plan['spec']['shares'].index(changed[len(others)])}].parts"
    assert said == {f"{where}: 2 of 2 parts 0.4x2 are on one GPU of {one['node']}"}


ALONE = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec: {nodes: [{name: n1, model: DGX H100, PARTS}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Queue
metadata: {name: q}
spec: {order: strict}
---
apiVersion: gangplan.dev/v1alpha1
kind: Policy
spec: {now: 2026-11-21T12:00:00Z}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: high}
spec:
  queue: q
  priority: 9
  submittedAt: 2026-11-21T09:00:00Z
  roles: [{name: w, replicas: 1, gpus: GPUS}, {name: p, replicas: 2, gpu: ASKS}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: low}
spec:
  queue: q
  submittedAt: 2026-11-21T10:00:00Z
  roles: [{name: w, replicas: 1, gpus: 8}]
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: runs}
spec: {submittedAt: 2026-11-21T08:00:00Z, roles: [{name: w, replicas: 1, gpu: ASKS}]}
status: {startedAt: 2026-11-21T08:00:00Z, pods: [{role: w, index: 0, node: n1ON}]}
"""


@pytest.mark.parametrize(
    ("parts", "asks"),
    [
        ("sharing: {}", "{fraction: 0.5}"),
        ("dynamicMig: H100-80", "{profile: 3g.40gb}"),
    ],
)
@pytest.mark.parametrize("gpus", [7, 8])
def test_who_finds_no_gpus_for_whole_and_parts_can_never_start(
    gpus: int, parts: str, asks: str, cli: RunCli, tmp_path: Path
) -> None:
    """Beside eight whole GPUs there is never a part of one, however many there could be else."""
    text = ALONE.replace("PARTS", parts).replace("ASKS", asks).replace("GPUS", str(gpus))
    runs = "sharing" in parts
    text = text.replace("n1ON", "n1, gpus: [0]") if runs else text[: text.rindex("---")]
    (tmp_path / "input.yaml").write_text(text)
    done = cli("plan", str(tmp_path / "input.yaml"), "--out", str(tmp_path / "plan.json"))
    assert done.code == 0, done.err
    plan = json.loads((tmp_path / "plan.json").read_text())
    decided = {
        g["name"]: (g["decision"], (g["reason"] or {}).get("code")) for g in plan["spec"]["gangs"]
    }
    if gpus == 8:
        assert decided["high"] == ("wait", "Never")
        assert decided["low"] == (("wait", "NoRoom") if runs else ("place", None))
    elif runs:  # 7 GPUs are idle, and half of one is left: one part too many
        assert decided["high"][0] == "wait"
        assert decided["high"][1] != "Never"
    else:
        assert decided["high"] == ("place", None)


# Every way to share


@pytest.mark.parametrize("first", first_fast(range(0, 300, 20), 2))
def test_the_search_equals_trying_every_way_to_share(first: int) -> None:
    seeds = range(first, first + 20)
    assert wrong(seeds, lambda seed: differences(sharing(seed), ways, runs=False)) == {}


@pytest.mark.parametrize("first", first_fast(range(0, 300, 20), 2))
@pytest.mark.parametrize("runs", [False, True])
def test_pods_with_parts_of_several_gpus_are_planned_as_trying_every_way(
    first: int, runs: bool
) -> None:
    """``runs``: no worse than without touching these."""
    seeds = range(first, first + 20)

    def faults(seed: int) -> list[object]:
        return differences(sharing(seed, runs=runs, several=True), ways, runs=runs)

    assert wrong(seeds, faults) == {}


def test_where_most_things_run_plans_are_as_good_as_without_touching_them() -> None:
    seeds = range(examples(100, 20))
    assert wrong(seeds, lambda seed: differences(sharing(seed, runs=True), ways, runs=True)) == {}


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
def test_ways_of_planning_large_instances_keep_every_rule(size: int | None) -> None:
    def faults(seed: int) -> list[object]:
        instance = sharing(seed, runs=seed % 2 == 0, several=seed % 4 > 1)
        if instance is None:
            return []
        limits = replace(instance.policy.solve, budget=3)
        instance = replace(instance, policy=replace(instance.policy, solve=limits))
        return [*misstated("search", instance, solve(instance, size=size))]

    assert wrong(range(examples(100, 20)), faults) == {}


# GPUs that all leave who share them


@pytest.mark.parametrize("first", first_fast(range(0, 320, 40), 1))
def test_the_search_is_no_worse_than_every_way_to_free_shared_gpus(
    first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tiny_geometries, "MOST_PLANS", 400)
    seeds, released = range(first, first + examples(40, 12)), 0
    for seed in seeds:
        instance = crowded(seed)
        assert differences(instance, ways, runs=True) == [], seed
        after = gangs_on(solve(instance).decisions)
        released += any(after.isdisjoint(own) for own in leavable(instance).values())
    assert released


def gangs_on(decisions: Sequence[GangDecision]) -> set[tuple[int, int, int]]:
    """(gang, role, node) of all pods."""
    return {(g, p.role, p.node) for g, one in enumerate(decisions) for p in one.pods}


@pytest.mark.parametrize("size", [None, WHOLE_BELOW])
def test_ways_of_planning_large_instances_free_shared_gpus_by_every_rule(size: int | None) -> None:
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


LEFT = """
apiVersion: gangplan.dev/v1alpha1
kind: Cluster
metadata: {name: c}
spec:
  nodes:
  - {name: n1, model: DGX H100, sharing: {}, unhealthyGpus: [4, 5, 6, 7]}
  - {name: n2, model: DGX H100, sharing: {}, unhealthyGpus: [1, 2, 3, 4, 5, 6, 7]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: first}
spec: {movable: true, roles: [{name: w, replicas: 1, gpu: {fraction: 0.25}}]}
status: {pods: [{role: w, index: 0, node: n1, gpus: [0]}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: second}
spec: {movable: true, roles: [{name: w, replicas: 1, gpu: {fraction: 0.25}}]}
status: {pods: [{role: w, index: 0, node: n1, gpus: [0]}]}
---
apiVersion: gangplan.dev/v1alpha1
kind: Gang
metadata: {name: whole}
spec: {roles: [{name: w, replicas: 1, gpus: 4}]}
"""
