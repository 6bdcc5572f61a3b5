"""The exhaustive planner against plans and values worked out by hand.

Switched servers: inside 18 x 20,600 = 370,800 MB/s; one NIC of 400 Gbit/s: N = 50,000 MB/s.
DGX-1 V100: double links (0-3, 1-2, 1-5, 2-3, ...) 40,000, single links (0-1, 0-2, ...) 20,000 MB/s.
"""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction

import pytest
from building import build, gang, mask, node, role
from building_servers import nvl, switched, v100
from effort import examples, first_fast
from exhaustive import Best, plan
from exhaustive_choosing import Choosing
from exhaustive_footing import Footing
from exhaustive_values import tier_values
from tiny import tiny
from tiny_draws import FEATURES

from models.documents.policy import Objective
from models.instance.instance import Instance
from models.instance.solution import GangDecision, PodPlacement


def decisions(instance: Instance) -> dict[str, str]:
    """Decision by gang name."""
    best = plan(instance)
    return {g.name: d.decision for g, d in zip(instance.gangs, best.decisions, strict=True)}


def value(best: Best, tier: str) -> int:
    return dict(best.tiers)[tier]


def test_one_gang_fills_one_switched_server() -> None:
    best = plan(build(gangs=[gang("a", pods=2, gpus_per_pod=4, submitted=7200)]))
    # w = 8; T - submittedAt = 0; share 1000 of 8 GPUs; nothing is left to strand.
    assert best.tiers == (
        ("admission/0", 8),
        ("waiting/0", 0),
        ("disruption", 0),
        ("preference", 0),
        ("bandwidth", 8000),
        ("span", 0),
        ("stranded", 0),
    )
    assert best.decisions == (
        GangDecision("place", (PodPlacement(0, 0, 0, 0b1111), PodPlacement(0, 1, 0, 0b11110000))),
    )


def test_of_two_gangs_of_one_size_the_older_goes_first() -> None:
    older = gang("b", gpus_per_pod=8, submitted=1000)
    instance = build(gangs=[gang("a", gpus_per_pod=8, submitted=4600), older])
    assert decisions(instance) == {"a": "wait", "b": "place"}
    # 8 GPUs x (4600 - 1000) s
    assert value(plan(instance), "waiting/0") == 28800


def test_a_small_gang_of_high_priority_keeps_out_a_large_one() -> None:
    instance = build(gangs=[gang("a", gpus_per_pod=8), gang("b", gpus_per_pod=1, priority=5)])
    best = plan(instance)
    assert decisions(instance) == {"a": "wait", "b": "place"}
    assert [name for name, _ in best.tiers[:4]] == [
        "admission/5",
        "waiting/5",
        "admission/0",
        "waiting/0",
    ]
    assert value(best, "admission/5") == 1


@pytest.mark.parametrize(
    ("held", "pair", "share"),
    [
        ((4, 5, 6, 7, 2), {0, 3}, 1000),  # of 0, 1, 3 only 0-3 has two links
        ((2, 3, 4, 6, 7), {1, 5}, 1000),  # of 0, 1, 5 only 1-5 has two links
        ((2, 3, 4, 5, 7), {0, 1}, 500),  # of 0, 1, 6: 0-1 has one link, 6 is across the sockets
        ((1, 2, 3, 4, 6, 7), {0, 5}, 200),  # across the sockets: min(10,000, 0.8 x 10,000)
    ],
)
def test_a_pair_takes_the_best_links_a_mesh_has_left(
    held: tuple[int, ...], pair: set[int], share: int
) -> None:
    nodes = [node("n", v100(), unhealthy=held)]
    best = plan(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=2)]))
    (pod,) = best.decisions[0].pods
    assert value(best, "bandwidth") == 2 * share
    assert pod.gpus == mask(*pair)


def test_two_pairs_share_a_quad_without_spoiling_each_other() -> None:
    # Of 0-3: the double links are 0-3, 1-2, 2-3; taking 2-3 first would leave 0-1 with one link.
    nodes = [node("n", v100(), unhealthy=(4, 5, 6, 7))]
    best = plan(build(nodes=nodes, gangs=[gang("a", gpus_per_pod=2), gang("b", gpus_per_pod=2)]))
    assert value(best, "bandwidth") == 2 * 1000 + 2 * 1000
    assert {d.pods[0].gpus for d in best.decisions} == {mask(0, 3), mask(1, 2)}


def test_oversubscription_of_a_crossed_level_divides_the_network() -> None:
    best = plan(
        build(
            racks=2, oversubscription=(4, 2), gangs=[gang("a", pods=2, gpus_per_pod=8)], mix={8: 1}
        )
    )
    # Racks differ, the block is one: B = min(370,800, 50,000 / 2); ideal = min(370,800, 50,000).
    assert value(best, "bandwidth") == 16 * 500
    # node: (2 - 1) x 1, rack: (2 - 1) x 4, block: 0
    assert value(best, "span") == 16 * 5


@pytest.mark.parametrize(("racks", "per_rack", "share"), [(1, 2, 1000), (2, 1, 69)])
def test_an_nvlink_domain_counts_as_one_server(racks: int, per_rack: int, share: int) -> None:
    best = plan(
        build(
            racks=racks,
            nodes_per_rack=per_rack,
            model=nvl(4, domain_nodes=3),
            nvlink="rack",
            gangs=[gang("a", pods=2, gpus_per_pod=4)],
        )
    )
    # 8 GPUs <= 4 x 3: ideal 18 x 40,100 = 721,800; two domains: 50,000 / 721,800 = 0.0692...
    assert value(best, "bandwidth") == 8 * share


def test_stranded_counts_small_slots_and_whole_servers() -> None:
    best = plan(build(nodes_per_rack=2, gangs=[gang("a", gpus_per_pod=3)], mix={4: 600, 16: 400}))
    # 5 + 8 GPUs are left. Size 4: 1 + 2 fit, 13 - 12 = 1. Size 16: two whole servers of one rack
    # (16 installed), one is left: 13 - 0.
    assert value(best, "stranded") == 600 * 1 + 400 * 13


def test_stranded_takes_the_whole_cluster_where_no_domain_is_large_enough() -> None:
    best = plan(build(racks=2, blocks=2, gangs=[], mix={32: 1000}))
    # Four servers in four racks of two blocks: 16 installed a block, so the cluster: 4 / 4 = 1 fits.
    assert value(best, "stranded") == 0


@pytest.mark.parametrize(
    ("uncounted", "span"),
    [
        ((), 16 * (1 + 4 + 16)),  # two nodes, two racks, two blocks
        (
            ("rack",),
            16 * (1 + 4),
        ),  # the next wider level takes the place of one that is not counted
        (("block",), 16 * (1 + 4)),
        (("block", "rack"), 16 * 1),
    ],
)
def test_levels_that_only_rules_name_have_no_weight(uncounted: tuple[str, ...], span: int) -> None:
    instance = build(blocks=2, gangs=[gang("a", pods=2, gpus_per_pod=8)])
    levels = tuple(
        replace(level, counted=level.name not in uncounted) for level in instance.cluster.levels
    )
    cluster = replace(instance.cluster, levels=levels)
    assert value(plan(replace(instance, cluster=cluster)), "span") == span


def test_preference_adds_the_gang_and_each_role() -> None:
    roles = [role("head", gpus_per_pod=0, prefer="node"), role("worker", 2, 8, prefer="rack")]
    best = plan(build(racks=2, gangs=[gang("a", roles=roles, prefer="block")]))
    # The gang is in one block: 16. The head is on one node: 1. The workers are in two racks: 0.
    assert value(best, "preference") == 17


def test_a_broken_gang_is_completed_rather_than_a_small_one_started() -> None:
    broken = gang("a", pods=3, gpus_per_pod=1, stands=[(0, 0, 0, 1), (0, 2, 0, 2)])
    instance = build(gpus=3, gangs=[broken, gang("b", gpus_per_pod=1, submitted=0)])
    assert decisions(instance) == {"a": "complete", "b": "wait"}
    assert value(plan(instance), "admission/0") == 3


def test_a_broken_gang_without_room_is_kept_and_not_admitted() -> None:
    broken = gang("a", pods=3, gpus_per_pod=2, stands=[(0, 0, 0, 3)])
    instance = build(gpus=4, gangs=[broken])
    best = plan(instance)
    assert decisions(instance) == {"a": "keep"}
    assert best.decisions[0].reason is not None
    assert best.decisions[0].reason.code == "Incomplete"
    assert value(best, "admission/0") == 0


def test_gpus_that_nobody_named_are_priced_at_the_worst() -> None:
    runs = gang("r", gpus_per_pod=2, stands=[(0, 0, 0, None)])
    instance = build(model=v100(), gangs=[runs, gang("a", gpus_per_pod=2)])
    best = plan(instance)
    # The worst pair crosses the sockets: min(10,000, 0.8 x 10,000) = 8,000 of 40,000, for both.
    assert value(best, "bandwidth") == 2 * 200 + 2 * 200
    assert best.decisions[0].pods == (PodPlacement(0, 0, 0, None),)


def test_no_more_gpus_are_given_than_are_surely_free() -> None:
    # 8 healthy - 1 known - 3 unknown = 4 may be given.
    runs = [
        gang("r1", gpus_per_pod=2, stands=[(0, 0, 0, None)]),
        gang("r2", gpus_per_pod=1, stands=[(0, 0, 0, 1)]),
    ]
    nodes = [node("n", switched(8), unknown_unhealthy=1)]
    fits = build(nodes=nodes, gangs=[*runs, gang("a", pods=4)])
    assert decisions(fits)["a"] == "place"
    assert decisions(build(nodes=nodes, gangs=[*runs, gang("a", pods=5)]))["a"] == "wait"
    # 8 - 1 - 3 - 4 = 0 left
    assert value(plan(fits), "stranded") == 0


@pytest.mark.parametrize(("least", "decision"), [("0.5", "place"), ("0.501", "wait")])
def test_a_gang_waits_rather_than_run_below_its_least_share(least: str, decision: str) -> None:
    nodes = [node("n", v100(), unhealthy=(2, 3, 4, 5, 7))]  # 0-1: one link of two
    instance = build(nodes=nodes, gangs=[gang("a", gpus_per_pod=2, min_share=Fraction(least))])
    assert decisions(instance) == {"a": decision}


def test_a_running_elastic_gang_counts_its_growth() -> None:
    roles = [role("worker", 1, 2, most=3)]
    grown = gang("a", roles=roles, stands=[(0, i, 0, 3 << 2 * i) for i in range(3)], movable=True)
    best = plan(build(gangs=[grown]))
    # Three pods of two GPUs, min one: w = 2, growth 4; kept because it could shrink: 6.
    assert value(best, "kept/0") == 6
    assert value(best, "admission/0") == 2
    assert value(best, "growth/0") == 4
    assert value(best, "bandwidth") == 2 * 1000


def test_where_the_node_chooses_a_mesh_gives_its_worst_set() -> None:
    instance = build(model=v100(), binding="none", gangs=[gang("a", gpus_per_pod=2)])
    best = plan(instance)
    assert best.decisions[0].pods == (PodPlacement(0, 0, 0, None),)
    assert value(best, "bandwidth") == 2 * 200


def test_the_order_of_the_objectives_decides() -> None:
    # A gang of 12 over two servers costs span 12; leaving it waiting costs nothing.
    gangs = [gang("a", pods=3, gpus_per_pod=4)]
    first = build(nodes_per_rack=2, gangs=gangs, objectives=("admission", "span"))
    second = build(nodes_per_rack=2, gangs=gangs, objectives=("span", "admission"))
    assert plan(first).tiers == (("admission/0", 12), ("span", 12))
    assert plan(second).tiers == (("span", 0), ("admission/0", 0))


def test_tolerances_are_refused() -> None:
    instance = build()
    policy = replace(instance.policy, objectives=(Objective("admission", Fraction(1, 10)),))
    with pytest.raises(ValueError, match="tolerances"):
        plan(replace(instance, policy=policy))


SMALL = ("resources", "own_nics", "mixed", "cpu_nodes")


def unpruned(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is dropped any more, and no two rooms are the same."""
    monkeypatch.setattr("exhaustive_sameness.Sameness.key", lambda _, state: state)
    monkeypatch.setattr("exhaustive_sameness.Sameness.left", lambda _self, _n, left: left)
    monkeypatch.setattr(Footing, "_last_key", lambda _self, state: state)
    monkeypatch.setattr(Footing, "_leaders", lambda _self, entries, _rest, _known: entries)
    monkeypatch.setattr(Footing, "bound", lambda self: (10**15,) * len(self.scale.names))
    everything = Choosing._sets
    monkeypatch.setattr(
        Choosing,
        "_sets",
        lambda self, n, free, count, own, _: everything(
            self, n, free, count, own, (True, True, True)
        ),
    )


@pytest.mark.parametrize("seed", first_fast([1, 3, 6, 8, 11, 15, 16, 17, 22, 28, 30, 33], 4))
def test_what_is_pruned_changes_no_value(seed: int, monkeypatch: pytest.MonkeyPatch) -> None:
    instance = tiny(seed, without=SMALL)
    pruned = plan(instance)
    unpruned(monkeypatch)
    assert plan(instance).tiers == pruned.tiers


def test_the_generator_is_deterministic_and_its_features_can_be_switched_off() -> None:
    assert tiny(5) == tiny(5)
    plain = tiny(5, without=FEATURES)
    assert not plain.cluster.levels
    assert not any(g.running for g in plain.gangs)
    with pytest.raises(ValueError, match="no such feature"):
        tiny(5, without=("color",))


def test_most_tiny_instances_are_contended() -> None:
    both, tried = 0, examples(100, 16)
    for seed in range(tried):
        instance = tiny(seed)
        kinds = set(decisions(instance).values())
        both += {"wait", "place"} <= kinds
    assert both >= tried // 2


def test_a_plan_is_valued_the_same_whoever_made_it() -> None:
    instance = build(gangs=[gang("a", pods=2, gpus_per_pod=4)], nodes_per_rack=2, mix={8: 1000})
    apart = (GangDecision("place", (PodPlacement(0, 0, 0, 15), PodPlacement(0, 1, 1, 15))),)
    values = dict(tier_values(instance, apart))
    # Two servers: min(370,800, 50,000) of the 370,800 that one server would give: 134 permille.
    assert values["bandwidth"] == 8 * 134
    assert values["span"] == 8
    assert values["stranded"] == 8 * 1000
    # Together instead: nothing lost.
    assert value(plan(instance), "stranded") == 0
