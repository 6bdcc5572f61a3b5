"""A plan document in which every rule about the pods of a gang holds, and no pod more would fit it.

Six DGX H100: a1, a2 and a3 in rack b1/r1, b1 in b1/r2, c1 in b2/r1, lone in block b1 but in no rack.
"""

from __future__ import annotations

from plan_documents import Doc, cluster, decided, dgx, gang, made, node, role

RACK = {"level": "rack"}


def of_roles(*entries: Doc) -> Doc:
    """One entry with the pods of all of these, each of one role."""
    return entries[0] | {"pods": [pod for one in entries for pod in one["pods"]]}


def pod_sets_plan() -> Doc:
    """The good plan, fresh."""
    nodes = [
        node("a1", "DGX H100", "b1/r1"),
        node("a2", "DGX H100", "b1/r1"),
        node("a3", "DGX H100", "b1/r1", labels={"disk": "slow"}),
        node("b1", "DGX H100", "b1/r2"),
        node("c1", "DGX H100", "b2/r1"),
        node("lone", "DGX H100", "b1"),
    ]
    apart = {"podSets": ["all"], "antiAffinity": [{**RACK, "podSet": "all"}]}
    gangs = [
        # one pod a node
        gang("each", role("worker", 2, 1, antiAffinity=[{"level": "node"}])),
        # its workers join its cache
        gang(
            "join",
            role("cache", podSets=["cache"]),
            role("worker", 2, 2, affinity=[{**RACK, "podSet": "cache"}]),
        ),
        # joins itself: the first of the set
        gang("pair", role("worker", 2, 1, podSets=["pair"], affinity=[{**RACK, "podSet": "pair"}])),
        # the racks of nodes with the label, and those without: three with a value
        gang("serve", role("worker", 4, 1, spread=[{**RACK, "maxSkew": 1}])),
        gang("train", role("a", 1, 4, **apart), role("b", 1, 4, **apart), priority=1),
    ]
    stated = [
        decided("each", "place", ("a1", [0]), ("a2", [0])),
        of_roles(
            decided("join", "place", ("b1", [5]), role="cache"),
            decided("join", "place", ("b1", [0, 1]), ("b1", [2, 3])),
        ),
        decided("pair", "place", ("a1", [2]), ("a2", [2])),
        # 2, 1 and 1
        decided("serve", "place", ("a1", [3]), ("a2", [3]), ("b1", [4]), ("c1", [4])),
        of_roles(
            decided("train", "place", ("a2", [4, 5, 6, 7]), role="a"),
            decided("train", "place", ("lone", [4, 5, 6, 7]), role="b"),
        ),
    ]
    return made(cluster([dgx()], nodes), gangs, stated)
