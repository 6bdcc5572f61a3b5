"""What an audit states is what a re-plan regains, for placements by the rules of other schedulers."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from conftest import RunCli
from effort import examples

from benchmarks.generator import busy
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule
from models.documents.audit import AuditDocument
from models.documents.canonical import canonical_instance
from models.documents.policy import Objective, SolveLimits
from models.instance.gang import ExistingPod, Gang
from models.instance.instance import Instance
from models.instance.occupancy import free_after
from models.instance.policy import EVERY_SCHEDULER
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.results.audit_figures import best_speeds, fixed_gangs
from models.results.plan import PlanWriter
from models.values.leftover import stranded
from models.values.stranded_gpus import stranded_by_cause
from models.verify.check import Judge, figures
from planner.pipelines.adjustments import at_no_price
from planner.pipelines.audit import together
from planner.read.inputs import load
from planner.search.improve.regaining_moves import regaining_moves
from planner.search.solve import solve

OBJECTIVES = ("goodput", "disruption")
BRIEF: dict[str, Any] = {
    "objectives": tuple(map(Objective, OBJECTIVES)),
    "solve": SolveLimits(budget=10),
}
"""What is lost follows from goodput; other tiers only take their time to be proven."""

SCHEDULERS = tuple(AT_ONCE)
QUEUES: dict[str, Callable[[int], Instance]] = {
    "racks": lambda seed: busy(8, 12, seed, occupied=0.2, demand=1.6),
    "meshes": lambda seed: busy(4, 8, seed, servers={"DGX-1 V100": 1}, demand=1.3),
}


def placed_by(scheduler: str, queue: Instance, *, ended: bool = True) -> Instance:
    """A cluster that this scheduler has filled. ``ended``: and every third gang is gone since."""
    decisions = schedule(queue, AT_ONCE[scheduler])
    gangs = tuple(
        _standing(gang, decision)
        for index, (gang, decision) in enumerate(zip(queue.gangs, decisions, strict=True))
        if not (ended and decision.pods and index % 3 == 0)
    )
    return replace(queue, gangs=gangs, policy=replace(queue.policy, **BRIEF))


def _standing(gang: Gang, decision: GangDecision) -> Gang:
    pods = tuple(
        ExistingPod(f"{gang.name}-{p.role}-{p.index}", p.role, p.index, node=p.node, gpus=p.gpus)
        for p in decision.pods
    )
    return replace(gang, pods=pods)


def written(folder: Path, name: str, instance: Instance, **policy: Any) -> str:  # noqa: ANN401
    """A file with the instance, in which every whole running gang may move if the policy says more."""
    document = canonical_instance(instance)
    document["policy"]["spec"].update(policy)
    if policy:
        for index, gang in enumerate(document["gangs"]):
            running = instance.gangs[index].running and index not in instance.incomplete
            gang["spec"].update(movable=running, preemptible=False)
    items = [document["cluster"], *document["gangs"], document["policy"]]
    text = json.dumps({"apiVersion": "v1", "kind": "List", "items": items})
    path = folder / f"{name}.json"
    path.write_text(text)
    return str(path)


FREE = {
    "objectives": [{"name": n} for n in OBJECTIVES if n != "disruption"],
    "disruption": {"weight": "none"},
}


@pytest.mark.parametrize(
    ("kind", "scheduler"),
    [
        *(("racks", name) for name in SCHEDULERS),
        ("meshes", "tight"),
        *(pytest.param("meshes", name, marks=pytest.mark.slow) for name in SCHEDULERS[1:]),
    ],
)
def test_the_loss_is_what_a_plan_with_everything_movable_regains(
    kind: str, scheduler: str, tmp_path: Path, cli: RunCli
) -> None:
    for seed in range(examples(6, 1)):
        instance = placed_by(scheduler, QUEUES[kind](seed))
        result = cli("audit", written(tmp_path, "now", instance), "-o", "json")
        audit = AuditDocument.model_validate_json(result.out)
        out = tmp_path / "plan.json"
        assert cli("plan", written(tmp_path, "free", instance, **FREE), "--out", str(out)).code == 0
        replan = json.loads(out.read_text())
        effective = replan["status"]["effectiveGpus"]
        tiers = [t for t in replan["status"]["objectives"] if t["name"].startswith("goodput")]
        assert all(tier["value"] == tier["bound"] for tier in tiers)
        lost = audit.status.lost
        assert lost.gpus == pytest.approx(effective["after"] - effective["before"], abs=1e-9)
        assert lost.gpus >= 0
        assert lost.at_most == lost.gpus  # as the plan, it is proven
        assert lost.slow + lost.waiting == pytest.approx(lost.gpus)
        assert lost.startable + lost.placement == pytest.approx(lost.gpus)
        assert sum(gang.regains_gpus for gang in audit.status.gangs) == pytest.approx(lost.slow)
        now = {tier["name"]: tier["value"] for tier in replan["status"]["objectives"]}
        assert {one.name: one.possible for one in audit.status.objectives} == now


def test_the_same_queue_planned_at_once_has_what_the_audit_calls_possible(
    tmp_path: Path, cli: RunCli
) -> None:
    """Planned from an empty cluster, without any notion of moves."""
    for scheduler in SCHEDULERS[: examples(4, 1)]:
        queue = busy(8, 10, 5, occupied=0.2, demand=0.7)
        instance = placed_by(scheduler, queue, ended=False)
        running = [gang for gang in instance.gangs if gang.running and not gang.missing()]
        instance = replace(
            instance, gangs=tuple(running)
        )  # else a plan could stop gangs for others
        result = cli("audit", written(tmp_path, "now", instance), "-o", "json")
        effective = json.loads(result.out)["status"]["effectiveGpus"]
        empty = replace(instance, gangs=tuple(replace(gang, pods=()) for gang in running))
        out = tmp_path / "plan.json"
        cli("plan", written(tmp_path, "empty", empty), "--out", str(out))
        fresh = json.loads(out.read_text())
        assert fresh["status"]["effectiveGpus"]["after"] == effective["possible"], scheduler


def parts(instance: Instance) -> tuple[Instance, Any, Any]:
    """The instance of the re-plan, the plan in which nothing moves, and the moves."""
    running = {i for i, gang in enumerate(instance.gangs) if gang.running}
    free = at_no_price(instance, running - fixed_gangs(instance).keys(), budgets=False)
    unmoved, possible = solve(at_no_price(instance, ())), solve(free)
    best = best_speeds(free)
    moves = regaining_moves(free, unmoved.decisions, possible.decisions, best, lambda: False)
    return free, unmoved, moves


@pytest.mark.parametrize(
    "draw",
    [
        partial(placed_by, "volcano", QUEUES["racks"](1)),
        partial(busy, 16, 12, 1, occupied=0.85),
    ],
)
def test_each_move_alone_and_all_together_regain_what_they_say(
    draw: Callable[[], Instance],
) -> None:
    instance = draw()
    instance = replace(instance, policy=replace(instance.policy, **BRIEF))
    free, unmoved, moves = parts(instance)
    assert moves
    assert [one.order for one in moves] == sorted(one.order for one in moves)
    touched = Counter(node for one in moves for node in one.nodes)
    assert set(touched.values()) == {1}

    def value(chosen: list[Any]) -> float:
        """Permille-GPU of the plan with these moves, by the judge, which accepts it."""
        plan = PlanWriter(free).compose(
            together(free, unmoved, chosen),
            name="x",
            created_at="2026-11-23T00:00:00Z",
            generator="x",
        )
        assert Judge().check(plan, refute=False).violations == []
        total = 0
        decided = {
            (one["namespace"], one["name"]): one["decision"] for one in plan["spec"]["gangs"]
        }
        for gang in free.gangs:
            figure = figures(plan)[gang.key]
            gpus = sum(role.min * role.gpus for role in gang.roles)
            whole = decided[gang.key] in ("place", "complete", "keep", "move") and not (
                decided[gang.key] == "keep" and gang.missing()
            )
            total += gpus * (figure.speed or 0) if whole else 0
        return total

    before = value([])
    for move in moves:
        assert move.effective == value([move]) - before
        assert move.effective > 0 or move.whole > 0
        running = [i for i in move.decisions if free.gangs[i].running]
        assert running
        assert move.gpus == sum(
            free.gangs[i].roles[p.role].gpus for i in running for p in free.gangs[i].running_pods
        )
    assert sum(move.effective for move in moves) == value(list(moves)) - before


@pytest.mark.slow
def test_moves_of_a_recorded_cluster_are_found() -> None:
    """``asr-distill`` runs at 58 % on two servers; on one it has 8 x 0.42 = 3.36 effective GPUs more."""
    snapshot = Path(__file__).parent.parent / "inputs/snapshots/h100-gke"
    instance = load((str(snapshot),), queue=(EVERY_SCHEDULER,)).instance
    instance = replace(instance, policy=replace(instance.policy, **BRIEF))
    free, unmoved, moves = parts(instance)
    asr = next(i for i, gang in enumerate(free.gangs) if gang.name == "asr-distill")
    (move,) = (one for one in moves if asr in one.decisions)
    assert len({pod.node for pod in move.decisions[asr].pods}) == 1
    assert sum(free.gangs[i].running for i in move.decisions) <= 3
    assert move.effective >= 3360
    texts = {"name": "x", "created_at": "2026-11-23T00:00:00Z", "generator": "x"}
    plan = PlanWriter(free).compose(together(free, unmoved, moves), **texts)
    assert Judge().check(plan, refute=False).violations == []


@pytest.mark.parametrize("seed", range(4))
def test_stranded_gpus_are_those_of_the_tier_by_cause(seed: int) -> None:
    instance = busy(12, 10, seed, tight=True, odd=True)
    instance = replace(
        instance,
        policy=replace(instance.policy, per_gpu=(("cpu", 12_000), ("memory", 64 << 30))),
    )
    base = base_decisions(instance)
    found = stranded_by_cause(instance, base)
    pods = (
        (gang.roles[pod.role], pod)
        for gang, one in zip(instance.gangs, base, strict=True)
        for pod in one.pods
    )
    free = free_after(instance, pods)
    from models.values.tier_values import Evaluation

    counted = sum(
        sum(found.get(cause, {}).values()) for cause in ("cpu or memory", "node", "domain")
    )
    assert 1000 * counted == stranded(instance, free, Evaluation(instance, base).usable)
    nodes = instance.cluster.nodes
    idle = sum(node.gpus for node in nodes) - sum(free)
    held = sum(gang.roles[p.role].gpus for gang in instance.gangs for p in gang.running_pods)
    closed = sum(sum(found.get(cause, {}).values()) for cause in ("unhealthy", "cordoned"))
    assert closed == idle - held
