"""Sabotage of rules 2.19 to 2.21 and of what a free GPU needs: a good plan is changed, one rule is broken.

Two racks of two servers with four GPUs each: n01 and n02 in r1, n03 and n04 in r2. Good plans are those of
the exhaustive planner, so every tier is stated as proven.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
from building import LEVELS, build, gang, role
from building_servers import switched
from exhaustive import plan
from exhaustive_moves import moves_of
from plan_documents import Doc, entry, restated, server

from models.instance.gang import Gang
from models.instance.instance import Instance
from models.results.plan import compose
from models.verify.check import check, derive

NODES = ("n01", "n02", "n03", "n04")
RACK = LEVELS.index("rack")


def racks(*gangs: Gang, **policy: Any) -> Instance:  # noqa: ANN401
    instance = build(racks=2, nodes_per_rack=2, gpus=4, gangs=gangs)
    return replace(instance, policy=replace(instance.policy, **policy))


def best(instance: Instance) -> Doc:
    """The plan of the exhaustive planner, in which the judge finds nothing."""
    found = plan(instance)
    solution = found.solution(moves_of(instance, found))
    document = compose(
        instance, solution, name="p", created_at="2026-11-21T10:00:00Z", generator="test"
    )
    assert check(document) == []
    del document["status"]["unchecked"]  # of what is changed by hand below
    return document


def put(document: Doc, name: str, *places: tuple[str, list[int]]) -> Doc:
    """The plan with the pods of a gang elsewhere, everything restated."""
    stated = entry(document, name)
    first = stated["pods"][0] if stated["pods"] else {"role": "worker", "index": 0}
    stated["pods"] = [
        {**first, "name": f"{name}-worker-{i}", "index": i, "node": node, "gpus": gpus}
        for i, (node, gpus) in enumerate(places)
    ]
    if stated["decision"] == "wait":
        stated.update(decision="place", reason=None)
    return restated(document)


def broken(document: Doc) -> list[tuple[str, str | None]]:
    return [(found.rule, found.gang) for found in check(document)]


@pytest.mark.parametrize(
    ("nodes", "even"),
    [
        ("n01 n01 n02 n03 n03", True),  # 3 + 2
        ("n01 n01 n02 n02 n03", False),  # 4 + 1
        ("n01 n01 n02 n02 n02", True),  # 5 in the only rack
    ],
)
def test_pods_are_shared_evenly_by_the_racks_that_have_any(nodes: str, even: bool) -> None:
    document = best(racks(replace(gang("a", 5, 1), balance=RACK)))
    places = [(node, [i % 4]) for i, node in enumerate(nodes.split())]
    assert broken(put(document, "a", *places)) == ([] if even else [("balance", "default/a")])


@pytest.mark.parametrize(
    ("added", "found"), [("n01", [("balance", "default/a")]), ("n03", []), (None, [])]
)
def test_uneven_pods_may_stay_but_none_may_join_them(
    added: str | None, found: list[tuple[str, str]]
) -> None:
    # 3 + 1 stand, and a launcher without GPUs that does not count.
    roles = [role("worker", 4, 1, most=5), role("launcher", 1, 0)]
    stands = [*((0, i, 0, 1 << i) for i in range(3)), (0, 3, 2, 1), (1, 0, 0, 0)]
    document = best(racks(replace(gang("a", roles=roles, stands=stands), balance=RACK)))
    stated = entry(document, "a")
    pods = {(pod["role"], pod["index"]): pod for pod in stated["pods"]}
    launcher, last = pods["launcher", 0], pods["worker", 3]
    workers = [pods["worker", i] for i in range(4)]
    if added is not None:
        workers.append({**last, "name": "a-worker-4", "index": 4, "node": added, "gpus": [3]})
    stated.update(pods=[*workers, launcher], decision="keep" if added is None else "resize")
    assert broken(restated(document)) == found


def test_a_gang_that_wants_its_rack_alone_is_named_with_the_other() -> None:
    alone = replace(gang("a", 1, 2), exclusive=RACK)
    document = best(racks(alone, gang("b", 1, 2), gang("cpu", roles=[role("launcher", 1, 0)])))
    (a,), (b,) = entry(document, "a")["pods"], entry(document, "b")["pods"]
    racks_of = [{"n01": 1, "n02": 1, "n03": 2, "n04": 2}[pod["node"]] for pod in (a, b)]
    assert racks_of[0] != racks_of[1]
    other = NODES[NODES.index(a["node"]) ^ 1]  # the other node of its rack
    entry(document, "cpu")["pods"][0]["node"] = other
    assert broken(restated(document)) == []
    (found,) = check(put(document, "b", (other, [0, 1])))
    assert (found.rule, found.gang) == ("exclusive", "default/a")
    assert found.message == "must have its rack alone, is there with default/b"


@pytest.mark.parametrize(("grows", "rule"), [("a", True), ("b", True), (None, False)])
def test_what_stands_together_may_stay_but_not_grow_there(grows: str | None, rule: bool) -> None:
    def standing(name: str, node: int) -> Gang:
        return gang(name, roles=[role("worker", 1, 1, most=2)], stands=[(0, 0, node, 1)])

    document = best(racks(replace(standing("a", 0), exclusive=RACK), standing("b", 1)))
    for name, node in (("a", "n01"), ("b", "n02")):
        places = [(node, [0]), (node, [1])] if name == grows else [(node, [0])]
        entry(document, name)["decision"] = "resize" if name == grows else "keep"
        put(document, name, *places)
    assert broken(document) == ([("exclusive", "default/a")] if rule else [])


SPARES = (("rack", 1),)


@pytest.mark.parametrize(
    ("change", "found"),
    [
        ({}, []),  # idle: it is the spare
        ({"unschedulable": True}, []),  # one has failed: its spare is given back
        ({"unhealthyGpus": [3]}, []),
        (
            {"unknownPartitioned": 1},
            [("spares", None)],
        ),  # neither failed nor as good as a whole one
        ({"labels": {"ours": "no"}}, [("spares", None)]),
        (None, [("spares", None)]),  # no third node
    ],
)
def test_a_rack_keeps_a_spare_until_a_node_of_it_fails(
    change: Doc | None, found: list[tuple[str, str | None]]
) -> None:
    document = best(racks(gang("a", 2, 3), spares=SPARES))
    assert len({pod["node"] for pod in entry(document, "a")["pods"]}) == 2  # one of each rack
    # n05 is the third of r1: idle, failed or not ours. a takes n01 and n02.
    if change is not None:
        more = {"name": "n05", "domains": {"block": "b1", "rack": "r1"}, **change}
        document["instance"]["cluster"]["spec"]["nodes"].append(server(document, "n03") | more)
    document["instance"]["policy"]["spec"]["nodeSelector"] = {"ours": "yes"}
    for node in document["instance"]["cluster"]["spec"]["nodes"]:
        node["labels"] = {"ours": "yes"} | node["labels"]
    places = (("n01", [0, 1, 2]), ("n02", [0, 1, 2]))
    assert broken(put(document, "a", *places)) == found


def test_no_spare_is_owed_that_was_not_there() -> None:
    runs = [gang(f"r{n}", 1, 1, stands=[(0, 0, n, 1)]) for n in range(3)]
    document = best(racks(*runs, gang("a", 1, 2), spares=(("rack", 2),)))
    # r1 has no idle node, r2 has n04: a goes next to any that runs, but not there.
    assert entry(document, "a")["pods"][0]["node"] != "n04"
    (found,) = check(put(document, "a", ("n04", [0, 1])))
    assert (found.rule, found.gang) == ("spares", None)
    assert found.message == "rack of n03: 0 nodes are idle, 1 must stay so"


def test_free_gpus_count_with_their_share_of_the_node() -> None:
    # n01 has 10 of 16 cpus left for four GPUs that need 4 each: 2 are of use. n02 says nothing of cpu.
    cluster = build(nodes_per_rack=2, model=switched(4), gangs=[], mix={1: 700, 4: 300})
    nodes = tuple(
        replace(node, allocatable=(("cpu", 16_000),) if node.name == "n01" else ())
        for node in cluster.cluster.nodes
    )
    cpu = gang("cpu", roles=[role("launcher", 1, 0, requests={"cpu": 6000})], stands=[(0, 0, 0, 0)])
    policy = replace(cluster.policy, per_gpu=(("cpu", 4000),))
    instance = replace(
        cluster, cluster=replace(cluster.cluster, nodes=nodes), gangs=(cpu,), policy=policy
    )
    # 8 are free; of size 1 2 + 4 fit, of size 4 one (n02): 700 x (8 - 6) + 300 x (8 - 4)
    document = best(instance)
    assert derive(document)["stranded"] == 700 * 2 + 300 * 4
    # Overfull: nothing is of use, and nothing less than that: 700 x (8 - 4) + 300 x (8 - 4).
    server(document, "n01")["allocatable"] = {"cpu": 5}
    assert derive(restated(document))["stranded"] == 700 * 4 + 300 * 4
