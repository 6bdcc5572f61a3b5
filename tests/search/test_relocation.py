"""Which moves belong together, and what a plan is worth."""

from __future__ import annotations

from building import build, gang, mask
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
