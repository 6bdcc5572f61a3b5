"""A plan document with queues, every rule about which just holds, with figures worked out by hand.

DGX H100 n1, n2 in rack r1, n3, n4 in r2, n5 in r3, and DGX-1 V100 v1 in no rack: 48 GPUs, 8 of them V100.

Queue  guarantee, cells included  limit   holds before -> after
ads    16                                 8 -> 8
bio    4 V100                     8 H100  0 -> 8
cv     1 rack, the smallest: 8            0 -> 0
lab    4                          4       0 -> 4, for which bor (no queue, higher priority) gives way

Promised: ads 16, bio 4, cv 8, lab 4, and firm gangs of no queue: 8 on n3 and 4 on v1: 44 of 48; of V100
4 and 4, of 8. Racks without firm pods of strangers: r3 alone.
"""

from __future__ import annotations

from plan_documents import (
    API,
    Doc,
    cluster,
    decided,
    dgx,
    gang,
    made,
    mesh,
    node,
    policy,
    role,
    standing,
    stopped,
)

ALL = list(range(8))
LOW, HIGH = ALL[:4], ALL[4:]

TIERS = {
    # within are a-run (8 of 16) and l-start (4 of 4), not b-start (8 of 4 V100) and c-wait (16 of 8)
    "guarantee/5": 8,
    "guarantee/0": 4,
    # GPUs of 48, over 2/5 for ads and 1/5 for the others: cv 0, ads 8/48 x 5/2, lab 4/48 x 5, bio 8/48 x 5
    "fair/1": 0,
    "fair/2": 416_666,
    "fair/3": 416_666 + 416_666,
    "fair/4": 416_666 + 416_666 + 833_333,
}
"""Of the tiers about queues."""

STATED: list[Doc] = [
    {"name": "ads", "guarantee": 16, "before": 8, "after": 8, "borrowed": 0, "waiting": 0},
    {
        "name": "bio",
        "guarantee": 4,
        "before": 0,
        "after": 8,
        "borrowed": 4,
        "waiting": 0,
        "models": [
            {"model": "h100", "guarantee": 0, "limit": 8, "before": 0, "after": 8},
            {"model": "v100", "guarantee": 4, "before": 0, "after": 0},
        ],
    },
    {
        "name": "cv",
        "guarantee": 8,
        "before": 0,
        "after": 0,
        "borrowed": 0,
        "waiting": 16,
        "cells": [{"count": 1, "level": "rack", "model": "h100"}],
    },
    {
        "name": "lab",
        "guarantee": 4,
        "limit": 4,
        "before": 0,
        "after": 4,
        "borrowed": 0,
        "waiting": 0,
    },
]
"""What ``status.queues`` must say."""


def queue(name: str, **spec: object) -> Doc:
    return {"apiVersion": API, "kind": "Queue", "metadata": {"name": name}, "spec": spec}


def spec_of(plan: Doc, name: str) -> Doc:
    """What the instance says of a queue."""
    return next(q["spec"] for q in plan["instance"]["queues"] if q["metadata"]["name"] == name)


def queues_plan() -> Doc:
    """The good plan, fresh."""
    racks = {"n1": "b/r1", "n2": "b/r1", "n3": "b/r2", "n4": "b/r2", "n5": "b/r3"}
    nodes = [node(name, "DGX H100", rack) for name, rack in racks.items()]
    nodes.append(node("v1", "DGX-1 V100", "b"))
    gangs = [
        gang("a-run", role(gpus=8), pods=(standing("a-run", "n1", ALL),), queue="ads", priority=5),
        gang("b-start", role(gpus=8), queue="bio", preemptible=True),
        gang("bor", role(gpus=4), pods=(standing("bor", "n4", HIGH),), priority=5),
        gang("c-wait", role("worker", 2, 8), queue="cv"),
        gang("firm", role(gpus=8)),
        gang("firm-v", role(gpus=4)),
        gang("l-start", role(gpus=4), queue="lab"),
    ]
    gangs[2]["spec"]["preemptible"] = True
    stated = [
        decided("a-run", "keep", ("n1", ALL)),
        decided("b-start", "place", ("n2", ALL)),
        stopped("bor", "l-start"),
        decided("c-wait", "wait", why="NoRoom"),
        decided("firm", "place", ("n3", ALL)),
        decided("firm-v", "place", ("v1", LOW)),
        decided("l-start", "place", ("n4", LOW)),
    ]
    rules = policy()
    rules["spec"]["objectives"].insert(1, {"name": "fair", "tolerance": 0})
    plan = made(cluster([dgx(), mesh()], nodes), gangs, stated, rules)
    plan["instance"]["queues"] = [
        queue("ads", guarantee={"gpus": 16}, weight=2),
        queue("bio", guarantee={"models": {"V100": 4}}, limit={"models": {"H100": 8}}),
        queue("cv", cells=[{"count": 1, "level": "rack", "model": "H100"}]),
        queue("lab", guarantee={"gpus": 4}, borrowing=False),
    ]
    return plan
