"""Ranks dealt to pods: the best order where there are few, never worse than consecutive ones otherwise."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import permutations
from typing import Any

import pytest
from building import build, gang, mask, node, parallel
from building_servers import nvl, switched, v100
from effort import examples
from hypothesis import given, settings
from hypothesis import strategies as st

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.instance.solution import PodPlacement
from models.program.rules.bandwidth_carriers import GroupBounds
from models.rates.gang_rates import own_sets
from models.rates.group_bandwidth import EXPERT, TENSOR, GroupRates, Place, role_kinds
from models.rates.nic_bandwidth import nics_MBps
from models.rates.ranks import Dealt, deal

Pods = list[PodPlacement]


def at(*nodes: int, gpus: int = 8) -> Pods:
    """Pods of a role on these nodes, with the lowest GPUs left of each."""
    used: dict[int, int] = {}
    pods = []
    for index, n in enumerate(nodes):
        first = used.get(n, 0)
        used[n] = first + gpus
        pods.append(PodPlacement(0, index, n, mask(*range(first, first + gpus))))
    return pods


def dealt(instance: Instance, pods: Pods) -> Dealt:
    one = instance.gangs[0]
    return deal(instance.cluster, one, 0, pods, own_sets(instance, one, pods, ()))


def standing(one: Gang, pods: Pods, ranks: list[int | None]) -> Gang:
    found = replace(
        gang("x", len(pods), 8, stands=[(0, p.index, p.node, p.gpus) for p in pods]),
        roles=one.roles,
    )
    known = zip(found.pods, ranks, strict=True)
    return replace(found, pods=tuple(replace(pod, rank=rank) for pod, rank in known))


@pytest.mark.parametrize(
    ("ranks", "order"),
    [
        ([0, 8], [0, 1, 2, 3]),  # pod 0 and 1 keep theirs; 2 is the first of the others
        (
            [8, 24],
            [2, 0, 3, 1],
        ),  # ranks 0 and 16 are left: pod 2 is beside pod 0, in the first rack
        ([None, None], [0, 1, 2, 3]),
        ([8, 8], [0, 1, 2, 3]),  # ranks that cannot be: all consecutive
        ([8, 40], [0, 1, 2, 3]),
    ],
)
def test_pods_that_stay_keep_their_ranks(ranks: list[int | None], order: list[int]) -> None:
    # pods 0, 2 are in rack 1 and 1, 3 in rack 2; two replicas of two stages
    one = parallel(gang("a", 4, 8), tensor=8, pipeline=2)
    pods = at(0, 2, 1, 3)
    instance = build(
        racks=2,
        nodes_per_rack=2,
        oversubscription=(1, 4),
        gangs=[standing(one, pods[:2], ranks)],
    )
    assert [pod.index for pod in dealt(instance, pods).pods] == order


DEGREES = [
    {"tensor": 2},
    {"tensor": 4},
    {"pipeline": 2},
    {"pipeline": 4},
    {"tensor": 2, "pipeline": 2},
    {"expert": 4},
    {"context": 2},
    {"tensor": 2, "context": 2},
    {"expert": 2, "pipeline": 2},
]


@st.composite
def placed(draw: st.DrawFn, most: int) -> tuple[Instance, Pods]:
    """A gang of 2 GPUs a pod with its pods anywhere in a small cluster."""
    count = draw(st.sampled_from([n for n in (4, 6, 8, 12, 16) if n <= most]))
    fits = [d for d in DEGREES if not _odd(2 * count, d)]
    degrees = draw(st.sampled_from(fits))
    model = draw(st.sampled_from([switched(8), v100(), nvl(4, 2)]))
    racks = draw(st.integers(1, 3))
    room = model.gpus // 2
    size = max(1, -(-count // (room * racks))) + draw(st.integers(0, 2))
    nodes = [node(f"n{i:02}", model, f"b{i % 2}", f"r{i % racks}") for i in range(size * racks)]
    one = parallel(gang("a", count, 2), **degrees)
    over = draw(st.sampled_from([(1, 1), (2, 1), (1, 4), (2, 3)]))
    nvlink = "rack" if model.nvlink_domain_nodes > 1 else None
    instance = build(nodes=nodes, gangs=[one], oversubscription=over, nvlink=nvlink)
    slots = draw(st.permutations([n for n in range(len(nodes)) for _ in range(room)]))
    return instance, at(*slots[:count], gpus=2)


def _odd(gpus: int, degrees: dict[str, int]) -> bool:
    found: dict[str, Any] = {"tensor": 1, "pipeline": 1, "expert": 1, "context": 1} | degrees
    replica = found["tensor"] * found["pipeline"] * found["context"]
    return bool(gpus % replica or gpus // replica * found["context"] % found["expert"])


def worth(rates: GroupRates, order: tuple[int, ...]) -> tuple[int, int, Fraction]:
    return rates.split(TENSOR, order), rates.split(EXPERT, order), -rates.bandwidth(order)


@settings(max_examples=examples(400, 40), deadline=None)
@given(placed(most=4))
def test_few_pods_have_the_best_of_all_orders(drawn: tuple[Instance, Pods]) -> None:
    instance, pods = drawn
    found = dealt(instance, pods)
    assert found.rates is not None
    every = permutations(range(len(pods)))
    assert worth(found.rates, found.order) == min(worth(found.rates, order) for order in every)


@settings(max_examples=examples(400, 40), deadline=None)
@given(placed(most=16))
def test_ranks_are_never_worse_than_consecutive_ones(drawn: tuple[Instance, Pods]) -> None:
    instance, pods = drawn
    found = dealt(instance, pods)
    assert found.rates is not None
    assert worth(found.rates, found.order) <= worth(found.rates, tuple(range(len(pods))))
    assert sorted(found.order) == list(range(len(pods)))


@settings(max_examples=examples(400, 40), deadline=None)
@given(placed(most=8))
def test_the_program_never_bounds_a_gang_below_its_bandwidth(drawn: tuple[Instance, Pods]) -> None:
    instance, pods = drawn
    one = replace(instance.gangs[0], nvlink_across_nodes=False)
    instance = replace(instance, gangs=(one,))
    cluster = instance.cluster
    sets = own_sets(instance, one, pods, ())
    kinds = role_kinds(one, one.roles[0], len(pods))
    assert kinds is not None
    servers = []
    for n, chosen in sets.items():
        model = cluster.nodes[n].model
        assert model is not None
        servers.append((model, nics_MBps(model, model.nics, chosen.known), chosen.count))
    bounds = GroupBounds(one.roles[0], kinds, servers)
    places = [Place.of(pod.node, pod.gpus) for pod in pods]
    rates = GroupRates(cluster, places, sets, kinds, 2, joined=False)
    over = max(
        (
            level.oversubscription
            for level, of in zip(cluster.levels, cluster.domain_of[:-1], strict=True)
            if len({of[n] for n in sets}) > 1
        ),
        default=Fraction(1),
    )
    if len(sets) > 1:
        limit = min(bounds.across(network, own, over) for _, network, own in servers)
        assert dealt(instance, pods).rates is not None
        assert rates.bandwidth(dealt(instance, pods).order) <= limit
