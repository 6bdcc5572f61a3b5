"""Which moves belong together, and what a plan is worth."""

from __future__ import annotations

from dataclasses import replace

from building import build, gang, mask, node, role
from building_servers import switched, v100
from moves_made import decide, small

from models.instance.solution import MoveSet
from models.values.relocation import move_set, move_sets, plan_worth


def test_gangs_that_leave_room_to_one_newcomer_are_one_set() -> None:
    # big takes n01 and n02 whole; a leaves n01 and b leaves n02 for n03; c leaves n04, unneeded, for n05.
    instance = build(
        nodes_per_rack=5,
        gangs=[
            small("a", 0, mask(0)),
            small("b", 1, mask(0)),
            small("c", 3, mask(0)),
            gang("big", 2, 8),
        ],
    )
    decisions = decide(
        instance,
        a=[(2, mask(0))],
        b=[(2, mask(1))],
        c=[(4, mask(0))],
        big=[(0, mask(*range(8))), (1, mask(*range(8)))],
    )
    names = [[instance.gangs[g].name for g in gangs] for gangs in move_sets(instance, decisions)]
    assert names == [["a", "b"], ["c"]]


def test_a_chain_of_moves_is_one_set() -> None:
    # b (4 GPUs) leaves n02 for n03; a (8 GPUs) needs it to come to n02 whole; n01 is then free.
    instance = build(
        nodes_per_rack=3,
        gangs=[small("a", 0, mask(*range(8))), small("b", 1, mask(0, 1, 2, 3))],
    )
    decisions = decide(instance, a=[(1, mask(*range(8)))], b=[(2, mask(0, 1, 2, 3))])
    assert move_sets(instance, decisions) == ((0, 1),)


def test_room_that_nobody_needed_links_nobody() -> None:
    # a leaves 2 of 8 GPUs, new takes 4: beside a there would still have been 6. Nor does b need room.
    instance = build(
        nodes_per_rack=4,
        gangs=[small("a", 0, mask(0, 1)), small("b", 1, mask(0)), gang("new", 1, 4)],
    )
    decisions = decide(instance, a=[(2, mask(0, 1))], b=[(0, mask(7))], new=[(0, mask(0, 1, 2, 3))])
    assert move_sets(instance, decisions) == ((0,), (1,))


def test_cpu_that_a_newcomer_needs_links_as_gpus_do() -> None:
    # n01 has 10 cpu: a takes 6 there, new 8. GPUs there are enough for both.
    hungry = {"cpu": 6}
    instance = build(
        nodes=[
            node("n01", switched(8), allocatable={"cpu": 10}),
            node("n02", switched(8)),
            node("n03", switched(8)),
        ],
        gangs=[
            gang("a", 1, 1, requests=hungry, stands=[(0, 0, 0, mask(0))], movable=True),
            small("b", 1, mask(0)),
            gang("new", roles=[role("w", 1, 1, requests={"cpu": 8})]),
        ],
    )
    here = decide(instance, a=[(2, mask(0))], b=[(2, mask(1))], new=[(0, mask(5))])
    assert move_sets(instance, here) == ((0,), (1,))  # new is in a's set, but no move
    # b comes to n01 as well, without asking for cpu: not linked. With cpu it is.
    b = gang("b", 1, 1, requests={"cpu": 1}, stands=[(0, 0, 1, mask(0))], movable=True)
    linked = replace(instance, gangs=(instance.gangs[0], b, instance.gangs[2]))
    there = decide(linked, a=[(2, mask(0))], b=[(0, mask(6))], new=[(0, mask(5))])
    assert move_sets(linked, there) == ((0, 1),)
    there = decide(instance, a=[(2, mask(0))], b=[(0, mask(6))], new=[(0, mask(5))])
    assert move_sets(instance, there) == ((0,), (1,))


def test_one_gpu_that_another_takes_links_only_where_gpus_differ() -> None:
    # a goes from GPU 0 to 7 in its node, new takes GPU 0; four of the eight stay free.
    for model, sets in ((v100(), ((0, 1),)), (switched(8), ((0,), (1,)))):
        instance = build(
            nodes=[node("n01", model), node("n02", model)],
            gangs=[small("a", 0, mask(0)), small("b", 1, mask(0))],
        )
        decisions = decide(instance, a=[(0, mask(7))], b=[(0, mask(0))])
        assert move_sets(instance, decisions) == sets


def test_gangs_that_free_a_node_or_a_rack_together_are_one_set() -> None:
    # a and b leave n01: it is whole only without both. c leaves n03, d leaves n04: rack r2 is free then.
    instance = build(
        racks=3,
        nodes_per_rack=2,
        gangs=[
            small("a", 0, mask(0)),
            small("b", 0, mask(1)),
            small("c", 2, mask(0)),
            small("d", 3, mask(0)),
        ],
    )
    moved = {"a": [(4, mask(0))], "b": [(5, mask(1))], "c": [(4, mask(2))], "d": [(5, mask(3))]}
    assert move_sets(instance, decide(instance, **moved)) == ((0, 1), (2, 3))
    # d stays: n04 is not free, c moves for itself
    del moved["d"]
    assert move_sets(instance, decide(instance, **moved)) == ((0, 1), (2,))


def test_a_plan_without_moves_has_no_sets() -> None:
    instance = build(gangs=[small("a", 0, mask(0)), gang("new", 1, 1)])
    assert move_sets(instance, decide(instance, new=[(0, mask(1))])) == ()
    stopped = replace(instance, gangs=(replace(instance.gangs[0], preemptible=True),))
    assert move_sets(stopped, decide(stopped, a=None)) == ()


def test_worth_counts_gpus_bandwidth_whole_nodes_and_whole_racks() -> None:
    # Racks r1 = n01, n02 and r2 = n03, n04. pair: 2 GPUs behind a switch, its best: 1000 x 2.
    # Weight 5 does not count here. lone: one GPU, no bandwidth. still: pattern none. late waits.
    instance = build(
        racks=2,
        nodes_per_rack=2,
        gangs=[
            gang("pair", 1, 2, weight=5),
            gang("lone", 1, 1),
            gang("still", 1, 2, pattern="none"),
            gang("late", 1, 8),
        ],
    )
    plan = decide(instance, pair=[(0, mask(0, 1))], lone=[(0, mask(2))], still=[(0, mask(3, 4))])
    found = plan_worth(instance, plan)
    names = sorted(instance.gangs[i].name for i in found.admitted)
    assert names == ["lone", "pair", "still"]
    assert (found.gpus, found.bandwidth) == (5, 2000)
    # n02, n03 and n04 are free: three nodes of 8, and rack r2
    assert (found.whole_nodes, found.whole_gpus, found.whole_domains) == (3, 24, 1)


def test_nodes_out_of_use_and_small_nodes_are_not_whole() -> None:
    # n01 cordoned, n02 a sick GPU, n03 is half a server of the same GPU model, n04 whole; n05 no GPUs.
    instance = build(
        nodes=[
            node("n01", switched(8), unschedulable=True),
            node("n02", switched(8), unhealthy=[3]),
            node("n03", switched(4)),
            node("n04", switched(8)),
            node("n05", None),
        ],
        gangs=[gang("late", 1, 8)],
    )
    found = plan_worth(instance, decide(instance))
    assert (found.whole_nodes, found.whole_gpus, found.whole_domains) == (1, 8, 0)


def test_gain_is_what_each_gpu_moved_bought_rounded_down() -> None:
    # a (3 GPUs) leaves n01 to big (8): 8 GPUs and 8 x 1000 permille. n02 was free and is not: -8.
    # (8 + 8 - 8) / 3 = 2.666...
    instance = build(nodes_per_rack=2, gangs=[small("a", 0, mask(0, 1, 2)), gang("big", 1, 8)])
    plan = decide(instance, a=[(1, mask(0, 1, 2))], big=[(0, mask(*range(8)))])
    found = move_set(
        instance, [0], plan_worth(instance, plan), plan_worth(instance, decide(instance))
    )
    assert found == MoveSet((0,), 3, (1,), 8, 8000, -1, 0, 2666)
    # The other way round it is a loss: -2.666... rounds down.
    lost = move_set(
        instance, [0], plan_worth(instance, decide(instance)), plan_worth(instance, plan)
    )
    assert lost == MoveSet((0,), 3, (), -8, -8000, 1, 0, -2667)


def test_a_gang_without_gpus_counts_as_one_gpu_moved_and_as_none_admitted() -> None:
    bare = gang("bare", 1, 0, stands=[(0, 0, 0, 0)], movable=True)
    instance = build(nodes_per_rack=2, gangs=[bare])
    nothing = plan_worth(instance, decide(instance))
    assert move_set(instance, [0], nothing, nothing) == MoveSet((0,), 0, (), 0, 0, 0, 0, 0)
    assert move_set(instance, [0], replace(nothing, gpus=3), nothing).gain == 3000


def test_under_goodput_a_gain_counts_effective_gpus() -> None:
    # a (1 GPU) leaves n01 to big: two pods of 8 GPUs on n01 and n02, each in a rack of its own. Inside
    # 370,800 MB/s, through the NICs 50,000, behind an oversubscription of 4 a quarter: share 250 of the best.
    gangs = [small("a", 0, mask(0)), gang("big", 2, 8)]
    instance = build(
        racks=3, gangs=gangs, oversubscription=(1, 4), objectives=["goodput", "disruption"]
    )
    whole = mask(*range(8))
    plan = decide(instance, a=[(2, mask(0))], big=[(0, whole), (1, whole)])
    worth, without = plan_worth(instance, plan), plan_worth(instance, decide(instance))
    # step 0.75 + 0.25 / 0.25: speed 571, in steps of 20: 560. a runs at full speed before and after.
    assert (worth.gpus, worth.effective) == (17, 1000 + 16 * 560)
    found = move_set(instance, [0], worth, without)
    # n02 and n03 were whole: 8960 + 16 x 250 of bandwidth - 16 whole GPUs, for 1 GPU moved
    assert found == MoveSet((0,), 1, (1,), 16, 4000, -2, 0, -3040, effective=8960)


def test_under_admission_no_effective_gpus_are_bought() -> None:
    instance = build(nodes_per_rack=2, gangs=[small("a", 0, mask(0))], objectives=["admission"])
    stays, moves = decide(instance), decide(instance, a=[(1, mask(0))])
    found = move_set(instance, [0], plan_worth(instance, moves), plan_worth(instance, stays))
    assert (found.effective, found.gain) == (None, 0)
