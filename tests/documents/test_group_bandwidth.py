"""Bandwidth of groups and of patterns, worked out by hand (docs/formulation.md, section 3, 7 to 12).

Switched servers of 8: inside 370,800 MB/s; one NIC of 400 Gbit/s: N = 50,000, 6,250 for each of 8 GPUs.
Traffic: tensor 8: 128 x 14/8 = 224; data 2: 8 x 2/2 = 8; data 4: 8 x 6/4 = 12; pipeline 1.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, mask, node, parallel
from building_servers import switched, v100

from models.hardware import Nic
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.rates.gang_rates import dealt_ranks, gang_rates

ALL = mask(*range(8))
F = Fraction


def rates(
    instance: Instance, places: list[tuple[int, int]]
) -> tuple[Fraction | None, Fraction | None]:
    """B and ideal of the first gang with its pods at these (node, mask)."""
    pods = [PodPlacement(0, i, n, gpus) for i, (n, gpus) in enumerate(places)]
    return gang_rates(instance, instance.gangs[0], pods, ())


def test_a_tensor_group_in_a_server_and_data_between_two() -> None:
    one = parallel(gang("a", 2, 8), tensor=8)
    near = build(nodes_per_rack=2, gangs=[one], oversubscription=(1, 2))
    best = F(232) / (F(224, 370800) + F(8, 6250))
    assert rates(near, [(0, ALL), (1, ALL)]) == (best, best)
    far = build(racks=2, gangs=[one], oversubscription=(1, 2))
    slow = F(232) / (F(224, 370800) + F(8, 3125))
    assert rates(far, [(0, ALL), (1, ALL)]) == (slow, best)


def test_pipeline_stages_are_farthest_apart() -> None:
    # 4 servers in 2 racks, oversubscription 2: data within racks, 12 / 6,250; pipeline across, 1 / 3,125.
    one = parallel(gang("a", 4, 8), tensor=8, pipeline=2)
    instance = build(racks=2, nodes_per_rack=2, gangs=[one], oversubscription=(1, 2))
    total = F(224 + 8 + 1)
    best = total / (F(224, 370800) + F(8, 6250) + F(1, 3125))
    # pods 0 and 2 in the first rack: ranks are dealt so that data stays in a rack
    places = [(0, ALL), (2, ALL), (1, ALL), (3, ALL)]
    assert rates(instance, places)[0] == best
    pods = [PodPlacement(0, i, n, gpus) for i, (n, gpus) in enumerate(places)]
    dealt = dealt_ranks(instance, instance.gangs[0], pods, ())
    racks = {rank: pods[index].node // 2 for (_, index), rank in dealt.items()}
    assert racks[0] == racks[8]
    assert racks[16] == racks[24] != racks[0]
    ideal = total / (F(224, 370800) + F(8, 6250) + F(1, 6250))
    assert rates(instance, places)[1] == ideal


def test_an_expert_group_over_two_servers_shares_their_nics() -> None:
    # expert 16 over two servers: of 15 parts a GPU sends, 8 leave: 6,250 x 15/8; data 16 as a ring: all of N.
    one = parallel(gang("a", 2, 8), expert=16)
    traffic = (F(128 * 15, 16), F(8 * 30, 16))
    best = sum(traffic) / (traffic[0] / F(6250 * 15, 8) + traffic[1] / 50000)
    assert rates(build(nodes_per_rack=2, gangs=[one]), [(0, ALL), (1, ALL)]) == (best, best)


def test_groups_on_a_mesh_have_the_rate_of_their_own_gpus() -> None:
    # pairs 0-3 and 1-2 have two links each, the pairs 0-1 and 2-3 one; data 2: 0-1, 3-2 (one link, 2)
    one = parallel(gang("a", 2, 2), tensor=2)
    instance = build(model=v100(), gangs=[one])
    tensor, data = F(128), F(8)
    by_double = (tensor + data) / (tensor / 40000 + data / 20000)
    assert rates(instance, [(0, mask(0, 3)), (0, mask(1, 2))])[0] == by_double
    by_single = (tensor + data) / (tensor / 20000 + data / 20000)
    assert rates(instance, [(0, mask(0, 1)), (0, mask(2, 3))])[0] == by_single
    ideal = (tensor + data) / (tensor / 40000 + data / 40000)
    assert rates(instance, [(0, mask(0, 3)), (0, mask(1, 2))])[1] == ideal


@pytest.mark.parametrize(
    "places",
    [
        [(0, ALL), (0, None)],  # more GPUs than the server has: all it has, on either
        [(0, mask(0, 1, 2, 3)), (0, mask(4, 5, 6, 7))],  # fewer than asked for
        [(0, ALL), (0, mask(0, 1, 2))],  # the same GPUs twice
    ],
)
@pytest.mark.parametrize("pattern", ["all-reduce", "pipeline"])
def test_pods_without_one_gpu_a_rank_count_as_one_all_reduce(
    places: list[tuple[int, int | None]], pattern: str
) -> None:
    plain = gang("a", 2, 8)
    one = replace(plain, pattern=pattern)
    one = one if pattern == "pipeline" else parallel(one, tensor=4)
    pods = [PodPlacement(0, i, n, gpus) for i, (n, gpus) in enumerate(places)]
    instance = build(model=v100(), gangs=[one])
    expected = gang_rates(instance, plain, pods, (ALL,))
    assert expected[0]
    assert gang_rates(instance, one, pods, (ALL,)) == expected
    assert dealt_ranks(instance, one, pods, (ALL,)) == {(0, 0): 0, (0, 1): 8}


def test_a_rate_of_nothing_stops_the_gang() -> None:
    one = parallel(gang("a", 2, 8), tensor=8)
    nodes = [node("n01", switched(8, nics=())), node("n02", switched(8, nics=()))]
    assert rates(build(nodes=nodes, gangs=[one]), [(0, ALL), (1, ALL)]) == (0, 0)


@pytest.mark.parametrize(
    ("pattern", "bandwidth"),
    [
        ("all-reduce", F(50000)),
        ("all-gather", F(50000)),
        ("reduce-scatter", F(50000)),
        ("broadcast", F(50000)),
        ("all-to-all", F(6250 * 15, 8)),
        ("parameter-server", F(6250)),
        ("pipeline", F(6250)),
    ],
)
def test_patterns_between_two_servers(pattern: str, bandwidth: Fraction) -> None:
    one = gang("a", 2, 8, pattern=pattern)
    instance = build(nodes_per_rack=2, gangs=[one])
    assert rates(instance, [(0, ALL), (1, ALL)]) == (bandwidth, bandwidth)


def test_parameter_servers_prefer_servers_with_more_nics() -> None:
    one = gang("a", 2, 8, pattern="parameter-server")
    rich = tuple(Nic(f"eth{i}", 400_000) for i in range(4))
    nodes = [node(f"n0{i}", switched(8)) for i in (1, 2)]
    nodes += [node(f"n0{i}", switched(8, nics=rich, name="rich")) for i in (3, 4)]
    instance = build(nodes=nodes, gangs=[one])
    assert rates(instance, [(0, ALL), (1, ALL)]) == (6250, 25000)
    assert rates(instance, [(2, ALL), (3, ALL)]) == (25000, 25000)
