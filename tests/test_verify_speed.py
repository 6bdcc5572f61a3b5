"""Speeds that the judge derives, against numbers worked out by hand; a wrong one is found."""

from __future__ import annotations

from fractions import Fraction

import pytest
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    mesh,
    node,
    objective,
    policy,
    restated,
    role,
    rules_broken,
    sealed,
    server,
    standing,
    wanted,
)

from models.instance.speed import speed_permille
from models.verify.check import check
from models.verify.rates.speed import speed_of

ALL = list(range(8))


def speed(plan: Doc, name: str = "a") -> int | None:
    """The speed the judge derives of a gang, once the plan is found to be good."""
    assert check(plan) == []
    found: int | None = entry(plan, name)["speed"]
    return found


def communication(**more: object) -> Doc:
    return {"communication": {"pattern": "all-reduce", "weight": 1} | more}


def goodput() -> Doc:
    names = ("goodput", "waiting", "bandwidth")
    return policy(objectives=[{"name": name, "tolerance": 0} for name in names])


def on_mesh(gpus: list[int], **more: object) -> Doc:
    """Gang ``a`` on these GPUs of a DGX-1 V100."""
    return made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", 1, len(gpus)), **more)],
        [decided("a", "place", ("m", gpus))],
    )


def h100(**more: object) -> Doc:
    return dgx(relativeSpeed=100, **more)


def a100(**more: object) -> Doc:
    return dgx("DGX A100", gpu="A100", **more)


def generations(*placed: str, fast: Doc | None = None, slow: Doc | None = None) -> Doc:
    """Gang ``a`` with a GPU on each of these nodes: h1 and h2 are DGX H100, s1 and s2 DGX A100."""
    models = [fast or h100(), slow or a100(relativeSpeed=32)]
    nodes = [node(name, models[name[0] == "s"]["name"]) for name in ("h1", "h2", "s1", "s2")]
    return made(
        cluster(models, nodes),
        [gang("a", role("worker", len(placed), 1, mixModels=True), **communication(fraction=0))],
        [decided("a", "place", *((name, [0]) for name in placed))],
    )


# communication


@pytest.mark.parametrize(
    ("gpus", "fraction", "permille"),
    [
        ([0, 3], 0.25, 1000),  # share 1000: nothing lost
        ([0, 1], 0.25, 800),  # share 500: 10^6 / (750 + 500) is just 800
        ([0, 5], 0.25, 500),  # share 200: 10^6 / (750 + 1250)
        ([0, 5], 0.5, 320),  # 10^6 / (500 + 2500) = 333.3
        ([1, 4, 6, 7], 0.25, 280),  # share 96: 10^6 / (750 + 2604.2) = 298.1
        ([1, 4, 6, 7], 0.95, 100),  # 10^6 / (50 + 9895.8) = 100.5
        ([1, 4, 6, 7], 0, 1000),
        ([5], 0.95, 1000),  # one GPU has no share
    ],
)
def test_a_gang_is_as_fast_as_its_share_and_its_fraction_let_it(
    gpus: list[int], fraction: float, permille: int
) -> None:
    assert speed(on_mesh(gpus, **communication(fraction=fraction))) == permille


def test_a_quarter_of_a_step_is_communication_unless_the_gang_says_otherwise() -> None:
    assert speed(on_mesh([0, 5])) == 500


def test_who_does_not_communicate_loses_nothing_to_its_share() -> None:
    assert speed(on_mesh([0, 5], **communication(pattern="none", fraction=0.5))) == 1000
    assert speed(on_mesh([0, 5], **communication(pattern="broadcast", fraction=0.5))) == 320


@pytest.mark.parametrize(
    ("gbps", "share", "permille"),
    [
        (185.4, 500, 800),  # 8 NICs: 185,400 of 370,800 MB/s
        (185.2, 499, 780),  # 10^6 / (750 + 501.0) = 799.4
        (0.001, 0, 0),  # 1 MB/s: counts as share 1, 10^6 / 250,750 = 3.99
    ],
)
def test_a_speed_is_a_step_only_where_it_reaches_the_step(
    gbps: float, share: int, permille: int
) -> None:
    nics = [{"name": f"n{g}", "gbps": gbps, "gpus": [g]} for g in ALL]
    plan = made(
        cluster([dgx()], [node(name, "DGX H100", nics=nics) for name in ("h1", "h2")]),
        [gang("a", role("worker", 2, 8))],
        [decided("a", "place", ("h1", ALL), ("h2", ALL))],
    )
    assert entry(plan, "a")["share"] == share
    assert speed(plan) == permille


def test_a_rate_that_is_not_known_costs_nothing() -> None:
    plan = on_mesh([0, 5])
    plan["instance"]["cluster"]["spec"]["serverModels"][0]["linkMBps"] = None
    assert entry(restated(plan), "a")["share"] is None
    assert speed(plan) == 1000


def test_a_gang_without_gpus_runs_at_full_speed_and_one_that_waits_at_none() -> None:
    plan = made(
        cluster([h100(), a100(relativeSpeed=32)], [node("h", "DGX H100"), node("s", "DGX A100")]),
        [gang("a", role("worker", 1, 0)), gang("b")],
        [decided("a", "place", ("s", [])), decided("b", "wait", why="NoRoom")],
    )
    assert (speed(plan, "a"), speed(plan, "b")) == (1000, None)


@settings(max_examples=examples(300, 100), deadline=None)
@given(st.none() | st.integers(0, 1000), st.integers(0, 95), st.integers(0, 1000))
def test_the_formula_written_twice_gives_the_same(
    share: int | None, percent: int, relative: int
) -> None:
    fraction = Fraction(percent, 100)
    assert speed_of(share, fraction, relative) == speed_permille(share, fraction, relative)


# GPU models


@pytest.mark.parametrize(
    ("slow", "permille"),
    [(32, 320), (31.999, 300), (0.0001, 0), (100, 1000), (64, 640)],
)
def test_slower_gpus_make_a_gang_slower(slow: float, permille: int) -> None:
    assert speed(generations("s1", "s2", slow=a100(relativeSpeed=slow))) == permille


def test_a_gang_on_two_generations_is_as_fast_as_the_slower_one() -> None:
    assert speed(generations("h1", "h2")) == 1000
    assert speed(generations("h1", "s1")) == 320


def test_the_fastest_model_of_the_cluster_counts_whoever_uses_it() -> None:
    # b = 200, of the slow model's name: 1000 x 100 / 200
    assert speed(generations("h1", "h2", slow=a100(relativeSpeed=200))) == 500


def test_a_node_that_cannot_be_used_still_sets_the_pace() -> None:
    plan = generations("h1", slow=a100(relativeSpeed=200))
    for name in ("s1", "s2"):
        server(plan, name).update(unschedulable=True, unhealthyGpus=ALL)
    assert speed(restated(plan)) == 500


def test_all_gpus_are_alike_where_only_one_speed_or_none_is_known() -> None:
    assert speed(generations("s1", slow=a100())) == 1000
    assert speed(generations("h1", "s1", slow=a100())) == 1000
    assert speed(generations("s1", fast=dgx())) == 1000
    assert speed(generations("h1", "s1", fast=dgx(), slow=a100())) == 1000


def three_generations(*placed: str) -> Doc:
    """Gang ``a`` with a GPU on each of these nodes: h 100, s 32, and m without a stated speed."""
    models = [h100(), a100(relativeSpeed=32), mesh()]
    nodes = [node(name, model["name"]) for name, model in zip("hsm", models, strict=True)]
    return made(
        cluster(models, sorted(nodes, key=lambda one: str(one["name"]))),
        [gang("a", role("worker", len(placed), 1, mixModels=True), **communication(fraction=0))],
        [decided("a", "place", *((name, [0]) for name in placed))],
    )


@pytest.mark.parametrize(
    ("placed", "permille"), [("h", 1000), ("s", 320), ("m", 320), ("mh", 320), ("ms", 320)]
)
def test_a_model_of_unknown_speed_is_as_slow_as_the_slowest_and_changes_no_other(
    placed: str, permille: int
) -> None:
    plan = three_generations(*placed)
    assert speed(plan) == permille
    entry(plan, "a")["speed"] = 980
    assert "speed" in rules_broken(sealed(plan))


def test_pods_without_gpus_on_slower_servers_cost_nothing() -> None:
    plan = made(
        cluster([h100(), a100(relativeSpeed=32)], [node("h", "DGX H100"), node("s", "DGX A100")]),
        [gang("a", role("head", 1, 0), role("worker", 1, 1))],
        [decided("a", "place", ("h", [0]))],
    )
    head = {"name": "a-head-0", "role": "head", "index": 0, "node": "s", "gpus": []}
    entry(plan, "a")["pods"].insert(0, head)
    assert speed(restated(plan)) == 1000


def test_a_gang_may_ignore_how_fast_its_gpus_are_but_not_its_share() -> None:
    plan = generations("s1", "s2")
    wanted(plan, "a")["spec"].update(communication(fraction=0, speed="ignore"))
    assert speed(restated(plan)) == 1000
    # One NIC a server, 50,000 of 370,800 MB/s: share 134, 10^6 / (750 + 1865.7) = 382.3
    wanted(plan, "a")["spec"].update(communication(speed="ignore"))
    assert speed(restated(plan)) == 380


def test_the_relative_speed_is_floored_before_the_share_counts() -> None:
    nics = [{"name": f"n{g}", "gbps": 123.6, "gpus": [g]} for g in ALL]
    nodes = [node(name, "DGX A100", nics=nics) for name in ("s1", "s2")]
    plan = made(
        cluster([h100(), a100(relativeSpeed=96.06)], [node("h", "DGX H100"), *nodes]),
        [gang("a", role("worker", 2, 8))],
        [decided("a", "place", ("s1", ALL), ("s2", ALL))],
    )
    # share 333: 960,000 / (750 + 750.75) = 639.7, and 960,600 would reach 640
    assert speed(plan) == 620


# gangs that run


def moved(gpus_before: list[int], gpus_after: list[int], **more: object) -> Doc:
    """Gang ``a`` moves from m1 to m2, both DGX-1 V100."""
    before = tuple(standing("a", "m1", [gpu], i) for i, gpu in enumerate(gpus_before))
    return made(
        cluster([mesh()], [node("m1", "DGX-1 V100"), node("m2", "DGX-1 V100")]),
        [gang("a", role("worker", 2, 1), movable=True, pods=before, **more)],
        [decided("a", "move", *(("m2", [gpu]) for gpu in gpus_after))],
    )


def test_a_gang_that_moves_to_a_faster_place_counts_its_speed_before() -> None:
    plan = moved([0, 5], [0, 3])  # shares 200 and 1000
    assert entry(plan, "a")["share"] == 1000
    assert speed(plan) == 500
    entry(plan, "a")["speedAfter"] = 1000
    assert rules_broken(sealed(plan)) == set()
    entry(plan, "a")["speedAfter"] = 980
    assert rules_broken(sealed(plan)) == {"speed"}
    entry(plan, "a")["speedAfter"] = 1000
    entry(plan, "a")["speed"] = 1000
    assert rules_broken(sealed(plan)) == {"speed"}


def test_a_gang_that_moves_to_a_slower_place_counts_its_speed_after() -> None:
    assert speed(moved([0, 3], [0, 5])) == 500


def test_a_gang_that_moves_to_faster_gpus_counts_the_ones_before() -> None:
    nodes = [node("h", "DGX H100"), node("s", "DGX A100")]
    plan = made(
        cluster([h100(), a100(relativeSpeed=32)], nodes),
        [gang("a", movable=True, pods=(standing("a", "s", [0]),))],
        [decided("a", "move", ("h", [0]))],
    )
    assert speed(plan) == 320


def test_a_gang_that_grows_to_a_better_share_counts_its_speed_before() -> None:
    size = {"min": 2, "max": 4, "step": 2}
    before = (standing("a", "m", [0]), standing("a", "m", [1], 1))
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", size, 1), pods=before)],
        [decided("a", "resize", *(("m", [gpu]) for gpu in range(4)))],
    )
    assert entry(plan, "a")["share"] == 1000  # all four GPUs of a quad; two of them had 500
    assert speed(plan) == 800


def incomplete(decision: str, *gpus: int) -> Doc:
    """Gang ``a`` of four pods runs on GPUs 0 and 5 of a mesh: share 200, and misses two pods."""
    before = (standing("a", "m", [0]), standing("a", "m", [5], 1))
    return made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a", role("worker", 4, 1), pods=before)],
        [
            decided(
                "a",
                decision,
                *(("m", [gpu]) for gpu in gpus),
                why="" if decision == "complete" else "Incomplete",
            )
        ],
    )


def test_a_gang_with_pods_missing_has_the_speed_of_what_stands() -> None:
    assert speed(incomplete("keep", 0, 5)) == 500


def test_a_gang_that_is_completed_counts_only_its_speed_after() -> None:
    plan = incomplete("complete", 0, 5, 1, 4)
    assert entry(plan, "a")["share"] == 666  # 0-4-5-1: 2 of the 3 chains of a quad
    assert speed(plan) == 880  # 10^6 / (750 + 375.4) = 888.6


def test_unknown_gpus_are_judged_by_what_is_known_to_be_held_before_the_plan() -> None:
    names = ("m1", "m2", "m3")
    before = standing("v", "m1", [1, 2, 4, 5, 6, 7])
    plan = made(
        cluster([mesh()], [node(name, "DGX-1 V100") for name in names]),
        [
            gang("u", role("worker", 1, 2), movable=True, pods=(standing("u", "m1", None),)),
            gang("v", role("worker", 1, 6), movable=True, pods=(before,)),
        ],
        [
            decided("u", "move", ("m2", [0, 3])),
            decided("v", "move", ("m3", [1, 2, 4, 5, 6, 7])),
        ],
    )
    # Beside v only GPUs 0 and 3 were left: share 1000; of all eight it might have had 0 and 5.
    assert speed(plan, "u") == 1000
    # u stays, and v leaves: then it may have any two.
    plan["spec"]["gangs"][0] = decided("u", "keep", ("m1", None))
    assert speed(restated(plan), "u") == 500


def test_a_gang_that_stays_on_unknown_gpus_counts_the_smaller_speed_though_nothing_changes() -> (
    None
):
    wide = (standing("v", "m1", [1, 2, 4, 6, 7]), standing("w", "m1", [3]))
    plan = made(
        cluster([mesh()], [node("m1", "DGX-1 V100", unhealthyGpus=[5]), node("m2", "DGX-1 V100")]),
        [
            gang("u", role("worker", 1, 2), pods=(standing("u", "m1", None),)),
            gang("v", role("worker", 1, 5), pods=wide[:1]),
            gang("w", movable=True, pods=wide[1:]),
        ],
        [
            decided("u", "keep", ("m1", None)),
            decided("v", "keep", ("m1", [1, 2, 4, 6, 7])),
            decided("w", "move", ("m2", [0])),
        ],
    )
    # Without w it has healthy GPUs, 0 and 3; beside w one of its two, 0 and 5, had to be sick.
    assert entry(plan, "u")["share"] == 1000
    assert speed(plan, "u") == 500


# what a plan states


@pytest.mark.parametrize("by", [-20, -1, 1, 20])
def test_a_speed_stated_wrong_is_found(by: int) -> None:
    plan = on_mesh([0, 5])
    entry(plan, "a")["speed"] = 500 + by
    assert rules_broken(sealed(plan)) == {"speed"}


@pytest.mark.parametrize("says", [0, 1000])
def test_a_gang_without_pods_has_no_speed(says: int) -> None:
    plan = made(
        cluster([mesh()], [node("m", "DGX-1 V100")]),
        [gang("a")],
        [decided("a", "wait", why="NoRoom")],
    )
    assert speed(plan) is None
    entry(plan, "a")["speed"] = says
    assert rules_broken(sealed(plan)) == {"speed"}


def test_a_plan_without_speeds_is_good_unless_its_policy_counts_them() -> None:
    plan = on_mesh([0, 5])
    del entry(plan, "a")["speed"]
    assert check(sealed(plan)) == []
    entry(plan, "a")["speed"] = None
    assert rules_broken(sealed(plan)) == {"speed"}
    plan["instance"]["policy"] = goodput()
    assert entry(restated(plan), "a")["speed"] == 500
    assert check(plan) == []
    del entry(plan, "a")["speed"]
    assert rules_broken(sealed(plan)) == {"speed"}


# shares of which the judge knows a range


def ring_of_nine() -> Doc:
    """Nine GPUs in a ring of single links: 8,000 to 40,000 MB/s for the judge, shares 200 to 1000."""
    links = [
        ["X" if a == b else "NV1" if (a - b) % 9 in (1, 8) else "SYS" for b in NINE] for a in NINE
    ]
    return mesh() | {"gpus": 9, "matrix": links, "nics": []}


NINE = list(range(9))


def on_ring(decision: str, where: str) -> Doc:
    """Gang ``a`` runs on r1."""
    return made(
        cluster([ring_of_nine()], [node("r1", "DGX-1 V100"), node("r2", "DGX-1 V100")]),
        [gang("a", role("worker", 1, 9), movable=True, pods=(standing("a", "r1", NINE),))],
        [decided("a", decision, (where, NINE))],
        goodput(),
    )


@pytest.mark.parametrize(("share", "permille"), [(200, 500), (500, 800), (1000, 1000)])
def test_a_speed_follows_from_the_share_that_is_stated(share: int, permille: int) -> None:
    plan = on_ring("keep", "r1")
    entry(plan, "a")["share"] = share
    assert speed(restated(plan)) == permille
    for wrong in (permille - 20, permille + 20):
        entry(plan, "a")["speed"] = wrong
        assert rules_broken(sealed(plan)) == {"speed"}


@pytest.mark.parametrize(
    ("says", "possible"), [(480, 500), (500, 500), (780, 780), (1000, 1000), (1020, 1000)]
)
def test_a_speed_before_the_plan_may_be_any_of_its_range(says: int, possible: int) -> None:
    plan = on_ring("move", "r2")
    entry(plan, "a").update(share=1000, speed=says)
    assert speed(restated(plan)) == possible
    assert objective(plan, "goodput/0")["value"] == 9 * possible
    entry(plan, "a")["speed"] = says
    assert rules_broken(sealed(plan)) == ({"speed"} if says != possible else set())
