"""One plan document in which everything that runs may change, with figures worked out by hand.

Eight DGX H100 and two DGX-1 V100 in five racks; of ten gangs one moves, one shrinks, one is stopped, one
grows, one is completed, one keeps its size, two start, one of them aged, and two wait.
"""

from __future__ import annotations

import copy

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    document,
    gang,
    level,
    mesh,
    moves,
    node,
    policy,
    role,
    sealed,
    standing,
    stopped,
    tier,
)

ALL = list(range(8))
LOW, HIGH = ALL[:4], ALL[4:]

OBJECTIVES = (
    "admission",
    "waiting",
    "defragment",
    "disruption",
    "preference",
    "bandwidth",
    "growth",
    "span",
    "stranded",
    "stability",
)


def _cluster() -> Doc:
    racks = {
        "b1/r1": ("a1", "a2", "c1"),
        "b1/r2": ("a3", "a4", "c2"),
        "b2/r3": ("a5", "a6", "a7"),
        "b2/r4": ("a8", "m1"),
        "b2/r5": ("m2",),
    }
    models = {"a": "DGX H100", "c": None, "m": "DGX-1 V100"}
    nodes = [node(n, models[n[0]], rack) for rack, names in racks.items() for n in names]
    nodes.sort(key=lambda n: str(n["name"]))
    return cluster([dgx(), mesh()], nodes, [level("block"), level("rack")])


def _elastic(low: int, high: int, gpus: int, step: int = 1) -> Doc:
    return role("worker", {"min": low, "max": high, "step": step}, gpus)


def _planned(*places: tuple[str, int, str]) -> list[Doc]:
    return [{"role": role, "index": i, "node": where} for role, i, where in places]


def _launcher(of: str, where: str) -> Doc:
    return {
        "name": f"{of}-launcher-0",
        "role": "launcher",
        "index": 0,
        "node": where,
        "gpus": [],
    }


def _gangs() -> list[Doc]:
    gangs = [
        gang("aged", role("worker", 1, 4), priority=5, submittedAt="2026-11-21T08:00:00Z"),
        gang("beta", role("worker", 4, 8), priority=5, submittedAt="2026-11-21T11:45:00Z"),
        gang("grow", _elastic(1, 2, 4), priority=1, pods=(standing("grow", "a7", LOW),)),
        gang(
            "high",
            role("worker", 2, 8),
            priority=9,
            submittedAt="2026-11-21T11:40:00Z",
            topology={"required": "rack", "preferred": "rack"},
        ),
        gang("idle", role("worker", 1, 16)),
        gang(
            "move",
            role("launcher", 1, 0),
            role("worker", 1, 4),
            priority=5,
            preemptible=True,
            movable=True,
            pods=(_launcher("move", "c1"), standing("move", "a1", LOW)),
        ),
        gang(
            "part",
            _elastic(2, 6, 2, step=2),
            priority=1,
            resizeAfter="2026-11-21T13:00:00Z",
            pods=(standing("part", "a5", [4, 5]), standing("part", "a6", [4, 5], 2)),
        ),
        gang(
            "size",
            role("launcher", 1, 0),
            _elastic(1, 3, 4),
            priority=3,
            movable=True,
            resizeAfter="2026-11-21T12:00:01Z",
            pods=(
                _launcher("size", "c1"),
                standing("size", "a5", LOW),
                standing("size", "a6", LOW, 1),
            ),
        ),
        gang(
            "slim",
            _elastic(1, 3, 4),
            priority=3,
            preemptible=True,
            pods=tuple(
                standing("slim", where, gpus, i)
                for i, (where, gpus) in enumerate((("a3", LOW), ("a4", LOW), ("a1", HIGH)))
            ),
        ),
        gang(
            "stop",
            role("worker", 1, 8),
            priority=3,
            preemptible=True,
            pods=(standing("stop", "a2", ALL),),
        ),
    ]
    status = {g["metadata"]["name"]: g["status"] for g in gangs}
    # aged-worker-7 never was; slim-worker-2 is no more; the launcher has no GPUs.
    status["aged"]["planned"] = _planned(("worker", 0, "a3"), ("worker", 7, "a8"))
    status["beta"]["planned"] = _planned(("worker", 0, "a8"))
    status["high"]["planned"] = _planned(("worker", 0, "a1"), ("worker", 1, "a4"))
    status["move"]["planned"] = _planned(("launcher", 0, "c2"), ("worker", 0, "a3"))
    status["slim"]["planned"] = _planned(("worker", 2, "a8"))
    status["move"]["startedAt"] = "2026-11-21T11:00:00Z"
    status["slim"] |= {
        "startedAt": "2026-11-20T00:00:00Z",
        "lastCheckpoint": "2026-11-21T11:50:00Z",
    }
    status["stop"]["startedAt"] = "2026-11-20T00:00:00Z"
    return gangs


def _decisions() -> list[Doc]:
    def led(name: str, decision: str, *places: tuple[str, list[int]]) -> Doc:
        workers = decided(name, decision, *places)
        return workers | {"pods": [_launcher(name, "c1"), *workers["pods"]]}

    near, far = (1, 1, 1), (1, 1, 2)
    entries = [
        (decided("aged", "place", ("a4", HIGH)) | {"aged": True}, 370800, 1000, near),
        (decided("beta", "wait", why="NoRoom"), None, None, None),
        (decided("grow", "resize", ("a7", LOW), ("a7", HIGH)), 370800, 1000, near),
        (decided("high", "place", ("a1", ALL), ("a2", ALL)), 370800, 1000, far),
        (decided("idle", "wait", why="NoRoom"), None, None, None),
        # Its launcher stays on c1 (b1/r1), its worker goes to a3 (b1/r2).
        (led("move", "move", ("a3", HIGH)), 370800, 1000, (1, 2, 2)),
        # Two halves of servers: four near NICs each, 200,000 of 370,800.
        (
            decided("part", "complete", *(("a5", g) for g in ([4, 5], [6, 7]))),
            200000,
            539,
            far,
        ),
        (led("size", "keep", ("a5", LOW), ("a6", LOW)), 200000, 539, (2, 2, 3)),
        (decided("slim", "resize", ("a3", LOW), ("a4", LOW)), 200000, 539, far),
        (stopped("stop", "high", priority=9), None, None, None),
    ]
    part = entries[6][0]
    part["pods"] = decided(
        "part", "complete", ("a5", [4, 5]), ("a5", [6, 7]), ("a6", [4, 5]), ("a6", [6, 7])
    )["pods"]
    for stated, bandwidth, share, domains in entries:
        stated["bandwidthMBps"] = bandwidth
        stated["share"] = share
        if domains is not None:
            stated["domains"] = dict(zip(("block", "rack", "node"), domains, strict=True))
    return [stated for stated, *_ in entries]


TIERS = [
    ("admission/9", 16, "max"),  # high
    ("waiting/9", 4800, "max"),  # 16 x 300 s: T is 11:45, of beta
    ("kept/5", 4, "max"),  # move, elsewhere
    ("aged/5", 4, "max"),  # aged has waited for four hours, beta for a quarter of one
    ("aged-waiting/5", 54000, "max"),  # 4 x 13,500 s, from 08:00 to T
    ("admission/5", 8, "max"),  # aged 4, move 4
    ("waiting/5", 54000, "max"),  # aged
    ("kept/3", 16, "max"),  # size 8, slim 8 of 12, stop 0 of 8
    ("admission/3", 8, "max"),  # size and slim, each 4 at min
    ("waiting/3", 0, "max"),
    ("admission/1", 8, "max"),  # grow 4, part 4 at min
    ("waiting/1", 0, "max"),
    ("admission/0", 0, "max"),  # idle
    ("waiting/0", 0, "max"),
    # a8, m1 and m2 are free, 8 GPUs each; a8 and m1 are the whole rack r4, m2 is alone in r5.
    ("defragment", 40, "max"),
    # move 4 x 3600 s; slim drops 4 x 600 s since its checkpoint; stop 8 x 7200 s, the cap
    ("disruption", 74400, "min"),
    ("preference", 16, "max"),  # high in one rack
    # 1000 x (aged 4 + grow 4 + high 16 + move 4) + 539 x (part 4 + size 4 + slim 4)
    ("bandwidth", 34468, "max"),
    ("growth/3", 8, "max"),  # size 8 - 4, slim 8 - 4
    ("growth/1", 8, "max"),  # grow 8 - 4, part 8 - 4
    # node: high 16, move 4, part 4, slim 4, size 4 x 2; rack: (move 4 + size 4) x 4; block: size 4 x 16
    ("span", 132, "min"),
    # H100: a8 takes an 8, and 16 need two whole servers of a rack: 500 x 8. V100: 16 fit block b2.
    ("stranded", 4000, "min"),
    ("stability", 12, "min"),  # aged 4 on a4, not a3; high-worker-1 8 on a2, not a4
]
"""Worked out by hand, in the order of the contract."""


def reclaim_plan() -> Doc:
    """The good plan, fresh."""
    rules = policy(
        mix={"8": 500, "16": 500},
        objectives=[{"name": name, "tolerance": 0} for name in OBJECTIVES],
        moves={"maxGangs": 2, "maxGPUs": 12, "minGain": 0.5},
        disruption={"weight": "lostRuntime", "cap": "7200s"},
        starvation={"after": "3600s"},
        now="2026-11-21T12:00:00Z",
    )
    plan = document(_cluster(), _gangs(), _decisions(), rules)
    plan["status"]["objectives"] = [tier(*line) for line in TIERS]
    # Without the move high waits and one more server is whole: 16 GPUs + 12 by bandwidth - 8, over 4.
    bought = {"gangs": ["default/high"], "gpus": 16, "bandwidth": 12000, "wholeNodes": -1}
    plan["status"]["moves"] = [moves(["default/move"], 4, **bought, gain=5.0)]
    return copy.deepcopy(sealed(plan))
