"""The shipped Slurm cluster: what is read is what its README says, and every verb works on it."""

from __future__ import annotations

import json
import shutil
from dataclasses import replace
from functools import cache
from pathlib import Path

import pytest
from conftest import RunCli
from slurm_output import answer, job, node, number, running

from models.instance.gang import Gang
from models.results.plan import compose
from models.verify.check import check
from planner.read.inputs import load
from planner.read.instance_builder import LoadedInput
from planner.search.solve import solve
from planner.show.reason_words import words

FOLDER = Path(__file__).parents[2] / "inputs" / "slurm"


@cache
def atlas() -> LoadedInput:
    return load([str(FOLDER)])


@pytest.fixture(scope="module")
def plan(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A plan of the folder, made once."""
    out = tmp_path_factory.mktemp("atlas") / "plan.json"
    made = {"name": "p", "created_at": "2026-11-23T14:20:00Z", "generator": "test"}
    limits = replace(atlas().instance.policy.solve, budget=1)
    instance = atlas().instance
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    document = compose(instance, solve(instance), words, **made)
    assert check(document) == []
    out.write_text(json.dumps(document))
    return out


def gang_of(number_: str) -> Gang:
    (found,) = [gang for gang in atlas().instance.gangs if gang.name.split("-")[0] == number_]
    return found


def test_nodes_gpus_and_levels_are_those_of_the_readme() -> None:
    cluster = atlas().instance.cluster
    assert (cluster.name, [level.name for level in cluster.levels]) == (
        "atlas", ["switch-3", "switch-2", "leaf"],
    )  # fmt: skip
    # 32 x 8 H100, 12 x 8 A100 (one of them is gone), 4 x 4 L40S, and four nodes without
    assert len(cluster.nodes) == 32 + 12 + 4 + 4
    assert sum(one.gpus for one in cluster.nodes) == 256 + 96 + 16
    assert [one.name for one in cluster.nodes if one.unknown_unhealthy] == ["a100-07"]
    assert [one.name for one in cluster.nodes if not one.ready] == ["h100-012"]
    assert [one.name for one in cluster.nodes if one.unschedulable] == [
        "a100-03",
        "h100-005",
        "l40s-04",
    ]
    assert [one.name for one in cluster.nodes if one.taints] == [
        "h100-020", "h100-031", "h100-032", "l40s-04",
    ]  # fmt: skip
    by_name = {one.name: one for one in cluster.nodes}
    assert by_name["h100-017"].domains == ("core", "spine2", "leaf3")
    assert dict(by_name["h100-019"].allocatable)["cpu"] == (192 - 150) * 1000


def test_running_jobs_hold_their_nodes_and_gpus() -> None:
    gangs = [gang for gang in atlas().instance.gangs if gang.running]
    assert len(gangs) == 18
    nodes = atlas().instance.cluster.nodes
    held = sum(gang.roles[pod.role].gpus for gang in gangs for pod in gang.pods)
    # H100: 4, 6, 3 and 4 nodes of 8; 3 x 1, 4, 2, 1, 6. A100: 2 nodes of 8, 4, 4, 2. L40S: 3.
    assert held == 17 * 8 + 3 + 4 + 2 + 1 + 6 + 16 + 4 + 4 + 2 + 3
    (pod,) = gang_of("41014").pods
    assert pod.node is not None
    assert (nodes[pod.node].name, pod.gpus) == ("h100-018", 0b100001)
    assert gang_of("41002").expected_duration_s == 4320 * 60


def test_waiting_jobs_are_held_as_slurm_holds_them() -> None:
    waiting = [gang for gang in atlas().instance.gangs if not gang.running]
    assert len(waiting) == 37
    holds = [gang.hold.code for gang in waiting if gang.hold is not None]
    # 42020 to 42023, and tasks 4 to 15 of 42003, of which four may run and three do
    assert (holds.count("Gated"), holds.count("Unsupported"), len(holds)) == (4 + 12, 1, 17)
    assert gang_of("42003_3").hold is None
    assert [(role.name, role.min, role.gpus) for role in gang_of("42010").roles] == [
        ("het-0", 1, 0), ("het-1", 2, 8),
    ]  # fmt: skip
    assert gang_of("42001").required == 2  # the level of leaf switches
    assert len({gang.priority for gang in waiting}) == 8


def test_the_plan_places_what_the_readme_says(plan: Path) -> None:
    gangs = json.loads(plan.read_text())["spec"]["gangs"]
    starts = {
        gang["name"].split("-")[0]: sorted(pod["node"] for pod in gang["pods"])
        for gang in gangs
        if gang["decision"] == "place"
    }
    reasons = {
        gang["name"].split("-")[0]: gang["reason"]["code"]
        for gang in gangs
        if gang["decision"] == "wait"
    }
    assert starts["42001"] == ["h100-021", "h100-022", "h100-023", "h100-024"]
    assert starts["42030"] == ["h100-031", "h100-032"]
    assert starts["42027"] == ["a100-05", "a100-06"]
    assert {"42003_3", "42010", "42024", "42028", "42029", "42031", "42033", "42035"} < set(starts)
    assert reasons["42034"] == "Never"
    assert (reasons["42002"], reasons["42026"]) == ("NoRoom", "NoRoom")
    assert (reasons["42020"], reasons["42025"], reasons["42003_4"]) == (
        "Gated", "Unsupported", "Gated",
    )  # fmt: skip
    closed = {"h100-005", "h100-012", "h100-020", "a100-03", "l40s-04"}
    assert not closed.intersection(one for nodes in starts.values() for one in nodes)
    # the exclusive job shares its node with nobody
    (alone,) = starts["42031"]
    assert sum(alone in nodes for nodes in starts.values()) == 1


@pytest.mark.parametrize("options", [["--dry-run=client", "-o", "yaml"], ["--yes"]])
def test_a_plan_of_slurm_is_refused_by_name(options: list[str], cli: RunCli, plan: Path) -> None:
    done = cli("apply", str(plan), *options)
    assert done.code == 65
    assert "55 gangs of slurm: Slurm starts its jobs itself" in done.err
    assert "docs/beside-slurm.md" in done.err


def test_run_refuses_the_output_of_slurm(cli: RunCli) -> None:
    done = cli("run", str(FOLDER))
    assert done.code == 65
    assert "Slurm starts its jobs itself" in done.err


def test_what_holds_a_job_of_slurm_is_said_in_its_own_words(cli: RunCli, plan: Path) -> None:
    assert "Slurm must release the job" in cli("explain", str(plan), "42020-ablation").out
    assert "the option that is not modelled" in cli("explain", str(plan), "42025-halo").out


def test_a_topology_alone_says_at_once_that_it_has_no_gpus(cli: RunCli, tmp_path: Path) -> None:
    shutil.copy(FOLDER / "topology.conf", tmp_path)
    done = cli("validate", str(tmp_path / "topology.conf"))
    assert done.code == 0
    assert "says nothing of GPUs: 52 nodes of it count as nodes without GPUs" in done.err
    assert "kubernetes: {serverModels: [{nodeSelector: {}, model: DGX H100}]}" in done.err
    assert "scontrol show nodes --json" in done.err


def test_a_large_cluster_is_read_without_a_node_for_each_job(tmp_path: Path) -> None:
    """600 nodes and 600 jobs, each of which excludes most of the nodes."""
    nodes = [node(f"n{i:04d}") for i in range(600)]
    jobs = [running(i, f"n{i:04d}", ["gpu:h100:8(IDX:0-7)"]) for i in range(300)]
    jobs += [job(i, excluded_nodes="n[0000-0099]", priority=number(i)) for i in range(300, 600)]
    (tmp_path / "nodes.json").write_text(answer(nodes=nodes))
    (tmp_path / "queue.json").write_text(answer(jobs=jobs))
    found = load([str(tmp_path)]).instance
    assert (len(found.cluster.nodes), len(found.gangs)) == (600, 600)
    assert len({gang.roles[0].node_affinity for gang in found.gangs if not gang.running}) == 1
