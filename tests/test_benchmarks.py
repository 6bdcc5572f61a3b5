"""The seeded instances of benchmarks/ are valid, repeat themselves, and hold what they promise."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks.building import DGX1_V100, DGX_H100, GB200_TRAY, total_gpus
from benchmarks.instances import mesh, nvl72, planted, priorities, switched
from benchmarks.report import BEGIN, END, collapsed, into_readme, percent, table
from benchmarks.run import misses
from models.catalogue import find
from models.hardware import ServerModel
from models.instance import Instance
from planner.solving import solve

SMALL_DRAWS = {
    "switched": lambda seed: switched(24, 20, seed),
    "switched-tight": lambda seed: switched(24, 20, seed, tight=True, odd_sizes=True, carried=True),
    "mesh-pod": lambda seed: mesh(20, 20, seed, variant="pod"),
    "mesh-node": lambda seed: mesh(20, 20, seed, variant="node"),
    "mesh-free": lambda seed: mesh(20, 20, seed, variant="free"),
    "nvl72": lambda seed: nvl72(2, 10, seed),
    "planted": lambda seed: planted(8, seed).instance,
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
        for pod in gang.standing:
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
    held = sum(pod.gpus.bit_count() for g in instance.gangs for pod in g.standing if pod.gpus)
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


def test_figures_worse_than_expected_are_named() -> None:
    tier = {"name": "bandwidth", "gap": 0.03, "s": 12.0}
    found = {"solve_s": 61.0, "peak_mib": 100, "violations": [], "tiers": [tier]}
    limits = {"seconds": 60, "peak_mib": 100, "gaps": {"bandwidth": 0.02}}
    expected = {
        "cases": {"large": limits},
        "ratios": [{"of": "b", "to": "a", "at_most": 3}],
        "startup_seconds": {"show": 0.3},
    }
    figures = {
        "large": found,
        "a": {"solve_s": 1.0, "violations": [], "tiers": []},
        "b": {"solve_s": 3.1, "violations": [], "tiers": []},
    }
    assert list(misses(figures, {"show": 0.31}, expected)) == [
        "large: solve_s 61.0, limit 60",
        "large: gap of bandwidth 3.00%, limit 2%",
        "b: 3.1 x the time of a",
        "gangplan show: 0.31 s, limit 0.3 s",
    ]


def test_figures_within_expectation_are_not_named() -> None:
    found = {"solve_s": 60, "peak_mib": 953, "violations": [], "tiers": []}
    expected = {
        "cases": {"large": {"seconds": 60, "peak_mib": 953}},
        "ratios": [],
        "startup_seconds": {"show": 0.3},
    }
    assert list(misses({"large": found}, {"show": 0.3}, expected)) == []


def test_hundreds_of_tiers_are_shown_as_one_row_a_family() -> None:
    tiers = [
        {"name": f"admission/{p}", "value": p, "best": p, "bound": p + (p == 7), "gap": 0.0 + (p == 7),
         "proof": None if p == 7 else "exact", "s": float(p)}
        for p in range(30)
    ]  # fmt: skip
    (row,) = collapsed(tiers)
    assert row["name"] == "admission (30 tiers)"
    assert row["value"] == sum(range(30))
    assert row["bound"] == sum(range(30)) + 1
    assert (row["gap"], row["proof"], row["s"]) == (1.0, None, 29.0)
    assert collapsed(tiers[:20]) == tiers[:20]


def test_a_gap_is_printed_as_zero_only_where_it_is_zero() -> None:
    shown = [percent(gap) for gap in (0.0, 0.00001, 0.0234, 3.0, 12.0)]
    assert shown == ["0", "0.00%", "2.34%", "300%", "> 1000%"]


def test_the_readme_table_is_written_between_its_markers(tmp_path: Path) -> None:
    tier = {"name": "admission/0", "gap": 0.0}
    found = {"outcome": "optimal", "solve_s": 1.25, "peak_mib": 99, "tiers": [tier]}
    readme = tmp_path / "README.md"
    readme.write_text(f"before\n{BEGIN}\nold\n{END}\nafter\n")
    into_readme(readme, list(table({"small": found}, {"--help": 0.123})))
    text = readme.read_text()
    assert text.startswith("before\n")
    assert text.endswith("after\n")
    assert "old" not in text
    assert "| small | optimal | 1.2 | 99 | 0 | 0 | 0 | 0 | 0 | 0 |" in text
    assert "| `gangplan --help` | 0.123 |" in text


def test_a_readme_without_markers_is_refused(tmp_path: Path) -> None:
    readme = tmp_path / "README.md"
    readme.write_text("nothing here\n")
    with pytest.raises(ValueError, match="no figures between"):
        into_readme(readme, [])
