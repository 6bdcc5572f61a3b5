"""The ways of planning large instances, forced on small ones: valid plans, honest bounds, no crash."""

from __future__ import annotations

import threading
from dataclasses import replace
from fractions import Fraction

import pytest
from bounding import dishonest, faults
from building import build, gang, node, role
from building_servers import nvl, switched
from comparing import DAY, wrong
from effort import examples, first_fast
from exhaustive import plan
from test_exhaustive_comparison import BUSY
from tiny import tiny
from tiny_busy import busy

from models.documents.policy import Objective, SolveLimits
from models.hardware import Nic
from models.instance.cluster import Cluster
from models.instance.instance import Instance
from models.instance.solution import Solution
from models.program import linear_program
from models.program.formulation import formulate
from models.program.linear_program import TooLarge
from models.program.slots.slot_program import SlotModel
from models.results.plan import compose, dumps
from models.tiers import TIERS, larger_is_better
from models.values.tier_values import tiers_of
from models.verify.check import check
from planner.search.solve import WHOLE_BELOW, solve

SIZES = (None, WHOLE_BELOW)


FAMILIES = tuple({row.name.partition("/")[0] for row in TIERS})


@pytest.mark.parametrize("name", BUSY)
def test_the_whole_program_finds_what_the_slots_left(name: str) -> None:
    def found(seed: int) -> list[str]:
        instance = busy(seed, more=BUSY[name])
        return faults(instance, solve(instance), met=FAMILIES)

    assert wrong(range(2600, 2600 + examples(4, 3)), found) == {}


@pytest.mark.parametrize("name", BUSY)
def test_slots_alone_promise_nothing_that_a_plan_beats(name: str) -> None:
    def found(seed: int) -> list[str]:
        instance = busy(seed, more=BUSY[name])
        return faults(instance, solve(instance, size=WHOLE_BELOW))

    assert wrong(range(2700, 2700 + examples(4, 3)), found) == {}


@pytest.mark.parametrize("seed", first_fast([702, 701, 700]))
def test_improving_and_bounding_promise_nothing_that_a_plan_beats(seed: int) -> None:
    instance = tiny(seed)
    assert faults(instance, solve(instance, size=WHOLE_BELOW)) == []


def _without_levels() -> Instance:
    instance = build(nodes_per_rack=3, gpus=4, gangs=[gang("a", 2, 3), gang("b", 3, 2)])
    flat = tuple(replace(node, domains=()) for node in instance.cluster.nodes)
    return replace(instance, cluster=Cluster("flat", (), flat))


def _tight() -> Instance:
    """Launchers that the servers' cpu and pods hardly hold, and a gang of cpu alone."""
    nodes = [
        node(f"n{i}", switched(4), allocatable={"cpu": 1000 * i, "pods": 3}) for i in range(1, 4)
    ]
    nodes.append(node("n4", None, allocatable={"cpu": 2000, "pods": 1}))
    mine = [role("w", 2, 2, requests={"cpu": 500}), role("l", 1, 0, requests={"cpu": 1000})]
    gangs = [gang(f"g{i}", roles=mine, same="rack" if i % 2 else None) for i in range(3)]
    gangs.append(gang("c", roles=[role("l", 3, 0, requests={"cpu": 700})], same="node"))
    return build(nodes=nodes, gangs=gangs)


def _slices_by_node() -> Instance:
    """A started gang: two missing pods belong beside its first one, two slices of three are free."""
    started = gang("a", 9, 1, slices=(3, "node"), stands=[(0, 0, 0, 1)])
    return build(nodes_per_rack=3, gpus=4, gangs=[started, gang("b", 1, 3), gang("c", 2, 2)])


def _unlike_trays() -> Instance:
    """NVLink domains whose servers differ: their claims are not all listed."""
    slow = replace(nvl(4, 3, name="slow tray"), link_MBps=20000)
    nodes = [node("n1", nvl(4, 3)), node("n2", slow), node("n3", nvl(4, 3), rack="r2")]
    share = "1/2"
    gangs = [
        gang("a", 2, 3, min_share=share),
        gang("b", 2, 4, min_share=share, pattern="none"),
        gang("c", 3, 1, min_share=share, stands=[(0, 0, 0, 1)]),
    ]
    return build(nodes=[*nodes, node("n4", switched(4))], nvlink="rack", gangs=gangs)


ODD = {
    "no gangs": build(nodes_per_rack=2),
    "no gangs on many servers": build(nodes_per_rack=20),
    "no GPUs": build(
        nodes=[node("n1", None)], gangs=[gang("a", roles=[role("l", 2, 0)]), gang("b", 1, 1)]
    ),
    "one server": build(gangs=[gang("a", 2, 3), gang("b", 3, 1, same="node")]),
    "no levels": _without_levels(),
    "tight launchers": _tight(),
    "slices by node": _slices_by_node(),
    "unlike trays": _unlike_trays(),
    "admission late": build(
        racks=2,
        nodes_per_rack=2,
        gpus=4,
        objectives=["preference", "stranded", "admission"],
        gangs=[gang("a", 2, 3), gang("b", 3, 2, prefer="rack"), gang("c", 1, 4, priority=5)],
    ),
    "waiting alone": build(
        nodes_per_rack=2,
        gpus=4,
        objectives=["waiting"],
        gangs=[gang("a", 2, 3, submitted=5), gang("b", 3, 2, submitted=9)],
    ),
    "elastic and incomplete": build(
        nodes_per_rack=2,
        gpus=4,
        gangs=[
            gang("e", roles=[role("w", 1, 2, most=4)], stands=[(0, 0, 0, 3), (0, 2, 1, 3)]),
            gang("f", 2, 1),
        ],
    ),
}


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("name", ODD)
def test_odd_instances_get_honest_plans(name: str, size: int | None) -> None:
    assert faults(ODD[name], solve(ODD[name], size=size)) == []


@pytest.mark.parametrize("size", SIZES)
def test_a_gang_without_a_pattern_promises_no_bandwidth_on_unlike_trays(size: int | None) -> None:
    # its minBandwidthShare binds all the same, so that claims are built for it, and here not all
    slow = replace(nvl(4, 3, name="slow tray"), link_MBps=20000)
    instance = build(
        nodes=[node("n1", nvl(4, 3)), node("n2", slow)],
        nvlink="rack",
        gangs=[gang("b", 2, 3, min_share="1/2", pattern="none")],
    )
    (tier,) = (t for t in solve(instance, size=size).tiers if t.name == "bandwidth")
    assert (tier.value, tier.bound) == (0, 0)


@pytest.mark.parametrize("size", SIZES)
def test_a_gang_on_a_server_of_unknown_nic_speed_is_no_reason_to_fail(size: int | None) -> None:
    # "r" runs on n1 and n2: its bandwidth needs the speed that nobody knows
    nodes = [
        node("n1", switched(4), nics=(Nic("eth0", None),), unschedulable=True),
        node("n2", switched(4)),
    ]
    running = gang("r", 2, 1, stands=[(0, 0, 0, 4), (0, 1, 1, 1)])
    whole = gang("a", 3, 1, stands=[(0, 0, 0, 3)])
    instance = build(nodes=nodes, gangs=[running, whole, gang("b", 1, 2)])
    solution = solve(instance, size=size)
    assert _verdict(instance, solution) == []


def _verdict(instance: Instance, solution: Solution) -> list[str]:
    """The checker's words alone: the exhaustive planner prices nothing that is not known."""
    document = compose(instance, solution, name="t", created_at=DAY, generator="gangplan test")
    return [violation.message for violation in check(document)]


@pytest.mark.parametrize("size", SIZES)
def test_tolerances_are_kept_and_the_first_bound_holds(size: int | None) -> None:
    # the first tier's bound speaks of all plans, so the best without tolerances may not beat it
    def found(seed: int) -> list[str]:
        plain = tiny(seed)
        loose = tuple(Objective(o.name, Fraction(1, 4)) for o in plain.policy.objectives)
        instance = replace(plain, policy=replace(plain.policy, objectives=loose))
        solution = solve(instance, size=size)
        return [*dishonest(instance, solution), *_intolerable(plain, solution)]

    assert wrong(range(800, 800 + examples(4, 3)), found) == {}


def _intolerable(plain: Instance, solution: Solution) -> list[str]:
    """Tiers that gave away more than a quarter, and a first bound that a plan beats."""
    lost = [
        f"{tier.name}: {tier.value} of {tier.best}"
        for tier in solution.tiers
        if 4 * abs(tier.value - tier.best) > abs(tier.best)
        and (tier.value < tier.best) == (tier.sense == "max")
    ]
    first, (name, most) = solution.tiers[0], plan(plain).tiers[0]
    sign = 1 if first.sense == "max" else -1
    if sign * first.bound < sign * most:
        lost.append(f"{name}: bound {first.bound}, and a plan has {most}")
    return lost


@pytest.mark.parametrize("workers", [1, 4])
@pytest.mark.parametrize("size", SIZES)
def test_the_same_input_gives_the_same_plan_twice(size: int | None, workers: int) -> None:
    instance = tiny(12, more=("wide",))
    limits = SolveLimits(workers=workers, budget=5, seed=3)
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    plans = [solve(instance, size=size) for _ in range(2)]
    first, second = (
        dumps(compose(instance, p, name="t", created_at=DAY, generator="gangplan test"))
        for p in plans
    )
    assert first == second


class StopAt:
    """Progress that wishes to stop at its n-th word."""

    def __init__(self, words: int, stop: threading.Event) -> None:
        self._left = words
        self._stop = stop

    def update(self, tier: str, value: int | None, bound: int | None) -> None:
        del tier, value, bound
        self._left -= 1
        if self._left <= 0:
            self._stop.set()


@pytest.mark.parametrize("words", [0, 2])
@pytest.mark.parametrize("size", SIZES)
def test_a_stopped_search_returns_an_honest_plan(size: int | None, words: int) -> None:
    instance = tiny(31, more=("wide",))
    stop = threading.Event()
    if words == 0:
        stop.set()
    solution = solve(instance, size=size, stop=stop, progress=StopAt(words, stop))
    assert faults(instance, solution) == []


@pytest.mark.parametrize(
    "limits", [SolveLimits(budget=1, workers=1), SolveLimits(time_limit_s=1, workers=1)]
)
@pytest.mark.parametrize("size", SIZES)
@pytest.mark.usefixtures("search_clock")
def test_the_smallest_limits_still_give_an_honest_plan(
    size: int | None, limits: SolveLimits
) -> None:
    instance = tiny(31, more=("wide",))
    instance = replace(instance, policy=replace(instance.policy, solve=limits))
    assert faults(instance, solve(instance, size=size)) == []


def test_a_program_that_would_be_too_large_is_not_built(monkeypatch: pytest.MonkeyPatch) -> None:
    # A variable for each gang, asked about once in CHECK_EVERY.
    gangs = [gang(f"g{i:02d}", 1, 1 + i % 8, submitted=i) for i in range(300)]
    instance = build(racks=2, nodes_per_rack=3, gangs=gangs)
    instance = replace(instance, policy=replace(instance.policy, solve=SolveLimits(budget=2)))
    whole = solve(instance, size=WHOLE_BELOW)
    monkeypatch.setattr(linear_program, "MAX_VARIABLES", 1)
    with pytest.raises(TooLarge):
        SlotModel(instance)
    short = solve(instance, size=WHOLE_BELOW)
    assert dishonest(instance, short) == []
    assert any(one.pods for one in short.decisions)
    worth = [
        larger_is_better(tiers_of(instance), [tier.value for tier in plan.tiers])
        for plan in (whole, short)
    ]
    assert worth[1] <= worth[0]


@pytest.mark.parametrize("size", [None, 0])
def test_a_gang_of_many_roles_hinders_nobody(size: int | None) -> None:
    # 9 nodes of 8 GPUs: 2 for `a`; of the 30 pods left, a node could carry millions of combinations.
    many = gang("many", roles=[role(f"r{number}") for number in range(30)])
    instance = build(
        racks=3, nodes_per_rack=3, gangs=[gang("a", 2, 8, same="rack", priority=1), many]
    )
    with pytest.raises(TooLarge):
        formulate(instance)
    plan = solve(instance, size=size)
    assert dishonest(instance, plan) == []
    assert [one.decision for one in plan.decisions] == ["place", "place"]
