"""Every shipped input reads without a fault and plans to the outcome that inputs/README.md states."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import kube
import pytest
from bundles import packed
from effort import first_fast
from input_folders import INPUTS, input_folder, input_names

from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve


@cache
def loaded(name: str) -> LoadedInput:
    return load([str(input_folder(name))])


def instance_of(name: str) -> Instance:
    return loaded(name).instance


def test_no_shipped_input_of_compact_documents_raises_a_warning() -> None:
    compact = [name for name in input_names() if not name.startswith("snapshots/")]
    assert len(compact) >= 17
    assert {name: loaded(name).remarks for name in compact} == dict.fromkeys(compact, ())


@cache
def plan_of(name: str, budget: int | None = None) -> dict[str, Any]:
    instance = instance_of(name)
    if budget is not None:
        limits = replace(instance.policy.solve, budget=budget)
        instance = replace(instance, policy=replace(instance.policy, solve=limits))
    return compose(
        instance, solve(instance), name=name, created_at="2026-01-01T00:00:00Z", generator="test"
    )


def gang_in(plan: dict[str, Any], name: str) -> dict[str, Any]:
    return next(gang for gang in plan["spec"]["gangs"] if gang["name"] == name)


def nodes_of(plan: dict[str, Any], name: str) -> list[str]:
    return sorted({pod["node"] for pod in gang_in(plan, name)["pods"]})


def gpus_of(plan: dict[str, Any], name: str) -> list[int]:
    return sorted(gpu for pod in gang_in(plan, name)["pods"] for gpu in pod["gpus"])


def values_of(plan: dict[str, Any]) -> dict[str, int]:
    return {tier["name"]: tier["value"] for tier in plan["status"]["objectives"]}


def waiting_in(plan: dict[str, Any]) -> dict[str, str]:
    """Name to reason code of every gang that waits."""
    return {
        gang["name"]: gang["reason"]["code"]
        for gang in plan["spec"]["gangs"]
        if gang["decision"] == "wait"
    }


@pytest.mark.parametrize(
    ("name", "nodes", "running", "waiting"),
    [
        ("quickstart", 2, 4, 3),
        ("h100", 96, 20, 25),
        ("nvl72", 72, 9, 7),
        ("lingjun", 541, 476, 189),
    ],
)
def test_a_shipped_input_reads_without_fault_and_is_as_large_as_described(
    name: str, nodes: int, running: int, waiting: int
) -> None:
    instance = instance_of(name)
    assert len(instance.cluster.nodes) == nodes
    assert sum(gang.running for gang in instance.gangs) == running
    assert sum(not gang.running for gang in instance.gangs) == waiting


@pytest.mark.parametrize("name", first_fast(["quickstart", "nvl72", "h100"], 2))
def test_a_shipped_input_is_planned_optimally_and_the_plan_is_accepted(name: str) -> None:
    plan = plan_of(name)
    assert check(plan) == []
    assert plan["status"]["outcome"] == "optimal"


def test_the_quickstart_predicts_how_fast_its_gangs_are() -> None:
    plan = plan_of("quickstart")
    speeds = {gang["name"]: gang["speed"] for gang in plan["spec"]["gangs"]}
    assert speeds == {
        "vgg16": 1000,
        "resnet50": 980,
        "gpt2-medium": None,
        "notebook-kim": 1000,
        "notebook-lee": 1000,
        "ranking": 1000,
        "speech": 1000,
    }
    written = {gang["metadata"]["name"]: gang["spec"] for gang in plan["instance"]["gangs"]}
    fractions = [written[name]["communication"]["fraction"] for name in ("vgg16", "resnet50")]
    assert fractions == [0.032, 0.01]


def test_the_quickstart_has_the_tier_values_worked_out_by_hand() -> None:
    # goodput: 1 + 2 + 1 + 2 GPUs run at 1000, vgg16 4 x 1000. 0.010 of a step of resnet50 is
    # communication: 1000 / (0.990 + 0.010 / 0.666) = 995, in steps of 20 it is 980.
    # waiting: vgg16 4 x 20 min, resnet50 came last.
    # bandwidth: ranking and speech 2 x 1000 each, vgg16 5 x 4 x 1000, resnet50 4 x 666.
    # span: everything on one server. stranded: one GPU is left on each server, the mix is a
    # quarter each for 1, 2, 4 and 8 GPUs: 250 x (0 + 2 + 2 + 2).
    assert values_of(plan_of("quickstart")) == {
        "goodput/0": 6_000 + 4_000 + 4 * 980,
        "waiting/0": 4 * 1200,
        "disruption": 0,
        "preference": 0,
        "bandwidth": 4_000 + 20_000 + 2_664,
        "span": 0,
        "stranded": 1500,
    }


def test_nvl72_has_the_tier_values_worked_out_by_hand() -> None:
    # GPUs that run: 32 + 2 + 64 + 6 x 4 = 122; that start: 64 + 64 + 8 + 3 + 2 = 141, all at 1000.
    # waiting to 08:30: 64 x 30 min + 64 x 25 + 8 x 20 + 3 x 5 = 3,695 GPU minutes.
    # preference: the three GPUs of `evaluation`. bandwidth: every gang reaches its ideal.
    # span, node + rack + block: pretrain-a 32 x 7, pretrain-b and dense-64 64 x 15 each, pair
    # 8 x 1, experts-64 64 x (15 + 4 x 1 + 16 x 1).
    # stranded: six whole trays are left, and nothing else. The mix from 17 requests (16 gangs and
    # a whole tray): 2: 117, 3: 59, 4: 412, 8: 59, 32: 59, 64: 176, 80: 59, 96: 59 permille.
    # Of 24 GPUs lost: by 3 six, by 8 eight (two trays are alone in their racks), by 32 and more all.
    assert values_of(plan_of("nvl72")) == {
        "goodput/0": 1000 * (122 + 141),
        "waiting/0": 3_695 * 60,
        "disruption": 0,
        "preference": 3,
        "bandwidth": 1000 * (122 + 141),
        "span": 224 + 960 + 960 + 8 + 64 * 35,
        "stranded": 59 * 6 + 59 * 8 + (59 + 176 + 59 + 59) * 24,
    }


def test_nvl72_gangs_that_fit_no_rack_or_not_beside_the_others_wait() -> None:
    waiting = waiting_in(plan_of("nvl72"))
    assert sorted(waiting) == ["experts-96", "too-wide-80"]
    assert waiting["too-wide-80"] == "Never"


@pytest.mark.slow
def test_h100_has_the_tier_values_worked_out_by_hand() -> None:
    # w of what runs. 100: llama-70b 128, chat-70b 8, embed 4, rerank 4. 50: vit-huge 32, ppo 24,
    # whisper-xl 16 at its smallest. 0: mixtral-sft 64, sd3 16, two times 8 on troubled servers,
    # bert-large 4, profile 4, debug 2, three notebooks, and 1 for tokenizer, which has no GPU.
    # w of what starts. 100: detr 32 completed, llama-13b 64, gpt-moe 80, chat-405b 8, code-7b 4.
    # 50: dino 32, swin 24, t5-elastic 16, impala 14, summarise 12, one-box 8. 0: late 32, merge 24,
    # bloom-eval 8, gated 4, three trials, and 1 for prep-a.
    # waiting, in minutes before 11:00, counts what starts and did not run.
    # growth: whisper-xl has two workers of 8 more than it needs.
    # preference: mixtral-sft, t5-elastic, swin, impala, merge, the role of gated, one of dino, late.
    minutes_100 = 64 * 180 + 80 * 175 + 8 * 240 + 4 * 230
    minutes_50 = 32 * 150 + 24 * 145 + 16 * 165 + 14 * 140 + 12 * 220 + 8 * 130
    minutes_0 = 32 * 0 + 24 * 120 + 8 * 110 + 4 * 100 + 3 * 60 + 1 * 90
    expected = {
        "admission/100": 144 + 188,
        "waiting/100": 60 * minutes_100,
        "admission/50": 72 + 106,
        "waiting/50": 60 * minutes_50,
        "kept/0": 109,
        "admission/0": 110 + 72,
        "waiting/0": 60 * minutes_0,
        "disruption": 0,
        "preference": 64 + 16 + 24 + 14 + 24 + 4 + 32,
        "growth/50": 16,
    }
    values = values_of(plan_of("h100"))
    assert {name: values[name] for name in expected} == expected


@pytest.mark.slow
def test_h100_keeps_waiting_what_the_rules_forbid_and_what_has_no_room() -> None:
    waiting = waiting_in(plan_of("h100"))
    assert sorted(waiting) == [
        "blackwell-test", "diffusion-xl", "gpt-huge", "join-tables", "prep-b", "resnet-a100",
        "sixteen-in-one",
    ]  # fmt: skip
    assert waiting["blackwell-test"] == "Selector"
    assert waiting["diffusion-xl"] == "Bandwidth"
    assert waiting["gpt-huge"] == "NoRoom"
    assert waiting["join-tables"] == "Resources"
    assert waiting["sixteen-in-one"] == "RequiredTopology"


@pytest.mark.slow
def test_lingjun_fills_the_cluster_with_the_oldest_that_fit_even_on_a_small_budget() -> None:
    plan = plan_of("lingjun", budget=15)
    assert check(plan) == []
    tiers = {tier["name"]: tier for tier in plan["status"]["objectives"]}
    # 3,655 GPUs run and 673 are free; first fit serves 6,264,951 GPU seconds of waiting.
    # Nine running gangs, 192 GPUs, are over two aggregation switches, with half the bandwidth:
    # 1000 / (0.750 + 0.250 / 0.500) = 800. All others run at 1000.
    assert tiers["goodput/0"]["value"] == 1000 * (3_655 + 673 - 192) + 800 * 192
    assert tiers["waiting/0"]["value"] > 6_264_951
    for tier in tiers.values():
        best, bound = tier["best"], tier["bound"]
        assert bound >= best if tier["sense"] == "max" else bound <= best


@cache
def snapshot_plan(name: str, *, trusting: bool = False) -> dict[str, Any]:
    instance = load(
        [str(INPUTS / "snapshots" / name)], policy=TRUSTING if trusting else None
    ).instance
    return compose(
        instance, solve(instance), name=name, created_at="2026-01-01T00:00:00Z", generator="test"
    )


TRUSTING = str(Path(__file__).parents[1] / "data" / "trusting-policy.yaml")


@pytest.mark.parametrize(
    ("name", "nodes", "running", "waiting", "start", "gpus"),
    [
        ("v100-mpi", 4, 8, 6, 2, 8),
        # mixtral-serve-0 and gnn-social 16 each, vlm-serve and segment-medical 12 each, chem-lm and
        # pose-transformer 8 each, diarize-ft 4: all within the guarantees of their queues. Its
        # ClusterQueues are promised all GPUs: gangs in no queue wait
        pytest.param("h100-gke", 96, 42, 44, 7, 76, marks=pytest.mark.slow),
        # llm-pretrain-2t 64, serve-400b-b 8, interp-sae 6, kv-bench 4, ckpt-reshard none; serve-400b-b
        # is whole in a rack, where admission would start reward-rank (8), of a lower priority
        pytest.param("nvl72", 108, 21, 24, 5, 82, marks=pytest.mark.slow),
    ],
)
def test_a_recorded_cluster_is_planned_optimally_and_the_plan_is_accepted(
    name: str, nodes: int, running: int, waiting: int, start: int, gpus: int
) -> None:
    plan = snapshot_plan(name)
    assert check(plan) == []
    assert plan["status"]["outcome"] == "optimal"
    asked = {
        (gang["metadata"]["namespace"], gang["metadata"]["name"]): gang
        for gang in plan["instance"]["gangs"]
    }
    runs = [any("node" in pod for pod in gang["status"]["pods"]) for gang in asked.values()]
    assert len(plan["instance"]["cluster"]["spec"]["nodes"]) == nodes
    assert (sum(runs), len(runs) - sum(runs)) == (running, waiting)
    starting = [gang for gang in plan["spec"]["gangs"] if gang["decision"] == "place"]
    sizes = [
        role["gpus"] * role["replicas"]
        for gang in starting
        for role in asked[gang["namespace"], gang["name"]]["spec"]["roles"]
    ]
    assert (len(starting), sum(sizes)) == (start, gpus)


def test_v100_mpi_keeps_waiting_what_fits_no_server_and_what_is_not_all_there() -> None:
    waiting = waiting_in(snapshot_plan("v100-mpi"))
    assert waiting["gpt2-medium-pretrain"] == "RequiredTopology"
    assert waiting["swin-l-cascade"] == "Incomplete"
    gpt2 = gang_in(snapshot_plan("v100-mpi"), "gpt2-medium-pretrain")
    # the facts: 2, 3, 1 and 4 GPUs are free on the four servers; others start on some of them
    assert (gpt2["reason"]["fields"]["level"], gpt2["reason"]["fields"]["roomPods"]) == ("node", 2)


@pytest.mark.slow
def test_h100_gke_keeps_waiting_for_pods_for_nodes_and_for_a_subblock() -> None:
    waiting = waiting_in(snapshot_plan("h100-gke"))
    assert waiting["ocr-multilingual"] == "Incomplete"
    assert waiting["music-gen"] == "Never"
    assert waiting["bandit-sim"] == waiting["sft-code-34b"] == "Quota"
    assert waiting["dlrm-v3"] == "RequiredTopology"
    assert waiting["vit-22b"] == "Gated"
    assert waiting["llm-pretrain-405b"] == "Never"


@pytest.mark.parametrize("name", first_fast(["v100-mpi", "nvl72"]))
def test_names_and_order_of_files_and_objects_change_nothing(name: str, tmp_path: Path) -> None:
    first, second = tmp_path / "first", tmp_path / "second"
    left_out = shutil.ignore_patterns("*.facts", "*.md")
    shutil.copytree(kube.SNAPSHOTS / name, first, ignore=left_out)
    second.mkdir()
    for number, path in enumerate(sorted(first.iterdir(), reverse=True)):
        items = [*reversed(kube.listed(path))]
        (second / f"{number:02d}.json").write_bytes(packed(items))
    one, other = load([str(first)]), load([str(second)])
    texts = [
        None if found.levels_policy is None else found.levels_policy() for found in (one, other)
    ]
    assert texts[0] == texts[1]
    assert replace(one, levels_policy=None) == replace(other, levels_policy=None)
