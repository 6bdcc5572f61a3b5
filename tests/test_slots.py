"""Bounds from counting slots: no plan is better, and on like servers none could be tighter."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from random import Random

import pytest
from building import build, gang, mask, node, role
from building_servers import pairs4, switched
from comparing import wrong
from effort import examples
from exhaustive import plan
from tiny import tiny
from tiny_busy import busy
from tiny_geometries import best, dynamic
from tiny_shares import sharing
from tiny_shares import ways as ways_of_sharing
from tiny_speeds import busy_by_speed, tiny_by_speed

from models.documents.cluster import GpuSharing
from models.instance.gang import Gang, Role
from models.instance.instance import Instance
from models.instance.reshaping import with_reshapable
from models.program.base_state import base_decisions
from models.program.linear_program import UNBOUNDED
from models.program.slots import slot_parts
from models.program.slots.slot_program import SlotModel
from models.values.tier_values import tiers_of
from planner.search.bound import tier_search
from planner.search.bound.slot_bounds import SlotSearch
from planner.search.bound.slot_problem import SlotProblem
from planner.search.bound.tier_search import TierSearch
from planner.search.budget import Budget, NullProgress
from planner.search.engines import mathopt, portfolio
from planner.search.engines.highs import Branching, solve_by_branching
from planner.search.engines.interface import Goal, Status
from planner.search.engines.relaxation import Relaxation
from planner.search.ledger import Ledger
from planner.search.start.greedy import greedy
from planner.search.start.homes import settle_in

SEEDS = examples(400, 40)
DRAWS = {"tiny": tiny, "busy": busy, "tiny by speed": tiny_by_speed, "busy by speed": busy_by_speed}


def beaten(
    instance: Instance,
    known: Iterable[tuple[str, int]] | None = None,
    *,
    apart: bool = False,
    alone: bool = False,
) -> list[str]:
    """Tiers whose bound is beaten by the best plan of all, each bound beside that plan's earlier values.

    ``known``: its tiers.
    """
    model = SlotModel(instance)
    if not model.complete:
        return []
    if apart:
        model.tell_apart(range(len(instance.gangs)) if alone else ())
    best = dict(plan(instance).tiers if known is None else known)
    budget = Budget(replace(instance.policy.solve, budget=10_000))
    relaxation, kept, found = Relaxation(model.program, budget), [], []
    for tier in tiers_of(instance):
        expression = model.expression(tier)
        if tier.tolerance:
            break  # later tiers may give up some of it
        if tier.name not in best:
            continue
        if expression is None:
            continue
        value, upward = best[tier.name], tier.sense == "max"
        if expression.terms:
            goal = Goal(expression, upward, tuple(kept))
            bound = relaxation.bound(goal, seconds=10).bound
            whole = solve_by_branching(model.program, goal, budget, nodes=1000, seconds=10)
            if whole.status is Status.INFEASIBLE:
                found.append(f"{tier.name}: no assignment")
            bound = min(bound, whole.bound) if upward else max(bound, whole.bound)
            kept.append((expression, *((value, UNBOUNDED) if upward else (-UNBOUNDED, value))))
        else:
            bound = expression.constant
        if (bound < value) if upward else (bound > value):
            found.append(f"{tier.name}: bound {bound}, the best plan has {value}")
    return found


@pytest.mark.parametrize("kind", DRAWS)
def test_no_plan_of_a_random_instance_beats_a_bound(kind: str) -> None:
    def found(seed: int) -> list[str]:
        r = Random(f"slots/{seed}")
        names = ("priorities", "preemptible", "movable", "elastic", "slices", "required", "queues")
        rules = ("spares", "selectors", "min_share", "levels")
        instance = DRAWS[kind](
            7000 + seed, more=[name for name in (*names, *rules) if r.random() < 0.3]
        )
        if seed % 3 == 0:
            instance = even(instance, r)
        apart, alone = seed % 2 == 0, seed % 4 == 0
        return beaten(instance, apart=apart, alone=alone)

    assert wrong(range(SEEDS), found) == {}


@pytest.mark.parametrize("runs", [False, True])
@pytest.mark.parametrize("ways", ["listed", "alike", "counted"])
def test_no_plan_beats_a_bound_where_gpus_are_partitioned_or_shared(
    runs: bool, ways: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``ways``: the sets of parts that a GPU can have are listed, where some may count as smaller ones; or
    memory, cores and pods are counted.
    """
    if ways == "alike":
        parts_count_as_smaller_ones(monkeypatch)
    elif ways == "counted":
        monkeypatch.setattr(slot_parts.Sharing, "fillings", lambda _, room: None)

    def found(seed: int) -> list[str]:
        partitioned = dynamic(seed, runs=runs, beside=seed % 2 == 0)
        shared = sharing(seed, runs=runs, several=seed % 5 == 0)
        plans = [(partitioned, best(partitioned))]
        plans += [] if shared is None else [(shared, best(shared, ways_of_sharing))]
        return [
            one
            for instance, known in plans
            if known is not None
            for one in beaten(instance, known, apart=seed % 3 > 0)
        ]

    assert wrong(range(examples(200, 15)), found) == {}


def parts_count_as_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """As where GPUs have many sets of parts."""
    monkeypatch.setattr(slot_parts, "MOST_FILLINGS", 2)
    monkeypatch.setattr(slot_parts, "FEW_FILLINGS", 1)
    monkeypatch.setattr(slot_parts, "MOST_LOST", 1000)


def test_gpus_get_the_parts_that_counted_as_smaller_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of 0.7, 0.29, 0.28 and 0.27 two GPUs have the first and the second: so they do in the plan."""
    part = {name: f"share.gangplan.dev/0.{name}" for name in ("7", "29", "28", "27")}
    none = tuple((resource, 0) for resource in sorted(part.values()))
    shared = replace(node("n1", switched(4)), allocatable=none, sharing=GpuSharing(None, 9))
    names = ["7", "7", "29", "29", "27", "28", "28"]
    asks = [gang(f"g{k}", 1, 0, requests={part[name]: 1}) for k, name in enumerate(names)]
    instance = with_reshapable(build(nodes=[shared], gangs=asks))
    parts_count_as_smaller_ones(monkeypatch)
    model = SlotModel(instance)
    parts = model.parts
    assert parts.alike == {part["29"]: part["27"], part["28"]: part["27"], part["7"]: part["27"]}
    (group,) = parts.groups
    (three,) = (v for v, (_, counts) in group.fillings.items() if counts == (3,))
    values = [0] * len(model.program.lower)
    for mode in model.modes:
        values[mode.variable] = int(mode.option.effect.admitted)
    values[three] = 3
    (found,) = ([counts for _, counts in fillings] for _, fillings in parts.fillings(values))
    assert group.one.resources == tuple(part[name] for name in ("7", "29", "28", "27"))
    # the largest first, as far as the 0.19 that 3 of 0.27 leave suffice
    assert found == [(0, 2, 1, 0), (0, 0, 1, 2), (0, 0, 0, 3)]


def test_nodes_share_gpus_otherwise_than_a_solution_where_cores_keep_many_out() -> None:
    """Of two servers of two GPUs one has few cores, and there the solution has the parts that need many."""
    large, half = "share.gangplan.dev/0.7", "share.gangplan.dev/0.5"
    nodes = [
        replace(
            node(f"n{k}", switched(2)),
            allocatable=(("cpu", cores), (half, 0), (large, 0)),
            sharing=GpuSharing(None, 9),
        )
        for k, cores in enumerate((5000, 90000))
    ]
    asks = [gang(f"g{k}", 1, 0, requests={large: 1, "cpu": 10000}) for k in range(2)]
    asks += [gang(f"h{k}", 1, 0, requests={half: 1, "cpu": 1000}) for k in range(4)]
    instance = with_reshapable(build(nodes=nodes, gangs=asks))
    model = SlotModel(instance)
    values = [0] * len(model.program.lower)
    for mode in model.modes:
        values[mode.variable] = int(mode.option.effect.admitted)
    (group,) = model.parts.groups
    assert group.one.resources == (large, half)
    for variable, (_, counts) in group.fillings.items():
        values[variable] = 2 if counts in ((1, 0), (0, 2)) else 0
    plan, _ = settle_in(model, values, Budget(replace(instance.policy.solve, budget=100)))
    assert [[pod.node for pod in one.pods] for one in plan] == [[1]] * 2 + [[0]] * 4


def test_a_bound_counts_how_many_parts_there_are() -> None:
    """Of two GPUs each is given whole, shared by two, or has two large instances."""
    for more, part in (
        ({"sharing": GpuSharing(None, 100)}, "share.gangplan.dev/0.5"),
        ({"dynamic_mig": "H100-80"}, "nvidia.com/mig-3g.40gb"),
    ):
        node_ = replace(node("n1", switched(2)), allocatable=((part, 0),), **more)
        asks = [gang(f"g{k}", 1, 0, requests={part: 1}) for k in range(6)]
        instance = with_reshapable(build(nodes=[node_], gangs=[*asks, gang("w", 1, 1)]))
        model = SlotModel(instance)
        (tier,) = (t for t in tiers_of(instance) if t.name == "admission/0")
        expression = model.expression(tier)
        assert expression is not None
        budget = Budget(replace(instance.policy.solve, budget=100))
        bound = Relaxation(model.program, budget).bound(Goal(expression, True), seconds=10).bound
        assert bound == 4, part


def test_a_bound_counts_gpus_with_parts_as_stranded() -> None:
    """Four of eight GPUs have two parts each, and no request of the mix can use them."""
    part = "share.gangplan.dev/0.5"
    shared = replace(node("n1", switched(8)), allocatable=((part, 0),), sharing=GpuSharing(None, 2))
    asks = [gang(f"g{k}", 1, 0, requests={part: 1}) for k in range(8)]
    instance = with_reshapable(build(nodes=[shared], gangs=asks))
    assert bounds(instance)["stranded"] == (4000, 4000)


def test_a_gang_uses_nodes_enough_for_the_parts_that_their_gpus_have() -> None:
    """Two servers of 2 GPUs: 4 of 3g on one of them, if the others leave a GPU to two of these.

    4 of 3g, 4 of 2g and 8 of 1g have no slice to spare, so that each GPU has one of 3g. So it is with parts
    of 0.6, 0.3 and 0.1, where each GPU has one of the first.
    """
    mig = {"dynamic_mig": "H100-80"}, ["nvidia.com/mig-" + one for one in ("3g.40gb", "2g.20gb")]
    shares = (
        {"sharing": GpuSharing(None, 9)},
        ["share.gangplan.dev/" + one for one in ("0.6", "0.3")],
    )
    small = "nvidia.com/mig-1g.10gb", "share.gangplan.dev/0.1"
    for (more, (large, middle)), least, each in zip((mig, shares), small, (8, 4), strict=True):
        none = ((large, 0), (middle, 0), (least, 0))
        nodes = [node(f"n{k}", switched(2)) for k in range(2)]
        nodes = [replace(one, allocatable=tuple(sorted(none)), **more) for one in nodes]
        wide = gang("wide", 4, 0, requests={large: 1})
        others = [gang(f"m{k}", 1, 0, requests={middle: 1}) for k in range(4)]
        others += [gang(f"s{k}", 1, 0, requests={least: 1}) for k in range(each)]
        for gangs, nodes_more in (([wide, *others], 1), ([wide], 0 if more is mig[0] else 1)):
            assert fewest(with_reshapable(build(nodes=nodes, gangs=gangs))) == nodes_more


def fewest(instance: Instance) -> int:
    """The bound of ``span`` where everybody starts."""
    model = SlotModel(instance)
    model.tell_apart()
    of = {tier.name: model.expression(tier) for tier in tiers_of(instance)}
    runs, span, every = of["admission/0"], of["span"], len(instance.gangs)
    assert runs is not None
    assert span is not None
    goal = Goal(span, maximize=False, keep=((runs, every, every),))
    budget = Budget(instance.policy.solve)
    found = solve_by_branching(model.program, goal, budget, nodes=1000, seconds=10)
    assert found.status is Status.OPTIMAL
    return found.bound


def test_gpus_in_parts_take_the_slots_of_whole_servers() -> None:
    """Of two servers each has a GPU with two instances, or a pod of eight GPUs."""
    parts = {"H100": "nvidia.com/mig-3g.40gb", "H200": "nvidia.com/mig-3g.71gb"}
    none = tuple((part, 0) for part in parts.values())
    models = (replace(switched(8), name=name, gpu=name) for name in parts)
    boards = ("H100-80", "H200")
    nodes = [
        replace(node(f"n{k}", model), allocatable=none, dynamic_mig=board)
        for k, (model, board) in enumerate(zip(models, boards, strict=True))
    ]
    asks = [gang(f"{name}-{k}", 1, 0, requests={parts[name]: 1}) for name in parts for k in (0, 1)]
    instance = with_reshapable(build(nodes=nodes, gangs=[*asks, gang("whole", 1, 8)]))
    assert most(instance, "admission/0") == 8 + 2


def test_what_is_stranded_is_bounded_also_where_servers_have_several_gpu_models() -> None:
    """No request has servers of two models; 4 GPUs of the second one have two parts each."""
    slow = replace(switched(8), name="slow", gpu="slow")
    part = "share.gangplan.dev/0.5"
    nodes = [node("n1", switched(8)), node("n2", slow)]
    nodes = [replace(one, allocatable=((part, 0),)) for one in nodes]
    instance = build(nodes=nodes, gangs=[gang("g", 1, 1)], mix={16: 1000})
    assert bounds(instance)["stranded"] == (15000, 15000)
    shared = replace(nodes[1], sharing=GpuSharing(None, 2))
    asks = [gang(f"g{k}", 1, 0, requests={part: 1}) for k in range(8)]
    instance = build(nodes=[nodes[0], shared], gangs=asks, mix={4: 1000})
    assert bounds(with_reshapable(instance))["stranded"] == (4000, 4000)


@pytest.mark.parametrize("kind", DRAWS)
def test_no_plan_beats_a_bound_that_a_search_of_the_slots_ends_with(kind: str) -> None:
    # each pass starts with what the passes before it narrowed
    def found(seed: int) -> list[str]:
        r = Random(f"search of slots/{seed}")
        names = ("priorities", "preemptible", "movable", "elastic", "slices", "required")
        instance = DRAWS[kind](9000 + seed, more=[name for name in names if r.random() < 0.3])
        if any(tier.tolerance for tier in tiers_of(instance)):
            return []
        return beyond(instance, dict(plan(instance).tiers))

    assert wrong(range(SEEDS // 4), found) == {}


@pytest.mark.parametrize("runs", [False, True])
def test_no_plan_in_parts_beats_a_bound_that_a_search_of_the_slots_ends_with(runs: bool) -> None:
    def found(seed: int) -> list[str]:
        partitioned = dynamic(20_000 + seed, runs=runs, beside=seed % 2 == 0)
        shared = sharing(20_000 + seed, runs=runs)
        ways = [(partitioned, best(partitioned))]
        ways += [] if shared is None else [(shared, best(shared, ways_of_sharing))]
        return [
            one
            for instance, known in ways
            if known is not None
            for one in beyond(instance, dict(known))
        ]

    assert wrong(range(examples(100, 10)), found) == {}


def beyond(instance: Instance, best: Mapping[str, int]) -> list[str]:
    """Tiers whose bound after a search of the slots is beaten by the best plan."""
    budget = Budget(replace(instance.policy.solve, budget=10_000))
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    slots = SlotSearch(ledger, budget, frozenset(), tuple)
    slots.build()
    slots.aim()
    slots.run(NullProgress())
    found = []
    for tier, one in zip(ledger.tiers, ledger.results(), strict=True):
        if tier.name not in best:
            continue
        value = best[tier.name]
        if (one.bound < value) if tier.sense == "max" else (one.bound > value):
            found.append(tier.name)
        if one.value != value:
            break  # later bounds are those of plans that keep less
    return found


def even(instance: Instance, r: Random) -> Instance:
    """The instance with waiting gangs of single GPUs, most of them spread evenly over some domains."""
    return replace(instance, gangs=tuple(_even(one, instance, r) for one in instance.gangs))


def _even(one: Gang, instance: Instance, r: Random) -> Gang:
    innermost = instance.cluster.node_level - 1
    if one.running or one.pods or innermost < 0:
        return one
    own = (_single(spec, r.choice((2, 4, 5))) if spec.gpus else spec for spec in one.roles)
    level = innermost if r.random() < 0.7 else r.randrange(innermost + 1)
    return replace(one, roles=tuple(own), balance=level if r.random() < 0.8 else None)


def _single(spec: Role, pods: int) -> Role:
    """The role with so many pods of one GPU each, and without slices."""
    one = replace(spec, min=pods, max=pods, gpus=1, elastic=False, step=1)
    return replace(one, slice_size=None, slice_level=None, outer_slices=())


def test_what_a_tier_narrows_does_not_hold_for_tiers_before_it() -> None:
    # the tiers are solved twice, and bounded once more: each time with the ranges of every plan
    for seed in range(20):
        instance = busy_by_speed(7000 + seed, more=["priorities", "preemptible", "movable"])
        model = SlotModel(instance)
        ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
        problem = SlotProblem(model, Budget(instance.policy.solve))
        count = len(model.program.lower)
        before = list(model.program.lower), list(model.program.upper)
        last = len(ledger.tiers)
        TierSearch(problem, ledger, Budget(instance.policy.solve), NullProgress(), last).run()
        assert (model.program.lower[:count], model.program.upper[:count]) == before, seed


def test_what_is_begun_ahead_changes_no_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    # each tier in a process of its own, as on large clusters; some are begun and dropped again
    monkeypatch.setattr(mathopt, "LARGEST_IN_THREAD", 0)
    for module in (portfolio, tier_search):
        monkeypatch.setattr(module, "SMALL", 0)
    dropped = []
    abandon = Branching.abandon
    monkeypatch.setattr(Branching, "abandon", lambda own: (dropped.append(own), abandon(own)))
    for seed in range(examples(12, 4)):
        instance = busy_by_speed(7100 + seed, more=["priorities", "preemptible", "movable"])
        assert searched(instance, ahead=True) == searched(instance, ahead=False), seed
    assert dropped


def searched(instance: Instance, *, ahead: bool) -> list[tuple[int, int]]:
    """(value, bound) of every tier after one search of the slots, from nothing."""
    ledger = Ledger(instance, base_decisions(instance))
    budget, progress = Budget(instance.policy.solve), NullProgress()
    problem = SlotProblem(SlotModel(instance), budget)
    TierSearch(problem, ledger, budget, progress, len(ledger.tiers), share=0.4, ahead=ahead).run()
    return [(result.value, result.bound) for result in ledger.results()]


def bounds(instance: Instance) -> dict[str, tuple[int, int]]:
    """(value, bound) of every tier after the greedy start."""
    budget = Budget(instance.policy.solve)
    ledger = Ledger(instance, greedy(instance, base_decisions(instance)))
    slots = SlotSearch(ledger, budget, frozenset(), tuple)
    slots.build()
    slots.renew()
    return {result.name: (result.value, result.bound) for result in ledger.results()}


def test_gpus_of_unknown_index_are_worth_what_all_their_neighbours_leave() -> None:
    # the second pod is on GPU 1, next to the first: a gang that has a pod missing holds the other pair
    blind = gang("blind", 2, 1, stands=[(0, 0, 0, mask(0)), (0, 1, 0, None)])
    part = gang("part", 3, 1, stands=[(0, 0, 0, mask(2)), (0, 1, 0, mask(3))])
    instance = build(nodes=[node("n", pairs4())], gangs=[blind, part])
    assert beaten(instance) == []


def test_pieces_of_servers_are_no_room_for_a_whole_one() -> None:
    # two servers with 4 free GPUs each: 8 in all, and no slot of 8
    stays = [gang(f"s{i}", 1, 4, stands=[(0, 0, i, mask(0, 1, 2, 3))]) for i in range(2)]
    instance = build(
        nodes=[node(f"n{i}", switched(8)) for i in range(2)], gangs=[*stays, gang("g", 1, 8)]
    )
    assert bounds(instance)["admission/0"] == (8, 8)


def test_a_gpu_has_one_geometry_also_where_there_are_others_that_may_have_none() -> None:
    """Two large instances, seven small ones, or one and four: not nine on one GPU beside a plain server."""
    large, small = "nvidia.com/mig-3g.40gb", "nvidia.com/mig-1g.10gb"
    none = ((small, 0), (large, 0))
    own = replace(node("n1", switched(1)), allocatable=none, dynamic_mig="H100-80")
    nodes = [own, replace(node("n2", switched(8)), allocatable=none)]
    gangs = [gang(f"l{k}", 1, 0, requests={large: 1}) for k in range(2)]
    gangs += [gang(f"s{k}", 1, 0, requests={small: 1}) for k in range(7)]
    assert most(with_reshapable(build(nodes=nodes, gangs=gangs)), "admission/0") == 7


def test_a_gang_that_may_stop_gives_its_slot_only_when_it_stops() -> None:
    # one GPU of each server is held by a gang that may be stopped; each that stops gives one slot of 8
    low = [gang(f"l{i}", 1, 1, stands=[(0, 0, i, mask(0))], preemptible=True) for i in range(2)]
    nodes = [node(f"n{i}", switched(8)) for i in range(2)]
    instance = build(nodes=nodes, gangs=[*low, gang("g", 1, 8, priority=1)])
    # greedy stops nobody: 0 of 8 start; the bound knows that they could, and that one stop is enough
    found = bounds(instance)
    assert found["admission/1"] == (0, 8)


def test_racks_have_room_for_so_many_whole_gangs() -> None:
    # racks of 3 servers: one gang of 2 servers each, and a second one is spread
    nodes = [node(f"n{i}", switched(8), "b1", f"r{i // 3}") for i in range(6)]
    gangs = [gang(f"g{i}", 2, 8, prefer="rack") for i in range(3)]
    assert bounds(build(nodes=nodes, gangs=gangs))["preference"] == (32, 32)


def most(instance: Instance, name: str) -> int:
    """The value of the first tier of that name in the best assignment."""
    model = SlotModel(instance)
    tier = next(tier for tier in tiers_of(instance) if tier.name == name)
    expression = model.expression(tier)
    assert expression is not None, name
    if not expression.terms:
        return expression.constant
    goal = Goal(expression, tier.sense == "max")
    budget = Budget(instance.policy.solve)
    found = solve_by_branching(model.program, goal, budget, nodes=1000, seconds=10)
    assert found.status is Status.OPTIMAL, name
    return expression.value(found.values)


def test_spare_nodes_are_no_room() -> None:
    # blocks of 2 and 1 servers, of each of which one stays idle: one gang of a server starts, not three
    nodes = [node(f"n{i}", switched(8), f"b{i // 2}", f"r{i}") for i in range(3)]
    gangs = [*(gang(f"g{i}", 1, 8) for i in range(3)), gang("pair", 2, 8)]
    instance = build(nodes=nodes, gangs=gangs)
    assert most(instance, "admission/0") == 24
    spares = replace(instance.policy, spares=(("block", 1),))
    assert most(replace(instance, policy=spares), "admission/0") == 8


def test_one_idle_node_is_a_spare_of_nested_domains() -> None:
    # one of the three servers stays idle for its rack, and so for its block
    nodes = [node(f"n{i}", switched(8), "b1", "r1") for i in range(3)]
    instance = build(nodes=nodes, gangs=[gang("pair", 2, 8), gang("three", 3, 8)])
    spares = replace(instance.policy, spares=(("block", 1), ("rack", 1)))
    assert most(replace(instance, policy=spares), "admission/0") == 16


@pytest.mark.parametrize(("sizes", "admitted"), [((3, 1), 0), ((2, 2), 32), ((2, 1, 1), 32)])
def test_equal_shares_need_racks_that_have_room_for_them(
    sizes: tuple[int, ...], admitted: int
) -> None:
    # 4 pods: 2 + 2, or 2 + 1 + 1; not 3 + 1
    racks = [f"r{rack}" for rack, size in enumerate(sizes) for _ in range(size)]
    nodes = [node(f"n{i}", switched(8), "b1", rack) for i, rack in enumerate(racks)]
    wide = replace(gang("wide", 4, 8), balance=1)
    assert most(build(nodes=nodes, gangs=[wide]), "admission/0") == admitted


def test_equal_shares_are_inside_of_the_domain_of_the_gang() -> None:
    # blocks with racks of 3 + 1 and of 2 + 2 servers: in the first the gang would be uneven
    sizes = ((0, 3), (0, 1), (1, 2), (1, 2))
    places = [(b, f"r{at}") for at, (b, size) in enumerate(sizes) for _ in range(size)]
    nodes = [node(f"n{i}", switched(8), f"b{b}", rack) for i, (b, rack) in enumerate(places)]
    gangs = [replace(gang(f"g{i}", 4, 8, same="block"), balance=1) for i in range(2)]
    assert most(build(nodes=nodes, gangs=gangs), "admission/0") == 32


def test_gangs_held_to_some_nodes_of_racks_have_the_slots_of_these() -> None:
    # in each block one server of two is fit for the gangs, which are whole in one: none has two
    nodes = [
        node(f"n{i}", switched(8), f"b{i // 2}", f"r{i // 2}", labels={"fit": str(i % 2)})
        for i in range(4)
    ]
    fit = role("worker", 2, 8, selector={"fit": "1"})
    others = [gang(f"o{i}", 1, 8) for i in range(2)]
    for same, admitted in (("block", 16), (None, 32)):
        gangs = [gang("fit", roles=[fit], same=same), *others]
        assert most(build(nodes=nodes, gangs=gangs), "admission/0") == admitted


def test_no_gang_starts_below_its_least_bandwidth() -> None:
    # two servers with 4 free GPUs each: 8 pods are whole on none, and two halves of a server have half of it
    stays = [gang(f"s{i}", 1, 4, stands=[(0, 0, i, mask(0, 1, 2, 3))]) for i in range(2)]
    nodes = [node(f"n{i}", switched(8)) for i in range(2)]
    for share, admitted in (("1", 8), ("1/100", 16)):
        gangs = [*stays, gang("torn", 8, 1, min_share=share)]
        assert most(build(nodes=nodes, gangs=gangs), "admission/0") == admitted
