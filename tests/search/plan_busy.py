"""One busy plan document with figures worked out by hand: the correct plan that the sabotages change.

Six DGX H100 and two DGX-1 V100 in four racks of two blocks, one server without GPUs; ten gangs:
placed, kept, completed, left incomplete, waiting, with unknown GPUs.
"""

from __future__ import annotations

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    document,
    gang,
    level,
    mesh,
    node,
    policy,
    role,
    sealed,
    standing,
    tier,
)

INFRA = {"key": "dedicated", "value": "infra", "effect": "NoSchedule"}


def _cluster() -> Doc:
    room = {"cpu": "96", "pods": 110}
    return cluster(
        [dgx(), mesh()],
        [
            node("c1", None, "b1/r3", allocatable={"cpu": "2500m", "memory": "64Gi", "pods": 2}),
            node("h1", "DGX H100", "b1/r1", allocatable=room),
            node("h2", "DGX H100", "b1/r1", allocatable=room),
            node("h3", "DGX H100", "b1/r2", allocatable=room, labels={"disk": "fast"}),
            node("h4", "DGX H100", "b1/r2", allocatable=room),
            node("h5", "DGX H100", "b2/r1", unhealthyGpus=[7], taints=[dict(INFRA)]),
            node("h6", "DGX H100", "b2/r1", unknownUnhealthy=1),
            node("m1", "DGX-1 V100", "b1/r3"),
            node("m2", "dgx-1-volta", "b1/r3"),
        ],
        [level("block"), level("rack", 2)],
    )


def _gangs() -> list[Doc]:
    return [
        gang(
            "ball",
            role("worker", 2, 8, requests={"cpu": "48"}, model="h100"),
            priority=10,
            submittedAt="2026-11-20T08:00:00Z",
            topology={"required": "block", "preferred": "rack", "minBandwidthShare": 0.9},
        ),
        gang(
            "core",
            role("worker", 1, 4, requests={"cpu": "40"}),
            priority=5,
            pods=(standing("core", "h3", [0, 1, 2, 3], name="core-7f9", uid="u-core"),),
        ),
        gang(
            "dual",
            role("launcher", 1, 0, requests={"cpu": "1500m", "memory": "1Gi"}),
            role(
                "worker",
                2,
                2,
                requests={"cpu": "28"},
                topology={"required": "rack", "preferred": "node"},
                slice={"size": 2, "required": "node"},
                nodeSelector={"disk": "fast"},
            ),
            priority=5,
            submittedAt="2026-11-20T08:30:00.9Z",
            topology={"required": "block"},
            communication={"pattern": "all-reduce", "weight": 2},
        ),
        gang(
            "even",
            role("worker", {"min": 1, "max": 3, "step": 1}, 1),
            priority=5,
            movable=True,
            pods=(standing("even", "m1", [0]), standing("even", "m1", [3], 1)),
        ),
        gang("fixr", role("worker", 2, 1), pods=(standing("fixr", "m2", [0]),), movable=True),
        gang("gone", role("worker", 2, 2), pods=(standing("gone", "h4", None),)),
        gang("host", role("worker", 1, 4), preemptible=True),
        gang("idle", role("worker", 4, 8), submittedAt="2026-11-20T10:00:00+01:00"),
        gang("just", role("worker", 1, 1), preemptible=True, pods=(standing("just", "h5", [0]),)),
        gang("kilo", role("worker", 1, 0, requests={"cpu": 1})),
    ]


def _decisions() -> list[Doc]:
    dual = decided("dual", "place", ("h3", [4, 5]), ("h3", [6, 7]))
    launcher = decided("dual", "place", ("c1", []), role="launcher")["pods"]
    entries = [
        (
            decided("ball", "place", ("h1", list(range(8))), ("h2", list(range(8)))),
            370800,
            1000,
            (1, 1, 2),
        ),
        (decided("core", "keep", ("h3", [0, 1, 2, 3])), 370800, 1000, (1, 1, 1)),
        # Workers on h3 (b1/r2), launcher on c1 (b1/r3).
        (dual | {"pods": [*launcher, *dual["pods"]]}, 370800, 1000, (1, 2, 2)),
        # GPUs 0 and 3 share two links: 40,000, the best a pair can have.
        (decided("even", "keep", ("m1", [0]), ("m1", [3])), 40000, 1000, (1, 1, 1)),
        # GPUs 0 and 1 share one link: 20,000 of 40,000.
        (decided("fixr", "complete", ("m2", [0]), ("m2", [1])), 20000, 500, (1, 1, 1)),
        (decided("gone", "keep", ("h4", None), why="Incomplete"), 370800, 1000, (1, 1, 1)),
        (decided("host", "place", ("h4", None)), 370800, 1000, (1, 1, 1)),
        (decided("idle", "wait", why="NoRoom"), None, None, None),
        (decided("just", "keep", ("h5", [0])), None, None, (1, 1, 1)),
        (decided("kilo", "place", ("c1", [])), None, None, (1, 1, 1)),
    ]
    for stated, bandwidth, share, domains in entries:
        stated["bandwidthMBps"] = bandwidth
        stated["share"] = share
        if domains is not None:
            stated["domains"] = dict(zip(("block", "rack", "node"), domains, strict=True))
    decisions = [stated for stated, *_ in entries]
    decisions[1]["pods"][0] |= {"name": "core-7f9", "uid": "u-core"}
    return decisions


TIERS = [
    ("admission/10", 16, "max"),  # ball
    ("waiting/10", 57600, "max"),  # 16 x 3600 s: T is 09:00 UTC, of idle
    ("kept/5", 6, "max"),  # core 4, even 2
    ("admission/5", 9, "max"),  # core 4, dual 4, even 1 at min
    ("waiting/5", 7200, "max"),  # dual: 4 x 1800 s
    ("kept/0", 4, "max"),  # fixr 1, gone 2, just 1
    (
        "admission/0",
        8,
        "max",
    ),  # fixr 2, host 4, just 1, kilo 1 (no GPU counts 1); gone is not admitted
    ("waiting/0", 0, "max"),  # host and kilo never said when
    ("disruption", 0, "min"),
    ("preference", 20, "max"),  # ball in one rack 16, workers of dual on one node 4
    # 1000 x (ball 16 + core 4 + dual 2 x 4 + even 1 + host 4) + 500 x fixr 2
    ("bandwidth", 34000, "max"),
    ("growth/5", 1, "max"),  # even runs 2, min 1
    # node: ball 16 x 1, dual 4 x 1; rack: dual 4 x 1 x 4
    ("span", 36, "min"),
    # H100 free: h4 8-2-4=2, h5 7-1=6, h6 8-1=7: 15, none whole; V100 free: 6 + 6 = 12, none whole.
    # size 1 fits anywhere; 8 and 16 fit nowhere: (300 + 200) x (15 + 12)
    ("stranded", 13500, "min"),
]
"""Worked out by hand, in the order of the contract."""


def busy_plan() -> Doc:
    """The good plan, fresh."""
    plan = document(_cluster(), _gangs(), _decisions(), policy(mix={"1": 500, "8": 300, "16": 200}))
    plan["instance"]["policy"]["spec"]["objectives"][4]["tolerance"] = 0.1  # bandwidth
    plan["status"]["objectives"] = [tier(*line) for line in TIERS]
    return sealed(plan)
