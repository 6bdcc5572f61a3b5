"""Growth into idle room: who grows first, how far, and what it must not cost.

Servers have 8 GPUs and one NIC of 50,000 MB/s unless said otherwise; every plan is judged by the checker.
Gangs of pattern none have no bandwidth to lose.
"""

from __future__ import annotations

from dataclasses import replace

from building import build, gang, mask, node, role
from building_servers import switched
from by_steps import by_search, by_steps
from outcomes import planned

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


def test_growth_takes_steps() -> None:
    # 1, 4, 7, ... pods of 1 GPU: 8 do not make a step.
    assert len(by_steps(build(gangs=[grows("a", 1, 10, 1, step=3)])).of("a").pods) == 7


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


def test_the_higher_priority_grows_first() -> None:
    plan = by_steps(build(gangs=[grows("a", 1, 7, 1), grows("b", 1, 7, 1, priority=5)]))
    assert (len(plan.of("a").pods), len(plan.of("b").pods)) == (1, 7)


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


def test_growth_keeps_a_preference_that_holds() -> None:
    runs = replace(
        grows("a", 4, 8, 2, stands=[(0, i, 0, mask(2 * i, 2 * i + 1)) for i in range(4)]),
        preferred=1,
        pattern="none",
    )
    # preferred rack: n01 is alone in its rack, so no pod may join; without the preference four do.
    assert by_steps(build(racks=2, gangs=[runs])).of("a").decision == "keep"
    free = replace(runs, preferred=None)
    assert len(by_steps(build(racks=2, gangs=[free])).of("a").pods) == 8


def test_growth_stays_in_the_required_domain() -> None:
    runs = grows(
        "a", 4, 12, 2, same="rack", stands=[(0, i, 0, mask(2 * i, 2 * i + 1)) for i in range(4)]
    )
    runs = replace(runs, pattern="none")
    plan = by_steps(build(racks=2, nodes_per_rack=2, gangs=[runs]))
    assert sorted(set(plan.nodes("a"))) == ["n01", "n02"]
    assert len(plan.of("a").pods) == 8


def test_growth_completes_the_slice_where_it_stands() -> None:
    # Slices of two pods on one node: pod 3 must join pod 2.
    roles = [role("worker", 3, 2, most=4, slices=(2, "node"))]
    stands = [(0, 0, 0, mask(0, 1)), (0, 1, 0, mask(2, 3)), (0, 2, 1, mask(0, 1))]
    runs = replace(gang("a", roles=roles, stands=stands), pattern="none")
    plan = by_steps(build(nodes_per_rack=2, gangs=[runs]))
    assert plan.nodes("a") == ["n01", "n01", "n02", "n02"]
    full = gang("b", 1, 6, stands=[(0, 0, 1, mask(2, 3, 4, 5, 6, 7))])
    assert by_steps(build(nodes_per_rack=2, gangs=[runs, full])).of("a").decision == "keep"


def test_a_held_size_does_not_grow() -> None:
    runs = replace(grows("a", 1, 4, 2, stands=[(0, 0, 0, 3)]), resize_after=100)
    instance = build(gangs=[runs])
    instance = replace(instance, policy=replace(instance.policy, now=99))
    assert by_steps(instance).of("a").decision == "keep"


def test_nobody_grows_where_the_policy_does_not_list_growth() -> None:
    instance = build(gangs=[grows("a", 1, 8, 1)], objectives=["admission", "span"])
    assert len(by_steps(instance).of("a").pods) == 1


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


def test_a_gang_that_gave_way_does_not_grow_back() -> None:
    # low shrinks on n01 for high; the room on n02 would make its dropped pod a move.
    low = grows(
        "low", 1, 2, 4, stands=[(0, 0, 0, 15), (0, 1, 0, 240)], preemptible=True, same="rack"
    )
    high = gang("high", roles=[role(gpus_per_pod=4, selector={"kind": "a"})], priority=5)
    nodes = [
        node("n1", switched(), labels={"kind": "a"}),
        node("n2", switched()),
    ]
    plan = by_search(build(nodes=nodes, gangs=[low, high]))
    assert plan.all() == {"high": "place", "low": "resize"}
    assert len(plan.of("low").pods) == 1


def test_roles_without_gpus_grow_after_all_gpus_and_before_span() -> None:
    # 8 pods of 2 cores fit on n1 and n2: the second worker of ``low`` comes first, 6 loaders get the rest.
    loaders = role("loader", 2, 0, most=9, requests={"cpu": 2000})
    workers = role("worker", 1, 4, most=2, requests={"cpu": 2000})
    high = gang("high", roles=[loaders], priority=10)
    low = gang("low", roles=[workers], pattern="none")
    nodes = [node(f"n{i}", switched(4), allocatable={"cpu": 8000}) for i in (1, 2)]
    plan = planned(build(nodes=nodes, gangs=[high, low]))
    assert (len(plan.of("low").pods), len(plan.of("high").pods)) == (2, 6)
    assert (plan.value("growth/0"), plan.value("growth-pods/10")) == (4, 4)
    names = [tier.name for tier in plan.solution.tiers]
    assert names.index("growth/10") < names.index("growth/0") < names.index("growth-pods/10")
    assert "growth-pods/0" not in names
    assert names.index("growth-pods/10") < names.index("span")


def test_a_launcher_of_a_fixed_number_states_no_growth_of_pods() -> None:
    roles = [role("launcher", 1, 0), role("worker", 1, 4, most=2)]
    plan = planned(build(gangs=[gang("a", roles=roles)]))
    assert "growth-pods/0" not in [tier.name for tier in plan.solution.tiers]


def test_a_running_role_without_gpus_grows_in_steps() -> None:
    loaders = role("loader", 1, 0, most=4, step=2, requests={"cpu": 2000})
    runs = gang("a", roles=[loaders], stands=[(0, 0, 0, 0)])
    plan = planned(build(nodes=[node("n1", switched(4), allocatable={"cpu": 8000})], gangs=[runs]))
    assert (plan.of("a").decision, len(plan.of("a").pods)) == ("resize", 3)  # 1 or 3
