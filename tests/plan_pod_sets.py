"""A plan document in which every rule about the pods of sets holds, and no pod more would fit it.

Six DGX H100: a1, a2 and a3 in rack b1/r1, b1 in b1/r2, c1 in b2/r1, lone in block b1 but in no rack.
"""

from __future__ import annotations

from plan_documents import Doc, cluster, decided, dgx, gang, made, node, role, standing

RACK = {"level": "rack"}


def _trainers() -> Doc:
    return {"podSets": ["trainers"], "antiAffinity": [{**RACK, "podSet": "trainers"}]}


def pod_sets_plan() -> Doc:
    """The good plan, fresh."""
    nodes = [
        node("a1", "DGX H100", "b1/r1"),
        node("a2", "DGX H100", "b1/r1"),
        node("a3", "DGX H100", "b1/r1", labels={"disk": "slow"}),
        node("b1", "DGX H100", "b1/r2", podSets={"cache": 2, "other": 1}),
        node("c1", "DGX H100", "b2/r1"),
        node("lone", "DGX H100", "b1"),
    ]
    gangs = [
        # one pod a node
        gang("each", role("worker", 2, 1, antiAffinity=[{"level": "node"}])),
        # stands, and keeps new pods of a set out of its rack
        gang(
            "guard",
            role(antiAffinity=[{**RACK, "podSet": "batch"}]),
            pods=(standing("guard", "c1", [0]),),
        ),
        gang("job", role("worker", 1, 1, podSets=["batch"])),
        # joins the pods of no gang on b1
        gang("join", role("worker", 2, 2, affinity=[{**RACK, "podSet": "cache"}])),
        # joins itself: the first of the set
        gang("pair", role("worker", 2, 1, podSets=["pair"], affinity=[{**RACK, "podSet": "pair"}])),
        # the racks of nodes with the label, and those without: three with a value
        gang("serve", role("worker", 4, 1, spread=[{**RACK, "maxSkew": 1}])),
        gang("train", role("worker", 1, 4, **_trainers()), priority=1),
        gang("tune", role("worker", 1, 4, **_trainers()), priority=1),
    ]
    stated = [
        decided("each", "place", ("a1", [0]), ("a2", [0])),
        decided("guard", "keep", ("c1", [0])),
        decided("job", "place", ("a1", [1])),
        decided("join", "place", ("b1", [0, 1]), ("b1", [2, 3])),
        decided("pair", "place", ("a1", [2]), ("a2", [2])),
        # 2, 1 and 1
        decided("serve", "place", ("a1", [3]), ("a2", [3]), ("b1", [4]), ("c1", [4])),
        decided("train", "place", ("a2", [4, 5, 6, 7])),
        decided("tune", "place", ("lone", [4, 5, 6, 7])),
    ]
    return made(cluster([dgx()], nodes), gangs, stated)
