"""What an audit states is what a re-plan regains, and no step restarts more gangs than it needs."""

from __future__ import annotations

import io
import itertools
import json
from collections.abc import Iterator, Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from building import build, gang, node, switched
from comparing import differences
from conftest import RunCli
from effort import briefly, examples, first_fast
from exhaustive import plan
from tiny import busy

from benchmarks import generator
from models.instance.instance import Instance
from models.instance.occupancy import free_after
from models.instance.policy import Moves
from models.instance.solution import GangDecision
from models.program.base_state import base_decisions
from models.results.audit import Audit, free_to_move
from models.tiers import larger_is_better
from models.values.effective_gpus import gpus_at_speed
from models.values.leftover import stranded, stranded_by_cause
from models.values.tier_values import Evaluation, tiers_of
from planner.pipelines.adjustments import at_no_price
from planner.pipelines.audit import AuditRequest, audit
from planner.read import inputs
from planner.read.instance_builder import LoadedInput
from planner.search.free_space import FreeSpace
from planner.search.improve.fewest_restarts import FewestRestarts, Step
from planner.search.improve.making_room import steps_by_making_room
from planner.search.ledger import Ledger
from planner.search.solve import solve
from planner.show.console import Console

DATA = Path(__file__).parents[1] / "data"

KINDS = {
    "anything": (),
    "unknown": ("unknown_gpus", "sick_holders", "unknown_unhealthy", "overfull"),
    "sizes": ("elastic", "elastic_running", "incomplete", "launchers", "held"),
    "rules": ("required", "slices", "cordons", "taints", "selectors", "budgets"),
}

ANYTHING = ("movable", *itertools.chain(*KINDS.values()))


def free(instance: Instance) -> Instance:
    """Every gang that runs whole and is not held moves at no price."""
    return at_no_price(instance, free_to_move(instance))


def worth(instance: Instance, decisions: Sequence[GangDecision]) -> tuple[int, ...]:
    return larger_is_better(tiers_of(instance), Evaluation(instance, decisions).vector())


@pytest.mark.parametrize("kind", KINDS)
def test_the_replan_equals_trying_every_plan(kind: str) -> None:
    found = {
        seed: differences(free(busy(seed, more=KINDS[kind])))
        for seed in range(3000, 3000 + examples(40, 1))
    }
    assert {seed: what for seed, what in found.items() if what} == {}


def audited(instance: Instance) -> Audit:
    instance = replace(instance, policy=replace(instance.policy, gpu_hour_price=None))
    console = Console(stdout=io.StringIO(), stderr=io.StringIO(), stdin=io.BytesIO(), environ={})
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(inputs, "load", lambda *_, **__: LoadedInput(instance))
        return audit(AuditRequest(("x",)), console, created_at="2026-11-23T00:00:00Z").audit


def level(instance: Instance) -> Instance:
    """The instance with one priority, so that nothing is better than more effective GPUs."""
    gangs = tuple(replace(gang, priority=0, stated_priority=None) for gang in instance.gangs)
    return replace(instance, gangs=gangs, policy=replace(instance.policy, starvation_after_s=None))


def at_most(instance: Instance, restarts: int | None) -> int:
    """Permille-GPU of the best plan with so many restarts, by trying every plan."""
    limited = replace(instance, policy=replace(instance.policy, moves=Moves(restarts).or_none))
    return permille(instance, plan(limited).decisions)


def permille(instance: Instance, decisions: Sequence[GangDecision]) -> int:
    return sum(gpus_at_speed(Evaluation(instance, decisions)))


SINGLE = ("queues", "launchers", "priorities", "cpu_gangs")
"""Without these the value of a plan is one number: its effective GPUs."""


WITH_STEPS = (3107, 3125, 3148, 3233, 3116, 3126, 3133, 3138, 3159, 3179, 3276, 3315)
"""Seeds of which restarts regain something."""


@pytest.mark.parametrize("seed", first_fast([*WITH_STEPS, *range(3400, 3460)], 2))
def test_no_step_restarts_more_gangs_than_it_needs(seed: int) -> None:
    """Against trying every plan: what is regained, with how many restarts, by each step and by the whole."""
    with briefly():
        instance = level(busy(seed, more=("movable",), without=SINGLE))
        found = audited(instance)
        everything, unit = free(instance), 1000 * instance.gpu_unit
        unmoved, best = at_most(everything, 0), at_most(everything, None)
        assert found.effective.unmoved * unit == unmoved
        assert found.effective.replanned * unit == best
        assert found.effective.at_most == found.effective.replanned
        for step in found.steps:
            gained = unmoved + int(step.regains * unit)
            assert step.restarts == len(step.moves) > 0
            assert at_most(everything, step.restarts - 1) < gained
            assert gained <= at_most(everything, step.restarts)
            assert step.fewest
        if found.whole is None:
            assert best == unmoved
        else:
            assert found.steps[found.whole - 1].regains * unit == best - unmoved


@pytest.mark.parametrize(
    "seed", first_fast([3179, 3218, 3170, 3184, 3193, 3233, *range(3500, 3560)], 2)
)
def test_fewer_restarts_regain_less_where_that_is_said_to_be_proven(seed: int) -> None:
    """With priorities: against the most effective GPUs that any plan has, whomever it starts."""
    with briefly():
        instance = busy(
            seed, more=("movable", "priorities"), without=("queues", "launchers", "cpu_gangs")
        )
        found, everything = audited(instance), free(instance)
        for step in found.steps:
            gained = int((found.effective.unmoved + step.regains) * 1000 * instance.gpu_unit)
            assert not step.fewest or at_most(level(everything), step.restarts - 1) < gained
            assert step.regains > 0 or step.starts


def needless(instance: Instance, step: Step, unmoved: Sequence[GangDecision]) -> Iterator[object]:
    """Gangs that could be put back with all gains of the step: alone, or with any others that moved."""
    ledger = Ledger(instance, unmoved)
    finder = FewestRestarts(instance, unmoved, lambda: False)
    for count in range(1, len(step.moved) + 1):
        for back in itertools.combinations(step.moved, count):
            tried = [unmoved[i] if i in back else one for i, one in enumerate(step.decisions)]
            space = FreeSpace(instance, tried)
            fits = all(space.is_valid(n) for n in range(len(instance.cluster.nodes)))
            after = Evaluation(instance, tried)
            if (
                fits
                and ledger.keeps_rules(tuple(tried))
                and all(finder.gains(i, after) for i in step.gains)
            ):
                yield back


@pytest.mark.parametrize("seed", range(3200, 3200 + examples(60, 2)))
def test_no_gang_of_a_step_can_be_put_back_without_losing_its_gains(seed: int) -> None:
    instance = free(busy(seed, more=ANYTHING if seed % 2 else ("movable",)))
    unmoved = solve(at_no_price(instance, ())).decisions
    finder = FewestRestarts(instance, unmoved, lambda: False)
    replanned = solve(instance).decisions
    moved = {i for i, one in enumerate(replanned) if one.decision == "move"}
    for step in finder.of_plan(replanned):
        assert moved.issuperset(step.moved)
        assert list(needless(instance, step, unmoved)) == []
    for step in steps_by_making_room(finder):
        assert worth(instance, step.decisions) > finder.worth
        assert list(needless(instance, step, unmoved)) == []


@pytest.mark.parametrize("seed", first_fast(range(2)))
def test_a_step_starts_no_gang_while_a_higher_one_of_its_shape_waits(seed: int) -> None:
    instance = free(generator.busy(16, 24, seed, occupied=0.85, demand=1.6))
    same = instance.gangs[next(i for i, gang in enumerate(instance.gangs) if not gang.running)]
    twins = tuple(
        replace(same, name=f"twin-{n}", priority=priority) for n, priority in enumerate((0, 500))
    )
    instance = replace(instance, gangs=(*instance.gangs, *twins))
    unmoved = solve(at_no_price(instance, ())).decisions
    finder = FewestRestarts(instance, unmoved, lambda: False)
    low, high = len(instance.gangs) - 2, len(instance.gangs) - 1
    for step in steps_by_making_room(finder):
        assert step.decisions[high].pods or not step.decisions[low].pods


def test_free_gpus_of_nodes_that_take_no_pods_are_told_apart() -> None:
    odd = {"n1": {"ready": False}, "n2": {"unschedulable": True}, "n3": {"unhealthy": (0, 1)}}
    nodes = [node(name, switched(8), **more) for name, more in {"n0": {}, **odd}.items()]
    found = stranded_by_cause(build(nodes=nodes, gangs=[gang("a", 1, 1)]), [GangDecision("wait")])
    closed = {cause: own for cause, own in found.items() if cause in ("not ready", "cordoned")}
    assert closed == {"not ready": {1: 8}, "cordoned": {2: 8}}
    assert found["unhealthy"] == {3: 2}


def test_free_gpus_are_stranded_for_every_reason_that_there_is(cli: RunCli) -> None:
    """Of ``thin`` one GPU lacks cpu (64 for 9 a GPU), and 7 are too few for a pod of 8, as on ``sick``."""
    done = cli("audit", str(DATA / "stranded.yaml"), "-o", "json")
    found = json.loads(done.out)
    names = {one["cause"]: one["detail"].rpartition(": ")[2] for one in found["stranded"]}
    assert {one["cause"]: one["gpus"] for one in found["stranded"]} == {
        **dict.fromkeys(("not ready", "cordoned", "not selected", "tainted", "spare"), 8),
        "node": 14,
        "unhealthy": 1,
        "cpu or memory": 1,
    }
    assert names == {
        "not ready": "down",
        "cordoned": "shut",
        "not selected": "other",
        "tainted": "tainted",
        "spare": "spare-2",
        "node": "sick, thin",
        "unhealthy": "sick",
        "cpu or memory": "thin",
    }
    assert found["gpus"] == {"installed": 64, "held": 0, "free": 64, "stranded": 56}


@pytest.mark.parametrize("seed", first_fast(range(4), 2))
def test_stranded_gpus_are_those_of_the_tier_by_cause(seed: int) -> None:
    instance = generator.busy(12, 10, seed, tight=True, odd=True)
    instance = replace(
        instance, policy=replace(instance.policy, per_gpu=(("cpu", 12_000), ("memory", 64 << 30)))
    )
    base = base_decisions(instance)
    found = stranded_by_cause(instance, base)
    pods = (
        (gang.roles[pod.role], pod)
        for gang, one in zip(instance.gangs, base, strict=True)
        for pod in one.pods
    )
    left = free_after(instance, pods)
    counted = sum(
        sum(found.get(cause, {}).values()) for cause in ("cpu or memory", "node", "domain")
    )
    assert 1000 * counted == stranded(instance, left, Evaluation(instance, base).usable)
    nodes = instance.cluster.nodes
    idle = sum(node.gpus for node in nodes) - sum(left)
    held = sum(gang.roles[p.role].gpus for gang in instance.gangs for p in gang.running_pods)
    closed = sum(sum(found.get(cause, {}).values()) for cause in ("unhealthy", "cordoned"))
    assert closed == idle - held
