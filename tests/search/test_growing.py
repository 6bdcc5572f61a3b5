"""Growth into idle room: who grows first, how far, and what it must not cost.

Servers have 8 GPUs and one NIC of 50,000 MB/s unless said otherwise; every plan is judged by the checker.
Gangs of pattern none have no bandwidth to lose.
"""

from __future__ import annotations

from dataclasses import replace

from building import build, gang, mask, node, role
from building_servers import switched
from by_steps import by_steps

from models.hardware import Nic
from models.instance.gang import Gang


def grows(name: str, least: int, most: int, gpus: int, **how: object) -> Gang:
    """A waiting elastic gang of one role."""
    roles = [role("worker", least, gpus, most=most, step=how.pop("step", 1))]  # type: ignore[arg-type]
    return gang(name, roles=roles, **how)  # type: ignore[arg-type]  # as given


def test_a_gang_that_starts_takes_what_is_idle_on_its_server() -> None:
    plan = by_steps(build(gangs=[grows("a", 1, 6, 2)]))
    assert len(plan.of("a").pods) == 4
    assert plan.of("a").decision == "place"
    assert plan.value("growth/0") == 6


def test_a_running_gang_grows_beside_its_pods_and_they_stay() -> None:
    runs = grows("a", 1, 4, 2, stands=[(0, 0, 0, mask(3, 5))])
    plan = by_steps(build(gangs=[runs]))
    assert plan.of("a").decision == "resize"
    assert plan.of("a").pods[0].gpus == mask(3, 5)
    assert len(plan.of("a").pods) == 4


def test_nobody_grows_while_that_gang_has_another_that_could_start() -> None:
    plan = by_steps(build(gangs=[grows("a", 1, 8, 1, priority=9), gang("b", 1, 7)]))
    assert plan.all() == {"a": "place", "b": "place"}
    assert len(plan.of("a").pods) == 1


def test_growth_goes_to_whole_servers_where_part_of_one_would_cost_bandwidth() -> None:
    # Eight NICs of 50,000 MB/s, one near each GPU: two whole servers reach 370,800 of 370,800; two GPUs on
    # the second server have two NICs: 100,000 of 370,800.
    hardware = switched(nics=tuple(Nic(f"nic{i}", 400_000, (i,)) for i in range(8)))
    nodes = [node("n1", hardware), node("n2", hardware)]
    runs = grows("a", 4, 7, 2, stands=[(0, i, 0, mask(2 * i, 2 * i + 1)) for i in range(4)])
    assert by_steps(build(nodes=nodes, gangs=[runs])).of("a").decision == "keep"
    more = replace(runs, roles=(replace(runs.roles[0], max=9),))
    plan = by_steps(build(nodes=nodes, gangs=[more]))
    assert len(plan.of("a").pods) == 8
    assert plan.value("bandwidth") == 8 * 1000


def test_growth_costs_nothing_that_is_listed_before_it() -> None:
    # Left whole, the second server takes a request of 8; stranded first, a may not nibble at it.
    runs = replace(
        grows("a", 4, 5, 2, stands=[(0, i, 0, mask(2 * i, 2 * i + 1)) for i in range(4)]),
        pattern="none",
    )
    first = build(nodes_per_rack=2, gangs=[runs], mix={8: 1000}, objectives=["stranded", "growth"])
    assert by_steps(first).of("a").decision == "keep"
    last = build(nodes_per_rack=2, gangs=[runs], mix={8: 1000}, objectives=["growth", "stranded"])
    assert by_steps(last).of("a").decision == "resize"
