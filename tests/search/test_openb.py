"""The benchmark on openb: arrivals, rules and bounds on tiny clusters, against every way to place pods."""

from __future__ import annotations

from itertools import combinations, product
from pathlib import Path

import numpy as np
import pytest
from conftest import RunCli
from effort import examples

from benchmarks.openb.batch import place_batch
from benchmarks.openb.bounds import Prices, bound_of, proven
from benchmarks.openb.documents import write_documents
from benchmarks.openb.judge import ImpossibleError, judged
from benchmarks.openb.online import Rule, place_each
from benchmarks.openb.room import LeastRoom
from benchmarks.openb.rules import BestFit, DotProduct, Fgd, GpuPacking
from benchmarks.openb.space import Placed
from benchmarks.openb.trace import (
    LISTS,
    WHOLE,
    Arrivals,
    Cluster,
    Kind,
    Pod,
    arrivals,
    read_cluster,
    read_list,
)

T4 = Kind("T4", 2, 20_000, 40_000)
G2 = Kind("G2", 1, 8_000, 10_000)


def cluster(*kinds: Kind) -> Cluster:
    distinct = tuple(sorted(set(kinds)))
    index = np.array([distinct.index(kind) for kind in kinds])
    return Cluster(tuple(f"n{n}" for n in range(len(kinds))), distinct, index)


def arriving(*pods: Pod) -> Arrivals:
    classes = tuple(sorted(set(pods)))
    return Arrivals(classes, np.array([classes.index(pod) for pod in pods]))


def best(nodes: Cluster, pods: Arrivals) -> int:
    """The most 1/1000 GPU of all ways to place pods that place each pod without GPUs."""
    most = -1
    ways = [
        [None, *((n, gpus) for n, k in enumerate(nodes.kind_of)
                 for gpus in combinations(range(nodes.kinds[k].gpus), pods.classes[c].gpus))]
        for c in pods.order
    ]  # fmt: skip
    for way in product(*ways):
        placed = [Placed(i, *one) for i, one in enumerate(way) if one is not None]
        try:
            result = judged(nodes, pods, placed)
        except ImpossibleError:
            continue
        if not result.dropped_without_gpus:
            most = max(most, result.allocated)
    return most


def drawn(seed: int) -> tuple[Cluster, Arrivals]:
    random = np.random.default_rng(seed)
    nodes = cluster(*random.choice(np.array([T4, G2], dtype=object), 2))
    sizes = [(1, 300), (1, 500), (1, 810), (1, 1000), (2, 1000), (0, 0)]
    pods = []
    for _ in range(5):
        gpus, milli = sizes[random.integers(len(sizes))]
        models = ("T4",) if gpus and random.random() < 0.2 else ()
        cpu, memory = int(random.integers(1, 7)) * 1000, int(random.integers(1, 5)) * 1000
        pods.append(Pod(cpu, memory, gpus, milli, models))
    return nodes, arriving(*pods)


def rules(pods: Arrivals, nodes: Cluster) -> list[Rule]:
    return [BestFit(), DotProduct(), GpuPacking(), Fgd(pods), LeastRoom(pods, nodes)]


def test_the_data_are_those_of_the_publication() -> None:
    nodes = read_cluster()
    assert (len(nodes.names), nodes.gpus) == (1213, 6212)
    assert [len(read_list(name).order) for name in LISTS] == [8152, 8152, 8324, 9061, 8152, 9420]
    assert round(read_list("default").gpu_milli.sum() / 1000, 1) == 6086.8


def test_arrivals_begin_with_the_list_and_end_at_the_share_that_is_asked_for() -> None:
    listed = read_list("default")
    pods = arrivals(listed, 6212, 42)
    assert np.array_equal(np.sort(pods.order[:8152]), np.sort(listed.order))
    requested = pods.gpu_milli.sum() / 6212 / WHOLE
    assert 1.298 < requested <= 1.3
    assert 0.998 < pods.until(6212 * WHOLE).gpu_milli.sum() / 6212 / WHOLE <= 1
    assert not np.array_equal(pods.order, arrivals(listed, 6212, 43).order[: len(pods.order)])


@pytest.mark.parametrize("seed", range(examples(40, 10)))
def test_what_is_placed_is_possible_and_within_the_bound(seed: int) -> None:
    nodes, pods = drawn(seed)
    most = best(nodes, pods)
    bound, random = bound_of(nodes, pods), np.random.default_rng(seed)
    for rule in rules(pods, nodes):
        assert judged(nodes, pods, place_each(nodes, pods, rule)).allocated <= sum(pods.gpu_milli)
    if most < 0:
        return
    assert bound.gpu_milli >= most
    kept = judged(nodes, pods, place_each(nodes, pods, LeastRoom(pods, nodes), pods))
    assert kept.dropped_without_gpus or kept.allocated <= most
    each = [int(x) for x in random.integers(0, 200_000, 4)]  # any prices prove a bound
    sizes = {pod.milli: int(random.integers(0, 10**9)) for pod in pods.classes if pod.shares}
    count = len(nodes.kinds)
    assert proven(nodes, pods, Prices(each[:count], each[2 : 2 + count], [sizes] * count)) >= most
    result = judged(nodes, pods, place_batch(nodes, pods, bound, seed, 0.1))
    assert not result.dropped_without_gpus
    assert result.allocated <= most


def test_most_tiny_instances_are_drawn_so_that_they_test_something() -> None:
    assert sum(best(*drawn(seed)) >= 0 for seed in range(10)) > 7


def test_the_whole_batch_is_placed_as_well_as_can_be_with_each_pod_beside_the_one_that_it_fits() -> (
    None
):
    nodes = cluster(T4)
    pods = arriving(Pod(1000, 1, 1, 500), Pod(9000, 1, 1, 500), Pod(10_000, 1, 1, 1000))
    placed = place_batch(nodes, pods, bound_of(nodes, pods), 0, 0.2)
    assert judged(nodes, pods, placed).allocated == best(nodes, pods) == 2000


@pytest.mark.parametrize(
    ("placed", "why"),
    [
        ([Placed(0, 0, (0,)), Placed(0, 0, (1,))], "twice"),
        ([Placed(0, 0, (2,))], "GPUs"),
        ([Placed(0, 0, (0, 1))], "GPUs"),
        ([Placed(0, 0, (0,)), Placed(1, 0, (0,))], "gpu 0"),
        ([Placed(2, 1, (0,))], "may not"),
        ([Placed(3, 1, ())], "cpu"),
        ([Placed(4, 1, ())], "memory"),
    ],
)
def test_the_judge_refuses_what_cannot_be(placed: list[Placed], why: str) -> None:
    pods = arriving(
        Pod(1000, 1, 1, 810), Pod(1001, 1, 1, 300), Pod(1002, 1, 1, 500, ("T4",)),
        Pod(9000, 1, 0, 0), Pod(1003, 10_001, 0, 0),
    )  # fmt: skip
    with pytest.raises(ImpossibleError, match=why):
        judged(cluster(T4, G2), pods, placed)


def test_the_documents_of_a_batch_are_planned(cli: RunCli, tmp_path: Path) -> None:
    parts = [Pod(1000, 1024, 1, 500), Pod(1000, 1024, 1, 300, ("T4",))]
    pods = arriving(*parts, Pod(2000, 1024, 2, 1000), Pod(1000, 1024, 0, 0))
    write_documents(tmp_path, cluster(T4, T4, G2), pods)
    done = cli("plan", str(tmp_path), "-o", "name")
    assert (done.code, len(done.out.split())) == (0, 4), done.err
