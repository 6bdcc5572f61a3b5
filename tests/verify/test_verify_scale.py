"""The judge on a large plan: linear work, so that checking never costs what solving does."""

from __future__ import annotations

import time

from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    level,
    made,
    node,
    policy,
    restated,
    role,
)

from models.verify.check import check

LOW, HIGH = [0, 1, 2, 3], [4, 5, 6, 7]


def large(nodes: int, gangs: int) -> Doc:
    """Gangs of 2 to 22 half-server pods, packed one after another; every gang has a priority of its own."""
    names = [f"n{i:05}" for i in range(nodes)]
    servers = [
        node(
            name,
            "DGX H100",
            f"b{i // 256:03}/r{i // 16:04}",
            allocatable={"cpu": "96", "memory": "1Ti", "pods": 110},
        )
        for i, name in enumerate(names)
    ]
    wanted, decisions, taken = [], [], 0
    for i in range(gangs):
        name, size = f"g{i:05}", 1 + i * 7 % 11
        wanted.append(gang(name, role("worker", 2 * size, 4, requests={"cpu": "48"}), priority=i))
        mine = names[taken : taken + size]
        if len(mine) < size:
            decisions.append(decided(name, "wait", why="NoRoom"))
            continue
        taken += size
        places = [(n, gpus) for n in mine for gpus in (LOW, HIGH)]
        decisions.append(decided(name, "place", *places))
    rules = policy(mix={"1": 300, "2": 150, "4": 150, "8": 300, "64": 100})
    return made(
        cluster([dgx()], servers, [level("block"), level("rack", 2)]), wanted, decisions, rules
    )


def test_512_servers_and_300_gangs_of_300_priorities_are_judged_in_seconds() -> None:
    plan = large(512, 300)
    start = time.process_time()
    found = check(plan)
    # About 1 s on one core of 2026, most of it for better plans; the margin is for busy machines.
    assert time.process_time() - start < 6
    assert found == []


def test_one_pod_moved_onto_another_is_found_among_hundreds() -> None:
    plan = large(512, 300)
    entry(plan, "g00003")["pods"][0].update(node="n00000")
    assert {(v.rule, v.gang) for v in check(restated(plan))} == {
        ("gpu-shared", "default/g00000"),
        ("gpu-shared", "default/g00003"),
        ("resources", "default/g00000"),
        ("resources", "default/g00003"),
    }
