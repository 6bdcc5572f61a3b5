"""What time makes of gangs: lost runtime, ageing and held sizes, worked out by hand."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    node,
    policy,
    role,
    rules_broken,
    sealed,
    standing,
    stopped,
)

from models.verify.check import check, derive

ALL = list(range(8))
LOW, HIGH = ALL[:4], ALL[4:]

LOST = {"weight": "lostRuntime", "cap": "86400s"}


def servers(count: int) -> Doc:
    return cluster([dgx()], [node(f"h{i}", "DGX H100", "b1/r1") for i in range(1, count + 1)])


def objectives(*names: str) -> list[Doc]:
    return [{"name": name, "tolerance": 0} for name in names]


def stops(rules: Doc, **times: object) -> int:
    """Disruption of stopping four GPUs that have these times, for a gang submitted at 12:00."""
    old = gang("old", role("worker", 1, 4), preemptible=True, pods=(standing("old", "h1", LOW),))
    old["status"] |= times
    new = gang("new", role("worker", 1, 8), priority=1, submittedAt="2026-11-21T12:00:00Z")
    plan = made(
        servers(1), [new, old], [decided("new", "place", ("h1", ALL)), stopped("old", "new")], rules
    )
    assert check(plan) == []
    return derive(plan)["disruption"]


@pytest.mark.parametrize(
    ("times", "seconds"),
    [
        ({"startedAt": "2026-11-21T11:00:00Z"}, 3600),
        ({"startedAt": "2026-11-21T11:00:00Z", "lastCheckpoint": "2026-11-21T11:59:00Z"}, 60),
        # A checkpoint of an earlier run: since the start.
        ({"startedAt": "2026-11-21T11:00:00Z", "lastCheckpoint": "2026-11-21T10:00:00Z"}, 3600),
        ({"lastCheckpoint": "2026-11-21T11:59:00Z"}, 60),
        ({"startedAt": "2026-11-19T11:00:00Z"}, 86400),
        ({}, 86400),
        ({"startedAt": None, "lastCheckpoint": None}, 86400),
        # It started just now and counts one second.
        ({"lastCheckpoint": "2026-11-21T12:00:00Z"}, 1),
    ],
)
def test_lost_runtime_counts_seconds_since_start_or_checkpoint(times: Doc, seconds: int) -> None:
    assert stops(policy(disruption=LOST), **times) == 4 * seconds


def aged(after: str | None, *names: str, now: str | None = None, lists: tuple[str, ...]) -> Doc:
    """Gangs by the hour of 2026-11-21 they were submitted at; those of an even priority are placed."""
    gangs, decisions = [], []
    for i, name in enumerate(names):
        hour, priority = name.split("-")
        submitted = f"2026-11-21T{hour}:00:00Z" if hour.isdigit() else None
        gangs.append(gang(name, priority=int(priority), submittedAt=submitted))
        placed = decided(name, "place", ("h1", [i]))
        decisions.append(placed if int(priority) % 2 == 0 else decided(name, "wait", why="NoRoom"))
    rules = policy(
        objectives=objectives(*lists),
        starvation=None if after is None else {"after": after},
        now=now,
    )
    plan = made(servers(1), gangs, decisions, rules)
    for violation in check(plan):
        assert violation.rule == "aged"
        entry(plan, str(violation.gang).split("/")[1])["aged"] = True
    assert check(sealed(plan)) == []
    return plan


def marked(plan: Doc) -> list[str]:
    return [stated["name"] for stated in plan["spec"]["gangs"] if stated.get("aged")]


def test_a_gang_ages_that_waited_for_longer_than_the_limit() -> None:
    names = ("06-2", "08-2", "09-2", "12-1", "never-2")
    plan = aged("3h", *names, lists=("admission",))  # now is 12:00, of 12-1
    assert marked(plan) == ["06-2", "08-2"]
    assert derive(plan) == {"aged/2": 2, "admission/2": 4, "admission/1": 0}
    plan = aged("3h", *names, now="2026-11-21T12:00:01Z", lists=("admission",))
    assert marked(plan) == ["06-2", "08-2", "09-2"]
    assert marked(aged(None, *names, lists=("admission",))) == []


def test_aged_tiers_are_stated_where_a_gang_is_aged_and_before_its_peers() -> None:
    names = ("06-2", "07-1", "11-0", "12-1")
    # 06 and 07 are aged; the first is placed. T is 12:00: 6 h and 1 h.
    assert derive(aged("3h", *names, lists=("waiting", "span", "admission"))) == {
        "span": 0,
        "aged/2": 1,
        "aged-waiting/2": 21600,
        "admission/2": 1,
        "waiting/2": 21600,
        "aged/1": 0,
        "aged-waiting/1": 0,
        "admission/1": 0,
        "waiting/1": 0,
        "admission/0": 1,
        "waiting/0": 3600,
    }


def test_a_size_is_held_until_its_time_and_no_longer() -> None:
    def grows(after: str, **rules: object) -> set[str]:
        old = gang(
            "old",
            role("worker", {"min": 1, "max": 2}, 4),
            resizeAfter=after,
            submittedAt="2026-11-21T12:00:00Z",
            pods=(standing("old", "h1", LOW),),
        )
        stated = decided("old", "resize", ("h1", LOW), ("h1", HIGH))
        return rules_broken(made(servers(1), [old], [stated], policy(**rules)))

    assert grows("2026-11-21T12:00:01Z") == {"size"}
    assert grows("2026-11-21T12:00:00Z") == set()
    assert grows("2026-11-21T12:00:01Z", now="2026-11-21T12:00:01Z") == set()
    assert grows("2026-11-21T11:00:00Z", now="2026-11-21T10:00:00Z") == {"size"}


@pytest.mark.parametrize(
    ("servers_", "workers", "allowed"), [(1, 3, True), (2, 3, False), (1, 5, False)]
)
def test_a_held_gang_is_completed_in_roles_that_start_at_one_and_in_roles_that_lack_every_pod(
    servers_: int, workers: int, *, allowed: bool
) -> None:
    # Workers 1 and 3 stand, of 1, 3 or 5 from 1 on; no server does, of 1 or 2 from 4 on.
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 5, "step": 2}, 1, firstIndex=1),
        role("server", {"min": 1, "max": 2}, 0, firstIndex=4),
        resizeAfter="2030-01-01T00:00:00Z",
        pods=(standing("old", "h1", [0], 1), standing("old", "h1", [2], 3)),
    )
    stated = decided("old", "complete")
    stated["pods"] = [
        {"name": f"old-{r}-{i}", "role": r, "index": i, "node": "h1", "gpus": gpus}
        for r, i, gpus in (
            *(("worker", i, [i - 1]) for i in range(1, workers + 1)),
            *(("server", i, []) for i in range(4, 4 + servers_)),
        )
    ]
    assert rules_broken(made(servers(1), [old], [stated])) == (set() if allowed else {"size"})
