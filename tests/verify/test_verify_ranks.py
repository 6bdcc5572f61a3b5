"""Groups, patterns and ranks: figures worked out by hand, and plans in which one thing is wrong.

Servers of 8: 370,800 MB/s inside, a NIC of 50,000 a GPU. n1 and n2 are in one rack, n3 and n4 in another;
between racks the network gives half.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    document,
    entry,
    gang,
    level,
    mesh,
    node,
    restated,
    role,
    sealed,
    standing,
)

from models.verify.check import check

ALL = list(range(8))
F = Fraction
RACKS = [level("block"), level("rack", 2)]
PLACES = {"n1": "b1/r1", "n2": "b1/r1", "n3": "b1/r2", "n4": "b1/r2"}


def servers(*models: Doc) -> Doc:
    """n1 to n4, of the first model, the last of the last one."""
    names = [models[0]["name"]] * 3 + [models[-1]["name"]]
    nodes = [node(n, model, at) for (n, at), model in zip(PLACES.items(), names, strict=True)]
    return cluster(list(models), nodes, RACKS)


def stated(
    one: Doc, *places: tuple[str, list[int]], ranks: tuple[int, ...] = (), of: Doc | None = None
) -> Doc:
    """The plan that places gang ``a`` there, or says that it stays."""
    kind = "keep" if one["status"]["pods"] else "place"
    own = decided("a", kind, *places)
    for pod, rank in zip(own["pods"], ranks, strict=False):
        pod["rank"] = rank
    return restated(document(of or servers(dgx()), [one], [own]))


def parallel(pods: int, gpus: int, *stands: Doc, **degrees: int) -> Doc:
    return gang("a", role(replicas=pods, gpus=gpus, parallelism=degrees), pods=stands)


def with_pattern(pattern: str, pods: int, gpus: int) -> Doc:
    said = {"pattern": pattern, "weight": 1}
    return gang("a", role(replicas=pods, gpus=gpus), communication=said)


def figures(plan: Doc) -> tuple[int, int]:
    assert [(v.rule, v.message) for v in check(plan)] == []
    own = entry(plan, "a")
    return own["bandwidthMBps"], own["share"]


def rules(plan: Doc) -> list[str]:
    return [violation.rule for violation in check(sealed(plan))]


# Two replicas of two stages: data 8 in a rack, pipeline 1 between racks, tensor 224 inside.
INSIDE = F(224, 370_800)
IDEAL = F(233) / (INSIDE + F(8, 50_000) + F(1, 50_000))
IN_RACKS = F(233) / (INSIDE + F(8, 50_000) + F(1, 25_000))
BY_INDEX = F(233) / (INSIDE + F(8, 25_000) + F(1, 50_000))
ACROSS = [("n1", ALL), ("n3", ALL), ("n2", ALL), ("n4", ALL)]


def stages(*stands: Doc) -> Doc:
    return parallel(4, 8, *stands, tensor=8, pipeline=2)


def standing_stages(*ranks: int | None) -> Doc:
    own = [standing("a", n, gpus, i) for i, (n, gpus) in enumerate(ACROSS)]
    for pod, rank in zip(own, ranks, strict=True):
        pod.update({} if rank is None else {"rank": rank})
    return stages(*own)


def test_bandwidth_follows_the_stated_ranks() -> None:
    plan = stated(stages(), *ACROSS, ranks=(0, 16, 8, 24))
    assert figures(plan) == (int(IN_RACKS), int(1000 * IN_RACKS / IDEAL))
    plan = stated(stages(), *ACROSS, ranks=(0, 8, 16, 24))  # not the best, but as good as by index
    assert figures(plan) == (int(BY_INDEX), int(1000 * BY_INDEX / IDEAL))


@pytest.mark.parametrize(
    ("one", "places", "bandwidth", "share"),
    [
        # of the 15 parts that a GPU sends, 8 leave its server; data has all NICs, and the switch limits it
        (
            parallel(2, 8, expert=16),
            [("n1", ALL), ("n2", ALL)],
            F(135) / (F(120, 93_750) + F(15, 370_800)),
            1000,
        ),
        (parallel(1, 8, tensor=2, context=2), [("n1", ALL)], F(370_800), 1000),
        (with_pattern("all-to-all", 2, 8), [("n1", ALL), ("n2", ALL)], F(93_750), 1000),
        (with_pattern("all-to-all", 2, 8), [("n1", ALL), ("n3", ALL)], F(46_875), 500),
        (with_pattern("parameter-server", 2, 8), [("n1", ALL), ("n2", ALL)], F(50_000), 1000),
        (with_pattern("pipeline", 2, 8), [("n1", ALL), ("n3", ALL)], F(25_000), 500),
        (with_pattern("broadcast", 2, 8), [("n1", ALL), ("n2", ALL)], F(370_800), 1000),
    ],
)
def test_figures_by_hand(
    one: Doc, places: list[tuple[str, list[int]]], bandwidth: Fraction, share: int
) -> None:
    ranked = "parallelism" in one["spec"]["roles"][0] or "pipeline" in str(one["spec"])
    plan = stated(one, *places, ranks=(0, 8) if ranked else ())
    assert figures(plan) == (int(bandwidth), share)


def test_groups_on_a_mesh_have_the_rates_of_their_own_gpus() -> None:
    # 0-3 and 1-2 have two links of 20,000, 0-1 and 2-3 one
    one = parallel(2, 2, tensor=2)
    double, single = F(136) / (F(128, 40_000) + F(8, 20_000)), F(20_000)
    ideal = F(40_000)
    for first, second, found in (([0, 3], [1, 2], double), ([0, 1], [2, 3], single)):
        plan = stated(one, ("n1", first), ("n1", second), ranks=(0, 2), of=servers(mesh()))
        assert figures(plan) == (int(found), int(1000 * found / ideal))


def test_a_tensor_group_uses_the_nvlink_domain_unless_it_may_not() -> None:
    tray = dgx("tray", gpus=4, nvlinkDomainNodes=2)
    nodes = [node(n, "tray", at) for n, at in PLACES.items()]
    levels = [level("block"), level("rack", nvlink=True)]
    halves = [("n1", ALL[:4]), ("n2", ALL[:4])]
    one = parallel(2, 4, tensor=8)
    of = cluster([tray], nodes, levels)
    assert figures(stated(one, *halves, ranks=(0, 4), of=of)) == (370_800, 1000)
    apart = copy.deepcopy(one)
    apart["spec"]["communication"]["nvlinkAcrossNodes"] = False
    assert figures(stated(apart, *halves, ranks=(0, 4), of=of)) == (200_000, 1000)


def _put(*ranks: int | None) -> Callable[[Doc], None]:
    def change(plan: Doc) -> None:
        for pod, rank in zip(entry(plan, "a")["pods"], ranks, strict=True):
            pod.pop("rank", None)
            pod.update({} if rank is None else {"rank": rank})

    return change


@pytest.mark.parametrize(
    "ranks",
    [
        (0, 0, 8, 24),  # one twice
        (0, 16, 8, 32),  # too high
        (0, 16, 8, 25),  # no multiple
        (0, 16, 8, None),
        (None, None, None, None),
    ],
)
def test_ranks_are_distinct_multiples_of_the_gpus_of_a_pod(ranks: tuple[Any, ...]) -> None:
    plan = stated(stages(), *ACROSS, ranks=(0, 8, 16, 24))
    _put(*ranks)(plan)
    assert rules(plan) == ["ranks"]


def test_figures_of_other_ranks_are_wrong() -> None:
    plan = stated(stages(), *ACROSS, ranks=(0, 16, 8, 24))
    _put(0, 8, 16, 24)(plan)
    assert {"bandwidth", "share"} <= set(rules(plan))
    plan = stated(stages(), *ACROSS, ranks=(0, 16, 8, 24))
    entry(plan, "a")["share"] += 1
    assert rules(plan) == ["share"]


def test_ranks_are_not_worse_than_by_index() -> None:
    near = [("n1", ALL), ("n2", ALL), ("n3", ALL), ("n4", ALL)]
    plan = stated(stages(), *near, ranks=(0, 16, 8, 24))
    assert rules(plan) == ["ranks"]
    # a tensor group of two pods in two servers, although the order of indices keeps them together
    halves = [(n, gpus) for n in ("n1", "n2") for gpus in (ALL[:4], ALL[4:])]
    one = parallel(4, 4, tensor=8)
    assert rules(stated(one, *halves, ranks=(0, 4, 8, 12))) == []
    assert rules(stated(one, *halves, ranks=(0, 8, 4, 12))) == ["ranks"]


@pytest.mark.parametrize(
    ("before", "after", "broken"),
    [
        ((0, 16, 8, 24), (0, 16, 8, 24), []),
        ((0, 16, 8, 24), (0, 8, 16, 24), ["ranks"]),
        ((None, None, None, None), (0, 8, 16, 24), []),
        ((None, None, None, None), (0, 16, 8, 24), ["ranks"]),
        ((0, 0, 8, 24), (0, 8, 16, 24), []),  # they contradict each other
        ((0, 0, 8, 24), (0, 16, 8, 24), ["ranks"]),
    ],
)
def test_pods_that_stay_keep_their_ranks(
    before: tuple[Any, ...], after: tuple[int, ...], broken: list[str]
) -> None:
    plan = stated(standing_stages(*before), *ACROSS, ranks=after)
    assert rules(plan) == broken


def test_a_pod_that_joins_gets_a_rank_that_is_left() -> None:
    one = standing_stages(0, 16, 8, 24)
    one["status"]["pods"].pop(1)
    good = stated(one, *ACROSS, ranks=(0, 16, 8, 24))
    entry(good, "a")["decision"] = "complete"
    assert rules(restated(good)) == []


def test_only_pods_of_groups_have_ranks() -> None:
    plain = gang("a", role(replicas=2, gpus=8))
    assert rules(stated(plain, ("n1", ALL), ("n2", ALL), ranks=(0, 8))) == ["ranks"]
    plain["spec"]["topology"]["order"] = True
    assert rules(stated(plain, ("n1", ALL), ("n2", ALL), ranks=(0, 8))) == []
    assert rules(stated(plain, ("n1", ALL), ("n2", ALL))) == ["ranks"]
