"""The tiers defragment and stability, on plans small enough to be worked out by hand."""

from __future__ import annotations

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    gang,
    level,
    made,
    node,
    policy,
    role,
    rules_broken,
    sealed,
    standing,
)

from models.verify.check import check, derive


def servers(count: int) -> Doc:
    return cluster([dgx()], [node(f"h{i}", "DGX H100", "b1/r1") for i in range(1, count + 1)])


def objectives(*names: str) -> list[Doc]:
    return [{"name": name, "tolerance": 0} for name in names]


def free(levels: list[Doc], *nodes: Doc, models: list[Doc], held: tuple[str, ...] = ()) -> int:
    """``defragment`` where GPU 0 of some nodes is held."""
    gangs = [gang(f"g{n}", pods=(standing(f"g{n}", n, [0]),)) for n in held]
    decisions = [decided(f"g{n}", "keep", (n, [0])) for n in held]
    rules = policy(objectives=objectives("defragment"))
    plan = made(cluster(models, list(nodes), levels), gangs, decisions, rules)
    assert check(plan) == []
    assert plan["status"]["objectives"][0]["sense"] == "max"
    return derive(plan)["defragment"]


BLOCK, RACK = level("block"), level("rack")


def test_defragment_counts_whole_servers_and_whole_racks_again() -> None:
    four = [node(f"h{i}", "DGX H100", f"b1/r{i // 2}") for i in range(4)]
    assert free([BLOCK, RACK], *four, models=[dgx()]) == 64
    # h0 is not whole: three servers, and the rack of h2 and h3.
    assert free([BLOCK, RACK], *four, models=[dgx()], held=("h0",)) == 24 + 16
    assert free([BLOCK, RACK], *four, models=[dgx()], held=("h0", "h3")) == 16


def planned(*places: tuple[str, int, str]) -> list[Doc]:
    return [{"role": name, "index": i, "node": where} for name, i, where in places]


def stability(status: Doc, stated: Doc, *pods: Doc, **spec: object) -> int:
    wanted = gang(
        "a", role("worker", {"min": 1, "max": 3}, 2), role("lead", 1, 0), pods=pods, **spec
    )
    wanted["status"] |= status
    plan = made(servers(3), [wanted], [stated], policy(objectives=objectives("stability")))
    assert check(plan) == []
    assert plan["status"]["objectives"][0]["sense"] == "min"
    return derive(plan)["stability"]


def with_lead(stated: Doc, where: str) -> Doc:
    lead = {"name": "a-lead-0", "role": "lead", "index": 0, "node": where, "gpus": []}
    return stated | {"pods": [*stated["pods"], lead]}


def test_stability_counts_gpus_that_are_not_where_they_were_planned() -> None:
    two = with_lead(decided("a", "place", ("h1", [0, 1]), ("h2", [0, 1])), "h1")
    assert stability({}, two) == 0
    assert stability({"planned": []}, two) == 0
    there = planned(("worker", 0, "h1"), ("worker", 1, "h2"), ("lead", 0, "h1"))
    assert stability({"planned": there}, two) == 0
    turned = planned(("worker", 0, "h2"), ("worker", 1, "h1"))
    assert stability({"planned": turned}, two) == 4


def test_a_place_that_does_not_exist_is_no_planned_place() -> None:
    place = decided("a", "place", ("h1", [0]))
    for wrong in (("worker", 0, "h9"), ("server", 0, "h1")):
        wanted = gang("a")
        wanted["status"]["planned"] = planned(wrong)
        plan = made(servers(1), [gang("a")], [place])
        plan["instance"]["gangs"] = [wanted]
        assert rules_broken(sealed(plan)) == {"reference"}
    plan["instance"]["gangs"][0]["status"]["planned"] = planned(("worker", 0, "h1")) * 2
    assert rules_broken(sealed(plan)) == {"reference"}
