"""The seeded instances of benchmarks/ are valid, repeat themselves, and hold what they promise."""

from __future__ import annotations

from collections import Counter

import pytest

from benchmarks.building import DGX1_V100, DGX_H100, GB200_TRAY, total_gpus
from benchmarks.instances import (
    busy,
    fleet,
    mesh,
    no_room,
    nvl72,
    planted,
    priorities,
    running,
    switched,
    traps,
)
from benchmarks.lab.rules import AT_ONCE
from benchmarks.lab.scheduler import schedule, solution_of
from benchmarks.no_room import SHAPES
from models.hardware import ServerModel
from models.instance.instance import Instance
from models.rates.catalogue import find
from models.results.plan import compose
from models.verify.check import check
from planner.search.solve import solve

NOW = "2026-11-21T12:00:00Z"

SMALL_DRAWS = {
    "switched": lambda seed: switched(24, 20, seed),
    "switched-tight": lambda seed: switched(24, 20, seed, tight=True, odd_sizes=True, carried=True),
    "mesh-pod": lambda seed: mesh(20, 20, seed, variant="pod"),
    "mesh-node": lambda seed: mesh(20, 20, seed, variant="node"),
    "mesh-free": lambda seed: mesh(20, 20, seed, variant="free"),
    "nvl72": lambda seed: nvl72(2, 10, seed),
    "planted": lambda seed: planted(8, seed).instance,
    "running": lambda seed: running(24, 20, 18, seed),
    "traps": lambda seed: traps(8, seed).instance,
    "fleet": lambda seed: fleet(32, seed),
    "busy": lambda seed: busy(16, 12, seed),
}


@pytest.mark.parametrize("draw", SMALL_DRAWS)
def test_a_seed_always_draws_the_same_instance_and_another_seed_another(draw: str) -> None:
    assert SMALL_DRAWS[draw](3) == SMALL_DRAWS[draw](3)
    assert SMALL_DRAWS[draw](3) != SMALL_DRAWS[draw](4)


@pytest.mark.parametrize("draw", SMALL_DRAWS)
@pytest.mark.parametrize("seed", range(5))
def test_running_gangs_stand_on_healthy_gpus_that_nobody_else_holds(draw: str, seed: int) -> None:
    instance: Instance = SMALL_DRAWS[draw](seed)
    held = [0] * len(instance.cluster.nodes)
    left = [dict(node.allocatable) for node in instance.cluster.nodes]
    for gang in instance.gangs:
        for pod in gang.running_pods:
            assert pod.node is not None
            assert pod.gpus is not None
            role = gang.roles[pod.role]
            assert pod.gpus.bit_count() == role.gpus
            assert pod.gpus & ~instance.cluster.nodes[pod.node].healthy == 0
            assert pod.gpus & held[pod.node] == 0
            held[pod.node] |= pod.gpus
            for name, amount in role.requests:
                left[pod.node][name] -= amount
    assert all(amount >= 0 for resources in left for amount in resources.values())


@pytest.mark.parametrize("draw", SMALL_DRAWS)
def test_gangs_and_nodes_are_in_order_with_unique_names(draw: str) -> None:
    instance: Instance = SMALL_DRAWS[draw](0)
    keys = [gang.key for gang in instance.gangs]
    names = [node.name for node in instance.cluster.nodes]
    assert keys == sorted(set(keys))
    assert names == sorted(set(names))


@pytest.mark.parametrize("seed", range(3))
def test_the_queue_asks_for_more_than_is_free(seed: int) -> None:
    instance = switched(64, 60, seed)
    asked = sum(total_gpus(gang) for gang in instance.gangs if not gang.running)
    installed = sum(node.healthy.bit_count() for node in instance.cluster.nodes)
    held = sum(pod.gpus.bit_count() for g in instance.gangs for pod in g.running_pods if pod.gpus)
    assert 1.2 <= asked / (installed - held) <= 1.5


@pytest.mark.parametrize("model", [DGX_H100, DGX1_V100, GB200_TRAY], ids=lambda model: model.name)
def test_the_servers_are_those_of_the_catalogue(model: ServerModel) -> None:
    shipped = find(model.name)
    assert shipped is not None
    for field in ("gpu", "gpus", "fabric", "matrix", "link_MBps", "links_per_gpu", "pcie_MBps"):
        assert getattr(model, field) == getattr(shipped, field), field
    assert [(nic.megabits, nic.gpus) for nic in model.nics] == [
        (nic.megabits, nic.gpus) for nic in shipped.nics
    ]
    assert model.nvlink_domain_nodes == shipped.nvlink_domain_nodes


def test_only_the_number_of_priorities_differs_between_the_priority_cases() -> None:
    few, many = priorities(3), priorities(300)
    waiting = [gang for gang in many.gangs if not gang.running]
    assert len(waiting) == 300
    assert len({gang.priority for gang in few.gangs}) == 3
    assert len({gang.priority for gang in many.gangs}) == 300
    assert [gang.key for gang in few.gangs] == [gang.key for gang in many.gangs]
    assert few.cluster == many.cluster
    # A larger priority among three is never a smaller one among three hundred.
    pairs = sorted((b.priority, a.priority) for a, b in zip(few.gangs, many.gangs, strict=True))
    assert [low for _, low in pairs] == sorted(low for _, low in pairs)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_plan_that_was_planted(seed: int) -> None:
    drawn = planted(6, seed)
    solution = solve(drawn.instance)
    values = {tier.name: tier.value for tier in solution.tiers}
    assert {name: values[name] for name, _ in drawn.optimum} == dict(drawn.optimum)


@pytest.mark.parametrize("seed", range(3))
def test_the_search_finds_the_one_plan_without_traps_and_no_baseline_does(seed: int) -> None:
    drawn = traps(6, seed)
    solution = solve(drawn.instance)
    assert {tier.name: tier.value for tier in solution.tiers} == dict(drawn.optimum)
    for name, rules in AT_ONCE.items():
        found = solution_of(drawn.instance, schedule(drawn.instance, rules), name)
        assert found.tiers[0].value < solution.tiers[0].value, name


def test_a_fleet_looks_like_its_sources() -> None:
    instance = fleet(512, 0)
    nodes = instance.cluster.nodes
    # Of 845 servers of the table 454 have A100 and 219 H800; they are drawn a rack of six or seven at a time.
    kinds = Counter(node.model.gpu if node.model else "none" for node in nodes)
    assert kinds["A100"] / 512 == pytest.approx(454 / 845, abs=0.12)
    assert kinds["H800"] / 512 == pytest.approx(219 / 845, abs=0.12)
    assert {len(rack.nodes) for rack in instance.cluster.domains[1]} <= set(range(1, 9))
    gangs = instance.gangs
    counts = {
        "launchers": sum(gang.roles[0].name == "launcher" for gang in gangs),
        "preemptible": sum(gang.preemptible for gang in gangs),
        "movable": sum(gang.movable for gang in gangs),
        "elastic and running": sum(gang.elastic and gang.running for gang in gangs),
    }
    assert min(counts.values()) >= 3, counts
    asked = Counter(gang.weight_gpus for gang in gangs if not gang.running)
    assert asked[1] > asked[8] > asked[16]


def test_of_what_runs_a_third_may_stop_a_third_move_and_a_sixth_resize() -> None:
    instance = running(512, 300, 200, 0)
    runs = [gang for gang in instance.gangs if gang.running]
    waits = [gang for gang in instance.gangs if not gang.running]
    assert (len(instance.cluster.nodes), len(runs), len(waits)) == (512, 200, 300)
    # 200 / 6 is 33; those that are elastic are preemptible or movable as well: 67 + 33 / 2
    assert sum(gang.elastic for gang in runs) == 33
    assert sum(gang.preemptible for gang in runs) + sum(gang.movable for gang in runs) == 134 + 33
    assert sum(gang.preemptible and gang.movable for gang in runs) == 0
    assert 70 <= sum(gang.preemptible for gang in runs) <= 97
    assert len({gang.priority for gang in instance.gangs}) == 4
    assert len(instance.incomplete) == 4
    installed = sum(node.healthy.bit_count() for node in instance.cluster.nodes)
    held = sum((pod.gpus or 0).bit_count() for gang in runs for pod in gang.running_pods)
    assert 0.8 <= held / installed <= 0.9


def test_everything_about_what_runs_occurs_in_the_running_case() -> None:
    instance = running(512, 300, 200, 0)
    policy = instance.policy
    assert policy.moves is not None
    assert policy.moves.min_gain > 0
    assert (policy.disruption.weight, policy.starvation_after_s) == ("lostRuntime", 86_400)
    assert policy.objectives[-1].name == "stability"
    counts = {
        "aged": sum(map(instance.aged, instance.gangs)),
        "held in size": sum(map(instance.size_held, instance.gangs)),
        "elastic and waiting": sum(g.elastic and not g.running for g in instance.gangs),
        "planned and waiting": sum(bool(g.planned) and not g.running for g in instance.gangs),
        "saved": sum(g.last_checkpoint is not None for g in instance.gangs),
        "never saved": sum(g.running and g.last_checkpoint is None for g in instance.gangs),
        "above min": sum(
            g.running and g.elastic and len(g.running_pods) > g.roles[0].min for g in instance.gangs
        ),
    }
    assert min(counts.values()) >= 5, counts


@pytest.mark.parametrize(
    "shape",
    [
        pytest.param(shape, marks=pytest.mark.slow) if shape == "tangled" else shape
        for shape in SHAPES
    ],
)
def test_the_large_gang_is_proven_to_wait_and_nothing_stops_for_it(shape: str) -> None:
    instance = no_room(shape, 60)
    solution = solve(instance)
    decided = dict(zip([g.name for g in instance.gangs], solution.decisions, strict=True))
    assert decided["pretrain"].decision == "wait"
    tier = next(tier for tier in solution.tiers if tier.name == "goodput/100")
    running = sum(g.weight_gpus for g in instance.gangs if g.running and g.priority == 100)
    assert (tier.value, tier.bound) == (1000 * running, 1000 * running)
    document = compose(instance, solution, name=shape, created_at=NOW, generator="test")
    assert check(document) == []
    if shape != "tangled":  # only there somebody else comes, for whom others stop
        assert all(d.decision == "keep" for name, d in decided.items() if name != "pretrain")


@pytest.mark.parametrize(
    ("shape", "counted", "without", "code", "level", "pods"),
    [
        ("small-racks", "empty", 0, "Never", "rack", 8),
        # six of 60 servers have the gangs that stay
        ("blocked", "running", 54, "RequiredTopology", "rack", 9),
        ("nvlink", "empty", 0, "Never", "rack", 18),
        # half of 60 servers of 8, and no five of one server
        ("pieces", "running", 60, "NoRoom", None, 0),
    ],
)
def test_the_large_gang_says_what_it_lacks_even_with_preemption(
    shape: str, counted: str, without: int, code: str, level: str | None, pods: int
) -> None:
    instance = no_room(shape, 60)
    decided = dict(zip([g.name for g in instance.gangs], solve(instance).decisions, strict=True))
    reason = decided["pretrain"].reason
    assert reason is not None
    assert reason.code == code
    fields = reason.fields
    assert (fields.counted, fields.without) == (counted, without)
    assert (fields.level, fields.room_pods) == (level, pods)
    assert (fields.room_gpus == 240) == (shape == "pieces")
