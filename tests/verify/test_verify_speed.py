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
    standing,
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


@settings(max_examples=examples(300, 100), deadline=None)
@given(st.none() | st.integers(0, 1000), st.integers(0, 95), st.integers(0, 1000))
def test_the_formula_written_twice_gives_the_same(
    share: int | None, percent: int, relative: int
) -> None:
    fraction = Fraction(percent, 100)
    assert speed_of(share, fraction, relative) == speed_permille(share, fraction, relative)


# GPU models


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
