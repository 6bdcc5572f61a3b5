"""Rules 1 and 9: every GPU in one pod at most, sick ones in none, unnamed ones counted.

Each rule: what just fits is placed, one more is not.
"""

from __future__ import annotations

import pytest
from building import build, gang, mask, node
from building_servers import switched, v100
from outcomes import planned

from models.hardware import ServerModel


def test_gpu_rule_allows_pods_that_fill_a_server_exactly() -> None:
    outcome = planned(build(gangs=[gang("a", pods=4, gpus_per_pod=2)]))
    assert outcome.decision("a") == "place"
    assert sorted(sum((g for g in outcome.gpus("a") if g), ())) == list(range(8))


def test_gpu_rule_forbids_one_gpu_more_than_a_server_has() -> None:
    outcome = planned(build(gangs=[gang("a", pods=9, gpus_per_pod=1)]))
    assert outcome.decision("a") == "wait"
    assert outcome.reason("a") == "Never"


def test_gpu_rule_forbids_the_gpus_of_a_pod_that_runs() -> None:
    runs = gang("r", gpus_per_pod=3, stands=[(0, 0, 0, mask(1, 4, 6))])
    outcome = planned(build(gangs=[runs, gang("a", gpus_per_pod=5)]))
    assert outcome.gpus("a") == [(0, 2, 3, 5, 7)]
    refused = planned(build(gangs=[runs, gang("a", gpus_per_pod=6)]))
    assert refused.decision("a") == "wait"


def test_gpu_rule_forbids_a_pod_split_over_two_servers() -> None:
    # 12 GPUs are free, six a server: fragments do not add up.
    nodes = [node("n1", switched(), unhealthy=(0, 1)), node("n2", switched(), unhealthy=(6, 7))]
    assert planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=7)])).decision("a") == "wait"
    assert planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=6)])).decision("a") == "place"


@pytest.mark.parametrize("model", [switched(), v100()])
def test_gpu_rule_never_gives_a_sick_gpu(model: ServerModel) -> None:
    nodes = [node("n", model, unhealthy=(3,))]
    fits = planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=7)]))
    assert fits.gpus("a") == [(0, 1, 2, 4, 5, 6, 7)]
    assert planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=8)])).decision("a") == "wait"


def test_unknown_rule_allows_what_is_surely_free_and_names_no_gpu() -> None:
    # 8 healthy - 2 known - 3 unknown = 3
    runs = [
        gang("r1", gpus_per_pod=2, stands=[(0, 0, 0, mask(0, 1))]),
        gang("r2", gpus_per_pod=3, stands=[(0, 0, 0, None)]),
    ]
    outcome = planned(build(gangs=[*runs, gang("a", pods=3, gpus_per_pod=1)]))
    assert outcome.decision("a") == "place"
    assert outcome.gpus("a") == [None, None, None]


def test_unknown_rule_forbids_one_gpu_more_than_is_surely_free() -> None:
    runs = [
        gang("r1", gpus_per_pod=2, stands=[(0, 0, 0, mask(0, 1))]),
        gang("r2", gpus_per_pod=3, stands=[(0, 0, 0, None)]),
    ]
    outcome = planned(build(gangs=[*runs, gang("a", pods=4, gpus_per_pod=1)]))
    assert outcome.decision("a") == "wait"


def test_unknown_rule_counts_sick_gpus_that_nobody_can_name() -> None:
    nodes = [node("n", switched(), unhealthy=(0,), unknown_unhealthy=2)]
    # 7 healthy - 2 unknown = 5
    fits = planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=5)]))
    assert fits.decision("a") == "place"
    assert fits.gpus("a") == [None]
    assert planned(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=6)])).decision("a") == "wait"


def test_a_sick_gpu_that_a_pod_holds_is_not_counted_twice() -> None:
    # GPU 0 is sick and held: 7 healthy, none of them held.
    runs = gang("r", gpus_per_pod=1, stands=[(0, 0, 0, mask(0))])
    nodes = [node("n", switched(), unhealthy=(0,))]
    outcome = planned(build(nodes=nodes, gangs=[runs, gang("a", gpus_per_pod=7)]))
    assert outcome.decision("a") == "place"


def test_where_the_node_binds_gpus_only_servers_without_a_switch_hide_them() -> None:
    nodes = [node("n1", switched(4)), node("n2", v100())]
    gangs = [
        gang("a", gpus_per_pod=2, roles=(), min_share="1"),  # the switch: any pair is the best
        gang("b", gpus_per_pod=8),
        gang("c", gpus_per_pod=2),
    ]
    outcome = planned(build(nodes=nodes, gangs=gangs, binding="none"))
    assert outcome.decisions() == {"a": "place", "b": "place", "c": "place"}
    assert outcome.gpus("a") != [None]
    assert outcome.gpus("b") == [tuple(range(8))]
    mesh = build(nodes=[node("n2", v100())], gangs=[gang("c", gpus_per_pod=2)], binding="none")
    assert planned(mesh).gpus("c") == [None]
