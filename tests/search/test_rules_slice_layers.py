"""Slices around slices: every layer holds, in the search, in the judge, whatever index they begin at."""

from __future__ import annotations

import json
from typing import Any

import pytest
from building import LEVELS, build, gang, node, role
from building_servers import switched
from bundles import read_all
from outcomes import NOW, planned
from plan_documents import Doc, entry, restated

from models.instance.cluster import Node
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check
from planner.errors import InputError
from planner.search.solve import solve


def servers(blocks: list[list[list[int]]]) -> list[Node]:
    """Servers of so many GPUs, by rack, by block."""
    return [
        node(f"n{b}{r}{i}", switched(gpus), f"b{b}", f"r{r}")
        for b, racks in enumerate(blocks)
        for r, here in enumerate(racks)
        for i, gpus in enumerate(here)
    ]


def domains_of(instance: Instance, sizes: list[tuple[int, str]]) -> list[int]:
    """For each (size, level): the most domains that a slice of gang a uses."""
    outcome = planned(instance, small=len(instance.cluster.nodes) < 6)
    assert outcome.decision("a") == "place"
    most = []
    for size, level in sizes:
        of = instance.cluster.domain_of[LEVELS.index(level)]
        used: dict[int, set[int]] = {}
        for pod in outcome.of("a").pods:
            used.setdefault(pod.index // size, set()).add(of[pod.node])
        most.append(max(len(found) for found in used.values()))
    return most


# first index, pods, inner slice, outer slices, servers: they just fit
FIT = [
    # slices of two in a rack, pairs of them in a block
    (0, 8, (2, "rack"), [(4, "block")], [[[2], [2]], [[2], [2]]]),
    (0, 8, (2, "rack"), [(4, "block")], [[[3], [3]], [[1], [1], [4]]]),
    # the short last one: 0-1 2-3 | 4-5 6
    (0, 7, (2, "rack"), [(4, "block")], [[[2], [2]], [[2], [1]]]),
    # 1 | 2-3, 4-5 6-7, 8: blocks take 1-3, 4-7, 8
    (1, 8, (2, "rack"), [(4, "block")], [[[1], [2]], [[2], [2]], [[1]]]),
    # 3 | 4-5 6-7 | 8: 3 and 8 in one block
    (3, 6, (2, "rack"), [(4, "block")], [[[1], [1]], [[4]]]),
    # all in one outer slice, short at both ends: 1, 2-3, 4
    (1, 4, (2, "rack"), [(8, "block")], [[[1], [2], [1]]]),
    # at the node
    (0, 8, (2, "node"), [(4, "rack")], [[[2, 2]], [[2, 2]]]),
    (0, 8, (2, "node"), [(4, "rack")], [[[3, 3], [4]]]),
    (1, 7, (2, "node"), [(4, "rack")], [[[1, 2], [2, 2]]]),
    # 1, 2-3 | 4-5, 6-7 | 8: two short ones at the node
    (1, 8, (2, "node"), [(4, "rack")], [[[1, 2], [2, 2], [1]]]),
    (1, 8, (2, "node"), [(4, "rack")], [[[2, 2], [4]]]),
    # three layers
    (0, 8, (1, "node"), [(2, "rack"), (4, "block")], [[[1, 1], [2]], [[2], [1, 1]]]),
    (0, 8, (2, "node"), [(4, "rack"), (8, "block")], [[[2, 2], [2, 2]]]),
    (3, 8, (2, "node"), [(4, "rack"), (8, "block")], [[[1], [2, 2]], [[2, 1]]]),
]


@pytest.mark.parametrize(("first", "pods", "inner", "outer", "blocks"), FIT, ids=str)
def test_every_layer_holds_where_it_just_fits(
    first: int,
    pods: int,
    inner: tuple[int, str],
    outer: list[tuple[int, str]],
    blocks: list[list[list[int]]],
) -> None:
    workers = role(pods=pods, slices=inner, outer=outer, first=first)
    instance = build(nodes=servers(blocks), gangs=[gang("a", roles=[workers])])
    assert domains_of(instance, [inner, *outer]) == [1] * (1 + len(outer))


TORN = [
    # each slice of two has a rack, but a pair of them has no block
    (0, 8, (2, "rack"), [(4, "block")], [[[2], [2], [2]], [[2]]]),
    # a block for each pair, but its racks tear slices
    (0, 8, (2, "rack"), [(4, "block")], [[[3], [1]], [[2], [2]]]),
    # 1 | 2-3 of one block: the short one must not stand elsewhere
    (1, 7, (2, "rack"), [(4, "block")], [[[2]], [[2], [2], [1]]]),
    (0, 8, (2, "node"), [(4, "rack")], [[[2, 2, 2], [2]]]),
    # 1, 2-3 | 4-5, 6-7 | 8
    (1, 8, (2, "node"), [(4, "rack")], [[[2], [2], [2], [1, 1]]]),
    (0, 8, (1, "node"), [(2, "rack"), (4, "block")], [[[1, 1], [2], [2]], [[2]]]),
]


@pytest.mark.parametrize(("first", "pods", "inner", "outer", "blocks"), TORN, ids=str)
def test_a_gang_waits_where_some_layer_would_be_torn(
    first: int,
    pods: int,
    inner: tuple[int, str],
    outer: list[tuple[int, str]],
    blocks: list[list[list[int]]],
) -> None:
    workers = role(pods=pods, slices=inner, outer=outer, first=first)
    instance = build(nodes=servers(blocks), gangs=[gang("a", roles=[workers])])
    assert planned(instance).decision("a") == "wait"
    # without the outer layers it would start
    alone = role(pods=pods, slices=inner, first=first)
    torn_inside = blocks == [[[3], [1]], [[2], [2]]]
    free = planned(build(nodes=servers(blocks), gangs=[gang("a", roles=[alone])]))
    assert free.decision("a") == ("wait" if torn_inside else "place")


def test_the_judge_finds_each_torn_layer() -> None:
    nodes = servers([[[2], [2]], [[2], [2]]])
    workers = role(pods=4, slices=(1, "node"), outer=[(2, "rack"), (4, "block")])
    solution_of = build(nodes=nodes, gangs=[gang("a", roles=[workers])])
    plan: Doc = json.loads(
        json.dumps(
            compose(
                solution_of, solve(solution_of), name="p", created_at=NOW, generator="gangplan test"
            )
        )
    )
    assert check(plan) == []

    def moved(*where: str) -> list[str]:
        torn = json.loads(json.dumps(plan))
        taken: dict[str, int] = {}
        for pod, place in zip(entry(torn, "a")["pods"], where, strict=True):
            pod.update(node=place, gpus=[taken.get(place, 0)])
            taken[place] = taken.get(place, 0) + 1
        return [f"{v.rule}: {v.message}" for v in check(restated(torn))]

    assert moved("n000", "n000", "n010", "n010") == []
    assert moved("n000", "n010", "n000", "n010") == [
        "slice: slice 0 of role worker must stay in one rack, uses 2",
        "slice: slice 1 of role worker must stay in one rack, uses 2",
    ]
    assert moved("n000", "n000", "n100", "n100") == [
        "slice: slice 0 of role worker must stay in one block, uses 2"
    ]


def read_role(more: dict[str, Any]) -> Instance:
    documents = [
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Cluster",
            "metadata": {"name": "c"},
            "spec": {"levels": [{"name": "block"}, {"name": "rack"}], "nodes": [{"name": "n"}]},
        },
        {
            "apiVersion": "gangplan.dev/v1alpha1",
            "kind": "Gang",
            "metadata": {"name": "a"},
            "spec": {"roles": [{"name": "w", "replicas": 8, "gpus": 1, **more}]},
        },
    ]
    return read_all(documents)


INNER = {"size": 2, "required": "node"}


@pytest.mark.parametrize(
    ("more", "what"),
    [
        ({"outerSlices": [{"size": 4, "required": "rack"}]}, "outer slices without `slice`"),
        (
            {"slice": INNER, "outerSlices": [{"size": 5, "required": "rack"}]},
            "slices of 5 pods around slices of 2",
        ),
        (
            {"slice": INNER, "outerSlices": [{"size": 2, "required": "rack"}]},
            "slices of 2 pods around slices of 2",
        ),
        (
            {"slice": INNER, "outerSlices": [{"size": 4, "required": "node"}]},
            "level 'node' is not wider than 'node'",
        ),
        (
            {
                "slice": {"size": 2, "required": "block"},
                "outerSlices": [{"size": 4, "required": "rack"}],
            },
            "level 'rack' is not wider than 'block'",
        ),
        ({"slice": INNER, "outerSlices": [{"size": 4, "required": "row"}]}, "unknown level 'row'"),
    ],
)
def test_layers_that_do_not_nest_are_refused(more: dict[str, Any], what: str) -> None:
    with pytest.raises(InputError) as caught:
        read_role(more)
    (fault,) = caught.value.faults
    assert what in fault.what
    assert fault.hint


@pytest.mark.parametrize(
    "bad", [1, [1], [{}], [{"size": 0, "required": "rack"}], [{"size": 4, "required": "row"}]]
)
def test_the_judge_takes_no_other_layers(bad: object) -> None:
    instance = build(gangs=[gang("a", roles=[role(pods=4, slices=(2, "rack"))])])
    plan = compose(instance, solve(instance), name="p", created_at=NOW, generator="gangplan test")
    plan["instance"]["gangs"][0]["spec"]["roles"][0]["outerSlices"] = bad
    assert {violation.rule for violation in check(plan)} & {"form", "reference"}
