"""A plan of every kind of change, its speeds worked out by hand, under goodput and under admission."""

from __future__ import annotations

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    mesh,
    node,
    policy,
    role,
    sealed,
    standing,
    stopped,
)


def at(hour: int) -> str:
    return f"2026-11-20T{hour:02}:00:00Z"


def generations() -> Doc:
    h100, a100 = dgx(relativeSpeed=100), dgx("DGX A100", gpu="A100", relativeSpeed=50)
    servers = {"h": "DGX H100", "m1": "DGX-1 V100", "m2": "DGX-1 V100", "s": "DGX A100"}
    nodes = [node(name, model) for name, model in servers.items()]
    return cluster([h100, a100, mesh() | {"relativeSpeed": 40}], nodes)


def _gangs() -> list[Doc]:
    running = (standing("old", "m1", [0]), standing("old", "m1", [5], 1))
    part = (standing("part", "s", [4, 5]),)
    return [
        gang("aged", role("worker", 1, 2), submittedAt=at(0)),
        gang("big", role("worker", 2, 8), submittedAt=at(0), priority=5),
        gang("cpu", role("worker", 1, 0), service="chat", submittedAt=at(10)),
        gang("gone", preemptible=True, pods=(standing("gone", "h", [7]),)),
        gang(
            "late",
            role("worker", 1, 4),
            service="chat",
            submittedAt=at(9),
            communication={"pattern": "all-to-all", "weight": 1, "fraction": 0.9, "speed": "count"},
        ),
        gang("old", role("worker", 2, 1), movable=True, preemptible=True, pods=running),
        gang("part", role("worker", 2, 2), preemptible=True, pods=part),
        gang("top", role("worker", 1, 8), priority=5, submittedAt=at(9)),
    ]


def _decisions() -> list[Doc]:
    return [
        decided("aged", "place", ("m2", [0, 1])),
        decided("big", "wait", why="NoRoom") | {"aged": True},
        decided("cpu", "place", ("s", [])),
        stopped("gone", "top"),
        decided("late", "place", ("s", [0, 1, 2, 3])),
        decided("old", "move", ("m2", [2]), ("m2", [3])),
        decided("part", "keep", ("s", [4, 5]), why="Incomplete"),
        decided("top", "place", ("h", list(range(8)))),
    ]


SPEEDS = {
    "aged": 320,  # r = 40 of 100, one link of two: 400,000 / (750 + 500)
    "big": None,
    "cpu": 1000,  # no GPUs
    "gone": None,
    "late": 500,  # r = 50 of 100, share 1000
    "old": 200,  # from GPUs 0 and 5, share 200: 400,000 / (750 + 1250); 400 after
    "part": 500,  # what stands of it
    "top": 1000,
}

GOODPUT = {
    "aged/5": 0,  # big waits
    "aged-waiting/5": 0,
    "goodput/5": 8000,  # top 8 x 1000
    "waiting/5": 28800,  # top 8 x 3600 s: T is 10:00, of cpu
    "kept/0": 4,  # old 2, part 2
    "aged/0": 640,  # aged 2 x 320
    "aged-waiting/0": 23_040_000,  # 640 x 36,000 s
    "goodput/0": 4040,  # aged 640, cpu 1000, late 4 x 500, old 2 x 200; part is not admitted
    "waiting/0": 86400,  # aged 2 x 36,000, late 4 x 3600; old runs
    "bandwidth": 15000,  # 1000 x (late 4 + old 2 + top 8) + 500 x aged 2
}


def goodput_plan(main: str = "goodput") -> Doc:
    listed = [{"name": name, "tolerance": 0} for name in (main, "waiting", "bandwidth")]
    limits = policy(objectives=listed, starvation={"after": "12h"}, now=at(14))
    decisions = _decisions()
    decisions[0]["aged"] = True
    plan = made(generations(), _gangs(), decisions, limits)
    entry(plan, "old")["speedAfter"] = 400
    return sealed(plan)
