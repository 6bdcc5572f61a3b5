"""Rule 4: `required` for gang and role, slices; and what `preferred` asks for.

Each rule: what just fits is placed, one more is not.
"""

from __future__ import annotations

import pytest
from building import build, gang, node, role
from building_servers import switched
from outcomes import planned


@pytest.mark.parametrize(
    ("level", "fits"), [("node", 2), ("rack", 4), ("block", 8)], ids=["node", "rack", "block"]
)
def test_required_rule_allows_a_full_domain_and_forbids_one_pod_more(level: str, fits: int) -> None:
    # Two blocks of two racks of two servers of two GPUs.
    def cluster(pods: int) -> dict[str, str]:
        gangs = [gang("a", pods=pods, same=level)]
        instance = build(blocks=2, racks=2, nodes_per_rack=2, gpus=2, gangs=gangs)
        outcome = planned(instance, small=False)
        if outcome.decision("a") == "place":
            assert outcome.domains("a", level) == 1
        return outcome.decisions()

    assert cluster(fits) == {"a": "place"}
    assert cluster(fits + 1) == {"a": "wait"}


def test_required_rule_is_named_when_it_is_what_keeps_a_gang_waiting() -> None:
    gangs = [gang("a", pods=2, gpus_per_pod=8, same="rack")]
    outcome = planned(build(racks=2, nodes_per_rack=1, gangs=gangs))
    assert outcome.decision("a") == "wait"
    assert outcome.reason("a") == "Never"
    sick = [node(f"n{i}", switched(), rack=f"r{i // 2}", unhealthy=[i % 2 * 7]) for i in range(4)]
    assert planned(build(nodes=sick, gangs=gangs)).reason("a") == "NoRoom"
    sick = [node(f"n{i}", switched(), rack=f"r{i // 2}", unhealthy=[7] * (i % 2)) for i in range(4)]
    assert planned(build(nodes=sick, gangs=gangs)).reason("a") == "RequiredTopology"


def test_required_rule_binds_pods_without_gpus() -> None:
    # Workers fill the only server of r1 that has GPUs; the head must stay in r1 and has no cpu there.
    nodes = [
        node("n1", switched(2), rack="r1", allocatable={"cpu": 1000}),
        node("n2", None, rack="r2", allocatable={"cpu": 9000}),
    ]
    roles = [role("head", gpus_per_pod=0, requests={"cpu": 2000}), role("worker", 2, 1)]
    bound = build(nodes=nodes, gangs=[gang("a", roles=roles, same="rack")])
    assert planned(bound).decision("a") == "wait"
    loose = build(nodes=nodes, gangs=[gang("a", roles=roles, same="block")])
    assert planned(loose).nodes("a") == ["n2", "n1", "n1"]


def test_required_rule_of_a_role_leaves_other_roles_free() -> None:
    nodes = [node(f"n{i}", switched(2), rack=f"r{i}") for i in (1, 2)]
    roles = [role("worker", 2, 1, same="node"), role("server", 2, 1, same="rack")]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", roles=roles)]))
    assert outcome.decision("a") == "place"
    first, second, third, fourth = outcome.nodes("a")
    assert first == second != third == fourth
    both = [gang("a", roles=roles, same="rack")]
    assert planned(build(nodes=nodes, gangs=both)).decision("a") == "wait"


def test_a_rack_is_known_by_its_whole_path() -> None:
    # b1/r1 and b2/r1 share a short name and nothing else.
    nodes = [node("n1", switched(2), "b1", "r1"), node("n2", switched(2), "b2", "r1")]
    gangs = [gang("a", pods=4, same="rack")]
    assert planned(build(nodes=nodes, gangs=gangs)).decision("a") == "wait"


@pytest.mark.parametrize(("block", "rack"), [("b1", None), (None, "r1"), (None, None)])
def test_a_node_without_a_value_at_a_level_is_alone_from_there_inwards(
    block: str | None, rack: str | None
) -> None:
    nodes = [node(f"n{i}", switched(2), block, rack) for i in (1, 2)]
    for pods, decision in ((2, "place"), (3, "wait")):
        gangs = [gang("a", pods=pods, same="rack")]
        assert planned(build(nodes=nodes, gangs=gangs)).decision("a") == decision
    in_block = planned(build(nodes=nodes, gangs=[gang("a", pods=3, same="block")]))
    assert in_block.decision("a") == ("place" if block else "wait")


def test_slice_rule_allows_slices_that_fill_their_domains() -> None:
    # Slices of three pods in a rack of three GPUs each.
    nodes = [node("n1", switched(3), rack="r1"), node("n2", switched(3), rack="r2")]
    outcome = planned(build(nodes=nodes, gangs=[gang("a", pods=6, slices=(3, "rack"))]))
    first, second = outcome.nodes("a")[:3], outcome.nodes("a")[3:]
    assert len(set(first)) == len(set(second)) == 1


def test_slice_rule_forbids_a_slice_split_over_two_domains() -> None:
    # Four and two GPUs hold six pods, but not two slices of three.
    nodes = [node("n1", switched(4), rack="r1"), node("n2", switched(2), rack="r2")]
    assert (
        planned(build(nodes=nodes, gangs=[gang("a", pods=6, slices=(3, "rack"))])).decision("a")
        == "wait"
    )
    assert planned(build(nodes=nodes, gangs=[gang("a", pods=6)])).decision("a") == "place"


def test_slice_rule_binds_the_short_last_slice_too() -> None:
    # Slices of three in five pods: 3 + 2. Servers of 3, 1, 1 GPUs: the last two pods stay apart.
    nodes = [node("n1", switched(3)), node("n2", switched(1)), node("n3", switched(1))]
    short = build(nodes=nodes, gangs=[gang("a", pods=5, slices=(3, "node"))])
    assert planned(short).decision("a") == "wait"
    nodes[1] = node("n2", switched(2))
    fits = planned(build(nodes=nodes, gangs=[gang("a", pods=5, slices=(3, "node"))]))
    assert fits.nodes("a") == ["n1", "n1", "n1", "n2", "n2"]


def test_slice_rule_and_required_rule_hold_together() -> None:
    # Two slices of two nodes' worth each, all in one block: b1 has only one such rack.
    nodes = [
        node("n1", switched(2), "b1", "r1"),
        node("n2", switched(1), "b1", "r2"),
        node("n3", switched(1), "b1", "r3"),
        node("n4", switched(2), "b2", "r1"),
    ]
    bound = [gang("a", pods=4, slices=(2, "rack"), same="block")]
    assert planned(build(nodes=nodes, gangs=bound)).decision("a") == "wait"
    loose = [gang("a", pods=4, slices=(2, "rack"))]
    assert planned(build(nodes=nodes, gangs=loose)).nodes("a") in (
        ["n1", "n1", "n4", "n4"],
        ["n4", "n4", "n1", "n1"],
    )


def test_preferred_is_kept_when_it_can_be_and_given_up_when_it_cannot() -> None:
    nodes = [node("n1", switched(2), rack="r1"), node("n2", switched(2), rack="r1")]
    nodes += [node("n3", switched(4), rack="r2")]
    kept = planned(build(nodes=nodes, gangs=[gang("a", pods=4, prefer="node")]))
    assert kept.nodes("a") == ["n3"] * 4
    assert kept.value("preference") == 4
    given_up = planned(build(nodes=nodes, gangs=[gang("a", pods=5, prefer="rack")]))
    assert given_up.decision("a") == "place"
    assert given_up.value("preference") == 0


def test_preference_never_keeps_another_gang_waiting() -> None:
    # b needs the whole of n2; a would rather be on one server, which is n2.
    nodes = [node("n1", switched(2)), node("n2", switched(4)), node("n3", switched(2))]
    gangs = [gang("a", pods=4, prefer="node"), gang("b", gpus_per_pod=4)]
    outcome = planned(build(nodes=nodes, gangs=gangs))
    assert outcome.decisions() == {"a": "place", "b": "place"}
    assert outcome.domains("a", "node") == 2
