"""What time makes of gangs: lost runtime, ageing and held sizes, worked out by hand."""

from __future__ import annotations

import pytest
from plan_documents import (
    Doc,
    best_is,
    cluster,
    decided,
    dgx,
    entry,
    gang,
    made,
    node,
    policy,
    restated,
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


def test_lost_runtime_is_capped_and_at_least_a_second() -> None:
    assert stops(policy(disruption=LOST | {"cap": "1h30m"})) == 4 * 5400
    assert stops(policy(disruption=LOST | {"cap": "0s"})) == 4
    assert stops(policy(disruption={"weight": "lostRuntime"})) == 4 * 86400
    started = "2026-11-22T00:00:00Z"
    late = policy(disruption=LOST, now="2026-11-21T12:00:00Z")
    assert stops(late, startedAt=started) == 4


def test_gpus_are_what_counts_unless_lost_runtime_is() -> None:
    for rules in (policy(), policy(disruption={}), policy(disruption={"cap": "1h"})):
        assert stops(rules, startedAt="2026-11-21T11:00:00Z") == 4
    assert stops(policy(disruption={"weight": "gpus", "cap": "60s"})) == 4


def test_without_now_the_latest_time_of_the_input_is_now() -> None:
    # 13:00, its own checkpoint: nothing is lost but a second.
    late = {"startedAt": "2026-11-21T11:00:00Z", "lastCheckpoint": "2026-11-21T13:00:00Z"}
    assert stops(policy(disruption=LOST), **late) == 4
    # 12:00, the other gang's submittedAt
    assert stops(policy(disruption=LOST), startedAt="2026-11-21T11:30:00Z") == 4 * 1800
    said = policy(disruption=LOST, now="2026-11-21T12:15:00Z")
    assert stops(said, startedAt="2026-11-21T11:30:00Z") == 4 * 2700


def test_a_gang_that_shrinks_loses_what_it_drops_and_one_that_moves_all() -> None:
    rules = policy(disruption=LOST, now="2026-11-21T12:00:00Z")
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 2}, 4),
        movable=True,
        pods=(standing("old", "h1", LOW), standing("old", "h2", LOW, 1)),
    )
    old["status"]["startedAt"] = "2026-11-21T11:59:50Z"
    plan = made(servers(2), [old], [decided("old", "resize", ("h1", LOW))], rules)
    assert (check(plan), derive(plan)["disruption"]) == ([], 40)
    # Of two pods one is dropped and one moves: all 8.
    plan = made(servers(2), [old], [decided("old", "move", ("h1", HIGH))], rules)
    assert (check(plan), derive(plan)["disruption"]) == ([], 80)


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


def test_without_admission_no_gang_is_aged_in_a_tier_but_it_is_marked() -> None:
    plan = aged("3h", "06-2", "12-2", lists=("waiting",))
    assert marked(plan) == ["06-2"]
    assert derive(plan) == {"waiting/2": 21600}


def test_the_ages_of_aged_waiting_are_counted_to_the_latest_submission_not_to_now() -> None:
    plan = aged("1h", "06-2", "07-2", now="2026-11-21T12:00:00Z", lists=("admission", "waiting"))
    assert marked(plan) == ["06-2", "07-2"]
    assert derive(plan)["aged-waiting/2"] == 3600


def test_a_gang_that_runs_never_ages() -> None:
    old = gang("old", submittedAt="2020-01-01T00:00:00Z", pods=(standing("old", "h1", [0]),))
    rules = policy(starvation={"after": "1s"}, now="2026-11-21T12:00:00Z")
    plan = made(servers(1), [old], [decided("old", "keep", ("h1", [0]))], rules)
    assert check(plan) == []
    assert "aged/0" not in derive(plan)


@pytest.mark.parametrize("name", ["aged/2", "aged-waiting/2"])
def test_aged_tiers_take_the_tolerances_of_admission_and_waiting(name: str) -> None:
    plan = aged("3h", "06-2", "12-2", lists=("admission", "waiting"))
    stated = next(t for t in plan["status"]["objectives"] if t["name"] == name)
    stated.update(best_is(stated["value"] * 2))
    assert rules_broken(plan) == {"tier-best"}
    listed = plan["instance"]["policy"]["spec"]["objectives"]
    listed[name == "aged-waiting/2"]["tolerance"] = 0.5
    assert check(sealed(plan)) == []
    listed[0]["tolerance"], listed[1]["tolerance"] = listed[1]["tolerance"], listed[0]["tolerance"]
    assert rules_broken(sealed(plan)) == {"tier-best"}


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


def test_a_held_gang_that_has_not_started_starts_at_any_size() -> None:
    new = gang("a", role("worker", {"min": 1, "max": 2}, 4), resizeAfter="2030-01-01T00:00:00Z")
    plan = made(servers(1), [new], [decided("a", "place", ("h1", LOW), ("h1", HIGH))])
    assert check(restated(plan)) == []


@pytest.mark.parametrize(("count", "allowed"), [(3, True), (5, False)])
def test_a_held_gang_is_completed_to_the_least_that_reaches_its_highest_pod(
    count: int, *, allowed: bool
) -> None:
    # Pods 0 and 2 stand, of 1, 3 or 5.
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 5, "step": 2}, 1),
        resizeAfter="2030-01-01T00:00:00Z",
        pods=(standing("old", "h1", [0]), standing("old", "h1", [2], 2)),
    )
    stated = decided("old", "complete", *(("h1", [i]) for i in range(count)))
    assert rules_broken(made(servers(1), [old], [stated])) == (set() if allowed else {"size"})


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


def test_a_held_gang_beyond_its_max_cannot_be_completed_to_any_size() -> None:
    """Pods 0 and 3 stand of at most two: no allowed count reaches pod 3, so no size is the least."""
    old = gang(
        "old",
        role("worker", {"min": 1, "max": 2}, 1),
        resizeAfter="2030-01-01T00:00:00Z",
        pods=(standing("old", "h1", [0]), standing("old", "h1", [3], 3)),
    )
    stated = decided("old", "complete", *(("h1", [i]) for i in range(4)))
    assert rules_broken(made(servers(1), [old], [stated])) == {"completion"}


def test_a_held_gang_keeps_the_number_of_pods_of_every_role() -> None:
    """One pod of a role for one of another is as many pods, and another size."""
    two = [role("worker", {"min": 1, "max": 2}, 1), role("server", {"min": 1, "max": 2}, 1)]
    pods = [("worker", 0), ("worker", 1), ("server", 0)]
    old = gang("old", *two, movable=True, resizeAfter="2030-01-01T00:00:00Z")
    old["status"]["pods"] = [
        {"name": f"old-{r}-{i}", "role": r, "index": i, "node": "h1", "gpus": [n]}
        for n, (r, i) in enumerate(pods)
    ]
    after = [("worker", 0, 0), ("server", 0, 2), ("server", 1, 3)]
    stated = decided("old", "resize")
    stated["pods"] = [
        {"name": f"old-{r}-{i}", "role": r, "index": i, "node": "h1", "gpus": [n]}
        for r, i, n in after
    ]
    assert rules_broken(made(servers(1), [old], [stated])) == {"size"}
    old["spec"]["resizeAfter"] = None
    assert rules_broken(made(servers(1), [old], [stated])) == set()
